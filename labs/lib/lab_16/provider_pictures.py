"""Pictures of sessions: partitions and copies, DirectML's layers, packages, providers by machine.

Visited by lab 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vklab.apps.compare.onnxruntime import providers as registry
from vklab_course.picture import Picture
from vklab_labs.lab_16.providers import PROVIDERS
from vklab_labs.shared.diagram import Diagram

__all__ = [
    "draw_chosen",
    "draw_layers",
    "draw_packages",
    "draw_partitions",
    "draw_sessions",
    "matrix",
]

SUFFIX = "ExecutionProvider"


def _short(name: str) -> str:
    return name.removesuffix(SUFFIX)


def draw_partitions() -> Picture:
    """Draw a session whose graph is cut in three, with a copy at each cut."""
    page = Diagram(700, 190)
    page.box((4, 30, 692, 92), "", "grey", filled=False).note((14, 22), "session", bold=True)
    parts = (
        ("GPU's provider\nConv, Relu", "blue"),
        ("CPU's provider\nDet", "orange"),
        ("GPU's provider\nRelu, Add", "blue"),
    )
    for number, (words, colour) in enumerate(parts):
        x = 20 + 235 * number
        page.box((x, 50, 155, 52), words, colour)
        if number:
            page.arrow((x - 78, 76), (x - 2, 76), "copy")
    page.note((20, 146), "Providers in the order of your list: each takes the nodes it can run.")
    page.note((20, 166), "The CPU's provider is always last, and takes what is left.")
    return page.picture(
        "A session with three partitions: Conv and Relu on the GPU's provider, Det on the CPU's, "
        "Relu and Add on the GPU's again. Arrows between them are copies.",
        "One session, two providers, three partitions. A node that the GPU's provider does not "
        "know costs two copies.",
    )


def draw_layers() -> Picture:
    """Draw what lies between Python and a GPU on Windows."""
    page = Diagram(700, 236)
    rows = (
        ("your Python program", "grey", ""),
        ("onnxruntime: DmlExecutionProvider", "sky", "wheel onnxruntime-directml"),
        ("DirectML.dll", "blue", "in the same wheel: 1.15.4, 18.5 MB"),
        ("Direct3D 12", "green", "a part of Windows"),
        ("driver", "orange", "from the vendor: NVIDIA, AMD, Intel, Qualcomm"),
        ("GPU", "grey", ""),
    )
    for number, (words, colour, origin) in enumerate(rows):
        y = 6 + 39 * number
        page.box((10, y, 300, 28), words, colour)
        if origin:
            page.note((330, y + 19), origin)
        if number:
            page.arrow((160, y - 11), (160, y - 1))
    return page.picture(
        "From top to bottom: Python program, DmlExecutionProvider, DirectML.dll, Direct3D 12, "
        "the vendor's driver, GPU. The wheel brings the second and the third.",
        "DirectML lies above the vendor's driver, not beside it.",
    )


def draw_packages() -> Picture:
    """Draw two full builds that own one module, and a plugin beside a build."""
    page = Diagram(700, 150)
    page.note((10, 18), "two full builds: the later one overwrites", bold=True)
    page.box((10, 30, 140, 32), "onnxruntime-directml", "orange", dashed=True)
    page.box((10, 78, 140, 32), "onnxruntime", "blue")
    page.box((225, 52, 110, 36), "module\nonnxruntime", "grey")
    page.arrow((150, 46), (223, 62), dashed=True).arrow((150, 94), (223, 80))
    page.note((390, 18), "a build and a plugin: both stay", bold=True)
    page.box((390, 30, 140, 32), "onnxruntime", "blue")
    page.box((390, 78, 160, 32), "onnxruntime-ep-webgpu", "green")
    page.box((590, 30, 100, 32), "module\nonnxruntime", "grey")
    page.box((590, 78, 100, 32), "library of\na provider", "grey")
    page.arrow((530, 46), (588, 46)).arrow((550, 94), (588, 94))
    page.arrow((640, 78), (640, 64))
    return page.picture(
        "Left: onnxruntime-directml and onnxruntime both write the module onnxruntime, and only "
        "the later one is left. Right: a plugin brings a library, which the build loads.",
        "Full builds exclude each other. Plugins do not.",
    )


def draw_chosen(
    machines: Mapping[str, Sequence[Any]], chosen: Mapping[str, Sequence[str]], caption: str
) -> Picture:
    """Draw machines and providers: what the build lists, and what was chosen, with its rank.

    Args:
        machines: by name what an answer to 16-1 gets; the third is what the build lists.
        chosen: by name the providers that were chosen, in order.
        caption: the line below.
    """
    page = Diagram(700, 62 + 30 * len(machines))
    for column, provider in enumerate(PROVIDERS):
        words = _short(provider["name"])
        page.note((176 + 58 * column, 16 + 14 * (column % 2)), words)
    told = []
    for row, (name, machine) in enumerate(machines.items()):
        y, names = 40 + 30 * row, list(chosen[name])
        page.note((4, y + 17), name)
        for column, provider in enumerate(PROVIDERS):
            place = (176 + 58 * column, y, 50, 24)
            if provider["name"] in names:
                page.box(place, str(names.index(provider["name"]) + 1), "blue", shade=0.4)
            elif provider["name"] in machine[2]:
                page.box(place, "no", "orange", dashed=True, filled=False)
        told.append(f"{name}: {', '.join(map(_short, names)) or 'nothing'}")
    return page.picture(". ".join(told) + ".", caption)


def draw_sessions(rows: Sequence[Mapping[str, Any]], verdicts: Sequence[tuple[str, float]],
                  caption: str) -> Picture:  # fmt: skip
    """Draw the share of nodes that each session gave to the provider asked for.

    Args:
        rows: recorded sessions.
        verdicts: for each what an answer to 16-2 returns.
        caption: the line below.
    """
    page = Diagram(700, 40 + 30 * len(rows))
    page.note((4, 18), "asked for", bold=True).note((110, 18), "model", bold=True)
    page.note((290, 18), "share of the nodes", bold=True).note((590, 18), "verdict", bold=True)
    told = []
    for number, (row, (verdict, share)) in enumerate(zip(rows, verdicts, strict=True)):
        y = 30 + 30 * number
        page.note((4, y + 16), _short(row["asked"])).note((110, y + 16), row["model"])
        page.box((290, y, 280, 22), "", "grey", filled=False)
        if share > 0:
            page.box((290, y, 280 * min(float(share), 1.0), 22), f"{share:.2f}", "blue", shade=0.4)
        page.note((590, y + 16), str(verdict))
        told.append(f"{_short(row['asked'])}, {row['model']}: {share:.2f}, {verdict}")
    return page.picture("; ".join(told) + ".", caption)


def matrix() -> list[str]:
    """Return the dated table of providers as lines: systems, package, kind, last version."""
    lines = [f"versions of {registry.CHECKED}"]
    for row in registry.PROVIDERS:
        for name in row.packages:
            package = registry.PACKAGES[name]
            ended = " (followed by another)" if package.replaced_by else ""
            lines.append(
                f"{_short(row.ep):<15} {'/'.join(row.systems):<20} {name:<31} "
                f"{package.kind:<10} {package.released}{ended}"
            )
    return lines
