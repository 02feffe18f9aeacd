"""Kernel of one submission: a process in the sandbox, reached over sockets in one folder.

Every wait has an end, every message a size, and whatever arrives is data: a kernel may forge all
of it. A kernel that breaks a limit is killed with everything that it started.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from queue import Empty
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import channel_socket_types

from vklab_course.grade.sandbox.base import Sandbox
from vklab_course.grade.sandbox.limits import Watch, kill_tree

__all__ = ["GradedKernel", "KernelEnded"]

START_S, SLICE_S, PATH_BYTES = 60.0, 0.2, 107
SEND_MS = 5000  # a socket without a peer would wait for one for ever
CHANNELS = ("shell", "iopub", "stdin", "hb", "control")
# Bytes of one message, and messages that may wait: a kernel must not fill the grader's memory.
MESSAGE_BYTES = {"shell": 48 << 20, "iopub": 2 << 20, "control": 1 << 20}
WAITING = {"shell": 4, "iopub": 200, "control": 10}
# Most output of one cell: longer than any plot, shorter than any flood.
CELL_BYTES, CELL_MESSAGES = 16 << 20, 5000
REPLY = re.compile(r"'[A-Za-z0-9+/=]*'")


class KernelEnded(Exception):
    """A kernel that is no more: `status` is timeout, out_of_memory or error."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Client(BlockingKernelClient):
    """A client that never connects twice: a kernel could put another socket in the old place.

    A connection ends with a message that is longer than its limit; `drops` has a socket for each
    channel, readable from then on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.drops: dict[str, Any] = {}

    def _create_connected_socket(self, channel: str, identity: bytes | None = None) -> Any:
        made = self.context.socket(channel_socket_types[channel])
        made.linger = 0
        made.sndtimeo = SEND_MS
        made.setsockopt(zmq.RECONNECT_IVL, -1)
        made.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES[channel])
        made.setsockopt(zmq.RCVHWM, WAITING[channel])
        if identity:
            made.identity = identity
        self.drops[channel] = made.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        made.connect(self._make_url(channel))
        return made

    def close(self) -> None:
        """Close the channels that were opened; `stop_channels` would open the others first."""
        for channel in (self._shell_channel, self._iopub_channel, self._control_channel):
            if channel is not None:
                channel.close()
        self.context.destroy(linger=0)


class GradedKernel:
    """A kernel in the sandbox, with the methods that nbval calls on its own kernels."""

    language = "python"

    def __init__(self, sandbox: Sandbox, private: Path, seconds: float = START_S) -> None:
        """Start a kernel. Raises KernelEnded if it does not answer.

        Args:
            sandbox: where it runs.
            private: folder outside the sandbox.
            seconds: time limit of the start.
        """
        self.sandbox, self.private, self.ended, self.problem = sandbox, private, False, ""
        self.asked = False
        top = tempfile.gettempdir()
        # A socket's path has at most 107 bytes.
        short = top if len(top) < PATH_BYTES - 20 else "/tmp"
        self.folder = Path(tempfile.mkdtemp(prefix="vk-", dir=short))
        try:
            self._start(private)
            self.allow(seconds, seconds)
            self._connect()
        except BaseException as error:
            self.end()
            if isinstance(error, KernelEnded | KeyboardInterrupt | SystemExit):
                raise
            raise KernelEnded("error", f"the kernel could not be started: {error}") from error

    def _start(self, private: Path) -> None:
        file = self.folder / "kernel.json"
        ports = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
        self.info: Any = {
            "transport": "ipc",
            "ip": str(self.folder / "k"),
            **ports,
            "key": secrets.token_hex(32),
            "signature_scheme": "hmac-sha256",
        }
        file.write_text(json.dumps(self.info), encoding="utf-8")
        # A notebook's kernel is started as Jupyter starts it, without a history file on disk.
        argv = [
            sys.executable,
            "-m",
            "ipykernel_launcher",
            "-f",
            str(file),
            "--HistoryManager.enabled=False",
        ]
        command = self.sandbox.command(argv, writable=[self.folder], private=private)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        self.watch = Watch(self.process.pid, self.sandbox.limits, [self.folder])

    def _connect(self) -> None:
        for name in ("shell", "iopub", "control"):
            path = Path(f"{self.info['ip']}-{self.info[f'{name}_port']}")
            while not _listens(path):
                self._check()
                time.sleep(0.02)
        if os.geteuid() == 0:  # from here on nobody inside can put other sockets there
            os.chown(self.folder, 0, 0)
            self.folder.chmod(0o755)
        self.kc = _Client()
        self.kc.load_connection_info(self.info)
        self.kc.start_channels(stdin=False, hb=False)
        while True:
            asked = self.kc.kernel_info()
            try:
                self.await_reply(asked, 10)
                self.await_idle(asked, 1)
                return
            except Empty:
                self._check()

    # ------------------------------------------------------------------------- what nbval calls

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        """Send a cell; return the id of the request."""
        return self._execute(cell_input, stop_on_error=False)

    def _execute(self, code: str, **more: Any) -> str:
        try:
            return str(self.kc.execute(code, store_history=False, allow_stdin=False, **more))
        except zmq.Again:
            self._fail("error", "closed its connection")
            raise

    def get_message(self, stream: str, timeout: float | None = None) -> Any:
        """Return the next message. Raises Empty after the timeout, KernelEnded at a limit."""
        channel = getattr(self.kc, f"{stream}_channel").socket
        ends = time.monotonic() + (1e9 if timeout is None else timeout)
        while True:
            self._check()
            left = ends - time.monotonic()
            if channel.poll(int(1000 * max(0.0, min(left, SLICE_S)))):
                return self._received(channel, stream)
            if self.kc.drops[stream].poll(0):
                time.sleep(SLICE_S)  # a process that has died is told as such
                self._check()
                most = MESSAGE_BYTES[stream] >> 20
                self._fail(
                    "error", f"closed its connection, or sent a message of more than {most} MiB"
                )
            if left <= 0:
                raise Empty

    def _received(self, channel: Any, stream: str) -> Any:
        frames = channel.recv_multipart()
        if stream == "iopub":
            self._bytes += sum(map(len, frames))
            self._messages += 1
            if self._bytes > CELL_BYTES or self._messages > CELL_MESSAGES:
                self._fail("error", "printed or showed more than a cell may")
        try:
            _, parts = self.kc.session.feed_identities(frames)
            message = self.kc.session.deserialize(parts)
            if not all(isinstance(message[name], dict) for name in ("parent_header", "content")):
                raise TypeError("a message without a header")
            return message
        except (Exception, RecursionError) as error:
            self._fail("error", f"sent a message that cannot be read ({type(error).__name__})")

    def await_reply(self, msg_id: str, timeout: float | None = None) -> dict[str, Any]:
        """Return the reply to a request. Raises Empty after the timeout."""
        while True:
            message = self.get_message("shell", timeout)
            if message["parent_header"].get("msg_id") == msg_id:
                return dict(message["content"])

    def await_idle(self, parent_id: str, timeout: float) -> None:
        """Wait until the kernel says that it has finished a request."""
        while True:
            message = self.get_message("iopub", timeout)
            if (
                message["parent_header"].get("msg_id") == parent_id
                and message["content"].get("execution_state") == "idle"
            ):
                return

    def is_alive(self) -> bool:
        """Tell whether the kernel can be used."""
        return not self.ended and self.process.poll() is None

    def interrupt(self) -> None:
        """Kill the kernel: what has reached its time limit is not asked to stop."""
        self.end()

    def stop(self) -> None:
        """End the kernel."""
        self.end()

    # ------------------------------------------------------------------------------- the judge

    def allow(self, cpu_seconds: float, wall_seconds: float) -> None:
        """Begin a piece of work with a limit on processor time, and a generous one on time."""
        self._cpu_ends = self.watch.cpu_seconds() + cpu_seconds
        self._wall_ends = time.monotonic() + wall_seconds
        self._bytes = self._messages = 0

    def run(self, source: str) -> None:
        """Execute a cell again, on a kernel that replaces a dead one; errors are ignored."""
        asked = self.execute_cell_input(source)
        self.await_reply(asked)
        with contextlib.suppress(Empty):
            self.await_idle(asked, 5)

    def ask(self, request: bytes, expression: str) -> bytes:
        """Return the reply to a request of the stub: bytes to be decoded strictly.

        Args:
            request: the stub's request.
            expression: the answer, as the check cell names it.
        """
        self.asked = True
        key = secrets.token_hex(8)
        text = base64.b64encode(request).decode("ascii")
        call = (
            f"__import__('vklab_course.children.graded', fromlist=['reply'])"
            f".reply({text!r}, {expression!r}, globals())"
        )
        asked = self._execute("", silent=True, user_expressions={key: call})
        content = self.await_reply(asked)
        with contextlib.suppress(Empty):
            while True:
                self.get_message("iopub", 0)
        try:
            shown = content["user_expressions"][key]["data"]["text/plain"]
            if not REPLY.fullmatch(shown):
                raise ValueError
            return base64.b64decode(shown[1:-1], validate=True)
        except (KeyError, TypeError, ValueError, IndexError):
            raise ValueError("the kernel did not return the answer's results") from None

    # ------------------------------------------------------------------------------ the end

    def _check(self) -> None:
        """Raise KernelEnded if the kernel has died or used up what it was allowed."""
        if self.watch.reason == "out_of_memory" or _ran_out(self.sandbox):
            most = self.sandbox.limits.memory_bytes / (1 << 20)
            self._fail("out_of_memory", f"used more than {most:g} MiB of memory")
        if self.watch.reason == "too_many_files":
            self._fail("error", f"made more than {self.sandbox.limits.files:,} files and folders")
        if self.watch.reason:
            self._fail("error", "wrote files where only the kernel's sockets belong")
        if not self.is_alive():
            self._fail("error", self.problem or "ended its own process")
        if time.monotonic() > self._wall_ends:
            self._fail("timeout", "did not end in time")
        if self.watch.cpu_seconds() > self._cpu_ends:
            self._fail("timeout", "used up its processor time")

    def _fail(self, status: str, message: str) -> None:
        self.problem = self.problem or message
        self.end()
        raise KernelEnded(status, message)

    def end(self) -> None:
        """Kill the kernel with everything that it started, and remove its folder."""
        self.ended = True
        if hasattr(self, "watch"):
            self.watch.stop()
        if hasattr(self, "process"):
            kill_tree(self.process.pid)
            self.process.wait()
            self.sandbox.ended(self.private)
        if hasattr(self, "kc"):
            self.kc.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _listens(path: Path) -> bool:
    """Tell whether a path is a socket, not a link to one, with a process behind it."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            probe.connect(str(path))
        return True
    except OSError:
        return False


def _ran_out(sandbox: Any) -> bool:
    cgroup = getattr(sandbox, "cgroup", None)
    return cgroup is not None and cgroup.ran_out()
