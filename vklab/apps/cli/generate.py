"""Command `vklab generate`: continue a text with a language model."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from vklab.apps.cli import console, llm_options
from vklab.apps.cli.llm_options import USUAL
from vklab.apps.llm.sampling import SamplingOptions

__all__ = ["generate"]

INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended


def generate(
    model: llm_options.Model,
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", metavar="TEXT", help="Text to continue; - reads stdin.")
    ],
    max_tokens: llm_options.MaxTokens = None,
    temperature: llm_options.Temperature = USUAL.temperature,
    top_k: llm_options.TopK = USUAL.top_k,
    top_p: llm_options.TopP = USUAL.top_p,
    min_p: llm_options.MinP = USUAL.min_p,
    repeat_penalty: llm_options.RepeatPenalty = USUAL.repeat_penalty,
    seed: llm_options.Seed = USUAL.seed,
    stop: llm_options.Stop = None,
    context: llm_options.Context = None,
    cache: llm_options.Cache = "F16",
    device: llm_options.Device = None,
    devices: llm_options.Devices = None,
    layers: llm_options.Layers = None,
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:
    """Continue a text with a language model in GGUF; the text comes as it is written."""
    options = SamplingOptions(temperature, top_k, top_p, min_p, repeat_penalty, seed=seed)
    given = "".join(llm_options.stdin_lines()) if prompt == "-" else prompt
    is_stopped = False
    with llm_options.load(model, (device, devices, layers), context, cache, as_json) as loaded:
        answer = loaded.generate(given, max_tokens, options, stop or ())
        try:
            with console.spinner("reading"):
                first = next(answer, "")
            for piece in itertools.chain((first,), answer):
                if not as_json:
                    console.write(piece)
        except KeyboardInterrupt:
            answer.close()
            is_stopped = True
        facts = {**llm_options.as_facts(loaded), "prompt": given, "text": answer.text,
                 "tokens": answer.tokens, "statistics": answer.statistics.facts()}  # fmt: skip
    if as_json:
        console.emit(facts)
    else:
        console.write("" if answer.text.endswith("\n") else "\n")
        llm_options.say_end(answer)
    if is_stopped:
        raise typer.Exit(INTERRUPTED)
