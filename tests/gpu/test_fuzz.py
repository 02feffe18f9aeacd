"""Damaged models: an error that says why, or a right result; never a crash, never a hang.

`vklab test --fuzz` runs this for some minutes with new seeds. A finding prints the model in
base64: add what went wrong to FOUND.
"""

from __future__ import annotations

import base64
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.runs import child, fuzz

# What the fuzzer found once: (what it was, the model); each is to be examined without an exception.
FOUND = {
    "more products of matrices than there are dispatches": (
        "CAcSDGJhY2tlbmQtdGVzdDqFAQoRCgFhCgFiEgFjIgZNYXRNdWwSEXRlc3RfbWF0bXVsX2JjYXN0WiMKAWESHgocCA"
        "ESGAoKCICAgICAgICAEAoCCAEKAggDCgIIBFobCgFiEhYKFAgBEhAKAggBCgIIAgoCCAQKAggCYhsKAWMSFgoUCAES"
        "EAoCCAMKAggCCgIIAwoCCAJCBAoAEA0="
    ),
    "an op_type that is no text": (
        "CAcSDGJhY2tlbmQtdGVzdDpJCgsKAXgSAXkiA8FicxIIdGVzdF9hYnNaFwoBeBISChAIARIMCgIIAwoCCAQKAggFYh"
        "cKAXkSEgoQCAESDAoCCAMKAggECgIIBUIECgAQDQ=="
    ),
    "a number that a kernel cannot be told": (
        "CA0SDGJhY2tlbmQtdGVzdDrpAQpOCgFRCgFLCgFWEgFZIglBdHRlbnRpb24qGwoQbGVmdF93aW5kb3dfc2l6ZRiAgI"
        "CACKABAioYChFyaWdodF93aW5kb3dfc2l6ZRgCoAECEiN0ZXN0X2F0dGVudGlvbl9iaWRpcmVjdGlvbmFsX3dpbmRv"
        "d1obCgFREhYKFAgBEhAKAggBCgIIAQoCCAUKAggBWhsKAUsSFgoUCAESEAoCCAEKAggBCgIIBQoCCAFaGwoBVhIWCh"
        "QIARIQCgIIAQoCCAEKAggFCgIIAWIbCgFZEhYKFAgBEhAKAggBCgIIAQoCCAUKAggBQgQKABAZ"
    ),
    "a Scan of opset 8 without a body, with lengths of another shape": (
        "CAMSDGJhY2tlbmQtdGVzdDqAAQoRCgF4CgF5EgN4b3IiBFNjYW4SEnRlc3RfeG9yX2JjYXN0NHY0ZFobCgF4EhYKFA"
        "gJEhAKAggBCgIIBAoCCAEKAggGWhsKAXkSFgoUCAkSEAoCCAMKAggBCgIIBQoCCAZiHQoDeG9yEhYKFAgJEhAKAggD"
        "CgIIBAoCCAUKAggGQgQKABAH"
    ),
    "an input without elements and with a dimension that NumPy has no number for": (
        "CA4SDGJhY2tlbmQtdGVzdDqBAQogCgVpbnB1dBIGb3V0cHV0IgRDYXN0KgkKAnRvGAGgAQISGnRlc3RfY2FzdF9GTE"
        "9BVDE2X3RvX0ZMT0FUWicKBWlucHV0Eh4KHAgKEhgKCgj//////////38KAggECgIIAAoCCAFiGAoGb3V0cHV0Eg4K"
        "DAgBEggKAggDCgIIBEIECgAQHA=="
    ),
    "an input that no buffer can hold": (
        "CA0SDGJhY2tlbmQtdGVzdDqNAQofCgVpbnB1dAoEbGlrZRIGb3V0cHV0IghDYXN0TGlrZRIfdGVzdF9jYXN0bGlrZV"
        "9CRkxPQVQxNl90b19GTE9BVFoXCgVpbnB1dBIOCgwIEBIICgIIAwoCCARaFgoEbGlrZRIOCgwIARIICgYIgICAgAhi"
        "GAoGb3V0cHV0Eg4KDAgBEggKAggDCgIIBEIECgAQGQ=="
    ),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_once(what, device_index):
    fuzz.examine(base64.b64decode(FOUND[what]), {})


def run(folder: Path, seed: int, examples: int, seconds: float) -> str:
    """Run the fuzzer in a process of its own; return what it printed, if that is a failure."""
    done = subprocess.run(
        [
            sys.executable,
            str(Path(fuzz.__file__)),
            str(folder),
            str(seed),
            str(examples),
            str(seconds),
        ],
        capture_output=True,
        text=True,
        env=child.env(),
        timeout=4 * seconds + 600,
        check=False,
    )
    if done.returncode == 0:
        print(done.stdout)
        return ""
    what = (folder / "done.txt").read_text()
    if done.returncode < 0:
        model = base64.b64encode((folder / "model.onnx").read_bytes()).decode()
        name = signal.Signals(-done.returncode).name
        return f"{name} in vklab: {what}\n{model}\n{done.stderr[-3000:]}"
    return f"{what}\n{done.stdout[-1000:]}\n{done.stderr[-6000:]}"


@pytest.mark.full
@pytest.mark.parametrize("examples", [24, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_models(device_index, tmp_path, examples):
    minutes = float(os.environ.get("VKLAB_FUZZ", 0))
    seconds, examples = (60 * minutes, 10**6) if minutes else (examples / 10, examples)
    seed = random.randrange(10**6) if minutes else 0
    failure = run(tmp_path, seed, examples, seconds)
    assert not failure, f"seed {seed}: {failure}"
