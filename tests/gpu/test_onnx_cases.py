"""ONNX's own backend suite: every case right, on Vulkan or with a reason on the host.

A case is declined by a predicate over operator, dtype, shape and limits, never by its name.
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from pathlib import Path

import pytest

from support.models import suite_cases
from vklab import ops
from vklab.apps import conformance
from vklab.apps.conformance import Case
from vklab.errors import HostWarning
from vklab.runtime.on_cpu import onnx_evaluator, reference_process

HERE = Path(__file__).resolve().parent
REGISTERED = sorted({op_type for domain, op_type in ops.registry.OPERATORS if not domain})
# The suite has no cases of these; ONNX Runtime is what their own tests compare with.
WITHOUT_CASES = {"GlobalLpPool", "MaxRoiPool", "SimplifiedLayerNormalization"}
# The quick tier runs the first few cases of an operator, the default one every so-many-th as well.
SAMPLE, EVERY = 3, 3
# What the suite has besides cases of registered operators, by the first letter of its word: the
# cases take long to make, so no test's name depends on them.
OTHERS = {f"others, {letters}": letters for letters in ("a-b", "c-d", "e-k", "l-n", "o-r", "s-z")}
GROUPS = [*(name for name in REGISTERED if name not in WITHOUT_CASES), *OTHERS]


@functools.cache
def groups() -> dict[str, list[Case]]:
    """Return the cases by operator; expanded cases by the first word of their name."""
    found: dict[str, list[Case]] = {}
    for case in suite_cases.all_cases():
        name = case.operator or f"{case.kind}: {case.name.split('_')[1]}"
        found.setdefault(name, []).append(case)
    return found


def chosen(group: str) -> dict[str, list[Case]]:
    """Return the cases of an operator, or of a part of the others, by operator."""
    if group not in OTHERS:
        return {group: groups()[group]}
    first, last = OTHERS[group].split("-")
    names = sorted(groups().keys() - set(REGISTERED))
    words = {name: re.split("[ .]", name)[-1].lower() for name in names}
    return {name: groups()[name] for name, word in words.items() if first <= word[0] <= last}


def report_of(cases, device_index):
    """Run cases and fail for each that is wrong or ends in an error."""
    report = conformance.run(cases, f"VULKAN:{device_index}")
    bad = {c.name: o for c, o in report.outcomes.items() if o.status in ("wrong", "error")}
    assert not bad, "\n".join(f"{name}: {o.status}: {o.reason}" for name, o in bad.items())
    return report


def unknown(cases):
    """Return the number of cases with a Gradient, which is known neither to vklab nor to ONNX."""
    nodes = ((node.op_type for node in case.model.graph.node) for case in cases)
    return sum("Gradient" in op_types for op_types in nodes)


def test_every_registered_operator_has_cases():
    assert set(REGISTERED) - WITHOUT_CASES <= groups().keys()


def is_tested(domain, op_type):
    """Tell whether a test_op_*.py names an operator and its domain, itself or in a helper."""
    for path in HERE.glob("test_op_*.py"):
        text = path.read_text("utf-8")
        found = re.findall(r"^from (support[\w.]*) import ([\w, ]+)", text, re.M)
        modules = [
            name
            for module, names in found
            for name in (module, *(f"{module}.{each}" for each in names.split(", ")))
        ]
        helpers = [HERE.parent.joinpath(*name.split(".")).with_suffix(".py") for name in modules]
        texts = [text, *(helper.read_text("utf-8") for helper in helpers if helper.exists())]
        of_domain = [each for each in texts if f'"{domain}"' in each]
        if of_domain and any(f'"{op_type}"' in each for each in (text, *of_domain)):
            return True
    return False


def test_every_operator_of_another_domain_has_cases_or_a_test():
    others = sorted(item for item in ops.registry.OPERATORS if item[0] not in ("", "vklab"))
    assert len(others) > 30
    unproved = [name for name in others if ".".join(name) not in groups() and not is_tested(*name)]
    assert not unproved, "add cases to tests/gpu/test_op_*.py"
    assert not is_tested("com.microsoft", "HardSwish")  # of ONNX, in files without the domain


@pytest.mark.parametrize("op_type", [name for name in REGISTERED if name not in WITHOUT_CASES])
def test_a_sample_of_the_cases_of(device, op_type):
    report = report_of(groups()[op_type][:SAMPLE], device)
    assert report.counts()["pass"] + report.counts()["fallback"] == len(report.outcomes)


@pytest.mark.full
@pytest.mark.parametrize("group", GROUPS)
def test_more_cases_of(device_index, group):
    cases = [case for found in chosen(group).values() for case in found[SAMPLE::EVERY]]
    if not cases:
        pytest.skip(f"the suite has at most {SAMPLE} cases")
    report = report_of(cases, device_index)
    assert report.counts()["skipped"] == unknown(cases)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_case_of(device_index, group):
    cases = [case for found in chosen(group).values() for case in found]
    report = report_of(cases, device_index)
    counts = report.counts()
    assert counts["skipped"] == unknown(cases)
    if group in REGISTERED:
        reasons = [outcome.reason for outcome in report.outcomes.values()]
        assert counts["pass"], f"no case of {group} passes on Vulkan: {reasons}"


@pytest.mark.slow
def test_the_counts_that_the_coverage_table_states(device_index):
    report = conformance.run(suite_cases.all_cases(), f"VULKAN:{device_index}")
    node = [case for case in report.outcomes if case.kind == "node"]
    counts = report.counts(node)
    assert counts["wrong"] == counts["error"] == 0
    assert counts["pass"] >= 1200 and counts["pass"] + counts["fallback"] >= 1870
    assert sum(row["covered"] for row in report.operators().values()) >= 130


def test_without_the_host_a_case_is_skipped_for_a_reason_that_names_node_and_rule(device_index):
    (case,) = [case for case in suite_cases.node_cases() if case.name == "test_string_concat"]
    report = conformance.run([case], f"VULKAN:{device_index}", fallback=False)
    (outcome,) = report.outcomes.values()
    assert outcome.status == "skipped" and "StringConcat" in outcome.reason
    assert "string, not numbers" in outcome.reason


def test_a_case_that_needs_a_package_is_skipped_with_the_line_that_installs_it(
    device_index, monkeypatch
):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)  # as on a machine without Pillow
    monkeypatch.setattr(
        reference_process.ProcessModel,
        "run",
        lambda model, fed: onnx_evaluator.Evaluator(model.source()[0]).run(fed),
    )
    cases = [c for c in suite_cases.node_cases() if c.name.startswith("test_image_decoder")]
    report = conformance.run(cases, f"VULKAN:{device_index}")
    assert {outcome.status for outcome in report.outcomes.values()} == {"skipped"}
    (reason,) = {outcome.reason for outcome in report.outcomes.values()}
    assert "Pillow must be installed" in reason
    assert reason.endswith("to repair: pip install 'vklab[images]'")


def test_host_nodes_are_told_by_the_report_and_not_by_a_warning_for_each_case(device_index):
    (case,) = [case for case in suite_cases.node_cases() if case.name == "test_string_concat"]
    with warnings.catch_warnings(action="error", category=HostWarning):
        report = conformance.run([case], f"VULKAN:{device_index}")
    (outcome,) = report.outcomes.values()
    assert outcome.status == "fallback" and "string, not numbers" in outcome.reason


def test_a_wrong_result_is_called_wrong(device_index, monkeypatch):
    (case,) = [case for case in suite_cases.node_cases() if case.name == "test_relu"]
    for _, expected in case.data_sets():
        expected[0][0, 0, 0] += 1  # the case's own array
    report = conformance.run([case], f"VULKAN:{device_index}")
    expected[0][0, 0, 0] -= 1
    (outcome,) = report.outcomes.values()
    assert outcome.status == "wrong" and "Mismatch" in outcome.reason
