"""Options that commands of language models share, and the loading of their model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab.apps.cli.inputs import Device
from vklab.apps.llm import language_model
from vklab.apps.llm.answer import REASONS, Answer
from vklab.apps.llm.language_model import LanguageModel
from vklab.apps.llm.memory import Sizes
from vklab.apps.llm.sampling import SamplingOptions

__all__ = ["Cache", "Context", "Device", "Devices", "Layers", "MaxTokens", "MinP", "Model",
           "RepeatPenalty", "Seed", "Stop", "Temperature", "TopK", "TopP", "as_facts", "load",
           "say_end", "say_sizes", "stdin_lines", "where"]  # fmt: skip

USUAL = SamplingOptions()
Where = tuple[str | None, str | None, str | None]

Model = Annotated[Path, typer.Argument(help="A GGUF file.", show_default=False)]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", "-n", metavar="N", min=1, help="Most tokens of an answer. "
                 "Default: what the context has room for."),
]  # fmt: skip
Temperature = Annotated[
    float, typer.Option(min=0, help="Larger is more surprising; 0: always the likeliest token.")
]
TopK = Annotated[int, typer.Option(min=0, help="Choose among so many tokens; 0: among all.")]
TopP = Annotated[
    float, typer.Option(help="Choose among the likeliest tokens with this sum; 1: among all.")
]
MinP = Annotated[
    float, typer.Option(help="Leave out tokens below this share of the likeliest; 0: none.")
]
RepeatPenalty = Annotated[
    float, typer.Option(help="Above 1: tokens of the last 64 become less likely.")
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same tokens.")]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="Text that ends an answer and is no part of it; repeatable."),
]
Context = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Tokens that the cache holds. Default: the model's own, "
                 "at most 4096."),
]  # fmt: skip
Cache = Annotated[str, typer.Option(metavar="F16|F32|Q8_0", help="Format of the cache.")]
Devices = Annotated[
    str | None,
    typer.Option(metavar="all|DEVICE,...", show_default=False, help="Devices for a model that is "
                 "larger than one, by index or part of a name, in the order of its layers. The "
                 "last one chooses the tokens."),
]  # fmt: skip
Layers = Annotated[
    str | None,
    typer.Option(metavar="N", show_default=False, help="With --devices: layers on each device but "
                 "the last, as N or N,M. Default: as many as fit. Without: layers on the device; "
                 "the others are on the CPU."),
]  # fmt: skip


def load(
    path: Path, placed: Where, context: int | None, cache: str, is_quiet: bool = False
) -> LanguageModel:
    """Load a model, and show its progress; its sizes are printed before the weights are loaded.

    Args:
        path: the GGUF file.
        placed: values of --device, --devices and --layers.
        context: value of --context.
        cache: value of --cache.
        is_quiet: print no sizes.
    """
    def report(sizes: Sizes) -> None:
        if not is_quiet:
            say_sizes(path.name, sizes)

    with console.loading(f"loading {path.name}") as shown:
        more = {**shown, **where(placed)}
        return language_model.load(path, context=context, cache=cache, report=report, **more)


def say_sizes(name: str, sizes: Sizes) -> None:
    """Print a model's bytes on each device on stderr."""
    for part in sizes.parts:
        what = f"{name}, {part.layers}" if part.layers else name
        console.warn(f"{what} on {part.device}: {part}")


def where(placed: Where) -> dict[str, Any]:
    """Return the arguments `device`, `devices` and `layers` of a decoder.

    Args:
        placed: values of --device, --devices and --layers.
    """
    device, devices, layers = placed
    if layers is not None and not all(number.strip().isdigit() for number in layers.split(",")):
        raise typer.BadParameter(f"--layers {layers}: write a number, or several as in 8,12")
    names = [name.strip() for name in devices.split(",")] if devices else None
    return {"device": device, "devices": "all" if devices == "all" else names,
            "layers": None if layers is None else [int(each) for each in layers.split(",")]}


def stdin_lines() -> Iterator[str]:
    """Yield the lines of stdin; bytes that are no UTF-8 become surrogates, which are refused."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        yield from sys.stdin
    else:
        yield from (line.decode("utf-8", "surrogateescape") for line in stream)


def say_end(answer: Answer) -> None:
    """Print an answer's statistics on stderr, and why it ended unless the model ended its turn."""
    found = answer.statistics
    because = "" if found.reason == "end" else f"; {REASONS[found.reason]}"
    console.warn(f"[{found}{because}]")


def as_facts(model: LanguageModel) -> dict[str, Any]:
    """Return the facts of a model for --json."""
    sizes = model.decoder.sizes

    def numbers(part: Sizes) -> dict[str, int]:
        return {"weights_bytes": part.weights_bytes, "cache_bytes": part.cache_bytes,
                "scratch_bytes": part.scratch_bytes}  # fmt: skip

    return {"model": model.name, "context": model.context, **numbers(sizes),
            "devices": [{"device": part.device, "layers": part.layers or "all", **numbers(part),
                         "free_bytes": part.free_bytes} for part in sizes.parts]}  # fmt: skip
