"""HTML page of a parity report: one file without scripts, for light and dark screens.

Each picture has its numbers in a table or a tooltip, and no fact is told by colour alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from vklab.apps.compare.backend import Dtypes
from vklab.apps.compare.children import timing
from vklab.apps.compare.judging import errors
from vklab.apps.compare.parity import Parity
from vklab.apps.compare.report import summary
from vklab.apps.compare.report.rows import Measured
from vklab.base import draw
from vklab.base.draw import parity as pictures

CSS = Path(__file__).with_name("pages") / "parity.css"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
HEADERS = ("backend", "device", "weights, arithmetic, sums", "verdict", "max error",
           "of tolerance", "SQNR", "same class", "median us", "size", "nodes")  # fmt: skip
RIGHT = {"max error", "of tolerance", "SQNR", "same class", "median us", "size", "terms", "local",
         "cumulative", "of weights", "of arithmetic"}  # fmt: skip


def page(made: Parity) -> str:
    """Return the report as one HTML document that loads nothing."""
    ran = [each for each in made.rows if each.verdict]
    failed = [each for each in made.rows if each.failed]
    missing = [each for each in made.rows if not each.verdict and not each.failed]
    name = escape(made.source.name)
    agreeing = sum(each.row.passed is True for each in ran)
    counts = Counter(each.row.status for each in made.rows if not each.verdict)
    others = "".join(f", {count} {status}" for status, count in counts.items())
    parts = [
        f"<h1>{name} on {len(ran)} backends</h1>",
        f"<p>{_verdict_text(not failed)}: {agreeing} of {len(ran)} agree with the oracle{others}. "
        f"Oracle: {escape(made.oracle)}.</p>",
        _list(summary.notes(made)),
        "<h2>Outputs</h2>",
        _table(HEADERS, [_cells(each) for each in ran], "Errors of the outputs against float64"),
        _list(summary.sentences([each for each in made.rows if each.row.status != "absent"])),
        *_layers(ran),
        *_distribution(ran),
        *_times(made),
        *_missing(missing),
    ]
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>Parity of {name}</title>\n<style>\n{CSS.read_text('utf-8')}</style>\n</head>\n"
    )
    return (
        f"{head}<body>\n{_themes()}\n<main>\n{chr(10).join(filter(None, parts))}\n</main>\n"
        "</body>\n</html>\n"
    )


def _themes() -> str:
    choices = "".join(
        f'<label><input type="radio" name="theme" id="{key}"{checked}> {key}</label> '
        for key, checked in (("system", " checked"), ("light", ""), ("dark", ""))
    )
    return f'<fieldset class="theme"><legend>theme</legend>{choices}</fieldset>'


def _verdict_text(passed: bool | None) -> str:
    if passed is None:
        return "no verdict"
    kind, words = ("good", "passed") if passed else ("bad", "\u2715 FAILED")
    return f'<span class="{kind}">{words}</span>'


def _cells(each: Measured) -> list[str]:
    """Return the cells of one backend as HTML."""
    row, verdict = each.row, each.verdict
    assert verdict is not None
    measured = verdict.errors.values()
    noise = min((e.sqnr_db for e in measured), default=math.nan)
    classes = [e.top1 for e in measured if e.top1 is not None]
    recorded = ", recorded" if row.recorded else ""
    return [
        f"<b>{escape(row.backend)}</b>",
        escape(summary.device_text(row)),
        escape(_dtypes_text(row.dtypes)),
        _verdict_text(row.passed) + recorded,
        summary.number(row.max_abs_error),
        summary.share_text(max(verdict.shares.values(), default=0.0)),
        "equal" if noise == math.inf else "" if math.isnan(noise) else f"{noise:.0f} dB",
        f"{min(classes):.0%}" if classes else "",
        f"{row.latency_us['median']:.0f}" if row.latency_us else "",
        "" if row.bytes is None else draw.bytes_text(row.bytes),
        escape(summary.nodes_text(row)),
    ]


def _dtypes_text(dtypes: Dtypes) -> str:
    words = (dtypes.weights, dtypes.arithmetic, dtypes.sums)
    return words[0] if len({*words}) == 1 else ", ".join(words)


def _layers(ran: Sequence[Measured]) -> list[str]:
    """Return the heat maps of layers and backends, and a table for each backend."""
    looked = [each for each in ran if each.layers]
    if not looked:
        return []
    rows = [*dict.fromkeys(layer.name for each in looked for layer in each.layers)]
    kept = [each for each in looked if each.taps is None or each.taps.trusted]
    parts = [
        "<h2>Layers</h2>",
        *_heat_map(
            "Local errors by layer",
            "each layer alone, fed the oracle's values",
            rows,
            _cells_of(looked, "local", "share"),
        ),
        *_heat_map(
            "Cumulative errors by layer",
            "the whole model with taps",
            rows,
            _cells_of(kept, "cumulative", "cumulative_share"),
        ),
    ]
    for each in looked:
        caption = "Local errors, split into rounded weights and arithmetic"
        table = _table(summary.LAYER_HEADERS, _escaped(summary.layer_rows(each.layers)), caption)
        parts.append(
            f"<details><summary>Layers of {escape(each.row.backend)} as numbers</summary>"
            f'<div class="wide">{table}</div></details>'
        )
    return parts


def _cells_of(
    looked: Sequence[Measured], error: str, share: str
) -> dict[tuple[str, str], tuple[float, str]]:
    """Return share and tooltip by layer and backend.

    Args:
        looked: backends with layers.
        error: the attribute of Layer that has the error.
        share: the attribute that has its share of the tolerance.
    """
    cells = {}
    for each in looked:
        for layer in each.layers:
            found = getattr(layer, share)
            if found is not None:
                said = (
                    f"{layer.operator}, error {getattr(layer, error):.3g} of values up to "
                    f"{layer.size:.3g}, {summary.share_text(found)} of its tolerance"
                )
                cells[layer.name, each.row.backend] = (found, said)
    return cells


def _heat_map(
    title: str, words: str, rows: Sequence[str],
    cells: Mapping[tuple[str, str], tuple[float, str]],
) -> list[str]:  # fmt: skip
    """Return a heading and a heat map; nothing without cells.

    Args:
        title: what is drawn.
        words: how it was measured.
        rows: names of the layers.
        cells: share and tooltip by layer and backend.
    """
    columns = [*dict.fromkeys(column for _, column in cells)]
    if not cells:
        return []
    return [f"<h3>{title}: {words}</h3>", _figure(pictures.heat_map(title, rows, columns, cells))]


def _distribution(ran: Sequence[Measured]) -> list[str]:
    """Return the histograms of errors in units in the last place."""
    counts = {}
    for each in ran:
        assert each.verdict is not None
        ulps = [found.ulps for found in each.verdict.errors.values()]
        if ulps:
            counts[each.row.backend] = [sum(column) for column in zip(*ulps, strict=True)]
    if not counts:
        return []
    bins = ["equal", *(f"\u2264 {limit:g}" for limit in errors.ULP_LIMITS[1:]), "more"]
    title = "Distribution of the outputs' errors"
    axis = "units in the last place of the backend's arithmetic"
    picture = pictures.histogram_rows(title, bins, counts, axis)
    note = "One rounding of the true value is an error of at most 0.5."
    return [f"<h2>{title}</h2>", f'<p class="quiet">{note}</p>', _figure(picture)]


def _times(made: Parity) -> list[str]:
    """Return bars of the median times, the runs by batch, and where another one is the fastest."""
    rows = []
    for each in made.rows:
        for given, ending in ((each.row.latency_us, ""), (each.bound_us, ", bound")):
            if not given:
                continue
            low, high = given.get("p10", given["median"]), given.get("p90", given["median"])
            words = f"{draw.time_text(given['median'] * 1e3)}, {1e6 / given['median']:.0f} runs/s"
            words += " (recorded)" if each.row.recorded else ""
            rows.append((f"{each.row.backend}{ending}", low, given["median"], high, words))
    if not rows:
        return []
    title = "Time of one run"
    note = (
        "Median of runs with arrays on the host, measured in turn; the orange line reaches "
        "from the fastest to the slowest tenth. In a bound run, inputs and outputs stay in the "
        "memory of the device."
    )
    batches = {each.row.backend: each.batches for each in made.rows if each.batches}
    sizes = sorted({size for medians in batches.values() for size in medians})
    cells = [
        [escape(name), *(summary.number(medians.get(size)) for size in sizes)]
        for name, medians in batches.items()
    ]
    table = (
        _table(
            ("backend", *(f"batch {size}" for size in sizes)),
            cells,
            "Median microseconds by batch size",
        )
        if batches
        else ""
    )
    crossed = [
        f"from batch {size} on, {name} is the fastest" for size, name in timing.crossovers(batches)
    ]
    return [
        f"<h2>{title}</h2>",
        f'<p class="quiet">{note}</p>',
        _figure(pictures.bars(title, rows, "microseconds")),
        table,
        _list(crossed),
    ]


def _missing(missing: Sequence[Measured]) -> list[str]:
    """Return a table of the absent and refused backends, with the command that installs each."""
    if not missing:
        return []
    cells = [
        [
            f"<b>{escape(e.row.backend)}</b>",
            escape(e.row.status),
            escape(e.row.reason),
            f"<code>{escape(e.row.install)}</code>" if e.row.install else "",
        ]
        for e in missing
    ]
    headers = ("backend", "status", "reason", "how to install it")
    return ["<h2>Not available</h2>", _table(headers, cells, "Backends without a result")]


def _figure(picture: str) -> str:
    return f'<figure class="wide">{picture}</figure>'


def _list(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def _escaped(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    return [[escape(cell) for cell in row] for row in rows]


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """Return a table; its cells are HTML.

    Args:
        headers: one text for each column.
        rows: the cells of each row.
        caption: what the table shows.
    """
    kinds = [
        ' class="right"' if header in RIGHT else ' class="device"' if header == "device" else ""
        for header in headers
    ]
    head = "".join(
        f'<th scope="col"{kind}>{escape(header)}</th>'
        for header, kind in zip(headers, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )
