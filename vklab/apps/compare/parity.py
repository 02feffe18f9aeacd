"""Parity of one model on many backends: run, judge against the oracle, time in turn, give rows.

Each backend works in a child of its own. Whatever happens there becomes its row; the rest of the
report stands.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.compare import forms, packages, registry
from vklab.apps.compare.backend import Backend, Dtypes, ModelSource, Row, Steps
from vklab.apps.compare.children import timing
from vklab.apps.compare.children.child import Live
from vklab.apps.compare.judging import judge
from vklab.apps.compare.layerwise import programs
from vklab.apps.compare.layerwise.programs import Program
from vklab.apps.compare.report import recorded, rows
from vklab.apps.compare.report.rows import Measured
from vklab.apps.compare.truth import oracle
from vklab.apps.compare.truth.oracle import Oracle
from vklab.base.endings import one_line
from vklab.base.worker import Failure
from vklab.errors import ModelError
from vklab.runtime import tolerances
from vklab.runtime.tolerances import Tolerance

EXPORT = "export"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """Choices of a report.

    Attributes:
        seconds: time limit of one call to a backend.
        layers: whether to look at layers.
        repeats: runs with the same inputs, whose outputs must be equal bit by bit.
        rounds: turns in which the backends are timed; 0 for no times.
        slice_s: seconds of each turn.
        batches: sizes of the first dimension for the times by batch.
        recordings: files of recorded results, each a row of its own.
        stand_ins: files of recorded results that stand in the rows of absent backends.
        parts: folder for the smallest failing part of each backend; None to leave it out.
        model: the model as the command's user wrote it, for the commands of empty rows.
    """

    seconds: float = 120.0
    layers: bool = False
    repeats: int = 3
    rounds: int = 3
    slice_s: float = 0.3
    batches: tuple[int, ...] = ()
    recordings: tuple[Path, ...] = ()
    stand_ins: tuple[Path, ...] = ()
    parts: Path | None = None
    model: str = "MODEL"


@dataclass(frozen=True, eq=False)
class Parity:
    """Report of one model.

    Attributes:
        source: the model.
        oracle: kind of the oracle.
        inputs: arrays by input name.
        rows: one for each backend, recordings among them.
        notes: sentences on the whole report.
        truth: the oracle itself.
    """

    source: ModelSource
    oracle: str
    inputs: Mapping[str, np.ndarray]
    rows: tuple[Measured, ...]
    notes: tuple[str, ...] = ()
    truth: Oracle = field(default_factory=lambda: Oracle("", {}))

    @property
    def passed(self) -> bool:
        """Tell whether no row failed; an absent or a refused backend is no failure."""
        return not any(each.failed for each in self.rows)

    def recordings(self, provenance: Mapping[str, Any]) -> list[recorded.Recording]:
        """Return the results of the backends that ran here, to be written into a file."""
        return [
            each.recording(self.source, self.inputs, provenance)
            for each in self.rows
            if each.result is not None and each.row.recorded is None
        ]


def run(
    source: ModelSource, backends: Sequence[Backend], inputs: Mapping[str, np.ndarray] | None,
    options: Options, progress: Progress = lambda text: None,
) -> Parity:  # fmt: skip
    """Return the report of one model.

    Args:
        source: the model in the forms that are given.
        backends: present and absent ones.
        inputs: arrays by input name; None for the factory's examples, or random ones.
        options: choices of the report.
        progress: called with a line of text before each step.

    Raises worker.Failure or ModelError if the model has no oracle.
    """
    with tempfile.TemporaryDirectory(prefix="vklab-parity-") as folder:
        progress("exporting")
        is_package = not source.onnx and not source.factory and not source.named
        source, notes = forms.exported(source, Path(folder), options.seconds, bool(options.batches))
        given = forms.inputs_of(source, None, options.seconds) if inputs is None else dict(inputs)
        forms.require_inputs(source, given)
        progress("computing the oracle")
        truth, note = forms.truth(source, given, options.seconds)
        notes += [*filter(None, [note]), *truth.notes]
        work = _Work(source, given, truth, options, progress, is_package, Path(folder))
        found = [*work.export_row(), *work.backends(backends), *work.recordings()]
        return Parity(source, truth.kind, given, tuple(found), tuple(notes), truth)


class _Work:
    """One report under way.

    Args:
        source: the model, with its ONNX form.
        inputs: arrays by input name.
        truth: the oracle.
        options: choices of the report.
        progress: called before each step.
        is_package: whether the ONNX form is that of a package's program.
        folder: folder for files of the report's time.
    """

    def __init__(
        self, source: ModelSource, inputs: Mapping[str, np.ndarray], truth: Oracle,
        options: Options, progress: Progress, is_package: bool, folder: Path,
    ) -> None:  # fmt: skip
        self._is_package = is_package
        self._source, self._inputs, self._truth = source, inputs, truth
        self._packages = packages.Packages(source, folder, options.seconds)
        self._options, self._progress, self._folder = options, progress, folder
        self._model = forms.proto_of(source)
        self._kind = forms.computes_in(self._model)
        self._locals: dict[Dtypes, Any] = {}
        self._programs: dict[Path, Program] = {}

    def export_row(self) -> list[Measured]:
        """Return the row of the exported graph in float64 against the module; none without one."""
        if not self._truth.exported:
            return []
        dtypes = Dtypes("float32", "float64", "float64")
        verdict = judge.outputs(
            self._truth.exported, self._truth.outputs, tolerances.model("float32")
        )
        row = Row(EXPORT, oracle.GRAPH, dtypes, "ran")
        return [rows.judged(row, verdict)]

    def backends(self, backends: Sequence[Backend]) -> list[Measured]:
        """Return a row for each backend, in their order; the present ones are timed in turn."""
        self._progress("asking which backends are here")
        answers = registry.survey(backends, self._options.seconds)
        found: dict[str, Measured] = {}
        alive: dict[str, Live] = {}
        with contextlib.ExitStack() as stack:
            for each in backends:
                answer = answers[each.name]
                if not answer:
                    found[each.name] = rows.absent(each, answer, self._options.model)
                    continue
                self._progress(f"running {each.name}")
                live = stack.enter_context(Live(each, self._options.seconds))
                try:
                    found[each.name] = self._one(live)
                    if self._options.rounds:
                        alive[each.name] = live
                    else:  # nothing more is asked
                        live.close()
                except Failure as failure:
                    found[each.name] = rows.failed(each, failure, self._options.model)
                    live.close()
            self._time(alive, found)
        found |= self._stand_ins(
            [name for name, each in found.items() if each.row.status == "absent"]
        )
        return [found[each.name] for each in backends]

    def _stand_ins(self, absent: Sequence[str]) -> dict[str, Measured]:
        """Return the rows of absent backends for which there is a recording of this model."""
        known = recorded.of_model(self._options.stand_ins, self._source)
        return {name: self._recorded(known[name]) for name in absent if name in known}

    def _recorded(self, recording: recorded.Recording) -> Measured:
        truth = self._truth
        if not rows.same_arrays(recording.inputs, self._inputs):
            truth, _ = forms.truth(self._source, recording.inputs, self._options.seconds)
        return rows.of_recording(recording, truth.outputs)

    def _one(self, live: Live) -> Measured:
        """Run one backend and judge it."""
        if self._packages.waits(live.runtime):
            self._progress(f"converting to Core ML for {live.runtime.name}")
        source = self._packages.source_of(live.runtime)
        runs = live.outputs(source, self._inputs, self._options.repeats)
        facts = live.facts()
        dtypes = facts["dtypes"] or rows.dtypes_of(live.runtime, self._kind)
        allowed = self._allowed(dtypes, facts["steps"])
        measured = rows.of_runs(live.runtime, runs, facts, self._truth.outputs, dtypes, allowed)
        if not self._options.layers or not self._truth.layers:
            return measured
        self._progress(f"layers of {live.runtime.name}")
        try:
            return self._layers(live, measured)
        except Failure as failure:
            if failure.ended:
                raise
            reason = failure.reason
        except ModelError as error:
            reason = one_line(error)
        return replace(measured, notes=(*measured.notes, f"no layers: {reason}"))

    def _allowed(self, dtypes: Dtypes, steps: Steps | None) -> Tolerance:
        """Return the tolerance of the outputs: of dtypes, or of an 8-bit model's own steps."""
        table = tolerances.model(dtypes.arithmetic, dtypes.weights)
        if steps is None or not self._truth.layers:
            return table
        self._progress("following the noise of 8-bit steps")
        try:
            return forms.tolerance_of(
                self._source, self._inputs, self._truth, steps, self._options.seconds
            )
        except Failure:  # too large a model for the time limit
            return table

    def _layers(self, live: Live, measured: Measured) -> Measured:
        """Add cumulative and local errors by layer, and the smallest part that fails."""
        # A part of the exported graph is no part of a package's program.
        program = None if self._is_package else self._program(live.runtime)
        model, truth = self._model, self._truth
        given = None
        if program is not None:
            model, truth = program.model, program.truth
            given = program.local(rows.comparable(measured.row.dtypes))
        elif live.runs_parts:
            given = rows.given_layers(model, truth, measured.row.dtypes, self._locals)
        looked = rows.with_layers(measured, model, truth, given, live, self._inputs)
        if self._options.parts and not looked.row.passed:
            has_program = program is not None or self._is_package
            package = self._packages.source_of(live.runtime).package if has_program else None
            looked = rows.with_part(looked, model, truth, live, self._options.parts, package)
        return looked if program is None else rows.of_program(looked, program)

    def _program(self, backend: Backend) -> Program | None:
        """Return the program of the backend's package; None for a backend without one."""
        source = self._packages.source_of(backend)
        if source.package is None or not hasattr(backend, "prepare_part"):
            return None
        if source.package not in self._programs:
            try:
                self._programs[source.package] = self._read(source, backend)
            except Failure as failure:  # of another child than the backend's, which still lives
                raise Failure("refused", failure.reason) from failure
        return self._programs[source.package]

    def _read(self, source: ModelSource, backend: Backend) -> Program:
        path, seconds = self._folder / "program.onnx", self._options.seconds
        model = forms.program_of(source, path, seconds)
        wide_form = self._packages.wide_form(backend)
        wide = forms.program_of(wide_form, path, seconds) if wide_form else None
        return programs.of_package(model, wide, self._truth, self._inputs)

    def _time(self, alive: dict[str, Live], found: dict[str, Measured]) -> None:
        """Time the living backends in turn, so that a drift of the machine meets all of them."""
        if not self._options.rounds or not alive:
            return
        self._progress("timing the backends in turn")
        times, failures = timing.in_turn(
            alive, self._inputs, self._options.rounds, self._options.slice_s
        )
        for name, measured in times.items():
            found[name] = rows.with_bound(rows.timed(found[name], measured.plain), measured)
        for name, failure in failures.items():
            found[name] = rows.failed(alive.pop(name).runtime, failure, self._options.model)
        if self._options.batches:
            by_batch = timing.by_batch(
                alive, self._inputs, self._options.batches, self._options.slice_s
            )
            for name, (medians, note) in by_batch.items():
                notes = (*found[name].notes, note) if note else found[name].notes
                found[name] = replace(found[name], batches=medians, notes=notes)

    def recordings(self) -> list[Measured]:
        """Return the rows of recorded results of this model, judged against their own inputs."""
        found = []
        for path in self._options.recordings:
            for each in recorded.read(path):
                is_same = recorded.is_of(each, self._source)
                found.append(self._recorded(each) if is_same else rows.foreign(each, path))
        return found
