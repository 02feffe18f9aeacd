"""Products of halves on matrix units against NumPy, on devices that have some.

Few CPU drivers list cooperative matrices: lavapipe does from Mesa 26 on (8 x 8 x 8), where these
tests take it for a GPU. On NVIDIA's driver they are 16 x 16 x 16. A validation layer older than
1.3.255 does not know the extension and reports its use.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional

import vklab
from support.graphs.small_models import random_array
from vklab.plan.tuning import precision, tiles
from vklab.plan.tuning.attention import matrix_attention
from vklab.plan.tuning.products import matrix_products
from vklab.runtime import open_devices
from vklab.types import DeviceInfo

SIZES = [(16, 32, 16), (33, 39, 47), (64, 64, 64), (17, 64, 40), (197, 100, 64), (130, 45, 70),
         (64, 2048, 64), (95, 777, 130)]  # fmt: skip


@pytest.fixture(autouse=True)
def as_gpu(device, monkeypatch):
    """Skip a device without matrices of halves; take the others for GPUs."""
    kinds = {
        (each.a, each.result) for each in open_devices.open_device(device).info.cooperative_matrices
    }
    if ("float16", "float32") not in kinds:
        pytest.skip("the driver lists no cooperative matrix of halves with sums in float32")
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


def gemm(m, k, n, turns=(0, 0), alpha=1.0, relu=True):
    shapes = {"a": (k, m) if turns[0] else (m, k), "b": (n, k) if turns[1] else (k, n), "c": (n,)}
    nodes = [
        helper.make_node(
            "Gemm", ["a", "b", "c"], ["p"], transA=turns[0], transB=turns[1], alpha=alpha
        ),
        helper.make_node("Relu" if relu else "Identity", ["p"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape)
        for name, shape in shapes.items()
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (m, n))]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs),
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    fed = {
        name: random_array(shape, number).astype(np.float16)
        for number, (name, shape) in enumerate(shapes.items())
    }
    fed["a"] = (fed["a"] / np.float16(k**0.5)).astype(np.float16)
    return proto, fed


def expected(fed, turns=(0, 0), alpha=1.0):
    a, b, c = (fed[name].astype(np.float32) for name in "abc")
    return alpha * ((a.T if turns[0] else a) @ (b.T if turns[1] else b)) + c


@pytest.mark.parametrize("turns", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_of_all_layouts_and_edges(device, sizes, turns):
    proto, fed = gemm(*sizes, turns, alpha=0.5)
    with vklab.load(proto, device=device) as session:
        y = session.run(fed)["y"].astype(np.float32)
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    assert kernels[0] == "matmul_cooperative"
    np.testing.assert_allclose(y, np.maximum(expected(fed, turns, 0.5), 0), rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("tile", tiles.COOPERATIVE, ids=lambda tile: f"{tile.m}x{tile.n}")
def test_every_tile_computes_the_same(device, monkeypatch, tile):
    info = open_devices.open_device(device).info
    units = matrix_products.halves(info, (tile,))
    if units is None or not matrix_products.suits(tile, units, info):
        pytest.skip("the tile does not suit this device")
    monkeypatch.setattr(tiles, "COOPERATIVE", (tile,))
    proto, fed = gemm(150, 200, 140)
    with vklab.load(proto, device=device) as session:
        y = session.run(fed)["y"].astype(np.float32)
        assert session.plan.dispatches[0].kernel == "matmul_cooperative"
    np.testing.assert_allclose(y, np.maximum(expected(fed), 0), rtol=2e-3, atol=4e-3)


def test_infinities_and_nan_stay_in_their_rows(device):
    proto, fed = gemm(40, 70, 50, relu=False)
    fed["a"][3, 5], fed["a"][7, 0] = np.inf, np.nan
    with vklab.load(proto, device=device) as session:
        y = session.run(fed)["y"]
        assert session.plan.dispatches[0].kernel == "matmul_cooperative"
    assert np.isnan(y[7]).all() and np.isinf(y[3]).all()
    assert np.isfinite(np.delete(y, (3, 7), axis=0)).all()


@pytest.mark.parametrize("tile", tiles.COOPERATIVE_CONV[:4], ids=lambda t: f"{t.m}x{t.n}x{t.k}")
@pytest.mark.parametrize("parts", [1, 2])
def test_convolutions_of_all_tiles_and_edges(device, monkeypatch, tile, parts):
    monkeypatch.setattr(tiles, "soonest", lambda table, sizes: (tile, parts))
    monkeypatch.setattr(tiles, "COOPERATIVE_CONV", (tile,))
    for channels, filters, size, window, stride, groups in (
        (16, 40, 9, 3, 1, 1),
        (29, 20, 7, 3, 2, 1),
        (64, 36, 6, 1, 1, 2),
        (40, 33, 5, 5, 1, 1),
    ):
        shapes = {"w": (filters, channels // groups, window, window), "b": (filters,)}
        x = random_array((2, channels, size, size), 1).astype(np.float16)
        w = (random_array(shapes["w"], 2) / (channels * window**2) ** 0.5).astype(np.float16)
        b = random_array(shapes["b"], 3).astype(np.float16)
        nodes = [
            helper.make_node(
                "Conv",
                ["x", "w", "b"],
                ["c"],
                strides=[stride] * 2,
                pads=[window // 2] * 4,
                group=groups,
            ),
            helper.make_node("Relu", ["c"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
            [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
        )
        proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        with vklab.load(proto, device=device) as session:
            y = session.run({"x": x})["y"].astype(np.float32)
            assert session.plan.dispatches[0].kernel == "conv_cooperative"
        wide = functional.conv2d(
            *(torch.from_numpy(each.astype(np.float32)) for each in (x, w, b)),
            stride=stride,
            padding=window // 2,
            groups=groups,
        )
        np.testing.assert_allclose(y, np.maximum(wide.numpy(), 0), rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("tile", [*matrix_attention.ATTENTION, (2, 16)], ids=str)
def test_attention_of_all_tiles_masks_and_edges(device, monkeypatch, tile):
    info = open_devices.open_device(device).info
    one = precision.matrix(info, precision.HALF)
    assert one is not None
    monkeypatch.setattr(matrix_attention, "ATTENTION", (tile,))
    monkeypatch.setattr(matrix_attention, "ATTENTION_REGISTERS", ())
    monkeypatch.setattr(matrix_attention, "ATTENTION_DIRECT", ())
    for queries, keys, size, value_size, causal, masked in (
        (16, 16, 16, 16, 0, False),
        (33, 37, 16, 32, 0, True),
        (70, 131, 64, 64, 1, False),
    ):
        if tile == (2, 16) and size > 16:
            continue  # a CPU driver needs minutes to compile larger ones
        if not matrix_attention.through_memory(one, size, value_size, info):
            pytest.skip("the tile does not suit this device")
        fed = {
            name: random_array((1, heads, length, wide), number).astype(np.float16)
            for number, (name, heads, length, wide) in enumerate(
                (("q", 4, queries, size), ("k", 2, keys, size), ("v", 2, keys, value_size))
            )
        }
        if masked:
            fed["m"] = random_array((1, 1, queries, keys), 9) > -0.5
            fed["m"][0, 0, 3] = False
        y, kernel = attended(fed, device, causal)
        assert kernel == "attention_cooperative"
        q, k, v = (fed[name].astype(np.float32) for name in "qkv")
        k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
        open_keys = np.tril(np.ones((queries, keys), bool)) if causal else fed.get("m", True)
        scores = np.where(open_keys, q @ k.swapaxes(-1, -2) / size**0.5, -np.inf)
        weights = np.exp(scores - np.maximum(scores.max(axis=-1, keepdims=True), -1e30))
        whole = np.maximum(weights.sum(axis=-1, keepdims=True), 1e-30)
        np.testing.assert_allclose(y, weights / whole @ v, rtol=5e-3, atol=5e-3)


EDGES = [(16, 16, 16, 16, 0, ""), (33, 37, 16, 32, 0, "bool"), (70, 131, 64, 64, 1, ""),
         (65, 127, 128, 128, 1, "bias"), (100, 515, 64, 64, 1, "bool"), (129, 300, 80, 80, 1, ""),
         (257, 63, 128, 128, 0, "bool"), (17, 2, 32, 32, 0, "")]  # fmt: skip


@pytest.mark.parametrize("edges", EDGES, ids=str)
@pytest.mark.parametrize("shape", [(1, 32, 1), (4, 32, 1), (2, 32, 2), (8, 64, 1)], ids=str)
def test_attention_in_registers(device, monkeypatch, shape, edges):
    """Infinity and NaN stay in their rows and heads; a row of the bool mask closes all keys."""
    monkeypatch.setattr(matrix_attention, "ATTENTION_DIRECT", ())
    monkeypatch.setattr(matrix_attention, "ATTENTION_REGISTERS", ((128, 0, *shape),))
    check_attention(device, edges, "attention_registers")


DIRECT_EDGES = [(16, 16, 32, 64, 0, ""), (33, 37, 32, 64, 0, "bool"), (70, 131, 64, 64, 1, ""),
                (65, 127, 128, 128, 1, "bias"), (100, 515, 64, 64, 1, "bool"),
                (17, 2, 32, 64, 0, ""), (257, 63, 96, 128, 0, "bool"),
                (197, 197, 64, 64, 0, "")]  # fmt: skip


@pytest.mark.parametrize("edges", DIRECT_EDGES, ids=str)
@pytest.mark.parametrize("shape", [(1, 2), (4, 1), (4, 4), (2, 2), (8, 1)], ids=str)
def test_attention_straight_from_memory(device, monkeypatch, shape, edges):
    """Infinity and NaN stay in their rows and heads; a row of the bool mask closes all keys."""
    monkeypatch.setattr(matrix_attention, "ATTENTION_DIRECT", ((128, 1024, *shape),))
    check_attention(device, edges, "attention_direct")


def check_attention(device, edges, wanted):
    """Compare attention with torch; skip a device whose order of elements is not known."""
    info = open_devices.open_device(device).info
    if not (precision.has_known_order(info) and "shuffle" in info.subgroup_operations):
        pytest.skip("where the driver keeps a matrix's elements is not known")
    queries, keys, size, value_size, causal, mask = edges
    fed = {
        name: random_array((1, heads, length, wide), number).astype(np.float16)
        for number, (name, heads, length, wide) in enumerate(
            (("q", 4, queries, size), ("k", 2, keys, size), ("v", 2, keys, value_size))
        )
    }
    fed["q"][0, 1, 3, 0], fed["k"][0, 1, 0, 0] = np.nan, np.inf
    if mask:
        fed["m"] = random_array((1, 1, queries, keys), 9)
        fed["m"] = fed["m"] > -0.5 if mask == "bool" else fed["m"].astype(np.float16)
    if mask == "bool":
        fed["m"][0, 0, 3] = False
    y, kernel = attended(fed, device, causal)
    assert kernel == wanted
    q, k, v = (torch.from_numpy(fed[name].astype(np.float32)) for name in "qkv")
    k, v = (each.repeat_interleave(2, 1) for each in (k, v))
    scores = q @ k.transpose(-1, -2) / size**0.5
    is_open = torch.ones(queries, keys).tril().bool() if causal else torch.tensor(True)
    if mask:
        given = torch.from_numpy(fed["m"])
        is_open = is_open & given if mask == "bool" else is_open
        scores = scores if mask == "bool" else scores + given
    scores = scores.masked_fill(~is_open, -torch.inf)
    closed = ~is_open.expand(scores.shape).any(-1, keepdim=True)
    expected = torch.softmax(scores, -1).masked_fill(closed, 0) @ v
    np.testing.assert_allclose(y, expected.numpy(), rtol=5e-3, atol=5e-3)


def attended(fed, device, causal):
    """Return attention of the inputs, and the kernel that computes it."""
    types = {"float16": TensorProto.FLOAT16, "bool": TensorProto.BOOL}
    graph = helper.make_graph(
        [helper.make_node("Attention", [*fed], ["y"], is_causal=causal)],
        "g",
        [helper.make_tensor_value_info(n, types[str(a.dtype)], a.shape) for n, a in fed.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
    )
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 23)])
    with vklab.load(proto, device=device) as session:
        y = session.run(fed)["y"].astype(np.float32)
        return y, session.plan.dispatches[0].kernel
