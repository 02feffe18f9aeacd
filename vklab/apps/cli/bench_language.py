"""Command `vklab bench llm`: language models on vklab, and on llama.cpp in turn."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab.apps.cli.options import Device, Json, written_file
from vklab.apps.compare.speed import language, language_peer
from vklab.apps.llm.weights import synthetic
from vklab.base import draw, store
from vklab.runtime import open_devices

HEADERS = ("model", "type", "runner", "depth", "prompt t/s", "products", "decode t/s", "device us",
           "host us", "roof", "load s", "first s", "load host")  # fmt: skip


def bench_llm(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE.gguf]...", help="GGUF files. Default: random weights of "
                       "--shape.", show_default=False),
    ] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option("--shape", help=f"{', '.join(synthetic.SHAPES)}; repeatable. Default without "
                     "a file: the smallest on a CPU, else the next one.", show_default=False),
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--type", help=f"{', '.join(synthetic.TYPES)}; repeatable. Default: "
                     f"{synthetic.MIX}.", show_default=False),
    ] = None,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 512,
    generate: Annotated[int, typer.Option(min=1, help="Tokens to generate.")] = 128,
    depth: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Tokens in the cache before them; repeatable. Default: 0.",
                     show_default=False),
    ] = None,
    cache: Annotated[str, typer.Option(help="Format of vklab's cache.")] = "F16",
    device: Device = None,
    llama: Annotated[
        str | None, typer.Option("--llama-bench", metavar="PATH", show_default=False,
                                 help="llama.cpp's llama-bench. Default: on PATH.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each runner.")] = language.ROUNDS,
    output: Annotated[
        Path | None, written_file("--output", "-o", metavar="FILE.json", help="Write the JSON "
                                  "object there after each round, too.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measure language models; llama.cpp takes turns if llama-bench is installed."""
    lengths = language.Lengths(prompt, generate, tuple(depth or (0,)), cache)
    info = open_devices.select(device)
    if shapes is None:
        shapes = [] if files else list(synthetic.SHAPES)[int(not info.is_cpu) :][:1]
    kinds = kinds or [synthetic.MIX]
    _require_known("shape", shapes, synthetic.SHAPES)
    _require_known("type", kinds, synthetic.TYPES)
    program = language_peer.program(llama)
    known = language.machine(device)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    data: dict[str, Any] = {
        "machine": {
            "device": info.name,
            "driver": info.driver,
            "type": info.type,
            "started": now,
            "clocks": known.settled,
            "bytes_per_s": known.bytes_per_s,
        },
        "rows": [],
    }
    rows: list[language.Row] = []
    for model in language.models(files or (), shapes, kinds):
        console.warn(f"measuring {model[0]} {model[1]}")
        before = list(rows)
        for found in language.measure(model, lengths, device, known, program, rounds):
            rows = before + found
            data["rows"] = [row.summary() for row in rows]
            if output:
                store.write_whole(output, console.as_text(data).encode())
    if as_json:
        console.emit(data)
        return
    console.say(str(info), "bold")
    roof = f"; roof: share of {known.bytes_per_s / 1e9:,.0f} GB/s" if known.bytes_per_s else ""
    console.say(
        f"a prompt of {lengths.prompt}, then {lengths.generate} tokens, after as many as "
        "depth says; products: the time of the layers' products alone over that of the "
        f"prompt{roof}; host us: with the likeliest token / the slowest sampler; load: "
        "first / with all kernels there, then the host's memory for that",
        "dim",
    )
    console.table("", HEADERS, list(map(_cells, rows)), " ".join(HEADERS[3:]), "model type runner")


def _require_known(what: str, given: Sequence[str], known: Collection[str]) -> None:
    """Raise BadParameter, which lists the known names, for a name that is not among them."""
    unknown = [name for name in given if name not in known]
    if unknown:
        raise typer.BadParameter(f"unknown {what} {unknown[0]!r}; choose among {', '.join(known)}")


def _cells(row: language.Row) -> tuple[str, ...]:
    named = (row.model, row.kind, row.runner, str(row.depth))
    if row.error:
        return (*named, *[""] * (len(HEADERS) - len(named) - 1), row.error)

    def number(value: float | None, form: str = ".0f") -> str:
        return "" if value is None else format(value, form)

    def pair(one: float | None, other: float | None, form: str = ".0f") -> str:
        return " / ".join(number(value, form) for value in (one, other) if value is not None)

    slowest = (
        max((each["host_us"] for each in row.samplers.values()), default=None)
        if (row.samplers)
        else None
    )
    taken = [
        value for value in (row.load_anonymous_bytes, row.load_staging_bytes) if value is not None
    ]
    return (
        *named,
        number(row.prompt_per_s, ".4g"),
        number(row.products_share, ".2f"),
        number(row.decode_per_s, ".4g"),
        number(row.device_us),
        pair(row.host_us, slowest),
        number(row.roof_share, ".0%"),
        pair(row.load_s, row.reload_s, ".2f"),
        number(row.first_token_s, ".2f"),
        " + ".join(map(draw.bytes_text, taken)),
    )
