"""Option --each-variant of `vklab conformance`: the suite through every variant of plans.

The cases run in other processes, so that one that crashes is a row. Forced kernels run the cases
that have products.
"""

from __future__ import annotations

import contextlib
import queue
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import typer

from vklab import conformance as suite
from vklab.backends.children.process import Failure, Worker
from vklab.cli import console
from vklab.runtime.observe import each_variant
from vklab.runtime.observe.each_variant import Variant
from vklab.types import DeviceInfo

__all__ = ["measure", "planned_as_gpu", "run", "show", "table"]

LIMIT_S = 7200.0  # of one variant
HEADERS = ("variant", "cases", *suite.STATUSES, "worse", "classes")
Names = Sequence[tuple[str, str]]


def planned_as_gpu(info: DeviceInfo) -> contextlib.AbstractContextManager[Any]:
    """Return a `with` block in which a CPU device is planned for as a GPU."""
    return each_variant.applied(Variant(as_gpu=True), info.index)


def run(
    info: DeviceInfo, kinds: Sequence[str], pattern: str, jobs: int, file: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Run every variant; exit 1 if a case is worse than in plans as they are.

    Args:
        info: the device.
        kinds: kinds of cases.
        pattern: as in `conformance.cases`.
        jobs: variants that run at the same time.
        file: file for Markdown.
        as_json: whether to print JSON.
    """
    rows = []
    for row in measure(info, kinds, pattern, jobs):
        rows.append(row)
        console.warn(f"{row['variant']}: {row.get('counts') or row['reason']}")
        if file:
            table(rows, info, file)
    if as_json:
        console.emit({"device": info.name, "driver": info.driver, "variants": rows})
    else:
        show(rows, info)
    if any(row["status"] != "ran" or row["worse"] for row in rows):
        raise typer.Exit(1)


class _Children:
    """Processes that run variants; one that has ended is started again.

    Args:
        count: the number of processes.
    """

    def __init__(self, count: int) -> None:
        self._idle: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        for _ in range(count):
            self._idle.put(None)

    def run(self, *arguments: Any) -> dict[str, Any]:
        """Return what `_run` returns for arguments. Raises Failure."""
        worker = self._idle.get() or Worker()
        try:
            made: dict[str, Any] = worker.call(_run, *arguments, seconds=LIMIT_S)
            return made
        except Failure as failure:
            if failure.ended:
                worker.close()
                worker = Worker()
            raise
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End the processes, of which none may be at work."""
        while not self._idle.empty():
            worker = self._idle.get()
            if worker:
                worker.close()


def measure(
    info: DeviceInfo, kinds: Sequence[str], pattern: str, jobs: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each variant: its command, counts, the cases that are worse than usual.

    Args:
        info: the device.
        kinds: kinds of cases.
        pattern: as in `conformance.cases`.
        jobs: variants that run at the same time.
    """
    asked = info.index, tuple(kinds), pattern
    variants = each_variant.every(info)
    with contextlib.closing(_Children(jobs)) as children:
        whole = [each for each in variants if not each.switches]
        first = [(variant, children.run(variant, *asked, None)) for variant in whole]
        usual = first[0][1]
        yield from (_row(variant, made, usual, pattern) for variant, made in first)
        products = list(dict.fromkeys(name for _, made in first for name in made["products"]))

        def tried(variant: Variant) -> dict[str, Any] | Failure:
            try:
                return children.run(variant, *asked, products if variant.kernel else None)
            except Failure as failure:
                return failure

        others = [each for each in variants if each not in whole]
        with ThreadPoolExecutor(jobs) as pool:
            for variant, made in zip(others, pool.map(tried, others), strict=True):
                yield _row(variant, made, usual, pattern)


def _run(
    state: dict[Any, Any], variant: Variant, device: int, kinds: tuple[str, ...], pattern: str,
    only: Names | None,
) -> dict[str, Any]:  # fmt: skip
    """Run cases as a variant, and return their outcomes by kind and name.

    Args:
        state: the child's dict.
        variant: the variant.
        device: index.
        kinds: kinds of cases.
        pattern: as in `conformance.cases`.
        only: kinds and names of the cases to run; None for all.
    """
    if (kinds, pattern) not in state:
        state[kinds, pattern] = suite.cases(kinds, pattern)
    cases = state[kinds, pattern]
    if only is not None:
        wanted = set(only)
        cases = [case for case in cases if (case.kind, case.name) in wanted]
    products, seen = [], 0
    with each_variant.applied(variant, device) as choices:
        def note(number: int, case: suite.Case, outcome: suite.Outcome) -> None:
            nonlocal seen
            if choices.asked > seen:
                products.append((case.kind, case.name))
            seen = choices.asked

        report = suite.run(cases, f"VULKAN:{device}", progress=note)
    return {"outcomes": {(case.kind, case.name): outcome
                         for case, outcome in report.outcomes.items()},
            "counts": report.counts(), "products": products, "classes": len(choices)}  # fmt: skip


def _row(
    variant: Variant, made: dict[str, Any] | Failure, usual: dict[str, Any], pattern: str
) -> dict[str, Any]:
    """Return a row ready for JSON.

    Args:
        variant: the variant.
        made: what `_run` returned, or why it returned nothing.
        usual: what it returned for plans as they are.
        pattern: the pattern of the cases.
    """
    words = ["vklab", "conformance", *([shlex.quote(pattern)] if pattern else [])]
    for name, value in variant.switches.items():
        words += ["--set", shlex.quote(f"{name}={value}")]
    words += ["--as-gpu"] if variant.as_gpu else []
    row: dict[str, Any] = {"variant": str(variant), "kernel": variant.kernel,
                           "command": " ".join(words)}  # fmt: skip
    if isinstance(made, Failure):
        return row | {"status": made.status, "reason": made.reason}
    order = suite.STATUSES.index
    worse = {name: {"status": each.status, "reason": each.reason}
             for (kind, name), each in made["outcomes"].items()
             if order(each.status) > order(usual["outcomes"][kind, name].status)}  # fmt: skip
    return row | {"status": "ran", "cases": len(made["outcomes"]), "counts": made["counts"],
                  "worse": worse, "classes": made["classes"]}  # fmt: skip


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["status"] != "ran":
        return (row["variant"], *[""] * (len(HEADERS) - 3), row["status"], row["reason"])
    counts = [str(row["counts"][status]) for status in suite.STATUSES]
    return (row["variant"], str(row["cases"]), *counts, str(len(row["worse"])),
            str(row["classes"] or ""))  # fmt: skip


def show(rows: Sequence[dict[str, Any]], info: DeviceInfo) -> None:
    """Print a row for each variant, and the cases that are worse than usual."""
    console.say(str(info), "bold")
    console.table("", HEADERS, [_cells(row) for row in rows], " ".join(HEADERS[1:]), "variant")
    for row in rows:
        for name, each in row.get("worse", {}).items():
            console.say_wrapped(f"{row['variant']}: {each['status']} {name}: {each['reason']}")


def table(rows: Sequence[dict[str, Any]], info: DeviceInfo, path: Path) -> None:
    """Write the rows as Markdown.

    Args:
        rows: the rows.
        info: the device.
        path: the file.
    """
    lines = [
        "# ONNX's backend suite through every variant of plans", "",
        "Generated by `vklab conformance --each-variant --table FILE`; do not edit. A row has the "
        "outcome of all cases with one",
        "optimisation switched off, with all products and convolutions computed by one kernel "
        "wherever it can (`VARIANT`), or planned",
        "for a CPU device as for a GPU (`--as-gpu`). *Worse*: cases whose outcome is worse than in "
        "the first row. *Classes*: classes of",
        "products that the forced kernel computed. Such rows have the cases with products; a "
        "kernel that no case meets has no row.", "",
        f"Device: {info.name}, {info.driver}. Each row is `{rows[0]['command']}` with its options.",
        "", f"| options | {' | '.join(HEADERS[1:])} |", f"|---|{'---:|' * (len(HEADERS) - 1)}",
    ]  # fmt: skip
    shown = [row for row in rows if row["status"] != "ran" or not row["kernel"] or row["classes"]]
    for row in shown:
        options = row["command"].removeprefix(rows[0]["command"]).strip()
        lines.append(f"| {f'`{options}`' if options else 'none'} | {' | '.join(_cells(row)[1:])} |")
    named_cases = [f"* `{row['variant']}`: {name}: {each['status']}, {each['reason'][:160]}"
                   for row in rows for name, each in row.get("worse", {}).items()]  # fmt: skip
    path.write_text("\n".join([*lines, "", *named_cases]).rstrip() + "\n", "utf-8")
