"""Colours of code in a notebook: Slang in strings and contrast, by the course's extension.

COURSE_SCREENSHOTS=FOLDER keeps the pictures.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest

import vklab_course
from vklab_course.cli import jupyter

browser_tools = pytest.importorskip("support.course.browser", reason="playwright is not installed")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not browser_tools.find_chromium(), reason="Chromium is not installed"),
]

EXTENSION = "labextensions/vklab-slang"
KERNEL = '''KERNEL = """
// Write y; it's "doubled".
RWStructuredBuffer<float> y;
#define WIDE 0x40
[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x < WIDE) y[id.x] = max(2.5f * y[id.x], -1e-3); /* or zero */
}
"""'''
OTHER = 'SENTENCE = """if it is 1, // return main()"""  # not a kernel'
# The words of each colour, with the variable of JupyterLab's theme that has it.
WORDS = {
    "comment": ("comment", ['// Write y; it\'s "doubled".', "/* or zero */"]),
    "meta": (
        "operator",
        ["#define WIDE 0x40", '[shader("compute")]', "[numthreads(64, 1, 1)]"]
        + ["SV_DispatchThreadID"],
    ),
    "type": ("builtin", ["RWStructuredBuffer", "float", "void", "uint3"]),
    "keyword": ("keyword", ["if"]),
    "number": ("number", ["2.5f", "1e-3"]),
    "call": ("def", ["main", "max"]),
}
# Of each coloured word its class, its text, its colour, and the colour of the theme.
COLOURED = """roles => [...document.querySelectorAll('[class*=vklab-slang-]')].map(e => {
  const kind = e.className.replace('vklab-slang-', ''), sample = document.createElement('i');
  sample.style.color = `var(--jp-mirror-editor-${roles[kind] ?? 'variable'}-color)`;
  e.append(sample);
  const found = [getComputedStyle(e).color, getComputedStyle(sample).color];
  sample.remove();
  return [kind, e.textContent, ...found];
})"""
# Colours of a string of Python and of the keyword `assert`.
PYTHON = """() => ['if it is 1', 'assert'].map(text => getComputedStyle(
  [...document.querySelectorAll('.cm-line span')].find(e => e.textContent.includes(text))).color)"""
PYTHON_CODE = """import numpy as np  # a comment
@np.vectorize
def area(width, *more: int) -> float:
    "A docstring, and more."
    if width is None or not more:
        raise ValueError(f"no {width!r}, {True}")
    class Box(object): pass
    return sum([1.5e3, *more]) @ {"a": lambda x: x ** 2}[0]"""
# Of each coloured word its text, its colour, and the first background behind it.
CONTRASTS = """() => [...document.querySelectorAll('.cm-line span')].map(e => {
  let behind = e;
  while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)')
    behind = behind.parentElement;
  return [e.textContent, getComputedStyle(e).color, getComputedStyle(behind).backgroundColor];
})"""
BROKEN = {
    "does not parse": ("(() => {", "(() => {{"),
    "fails when loaded": ('"use strict";', 'throw new Error("planted");'),
    "asks for a package that is not there": ("@codemirror/view", "@codemirror/gone"),
    "calls a function that is gone": ("createImmutableExtension", "createGone"),
    "fails when started": ("registry.addExtension", "registry.gone"),
    "fails in an editor": ("syntaxTree(view.state).iterate", "view.gone.iterate"),
}


@pytest.fixture(scope="module")
def chromium():
    with browser_tools.chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    """Return a copy of the extension, which tests may break."""
    folder = tmp_path_factory.mktemp("data") / "jupyter"
    shutil.copytree(jupyter.SHARE, folder)
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory, share):
    """Yield the address of a server with two notebooks."""
    work, runtime = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("runtime")
    notebooks = {"kernel": (KERNEL, OTHER, "assert KERNEL"), "python": (KERNEL, PYTHON_CODE)}
    for name, texts in notebooks.items():
        cells = [nbformat.v4.new_code_cell(text) for text in texts]
        notebook = nbformat.v4.new_notebook(cells=cells, metadata=browser_tools.METADATA)
        nbformat.write(notebook, work / f"{name}.ipynb")
    with browser_tools.jupyterlab(work, runtime, share) as url:
        yield url


def keep_picture(page, name: str) -> None:
    if folder := os.environ.get("COURSE_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_slang_has_the_colours_of_the_theme(served, chromium, dark):
    with browser_tools.opened(chromium, served, "kernel.ipynb") as page:
        page.wait_for_selector(".vklab-slang-comment")
        browser_tools.change_theme(page, dark)
        page.wait_for_timeout(500)
        words = page.evaluate(COLOURED, {kind: role for kind, (role, _) in WORDS.items()})
        python = page.evaluate(PYTHON)
        keep_picture(page, f"slang-{'dark' if dark else 'light'}")
    for kind, (_, texts) in WORDS.items():
        assert list(dict.fromkeys(text for each, text, *_ in words if each == kind)) == texts
    assert all(colour == expected for _, _, colour, expected in words), words
    string, keyword = python
    assert string not in {colour for _, _, colour, _ in words} and string != keyword


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour `rgb(r, g, b)`, as WCAG 2 defines it."""
    shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_contrast_of_code_is_at_least_four_and_a_half(served, chromium, dark):
    with browser_tools.opened(chromium, served, "python.ipynb") as page:
        page.wait_for_selector(".vklab-slang-comment")
        browser_tools.change_theme(page, dark)
        page.wait_for_timeout(500)
        seen = []
        for cell in page.locator(".jp-CodeCell .cm-content").all():
            # The cell in use has another background; no bracket is marked at its upper left.
            cell.click(position={"x": 8, "y": 8})
            seen += page.evaluate(CONTRASTS)
        keep_picture(page, f"contrast-{'dark' if dark else 'light'}")
    ratios = {}
    for word, *colours in seen:
        low, high = sorted(map(luminance, colours))
        ratios[word, *colours] = (high + 0.05) / (low + 0.05)
    comments = {"# a comment", *WORDS["comment"][1]}
    assert comments <= {word for word, *_ in ratios}
    assert len({behind for *_, behind in ratios}) == 2
    low = {key: round(ratio, 2) for key, ratio in ratios.items() if ratio < 4.5}
    assert not low, low


def test_a_change_of_the_theme_and_of_the_text_changes_the_colours(served, chromium):
    with browser_tools.opened(chromium, served, "kernel.ipynb") as page:
        keyword = page.wait_for_selector(".vklab-slang-keyword")
        colours = []
        for dark in (False, True):
            browser_tools.change_theme(page, dark)
            page.wait_for_timeout(500)
            colours.append(keyword.evaluate("e => getComputedStyle(e).color"))
        assert colours[0] != colours[1]
        page.click(".cm-line:has-text('if (id.x')")
        page.keyboard.press("Home")
        page.keyboard.type("while (1) ")
        page.wait_for_selector(".vklab-slang-keyword:has-text('while')")


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_extension_leaves_jupyterlab_whole(served, share, chromium, what):
    script = share / EXTENSION / "static/slang.js"
    good, (before, after) = script.read_text(), BROKEN[what]
    assert before in good
    script.write_text(good.replace(before, after))
    try:
        with browser_tools.opened(chromium, served, "kernel.ipynb") as page:
            page.wait_for_selector(".cm-line span:has-text('assert')")
            string, keyword = page.evaluate(PYTHON)
            assert string != keyword
            assert page.locator(".jp-Notebook .jp-Cell").count() == 3
            assert page.locator("[class*=vklab-slang-]").count() == 0
            assert page.locator(".jp-Dialog").count() == 0
            keep_picture(page, f"slang-{what.replace(' ', '-')}")
    finally:
        script.write_text(good)


def test_the_extension_has_the_version_of_the_course():
    package = json.loads((jupyter.SHARE / EXTENSION / "package.json").read_text("utf-8"))
    assert package["version"] == vklab_course.__version__
