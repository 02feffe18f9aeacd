"""Every lab in JupyterLab under headless Chromium: unsolved to its end, solved all correct.

COURSE_SCREENSHOTS=FOLDER keeps the pictures.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
import pytest

from vklab_course.author.gates import verdicts_of
from vklab_course.definition.exercise import exercises_of

browser_tools = pytest.importorskip("support.course.browser", reason="playwright is not installed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not browser_tools.find_chromium(), reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def chromium():
    with browser_tools.chromium() as browser:
        yield browser


@pytest.mark.parametrize(("kind", "allowed"), [
    ("student", {"not_attempted", "skipped"}),
    ("solution", {"correct", "recorded", "skipped"}),
])  # fmt: skip
def test_a_lab_in_the_browser(case, kind, allowed, chromium, tmp_path):
    work, runtime = tmp_path / "work", tmp_path / "runtime"
    work.mkdir()
    runtime.mkdir()
    name = f"{case.lab.name}-{kind}.ipynb"
    shutil.copy(getattr(case, kind), work / name)
    pictures = Path(os.environ.get("COURSE_SCREENSHOTS") or tmp_path / "pictures").resolve()
    with browser_tools.jupyterlab(work, runtime) as url:
        # One of the two in the dark theme: what cannot be read there is seen in its pictures.
        seen = browser_tools.run_all(chromium, url, name, pictures, dark=kind == "solution")
    saved = nbformat.read(work / name, as_version=4)
    errors = [
        output.evalue
        for cell in saved.cells
        for output in cell.get("outputs", ())
        if output.output_type == "error"
    ]
    assert seen.finished and not errors
    found = verdicts_of(saved)
    statuses = {key: found.get(key, {}).get("status") for key in exercises_of(case.lab.number)}
    assert set(statuses.values()) <= allowed, statuses
    assert not seen.too_wide, "wider than the screen:\n" + "\n".join(seen.too_wide)
    assert seen.screenshots
