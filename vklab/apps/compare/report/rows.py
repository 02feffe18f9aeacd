"""Rows of a parity report: from runs, failures, absences and recordings to one record each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from vklab.apps.compare.backend import Availability, Backend, Dtypes, ModelSource, Result, Row
from vklab.apps.compare.children import timing
from vklab.apps.compare.children.child import Live
from vklab.apps.compare.coreml import part
from vklab.apps.compare.judging import errors, judge
from vklab.apps.compare.judging.errors import Repeats
from vklab.apps.compare.judging.judge import Verdict
from vklab.apps.compare.layerwise import layers, smallest
from vklab.apps.compare.layerwise.layers import Layer, Taps
from vklab.apps.compare.layerwise.programs import Program
from vklab.apps.compare.report import recorded
from vklab.apps.compare.truth import oracle
from vklab.base.worker import Failure
from vklab.errors import ModelError
from vklab.runtime import tolerances
from vklab.runtime.tolerances import Tolerance

FAILURES = ("crashed", "timeout", "failed")


@dataclass(frozen=True, eq=False)
class Measured:
    """A row with all that was measured for it.

    Attributes:
        row: the row.
        verdict: judgement of the outputs; None if it gave none.
        layers: errors by layer; empty unless asked for.
        taps: distance of the tapped from the untapped run.
        repeats: whether several runs gave the same bits.
        batches: median microseconds by batch size.
        allowed: tolerance of the outputs; None for that of the dtypes.
        bound_us: as `Row.latency_us`, of runs whose inputs and outputs stay in the device's memory.
        notes: further sentences.
        result: outputs, versions and times.
        part: files of the smallest failing part.
    """

    row: Row
    verdict: Verdict | None = None
    layers: tuple[Layer, ...] = ()
    taps: Taps | None = None
    repeats: Repeats | None = None
    batches: Mapping[int, float] = field(default_factory=dict)
    allowed: Tolerance | None = None
    bound_us: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()
    result: Result | None = None
    part: tuple[Path, ...] = ()

    @property
    def failed(self) -> bool:
        """Tell whether this row makes the report fail."""
        return self.row.passed is False or self.row.status in FAILURES

    def summary(self) -> dict[str, Any]:
        """Return the row ready for JSON: the keys of Row, and what else was measured."""
        found: dict[str, Any] = errors.plain(asdict(self.row))
        found["notes"] = list(self.notes)
        if self.verdict:
            found["outputs"] = {
                name: each.summary() | {"share": errors.plain(self.verdict.shares[name])}
                for name, each in self.verdict.errors.items()
            }
        if self.repeats:
            found["repeats"] = errors.plain(asdict(self.repeats))
        if self.result:
            found["versions"] = dict(self.result.versions)
        if self.taps:
            found["taps"] = errors.plain(asdict(self.taps)) | {"trusted": self.taps.trusted}
        if self.layers:
            found["layers"] = [layer.summary() for layer in self.layers]
        if self.batches:
            found["batches_us"] = errors.plain(dict(self.batches))
        if self.bound_us:
            found["bound_us"] = errors.plain(dict(self.bound_us))
        if self.part:
            found["part"] = [str(path) for path in self.part]
        return found

    def recording(
        self, source: ModelSource, inputs: Mapping[str, np.ndarray], provenance: Mapping[str, Any]
    ) -> recorded.Recording:
        """Return the result as a recording.

        Args:
            source: the model.
            inputs: arrays by input name.
            provenance: entries of `recorded.PROVENANCE`; versions are added.
        """
        assert self.result is not None
        row, result = self.row, self.result
        return recorded.Recording(
            row.backend,
            row.device,
            row.dtypes,
            recorded.key(source),
            inputs,
            result.outputs,
            {**provenance, "versions": result.versions},
            result.nodes,
            result.latencies_ns,
            result.size_bytes,
        )


def _row(backend: Backend, status: str, **more: Any) -> Row:
    return Row(backend.name, backend.device, backend.dtypes, status, **more)


def comparable(dtypes: Dtypes) -> Dtypes:
    """Return dtypes of which the table of tolerances knows all; integer sums are exact."""
    return dtypes if dtypes.sums in tolerances.TABLE else replace(dtypes, sums="")


def judged(row: Row, verdict: Verdict) -> Measured:
    """Return a row with its verdict."""
    reason = "; ".join(verdict.notes)
    if not verdict.passed and not reason:
        worst = max(verdict.shares, key=lambda name: verdict.shares[name])
        reason = f"output {worst!r} is wrong by {verdict.shares[worst]:.3g} times the tolerance"
    full = replace(row, max_abs_error=verdict.max_abs_error, passed=verdict.passed, reason=reason)
    return Measured(full, verdict, notes=verdict.notes)


def absent(backend: Backend, answer: Availability, model: str) -> Measured:
    """Return the row of a backend that is not here, with the commands that would fill it.

    Args:
        backend: the backend.
        answer: reason and install line.
        model: the model as its user wrote it.
    """
    fill = recorded.record_command(model, backend.name)
    steps = filter(None, [answer.install, f"there: {fill}"])
    return Measured(_row(backend, "absent", reason=answer.reason, install="; ".join(steps)))


def failed(backend: Backend, failure: Failure, model: str) -> Measured:
    """Return the row of a backend that gave no outputs.

    One whose device or library was found missing only when it started is absent, too.

    Args:
        backend: the backend.
        failure: what happened.
        model: the model as its user wrote it.
    """
    if failure.status == "absent":
        return absent(backend, Availability(failure.reason, failure.install), model)
    return Measured(_row(backend, failure.status, reason=failure.reason, install=failure.install))


def foreign(recording: recorded.Recording, path: Path) -> Measured:
    """Return the row of a recording of another model."""
    row = Row(
        recording.backend,
        recording.device,
        recording.dtypes,
        "refused",
        f"{path.name} was recorded with another model: {dict(recording.model)}",
        recorded=dict(recording.provenance),
    )
    return Measured(row)


def dtypes_of(backend: Backend, model: str) -> Dtypes:
    """Return the dtypes in which a backend computes a model that is "float16" or "float32" itself.

    A row in float32 leaves the model as it is: one in float16 is computed in float16. ONNX Runtime
    on the CPU widens it when it is loaded.
    """
    own = backend.dtypes
    if model == "float32" or own.weights != "float32":
        return own
    widens = getattr(backend, "widens_float16", False)
    return Dtypes(model, own.arithmetic if widens else model, own.sums)


def of_runs(
    backend: Backend, runs: Sequence[Mapping[str, np.ndarray]], facts: Mapping[str, Any],
    truth: Mapping[str, np.ndarray], dtypes: Dtypes, allowed: Tolerance,
) -> Measured:  # fmt: skip
    """Return the row of a backend that ran.

    Args:
        backend: the backend.
        runs: outputs of several runs with the same inputs.
        facts: as `tasks.facts` returns them.
        truth: the oracle's outputs.
        dtypes: dtypes in which the backend computes this model.
        allowed: the tolerance of the outputs.
    """
    row = _row(backend, "ran", nodes=facts["nodes"], bytes=facts["size_bytes"])
    row = replace(row, device=facts["device"] or row.device, dtypes=dtypes)
    measured = judged(row, judge.outputs(runs[0], truth, allowed, dtypes.arithmetic))
    how = f"the tolerance is {allowed.reason}" if facts["steps"] else ""
    notes = (*measured.notes, *filter(None, [facts["note"], how]))
    result = Result(dict(runs[0]), {}, facts["nodes"], facts["versions"], (), facts["size_bytes"])
    return replace(
        measured, repeats=errors.repeats(runs), notes=notes, result=result, allowed=allowed
    )


def of_recording(recording: recorded.Recording, truth: Mapping[str, np.ndarray]) -> Measured:
    """Return the row of a recorded result, judged here against the oracle of its inputs."""
    row = Row(
        recording.backend,
        recording.device,
        recording.dtypes,
        "recorded",
        nodes=recording.nodes,
        bytes=recording.size_bytes,
        recorded=dict(recording.provenance),
    )
    dtypes = recording.dtypes
    allowed = tolerances.model(dtypes.arithmetic, dtypes.weights)
    measured = judged(row, judge.outputs(recording.outputs, truth, allowed, dtypes.arithmetic))
    return timed(measured, recording.latencies_ns)


def timed(measured: Measured, nanoseconds: Sequence[int]) -> Measured:
    """Return the row with its times; unchanged if there are none."""
    if not len(nanoseconds):
        return measured
    row = replace(measured.row, latency_us=timing.latency_us(nanoseconds))
    result = measured.result and replace(measured.result, latencies_ns=tuple(nanoseconds))
    return replace(measured, row=row, result=result)


def with_bound(measured: Measured, times: timing.Times) -> Measured:
    """Return the row with its times of bound runs, or with the reason why there are none."""
    notes = (*measured.notes, *filter(None, [times.note]))
    bound = timing.latency_us(times.bound) if times.bound else None
    return replace(measured, bound_us=bound, notes=notes)


def given_layers(
    model: onnx.ModelProto, truth: oracle.Oracle, dtypes: Dtypes, known: dict[Dtypes, Any]
) -> layers.Local:
    """Return the model that measures local errors in some dtypes; `known` keeps it.

    Args:
        model: the whole model.
        truth: the oracle.
        dtypes: dtypes of the backend.
        known: what was returned before.
    """
    if dtypes not in known:
        known[dtypes] = layers.local(model, truth.layers, comparable(dtypes))
    made: layers.Local = known[dtypes]
    return made


def with_layers(
    measured: Measured, model: onnx.ModelProto, truth: oracle.Oracle,
    given: layers.Local | None, live: Live, inputs: Mapping[str, np.ndarray],
) -> Measured:  # fmt: skip
    """Return the row with errors by layer.

    Args:
        measured: the row.
        model: the whole model.
        truth: the oracle.
        given: what `given_layers` returned; None for a backend that runs no parts of a graph.
        live: the backend at work.
        inputs: arrays by input name.
    """
    dtypes = comparable(measured.row.dtypes)
    values = live.layers(inputs)
    allowed = measured.allowed or tolerances.model(dtypes.arithmetic, dtypes.weights)
    plain = measured.result.outputs if measured.result else {}
    taps = layers.taps(plain, values, allowed) if values else None
    notes = list(measured.notes)
    made: Mapping[str, np.ndarray] | None = None
    try:
        if given is not None:
            made = live.alone(given.model, given.inputs)
        else:
            given, made = live.layers_alone(inputs, truth.modules, dtypes)
    except Failure as failure:
        if failure.ended:
            raise
        notes.append(f"no local errors: {failure.reason}")
    found = layers.by_layer(model, truth.layers, dtypes, values, given, made, allowed)
    proves = not measured.row.passed and (taps is None or taps.trusted)
    first = layers.first_failing(found, cumulative=proves)
    row = replace(measured.row, first_layer=first.name if first else None)
    return replace(measured, row=row, layers=found, taps=taps, notes=tuple(notes))


def of_program(measured: Measured, program: Program) -> Measured:
    """Return the row of a package with the oracle's names for the layers that join it."""
    first = measured.row.first_layer
    row = replace(measured.row, first_layer=first and program.names.get(first, first))
    notes = (*measured.notes, *program.notes)
    return replace(measured, row=row, layers=program.renamed(measured.layers), notes=notes)


def with_part(
    measured: Measured, model: onnx.ModelProto, truth: oracle.Oracle, live: Live, folder: Path,
    package: Path | None = None,
) -> Measured:  # fmt: skip
    """Return the row with the files of its smallest failing part, if one fails alone.

    Args:
        measured: a row with layers.
        model: the whole model.
        truth: the oracle.
        live: the backend at work.
        folder: folder of the files.
        package: the Core ML package whose program the model is; its part is written, too.
    """
    first = measured.row.first_layer
    if first is None:
        return measured
    failing = smallest.find(model, truth.layers, first, comparable(measured.row.dtypes), live.alone)
    if failing is None:
        return measured
    path = folder / f"{measured.row.backend}.onnx"
    files, notes = smallest.save(failing, path), measured.notes
    if package is not None:
        operations = {
            part.owner(name) for node in failing.cut.model.graph.node for name in node.output
        }
        try:
            files.append(
                part.write(
                    package,
                    [*map(part.owner, failing.expected)],
                    operations,
                    path.with_suffix(".mlpackage"),
                )
            )
        except ModelError as error:
            notes = (*notes, f"no part as a package: {error}")
    return replace(measured, part=tuple(files), notes=notes)


def same_arrays(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> bool:
    """Tell whether two sets of arrays are the same, bit by bit."""
    return left.keys() == right.keys() and all(
        np.array_equal(array, right[name]) for name, array in left.items()
    )
