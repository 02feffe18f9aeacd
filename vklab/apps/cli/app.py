"""Application `vklab`: its switches, its commands, and the module of each command.

Decides which module is imported for a command; the commands are in the modules of MODULES, and
those of other distributions are entry points.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer

import vklab
from vklab.apps.cli import console
from vklab.errors import SetupError, VklabError
from vklab.settings import SETTINGS, get

# The course's commands are known by name, so that they can be asked for without it.
COURSE = ("course", "lab")
EXTRAS = "[labs,grade]"
# Command -> module of this folder with a function (or typer.Typer) of that name. Only the module
# of the given command is imported: `run` needs numpy, onnx and the Vulkan loader, and `doctor` must
# start where one of these is broken. `--help` imports them all.
MODULES = {
    "test": "test",
    "doctor": "doctor",
    "devices": "devices",
    "run": "run",
    "profile": "trace",
    "tune": "tune",
    "trace": "trace",
    "plan": "plan",
    "compile": "compile",
    "quantize": "quantize",
    "generate": "chat",
    "chat": "chat",
    "gguf": "gguf",
    "perplexity": "perplexity",
    "shader": "shader",
    "bench": "bench",
    "conformance": "conformance",
    "parity": "parity",
    "coreml": "coreml",
    "settings": "settings",
}
# Commands that pass their arguments on to another program without reading them.
PASSED_ON = {"test": {"allow_extra_args": True, "ignore_unknown_options": True}}
HELP = {"help_option_names": ["-h", "--help"]}
# `trace --json FILE.json` was the first form of `trace --chrome FILE`.
_CHROME = re.compile(r"--json=.")
WITH_VALUE, WITHOUT_VALUE = ("--set", "--debug"), ("--validate",)


def add_commands(app: typer.Typer, command: str, settings: Mapping[str, Any]) -> None:
    """Add the given command, or all of other distributions if none of them has that name.

    Reading the entry points takes as long as some commands do: call it for unknown commands only.

    Args:
        app: the application.
        command: name of a command, or anything else.
        settings: the context settings of a command.
    """
    found: dict[str, EntryPoint | None] = dict.fromkeys(COURSE)
    found |= {entry.name: entry for entry in entry_points(group="vklab.commands")}
    for name in (command,) if command in found else found:
        try:
            part = _loaded(found[name])
        except VklabError as error:
            _add_refusal(app, name, error)
            continue
        if isinstance(part, typer.Typer):
            app.add_typer(part, name=name)
        else:
            app.command(name, context_settings=dict(settings))(part)


def _loaded(entry: EntryPoint | None) -> Any:
    if entry is None:
        raise SetupError(
            "the course is not installed here",
            f'pip install "vklab-course{EXTRAS}", or in a clone: pip install . "./labs{EXTRAS}"',
        )
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        extras = EXTRAS if entry.name in COURSE else ""
        raise SetupError(
            f"{error.name} is not installed here; `vklab {entry.name}` needs it",
            f'pip install "{entry.dist.name if entry.dist else entry.module}{extras}"',
        ) from None


def _add_refusal(app: typer.Typer, name: str, error: VklabError) -> None:
    def refuse() -> None:
        raise error

    any_arguments = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(
        name,
        help=f"Not usable: {str(error).splitlines()[0]}.",
        add_help_option=False,
        context_settings=any_arguments,
    )(refuse)


def build(command: str) -> typer.Typer:
    """Return the application with the given command, or with all for an unknown command."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings=HELP,
        help="Load and run ONNX models on Vulkan devices, and look inside.",
    )
    app.callback(epilog="--set, --debug and --validate may also stand after the command.")(switches)
    names = MODULES if command not in MODULES else (command,)
    for name in () if command == "--version" else names:
        part = getattr(importlib.import_module(f"vklab.apps.cli.{MODULES[name]}"), name)
        if isinstance(part, typer.Typer):
            app.add_typer(part, name=name)
        else:
            app.command(name, context_settings={**HELP, **PASSED_ON.get(name, {})})(part)
    if command not in (*MODULES, "--version"):
        add_commands(app, command, HELP)
    return app


def hoist_switches(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command, and the arguments with the switches of `switches` moved to the front."""
    hoisted: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--" or rest[:1] == ["test"]:
            rest += [argument, *waiting]
        elif argument in WITH_VALUE:
            value = next(waiting, None)
            if value is None:
                return "", [argument]  # typer reports the missing value
            hoisted += [argument, value]
        elif rest[:1] == ["trace"] and _CHROME.match(argument):
            rest.append("--chrome" + argument.removeprefix("--json"))
        elif rest[:1] == ["trace"] and argument.endswith(".json") and rest[-1] == "--json":
            rest[-1:] = ["--chrome", argument]
        elif argument == "--check":
            rest.append("--check=outputs")
        elif argument in WITHOUT_VALUE or argument.startswith(tuple(f"{n}=" for n in WITH_VALUE)):
            hoisted.append(argument)
        else:
            rest.append(argument)
    return (rest[0] if rest else ""), [*hoisted, *rest]


def _show_version(wanted: bool) -> None:
    if wanted:
        console.say(f"vklab {vklab.__version__}")
        raise typer.Exit


def switches(
    context: typer.Context,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE",
                     help="Set a switch of `vklab settings`; may be given several times."),
    ] = None,
    debug: Annotated[int, typer.Option(help="1: print plans; 2: print every dispatch.")] = 0,
    validate: Annotated[
        bool, typer.Option("--validate", help="Load the validation layer.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version,
                           help="Print the version and stop.")
    ] = False,
) -> None:  # fmt: skip
    """Load and run ONNX models on Vulkan devices, and look inside while they run."""
    texts = dict(_split(text) for text in assignments or ())
    if debug:
        texts["DEBUG"] = str(debug)
    if validate:
        texts["VALIDATE"] = "1"
    # Environment variables, not `with settings(...)`: they also reach child processes.
    context.with_resource(_environment({SETTINGS[n].variable: text for n, text in texts.items()}))
    try:
        for name in SETTINGS:
            get(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.strip().upper().removeprefix("VKLAB_")
    if name not in SETTINGS or not equals:
        names = ", ".join(SETTINGS)
        raise typer.BadParameter(f"--set {text}: write NAME=VALUE, with a name among {names}")
    return name, value


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before: dict[str, Any] = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
