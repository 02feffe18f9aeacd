"""Charts of timings and comparisons: every number is drawn, within the page, with units."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from vklab.base.draw import charts, svg
from vklab.runtime.observe import compare
from vklab.runtime.observe.compare import Comparison
from vklab.runtime.observe.profile import Timing

SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture: str) -> ElementTree.Element:
    """Return a picture, once everything in it is on the page, on white, and named."""
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img" and root.get("aria-label")
    assert "background:#fff" in root.get("style", "")
    width, height = map(int, root.get("viewBox", "").split()[2:])
    for item in root.iter():
        for across, down in (("x", "y"), ("cx", "cy")):
            assert 0 <= float(item.get(across, 0)) <= width
            assert 0 <= float(item.get(down, 0)) <= height
    colours = {item.get("fill") for item in root.iter(f"{SVG}circle")}
    assert colours <= set(svg.PALETTE)
    return root


def words(root: ElementTree.Element) -> list[str]:
    return [item.text or "" for item in root.iter(f"{SVG}text")]


def test_percentiles_are_those_of_numpy():
    values = [5.0, 1.0, 9.0, 2.0, 2.5]
    for percent in (0, 5, 50, 95, 100):
        assert charts.percentile(values, percent) == pytest.approx(np.percentile(values, percent))
    assert charts.percentile([3.0], 95) == 3.0


@pytest.mark.parametrize(("scale", "unit"), [(1, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")])
def test_a_timing_draws_its_distribution_in_a_unit_that_fits(scale, unit):
    host = tuple(scale * (2 + n / 10) for n in range(30))
    timing = Timing(host, tuple(value / 2 for value in host))
    root = drawn(timing._repr_html_())
    said = words(root)
    assert said[0] == str(timing) and said[0].startswith("30 runs: median host 3.")
    assert f"median 3.45 {unit}" in said and f"95 % 4.755 {unit}" in said
    assert f"time of one run in {unit}" in said and {"host, copies included", "device"} <= {*said}
    bars = [item[0].text or "" for item in root.iter(f"{SVG}rect") if len(item)]
    assert sum(int(text.split()[0]) for text in bars) == 60  # every run, host and device
    assert root.get("aria-label") == str(timing)


def test_timings_without_runs_or_without_time_are_drawn():
    assert "no run was timed" in words(drawn(Timing((), ()).picture()))
    drawn(Timing((0.0,), (0.0,)).picture())
    drawn(Timing((7.0,), (3.0,)).picture())


def test_a_comparison_draws_each_output_against_its_tolerance():
    expected = {
        "close": np.array([1.0, -2.0], np.float32),
        "far": np.ones(3, np.float32),
        "count": np.arange(3),
        "lost": np.ones(2, np.float32),
        "short": np.zeros(2, np.float32),
    }
    actual = {name: value.copy() for name, value in expected.items()}
    actual["close"] += np.array([0, 5e-5], np.float32)
    actual["far"][1] += 1e-2
    actual["lost"][0] = math.nan
    actual["short"] = np.zeros(3, np.float32)
    found = compare.compare(actual, expected)
    shares = dict(found.shares)
    assert 0 < shares["close"] < 1 < shares["far"] < 200 and shares["count"] == 0
    assert shares["lost"] == shares["short"] == math.inf and not found.passed
    root = drawn(found.picture())
    said = words(root)
    assert {*expected} <= {*said} and "tolerance" in said
    assert said.count("infinite") == 2 and said.count("equal") == 1
    assert len([*root.iter(f"{SVG}circle")]) == 2  # crosses are not told by their colour alone
    assert "DIFFERS" in root.get("aria-label", "")
    assert "largest error of each output, as a share of its tolerance (no unit)" in said


def test_an_integer_that_differs_is_infinitely_wrong_and_not_beyond_comparison():
    said = words(drawn(compare.compare({"y": np.arange(3)}, {"y": np.arange(1, 4)}).picture()))
    assert "infinite" in said and not any("comparable" in word for word in said)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_share_above_one_is_what_the_tolerance_refuses(factor):
    truth = np.array([4.0, 1.0])
    allowed = compare.ATOL * 4 + compare.RTOL * 1
    found = compare.compare({"y": truth + [0, factor * allowed]}, {"y": truth})
    ((_, share),) = found.shares
    assert share == pytest.approx(factor) and found.passed == (share <= 1)


def test_the_largest_of_many_nodes_are_drawn_in_their_order():
    shares = tuple((f"<node {n}>", (n * 7 % 500 + 1) * 1e-6) for n in range(500))
    found = Comparison(True, 0, 0, (), nodes=500, shares=shares)
    said = words(drawn(found.picture()))
    names = [text for text in said if text.startswith("<node")]
    assert len(names) == compare.DRAWN and names == [n for n, _ in shares if n in names]
    assert max(shares, key=lambda pair: pair[1])[0] in names
    assert "476 more with smaller errors are not drawn" in said
    html = found._repr_html_()
    assert html.startswith("<div>agrees with the reference") and "<node" not in html


def test_a_comparison_without_outputs_is_text():
    assert "<svg" not in Comparison(True, 0, 0, ())._repr_html_()
