"""Table of ONNX Runtime's execution providers, for `vklab parity --providers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vklab.apps.cli import console
from vklab.apps.compare import registry
from vklab.apps.compare.backend import Availability
from vklab.apps.compare.onnxruntime import backend as onnxruntime
from vklab.apps.compare.onnxruntime import providers

HEADERS = ("provider", "systems", "vendor", "package", "version", "released", "kind", "here")


def facts(answers: Mapping[str, Availability]) -> dict[str, Any]:
    """Return the table ready for JSON; `answers` tell by backend's name what is here."""
    rows = []
    for row in providers.PROVIDERS:
        mine = answers[f"onnxruntime-{row.key}-{row.variants[0].name}"]
        for name in row.packages:
            package = providers.PACKAGES[name]
            rows.append({
                "provider": row.ep, "systems": list(row.systems), "vendor": row.vendor,
                "needs": row.needs, "package": name, "version": package.version,
                "released": package.released, "kind": package.kind,
                "replaced_by": package.replaced_by, "available": bool(mine),
                "reason": mine.reason, "install": mine.install,
            })  # fmt: skip
    ended = [{"package": name, "version": providers.PACKAGES[name].version,
              "released": providers.PACKAGES[name].released,
              "replaced_by": providers.PACKAGES[name].replaced_by}
             for name in providers.ENDED]  # fmt: skip
    return {"checked": providers.CHECKED, "providers": rows, "ended": ended}


def show(as_json: bool) -> None:
    """Print the table."""
    found = facts(registry.survey(onnxruntime.every()))
    if as_json:
        console.emit(found)
        return
    console.say(f"versions of {found['checked']}; a full build owns the module onnxruntime, a "
                "plugin stands beside it", "dim")
    console.table("", HEADERS, [_cells(row) for row in found["providers"]], "", "package")
    for row in found["providers"]:
        if row["replaced_by"]:
            console.say_wrapped(f"{row['package']}: followed by {row['replaced_by']}")
    for row in found["ended"]:
        console.say_wrapped(f"{row['package']} {row['version']} ({row['released']}) has ended; "
                            f"followed by {row['replaced_by']}")  # fmt: skip


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    return (row["provider"].removesuffix("ExecutionProvider"), " ".join(row["systems"]),
            row["vendor"], row["package"], row["version"], row["released"], row["kind"],
            "yes" if row["available"] else "no")  # fmt: skip
