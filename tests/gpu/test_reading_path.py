"""The digits without optional folders: each deleted in turn, then all of them at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.rules import architecture_page, folder_rules, reading_path
from support.runs import child

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = str(ROOT / "tests" / "stand_ins")
PRESENT = [folder for folder in folder_rules.OPTIONAL if (ROOT / "vklab" / folder).is_dir()]


def run(root: Path, device: int, *command: str, **environment: str) -> dict:
    """Run a command in a copy, on one device; return the JSON object that it prints."""
    path = child.search_path(root, STAND_INS)  # the stand-ins keep the compiler loaded
    variables = {**os.environ, "VKLAB_DEVICE": str(device), "PYTHONPATH": path, **environment}
    done = subprocess.run([sys.executable, *(command or (reading_path.__file__,))], cwd=root,
                          env=variables, capture_output=True, text=True, timeout=900)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.full
@pytest.mark.parametrize("folder", PRESENT)
def test_the_digits_run_without(folder, tmp_path, device_index):
    found = run(reading_path.without(tmp_path, folder), device_index)
    assert found["right"] >= 0.95
    assert not any(f"{name}/".startswith(f"{folder}/") for name in found["files"])


@pytest.mark.full
def test_the_reading_path_keeps_its_budget(tmp_path, device_index, capsys):
    root = reading_path.without(tmp_path, *PRESENT)
    files = cold_run(root, tmp_path, device_index, "reading path", capsys)
    assert reading_path.total(files) <= reading_path.BUDGET_LINES
    page = architecture_page.PAGE.read_text("utf-8")
    order = architecture_page.reading_order(page)
    unnamed = [name for name in files if name.split("/")[0] not in ("ops", "draw")
               and name.rpartition("/")[2] != "__init__.py"
               and f"`{name.rpartition('/')[2]}`" not in order]  # fmt: skip
    assert not unnamed, f"the reading order does not name {unnamed}"
    require_on_page(files)


@pytest.mark.slow
def test_the_page_has_the_lines_of_a_default_run(tmp_path, device_index, capsys):
    root = reading_path.without(tmp_path)
    require_on_page(cold_run(root, tmp_path, device_index, "default run", capsys))


def cold_run(root: Path, tmp_path: Path, device: int, label: str, capsys) -> dict:
    """Run the digits with an empty cache; print and return the files that were executed."""
    found = run(root, device, VKLAB_CACHE=str(tmp_path / "cold"), **{reading_path.COUNTED: "1"})
    files = found["files"]
    assert found["right"] >= 0.95
    with capsys.disabled():
        print()
        for row in reading_path.table(files):
            print("{:20} {:3} files {:6} lines of code {:6} lines".format(*row))
        print(f"{label}: {reading_path.total(files)} lines of code without ops/, "
              f"{reading_path.total(files, 'all')} lines, {len(files)} modules")  # fmt: skip
    return files


def require_on_page(files: dict) -> None:
    """Check that the architecture page has the number of lines of these files."""
    page = architecture_page.PAGE.read_text("utf-8")
    lines = reading_path.total(files)
    shown = [int(text.replace(",", "")) for text in re.findall(r"\b\d{1,2},\d{3}\b", page)]
    assert min(abs(lines - figure) for figure in shown) <= lines // 50, (
        f"{lines} lines: run python tests/support/rules/architecture_page.py"
    )


@pytest.mark.slow
def test_conformance_keeps_its_counts_on_the_reading_path(tmp_path, device_index):
    jobs = str(os.cpu_count() or 1)
    command = ("-m", "vklab", "conformance", "--kind", "node", "--json", "--jobs", jobs)
    here = run(ROOT, device_index, *command)["counts"]
    there = run(reading_path.without(tmp_path, *PRESENT), device_index, *command)["counts"]
    assert there == here
