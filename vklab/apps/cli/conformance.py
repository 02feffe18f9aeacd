"""Command `vklab conformance`: ONNX's backend suite on a device, and the coverage table."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from tqdm import tqdm

from vklab.apps import conformance as suite
from vklab.apps.cli import console
from vklab.apps.cli.options import Device, Json, written_file
from vklab.ops import registry
from vklab.runtime import open_devices

COLORS = {"pass": "green", "fallback": "yellow", "skipped": "yellow"}
PEERS = (
    ("ONNX Runtime 1.31, WebGPU, no fallback", "69 operators", "470 node cases"),
    ("ONNX Runtime 1.31, CPU", "", "1,331 node cases"),
    ("onnx.reference 1.23 (NumPy)", "", "1,873 node cases"),
    ("VKML", "19 operators imported", ""),
    ("ncnn, Vulkan", "64 layers", ""),
    ("ggml-vulkan", "82 operations", ""),
    ("ExecuTorch, Vulkan", "157 registry entries", ""),
)
# Cases that ONNX's text leaves open: tests/gpu/test_open_cases.py holds them.
OPEN = (
    (
        "RNN, GRU, LSTM: a sequence of length 0",
        "ORT: `Y` and `Y_h` are 0; reference: ignores `sequence_lens`",
        "`Y` is 0, `Y_h` is `initial_h`: no step, no change. An `X` of no steps at all runs on the "
        "host, with ORT's zeros",
    ),
    (
        "Resize, linear, of integers",
        "ORT: cut off towards 0; reference: to the nearest, ties to even",
        "the reference: its error is half as large",
    ),
    (
        "MaxPool of a window with NaN",
        "ORT: NaN or a number, by the place of the NaN and the rank; reference: the largest number",
        "NaN, as in Max and ReduceMax: a fault must not vanish",
    ),
    (
        "DynamicQuantizeLinear of zeros",
        "ORT: scale 1; reference: scale 1/255",
        "the reference; the zero point is 0, so all three mean the same numbers",
    ),
    (
        "Cast of a float to an unsigned integer out of range",
        "both: the conversion of their CPU; ONNX calls it undefined",
        "a negative one passes through the signed integer, so -1 becomes "
        "255 as in both; above the range it is what the driver makes of it",
    ),
    (
        "RotaryEmbedding, a position outside of the cache",
        "ORT: an error; reference: -1 is the last row, others an error",
        "-1 is the last row, others take the nearest row: a kernel cannot "
        "raise an error, and reads no other memory",
    ),
    (
        "HannWindow(1), HammingWindow(1), BlackmanWindow(1) with `periodic=0`",
        "both: NaN, as 0 / 0",
        "the first value of longer windows, which is a number",
    ),
)


def conformance(
    pattern: Annotated[
        str, typer.Argument(help="A regular expression over case names, or an operator. Default: "
                            "all cases.", show_default=False)
    ] = "",
    device: Device = None,
    no_fallback: Annotated[
        bool, typer.Option("--no-fallback", help="Skip cases with nodes that need the host.")
    ] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(help=f"Kind of case, among {', '.join(suite.KINDS)}; repeatable. Default: "
                     "all.", show_default=False),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the cases.")] = 1,
    as_gpu: Annotated[
        bool, typer.Option("--as-gpu", help="Plan for a CPU device as for a GPU, in this process.")
    ] = False,
    each: Annotated[
        bool, typer.Option("--each-variant", help="Run the cases without each optimisation, and "
                           "with each kernel of products; --table writes a row for each.")
    ] = False,
    table: Annotated[
        Path | None, written_file(help="Write the coverage table as Markdown.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run ONNX's backend test suite; exit 1 if a result is wrong."""
    unknown = [name for name in kind or () if name not in suite.KINDS]
    if unknown:
        known = ", ".join(suite.KINDS)
        raise typer.BadParameter(f"unknown kind {unknown[0]!r}; choose among {known}")
    info = open_devices.select(device)
    chosen = suite.cases(kind or suite.KINDS, pattern)
    if not chosen:
        raise typer.BadParameter(_why_none(pattern))
    if each:
        load_variants().run(info, kind or suite.KINDS, pattern, jobs, table, as_json)
        return
    with (
        tqdm(total=len(chosen), unit="case", disable=None, leave=False) as bar,
        load_variants().planned_as_gpu(info) if as_gpu else contextlib.nullcontext(),
    ):
        jobs = 0 if as_gpu else jobs
        report = suite.run(
            chosen,
            f"VULKAN:{info.index}",
            not no_fallback,
            lambda number, case, outcome: _advance(bar, case),
            jobs,
        )
    facts = report.summary() | {"device": info.name, "driver": info.driver}
    if table:
        table.write_text(coverage_table(facts), encoding="utf-8")
    if as_json:
        console.emit(facts)
    else:
        _show(facts, reasons=not no_fallback)
    counts = facts["counts"]
    raise typer.Exit(1 if counts["wrong"] else 0)


def _why_none(pattern: str) -> str:
    """Return why no case matches; an operator outside of ONNX's suite has tests of its own."""
    for domain, op_type in registry.OPERATORS:
        name = f"{domain}.{op_type}" if domain else op_type
        if pattern in (name, op_type):
            return (
                f"ONNX's suite has no case of {name}. The files tests/gpu/test_op_*.py that "
                f"name {op_type} prove it: run each with `vklab test --all FILE`"
            )
    return f"no case matches {pattern!r}; give a regular expression over case names, or an operator"


def load_variants() -> ModuleType:
    """Import `vklab.apps.cli.conformance_variants`, which needs optional folders of the package."""
    return importlib.import_module("vklab.apps.cli.conformance_variants")


def _advance(bar: Any, case: suite.Case) -> None:
    bar.set_description(case.name[:40])
    bar.update()


def _show(facts: dict[str, Any], reasons: bool) -> None:
    """Print a report; `reasons` tells whether to name why cases were skipped."""
    console.say(f"{facts['device']} ({facts['driver']})", "bold")
    for name, case in facts["cases"].items():
        if case["status"] in ("wrong", "error"):
            console.say(f"{case['status']:8} {name}: {case['reason']}", "red")
    skipped = [case["reason"] for case in facts["cases"].values() if case["status"] == "skipped"]
    for reason in dict.fromkeys(skipped if reasons else ()):
        console.say(f"skipped  {reason}", "yellow")
    rows = [(name, *(counts[s] for s in suite.STATUSES)) for name, counts in facts["kinds"].items()]
    rows.append(("all", *(facts["counts"][s] for s in suite.STATUSES)))
    console.table("", ("cases", *suite.STATUSES), rows, " ".join(suite.STATUSES), "cases")
    covered = [name for name, row in facts["operators"].items() if row["covered"]]
    console.say(
        f"{facts['without_dispatch']} passing cases need no dispatch: their result is "
        "known before the run"
    )
    console.say(f"{len(covered)} of {len(facts['operators'])} operators covered on Vulkan")


def coverage_table(facts: dict[str, Any]) -> str:
    """Return the coverage of every operator as Markdown, with the counts of other runtimes."""
    rows = facts["operators"]
    covered = sum(row["covered"] for row in rows.values())
    lines = [
        "# Coverage of ONNX's backend suite",
        "",
        "Generated by `vklab conformance --table docs/coverage.md`; do not edit.",
        "",
        f"Device: {facts['device']}, {facts['driver']}.",
        "",
        "A case *passes* when its outputs are right and no node ran on the host (If, Loop and Scan",
        "are steered by the host; their bodies count). *Fallback*: right, with host nodes.",
        "*Covered*: a case passes, and no other is declined but for its dtype.",
        "",
        "| cases | " + " | ".join(suite.STATUSES) + " |",
        "|---|" + "---:|" * len(suite.STATUSES),
    ]
    for name, counts in facts["kinds"].items():
        lines.append(f"| {name} | " + " | ".join(str(counts[s]) for s in suite.STATUSES) + " |")
    lines += [
        "",
        f"Of the cases that pass, {facts['without_dispatch']} are known before the run "
        "(shapes, sizes, ranges, empty tensors): nothing is dispatched for them.",
        "",
        f"**{covered} operators covered** of {len(rows)} with cases.",
        "",
        "ONNX Runtime and onnx.reference ran the same node cases (November 2026); the others",
        "are counted in their own registries of operators.",
        "",
        "| peer | operators | cases |",
        "|---|---|---|",
    ]
    lines += [f"| {peer} | {operators} | {cases} |" for peer, operators, cases in PEERS]
    lines += [
        "",
        "ONNX's text leaves some results open. ONNX Runtime (ORT, on the CPU), "
        "onnx.reference and vklab do not all agree:",
        "",
        "| case | they | vklab |",
        "|---|---|---|",
    ]
    lines += [f"| {case} | {they} | {ours} |" for case, they, ours in OPEN]
    lines += [
        "",
        "| operator | pass | fallback | covered | why not all on Vulkan |",
        "|---|---:|---:|---|---|",
    ]
    for name, row in rows.items():
        reason = "; ".join(row["reasons"])[:160].replace("|", "/")
        mark = "yes" if row["covered"] else "no"
        others = row["fallback"] + row["skipped"] + row["wrong"] + row["error"]
        lines.append(f"| {name} | {row['pass']} | {others} | {mark} | {reason} |")
    return "\n".join([*lines, ""])
