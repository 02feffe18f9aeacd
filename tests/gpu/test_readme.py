"""The README's examples run as they stand there, and say what is right."""

from __future__ import annotations

import re

import numpy as np
import pytest
from child import python
from small_models import DATA, ROOT
from two_drivers import both


def example(word: str) -> str:
    """Return the one Python block of the README that has a word in it."""
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    [found] = [block for block in blocks if word in block]
    return found


def test_the_digit_of_the_readme_is_the_right_one(device_index):
    said = python(example("np.load"), VKLAB_DEVICE=str(device_index))
    label = np.load(DATA / "digits.npz")["labels"][0]
    assert said.split() == [str(label)] * 2


def test_a_binding_does_as_the_readme_says(device_index):
    said = python(example("np.load") + example("session.bind"), VKLAB_DEVICE=str(device_index))
    label = np.load(DATA / "digits.npz")["labels"][1]
    assert said.splitlines()[1:] == [f"{label} {label}", "['logits']"]


def test_several_devices_do_as_the_readme_says():
    said = both(example("np.load") + example("replicate=True")).splitlines()
    plan = r"plan for .*: \d+ nodes, .* transfers; (memory: |in \d+ chunks)"
    assert re.match(plan, said[1]), said
    assert re.match(r"\d+ spans in", said[2]), said
    assert float(said[-1]) > 0.95


@pytest.mark.full
def test_pytorch_agrees_as_the_readme_says(device_index):
    # Where vklab is not installed but only on the path, no entry point tells torch of it.
    code = "import vklab.pytorch.backend\n" + example("from_torch")
    assert python(code, VKLAB_DEVICE=str(device_index)).split() == ["True"]
