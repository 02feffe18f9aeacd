"""Results with weights laid out anew, held to ONNX Runtime and to the same model without that."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from vklab import settings
from vklab.apps import cli
from vklab.plan.tuning import prepack
from vklab.runtime import open_devices
from vklab.runtime.observe import compare
from vklab.types import DeviceInfo


@pytest.fixture
def as_gpu(monkeypatch):
    """Let the device get the kernels that a GPU gets."""
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


def convolution(x, w, **attributes):
    """Build Conv with a bias, and what is fused behind it: Relu, and the sum with an input."""
    pads = [w[2] // 2, w[3] // 2] * 2
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=pads, **attributes),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Add", ["r", "s"], ["y"]),
    ]
    constants = {
        "w": random_array(w, 1) / np.float32((w[1] * w[2] * w[3]) ** 0.5),
        "b": random_array(w[:1], 2),
    }
    inputs = [value("x", x), value("s", (1, w[0], 1, 1))]
    return model(nodes, inputs, ["y"], constants)


def run(proto, fed, device, off=False, dtype=None):
    with (
        settings.settings(DISABLE_PREPACK=off, FALLBACK=False),
        vklab.load(proto, device, dtype=dtype) as session,
    ):
        return session.run(fed)["y"], session.plan, session.reference(fed)["y"]


def on_cpu(device):
    """Tell whether plans are made for a CPU."""
    return open_devices.open_device(device).info.is_cpu


# x, w, group, kernel; tiles differ in size, channels in what they leave of a chunk or of four.
CONVOLUTIONS = {
    "1x1": ((2, 80, 5, 4), (17, 80, 1, 1), 1, "conv_packed"),
    "splits-end-in-half-a-tile": ((1, 304, 4, 4), (18, 304, 3, 3), 1, "conv_packed"),
    "groups": ((2, 96, 6, 5), (66, 48, 3, 2), 2, "conv_packed"),
    "depth-and-filters-are-padded": ((1, 45, 9, 9), (37, 45, 3, 3), 1, "conv_packed"),
    "one-part-of-half-a-chunk": ((1, 40, 8, 8), (33, 40, 5, 5), 1, "conv_packed"),
    "large-tiles": ((1, 31, 40, 40), (254, 31, 1, 3), 1, "conv_packed"),
    "mostly-padding": ((1, 9, 8, 8), (20, 9, 3, 3), 1, "conv_tiled"),
}


def turned_weights(plan):
    """Return the weights of a plan that are stored turned."""
    return [
        name
        for name, info in plan.chunks[0].constants.items()
        if isinstance(info.layout, prepack.Turned)
    ]


def tiled(plan):
    """Return the tiled convolutions of a plan."""
    return [d for d in plan.dispatches if d.kernel in ("conv_packed", "conv_tiled")]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_packed_convolutions(device, as_gpu, case):
    x, w, group, kernel = CONVOLUTIONS[case]
    proto = convolution(x, w, group=group)
    fed = {"x": random_array(x), "s": random_array((1, w[0], 1, 1), 3)}
    y, plan, expected = run(proto, fed, device)
    assert {d.kernel for d in tiled(plan)} == {kernel}
    plain, before, _ = run(proto, fed, device, off=True)
    assert {d.kernel for d in tiled(before)} == {"conv_tiled"}
    for one, other in ((y, expected), (y, plain)):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("case", ["1x1", "large-tiles"])
def test_packed_convolutions_in_float16(device, as_gpu, case):
    x, w, _, kernel = CONVOLUTIONS[case]
    fed = {"x": random_array(x), "s": random_array((1, w[0], 1, 1), 3)}
    with settings.settings(DISABLE_PASSES="matrix_conv,registers"):  # which halves take if they can
        y, plan, expected = run(convolution(x, w), fed, device, dtype="float16")
    (one,) = tiled(plan)
    assert one.kernel == kernel
    assert dict(one.reads)["w_buffer"].dtype in ("float16", "float32")  # as the device stores it
    np.testing.assert_allclose(y, expected, rtol=4e-3, atol=1e-2)


def test_what_lies_behind_the_last_channel_is_not_read(device, as_gpu):
    """The next image's NaN would show: zeros of padding times NaN are NaN."""
    x = random_array((2, 45, 6, 6))
    x[1] = np.nan
    proto = convolution((2, 45, 6, 6), (20, 45, 3, 3))
    y, plan, _ = run(proto, {"x": x, "s": np.zeros((1, 20, 1, 1), np.float32)}, device)
    assert plan.dispatches[0].kernel == "conv_packed" and np.isfinite(y[0]).all()


@pytest.mark.parametrize("dtype", [None, "float16"])
@pytest.mark.parametrize("sizes", [(1, 300, 130), (1, 3000, 12), (9, 130, 517), (1, 70, 32772)],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", ["as-it-is", "as-gpu"])
def test_products_read_turned_weights(device, monkeypatch, kind, sizes, dtype):
    if kind == "as-gpu":
        monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    m, k, n = sizes
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    constants = {"w": random_array((k, n), 1) / np.float32(k**0.5), "b": random_array((n,), 2)}
    proto = model(nodes, [value("x", (m, k))], ["y"], constants)
    fed = {"x": random_array((m, k))}
    y, plan, expected = run(proto, fed, device, dtype=dtype)
    plain, before, _ = run(proto, fed, device, off=True, dtype=dtype)
    turned = turned_weights(plan)
    assert bool(turned) == (m == 9 if on_cpu(device) else m == 1 and n < 32772)
    same_kernels = [d.kernel for d in plan.dispatches] == [d.kernel for d in before.dispatches]
    both = (*plan.dispatches, *before.dispatches)
    one = {"matvec", "matmul_pairs"} & {dispatch.kernel for dispatch in both}
    assert same_kernels or one  # kernels that read B along n
    if not one:
        np.testing.assert_array_equal(y, plain)  # the same sums in the same order
    tolerance = 1e-4 if dtype is None else 2e-3
    np.testing.assert_allclose(y, plain, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(y, expected, rtol=tolerance * 4, atol=tolerance * 4)
    assert plan.memory.weights_bytes == before.memory.weights_bytes


def test_batches_of_turned_weights(device):
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model([node], [value("x", (2, 3, 9, 70))], ["y"], {"w": random_array((3, 70, 520), 1)})
    fed = {"x": random_array((2, 3, 9, 70))}
    y, plan, expected = run(proto, fed, device)
    assert bool(turned_weights(plan)) == plan_is_of_a_cpu(device)
    assert compare.compare({"y": y}, {"y": expected}).passed


def plan_is_of_a_cpu(device) -> bool:
    return bool(vklab.devices()[device].is_cpu)


def test_a_compiled_model_holds_packed_weights(device, as_gpu, tmp_path, monkeypatch):
    proto = convolution((1, 45, 9, 9), (37, 45, 3, 3))
    fed = {"x": random_array((1, 45, 9, 9)), "s": random_array((1, 37, 1, 1))}
    y, _, _ = run(proto, fed, device)
    path = tmp_path / "model.vklab"
    onnx.save(proto, tmp_path / "model.onnx")
    command = ["compile", str(tmp_path / "model.onnx"), "-o", str(path), f"--device={device}"]
    assert cli.main(command) == 0
    monkeypatch.setattr(prepack, "turned", None)
    monkeypatch.setattr(prepack, "fill", None)
    with vklab.load(path, device) as session:
        assert not session.plan_reason
        np.testing.assert_array_equal(session.run(fed)["y"], y)


def test_plans_of_other_shapes_read_a_weight_as_it_lies(device):
    """One that comes first decides for a session, and for no other: nothing is sent twice."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weight = random_array((70, 520), 1)
    proto = model([node], [value("x", ("rows", 70))], ["y"], {"w": weight})
    for order in ((1, 9, 33), (9, 1, 33)):
        with vklab.load(proto, device) as session:
            seen = []
            for rows in order:
                fed = {"x": random_array((rows, 70))}
                np.testing.assert_allclose(session.run(fed)["y"], fed["x"] @ weight, atol=1e-4)
                seen.append(bool(turned_weights(session.plan)))
            first = plan_is_of_a_cpu(device) == (order[0] == 9)
            assert seen == [first] * 3
