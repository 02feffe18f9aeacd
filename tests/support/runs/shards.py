"""Slices of all tests: a test is in the same slice on every machine, whatever other tests exist."""

from __future__ import annotations

import argparse
import hashlib
import re

__all__ = ["DEVICE_NAMES", "holds", "parse"]

# Parts of test ids that differ between machines; tests/gpu/conftest.py fills this in.
DEVICE_NAMES: set[str] = set()


def parse(text: str) -> tuple[int, int]:
    """Return K and N of the text K/N.

    Raises argparse.ArgumentTypeError for anything but two numbers with 1 <= K <= N.
    """
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    number, count = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= count:
        raise argparse.ArgumentTypeError(
            f"{text!r} names no slice; give K/N with 1 <= K <= N, such as 3/20"
        )
    return number, count


def holds(nodeid: str, shard: tuple[int, int]) -> bool:
    """Tell whether slice K of N has the test with this id."""
    for name in DEVICE_NAMES:
        nodeid = nodeid.replace(name, "device")
    number, count = shard
    # The order of the parameters depends on whether pytest is given a folder.
    words = "-".join(sorted(re.split(r"[-\[\]]", nodeid)))
    digest = hashlib.sha256(words.encode("utf-8", "backslashreplace")).digest()
    return int.from_bytes(digest, "big") % count == number - 1
