"""Run JupyterLab as a child: on this machine only, with a token, ended with the command.

Decides how the server is started, found and stopped; what it serves is decided by `lab`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from vklab.cli import console
from vklab.errors import SetupError

__all__ = ["command", "serve"]

START_LIMIT_S = 90.0
STOP_LIMIT_S = 10.0
ANSWER_LIMIT_S = 5.0
LOG = ".jupyter.log"


def command(folder: Path, port: int, browser: bool) -> list[str]:
    """Return the command line of the server; the token is not in it, where `ps` would show it."""
    options = {
        "ServerApp.root_dir": str(folder),
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": str(port),
        "ServerApp.port_retries": "50",
        "ServerApp.open_browser": str(browser),
        # Containers and course servers run as root; the server is reachable from here only.
        "ServerApp.allow_root": "True",
    }
    return [sys.executable, "-m", "jupyterlab", *(f"--{k}={v}" for k, v in options.items())]


def serve(folder: Path, port: int, browser: bool) -> int:
    """Serve a folder until Ctrl-C; return the exit code."""
    log = folder / LOG
    with tempfile.TemporaryDirectory(prefix="vklab-") as runtime, log.open("wb") as sink:
        # A runtime folder of its own holds one server file: ours. It names the port in use.
        _quiet(Path(runtime))
        before = os.environ.get("JUPYTER_CONFIG_PATH")
        variables = {
            **os.environ,
            "JUPYTER_CONFIG_PATH": os.pathsep.join([runtime, *([before] if before else [])]),
            "JUPYTER_TOKEN": secrets.token_hex(24),
            "JUPYTER_RUNTIME_DIR": runtime,
        }
        # Without a terminal on stdin Jupyter does not ask whether Ctrl-C was meant.
        process = subprocess.Popen(
            command(folder, port, browser), env=variables, stdin=subprocess.DEVNULL,
            stdout=sink, stderr=sink, cwd=folder,
        )  # fmt: skip
        with _stopping(process), _terminable():
            try:
                url = _wait_until_ready(process, Path(runtime), log)
                console.say(f"JupyterLab: {url}", "bold")
                console.say(f"serving {folder}; its log is {log}; Ctrl-C ends it")
                sys.stdout.flush()
                code = process.wait()
            except KeyboardInterrupt:
                console.warn("vklab: JupyterLab is stopped")
                return 0
    console.warn(f"vklab: JupyterLab has ended with code {code}\n{_tail(log)}")
    return 0 if code == 0 else 2


def _quiet(folder: Path) -> None:
    """Write the setting without which JupyterLab asks everybody about news on its first start."""
    settings = folder / "labconfig" / "page_config.json"
    settings.parent.mkdir()
    off = {"@jupyterlab/apputils-extension:announcements": True}
    settings.write_text(json.dumps({"disabledExtensions": off}), encoding="utf-8")


def _wait_until_ready(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    """Return the address with its token once the server answers there."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SetupError(f"JupyterLab ended with code {process.returncode}:\n{_tail(log)}",
                             "python3 -m vklab lab   (after what the log names)")  # fmt: skip
        for path in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError, OSError):  # half written: read it again
                facts = json.loads(path.read_text("utf-8"))
                if _answers(f"{facts['url']}api/status", facts["token"]):
                    return f"{facts['url']}lab?token={facts['token']}"
        time.sleep(0.1)
    raise SetupError(f"JupyterLab did not answer in {START_LIMIT_S:g} s:\n{_tail(log)}",
                     f"read {log}")  # fmt: skip


def _answers(url: str, token: str) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"})
    # Never through a proxy: this address is this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ANSWER_LIMIT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _tail(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()
    return "\n".join(f"  | {line[:200]}" for line in lines[-8:])


@contextlib.contextmanager
def _stopping(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_LIMIT_S)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end this process as Ctrl-C does: with its child."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
