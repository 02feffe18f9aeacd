"""vklab bench: runners that fail are rows, turns alternate, models and peers are chosen."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

from support.fakes.fake_runners import Fake, case_in
from vklab.apps import cli
from vklab.apps.compare import peers
from vklab.apps.compare.backend import Refused
from vklab.apps.compare.children.child import Child
from vklab.apps.compare.models import catalogue, graphs, memory, products
from vklab.apps.compare.models import recorded as recorded_graphs
from vklab.apps.compare.speed import cases, clocks, measure, registry, roofs, tasks, turns
from vklab.apps.compare.speed.measure import Row, Samples
from vklab.apps.compare.speed.runners import ncnn_files, on_torch
from vklab.base.worker import Failure
from vklab.errors import ModelError, SetupError
from vklab.runtime import host

PACE = turns.Pace(rounds=2, seconds=0.002, warm_seconds=0.0, limit=20.0)
FAULTS = {
    "crashes": ("crashed", "SIGABRT|Abort"),
    "crashes later": ("crashed", "SIGABRT|Abort"),
    "raises": ("failed", "ValueError: the fake is broken"),
    "refuses": ("refused", "takes no such model"),
    "NaN": ("wrong", "'y' has 1 of 4 elements not finite"),
    "wrong": ("wrong", r"up to 3, more than float32 explains; first y\[1\]: 7.0, expected 4.0"),
    "other name": ("wrong", "no output 'y'"),
    "absent": ("absent", "fake library is not installed"),
    "dies when asked": ("absent", "it cannot be asked"),
}


def test_each_fault_is_a_row_and_the_run_goes_on(tmp_path):
    runners = [
        Fake("vklab"),
        *(Fake(f"f-{fault}", fault) for fault in FAULTS),
        Fake("other", "not taken"),
        Fake("last"),
    ]
    with turns.Turns(runners, PACE) as every:
        answers = every.ask()
        rows = {row.runner: row for row in every.measure(case_in(tmp_path))}
        again = {row.runner: row for row in every.measure(case_in(tmp_path))}
    assert list(rows) == [r.name for r in runners if r.fault != "not taken"]
    for fault, (status, words) in FAULTS.items():
        row = rows[f"f-{fault}"]
        assert row.status == status and re.search(words, row.reason), row
        assert row.median_us is None and row.ratio is None, row
    assert rows["f-absent"].install == "pip install fake" and not answers["f-absent"]
    for name in ("vklab", "last"):
        row = rows[name]
        assert row.status == "ran" and row.max_abs_error == 0 and row.variant == "a fake"
        assert row.p05_us <= row.median_us <= row.p95_us and row.runs > 2
        assert row.device_us == 0.5 and row.load_ms > 0 and row.first_ms > 0
        assert row.host_bytes > 10 << 20 and row.over == "vklab" and row.ratio > 0
    assert rows["vklab"].ratio == 1.0
    # A child that crashed is started again for the next model.
    assert {name: row.status for name, row in again.items()} == {
        name: row.status for name, row in rows.items()
    }
    assert every.versions == {"fake": "1.0"}


def test_of_large_outputs_a_selection_is_compared(monkeypatch):
    monkeypatch.setattr(tasks, "MOST_COMPARED", 10)
    arrays = {"small": np.arange(10), "large": np.arange(64).reshape(8, 8)}
    made = tasks._thinned(arrays)
    assert made["small"] is arrays["small"] and made["large"].tolist() == [*range(0, 64, 7)]
    assert {value % 8 for value in made["large"].tolist()} == {*range(8)}


def test_a_runner_that_hangs_is_stopped(tmp_path):
    pace = replace(PACE, limit=0.5)
    with turns.Turns([Fake("vklab"), Fake("slow", "hangs"), Fake("last")], pace) as every:
        rows = every.measure(case_in(tmp_path))
    assert [row.status for row in rows] == ["ran", "timeout", "ran"]
    assert "0.5 s" in rows[1].reason


def test_a_child_that_ended_tells_it_until_it_is_started_again(tmp_path):
    with Child(Fake("f", "crashes"), 20.0) as child:
        for asked in (tasks.load, tasks.kernels):  # the second one has no process to answer it
            arguments = (child.runtime, case_in(tmp_path)) if asked is tasks.load else ()
            with pytest.raises(Failure, match="SIGABRT|Abort") as caught:
                child.call(asked, *arguments)
            assert caught.value.status == "crashed"
        child.start()
        assert child.available()
        child.free()


def test_turns_alternate_and_rotate(tmp_path):
    log, warmed = tmp_path / "log", []
    runners = [Fake(name, log=log) for name in ("a", "b", "c")]
    pace = replace(PACE, rounds=3, warm_seconds=0.25)
    with turns.Turns(runners, pace, warm=warmed.append) as every:
        every.measure(case_in(tmp_path))
    order = re.sub(r"(\w )\1+", r"\1", log.read_text())
    # The first run of each, then turns that begin with another runner each time.
    assert order.split() == [*"abc", *"abc", *"bca", *"cab"] and warmed == [0.25] * 9


def test_ratios_are_medians_of_turns_against_the_same_dtype():
    rows = [
        Row("m", "vklab", median_us=1.0),
        Row("m", "vklab-fp16", dtype="float16", median_us=1),
        Row("m", "peer-fp16", dtype="float16", median_us=1.0),
        Row("m", "dead", status="crashed", median_us=1.0),
    ]
    made = {
        "vklab": [[100], [200], [1000]],
        "vklab-fp16": [[50], [100], [100]],
        "peer-fp16": [[100], [300], [200]],
        "dead": [[1]],
    }
    found = {
        row.runner: row
        for row in measure.compared(
            rows, {name: Samples(turns=each) for name, each in made.items()}
        )
    }
    assert (found["vklab-fp16"].ratio, found["vklab-fp16"].over) == (0.5, "vklab")
    assert (found["peer-fp16"].ratio, found["peer-fp16"].over) == (2.0, "vklab-fp16")
    assert found["dead"].ratio is None


def test_products_compare_by_device_time(tmp_path):
    with turns.Turns([Fake("vklab")], PACE) as every:
        [row] = every.measure(case_in(tmp_path, on_device=True))
    assert row.compares == "device" and row.time_us == row.device_us == 0.5


def test_a_floor_is_the_larger_of_bytes_and_operations():
    known = roofs.Roofs(1e12, {"float32": 1e13, "float16": 1e14}, 7.0)
    assert roofs.floor_us(known, (10**9, 4 * 10**6), "float32", False) == pytest.approx(107.0)
    assert roofs.floor_us(known, (10**9, 4 * 10**8), "float32", True) == pytest.approx(400.0)
    assert roofs.floor_us(known, (10**9, 4 * 10**8), "float16", True) == pytest.approx(200.0)


@pytest.mark.parametrize("name, flops, size", [
    ("matmul_3x5x7", 2 * 3 * 5 * 7, 4 * (15 + 35 + 21)),
    ("conv8_4x6x6", 8 * 2 * 36 * 36 * 4, 4 * (8 * (144 + 4) + 2 * 144)),
    ("mlp", 2 * (784 * 256 + 256 * 128 + 1280), None),
    ("chain_add_10", 0, 12),
])  # fmt: skip
def test_work_is_counted_on_the_graph(name, flops, size):
    model = products.build(name) or graphs.build(name)
    counted = cases.counted(model)
    assert counted[0] == flops and size in (None, counted[1])


def test_suites_name_models_that_exist():
    for suite, names in catalogue.SUITES.items():
        for name in names:
            one = products.is_one(name) or memory.is_one(name)
            assert name in graphs.MODELS or one or suite == "real", name
    assert catalogue.chosen((), ()) == list(catalogue.DEFAULT)
    assert catalogue.chosen(["convolutions"], ["mlp"]) == [*products.CONVOLUTIONS, "mlp"]
    with pytest.raises(ModelError, match="unknown suite 'x'; choose among vkml"):
        catalogue.chosen(["x"], ())


def _negation() -> onnx.ModelProto:
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["y"], "neg")], "negation", ends[:1], ends[1:]
    )
    return onnx.helper.make_model(graph)


@pytest.mark.parametrize("half", ["", "half_"])
@pytest.mark.parametrize("kind", sorted(memory.KINDS))
def test_an_operator_on_memory_is_what_its_name_says(kind, half):
    model = memory.build(f"{half}{kind}_128x32")
    onnx.checker.check_model(model)
    x = np.linspace(-1, 1, 4096, dtype=np.float16 if half else np.float32).reshape(128, 32)
    shape = memory.KINDS[kind][1](128, 32)
    assert host.Reference(model).run({"x": x})["y"].shape == shape
    assert cases.counted(model)[1] >= x.itemsize * (x.size + np.prod(shape))
    with pytest.raises(ModelError, match="at least 1"):
        memory.build(f"{kind}_0x32")


def test_a_product_is_what_its_name_says():
    model = products.build("matmul_3x5x7")
    onnx.checker.check_model(model)
    x = np.ones((3, 5), np.float32)
    assert host.Reference(model).run({"x": x})["y"].shape == (3, 7)
    assert products.build("matmul_3x5") is None
    with pytest.raises(ModelError, match="at least 1"):
        products.build("matmul_0x5x7")


def test_a_recorded_graph_stands_in_for_torchvision():
    model = catalogue.build("resnet50")
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["image"]
    assert cases.counted(model)[0] == pytest.approx(8.18e9, rel=0.01)
    assert recorded_graphs.build("bert_base") is None
    with pytest.raises(ModelError, match="unknown benchmark model 'vit_b_16'"):
        catalogue.build("vit_b_16")


def test_names_are_checked_before_anything_is_measured():
    catalogue.require_known(["mlp", "chain_add_7", "vit_b_16", "matmul_1x2x3"])
    with pytest.raises(ModelError, match="unknown benchmark model 'x'; choose among chain_add_1"):
        catalogue.require_known(["mlp", "x"])
    with pytest.raises(FileNotFoundError, match="no model file a.onnx"):
        catalogue.require_known(["a.onnx"])


@pytest.mark.parametrize("name", ["mnist12", "mlp", "chain_add_10", "conv8_4x6x6"])
def test_pytorch_runs_the_graph_of_a_model(tmp_path, name):
    case = cases.make(name, tmp_path, 60.0)
    loaded = on_torch.Torch("torch-eager").prepare(case)
    with np.load(case.inputs) as inputs, np.load(case.expected) as expected:
        given = {key: inputs[key] for key in inputs.files}
        made = loaded.run(given)
        for key in expected.files:
            np.testing.assert_allclose(made[key], expected[key], rtol=1e-4, atol=1e-5)
    assert bool(loaded.device_ns(given, 1)) == ("CPU" not in loaded.variant)
    loaded.close()


def test_pytorch_refuses_an_operator_without_a_function():
    modules = pytest.importorskip("vklab.apps.compare.torch.timed")
    with pytest.raises(Refused, match="Neg has no PyTorch function"):
        modules.OnnxModule(_negation())


def test_a_provider_without_a_device_is_absent_in_the_benchmark_too(tmp_path, monkeypatch):
    def refuse(model, options, **more):
        assert model == str(tmp_path / "model.onnx") and more["enable_fallback"] == 0
        raise RuntimeError("Failed to get a WebGPU adapter: No supported adapters")

    build = SimpleNamespace(
        SessionOptions=onnxruntime.SessionOptions,
        InferenceSession=refuse,
        get_available_providers=lambda: ["WebGpuExecutionProvider"],
    )
    monkeypatch.setattr(host, "load_onnxruntime", lambda: build)
    runners = {runner.name: runner for runner in registry.every(None, tmp_path)}
    runner, cuda = runners["onnxruntime-webgpu"], runners["onnxruntime-cuda-tf32"].available()
    assert runner.available() and runner.on_gpu
    with pytest.raises(SetupError, match="finds no device on this machine: Failed to get a WebGPU"):
        runner.prepare(case_in(tmp_path))
    assert "no CUDAExecutionProvider; it needs onnxruntime-gpu and CUDA" in cuda.reason
    monkeypatch.setattr(build, "get_available_providers", lambda: 1 / 0)
    broken = runner.available()
    assert "cannot be loaded" in broken.reason and broken.install == "vklab bench peers"


def test_files_for_ncnn_have_a_line_for_each_layer(tmp_path):
    param, weights = tmp_path / "param", tmp_path / "bin"
    assert ncnn_files.write(graphs.build("chain_add_3"), param, weights)
    lines = param.read_text().splitlines()
    assert lines[:3] == ["7767517", "4 4", "Input in0 0 1 x"] and not weights.stat().st_size
    assert lines[-1] == "BinaryOp add3 1 1 add2 out0 0=0 1=1 2=1.000000e-03" and len(lines) == 6
    # A bias and a ReLU belong to the layer before; weights have four bytes in front.
    assert ncnn_files.write(graphs.build("mlp"), param, weights)
    kinds = [line.split()[0] for line in param.read_text().splitlines()[2:]]
    assert kinds == ["Input", "Flatten", *["InnerProduct"] * 3, "Softmax"]
    sizes = [(784, 256), (256, 128), (128, 10)]
    assert weights.stat().st_size == sum(4 + 4 * (a * b + b) for a, b in sizes)
    assert not ncnn_files.write(_negation(), param, weights)
    assert not ncnn_files.write(products.build("matmul_3x5x7"), param, weights)


def test_runners_are_chosen_by_name_pattern_or_beginning(tmp_path):
    every = registry.every(None, tmp_path)
    names = [runner.name for runner in every]
    assert len(set(names)) == len(names) and all(runner.environment is None for runner in every)

    def chosen(*patterns):
        return [runner.name for runner in registry.choose(every, patterns)]

    assert chosen("vklab", "ncnn*") == ["vklab", "ncnn", "ncnn-fp16"]
    (split,) = [r for r in registry.every(None, tmp_path, "bf16x3") if r.name not in names]
    assert (split.name, split.dtype, split.precision) == ("vklab-bf16x3", "float32", "bf16x3")
    stay = {"vklab-resident-host", "vklab-resident-cuda", "torch-resident-cuda"}
    assert {*chosen("*-resident*")} == stay and chosen("torch-resident-cuda")
    plain = [name for name in names if name not in stay]
    assert chosen("torch") == [name for name in plain if name.startswith("torch-")]
    assert chosen() == plain
    with pytest.raises(SetupError, match="unknown runner 'tvm'; choose among vklab, vklab-fp16"):
        chosen("tvm")
    (tmp_path / "ncnn").mkdir()
    found = {r.name: r.environment for r in registry.every(None, tmp_path)}
    assert found["ncnn"] == found["ncnn-fp16"] == tmp_path / "ncnn" and found["iree"] is None


def test_set_up_tells_each_peer_that_fails(tmp_path, monkeypatch):
    def install(name, root):
        if name == "iree":
            raise SetupError("pip cannot install iree", "pip install iree")

    monkeypatch.setattr(peers, "set_up", install)
    told = []
    done = dict(peers.set_up_all(["ncnn", "iree"], tmp_path, told.append))
    assert told == ["ncnn", "iree"] and done["ncnn"] == "" and "cannot install" in done["iree"]


def test_the_command_sets_peers_up(monkeypatch, capsys):
    asked = []

    def install(name, root):
        asked.append(name)
        if name == "ncnn":
            raise SetupError("pip cannot install ncnn", "pip install ncnn")

    monkeypatch.setattr(peers, "set_up", install)
    assert cli.main(["bench", "peers", "--json"]) == 1
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)["peers"]}
    assert list(told) == asked and {"onnxruntime-webgpu", "ncnn", "iree"} <= {*asked}
    assert not told["ncnn"]["ok"] and "cannot install ncnn" in told["ncnn"]["detail"]
    assert told["iree"]["ok"]
    monkeypatch.setattr(peers, "set_up", lambda name, root: None)
    assert cli.main(["bench", "peers"]) == 0


def test_an_environment_of_several_packages_takes_no_dependencies(tmp_path):
    words = peers.command("ncnn", tmp_path)
    assert words[-3:] == ["--no-deps", "ncnn", "pnnx"]  # pnnx asks for torch and uses none of it
    assert peers.command("onnxruntime-webgpu", tmp_path)[-1] == "onnxruntime-webgpu"


def test_clocks_settle_when_they_rise_no_more():
    class Rising(clocks.Clocks):
        def __init__(self) -> None:
            self.now, self.steps = 300, 0

        is_known = True

        def read(self, kind=clocks.SM):
            return 2619 if kind == clocks.MEMORY else self.now

        def sampled(self, samples):
            samples.append(self.now)
            return super().sampled([])

        _library = None

    reader = Rising()

    def occupy(seconds: float) -> None:
        reader.steps += 1
        reader.now = min(reader.now + 400, 1980)

    assert clocks.settled(reader, occupy) == {"sm_mhz": 1980, "memory_mhz": 2619}
    assert 5 < reader.steps < clocks.MOST_STEPS
