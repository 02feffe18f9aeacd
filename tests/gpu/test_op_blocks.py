"""Products and gathers that read weights in GGUF's blocks, held to the values on the host.

No row is rounded here; `test_block_units` and `test_prompt_halves` hold those that are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vklab
from support.graphs.block_cases import extreme_blocks, moderate_blocks
from support.graphs.block_graphs import block_graph
from support.runs.tiers import seeds
from vklab import settings
from vklab.apps.quantization import blocks
from vklab.errors import ModelError
from vklab.graph.graph import Node
from vklab.ops.blocks import FORMATS
from vklab.ops.dtypes import ELEMENT_TYPES
from vklab.runtime import open_devices
from vklab.types import TensorInfo

FORMAT = pytest.mark.parametrize(
    "name", seeds("Q4_K", "Q8_0", "Q6_K", *sorted(FORMATS.keys() - {"Q4_K", "Q8_0", "Q6_K"}))
)


@pytest.fixture(autouse=True)
def exact():
    with settings.settings(PRECISION="exact"):
        yield


def run(graph, device, x=None):
    fed = {} if x is None else {"x": x}
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        return session.run(fed)["y"]


def check_product(name, shape, count, elements, device, dtype="float32"):
    """Demand that errors stay below the bound for sums of `elements` terms in any order."""
    data = moderate_blocks(name, count, elements)
    weights = blocks.dequantize(name, data).astype(np.float64)
    a = np.random.default_rng(elements).standard_normal((*shape, elements)).astype(dtype)
    found = run(block_graph("MatMulBlocks", data, name, elements, a), device, a)
    exact = a.astype(np.float64)
    rounding = 0 if dtype == "float32" else 2.0**-11
    expected = exact @ weights.T
    bound = elements * 2.0**-24 * (abs(exact) @ abs(weights).T) + rounding * abs(expected)
    assert found.shape == expected.shape and found.dtype == dtype
    assert (abs(found - expected) <= bound).all(), (abs(found - expected) / bound).max()


@FORMAT
def test_a_row_times_blocks(name, device):
    check_product(name, (1,), 37, 256, device)


@FORMAT
@pytest.mark.parametrize("rows", seeds(33, 3, 8, 9))
def test_several_rows_times_blocks(name, rows, device):
    check_product(name, (rows,), 35, 512, device)


@pytest.mark.parametrize("name", seeds("F16", "BF16", "F32"))
@pytest.mark.parametrize("rows", seeds(1, 2, 11))
def test_rows_of_floats_may_have_any_length(name, rows, device):
    check_product(name, (rows,), 5, 77, device)


@pytest.mark.slow
@FORMAT
def test_long_rows_and_batch_axes(name, device):
    check_product(name, (2, 3), 261, 2816, device)
    check_product(name, (), 3, 256, device)


@pytest.mark.slow
@FORMAT
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_invocations_that_share_a_row_of_weights(name, rows, device):
    with settings.settings(DISABLE_VARIANTS=True):
        check_product(name, (rows,), 37, 768, device)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 40])
def test_halves_are_multiplied_too(rows, device):
    check_product("Q5_0", (rows,), 34, 288, device, "float16")


@FORMAT
def test_gathered_rows_are_the_hosts_bit_for_bit(name, device):
    elements = max(256, FORMATS[name].elements)
    data = moderate_blocks(name, 9, elements)
    indices = np.array([[0, 8, -1], [3, 3, -9]], np.int64)
    found = run(block_graph("GatherBlocks", data, name, elements, indices), device, indices)
    assert found.tobytes() == blocks.dequantize(name, data)[indices].tobytes()


@pytest.mark.parametrize("name", seeds(*(["Q5_1", *sorted(FORMATS.keys() - {"Q5_1"})])))
def test_extreme_blocks_are_the_hosts(name, device):
    data = extreme_blocks(name)
    expected = blocks.dequantize(name, data)
    found = run(block_graph("DequantizeBlocks", data, name, FORMATS[name].elements, None), device)
    # A device may flush subnormal numbers to zero, and NaN has many codes.
    expected = np.where(abs(expected) < np.finfo(np.float32).tiny, 0, expected)
    found = np.where(abs(found) < np.finfo(np.float32).tiny, 0, found)
    assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.slow
def test_indices_out_of_range_read_the_nearest_row(device):
    data = moderate_blocks("Q4_0", 5, 64)
    indices = np.array([5, 100, -6, -(2**31)], np.int32)
    found = run(block_graph("GatherBlocks", data, "Q4_0", 64, indices), device, indices)
    assert (found == blocks.dequantize("Q4_0", data)[[4, 4, 0, 0]]).all()


@pytest.mark.slow
def test_values_may_be_written_as_halves(device):
    data = moderate_blocks("Q4_1", 3, 96)
    half = ELEMENT_TYPES["float16"]
    found = run(block_graph("DequantizeBlocks", data, "Q4_1", 96, None, to=half), device)
    assert (found == blocks.dequantize("Q4_1", data).astype(np.float16)).all()


@pytest.mark.slow
def test_a_device_without_narrow_types_gives_the_same(device):
    with settings.settings(DISABLE_NARROW=True):
        check_product("Q6_K", (2,), 7, 512, device)
        check_product("BF16", (33,), 7, 20, device)


def test_an_activation_is_fused_into_the_product(device):
    data = moderate_blocks("Q4_0", 6, 64)
    a = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    graph = block_graph("MatMulBlocks", data, "Q4_0", 64, a)
    relu = Node("relu", "Relu", ("y",), ("z",))
    graph = replace(graph, nodes=(*graph.nodes, relu), outputs=("z",))
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        found = session.run({"x": a})["z"]
        steps = session.plan.dispatches
    expected = np.maximum(a @ blocks.dequantize("Q4_0", data).T, 0)
    assert np.allclose(found, expected, atol=1e-4)
    assert len(steps) == 1


@pytest.mark.parametrize("name", seeds("Q8_0", "Q4_K", "F16"))
@pytest.mark.parametrize("rows", seeds(3, 1, 12))
def test_weights_beyond_a_binding_are_cut_between_rows(name, rows, device, monkeypatch):
    opened = open_devices.open_device(device)
    limits = {**opened.info.limits, "maxStorageBufferRange": 32 << 10}
    monkeypatch.setattr(opened, "info", replace(opened.info, limits=limits))
    data = moderate_blocks(name, 301, 256)  # 34 bytes a block: every second row ends with a word
    weights = blocks.dequantize(name, data)
    a = np.random.default_rng(0).standard_normal((rows, 256)).astype(np.float32)
    indices = np.array([0, 300, -1, 117, 118, 119])
    for op_type, x, expected in (
        ("MatMulBlocks", a, a @ weights.T),
        ("GatherBlocks", indices, weights[indices]),
    ):
        graph = block_graph(op_type, data, name, 256, x)
        with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
            found = session.run({"x": x})["y"]
            dispatches = session.plan.dispatches
        bound = [info.size_bytes for d in dispatches for _, info in d.reads + d.writes]
        assert len(dispatches) > 1 and max(bound) <= 32 << 10
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("change", "message"), [
    ({"block_type": "Q3_K"}, "unknown block format 'Q3_K'"),
    ({"K": 250}, "a row of 250 elements cannot be stored as Q4_K"),
    ({"N": 4}, "does not hold 4 rows of 256 elements as Q4_K: 576 bytes"),
    ({"K": 512, "N": 1}, "must have rows of 512 elements"),
])  # fmt: skip
def test_weights_that_do_not_fit_are_refused(change, message):
    data, a = moderate_blocks("Q4_K", 2, 256), np.zeros((1, 256), np.float32)
    graph = block_graph("MatMulBlocks", data, "Q4_K", 256, a)
    node = replace(graph.nodes[0], attributes={**graph.nodes[0].attributes, **change})
    with pytest.raises(ModelError, match=message):
        vklab.load(replace(graph, nodes=(node,)), 0)


def test_weights_of_another_dtype_are_refused():
    data = moderate_blocks("Q8_0", 2, 32)
    graph = block_graph("GatherBlocks", data, "Q8_0", 32, np.zeros(1, np.int64))
    raw = TensorInfo("w", "uint8", data.shape, data)
    changed = replace(graph, initializers={"w": raw}, infos={**graph.infos, "w": raw})
    with pytest.raises(ModelError, match="bytes in words of uint32"):
        vklab.load(changed, 0)
