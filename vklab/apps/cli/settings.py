"""Command `vklab settings`: every switch with its current value and its meaning."""

from __future__ import annotations

from vklab.apps.cli import console
from vklab.apps.cli.options import Json
from vklab.settings import SETTINGS, get


def settings(as_json: Json = False) -> None:
    """List the switches: names for --set, and for environment variables with VKLAB_ in front."""
    if as_json:
        console.emit(
            {
                "settings": [
                    {
                        "name": s.name,
                        "variable": s.variable,
                        "value": get(s.name),
                        "default": s.default,
                        "help": s.help,
                    }
                    for s in SETTINGS.values()
                ]
            }
        )
        return
    rows = [(s.name, str(get(s.name)) or "-", s.help) for s in SETTINGS.values()]
    console.table("", ("name", "value", "what it does"), rows)
