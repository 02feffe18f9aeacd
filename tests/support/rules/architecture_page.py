"""Generated parts of docs/architecture.md: the map, the calls of a steady run, tables of its size.

`python tests/support/rules/architecture_page.py` writes them anew;
tests/gpu/test_architecture_page.py compares.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from support.rules import prose_rules, reading_path, steady_run
from vklab.base.draw import svg

ROOT = Path(__file__).resolve().parents[3]
PAGE, MAP = ROOT / "docs" / "architecture.md", ROOT / "docs" / "architecture.svg"
# folder, its text, left, top, width; the folders of UNDER are drawn dashed below their parent
BOXES = (
    ("base/", "files, child processes, drawings, traces; types, errors, settings", 20, 30, 720),
    ("ops/", "what each operator dispatches", 40, 160, 300),
    ("graph/", "ONNX's objects: graph, import, shapes", 40, 240, 300),
    ("plan/", "partition, lowering, memory, barriers", 40, 350, 300),
    ("vulkan/", "device, memory, command buffers, fences", 420, 160, 300),
    ("shader/", "Slang text to SPIR-V, reflection", 420, 240, 300),
    ("runtime/", "session, plan cache, executor, program", 230, 490, 300),
    ("apps/", "commands, language models, quantization, other runtimes", 20, 610, 720),
)
UNDER = {
    "graph/": ("passes",), "plan/": ("fusion", "tuning", "place", "report"),
    "runtime/": ("many", "observe", "compiled", "bound"),
}  # fmt: skip
# The columns: what stands in the corner, left, top and height.
COLUMNS = (
    ("describe: pure data, no driver", 20, 124, 324),
    ("drive: no tensors, no graphs", 400, 124, 324),
)
ARROWS = ((190, 86, 190, 124), (570, 86, 570, 124), (190, 216, 190, 240), (190, 296, 190, 350),
          (300, 448, 300, 490), (460, 448, 460, 490), (380, 576, 380, 610))  # fmt: skip


def drawn_map() -> str:
    """Return the map of the folders as SVG."""
    parts = []
    for words, x, y, height in COLUMNS:
        parts.append(f'<rect x="{x}" y="{y}" width="340" height="{height}" rx="4" fill="#f4f4f4"/>')
        parts.append(svg.text(x + 10, y + 22, words, 'font-size="14"'))
    for x, y, end_x, end_y in ARROWS:
        parts.append(
            f'<path d="M{x},{y}L{end_x},{end_y}" stroke="#555" fill="none"/>'
            f'<circle cx="{end_x}" cy="{end_y}" r="3" fill="#555"/>'
        )
    for name, words, x, y, width in BOXES:
        colour = {20: "#555", 40: "#0072B2", 420: "#D55E00", 230: "#009E73"}[x]
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="56" rx="4" fill="#fff" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(svg.text(x + 10, y + 22, f"vklab/{name}", 'font-size="14"'))
        parts.append(svg.text(x + 10, y + 42, words))
        for number, folder in enumerate(UNDER.get(name, ())):
            left, wide = x + 75 * number, 70
            top = y + 62
            parts.append(
                f'<rect x="{left}" y="{top}" width="{wide}" height="24" rx="3" '
                f'fill="#fff" stroke="{colour}" stroke-dasharray="4 3"/>'
            )
            parts.append(svg.text(left + 6, top + 16, folder))
    parts.append(
        svg.text(
            20,
            690,
            "A line leads from a folder down to one that imports it, at "
            "the dot. Dashed: sub-folders that one model on one device can do "
            "without.",
        )
    )
    title = (
        "Eight folders of vklab: base below all; ops, graph and plan describe; vulkan and "
        "shader drive; both meet in runtime; apps stand on it"
    )
    return svg.svg(title, 760, 706, parts)


def run_text(calls: Sequence[steady_run.Call]) -> str:
    """Return the calls of a steady run, one a line, indented by depth."""
    rows = []
    for depth, file, name, _ in calls:
        path = file.rpartition("/vklab/")[2]
        rows.append(f"{'  ' * (depth - 1)}{name}".ljust(40) + path)
    return "\n".join(["```", *rows, "```"])


def lines_text(files: dict[str, dict[str, int]]) -> str:
    """Return the table of the files that a default run of the digits executes."""
    rows = [
        "| folder | files | logical lines | all lines | logical lines of functions that ran |",
        "|---|---|---|---|---|",
    ]
    read = reading_path.on_path(files)
    for row in reading_path.table({**read, **{n: c for n, c in files.items() if "ops/" in n}}):
        rows.append("| `{}` | {} | {:,} | {:,} | {:,} |".format(*row))
    for label, counted in (
        ("**reading path**, without `ops/`", read),
        ("all of the run, without `ops/`", files),
    ):
        sums = [reading_path.total(counted, kind) for kind in ("code", "all", "ran")]
        count = sum(not name.startswith("ops/") for name in counted)
        rows.append("| {} | {} | {:,} | {:,} | {:,} |".format(label, count, *sums))
    return "\n".join(rows)


def compared_text(files: dict[str, dict[str, int]], calls: list[steady_run.Call]) -> str:
    """Return the table of figures before one kind of plan, counted once, and now.

    Args:
        files: the files of a default run.
        calls: the calls of a steady run.
    """
    rows = (
        ("modules that a default run imports", "180", str(len(files))),
        ("Python calls of a steady run", "63", str(len(calls))),
        ("frames deep", "12", str(max(depth for depth, *_ in calls))),
        ("classes whose methods a steady run calls", "8", str(len(steady_run.classes(calls)))),
        (
            "public classes of the runtime's folders",
            "142",
            str(len(prose_rules.public_classes(ROOT))),
        ),
        ("names that several of them share", "10", "0"),
        ("classes of plans; classes that run them", "3; 3", "1; 1"),
        ("import cycles between files", "5", "0"),
    )
    lines = ["| | before | now |", "|---|---|---|", *("| {} | {} | {} |".format(*r) for r in rows)]
    return "\n".join(lines)


def reading_order(page: str) -> str:
    """Return the section of the page that names the files in the order to read them."""
    start = page.index("## Reading order")
    return page[start : page.index("\n## ", start)]


def block(page: str, name: str) -> str:
    """Return the text between the markers of a generated part."""
    found = re.search(rf"<!-- begin {name} -->\n(.*?)\n?<!-- end {name} -->", page, re.S)
    assert found, f"docs/architecture.md has no part {name!r}"
    return found[1]


def with_block(page: str, name: str, text: str) -> str:
    """Return the page with another text between the markers of a generated part."""
    old = f"<!-- begin {name} -->\n{block(page, name)}"
    rest = page[page.index(old) + len(old) :].lstrip("\n")
    return f"{page[: page.index(old)]}<!-- begin {name} -->\n{text}\n{rest}"


def described() -> dict[str, dict[str, int]]:
    """Return the files that a load and a run of the digits execute, with their lines."""
    with tempfile.TemporaryDirectory() as folder:
        images = np.load(ROOT / "data" / "digits.npz")["images"][:50]
        np.savez(f"{folder}/inputs.npz", image=images)
        command = [
            sys.executable,
            reading_path.__file__,
            str(ROOT / "data" / "digits_cnn.onnx"),
            f"{folder}/inputs.npz",
        ]
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "VKLAB_CACHE": f"{folder}/cache", reading_path.PROFILED: "1"},
        )
        files: dict[str, dict[str, int]] = json.loads(done.stdout)["files"]
        return files


def main() -> None:
    """Write the generated parts anew."""
    page = PAGE.read_text("utf-8")
    files, calls = described(), steady_run.steady_calls(0)
    page = with_block(page, "lines", lines_text(files))
    page = with_block(page, "compared", compared_text(files, calls))
    page = with_block(page, "run", run_text(calls))
    PAGE.write_text(page, "utf-8")
    MAP.write_text(drawn_map(), "utf-8")


if __name__ == "__main__":
    main()
