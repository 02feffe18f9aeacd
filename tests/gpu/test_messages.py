"""Messages of mistakes in the first hour: each names the mistake and the repair."""

from __future__ import annotations

import os

import numpy as np
import pytest
from child import run
from small_models import DATA, relu

import vklab
from vklab import ModelError, SetupError

DIGITS = DATA / "digits_cnn.onnx"
X = np.ones((2, 3), np.float32)


def test_a_driver_variable_that_names_nothing_is_repaired_by_its_removal():
    code = "import vklab; vklab.load('data/digits_cnn.onnx')"
    done = run(code, VK_DRIVER_FILES="/nix/driver.json", VK_ICD_FILENAMES="")
    last = done.stderr[done.stderr.index("SetupError") :]
    assert "VK_DRIVER_FILES=/nix/driver.json names none" in last and "apt-get" not in last
    assert ("unset" if os.name != "nt" else "set ") in last


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
