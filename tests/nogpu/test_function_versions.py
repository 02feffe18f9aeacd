"""Functions that import other versions of operators: ONNX's cases as functions keep their results.

The rule of `local_functions` is held against all versions of all operators that have cases.
"""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from support.models import suite_cases
from vklab.apps import conformance
from vklab.errors import ModelError
from vklab.graph import onnx_import


def as_function(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a model of an opset that calls the graph of another model, with its own opset."""
    graph = proto.graph
    inputs, outputs = ([value.name for value in side] for side in (graph.input, graph.output))
    function = helper.make_function(
        "mine", "F", inputs, outputs, [*graph.node], [*proto.opset_import]
    )
    call = helper.make_node("F", inputs, outputs, domain="mine")
    return helper.make_model(
        helper.make_graph([call], "g", [*graph.input], [*graph.output]),
        functions=[function],
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)],
        ir_version=max(proto.ir_version, 8),
    )


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 17, 22])
def test_every_case_as_a_function_is_right_or_refused(opset):
    counts: Counter[str] = Counter()
    for case in suite_cases.node_cases():
        proto = case.model
        plain = not (case.is_random or proto.functions or proto.graph.initializer)
        kinds = {value.type.WhichOneof("value") for value in proto.graph.output}
        if not plain or kinds != {"tensor_type"} or any(node.domain for node in proto.graph.node):
            continue
        try:
            made = onnx_import.prepare(as_function(proto, opset))
        except ModelError as error:
            assert "is not the same in both" in str(error), case.name
            counts["refused"] += 1
            continue
        onnx.checker.check_model(made)
        names = [value.name for value in proto.graph.input]
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            for inputs, expected in case.data_sets():
                got = ReferenceEvaluator(made).run(None, dict(zip(names, inputs, strict=True)))
                conformance._compare(case, expected, got)
        counts["right"] += 1
    assert counts["right"] > 300 and counts["refused"] > 300
