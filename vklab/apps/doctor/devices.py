"""Checks of the devices: each device runs a kernel in a child process that may crash or hang.

Decides whether the machine has a working device; a broken device beside it is no failure.
Visited by lab 00.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vklab.apps.bootstrap import system
from vklab.apps.doctor import child, report
from vklab.apps.doctor.detect import Manifest
from vklab.apps.doctor.report import Check
from vklab.base import manifests

RUN_LIMIT_S = 60.0
AT_ONCE = 4
Facts = dict[str, Any]


def check_devices(
    listed: child.Answer,
    manifests: Sequence[Manifest],
    foundations: Sequence[Check],
    machine: system.Machine,
    run: bool,
) -> tuple[list[Check], tuple[Facts, ...]]:
    """Check every device; return the checks and the facts of the listed devices.

    Args:
        listed: the child's answer to `list`.
        manifests: driver manifests, to name the driver that breaks the listing.
        foundations: checks of loader, bindings and drivers; their repair comes first.
        machine: installed software of this machine.
        run: also run a kernel on every device.
    """
    if listed.problem:
        repair = next((check.repair for check in foundations if not check.ok), listed.repair)
        return [_explain_listing(listed, manifests, repair or report.driver_line(machine))], ()
    devices: tuple[Facts, ...] = tuple(listed.facts.get("devices", ()))
    if not devices:
        line = report.driver_line(machine)
        return [Check("devices", False, "the drivers offer no device", line)], ()
    usable = [facts for facts in devices if not facts["refusal"]]
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        outcomes = list(pool.map(_run, usable)) if run else [("", "")] * len(usable)
    working = [facts for facts, (problem, _) in zip(usable, outcomes, strict=True) if not problem]
    problems = {facts["index"]: outcome for facts, outcome in zip(usable, outcomes, strict=True)}
    word = "ran a kernel right" if run else "look usable; no kernel was run"
    counted = f"{len(working)} of {len(devices)} {word}"
    known = next((repair for _, repair in outcomes if repair), report.driver_line(machine))
    total = Check("devices", bool(working), counted, "" if working else known)
    each = [_check_one(facts, problems.get(facts["index"]), working, run) for facts in devices]
    return [total, *each], devices


def _run(facts: Facts) -> tuple[str, str]:
    """Run the kernel on one device; return its problem and the repair, both empty if right."""
    answer = child.ask(["run", str(facts["index"])], RUN_LIMIT_S)
    if answer.problem:
        return answer.problem, answer.repair
    got = answer.facts.get("got")
    if got != child.EXPECTED:
        left, right = list(child.LEFT), list(child.RIGHT)
        return f"wrong result: {left} + {right} = {got}, not {child.EXPECTED}", ""
    return "", ""


def _check_one(
    facts: Facts, outcome: tuple[str, str] | None, working: Sequence[Facts], run: bool
) -> Check:
    name = f"device {facts['index']}"
    label = f"{facts['name']} ({facts['type']}, {facts['driver']}, Vulkan {facts['api_version']})"
    others = [other for other in working if other["index"] != facts["index"]]
    if outcome is None:
        detail = f"{label} {facts['refusal']}"
        return Check(name, bool(others), detail, "update the driver of this device", not others)
    problem, repair = outcome
    if not problem:
        loud = "; a CPU, not a GPU" if facts["is_cpu"] else ""
        return Check(name, True, f"{label} {'adds three numbers' if run else 'not run'}{loud}")
    if not repair and others:
        repair = report.assign("VKLAB_DEVICE", str(others[0]["index"]))
    repair = repair or f"update or reinstall the driver: {facts['driver']}"
    return Check(name, False, f"{label}: {problem}", repair, not others)


def _explain_listing(listed: child.Answer, manifests: Sequence[Manifest], repair: str) -> Check:
    """Explain why no device could be listed; name the driver that breaks the others."""
    if not _is_native(listed.problem):
        return Check("devices", False, listed.problem, repair)
    guilty: list[str] = []
    innocent: list[str] = []
    for manifest in manifests:
        if manifest.problem:
            continue
        answer = child.ask(["list"], RUN_LIMIT_S, _only(manifest.path))
        # A driver without hardware answers that there is no device: no fault of the driver.
        (guilty if _is_native(answer.problem) else innocent).append(str(manifest.path))
    names = f"; the fault is in {', '.join(guilty)}" if guilty else ""
    if guilty and innocent:
        repair = report.assign("VK_DRIVER_FILES", os.pathsep.join(innocent))
    return Check("devices", False, f"listing the devices {listed.problem}{names}", repair)


def _is_native(problem: str) -> bool:
    return problem.startswith(("crashed", "did not answer", "hung"))


def _only(path: Path) -> dict[str, str]:
    return dict.fromkeys(manifests.DRIVER_VARIABLES, str(path))
