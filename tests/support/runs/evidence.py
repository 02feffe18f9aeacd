"""What came out of whole runs: a record of each, and the table of docs/evidence.md.

    python tests/support/runs/evidence.py [RECORD ...]   merge records into the page
    python tests/support/runs/evidence.py --tree         print the hash of this tree

`vklab test --shard K/N`, or pytest with `--evidence NAME`, writes a record: build/evidence/*.json.
A run on a copy without git takes the hash of its tree from the variable TESTS_TREE.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from vklab.errors import SetupError
from vklab.runtime import open_devices

__all__ = ["OUTCOMES", "begin", "merged", "tree_hash", "write"]

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/evidence.md"
RECORDS = ROOT / "build/evidence"
STARTED = time.monotonic()  # tests/conftest.py imports this file
OUTCOMES = ("passed", "skipped", "failed", "error")
TREE = "TESTS_TREE"
BEGIN, END = "<!-- made by tests/support/runs/evidence.py -->", "<!-- end -->"
HEADER = "| run | machine | tree without this page | date | result |\n|---|---|---|---|---|\n"
OF_SLICE = re.compile(r"^vklab test --shard (\d+)/(\d+)$")


def begin() -> None:
    """Note the hash of the tree before the first test: files may change while tests run."""
    os.environ.setdefault(TREE, tree_hash(ROOT))


def write(name: str, exit_status: int, counts: Mapping[str, int]) -> Path:
    """Write the record of a run that ends now.

    Args:
        name: the run, as the table is to call it.
        exit_status: 0 if pytest found nothing wrong.
        counts: the number of tests by outcome.
    """
    record = {
        "run": name,
        "arguments": sys.argv[1:],
        "machine": machine(),
        "tree": os.environ[TREE],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "exit_status": int(exit_status),
        "counts": dict(counts),
        "seconds": round(time.monotonic() - STARTED),
    }
    RECORDS.mkdir(parents=True, exist_ok=True)
    path = RECORDS / f"{re.sub(r'[^0-9A-Za-z]+', '-', name).strip('-')}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return path


def machine() -> str:
    """Return the kind of this machine: its Vulkan devices, cores, and Python."""
    try:
        devices = ", ".join(
            one.driver if one.is_cpu else f"{one.name}, {one.driver}"
            for one in open_devices.devices()
        )
    except SetupError:
        devices = "no device"
    return f"{devices}, {os.cpu_count()} cores, Python {platform.python_version()}"


def tree_hash(root: Path) -> str:
    """Return git's hash of the tree as it lies there, without docs/evidence.md.

    Files that git ignores have no part in it, and neither the index nor a commit is changed.
    Raises subprocess.CalledProcessError where there is no git repository.
    """
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "GIT_INDEX_FILE": str(Path(folder, "index"))}
        for words in (
            ["read-tree", "HEAD"],
            ["add", "--all"],
            ["rm", "-q", "--cached", "--ignore-unmatch", "docs/evidence.md"],
            ["write-tree"],
        ):
            done = subprocess.run(
                ["git", *words], cwd=root, env=variables, check=True, capture_output=True, text=True
            )
    return done.stdout.strip()


def merged(page: str, records: Iterable[Mapping]) -> str:
    """Return the page with the newest passed run of each name and machine in its table.

    Raises ValueError for a run that did not pass.
    """
    before, rest = page.split(BEGIN)
    inside, after = rest.split(END)
    rows = [line.strip("| ").split(" | ") for line in inside.splitlines() if line.startswith("| ")]
    newest = {(row[0], row[1]): row for row in rows if row[0] != "run"}
    for record in records:
        counts, name = record["counts"], f"`{record['run']}`"
        if record["exit_status"] or not counts["passed"]:
            raise ValueError(f"{record['run']} did not pass: {counts}")
        told = f"{counts['passed']:,} passed, {counts['skipped']:,} skipped, {record['seconds']} s"
        row = [name, record["machine"], record["tree"][:12], record["date"], told]
        if row[3] >= newest.get((name, row[1]), row)[3]:  # a record may lie there for long
            newest[name, row[1]] = row
    lines = [f"| {' | '.join(newest[key])} |\n" for key in sorted(newest, key=in_order)]
    return f"{before}{BEGIN}\n\n{missing(newest)}{HEADER}{''.join(lines)}\n{END}{after}"


def in_order(key: tuple[str, str]) -> list[tuple[bool, int, str]]:
    """Return a key that sorts slice 10 behind slice 9."""
    return [
        (part.isdigit(), int(part) if part.isdigit() else 0, part)
        for text in key
        for part in re.split(r"(\d+)", text)
    ]


def missing(keys: Iterable[tuple[str, str]]) -> str:
    """Return a line on the slices of which no run has passed on any machine."""
    passed: dict[int, set[int]] = {}
    for name, _ in keys:
        found = OF_SLICE.match(name.strip("`"))
        if found:
            passed.setdefault(int(found[2]), set()).add(int(found[1]))
    lines = []
    for count, numbers in sorted(passed.items()):
        left = [str(one) for one in range(1, count + 1) if one not in numbers]
        lines.append(f"Slices of {count} that have not passed: {', '.join(left) or 'none'}.\n\n")
    return "".join(lines)


def main(arguments: list[str]) -> int:
    """Print the tree's hash, or merge the records, and say what is wrong with one."""
    if arguments == ["--tree"]:
        print(tree_hash(ROOT))
        return 0
    failed = 0
    paths = [Path(name) for name in arguments] or sorted(RECORDS.glob("*.json"))
    for path in paths:
        try:
            page = merged(PAGE.read_text("utf-8"), [json.loads(path.read_text("utf-8"))])
        except ValueError as error:
            print(f"{path}: not merged: {error}")
            failed = 1
        else:
            PAGE.write_text(page, "utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
