"""Run slangc's work on the server that tests/slang_server.py starts, in place of a process."""

from __future__ import annotations

import functools
import os
import subprocess
from typing import Any

__all__ = ["ADDRESS", "Popen", "ask"]

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
        return ask(os.environ[ADDRESS].partition(os.pathsep)[2], command[1:])
    except OSError:
        return False


def ask(address: str, arguments: list[str]) -> bool:
    """Tell whether the server has compiled what a command line asks for."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT_S)
        connection.connect(address)
        connection.sendall(json.dumps([os.getcwd(), arguments]).encode() + b"\n")
        return connection.recv(1) == b"1"
