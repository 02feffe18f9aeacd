"""Run JupyterLab as a child process: on this machine only, with a token, until the command ends.

Decides how the server is started, its address read, and the server stopped; `lab` decides which
folder it serves.
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

from vklab.apps.cli import console
from vklab.errors import SetupError

__all__ = ["SHARE", "command", "serve"]

START_LIMIT_S = 90.0
STOP_LIMIT_S = 10.0
ANSWER_LIMIT_S = 5.0
LOG = ".jupyter.log"
SHARE = Path(__file__).resolve().parent.parent / "share" / "jupyter"  # the course's extension


def command(folder: Path, port: int, browser: bool, page: str) -> list[str]:
    """Return the command line of the server, without the token, which `ps` would show.

    Args:
        folder: the server's root folder.
        port: the first port to try.
        browser: open a browser when the server is ready.
        page: the notebook that the browser shows first; "" for none.
    """
    options = {
        "ServerApp.root_dir": str(folder),
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": str(port),
        "ServerApp.port_retries": "50",
        "ServerApp.open_browser": str(browser),
        "LabApp.default_url": f"/{_address(page)}",
        # Containers and course servers run as root; only this machine can reach the server.
        "ServerApp.allow_root": "True",
    }
    return [sys.executable, "-m", "jupyterlab", *(f"--{k}={v}" for k, v in options.items())]


def serve(folder: Path, port: int, browser: bool, page: str) -> int:
    """Serve a folder until Ctrl-C; return the exit code.

    Args:
        folder: the server's root folder; also receives its log.
        port: the first port to try.
        browser: open a browser when the server is ready.
        page: the notebook that its address leads to; "" for none.
    """
    log = folder / LOG
    with tempfile.TemporaryDirectory(prefix="vklab-") as runtime, log.open("wb") as sink:
        # This runtime folder holds one server file, which names the port in use.
        _quiet(Path(runtime))
        variables = {
            **os.environ,
            "JUPYTER_CONFIG_PATH": _first(runtime, "JUPYTER_CONFIG_PATH"),
            # Before the copy that an installation made.
            "JUPYTER_PATH": _first(str(SHARE), "JUPYTER_PATH"),
            "JUPYTER_TOKEN": secrets.token_hex(24),
            "JUPYTER_RUNTIME_DIR": runtime,
        }
        # Without a terminal on stdin Jupyter does not ask to confirm Ctrl-C.
        process = subprocess.Popen(
            command(folder, port, browser, page),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=folder,
        )
        with _stopping(process), _terminable():
            try:
                url = _wait_until_ready(process, Path(runtime), log, page)
                console.say(f"JupyterLab serves {folder}; its log is {log}; Ctrl-C ends it.")
                console.say("Its address, for this machine only:")
                console.say(url, "bold")
                sys.stdout.flush()
                code = process.wait()
            except KeyboardInterrupt:
                console.warn("vklab: JupyterLab has been stopped")
                return 0
    console.warn(f"vklab: JupyterLab has ended with code {code}\n{_tail(log)}")
    return 0 if code == 0 else 2


def _address(page: str) -> str:
    return f"lab/tree/{page}" if page else "lab"


def _first(folder: str, variable: str) -> str:
    return os.pathsep.join([folder, *filter(None, [os.environ.get(variable)])])


def _quiet(folder: Path) -> None:
    """Write two settings: no question about news on the first start, pages are shown as pages."""
    off = {"@jupyterlab/apputils-extension:announcements": True}
    shown = {"defaultViewers": {"markdown": "Markdown Preview"}}
    settings = {
        "page_config": {"disabledExtensions": off},
        "default_setting_overrides": {"@jupyterlab/docmanager-extension:plugin": shown},
    }
    (folder / "labconfig").mkdir()
    for name, values in settings.items():
        (folder / "labconfig" / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")


def _wait_until_ready(process: subprocess.Popen[bytes], runtime: Path, log: Path, page: str) -> str:
    """Wait for the server's first answer and return its address with the token."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SetupError(
                f"JupyterLab ended with code {process.returncode}:\n{_tail(log)}",
                f"python3 -m vklab lab   (after the error in {log})",
            )
        for path in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError, OSError):  # partly written: read it again
                facts = json.loads(path.read_text("utf-8"))
                if _answers(f"{facts['url']}api/status", facts["token"]):
                    return f"{facts['url']}{_address(page)}?token={facts['token']}"
        time.sleep(0.1)
    raise SetupError(
        f"JupyterLab did not answer in {START_LIMIT_S:g} s:\n{_tail(log)}", f"read {log}"
    )


def _answers(url: str, token: str) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"})
    # Without a proxy: the address is on this machine.
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
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that the child is stopped, too."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
