"""Pictures of the course in a notebook that JupyterLab does not trust, such as a downloaded one.

COURSE_SCREENSHOTS=FOLDER keeps the pictures.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import nbformat
import pytest

from support.course.figures import svg_of
from support.runs.waits import LIMIT_S
from vklab_course.picture import picture
from vklab_labs.lab_06.commands import draw_path
from vklab_labs.lab_07.workgroups import draw_tree
from vklab_labs.lab_12.makespan import EXAMPLE
from vklab_labs.lab_12.schedules_pictures import draw_list_scheduling
from vklab_labs.shared.diagram import Diagram, draw_steps

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


def test_pages_that_step_through_time_are_images_with_their_own_alt_text():
    page = Diagram(300, 80).note((10, 20), "one")
    drawn = draw_steps([(page, "the first"), (page, "the second")], "Two steps.")
    assert drawn.html.count("<img ") == 2 and "<svg" not in drawn.html
    assert 'alt="the first"' in drawn.html and 'alt="the second"' in drawn.html
    assert 'max="1"' in drawn.html and drawn.alt == "the first the second"


@pytest.fixture
def show_notebook(tmp_path):
    """Return a context that shows a cell in JupyterLab: with these outputs, or run there."""
    browser_tools = pytest.importorskip("support.course.browser", reason="no playwright")
    if not browser_tools.find_chromium():
        pytest.skip("Chromium is not installed")

    @contextlib.contextmanager
    def shown(source, pages=(), dark=False):
        outputs = [nbformat.v4.new_output("display_data", {"text/html": html}) for html in pages]
        count = 1 if pages else None
        cell = nbformat.v4.new_code_cell(source, outputs=outputs, execution_count=count)
        work, runtime = tmp_path / "work", tmp_path / "runtime"
        work.mkdir()
        runtime.mkdir()
        notebook = nbformat.v4.new_notebook(cells=[cell], metadata=browser_tools.METADATA)
        nbformat.write(notebook, work / "shown.ipynb")
        with (
            browser_tools.chromium() as browser,
            browser_tools.jupyterlab(work, runtime) as url,
            browser_tools.opened(browser, url, "shown.ipynb", dark) as page,
        ):
            if not pages:
                page.wait_for_function(browser_tools.IS_IDLE, timeout=1000 * LIMIT_S)
                page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
            yield page

    return shown


def keep_picture(page, name):
    if folder := os.environ.get("COURSE_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.mark.full
def test_an_untrusted_notebook_shows_a_diagram(show_notebook):
    drawn = diagram()
    with show_notebook("1", (drawn._repr_html_(), f"<p>inline</p>{svg_of(drawn)}")) as page:
        image = page.wait_for_selector(".jp-RenderedHTML img")
        page.wait_for_selector(".jp-RenderedHTML p:has-text('inline')")
        assert image.is_visible() and image.get_attribute("alt") == ALT
        assert image.evaluate("async e => { await e.decode(); return e.naturalWidth; }") == 300
        # The reason for the image: here the same drawing is gone.
        assert page.locator(".jp-RenderedHTML svg").count() == 0
        keep_picture(page, "untrusted")


STEPPED = """from vklab_labs.lab_06.commands import draw_path
from vklab_labs.lab_07.workgroups import draw_tree
from vklab_labs.lab_12.makespan import EXAMPLE
from vklab_labs.lab_12.schedules_pictures import draw_list_scheduling
display(draw_path(), draw_tree(), draw_list_scheduling(EXAMPLE))"""
STEPS = (5, 4, 6)
# The frames of each box that lie wholly inside it, to a pixel.
INSIDE = """() => [...document.querySelectorAll('.jp-RenderedHTML [style*=overflow]')].filter(
    box => box.previousElementSibling?.matches('input')).map(box => {
  const outer = box.getBoundingClientRect();
  return [...box.querySelectorAll('img')].flatMap((image, number) => {
    const {top, bottom} = image.getBoundingClientRect();
    return image.naturalWidth && top >= outer.top - 1 && bottom <= outer.bottom + 1 ? [number] : [];
  });
})"""


@pytest.mark.full
def test_in_an_untrusted_notebook_every_step_is_seen_by_scrolling(show_notebook):
    drawn = draw_path(), draw_tree(), draw_list_scheduling(EXAMPLE)
    with show_notebook("1", [each._repr_html_() for each in drawn], dark=True) as page:
        page.wait_for_function(f"() => ({INSIDE})().flat().length === 3")
        sliders = page.locator(".jp-RenderedHTML input")
        assert all(slider.is_disabled() for slider in sliders.all())
        boxes = page.locator(".jp-RenderedHTML [style*=overflow-y]").all()
        for number, (box, steps) in enumerate(zip(boxes, STEPS, strict=True)):
            box.scroll_into_view_if_needed()
            box.hover()
            high = box.evaluate("e => e.clientHeight")
            for step in range(steps):
                page.wait_for_function(f"() => ({INSIDE})()[{number}][0] === {step}")
                page.mouse.wheel(0, high)
            keep_picture(page, f"steps-untrusted-{number}")


@pytest.mark.full
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_in_a_trusted_notebook_a_slider_moves_the_steps(show_notebook, dark):
    with show_notebook(STEPPED, dark=dark) as page:
        page.wait_for_function(f"() => ({INSIDE})().flat().length === 3", timeout=1000 * LIMIT_S)
        sliders = page.locator(".jp-RenderedHTML input").all()
        for number, (slider, steps) in enumerate(zip(sliders, STEPS, strict=True)):
            slider.scroll_into_view_if_needed()
            slider.focus()
            for step in range(steps):
                page.wait_for_function(f"() => ({INSIDE})()[{number}].join() === '{step}'")
                page.keyboard.press("ArrowRight")
            keep_picture(page, f"steps-trusted-{number}-{dark}")
            slider.evaluate("e => { e.nextElementSibling.scrollTop = 0; }")
            page.wait_for_function("e => e.value === '0'", arg=slider.element_handle())
