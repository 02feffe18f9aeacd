"""Command `vklab generate`: continue a text with a language model."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from vklab.apps.cli import console, llm_options
from vklab.apps.cli.options import Json, grouped

INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended


@grouped
def generate(
    model: llm_options.Model,
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", metavar="TEXT", help="Text to continue; - reads stdin.")
    ],
    *,
    made: llm_options.Generation,
    placed: llm_options.Placed,
    as_json: Json = False,
) -> None:
    """Continue a text with a language model in GGUF; the text comes as it is written."""
    given = "".join(llm_options.stdin_lines()) if prompt == "-" else prompt
    is_stopped = False
    with llm_options.load(model, placed, made, as_json) as loaded:
        answer = loaded.generate(given, made.max_tokens, made.sampling, made.stop or ())
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
