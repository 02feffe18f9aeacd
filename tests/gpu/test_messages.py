"""Messages of mistakes in the first hour: each names the mistake and the repair."""

from __future__ import annotations

import copy
import io
import os
import pickle
import shlex
import sys

import numpy as np
import onnx
import pytest

import vklab
from support.graphs.small_models import DATA, relu
from support.runs.child import run
from vklab import ModelError, SetupError
from vklab.base import manifests

DIGITS = DATA / "digits_cnn.onnx"
X = np.ones((2, 3), np.float32)


def test_a_driver_variable_that_names_nothing_is_repaired_by_its_removal():
    code = "import vklab; vklab.load('data/digits_cnn.onnx')"
    done = run(code, VK_DRIVER_FILES="/nix/driver.json", VK_ICD_FILENAMES="")
    last = done.stderr[done.stderr.index("SetupError") :]
    assert "VK_DRIVER_FILES=/nix/driver.json names none" in last and "apt-get" not in last
    assert ("unset" if os.name != "nt" else "set ") in last


@pytest.mark.skipif(sys.platform != "linux", reason="a driver is hidden by variables of Linux")
@pytest.mark.parametrize(("name", "value"), [
    ("VK_DRIVER_FILES", ""), ("VK_ICD_FILENAMES", ""), ("VK_LOADER_DRIVERS_DISABLE", "*"),
    ("VK_LOADER_DRIVERS_SELECT", "*none*"), ("XDG_DATA_DIRS", "/nix"),
])  # fmt: skip
def test_a_variable_that_hides_all_drivers_is_named(monkeypatch, name, value):
    for each in manifests.DRIVER_VARIABLES:
        monkeypatch.delenv(each, raising=False)
    if name == "XDG_DATA_DIRS" and not manifests.drivers({}):
        pytest.skip("no driver is in the usual folders")
    done = run("import vklab; vklab.load('data/digits_cnn.onnx')", **{name: value})
    last = done.stderr[done.stderr.index("SetupError") :]
    assert f"{name}={shlex.quote(value)}" in last and f"repair: unset {name}" in last
    assert "apt-get" not in last


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of manifests are those of Linux")
@pytest.mark.parametrize("variable", ["VK_ADD_DRIVER_FILES", "VK_LAYER_PATH"])
def test_a_manifest_that_is_no_json_is_named_beside_a_good_driver(tmp_path, variable):
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"{bad")
    assert bad in manifests.unreadable({variable: str(bad)})
    done = run("import vklab; vklab.devices()", **{variable: str(bad)})
    if done.returncode:  # a newer loader passes over the file
        last = done.stderr[done.stderr.index("SetupError") :]
        assert f"no JSON: {bad} (Expecting" in last and f"unset {variable}" in last


@pytest.mark.parametrize(("given", "words"), [
    ({"z": X, "x": X}, r"^inputs \['z'\] are not known; the model has x"),
    ({}, r"^inputs \['x'\] are missing; the model has x"),
    ({"z": X}, r"^inputs \['z'\] are not known, \['x'\] are missing; the"),
])  # fmt: skip
def test_wrong_names_are_listed_without_empty_lists(device_index, given, words):
    with vklab.load(relu(), device_index) as session, pytest.raises(ModelError, match=words):
        session.run(given)


def test_a_profile_that_is_none(device_index):
    with pytest.raises(SetupError, match=r"profiles\[0\] is 'x', not a profile; give Session"):
        vklab.load(DIGITS, devices=[device_index], profiles={0: "x"})


@pytest.mark.parametrize(("name", "value", "words"), [
    ("TIMEOUT", "abc", "VKLAB_TIMEOUT='abc' is not a finite number from 0 to"),
    ("DEBUG", "x", "VKLAB_DEBUG='x' is not a whole number from 0 to 2"),
    ("CHECK", "foo", "VKLAB_CHECK='foo' is not known; use 'outputs' or 'nodes'"),
])  # fmt: skip
def test_a_wrong_variable_is_an_error_of_load(device_index, monkeypatch, name, value, words):
    monkeypatch.setenv(f"VKLAB_{name}", value)
    with pytest.raises(SetupError, match=words):
        vklab.load(relu(), device_index)


def test_an_unknown_variable_is_warned_of_once(device_index, monkeypatch, recwarn):
    monkeypatch.setenv("VKLAB_TIMEOUTS", "1")
    monkeypatch.setenv("VKLAB_NOSUCH", "1")
    for _ in range(2):
        vklab.load(relu(), device_index).close()
    told = [str(each.message) for each in recwarn]
    assert len(told) == 2 and "VKLAB_NOSUCH is set, but vklab has no such switch" in told[0]
    assert "did you mean VKLAB_TIMEOUT" in told[1] and recwarn[1].filename == __file__


def test_one_device_is_no_list_of_devices(device_index):
    with pytest.raises(SetupError, match='devices=0 is neither "all" nor a list; for one, use dev'):
        vklab.load(relu(), devices=0)


def _read(data):
    file = io.BytesIO(data)
    file.read()
    return file


@pytest.mark.parametrize(("make", "words"), [
    (lambda: DIGITS.open(errors="replace"), r"TextIOWrapper yields text; open it in binary mode"),
    (lambda: io.StringIO("x"), "StringIO yields text; open it in binary mode"),
    (lambda: _read(b"model"), "BytesIO: 0 bytes; a file object is read from its position"),
    (lambda: b"", "in the given bytes: 0 bytes$"),
    (onnx.ModelProto, "the given ModelProto: no ONNX model, as it has no IR version"),
    (lambda: bytes(9), "the given bytes: no ONNX model, or one that is cut off"),
    (lambda: b"GGUF" + bytes(9), "the given bytes: no ONNX model: it is a GGUF file; run `vklab g"),
    (lambda: b"PK\3\4" + bytes(9), "no ONNX model: it is a zip archive, as PyTorch"),
    (lambda: b"version https://git-lfs.github.com", "a pointer of Git LFS, not the file; run git"),
])  # fmt: skip
def test_a_source_without_a_model(device_index, make, words):
    with pytest.raises(ModelError, match=words):
        vklab.load(make(), device_index)


def test_a_session_is_not_copied(device_index):
    with vklab.load(relu(), device_index) as session:
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="load the model in each process, or compile it"):
                use(session)
        assert session.run(X)["y"].all()


def test_arrays_are_inputs_of_checks_and_times_need_a_run(device_index):
    with vklab.load(relu(), device_index) as session:
        assert session.check(X).passed and session.check(X, nodes=True).passed
        assert session.check({"x": X}, True).passed
        assert np.array_equal(session.reference(X)["y"], X)
        with pytest.raises(ValueError, match="repeats=0: time at least one run"):
            session.time(X, repeats=0)


@pytest.mark.full
def test_tensors_of_pytorch(device_index):
    torch = pytest.importorskip("torch")
    given = torch.tensor(-X).requires_grad_()
    with vklab.load(relu(), device_index) as session:
        assert np.array_equal(session.run(given)["y"], np.zeros((2, 3)))
    module = torch.nn.Linear(4, 3)
    with pytest.raises(ModelError, match="example has size 0 or 1: give example inputs of size 2"):
        vklab.from_torch(module, torch.ones(1, 4), {"input": {0: "batch"}}, device=device_index)
    for made in (torch.jit.script(module), torch.jit.trace(module, torch.ones(2, 4))):
        with pytest.raises(ModelError, match="cannot export a ScriptModule"):
            vklab.from_torch(made, torch.ones(2, 4), device=device_index)
