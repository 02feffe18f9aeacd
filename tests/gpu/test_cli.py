"""The command line on real devices: what it prints, what it answers, how it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from support.models import exported_models
from support.runs import child
from support.runs.child import LIMIT_S
from vklab.apps import cli

ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "data/digits_cnn.onnx")
NO_LABS = "the extra 'labs' of the course is not installed"


def facts(capsys, *arguments: str, code: int = 0) -> dict:
    """Run a command with --json; return the one object that it prints."""
    assert cli.main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def on(device_index: int) -> tuple[str, str]:
    """Return the option that chooses a device."""
    return "--device", str(device_index)


def test_devices(capsys, monkeypatch, device_index):
    listed = facts(capsys, "devices")["devices"]
    keys = {"index", "name", "type", "vendor", "driver", "api_version", "memory_bytes"}
    assert keys <= listed[device_index].keys()
    assert listed[device_index]["memory_bytes"] > 0 and listed[device_index]["limits"]
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["devices"]) == 0
    table = capsys.readouterr().out
    assert listed[device_index]["name"].split()[0][:8] in table
    assert max(map(len, table.splitlines())) <= 80
    assert cli.main(["devices", str(device_index)]) == 0
    shown = capsys.readouterr().out
    for word in ("queue families", "memory heaps", "budget", "memory types", "features"):
        assert word in shown


def test_a_device_that_does_not_exist(capsys):
    assert cli.main(["run", DIGITS, "--device", "99"]) == 2
    captured = capsys.readouterr()
    assert "there is no device 99" in captured.err and "0: " in captured.err
    assert "Traceback" not in captured.err and not captured.out


def test_run_agrees_with_onnx_runtime(capsys, device_index):
    found = facts(capsys, "run", DIGITS, "--check", "--repeat", "2", *on(device_index))
    assert {"first", "median", "p05", "p95"} <= found["latency_us"].keys()
    assert found["latency_us"]["runs"] == 2
    assert found["check"]["passed"] and found["check"]["worst"] == []
    assert 0 < found["check"]["max_abs_error"] <= 1e-4
    assert found["check"]["max_rel_error"] >= 0
    assert found["device"] == vklab.devices()[device_index].name


def test_run_says_which_device_and_when_it_is_only_a_cpu(capsys, device_index):
    assert cli.main(["run", DIGITS, "--repeat", "1", *on(device_index)]) == 0
    captured = capsys.readouterr()
    info = vklab.devices()[device_index]
    assert info.name in captured.out and "seed 0" in captured.out and "median" in captured.out
    assert ("CPU DEVICE" in captured.err) == info.is_cpu


def test_run_reads_inputs_and_saves_outputs(capsys, tmp_path, device_index):
    with np.load(ROOT / "data/digits.npz") as file:
        images = file["images"][:3]
    np.save(tmp_path / "image.npy", images)
    given = f"image={tmp_path / 'image.npy'}"
    found = facts(
        capsys,
        "run",
        DIGITS,
        "--input",
        given,
        "--repeat",
        "1",
        "--output",
        str(tmp_path / "out"),
        *on(device_index),
    )
    saved = np.load(found["files"]["logits"])
    with vklab.load(DIGITS, device=device_index) as session:
        assert np.array_equal(saved, session.run({"image": images})["logits"])


@pytest.mark.parametrize(("array", "words"), [
    (np.zeros((2, 1, 28, 28)), "float64"),
    (np.zeros((2, 28, 28), np.float32), "shape (2, 28, 28)"),
])  # fmt: skip
def test_a_wrong_input_is_one_message(capsys, tmp_path, device_index, array, words):
    np.save(tmp_path / "image.npy", array)
    given = f"image={tmp_path / 'image.npy'}"
    assert cli.main(["run", DIGITS, "--input", given, *on(device_index)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err and not captured.out and "Traceback" not in captured.err


def broken(text):
    """Return the text of a kernel whose results are one per cent too large."""
    element = r"((?:[^(),]|\((?:[^()]|\([^()]*\))*\))*)"
    call = rf"\bSTORE(_FOURS)?\({element}, (.*?)((?(1), others.*))\);"
    text, whole = re.subn(call, r"STORE\1(\2, 1.01 * (\3)\4);", text)
    stored = r"(?m)^(?!\s*(?://|#))(?:.*?\bY_STORE\(|.*z_buffer\[i\] = )"
    text, parts = re.subn(stored, r"\g<0>1.01 * ", text)
    assert whole + parts, "the kernel stores its results in another way: break it there"
    return text


def test_breaking_any_one_kernel_ends_with_1(capsys, tmp_path, device_index):
    with vklab.load(DIGITS, device=device_index) as session:
        session.run(np.zeros((1, 1, 28, 28), np.float32))
        kernels = sorted({dispatch.kernel for dispatch in session.plan.dispatches})
    for kernel in kernels:
        folder = tmp_path / kernel
        shutil.copytree(ROOT / "shaders", folder)
        path = folder / f"ops/{kernel}.slang"
        path.write_text(broken(path.read_text()))
        found = facts(
            capsys,
            "run",
            DIGITS,
            "--check",
            "--repeat",
            "1",
            *on(device_index),
            "--set",
            f"SHADERS={folder}",
            code=1,
        )
        assert not found["check"]["passed"], kernel
        assert 1 <= len(found["check"]["worst"]) <= 10
        assert {"output", "index", "got", "expected"} <= found["check"]["worst"][0].keys()


def test_profile(capsys, device_index):
    found = facts(capsys, "profile", DIGITS, "--repeat", "2", *on(device_index))
    assert found["rows"] and all(row["time_us"] > 0 for row in found["rows"])
    assert cli.main(["profile", DIGITS, "--repeat", "1", *on(device_index)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("share", "GB/s", "GFLOP/s", "conv1"))


PLAN_KEYS = {"nodes", "dispatches", "barriers", "chunks", "transfers", "arena_bytes",
             "lower_bound_bytes", "weights_bytes", "host_nodes", "placement", "passes",
             "generated_kernels", "nodes_imported", "arena_without_aliasing_bytes"}  # fmt: skip


def test_plan(capsys, tmp_path, device_index):
    found = facts(
        capsys,
        "plan",
        DIGITS,
        "--dim",
        "batch=7",
        *on(device_index),
        "--svg",
        str(tmp_path / "plan.svg"),
    )
    assert found.keys() >= PLAN_KEYS and found["host_nodes"] == []
    assert found["lower_bound_bytes"] <= found["arena_bytes"]
    assert found["arena_bytes"] < found["arena_without_aliasing_bytes"]
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    assert cli.main(["plan", DIGITS, *on(device_index)]) == 0
    shown = capsys.readouterr().out
    assert "batch=1" in shown and "conv1" in shown and "lower bound" in shown
    assert re.search(r"conv\w* \+ relu|conv_pool", shown) and "without aliasing" in shown


def test_a_planned_table_fits_and_a_kernel_is_shown(capsys, tmp_path, device_index, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    path = tmp_path / "bert.onnx"
    onnx.save(exported_models.load("bert"), path)
    dims = ["--dim", "batch=2", "--dim", "sequence=6", *on(device_index)]
    assert cli.main(["plan", str(path), *dims]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if re.match(r" +\d+  \S", line)]
    assert max(map(len, lines[6:])) <= 100 and len(rows) > 20
    (gelu,) = [line.split()[0] for line in rows if line.split()[-2] == "gelu:"]
    assert cli.main(["plan", str(path), "--show", gelu, *dims]) == 0
    shown = capsys.readouterr().out
    assert "// store: add, gelu" in shown and "// ---- ops/matmul" in shown
    assert "// ---- lib/" not in shown
    assert cli.main(["plan", str(path), "--show", "node_gelu", *dims]) == 0
    assert capsys.readouterr().out == shown
    assert cli.main(["plan", str(path), "--show", "gelu", "--libraries", *dims]) == 0
    assert "// ---- lib/numeric.slang" in capsys.readouterr().out
    assert cli.main(["plan", str(path), "--show", "nix", *dims]) == 2
    assert "no dispatch has this node or value" in capsys.readouterr().err
    assert cli.main(["plan", str(path), "--passes", *dims]) == 0
    shown = capsys.readouterr().out
    # Without int64 the host casts the mask, between two parts that share the first attention.
    fused = 2 if "shaderInt64" in vklab.devices()[device_index].features else 1
    assert f"+{fused} vklab.Attention" in " ".join(shown.split()) and f"-{fused} Softmax" in shown


def test_the_plan_is_the_one_that_runs(capsys, tmp_path, device_index):
    """Known statistics of a BatchNormalization are folded before the passes, by both."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "one", "one", "one", "one"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    weights = {"w": random_array((2, 3, 3, 3)), "one": np.ones(2, np.float32)}
    path = tmp_path / "norm.onnx"
    onnx.save(model(nodes, [value("x", (1, 3, 9, 9))], ["y"], weights), path)
    for given, array in (
        (DIGITS, np.zeros((3, 1, 28, 28), np.float32)),
        (str(path), np.zeros((1, 3, 9, 9), np.float32)),
    ):
        dims = ["--dim", "batch=3"] if given == DIGITS else []
        found = facts(capsys, "plan", given, *dims, *on(device_index))
        with vklab.load(given, device=device_index) as session:
            session.run(array)
            planned = json.loads(json.dumps(session.plan.summary()))
        assert {name: found[name] for name in planned} == planned
    assert found["nodes_imported"] == 3 and found["dispatches"] == 1
    folded = [step for step in found["passes"] if step["name"] == "fold_batch_norm"]
    assert folded[0]["nodes"] == 2 and folded[0]["nodes_before"] > 2


def test_the_doctor_runs_a_kernel_on_every_device(capsys, device_index):
    report = facts(capsys, "doctor")
    (check,) = [c for c in report["checks"] if c["name"] == f"device {device_index}"]
    assert report["ok"] and check["ok"] and "adds three numbers" in check["detail"]
    assert len(report["devices"]) == len(vklab.devices())


def test_the_digits_are_classified(capsys, device_index, monkeypatch):
    lab = pytest.importorskip("vklab_course.cli.lab", reason=NO_LABS)
    monkeypatch.setenv("VKLAB_DEVICE", str(device_index))
    assert lab.classify_digits(ROOT / "data") >= 0.97
    said = capsys.readouterr().out
    assert re.search(r"held-out digits: \d+ of 359 right \(9\d\.\d %\) on ", said)


# --------------------------------------------------------------------------- whole processes


def environment(root: Path = ROOT) -> dict[str, str]:
    """Return the variables of a child that runs the vklab of a folder."""
    path = child.search_path(root).split(os.pathsep)
    user = [folder for folder in path if Path(folder).name != "stand_ins"]  # of the tests
    return {**os.environ, "PYTHONPATH": os.pathsep.join(user), "VKLAB_NO_BOOTSTRAP": "1"}


@pytest.mark.full
def test_a_warm_run_compiles_nothing_and_imports_nothing_heavy(device_index):
    code = (
        "import sys; from vklab.apps import cli; from vklab.shader import compiler, toolchain; "
        "toolchain.run = lambda *a: sys.exit('a warm run called the compiler'); "
        f"code = cli.main(['run', {DIGITS!r}, '--repeat', '3', *sys.argv[1:]]); "
        "heavy = {'torch', 'onnxruntime', 'matplotlib', 'jupyterlab', 'slangtorch'}; "
        "sys.exit(code or ', '.join(heavy & set(sys.modules)) or 0)"
    )
    command = [sys.executable, "-c", code, *on(device_index)]
    assert cli.main(["run", DIGITS, *on(device_index)]) == 0  # the first may compile
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def clone(tmp_path, device_index):
    """Return a copy of the project, with one lab, that may be written to."""
    for name in ("vklab", "shaders", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs/00_start.ipynb").write_text("{}")
    return tmp_path


def answer_of(url: str) -> int:
    """Return the HTTP status of an address."""
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="ends the server with a POSIX signal")
def test_the_lab_serves_with_a_token_on_a_free_port_until_it_is_ended(clone):
    pytest.importorskip("jupyterlab", reason=NO_LABS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "vklab", "lab", "--no-browser", "--port", str(port)],
            env=environment(clone),
            cwd=clone,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Tests that run in the background of a shell ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            said = ""
            for line in process.stdout:
                said += line
                if "token=" in line:
                    break
            # The address stands last, alone on its line; without one the server has ended.
            url = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/lab\?token=(\w+)\n", line)
            assert url and "Ctrl-C ends it" in said, said + process.stderr.read()
            server = f"http://127.0.0.1:{url[1]}"
            assert int(url[1]) != port, "the port was taken"
            assert "held-out digits:" in said and "vklab can work here" in said
            assert answer_of(url[0].strip()) == 200
            assert answer_of(f"{server}/api/contents") == 403
            assert answer_of(f"{server}/api/contents?token={url[2]}") == 200
            script = "lab/extensions/vklab-slang/static/slang.js"
            assert answer_of(f"{server}/{script}?token={url[2]}") == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 0
        finally:
            process.terminate()  # it ends JupyterLab, too
            process.communicate()
    assert (clone / "work/00_start.ipynb").read_text() == "{}"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(url[1])), timeout=2).close()
