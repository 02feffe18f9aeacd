"""Functions that a parent calls in a child: ask, prepare, run, layers, time, facts, close.

The first parameter of each is the child's `state`, a dict that lives as long as the child. The
benchmark adds some of its own, in `speed.tasks`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib.metadata
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.compare.backend import Availability, Backend, Dtypes, ModelSource, Refused, Runtime

Arrays = Mapping[str, np.ndarray]


def availability(state: dict[str, Any], runtimes: Sequence[Runtime]) -> list[Availability]:
    """Return for each runtime whether it can run here; imports its libraries."""
    return [runtime.available() for runtime in runtimes]


def prepare(state: dict[str, Any], runtime: Runtime, model: Any) -> float:
    """Load the model, and return the seconds of that; a model that was loaded before is freed.

    Args:
        state: the child's dict.
        runtime: the backend or the runner.
        model: the model, as its `prepare` takes it.
    """
    close(state)
    state["backend"] = runtime
    begun = time.perf_counter()
    state["prepared"] = runtime.prepare(model)
    return time.perf_counter() - begun


def close(state: dict[str, Any]) -> None:
    """Free the loaded model, if there is one, and give its memory back to the system."""
    if "prepared" in state:
        state.pop("prepared").close()
    state.pop("inputs", None)
    gc.collect()
    if sys.platform == "linux":  # freed memory would count for the next model
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def run(state: dict[str, Any], inputs: Arrays) -> dict[str, np.ndarray]:
    """Return the outputs by name as arrays."""
    return arrays(state["prepared"].run(inputs))


def layers(state: dict[str, Any], inputs: Arrays) -> dict[str, np.ndarray]:
    """Return the values of layers by name; {} if the backend cannot show them."""
    return arrays(state["prepared"].layers(inputs))


def measure(
    state: dict[str, Any], inputs: Arrays, seconds: float, runs: int, bound: bool = False
) -> list[int]:
    """Return the nanoseconds of runs.

    Args:
        state: the child's dict.
        inputs: arrays by input name.
        seconds: no run starts later than this.
        runs: most runs.
        bound: whether inputs and outputs stay in the device's memory, else host arrays in and out.
    """
    call = _bound(state, inputs) if bound else functools.partial(state["prepared"].run, inputs)
    return time_calls(call, seconds, runs)


def _bound(state: dict[str, Any], inputs: Arrays) -> Callable[[], Any]:
    """Return a run whose inputs and outputs stay; raise Refused unless it gives the same."""
    bound = state["prepared"].bind(inputs)
    made, plain = bound.outputs(), state["prepared"].run(inputs)
    for name, array in plain.items():
        if np.shape(made[name]) != np.shape(array):
            raise Refused(
                f"bound, output {name!r} has shape {list(np.shape(made[name]))}, not "
                f"{list(np.shape(array))}"
            )
        if not np.allclose(made[name], array, rtol=1e-3, atol=1e-3 * np.abs(array).max(initial=0)):
            raise Refused(f"bound, output {name!r} differs from that of a plain run")
    run: Callable[[], Any] = bound.run
    return run


def time_calls(call: Callable[[], Any], seconds: float, most: int) -> list[int]:
    """Return the nanoseconds of calls; one at least.

    Args:
        call: what is timed.
        seconds: no call starts later than this.
        most: most calls.
    """
    times: list[int] = []
    end = time.perf_counter() + seconds
    while not times or (len(times) < most and time.perf_counter() < end):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return times


def facts(state: dict[str, Any]) -> dict[str, Any]:
    """Return nodes by provider, bytes, versions, and a note of the prepared model.

    `dtypes` is None where the backend fixes them, not the loaded model; `steps` are those of an
    8-bit model, else None.
    """
    prepared = state["prepared"]
    packages = getattr(state["backend"], "packages", ())
    return {
        "nodes": dict(prepared.nodes),
        "size_bytes": int(prepared.size_bytes),
        "versions": {
            "python": platform.python_version(),
            **versions(packages),
            **getattr(prepared, "versions", {}),
        },
        "note": str(getattr(prepared, "note", "")),
        "device": str(getattr(prepared, "device", "")),
        "dtypes": getattr(prepared, "dtypes", None),
        "steps": getattr(prepared, "steps", None),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    known = {}
    for name in packages:
        try:
            known[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return known


def arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return values as arrays; raise Refused for one that is no tensor."""
    for name, value in values.items():
        if isinstance(value, (Mapping, list, tuple)):
            raise Refused(
                f"output {name!r} is a {type(value).__name__}, and parity compares tensors only"
            )
    return {name: np.asarray(value) for name, value in values.items()}


def module_layers(
    state: dict[str, Any], inputs: Arrays, truth: Arrays, dtypes: Dtypes
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the `layers.Local` of a module, and the values of its layers fed with the truth.

    Args:
        state: the child's dict.
        inputs: arrays by input name.
        truth: values of layers in float64 by fx name.
        dtypes: dtypes of the backend.
    """
    if not hasattr(state["prepared"], "layers_alone"):
        raise Refused(f"{state['backend'].name} runs no layer alone")
    made: tuple[Any, dict[str, np.ndarray]]
    made = state["prepared"].layers_alone(inputs, truth, dtypes)
    return made


def alone(
    state: dict[str, Any], backend: Backend, model: bytes, inputs: Arrays
) -> dict[str, np.ndarray]:
    """Return the outputs of another ONNX model, a part of the first one, on the same backend.

    Args:
        state: the child's dict.
        backend: the backend.
        model: the part as bytes.
        inputs: arrays by its input names.
    """
    calibrated = getattr(backend, "calibrated", None)
    backend = calibrated(inputs) if calibrated else backend
    with tempfile.TemporaryDirectory(prefix="vklab-part-") as folder:
        path = Path(folder) / "part.onnx"
        path.write_bytes(model)
        # A backend of packages takes parts of a package as ONNX graphs, too.
        prepare_part = getattr(backend, "prepare_part", backend.prepare)
        prepared = prepare_part(ModelSource("part", onnx=path))
        try:
            return arrays(prepared.run(inputs))
        finally:
            prepared.close()
