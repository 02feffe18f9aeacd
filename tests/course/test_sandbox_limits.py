"""Limits of a sandbox: delegated cgroups, and the watch over a tree of processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.course.sandboxes import SMALL, needs_bubblewrap
from support.runs.waits import LIMIT_S
from vklab_course.grade.sandbox import cgroup as cgroups
from vklab_course.grade.sandbox import command as sandbox
from vklab_course.grade.sandbox import leftovers, probe
from vklab_course.grade.sandbox.cgroup import Cgroup, find_cgroup
from vklab_course.grade.sandbox.limits import Limits, Watch, kill_tree
from vklab_course.grade.session import process as session_process
from vklab_course.places import PROJECT


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
    monkeypatch.setattr(cgroups, "_works", lambda cgroup: True)
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
    monkeypatch.setattr(
        cgroups.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1)
    )
    monkeypatch.setattr(Cgroup, "remove", lambda self: None)
    assert find_cgroup(own, root) is None


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return a folder of plain files whose groups are removed as the kernel removes them."""
    folder = tmp_path / "groups"
    folder.mkdir()
    monkeypatch.setattr(cgroups.Path, "rmdir", shutil.rmtree)
    monkeypatch.setattr(cgroups, "POLL_S", 0.01)
    return folder


def test_each_kernel_has_a_group_that_goes_with_it(groups, tmp_path):
    made = sandbox.Bubblewrap(SMALL, cgroup=Cgroup(groups))
    for number in range(2):
        made.command(["true"], private=tmp_path / str(number))
    first, second = made.cgroup.made
    (first / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert made.cgroup.ran_out()
    made.ended(tmp_path / "0")
    assert not first.exists() and second.exists()
    assert not made.cgroup.ran_out(), "the memory of an ended kernel is not the next one's"
    made.ended(tmp_path / "0")
    made.closed()
    assert list(groups.iterdir()) == [] and made.cgroup.made == []


def leave(folder: Path, pid: int, running: str = "") -> str:
    """Make a group as the process `pid` would; return its name."""
    name = leftovers.fresh_name().replace(f"-{os.getpid()}-", f"-{pid}-")
    (folder / name).mkdir()
    with contextlib.suppress(OSError):  # the kernel makes this file, and takes one process a line
        (folder / name / "cgroup.procs").write_text(running)
    return name


def dead() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_groups_of_graders_that_are_gone_are_removed_and_no_others(groups):
    pid = dead()
    left, mine = leave(groups, pid), leave(groups, os.getpid())
    running = leave(groups, pid, f"{os.getpid()}\n")
    for name in ("vklab-notes", "user.slice", left.replace("vklab-", "vklab-another-", 1)):
        (groups / name).mkdir()
    made = sandbox.Bubblewrap(SMALL, cgroup=Cgroup(groups))
    others = {path.name for path in groups.iterdir()} - {left}
    assert made.swept() == [left] and {mine, running} <= others
    assert {path.name for path in groups.iterdir()} == others
    assert made.swept(pid) == [running], "a session's own process is gone: its group goes, too"
    assert sandbox.Bubblewrap(SMALL).swept() == []


def test_a_session_that_is_killed_leaves_no_group(groups, tmp_path, monkeypatch):
    """The session's process makes a group, and is killed before it can remove it."""
    code = (
        f"import os, sys, time; from pathlib import Path\n"
        f"sys.path.insert(0, {str(PROJECT)!r})\n"
        "from vklab_course.grade.sandbox.cgroup import Cgroup\n"
        "from vklab_course.grade.sandbox.limits import Limits\n"
        f"Cgroup(Path({str(groups)!r})).enter(Limits()); print(flush=True); time.sleep(6000)"
    )
    monkeypatch.setattr(session_process, "_prefix", list)
    popen, begun = subprocess.Popen, []

    def start(command, **more):
        begun.append(popen([sys.executable, "-c", code], stdout=subprocess.PIPE))
        begun[0].stdout.readline()
        return begun[0]

    monkeypatch.setattr(session_process.subprocess, "Popen", start)
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    made = sandbox.Bubblewrap(SMALL, cgroup=Cgroup(groups))
    monkeypatch.setattr(session_process, "START_S", 0.0)
    there = []
    monkeypatch.setattr(
        session_process, "kill_tree", lambda pid: (there.extend(groups.iterdir()), begun[0].kill())
    )
    found = session_process.run_session(notebook, "90", sandbox=made, wall_seconds=0.3)
    assert found["ended"] == "timeout" and len(there) == 1 and not list(groups.iterdir())


REAL = next(
    (
        root
        for root in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))
        if (root / "cgroup.controllers").is_file() and os.access(root, os.W_OK)
    ),
    None,
)


@pytest.mark.skipif(REAL is None, reason="no cgroup v2 that this process may change")
def test_the_real_cgroup_v2_is_swept(tmp_path):
    folder = REAL / f"test-{os.getpid()}"
    folder.mkdir()
    pid = dead()
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        left = leave(folder, pid)
        running = leave(folder, pid, str(sleeping.pid))
        assert (folder / running / "cgroup.procs").read_text().split() == [str(sleeping.pid)]
        group = Cgroup(folder)
        assert group.sweep() == [left] and (folder / running).exists()
        assert group.sweep(pid) == [running] and sleeping.wait(LIMIT_S) < 0
        assert not list(folder.glob("vklab-*"))
    finally:
        sleeping.kill()
        sleeping.wait()
        for path in (*folder.glob("vklab-*"), folder):
            path.rmdir()


# Sockets, and where the code keeps what they hold; 4 processes fill them.
HELD = {
    "pairs": "kept = [socket.socketpair() for _ in range(200)]; ends = sum(kept, ())",
    "connections that nobody accepts": "s = socket.socket(socket.AF_UNIX); "
    "s.bind(f'\\0{os.getpid()}'); s.listen(400); ends = []\n"
    "for _ in range(400):\n"
    "    c = socket.socket(socket.AF_UNIX); c.connect(f'\\0{os.getpid()}')\n"
    "    c.setblocking(False); c.send(bytes(1 << 17)); c.close()",
}


@needs_bubblewrap
@pytest.mark.full
@pytest.mark.parametrize("kind", HELD)
def test_the_watch_counts_what_sockets_can_hold(kind, tmp_path):
    code = (
        f"import os, socket, time\nfor _ in range(2): os.fork()\n{HELD[kind]}\n"
        "for one in ends:\n"
        "    one.setblocking(False)\n"
        "    try:\n"
        "        while True: one.send(bytes(1 << 16))\n"
        "    except BlockingIOError: pass\n"
        "time.sleep(6000)"
    )
    box = sandbox.bubblewrap(SMALL)
    command = box.command([sys.executable, "-c", code], private=tmp_path)
    process = subprocess.Popen(command, start_new_session=True)
    watch = Watch(process.pid, box.limits)
    try:
        process.wait(LIMIT_S)
        assert watch.reason == "out_of_memory" and watch.peak_bytes > SMALL.memory_bytes
    finally:
        watch.stop()
        kill_tree(process.pid)
        process.wait()
        box.closed()


def test_the_command_line_joins_the_cgroup(tree, tmp_path):
    _, root = tree
    made = sandbox.Bubblewrap(SMALL, cgroup=Cgroup(root))
    command = made.command(["true"], private=tmp_path / "private")
    group = next(part for part in command if part.startswith(str(root)))
    assert command[command.index(group) - 1] == "sandbox" and "cgroup.procs" in sandbox.ENTER
    assert "cgroup v2" in sandbox.Bubblewrap(SMALL, cgroup=Cgroup(root)).describe()["limits_by"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_watch_kills_a_tree_above_its_memory():
    code = (
        "import subprocess, sys, time\n"
        "one = \"x = b'x' * (90 << 20); import time; time.sleep(6000)\"\n"
        "for _ in range(2): subprocess.Popen([sys.executable, '-c', one])\n"
        "time.sleep(6000)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    watch = Watch(process.pid, Limits(memory_bytes=150 << 20))
    try:
        process.wait(LIMIT_S)
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
    code = (
        f"import ctypes, mmap, os, time\nSIZE = 100 << 20\n{UNSEEN[kind]}\n"
        "for _ in range(3): os.fork()\n"  # one file, whoever has it
        "print(flush=True); time.sleep(6000)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE
    )
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
    big = str(tmp_path / "big")
    code = f"import time; open({big!r}, 'w').write('x' * (2 << 20))\ntime.sleep(6000)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    watch = Watch(process.pid, SMALL, [tmp_path])
    try:
        process.wait(LIMIT_S)
        assert watch.reason == "written_to"
    finally:
        watch.stop()
        kill_tree(process.pid)
        process.wait()


@needs_bubblewrap
@pytest.mark.parametrize("folder", ["/tmp", "/home/student/a", "/dev/shm"])
def test_empty_files_are_counted_and_stopped(tmp_path, folder):
    """Linux keeps a kilobyte for each of them, in no process and under no size of a folder."""
    code = (
        f"import os\nos.makedirs({folder!r}, exist_ok=True)\n"
        f"for n in range(300_000): os.close(os.open({folder!r} + f'/{{n}}', os.O_CREAT))\n"
    )
    made = sandbox.bubblewrap(dataclasses.replace(SMALL, files=2_000))
    command = made.command([sys.executable, "-c", code], private=tmp_path / "private")
    process = subprocess.Popen(command, start_new_session=True)
    watch = Watch(process.pid, made.limits)
    try:
        assert process.wait(LIMIT_S) != 0 and watch.reason == "too_many_files"
    finally:
        watch.stop()
        kill_tree(process.pid)
        process.wait()
        made.ended(tmp_path / "private")


@needs_bubblewrap
@pytest.mark.full
def test_the_probe_refuses_a_sandbox_without_a_limit_of_files(monkeypatch):
    monkeypatch.setattr("vklab_course.grade.sandbox.limits._files", lambda processes: 0)
    assert "files" in {each.name for each in probe.probe(sandbox.bubblewrap(SMALL))}
