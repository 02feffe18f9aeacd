"""Pictures of the course in a notebook that JupyterLab does not trust, such as a downloaded one.

COURSE_SCREENSHOTS=FOLDER keeps the pictures.
"""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest

from support.course.figures import svg_of
from vklab_course.picture import picture
from vklab_labs.shared.diagram import Diagram

ALT = 'a box that says "tile <0> & 50 % → 1"'


def diagram():
    page = Diagram(300, 120)
    page.box((20, 20, 260, 60), 'tile <0> & 50 % → 1 "a"', "green")
    return page.picture(ALT, "One box.")


def test_svg_becomes_the_source_of_an_image():
    drawn = diagram()
    assert "<svg" not in drawn.html and 'alt="a box that says &quot;tile' in drawn.html
    assert 'tile &lt;0&gt; &amp; 50 % → 1 "a"' in svg_of(drawn).replace("&quot;", '"')


def test_of_html_with_drawings_each_drawing_becomes_an_image():
    svg = svg_of(diagram())
    html = picture(f"<p>one</p>{svg}<p>two</p>{svg}", ALT, "Two boxes.").html
    assert html.count("<img ") == 2 and "<svg" not in html
    assert html.startswith('<div role="img" aria-label="a box') and "<p>two</p>" in html


def test_a_png_becomes_the_source_of_an_image():
    drawn = picture(b"\x89PNG", ALT, "A PNG.")
    assert drawn.html.startswith('<img src="data:image/png;base64,iVBORw==" alt="a box that')


@pytest.mark.full
def test_an_untrusted_notebook_shows_a_diagram(tmp_path):
    browser_tools = pytest.importorskip("support.course.browser", reason="no playwright")
    if not browser_tools.find_chromium():
        pytest.skip("Chromium is not installed")
    drawn = diagram()
    shown = (drawn._repr_html_(), f"<p>inline</p>{svg_of(drawn)}")
    outputs = [nbformat.v4.new_output("display_data", {"text/html": html}) for html in shown]
    cell = nbformat.v4.new_code_cell("1", outputs=outputs, execution_count=1)
    work, runtime = tmp_path / "work", tmp_path / "runtime"
    work.mkdir()
    runtime.mkdir()
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata=browser_tools.METADATA)
    nbformat.write(notebook, work / "diagram.ipynb")
    with (
        browser_tools.chromium() as browser,
        browser_tools.jupyterlab(work, runtime) as url,
        browser_tools.opened(browser, url, "diagram.ipynb") as page,
    ):
        image = page.wait_for_selector(".jp-RenderedHTML img")
        page.wait_for_selector(".jp-RenderedHTML p:has-text('inline')")
        assert image.is_visible() and image.get_attribute("alt") == ALT
        assert image.evaluate("async e => { await e.decode(); return e.naturalWidth; }") == 300
        # The reason for the image: here the same drawing is gone.
        assert page.locator(".jp-RenderedHTML svg").count() == 0
        if folder := os.environ.get("COURSE_SCREENSHOTS"):
            page.screenshot(path=Path(folder) / "untrusted.png")
