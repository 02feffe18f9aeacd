"""ONNX's backend suite on a device: the outcome of each case, and the reason for host nodes.

A case passes if its outputs agree and no node ran on the host; the host steers control flow (If,
Loop, Scan) by design, so only the nodes in its bodies count.
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from vklab import settings
from vklab.apps import onnx_backend
from vklab.base import worker
from vklab.errors import HostWarning, SetupError, UnsupportedOperatorError, VklabError
from vklab.plan import constant_folding
from vklab.runtime import tolerances

__all__ = ["KINDS", "STATUSES", "Case", "Outcome", "Report", "cases", "run"]

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
STATUSES = ("pass", "fallback", "wrong", "error", "skipped")
# Reasons that name a dtype: an operator is covered without kernels for every dtype.
_OF_DTYPE = re.compile(r"kernels exist for|not numbers|lacks shader")


CASE_S = 600.0  # time limit of a case in a process
# For shapes, sizes, ranges and empty tensors the planner knows the result.
NOTHING_TO_RUN = "known before the run: nothing is dispatched"
RANDOM = constant_folding.RANDOM - {"Dropout"}
# Dtypes whose tolerances may be wider than a case asks for.
WIDENED = ("float16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class Case:
    """One case of the suite, and the operator that it tests."""

    name: str
    kind: str
    operator: str
    test: Any

    @property
    def is_expanded(self) -> bool:
        """Tell whether the case has an operator's function body in place of the operator."""
        return "_expanded" in self.name

    @functools.cached_property
    def model(self) -> onnx.ModelProto:
        """Return the model, from memory or from a file of the onnx package."""
        if self.test.model is not None:
            return self.test.model
        return onnx.load(f"{self.test.model_dir}/model.onnx")

    @property
    def is_random(self) -> bool:
        """Tell whether an operator draws random numbers, so that no two runs agree."""
        return any(
            node.op_type in RANDOM or (node.op_type == "Dropout" and len(node.input) > 2)
            for node in self.model.graph.node
        )

    def data_sets(self) -> Iterable[tuple[list[Any], list[Any]]]:
        """Yield inputs and expected outputs."""
        if self.test.data_sets is not None:
            for inputs, outputs in self.test.data_sets:
                yield [_array(v) for v in inputs], [_array(v) for v in outputs]
            return
        yield from _read_data_sets(self.test.model_dir, self.model)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case: one of STATUSES, and the reason for it."""

    status: str
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """Outcomes of all cases on one device."""

    device: str
    outcomes: dict[Case, Outcome]

    def counts(self, cases: Iterable[Case] | None = None) -> dict[str, int]:
        """Return the number of cases for each status."""
        counts = Counter(self.outcomes[case].status for case in cases or self.outcomes)
        return {status: counts[status] for status in STATUSES}

    def operators(self) -> dict[str, dict[str, Any]]:
        """Return the counts of each operator's cases, and whether the operator is covered.

        Covered means: at least one case passes, and the others are declined only for a dtype.
        """
        groups: dict[str, list[Case]] = {}
        for case in self.outcomes:
            if case.kind == "node" and not case.is_expanded:
                groups.setdefault(case.operator, []).append(case)
        return {name: self._row(groups[name]) for name in sorted(groups)}

    def _row(self, group: Sequence[Case]) -> dict[str, Any]:
        outcomes = [self.outcomes[case] for case in group]
        others = [outcome for outcome in outcomes if outcome.status != "pass"]
        covered = len(others) < len(outcomes) and all(
            outcome.status in ("fallback", "skipped") and _OF_DTYPE.search(outcome.reason)
            for outcome in others
        )
        reasons = sorted({outcome.reason for outcome in others if outcome.reason})
        return {**self.counts(group), "covered": bool(covered), "reasons": reasons}

    def summary(self) -> dict[str, Any]:
        """Return the report ready for JSON."""
        parts: dict[str, list[Case]] = {
            name: [] for name in ("node, plain", "node, expanded", *KINDS[1:])
        }
        for case in self.outcomes:
            node = f"node, {'expanded' if case.is_expanded else 'plain'}"
            parts[node if case.kind == "node" else case.kind].append(case)
        return {
            "device": self.device,
            "counts": self.counts(),
            "without_dispatch": sum(o.reason == NOTHING_TO_RUN for o in self.outcomes.values()),
            "kinds": {name: self.counts(group) for name, group in parts.items() if group},
            "operators": self.operators(),
            "cases": {
                case.name: {"status": outcome.status, "reason": outcome.reason}
                for case, outcome in self.outcomes.items()
            },
        }


def cases(kinds: Sequence[str] = KINDS, pattern: str = "") -> list[Case]:
    """Return the cases of onnx's suite whose name matches a pattern, or whose operator is it.

    Args:
        kinds: among KINDS.
        pattern: a regular expression over case names, or an operator, with or without its domain.

    Raises SetupError for a pattern that is no regular expression.
    """
    chosen = []
    try:
        is_named = re.compile(pattern).search
    except re.error as error:
        raise SetupError(
            f"{pattern!r} is no regular expression ({error}); give one over names of "
            "cases, or the name of an operator"
        ) from error
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for kind in kinds:
            for test in sorted(load_model_tests(kind=kind), key=lambda test: test.name):
                chosen.append(Case(test.name, kind, _operator(test, kind), test))
    return [
        c
        for c in chosen
        if is_named(c.name) or pattern in (c.operator, c.operator.rpartition(".")[2])
    ]


def run(
    chosen: Sequence[Case],
    device: str = "CPU",
    fallback: bool = True,
    progress: Callable[[int, Case, Outcome], None] | None = None,
    jobs: int = 0,
) -> Report:
    """Run cases one after the other on a device, or in other processes.

    Args:
        chosen: the cases, as `cases` returns them.
        device: as in `onnx_backend`: "CPU" for the default device, "VULKAN:1", or part of a name.
        fallback: whether nodes without a kernel may run on the host; if not, skip these cases.
        progress: called after each case with the number of finished cases, the case, its outcome.
        jobs: number of processes, in which a crash is the error of one case; 0: this process.
    """
    outcomes: dict[Case, Outcome] = {}
    with (
        settings.settings(FALLBACK=fallback),
        np.errstate(all="ignore"),
        warnings.catch_warnings(action="ignore", category=HostWarning),  # the report names them
    ):
        pairs: Iterator[tuple[Case, Outcome]] = ((case, _run_case(case, device)) for case in chosen)
        if jobs:
            pairs = _spread(chosen, device, fallback, jobs)
        for number, (case, outcome) in enumerate(pairs, 1):
            outcomes[case] = outcome
            if progress:
                progress(number, case, outcome)
    return Report(device, {case: outcomes[case] for case in chosen})


def _spread(
    chosen: Sequence[Case], device: str, fallback: bool, jobs: int
) -> Iterator[tuple[Case, Outcome]]:
    """Yield the outcome of each case as soon as one of the processes has it; a crash is one."""

    def outcome(case: Case) -> Outcome:
        try:
            answer = pool.call(_run_alone, case, device, fallback, seconds=CASE_S)
            return Outcome(*answer)
        except worker.Failure as failure:
            return Outcome("error", f"the process of this case {failure.reason}")

    with contextlib.closing(worker.Pool(jobs)) as pool, ThreadPoolExecutor(jobs) as threads:
        futures = {threads.submit(outcome, case): case for case in chosen}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            threads.shutdown(cancel_futures=True)


def _run_alone(state: dict[Any, Any], case: Case, device: str, fallback: bool) -> tuple[str, str]:
    """Return status and reason of a case, in a process of `_spread`.

    Args:
        state: the dict of the process.
        case: the case.
        device: as in `run`.
        fallback: as in `run`.
    """
    outcome = run([case], device, fallback).outcomes[case]
    return outcome.status, outcome.reason


def _run_case(case: Case, device: str) -> Outcome:
    reasons: dict[str, str] = {}
    steps = 0
    try:
        rep = onnx_backend.prepare(case.model, device)
        with rep.session:
            for inputs, expected in case.data_sets():
                outputs = rep.run(inputs)
                reasons |= rep.session.host_reasons
                steps += rep.session.step_count
                try:
                    _compare(case, expected, outputs)
                except (AssertionError, TypeError, AttributeError) as error:
                    return Outcome("wrong", _first_lines(error))
    except (UnsupportedOperatorError, SetupError) as error:  # SetupError: a package is missing
        return Outcome("skipped", str(error))
    except VklabError as error:
        return Outcome("error", f"{type(error).__name__}: {error}")
    if reasons:
        return Outcome("fallback", "; ".join(reasons.values()))
    return Outcome("pass", "" if steps else NOTHING_TO_RUN)


def _compare(case: Case, expected: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raise AssertionError unless outputs agree by the rules of onnx's runner, with two exceptions.

    The order of a sum is free, so the absolute tolerance grows with the largest output; and of a
    random operator's result only dtype and shape are compared.
    """
    if len(expected) != len(outputs):
        raise AssertionError(f"{len(outputs)} outputs, {len(expected)} expected")
    for truth, got in zip(expected, outputs, strict=True):
        if isinstance(truth, list) and isinstance(got, list):  # the runner takes no scalars here
            _compare(case, truth, got)
            continue
        if case.is_random and isinstance(truth, np.ndarray):
            np.testing.assert_equal((got.dtype, got.shape), (truth.dtype, truth.shape))
            continue
        rtol, atol = case.test.rtol, case.test.atol
        if isinstance(truth, np.ndarray) and str(truth.dtype) in WIDENED:
            least = tolerances.operator(str(truth.dtype))
            finite = np.abs(truth[np.isfinite(truth)], dtype=np.float64)
            atol = max(atol, least.atol * float(finite.max(initial=0)))
            rtol = max(rtol, least.rtol)
        Runner.assert_similar_outputs([truth], [got], rtol, atol)


def _first_lines(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _operator(test: Any, kind: str) -> str:
    if kind != "node" or test.model is None:
        return ""
    nodes = test.model.graph.node
    if "_expanded" in test.name or not nodes:
        return ""
    node = nodes[-1]
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _array(value: Any) -> Any:
    """Return an element of a data set as an array or a list; some are still protos."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return value


def _read_data_sets(folder: str, model: onnx.ModelProto) -> Iterable[tuple[list[Any], list[Any]]]:
    """Yield the data sets in the model's folder of the onnx package."""
    for data in sorted(Path(folder).glob("test_data_set_*")):
        read = []
        for name, values in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(list(data.glob(f"{name}_*.pb")))
            paths = [data / f"{name}_{number}.pb" for number in range(count)]
            read.append([_load(p, v) for p, v in zip(paths, values, strict=False)])
        yield read[0], read[1]


def _load(path: Any, value: onnx.ValueInfoProto) -> Any:
    kinds: dict[str, Any] = {
        "sequence_type": onnx.SequenceProto,
        "optional_type": onnx.OptionalProto,
    }
    proto = kinds.get(value.type.WhichOneof("value") or "", onnx.TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return _array(proto)
