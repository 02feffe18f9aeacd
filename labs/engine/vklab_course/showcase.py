"""showcase: models run with all kept answers inside the runtime; a page shows what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
from html import escape
from typing import Any

from vklab_course.student import kept

__all__ = ["Summary", "showcase"]

ELSEWHERE = (
    "In your copy of this lab, in work/, this cell runs models with all functions that you have "
    "kept, and makes a page of it."
)


class Summary:
    """Counts of a showcase in a few lines; the page has the rest."""

    def __init__(self, text: str, page: str = "") -> None:
        self.text, self.page = text, page

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        link = f'<p><a href="{escape(self.page)}" target="_blank">The whole page</a></p>'
        return f"<pre>{escape(self.text)}</pre>{link if self.page else ''}"


def showcase() -> Summary:
    """Run models with all kept answers inside the runtime, and write work/showcase.html."""
    work = kept.work_folder()
    if work is None:
        return Summary(ELSEWHERE)
    command = [sys.executable, "-m", "vklab", "course", "showcase", "--json", "--work", str(work)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # its progress is shown here
    if done.returncode:
        return Summary("the showcase did not end well; the lines above say why")
    found = json.loads(done.stdout)
    return Summary(_text(found), "showcase.html")


def _text(found: dict[str, Any]) -> str:
    mine = [function for function in found["functions"] if function["mine"]]
    lines = [f"{len(mine)} of {len(found['functions'])} functions are yours", ""]
    for model, rows in found["models"].items():
        lines.append(f"{model:24}{'naive':>12}{'yours':>12}{'vklab':>12}")
        lines += [f"  {row[0]:22}" + "".join(f"{each:>12}" for each in row[1:]) for row in rows]
    return "\n".join(lines)
