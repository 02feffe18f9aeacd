"""JupyterLab really starts, answers, and runs a cell on a device."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from support.graphs.small_models import ROOT
from support.runs.child import env
from support.runs.waits import LIMIT_S, until

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterlab") is None, reason="jupyterlab is not installed"
    ),
]
TOKEN = "a-token-of-this-test"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def server(tmp_path):
    """Start a server on a free port; return its address."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "jupyter",
        "lab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}",
        f"--ServerApp.root_dir={ROOT}",
    ]
    folders = {
        name: str(tmp_path / name)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(command, stdout=log, stderr=log, env=env(**folders), cwd=tmp_path)
    try:
        yield f"http://127.0.0.1:{port}", process, log
    finally:
        process.terminate()
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def ask(url: str, token: str = TOKEN) -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return bytes(answer.read())


def wait_for(address: str, process: subprocess.Popen[bytes], log) -> dict[str, str]:
    """Ask until the server answers."""
    answers: list[dict[str, str]] = []

    def has_answered_or_ended() -> bool:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            answers.append(json.loads(ask(f"{address}/api")))
        return bool(answers) or process.poll() is not None

    until(has_answered_or_ended, "JupyterLab does not answer")
    log.seek(0)
    assert answers, f"JupyterLab has ended:\n{log.read()[-3000:]}"
    return answers[0]


@pytest.mark.slow
def test_jupyterlab_starts_and_answers(server):
    address, process, log = server
    assert "version" in wait_for(address, process, log)
    assert b"JupyterLab" in ask(f"{address}/lab")
    names = {item["name"] for item in json.loads(ask(f"{address}/api/contents"))["content"]}
    assert "README.md" in names
    with pytest.raises(urllib.error.HTTPError, match="403"):
        ask(f"{address}/api/contents", token="wrong")


def test_a_notebook_cell_runs_a_model(device_index, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

    code = (
        "import os, sys\n"
        f"sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n"
        "import vklab\nfrom support.graphs.small_models import DATA\n"
        f"session = vklab.load(DATA / 'mini_classifier.onnx', {device_index})\nsession"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=LIMIT_S).execute(cwd=str(tmp_path))
    shown = notebook.cells[0].outputs[-1].data
    assert "Session of graph" in shown["text/plain"] and "<table>" in shown["text/html"]
