"""docs/devices.md is what `support.rules.placement_table` writes; its numbers are a machine's."""

from __future__ import annotations

import pytest

from support.rules import placement_table
from vklab.plan.place import placement

DOCUMENT = placement_table.DOCUMENT.read_text("utf-8")
HEAD, *SECTIONS = DOCUMENT.split("\n## ")
LINES = [line for section in SECTIONS for line in section.splitlines() if line.startswith("|")]
CELLS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES]
ROWS = [
    dict(zip(placement_table.HEADERS[:-1], cells, strict=False))
    for cells in CELLS
    if cells[0] in placement_table.MODELS
]


def test_the_text_is_the_scripts_and_every_section_has_every_row():
    assert HEAD.strip() == placement_table.TEXT.format(share=placement_table.CAP_SHARE).strip()
    assert SECTIONS
    wanted = [(name, policy) for name in placement_table.MODELS for policy in placement.POLICIES]
    for section in SECTIONS:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        assert lines[0] == f"| {' | '.join(placement_table.HEADERS)} |"
        found = [tuple(line.replace(" ", "").split("|")[1:3]) for line in lines[2:]]
        assert found == wanted


def test_the_table_holds_what_was_promised():
    """Cost predicts no more than greedy, and what is measured; conv_many moves less often.

    Greedy may go back to a device, cuts do not: where nothing else is won, that may be a trifle.
    """
    for cost, greedy in zip(ROWS[::2], ROWS[1::2], strict=True):
        assert (cost["policy"], greedy["policy"]) == ("cost", "greedy")
        assert float(cost["predicted ms"]) <= 1.01 * float(greedy["predicted ms"]), cost
        assert 0.5 < float(cost["predicted / measured"]) < 2, cost
        if cost["model"] == "conv_many":
            assert greedy["stages"] == "8@0 1@1 6@0"  # as published
            assert int(cost["transfers"]) < int(greedy["transfers"]) == 2


def test_a_section_replaces_that_of_the_same_devices_and_leaves_the_others():
    first = placement_table.replaced("", "## A and B\n\n| old |\n")
    both = placement_table.replaced(first, "## C and D\n\n| other |\n")
    again = placement_table.replaced(both, "## A and B\n\n| new |\n")
    assert [part.partition("\n")[0] for part in again.split("\n## ")[1:]] == ["C and D", "A and B"]
    assert "| new |" in again and "| other |" in again and "| old |" not in again
    assert placement_table.replaced(again, "## A and B\n\n| new |\n") == again


@pytest.mark.full
@pytest.mark.parametrize("name", placement_table.MODELS)
def test_every_model_is_there(name):
    model, inputs = placement_table.case(name)
    assert model.graph.node and all(array.size for array in inputs.values())
