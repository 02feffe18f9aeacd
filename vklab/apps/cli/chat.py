"""Commands `vklab chat` and `vklab generate`: a language model in a terminal or through pipes."""

from __future__ import annotations

import contextvars
import importlib
import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer

from vklab.apps.cli import console, llm_options
from vklab.apps.cli.options import Json, grouped
from vklab.apps.llm.answer import Answer
from vklab.apps.llm.chat import Chat
from vklab.apps.llm.language_model import LanguageModel
from vklab.errors import ModelError, VklabError

INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended
COMMAND = re.compile(r"/\w*")
HELP = (
    "/clear forgets the chat, /exit or Ctrl-D leaves it, /help prints this line; Ctrl-C stops "
    "an answer"
)
MARK = "> "


class Preparation:
    """A thread that prepares a decoder; call `end` before anything else uses the decoder.

    Args:
        prepare: called on the thread with a function that tells whether to go on.
    """

    def __init__(self, prepare: Callable[[Callable[[], bool]], None]) -> None:
        self._prepare = prepare
        self._is_over = False
        context = contextvars.copy_context()  # with the switches of this thread
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._prepare(lambda: not self._is_over)
        except VklabError:  # whoever needs what is missing meets the same error
            return

    def end(self) -> None:
        """Wait until the thread has finished what it is at; a second call does nothing."""
        self._is_over = True
        self._thread.join()


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
    with llm_options.load(model, placed, made, as_json) as loaded:
        answer = loaded.generate(given, made.max_tokens, made.sampling, made.stop or ())
        is_stopped = _write(answer, as_json)
        facts = {
            **llm_options.as_facts(loaded),
            "prompt": given,
            "text": answer.text,
            "tokens": answer.tokens,
            "statistics": answer.statistics.facts(),
        }
    if as_json:
        console.emit(facts)
    if is_stopped:
        raise typer.Exit(INTERRUPTED)


@grouped
def chat(
    model: llm_options.Model,
    system: Annotated[
        str, typer.Option(metavar="TEXT", help="Message that tells the model how to answer.")
    ] = "",
    *,
    made: llm_options.Generation,
    placed: llm_options.Placed,
    as_json: Annotated[
        bool, typer.Option("--json", help=f"{console.JSON_HELP} It has all messages.")
    ] = False,
) -> None:
    """Chat with a language model in GGUF; /help lists what a chat understands.

    Every line of stdin is a message, so questions may come from a file or a pipe.
    """
    with llm_options.load(model, placed, made, as_json) as loaded:
        talk = loaded.chat(system, made.sampling, made.stop or (), made.max_tokens)
        if not as_json:
            _greet(loaded)
        lines = _prepared(loaded) if sys.stdin.isatty() else _lines()
        found = [answer.statistics.facts() for answer in _answers(talk, lines, as_json)]
        facts = {**llm_options.as_facts(loaded), "messages": talk.messages, "answers": found}
    if as_json:
        console.emit(facts)


def _greet(loaded: LanguageModel) -> None:
    loaded.template.start()
    console.warn(f"{loaded.name}, context {loaded.context:,}")
    if loaded.template.is_default:
        console.warn("the file has no chat template; ChatML is used, which may be wrong for it")
    if sys.stdin.isatty():
        console.warn(HELP)


def _prepared(loaded: LanguageModel) -> Iterator[str]:
    """Yield the lines of a terminal; while a person types, the model is prepared for prompts."""
    preparation = Preparation(loaded.decoder.prepare)
    try:
        for line in _lines():
            preparation.end()
            yield line
    finally:
        preparation.end()


def _answers(made: Chat, lines: Iterable[str], is_quiet: bool) -> Iterator[Answer]:
    """Yield the answer to each message, after it has been written."""
    for line in lines:
        if COMMAND.fullmatch(line):
            if line == "/exit":
                return
            if line == "/clear":
                made.clear()
            console.warn(
                {"/clear": "the chat is forgotten", "/help": HELP}.get(
                    line, f"unknown command {line}; {HELP}"
                )
            )
        elif line:
            try:
                yield from _answered(made, line, is_quiet)
            except ModelError as error:
                if not sys.stdin.isatty():
                    raise
                console.warn(f"vklab: {error}; /clear forgets the chat")


def _answered(made: Chat, line: str, is_quiet: bool) -> Iterator[Answer]:
    """Write the answer to one message; Ctrl-C ends the answer only."""
    try:
        with console.spinner("reading"):
            answer = made.ask(line)
    except KeyboardInterrupt:
        console.warn("\nstopped before the first token; the message is forgotten")
        return
    _write(answer, is_quiet)
    yield answer


def _write(answer: Answer, is_quiet: bool) -> bool:
    """Write an answer as it comes, and its statistics; return whether Ctrl-C ended it."""
    is_stopped = False
    try:
        with console.spinner("reading"):
            first = next(answer, "")
        for piece in itertools.chain((first,), answer):
            if not is_quiet:
                console.write(piece)
    except KeyboardInterrupt:
        answer.close()
        is_stopped = True
    if not is_quiet:
        console.write("" if answer.text.endswith("\n") else "\n")
        llm_options.say_end(answer)
    return is_stopped


def _lines() -> Iterator[str]:
    """Yield the lines of stdin without white space at their ends; a terminal gets a prompt."""
    if not sys.stdin.isatty():
        yield from (line.strip() for line in llm_options.stdin_lines())
        return
    _edit_lines()
    while True:
        try:
            yield input(MARK).strip()
        except EOFError:
            console.warn("")
            return
        except KeyboardInterrupt:
            console.warn("\n/exit or Ctrl-D leaves the chat")


def _edit_lines() -> None:
    """Let a terminal's line be edited and recalled, where Python has readline."""
    try:
        importlib.import_module("readline")
    except ImportError:
        return
