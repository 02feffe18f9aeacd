"""Groups of options that commands of language models share, and the loading of their model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console, options
from vklab.apps.llm import language_model
from vklab.apps.llm.answer import REASONS, Answer
from vklab.apps.llm.decode.memory import Sizes
from vklab.apps.llm.language_model import LanguageModel
from vklab.apps.llm.sampling import SamplingOptions

USUAL = SamplingOptions()

Model = Annotated[Path, typer.Argument(help="A GGUF file.", show_default=False)]


@dataclass(frozen=True)
class Generation:
    """Options of the tokens that a model generates, and of its cache."""

    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            "-n",
            metavar="N",
            min=1,
            help="Most tokens of an answer. Default: what the context has room for.",
        ),
    ] = None
    temperature: Annotated[
        float, typer.Option(min=0, help="Larger is more surprising; 0: always the likeliest token.")
    ] = USUAL.temperature
    top_k: Annotated[
        int, typer.Option(min=0, help="Choose among so many tokens; 0: among all.")
    ] = USUAL.top_k
    top_p: Annotated[
        float, typer.Option(help="Choose among the likeliest tokens with this sum; 1: among all.")
    ] = USUAL.top_p
    min_p: Annotated[
        float, typer.Option(help="Leave out tokens below this share of the likeliest; 0: none.")
    ] = USUAL.min_p
    repeat_penalty: Annotated[
        float, typer.Option(help="Above 1: tokens of the last 64 become less likely.")
    ] = USUAL.repeat_penalty
    seed: Annotated[int, typer.Option(help="The same seed gives the same tokens.")] = USUAL.seed
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Text that ends an answer and is no part of it; repeatable."
        ),
    ] = None
    context: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Tokens that the cache holds. Default: the model's own, at most 4096.",
        ),
    ] = None
    cache: Annotated[str, typer.Option(metavar="F16|F32|Q8_0", help="Format of the cache.")] = "F16"

    @property
    def sampling(self) -> SamplingOptions:
        """Return the options of the sampler."""
        return SamplingOptions(
            self.temperature,
            self.top_k,
            self.top_p,
            self.min_p,
            self.repeat_penalty,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Placed:
    """Options of the devices that hold a model's layers."""

    device: options.Device = None
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="all|DEVICE,...",
            show_default=False,
            help="Devices for a model that "
            "is larger than one, by index or part of a name, in the order of its layers. "
            "The last one chooses the tokens.",
        ),
    ] = None
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            show_default=False,
            help="With --devices: layers on each device "
            "but the last, as N or N,M. Default: as many as fit. Without: layers on the "
            "device; the others are on the CPU.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments `device`, `devices` and `layers` of a decoder."""
        numbers = self.layers.split(",") if self.layers is not None else None
        if not all(number.strip().isdigit() for number in numbers or ()):
            raise typer.BadParameter(
                f"--layers {self.layers}: write a number, or several as in 8,12"
            )
        return {
            "device": self.device,
            "devices": options.split(self.devices),
            "layers": None if numbers is None else list(map(int, numbers)),
        }


def load(path: Path, placed: Placed, made: Generation, is_quiet: bool = False) -> LanguageModel:
    """Load a model, and show its progress; its sizes are printed before the weights are loaded.

    Args:
        path: the GGUF file.
        placed: where the layers are.
        made: has the cache's length and format.
        is_quiet: print no sizes.
    """

    def report(sizes: Sizes) -> None:
        if not is_quiet:
            say_sizes(path.name, sizes)

    with console.loading(f"loading {path.name}") as shown:
        more = {**shown, **placed.arguments()}
        return language_model.load(
            path, context=made.context, cache=made.cache, report=report, **more
        )


def say_sizes(name: str, sizes: Sizes) -> None:
    """Print a model's bytes on each device on stderr."""
    for part in sizes.parts:
        what = f"{name}, {part.layers}" if part.layers else name
        console.warn(f"{what} on {part.device}: {part}")


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
        return {
            "weights_bytes": part.weights_bytes,
            "cache_bytes": part.cache_bytes,
            "scratch_bytes": part.scratch_bytes,
        }

    return {
        "model": model.name,
        "context": model.context,
        **numbers(sizes),
        "devices": [
            {
                "device": part.device,
                "layers": part.layers or "all",
                **numbers(part),
                "free_bytes": part.free_bytes,
            }
            for part in sizes.parts
        ],
    }
