"""Parts of a session, without a sandbox: the judge, its limits, and what crosses to it."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import pytest

from support.course.hand_ins import cell
from vklab_course.definition.codec import encode
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import exercises_of
from vklab_course.grade.sandbox import command as sandbox
from vklab_course.grade.sandbox.limits import Limits
from vklab_course.grade.session import kernel as session_kernel
from vklab_course.grade.session import marks
from vklab_course.grade.session import process as session_process
from vklab_course.grade.session.marks import MESSAGES, RemoteAnswers, marked
from vklab_course.grade.session.run import Job, Run, expression_of

LABS = Path(__file__).resolve().parent / "labs"


@pytest.fixture(autouse=True)
def fixture_labs(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(LABS))


def test_a_line_that_was_cut_costs_no_other_exercise():
    whole = b'{"judged": {"90-1": {"points": 4}}}\n'
    read = session_process._read
    assert read(whole + b'{"judged": {"90-3": {"poi') == (None, {"90-1": {"points": 4}})
    assert read(whole + b'{"exercises": {}}\n')[0] == {"exercises": {}}
    assert read(b"") == (None, {})


def test_a_check_that_does_not_end_costs_its_own_exercise_only(tmp_path, monkeypatch):
    def endless(case, value, report):
        while True:
            with contextlib.suppress(Exception):
                sum(range(1000))

    exercise = exercises_of("90", {})["90-3"]
    monkeypatch.setattr(exercise, "compare", endless)
    monkeypatch.setattr(marks, "CHECK_S", 0.3)
    count = len(draw(exercise, "a"))
    reply = encode(
        {
            "reply": encode(
                {"outcomes": [{"how": "returned", "data": encode(16)}] * count, "printed": ""}
            )
        }
    )
    run = Run(Job({"90-3": exercise}, "a", sandbox.Bubblewrap(Limits()), tmp_path))
    monkeypatch.setattr(run, "_remote", lambda *_: lambda: RemoteAnswers(lambda _: reply, 1.0))
    run.check(cell('check("90-3", workgroups)', "check", "90-3"))
    found = run.results["90-3"]
    assert found["status"] == "error" and found["points"] == 0
    assert "the check of your answer did not end: not finished within 0.3 s" in found["messages"][0]


def test_a_definition_that_breaks_costs_its_own_exercise_only(tmp_path, monkeypatch):
    exercise = exercises_of("90", {})["90-3"]
    monkeypatch.setattr(exercise, "cases", lambda random: 1 / 0)
    run = Run(Job({"90-3": exercise}, "a", sandbox.Bubblewrap(Limits()), tmp_path))
    run.check(cell('check("90-3", workgroups)', "check", "90-3"))
    assert run.results["90-3"]["status"] == "error" and run.results["90-3"]["points"] == 0
    assert "ZeroDivisionError" in run.results["90-3"]["messages"][0]


def test_the_answer_is_named_by_the_check_cell_of_the_release():
    assert expression_of('check("03-2", workgroups)') == "workgroups"
    assert expression_of('x = 1\ncourse.check("03-2", kernels["add"])') == "kernels['add']"
    assert expression_of('check("03-2")') == "None"


@pytest.mark.parametrize("reply", [
    b"", b"\xc1", encode([1]), encode({"reply": "text"}), encode({"reply": b"\xc1"}), encode({}),
    encode({"reply": encode({"outcomes": 3})}),
    encode({"reply": encode({"outcomes": [{"how": "returned"}], "status": "correct"})}),
    encode({"reply": encode({"outcomes": [{"how": "passed", "points": 4}] * 30})}),
])  # fmt: skip
def test_a_strange_reply_earns_nothing(reply, tmp_path):
    exercise = exercises_of("90", {})["90-3"]
    cases = draw(exercise, "secret")
    try:
        found = marked(exercise, RemoteAnswers(lambda request: reply, 1.0), cases)
    except (ValueError, KeyError) as error:
        found = {"status": "error", "points": 0, "why": str(error)}
    assert found["points"] == 0 and found["status"] in ("failed", "error")


def test_messages_are_bounded(tmp_path):
    exercise = exercises_of("90", {})["90-3"]
    outcome = {"how": "returned", "data": encode("x" * 3_000_000)}
    reply = encode({"reply": encode({"outcomes": [outcome], "printed": "y" * 100_000})})
    found = marked(exercise, RemoteAnswers(lambda _: reply, 1.0), draw(exercise, "a"))
    assert found["status"] == "failed" and len(found["messages"]) <= MESSAGES
    assert len(json.dumps(found)) < 1 << 20


def test_a_socket_is_no_link_and_has_a_process_behind_it(tmp_path):
    path, link = tmp_path / "s", tmp_path / "l"
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        link.symlink_to(path)
        assert not session_kernel._listens(path)
        unix.listen()
        assert session_kernel._listens(path) and not session_kernel._listens(link)
    assert not session_kernel._listens(path)
