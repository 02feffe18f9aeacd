"""Products that multiply channels by factors as they read an image: squeeze-and-excite."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import vklab
from support.fakes.matrix_gpu import NVIDIA
from support.graphs.small_models import model, random_array, value
from vklab.graph import onnx_import, shapes
from vklab.graph.passes import channels_last
from vklab.plan import plan as plans
from vklab.plan.options import Options
from vklab.runtime import host
from vklab.types import DeviceInfo


@pytest.fixture(autouse=True)
def always_last(monkeypatch):
    """Convert every image, whatever its Transposes cost."""
    monkeypatch.setattr(channels_last, "MOST_MOVED", 1e9)


def gated(channels=36, filters=44, batch=1, sigmoid=True, residual=True, pixels=(9, 7), out=()):
    """Return a 1 x 1 convolution of an image times factors that are a product of its means."""
    constants = {
        "w": random_array((filters, channels, 1, 1), 1) / np.float32(channels) ** 0.5,
        "b": random_array((filters,), 2),
        "d": random_array((channels, 1, 3, 3), 4),
        "s": random_array((channels, channels, 1, 1), 5),
    }
    factors = "f" if sigmoid else "e"
    nodes = [
        *(
            helper.make_node("Transpose", [name], [f"{name}t"], perm=[0, 3, 1, 2])
            for name in ("x", "z")
        ),
        helper.make_node("Conv", ["xt", "d"], ["q"], group=channels, pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["q"], ["g"]),
        helper.make_node("Conv", ["g", "s"], ["e"]),
        *([helper.make_node("Sigmoid", ["e"], ["f"])] if sigmoid else []),
        helper.make_node("Mul", [factors, "q"], ["m"]),
        helper.make_node("Conv", ["m", "w", "b"], ["c"]),
        helper.make_node("Add", ["c", "zt"], ["a"]),
        helper.make_node("Transpose", ["a" if residual else "c"], ["y"], perm=[0, 2, 3, 1]),
    ]
    given = {
        "x": random_array((batch, *pixels, channels), 3),
        "z": random_array((batch, *pixels, filters), 7),
    }
    proto = model(
        nodes, [value(name, array.shape) for name, array in given.items()], ["y", *out], constants
    )
    return proto, given


def run(device, monkeypatch, proto, fed):
    """Return the results, those of ONNX Runtime, and the dispatches, as a GPU plans them."""
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    monkeypatch.setenv("VKLAB_VARIANT", "sliced 32x32x32")
    expected = host.Reference(proto).run(fed)
    with vklab.load(proto, device) as session:
        found = session.run(fed)
        return found, expected, session.plan.dispatches


@pytest.mark.parametrize("sigmoid", [True, False], ids=["sigmoid", "plain"])
@pytest.mark.parametrize("sizes", [
    {}, {"channels": 132, "filters": 24, "residual": False}, {"channels": 20, "pixels": (20, 13)},
], ids=str)  # fmt: skip
def test_a_product_scales_its_columns(device, monkeypatch, sizes, sigmoid):
    proto, fed = gated(sigmoid=sigmoid, **sizes)
    found, expected, dispatches = run(device, monkeypatch, proto, fed)
    for name, truth in expected.items():
        np.testing.assert_allclose(found[name], truth, rtol=2e-5, atol=2e-5)
    products = [d for d in dispatches if "gate_buffer" in dict(d.reads)]
    assert [d.define_values["GATED"] for d in products] == ["2" if sigmoid else "1"]
    monkeypatch.setenv("VKLAB_DISABLE_PASSES", "gated")
    again, _, more = run(device, monkeypatch, proto, fed)
    assert len(more) == len(dispatches) + 1
    for name in expected:
        np.testing.assert_array_equal(again[name], found[name])


@pytest.mark.parametrize("case", [{"batch": 2}, {"out": ("m",)}], ids=["two images", "an output"])
def test_other_factors_stay_a_dispatch(device, monkeypatch, case):
    found, expected, dispatches = run(device, monkeypatch, *gated(**case))
    for name, truth in expected.items():
        np.testing.assert_allclose(found[name], truth, rtol=2e-5, atol=2e-5)
    assert not any("gate_buffer" in dict(d.reads) for d in dispatches)


def test_an_image_that_is_added_as_well_stays(device, monkeypatch):
    proto, fed = gated(channels=36, filters=36)
    (added,) = [each for each in proto.graph.node if each.op_type == "Add"]
    added.input[1] = "m"
    found, expected, dispatches = run(device, monkeypatch, proto, fed)
    for name, truth in expected.items():
        np.testing.assert_allclose(found[name], truth, rtol=2e-5, atol=2e-5)
    assert not any("gate_buffer" in dict(d.reads) for d in dispatches)


@pytest.mark.parametrize("dtype", ["", "float16"])
def test_a_gpu_scales_in_the_kernels_that_it_chooses(dtype):
    proto, _ = gated(channels=96, filters=64, pixels=(14, 14))
    graph = shapes.infer(onnx_import.load_graph(proto))
    plan = plans.make_plan(graph, {i.name: i for i in graph.inputs}, [NVIDIA], Options(dtype=dtype))
    (product,) = [d for d in plan.dispatches if "gate_buffer" in dict(d.reads)]
    assert product.kernel == ("matmul_registers" if dtype else "conv_last_tiled")


def test_matrix_units_scale_halves(device, monkeypatch):
    """Compare where the order of a matrix's elements is known: NVIDIA's own driver."""
    proto, fed = gated(channels=96, filters=64, pixels=(14, 14))
    truth = host.Reference(proto).run(fed)["y"]
    with vklab.load(proto, device, dtype="float16") as session:
        y = session.run(fed)["y"]
        kernels = {d.kernel for d in session.plan.dispatches if "gate_buffer" in dict(d.reads)}
    np.testing.assert_allclose(y, truth, rtol=2e-2, atol=2e-2)
    assert kernels <= {"matmul_registers"}
