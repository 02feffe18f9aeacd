"""A program that embeds vklab: models in memory, dtypes of outputs, device kinds, logs, types."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import DATA, ROOT, model, random_array, relu, value
from support.runs import child
from vklab import SetupError
from vklab.apps import cli
from vklab.runtime import host
from vklab.shader import compiler, processes
from vklab.types import ANY_SHAPE

DIGITS = DATA / "digits_cnn.onnx"


@pytest.mark.parametrize("make", [
    bytes, bytearray, memoryview, io.BytesIO, onnx.load_model_from_string,
], ids=["bytes", "bytearray", "memoryview", "BytesIO", "proto"])  # fmt: skip
def test_a_model_in_memory_loads(device_index, make):
    given = make(relu().SerializeToString())
    with vklab.load(given, device_index) as session:
        x = {"x": -np.ones((2, 3), np.float32)}
        assert not session.run(x)["y"].any() and session.check(x).passed


def test_an_open_file_loads_and_a_compiled_model_too(device_index, tmp_path, capsys):
    with DIGITS.open("rb") as file, vklab.load(file, device_index) as session:
        assert session.outputs == ("logits",)
    target = tmp_path / "digits.vklab"
    line = ["compile", str(DIGITS), "-o", str(target), "--device", str(device_index)]
    assert cli.main(line) == 0
    with vklab.load(bytearray(target.read_bytes()), device_index) as session:
        assert session.run(np.zeros((1, 1, 28, 28), np.float32))["logits"].shape == (1, 10)
        assert [*map(str, session.output_infos)] == ["logits: float32[batch,10]"]


def test_outputs_have_dtypes_and_shapes(device_index):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["best"], axis=1, keepdims=0),
        helper.make_node("NonZero", ["y"], ["where"]),
    ]
    weights = {"w": random_array((4, 7))}
    made = model(nodes, [value("x", ("rows", 4))], ["y", "best", "where"], weights)
    with vklab.load(made, device_index) as session:
        assert session.outputs == ("y", "best", "where")
        y, best, where = session.output_infos
    assert str(y) == "y: float32[rows,7]" and y.shape == ("rows", 7)
    assert str(best) == "best: int64[rows]"
    assert where.dtype == "int64" and (where.shape == ANY_SHAPE or where.shape[0] == 2)


def test_devices_are_chosen_by_their_kind(device_index, monkeypatch):
    for kind in ("cpu", "gpu"):
        if any(info.is_cpu == (kind == "cpu") and not info.refusal for info in vklab.devices()):
            with vklab.load(relu(), kind) as session:
                assert session.device.is_cpu == (kind == "cpu")
            monkeypatch.setenv("VKLAB_DEVICE", kind)
            with vklab.load(relu()) as session:
                assert session.device.is_cpu == (kind == "cpu")
            monkeypatch.delenv("VKLAB_DEVICE")
            line = ["run", str(DIGITS), "--repeat", "1", "--device", kind]
            assert cli.main(line) == 0
        else:
            with pytest.raises(SetupError, match=f"no usable device is a {kind.upper()}; there"):
                vklab.load(relu(), kind)


def test_the_core_logs_plans_kernels_and_replanning(device_index, caplog, tmp_path, monkeypatch):
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("vklab").handlers)
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    compiler._memory.clear()
    caplog.set_level(logging.DEBUG, "vklab")
    with vklab.load(relu((1, 17)), device_index) as session:
        session.run(np.ones((1, 17), np.float32))
        lines = [record.getMessage() for record in caplog.records]
        session.run(np.ones((1, 17), np.float32))
        assert len(caplog.records) == len(lines)  # a planned run logs nothing
    assert any(line.startswith("planned for x: float32[1,17]: plan for") for line in lines), lines
    assert any(line.startswith("compiling elementwise.slang") for line in lines)
    path = str(tmp_path / "digits.vklab")
    assert cli.main(["compile", str(DIGITS), "-o", path, "--device", str(device_index)]) == 0
    with vklab.load(path, device_index) as session:
        session.run(np.zeros((3, 1, 28, 28), np.float32))
    assert any(
        r.levelno == logging.INFO and "no plan was compiled for" in r.getMessage()
        for r in caplog.records
    )


def test_nothing_is_printed_where_logging_is_not_configured():
    code = (
        "import numpy as np, vklab\nwith vklab.load('data/digits_cnn.onnx') as session:\n"
        "    session.run(np.zeros((1, 1, 28, 28), np.float32))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr and not done.stdout


def noisy(batch: str | int) -> onnx.ModelProto:
    """Return a model of a node with a kernel and one that runs on the host."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("RandomUniformLike", ["m"], ["y"], "noise"),
    ]
    return model(nodes, [value("x", (batch, 4))], ["y"], {"w": random_array((4, 2))})


def test_a_program_forbids_host_nodes_when_it_loads_a_model(device_index):
    x = np.ones((3, 4), np.float32)
    with vklab.settings.settings(FALLBACK=False):
        for made, bounds in ((noisy(3), None), (noisy("n"), {"n": 8})):
            with pytest.raises(vklab.UnsupportedOperatorError, match="'noise'.*FALLBACK=0"):
                vklab.load(made, device_index, upper_bounds=bounds)
        session = vklab.load(noisy("n"), device_index)  # sizes are known in the first run
    with session, pytest.raises(vklab.UnsupportedOperatorError, match="RandomUniformLike"):
        session.run(x)  # outside of the block: the session keeps what it was loaded with
    with (
        pytest.warns(vklab.HostWarning),
        vklab.load(noisy(3), device_index) as session,
        vklab.settings.settings(FALLBACK=False),  # too late for this session
    ):
        assert session.run(x)["y"].shape == (3, 2)


def test_a_program_sets_threads_and_the_cache_folder(device_index, tmp_path, monkeypatch):
    widths = []
    monkeypatch.setattr(processes, "ThreadPoolExecutor", _counting(widths))
    compiler._memory.clear()
    with (
        vklab.settings.settings(CACHE=str(tmp_path), threads=1),
        pytest.warns(vklab.HostWarning),
        vklab.load(noisy(3), device_index) as session,
    ):
        session.run(np.ones((3, 4), np.float32))
        runners = [entry.runner for entry in session.roots[0].path()]
        (part,) = [part for r in runners if isinstance(r, host.HostChunk) for part in r._parts]
        options = part._fast.session.get_session_options()
    assert options.intra_op_num_threads == 1
    assert widths and set(widths) == {1} and any(tmp_path.rglob("*.spv"))
    with pytest.raises(KeyError, match="no switch 'FALBACK'; there are CACHE, "):
        vklab.settings.settings(FALBACK=0).__enter__()


def _counting(widths: list[int]) -> type:
    class Counting(ThreadPoolExecutor):
        def __init__(self, count: int) -> None:
            widths.append(count)
            super().__init__(count)

    return Counting


def test_settings_need_no_import_of_their_own():
    code = "import vklab\nwith vklab.settings.settings(DEBUG=1): print(vklab.settings.get('DEBUG'))"
    assert child.python(code, PYTHON_SERVER="").strip() == "1"
    assert "settings" in dir(vklab) and "settings" in vklab.__all__
