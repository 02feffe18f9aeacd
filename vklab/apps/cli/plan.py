"""Command `vklab plan`: every decision about a model that is made before a device starts.

Visited by labs 10, 11 and 12.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab import settings
from vklab.apps.cli import console, placement, plan_rules
from vklab.apps.cli.inputs import Files, Model, Size, UpperBounds, feed, fixed_sizes
from vklab.apps.cli.options import Device, DType, Json, grouped, written_file
from vklab.base import draw
from vklab.base.draw import svg
from vklab.graph import onnx_import, passes
from vklab.graph.graph import Graph
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.options import Facts
from vklab.plan.plan import Plan
from vklab.runtime import kernels, loading, open_devices
from vklab.runtime.compiled import build, saved
from vklab.runtime.observe import given, tuned
from vklab.shader import source
from vklab.types import DeviceInfo

NUMBER, WRITES = 4, 28


@dataclass(frozen=True)
class _Planned:
    """A plan, and the reason to replan a compiled model."""

    plan: Plan
    reason: str

    @property
    def before(self) -> tuple[Graph, ...]:
        """Return the graphs of the device chunks before their passes; none of a compiled model."""
        return tuple(chunk.source for chunk in self.plan.chunks if chunk.source)

    @property
    def each(self) -> tuple[Chunk, ...]:
        """Return the chunks on the device."""
        return tuple(chunk for chunk in self.plan.chunks if chunk.is_on_device)


@grouped
def plan(
    model: Model,
    files: Files = None,
    dims: Size = None,
    upper: UpperBounds = None,
    device: Device = None,
    dtype: DType = None,
    *,
    flags: placement.PlacementFlags,
    show_passes: Annotated[
        bool, typer.Option("--passes", help="Show how each pass changed the graph.")
    ] = False,
    show_rules: Annotated[
        bool, typer.Option("--rules", help="Show which rules made each dispatch: without any of "
                           "them the plan has another.")
    ] = False,
    show: Annotated[
        str | None, typer.Option(metavar="NODE|NUMBER", help="Print the kernel of a dispatch: "
                                 "its generated text and its file.")
    ] = None,
    libraries: Annotated[
        bool, typer.Option("--libraries", help="With --show: also the modules it imports.")
    ] = False,
    svg: Annotated[
        Path | None, written_file(help="Draw dispatches and memory into this file.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Plan an ONNX model for a device: show what runs where, and why.

    Open dimensions have their upper bounds, unless --dim gives sizes. A model with nodes on the
    host runs once on random inputs, because only a run yields the sizes after them.
    """
    if libraries and show is None:
        raise typer.BadParameter("--libraries: give --show too, which names the kernel")
    is_compiled = given.is_compiled(model)
    graph = saved.read(model).graph if is_compiled else onnx_import.load_graph(model)
    _, dims, sizes = fixed_sizes(graph, files, dims, upper)
    if flags:
        placement.show(model, graph, sizes, files, dims, flags, as_json)
        return
    info = open_devices.select(device)
    planned = _plan(model, graph, sizes, files, dims, info, dtype or "")
    if show is not None:
        _show(planned.plan, show, libraries)
        return
    if show_rules:
        arrays = feed(graph.inputs, files, dims, graph.defaults).arrays
        _say_rules(
            planned,
            lambda: build.plan_whole(graph, info, sizes, arrays, dtype or "", tuned.kept(info)),
            info,
            as_json,
        )
        return
    if svg:
        if len(planned.plan.chunks) != 1:
            raise typer.BadParameter(
                "--svg: the host runs a part of this model, so it has several "
                "chunks; only one can be drawn"
            )
        svg.write_text(planned.plan.picture(model.name), encoding="utf-8")
    if as_json:
        facts = _facts(graph, planned, info, dtype or "")
        console.emit({**facts, **({"reason": planned.reason} if is_compiled else {})})
        return
    if is_compiled:
        console.say(
            f"planned here: {planned.reason}"
            if planned.reason
            else "the plan of the compiled model"
        )
    if show_passes:
        _say_passes(graph, planned, dtype or "")
        return
    _say_summary(model, graph, sizes, planned, info)
    console.say()
    for line in _table(planned.plan.rows(), console.width()):
        console.say(line)
    if svg:
        console.say(f"\nthe plan is drawn in {svg}")


def _say_rules(
    planned: _Planned, again: Callable[[], Plan | None], info: DeviceInfo, as_json: bool
) -> None:
    """Print the rules that made each dispatch.

    Args:
        planned: the plan.
        again: plans the model under the current switches; None where the host runs a part of it.
        info: the device.
        as_json: whether to print JSON.
    """
    if again() is None:
        raise typer.BadParameter(
            "--rules: only a run tells the plan of this model, and each rule "
            "would need a run of its own"
        )
    rows = plan_rules.made_by(planned.plan, again, info)
    if as_json:
        console.emit(
            {
                "rules": [
                    {"node": node, "kernel": kernel, "rules": list(rules)}
                    for node, kernel, rules in rows
                ]
            }
        )
        return
    console.table(
        "rules",
        ("node", "kernel", "without one of these it is another"),
        [(node, kernel, ", ".join(rules)) for node, kernel, rules in rows],
    )


def _plan(
    model: Path, graph: Graph, sizes: Mapping[str, int], files: Sequence[str] | None,
    dims: Sequence[str], info: DeviceInfo, dtype: str,
) -> _Planned:  # fmt: skip
    """Plan without a driver if the device can run the whole model, else by a run."""
    if not given.is_compiled(model):
        arrays = feed(graph.inputs, files, dims, graph.defaults).arrays
        made = build.plan_whole(graph, info, sizes, arrays, dtype, tuned.kept(info))
        if made:
            return _Planned(made, "")
    with (
        console.compiling() as progress,
        loading.load(model, info.index, progress, dtype=dtype or None) as loaded,
    ):
        loaded.run(feed(loaded.inputs, files, dims, loaded.defaults).arrays)
        return _Planned(loaded.plan, loaded.plan_reason)


# ------------------------------------------------------------------------------------- as JSON


def _facts(graph: Graph, planned: _Planned, info: DeviceInfo, dtype: str) -> dict[str, Any]:
    steps = [step for before in planned.before for step in _effects(before, dtype)]
    return {
        **planned.plan.summary(),
        "nodes_imported": len(graph.nodes),
        "arena_without_aliasing_bytes": _without_aliasing(planned, info),
        "passes": [
            {"name": name, "nodes": after, "nodes_before": before, "changes": changes}
            for name, before, after, changes, _ in steps
        ],
    }


def _without_aliasing(planned: _Planned, info: DeviceInfo) -> int:
    """Return the bytes of all activations if no two of them share memory."""
    facts = Facts(kernel_refusal=kernels.unavailable)
    with settings.settings(DISABLE_ALIASING=True):
        separate = (plans.lower_rewritten(chunk, info, facts) for chunk in planned.each)
        return sum(chunk.memory.arena_bytes for chunk in separate)


def _effects(graph: Graph, dtype: str) -> Iterator[tuple[str, int, int, dict[str, int], bool]]:
    """Yield for each pass its name, the nodes before and after, changes by op_type, and if any."""
    for name, after in passes.traverse(graph, dtype):
        old, new = (Counter(n.qualified_type for n in g.nodes) for g in (graph, after))
        changes = {kind: new[kind] - old[kind] for kind in sorted(old | new)}
        changes = {kind: count for kind, count in changes.items() if count}
        yield name, len(graph.nodes), len(after.nodes), changes, after is not graph
        graph = after


# ------------------------------------------------------------------------------------- as text


def _say_summary(
    model: Path, graph: Graph, sizes: Mapping[str, int], planned: _Planned, info: DeviceInfo
) -> None:
    facts = planned.plan.summary()
    host = len(facts["host_nodes"])
    folded = sum(len(before.nodes) for before in planned.before) + host
    host_too = " and the host" if host else ""
    console.say_wrapped(f"{model.name} on {info.name}{host_too}", "bold")
    if sizes:
        dims = ", ".join(f"{name}={size}" for name, size in sizes.items())
        console.say_wrapped(f"open dimensions: {dims}")
    after = f", {folded} after constant folding" if planned.before else ""
    on_host = f", {host} of them on the host" if host else ""
    sizes_text = {
        name: draw.bytes_text(facts[f"{name}_bytes"])
        for name in ("arena", "lower_bound", "weights")
    }
    plain = draw.bytes_text(_without_aliasing(planned, info))
    nodes = sum(len(each.graph.nodes) for each in planned.each) + host
    count = facts["tuned_dispatches"]
    measured = f"; {count} as `vklab tune` measured" if count else ""
    for title, words in (
        ("nodes", f"{len(graph.nodes)} imported{after}, {nodes} after passes{on_host}"),
        (
            "dispatches",
            f"{facts['dispatches']}, with {facts['generated_kernels']} generated "
            f"kernels, {facts['barriers']} barriers, {facts['transfers']} copies{measured}",
        ),
        (
            "activations",
            f"{sizes_text['arena']}; lower bound {sizes_text['lower_bound']}; "
            f"without aliasing {plain}",
        ),
        ("weights", sizes_text["weights"]),
    ):
        console.say_wrapped(f"{title:12} {words}", indent=13)


def _table(rows: Sequence[tuple[str, str, str, str]], width: int) -> Iterator[str]:
    """Yield the lines of a table of a width; the reason of a host node has lines of its own.

    Names of nodes are shortened in their middle; names of fused kernels are wrapped.

    Args:
        rows: nodes, kernel, workgroups, and written values or the reason.
        width: columns of the terminal.
    """
    number = 0
    table, reasons = [], []
    for node, kernel, groups, written in rows:
        is_dispatch = re.fullmatch(r"\d+x\d+x\d+", groups) is not None
        table.append(
            (
                str(number).rjust(NUMBER) if is_dispatch else "",
                node,
                kernel,
                groups,
                _written(written) if is_dispatch else "",
            )
        )
        reasons.append("" if is_dispatch else written)
        number += is_dispatch
    headers = ("#", "nodes", "kernel", "workgroups", "writes")
    numbers = frozenset({"#", "workgroups"})
    widths = console.fit(headers, table, width, numbers, frozenset({"nodes"}))
    if widths:
        titles = ("#".rjust(NUMBER), *headers[1:])
        yield "  ".join(h.ljust(n) for h, n in zip(titles, widths, strict=True)).rstrip()
    for row, reason in zip(table, reasons, strict=True):
        cells = (
            [
                [row[0]],
                [svg.shorten(row[1], widths[1])],
                console.wrapped(row[2], widths[2]),
                [row[3]],
                console.wrapped(row[4], widths[4]),
            ]
            if widths
            else []
        )
        for line in zip_longest(*cells, fillvalue=""):
            pairs = zip(line, widths, strict=True)
            yield "  ".join(cell.ljust(wide) for cell, wide in pairs).rstrip()
        if not widths:
            yield from console.block(headers, row, width)
        if reason:
            yield from console.hang("     " + reason, width)


def _written(text: str) -> str:
    """Return each written value with its whole shape, and with its name shortened."""
    values = []
    for value in text.split(", "):
        name, colon, shape = value.rpartition(": ")
        values.append(svg.shorten(name, WRITES - 2) + colon + shape)
    return ", ".join(values)


def _say_passes(graph: Graph, planned: _Planned, dtype: str) -> None:
    if not planned.before:
        console.say("no passes: they ran when the model was compiled")
        return
    console.say(f"imported: {len(graph.nodes)} nodes")
    for number, before in enumerate(planned.before):
        part = f", part {number + 1} on Vulkan" if len(planned.before) > 1 else ""
        console.say(f"constants folded, functions expanded: {len(before.nodes)} nodes{part}\n")
        steps = list(_effects(before, dtype))
        rows = [
            (
                name,
                old,
                new,
                ", ".join(f"{n:+} {kind}" for kind, n in changes.items())
                or "rewritten, with the same number of each kind",
            )
            for name, old, new, changes, did in steps
            if did
        ]
        if rows:
            headers = ("pass", "nodes", "after", "what changed")
            console.table("", headers, rows, right="nodes after", whole="pass")
            console.say()
        busy = {name for name, *_ in rows}
        idle = [name for name, *_ in steps if name not in busy]
        for line in console.hang(f"nothing to do: {', '.join(idle)}", console.width()):
            console.say(line)


def _show(planned: Plan, wanted: str, libraries: bool) -> None:
    """Print the kernels of the dispatches with a given number, node or written value."""
    labels = [row[0] for row in planned.rows() if re.fullmatch(r"\d+x\d+x\d+", row[2])]
    chosen = [
        (number, label, dispatch)
        for number, (label, dispatch) in enumerate(zip(labels, planned.dispatches, strict=True))
        if wanted == str(number)
        or wanted in label.split(" + ")
        or wanted in (info.name for _, info in dispatch.writes)
    ]
    if not chosen:
        raise typer.BadParameter(
            f"--show {wanted}: no dispatch has this node or value; numbers "
            f"go from 0 to {len(labels) - 1}"
        )
    for number, label, dispatch in chosen:
        console.say(f"// dispatch {number}: {label}\n// {dispatch}")
        for title, pairs in (
            ("defines", dispatch.defines),
            ("constants", dispatch.constants),
            ("push constants", dispatch.push),
        ):
            if pairs:
                words = ", ".join(f"{name}={value}" for name, value in pairs)
                console.say(f"// {title}: {words}")
        path = source.find(dispatch.kernel)
        if libraries:
            console.say(source.expand(path, dispatch.fragment))
            continue
        if dispatch.fragment:
            console.say(f"// ---- generated\n{dispatch.fragment}\n")
        console.say(f"// ---- {path.parent.name}/{path.name}\n{path.read_text('utf-8').rstrip()}")
