"""ONNX's own backend test cases for every registered operator, collected from the registry.

A case is declined only by UnsupportedOperatorError; an operator with no passing case fails.
"""

from __future__ import annotations

import pytest
from onnx_cases import OPERATORS, cases, run_case

SAMPLE = 3


@pytest.mark.parametrize("op_type", OPERATORS)
def test_a_sample_of_the_cases_of(device, op_type):
    for case in cases()[op_type][:SAMPLE]:
        run_case(case, device)


@pytest.mark.full
@pytest.mark.parametrize("op_type", OPERATORS)
def test_every_case_of(device_index, op_type):
    declined = {case.name: run_case(case, device_index) for case in cases()[op_type]}
    reasons = "\n".join(f"{name}: {reason}" for name, reason in declined.items() if reason)
    assert "" in declined.values(), f"no case of {op_type} passes\n{reasons}"
    print(reasons)


def test_the_reasons_name_node_and_rule(device_index):
    reasons = [run_case(case, device_index) for case in cases()["Sigmoid"]]
    declined = [reason for reason in reasons if reason]
    assert all("Sigmoid" in r and "kernels exist for" in r for r in declined)
