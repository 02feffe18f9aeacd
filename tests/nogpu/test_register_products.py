"""Products with operands in registers: which are taken, and weights in the order of a kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from vklab import settings
from vklab.base.names import internal
from vklab.ops import registry
from vklab.plan import fusion
from vklab.plan.fusion.text import fours
from vklab.plan.lowering import Lowered
from vklab.plan.tuning import prepack, tiles, variants
from vklab.plan.tuning.products import register_products
from vklab.shader import compiler, toolchain
from vklab.types import (
    CooperativeMatrix,
    Dispatch,
    Formula,
    Operand,
    Pointwise,
    StridedView,
    TensorInfo,
)

HALF = ("float16", "float16", "float32", "float32")


def device(vendor=0x10DE, lanes=32, shape=(16, 16, 16), driver="NVIDIA 580"):
    return fake_device(
        {"maxComputeSharedMemorySize": 49152, "maxComputeWorkGroupInvocations": 1024},
        subgroup_size=lanes,
        vendor_id=vendor,
        driver=driver,
        cooperative_matrices=(CooperativeMatrix(*shape, *HALF),),
    )


def chosen(m, k, n, turned=False, info=None, constant=True) -> tuple[Dispatch, ...]:
    shape = (n, k) if turned else (k, n)
    weight = np.zeros(shape, np.float16) if constant else None
    given = [TensorInfo("a", "float16", (m, k)), TensorInfo("b", "float16", shape, weight)]
    (product,) = registry.apply("Gemm", given, {"transB": int(turned)}, 17).dispatches
    return variants.choose(product, info or device())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", [(197, 768, 768), (128, 3072, 768), (197, 768, 2304),
                                   (33, 520, 44), (150, 1096, 140)], ids=str)  # fmt: skip
def test_short_products_with_weights_are_taken(sizes, turned):
    first, *rest = chosen(*sizes, turned)
    assert first.kernel == "matmul_registers" and len(rest) <= 1
    constants, defines = first.constant_values, first.define_values
    blocks = (
        constants["TILE_M"]
        // (16 * constants["ROWS"])
        * constants["TILE_N"]
        // (16 * constants["COLUMNS"])
    )
    assert constants["WORKGROUP"] == 32 * blocks * constants["SLICES"]
    assert defines["WHOLE"] == str(int(sizes[1] % 32 == 0)) and defines["WIDE_Y"] == "1"
    assert rest == [] or first.push_values["part"] % 32 == 0
    assert dict(first.reads)["b_buffer"].name.startswith(internal("b", "by lane "))


def test_other_devices_operands_and_the_switch_leave_the_kernel_alone():
    others = [
        chosen(197, 768, 768, info=device(vendor=0x1002)),
        chosen(197, 768, 768, info=device(driver="NVK Mesa 25.2.0")),
        chosen(197, 768, 768, info=device(lanes=64)),
        chosen(197, 768, 768, info=device(shape=(16, 8, 16))),
        chosen(197, 768, 768, constant=False),
        chosen(197, 764, 768),
        chosen(197, 768, 770),
        chosen(1, 768, 768),
        chosen(8192, 4096, 8192),
    ]
    with settings.settings(DISABLE_PASSES="registers"):
        others.append(chosen(197, 768, 768))
    with settings.settings(DISABLE_PREPACK=True):
        others.append(chosen(197, 768, 768))
    with settings.settings(PRECISION="half-sums"):
        others.append(chosen(197, 768, 768))
    assert all(made[0].kernel != "matmul_registers" for made in others)


@pytest.mark.parametrize("along_n", [False, True])
@pytest.mark.parametrize(("k", "n"), [(32, 16), (40, 12), (72, 44), (8, 8)])
def test_packed_weights_multiply_like_the_matrix(k, n, along_n):
    random = np.random.default_rng(k)
    matrix = random.integers(-4, 5, (k, n)).astype(np.float16)
    value = np.ascontiguousarray(matrix if along_n else matrix.T)
    weight = TensorInfo("w", "float16", value.shape, value)
    packed = register_products.by_lane(weight, (k, n), along_n)
    filled = prepack.fill(packed, {"w": weight})
    assert filled.shape == packed.shape == filled.constant.shape and packed.constant is None
    a = random.integers(-4, 5, (3, k)).astype(np.float16)
    padded = np.pad(a, ((0, 0), (0, -k % 32))).astype(np.float32)
    # Invocation l of a step multiplies eight terms from 8 (l % 4) on, for column l / 4 of eight.
    lanes = filled.constant.reshape(-1, packed.dims[1], 32, 8).astype(np.float32)
    sums = np.zeros((3, packed.dims[1] * 8), np.float32)
    for step, eighth, lane in np.ndindex(lanes.shape[:3]):
        terms = padded[:, step * 32 + lane % 4 * 8 :][:, :8]
        sums[:, eighth * 8 + lane // 4] += terms @ lanes[step, eighth, lane]
    np.testing.assert_array_equal(sums[:, :n], a.astype(np.float32) @ matrix.astype(np.float32))


def fused(view: StridedView, columns: int = 768, target: StridedView | None = None) -> Dispatch:
    """Return a product of 197 rows that adds a tensor to its result, in a view."""
    weight = TensorInfo("w", "float16", (768, columns), np.zeros((768, columns), np.float16))
    given = [TensorInfo("a", "float16", (197, 768)), weight]
    (product,) = registry.apply("Gemm", given, {}, 17).dispatches
    value, other = product.writes[0][1], TensorInfo("r", "float16", (197, columns))
    shape = (197, columns)
    work = Pointwise(
        shape,
        (Operand(value, "float16", StridedView.dense(shape)), Operand(other, "float16", view)),
        (Formula("onnx::add(a, b)", (0, 1), (), "float16"),),
        target,
    )
    return variants.choose(replace(product, epilogue=work), device())[0]


@pytest.mark.parametrize(("view", "columns", "wide"), [
    (StridedView((768, 1)), 768, True), (StridedView((0, 1)), 768, True),
    (StridedView((1, 0)), 768, True), (StridedView((0, 0), 3), 768, True),
    (StridedView((1, 197)), 768, False), (StridedView((768, 1), 2), 768, False),
    (StridedView((770, 1)), 768, False), (StridedView((768, -1), 767), 768, False),
])  # fmt: skip
def test_an_epilogue_reads_four_neighbours_where_they_lie_together(view, columns, wide):
    made = fused(view, columns)
    assert (made.kernel == "matmul_registers") == wide
    assert made.define_values["WIDE_Y"] == str(int(wide))


def test_an_epilogue_for_four_elements_reads_and_stores_vectors():
    made = fused(StridedView((768, 1)), target=StridedView((768, 1), 4))
    text = fusion.write(Lowered((made,), ("gemm",), {}, {})).dispatches[0].fragment
    assert "StructuredBuffer<vector<X0, 4>> x0_buffer;" in text
    assert "#define STORE_FOURS(" in text and "#define STORE(" not in text
    if toolchain.find_toolchain("slang") is not None:
        emitted = fours.emit(made)
        facts = compiler.compile_variant(*emitted.variant).reflection
        assert "x0_buffer" in facts.bindings and facts.push_bytes <= 128


def test_every_tile_is_made_of_whole_matrices_and_steps():
    for tile in tiles.REGISTERS:
        assert tile.k == register_products.STEP * tile.slices
        assert not (tile.rows % 16 or tile.columns % 16 or tile.m % tile.rows)
        assert tile.n % tile.columns == 0 and tile.rows * tile.columns <= 128 * 32


def convolved(channels, filters, size, **attributes) -> tuple[Dispatch, ...]:
    weight = np.zeros((3, 3, channels, filters), np.float16)
    given = [
        TensorInfo("x", "float16", (1, size, size, channels)),
        TensorInfo("w", "float16", weight.shape, weight),
    ]
    given_too = {"dilations": (1, 1), "pads": (1,) * 4, "strides": (1, 1), **attributes}
    (conv,) = registry.apply("ChannelsLastConv", given, given_too, 1, "vklab").dispatches
    return variants.choose(conv, device())


def test_windows_of_images_are_taken():
    first, *rest = convolved(256, 256, 14)
    push, defines = first.push_values, first.define_values
    assert first.kernel == "matmul_registers" and defines["WINDOW"] == "1" and len(rest) <= 1
    assert (push["m"], push["n"], push["k"], push["in_h"]) == (196, 256, 2304, 14)
    assert first.constant_values["CHANNELS"] == 256
    assert [name for name, _ in first.reads] == ["a_buffer", "b_buffer"]
    assert convolved(256, 260, 14)[0].kernel == "matmul_registers"
    others = [convolved(20, 256, 14), convolved(256, 258, 14), convolved(256, 12, 14)]
    assert all(made[0].kernel != "matmul_registers" for made in others)
