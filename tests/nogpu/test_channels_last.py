"""Which graphs become channels-last, and which kernels and tiles such convolutions get."""

from __future__ import annotations

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from support.graphs.pass_graphs import array, kinds, made, shaped
from vklab import settings
from vklab.graph import passes
from vklab.graph.passes import channels_last
from vklab.ops import registry
from vklab.plan.tuning import tiles, variants
from vklab.plan.tuning.products import last_convs
from vklab.types import CooperativeMatrix, TensorInfo

GPU = fake_device(
    {"maxComputeSharedMemorySize": 49152, "maxComputeWorkGroupInvocations": 1024},
    subgroup_size=32,
    cooperative_matrices=(
        CooperativeMatrix(16, 16, 16, "float16", "float16", "float32", "float32"),
    ),
)
WEIGHTS = {"w": array(16, 16, 3, 3), "wv": array(32, 16, 1, 1), "wu": array(16, 32, 1, 1)}


def image(text, known="w wv wu"):
    given = {
        name: value for name, value in WEIGHTS.items() if f"{name}," in f"{text},".replace(")", ",")
    }
    constants = " ".join(set(known.split()) & given.keys())
    return shaped(made(text, known=constants, x=array(1, 16, 12, 12), **given))


BLOCK = (
    "a = Conv(x, wv); b = Relu(a); c = Conv(b, wu); d = Conv(c, w, pads=[1, 1, 1, 1]);"
    "e = Add(d, c); f = Conv(e, wv); g = Conv(f, wu); h = Conv(g, w, pads=[1, 1, 1, 1]);"
    "y = Relu(h)"
)


def test_a_chain_of_convolutions_keeps_a_transpose_at_each_end():
    graph = channels_last.channels_last(image(BLOCK))
    assert kinds(graph).count("ChannelsLastConv") == 6 and kinds(graph).count("Transpose") == 2
    assert channels_last.channels_last(graph) is graph


def test_one_convolution_is_not_worth_two_transposes():
    graph = image("y = Conv(x, wv)")
    assert channels_last.channels_last(graph) is graph


@pytest.mark.parametrize("text", [
    "a = Conv(x, w, pads=[1, 1, 1, 1]); y = Softmax(a, axis=1)", "a = Relu(w); y = Conv(x, a)",
], ids=["softmax-behind", "computed-weight"])  # fmt: skip
def test_graphs_that_stay(text):
    graph = image(text, "" if "Relu" in text else "w")
    assert channels_last.channels_last(graph) is graph


def test_only_gpus_get_the_layout_and_a_setting_leaves_it_out():
    graph = image(BLOCK)
    assert "ChannelsLastConv" in kinds(passes.run(graph, "", GPU))
    assert "ChannelsLastConv" not in kinds(passes.run(graph, "", fake_device(type="cpu")))
    assert "ChannelsLastConv" not in kinds(passes.run(graph))
    with settings.settings(DISABLE_PASSES="channels_last"):
        assert "ChannelsLastConv" not in kinds(passes.run(graph, "", GPU))


def convolved(dtype, filters, channels, size, window, groups=1):
    weight = np.zeros((window, window, channels // groups, filters), dtype)
    infos = [
        TensorInfo("x", dtype, (1, size, size, channels)),
        TensorInfo("w", dtype, weight.shape, weight),
    ]
    given = {"pads": (window // 2,) * 4, "strides": (1, 1), "dilations": (1, 1), "group": groups}
    return registry.apply("ChannelsLastConv", infos, given, 1, "vklab").dispatches


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("size", [(64, 64, 56, 3), (256, 256, 14, 3), (512, 512, 7, 3),
                                  (24, 40, 9, 5), (512, 2048, 7, 1)], ids=str)  # fmt: skip
def test_tiles_fit_the_device(dtype, size):
    (dispatch,) = convolved(dtype, *size)
    first, *rest = variants.choose(dispatch, GPU)
    known = {**first.constant_values, **{name: int(v) for name, v in first.defines if v.isdigit()}}
    assert first.kernel.startswith(("conv_last_", "matmul_")) and len(rest) <= 1
    assert known["WORKGROUP"] <= 1024
    m, n, k, _ = (
        last_convs.sizes(dispatch) if dispatch.kernel == "conv_last" else (49, 512, 2048, 1)
    )
    assert first.workgroups[0] == -(-n // known["TILE_N"])
    assert first.workgroups[1] == -(-m // known["TILE_M"])
    assert first.workgroups[2] in (1, *tiles.counts(k))


def test_slices_can_be_left_out():
    (dispatch,) = convolved("float32", 64, 64, 14, 3)
    with settings.settings(DISABLE_PASSES="sliced"):
        assert "SLICES" not in dict(variants.choose(dispatch, GPU)[0].constants)
    assert dict(variants.choose(dispatch, GPU)[0].constants)["SLICES"] > 1


def test_groups_and_odd_channels_keep_the_kernel_of_every_device():
    for filters, channels, groups in ((23, 23, 23), (7, 5, 1), (6, 4, 2)):
        (dispatch,) = convolved("float16", filters, channels, 9, 3, groups)
        assert variants.choose(dispatch, GPU)[0].kernel == "conv_last"


@pytest.mark.parametrize("size", [(24, 9), (24, 200), (1152, 7)])
def test_depthwise_takes_two_channels_and_more_pixels_where_there_are_many(size):
    channels, side = size
    (dispatch,) = convolved("float16", channels, channels, side, 3, channels)
    (made,) = variants.choose(dispatch, GPU)
    pixels, lanes = made.constant_values["PIXELS"], made.push_values["strips"] * channels // 2
    assert made.kernel == "conv_last_depthwise"
    assert pixels == (4 if side == 200 else 1) and lanes <= 128 * made.workgroups[0]
    assert made.push_values["strips"] == side * -(-side // pixels)


@pytest.mark.parametrize("table", ["SLICED", "SLICED_HALF"])
def test_slices_fit_small_devices_or_are_left_out(table):
    small = fake_device(subgroup_size=32, cooperative_matrices=GPU.cooperative_matrices)
    (dispatch,) = convolved("float16" if table == "SLICED_HALF" else "float32", 64, 64, 14, 3)
    sizes, taken = last_convs.sizes(dispatch), 0
    for tile in getattr(tiles, table):
        made = last_convs.sliced(
            tiles.ProductTask(dispatch, sizes, small, tiles.only(tile.shape, 1))
        )
        taken += made is not None
        if made:
            assert made[0].constant_values["WORKGROUP"] <= 256
    assert 0 < taken <= len(getattr(tiles, table))
