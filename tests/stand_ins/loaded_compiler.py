"""Run slangc's work on the server of tests/support/runs/slang_server.py, in place of a process.

What it has made once is kept, for the run of the tests and for the next one: a test with a cache of
its own asks for the same modules and kernels as others do.
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
import subprocess
import threading
from typing import Any

__all__ = ["ADDRESS", "Popen", "ask", "copied", "keep", "kept"]

# Names the compiler and the socket of its server to this process and its children.
ADDRESS = "SLANG_SERVER"
LIMIT_S = 120


class Popen(subprocess.Popen):
    """Run a command; what the server does not compile, slangc gets."""

    stdin = stdout = stderr = returncode = None

    def __init__(self, command: Any, *others: Any, **options: Any) -> None:
        self.args = command
        self.start = functools.partial(super().__init__, command, *others, **options)
        program = os.environ.get(ADDRESS, "").partition(os.pathsep)[0]
        self.is_for_server = bool(program) and isinstance(command, list) and command[0] == program
        if not self.is_for_server:
            self.start()

    def communicate(self, *arguments: Any, **options: Any) -> Any:
        """Ask the server; return no text for what it has compiled."""
        if self.is_for_server:
            if self.returncode == 0 or _compiled(self.args):
                self.returncode = 0
                return "", ""
            self.is_for_server = False
            self.start()
        return super().communicate(*arguments, **options)

    def wait(self, timeout: float | None = None) -> int:
        """Return at once for what the server has compiled."""
        return 0 if self.is_for_server else super().wait(timeout)

    def kill(self) -> None:
        """End slangc; the server ends its work by itself."""
        if not self.is_for_server:
            super().kill()


def _compiled(command: list[str]) -> bool:
    try:
        address = os.environ[ADDRESS].partition(os.pathsep)[2]
        path = kept(command)
        if copied(command, path):
            return True
        if ask(address, command[1:]):
            keep(command, path)
            return True
    except OSError:
        pass
    return False


def kept(command: list[str]) -> str:
    """Return the path that keeps the output of a command line of slangc, or "" for none.

    It is named by all that has a part in the output: the arguments, the source and what lies in the
    folders that it includes. The name of a folder of modules is a digest of their texts.
    """
    import hashlib

    folder = os.environ.get("TESTS_SHARE", "")
    if not folder or command[-2] != "-o":
        return ""
    digest = hashlib.sha256()
    for argument in command[:-2]:
        path, name = os.path.split(argument.removeprefix("-I"))
        if os.path.basename(path) == "modules":
            digest.update(f"{name}\0".encode())
            continue
        digest.update(f"{argument}\0".encode())
        files = [argument] if os.path.isfile(argument) else []
        if argument.startswith("-I"):
            files = sorted(glob.glob(f"{glob.escape(argument[2:])}/**/*.slang", recursive=True))
        for file in files:
            status = os.stat(file)
            digest.update(digest_of(file, status.st_size, status.st_mtime_ns))
    return os.path.join(folder, "compiled", digest.hexdigest())


@functools.lru_cache(maxsize=1024)
def digest_of(file: str, size: int, changed_ns: int) -> bytes:
    """Return a digest of a file's name and text, which is read again when it has changed."""
    import hashlib

    with open(file, "rb") as text:
        return hashlib.sha256(f"{file}\0".encode() + text.read()).digest()


def copied(command: list[str], path: str) -> bool:
    """Write the output of a command line from what was kept; tell whether there was any."""
    if not path or not os.path.isfile(path):
        return False
    shutil.copyfile(path, command[-1])
    os.utime(path)
    return True


def keep(command: list[str], path: str) -> None:
    """Keep the output of a command line that went well."""
    if path and not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{os.getpid()}-{threading.get_ident()}"
        shutil.copyfile(command[-1], partial)
        os.replace(partial, path)


def ask(address: str, arguments: list[str]) -> bool:
    """Tell whether the server has compiled what a command line asks for."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT_S)
        connection.connect(address)
        connection.sendall(json.dumps([os.getcwd(), arguments]).encode() + b"\n")
        return connection.recv(1) == b"1"
