"""docs/architecture.md says what really happens: a load and a run are traced and compared."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import vklab
from support.graphs.small_models import DATA
from support.rules import architecture_page, steady_run
from vklab.runtime import open_devices

PAGE = architecture_page.PAGE.read_text("utf-8")
HOP = re.compile(r"^\| \d+ \| `([^`]+)` \| `([^`]+)` \|", re.M)
CONCEPT = re.compile(r"^\| (?:\w+, )?\w+ \| [^|]+ \| `vklab/([^`]+)` \|", re.M)


def hops(heading: str, end: str) -> list[tuple[str, str]]:
    """Return file and function of the hops between two texts of the page."""
    return HOP.findall(PAGE[PAGE.index(heading) : PAGE.index(end)])


def first_calls(action) -> list[tuple[str, str]]:
    """Return file and function of each function of the package, by the order of first calls."""
    calls: dict[tuple[str, str], None] = {}
    package = str(Path(vklab.__file__).parent) + "/"

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            calls.setdefault(
                (frame.f_code.co_filename.removeprefix(package), frame.f_code.co_qualname)
            )

    sys.setprofile(note)
    action()
    sys.setprofile(None)
    return list(calls)


def require_in_order(wanted: list[tuple[str, str]], calls: list[tuple[str, str]]) -> None:
    assert wanted, "the page has no hops"
    missing = [hop for hop in wanted if hop not in calls]
    assert not missing, f"never called: {missing}"
    assert sorted(wanted, key=calls.index) == wanted


@pytest.mark.full
def test_the_hops_of_a_load_and_of_a_first_run(device_index):
    open_devices.close_all()  # a device is opened on the way
    sessions = []
    load = first_calls(lambda: sessions.append(vklab.load(DATA / "digits_cnn.onnx", device_index)))
    images = np.load(DATA / "digits.npz")["images"][:3]
    run = first_calls(lambda: sessions[0].run({"image": images}))
    sessions[0].close()
    require_in_order(hops("## One load", "The batch dimension"), load)
    require_in_order(hops("The batch dimension", "## One run"), run)


def test_the_calls_of_a_steady_run(device_index):
    info = open_devices.select(device_index)
    if not info.is_cpu:
        pytest.skip(f"{info.name} is a GPU: its wait polls, the page shows a CPU device")
    calls = steady_run.steady_calls(device_index)
    assert architecture_page.run_text(calls) == architecture_page.block(PAGE, "run")


def test_the_map_and_the_concepts():
    assert architecture_page.MAP.read_text("utf-8") == architecture_page.drawn_map()
    files = CONCEPT.findall(PAGE)
    assert len(files) >= 12
    for file in files:
        assert (architecture_page.ROOT / "vklab" / file).is_file(), file
