"""MIL operators on a device against NumPy: one program holds all cases, in each precision."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.models import coreml_written, mil_cases
from vklab import settings
from vklab.apps.compare.coreml import program

pytestmark = pytest.mark.slow

UNIT = {"float32": 2.0**-24, "float16": 2.0**-11}


def written(precision, folder):
    """Write a program with every case; return its path, the feeds and each case's outputs."""
    made = coreml_written.WrittenProgram()
    feeds, results = {}, []
    for number, case in enumerate(mil_cases.CASES):
        inputs = {}
        for i, (key, each) in enumerate(mil_cases.flat(case)):
            name = f"in_{number}_{i}"
            array = each.astype(precision) if each.dtype.kind == "f" else each
            feeds[made.input(name, str(array.dtype), array.shape)] = array
            inputs[key] = (*inputs.get(key, ()), name)
        inputs |= {k: mil_cases.constant(v, precision) for k, v in case.constants.items()}
        dtype = mil_cases.result_dtype(case, precision)
        arrays = mil_cases.expected(case, precision)
        names = [f"out_{number}_{i}" for i in range(len(arrays))]
        operation = made.operation(case.kind, names[0], dtype, arrays[0].shape, inputs)
        for name, array in zip(names[1:], arrays[1:], strict=True):
            made.output(operation, name, dtype, array.shape)
        results.append(names)
        made.outputs(*names)
    return made.save(folder), feeds, results


def allowed(case, expected, precision):
    """Return the largest error of each element: one rounding to the result's type, float32 sums."""
    if expected.dtype.kind != "f":
        return 0.0
    inside = 1e-6 * (2 + case.terms) * np.maximum(1, np.abs(expected))
    return inside + (UNIT["float16"] * np.abs(expected) + 3e-8 if precision == "float16" else 0)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("fused", [False, True])
def test_operators_agree_with_numpy(precision, fused, device, tmp_path):
    path, feeds, results = written(precision, tmp_path)
    switches = {} if fused else {"DISABLE_FUSION": True, "DISABLE_PASSES": "all"}
    graph = program.import_package(path)
    with settings.settings(**switches), vklab.load(graph, device) as session:
        made = session.run(feeds)
    problems = []
    for case, names in zip(mil_cases.CASES, results, strict=True):
        dtype = mil_cases.result_dtype(case, precision)
        for name, wanted in zip(names, mil_cases.expected(case, precision), strict=True):
            got = made[name]
            error = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
            limit = allowed(case, wanted, dtype)
            if str(got.dtype) != dtype or not (error <= limit).all():
                problems.append(
                    f"{case.kind} {case.constants}: {got.dtype}, {error.max():.2e} "
                    f"where {np.max(limit):.2e} is allowed"
                )
    assert not problems, "\n".join(problems)
