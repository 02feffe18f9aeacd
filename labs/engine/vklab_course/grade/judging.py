"""Judge of a batch: one sandboxed session for each submission, after the sandbox was probed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from vklab_course.definition.exercise import number_of
from vklab_course.grade.jobs import Job, Outcome
from vklab_course.grade.sandbox import command as sandbox
from vklab_course.grade.sandbox import probe
from vklab_course.grade.sandbox.base import Sandbox
from vklab_course.grade.session import process as session

__all__ = ["judge_one", "require_sandbox"]


def judge_one(job: Job) -> Outcome:
    """Grade one job in a session whose kernel runs in the sandbox."""
    os.environ["VKLAB_LABS"] = job.labs
    box = _swept(job.image)
    try:
        with tempfile.TemporaryDirectory(prefix="vklab-job-") as folder:
            path = Path(folder) / "submission.ipynb"
            path.write_text(job.notebook, encoding="utf-8")
            return session.run_session(
                path,
                number_of(job.lab),
                sandbox=box,
                secret=job.seed,
                variants=job.variant,
                exercises=job.exercises,
                times=job.times,
                wall_seconds=job.seconds,
            )
    finally:
        box.closed()


def _swept(image: str) -> Sandbox:
    """Return this machine's sandbox, without what a killed grader has left behind."""
    box = sandbox.find_sandbox(image=image)
    box.swept()
    return box


def require_sandbox(image: str, hidden: Mapping[str, Sequence[Path]]) -> None:
    """Raise SetupError unless this machine's sandbox keeps what it promises.

    Args:
        image: image of a container by its digest, or "" for bubblewrap.
        hidden: paths that no submission may see, by a name.
    """
    box = _swept(image)
    try:
        probe.require(box, hidden)
    finally:
        box.closed()
