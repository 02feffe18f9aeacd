"""Command `vklab test`: the tiers of tests, pytest's command line, and the exit code.

--quick: no test marked slow or full; default: none marked slow; --all: every test; --shard K/N: one
slice of every test; --fuzz: damaged models with new seeds, for VKLAB_FUZZ minutes. Standard library
only; pytest runs in a child process, so that a native crash is reported. Its workers are switched
off by `-n 0`.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["TIERS", "Tier", "exit_code", "main", "pytest_command", "split_arguments"]

SHARD = "--shard"  # pytest has it as an option too: tests/conftest.py
MOST_WORKERS = 4  # each has devices, memory and compilers of its own


@dataclass(frozen=True)
class Tier:
    """One selection of tests: pytest's marker expression, and a limit on the whole run.

    `extra_workers` is the number of workers above the number of cores. `files` restricts the run
    to these test files; `environment` holds defaults of variables.
    """

    flag: str
    markers: str
    limit_s: int
    extra_workers: int = 0
    files: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


TIERS = {
    # Tests wait for children and time limits, so one worker more than cores is faster. Each worker
    # needs 20 s to collect, which the quick tier does not earn back.
    "--quick": Tier("--quick", "not slow and not full", 900),
    "": Tier("", "not slow", 3600, extra_workers=1),
    "--all": Tier("--all", "", 4 * 3600, extra_workers=1),
    SHARD: Tier(SHARD, "", 3600, extra_workers=1),
    "--fuzz": Tier(
        "--fuzz", "", 3600, files=("tests/gpu/test_fuzz.py",), environment={"VKLAB_FUZZ": "10"}
    ),
}


def split_arguments(arguments: Sequence[str]) -> tuple[Tier, list[str]]:
    """Separate the tier's flag from pytest's arguments, which keep `--shard K/N`.

    Raises ValueError for more than one tier.
    """
    flags = {name for argument in arguments if (name := argument.split("=")[0]) in TIERS and name}
    if len(flags) > 1:
        raise ValueError(f"{' and '.join(sorted(flags))} exclude each other; give one of them")
    tier = TIERS["".join(flags)]
    rest = [item for item in arguments if item not in TIERS or item == SHARD]
    if tier.flag == SHARD and len(rest) == 1 + (rest[0] == SHARD):  # a whole slice is recorded
        rest += ["--evidence", f"vklab test {' '.join(rest).replace('=', ' ')}"]
    return tier, rest


def pytest_command(tier: Tier, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs the tests of a tier."""
    markers = ["-m", tier.markers] if tier.markers else []
    # Importing nbval takes seconds: leave the plugin out unless a flag of it is given.
    quiet = [] if any(item.startswith("--nbval") for item in arguments) else ["-p", "no:nbval"]
    # Tests of one file stay on one worker: they share the file's fixtures. Files keep their order:
    # the few and long ones of the course come first.
    count = min((os.cpu_count() or 1) + tier.extra_workers, MOST_WORKERS)
    spread = () if tier.files else ("-n", str(count), "--dist=loadfile", "--no-loadscope-reorder")
    return [sys.executable, "-m", "pytest", *quiet, *markers, *spread, *tier.files, *arguments]


def exit_code(pytest_code: int) -> int:
    """Turn pytest's exit code into that of `vklab test`: 0 passed, 1 failed, 2 could not run.

    pytest's 2 (a file that cannot be imported, or Ctrl-C) and a crash count as failed.
    """
    return {0: 0, 3: 2, 4: 2, 5: 2}.get(pytest_code, 1)


def main(arguments: Sequence[str]) -> int:
    """Run the tests of `vklab test ARGUMENTS` and return the exit code."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "tests").is_dir():
        return _say(
            f"vklab test: no folder {root / 'tests'}; clone the repository to run its tests", 2
        )
    try:
        tier, rest = split_arguments(arguments)
    except ValueError as error:
        return _say(f"vklab test: {error}", 2)
    sys.stdout.flush()  # keep earlier output before pytest's lines
    compileall.compile_dir(root / "vklab", quiet=2, workers=0)  # else each worker compiles it
    name = f"vklab test {tier.flag}".rstrip()
    started = time.monotonic()
    try:
        # The caller's variables win: VKLAB_FUZZ=60 fuzzes for an hour.
        code = subprocess.run(
            pytest_command(tier, rest),
            cwd=root,
            timeout=tier.limit_s,
            env={**tier.environment, **os.environ},
        ).returncode
    except subprocess.TimeoutExpired:
        return _say(f"{name}: FAILED, not finished in {tier.limit_s} s", 1)
    except KeyboardInterrupt:
        return _say("vklab test: interrupted", 130)
    words = {0: "passed", 1: "FAILED", 2: "could not run (pytest says why above)"}
    outcome = f"CRASHED by signal {-code}" if code < 0 else words[exit_code(code)]
    return _say(f"{name}: {outcome} in {time.monotonic() - started:.0f} s", exit_code(code))


def _say(text: str, code: int) -> int:
    print(text, flush=True)
    return code
