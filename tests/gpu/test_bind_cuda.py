"""Bindings whose inputs and outputs are CUDA tensors: on a stand-in, and on CUDA where it is."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, relu, value
from support.graphs.state_models import cell, step_inputs
from vklab import settings
from vklab.errors import ModelError, SetupError, VklabError
from vklab.runtime import open_devices
from vklab.runtime.cuda import driver, sharing
from vklab.vulkan import dma_buf, opaque_fd

torch = pytest.importorskip("torch")
cuda_double = pytest.importorskip("support.fakes.cuda_double")
node = helper.make_node
X = np.float32([[1, -2, 3]])


@pytest.fixture
def double(device_index, monkeypatch):
    """Replace CUDA by the stand-in, for a device that exports memory as Mesa does."""
    opened = open_devices.open_device(device_index)
    if "llvmpipe" not in opened.info.name:
        pytest.skip(f"the stand-in maps memory of Mesa, not of {opened.info.name}")
    if "exportable" not in dma_buf.features(opened.device, opaque_fd.OPAQUE_FD):
        pytest.skip(f"{opened.info.name} exports no opaque file descriptors")
    made = cuda_double.Driver(opened.info.uuid)
    monkeypatch.setattr(driver, "load_driver", lambda: made)
    monkeypatch.setattr(sharing, "require_torch", lambda: cuda_double.fake_torch(made))
    monkeypatch.setattr(opened, "_owned", {**opened._owned})
    return made


@pytest.fixture(params=[False, True], ids=["host", "ahead"])
def ahead(request, double, monkeypatch):
    """Order runs by the host, or by a semaphore that the stand-in raises."""
    if request.param:
        monkeypatch.setattr(opaque_fd, "is_exportable", lambda device: True)
        monkeypatch.setattr(cuda_double.HostSemaphore, "double", double, raising=False)
        monkeypatch.setattr(sharing, "TimelineSemaphore", cuda_double.HostSemaphore)
    return {"cuda": True, "ahead": request.param}


def test_tensors_are_the_memory_itself(double, ahead, device_index):
    with vklab.load(relu((1, 3)), device_index) as session, session.bind(X, **ahead) as bound:
        x = bound.inputs["x"].torch()
        assert (x.dtype, tuple(x.shape), x.tolist()) == (torch.float32, (1, 3), X.tolist())
        with pytest.raises(VklabError, match="no value before the first run"):
            bound.outputs["y"].torch()
        y = bound.run()["y"].torch()
        bound.settle()
        assert y.tolist() == [[1, 0, 3]] == bound.outputs["y"].numpy().tolist()
        x[0, 1] = 7
        bound.run()
        assert bound.outputs["y"].numpy().tolist() == [[1, 7, 3]] == y.tolist()
        bound.run({"x": -X})
        assert np.asarray(bound.outputs["y"]).tolist() == [[0, 2, 0]] == y.tolist()
        assert bound.outputs["y"].__dlpack_device__() == (2, 0)
        assert not bound.outputs["y"].is_view
        assert torch.from_dlpack(bound.outputs["y"].__dlpack__()).data_ptr() == y.data_ptr()
    if ahead["ahead"]:  # a run waits for the stream, and the stream for the run
        kinds = [(kind, value) for kind, _, value in double.log]
        assert kinds == [
            ("signal", 1),
            ("wait", 2),
            ("signal", 3),
            ("wait", 4),
            ("signal", 5),
            ("wait", 6),
        ]
    assert double.live["semaphore"] == double.live["context"] == 0


def test_tensors_of_cuda_are_inputs(double, ahead, device_index):
    with vklab.load(relu((1, 3)), device_index) as session:
        given = cuda_double.on_cuda(torch.tensor(X))
        with pytest.raises(ModelError, match=r"CUDA, number 0; .*\.cpu\(\)"):
            session.bind(given)
        with session.bind({"x": given}, **ahead) as bound:
            assert bound.run()["y"].numpy().tolist() == [[1, 0, 3]]
            assert bound.run({"x": -given})["y"].numpy().tolist() == [[0, 2, 0]]
            with pytest.raises(ModelError, match="written with torch.float16; convert"):
                bound.run({"x": given.half()})
        for wrong, words in ((given.half(), "is given as float16"), (given[:, :2], "shape")):
            with pytest.raises(ModelError, match=words):
                session.bind(wrong, **ahead)


def test_states_are_swapped_in_memory_of_cuda(double, ahead, device_index):
    with vklab.load(cell(), device_index) as session:
        given = step_inputs("cell", 0)
        with (
            session.bind(given, state={"h": "h2"}) as plain,
            session.bind(given, state={"h": "h2"}, **ahead) as shared,
        ):
            for turn in range(4):
                more = {"x": step_inputs("cell", turn)["x"]}
                expected, made = plain.run(more), shared.run(more)
                for name in expected:
                    np.testing.assert_array_equal(made[name].numpy(), expected[name].numpy())
                    assert made[name].torch().tolist() == expected[name].numpy().tolist()


@pytest.mark.parametrize("dtype", ["float16", "int64", "uint8", "bfloat16", "bool"])
def test_dtypes(double, device_index, dtype):
    kind = {"float16": 10, "int64": 7, "uint8": 2, "bfloat16": 16, "bool": 9}[dtype]
    graph = model([node("Concat", ["x", "x"], ["y"], axis=0)], [value("x", (5,), kind)], ["y"])
    x = (torch.arange(5) % 2).to(getattr(torch, dtype))
    with (
        vklab.load(graph, device_index) as session,
        session.bind(cuda_double.on_cuda(x), cuda=True) as bound,
    ):
        made = bound.run()["y"].torch()
        assert made.dtype == x.dtype and torch.equal(made, torch.cat([x, x]))


def test_tensors_outlive_binding_session_and_device_memory(double, ahead, device_index):
    session = vklab.load(relu((1, 3)), device_index)
    bound = session.bind(X, **ahead)
    y = bound.run()["y"].torch()
    bound.outputs["y"].numpy()
    session.close()
    gc.collect()
    assert y.tolist() == [[1, 0, 3]] and double.live["memory"] == 1  # of the outputs alone
    with pytest.raises(VklabError, match="closed"):
        bound.outputs["y"].torch()
    del y
    gc.collect()
    assert double.live["memory"] == double.live["address"] == 0


def test_a_binding_reads_tensors_of_another(double, ahead, device_index):
    with (
        vklab.load(relu((1, 3)), device_index) as one,
        vklab.load(relu((1, 3)), device_index) as two,
        one.bind(X, **ahead) as a,
        two.bind({"x": a.outputs["y"]}, **ahead) as b,
    ):
        for factor in (1, -1):
            a.run({"x": factor * X})
            b.run()
            assert b.outputs["y"].numpy().tolist() == np.maximum(factor * X, 0).tolist()
            assert b.inputs["x"].torch().data_ptr() == a.outputs["y"].torch().data_ptr()


def test_failures_of_cuda_leave_nothing_behind(double, ahead, device_index):
    names = ["cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"]
    with vklab.load(relu((1, 3)), device_index) as session:
        before = vklab.vulkan.api.live_handles()
        for name in names + ["cuImportExternalSemaphore"] * ahead["ahead"]:
            double.failing = name
            with pytest.raises(VklabError, match=f"{name} failed with CUDA_ERROR_UNKNOWN"):
                session.bind(X, **ahead)
            gc.collect()
            session.require_open().free_forgotten()
            assert vklab.vulkan.api.live_handles() == before and not +double.live
        double.failing = "cuSignalExternalSemaphoresAsync" * ahead["ahead"]
        with session.bind(X, **ahead) as bound:
            if double.failing:
                with pytest.raises(VklabError, match="cuSignal"):
                    bound.run()
                double.failing = ""
            assert bound.run()["y"].numpy().tolist() == [[1, 0, 3]]


def test_after_a_time_out_nothing_waits_for_cuda(double, ahead, device_index, monkeypatch):
    with vklab.load(relu((1, 3)), device_index) as session:
        bound = session.bind(X, **ahead)
        bound.run()
        bound.settle()
        opened, order = session.require_open(), bound._home._order
        opened.is_stuck = True
        try:
            bound.close()
            assert double.live["memory"] == 2 and double.live["semaphore"] == ahead["ahead"]
        finally:
            opened.is_stuck = False
        order.close()
    gc.collect()
    opened.free_forgotten()
    assert double.live["memory"] == 0


def test_what_cannot_be_shared_is_named(double, device_index, monkeypatch):
    with vklab.load(relu((1, 3)), device_index) as session:
        with session.bind(X) as bound, pytest.raises(ModelError, match="bind with cuda=True"):
            bound.inputs["x"].torch()
        with pytest.raises(ModelError, match="in_place, which is memory of the host"):
            session.bind(X, cuda=True, in_place=["x"])
        with pytest.raises(SetupError, match="(?s)exports no timeline semaphores.*without ahead"):
            session.bind(X, cuda=True, ahead=True)
    with (
        settings.settings(HOST="Relu"),
        vklab.load(relu((1, 3)), device_index) as session,
        pytest.raises(ModelError, match="nodes run on the host"),
    ):
        session.bind(X, cuda=True)
    with vklab.load(relu((1, 3)), device_index) as session:
        opened = session.require_open()
        monkeypatch.setattr(opened, "_owned", {})
        double.uuid = "ab" * 16
        words = f"its UUID is {opened.info.uuid}, CUDA has {'ab' * 16}"
        with pytest.raises(SetupError, match=words):
            session.bind(X, cuda=True)
        extensions = opened.device.extensions
        monkeypatch.setattr(opened.device, "extensions", extensions - {dma_buf.EXTENSIONS[1]})
        with pytest.raises(SetupError, match="has no VK_KHR_external_memory_fd"):
            session.bind(X, cuda=True)


def test_torch_without_cuda_is_named(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(SetupError, match="is built without CUDA"):
        sharing.require_torch()


@pytest.fixture
def session_on_cuda(device_index):
    """Load a model on a device that CUDA has, too, or skip with the reason."""
    with vklab.load(relu((129, 65)), device_index) as session:
        opened = session.require_open()
        try:
            sharing.of(opened)
        except SetupError as error:
            of_cuda = driver.load_driver().uuids() if torch.cuda.is_available() else ()
            assert opened.info.uuid not in of_cuda, error
            pytest.skip(str(error).splitlines()[0])
        yield session


@pytest.mark.parametrize("is_ahead", [False, True])
def test_runs_are_ordered_with_the_current_stream(session_on_cuda, is_ahead):
    zeros = torch.zeros(129, 65, device="cuda")
    with session_on_cuda.bind(zeros, cuda=True, ahead=is_ahead) as bound:
        x, means = bound.inputs["x"].torch(), []
        y = bound.run()["y"].torch()
        streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
        for number in range(60):
            stream = streams[number // 7 % 2]
            stream.wait_stream(streams[1 - number // 7 % 2])
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000 * (number % 3))
                x.fill_(float(number))
                bound.run()
                means.append(y.clone().mean())
        torch.cuda.synchronize()
        assert [mean.item() for mean in means] == list(range(60))
    session_on_cuda.close()
    y.add_(1)
    assert y.mean().item() == 60


def test_real_tensors_of_cuda(session_on_cuda):
    x = torch.from_numpy(random_array((129, 65))).cuda()
    with session_on_cuda.bind(x, cuda=True) as bound:
        y = bound.run()["y"].torch()
        assert torch.equal(y, x.relu()) and y.device.type == "cuda"
        assert torch.from_dlpack(bound.outputs["y"]).data_ptr() == y.data_ptr()
        np.testing.assert_array_equal(bound.run({"x": -x})["y"].numpy(), (-x).relu().cpu().numpy())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(VklabError, match="is being captured"), torch.cuda.graph(graph):
            bound.run()
