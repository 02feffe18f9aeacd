"""Limits of a sandbox: by a delegated cgroup v2, else by rlimits and a watch on the memory.

The watch adds up the memory of a whole process tree, and kills the tree above the cap.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from vklab.course.grade.sandbox import leftovers

__all__ = ["Cgroup", "Limits", "Watch", "family", "find_cgroup", "kill_tree"]

MIB = 1 << 20
# torch and lavapipe reserve more than they use.
ADDRESS_SPARE, DATA_SPARE = 12 << 30, 1 << 30
POLL_S = 0.1
# Of sockets in /proc: a stream may exceed its buffer by one message; a socket of datagrams holds
# eleven messages of others.
DATAGRAM, OVERFULL, PACKETS = "0002", 2, 12


@dataclass(frozen=True)
class Limits:
    """Most that the code of one submission may use.

    Attributes:
        memory_bytes: memory of all its processes together.
        processes: processes and threads.
        file_bytes: size of one file.
        work_bytes: size of each of its folders.
        open_files: file descriptors of a process.
        cpu_seconds: processor time of one process.
        threads: threads of a numerical library.
        cpus: processors, where a cgroup or a container limits them.
    """

    memory_bytes: int = 2 << 30
    processes: int = 160
    file_bytes: int = 128 * MIB
    work_bytes: int = 256 * MIB
    open_files: int = 512
    cpu_seconds: int = 900
    threads: int = 2
    cpus: float = 2.0

    def prlimit(self) -> list[str]:
        """Return the command line that sets the rlimits, to be put before a command."""
        address, data = self.memory_bytes + ADDRESS_SPARE, self.memory_bytes + DATA_SPARE
        return ["prlimit", f"--as={address}", f"--data={data}", f"--nproc={self.processes}",
                f"--fsize={self.file_bytes}", f"--nofile={self.open_files}", "--core=0",
                f"--cpu={self.cpu_seconds}", "--memlock=0", "--"]  # fmt: skip


@dataclass
class Cgroup:
    """A folder of cgroup v2 in which this process may make groups."""

    folder: Path
    made: list[Path] = field(default_factory=list)

    def enter(self, limits: Limits) -> Path:
        """Make a group with the limits; a process joins it by its file cgroup.procs."""
        group = self.folder / leftovers.fresh_name()
        group.mkdir()
        self.made.append(group)
        (group / "memory.max").write_text(str(limits.memory_bytes))
        (group / "pids.max").write_text(str(limits.processes))
        wanted = {"memory.swap.max": "0", "cpu.max": f"{int(limits.cpus * 100_000)} 100000",
                  "memory.oom.group": "1"}  # fmt: skip
        for name, value in wanted.items():
            with contextlib.suppress(OSError):  # no swap, or processors are not delegated
                (group / name).write_text(value)
        return group

    def ran_out(self) -> bool:
        """Tell whether a process of a group was killed because the memory had run out."""
        for group in self.made:
            with contextlib.suppress(OSError):
                events = (group / "memory.events").read_text().split()
                if int(events[events.index("oom_kill") + 1]) > 0:
                    return True
        return False

    def remove(self, group: Path | None = None) -> None:
        """End what still runs in a group that this process has made, and remove it.

        Args:
            group: the group; None: all of them.
        """
        for one in [group] if group else [*self.made]:
            _removed(one)
            if one in self.made:
                self.made.remove(one)

    def sweep(self, maker: int | None = None) -> list[str]:
        """Remove groups without a process whose maker has ended; return their names.

        Args:
            maker: a process that has ended: remove its groups, with what still runs in them.
        """
        left = []
        for group in sorted(self.folder.glob("vklab-*")):
            if leftovers.is_left(group.name, maker) and (maker or not _populated(group)):
                _removed(group)
                left.append(group.name)
        return left


def _populated(group: Path) -> bool:
    try:
        return bool((group / "cgroup.procs").read_text().strip())
    except OSError:
        return False


def _removed(group: Path) -> None:
    """End what runs in a group, and remove it; its last process may take a moment to end."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")
    for _ in range(100):
        try:
            return group.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            time.sleep(POLL_S)


def find_cgroup(own: Path = Path("/proc/self/cgroup"),
                root: Path = Path("/sys/fs/cgroup")) -> Cgroup | None:  # fmt: skip
    """Return the nearest delegated cgroup v2 with memory and pids, or None.

    Args:
        own: the file that names the cgroup of this process.
        root: where cgroup v2 is mounted.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    if not path or not (root / "cgroup.controllers").is_file():
        return None
    folder = root / path.strip("/")
    while folder != root.parent:
        with contextlib.suppress(OSError):
            given = (folder / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(given) and os.access(folder, os.W_OK):
                group = Cgroup(folder)
                if _works(group):
                    return group
        folder = folder.parent
    return None


def _works(cgroup: Cgroup) -> bool:
    """Try to move a process into a new group."""
    try:
        group = cgroup.enter(Limits())
        script = 'echo $$ > "$0/cgroup.procs"'
        done = subprocess.run(["/bin/sh", "-c", script, str(group)], capture_output=True)
        return done.returncode == 0
    except OSError:
        return False
    finally:
        cgroup.remove()


def family(pid: int) -> list[psutil.Process]:
    """Return a process and everything below it."""
    found = []
    for number in [*_below(pid), pid]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(number))
    return found


def _below(pid: int) -> list[int]:
    """Return the ids of everything below a process; psutil's way reads every process there is."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").is_file():
        try:
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                for child in map(int, text.split()):
                    found += [*_below(child), child]
    return found


def kill_tree(pid: int, seconds: float = 5.0) -> None:
    """Kill a process that leads a group, its group, and everything below it; wait for the end."""
    processes = family(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) != os.getpgid(0):
            os.killpg(os.getpgid(pid), signal.SIGKILL)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    ends = time.monotonic() + seconds
    while any(map(_runs, processes)) and time.monotonic() < ends:
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    """Tell whether a process has not ended; whoever inherited it may be slow to collect it."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Watch(threading.Thread):
    """Watch a process tree: kill it above its memory, and count its processor time.

    Memory is what is resident, anonymous files, and what sockets can hold at most.

    Attributes:
        reason: "out_of_memory", "too_many_files" or "".
        peak_bytes: largest sum that was seen.
    """

    def __init__(self, pid: int, limits: Limits, folders: Sequence[Path] = ()) -> None:
        """Begin to watch.

        Args:
            pid: the first process of the sandbox.
            limits: its limits.
            folders: folders of the host that it may write to: no more than a few small files.
        """
        super().__init__(daemon=True)
        self.pid, self.limits, self.folders = pid, limits, folders
        self.reason, self.peak_bytes = "", 0
        self._ended = threading.Event()
        self._seconds: dict[tuple[int, float], float] = {}
        self.start()

    def run(self) -> None:
        """Poll until `stop`, or until the tree has ended."""
        while not self._ended.wait(POLL_S) and family(self.pid):
            used = self.memory()
            self.peak_bytes = max(self.peak_bytes, used)
            if used > self.limits.memory_bytes:
                self._kill("out_of_memory")
            elif any(_too_full(folder) for folder in self.folders):
                self._kill("too_many_files")

    def memory(self) -> int:
        """Return the memory of the tree in bytes; shared pages are divided among their users."""
        processes = family(self.pid)
        resident = 0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                resident += process.memory_info().rss
        pids = [process.pid for process in processes]
        anonymous = _anonymous_files(pids) + _socket_buffers(pids)
        if resident + anonymous <= self.limits.memory_bytes:
            return resident + anonymous
        return sum(_share(process.pid) for process in processes) + anonymous

    def cpu_seconds(self) -> float:
        """Return the processor time of the tree, of its ended processes as far as seen."""
        for process in family(self.pid):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                own = times.user + times.system
                key = (process.pid, process.create_time())
                self._seconds[key] = max(self._seconds.get(key, 0.0), own)
        return sum(self._seconds.values())

    def stop(self) -> None:
        """End the watch; the process is not touched."""
        self._ended.set()
        if threading.current_thread() is not self:
            self.join()

    def _kill(self, reason: str) -> None:
        self.reason = self.reason or reason
        kill_tree(self.pid)


def _share(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError):
        return 0


def _anonymous_files(pids: Sequence[int]) -> int:
    """Return the bytes of anonymous files and shared memory, of which little need be resident.

    A file that is open counts as it is filled; one that is only mapped, as it is mapped.
    """
    opened: dict[int, int] = {}
    mapped: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):
                        found = os.stat(entry.path)
                        opened[found.st_ino] = found.st_blocks * 512
        own: dict[int, int] = {}
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines():
                if "/memfd:" in line or "/dev/zero (deleted)" in line:
                    addresses, _, _, _, inode = line.split()[:5]
                    first, last = (int(text, 16) for text in addresses.split("-"))
                    own[int(inode)] = own.get(int(inode), 0) + last - first
        for number, size in own.items():
            mapped[number] = max(size, mapped.get(number, 0))
    return sum({**mapped, **opened}.values())


def _socket_buffers(pids: Sequence[int]) -> int:
    """Return the most bytes that sockets can hold in network namespaces other than this process's.

    A namespace lists its sockets, those too that are in no process: connections that nobody has
    accepted. The filter of system calls leaves their buffers at the default size.
    """
    spaces: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            spaces.setdefault(os.stat(f"/proc/{pid}/ns/net").st_ino, pid)
    most = 0
    with contextlib.suppress(OSError, ValueError):
        spaces.pop(os.stat("/proc/self/ns/net").st_ino, None)
        size = int(Path("/proc/sys/net/core/wmem_default").read_text())
        for pid in spaces.values():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
                    most += size * (PACKETS if line.split()[4] == DATAGRAM else OVERFULL)
                sockets = Path(f"/proc/{pid}/net/netlink").read_text().count("\n") - 1
                most += size * OVERFULL * max(0, sockets)
    return most


def _too_full(folder: Path) -> bool:
    try:
        entries = list(os.scandir(folder))
        sizes = sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except OSError:
        return False
    return len(entries) > 64 or sizes > MIB
