"""ONNX Runtime as a backend: who executes the nodes, options, devices, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from vklab.apps.compare.backend import ModelSource, Refused
from vklab.apps.compare.onnxruntime import backend as backends
from vklab.apps.compare.onnxruntime import models, nodes, sessions
from vklab.base import worker_child
from vklab.errors import SetupError
from vklab.runtime import host, tolerances

DIGITS = Path(__file__).resolve().parents[2] / "data" / "mini_classifier.onnx"
ROWS = {each.name: each for each in backends.every()}


def test_names_are_unique_and_tolerances_know_the_dtypes():
    assert len(ROWS) == len(backends.every())
    for row in ROWS.values():
        tolerances.model(row.dtypes.arithmetic, row.dtypes.weights)


def test_a_broken_onnxruntime_is_a_reason(monkeypatch):
    def broken():
        raise ImportError("libonnxruntime.so: cannot open shared object file")

    monkeypatch.setattr(host, "load_onnxruntime", broken)
    answer = ROWS["onnxruntime-cpu-float32"].available()
    assert "cannot be loaded: libonnxruntime.so" in answer.reason


def test_nodes_count_only_if_the_profile_confirms_them():
    both = {"A": 9}, {"A": 7}
    assert nodes.agreed(*both) == ({"A": 9}, "")
    assert nodes.agreed({}, {"A": 7}) == ({"A": 7}, "")
    assert nodes.agreed({"A": 2}, {"A": 9}) == ({"A": 9}, "")
    found, note = nodes.agreed({"A": 9}, {"CPUExecutionProvider": 7})
    assert found == {"CPUExecutionProvider": 7, "A": 0}
    assert note == "assigned nodes, but no kernel in the profile: A"
    with pytest.raises(Refused, match=r"A is listed first and executed 0 of 7 nodes"):
        nodes.require("A", found)
    nodes.require("A", {"A": 1, "CPUExecutionProvider": 8})


def test_the_profile_counts_each_kernel_once(tmp_path):
    def event(name, provider, category="Node"):
        return {"cat": category, "name": name, "args": {"provider": provider}}

    path = tmp_path / "profile.json"
    path.write_text(
        json.dumps(
            [
                event("conv_kernel_time", "A"),
                event("conv_kernel_time", "A"),
                event("conv_fence_before", "A"),
                event("relu_kernel_time", "B"),
                event("model_run", "", "Session"),
            ]
        )
    )
    assert nodes.from_profile(path) == {"A": 1, "B": 1}


def test_a_provider_listed_first_with_its_nodes_on_the_cpu_is_refused(monkeypatch):
    """Take a session as a plugin gives it that loads no library: all nodes on the CPU, error 0."""
    cpu = ROWS["onnxruntime-cpu-float32"]
    qnn = ROWS["onnxruntime-qnn-float32"]
    opened = sessions.open_session
    monkeypatch.setattr(sessions, "open_session", lambda given, *rest: opened(cpu, *rest))
    prepared = qnn.prepare(ModelSource("digits", onnx=DIGITS))
    with pytest.raises(Refused, match=r"QNNExecutionProvider is listed first and executed 0 of 9"):
        prepared.run({"image": np.zeros((1, 3, 32, 32), np.float32)})
    prepared.close()


def test_the_cpu_executes_all_nodes_and_shows_its_layers():
    prepared = ROWS["onnxruntime-cpu-float32"].prepare(ModelSource("digits", onnx=DIGITS))
    image = np.ones((1, 3, 32, 32), np.float32)
    made = prepared.run({"image": image})
    assert prepared.nodes == {"CPUExecutionProvider": 9}
    values = prepared.layers({"image": image})
    assert {"conv2d", "relu", "logits"} <= values.keys()
    np.testing.assert_allclose(values["logits"], made["logits"], atol=1e-5)
    prepared.close()


def test_a_provider_that_the_build_lacks_is_refused_and_not_replaced():
    with pytest.raises(Refused, match="has no OpenVINOExecutionProvider, only"):
        ROWS["onnxruntime-openvino-float32"].prepare(ModelSource("digits", onnx=DIGITS))


def test_a_model_without_an_onnx_form_is_refused():
    with pytest.raises(Refused, match="has no ONNX form"):
        ROWS["onnxruntime-cpu-float32"].prepare(ModelSource("net", package=Path("net.mlpackage")))


class FakeRuntime:
    """The part of onnxruntime that plugins and DirectML use."""

    __version__ = "1.31.1"
    GraphOptimizationLevel = types.SimpleNamespace(ORT_ENABLE_BASIC="basic")
    ExecutionMode = types.SimpleNamespace(ORT_SEQUENTIAL="sequential")

    def __init__(self, devices=()):
        self.devices, self.registered = list(devices), []

    def SessionOptions(self):
        """Return options that keep what is set."""
        return types.SimpleNamespace(add_session_config_entry=lambda name, value: None)

    def get_ep_devices(self):
        """Return the CPU, and the plugin's devices once it is registered."""
        cpu = types.SimpleNamespace(ep_name="CPUExecutionProvider")
        return [cpu, *(self.devices if self.registered else [])]

    def register_execution_provider_library(self, name, path):
        """Note a registration."""
        self.registered.append((name, path))


def test_directml_gets_the_options_that_it_needs():
    row = ROWS["onnxruntime-directml-float32"].provider
    options = sessions.session_options(FakeRuntime(), row, optimize=False)
    assert options.enable_mem_pattern is False
    assert options.execution_mode == "sequential"
    assert options.graph_optimization_level == "basic"


def test_a_plugin_is_registered_under_the_name_of_its_provider(monkeypatch):
    plugin = types.ModuleType("fake_plugin")
    plugin.get_library_path = lambda: "/lib/fake.so"
    plugin.get_qnn_htp_path = lambda: "/lib/htp.so"
    monkeypatch.setitem(sys.modules, "fake_plugin", plugin)
    row = ROWS["onnxruntime-qnn-float32"].provider
    device = types.SimpleNamespace(ep_name=row.ep)
    runtime = FakeRuntime([device])
    assert sessions.plugin_devices(runtime, row, "fake_plugin") == [device]
    assert runtime.registered == [(row.ep, "/lib/fake.so")]
    assert sessions.plugin_options("fake_plugin") == {"backend_path": "/lib/htp.so"}
    with pytest.raises(SetupError, match="sees no device of this machine") as caught:
        sessions.plugin_devices(FakeRuntime(), row, "fake_plugin")
    assert caught.value.repair == "this needs a Snapdragon processor"
    asked = sessions.plugin_options("onnxruntime_ep_openvino")  # bfloat16 by default, where it can
    assert json.loads(asked["load_config"]) == {"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}


def test_int8_has_seven_bits_where_sums_would_saturate(monkeypatch):
    monkeypatch.setattr(models.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(models.Path, "exists", lambda path: True)
    for text, expected in (("flags: avx2", True), ("flags: avx512_vnni", False)):
        monkeypatch.setattr(models.Path, "read_text", lambda *given, text=text: text)
        assert models.saturates() is expected
    monkeypatch.setattr(models.platform, "machine", lambda: "arm64")
    assert models.saturates() is False


def test_layers_of_int8_are_the_values_that_were_quantised():
    values = {"relu": 1, "relu_DequantizeLinear_Output": 2, "logits": 3, "x_scale": 4}
    assert models.layer_values(values, ["logits"]) == {"relu": 2, "logits": 3}


@pytest.mark.slow
def test_float16_and_int8_are_made_by_the_tools_of_onnxruntime():
    image = {"image": np.random.default_rng(0).random((1, 3, 32, 32), np.float32)}
    source = ModelSource("digits", onnx=DIGITS)
    sizes, made = {}, {}
    for kind in ("float32", "float16", "int8"):
        prepared = ROWS[f"onnxruntime-cpu-{kind}"].calibrated(image).prepare(source)
        made[kind], sizes[kind] = prepared.run(image)["logits"], prepared.size_bytes
        prepared.close()
    assert sizes["float16"] < 0.51 * sizes["float32"]
    assert sizes["int8"] < 0.3 * sizes["float32"]
    assert 0 < np.abs(made["float16"] - made["float32"]).max() < 2e-3
    assert 1e-3 < np.abs(made["int8"] - made["float32"]).max() < 0.2


@pytest.mark.slow
def test_a_model_that_the_tools_refuse_is_a_reason():
    text = helper.make_tensor_value_info("s", TensorProto.STRING, [1])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["s"], ["t"])],
        "text",
        [text],
        [helper.make_tensor_value_info("t", TensorProto.STRING, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(Refused, match=r"onnxruntime.quantization refuses the model"):
        models.to_int8(model, None, {"s": np.array([1.0])})


def test_external_data_counts_as_bytes(tmp_path):
    weight = np.ones((64, 64), np.float32)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "wide",
        [value],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    bare = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert models.size_bytes(bare, tmp_path) > weight.nbytes > models.size_bytes(bare)
    whole = models.inside(bare, tmp_path)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(whole.graph.initializer[0]), weight)


def test_bound_runs_compute_the_same_in_the_same_memory():
    prepared = ROWS["onnxruntime-cpu-float32"].prepare(ModelSource("digits", onnx=DIGITS))
    inputs = {"image": np.random.default_rng(2).random((1, 3, 32, 32), np.float32)}
    plain = prepared.run(inputs)
    bound = prepared.bind(inputs)
    places = [value.data_ptr() for value in bound._binding.get_outputs()]
    bound.run()
    assert [value.data_ptr() for value in bound._binding.get_outputs()] == places
    np.testing.assert_array_equal(bound.outputs()["logits"], plain["logits"])
    prepared.close()


def test_session_options_are_set_or_refused_with_the_choices():
    runtime, row = host.load_onnxruntime(), ROWS["onnxruntime-cpu-float32"].provider
    made = sessions.session_options(
        runtime,
        row,
        True,
        {
            "intra_op_num_threads": "3",
            "enable_mem_pattern": "false",
            "execution_mode": "ORT_PARALLEL",
            "session.set_denormal_as_zero": "1",
        },
    )
    assert (made.intra_op_num_threads, made.enable_mem_pattern) == (3, False)
    assert made.execution_mode == runtime.ExecutionMode.ORT_PARALLEL
    assert made.get_session_config_entry("session.set_denormal_as_zero") == "1"
    for name, value, words in [
        ("threads", "3", "no session option 'threads'; it has"),
        ("intra_op_num_threads", "many", "'many' is no value"),
        ("execution_mode", "BOTH", "'BOTH' is no value"),
    ]:
        with pytest.raises(Refused, match=words):
            sessions.session_options(runtime, row, True, {name: value})


def test_a_device_that_the_provider_does_not_number_is_refused():
    second = dataclasses.replace(ROWS["onnxruntime-cpu-float32"], device_id=1)
    assert second.device.endswith(", number 1")
    with pytest.raises(Refused, match="does not number its devices; device 1 was asked for"):
        second.prepare(ModelSource("digits", onnx=DIGITS))


@pytest.mark.parametrize(("text", "kind"), [
    (f"{'signature ' * 60}status was false. Failed to get a WebGPU adapter: No supported adapters",
     SetupError), ("the graph is not acyclic", RuntimeError)])  # fmt: skip
def test_a_provider_without_a_device_is_absent_and_other_errors_stay(text, kind):
    def refuse(*given, **more):
        raise RuntimeError(text)

    runtime = types.SimpleNamespace(InferenceSession=refuse)
    row = ROWS["onnxruntime-webgpu-float32"].provider
    with pytest.raises(kind, match="No supported adapters|not acyclic") as caught:
        sessions.opened(runtime, row, b"", None)
    if kind is SetupError:
        status, reason, install = worker_child.describe(caught.value)
        assert status == "absent"
        assert "finds no device on this machine: Failed to get a WebGPU adapter" in reason
        assert install == "this needs a driver that Dawn accepts"


def test_cuda_is_loaded_from_nvidias_wheels_before_a_session(tmp_path, monkeypatch):
    for name in ("cudnn/lib", "cu13/lib", "cu13/include"):
        (tmp_path / "nvidia" / name).mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = []
    runtime = types.SimpleNamespace(
        __file__=str(tmp_path / "onnxruntime/__init__.py"),
        preload_dlls=lambda directory: loaded.append(Path(directory)),
    )
    sessions.require(runtime, ROWS["onnxruntime-cuda-float32"].provider)
    ours = [each for each in loaded if tmp_path in each.parents]
    assert ours == [tmp_path / "nvidia" / name for name in ("cu13/lib", "cudnn/lib")]
    loaded.clear()
    sessions.require(runtime, ROWS["onnxruntime-openvino-float32"].provider)
    assert not loaded


@pytest.mark.skipif(os.name != "posix", reason="the loader of Linux and macOS is asked")
def test_a_provider_whose_library_does_not_load_is_absent_with_the_loaders_words(tmp_path):
    folder = tmp_path / "onnxruntime/capi"
    folder.mkdir(parents=True)
    for name in ("shared", "openvino"):
        (folder / f"libonnxruntime_providers_{name}.so").write_bytes(b"no library")
    runtime = types.SimpleNamespace(__file__=str(folder.parent / "__init__.py"))
    with pytest.raises(SetupError, match=r"OpenVINOExecutionProvider does not load: \S+") as caught:
        sessions.require(runtime, ROWS["onnxruntime-openvino-float32"].provider)
    assert caught.value.repair == "this needs a processor that OpenVINO lists"
    assert worker_child.describe(caught.value)[0] == "absent"
