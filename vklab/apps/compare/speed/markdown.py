"""Recorded rows as Markdown: a table of times, a table of ratios to the floor, absent peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vklab.apps.compare.speed import record as records
from vklab.apps.compare.speed import roofs
from vklab.apps.compare.speed.measure import BASE, Row
from vklab.apps.compare.speed.roofs import Roofs

SHOWN = 8  # kernels of a model


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with some significant digits and with commas, "" for None."""
    if value is None:
        return ""
    if value >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(headers)} |", f"|{'|'.join(['---', *['---:'] * (len(headers) - 1)])}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _by_model(rows: Iterable[Row]) -> dict[tuple[int, str], dict[str, Row]]:
    """Return rows by run and model, then by runner."""
    grouped: dict[tuple[int, str], dict[str, Row]] = {}
    for row in rows:
        grouped.setdefault((row.run, row.model), {})[row.runner] = row
    return grouped


def times(rows: Sequence[Row], dtype: str = "") -> str:
    """Return a table of median microseconds, with each runner's ratio to vklab in brackets.

    Runners without any time are left out; a model that a runner cannot run has its status.

    Args:
        rows: the rows.
        dtype: "float32" for the runners that compute in it, "less" for those in TF32 and float16,
            beside vklab; "" for all.
    """
    if dtype:
        rows = [
            row
            for row in rows
            if (row.dtype == "float32") == (dtype == "float32") or row.runner == BASE["float32"]
        ]
    shown = list(dict.fromkeys(row.runner for row in rows if row.time_us and row.status == "ran"))
    lines = []
    for (_, model), by_runner in _by_model(rows).items():
        name = model + (
            " (device)" if any(r.compares == "device" for r in by_runner.values()) else ""
        )
        lines.append([name, *(_time_cell(by_runner.get(runner)) for runner in shown)])
    return _table(["us", *shown], lines)


def _time_cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.status != "ran":
        return row.status
    if row.time_us is None:
        return "-"
    is_base = row.ratio is None or row.over == row.runner
    if is_base or row.ratio is None:
        return number(row.time_us)
    ratio = f"{row.ratio:.2f}" if row.ratio < 10 else number(row.ratio)
    return f"{number(row.time_us)} ({ratio})"


def floors(rows: Sequence[Row], runners: Sequence[str] = ("vklab", "vklab-fp16")) -> str:
    """Return a table of vklab's times, its device times and its floors.

    Args:
        rows: the rows.
        runners: the runners to show.
    """
    headers = [
        "us",
        "runner",
        "run",
        "device",
        "floor",
        "times the floor",
        "load ms",
        "first ms",
        "host MB",
        "error",
    ]
    lines = []
    for row in rows:
        if row.runner in runners and row.status == "ran" and row.time_us and row.floor_us:
            megabytes = row.host_bytes / 1e6 if row.host_bytes else None
            lines.append(
                [
                    row.model,
                    row.runner,
                    number(row.median_us),
                    number(row.device_us),
                    number(row.floor_us),
                    f"{row.time_us / row.floor_us:.2f}",
                    number(row.load_ms),
                    number(row.first_ms),
                    number(megabytes),
                    f"{row.max_abs_error:.1e}" if row.max_abs_error is not None else "",
                ]
            )
    return _table(headers, lines)


def gaps(record: Mapping[str, Any], number_of_run: int = 0) -> str:
    """Return a table of what the time of each model consists of, where the kernels are known.

    Args:
        record: a recorded file.
        number_of_run: which of its runs.
    """
    run = (record.get("runs") or [record])[number_of_run]
    given = run.get("roofs")
    known = Roofs(**given) if given else None
    lines = []
    for row in records.rows_of(record):
        kernels_of = (run.get("kernels") or {}).get(row.model, {}).get(row.runner)
        if not (
            known and kernels_of and row.run == number_of_run and row.median_us and row.device_us
        ):
            continue
        work = record["models"][row.model]
        least = roofs.floor_us(known, (work["flops"], work["bytes"]), row.dtype, True)
        count = sum(each["dispatches"] for each in kernels_of)
        launches = count * known.dispatch_us
        rest = max(row.device_us - least - launches, 0.0)
        lines.append(
            [
                row.model,
                row.runner,
                number(row.median_us),
                number(row.median_us - row.device_us),
                number(least),
                str(count),
                number(launches) if known.dispatch_us else "?",
                number(rest),
                f"{rest / row.median_us:.0%}",
            ]
        )
    return _table(
        ["us", "runner", "run", "host", "work", "dispatches", "launches", "rest", "rest of run"],
        lines,
    )


def ablations(rows: Sequence[Row]) -> str:
    """Return a table of the time of each switch over that of vklab, a column for each model.

    Medians are divided, not turns: of two or three turns, one at other clocks would decide.
    """
    models = list(dict.fromkeys(row.model for row in rows))
    switches = list(dict.fromkeys(row.runner for row in rows if row.runner.startswith("without ")))
    found = {(row.model, row.runner): row for row in rows}
    times = {model: found[model, "vklab"].time_us for model in models if (model, "vklab") in found}
    lines = [["vklab, us", *(number(times.get(model)) for model in models)]]
    for name in switches:
        cells = []
        for model in models:
            row, whole = found.get((model, name)), times.get(model)
            ratio = f"{row.time_us / whole:.2f}" if row and row.time_us and whole else ""
            cells.append(ratio or (row.status if row else ""))
        lines.append([name, *cells])
    return _table(["", *models], lines)


def best(rows: Sequence[Row]) -> str:
    """Return a table of vklab's times beside those of the fastest other runtime, by dtype."""
    lines = []
    for (_, model), by_runner in _by_model(rows).items():
        cells = []
        for dtype in ("float32", "tfloat32", "float16"):
            if dtype in BASE and dtype != "tfloat32":
                cells.append(_time_cell(by_runner.get(BASE[dtype])))
            others = [
                row
                for row in by_runner.values()
                if row.dtype == dtype
                and row.time_us
                and row.status == "ran"
                and not row.runner.startswith("vklab")
            ]
            first = min(others, key=lambda row: row.time_us or 0.0, default=None)
            cells.append(f"{first.runner} {_time_cell(first)}" if first else "")
        lines.append([model, *cells])
    return _table(
        [
            "us",
            "vklab",
            "fastest strict peer",
            "fastest peer with TF32",
            "vklab-fp16",
            "fastest peer in float16",
        ],
        lines,
    )


def kernels(run: Mapping[str, Any], model: str, runner: str = "vklab") -> str:
    """Return a table of the kernels of one model: time, share, and rates beside the roofs.

    Args:
        run: one run.
        model: name of the model.
        runner: the runner that told its kernels.
    """
    rows = (run.get("kernels") or {}).get(model, {}).get(runner, [])
    known = run.get("roofs") or {}
    dtype = "float16" if runner.endswith("fp16") else "float32"
    most_flops = known.get("flops_per_s", {}).get(dtype)
    most_bytes = known.get("bytes_per_s")
    total = sum(row["time_us"] for row in rows) or 1.0
    # Workgroups of a dispatch, on average: few leave multiprocessors idle.
    counted = all("workgroups" in row for row in rows)
    lines = []
    for row in rows[:SHOWN]:
        rate, moved = (row[key] / row["time_us"] * 1e6 for key in ("flops", "bytes"))
        groups = [number(row["workgroups"] / row["dispatches"])] if counted else []
        lines.append(
            [
                f"`{row['kernel']}`",
                str(row["dispatches"]),
                *groups,
                number(row["time_us"]),
                f"{row['time_us'] / total:.0%}",
                number(rate / 1e12),
                f"{rate / most_flops:.0%}" if most_flops else "",
                number(moved / 1e9),
                f"{moved / most_bytes:.0%}" if most_bytes else "",
            ]
        )
    rest = rows[SHOWN:]
    if rest:
        time_us = sum(row["time_us"] for row in rest)
        lines.append(
            [
                f"{len(rest)} more",
                str(sum(row["dispatches"] for row in rest)),
                *([""] if counted else []),
                number(time_us),
                f"{time_us / total:.0%}",
                *[""] * 4,
            ]
        )
    return _table(
        [
            f"{model}, {runner}",
            "dispatches",
            *(["workgroups"] if counted else []),
            "us",
            "share",
            "TFLOP/s",
            "of roof",
            "GB/s",
            "of roof",
        ],
        lines,
    )


def slopes(rows: Sequence[Row]) -> str:
    """Return a table of the cost of one more node of a chain, by runner."""
    chains: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.model.startswith("chain_add_") and row.status == "ran" and row.median_us:
            chains.setdefault(row.runner, {})[int(row.model[10:])] = row.median_us
    lines = []
    for runner, points in chains.items():
        slope, longest = slope_us(points), sorted(points)[-2:]
        if slope is not None:
            lines.append([runner, f"{slope:.3g}", f"{longest[0]} to {longest[1]}"])
    return _table(["", "us a node", "between lengths"], lines)


def slope_us(points: Mapping[int, float]) -> float | None:
    """Return microseconds for one more node, between the two longest chains; None for fewer."""
    longest = sorted(points)[-2:]
    if len(longest) < 2:
        return None
    return (points[longest[1]] - points[longest[0]]) / (longest[1] - longest[0])


def machine(run: Mapping[str, Any]) -> str:
    """Return one paragraph: device, driver, date, clocks, versions, roofs."""
    about, known = run["machine"], run.get("roofs") or {}
    clocks = about.get("clocks") or {}
    text = [
        f"{about['device']}, driver {about['driver']}, Vulkan {about.get('vulkan', '?')}, "
        f"{about.get('system', '?')}, {str(about.get('started', '?'))[:10]}."
    ]
    if clocks.get("sm_mhz"):
        text.append(f"Clocks: {clocks['sm_mhz']} MHz, memory {clocks['memory_mhz']} MHz.")
    else:
        text.append("The driver does not tell its clocks.")
    versions = about.get("versions", {})
    text.append("Versions: " + ", ".join(f"{k} {v}" for k, v in versions.items()) + ".")
    if known:
        rates = ", ".join(
            f"{rate / 1e12:.3g} TFLOP/s in {dtype}" for dtype, rate in known["flops_per_s"].items()
        )
        moved = known.get("bytes_per_s")
        text.append(
            f"Roofs: {f'{number(moved / 1e9)} GB/s, ' if moved else ''}{rates}, "
            f"{known['submission_us']:.3g} us for a submission"
            + (
                f", {known['dispatch_us']:.2g} us for a dispatch and its barrier."
                if known.get("dispatch_us")
                else "."
            )
        )
    return " ".join(text)


def document(record: Mapping[str, Any]) -> str:
    """Return all tables of a recorded file; in ratios, above 1 means slower than vklab."""
    parts = []
    rows = records.rows_of(record)
    runs = record.get("runs") or [record]
    for index, run in enumerate(runs):
        own = [row for row in rows if row.run == index]
        parts.append(machine(run))
        if any(row.runner.startswith("without ") for row in own):
            parts.append(ablations(own))
            continue
        parts += [times(own), floors(own)]
        parts += [gaps(record, index)] if run.get("kernels") and run.get("roofs") else []
        parts += [slopes(own)] if any(row.model.startswith("chain_add_") for row in own) else []
        for model, by_runner in (run.get("kernels") or {}).items():
            parts += [kernels(run, model, runner) for runner in by_runner]
        absent = run.get("peers") or {}
        if absent:
            parts.append(
                "\n".join(
                    f"* {name}: {answer['reason']} ({answer['install']})"
                    for name, answer in absent.items()
                )
            )
    return "\n\n".join(parts)
