"""Rows of `vklab bench --llm`: language models on vklab, and on llama.cpp in turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import typer

from vklab.bench import language
from vklab.cli import console
from vklab.llm import synthetic
from vklab.runtime import open_devices

__all__ = ["measure"]

HEADERS = ("model", "type", "runner", "prompt t/s", "decode t/s", "device us", "host us", "MB read",
           "roof")  # fmt: skip


def measure(
    shapes: Sequence[str] | None,
    kinds: Sequence[str] | None,
    lengths: language.Lengths,
    device: int | str | None,
    llama: str | None,
    as_json: bool,
) -> None:
    """Measure language models and print their rows.

    Args:
        shapes: keys of `synthetic.SHAPES`; None for the smallest on a CPU, else the next one.
        kinds: among `synthetic.TYPES`; None for the mix.
        lengths: the tokens to run.
        device: index or part of a name.
        llama: the path of llama-bench; None for the one on PATH, if there is one.
        as_json: print one JSON object.
    """
    info = open_devices.select(device)
    shapes = shapes or list(synthetic.SHAPES)[int(not info.is_cpu):][:1]
    kinds = kinds or [synthetic.MIX]
    _require_known("shape", shapes, synthetic.SHAPES)
    _require_known("type", kinds, synthetic.TYPES)
    rows = list(language.measure(shapes, kinds, lengths, device, language.llama_bench(llama)))
    if as_json:
        machine = {"device": info.name, "driver": info.driver, "type": info.type}
        console.emit({"machine": machine, "rows": [row.summary() for row in rows]})
        return
    console.say(str(info), "bold")
    console.say(f"random weights; a prompt of {lengths.prompt}, then {lengths.generate} tokens, at "
                f"depth {lengths.depth}; roof: share of the device's memory speed", "dim")
    console.table("", HEADERS, list(map(_cells, rows)), " ".join(HEADERS[3:]), "model type runner")


def _require_known(what: str, given: Sequence[str], known: Collection[str]) -> None:
    """Raise BadParameter, which lists the known names, for a name that is not among them."""
    unknown = [name for name in given if name not in known]
    if unknown:
        raise typer.BadParameter(f"unknown {what} {unknown[0]!r}; choose among {', '.join(known)}")


def _cells(row: language.Row) -> tuple[str, ...]:
    if row.error:
        return (row.model, row.kind, row.runner, *[""] * (len(HEADERS) - 4), row.error)

    def number(value: float | None, form: str = ".0f") -> str:
        return "" if value is None else format(value, form)

    megabytes = None if row.bytes_per_token is None else row.bytes_per_token / 1e6
    return (row.model, row.kind, row.runner, number(row.prompt_per_s), number(row.decode_per_s),
            number(row.device_us), number(row.host_us), number(megabytes, ".1f"),
            number(row.roof_share, ".0%"))  # fmt: skip
