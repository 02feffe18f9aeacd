"""`vklab test`: which tests run in each tier, and what the end of the run means.

quick: no test marked slow or full (minutes at most); default: none marked slow; all: everything;
fuzz: damaged models with new seeds, for VKLAB_FUZZ minutes.
Standard library only; pytest runs as a child, so that a native crash ends in a line, not silence,
with a worker for each core: most tests keep one busy. `-n 0` runs them one after the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["TIERS", "Tier", "exit_code", "main", "pytest_command", "split_arguments"]

MOST_WORKERS = 4  # each has devices, memory and compilers of its own


@dataclass(frozen=True)
class Tier:
    """One selection of tests: pytest's marker expression, and a limit on the whole run.

    `files` are all that run, where not everything does; `environment` tells tests to take longer.
    """

    flag: str
    markers: str
    limit_s: int
    files: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


TIERS = {
    "--quick": Tier("--quick", "not slow and not full", 900),
    "": Tier("", "not slow", 3600),
    "--all": Tier("--all", "", 4 * 3600),
    "--fuzz": Tier("--fuzz", "", 3600, ("tests/gpu/test_fuzz.py",), {"VKLAB_FUZZ": "10"}),
}


def split_arguments(arguments: Sequence[str]) -> tuple[Tier, list[str]]:
    """Separate the tier's flag from the arguments that pytest gets.

    Raises ValueError when more than one tier is asked for.
    """
    flags = {argument for argument in arguments if argument in TIERS and argument}
    if len(flags) > 1:
        raise ValueError("--quick, --all and --fuzz exclude each other; give one of them")
    tier = TIERS[flags.pop() if flags else ""]
    return tier, [argument for argument in arguments if argument not in TIERS]


def pytest_command(tier: Tier, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs the tests of a tier."""
    markers = ["-m", tier.markers] if tier.markers else []
    # nbval, unless asked for, only costs the seconds that importing it takes.
    quiet = [] if any(item.startswith("--nbval") for item in arguments) else ["-p", "no:nbval"]
    # Tests of one file stay together: they share what its fixtures have made. The files keep their
    # order, not that of their numbers of tests: those of the course, few and long, come first.
    count = min(os.cpu_count() or 1, MOST_WORKERS)
    spread = ["-n", str(count), "--dist", "loadfile", "--no-loadscope-reorder"]
    workers = [] if tier.files else spread
    return [sys.executable, "-m", "pytest", *quiet, *markers, *workers, *tier.files, *arguments]


def exit_code(pytest_code: int) -> int:
    """Turn pytest's exit code into ours: 0 passed, 1 failed, 2 could not run.

    pytest's 2 (a file that cannot be imported, or Ctrl-C) and a crash count as failed.
    """
    if pytest_code == 0:
        return 0
    return 2 if pytest_code in (3, 4, 5) else 1


def main(arguments: Sequence[str]) -> int:
    """Run the tests that `vklab test ARGUMENTS` asks for and return the exit code."""
    root = Path(__file__).resolve().parent.parent
    if not (root / "tests").is_dir():
        return _say("vklab test: the tests are in the source tree only; clone the repository", 2)
    try:
        tier, rest = split_arguments(arguments)
    except ValueError as error:
        return _say(f"vklab test: {error}", 2)
    sys.stdout.flush()  # what was printed before stays before pytest's lines
    started = time.monotonic()
    try:
        # A longer time than the tier's, VKLAB_FUZZ in minutes, stays.
        code = subprocess.run(pytest_command(tier, rest), cwd=root, timeout=tier.limit_s,
                              env={**tier.environment, **os.environ}).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return _say(f"vklab test {tier.flag}: FAILED, not finished in {tier.limit_s} s", 1)
    except KeyboardInterrupt:
        return _say("vklab test: interrupted", 130)
    seconds = time.monotonic() - started
    words = {0: "passed", 1: "FAILED", 2: "could not run (pytest says why above)"}
    outcome = f"CRASHED by signal {-code}" if code < 0 else words[exit_code(code)]
    name = f"vklab test {tier.flag}".rstrip()
    return _say(f"{name}: {outcome} in {seconds:.0f} s", exit_code(code))


def _say(text: str, code: int) -> int:
    print(text, flush=True)
    return code
