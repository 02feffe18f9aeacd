"""Tables of docs/speed.md from the recorded runs: `python tests/speed_page.py --write`.

A table stands between `<!-- FILE.json RUN TABLE -->` and `<!-- end -->`; the text around the tables
is written by hand. tests/nogpu/test_speed_page.py holds the page to the files. `--plots` draws
the PNG files that the page shows.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from vklab.bench import markdown, plots, record

PAGE = Path(__file__).resolve().parents[1] / "docs/speed.md"
FOLDER = PAGE.parent / "speed"
BLOCK = re.compile(r"<!-- (\S+\.json) (\d+) (\w+) ?(\S*) ?(\S*) -->\n.*?<!-- end -->", re.S)
PICTURE = re.compile(r"\(speed/(\S+\.png)\)")


def written(text: str) -> str:
    """Return the page with all of its tables made anew."""
    return BLOCK.sub(_block, text)


def _block(match: re.Match[str]) -> str:
    name, number, table, *words = match.groups()
    data = record.read(FOLDER / name)
    run = (data.get("runs") or [data])[int(number)]
    rows = [row for row in record.rows_of(data) if row.run == int(number)]
    if table == "machine":
        made = markdown.machine(run)
    elif table == "kernels":
        made = markdown.kernels(run, *filter(None, words))
    else:
        made = getattr(markdown, table)(rows)
    head = match[0].split("\n", 1)[0]
    return f"{head}\n{made}\n\n<!-- end -->"


def main() -> int:
    """Write the page, or tell whether it is what the files say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--plots", action="store_true")
    asked = parser.parse_args()
    text = PAGE.read_text("utf-8")
    made = written(text)
    if asked.write:
        PAGE.write_text(made, "utf-8")
    if asked.plots:
        for path in sorted(FOLDER.glob("*.json")):
            for drawn in plots.draw(record.read(path), FOLDER / path.stem):
                if str(drawn.relative_to(FOLDER)) in PICTURE.findall(text):
                    print(drawn)
                else:
                    drawn.unlink()
    return 0 if made == text or asked.write else 1


if __name__ == "__main__":
    sys.exit(main())
