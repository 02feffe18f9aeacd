"""Slices of all tests, and the table that says which of them have passed."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.runs import child, evidence, shards, tiers
from vklab.apps import run_tests

PAGE = f"# Evidence\n\nText.\n\n{evidence.BEGIN}\n{evidence.END}\nMore.\n"
LISTED = "import sys, pytest; pytest.main(sys.argv[1:])"
PASSED = {
    "run": "vklab test --shard 2/3",
    "machine": "llvmpipe, 2 cores",
    "tree": "0123456789abcdef",
    "date": "2026-11-30",
    "exit_status": 0,
    "counts": {"passed": 1234, "skipped": 5, "failed": 0, "error": 0},
    "seconds": 480,
}


@given(st.lists(st.text(tiers.CHARACTERS)), st.integers(1, 30))
def test_each_test_is_in_one_slice(names, count):
    for name in names:
        assert sum(shards.holds(name, (number, count)) for number in range(1, count + 1)) == 1


def test_slices_are_the_same_everywhere(monkeypatch):
    names = [f"tests/gpu/test_a.py::test_b[plain-llvmpipe-{number}]" for number in range(12)]
    monkeypatch.setattr(shards, "DEVICE_NAMES", {"llvmpipe"})
    first = [number for number, name in enumerate(names) if shards.holds(name, (1, 4))]
    assert first == [0, 8]
    turned = [f"tests/gpu/test_a.py::test_b[llvmpipe-plain-{number}]" for number in range(12)]
    assert [number for number, name in enumerate(turned) if shards.holds(name, (1, 4))] == first
    monkeypatch.setattr(shards, "DEVICE_NAMES", {"nvidia-h200"})
    others = [name.replace("llvmpipe", "nvidia-h200") for name in names]
    assert [number for number, name in enumerate(others) if shards.holds(name, (1, 4))] == first


@pytest.mark.parametrize("text", ["", "3", "0/3", "4/3", "-1/3", "1/0", "a/b", "1/3/5", "1.0/3"])
def test_a_slice_that_is_none_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="give K/N with 1 <= K <= N"):
        shards.parse(text)


@pytest.mark.parametrize("words", [["--shard", "3/20"], ["--shard=3/20"]])
def test_a_whole_slice_is_recorded_and_a_part_of_it_is_not(words):
    tier, rest = run_tests.split_arguments(words)
    assert tier.markers == "" and rest == [*words, "--evidence", "vklab test --shard 3/20"]
    assert run_tests.split_arguments([*words, "-x"])[1] == [*words, "-x"]
    with pytest.raises(ValueError, match="--all and --shard exclude each other"):
        run_tests.split_arguments([*words, "--all"])


@pytest.mark.full
def test_all_slices_together_run_every_test():
    listing = ["-q", "-p", "no:nbval", "--collect-only", "tests/test_support.py"]
    whole, *parts = (
        {line for line in child.run(LISTED, *listing, *words).stdout.splitlines() if "::" in line}
        for words in ([], ["--shard", "1/2"], ["--shard", "2/2"])
    )
    assert parts[0] | parts[1] == whole and not parts[0] & parts[1] and all(parts)


def test_the_table_keeps_the_newest_run_of_each_name_and_machine():
    page = evidence.merged(PAGE, [PASSED, {**PASSED, "run": "vklab test --shard 10/3"}])
    page = evidence.merged(page, [{**PASSED, "date": "2026-12-01"}, {**PASSED, "machine": "b"}])
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    result = "1,234 passed, 5 skipped, 480 s"
    assert rows == [
        f"| `vklab test --shard 2/3` | b | 0123456789ab | 2026-11-30 | {result} |",
        f"| `vklab test --shard 2/3` | llvmpipe, 2 cores | 0123456789ab | 2026-12-01 | {result} |",
        f"| `vklab test --shard 10/3` | llvmpipe, 2 cores | 0123456789ab | 2026-11-30 | {result} |",
    ]
    assert "Slices of 3 that have not passed: 1, 3." in page
    assert page.startswith("# Evidence\n\nText.\n") and page.endswith("\nMore.\n")
    assert evidence.merged(page, []) == page == evidence.merged(page, [PASSED])


@pytest.mark.parametrize("changes", [{"exit_status": 1}, {"counts": {"passed": 0}}])
def test_a_run_that_did_not_pass_is_not_merged(changes):
    with pytest.raises(ValueError, match="2/3 did not pass"):
        evidence.merged(PAGE, [{**PASSED, **changes}])


def test_a_record_names_the_tree_and_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(evidence, "RECORDS", tmp_path / "records")
    monkeypatch.setenv(evidence.TREE, "0123")
    path = evidence.write('pytest tests/gpu -m "not slow"', 0, {"passed": 1})
    assert path.name == "pytest-tests-gpu-m-not-slow.json"
    record = json.loads(path.read_text("utf-8"))
    assert record["tree"] == "0123" and "cores, Python 3." in record["machine"]
    assert record["run"] in evidence.merged(PAGE, [{**record, "counts": PASSED["counts"]}])


def test_the_hash_of_a_tree_leaves_the_page_out_and_counts_what_is_not_committed(tmp_path):
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def change(name: str, text: str) -> str:
        path = Path(tmp_path, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return evidence.tree_hash(tmp_path)

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    first = change("code.py", "a")
    git("add", "--all")
    git("commit", "-m", "second")
    assert evidence.tree_hash(tmp_path) == first
    assert change("docs/evidence.md", "text") == first
    assert change("code.py", "b") != first
    assert change("code.py", "a") == first != change("new.py", "")
