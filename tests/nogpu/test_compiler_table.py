"""docs/compiler.md says what the planner does today; blocks of transformers stay few dispatches."""

from __future__ import annotations

import pytest

from support.models import exported_models, light_models
from support.rules import compiler_table
from vklab.shader import toolchain

compiles = pytest.mark.skipif(
    toolchain.find_toolchain("slang") is None, reason="no compiler for slang: nothing is fused"
)
MOST_OF_A_BLOCK = 12
TEXT = compiler_table.DOCUMENT.read_text("utf-8")
COMMITTED = [line for line in TEXT.splitlines() if line.startswith("|")][2:]


def test_every_model_has_a_line_and_the_text_is_the_scripts():
    names = [*light_models.NAMES, *exported_models.NAMES]
    assert [line.split()[1] for line in COMMITTED] == names
    head, _, rest = TEXT.partition("| model |")
    before, _, after = compiler_table.TEXT.partition("{table}")
    assert head == before and rest.endswith(after)


@compiles
@pytest.mark.parametrize("name", ["bert", "vit", "llama_script", "squeezenet"])
def test_the_table_is_what_the_planner_says(name):
    make = compiler_table.light if name in light_models.NAMES else compiler_table.exported
    found = compiler_table.row(*make(name))
    (line,) = [line for line in COMMITTED if line.split()[1] == name]
    command = "python tests/support/rules/compiler_table.py --write docs/compiler.md"
    assert line.startswith(str(found)), command


def test_the_table_holds_what_was_promised():
    """An arena is at most 1.05 of its bound; neither dispatches nor barriers become more."""
    for line in COMMITTED:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        row = dict(zip(compiler_table.HEADERS, cells, strict=True))
        assert float(row["ratio"]) <= 1.05, line
        assert int(row["dispatches"]) < int(row["dispatches, all off"]), line
        assert int(row["barriers"]) < int(row["barriers, all off"]), line


@compiles
@pytest.mark.parametrize("name", ["gpt2", "gpt2_script", "vit", "vit_script"])
def test_a_block_of_a_transformer_is_at_most_twelve_dispatches(name):
    """In a pre-norm block two normalisations begin; the third begins the next block."""
    plan = compiler_table.planned(*compiler_table.exported(name)[1:])
    starts = [n for n, d in enumerate(plan.dispatches) if d.kernel.startswith("normalize")]
    assert len(starts) == 5  # of two blocks, and the last
    assert starts[2] - starts[0] <= MOST_OF_A_BLOCK >= starts[4] - starts[2], plan.rows()
