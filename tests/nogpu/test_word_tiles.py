"""Products of int8 in words: which kernel and tile a plan chooses on which device."""

from __future__ import annotations

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from vklab import settings
from vklab.ops import registry, words_product
from vklab.plan.tuning import candidates, problems, tiles, variants
from vklab.plan.tuning.blocks import word_tiles
from vklab.types import CooperativeMatrix, Dispatch, TensorInfo

BYTES = ("int8", "int8", "int32", "int32")
DOTS = frozenset({"shaderIntegerDotProduct"})
MATRICES = DOTS | {"shaderInt8"}


def device(*shapes, lanes=32, shared=49152, features=MATRICES, kinds=BYTES, **changes):
    """Return a device with cooperative matrices of these shapes."""
    matrices = tuple(CooperativeMatrix(*shape, *kinds) for shape in shapes)
    limits = {"maxComputeSharedMemorySize": shared, "maxComputeWorkGroupInvocations": 1024}
    return fake_device(
        limits, subgroup_size=lanes, cooperative_matrices=matrices, features=features, **changes
    )


def convolution(filters=64, channels=64, size=14, window=3, images=1, group=1) -> Dispatch:
    codes = np.ones((filters, channels // group, window**2), np.int16)
    packed = words_product.lay_out(codes, group)
    table = words_product.filter_table(codes, 0, np.ones(filters), np.zeros(filters))
    given = [
        TensorInfo("x", "uint32", (images, -(-channels // 4), size, size)),
        TensorInfo("w", "uint32", packed.shape, packed),
        TensorInfo("c", "uint32", table.shape, table),
    ]
    attributes = {
        "filters": filters,
        "depth": channels // group,
        "group": group,
        "kernel_shape": (window, window),
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": (window // 2,) * 4,
        "zeros": (3, 0),
        "limits": (-128, 127),
    }
    (made,) = registry.apply("ConvWords", given, attributes, 1, "vklab").dispatches
    return made


def kernel(info, **sizes) -> str:
    (chosen,) = variants.choose(convolution(**sizes), info)
    return chosen.kernel


@pytest.mark.parametrize("lanes", [8, 16, 32, 64])
@pytest.mark.parametrize("shared", [16384, 49152])
@pytest.mark.parametrize("shape", [(8, 8, 32), (16, 8, 32), (16, 16, 16), (16, 16, 32)], ids=str)
def test_a_tile_suits_matrices_lanes_and_shared_memory(lanes, shared, shape):
    info = device(shape, lanes=lanes, shared=shared)
    found = 0
    for tile in tiles.WORDS:
        sizes = word_tiles.sizes_of(convolution())
        rule = word_tiles.on_matrix_units
        made = rule(tiles.ProductTask(convolution(), sizes, info, tiles.only(tile.shape, 1)))
        if made is None:
            continue
        found += 1
        numbers = made[0].constant_values
        numbers |= {name: int(value) for name, value in made[0].defines if value.isdigit()}
        down = numbers["TILE_M"] // (numbers["ROWS"] * numbers["MATRIX_M"])
        across = numbers["TILE_N"] // (numbers["COLUMNS"] * numbers["MATRIX_N"])
        workgroup, pieces = numbers["WORKGROUP"], numbers["TILE_K"] // 16
        slices = numbers["TILE_K"] // 128
        assert workgroup == down * across * slices * lanes <= 1024
        assert not workgroup % numbers["TILE_N"] and not workgroup % pieces
        assert not numbers["TILE_M"] * pieces % workgroup
        assert numbers["TILE_K"] % (slices * numbers["MATRIX_K"]) == 0
        used = (pieces + 1) * 16 * (numbers["TILE_M"] + numbers["TILE_N"])
        sums = 16 * numbers["MATRIX_N"] * (numbers["MATRIX_M"] // 4 + 1) * workgroup // lanes
        assert max(used, sums) <= max(shared, used) and sums <= used <= shared
    assert found or shared < 49152 or lanes in (8, 64)


def test_devices_without_matrices_or_dots_keep_their_kernels():
    full = device((16, 16, 32))
    assert kernel(full) == "words_tiled"
    assert kernel(device(features=DOTS)) == "words_tiled"  # by dot products
    assert kernel(device((16, 16, 32), features=frozenset())) == "conv_words"
    assert (
        kernel(device((16, 16, 32), features=DOTS, kinds=("uint8", "uint8", "uint32", "uint32")))
        == "words_tiled"
    )
    assert kernel(device((16, 16, 32), type="cpu")) == "conv_words"
    for switch in ("DISABLE_INTEGER_DOT", "DISABLE_PREPACK", "DISABLE_VARIANTS"):
        with settings.settings(**{switch: True}):
            assert kernel(full) == "conv_words", switch


@pytest.mark.parametrize("sizes", [
    {"filters": 512, "channels": 512, "size": 7, "window": 7},  # a sum of 25,088 terms
    {"filters": 2048, "channels": 512, "size": 7, "window": 7, "images": 16},
    {"filters": 64, "channels": 64, "size": 56}, {"filters": 512, "channels": 2048, "size": 7,
                                                  "window": 1},
], ids=str)  # fmt: skip
def test_the_tile_is_the_fastest_for_sums_that_are_not_cut(sizes):
    (chosen,) = variants.choose(convolution(**sizes), device((16, 16, 32)))
    shape = word_tiles.sizes_of(convolution(**sizes))
    numbers = chosen.constant_values | {key: int(n) for key, n in chosen.defines if n.isdigit()}
    time = {(tile.m, tile.n, tile.k): tiles.expected_ns(tile, 1, shape) for tile in tiles.WORDS}
    assert time[numbers["TILE_M"], numbers["TILE_N"], numbers["TILE_K"]] == min(time.values())


def test_small_and_grouped_products_are_not_tiled():
    info = device((16, 16, 32))
    assert kernel(info, filters=8, size=28) == "conv_words"
    assert kernel(info, channels=4, window=1) == "conv_words"
    assert kernel(info, group=2) == "conv_words"
    assert kernel(info, size=2, window=1) == "matvec_words"
    assert kernel(info, filters=10, channels=512, size=5, images=2) == "matvec_words"
    assert kernel(info, filters=10, channels=16, size=5, images=2, window=1) == "conv_words"
    assert kernel(info, filters=10, channels=512, size=17) == "conv_words"
    assert kernel(info, filters=64, channels=64, group=64) == "depthwise_words"


def test_weights_by_filter_hold_the_same_numbers():
    codes = np.random.default_rng(0).integers(-128, 128, (37, 21, 9)).astype(np.int16)
    packed = words_product.lay_out(codes, 1)
    weight = TensorInfo("w", "uint32", packed.shape, packed)
    laid_out = word_tiles.by_filter(weight)
    filled = word_tiles.prepack.fill(laid_out, {"w": weight})
    assert filled.constant.shape == laid_out.dims
    rows = filled.constant.transpose(1, 0, 2).reshape(40, -1)[:37, : 9 * 6]
    numbers = np.ascontiguousarray(rows).view(np.int8).reshape(37, 9, 24)[:, :, :21]
    np.testing.assert_array_equal(numbers.transpose(0, 2, 1), codes)


def test_products_of_words_are_tuned_by_class():
    info, product = device((16, 16, 32)), convolution(images=4)
    problem = problems.of(product, word_tiles.sizes_of(product))
    assert str(problem) == "conv_words int8 64x896x640x1 3x3/1x1 codes"
    offered = candidates.choices(problem, info)
    names = {name for name, _, _ in offered}
    assert {"", "matrix_words"} <= names and len(offered) > 3
    for choice in offered[1:]:
        (made,) = variants.choose(product, info, (), {problem: choice})
        assert made.measured == problem
