"""Reports of strange backends: each defect is its row, and the rest of the report stands."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.fakes.strange_backends import WEIGHT, Strange
from vklab.apps.compare import parity, registry
from vklab.apps.compare.backend import ModelSource
from vklab.apps.compare.report import recorded
from vklab.apps.compare.report import summary as summaries
from vklab.base import worker
from vklab.errors import ModelError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="children crash by signals")

# Each is a process that imports NumPy: the default tier takes one of each kind.
NAMES = ("good", "missing", "crashes", "nan")
MORE = ("hangs", "order", "library", "refuses", "exits", "raises", "prints", "wrong", "random",
        "dtype", "names")  # fmt: skip


def model(path):
    """Write the model and return it."""

    def value(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Relu", ["p"], ["y"], "relu"),
        helper.make_node("Add", ["y", "one"], ["z"], "more"),
    ]
    constants = [
        numpy_helper.from_array(WEIGHT, "w"),
        numpy_helper.from_array(np.ones(1, np.float32), "one"),
    ]
    graph = helper.make_graph(
        nodes, "small", [value("x", [2, 3])], [value("y", [2, 4]), value("z", [2, 4])], constants
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(made, path)
    return ModelSource("small", onnx=path)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return the small model."""
    return model(tmp_path_factory.mktemp("model") / "small.onnx")


OPTIONS = parity.Options(seconds=3, repeats=2, rounds=1, slice_s=0.01, model="small.onnx")


@pytest.fixture(scope="module")
def report(small):
    """Return one report of a few strange backends."""
    return parity.run(small, [Strange(name) for name in NAMES], None, OPTIONS)


@pytest.fixture(scope="module")
def long_report(small):
    """Return one report of the other strange backends."""
    return parity.run(small, [Strange(name) for name in MORE], None, OPTIONS)


def case(*values):
    """Return a case of a test whose first value is a backend; slow for the long report's."""
    return pytest.param(*values, marks=[pytest.mark.slow] if values[0] in MORE else [])


@pytest.fixture
def row_of(request):
    """Return a function that finds a measured row by its name."""

    def find(name):
        report = request.getfixturevalue("report" if name in NAMES else "long_report")
        return next(each for each in report.rows if each.row.backend == name)

    return find


def test_the_rows_stand_in_the_order_of_the_backends(report):
    assert tuple(each.row.backend for each in report.rows) == NAMES
    assert not report.passed


@pytest.mark.parametrize(("name", "status", "words"), [
    case("missing", "absent", "the package strange is not installed"),
    case("library", "absent", "libstrange.so cannot be loaded"),
    case("refuses", "refused", "node 'relu' (Relu) is not supported"),
    case("crashes", "crashed", "SIGSEGV: strange: illegal memory access"),
    case("exits", "crashed", "exit code 3"),
    case("hangs", "timeout", "no answer to `run` in 3 s"),
    case("raises", "failed", "RuntimeError: out of strange memory"),
])  # fmt: skip
def test_a_backend_without_outputs_is_a_row_with_its_reason(row_of, name, status, words):
    row = row_of(name).row
    assert row.status == status
    assert words in row.reason
    assert row.passed is None
    assert row.max_abs_error is None


def test_an_absent_backend_says_how_to_fill_its_row(row_of):
    assert row_of("missing").row.install == (
        "pip install strange; there: vklab parity small.onnx --backends missing --save-outputs "
        "missing.npz"
    )


@pytest.mark.slow
def test_a_library_that_does_not_load_says_how_to_repair_it(row_of):
    row = row_of("library").row
    assert (row.status, row.install.partition("; ")[0]) == ("absent", "apt install libstrange")
    assert "vklab parity small.onnx --backends library" in row.install


@pytest.mark.parametrize(("name", "passed", "words"), [
    case("good", True, ""), case("prints", True, ""), case("random", True, ""),
    case("wrong", False, "is wrong by"),
    case("nan", False, "1 of 8 values are lost, 1 are NaN"),
    case("order", True, "outputs in the order z, y"),
    case("dtype", False, "output 'y' is float16"),
    case("names", False, "no output 'y'"),
])  # fmt: skip
def test_outputs_are_judged(row_of, name, passed, words):
    row = row_of(name).row
    assert (row.status, row.passed) == ("ran", passed)
    assert words in row.reason
    assert row.latency_us["median"] > 0
    assert row.nodes == {"NumPy": 3}
    assert row.bytes == 48


@pytest.mark.slow
def test_runs_of_the_same_inputs_are_compared_bit_by_bit(row_of):
    assert row_of("good").repeats.identical
    assert not row_of("random").repeats.identical
    assert row_of("random").repeats.max_abs > 0


def test_the_report_as_json_has_the_keys_of_the_rows(report):
    found = json.loads(json.dumps(summaries.summary(report), allow_nan=False))["parity"]
    assert found["oracle"] == "ONNX graph widened to float64"
    wanted = {
        "backend",
        "device",
        "dtypes",
        "status",
        "reason",
        "install",
        "nodes",
        "max_abs_error",
        "passed",
        "first_layer",
        "latency_us",
        "bytes",
        "recorded",
    }
    assert all(wanted <= row.keys() for row in found["rows"])
    assert found["rows"][3]["max_abs_error"] is None  # NaN has no largest error


def test_absent_and_refused_backends_are_no_failure(report):
    assert {each.row.backend for each in report.rows if each.failed} == {"crashes", "nan"}


@pytest.mark.slow
def test_a_hang_a_crash_and_a_wrong_output_are_failures(long_report):
    failed = {each.row.backend for each in long_report.rows if each.failed}
    assert failed == {"hangs", "exits", "raises", "wrong", "dtype", "names"}


@pytest.mark.slow
def test_a_backend_that_hangs_while_it_is_timed_is_a_row(small):
    options = parity.Options(seconds=1, repeats=1, rounds=1, slice_s=0.01)
    [row] = [each.row for each in parity.run(small, [Strange("hangs-later")], None, options).rows]
    assert (row.status, row.passed) == ("timeout", None)
    assert "no answer to `measure` in 1 s" in row.reason


def test_inputs_of_other_names_are_refused(small):
    with pytest.raises(ModelError, match="the inputs are a, the model has x"):
        parity.run(small, [Strange("good")], {"a": np.zeros(2, np.float32)}, parity.Options())


@pytest.mark.slow
def test_recorded_outputs_are_judged_here(report, long_report, small, tmp_path):
    path = tmp_path / "other.npz"
    origin = {
        "machine": "a machine with a strange device",
        "date": "2026-11-24",
        "command": "vklab parity small.onnx",
        "measured_by": "a person",
        "source": "",
    }
    every = [*report.recordings(origin), *long_report.recordings(origin)]
    made = [each for each in every if each.backend in ("good", "wrong")]
    recorded.write(path, made)
    again = parity.run(
        small, [], {"x": np.ones((2, 3), np.float32)}, parity.Options(recordings=(path,))
    )  # other inputs than the recorded ones
    good, wrong = (each.row for each in again.rows)
    assert (good.status, good.passed) == ("recorded", True)
    assert (wrong.status, wrong.passed) == ("recorded", False)
    assert good.recorded["machine"] == origin["machine"]
    assert good.latency_us["median"] > 0
    other = model(tmp_path / "other.onnx")
    other.onnx.write_bytes(other.onnx.read_bytes().replace(b"small", b"large"))
    foreign = parity.run(other, [], None, parity.Options(recordings=(path,))).rows[0].row
    assert (foreign.status, foreign.passed) == ("refused", None)
    assert "another model" in foreign.reason


@pytest.mark.slow
def test_a_recording_stands_in_the_row_of_an_absent_backend(report, small, tmp_path):
    path = tmp_path / "parity_other.npz"
    origin = dict.fromkeys(recorded.PROVENANCE, "somewhere")
    [good] = [each for each in report.recordings(origin) if each.backend == "good"]
    recorded.write(path, [dataclasses.replace(good, backend="missing")])
    options = parity.Options(rounds=0, stand_ins=(path,))
    made = parity.run(small, [Strange("good"), Strange("missing")], None, options)
    rows = [each.row for each in made.rows]
    assert [(row.backend, row.status, row.passed) for row in rows] == [
        ("good", "ran", True),
        ("missing", "recorded", True),
    ]
    assert rows[1].recorded["machine"] == "somewhere"


@pytest.mark.parametrize("damage", ["cut", "text", "unknown origin"])
def test_a_damaged_recording_is_refused(report, tmp_path, damage):
    path = tmp_path / "other.npz"
    origin = dict.fromkeys(("machine", "date", "command", "measured_by", "source"), "x")
    if damage == "unknown origin":
        del origin["machine"]
    recorded.write(path, report.recordings(origin)[:1])
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    if damage == "text":
        path.write_text("no recording")
    words = "has no machine" if damage == "unknown origin" else "is no recording"
    with pytest.raises(ModelError, match=words):
        recorded.read(path)


@pytest.mark.slow
def test_a_backend_that_crashes_when_it_is_asked_is_absent():
    answers = registry.survey([Strange("good"), Strange("crashes-asked")], 30)
    assert answers["good"]
    assert "cannot be asked: crashed with SIGSEGV" in answers["crashes-asked"].reason


def test_drivers_that_crash_are_a_row_and_the_others_stay(monkeypatch):
    def crashed(*given, **options):
        raise worker.Failure("crashed", "crashed with SIGSEGV")

    monkeypatch.setattr(registry.worker, "once", crashed)
    rows = registry.listed()
    assert "cannot be listed: crashed with SIGSEGV" in rows[0].available().reason
    assert {"torch-cpu-eager-float32", "onnxruntime-cpu-float32", "onnx-reference-float32"} <= {
        row.name for row in rows
    }


def test_backends_are_chosen_by_pattern_or_part():
    every = [Strange(name) for name in ("vklab-0-float32", "vklab-0-float16", "torch-cpu-eager")]
    assert [each.name for each in registry.choose(every, ["*16", "torch"])] == [
        "vklab-0-float16",
        "torch-cpu-eager",
    ]
    assert registry.choose(every, []) == every
    assert registry.choose(every, ["metal"]) == []
