"""Slang's compiler, loaded once: forks of one process compile the kernels that tests ask for.

slangc spends most of its half second on loading what every kernel may call; the kernel itself takes
a tenth. The output is slangc's, byte for byte (tests/nogpu/test_slang_server.py); what does not
compile goes to slangc itself, with its messages and its time limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from stand_ins.loaded_compiler import ADDRESS, LIMIT_S, Popen

# Processes that answer at a time, and the kernels that each of them compiles: to make one costs a
# fifth of a kernel's time.
FORKS, ANSWERS = 2, 25
KEPT_S = 7 * 24 * 3600.0
# The one function that the library does not export as C.
AS_SLANGC = "_Z28spSetCommandLineCompilerModePN5slang15ICompileRequestE"


def library(program: str) -> str:
    """Return the path of the library that lies beside slangc, or "" where there is none."""
    paths = sorted(Path(program).parent.glob("libslang-compiler.so*"))
    return str(paths[0]) if paths and sys.platform == "linux" else ""


def forget(kept: Path) -> None:
    """Delete outputs that no run has taken for a week."""
    oldest = time.time() - KEPT_S
    for path in kept.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another worker was first
            if path.stat().st_mtime < oldest:
                path.unlink()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[None]:
    """Have the kernels of this process and of its children compiled by a server."""
    from vklab.shader import processes, toolchain

    found = toolchain.find_toolchain("slang")
    path = library(found.program) if found else ""
    if not found or not path or ADDRESS in os.environ:
        yield
        return
    address = str(folder / "slang")
    server = subprocess.Popen(
        [sys.executable, "-S", __file__, path, address, *_first(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if server.stdout and server.stdout.read(1):
            os.environ[ADDRESS] = f"{found.program}{os.pathsep}{address}"
            served = types.SimpleNamespace(**{**vars(subprocess), "Popen": Popen})
            processes.subprocess = served
        yield
    finally:
        processes.subprocess = subprocess
        os.environ.pop(ADDRESS, None)
        server.communicate()  # the end of its input ends it


def _first(folder: Path) -> list[str]:
    """Return the arguments that compile a kernel of the runtime into a folder."""
    from support.graphs import (
        small_models,  # the server itself, which has no packages, imports this file too
    )
    from vklab.shader import source

    name, defines, _ = small_models.stock_variant("reduce")
    return [
        str(source.find(name)),
        *(f"-I{root}" for root in source.roots()),
        *(f"-D{name}={value}" for name, value in defines),
        "-target",
        "spirv",
        "-O0",
        "-entry",
        "main",
        "-stage",
        "compute",
        "-o",
        str(folder / "first.spv"),
    ]


def serve(path: str, address: str, *first: str) -> None:
    """Keep forks that answer connections, until the input of this process ends.

    Args:
        path: the compiler's library.
        address: the socket.
        first: arguments of a first kernel: what the compiler reads for it, forks need not read.
    """
    slang = ctypes.CDLL(path)
    slang.spCreateSession.restype = slang.spCreateCompileRequest.restype = ctypes.c_void_p
    session = ctypes.c_void_p(slang.spCreateSession(None))
    compiled(slang, session, first)
    forks: dict[int, int] = {}  # the number of each process, by a file that tells of its end
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        os.write(1, b"1")
        while True:
            while len(forks) < FORKS:
                fork = os.fork()
                if fork == 0:
                    os._exit(answers(slang, session, listener))
                forks[os.pidfd_open(fork)] = fork
            ready = select.select([0, *forks], [], [])[0]
            for ended in ready:
                if ended:
                    os.waitpid(forks.pop(ended), 0)
                    os.close(ended)
            if 0 in ready:
                break
    for fork in forks.values():
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)


def answers(slang: ctypes.CDLL, session: ctypes.c_void_p, listener: socket.socket) -> int:
    """Compile what some connections ask for, one after the other; the last is the first to fail."""
    for _ in range(ANSWERS):
        connection, _ = listener.accept()
        signal.alarm(LIMIT_S)
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            folder, arguments = json.loads(lines.readline())
            os.chdir(folder)
            if not compiled(slang, session, arguments):
                return 1
            connection.sendall(b"1")
        signal.alarm(0)
    return 0


def compiled(slang: ctypes.CDLL, session: ctypes.c_void_p, arguments: Sequence[str]) -> bool:
    """Tell whether the compiler did what arguments of slangc ask for."""
    request = ctypes.c_void_p(slang.spCreateCompileRequest(session))
    slang[AS_SLANGC](request)
    words = (ctypes.c_char_p * len(arguments))(*map(os.fsencode, arguments))
    good: bool = slang.spProcessCommandLineArguments(request, words, len(words)) >= 0
    good = good and slang.spCompile(request) >= 0
    if good:
        slang.spDestroyCompileRequest(request)
    return good


if __name__ == "__main__":
    serve(*sys.argv[1:])
