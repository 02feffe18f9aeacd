"""Arrivals at barriers are explained before values, and only where some do not arrive."""

from __future__ import annotations

import pytest

from vklab.errors import SetupError
from vklab.runtime import open_devices
from vklab_course import check
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.check import check_answer
from vklab_course.counting import arrivals
from vklab_course.definition.exercise import find
from vklab_course.places import PROJECT

RIGHT = trials.answer_of(find_lab("07", PROJECT / "labs"), "07-1")
HEAD = RIGHT.partition("    low[lane] = 3.4e38;")[0]
LOAD = """
    low[lane] = 3.4e38; high[lane] = -3.4e38;
    if (id.x < params.count) low[lane] = high[lane] = x[id.x];
"""
STEP = """
        low[lane] = min(low[lane], low[lane + step]);
        high[lane] = max(high[lane], high[lane + step]);
"""
WAIT, STORE = (
    "GroupMemoryBarrierWithGroupSync();",
    "if (lane == 0) y[group.x] = high[0] - low[0]; }",
)
FAULTY = {
    "a return above it": f"""
    if (id.x >= params.count) return;
    low[lane] = high[lane] = x[id.x];
    for (uint step = 32; step > 0; step /= 2) {{ {WAIT} if (lane < step) {{ {STEP} }} }}""",
    "inside an if": f"""{LOAD} {WAIT}
    for (uint step = 32; step > 0; step /= 2) if (lane < step) {{ {STEP} {WAIT} }}""",
    "a return behind the last step": f"""{LOAD}
    for (uint step = 32; step > 0; step /= 2) {{ {WAIT} if (lane >= step) return; {STEP} }}""",
    "a break": f"""{LOAD}
    for (uint step = 32; step > 0; step /= 2) {{
        {WAIT} if (lane < step) {{ {STEP} }} if (lane > 40 && step < 16) break;
    }} {WAIT}""",
}
SAID = {
    "a return above it": "on count=235 (behind its end each array has 3 elements that must not be "
    "used): of workgroup 3, invocations 43 to 63 did not come to barrier 1, where 43 others wait: ",
    "inside an if": "on count=64: of workgroup 0, invocations 32 to 63 did not come to barrier 2, "
    "where 32 others wait: ",
    "a return behind the last step": "on count=64: of workgroup 0, invocations 32 to 63 did not "
    "come to barrier 2, where 32 others wait: ",
    "a break": "on count=64: of workgroup 0, invocations 41 to 63 did not come to barrier 5, "
    "where 41 others wait: ",
}
QUESTION = "is a `return` above it, or does it stand inside an `if`?"
SILENT = {
    "no barrier": RIGHT.replace(WAIT, "//"),
    "a wrong neutral": RIGHT.replace("3.4e38", "0"),
    "too few steps": RIGHT.replace("step > 0", "step > 1"),
    "two barriers for one": RIGHT.replace(WAIT, WAIT + WAIT).replace("3.4e38", "1"),
}

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True, scope="module")
def a_device():
    try:
        open_devices.select()
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture
def asked(monkeypatch):
    """Count the kernels that are dispatched once more."""
    made, real = [], arrivals.absent
    monkeypatch.setattr(arrivals, "absent", lambda *a, **k: made.append(a) or real(*a, **k))
    return made


@pytest.mark.parametrize("name", FAULTY)
def test_who_does_not_come_to_a_barrier_is_named_first(name):
    verdict = check("07-1", HEAD + FAULTY[name] + STORE)
    failed = [part for part in verdict.parts if not part.passed]
    assert failed[0].message.startswith(SAID[name] + QUESTION), str(verdict)
    follows = f"this may follow from {failed[0].name!r}: mend that first"
    assert all(part.message == follows for part in failed[1:])
    assert "all must arrive" not in str(verdict) and verdict.status == "incorrect"


@pytest.mark.parametrize("name", SILENT)
def test_other_mistakes_are_told_without_a_word_on_arrivals(name, asked):
    text = SILENT[name]
    assert text != RIGHT
    verdict = check("07-1", text)
    assert verdict.status == "incorrect" and "did not come" not in str(verdict)
    assert len(asked) == (name != "no barrier")


def test_a_right_answer_is_not_dispatched_again(asked):
    assert check("07-1", RIGHT).status == "correct" and not asked


def test_barriers_of_two_branches_are_told_apart():
    body = f"{LOAD} if (lane < 32) {{ low[lane] += 1; {WAIT} }} else {{ high[lane] += 1; {WAIT} }}"
    verdict = check("07-1", HEAD + body + STORE)
    assert "of workgroup 0 come to different barriers: does one stand in each" in str(verdict)


def test_an_access_outside_is_told_before_what_comes_of_it():
    verdict = check("07-1", RIGHT.replace("y[group.x]", "y[id.x]").replace("if (lane == 0)", ""))
    inside = next(part for part in verdict.parts if part.name.startswith("only elements"))
    told = [part for part in verdict.parts if "look at" in part.message]
    assert "y was written behind its end" in inside.message and told, str(verdict)
    assert all(f"look at {inside.name!r} first" in part.message for part in told)


def test_points_are_those_of_the_judge_alone():
    text = HEAD + FAULTY["inside an if"] + STORE
    alone = check_answer(find("07-1"), text, explain=False)
    explained = check("07-1", text)
    assert (explained.points, explained.status) == (alone.points, alone.status)
