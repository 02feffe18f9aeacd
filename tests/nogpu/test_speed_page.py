"""docs/speed.md holds the recorded runs: its tables are theirs, its commands and pictures exist."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import typer.main

from support.rules import speed_page
from vklab.apps.cli import app
from vklab.apps.compare.models import catalogue
from vklab.apps.compare.speed import record

TEXT = speed_page.PAGE.read_text("utf-8")
FILES = sorted(speed_page.FOLDER.glob("*.json"))


def test_the_tables_are_those_of_the_files():
    assert speed_page.written(TEXT) == TEXT, "python tests/support/rules/speed_page.py --write"
    changed = re.sub(r"(?m)^\| (\w+) \| (\S+)", r"| \1 | 12345", TEXT, count=1)
    assert changed != TEXT and speed_page.written(changed) == TEXT


def test_every_file_is_in_the_page_and_every_picture_exists():
    assert FILES and {path.name for path in FILES} == {
        m[1] for m in speed_page.BLOCK.finditer(TEXT)
    }
    named = speed_page.PICTURE.findall(TEXT)
    drawn = {str(path.relative_to(speed_page.FOLDER)) for path in speed_page.FOLDER.rglob("*.png")}
    assert named and {*named} == drawn
    assert all(len(words) > 20 for words in re.findall(r"!\[(.*?)\]", TEXT)), "alternative text"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_names_machine_driver_date_versions_and_clocks(path):
    data = record.read(path)
    for run in data.get("runs") or [data]:
        about = run["machine"]
        assert (
            about["device"] and about["driver"] and re.match(r"2\d{3}-\d\d-\d\d", about["started"])
        )
        assert {"vklab", "python"} <= about["versions"].keys() and "sm_mhz" in about["clocks"]
    for row in record.rows_of(data):
        assert (row.status == "ran") == (row.median_us is not None), row
        assert row.status == "ran" or row.reason, row


def test_new_runs_take_the_place_of_old_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(speed_page, "FOLDER", tmp_path)
    [path] = [path for path in FILES if path.stem == "h200_kernels"]
    data = record.read(path)
    low = {**data, "roofs": {**data["roofs"], "bytes_per_s": 1.0}}
    files = {
        name: tmp_path / "new" / name
        for name in ("h200_a.0.json", "h200_a.1.json", "h200_kernels.json")
    }
    (tmp_path / "new").mkdir()
    for name, file in files.items():
        file.write_text(json.dumps(data if "kernels" in name else low))
    speed_page.take(list(files.values()))
    both = record.read(tmp_path / "h200_a.json")
    assert [run["roofs"] for run in both["runs"]] == [data["roofs"]] * 2  # of the products' run
    assert len(both["rows"]) == 2 * len(data["rows"]) and both["rows"][-1]["run"] == 1
    later = {**low, "machine": {**low["machine"], "started": "2027-01-01"}}
    files["h200_a.1.json"].write_text(json.dumps(later))
    speed_page.take([files["h200_a.1.json"]])
    again = record.read(tmp_path / "h200_a.json")
    assert again["runs"][0] == both["runs"][0] and again["rows"] == both["rows"]
    assert again["runs"][1]["machine"]["started"] == "2027-01-01"


def test_the_commands_of_the_page_have_these_options():
    bench = typer.main.get_command(app.build("bench")).commands["bench"]
    options = {
        name: {spelling for option in command.params for spelling in option.opts}
        for name, command in bench.commands.items()
    }
    lines = [line.split("#")[0] for line in TEXT.splitlines() if line.startswith("vklab bench")]
    assert len(lines) > 3
    for line in lines:
        words = shlex.split(line)
        assert {word for word in words if word.startswith("-")} <= options[words[2]], line
        chosen = [
            word for before, word in zip(words, words[1:], strict=False) if before == "--suite"
        ]
        assert {*chosen} <= {*catalogue.SUITES}, line
