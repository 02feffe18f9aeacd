"""`vklab test`: hand everything after the word to run_tests."""

from __future__ import annotations

import typer

from vklab import run_tests

__all__ = ["test"]


def test(context: typer.Context) -> None:
    """Run the tests: --quick, --all, and whatever else pytest takes."""
    raise typer.Exit(run_tests.main(context.args))
