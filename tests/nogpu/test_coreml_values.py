"""Our references of MIL operators, and our decompression, against coremltools' own inference."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest

from support.models import mil_cases
from vklab.apps.compare.coreml import emission
from vklab.types import TensorInfo

pytestmark = pytest.mark.slow
INFERRED = [case for case in mil_cases.CASES if case.inferred]
# float32 is what coremltools infers in.
RELATIVE = 1e-5


@pytest.fixture(scope="module")
def mb():
    """Return coremltools' builder of MIL programs."""
    return pytest.importorskip("coremltools.converters.mil.mil").Builder


def inferred(mb, case):
    """Return coremltools' values of one operation on constants, or None without inference."""
    made = []
    coremltools = importlib.import_module("coremltools")

    @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=coremltools.target.iOS17)
    def prog(unused):
        inputs = {}
        for key, each in mil_cases.flat(case):
            inputs.setdefault(key, []).append(mb.const(val=each))
        inputs = {key: each if key == "values" else each[0] for key, each in inputs.items()}
        constants = {
            key: value if np.ndim(value) == 0 else mil_cases.constant(value, "float32")
            for key, value in case.constants.items()
        }
        result = getattr(mb, case.kind)(**inputs, **constants)
        made.extend(result if isinstance(result, list | tuple) else [result])
        return mb.identity(x=unused)

    return [each.val for each in made]


@pytest.mark.parametrize("number", range(len(INFERRED)), ids=lambda n: INFERRED[n].kind)
def test_references_agree_with_coremltools(number, mb):
    case = INFERRED[number]
    theirs = inferred(mb, case)
    if theirs[0] is None:
        pytest.skip("coremltools infers no value here")
    for ours, value in zip(mil_cases.expected(case, "float32"), theirs, strict=True):
        np.testing.assert_allclose(
            np.asarray(value, np.float64), ours.astype(np.float64), rtol=RELATIVE, atol=1e-6
        )


def test_most_operators_have_a_value_inference(mb):
    kinds = {case.kind for case in INFERRED if inferred(mb, case)[0] is not None}
    assert len(kinds) >= 60, sorted(kinds)


def decompressed(kind, dtype, result_shape, /, **inputs):
    """Return what our operator makes of constants."""
    given = {}
    for name, value in inputs.items():
        array = np.asarray(value)
        info_dtype = "string" if array.dtype.kind == "U" else str(array.dtype)
        given[name] = [TensorInfo(name, info_dtype, array.shape, array)]
    made = emission.emit(kind, [TensorInfo("w", dtype, result_shape)], given)
    return made.results["w"].constant


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_decompression_agrees_with_coremltools(dtype):
    old = pytest.importorskip("coremltools.converters.mil.mil.ops.defs.iOS16.constexpr_ops")
    new = pytest.importorskip("coremltools.converters.mil.mil.ops.defs.iOS18.compression")
    random = np.random.default_rng(5)

    data = random.integers(-128, 128, (6, 4, 3), dtype=np.int8)
    scale, zero = random.random(4).astype(dtype), random.integers(-9, 9, 4, dtype=np.int8)
    theirs = old.constexpr_affine_dequantize.decompress(data, zero, scale, 1)
    ours = decompressed(
        "constexpr_affine_dequantize",
        dtype,
        data.shape,
        quantized_data=data,
        zero_point=zero,
        scale=scale,
        axis=np.int32(1),
    )
    np.testing.assert_array_equal(ours, theirs)

    scale, zero = (random.random((3, 2, 1)).astype(dtype) for _ in range(2))
    zero = np.round(zero * 8).astype(dtype)
    theirs = new.constexpr_blockwise_shift_scale.decompress(data, scale, zero)
    ours = decompressed(
        "constexpr_blockwise_shift_scale", dtype, data.shape, data=data, scale=scale, offset=zero
    )
    np.testing.assert_array_equal(ours, theirs)

    shape = (5, 7)
    for bits in (1, 2, 4, 6, 8):
        table = random.random(1 << bits).astype(dtype)
        packed = random.integers(0, 256, math.ceil(35 * bits / 8), dtype=np.uint8)
        theirs = old.constexpr_lut_to_dense.decompress(table, packed, np.asarray(shape))
        ours = decompressed(
            "constexpr_lut_to_dense",
            dtype,
            shape,
            indices=packed,
            lut=table,
            shape=np.asarray(shape, np.uint32),
        )
        np.testing.assert_array_equal(ours, theirs)

    indices = random.integers(0, 4, (6, 4), dtype=np.uint8)
    for vector, axis in ((1, None), (3, 0), (3, 1), (2, -1)):
        table = random.random((2, 1, 4, vector)).astype(dtype)
        theirs = new.constexpr_lut_to_dense.decompress(indices, table, axis)
        extra = {} if axis is None else {"vector_axis": np.int32(axis)}
        ours = decompressed(
            "constexpr_lut_to_dense", dtype, theirs.shape, indices=indices, lut=table, **extra
        )
        np.testing.assert_array_equal(ours, theirs)

    mask = (random.random(shape) < 0.4).astype(np.uint8)
    nonzero = random.random(int(mask.sum())).astype(dtype)
    packed = np.packbits(mask.reshape(-1), bitorder="little")
    theirs = (
        old.constexpr_sparse_to_dense.decompress(nonzero, packed, shape)
        if packed.size * 8 == mask.size
        else new.constexpr_sparse_to_dense.decompress(nonzero, mask)
    )
    for given in ({"mask": packed, "shape": np.asarray(shape, np.uint32)}, {"mask": mask}):
        ours = decompressed(
            "constexpr_sparse_to_dense", dtype, shape, nonzero_data=nonzero, **given
        )
        np.testing.assert_array_equal(ours, theirs)


def test_every_operator_has_a_case():
    compressed = {kind for kind in emission.OPERATORS if kind.startswith("constexpr_")}
    assert emission.OPERATORS.keys() - compressed == {case.kind for case in mil_cases.CASES}
