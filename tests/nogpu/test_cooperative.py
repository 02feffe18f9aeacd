"""Products of halves on matrix units: which devices, tiles and parts the plan chooses."""

from __future__ import annotations

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from vklab import settings
from vklab.ops import registry
from vklab.plan.tuning import tiles, variants
from vklab.plan.tuning.products import matrix_products
from vklab.types import CooperativeMatrix, Dispatch, TensorInfo

HALF = ("float16", "float16", "float32", "float32")


def device(*shapes, lanes=32, shared=49152, kinds=HALF, **changes):
    """Return a device with cooperative matrices of these shapes."""
    matrices = tuple(CooperativeMatrix(*shape, *kinds) for shape in shapes)
    return fake_device(
        {"maxComputeSharedMemorySize": shared},
        subgroup_size=lanes,
        cooperative_matrices=matrices,
        **changes,
    )


def chosen(info, m, k, n, dtype="float16", turned=False) -> tuple[Dispatch, ...]:
    a, b = (
        TensorInfo(name, dtype, shape)
        for name, shape in (("a", (m, k)), ("b", (n, k) if turned else (k, n)))
    )
    (product,) = registry.apply("Gemm", [a, b], {"transB": int(turned)}, 17).dispatches
    return variants.choose(product, info)


def convolved(info, filters, channels, size, window) -> tuple[Dispatch, ...]:
    weight = np.zeros((filters, channels, window, window), np.float16)
    image = TensorInfo("x", "float16", (1, channels, size, size))
    filled = TensorInfo("w", "float16", weight.shape, weight)
    pads = {"pads": (window // 2,) * 4}
    (product,) = registry.apply("Conv", [image, filled], pads, 17).dispatches
    return variants.choose(product, info)


@pytest.mark.parametrize("lanes", [8, 16, 32, 64])
@pytest.mark.parametrize("shared", [16384, 32768, 65536])
@pytest.mark.parametrize("shape", [(8, 8, 8), (16, 8, 16), (16, 16, 16)], ids=str)
def test_a_tile_suits_registers_shared_memory_and_lanes(lanes, shared, shape):
    info = device(shape, lanes=lanes, shared=shared)
    products = [
        chosen(info, *sizes)
        for sizes in ((16, 32, 16), (197, 768, 768), (4096, 4096, 4096), (33, 5000, 47))
    ]
    convs = [
        convolved(info, *sizes)
        for sizes in ((16, 16, 4, 3), (64, 64, 56, 3), (512, 512, 7, 3), (256, 64, 56, 1))
    ]
    for first, *rest in products + convs:
        assert first.kernel.endswith("_cooperative") and len(rest) <= 1
        sizes = {
            **first.constant_values,
            **{name: int(value) for name, value in first.defines if value.isdigit()},
        }
        down = sizes["TILE_M"] // (sizes["ROWS"] * sizes["MATRIX_M"])
        across = sizes["TILE_N"] // (sizes["COLUMNS"] * sizes["MATRIX_N"])
        assert sizes["WORKGROUP"] == down * across * lanes
        sums = sizes["ROWS"] * sizes["COLUMNS"] * shape[0] * shape[1]
        assert sums <= matrix_products.MOST_SUMS * lanes
        step = sizes["TILE_K"]
        assert 2 * (step + 8) * (sizes["TILE_M"] + sizes["TILE_N"]) <= shared
        # Each invocation fetches whole eights of both tiles, and results fit where tiles lay.
        for side in ("TILE_M", "TILE_N"):
            assert sizes[side] * step // 8 % sizes["WORKGROUP"] == 0
        rows = sizes["MATRIX_M"] * sizes["COLUMNS"] * sizes["MATRIX_N"] * 4 * down * across
        assert rows <= 2 * step * (sizes["TILE_M"] + sizes["TILE_N"])
        whole = step if first.kernel.startswith("matmul") else 16  # terms; channels
        assert rest == [] or first.push_values["part"] % whole == 0


@pytest.mark.parametrize("info", [
    device(), device((16, 16, 16), kinds=("float16",) * 4),
    device((16, 16, 16), kinds=("bfloat16", "bfloat16", "float32", "float32")),
    device((12, 16, 16)), device((16, 16, 4)), device((128, 128, 128)),
    device((16, 16, 24)), device((16, 16, 16), type="cpu"),
], ids=["none", "sums", "bfloat16", "odd", "thin", "large", "uneven", "cpu"])  # fmt: skip
def test_a_device_without_a_usable_matrix_keeps_its_kernels(info):
    assert all(d.kernel != "matmul_cooperative" for d in chosen(info, 256, 256, 256))


def test_the_largest_usable_matrix_is_taken():
    (one,) = chosen(device((8, 8, 8), (16, 16, 16), (16, 8, 16)), 256, 256, 256)
    assert {name: value for name, value in one.defines if name.startswith("MATRIX")} == {
        "MATRIX_M": "16",
        "MATRIX_N": "16",
        "MATRIX_K": "16",
    }


def test_other_dtypes_small_products_and_the_switch_leave_matrix_units_alone():
    info = device((16, 16, 16))
    assert chosen(info, 2048, 256, 2048, "float32")[0].kernel == "matmul_tiled"
    assert chosen(info, 256, 256, 256, "float32")[0].kernel.endswith("_tiled")
    for m, k, n in ((1, 256, 256), (15, 256, 256), (256, 31, 256), (256, 256, 8)):
        assert chosen(info, m, k, n)[0].kernel != "matmul_cooperative"
    with settings.settings(DISABLE_VARIANTS=True):
        assert chosen(info, 256, 256, 256)[0].kernel == "matmul"


@pytest.mark.parametrize(("m", "k", "n", "turned", "eights"), [
    (64, 64, 64, False, "1"), (64, 64, 60, False, "0"), (64, 64, 60, True, "1"),
    (64, 60, 64, False, "0"), (61, 64, 64, False, "1"),
])  # fmt: skip
def test_eights_are_read_where_lines_begin_at_multiples_of_eight(m, k, n, turned, eights):
    first = chosen(device((16, 16, 16)), m, k, n, turned=turned)[0]
    assert first.define_values["EIGHTS"] == eights
    assert first.constant_values["B_ALONG_N"] == int(not turned)


def test_the_model_prefers_more_parts_only_where_few_workgroups_would_run():
    for table in (tiles.PRODUCT, tiles.PACKED, tiles.COOPERATIVE, tiles.COOPERATIVE_CONV):
        tile, parts = tiles.soonest(table, (4096, 4096, 4096, 1))
        largest = max(t.m * t.n for t in table)
        assert parts == 1 and tile.m * tile.n * tile.buffers == largest
        tile, parts = tiles.soonest(table, (32, 32, 8192, 1))
        assert parts > 1 and tile.m * tile.n <= 64 * 64
        times = [tiles.expected_ns(table[0], 1, (64, 64, k, 1)) for k in (64, 128, 4096)]
        assert times == sorted(times) and np.all(np.diff(times) > 0)
