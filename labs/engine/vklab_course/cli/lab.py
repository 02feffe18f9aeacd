"""Command `vklab lab`: check the machine, classify digits, open JupyterLab on the student's copies.

Visited by lab 00.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from vklab.apps import doctor
from vklab.apps.cli import console, run
from vklab.apps.cli import doctor as reports
from vklab.base import draw
from vklab.errors import SetupError, VklabError
from vklab.runtime import loading
from vklab_course import places
from vklab_course.cli import jupyter
from vklab_course.cli.course_parts import part
from vklab_course.student import copies

__all__ = ["classify_digits", "lab", "start_page"]

SHOWN = 10


def lab(
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Open no browser; print the address only.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of JupyterLab; the next free one if taken.")
    ] = 8888,
) -> None:
    """Check this machine, classify handwritten digits on the best device, open JupyterLab."""
    places.adopt_release()
    # A release has its own data and work beside its labs.
    labs = places.labs_folder()
    root = labs.parent
    if not (root / "data").is_dir():
        raise SetupError(
            f"there are no labs in {root}: an installed package has none",
            "go to the folder of a release or of a clone (it has labs/ and data/), and start "
            "`vklab lab` there",
        )
    report = doctor.examine()
    console.say(report.verdict, "bold green" if report.ok else "bold red")
    reports.show_repairs(tuple(check for check in report.checks if not check.ok))
    if not report.ok:
        raise typer.Exit(2)
    classify_digits(root / "data")
    if find_spec("jupyterlab") is None:
        raise SetupError(
            "JupyterLab is not installed here",
            "python3 -m vklab lab   (in a clone, without VKLAB_NO_BOOTSTRAP)",
        )
    work = root / "work"
    copied = copies.copy_labs(labs, work)
    if copied:
        console.say(f"new in {work.name}/: {', '.join(copied)}")
    raise typer.Exit(jupyter.serve(work, port, not no_browser, start_page(labs, work)))


def start_page(labs: Path, work: Path) -> str:
    """Write the start page and return its name, or "" if labs or paths cannot be read."""
    page = work / "start.ipynb"
    try:
        if not part("student.start").write_start(part("student.paths").Course(labs), page):
            console.say(f"{work.name}/{page.name} is yours and stays; rename it to get a new one")
    except VklabError as error:
        console.warn(f"vklab: there is no start page: {error}")
    return page.name if page.is_file() else ""


def classify_digits(data: Path) -> float:
    """Classify the held-out digits, print how many are right, and return their share."""
    with np.load(data / "digits.npz") as file:
        held_out = file["held_out"]
        images, labels = file["images"][held_out], file["labels"][held_out]
    with console.compiling() as progress:
        loaded = loading.load(data / "digits_cnn.onnx", progress=progress)
        with loaded:
            run.announce_cpu(loaded.device)
            logits = loaded.run(images)["logits"]
            started = time.perf_counter_ns()
            loaded.run(images)
            image_ns = (time.perf_counter_ns() - started) / len(images)
            name = loaded.device.name
    digits = logits.argmax(axis=1)
    right = int((digits == labels).sum())
    share = right / len(labels)
    console.say(
        f"held-out digits: {right} of {len(labels)} right ({100 * share:.1f} %) on {name}, "
        f"{draw.time_text(image_ns)} an image; first {SHOWN}: " + " ".join(map(str, digits[:SHOWN]))
    )
    return share
