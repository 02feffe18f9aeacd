"""Templates of the three files of a new lab, which pass every gate unchanged."""

from __future__ import annotations

import re
from pathlib import Path

from vklab_course.author.lab import LabError, all_labs
from vklab_course.definition.exercise import LAB
from vklab_course.places import labs_folder

__all__ = ["new_lab"]

SOURCE = '''# ---
# jupyter:
#   kernelspec: {{display_name: Python 3, language: python, name: python3}}
#   vklab: {{title: "{title}", minutes: 12}}
# ---

# %% [markdown] id="l{nn}-title"
# # Lab {nn} · {title}
# **One line that says what** · 12 minutes, 1 exercise
#
# **Afterwards you can**
# * verb something that a check can see.
#
# **Before this lab**: lab 00.
#
# **Files it opens**: `vklab/...`

# %% id="l{nn}-setup" tags=["hide-input"]
from vklab_course import banner, check, predict
from vklab_labs.shared.diagram import Diagram

banner()

# %% id="l{nn}-own" vklab={{"role": "own"}}
# Your imports and helpers. This cell is handed in with your answers.

# %% [markdown] id="l{nn}-1t"
# ## 1 · An idea in plain words
# A concrete case first: three becomes six.

# %% id="l{nn}-1d" tags=["hide-input"]
diagram = Diagram(400, 70).box((10, 15, 110, 40), "3").arrow((120, 35), (270, 35), "twice")
diagram.box((270, 15, 110, 40), "6").picture("An arrow from 3 to 6.", "Twice three is six.")

# %% id="l{nn}-1p"
predict("{nn}-p1", of_minus_four=...)

# %% [markdown] id="l{nn}-1e"
# ### Exercise 1 · Double

# %% id="l{nn}-1" vklab={{"role": "exercise", "id": "{nn}-1", "points": 2, "lines": 1}}
def double(number):
    """Return twice the number.

    TODO     add the number to itself.
    Example  double(3) -> 6          (roughly 1 line)
    """
    ### BEGIN SOLUTION
    return number + number
    ### END SOLUTION


# %% id="l{nn}-1c" vklab={{"role": "check", "id": "{nn}-1"}}
check("{nn}-1", double)

# %% id="l{nn}-1h" vklab={{"role": "demo"}}
# from vklab_course import hint; hint("{nn}-1")

# %% [markdown] id="l{nn}-recap"
# ## Recap
# | word | what it is |
# |---|---|
# | double | a number and itself, added |
'''

CHECKS = '''"""Exercises of lab {nn}: {title}."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Predict


@exercise("{nn}-p1", hints=("Try it with a positive number first.",))
class MinusFour(Predict):
    explains = "Adding a negative number to itself makes it more negative."

    def answers(self) -> dict[str, Any]:
        return {{"of_minus_four": -8}}


@exercise("{nn}-1", hints=("What is 3 + 3?", "Which operator makes it twice?"))
class Double(Function):
    parts = {{"whole": ("whole numbers", 1), "fractions": ("fractions", 1)}}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for number in (3, 0, -4, *random.integers(-99, 99, 3).tolist()):
            yield Case("whole", (number,))
        for number in (0.5, *random.uniform(-9, 9, 3).tolist()):
            yield Case("fractions", (number,))

    def expected(self, case: Case) -> Any:
        return 2 * case.args[0]
'''

ANSWERS = '''"""Answers to try the checks of lab {nn} with."""

from vklab_course.author.answers import alternative, wrong


@wrong("{nn}-1", says="expected 6, got 9")
def squares(number):
    return number * number


@alternative("{nn}-1")
def by_product(number):
    return 2 * number
'''


def new_lab(number: str, slug: str, root: Path | None = None) -> list[Path]:
    """Write source, checks and answers of a new lab. Raises LabError if one of them exists.

    Args:
        number: one or two digits, and a letter for a further notebook.
        slug: small letters, digits and _.
        root: folder of the labs; None for the one in use.
    """
    root, nn = root or labs_folder(), re.sub(r"^\d(?!\d)", r"0\g<0>", number)
    if not re.fullmatch(LAB, nn) or not re.fullmatch(r"[a-z][a-z0-9_]*", slug):
        raise LabError(
            f"{number!r} {slug!r}: a lab is a number (04, or 04b for a second notebook) "
            "and a slug of small letters, digits and _"
        )
    taken = [path.stem for path in all_labs(root) if path.stem.startswith(f"{nn}_")]
    if taken:
        raise LabError(f"lab {nn} exists already: {taken[0]}")
    facts = {"nn": nn, "title": slug.replace("_", " ").capitalize()}
    files = {
        root / "source" / f"{nn}_{slug}.py": SOURCE,
        root / "checks" / f"lab_{nn}.py": CHECKS,
        root / "answers" / f"lab_{nn}.py": ANSWERS,
    }
    for path in files:
        if path.exists():
            raise LabError(f"{path} exists already")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(**facts), encoding="utf-8")
    return list(files)
