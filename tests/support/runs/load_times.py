"""Print how long it takes to load a model and to run it first: from ONNX, and compiled ahead.

Each time in a process of its own; cold is with an empty cache of shaders and pipelines. The least
of a few repeats is shown, in seconds: python tests/support/runs/load_times.py [DEVICE] [REPEATS]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # the repository, for vklab

from support.models import exported_models, light_models
from support.runs import child
from vklab.apps import cli

SIZES = {"batch": 1, "sequence": 32}
STEPS = ("import", "load", "first run", "second run")
CODE = """
import json, sys, time
import numpy as np
times = [time.perf_counter()]
import vklab
vklab.load
times.append(time.perf_counter())
session = vklab.load(sys.argv[1], int(sys.argv[2]))
times.append(time.perf_counter())
sizes = json.loads(sys.argv[3])
fed = {i.name: np.ones([sizes.get(d, d) for d in i.shape], i.dtype) for i in session.inputs}
for _ in range(2):
    session.run(fed)
    times.append(time.perf_counter())
assert not session.plan_reason, session.plan_reason
print(json.dumps([after - before for before, after in zip(times, times[1:])]))
"""


def models(folder: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield name, file and open sizes of each model."""
    for name, model, dims in (
        ("densenet121", light_models.build("densenet121"), []),
        ("bert", exported_models.load("bert"), [f"--dim={n}={s}" for n, s in SIZES.items()]),
    ):
        path = folder / f"{name}.onnx"
        onnx.save(model, path)
        yield name, path, dims


def measure(path: Path, device: int, cache: Path, repeats: int, cold: bool) -> list[float]:
    """Return the least seconds of each step."""
    samples = []
    for number in range(repeats):
        used = cache / f"cold{path.name}{number}" if cold else cache / "warm"
        said = child.python(
            CODE,
            path,
            device,
            json.dumps(SIZES),
            VKLAB_CACHE=str(used),
            PYTHONPYCACHEPREFIX=str(cache / "pyc"),
            PYTHONDONTWRITEBYTECODE="",
            PLAN_CHECKS="off",
            PYTHON_SERVER="",
        )
        samples.append(json.loads(said))
    return [min(step) for step in zip(*samples, strict=True)]


def main(device: int, repeats: int) -> None:
    """Measure, and print a table in Markdown."""
    header = ["model", "from", "cache", *STEPS, "load + first run"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, path, dims in models(folder):
            target = path.with_suffix(".vklab")
            os.environ["VKLAB_CACHE"] = str(folder / "warm")
            options = ["-o", str(target), f"--device={device}", *dims, "--json"]
            with contextlib.redirect_stdout(sys.stderr):
                assert cli.main(["compile", str(path), *options]) == 0
            for source in (path, target):
                measure(source, device, folder, 1, False)  # fills the caches
                for cold in (True, False):
                    spent = measure(source, device, folder, repeats, cold)
                    cells = [
                        label,
                        source.suffix,
                        "cold" if cold else "warm",
                        *(f"{s:.2f}" for s in (*spent, spent[1] + spent[2])),
                    ]
                    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given + [0, 3][len(given) :]))
