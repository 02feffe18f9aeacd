"""Keep `checksums.json`: the sha256 of every data file. Standard library only.

The scripts of this folder write it; `python data/checksums.py` exits 1 if a file differs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

__all__ = ["DATA", "update", "verify"]

DATA = Path(__file__).resolve().parent
_TABLE = DATA / "checksums.json"


def _sha256(name: str) -> str:
    return hashlib.sha256((DATA / name).read_bytes()).hexdigest()


def update(*names: str) -> None:
    """Record the checksums of `names`; those of other files stay as they are."""
    table = json.loads(_TABLE.read_text()) if _TABLE.exists() else {}
    table |= {name: _sha256(name) for name in names}
    # Bytes, so that Windows does not turn the line ends into CRLF.
    _TABLE.write_bytes((json.dumps(table, indent=2, sort_keys=True) + "\n").encode())


def verify() -> int:
    """Print each data file with its verdict; return 0 when all are as recorded, else 1."""
    failed = 0
    for name, expected in json.loads(_TABLE.read_text()).items():
        if not (DATA / name).is_file():
            verdict = "MISSING"
        elif (found := _sha256(name)) != expected:
            verdict = f"CHANGED: sha256 is {found}, checksums.json says {expected}"
        else:
            verdict = "ok"
        failed += verdict != "ok"
        print(f"{name}: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(verify())
