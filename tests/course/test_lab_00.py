"""Lab 00: obvious choices score nothing, one line of each list is too many, records travel."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import vklab
from support.runs import tiers
from vklab.plan.memory import Lifetime
from vklab_course import data
from vklab_course.author import build, regions
from vklab_course.author.lab import find_lab
from vklab_course.author.trials import names_after
from vklab_course.check import check_answer
from vklab_course.definition import codec
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import find
from vklab_course.predict import predict
from vklab_labs.lab_00.batches import obvious_choices
from vklab_labs.lab_00.digits import held_out, symptoms

pytestmark = pytest.mark.full
EMPTY = (lambda *given: None, lambda *given: [], lambda *given: {}, lambda *given: given[0],
         lambda *given: 1, lambda *given: ({}, 0), lambda *given: 1 / 0)  # fmt: skip


@pytest.fixture(scope="module")
def lab():
    return find_lab("00")


def module_of(exercise):
    return sys.modules[type(exercise).__module__]


@pytest.mark.parametrize("secret", tiers.seeds("one", "two", "three"))
def test_obvious_choices_of_batches_are_never_the_best(secret):
    exercise = find("00-3")
    scored = [case for case in draw(exercise, secret) if case.part == ""]
    assert len(scored) == 11
    for case in scored:
        pictures, sizes, run = case.args
        natural = [
            sum(each) + run * len(each) for each in obvious_choices(pictures, sizes).values()
        ]
        assert case.facts["natural"] == min(natural)
        print(f"{case.on}: the least cost is {case.expected}, obvious choices cost {natural}")
        assert case.expected + 4 <= min(natural)
        assert case.expected >= pictures + run  # some rows and one run at least


@pytest.mark.parametrize("secret", tiers.seeds("one", "two", "three"))
def test_a_choice_between_obvious_and_best_earns_a_share(secret):
    def better(pictures, sizes, run):
        """Choose the best of two sizes, where the obvious choice has one."""
        made = []
        for one in sizes:
            for other in sizes:
                for count in range(1 + -(-pictures // one)):
                    rest = max(0, -(-(pictures - count * one) // other))
                    made.append([one] * count + [other] * rest)
        best = min(made, key=lambda runs: sum(runs) + run * len(runs))
        return [] if pictures == 0 else best

    exercise = find("00-3")
    verdict = check_answer(exercise, better, cases=draw(exercise, secret))
    assert verdict.status == "partial" and 1 < verdict.points < verdict.of, verdict
    assert "no answer needs less than" in str(verdict)


def test_the_oracle_counts_as_a_search_does():
    exercise = find("00-3")
    least = module_of(exercise).least

    def searched(pictures, sizes, run):
        if pictures <= 0:
            return 0
        return min(size + run + searched(pictures - size, sizes, run) for size in sizes)

    for pictures in (1, 9, 22, 35):
        for sizes in ([4, 7, 11], [5], [8, 9]):
            assert least(pictures, sizes, 3)[0] == searched(pictures, sizes, 3)


@pytest.mark.parametrize("number", tiers.seeds(4, 1, 2, 3))
def test_empty_answers_earn_nothing(number):
    for answer in EMPTY:
        verdict = check_answer(find(f"00-{number}"), answer)
        assert verdict.points == 0 and not any(part.passed for part in verdict.parts), verdict


def test_the_answer_to_one_camera_fails_for_the_others(lab):
    names = names_after(lab, "00-1")
    for variant in range(1, 4):
        other = type(find("00-1"))(variant)
        assert check_answer(other, names["to_input"]).status == "incorrect"
        text = regions.solved(lab, lab.named("exercise")["00-1"])
        white = other.params["white"]
        own = dict(names)
        exec(text.replace("255", str(white)), own)
        assert check_answer(other, own["to_input"]).status == "correct"


def test_exactly_one_line_of_each_list_is_too_many(lab):
    names = names_after(lab, "00-5")
    right = names["line_too_many"]
    for name, lines in names["preparations"].items():
        mends = []
        for number in range(1, 5):
            try:
                said = symptoms([*lines[: number - 1], *lines[number:]])
            except (NameError, vklab.VklabError):
                continue
            mends += [number] if said.startswith(" 99 %") else []
        assert mends == [right[name]], name


def test_predictions_of_facts_are_true():
    images, labels = held_out()
    ten = [np.flatnonzero(labels == digit)[0] for digit in range(10)]
    with vklab.load(data("digits_cnn.onnx")) as session:
        said = session.run({"image": images[ten]})["logits"].argmax(axis=1)
        dispatches = len(session.plan.dispatches)
        all_said = session.run({"image": images})["logits"].argmax(axis=1)
    assert find("00-p3").answers() == {"right": (said == labels[ten]).sum()}
    assert said[5] == 9 and (all_said == labels).sum() == 354
    assert find("00-p4").answers() == {"dispatches": dispatches}
    from vklab_labs.lab_00.doctor import BROKEN_MACHINE

    urgent = {one.repair for one in BROKEN_MACHINE.checks if not one.ok and one.essential}
    assert find("00-p2").answers() == {"lines": len(urgent)}


def test_a_prediction_explains_only_after_it_is_made():
    assert "fused" not in str(predict("00-p4", dispatches=...))
    made = predict("00-p4", dispatches=9)
    assert "you said 9, it is 6" in str(made) and "fused" in str(made)


def test_records_of_the_runtime_are_read_where_no_definition_is_imported():
    sent = codec.encode([Lifetime("a", 1, 2, 3), *find("00-2").cases(np.random.default_rng(0))])
    code = (
        "import sys; from vklab_course.definition import case, codec\n"
        "lives, first, *_ = codec.decode(sys.stdin.buffer.read())\n"
        "print(lives.length_bytes, first.args[0].ok)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert done.stdout.split() == [b"256", b"True"]


def test_cells_of_pictures_hide_their_code(lab):
    cells = {cell.id: cell for cell in build.student_notebook(lab).cells}
    assert cells["l00-layers"].metadata["jupyter"] == {"source_hidden": True}
    assert "jupyter" not in cells["l00-banner"].metadata


def test_the_first_function_comes_in_the_first_third(lab):
    place = [cell.id for cell in lab.cells].index("l00-1")
    assert place < len(lab.cells) / 3, (place, len(lab.cells))
