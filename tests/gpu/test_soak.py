"""A short run of `support.runs.soak`: nothing grows, damaged models end in a result or an error."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest

from support.graphs import classifiers
from support.graphs.small_models import ROOT
from support.runs import child, fuzz, soak


@pytest.mark.slow
def test_a_short_soak(device_index, tmp_path):
    words = ["tests/support/runs/soak.py", "--loads", "200", "--models", "500", "--jobs", "2"]
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env=child.env(VKLAB_DEVICE=str(device_index)),
        timeout=12 * child.LIMIT_S,
    )
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["ok"], done.stdout[-5000:]
    assert report["loads"]["steady"] and len(report["loads"]["records"]) == 10
    outcomes = report["models"]["outcomes"]
    assert sum(outcomes.values()) >= 450 and outcomes["ran"] and outcomes["refused, ModelError"]


@pytest.mark.full
def test_outcomes_are_told_apart(device_index, monkeypatch):
    sound = classifiers.forest(zipmap=False).SerializeToString()
    monkeypatch.setenv("VKLAB_DEVICE", str(device_index))
    assert soak.attempt(sound, {}) == "ran"
    assert soak.attempt(sound[:-40], {}).startswith("refused, ")
    monkeypatch.setattr("vklab.load", lambda data: 1 / 0)
    assert soak.attempt(sound, {}) == "defect, ZeroDivisionError: division by zero"


CRASH = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[2])
(folder / "model.onnx").write_bytes(b"the model")
(folder / "done.txt").write_text("what was done")
with (folder / "outcomes.jsonl").open("a") as lines:
    print('{"outcome": "ran"}', file=lines)
os.kill(os.getpid(), 11)
"""


def test_a_native_crash_is_a_defect_and_the_rest_is_still_tried(tmp_path, monkeypatch):
    (tmp_path / "crash.py").write_text(CRASH)
    monkeypatch.setattr(soak, "__file__", str(tmp_path / "crash.py"))
    report = soak.models(4, 2, 0, "", tmp_path)
    assert report["outcomes"] == {"ran": 2, "defect, crash": 2}
    crash = report["defects"][0]
    assert crash["outcome"] == "defect, crash: SIGSEGV" and crash["done"] == "what was done"
    assert base64.b64decode(crash["model"]) == b"the model"


@pytest.mark.full
def test_a_record_sees_what_a_session_holds(device_index, monkeypatch):
    import vklab

    monkeypatch.setenv("VKLAB_DEVICE", str(device_index))
    before = soak.resources()["vulkan_objects"]
    with vklab.load(classifiers.forest(zipmap=False)) as session:
        session.run(fuzz.feed(classifiers.forest(zipmap=False).SerializeToString(), {}))
        assert soak.resources()["vulkan_objects"] > before
