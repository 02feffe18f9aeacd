"""Pages beside the labs: links lead somewhere, kernels of the Slang primer compile and run."""

from __future__ import annotations

import re

import numpy as np
import pytest

from vklab_course import Run, run_kernel
from vklab_course.author.lab import all_labs
from vklab_course.places import PROJECT

LABS = PROJECT / "labs"
PAGES = sorted(p.relative_to(LABS).as_posix() for p in (*LABS.glob("*.md"), *LABS.glob("*/*.md")))
BLOCKS = re.findall(r"```slang\n(.*?)```", (LABS / "SLANG.md").read_text("utf-8"), re.S)


def anchors(text):
    """Return the anchors of a page: of headings, and of <a id>."""
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    made = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
    return made | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    text = (LABS / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        path = (LABS / page).parent / name if name else LABS / page
        assert path.exists(), f"{page} links {target}"
        if anchor:
            assert anchor in anchors(path.read_text("utf-8")), f"{page} links {target}"


def test_links_of_notebooks_to_the_glossary_lead_somewhere():
    known = anchors((LABS / "GLOSSARY.md").read_text("utf-8"))
    for path in all_labs(LABS):
        for anchor in re.findall(r"\]\(GLOSSARY\.md#([^)]+)\)", path.read_text("utf-8")):
            assert anchor in known, f"{path.name} links GLOSSARY.md#{anchor}"


@pytest.mark.full
def test_the_first_kernel_of_the_primer_scales():
    x = np.arange(1000, dtype=np.float32)
    run = Run({"x": x, "y": np.zeros_like(x)}, (16,), {"count": 1000, "factor": 2.0})
    (done,) = run_kernel(BLOCKS[0], run)
    assert done.status == "ran", done.message
    assert (done.buffers["y"] == 2 * x).all() and not done.out_of_bounds


@pytest.mark.full
def test_the_second_kernel_of_the_primer_adds_each_workgroup():
    x = np.arange(256, dtype=np.float32)
    (done,) = run_kernel(BLOCKS[1], Run({"x": x, "sums": np.zeros(4, np.float32)}, (4,)))
    assert done.status == "ran", done.message
    assert done.buffers["sums"].tolist() == x.reshape(4, 64).sum(axis=1).tolist()


@pytest.mark.full
def test_the_functions_of_the_primer_compile():
    kernel = BLOCKS[0].replace("params.factor * x[i]", "twice(relu(x[i]))")
    kernel = BLOCKS[2] + kernel.replace(" float factor;", "")
    x = np.array([-1, 2, 3], np.float32)
    run = Run({"x": x, "y": np.zeros_like(x)}, (1,), {"count": 3})
    (done,) = run_kernel(kernel, run)
    assert done.status == "ran", done.message
    assert done.buffers["y"].tolist() == [0, 4, 6]
