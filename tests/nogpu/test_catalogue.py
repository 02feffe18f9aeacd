"""The catalogue: every row is right, and every place that names rules reads it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import vklab
from support.fakes.fake_device import fake_device
from support.rules import architecture_page, rules_table
from vklab import settings
from vklab.apps.compare.speed import ablations
from vklab.base import catalogue, stages
from vklab.base.stages import Choice, Rule
from vklab.errors import PlanError
from vklab.plan.tuning import variants

PACKAGE = Path(vklab.__file__).parent
RULES = [row for row in catalogue.RULES if isinstance(row, Rule)]
# The parameters without defaults that the functions of a stage have.
PARAMETERS = {
    stages.PASS: 1, stages.LAYOUT: 1, stages.DTYPE: 1, stages.FUSION: 1, stages.CHAIN: 1,
    stages.NORM: 1, stages.GATE: 1, stages.KERNEL: 2, stages.CODES: 2, stages.PRODUCT: 1,
    stages.WORDS: 1,
}  # fmt: skip
GIVEN = {stages.LAYOUT: 2, stages.CODES: 4}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.stage}-{rule.name}")
def test_every_row_names_a_function_of_its_stage(rule):
    function = rule.load()
    assert callable(function) and rule.because
    if rule.stage != stages.STEP:
        given = inspect.signature(function)
        needed = [p for p in given.parameters.values() if p.default is p.empty]
        assert len(needed) <= GIVEN.get(rule.stage, PARAMETERS[rule.stage]), needed
        given.bind(*[None] * GIVEN.get(rule.stage, PARAMETERS[rule.stage]))


def test_rows_of_one_name_differ_in_what_they_need():
    rows = [(rule.stage, rule.name, rule.needs) for rule in RULES]
    assert len(set(rows)) == len(rows)
    assert {rule.on for rule in RULES} <= {"", "cpu", "gpu"}


def test_a_choice_is_asked_for_by_its_name_and_nothing_else_is():
    asked = {
        name
        for file in PACKAGE.rglob("*.py")
        for name in re.findall(r'catalogue\.is_off\("(\w+)"\)', file.read_text("utf-8"))
    }
    choices = {row.name for row in catalogue.RULES if isinstance(row, Choice)}
    assert choices <= asked <= catalogue.names()
    assert not any(
        'DISABLE_PASSES")' in file.read_text("utf-8")
        for file in PACKAGE.rglob("*.py")
        if file.name not in ("catalogue.py", "__init__.py") and "apps" not in file.parts
    )


def test_the_names_of_measured_choices_are_rows():
    devices = [fake_device(type=kind) for kind in ("cpu", "discrete")]
    names = {
        name
        for info in devices
        for kernel in ("matmul", "conv_last", "conv_words")
        for name in variants.rules_for(info, kernel, every=not info.is_cpu)
    }
    assert {"registers", "tiled", "few_rows", "shared_rows", "words"} < names
    assert names - {"plain"} <= catalogue.names()


def test_a_row_that_goes_is_unknown_everywhere(monkeypatch):
    info = fake_device(type="discrete")
    monkeypatch.setattr(
        catalogue, "RULES", tuple(row for row in catalogue.RULES if row.name != "fuse_gelu")
    )
    catalogue.stage.cache_clear()
    try:
        with (
            settings.settings(DISABLE_PASSES="fuse_gelu"),
            pytest.raises(PlanError, match="unknown pass 'fuse_gelu'.*fuse_layer_norm"),
        ):
            catalogue.check_names()
        labels = [str(runner.name) for runner in ablations.runners(info)]
        assert "without gelu pattern" not in labels and "without norm patterns" in labels
        assert "fuse_gelu" not in {rule.name for rule in catalogue.stage(stages.PASS)}
    finally:
        catalogue.stage.cache_clear()


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_groups_of_a_device_leave_out_rules_that_it_meets(kind):
    info = fake_device(type=kind)
    made = catalogue.groups(info.is_cpu)
    for names in made.values():
        rows = [row for row in catalogue.RULES if row.name in names.split(",")]
        assert any(row.on in ("", "cpu" if info.is_cpu else "gpu") for row in rows)
    assert ("pairs" in made) == info.is_cpu and ("tiles" in made) == (not info.is_cpu)


def test_the_page_has_every_rule():
    page = rules_table.PAGE.read_text("utf-8")
    assert architecture_page.block(page, "rules") == rules_table.table()
    assert page.count("| pass |") == len(catalogue.stage(stages.PASS))
