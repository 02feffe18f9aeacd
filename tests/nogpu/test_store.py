"""The cache on disk: whole files or none, whatever happens to them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.runs.child import LIMIT_S
from vklab import settings
from vklab.base import store


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a" / "b.bin"
    for data in (b"", b"x", bytes(range(256)) * 100):
        assert store.write(path, data) and store.read(path) == data
    assert [p.name for p in path.parent.iterdir()] == ["b.bin"]


def test_absent_files_and_switched_off_caches(tmp_path):
    assert store.read(tmp_path / "gone") is None
    assert store.read(None) is None and store.write(None, b"x") is False


@pytest.mark.parametrize("damage", [
    lambda data: data[:-1], lambda data: data[1:], lambda data: b"", lambda data: data + b"\0",
    lambda data: bytes([data[0] ^ 1]) + data[1:], lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: bytes(len(data)), lambda data: data[:31],
])  # fmt: skip
def test_a_damaged_file_counts_as_absent(tmp_path, damage):
    path = tmp_path / "f"
    store.write(path, b"precious data")
    path.write_bytes(damage(path.read_bytes()))
    assert store.read(path) is None
    assert store.write(path, b"again") and store.read(path) == b"again"


def test_a_folder_that_cannot_be_made_or_written_is_no_failure(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert store.write(tmp_path / "file" / "x", b"data") is False
    (tmp_path / "target").mkdir()
    assert store.write(tmp_path / "target", b"data") is False
    assert store.read(tmp_path / "target") is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "target"]


def test_a_folder_that_cannot_be_written_is_told_of_once(tmp_path, caplog):
    home = tmp_path / "home"
    home.write_text("no folder, as for a user without a home")  # also root cannot write below it
    words = pytest.warns(UserWarning, match="VKLAB_CACHE")
    with settings.settings(CACHE=str(home)), words as told:
        for kind in ("spirv", "modules", "spirv"):
            assert store.write(store.folder(kind) / "x", b"data") is False
    text = str(told[0].message)
    assert len(told) == 1 and f"{home} cannot be written (Not a directory)" in text
    assert [record.getMessage() for record in caplog.records] == [text]
    assert caplog.records[0].name.startswith("vklab")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)
def test_a_read_only_folder_is_no_failure(tmp_path):
    store.write(tmp_path / "old", b"data")
    tmp_path.chmod(0o555)
    assert store.write(tmp_path / "new", b"data") is False
    assert store.read(tmp_path / "old") == b"data"
    tmp_path.chmod(0o755)


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)
    assert store.write(tmp_path / "x", b"data") is False
    assert list(tmp_path.iterdir()) == []


def test_the_folder_follows_the_switches(tmp_path):
    with settings.settings(CACHE=str(tmp_path)):
        assert store.folder("spirv") == tmp_path / "spirv"
        with settings.settings(DISABLE_CACHE=True):
            assert store.folder("spirv") is None


WRITER = """
import sys
from pathlib import Path
from vklab.base import store
path, letter = Path(sys.argv[1]), sys.argv[2].encode()
for _ in range(300):
    store.write(path, letter * 50000)
    data = store.read(path)
    # Another process's whole file, or ours; never a mixture, and never nothing.
    assert data is not None and len(data) == 50000 and len(set(data)) == 1, data
"""


@pytest.mark.full
def test_two_processes_may_write_at_once(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "f")]
    running = [subprocess.Popen([*command, letter]) for letter in "ab"]
    assert [process.wait(timeout=LIMIT_S) for process in running] == [0, 0]
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
