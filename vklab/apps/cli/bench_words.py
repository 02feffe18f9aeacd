"""Former words of `vklab bench`, for one release: the sub-command was an option, or missing."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperGroup

from vklab.apps.cli import console

# The former option of each sub-command, in the order in which one went before another.
OLD = {"--throughput": "rate", "--growing": "grow", "--llm": "llm", "--setup-peers": "peers",
       "--gather": "gather", "--ablations": "ablate"}  # fmt: skip
WITH_MODELS = ("run", "ablate", "rate", "llm")


class OldForm(TyperGroup):
    """Sub-commands that also understand the former words, and tell today's on stderr."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse words, those of the former form as today's."""
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = current(args, self.commands)
            console.warn(
                "vklab: this form of `vklab bench` ends with the next release; write: "
                f"vklab bench {shlex.join(args)}"
            )
        return super().parse_args(ctx, args)


def current(words: Sequence[str], commands: Mapping[str, Any]) -> list[str]:
    """Return the words of today for former ones; options that had no effect are left out.

    Args:
        words: what stands after `vklab bench`.
        commands: today's sub-commands by name.
    """
    given = {word.partition("=")[0] for word in words}
    name = next((new for old, new in OLD.items() if old in given), "run")
    options = {
        spelling: option
        for command in commands.values()
        for option in command.params
        for spelling in option.opts
    }
    own = {spelling for option in commands[name].params for spelling in option.opts}
    positional: list[str] = []
    kept: list[str] = []
    waiting = iter(words)
    for word in waiting:
        option, equals, value = word.partition("=")
        if word == "--":
            positional += waiting if name in WITH_MODELS else ()
        elif option == "--gather":
            positional += [value] if equals else [next(waiting, "")]
        elif not word.startswith("-"):
            positional += [word] if name in WITH_MODELS else []
        elif option not in OLD:
            is_short = word[:2] in options and word[1] != "-"  # -oFILE
            spelling = word[:2] if is_short else option
            takes = spelling in options and not options[spelling].is_flag
            is_whole = equals or is_short and len(word) > 2
            both = [word, *([next(waiting)] if takes and not is_whole else [])]
            kept += both if spelling in own or spelling not in options else []
    return [name, *positional, *kept]
