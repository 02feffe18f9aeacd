"""Limits of a sandbox: by rlimits, and a watch on the memory; cgroup.py has those of cgroup v2.

The watch adds up the memory of a whole process tree, and kills the tree above the cap.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Limits", "Watch", "family", "kill_tree"]

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
        files: files and folders in its folders: each takes a kilobyte of Linux, empty or not.
        open_files: file descriptors of a process.
        cpu_seconds: processor time of one process.
        threads: threads of a numerical library.
        cpus: processors, where a cgroup or a container limits them.
    """

    memory_bytes: int = 2 << 30
    processes: int = 160
    file_bytes: int = 128 * MIB
    work_bytes: int = 256 * MIB
    files: int = 20_000
    open_files: int = 512
    cpu_seconds: int = 900
    threads: int = 2
    cpus: float = 2.0

    def prlimit(self) -> list[str]:
        """Return the command line that sets the rlimits, to be put before a command."""
        address, data = self.memory_bytes + ADDRESS_SPARE, self.memory_bytes + DATA_SPARE
        return [
            "prlimit",
            f"--as={address}",
            f"--data={data}",
            f"--nproc={self.processes}",
            f"--fsize={self.file_bytes}",
            f"--nofile={self.open_files}",
            "--core=0",
            f"--cpu={self.cpu_seconds}",
            "--memlock=0",
            "--",
        ]


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
        reason: "out_of_memory", "too_many_files", "written_to" (one of the folders) or "".
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
            elif _files(family(self.pid)) > self.limits.files:
                self._kill("too_many_files")
            elif any(_too_full(folder) for folder in self.folders):
                self._kill("written_to")

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


def _files(processes: Sequence[psutil.Process]) -> int:
    """Return the files and folders in memory, in mount namespaces other than this process's."""
    spaces: dict[int, int] = {}
    count: dict[int, int] = {}  # by file system
    for process in processes:
        with contextlib.suppress(OSError):
            spaces.setdefault(os.stat(f"/proc/{process.pid}/ns/mnt").st_ino, process.pid)
    with contextlib.suppress(OSError):
        spaces.pop(os.stat("/proc/self/ns/mnt").st_ino, None)
    for pid in spaces.values():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/mounts").read_text("utf-8", "replace").splitlines():
                _, point, kind, _ = line.split(" ", 3)
                if kind == "tmpfs":
                    with contextlib.suppress(OSError):
                        root = os.open(f"/proc/{pid}/root{point}", os.O_PATH | os.O_NOFOLLOW)
                        try:
                            facts = os.statvfs(root)
                            count[os.stat(root).st_dev] = facts.f_files - facts.f_ffree
                        finally:
                            os.close(root)
    return sum(count.values())


def _too_full(folder: Path) -> bool:
    try:
        entries = list(os.scandir(folder))
        sizes = sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except OSError:
        return False
    return len(entries) > 64 or sizes > MIB
