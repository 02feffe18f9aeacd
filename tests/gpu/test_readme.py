"""The examples of the README and of the manual run as they stand there, and say what is right."""

from __future__ import annotations

import re

import numpy as np
import pytest

from support.graphs.small_models import DATA, ROOT
from support.language import llama_models
from support.language.vocabularies import byte_bpe
from support.runs.child import python, run
from support.runs.two_drivers import both
from vklab.apps.llm.weights.gguf_writer import write_gguf

LIBRARY, LANGUAGE = "docs/library.md", "docs/language_models.md"


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    text = (ROOT / page).read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


def example(word: str, page: str = LIBRARY) -> str:
    """Return the one Python block of a page that has a word in it.

    Args:
        word: the word.
        page: the page, from the root of the project.
    """
    [found] = [block for block in blocks(page) if word in block]
    return found


def test_the_digit_of_the_manual_is_the_right_one(device_index):
    said = python(example("np.load"), VKLAB_DEVICE=str(device_index))
    label = np.load(DATA / "digits.npz")["labels"][0]
    assert said.split() == [str(label)] * 2


def test_a_binding_does_as_the_manual_says(device_index):
    said = python(example("np.load") + example("session.bind"), VKLAB_DEVICE=str(device_index))
    label = np.load(DATA / "digits.npz")["labels"][1]
    assert said.splitlines()[1:] == [f"{label} {label}", "['logits']"]


def test_several_devices_do_as_the_manual_says():
    said = both(example("np.load") + example("replicate=True")).splitlines()
    plan = r"plan for .*: \d+ nodes, .* transfers; (memory: |in \d+ chunks)"
    assert re.match(plan, said[1]), said
    assert re.match(r"\d+ spans in", said[2]), said
    assert float(said[-1]) > 0.95


@pytest.mark.slow
def test_pytorch_agrees_as_the_manual_says(device_index):
    # Where vklab is not installed but only on the path, no entry point tells torch of it.
    code = "import vklab.pytorch.backend\n" + example("from_torch")
    assert python(code, VKLAB_DEVICE=str(device_index)).split() == ["True"]


@pytest.mark.full
def test_a_language_model_answers_as_the_manual_says(device_index, tmp_path):
    made = llama_models.tiny_model(vocabulary=268, **{"llama.context_length": 256})
    write_gguf(tmp_path / "model.gguf", {**made.metadata, **byte_bpe()}, made.tensors.values())
    code = f"import os; os.chdir({str(tmp_path)!r})\n" + example("vklab.llm", LANGUAGE)
    said = python(code, VKLAB_DEVICE=str(device_index))
    assert "first token after" in said and re.search(r"^6 tokens: 'H':75", said, re.M)


# Words that the examples of a page must have, and the least outputs that their comments state.
WHOLE = {
    "README.md": (("session.run(", "check(", "profile(", "from_torch"), 3),
    LIBRARY: (
        (
            "check(",
            "devices()",
            "profile(",
            "ModelError",
            "logging",
            "settings.settings(",
            "from_torch",
            "torch.compile",
            'devices="all"',
            "replicate=True",
        ),
        6,
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("page", WHOLE)
def test_the_examples_of_a_page_run_from_top_to_bottom(device_index, tmp_path, page):
    (tmp_path / "data").symlink_to(DATA)
    code = "\n".join(blocks(page))
    words, least = WHOLE[page]
    assert not [word for word in words if word not in code]
    # Where vklab is not installed but only on the path, no entry point tells torch of it.
    start = f"import os; os.chdir({str(tmp_path)!r}); import vklab.pytorch.backend\n"
    done = run(start + code, VKLAB_DEVICE=str(device_index))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    expected = re.findall(r"# -> (.*)$", code, re.M)
    assert len(expected) >= least
    for line in expected:  # in the order of the page
        assert line in lines, f"{line!r} is not printed: {lines}"
        del lines[: lines.index(line) + 1]
    if "logging.INFO" in code:
        log = r"^INFO:vklab\S*:planned for image: float32\[8,1,28,28\]"
        assert re.search(log, done.stderr, re.M)
