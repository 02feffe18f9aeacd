"""attempt: what a block with a student's answer leaves behind, whatever the answer does."""

from __future__ import annotations

import signal
import sys
from types import SimpleNamespace

import pytest

from support.course.student_functions import hangs, hangs_and_catches
from vklab.errors import ShaderError
from vklab.plan import memory
from vklab_course import attempt

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("fixture_lab")]


def right(count, multiple=256):
    """Round up; here, because `attempt` tells answers by where they stand."""
    if multiple < 1:
        raise ValueError("multiple")
    return -(-count // multiple) * multiple


def test_attempt_goes_on(capsys):
    with attempt("90-1"):
        raise NotImplementedError("Lab 90, exercise 1: ...")
    with attempt("90-1"):
        right(1, "0")
    with attempt("90-2"):
        raise ShaderError("kernel.comp:3: #error Lab 90, exercise 2: ...")
    printed = capsys.readouterr().out
    assert printed.count("is not solved yet") == 2
    assert "exercise 90-1: your answer raised TypeError: '<' not supported" in printed
    assert printed.count("this cell shows your answer, right or wrong") == 2
    with pytest.raises(KeyboardInterrupt), attempt("90-1"):
        raise KeyboardInterrupt


def test_attempt_names_the_stub_that_it_has_met(capsys):
    with attempt("90-2"):
        raise NotImplementedError("Lab 90, exercise 1: ...")
    with attempt("90-1"):
        raise NotImplementedError("step 5 waits for step 4")
    with attempt("90-1"):
        raise NotImplementedError
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "exercise 90-1 is not solved yet, and this cell of 90-2 uses its answer"
    assert second == "exercise 90-1: step 5 waits for step 4"
    assert third.startswith("exercise 90-1 is not solved yet: ")


def test_the_dots_of_a_stub_are_no_error_of_the_student(monkeypatch):
    notes = []
    monkeypatch.setitem(
        sys.modules, "IPython", SimpleNamespace(display=SimpleNamespace(display=notes.append))
    )
    answer = ...
    with attempt("90-1"):
        sorted(answer)
    with attempt("90-1"):
        right(..., 256)
    with attempt("90-1"):
        sorted(None)
    assert [note.status for note in notes] == ["not_attempted", "error", "error"]
    assert repr(notes[0]).endswith(
        "90-1: write your answer in place of the dots; then this cell shows it"
    )


@pytest.mark.parametrize("loop", [hangs, hangs_and_catches])
def test_attempt_ends_what_does_not(capsys, loop):
    before = signal.getsignal(signal.SIGALRM) if hasattr(signal, "SIGALRM") else None
    with attempt("90-1", seconds=0.2):
        loop(1)
    said = capsys.readouterr().out
    assert "your answer was not finished within 0.2 s, so this cell was stopped. Look for a" in said
    assert "busy with other programs? Then run the cell again" in said
    with attempt("90-1", seconds=0.2):
        pass
    if before is not None:
        assert signal.getsignal(signal.SIGALRM) is before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_attempt_blames_the_cell_for_what_it_cannot_use(capsys):
    with attempt("90-1"):
        memory.round_up(None, 2)
    with attempt("90-1"):
        memory.round_up("7", 2)
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("this cell cannot use your answer: got None (is a return missing?)")
    assert second.startswith("exercise 90-1: this cell cannot use your answer: TypeError: ")


def test_an_answer_whose_cell_has_not_run_is_not_blamed(fixture_lab, capsys):
    names = {"attempt": attempt}
    for code in ("round_up(3)", "(lambda: round_up(3))()"):
        exec(f"with attempt('90-1'): {code}", names)
    assert capsys.readouterr().out.count("run the cell of exercise 90-1 first") == 2
