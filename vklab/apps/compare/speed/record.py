"""Benchmark runs as one JSON object: machine, roofs, models, rows; several in one file.

Ratios are those of one run; `gather` puts rows side by side and computes none.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import vklab
from vklab.apps.compare.backend import Availability
from vklab.apps.compare.speed import cases, measure, roofs, turns
from vklab.apps.compare.speed import clocks as clock_readers
from vklab.apps.compare.speed.measure import Row
from vklab.apps.compare.speed.roofs import Roofs
from vklab.apps.compare.speed.runners.runner import Case, Runner
from vklab.apps.compare.speed.turns import Pace
from vklab.base import worker
from vklab.base.worker import Failure
from vklab.errors import ModelError
from vklab.types import DeviceInfo

Tell = Callable[[str], object]
Save = Callable[[dict[str, Any]], object]
OF_A_RUN = ("machine", "settings", "roofs", "peers", "kernels")
LARGE = 256 << 20
CASE_S = 600.0  # for a model to be built


def measured(
    names: Sequence[str], runners: Sequence[Runner], pace: Pace, info: DeviceInfo,
    tell: Tell = lambda text: None, save: Save = lambda record: None,
) -> dict[str, Any]:  # fmt: skip
    """Measure models on runners in turn, and return the run as one object.

    Args:
        names: names of models, or paths of .onnx files.
        runners: the runners.
        pace: how long to measure.
        info: the device of vklab.
        tell: called with a line about each step.
        save: called with what is known after each model, for runs that are interrupted.
    """
    run = _Run(runners, pace, info)
    with (
        tempfile.TemporaryDirectory(prefix="vklab-bench-") as folder,
        worker.Worker() as heater,
    ):
        tell(f"building {len(names)} models")
        made = dict(cases.make_all(names, Path(folder), CASE_S))

        def warm(seconds: float) -> None:
            heater.call(roofs.warm, info.index, seconds, seconds=pace.limit)

        reader = clock_readers.Clocks(info)
        run.roofs, run.settled, problem = _roofs(heater, reader, warm, info, pace)
        tell(problem or f"clocks settled: {_clock_text(run.settled)}")

        def warm_if_alive(seconds: float) -> None:
            with contextlib.suppress(Failure):  # no row should fail for it
                warm(seconds)

        warmed = None if problem or info.is_cpu else warm_if_alive
        with turns.Turns(runners, pace, reader, warmed) as every:
            run.answers = every.ask()
            for name in names:
                tell(f"measuring {name}")
                run.add(name, made[name], every)
                save(run.record())
    return run.record()


class _Run:
    """One run: what is known of the device, and the rows so far.

    Args:
        runners: the runners.
        pace: how long they are measured.
        info: the device of vklab.
    """

    def __init__(self, runners: Sequence[Runner], pace: Pace, info: DeviceInfo) -> None:
        self._runners, self._pace, self._info = runners, pace, info
        self._started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.roofs: Roofs | None = None
        self.settled: dict[str, int | None] = {}
        self.answers: dict[str, Availability] = {}
        self._versions: dict[str, str] = {}
        self._built: dict[str, Case] = {}
        self._kernels: dict[str, Any] = {}
        self._rows: list[Row] = []

    def add(self, name: str, case: Case | Failure, every: turns.Turns) -> None:
        """Measure one model; one that cannot be built has a row for each runner.

        Args:
            name: name of the model.
            case: the model, or why it cannot be built.
            every: the runners at work.
        """
        if isinstance(case, Failure):
            status = "failed" if case.status == "absent" else case.status
            self._rows += [
                Row(
                    name,
                    runner,
                    status=status,
                    install=case.install,
                    reason=f"the model cannot be built: {case.reason}",
                )
                for runner in every.children
            ]
            return
        self._rows += every.measure(case)
        self._built[case.name] = case
        self._kernels[case.name] = {key: each for key, each in every.kernels.items() if each}
        self._versions = every.versions

    def record(self) -> dict[str, Any]:
        """Return the run so far, ready for JSON."""
        raised = self.roofs and _raised(self.roofs, self._rows, self._built)
        rows = _floored(self._rows, self._built, raised, self._runners, self._info)
        return {
            "machine": _machine(self._info, self._started, self._versions, self.settled),
            "settings": asdict(self._pace),
            "roofs": raised.summary() if raised else None,
            "peers": {n: asdict(answer) for n, answer in self.answers.items() if not answer},
            "models": {
                name: {"flops": case.flops, "bytes": case.bytes}
                for name, case in self._built.items()
            },
            "kernels": {name: each for name, each in self._kernels.items() if each},
            "rows": [row.summary() for row in rows],
        }


def _roofs(
    heater: worker.Worker, reader: clock_readers.Clocks, warm: turns.Warm, info: DeviceInfo,
    pace: Pace,
) -> tuple[Roofs | None, dict[str, int | None], str]:  # fmt: skip
    """Settle the clocks, measure the roofs, and return both, or what failed.

    Args:
        heater: the child that occupies the device.
        reader: reader of the clocks.
        warm: occupies the device for some seconds.
        info: the device.
        pace: time limit.
    """
    settled: dict[str, int | None] = {}
    try:
        settled = clock_readers.settled(reader, warm)
        return heater.call(roofs.measure, info.index, seconds=pace.limit), settled, ""
    except Failure as failure:
        return None, settled, f"the device's roofs cannot be measured: {failure.reason}"


def _clock_text(settled: Mapping[str, int | None]) -> str:
    if not settled.get("sm_mhz"):
        return "the driver does not tell"
    return f"{settled['sm_mhz']} MHz, memory {settled['memory_mhz']} MHz"


def _raised(known: Roofs, rows: Sequence[Row], built: Mapping[str, Case]) -> Roofs:
    """Return the roofs raised to the highest rate that a row of this run shows."""
    rates, moved = dict(known.flops_per_s), known.bytes_per_s
    for row in rows:
        if row.status == "ran" and row.device_us and row.dtype in rates:
            case, seconds = built[row.model], row.device_us / 1e6
            rates[row.dtype] = max(rates[row.dtype], case.flops / seconds)
            if row.dtype == "float32" and case.bytes > LARGE:  # more than a cache holds
                moved = max(moved, case.bytes / seconds)
    return replace(known, flops_per_s=rates, bytes_per_s=moved)


def _floored(
    rows: Sequence[Row], built: Mapping[str, Case], known: Roofs | None,
    runners: Sequence[Runner], info: DeviceInfo,
) -> list[Row]:  # fmt: skip
    """Return rows with the floors of this device; runners elsewhere have none.

    Args:
        rows: the rows.
        built: the models by name.
        known: the roofs.
        runners: the runners.
        info: the device.
    """
    here = {runner.name for runner in runners if runner.on_gpu or info.is_cpu}
    floors = {
        (row.model, row.runner): roofs.floor_us(
            known,
            (built[row.model].flops, built[row.model].bytes),
            row.dtype,
            row.compares == "device",
        )
        for row in rows
        if known and row.status == "ran" and row.runner in here
    }
    return measure.with_floors(rows, floors)


def _machine(
    info: DeviceInfo, started: str, versions: Mapping[str, str],
    settled: Mapping[str, int | None],
) -> dict[str, Any]:  # fmt: skip
    """Return device, driver, system, versions, date and clocks.

    Args:
        info: the device.
        started: when the run began.
        versions: versions of the peers.
        settled: clocks in MHz.
    """
    version = ".".join(map(str, info.api_version))
    return {
        "device": info.name,
        "driver": info.driver,
        "type": info.type,
        "vulkan": version,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "started": started,
        "clocks": dict(settled),
        "versions": {
            "vklab": vklab.__version__,
            "python": platform.python_version(),
            **dict(sorted(versions.items())),
        },
    }


def gather(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return several runs as one object; each row says which run it belongs to."""
    runs: list[Any] = []
    rows: list[dict[str, Any]] = []
    models: dict[str, Any] = {}
    for record in records:
        first = len(runs)
        runs += record.get("runs") or [{key: record.get(key) for key in OF_A_RUN}]
        rows += [{**row, "run": first + row.get("run", 0)} for row in record["rows"]]
        models |= record.get("models", {})
    return {"machine": runs[0]["machine"], "runs": runs, "models": models, "rows": rows}


def under_roofs(record: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run with its floors under roofs that are no lower than those of another run.

    A cost of a dispatch that it did not measure is that of the other run.

    Args:
        record: one run.
        other: a run on the same kind of device, whose products show what it can do.
    """
    own, high = record["roofs"], other["roofs"]
    dtypes = {*own["flops_per_s"], *high["flops_per_s"]}
    rates = {
        dtype: max(each["flops_per_s"].get(dtype, 0.0) for each in (own, high))
        for dtype in sorted(dtypes)
    }
    moved = max(own["bytes_per_s"], high["bytes_per_s"])
    launch = own.get("dispatch_us") or high.get("dispatch_us", 0.0)
    known = replace(Roofs(**own), flops_per_s=rates, bytes_per_s=moved, dispatch_us=launch)
    rows = []
    for row in rows_of(record):
        if row.floor_us is not None:
            work = record["models"][row.model]
            row = replace(
                row,
                floor_us=roofs.floor_us(
                    known, (work["flops"], work["bytes"]), row.dtype, row.compares == "device"
                ),
            )
        rows.append(row.summary())
    return {**record, "roofs": known.summary(), "rows": rows}


def read(path: Path) -> dict[str, Any]:
    """Return a recorded run, or several; raise ModelError for another file."""
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if not isinstance(data, dict) or not {"machine", "rows"} <= data.keys():
            raise ValueError("it has no machine and no rows")
        rows_of(data)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is no file of `vklab bench run --json`: {error}") from error
    return data


def rows_of(record: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a recorded run."""
    return [Row.read(row) for row in record["rows"]]
