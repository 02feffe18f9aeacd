"""Pictures of doctor reports: the layers that they examine, repairs, and a readiness card.

Visited by lab 00.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vklab.apps.doctor import Check, Report
from vklab.types import DeviceInfo
from vklab_course.check import check
from vklab_course.definition.exercise import exercises_of
from vklab_course.definition.verdict import STATUSES
from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["BROKEN_MACHINE", "draw_card", "draw_layers", "draw_repairs", "made_up", "readable"]

COLOURS = {"ok": "grey", "note": "blue", "FAILED": "red"}
LOADER = "apt install libvulkan1"
BROKEN_MACHINE = Report(
    (
        Check("Python", True, "3.11.2"),
        Check("instance layers", True, "none; the validation layer is optional",
              "apt install vulkan-validationlayers"),
        Check("Vulkan loader", False, "libvulkan.so.1 is not there", LOADER),
        Check("Vulkan bindings", False, "the loader cannot be opened", LOADER),
        Check("drivers", False, "no driver manifest was found", "apt install mesa-vulkan-drivers"),
        Check("GLSL compiler (not essential)", False, "glslc does not run", "apt install glslc",
              essential=False),
        Check("Slang compiler", True, "slangc 2026.1"),
        Check("devices", False, "the loader cannot be opened", LOADER),
    )
)  # fmt: skip


def made_up(rows: str) -> Report:
    """Return a report of made-up checks, such as "failed LINE, note-minor LINE, ok".

    Args:
        rows: for each check its mark, `-minor` if it is not essential, and its repair.
    """
    checks = []
    for mark, _, line in (row.partition(" ") for row in rows.split(", ")):
        essential = not mark.endswith("-minor")
        checks.append(Check(f"a check: {mark}", not mark.startswith("failed"), "", line, essential))
    return Report(tuple(checks))


def readable(report: Report) -> Report:
    """Return a report with short paths: `~` for your home, `.venv` for Python's environment."""
    short = {sys.prefix: ".venv", str(Path.home()): "~"}

    def shortened(text: str) -> str:
        for long, brief in short.items():
            text = text.replace(long, brief) if len(long) > 1 else text
        return text

    return replace(
        report,
        checks=tuple(
            replace(one, detail=shortened(one.detail), repair=shortened(one.repair))
            for one in report.checks
        ),
    )


def draw_layers() -> Picture:
    """Draw what lies between a program and a device: bindings, loader, layers, drivers."""
    page = Diagram(720, 220)
    page.box((10, 75, 130, 60), "your notebook\nand vklab", bold=True)
    page.box((190, 75, 130, 60), "Vulkan loader\nlibvulkan\nWindows: vulkan-1", "green")
    page.box((370, 20, 140, 50), "driver of a GPU", "orange")
    page.box((370, 130, 140, 50), "lavapipe,\na driver for the CPU", "orange")
    page.box((560, 20, 140, 50), "GPU", "sky", bold=True)
    page.box((560, 130, 140, 50), "CPU", "sky", bold=True)
    page.box((190, 160, 130, 44), "validation layer\n(optional)", "grey", dashed=True)
    page.arrow((140, 105), (190, 105), "calls")
    page.arrow((320, 95), (370, 50)).arrow((320, 115), (370, 150))
    page.arrow((510, 45), (560, 45)).arrow((510, 155), (560, 155))
    page.arrow((255, 160), (255, 137), dashed=True)
    page.note((255, 30), "reads driver manifests:\nsmall JSON files", anchor="middle", size=11)
    page.arrow((255, 50), (255, 73))
    return page.picture(
        "A notebook calls the Vulkan loader. The loader reads driver manifests, and passes calls "
        "to a driver of a GPU or to lavapipe, which runs on the CPU. A validation layer may sit in "
        "the loader.",
        "From your notebook to a device, which can be reached only if every part before it works.",
    )


def draw_repairs(report: Report, lines: Sequence[str]) -> Picture:
    """Draw the checks on the left, the repairs on the right, an arrow from each to its repair."""
    if not isinstance(lines, list | tuple):
        raise ValueError(f"expected a list of lines, got {type(lines).__name__}")
    lines = [str(line) for line in lines]
    page = Diagram(720, 40 + 34 * max(len(report.checks), len(lines)))
    page.note((10, 20), "the report", bold=True).note((410, 20), "your list", bold=True)
    for row, one in enumerate(report.checks):
        top = 30 + 34 * row
        page.box((10, top, 280, 27), f"{one.mark} · {one.name}", COLOURS[one.mark])
        if one.repair in lines:
            page.arrow((290, top + 13), (410, 43 + 34 * lines.index(one.repair)))
    for row, line in enumerate(lines):
        page.box((410, 30 + 34 * row, 300, 27), f"{row + 1}.  {line}", "green")
    alt = (
        f"{len(report.checks)} checks on the left, {len(lines)} numbered repairs on the right, "
        "an arrow from each check to its repair in the list"
    )
    return page.picture(alt, "An arrow leads from each check to the line that repairs it.")


def _abilities(report: Report, device: DeviceInfo) -> tuple[tuple[str, bool, str], ...]:
    """Return abilities of a machine: (ability, whether it is there, the labs that need it)."""
    marks = {one.name: one.mark for one in report.checks}
    return (
        ("run models on a Vulkan device", marks.get("devices") == "ok", "every lab"),
        ("compile Slang kernels", marks.get("Slang compiler") == "ok", "00, and from lab 04 on"),
        ("compile GLSL shaders", marks.get("GLSL compiler") == "ok", "lab 04"),
        ("have Vulkan calls validated", marks.get("instance layers") == "ok", "optional"),
        ("measure the speed of a GPU", not device.is_cpu, "optional"),
    )


def draw_card(device: DeviceInfo, report: Report, names: Mapping[str, Any]) -> Picture:
    """Draw the readiness card: the device, its abilities, the exercises, the repairs.

    Args:
        device: the device of the banner.
        report: the doctor's report on this machine.
        names: the notebook's names, with the student's answers to lab 00 among them.
    """
    known = exercises_of("00")
    answers = {key: names.get(one.title, ...) for key, one in known.items()}
    verdicts = [check(key, answer) for key, answer in answers.items()]
    solved = [verdict.id for verdict in verdicts if verdict.status == "correct"]
    todo = answers["00-2"](report) if "00-2" in solved else ["see exercise 2"]
    page = Diagram(720, 250)
    page.box((3, 3, 714, 244), "", "blue")
    ready = "ready" if report.ok else "not ready yet"
    page.note((22, 34), f"This machine is {ready}", size=18, bold=True)
    kind = "a CPU that runs GPU kernels" if device.is_cpu else f"a GPU ({device.type})"
    page.note((22, 58), f"{device.name}: {kind}", size=13)
    page.note((22, 92), "This machine can", bold=True)
    for row, (ability, can, where) in enumerate(_abilities(report, device)):
        page.note((22, 116 + 22 * row), f"{'✔' if can else '○'}  {ability}")
        page.note((230, 116 + 22 * row), where)
    page.note((390, 92), f"You have solved {len(solved)} of {len(verdicts)}", bold=True)
    for row, verdict in enumerate(verdicts):
        sign = {"correct": "✔", "partial": "◐"}.get(verdict.status, "○")
        extra = ", extra" if known[verdict.id].extra else ""
        page.note((390, 116 + 22 * row), f"{sign}  {verdict.id}  {verdict.title}")
        page.note((590, 116 + 22 * row), STATUSES[verdict.status][2] + extra)
    listed = "; ".join(str(line) for line in todo) or "nothing"
    listed = f"{'Optional' if report.ok else 'To repair'}: {listed}"
    page.note((22, 236), listed if len(listed) < 100 else f"{listed[:96]} ...")
    return page.picture(
        f"A card: this machine is {ready}, {len(solved)} of {len(verdicts)} exercises are solved. "
        f"{listed}",
        "A tick is something you have; a half-filled ring is partly correct; a ring is something "
        "you do not have, or not yet.",
    )
