"""Compiled models on a device: same results, with no onnx and no compiler, or planned again."""

from __future__ import annotations

import gc
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import vklab
from support.graphs.small_models import model, random_array, value
from support.models import exported_models
from support.models.compiled_models import network
from support.runs import child
from vklab import settings
from vklab.apps import cli
from vklab.errors import ModelError, SetupError
from vklab.graph import onnx_import
from vklab.runtime import open_devices
from vklab.runtime.compiled import build
from vklab.runtime.compiled import saved as saves
from vklab.runtime.observe import given as sources
from vklab.shader import compiler, toolchain

DIMS = ["--dim=batch=3"]
NODE = onnx.helper.make_node


def compiled(capsys, source: onnx.ModelProto, folder: Path, *options: str) -> dict[str, Any]:
    """Compile a model on the command line; return what it says as JSON."""
    onnx.save(source, folder / "model.onnx")
    assert cli.main(["compile", str(folder / "model.onnx"), *options, "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


def rows(count: int) -> dict[str, np.ndarray]:
    return {"x": random_array((count, 64))}


@pytest.fixture(scope="module")
def fed() -> dict[str, np.ndarray]:
    return rows(3)


@pytest.fixture(scope="module")
def file(device_index, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    onnx.save(network(), folder / "net.onnx")
    target = folder / "b.vklab"
    device = f"--device={device_index}"
    assert cli.main(["compile", str(folder / "net.onnx"), "-o", str(target), device, *DIMS]) == 0
    return target


@pytest.fixture(scope="module")
def expected(fed, device_index) -> dict[str, np.ndarray]:
    with vklab.load(network(), device_index) as session:
        return session.run(fed)


def require_same(outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert outputs.keys() == expected.keys()
    for name, array in outputs.items():
        np.testing.assert_array_equal(array, expected[name])


# ------------------------------------------------------------------------------------- as compiled


def test_a_compiled_model_runs_as_its_model_does(device, file, fed, expected):
    for given in (file, file.read_bytes()):
        with vklab.load(given, device) as session:
            assert not session.plan_reason and session.plan.dispatches
            require_same(session.run(fed), expected)
            assert not session.plan_reason
            assert [str(info) for info in session.inputs][0] == "x: float32[batch,64]"
            assert session.check(fed).passed and session.check(fed, nodes=True).passed
            assert session.time(fed, repeats=2) and session.profile(fed, repeats=2).rows


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
def test_a_closed_session_lets_go_of_its_file(file, fed, device_index):
    with vklab.load(file, device_index, dtype="float16") as session:  # derives from its weights
        session.run(fed)
        assert str(file) in Path("/proc/self/maps").read_text()
    del session
    gc.collect()
    assert str(file) not in Path("/proc/self/maps").read_text()


ALONE = """
import json, sys
from importlib.machinery import PathFinder
import numpy as np

class Bare:
    @staticmethod
    def find_spec(name, path=None, target=None):
        hidden = name.split(".")[0] in ("onnx", "onnxruntime", "torch", "slangtorch")
        return None if hidden else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
import vklab
folder, device = sys.argv[1], int(sys.argv[2])
given, wanted = np.load(folder + "/in.npz"), np.load(folder + "/out.npz")
with vklab.load(folder + "/b.vklab", device) as session:
    outputs = session.run(dict(given))
    same = all(np.array_equal(outputs[name], wanted[name]) for name in wanted.files)
    facts = {"same": same, "reason": session.plan_reason}
    for what in ("check", "run"):
        fed = {k: np.repeat(v, 2 if what == "run" else 1, 0) for k, v in given.items()}
        try:
            getattr(session, what)(fed)
        except vklab.SetupError as error:
            facts[what] = str(error)
print(json.dumps({**facts, "loaded": [m for m in sys.modules if m.startswith("onnx")]}))
"""


def alone(folder: Path, given: Any, expected: Any, device: int, cache: Path) -> dict[str, Any]:
    """Load and run b.vklab in a process with no onnx, no compiler and an empty cache."""
    np.savez(folder / "in.npz", **given)
    np.savez(folder / "out.npz", **expected)
    said = child.python(
        ALONE,
        folder,
        device,
        PATH=str(cache),
        VKLAB_CACHE=str(cache),
        VKLAB_SLANGC="",
        PYTHON_SERVER="",
    )
    facts: dict[str, Any] = json.loads(said)
    assert facts["same"] and not facts["reason"] and not facts["loaded"]
    return facts


def test_it_loads_with_neither_onnx_nor_a_compiler(file, fed, expected, device_index, tmp_path):
    facts = alone(file.parent, fed, expected, device_index, tmp_path)
    assert "pip install onnx" in facts["check"]
    # Another batch wants another variant: no compiler makes it, and no host is there instead.
    assert ": kernel " in facts["run"] and "there is no shader compiler" in facts["run"]


@pytest.mark.slow
def test_a_transformer_does_so_too(device_index, tmp_path, capsys):
    sizes = {"batch": 2, "sequence": 8}
    source = exported_models.load("bert")
    given = exported_models.inputs_of(source, sizes)
    dims = [f"--dim={name}={size}" for name, size in sizes.items()]
    output = ["-o", str(tmp_path / "b.vklab"), f"--device={device_index}"]
    compiled(capsys, source, tmp_path, *dims, *output)
    with vklab.load(source, device_index) as session:
        expected = session.run(given)
    (tmp_path / "cache").mkdir()
    facts = alone(tmp_path, given, expected, device_index, tmp_path / "cache")
    assert "pip install onnx" in facts["run"]  # the host works out what depends on its sizes


def test_a_file_of_float16_with_upper_bounds(device_index, fed, tmp_path, capsys):
    said = compiled(
        capsys,
        network(),
        tmp_path,
        "--dtype=float16",
        "--upper-bound=batch=4",
        *DIMS,
        f"--device={device_index}",
    )
    assert said["plans"] == 2 and said["upper_bounds"] == {"batch": 4}
    options: dict[str, Any] = {"dtype": "float16", "upper_bounds": said["upper_bounds"]}
    with vklab.load(network(), device_index, **options) as session:
        expected = session.run(fed)
    with vklab.load(said["path"], device_index) as session:
        require_same(session.run(fed), expected)
        assert not session.plan_reason and session.upper_bounds == said["upper_bounds"]
        with pytest.raises(ModelError, match="upper bound"):
            session.run(rows(5))
    with vklab.load(said["path"], device_index, dtype="", upper_bounds={}) as session:
        assert "dtype=float16" in session.plan_reason
        assert session.check(fed).passed


def test_frames_of_a_file_with_upper_bounds_run_in_memory_of_their_own(
    device_index, tmp_path, capsys
):
    said = compiled(
        capsys, network(), tmp_path, "--upper-bound=batch=9", *DIMS, f"--device={device_index}"
    )
    with vklab.load(said["path"], device_index) as session:
        frames = session.frames()
        frames.grow(2)
        for slot in frames.slots:
            slot.executor.run(slot.plans, rows(3))
            (entry,) = slot.plans.path()
            assert entry.runner._pool is slot.executor.devices[0].pool
        assert not session.plan_reason
        want = [session.run(rows(count))["y"] for count in (3, 9, 3, 3)]
        found = session.map([rows(count) for count in (3, 9, 3, 3)], in_flight=2)
        for outputs, expected in zip(found, want, strict=True):
            np.testing.assert_array_equal(outputs["y"], expected)


# ------------------------------------------------------------------------------------ planned again


def changed(file: Path, folder: Path, **changes: Any) -> Path:
    """Write a copy of a file that was compiled for another device."""
    saved = saves.read(file)
    target = folder / "changed.vklab"
    saves.write(target, replace(saved, device=replace(saved.device, **changes)))
    return target


def test_another_device_plans_again_with_the_kernels_of_the_file(
    file, fed, expected, device_index, tmp_path, monkeypatch
):
    other = changed(file, tmp_path, driver_version=7, name="Elsewhere")
    monkeypatch.setattr(toolchain, "find_toolchain", lambda language: None)
    compiler._memory.clear()
    with vklab.load(other, device_index) as session:
        assert session.plan_reason.startswith("compiled for Elsewhere, this is ")
        assert "driver_version 7 -> " in session.plan_reason
        require_same(session.run(fed), expected)


def test_a_kernel_that_is_not_in_the_file_is_named(file, device_index, tmp_path, monkeypatch):
    saved = saves.read(changed(file, tmp_path, driver_version=7))
    lost = saved.kernels[-1]
    saves.write(tmp_path / "less.vklab", replace(saved, kernels=saved.kernels[:-1]))
    monkeypatch.setattr(toolchain, "find_toolchain", lambda language: None)
    monkeypatch.setattr(compiler.stock, "read", lambda key: None)
    compiler._memory.clear()
    with pytest.raises(SetupError, match=Path(lost.variant[0]).stem):
        vklab.load(tmp_path / "less.vklab", device_index)


def test_other_shapes_and_switches_are_planned_here_with_the_reason(file, device_index, capsys):
    with settings.settings(DISABLE_FUSION=True), vklab.load(file, device_index) as session:
        assert "DISABLE_FUSION was False, is True" in session.plan_reason
    with settings.settings(DEBUG=1), vklab.load(file, device_index) as session:
        assert session.check(rows(9)).passed
        assert session.plan_reason == "no plan was compiled for x: float32[9,64]"
        assert f"planned here: {session.plan_reason}" in capsys.readouterr().err


def test_vklab_plan_says_whether_the_compiled_plan_is_used(file, device_index, capsys):
    options = [f"--device={device_index}", "--json"]
    reasons = []
    for dims in (DIMS, ["--dim=batch=9"]):
        assert cli.main(["plan", str(file), *dims, *options]) == 0
        reasons.append(json.loads(capsys.readouterr().out)["reason"])
    assert reasons[0] == "" and reasons[1].startswith("no plan was compiled")


# ------------------------------------------------------------------------------- host and control


def with_host_part() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        NODE("MatMul", ["x", "x"], ["m"], "before"),
        NODE("Tanh", ["m"], ["t"], "hosted"),
        NODE("MatMul", ["t", "x"], ["y"], "after"),
    ]
    return model(nodes, [value("x", (40, 40))], ["y", "m"]), {"x": random_array((40, 40))}


def with_control() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    branches = {
        f"{name}_branch": onnx.helper.make_graph(
            [NODE(op, ["x", "w"], [f"{name}_y"], name)], name, [], [value(f"{name}_y", (4, 4))]
        )
        for name, op in (("then", "Add"), ("else", "MatMul"))
    }
    inputs = [value("c", (), onnx.TensorProto.BOOL), value("x", (4, 4))]
    source = model(
        [NODE("If", ["c"], ["y"], "choice", **branches)],
        inputs,
        ["y"],
        {"w": random_array((4, 4), 3)},
    )
    return source, {"c": np.array(False), "x": random_array((4, 4))}


@pytest.mark.parametrize("make", [with_host_part, with_control])
def test_parts_for_the_host_are_kept_as_they_were_decided(
    make, device_index, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("VKLAB_HOST", "hosted")
    source, given = make()
    with vklab.load(source, device_index) as session:
        expected, reasons = session.run(given), session.host_reasons
    said = compiled(capsys, source, tmp_path, f"--device={device_index}")
    assert said["complete"]
    with vklab.load(said["path"], device_index) as session:
        require_same(session.run(given), expected)
        assert not session.plan_reason and session.host_reasons == reasons
        assert session.check(given).passed


def test_a_value_that_decides_a_plan_is_part_of_its_key(device_index, tmp_path):
    inputs = [value("x", (1, 4)), value("s", (2,), onnx.TensorProto.INT64)]
    source = model([NODE("Expand", ["x", "s"], ["e"]), NODE("Relu", ["e"], ["y"])], inputs, ["y"])
    graph, opened = onnx_import.load_graph(source), open_devices.open_device(device_index)
    given = {"x": random_array((1, 4)), "s": np.array([3, 4])}
    saves.write(tmp_path / "e.vklab", build.compile_by_run(graph, opened, given))
    with vklab.load(tmp_path / "e.vklab", device_index) as session:
        assert session.check(given).passed and not session.plan_reason
        assert session.check({**given, "s": np.array([5, 4])}).passed
        assert session.plan_reason.startswith("no plan was compiled")


def test_a_host_part_without_onnx_says_what_is_missing(device_index, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("VKLAB_HOST", "hosted")
    source, given = with_host_part()
    said = compiled(capsys, source, tmp_path, f"--device={device_index}")
    Path(said["path"]).rename(tmp_path / "b.vklab")
    np.savez(tmp_path / "in.npz", **given)
    np.savez(tmp_path / "out.npz")
    done = child.run(ALONE, tmp_path, device_index, PATH=str(tmp_path), VKLAB_SLANGC="")
    assert "nodes of this model run on the host" in done.stderr
    assert "kept on the host by VKLAB_HOST" in done.stderr
    assert "pip install onnx onnxruntime" in done.stderr


def test_a_profile_of_this_device_makes_the_same_file(device_index, tmp_path, capsys):
    assert cli.main(["devices", str(device_index), "--json"]) == 0
    (tmp_path / "here.json").write_text(capsys.readouterr().out)
    said = compiled(
        capsys, network(), tmp_path, "--device-profile", str(tmp_path / "here.json"), *DIMS
    )
    assert said["complete"] and said["kernels"] and said["bytes"] > said["spirv_bytes"]
    with vklab.load(said["path"], device_index) as session:
        assert not session.plan_reason


# ------------------------------------------------------------------------------------------- damage


@pytest.mark.full
def test_damaged_files_give_the_right_result_or_none(opened, device, file, fed, expected):
    data = file.read_bytes()
    picks = random.Random(8)
    outcomes = {"right": 0, "refused": 0}
    for number in range(200):
        damaged = bytearray(data)
        for _ in range(picks.choice([1, 1, 4])):
            damaged[picks.randrange(len(data))] = picks.randrange(256)
        if number % 10 == 0:
            del damaged[picks.randrange(len(damaged)) :]
        if not sources.is_compiled(bytes(damaged)):
            continue
        try:
            with vklab.load(bytes(damaged), device) as session:
                require_same(session.run(fed), expected)
                outcomes["right"] += 1
        except ModelError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0, outcomes
