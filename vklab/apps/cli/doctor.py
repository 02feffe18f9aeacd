"""Command `vklab doctor`: the doctor's report on the terminal. Visited by lab 00."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from vklab.apps.cli import console
from vklab.apps.cli.options import Json
from vklab.apps.doctor import Check, Report, examine

STYLES = {"ok": "green", "note": "yellow", "FAILED": "bold red"}


def doctor(
    as_json: Json = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run no kernel on the devices.")] = False,
) -> None:
    """Check this machine, run a kernel on every device, print a repair for each failure."""
    report = examine(run=not no_run)
    if as_json:
        console.emit(report.summary())
    else:
        _show(report)
    raise typer.Exit(0 if report.ok else 1)


def _show(report: Report) -> None:
    rows = [
        (Text(check.mark, STYLES[check.mark]), check.name, check.detail) for check in report.checks
    ]
    console.table("", ("", "check", "found"), rows)
    show_repairs(report.checks)
    console.say()
    console.say(report.verdict, "bold green" if report.ok else "bold red")


def show_repairs(checks: tuple[Check, ...]) -> None:
    """Print the lines that repair failed checks and notes, unwrapped so that they can be copied.

    A line that repairs several checks is printed once.
    """
    lines: dict[str, list[str]] = {}
    for check in checks:
        if check.repair:
            lines.setdefault(check.repair, []).append(f"{check.name} ({check.mark})")
    for repair, names in lines.items():
        console.say(f"\nto repair {', '.join(names)}:", "bold")
        console.say(f"  {repair}")
