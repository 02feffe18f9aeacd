"""Tables of docs/speed.md from the recorded runs.

    python tests/support/rules/speed_page.py --write

A table stands between `<!-- FILE.json RUN TABLE -->` and `<!-- end -->`; the text around the tables
is written by hand. tests/nogpu/test_speed_page.py holds the page to the files. `--plots` draws
the PNG files that the page shows.

`--take FILE...` puts new runs in place first: h200_real.json replaces that file, h200_vkml.1.json
replaces the second run of h200_vkml.json. Floors of a GPU's runs stand under the roofs of its run
of products, GPU_kernels.json, where there is one. The cost of a dispatch is that of any run which
measured it, in runs that did not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vklab.apps.compare.speed import markdown, plots, record

PAGE = Path(__file__).resolve().parents[3] / "docs/speed.md"
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
    elif table == "gaps":
        made = markdown.gaps(data, int(number))
    else:
        made = getattr(markdown, table)(rows, *filter(None, words))
    head = match[0].split("\n", 1)[0]
    return f"{head}\n{made}\n\n<!-- end -->"


def take(files: Sequence[Path]) -> None:
    """Write recorded runs into the page's folder: FILE.json, FILE.N.json for one of several."""
    new: dict[str, dict[int, dict[str, Any]]] = {}
    for path in files:
        stem, number = (path.stem.split(".") + ["0"])[:2]
        new.setdefault(stem, {})[int(number)] = record.read(path)
    for stem, given in new.items():
        best = _best(stem.split("_")[0], new)
        if best:
            given = {
                number: record.under_roofs(run, best) if run["roofs"] else run
                for number, run in given.items()
            }
        target = FOLDER / f"{stem}.json"
        runs = _runs(target) | given
        data = runs[0] if len(runs) == 1 else record.gather([runs[n] for n in sorted(runs)])
        target.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
        print(stem, len(given), "of", len(runs), "runs", len(data["rows"]), "rows")


def _best(gpu: str, new: Mapping[str, Mapping[int, dict[str, Any]]]) -> dict[str, Any] | None:
    """Return the run of single products of a GPU, with a cost of a dispatch; None without one."""
    name = f"{gpu}_kernels"
    best = new.get(name, {}).get(0)
    if best is None and (FOLDER / f"{name}.json").exists():
        best = record.read(FOLDER / f"{name}.json")
    if not best or not best["roofs"]:
        return None
    files = [
        *(run for runs in new.values() for run in runs.values()),
        *map(record.read, sorted(FOLDER.glob(f"{gpu}_*.json"))),
    ]
    found = [
        run["roofs"]["dispatch_us"]
        for file in files
        for run in file.get("runs") or [file]
        if run["roofs"] and run["roofs"].get("dispatch_us")
    ]
    launch = best["roofs"].get("dispatch_us") or min(found, default=0.0)
    return {**best, "roofs": {**best["roofs"], "dispatch_us": launch}}


def _runs(path: Path) -> dict[int, dict[str, Any]]:
    """Return the runs that a file of several holds; {} for a file of one, or none."""
    data = record.read(path) if path.exists() else {}
    rows = record.rows_of(data) if data else []
    return {
        number: {
            **run,
            "models": data["models"],
            "rows": [replace(row, run=0).summary() for row in rows if row.run == number],
        }
        for number, run in enumerate(data.get("runs") or ())
    }


def main() -> int:
    """Write the page, or tell whether it is what the files say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--plots", action="store_true")
    parser.add_argument("--take", nargs="+", type=Path, metavar="FILE")
    asked = parser.parse_args()
    take(asked.take or ())
    text = PAGE.read_text("utf-8")
    made = written(text)
    if asked.write:
        PAGE.write_text(made, "utf-8")
    if asked.plots:
        for old in FOLDER.rglob("*.png"):
            old.unlink()
        for path in sorted(FOLDER.glob("*.json")):
            for drawn in plots.draw(record.read(path), FOLDER / path.stem):
                if str(drawn.relative_to(FOLDER)) in PICTURE.findall(text):
                    print(drawn)
                else:
                    drawn.unlink()
    return 0 if made == text or asked.write else 1


if __name__ == "__main__":
    sys.exit(main())
