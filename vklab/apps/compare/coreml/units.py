"""Compute units on macOS: prediction, the time of each choice of units, the plan by operator.

Everything goes through `Tools`, the few calls of coremltools that need macOS. The tests run
against a stand-in, since no Mac was at hand: the calls were read from coremltools 9, not tried.
"""

from __future__ import annotations

import importlib
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vklab.apps.compare.coreml.inspect import UNITS
from vklab.errors import ModelError, SetupError

INSTALL = 'pip install "coremltools>=9,<10"'
WARM_UP, RUNS = 5, 50
Inputs = Mapping[str, np.ndarray]


class Tools(Protocol):
    """Functions of coremltools that need macOS."""

    def load(self, path: str, units: str) -> Any:
        """Return an MLModel whose `predict` runs on these units."""

    def plan(self, model: Any, units: str) -> Any:
        """Return the MLComputePlan of a loaded model."""


@dataclass(frozen=True)
class Timed:
    """Times of one choice of units, or the reason why there are none.

    Attributes:
        units: a key of UNITS.
        latencies_ns: each measured prediction.
        load_ns: loading, which compiles the model for its units.
        reason: what Core ML says where it refuses; else "".
    """

    units: str
    latencies_ns: tuple[int, ...] = ()
    load_ns: int = 0
    reason: str = ""

    @property
    def median_us(self) -> float:
        """Return the median time in microseconds."""
        return float(np.median(self.latencies_ns)) / 1e3


@dataclass(frozen=True)
class Planned:
    """Unit and cost that Core ML plans for one operator.

    Attributes:
        operator: its type.
        name: its first output.
        preferred: the unit that Core ML would take, "" if it does not say.
        supported: the units that could execute it.
        cost: its share of the whole work, 0 to 1; None if Core ML does not say.
    """

    operator: str
    name: str
    preferred: str
    supported: tuple[str, ...]
    cost: float | None


def predict(path: Path, inputs: Inputs, units: str = "ALL",
            calls: Tools | None = None) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the outputs of Core ML by name.

    Args:
        path: an .mlpackage or .mlmodel.
        inputs: arrays by name.
        units: a key of UNITS.
        calls: None for coremltools.
    """
    model = (calls or tools()).load(str(path), _known(units))
    return {name: np.asarray(value) for name, value in model.predict(dict(inputs)).items()}


def benchmark(
    path: Path, inputs: Inputs, runs: int = RUNS, units: Sequence[str] = tuple(UNITS),
    calls: Tools | None = None, clock: Callable[[], int] = time.perf_counter_ns,
) -> list[Timed]:  # fmt: skip
    """Measure each choice of units; the choices take turns, so that a slow phase hits all.

    Args:
        path: an .mlpackage or .mlmodel.
        inputs: arrays by name.
        runs: measured predictions of each choice.
        units: keys of UNITS.
        calls: None for coremltools.
        clock: returns nanoseconds.
    """
    if runs < 1:
        raise ModelError(f"a benchmark needs at least 1 run, not {runs}")
    calls, given = calls or tools(), dict(inputs)
    loaded: dict[str, Any] = {}
    load_ns: dict[str, int] = {}
    reasons: dict[str, str] = {}
    times: dict[str, list[int]] = {each: [] for each in map(_known, units)}
    for each in times:
        start = clock()
        try:
            loaded[each] = calls.load(str(path), each)
            load_ns[each] = clock() - start
            for _ in range(WARM_UP):
                loaded[each].predict(given)
        except Exception as error:  # Core ML raises RuntimeError; a refused choice is a row
            reasons[each] = f"{type(error).__name__}: {error}"
    for _ in range(runs):
        for each in times:
            if each not in reasons:
                start = clock()
                loaded[each].predict(given)
                times[each].append(clock() - start)
    return [
        Timed(each, tuple(times[each]), load_ns.get(each, 0), reasons.get(each, ""))
        for each in times
    ]


def plan(path: Path, units: str = "ALL", calls: Tools | None = None) -> list[Planned]:
    """Return Core ML's plan for each operator of an ML Program, constants left out.

    Args:
        path: an .mlpackage.
        units: a key of UNITS.
        calls: None for coremltools.

    Raises ModelError for a model that is no ML Program.
    """
    calls = calls or tools()
    found = calls.plan(calls.load(str(path), _known(units)), units)
    program = found.model_structure.program
    if program is None:
        raise ModelError(f"{path} is no ML Program: its plan has no operators")
    main = program.functions.get("main")
    if main is None:
        raise ModelError(
            f"{path} has no function 'main'; its functions: {sorted(program.functions)}"
        )
    return [_planned(found, operation) for operation in _operations(main.block)]


def _operations(block: Any) -> Iterable[Any]:
    return (each for each in block.operations if each.operator_name.split(".")[-1] != "const")


def _planned(found: Any, operation: Any) -> Planned:
    usage = found.get_compute_device_usage_for_mlprogram_operation(operation)
    cost = found.get_estimated_cost_for_mlprogram_operation(operation)
    return Planned(
        operation.operator_name.split(".")[-1],
        operation.outputs[0].name if operation.outputs else "",
        _unit(usage.preferred_compute_device) if usage else "",
        tuple(_unit(each) for each in usage.supported_compute_devices) if usage else (),
        cost.weight if cost else None,
    )


def _unit(device: Any) -> str:
    """Return "CPU" for an MLCPUComputeDevice, and so on."""
    return type(device).__name__.removeprefix("ML").removesuffix("ComputeDevice")


def _known(units: str) -> str:
    if units not in UNITS:
        raise ModelError(f"unknown compute units {units!r}; choose among {', '.join(UNITS)}")
    return units


def tools() -> Tools:
    """Return coremltools' calls; raise SetupError anywhere but on macOS with coremltools."""
    if platform.system() != "Darwin":
        raise SetupError(
            f"Core ML is a part of macOS, and this is {platform.system()}", f"on macOS: {INSTALL}"
        )
    try:
        return _CoreMLTools(importlib.import_module("coremltools"))
    except ModuleNotFoundError as error:
        raise SetupError("coremltools is not installed", INSTALL) from error


class _CoreMLTools:
    """`Tools` by coremltools 9."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def load(self, path: str, units: str) -> Any:
        """Return an MLModel."""
        choice = getattr(self._package.ComputeUnit, units)
        return self._package.models.MLModel(path, compute_units=choice)

    def plan(self, model: Any, units: str) -> Any:
        """Return the plan of the model that Core ML compiled."""
        choice = getattr(self._package.ComputeUnit, units)
        plans = self._package.models.compute_plan.MLComputePlan
        return plans.load_from_path(model.get_compiled_model_path(), choice)
