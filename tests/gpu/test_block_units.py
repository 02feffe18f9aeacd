"""Products of a few rows by units of blocks, with int8 activations: on CPU drivers taken for GPUs.

Held to the same arithmetic in float64, with activations rounded as the kernel rounds them, and to
the exact product by the bound of that rounding.
"""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.block_cases import moderate_blocks
from support.graphs.block_graphs import EPSILON, block_graph, gated_graph
from support.runs.tiers import seeds
from vklab import settings
from vklab.apps.quantization import blocks
from vklab.graph.graph import Graph, Node
from vklab.ops.blocks import FORMATS
from vklab.plan import block_units
from vklab.plan.tuning.blocks import block_sizes
from vklab.runtime import open_devices
from vklab.types import DeviceInfo, TensorInfo

FLOATS = ("F16", "BF16", "F32")
INTEGERS = sorted(FORMATS.keys() - set(FLOATS))
FORMAT = pytest.mark.parametrize(
    "name", seeds("Q4_K", "Q8_0", "Q6_K", *sorted(FORMATS.keys() - {"Q4_K", "Q8_0", "Q6_K"}))
)


@pytest.fixture(autouse=True)
def as_gpu(device, monkeypatch):
    """Take the device for a GPU; skip one without dot products of bytes or shuffles."""
    info = open_devices.open_device(device).info
    if "shaderIntegerDotProduct" not in info.features:
        pytest.skip("the driver has no dot products of bytes")
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


def run(graph, device, x):
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        return session.run({"x": x})["y"], [step.kernel for step in session.plan.dispatches]


def rounded(x):
    """Return activations as the kernel multiplies them, and the largest error of each."""
    groups = x.astype(np.float64).reshape(*x.shape[:-1], -1, 32)
    scales = abs(groups).max(axis=-1, keepdims=True) / 127
    codes = np.round(groups / np.where(scales > 0, scales, 1))
    return (codes * scales).reshape(x.shape), np.repeat(scales / 2, 32, axis=-1).reshape(x.shape)


def rows(shape, seed=0):
    """Return activations of very different groups, one of them zero."""
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    x[..., :32] *= 100
    x[..., 64:96] = 0
    return x


def weights_of(name, count, elements, seed=0):
    data = moderate_blocks(name, count, elements, seed)
    return data, blocks.dequantize(name, data).astype(np.float64).reshape(count, elements)


def check(found, x, weights, is_float):
    used, error = (x.astype(np.float64), 0 * x) if is_float else rounded(x)
    sums = x.shape[-1] * 2.0**-24 * (abs(x).astype(np.float64) @ abs(weights).T)
    # A quotient near the middle between two codes may be rounded either way.
    near = 1e-4 * error @ abs(weights).T + 1e-6 * abs(used) @ abs(weights).T
    bound = sums + (0 if is_float else near)
    assert (abs(found - used @ weights.T) <= bound + 1e-6).all()
    exact = x.astype(np.float64) @ weights.T
    assert (abs(found - exact) <= 1.001 * error @ abs(weights).T + 2 * sums + 1e-6).all()


@FORMAT
@pytest.mark.parametrize("count", seeds(1, 3, 8))
def test_units_of_every_format(name, count, device):
    data, weights = weights_of(name, 37, 768)
    x = rows((count, 768))
    found, kernels = run(block_graph("MatMulBlocks", data, name, 768, x), device, x)
    assert kernels == ["matvec_floats" if name in FLOATS else "matvec_units"]
    check(found, x, weights, name in FLOATS)


@pytest.mark.parametrize("name", seeds("Q6_K", *INTEGERS))
def test_whole_blocks_give_the_same_as_split_ones(name, device):
    data, _ = weights_of(name, 37, 512)
    x = rows((2, 512))
    graph = block_graph("MatMulBlocks", data, name, 512, x)
    found, _ = run(graph, device, x)
    with settings.settings(DISABLE_PREPACK=True):
        whole, _ = run(graph, device, x)
    assert (found == whole).all()


@pytest.mark.parametrize("name", seeds("Q8_0", "Q4_1", "Q5_0"))
@pytest.mark.parametrize("elements", seeds(32, 96, 1056))
def test_rows_of_any_number_of_units(name, elements, device):
    data, weights = weights_of(name, 5, elements)
    x = rows((2, elements))
    found, _ = run(block_graph("MatMulBlocks", data, name, elements, x), device, x)
    check(found, x, weights, False)


@pytest.mark.parametrize("name", seeds("Q4_K", "F16", "Q8_0"))
def test_infinities_and_nan_make_their_own_row_nan(name, device):
    data, weights = weights_of(name, 7, 256)
    x = rows((4, 256))
    x[1, 40], x[3, 200] = np.inf, np.nan
    found, _ = run(block_graph("MatMulBlocks", data, name, 256, x), device, x)
    assert not np.isfinite(found[[1, 3]]).any() and np.isfinite(found[[0, 2]]).all()
    check(found[[0, 2]], x[[0, 2]], weights, name in FLOATS)


def test_numbers_too_small_for_a_scale_count_as_zero(device):
    data, _ = weights_of("Q8_0", 3, 64)
    x = np.full((1, 64), 1e-35, np.float32)
    found, _ = run(block_graph("MatMulBlocks", data, "Q8_0", 64, x), device, x)
    assert (found == 0).all()


def test_dot_products_can_be_switched_off(device):
    data, weights = weights_of("Q6_K", 5, 256)
    x = rows((1, 256))
    with settings.settings(DISABLE_INTEGER_DOT=True):
        found, kernels = run(block_graph("MatMulBlocks", data, "Q6_K", 256, x), device, x)
    assert kernels == ["matvec_blocks"]
    check(found, x, weights, True)


@FORMAT
@pytest.mark.parametrize("count", seeds(1, 5))
@pytest.mark.parametrize("norm", [True, False])
def test_a_gate_and_a_norm_join_the_products(name, count, norm, device):
    x = rows((count, 512))
    graph, scale = gated_graph(name, 512, x, norm)
    found, kernels = run(graph, device, x)
    assert kernels == ["matvec_floats" if name in FLOATS else "matvec_units"]
    normal = x.astype(np.float64)
    if norm:
        normal *= scale / np.sqrt((normal**2).mean(axis=-1, keepdims=True) + EPSILON)
    used = normal if name in FLOATS else rounded(normal)[0]
    up, gate = (used @ weights_of(name, 37, 512, seed)[1].T for seed in (0, 1))
    expected = gate * up / (1 + np.exp(np.minimum(-gate, 700)))
    # Codes of float32 and of float64 may differ by one; few do.
    assert np.sqrt(((found - expected) ** 2).sum() / (expected**2).sum()) < 2e-3


@FORMAT
@pytest.mark.parametrize("count", seeds(40, 16))
def test_many_rows_are_multiplied_as_halves(name, count, device, monkeypatch):
    """Take the device for one with matrix units; its own kernels then multiply the halves.

    Weights in float32 are multiplied as they are.
    """
    if "shaderFloat16" not in open_devices.open_device(device).info.features:
        pytest.skip("the driver has no halves")
    monkeypatch.setattr(block_units, "has_matrices", lambda info: True)
    data, weights = weights_of(name, 37, 256)
    x = np.random.default_rng(0).standard_normal((2, count // 2, 256)).astype(np.float32)
    found, kernels = run(block_graph("MatMulBlocks", data, name, 256, x), device, x)
    made = {"F32": [], "F16": ["elementwise"], "BF16": ["elementwise", "gather_blocks"]}
    before, dtype = made.get(name, ["elementwise", "unpack_units"]), np.float16
    assert kernels[: len(before)] == before and kernels[-1].startswith("matmul")
    if name == "F32":
        assert "matmul_blocks" not in kernels
        dtype = np.float32
    used = [array.astype(dtype).astype(np.float64) for array in (x, weights)]
    bound = 256 * 2.0**-24 * (abs(used[0]) @ abs(used[1]).T)
    assert (abs(found - used[0] @ used[1].T) <= bound + 1e-6).all()


def nbits_graph(count, elements, bits, block, zero, bias, level=None):
    """Return a graph of MatMulNBits with random weights, and the weights."""
    rng = np.random.default_rng([bits, block, zero, bias])
    per_byte, groups = 8 // bits, elements // block
    codes = rng.integers(0, 1 << bits, (count, elements))
    packed = sum(codes[:, i::per_byte] << i * bits for i in range(per_byte)).astype(np.uint8)
    scale = rng.uniform(0.01, 0.02, (count, groups)).astype(np.float32)
    zeros = np.full((count, groups), 1 << (bits - 1), np.int64)
    arrays = {"b": packed.reshape(count, groups, -1), "s": scale.reshape(-1)}
    if zero == 1:
        zeros = rng.integers(0, 1 << bits, (count, groups))
        padded = np.pad(zeros, ((0, 0), (0, -groups % per_byte)))
        arrays["z"] = (
            sum(padded[:, i::per_byte] << i * bits for i in range(per_byte))
            .astype(np.uint8)
            .reshape(-1)
        )
    elif zero == 2:
        values = rng.uniform(3, 9, (count, groups)).astype(np.float32)
        zeros, arrays["z"] = values, values.reshape(-1)
    if bias:
        arrays["c"] = rng.standard_normal(count).astype(np.float32)
    constants = {name: TensorInfo(name, str(a.dtype), a.shape, a) for name, a in arrays.items()}
    names = ("x", "b", "s", "z" if zero else "", "", "c" if bias else "")
    names = names if bias else names[: 4 if zero else 3]
    node = Node(
        "n",
        "MatMulNBits",
        names,
        ("y",),
        {
            "K": elements,
            "N": count,
            "block_size": block,
            "bits": bits,
            **({} if level is None else {"accuracy_level": level}),
        },
        "com.microsoft",
    )
    x = rows((3, elements))
    given = TensorInfo("x", "float32", x.shape)
    infos = {"x": given, **constants}
    graph = Graph(
        "test", 21, (node,), (given,), ("y",), constants, infos, {"": 21, "com.microsoft": 1}
    )
    weights = (codes - np.repeat(zeros, block, axis=1)) * np.repeat(scale, block, axis=1)
    return graph, x, weights.astype(np.float64), arrays.get("c", np.float32(0))


@pytest.mark.parametrize("kind", seeds(
    (4, 32, 0, 0), (4, 32, 1, 1), (4, 64, 2, 0), (8, 32, 0, 1), (8, 64, 1, 0), (8, 32, 2, 0),
    (4, 32, 1, 0)))  # fmt: skip
def test_products_of_bits_use_the_same_kernel(kind, device):
    """The kind is bits, block size, kind of zero points, and whether there is a bias."""
    if "shaderInt8" not in open_devices.open_device(device).info.features:
        pytest.skip("the driver has no bytes")
    graph, x, weights, added = nbits_graph(13, 192, *kind, level=4)
    found, kernels = run(graph, device, x)
    assert kernels == ["matvec_units"]
    check(found - added, x, weights, False)
    for switches in ({"DISABLE_INTEGER_DOT": True}, {"PRECISION": "exact"}):
        with settings.settings(**switches):
            exact, kernels = run(graph, device, x)
        assert kernels == ["matmul_nbits"]
        check(exact - added, x, weights, True)


@pytest.mark.parametrize("level", [None, 0, 1, 2, 3])
def test_rows_times_bits_are_rounded_only_where_the_model_permits_it(level, device):
    graph, x, weights, added = nbits_graph(13, 192, 4, 32, 1, 1, level)
    exact, kernels = run(graph, device, x)
    assert kernels == ["matmul_nbits"]
    check(exact - added, x, weights, True)
    with settings.settings(PRECISION="int8"):
        found, kernels = run(graph, device, x)
    has_bytes = "shaderInt8" in open_devices.open_device(device).info.features
    assert kernels == ["matvec_units" if has_bytes else "matmul_nbits"]
    check(found - added, x, weights, not has_bytes)


@pytest.mark.parametrize(
    "sizes", seeds((64, 1, 2, 2), (32, 2, 1, 4), (128, 1, 4, 1), (64, 2, 2, 2))
)
@pytest.mark.parametrize("left_out", seeds("", "shared_floats"))
@pytest.mark.parametrize("count", seeds(1, 3))
def test_floats_by_other_shares_of_the_work(sizes, left_out, count, device, monkeypatch):
    monkeypatch.setattr(block_sizes, "_expected", lambda *_: block_units.Sizes(*sizes))
    x = rows((count, 776))  # an odd number of units, and rows that are no whole sets
    graph, scale = gated_graph("F16", 776, x, True, 37)
    with settings.settings(DISABLE_PASSES=left_out):
        found, kernels = run(graph, device, x)
    assert kernels == ["matvec_floats"]
    (_, up), (_, gate) = (weights_of("F16", 37, 776, seed) for seed in (0, 1))
    wide = x.astype(np.float64)
    wide = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + EPSILON) * scale
    gates = wide @ gate.T
    expected = gates / (1 + np.exp(-gates)) * (wide @ up.T)
    assert abs(found - expected).max() <= 1e-5 * abs(expected).max()
