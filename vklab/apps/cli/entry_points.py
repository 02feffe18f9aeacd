"""Commands of other distributions: entry points of the group `vklab.commands`.

Decides what a command says whose distribution, or a package of it, is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from vklab.errors import SetupError, VklabError

# The course's commands are known by name, so that they can be asked for without it.
COURSE = ("course", "lab")
EXTRAS = "[labs,grade]"


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
        raise SetupError("the course is not installed here", f'pip install "vklab-course{EXTRAS}", '
                         f'or in a clone: pip install . "./labs{EXTRAS}"')  # fmt: skip
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
    app.command(name, help=f"Not usable: {str(error).splitlines()[0]}.", add_help_option=False,
                context_settings=any_arguments)(refuse)  # fmt: skip
