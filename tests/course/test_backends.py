"""The table of backends that lab 01 asks: each row has a source, each story has a right set."""

from __future__ import annotations

import pytest

from vklab_course import check
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.definition.exercise import find
from vklab_course.places import PROJECT
from vklab_labs.lab_01.backends import BACKENDS, MACHINES

# The stories of exercise 5 in order: machines, job, wishes, and what the answer must name.
STORIES = (
    (("Intel/Windows", "Apple/macOS"), "chat", ("open",), {"llama.cpp", "MLC-LLM", "ExecuTorch"}),
    (("AMD/Linux",), "training", ("spare",), {"PyTorch"}),
    (("Apple/iOS", "Qualcomm/Android"), "network", (), {"ExecuTorch"}),
    (("AMD/Linux", "NVIDIA/Linux"), "kernels", (), {"HIP", "SYCL", "Vulkan"}),
)


def test_every_row_has_a_source_and_known_machines():
    for name, backend in BACKENDS.items():
        assert backend.source and backend.jobs and backend.runs_on.keys() <= {*MACHINES}, name


def test_every_story_admits_the_backends_that_its_rubric_asks_for(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    admissible = trials.answer_of(find_lab("01", PROJECT / "labs"), "01-3")
    for machines, job, wishes, right in STORIES:
        assert admissible(BACKENDS, machines, job, wishes) == right
    assert len(find("01-5").variants) == len(STORIES)


@pytest.mark.parametrize(("answer", "said"), [
    ("SYCL, because ...", "recorded"), ("", "not attempted"), (" \n", "your text is empty"),
    (..., "not attempted"), (None, "not attempted"), (["a"], "give your text as a text, in quotes"),
])  # fmt: skip
def test_a_text_is_recorded_if_it_is_one(answer, said, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    assert said in str(check("01-5", answer))
