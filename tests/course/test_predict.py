"""A prediction takes values of its kind only, and tells no answer before one is given."""

from __future__ import annotations

import numpy as np
import pytest

from vklab_course.definition.exercise import find
from vklab_course.definition.kinds import Predict
from vklab_course.definition.verdict import NOTE
from vklab_course.places import PROJECT
from vklab_course.predict import predict


@pytest.fixture(autouse=True)
def _own_labs(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))


@pytest.mark.parametrize(("identifier", "values", "said"), [
    ("07-p1", {"tree_steps": "eight", "combinations": 255},
     "tree_steps takes a number; you gave 'eight'"),
    ("07-p1", {"tree_steps": 8, "combinations": None},
     "combinations takes a number; you gave None"),
    ("07-p1", {"tree_steps": True, "combinations": 1}, "tree_steps takes a number; you gave True"),
    ("07-p1", {"tree_steps": float("nan"), "combinations": 1}, "you gave nan"),
    ("01b-p1", {"addition": float("inf")}, "addition takes a number; you gave inf"),
    ("01b-p1", {"addition": [1.9]}, "addition takes a number; you gave [1.9]"),
    ("07-p3", {"plain_right": "yes", "mirrored_right": 0, "race_seen": True},
     "plain_right takes True or False; you gave 'yes'\n"
     "mirrored_right takes True or False; you gave 0"),
    ("04-p5", {"scale": 0.5, "count": "0"},
     "scale takes one of '0.5', '1000', 'almost 0'; you gave 0.5"),
    ("09b-p1", {"flatten": "shap", "top": "topk", "select": "turn"},
     "flatten takes one of 'shape', 'gather', 'concat', 'relu', 'reshape', 'none'"),
])  # fmt: skip
def test_nonsense_is_told_its_kind_and_no_answer(identifier, values, said):
    made = predict(identifier, **values)
    shown = made._repr_mimebundle_()
    assert str(made).startswith(said) or said in str(made)
    assert "it is" not in str(made) and "it is</th>" not in shown["text/html"]
    assert find(identifier).explains[:30] not in str(made) and not made.said
    assert shown[NOTE]["status"] == "not_attempted"
    assert said.count("\n") == shown["text/html"].count("<br>") - 1


@pytest.mark.parametrize(("identifier", "values"), [
    ("07-p1", {"tree_steps": np.int64(9), "combinations": 7.5}),
    ("07-p3", {"plain_right": np.bool_(True), "mirrored_right": True, "race_seen": False}),
    ("04-p5", {"scale": "0.5", "count": "1000"}),
    ("01b-p1", {"addition": 2}),
])  # fmt: skip
def test_a_wrong_value_of_the_right_kind_is_a_prediction(identifier, values):
    made = predict(identifier, **values)
    assert "it is" in str(made) and find(identifier).explains[:30] in str(made)
    assert made.said == values and NOTE not in made._repr_mimebundle_()


def test_every_predicted_text_has_options_and_the_right_one_is_among_them():
    seen = 0
    for path in sorted((PROJECT / "labs" / "checks").glob("lab_*.py")):
        number = path.stem.removeprefix("lab_")
        for n in range(1, 10):
            try:
                one = find(f"{number}-p{n}")
            except LookupError:
                continue
            assert isinstance(one, Predict) and set(one.options) <= set(one.answers()), one.id
            for name, right in one.answers().items():
                assert isinstance(right, bool | int | float) != (name in one.options), one.id
                assert not one.wanted(name, right), (one.id, name)
                seen += 1
    assert seen > 100
