"""Recorded times of chains of additions, a benchmark in a child, and a planted bug.

Visited by lab 18. As a program it prints the record as JSON: `chains.py > chains.json`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import vklab
from vklab.apps.compare.models.graphs import chain_add
from vklab_course.data import data

__all__ = ["LENGTHS", "benched", "chain", "medians", "recorded", "waited_us"]

LENGTHS = [1, 10, 100, 1000]
RUNNERS = ("vklab", "vklab-unfused", "onnxruntime-cuda-graph", "onnxruntime-cpu", "iree")


def chain(length: int) -> Any:
    """Return an ONNX model that adds `length` times, one number each time."""
    return chain_add(length)


def recorded() -> list[dict[str, Any]]:
    """Return the recorded machines: device, driver, date, command, and medians in us by runner."""
    return list(json.loads(data("recorded/chains.json").read_text("utf-8")))


def medians(machine: str, runner: str) -> list[float]:
    """Return the recorded medians in us for LENGTHS.

    Args:
        machine: the beginning of its name, "NVIDIA" or "llvmpipe".
        runner: the runtime.
    """
    for row in recorded():
        if row["device"].startswith(machine) and runner in row["medians_us"]:
            return list(row["medians_us"][runner])
    raise ValueError(f"there is no record of {runner!r} on {machine!r}")


def benched(model: str = "chain_add_1", seconds: float = 120) -> tuple[dict[str, Any], str]:
    """Run `vklab bench run` in a child; return its row and "", or {} and the reason.

    Args:
        model: name of the model.
        seconds: after which the child is stopped.
    """
    words = ["bench", "run", model, "--runner", "vklab", "--rounds", "2", "--seconds", "0.05"]
    command = [sys.executable, "-m", "vklab", *words, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        return dict(json.loads(done.stdout)["rows"][0]), ""
    except (subprocess.TimeoutExpired, ValueError, LookupError) as error:
        return {}, f"the benchmark gave no row ({type(error).__name__})"


def waited_us(model: Any, feed: dict[str, Any], runs: int = 200) -> float:
    """Return "the time of a run" in us."""
    with vklab.load(model) as session:
        session.run(feed)  # warm-up
        frame = session.submit(feed)
        frame.result()
        begin = time.perf_counter_ns()
        for _ in range(runs):
            frame.result()
        return (time.perf_counter_ns() - begin) / runs / 1e3


def _machine(path: Path) -> dict[str, Any]:
    record = json.loads(path.read_text("utf-8"))
    found: dict[str, dict[int, float]] = {}
    for row in record["rows"]:
        model, _, length = row["model"].rpartition("_")
        if model == "chain_add" and row["runner"] in RUNNERS:
            found.setdefault(row["runner"], {})[int(length)] = row["median_us"]
    return {
        "device": record["machine"]["device"],
        "driver": record["machine"]["driver"],
        "date": record["machine"]["started"][:10],
        "made_by": f"vklab bench run --suite vkml; the rows of docs/speed/{path.name}",
        "lengths": LENGTHS,
        "medians_us": {name: [times[n] for n in LENGTHS] for name, times in found.items()},
    }


if __name__ == "__main__":
    folder = Path(__file__).parents[3] / "docs/speed"
    print(json.dumps([_machine(folder / f"{name}.json") for name in ("h200_vkml", "lavapipe")],
                     indent=1))  # fmt: skip
