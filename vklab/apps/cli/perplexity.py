"""Command `vklab perplexity`: how well a language model predicts a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console, llm_options
from vklab.apps.cli.options import Json, grouped
from vklab.apps.llm import perplexity as measuring
from vklab.apps.llm.judged import Reading
from vklab.apps.llm.weights import gguf
from vklab.errors import ModelError


@grouped
def perplexity(
    model: llm_options.Model,
    text: Annotated[Path, typer.Argument(help="A text in UTF-8 that the model has not been "
                                         "trained on.", show_default=False)],
    against: Annotated[
        Path | None, typer.Option(metavar="GGUF", help="The same model in longer floats: report "
                                  "how far the model is from it.")
    ] = None,
    context: Annotated[int, typer.Option(help="Tokens of a chunk.")] = measuring.CONTEXT,
    chunks: Annotated[
        int | None, typer.Option(min=1, help="The most chunks to count; default all.")
    ] = None,
    by_steps: Annotated[
        bool, typer.Option("--steps", help="Read the judged tokens one at a time, as a chat "
                           "generates, not a chunk at once.")
    ] = False,
    cache: Annotated[
        str | None, typer.Option(metavar="F16|F32|Q8_0", help="Read by a cache of this format. "
                                 "Default: none, but F16 with --steps.")
    ] = None,
    *,
    placed: llm_options.Placed,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measure how well a language model predicts a text; counted as llama.cpp counts."""
    how = Reading(by_steps, cache, report=llm_options.say_sizes, **placed.arguments())
    with console.bar("judging", " chunks") as progress:
        found = measuring.perplexity(
            gguf.read_gguf(model),
            _read(text),
            context,
            None if against is None else gguf.read_gguf(against),
            chunks,
            progress,
            how,
        )
    if as_json:
        console.emit(_facts(found))
        return
    headers = measuring.HEADERS if against else measuring.HEADERS[:3]
    rows = [row[: len(headers)] for row in found.rows()]
    console.table("", headers, rows, right="perplexity +- change mean KL same top-1")
    console.say(
        f"{found.tokens:,} tokens in {found.chunks} chunks of {found.context}, "
        f"{found.chunks * found.context / found.seconds:,.0f} tokens a second"
    )


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no text {path}") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a folder, not a text") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is no UTF-8: {error.reason} at byte {error.start}") from None


def _facts(found: measuring.Perplexity) -> dict[str, Any]:
    facts = {
        "model": found.name,
        "perplexity": found.value,
        "error": found.error,
        "tokens": found.tokens,
        "chunks": found.chunks,
        "context": found.context,
        "seconds": found.seconds,
    }
    if found.against is not None:
        other = found.against
        facts |= {
            "against": _facts(other.reference),
            "change": other.change,
            "mean_kl_divergence": other.divergence,
            "top1_agreement": other.agreement,
        }
    return facts
