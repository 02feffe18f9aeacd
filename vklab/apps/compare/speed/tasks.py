"""Functions that the benchmark calls in the child of a runner: load, time, ask for kernels.

The first parameter of each is the child's `state`, a dict that lives as long as the child.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.compare.children import tasks
from vklab.apps.compare.speed.runners.runner import Case, Runner
from vklab.errors import SetupError
from vklab.runtime import tolerances
from vklab.runtime.observe import compare

MOST_COMPARED = 1 << 22  # elements; to compare 64 million takes longer than to measure


def load(state: dict[str, Any], runner: Runner, case: Case) -> dict[str, Any]:
    """Load a model, run it once, and compare its outputs with the expected ones.

    Args:
        state: the child's dict.
        runner: the runner.
        case: the model.

    Returns load_ms, first_ms, host_bytes, max_abs_error, problem, variant and versions.
    """
    load_s = tasks.prepare(state, runner, case)
    with np.load(case.inputs) as stored:
        state["inputs"] = {name: stored[name] for name in stored.files}
    begun = time.perf_counter()
    loaded = state["prepared"]
    made = loaded.run(state["inputs"])
    first_ms = (time.perf_counter() - begun) * 1e3
    host_bytes = resident_bytes()
    error, problem = _compared(made, case.expected, runner.dtype)
    return {
        "load_ms": load_s * 1e3,
        "first_ms": first_ms,
        "host_bytes": host_bytes,
        "max_abs_error": error,
        "problem": problem,
        "variant": str(loaded.variant),
        "versions": dict(getattr(loaded, "versions", {})),
    }


def _compared(made: Any, path: Path, dtype: str) -> tuple[float | None, str]:
    """Return the largest error, None if it is not finite, and what is wrong with the outputs."""
    with np.load(path) as stored:
        expected = {name: stored[name] for name in stored.files}
    lost = [name for name in expected if name not in made]
    if lost:
        return None, f"there is no output {lost[0]!r}"
    for name, array in expected.items():
        bad = ~np.isfinite(np.asarray(made[name]))
        if bad.any() and np.isfinite(array).all():
            return None, f"output {name!r} has {int(bad.sum())} of {bad.size} elements not finite"
    half = any(array.dtype == np.float16 for array in expected.values())  # a model of halves
    allowed = tolerances.model("float16" if half else dtype)
    actual = {
        name: np.asarray(made[name]).astype(array.dtype, copy=False)
        for name, array in expected.items()
    }
    judged = compare.compare(_thinned(actual), _thinned(expected), allowed.rtol, allowed.atol)
    problem = ""
    if not judged.passed:
        worst = judged.worst[0] if judged.worst else {}
        problem = (
            f"outputs differ from the reference by up to {judged.max_abs_error:.3g}, more "
            f"than {dtype} explains; first {worst.get('output')}{worst.get('index')}: "
            f"{worst.get('got')}, expected {worst.get('expected')}"
        )
    return judged.max_abs_error, problem


def _thinned(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays, and of one with more than MOST_COMPARED elements an even selection."""
    made = {}
    for name, array in arrays.items():
        step = -(-array.size // MOST_COMPARED) | 1  # odd, to meet all columns of a power of two
        made[name] = array if step == 1 else array.reshape(-1)[::step]
    return made


def time_runs(state: dict[str, Any], seconds: float, most: int) -> list[int]:
    """Return the nanoseconds of whole runs, host arrays in and out; one at least.

    Args:
        state: the child's dict.
        seconds: no run starts later than this.
        most: most runs.
    """
    return tasks.measure(state, state["inputs"], seconds, most)


def device(state: dict[str, Any], runs: int) -> list[float]:
    """Return the device's own nanoseconds of runs; [] if runtime or device does not tell."""
    try:
        return list(state["prepared"].device_ns(state["inputs"], runs))
    except SetupError:  # a device without timestamps
        return []


def kernels(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the kernels of a run with their times; [] if the runtime does not tell."""
    ask = getattr(state["prepared"], "kernels", None)
    return list(ask(state["inputs"])) if ask else []


def resident_bytes() -> int | None:
    """Return the resident memory of this process; None if the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    psutil = load_psutil()
    return int(psutil.Process().memory_info().rss) if psutil else None


def load_psutil() -> Any:
    """Import psutil, for systems without /proc; None if it is not installed."""
    try:
        return importlib.import_module("psutil")
    except ImportError:
        return None
