"""Forms of a parity report: JSON, and tables of layers for a terminal. The page is in `page`.

`parity` in the JSON has the keys that others rely on, and no more; the rest is in `details`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from vklab.apps.compare.backend import Row
from vklab.apps.compare.children import timing
from vklab.apps.compare.layerwise.layers import Layer
from vklab.apps.compare.parity import Parity
from vklab.apps.compare.report.rows import Measured

KEYS = tuple(item.name for item in fields(Row))
LAYER_HEADERS = ("layer", "operator", "terms", "size", "cumulative", "local", "of weights",
                 "of arithmetic", "of tolerance")  # fmt: skip


def summary(made: Parity) -> dict[str, Any]:
    """Return the report ready for JSON."""
    rows, more = [], []
    for each in made.rows:
        entries = each.summary()
        rows.append({key: entries.pop(key) for key in KEYS})
        more.append({"backend": each.row.backend, **entries})
    crossed = timing.crossovers({each.row.backend: each.batches for each in made.rows})
    return {
        "parity": {"oracle": made.oracle, "rows": rows},
        "details": {
            "model": made.source.name,
            "passed": made.passed,
            "notes": notes(made),
            "crossovers": [{"batch": size, "fastest": name} for size, name in crossed],
            "rows": more,
        },
    }


def notes(made: Parity) -> list[str]:
    """Return the sentences on the whole report, with a doubt of the oracle where there is one."""
    looked = [each for each in made.rows if any(x.share is not None for x in each.layers)]
    runtimes = {each.row.backend.partition("-")[0] for each in looked}
    wrong = [{x.name for x in each.layers if (x.share or 0) > 1} for each in looked]
    shared = set.intersection(*wrong) if len(runtimes) > 1 else set()
    names = [x.name for x in looked[0].layers if x.name in shared] if looked else []
    doubt = (
        (
            f"every backend is wrong at {names[0]!r}: suspect the oracle, which "
            "onnx.reference computes"
        )
        if names
        else ""
    )
    return [*made.notes, *made.truth.notes, *filter(None, [doubt])]


def remarks(each: Measured) -> list[str]:
    """Return the sentences on one backend beside its numbers, each once.

    They tell of its reason, notes, determinism, bound runs, taps, layers, and the smallest failing
    part.
    """
    row = each.row
    texts = [row.reason, *each.notes]
    if each.repeats and not each.repeats.identical:
        texts.append(
            f"{each.repeats.runs} runs of the same inputs differ by up to "
            f"{each.repeats.max_abs:.2g}"
        )
    if each.bound_us and row.latency_us:
        ratio = each.bound_us["median"] / row.latency_us["median"]
        texts.append(
            f"with bound inputs and outputs {each.bound_us['median']:.0f} us, "
            f"{ratio:.0%} of a plain run"
        )
    if each.taps:
        texts.append(str(each.taps))
    if row.first_layer:
        texts.append(f"the first layer out of tolerance is {row.first_layer}")
    if each.part:
        texts.append(f"the smallest failing part is in {each.part[0]}")
    return [*dict.fromkeys(filter(None, texts))]


def sentences(measured: Sequence[Measured]) -> list[str]:
    """Return the remarks and origins of rows, each with all the backends that it is about."""
    about: dict[str, list[str]] = {}
    for each in measured:
        texts = [*remarks(each), *origin(each)]
        if not each.verdict:
            texts = ["; ".join([each.row.status, *texts])]
        for text in texts:
            about.setdefault(text, []).append(each.row.backend)
    return [f"{', '.join(names)}: {text}" for text, names in about.items()]


def origin(each: Measured) -> list[str]:
    """Return a sentence on the origin of a recording; nothing for a row that ran here."""
    facts = each.row.recorded
    if not facts:
        return []
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    source = f"; published in {facts['source']}" if facts["source"] else ""
    return [
        f"recorded on {facts['machine']}, {facts['date']}, by {facts['measured_by']}, with "
        f"{versions or 'unknown versions'}: {facts['command']}{source}"
    ]


def device_text(row: Row) -> str:
    """Return the device without its driver, for which a table has no room; JSON has both."""
    return row.device.rpartition(", ")[0] if "vklab" in row.backend else row.device


def nodes_text(row: Row) -> str:
    """Return the nodes by provider, in words that fit into a column."""
    return ", ".join(
        f"{count} {name.removesuffix('ExecutionProvider')}" for name, count in row.nodes.items()
    )


def layer_rows(layers: Sequence[Layer], most: int = 0) -> list[tuple[str, ...]]:
    """Return a row of texts for each layer under LAYER_HEADERS.

    Args:
        layers: errors by layer, in the model's order.
        most: number of rows, of the layers with the largest share of a tolerance; 0 for all.
    """
    kept = {*range(len(layers))}
    if most and len(layers) > most:
        kept = {*sorted(kept, key=lambda n: -_worst(layers[n]))[:most]}
    return [
        (
            layer.name,
            layer.operator,
            str(layer.terms),
            number(layer.size),
            number(layer.cumulative),
            number(layer.local),
            number(layer.weights),
            number(layer.arithmetic),
            share_text(layer.share),
        )
        for index, layer in enumerate(layers)
        if index in kept
    ]


def number(value: float | None) -> str:
    """Return a number with three digits; an empty text for None."""
    return "" if value is None else f"{value:.3g}"


def share_text(share: float | None) -> str:
    """Return a share of a tolerance in per cent, or as a multiple if it is too large."""
    if share is None:
        return ""
    return f"{share:.1%}" if share <= 1 else f"{share:.3g} times"


def _worst(layer: Layer) -> float:
    return max(layer.share or 0.0, layer.cumulative_share or 0.0)
