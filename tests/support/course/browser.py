"""JupyterLab in headless Chromium: open a notebook, run all its cells, look at what is drawn."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from support.runs import child
from support.runs.waits import until
from vklab_course.cli import jupyter

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update",
         "--disable-sync")  # fmt: skip
WIDTH, HEIGHT = 1280, 900
START_S, RUN_S = 90.0, 600.0
TOKEN = "only-for-this-test"

# Without it JupyterLab asks for a kernel, and colours no Python before that.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "mimetype": "text/x-python"},
}
# Elements that are wider inside than outside, with what they start with.
WIDE = """() => [...document.querySelectorAll(
    '.jp-Notebook, .jp-WindowedPanel-outer, .jp-Cell, .jp-OutputArea-output, .cm-scroller, pre')]
  .filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1)
  .map(e => e.className + ' ' + e.scrollWidth + ' > ' + e.clientWidth + ': '
            + e.innerText.slice(0, 80))"""
STATE = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const cells = [...panel.content.model.sharedModel.cells].filter(c => c.cell_type === 'code'
    && c.source.trim());
  return {status: panel.sessionContext.session?.kernel?.status ?? 'none',
          waiting: cells.filter(c => c.execution_count === null).length};
}"""

# A server that is told to end while a kernel starts does not end.
IS_IDLE = """() =>
  window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"""


@dataclass
class Seen:
    """What was seen of one notebook: is it at its end, what is too wide, where pictures lie."""

    finished: bool
    too_wide: list[str] = field(default_factory=list)
    screenshots: list[Path] = field(default_factory=list)


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def jupyterlab(folder: Path, runtime: Path, share: Path = jupyter.SHARE) -> Iterator[str]:
    """Serve a folder; yield the address.

    Args:
        folder: the server's root folder.
        runtime: receives the server's files and settings.
        share: holds the extension of the course.
    """
    jupyter._quiet(runtime)
    variables = {
        **os.environ,
        "JUPYTER_TOKEN": TOKEN,
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_CONFIG_DIR": str(runtime),
        "JUPYTER_PATH": str(share),
        "PYTHONPATH": child.search_path(ROOT),
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        "--expose-app-in-browser",
        f"--ServerApp.root_dir={folder}",
    ]
    with (runtime / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
        )
        try:
            yield _address(process, runtime)
        finally:
            process.terminate()
            # A server that is asked to end while a kernel starts may never end. Kernels see to it
            # themselves that they end with their server.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], runtime: Path) -> str:
    found: list[str] = []

    def has_begun_or_ended() -> bool:
        for path in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError):
                found.append(json.loads(path.read_text())["url"])
        return bool(found) or process.poll() is not None

    until(has_begun_or_ended, "JupyterLab does not begin")
    if not found:
        raise RuntimeError((runtime / "server.log").read_text()[-3000:])
    return found[0]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser that is installed."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser: Browser, url: str, name: str, dark: bool = False) -> Iterator[Page]:
    """Open a notebook in a page of its own; yield the page when the first cell is there."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    try:
        # A workspace of its own: no dialog about where somebody was before.
        page.goto(f"{url}lab/workspaces/{Path(name).stem}/tree/{name}?token={TOKEN}&reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=START_S * 1e3)
        if dark:
            change_theme(page, dark)
        yield page
        page.wait_for_function(IS_IDLE, timeout=START_S * 1e3)
    finally:
        page.close()


def change_theme(page: Page, dark: bool) -> None:
    """Change to the dark or the light theme, which the server remembers."""
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})",
        f"JupyterLab {'Dark' if dark else 'Light'}",
    )
    page.wait_for_selector(
        f"body[data-jp-theme-light={'false' if dark else 'true'}]", state="attached"
    )


def run_all(browser: Browser, url: str, name: str, pictures: Path, dark: bool = False) -> Seen:
    """Open a notebook, run all its cells, save it, and take pictures of it from top to bottom."""
    with opened(browser, url, name, dark) as page:
        _wait(page, lambda state: state["status"] == "idle", START_S)
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        done = _wait(page, lambda s: s["status"] == "idle" and not s["waiting"], RUN_S)
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_timeout(1500)
        return Seen(done, *_look(page, pictures, Path(name).stem))


def _wait(page: Page, holds: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    quiet = 0
    while time.monotonic() < deadline:
        quiet = quiet + 1 if holds(page.evaluate(STATE)) else 0
        if quiet == 3:  # idle for a moment between two cells is not the end
            return True
        page.wait_for_timeout(400)
    return False


def _look(page: Page, pictures: Path, stem: str) -> tuple[list[str], list[Path]]:
    pictures.mkdir(parents=True, exist_ok=True)
    outer = ".jp-WindowedPanel-outer"
    too_wide: dict[str, None] = {}
    taken = []
    page.evaluate("s => document.querySelector(s).scrollTo(0, 0)", outer)
    for number in range(200):
        page.wait_for_timeout(400)
        too_wide |= dict.fromkeys(page.evaluate(WIDE))
        path = pictures / f"{stem}-{number:02}.png"
        page.screenshot(path=path)
        taken.append(path)
        moved = page.evaluate(
            """s => { const e = document.querySelector(s), before = e.scrollTop;
                     e.scrollBy(0, e.clientHeight - 60); return e.scrollTop > before + 1; }""",
            outer,
        )
        if not moved:
            break
    return list(too_wide), taken
