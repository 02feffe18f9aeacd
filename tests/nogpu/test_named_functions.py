"""Catalogues of functions whose files are loaded by their first call: all names are right."""

from __future__ import annotations

import importlib
import sys

import pytest

from vklab.base import optional
from vklab.graph import passes
from vklab.plan import fusion
from vklab.plan.tuning import single_rules, variants

TABLES = {
    "passes": (*passes.PASSES, *passes.LAYOUT_PASSES), "fusions": fusion.FUSIONS,
    "single rules": tuple(single_rules.RULES.values()),
    "rules": (*variants.CPU_RULES.values(), *variants.GPU_RULES.values(),
              *variants.LAST_RULES.values()),
}  # fmt: skip


def test_a_module_is_loaded_by_the_first_call(tmp_path, monkeypatch):
    (tmp_path / "a_catalogue_entry.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    twice = optional.function("a_catalogue_entry", "twice")
    assert "a_catalogue_entry" not in sys.modules
    assert (twice(21), twice.__name__, twice.__module__) == (42, "twice", "a_catalogue_entry")
    monkeypatch.delitem(sys.modules, "a_catalogue_entry")


@pytest.mark.parametrize("table", TABLES)
def test_every_entry_of_a_catalogue_names_a_function(table):
    for entry in TABLES[table]:
        assert callable(getattr(importlib.import_module(entry.__module__), entry.__name__))
