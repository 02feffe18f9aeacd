"""Pages of the project: the README is short, links lead somewhere, commands are all described."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vklab.apps.cli import app

ROOT = Path(__file__).resolve().parents[2]
README_LINES = 150
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "labs/*.md", "shaders/*.md", "data/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page: str) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub and Jupyter give the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", text_of(page), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: str) -> list[str]:
    """Return the links of a page that lead to no file, or to no heading of one."""
    wrong = []
    for link in LINK.findall(re.sub(r"`[^`]*`", "", text_of(page))):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        is_page = target.suffix == ".md"
        if not target.exists() or anchor and is_page and anchor not in anchors(str(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_each_link_of_a_page_leads_to_a_file_and_a_heading(page):
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A title, b\n[a](#a-title-b) [b](gone.md) [c](page.md#none) [d](https://e)\n"
        "`[e](gone.md)` [f](page.md)\n```\n[g](gone.md)\n```\n"
    )
    assert broken(str(page)) == ["gone.md", "page.md#none"]


def test_the_readme_is_short_and_has_the_two_commands():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= README_LINES
    assert "python3 -m vklab lab" in lines and "python3 -m vklab test" in lines


def test_the_readme_leads_to_every_page_and_names_every_folder():
    text = (ROOT / "README.md").read_text("utf-8")
    assert not [page for page in PAGES if page.startswith("docs/") and f"({page})" not in text]
    folders = {path.parent.name for path in ROOT.glob("vklab/*/__init__.py")}
    assert set(re.findall(r"^\| `vklab/(\w+)/` \|", text, re.M)) == folders


def test_every_command_is_described():
    text = (ROOT / "docs/commands.md").read_text("utf-8")
    described = set(re.findall(r"^\| `vklab (\w+)", text, re.M))
    assert described == {*app.MODULES, "lab", "course"}  # the last two are the course's
