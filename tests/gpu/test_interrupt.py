"""Ctrl-C while kernels compile: the compilers end, the cache is whole, the next run is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.runs.child import env, python
from support.runs.waits import LIMIT_S, until
from vklab.shader import toolchain

CODE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # `nohup vklab test &` ignores it
import numpy as np, vklab
from support.graphs.small_models import DATA
images = np.load(DATA / "digits.npz")["images"][:2]
with vklab.load(DATA / "digits_cnn.onnx", int(sys.argv[1])) as session:
    assert session.check({"image": images}).passed
print("right")
"""
# A compiler that never ends while there is a file `slow` beside it, for commands with some text.
SLOW = """#!/bin/sh
case "$*" in *{text}*)
    if [ -e {folder}/slow ]; then echo $$ >> {folder}/pids; exec sleep 300; fi
esac
exec {slangc} "$@"
"""


def slow_compiler(folder: Path, text: str) -> Path:
    found = toolchain.find_toolchain("slang")
    if found is None or os.name != "posix":
        pytest.skip("no slangc, or no shell to start it from")
    program = folder / "slangc"
    program.write_text(SLOW.format(text=text, folder=folder, slangc=found.program))
    program.chmod(0o755)
    (folder / "slow").touch()
    return program


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.full
@pytest.mark.parametrize("text", [
    pytest.param(".slang-module", id="modules", marks=pytest.mark.slow),
    pytest.param("-entry", id="kernels"),
])  # fmt: skip
def test_an_interrupt_ends_the_compilers(device_index, tmp_path, text):
    changes = {
        "VKLAB_SLANGC": str(slow_compiler(tmp_path, text)),
        "VKLAB_CACHE": str(tmp_path / "cache"),
        "SLANG_SERVER": "",
    }
    started = subprocess.Popen(
        [sys.executable, "-c", CODE, str(device_index)],
        env=env(**changes),
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: (tmp_path / "pids").exists() or started.poll() is not None)
    started.send_signal(signal.SIGINT)
    try:
        _, problem = started.communicate(timeout=LIMIT_S)  # a compiler would end after 300 s
    finally:
        started.kill()
    assert "KeyboardInterrupt" in problem
    assert started.returncode == -signal.SIGINT
    assert not any(is_alive(int(line)) for line in (tmp_path / "pids").read_text().split())
    kept = [path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert ".slang-module" not in kept if text == ".slang-module" else ".spv" not in kept
    # The next run takes the loaded compiler, and what the interrupted run left in the cache.
    assert python(CODE, device_index, VKLAB_CACHE=changes["VKLAB_CACHE"]) == "right\n"
