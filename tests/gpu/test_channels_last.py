"""Convolutions and pools of channels-last images against ONNX Runtime, as GPUs compute them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from vklab import settings
from vklab.base import catalogue
from vklab.graph import passes
from vklab.graph.passes import channels_last
from vklab.plan.tuning import tiles, variants
from vklab.plan.tuning.products import last_convs
from vklab.plan.tuning.rows import last_pools
from vklab.runtime import host


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """Rewrite all graphs, whatever their Transposes cost, on CPU devices too."""
    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, channels_last.channels_last))
    monkeypatch.setattr(channels_last, "MOST_MOVED", 1e9)


def image_model(nodes, shape, constants, out="y"):
    return model(nodes, [value("x", shape)], [out], constants, opset=18)


def conv(shape, filters, kernel, groups=1, bias=True, **attributes):
    """Return a model of one convolution and a Relu, and its input."""
    depth = shape[1] // groups
    constants = {"w": random_array((filters, depth, *kernel), 1) / (depth * np.prod(kernel)) ** 0.5}
    constants["w"] = constants["w"].astype(np.float32)
    if bias:
        constants["b"] = random_array((filters,), 2)
    nodes = [
        helper.make_node("Conv", ["x", *constants], ["c"], group=groups, **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return image_model(nodes, shape, constants), {"x": random_array(shape, 3)}


def check(device, proto, fed, tolerance=2e-5, dtype=None):
    """Compare a run with ONNX Runtime; return the kernels that ran."""
    (expected,) = host.Reference(proto).run(fed).values()
    with vklab.load(proto, device, dtype=dtype) as session:
        (y,) = session.run(fed).values()
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    return kernels


CASES = {
    "3x3": ((1, 16, 13, 17), 20, (3, 3), {"pads": [1] * 4}),
    "strides": ((2, 32, 14, 13), 48, (3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    "point-strides": ((2, 32, 13, 14), 44, (1, 1), {"strides": [2, 3]}),
    "point": ((3, 28, 5, 7), 33, (1, 1), {}),
    "dilations": ((1, 64, 9, 11), 36, (3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
    "asymmetric": ((1, 36, 5, 6), 32, (2, 3), {"pads": [0, 1, 2, 1]}),
    "same": ((1, 20, 9, 8), 16, (3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "depthwise-5": ((2, 24, 10, 7), 24, (5, 5), {"groups": 24, "pads": [2] * 4}),
    "depthwise-7": ((2, 23, 11, 9), 23, (7, 7), {"groups": 23, "pads": [3] * 4, "strides": [2, 2]}),
    "depthwise-dilated": ((1, 24, 10, 17), 24, (3, 3),
                          {"groups": 24, "pads": [2] * 4, "dilations": [2, 2]}),
    "groups": ((2, 32, 9, 10), 48, (3, 3), {"groups": 4, "pads": [1] * 4}),
    "groups-of-four": ((1, 32, 9, 11), 32, (3, 3), {"groups": 8, "strides": [2, 2]}),
    "no-bias": ((1, 64, 9, 7), 64, (3, 3), {"bias": False}),
    "one-pixel": ((1, 6, 1, 1), 7, (1, 1), {}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [None, "float16"], ids=["float32", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_conv(device, case, dtype):
    shape, filters, kernel, attributes = CASES[case]
    proto, fed = conv(shape, filters, kernel, **attributes)
    kernels = check(device, proto, fed, 6e-3 if dtype else 2e-5, dtype)
    taken = ("conv_last", "matmul", "matvec")
    assert any(kernel.startswith(taken) for kernel in kernels) and "conv" not in kernels


@pytest.mark.parametrize("tile", tiles.SLICED, ids=lambda tile: f"{tile.k}")
def test_sums_shared_among_parts_of_a_workgroup(device, monkeypatch, tile):
    rules = variants.rules_for

    def only(info, kernel="matmul"):
        sliced = {
            "sliced": lambda given: last_convs.sliced(
                given._replace(pick=tiles.only(tile.shape, 1))
            )
        }
        return {**sliced, **rules(info, kernel), **sliced}

    monkeypatch.setattr(variants, "rules_for", only)
    cases = [
        ((1, 64, 13, 11), 40, (3, 3), {"pads": [1] * 4}),
        ((2, 100, 7, 7), 36, (1, 1), {}),
        ((1, 256, 7, 7), 68, (3, 3), {"bias": False}),
    ]
    for shape, filters, kernel, attributes in cases:
        proto, fed = conv(shape, filters, kernel, **attributes)
        kernels = check(device, proto, fed)
        # Many slices take more shared memory than some devices have.
        assert "conv_last_tiled" in kernels or tile.k > 64


PHOTOGRAPHS = {
    "7x7": ((1, 3, 18, 20), (7, 7), {"pads": [3] * 4, "strides": [2, 2]}),
    "3x3": ((2, 3, 13, 12), (3, 3), {"pads": [0, 1, 0, 1], "strides": [2, 2]}),
    "patches": ((1, 3, 16, 16), (4, 4), {"strides": [4, 4]}),
    "even": ((1, 3, 9, 14), (2, 5), {"pads": [1, 2, 1, 0], "strides": [1, 2]}),
    "a rest": ((1, 3, 9, 18), (3, 3), {"strides": [4, 4]}),
    "odd line": ((1, 3, 12, 13), (3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    "every pixel": ((1, 3, 8, 10), (3, 3), {"pads": [1] * 4}),
}  # fmt: skip


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("case", PHOTOGRAPHS)
def test_photographs_of_three_channels(device, monkeypatch, case, width):
    shape, kernel, attributes = PHOTOGRAPHS[case]

    def wide(graph):
        return channels_last.channels_last(graph, width)

    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES[:-1], wide))
    proto, fed = conv(shape, 32, kernel, **attributes)
    kernels = check(device, proto, fed)
    assert kernels[0] == "pad_last" and kernels[1].startswith("conv_last")
    with vklab.load(proto, device) as session:
        session.run(fed)
        dims = session.plan.dispatches[0].writes[0][1].dims
    joins = width == 8 and shape[3] % 2 == 0 and attributes.get("strides", [1])[-1] % 2 == 0
    assert dims == (shape[0], shape[2], shape[3] // (1 + joins), width)


def test_patches_of_a_transformer_need_no_transpose(device):
    constants = {"w": random_array((32, 3, 8, 8), 1), "shape": np.array([1, 32, 6])}
    constants["w"] /= np.float32(14)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[8, 8]),
        helper.make_node("Reshape", ["c", "shape"], ["r"]),
        helper.make_node("Transpose", ["r"], ["y"], perm=[0, 2, 1]),
    ]
    proto = image_model(nodes, (1, 3, 16, 24), constants)
    kernels = check(device, proto, {"x": random_array((1, 3, 16, 24), 3)})
    assert kernels[0] == "pad_last" and kernels[1].startswith("conv_last")
    assert not {"transpose", "elementwise", "pointwise"} & set(kernels)


def test_nan_and_infinity_reach_only_the_windows_that_see_them(device):
    proto, fed = conv((1, 32, 9, 9), 16, (3, 3), pads=[1] * 4)
    fed["x"][0, 3, 4, 4], fed["x"][0, 5, 0, 0] = np.nan, np.inf
    with vklab.load(proto, device) as session:
        y = session.run(fed)["y"]
    (expected,) = host.Reference(proto).run(fed).values()
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(expected))


def test_no_image_at_all(device):
    proto, _ = conv((0, 16, 5, 5), 8, (3, 3))
    with vklab.load(proto, device) as session:
        assert session.run({"x": np.zeros((0, 16, 5, 5), np.float32)})["y"].shape == (0, 8, 3, 3)


POOLS = {
    "MaxPool": {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    "AveragePool": {"kernel_shape": [2, 3], "count_include_pad": 1, "pads": [0, 1, 1, 1]},
    "GlobalAveragePool": {},
}


@pytest.mark.parametrize("pool", POOLS)
def test_pools_between_convolutions(device, pool):
    constants = {"w": random_array((16, 8, 3, 3), 1), "v": random_array((12, 16, 1, 1), 2)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node(pool, ["a"], ["b"], **POOLS[pool]),
        helper.make_node("Conv", ["b", "v"], ["y"]),
    ]
    proto = image_model(nodes, (2, 8, 9, 10), constants)
    check(device, proto, {"x": random_array((2, 8, 9, 10), 3)}, 1e-4)


@pytest.mark.parametrize("dtype", [None, "float16"], ids=["float32", "float16"])
@pytest.mark.parametrize(("kernel", "strides", "pads"), [
    ((3, 3), (2, 2), (1, 1, 1, 1)), ((2, 3), (1, 2), (0, 1, 1, 2)), ((1, 1), (1, 1), (0,) * 4),
])  # fmt: skip
def test_maxima_of_four_channels_at_once(device, monkeypatch, kernel, strides, pads, dtype):
    enabled, choose = catalogue.enabled, last_pools.choose
    monkeypatch.setattr(
        catalogue,
        "enabled",
        lambda stage, is_cpu, kinds=None: enabled(stage, is_cpu and kinds != ("pool",), kinds),
    )
    monkeypatch.setattr(
        last_pools,
        "choose",
        lambda dispatch, info: choose(dispatch, replace(info, type="discrete")),
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=kernel, strides=strides, pads=pads),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    constants = {"w": random_array((16, 8, 3, 3), 1)}
    proto = image_model(nodes, (2, 8, 10, 13), constants)
    fed = {"x": random_array((2, 8, 10, 13), 3)}
    assert "pool_last" in check(device, proto, fed, 5e-2 if dtype else 1e-4, dtype)
    fed["x"][0, 3, 4, 5], fed["x"][1, 2, 0, 0] = np.nan, -np.inf
    with settings.settings(DISABLE_VARIANTS=True), vklab.load(proto, device) as session:
        plain = session.run(fed)["y"]  # the kernel `pool`, in which NaN stays, too
    with vklab.load(proto, device) as session:
        np.testing.assert_array_equal(np.isnan(session.run(fed)["y"]), np.isnan(plain))


def test_a_gate_by_channel_needs_no_transpose_inside(device):
    constants = {
        "w": random_array((16, 8, 3, 3), 1),
        "v": random_array((16, 16, 1, 1), 2),
        "axes": np.array([2, 3]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("ReduceMean", ["a", "axes"], ["m"], keepdims=1),
        helper.make_node("Conv", ["m", "v"], ["g"]),
        helper.make_node("Sigmoid", ["g"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["p"]),
        helper.make_node("Conv", ["p", "v"], ["y"]),
    ]
    proto = image_model(nodes, (1, 8, 9, 10), constants)
    fed = {"x": random_array((1, 8, 9, 10), 3)}
    check(device, proto, fed, 1e-4)
    with vklab.load(proto, device) as session:
        session.run(fed)
        (chunk,) = [chunk for chunk in session.plan.chunks if chunk.is_on_device]
    assert [n.op_type for n in chunk.graph.nodes].count("Transpose") == 2


@pytest.mark.parametrize("dtype", [None, "float16"], ids=["float32", "float16"])
@pytest.mark.parametrize(("channels", "kernel", "stride"), [(34, 7, 1), (96, 3, 2)])
def test_a_norm_after_a_depthwise_convolution_takes_no_dispatch(
    device, channels, kernel, stride, dtype
):
    constants = {
        "w": random_array((channels, 1, kernel, kernel), 1) / kernel,
        "b": random_array((channels,), 2),
        "s": random_array((channels,), 4),
        "t": random_array((channels,), 5),
    }
    constants["w"] = constants["w"].astype(np.float32)
    nodes = [
        helper.make_node(
            "Conv",
            ["x", "w", "b"],
            ["c"],
            group=channels,
            pads=[kernel // 2] * 4,
            strides=[stride] * 2,
        ),
        helper.make_node("Transpose", ["c"], ["l"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["l", "s", "t"], ["y"], epsilon=1e-6),
    ]
    shape = (2, channels, 9, 11)
    proto, fed = image_model(nodes, shape, constants), {"x": random_array(shape, 3)}
    tolerance = 2e-2 if dtype else 2e-5
    kernels = check(device, proto, fed, tolerance, dtype)
    if "arithmetic" in vklab.devices()[device].subgroup_operations:
        assert "conv_last_depthwise" in kernels and "normalize" not in "".join(kernels)
    with settings.settings(DISABLE_PASSES="fuse_depthwise_norms"):
        assert "normalize" in "".join(check(device, proto, fed, tolerance, dtype))
