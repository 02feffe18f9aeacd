"""Sandbox as a session uses it: a command line, and what is removed behind it."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vklab_course.grade.sandbox.limits import Limits

__all__ = ["HOME", "Program", "Sandbox"]

HOME = "/home/student"


@dataclass(frozen=True)
class Program:
    """Program to run in a sandbox; the fields are the arguments of `Sandbox.command`."""

    argv: Sequence[str]
    writable: Sequence[Path]
    readable: Mapping[str, Path]
    variables: Mapping[str, str]
    private: Path


class Sandbox(abc.ABC):
    """A sandbox: bubblewrap, or a container.

    Attributes:
        limits: most memory, processes, bytes and seconds.
        extra: further folders of the host to read, by their path inside.
    """

    limits: Limits
    extra: Mapping[str, Path]

    def command(
        self,
        argv: Sequence[str],
        *,
        writable: Sequence[Path] = (),
        readable: Mapping[str, Path] | None = None,
        variables: Mapping[str, str] | None = None,
        private: Path,
    ) -> list[str]:
        """Return the command line that runs `argv` in the sandbox.

        Args:
            argv: the program and its arguments, as paths inside; in a container, the first is the
                image's Python.
            writable: folders of the host that keep their path and may be written.
            readable: further files and folders of the host, by their path inside.
            variables: environment variables of the program; there are few others.
            private: folder outside the sandbox, for what the sandbox itself needs.
        """
        private.mkdir(parents=True, exist_ok=True)
        shown = {**self.extra, **(readable or {})}
        return self._command(Program(argv, writable, shown, variables or {}, private))

    @abc.abstractmethod
    def _command(self, program: Program) -> list[str]:
        """Return the command line that runs a program."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the sandbox as plain data, for the result of a submission."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what `from_settings` needs to make the sandbox again in another process."""

    @abc.abstractmethod
    def ended(self, private: Path) -> None:
        """End and remove what the last command line with this private folder has left."""

    @abc.abstractmethod
    def swept(self, maker: int | None = None) -> list[str]:
        """Remove cgroups or containers of processes that have ended; return their names.

        Args:
            maker: the process that made them; None: all of this host whose maker is gone.
        """

    def closed(self) -> None:
        """Remove what this process has made and `ended` has not removed."""
        self.swept(os.getpid())
