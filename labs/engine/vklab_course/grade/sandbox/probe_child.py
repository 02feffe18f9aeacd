"""Inside part of the probe: try to get out of a sandbox, and print what succeeded as JSON.

Standard library only; run as a file by `python -I -S probe_child.py JOB`. Every attempt is harmless
where it succeeds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time

__all__ = ["main"]

CLONE_NEWUSER, PTRACE_ATTACH, PTRACE_DETACH = 0x10000000, 16, 17
SPARE_PROCESSES = 40


def main(job: dict) -> dict[str, str]:
    """Return the failed protections by name, each with what succeeded."""
    found: dict[str, str] = {}
    if job["stage"] == "memory":
        return {"memory": "allocated"} if _memory(job["memory_bytes"]) else {}
    if job["stage"] == "files":
        return _many_files(job["files"])
    for attempt in (
        _network,
        _files,
        _write,
        _secrets,
        _privileges,
        _host,
        _mounts,
        _orphan,
        _disk,
        _processes,
        _descriptors,
        _socket_buffers,
    ):
        with contextlib.suppress(OSError):
            attempt(job, found)
    return found


def _network(job: dict, found: dict[str, str]) -> None:
    with contextlib.suppress(OSError), socket.socket() as tcp:
        tcp.settimeout(1)
        tcp.connect(("127.0.0.1", job["port"]))
        found["network"] = f"connected to port {job['port']} of the host"
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as unix:
        unix.settimeout(1)
        unix.connect("\0" + job["abstract"])
        found["network"] = "connected to an abstract socket of the host"
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    if names and "network" not in found:
        found["network"] = f"there are network interfaces: {', '.join(names[:4])}"
    signal.alarm(3)  # a resolver may wait long
    with contextlib.suppress(OSError, TimeoutError):
        socket.getaddrinfo("example.org", 80)
        found["dns"] = "a name of the internet was resolved"
    signal.alarm(0)


def _descriptors(job: dict, found: dict[str, str]) -> None:
    """Send a descriptor: memory in a file on its way through a socket is counted nowhere."""
    if not job["filtered"]:
        return
    ours, theirs = socket.socketpair()
    with ours, theirs, open(os.devnull, "rb") as file:
        socket.send_fds(ours, [b"x"], [file.fileno()])
        found["descriptors"] = "a file was sent through a socket, where its memory is not counted"


def _socket_buffers(job: dict, found: dict[str, str]) -> None:
    """Change the size of a socket's buffer, by which its memory is counted."""
    if not job["filtered"]:
        return
    with socket.socket(socket.AF_UNIX) as one:
        before = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        if one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) != before:
            found["socket_buffers"] = "the size of a socket's buffer was changed"


def _files(job: dict, found: dict[str, str]) -> None:
    for name, paths in job["hidden"].items():
        seen = [path for path in paths if os.path.lexists(path)]
        if seen:
            found[name] = f"{seen[0]} can be seen"


def _write(job: dict, found: dict[str, str]) -> None:
    for folder in (
        "/",
        "/usr",
        "/usr/bin",
        "/etc",
        "/opt",
        "/opt/vklab",
        "/home",
        "/dev",
        "/work",
        "/var/tmp",
        "/run",
        *job["read_only"],
    ):
        path = os.path.join(folder, job["nonce"])
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)
            found["write_outside"] = f"a file was written to {folder}"


def _secrets(job: dict, found: dict[str, str]) -> None:
    for number in ("self", *filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError), open(f"/proc/{number}/environ", "rb") as file:
            if job["secret"].encode() in file.read():
                found["environment"] = f"process {number} has the grader's environment"


def _privileges(job: dict, found: dict[str, str]) -> None:
    with open("/proc/self/status", encoding="ascii") as file:
        status = dict(line.strip().split(":", 1) for line in file if ":" in line)
    if os.getuid() == 0:
        found["privileges"] = "the code runs as root"
    elif int(status["CapEff"], 16) or int(status["CapPrm"], 16):
        found["privileges"] = f"capabilities {status['CapEff'].strip()}"
    elif status.get("NoNewPrivs", "1").strip() != "1":
        found["privileges"] = "programs may gain privileges (no_new_privs is off)"
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != 0:
        found["core"] = "core files may be written"
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(CLONE_NEWUSER) == 0 else 1)
    if os.waitpid(child, 0)[1] == 0:
        found["user_namespaces"] = "a user namespace can be made"
    for path in job["control_sockets"]:
        if os.path.lexists(path):
            found["control_sockets"] = f"{path} can be seen"


def _host(job: dict, found: dict[str, str]) -> None:
    victim = job["victim"]
    with contextlib.suppress(OSError), open(f"/proc/{victim}/cmdline", "rb") as file:
        if job["nonce"].encode() in file.read():
            found["proc"] = "/proc shows processes of the host"
    libc = ctypes.CDLL(None, use_errno=True)
    if "proc" in found and libc.ptrace(PTRACE_ATTACH, victim, 0, 0) == 0:
        found["ptrace"] = "a process of the host can be traced"
        with contextlib.suppress(ChildProcessError):
            os.waitpid(victim, 0)
        libc.ptrace(PTRACE_DETACH, victim, 0, 0)
    if "proc" in found:
        with contextlib.suppress(OSError):
            os.kill(victim, signal.SIGTERM)
            found["signals"] = "a process of the host can be signalled"


def _mounts(job: dict, found: dict[str, str]) -> None:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        lines = [line.split() for line in file]
    allowed = tuple(job["writable"])
    for fields in lines:
        point, options = fields[4], fields[5].split(",")
        kind = fields[fields.index("-") + 1]
        if "rw" in options and point not in allowed and kind not in ("proc", "devtmpfs", "mqueue"):
            known = point.startswith(("/dev/", "/proc", "/sys")) or point == "/etc/resolv.conf"
            if not known:
                found["mounts"] = f"{point} is mounted for writing"


def _orphan(job: dict, found: dict[str, str]) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            command = "import time; time.sleep(120)"
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", command, job["orphan"]])
        os._exit(0)
    os.wait()


def _disk(job: dict, found: dict[str, str]) -> None:
    """Write until something stops it; no more than the cap and a little."""
    size = 0
    made: list[str] = []
    block = b"\0" * (1 << 20)
    path = ""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        while size <= job["work_bytes"] + (8 << 20):
            path = os.path.join(os.getcwd(), f"{job['nonce']}-{len(made)}")
            with open(path, "wb", buffering=0) as file:
                made.append(path)
                for _ in range(16):
                    size += file.write(block)
        found["disk"] = f"{size >> 20} MiB were written"
    except OSError:
        pass
    finally:
        for path in made:
            os.unlink(path)


def _processes(job: dict, found: dict[str, str]) -> None:
    """Fork until something stops it; no more than the cap and a little."""
    children: list[int] = []
    ready, hold = os.pipe()
    try:
        for _ in range(job["processes"] + SPARE_PROCESSES):
            child = os.fork()
            if child == 0:
                os.close(hold)
                os.read(ready, 1)  # until the parent has gone
                os._exit(0)
            children.append(child)
        found["processes"] = f"{len(children)} processes were started"
    except OSError:
        pass
    finally:
        os.close(hold)
        for child in children:
            os.waitpid(child, 0)


def _many_files(most: int) -> dict[str, str]:
    """Make too many empty files. A sandbox that ends everything never returns from here."""
    made = 0
    with contextlib.suppress(OSError):
        for made in range(1, most + 100):
            os.close(os.open(f"/tmp/empty-{made}", os.O_CREAT | os.O_WRONLY))
    time.sleep(1.5)  # time for a watch to see it
    return {"files": f"{made} files were made"} if made > most else {}


def _memory(most: int) -> bool:
    """Allocate half as much again as allowed, in several processes; tell whether all of it stays.

    A sandbox that kills the whole tree never returns from here.
    """
    count, piece = 6, most // 4
    ready, done = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            code = b"\0"
            with contextlib.suppress(MemoryError):
                held = bytearray(os.urandom(4096)) * (piece // 4096)
                code = b"\1" if len(held) else b"\0"
                os.write(done, code)
                time.sleep(3)
            os._exit(0)
    os.close(done)
    ends, got = time.monotonic() + 30, b""
    while len(got) < count and time.monotonic() < ends:
        piece_of = os.read(ready, 1)
        if not piece_of:
            break
        got += piece_of
    time.sleep(1.5)  # time for a watch to see it
    return got.count(b"\1") == count


if __name__ == "__main__":

    def _late(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, _late)
    print(json.dumps(main(json.loads(sys.argv[1]))))
