"""Limits of a sandbox: delegated cgroups, and the watch over a tree of processes."""


from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from vklab.course.grade.sandbox import command as sandbox
from vklab.course.grade.sandbox import limits as sandbox_limits
from vklab.course.grade.sandbox.limits import Cgroup, Limits, Watch, find_cgroup, kill_tree

LACKING = [name for name in ("bwrap", "setpriv", "prlimit") if not shutil.which(name)]
needs_bubblewrap = pytest.mark.skipif(bool(LACKING), reason=f"not installed: {LACKING}")
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0,
                             reason="the setting exists only where root runs the grader")
SMALL = Limits(memory_bytes=600 << 20, work_bytes=16 << 20, processes=60)
IMAGE = "registry.example/vklab@sha256:" + "0" * 64




@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A cgroup v2 of plain files: a delegated slice with the scope of this process in it."""
    root = tmp_path / "cgroup"
    scope = root / "user.slice" / "app.slice" / "my.scope"
    scope.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids")
    (root / "user.slice" / "app.slice" / "cgroup.subtree_control").write_text("memory pids")
    own = tmp_path / "own"
    own.write_text("9:name=systemd:/\n0::/user.slice/app.slice/my.scope\n")
    return own, root


def test_the_nearest_delegated_cgroup_with_memory_and_pids_is_used(tree, monkeypatch):
    own, root = tree
    monkeypatch.setattr(sandbox_limits, "_works", lambda cgroup: True)
    found = find_cgroup(own, root)
    assert found is not None and found.folder == root / "user.slice" / "app.slice"
    group = found.enter(SMALL)
    assert (group / "memory.max").read_text() == str(600 << 20)
    assert (group / "pids.max").read_text() == "60"
    assert (group / "memory.swap.max").read_text() == "0"
    assert not found.ran_out()
    (group / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert found.ran_out()
    (root / "user.slice" / "app.slice" / "cgroup.subtree_control").write_text("pids")
    assert find_cgroup(own, root) is None


def test_a_cgroup_that_cannot_be_entered_is_not_used(tree, monkeypatch):
    own, root = tree
    monkeypatch.setattr(sandbox_limits.subprocess, "run", lambda *_, **__: subprocess.
                        CompletedProcess([], 1))  # fmt: skip
    monkeypatch.setattr(Cgroup, "remove", lambda self: None)
    assert find_cgroup(own, root) is None


def test_the_command_line_joins_the_cgroup(tree, tmp_path):
    _, root = tree
    command = sandbox.Bubblewrap(SMALL, cgroup=Cgroup(root)).command(["true"], private=tmp_path)
    group = next(part for part in command if part.startswith(str(root)))
    assert command[command.index(group) - 1] == "sandbox" and "cgroup.procs" in sandbox.ENTER
    assert "cgroup v2" in sandbox.Bubblewrap(SMALL, cgroup=Cgroup(root)).describe()["limits_by"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_watch_kills_a_tree_above_its_memory():
    code = ("import subprocess, sys, time\n"
            "one = \"x = b'x' * (90 << 20); import time; time.sleep(60)\"\n"
            "for _ in range(2): subprocess.Popen([sys.executable, '-c', one])\n"
            "time.sleep(60)")  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    watch = Watch(process.pid, Limits(memory_bytes=150 << 20))
    try:
        process.wait(30)
        assert watch.reason == "out_of_memory" and watch.peak_bytes > 150 << 20
    finally:
        watch.stop()
        kill_tree(process.pid)
        process.wait()


# Shared memory that is in no page table: of a closed file, and of none.
UNSEEN = {
    "a closed file": "f = os.memfd_create('x'); os.write(f, bytes(SIZE))\n"
                     "ctypes.CDLL(None).mmap(None, ctypes.c_size_t(SIZE), 3, 1, f,\n"
                     "                       ctypes.c_size_t(0)); os.close(f)",
    "an open file": "f = os.memfd_create('x'); os.write(f, bytes(SIZE))",
    "no file": "m = mmap.mmap(-1, SIZE)\n"
               "for n in range(0, SIZE, 1 << 20):\n"
               "    m[n:n + (1 << 20)] = bytes(1 << 20); m.madvise(mmap.MADV_DONTNEED)",
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", UNSEEN)
def test_the_watch_sees_shared_memory_that_is_not_resident(kind):
    code = (f"import ctypes, mmap, os, time\nSIZE = 100 << 20\n{UNSEEN[kind]}\n"
            "for _ in range(3): os.fork()\n"  # one file, whoever has it
            "print(flush=True); time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True,
                               stdout=subprocess.PIPE)  # fmt: skip
    watch = Watch(process.pid, Limits(memory_bytes=1 << 40))
    try:
        assert process.stdout is not None and process.stdout.readline()
        assert 100 << 20 <= watch.memory() < 400 << 20
        watch.limits = SMALL
        assert watch.memory() < SMALL.memory_bytes and not watch.reason
    finally:
        watch.stop()
        kill_tree(process.pid)
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_watch_kills_a_tree_that_fills_a_folder(tmp_path):
    code = (f"import time; open({str(tmp_path / 'big')!r}, 'w').write('x' * (2 << 20))\n"
            "time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    watch = Watch(process.pid, SMALL, [tmp_path])
    try:
        process.wait(30)
        assert watch.reason == "too_many_files"
    finally:
        watch.stop()
        kill_tree(process.pid)
        process.wait()
