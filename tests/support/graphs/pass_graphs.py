"""Small graphs, each written for one pass, with inputs that feed them; what tests do to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from support.fakes.fake_device import fake_device
from support.graphs import written
from support.models.planned import next_chunk
from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.plan.partition import Needed
from vklab.runtime import host, plan_cache

Made = tuple[onnx.ModelProto, dict[str, np.ndarray]]
DEVICE = fake_device(
    {"maxStorageBufferRange": 1 << 30, "maxPushConstantsSize": 256},
    features=frozenset(
        {
            "shaderInt8",
            "shaderInt16",
            "shaderInt64",
            "shaderFloat16",
            "shaderFloat64",
            "uniformAndStorageBuffer8BitAccess",
            "uniformAndStorageBuffer16BitAccess",
        }
    ),
)


def array(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Return random float32 values, no two graphs' the same."""
    random = np.random.default_rng([seed, *shape])
    return random.uniform(low, high, shape).astype(np.float32)


def made(
    text: str, outputs: Sequence[str] = ("y",), known: str = "", opset: int = 17, **arrays: Any
) -> Made:
    """Return the model that a text says; `arrays` are its inputs, those in `known` constants."""
    proto, fed = written.write(text, outputs, opset)
    for value in [*proto.graph.input]:
        given = np.asarray(arrays.get(value.name, fed[value.name]))
        fed[value.name] = given
        kind = helper.np_dtype_to_tensor_dtype(given.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, given.shape))
        if value.name in known.split():
            proto.graph.initializer.append(numpy_helper.from_array(given, value.name))
            proto.graph.input.remove(value)
            del fed[value.name]
    assert arrays.keys() <= {*fed, *known.split()}
    return proto, fed


def shaped(model: Made) -> Graph:
    """Return what the passes are given of a model: its chunk for the device, with infos."""
    proto, fed = model
    infos = {name: plan_cache.describe(name, value) for name, value in fed.items()}
    graph = onnx_import.load_graph(proto)
    found = next_chunk(graph, infos, DEVICE)
    while isinstance(found, Needed):
        infos.update({n: plan_cache.describe(n, fed[n], fed[n]) for n in found.names})
        found = next_chunk(graph, infos, DEVICE)
    chunk, rest = found
    assert chunk.kind == "vulkan" and not rest.nodes, chunk.reasons
    return chunk.graph


def evaluate(graph: Graph, fed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compute a graph in ONNX Runtime."""
    names = {info.name for info in graph.inputs}
    computed = host.HostChunk(graph).run({n: v for n, v in fed.items() if n in names})
    return {name: computed[name] for name in graph.outputs}


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Tell whether two arrays are the same, NaNs and signs of zero included."""
    if one.dtype != other.dtype or not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
        return False
    return one.dtype.kind != "f" or np.array_equal(np.signbit(one), np.signbit(other))


def kinds(graph: Graph) -> list[str]:
    """Return the operators of a graph in order, to see at a glance what a pass has left."""
    return [node.op_type for node in graph.nodes]


IMAGE = array(2, 6, 7, 5)
NHWC = array(2, 7, 5, 6)
FILTERS = array(4, 6, 3, 3)
STATISTICS = {
    "wf": array(4, seed=1), "ws": array(4, seed=2), "wm": array(4, seed=3),
    "wv": array(4, seed=4, low=0.1),
}  # fmt: skip
NORM = "BatchNormalization({}, wf, ws, wm, wv)"
TO_NCHW, TO_NHWC = "perm=[0, 3, 1, 2]", "perm=[0, 2, 3, 1]"

# By what they are written for; every pass is run on every one of them.
GRAPHS: dict[str, Callable[[], Made]] = {
    "no-ops": lambda: made(
        "a = Identity(x); b = Mul(a, 1.0); c = Div(b, 1.0); d = Sub(c, 0.0); e = Dropout(d);"
        "f = Transpose(e, perm=[0, 1, 2]); g = Concat(f, axis=1); h = Sum(g); i = Add(h, -0.0);"
        "j = Slice(i, (0, 0), (9, 9)); k = Expand(j, (1,)); l = Cast(k, to=1);"
        "m = Relu(l); n = Reshape(m, (0, -1, 8)); y = Identity(n)"
    ),
    "outputs that are inputs": lambda: made(
        "y = Identity(x); p = Identity(y); a = Neg(x); q = Identity(a); r = Identity(a)",
        ("y", "p", "q", "r"),
    ),
    "views": lambda: made(
        "a = Relu(x); b = Unsqueeze(a, (0,)); c = Reshape(b, (5, 16)); d = Flatten(c, axis=0);"
        "f = Squeeze(d, (0,)); y = Neg(f); p = Abs(d); q = Reshape(f, (2, 5, 8)); r = Exp(q)",
        ("y", "p", "r"),
    ),
    "views of nothing": lambda: made(
        "a = Relu(x); b = Unsqueeze(a, (1,)); y = Neg(b)", x=np.zeros((2, 0, 6), np.float32)
    ),
    "equal nodes": lambda: made(
        "a = Add(x, w); b = Add(x, w); c = Add(x, z); d = Mul(a, b); f = Mul(b, a); y = Add(d, f);"
        "p = Mul(c, 2.0); q = Mul(c, 2.0); r = Elu(p, alpha=0.5); s = Elu(q, alpha=1.0)",
        ("y", "q", "r", "s"),
    ),
    "transposes that meet": lambda: made(
        "a = Transpose(x, perm=[1, 0, 2]); b = Transpose(a, perm=[1, 2, 0]); y = Relu(b);"
        "c = Transpose(b, perm=[0, 2, 1]); d = Neg(c)",
        ("y", "d"),
    ),
    "image in NHWC": lambda: made(
        f"a = Transpose(x, {TO_NCHW}); b = Conv(a, w, pads=[1, 1, 1, 1]);"
        f"c = Transpose(b, {TO_NHWC}); d = Add(c, wb); e = Relu(d);"
        f"f = Transpose(e, {TO_NCHW}); g = Conv(f, wz); h = Transpose(g, {TO_NHWC});"
        "i = Add(h, wy); j = Clip(i, 0.0, 6.0); y = ReduceMean(j, axes=[1, 2], keepdims=0)",
        known="w wb wz wy", x=NHWC, w=FILTERS, wb=array(4), wz=array(6, 4, 1, 1), wy=array(6),
    ),
    "residuals in NHWC": lambda: made(
        f"a = Transpose(x, {TO_NCHW}); b = Conv(a, w, pads=[1, 1, 1, 1]);"
        f"c = Transpose(b, {TO_NHWC}); d = Relu(c); e = Transpose(d, {TO_NCHW});"
        f"f = Conv(e, wz); g = Transpose(f, {TO_NHWC}); h = Add(g, d); i = Concat(h, c, axis=3);"
        f"m = ReduceMax(i, axes=[-3, -2]); n = Mul(i, m); j = Transpose(n, {TO_NCHW}); y = Relu(j)",
        known="w wz", x=NHWC, w=FILTERS, wz=array(4, 4, 1, 1),
    ),
    "transposes around a reshape": lambda: made(
        "a = Transpose(x, perm=[0, 2, 1, 3]); b = Reshape(a, (6, 5, 4));"
        "c = Transpose(b, perm=[0, 2, 1]); d = Reshape(c, (2, 3, 4, 5)); y = Relu(d)",
        x=array(2, 5, 3, 4),
    ),
    "batch norms": lambda: made(
        f"a = Conv(x, w); b = {NORM.format('a')}; y = Relu(b); c = Conv(x, w, wb);"
        f"d = {NORM.format('c')}; f = Mul(d, wu); g = Add(f, wt); p = Relu(g)", ("y", "p"),
        known="w wb wf ws wm wv wu wt", x=IMAGE, w=FILTERS, wb=array(4, seed=5),
        wu=array(4, 1, 1, seed=6), wt=array(1, 4, 1, 1, seed=7), **STATISTICS,
    ),
    "batch norms behind others": lambda: made(
        f"a = ConvTranspose(x, w, group=2, strides=[2, 2]); y = {NORM.format('a')};"
        f"b = Conv(x, wc, group=2); p = {NORM.format('b')}; c = GlobalMaxPool(p); d = Flatten(c);"
        f"e = Gemm(d, wg, wb, transB=1, alpha=0.5); q = {NORM.format('e')};"
        f"f = Gemm(d, wh); r = {NORM.format('f')}", ("y", "q", "r"),
        known="w wc wg wb wh wf ws wm wv", x=IMAGE, w=array(6, 2, 2, 3), wc=array(4, 3, 3, 2),
        wg=array(4, 4), wb=array(4), wh=array(4, 4, seed=9), **STATISTICS,
    ),
    "pads": lambda: made(
        "a = Pad(x, (0, 0, 1, 2, 0, 0, 0, 1)); y = Conv(a, w, strides=[2, 2], pads=[1, 0, 0, 1]);"
        "p = Conv(a, w, auto_pad='VALID'); b = Pad(x, (1, 1), 0.0, (-1,)); q = Conv(b, w)",
        ("y", "p", "q"), known="w", x=IMAGE, w=FILTERS, opset=18,
    ),
}  # fmt: skip
