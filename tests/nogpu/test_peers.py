"""Environments of peers: found by name, made whole or not at all, used by the rows of parity."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vklab import settings
from vklab.apps.compare import peers
from vklab.apps.compare.onnxruntime import backend as onnxruntime
from vklab.base import worker
from vklab.errors import SetupError

NAME = "onnxruntime-openvino"


def answer(returncode, stderr="", makes=True):
    """Return a stand-in for pip's process, which fills the target folder."""

    def run(words, **options):
        if makes:
            target = Path(words[words.index("--target") + 1])
            target.mkdir()
            (target / "peer_of_tests.py").write_text("ANSWER = 42\n", encoding="utf-8")
        return subprocess.CompletedProcess(words, returncode, "", stderr)

    return run


def imported(state):
    """Return what the peer's module says."""
    import peer_of_tests  # type: ignore[import-not-found]

    return peer_of_tests.ANSWER


def test_a_peer_is_installed_once_and_its_child_imports_it(tmp_path, monkeypatch):
    monkeypatch.setattr(peers.subprocess, "run", answer(0))
    made = peers.set_up(NAME, tmp_path)
    assert made == tmp_path / NAME == peers.environment(NAME, tmp_path)
    monkeypatch.setattr(peers.subprocess, "run", answer(1))
    assert peers.set_up(NAME, tmp_path) == made
    monkeypatch.undo()
    with worker.Worker(made) as child:
        assert child.call(imported, seconds=60) == 42
    found = {each.provider.key: each.environment for each in onnxruntime.every(tmp_path)}
    assert found["openvino"] == made and found["cuda"] is None


def test_a_failed_installation_leaves_nothing_and_says_what_pip_said(tmp_path, monkeypatch):
    monkeypatch.setattr(peers.subprocess, "run", answer(1, "ERROR: no matching distribution\n"))
    with pytest.raises(SetupError, match="no matching distribution") as caught:
        peers.set_up(NAME, tmp_path)
    assert f"pip install --target {tmp_path / NAME} {NAME}" in caught.value.repair
    assert not list(tmp_path.iterdir()) and peers.environment(NAME, tmp_path) is None

    def late(words, **options):
        raise subprocess.TimeoutExpired(words, 1.0)

    monkeypatch.setattr(peers.subprocess, "run", late)
    with pytest.raises(SetupError, match="in 1 s"):
        peers.set_up(NAME, tmp_path, 1.0)
    assert not list(tmp_path.iterdir())


def test_peers_live_in_the_cache_unless_it_is_off(tmp_path, monkeypatch):
    with settings.settings(CACHE=str(tmp_path), DISABLE_CACHE=False):
        assert peers.folder() == tmp_path / "peers"
        (tmp_path / "peers" / NAME).mkdir(parents=True)
        [row] = [each for each in onnxruntime.every() if each.provider.key == "openvino"]
        assert row.environment == tmp_path / "peers" / NAME
    with settings.settings(DISABLE_CACHE=True):
        assert peers.folder() is None and peers.environment(NAME) is None
        with pytest.raises(SetupError, match="caches are switched off"):
            peers.set_up(NAME)
