"""Damaged GGUF files of a language model: refused with a reason, or planned; never a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.language import gguf_fuzz
from support.runs import child


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_planned(tmp_path, count):
    command = [sys.executable, str(Path(gguf_fuzz.__file__)), str(tmp_path), "0", str(count)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=child.env(),
        check=False,
        timeout=8 * child.LIMIT_S,
    )
    seed = (tmp_path / "seed.txt").read_text()
    assert done.returncode == 0, f"seed {seed}, exit code {done.returncode}\n{done.stderr[-5000:]}"
    counts = json.loads(done.stdout)
    assert sum(counts.values()) == count
    parts = ("reader", "tokenizer", "graph", "planned")
    assert all(any(part in outcome for outcome in counts) for part in parts), counts


@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_the_same_seed_gives_the_same_file(tmp_path, kind):
    file = gguf_fuzz.whole(kind)
    first, second = (gguf_fuzz.damaged(tmp_path, 7, file, b"") for _ in range(2))
    assert first == second and first[:4] == b"GGUF"
