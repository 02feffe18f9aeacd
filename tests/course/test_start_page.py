"""The start page in JupyterLab under headless Chromium: its map, its links, and the pages behind.

COURSE_SCREENSHOTS=FOLDER keeps the pictures.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vklab_course.places import PROJECT
from vklab_course.student import copies, start
from vklab_course.student.paths import Course

browser_tools = pytest.importorskip("support.course.browser", reason="playwright is not installed")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not browser_tools.find_chromium(), reason="Chromium is not installed"),
]
PAGE = "start.ipynb"
# Alt texts of the pictures that are really there, in the widget in front.
SEEN = """() => [...window.jupyterapp.shell.currentWidget.node.querySelectorAll('img')]
  .filter(e => e.naturalWidth > 300).map(e => e.alt)"""
NAME = "() => window.jupyterapp.shell.currentWidget.title.label"


def follow(page, target):
    """Click on a link and wait until its page is in front."""
    page.locator(f'a[href*="{target}"]').first.click()
    name = Path(target).name
    page.wait_for_function(f"name => ({NAME})() === name", arg=name)
    page.wait_for_timeout(1500)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_start_page_leads_to_labs_and_inserts(tmp_path, dark):
    folders = work, runtime = tmp_path / "work", tmp_path / "runtime"
    for folder in folders:
        folder.mkdir()
    copies.copy_labs(PROJECT / "labs", work)
    start.write_start(Course(PROJECT / "labs"), work / PAGE)
    pictures = Path(os.environ.get("COURSE_SCREENSHOTS") or tmp_path / "pictures").resolve()
    pictures.mkdir(parents=True, exist_ok=True)
    with (
        browser_tools.chromium() as browser,
        browser_tools.jupyterlab(work, runtime) as url,
        browser_tools.opened(browser, url, PAGE, dark) as page,
    ):
        page.wait_for_function(f"() => ({SEEN})().length === 1")
        assert page.evaluate(SEEN)[0].startswith("Which lab needs which: ")
        assert not page.evaluate(browser_tools.WIDE)
        page.screenshot(path=pictures / f"start-{dark}.png")
        follow(page, "inserts/banks.md")
        assert [alt[:24] for alt in page.evaluate(SEEN)] == ["Words 0 to 23 in eight b"]
        page.screenshot(path=pictures / f"insert-{dark}.png")
        page.get_by_role("tab", name=PAGE).click()
        follow(page, "00_start_here.ipynb")
