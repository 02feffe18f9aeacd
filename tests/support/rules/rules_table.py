"""Table of all rules in docs/tuning.md, from the catalogue.

`python tests/support/rules/rules_table.py` writes it anew; tests/nogpu/test_catalogue.py compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from support.rules import architecture_page
from vklab.base import catalogue, stages
from vklab.base.stages import Choice

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tuning.md"
DEVICES = {"": "all", stages.GPU: "GPUs", stages.CPU: "CPU devices"}


def table() -> str:
    """Return the rules in their order, as Markdown."""
    rows = [
        "| name | stage | devices | needs one of | why, or why there |",
        "|---|---|---|---|---|",
    ]
    for row in catalogue.RULES:
        if isinstance(row, Choice):
            stage, needs = "choice", ""
        elif row.stage == stages.STEP:
            continue
        else:
            stage, needs = row.stage, ", ".join(f"`{name}`" for name in row.needs)
        cells = (f"`{row.name}`", stage, DEVICES[row.on], needs, row.because)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    PAGE.write_text(architecture_page.with_block(page, "rules", table()), "utf-8")
