"""ONNX's own backend test cases, sorted by the registered operators that they use."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

import vklab
from vklab import ops
from vklab.errors import UnsupportedOperatorError
from vklab.runtime import check

OPERATORS = sorted({op_type for domain, op_type in ops.registry.OPERATORS if not domain})
# ONNX's own runner compares with these unless a case says otherwise.
RTOL, ATOL = 1e-3, 1e-5


@functools.cache
def cases() -> dict[str, list[Any]]:
    """Return the cases whose nodes are all registered, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    found = defaultdict(list)
    with np.errstate(all="ignore"):
        for case in collect_testcases(None):
            used = {node.op_type for node in case.model.graph.node}
            if used <= set(OPERATORS):
                for op_type in used:
                    found[op_type].append(case)
    return found


def arrays(values: Any) -> list[np.ndarray]:
    """Return a data set as arrays; it may hold protos."""
    return [
        numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else np.asarray(v)
        for v in values
    ]


def fold_inputs(case: Any, inputs: list[np.ndarray]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Make integer inputs beside float ones initializers: shapes and axes are known beforehand."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    named = dict(zip([i.name for i in model.graph.input], inputs, strict=True))
    known = {n: a for n, a in list(named.items())[1:] if a.dtype in (np.int64, np.bool_)}
    kept = [i for i in model.graph.input if i.name not in known]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in known.items())
    return model, {n: a for n, a in named.items() if n not in known}


def two_steps(array: np.ndarray) -> float:
    """Return two steps of a narrow float: the expected values are rounded more than once."""
    narrow = str(array.dtype) in ("float16", "bfloat16")
    return 2 * float(ml_dtypes.finfo(array.dtype).eps) if narrow else 0.0


def run_case(case: Any, device: int) -> str:
    """Run a case's data sets; return the reason if it is declined, and fail if it is wrong."""
    for inputs, outputs in case.data_sets:
        model, fed = fold_inputs(case, arrays(inputs))
        try:
            session = vklab.load(model, device)
        except UnsupportedOperatorError as error:
            return str(error)
        with session:
            expected = dict(zip(session.outputs, arrays(outputs), strict=True))
            rtol = max(case.rtol, RTOL, *map(two_steps, expected.values()))
            comparison = check.compare(session.run(fed), expected, rtol, max(case.atol, ATOL))
        assert comparison.passed, f"{case.name}: {comparison}"
    return ""
