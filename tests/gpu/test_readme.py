"""The README's examples run as they stand there, and say what is right."""

from __future__ import annotations

import re

import llama_models
import numpy as np
import pytest
from child import python, run
from small_models import DATA, ROOT
from two_drivers import both
from vocabularies import byte_bpe

from vklab.apps.llm.gguf_writer import write_gguf


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


@pytest.mark.slow
def test_pytorch_agrees_as_the_readme_says(device_index):
    # Where vklab is not installed but only on the path, no entry point tells torch of it.
    code = "import vklab.pytorch.backend\n" + example("from_torch")
    assert python(code, VKLAB_DEVICE=str(device_index)).split() == ["True"]


@pytest.mark.full
def test_a_language_model_answers_as_the_readme_says(device_index, tmp_path):
    made = llama_models.tiny_model(vocabulary=268, **{"llama.context_length": 256})
    write_gguf(tmp_path / "model.gguf", {**made.metadata, **byte_bpe()}, made.tensors.values())
    code = f"import os; os.chdir({str(tmp_path)!r})\n" + example("vklab.llm")
    said = python(code, VKLAB_DEVICE=str(device_index))
    assert "first token after" in said and re.search(r"^6 tokens: 'H':75", said, re.M)


SECTION = "## Using it as a library"


def section() -> str:
    """Return the README's section for programs that import vklab."""
    text = (ROOT / "README.md").read_text("utf-8")
    _, _, rest = text.partition(f"{SECTION}\n")
    return rest.partition("\n## ")[0]


def shown(text: str) -> list[str]:
    """Return the outputs that the comments of the section's code state."""
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return re.findall(r"# -> (.*)$", "".join(blocks), re.M)


@pytest.mark.full
def test_the_section_on_the_library_runs_from_top_to_bottom(device_index, tmp_path):
    (tmp_path / "data").symlink_to(DATA)
    blocks = re.findall(r"^```python\n(.*?)^```$", section(), re.M | re.S)
    words = ("check(", "devices()", "profile(", "ModelError", "logging", "settings.settings(",
             "from_torch", "torch.compile", 'devices="all"', "replicate=True")  # fmt: skip
    assert not [word for word in words if not any(word in block for block in blocks)]
    # Where vklab is not installed but only on the path, no entry point tells torch of it.
    start = f"import os; os.chdir({str(tmp_path)!r}); import vklab.pytorch.backend\n"
    done = run(start + "\n".join(blocks), VKLAB_DEVICE=str(device_index))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    expected = shown(section())
    assert len(expected) >= 6
    for line in expected:  # in the order of the page
        assert line in lines, f"{line!r} is not printed: {lines}"
        del lines[: lines.index(line) + 1]
    assert re.search(r"^INFO:vklab\S*:planned for image: float32\[8,1,28,28\]", done.stderr, re.M)
