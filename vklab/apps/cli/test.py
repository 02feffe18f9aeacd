"""Command `vklab test`: pass all further arguments to `vklab.apps.run_tests`."""

from __future__ import annotations

import typer

from vklab.apps import run_tests


def test(context: typer.Context) -> None:
    """Run the tests: --quick, --all, --shard K/N, --fuzz, and any argument of pytest."""
    raise typer.Exit(run_tests.main(context.args))
