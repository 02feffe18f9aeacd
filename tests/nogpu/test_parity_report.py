"""Forms of a parity report: JSON with the promised keys, and a page that loads nothing."""

import html.parser
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from vklab.apps.compare import parity
from vklab.apps.compare.backend import Dtypes, ModelSource, Row
from vklab.apps.compare.judging import judge
from vklab.apps.compare.judging.errors import Repeats
from vklab.apps.compare.layerwise.layers import Layer, Taps
from vklab.apps.compare.report import page, rows, summary
from vklab.base.draw import parity as pictures
from vklab.runtime import tolerances

KEYS = ["backend", "device", "dtypes", "status", "reason", "install", "nodes", "max_abs_error",
        "passed", "first_layer", "latency_us", "bytes", "recorded"]  # fmt: skip
SINGLE, HALF = Dtypes("float32", "float32", "float32"), Dtypes("float16", "float16", "float32")
TRUTH = {"logits": np.random.default_rng(0).standard_normal((8, 10))}
HOSTILE = '<script>alert("x")</script> & Co'


def measured(name, dtypes, outputs, **more):
    verdict = judge.outputs(outputs, TRUTH, tolerances.model(dtypes.arithmetic), dtypes.arithmetic)
    row = Row(
        name,
        "CPU",
        dtypes,
        "ran",
        nodes={"CPUExecutionProvider": 9},
        bytes=4096,
        latency_us={"median": 500.0, "p10": 450.0, "p90": 700.0},
    )
    return replace(rows.judged(row, verdict), **more)


def layer(name, share, cumulative):
    return Layer(
        name,
        f"node_{name}",
        "Conv",
        27,
        2.0,
        cumulative * 1e-4,
        cumulative,
        share * 1e-5,
        0.0,
        share * 1e-5,
        share,
        "8 roundings in float32",
    )


def made(*more):
    logits = TRUTH["logits"]
    lost = np.where(logits == logits.max(), np.nan, logits)
    found = (
        measured(
            "right",
            SINGLE,
            {"logits": logits.astype(np.float32)},
            layers=(layer("conv", 0.2, 0.01), layer("relu", 0.0, 0.3)),
            taps=Taps(0.0, 0.0),
            repeats=Repeats(3, True, 0.0),
            batches={1: 500.0, 8: 900.0},
        ),
        measured(
            "half",
            HALF,
            {"logits": logits.astype(np.float16)},
            layers=(layer("conv", 0.7, 0.01),),
            taps=Taps(9.0, 5.0),
            repeats=Repeats(3, False, 1e-4),
        ),
        measured(
            "wrong",
            SINGLE,
            {"logits": lost},
            layers=(layer("conv", math.inf, 3.0), layer("relu", 4.0, math.inf)),
        ),
        rows.Measured(Row("absent", HOSTILE, SINGLE, "absent", HOSTILE, "pip install 'it[x]'")),
        rows.Measured(Row("crash", "GPU", SINGLE, "crashed", "signal 11")),
        *more,
    )
    return parity.Parity(
        ModelSource(HOSTILE),
        "ONNX graph widened to float64",
        {},
        found,
        ("opset 17 was asked for, 18 obtained",),
    )


def test_json_has_the_promised_keys_and_no_others():
    text = json.dumps(summary.summary(made()), allow_nan=False)
    found = json.loads(text)
    assert list(found) == ["parity", "details"] and list(found["parity"]) == ["oracle", "rows"]
    for row in found["parity"]["rows"]:
        assert list(row) == KEYS
        assert list(row["dtypes"]) == ["weights", "arithmetic", "sums"]
    verdicts = {row["backend"]: row["passed"] for row in found["parity"]["rows"]}
    assert verdicts == {"right": True, "half": True, "wrong": False, "absent": None, "crash": None}
    assert found["parity"]["rows"][2]["max_abs_error"] is None  # infinite: a value is lost
    assert found["details"]["rows"][0]["layers"][0]["terms"] == 27
    assert not found["details"]["passed"]


def test_where_every_runtime_is_wrong_the_oracle_is_suspected():
    bad = (layer("conv", 0.1, 0.1), layer("softmax", 9.0, 9.0))
    two = [replace(each, layers=bad) for each in made().rows[:2]]
    assert "suspect" not in " ".join(summary.notes(replace(made(), rows=(two[0],))))
    two[1] = replace(two[1], row=replace(two[1].row, backend="other-cpu"))
    assert (
        "every backend is wrong at 'softmax': suspect the oracle"
        in summary.notes(replace(made(), rows=tuple(two)))[-1]
    )


def test_rows_of_layers_are_texts_in_order():
    layers = made().rows[0].layers
    whole = summary.layer_rows(layers)
    assert [row[0] for row in whole] == ["conv", "relu"] and whole[0][-1] == "20.0%"
    assert all(len(row) == len(summary.LAYER_HEADERS) for row in whole)
    assert [row[0] for row in summary.layer_rows(layers, most=1)] == ["relu"]
    assert summary.share_text(3.0) == "3 times" and summary.number(None) == ""


def test_a_remark_on_several_backends_and_the_origin_of_a_recording_stand_once_on_the_page():
    origin = {
        "machine": "Linux, 16 CPUs",
        "versions": {"python": "3.12.3", "torch": "2.11"},
        "date": "2026-11-24",
        "command": "vklab parity m",
        "measured_by": "a person",
        "source": "",
    }
    logits = {"logits": TRUTH["logits"].astype(np.float32)}
    told = [measured(name, SINGLE, logits, notes=("the program as written",)) for name in "ab"]
    far = measured("far", SINGLE, logits)
    far = replace(far, row=replace(far.row, status="recorded", recorded=origin))
    text = page.page(made(*told, far))
    assert text.count("the program as written") == 1
    assert "<li>a, b: the program as written</li>" in text
    assert (
        "<li>far: recorded on Linux, 16 CPUs, 2026-11-24, by a person, with python 3.12.3, "
        "torch 2.11: vklab parity m</li>"
    ) in text
    assert summary.nodes_text(far.row) == "9 CPU" and summary.origin(told[0]) == []
    ours = replace(far.row, backend="vklab-0-float32", device="llvmpipe (256 bits), Mesa 22.3")
    assert summary.device_text(ours) == "llvmpipe (256 bits)"


class Reader(html.parser.HTMLParser):
    """Checks that tags close, and keeps what a page would load or say."""

    VOID = {"meta", "input", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.loads, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.loads += [v for k, v in attributes if k in ("src", "href", "data", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def reader():
    found = Reader()
    found.feed(page.page(made()))
    assert found.open == []
    return found


def test_the_page_loads_nothing_and_runs_nothing(reader):
    assert reader.loads == [] and "script" not in {tag for tag, _ in reader.tags}
    document = page.page(made())
    assert {*re.findall(r'https?://[^"\s]+', document)} == {"http://www.w3.org/2000/svg"}
    assert "url(" not in document and "@import" not in document
    assert "default-src 'none'" in document and HOSTILE not in document


def test_the_page_says_everything(reader):
    text = " ".join(reader.text)
    for words in (
        HOSTILE,
        "2 of 3 agree with the oracle, 1 absent, 1 crashed",
        "1 are NaN",
        "pip install 'it[x]'",
        "signal 11",
        "3 runs of the same inputs differ by up to",
        "another computation",
        "opset 17 was asked for, 18 obtained",
        "500.0 us",
        "batch 8",
        "90",
    ):
        assert words in text, words


def test_every_picture_has_a_name_and_every_cell_a_tooltip(reader):
    drawings = [attributes for tag, attributes in reader.tags if tag == "svg"]
    assert [each["aria-label"] for each in drawings] == [
        "Local errors by layer",
        "Cumulative errors by layer",
        "Distribution of the outputs' errors",
        "Time of one run",
    ]
    assert all(each["role"] == "img" for each in drawings)
    document = page.page(made())
    assert "right, conv: Conv, error 2e-06 of values up to 2, 20.0% of its tolerance" in document
    assert "half, relu: not measured" in document


def test_layers_of_an_untrusted_tapped_run_are_not_drawn():
    document = page.page(made())
    cumulative = document.split("Cumulative errors by layer:")[1].split("</svg>")[0]
    assert "right, conv" in cumulative and "half" not in cumulative


def test_a_failing_cell_has_more_than_a_colour():
    drawing = pictures.heat_map(
        "t", ["a", "b"], ["x"], {("a", "x"): (3.0, "three"), ("b", "x"): (math.inf, "lost")}
    )
    assert "\u2715 3x" in drawing and "\u2715 lost" in drawing


def luminance(colour):
    digits = colour.lstrip("#")
    digits = "".join(c * 2 for c in digits) if len(digits) == 3 else digits
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_passing_steps_differ_in_lightness_and_texts_can_be_read():
    fills = [luminance(fill) for _, fill, _ in pictures.STEPS[:-1]]
    assert fills == sorted(fills, reverse=True)
    assert min(contrast(fill, ink) for _, fill, ink in pictures.STEPS) >= 4.5
    css = page.CSS.read_text()
    for theme in re.findall(r"--text:.*?--bad: #\w+", css, re.S):
        found = dict(re.findall(r"--(\w+): (#\w+)", theme))
        for ink in ("text", "quiet", "good", "bad"):
            assert contrast(found[ink], found["page"]) >= 4.5, (ink, found)


def test_bars_that_are_far_apart_have_a_logarithmic_scale():
    near = [("a", 1.0, 2.0, 3.0, ""), ("b", 2.0, 3.0, 4.0, "")]
    linear = pictures.bars("t", near, "us")
    assert "logarithmic" not in linear and ">3</text>" in linear and ">4</text>" in linear
    assert "logarithmic scale from 1" in pictures.bars("t", [*near, ("c", 1e3, 2e3, 3e3, "")], "us")
    assert ">1000</text>" in pictures.bars("t", [*near, ("c", 1e3, 2e3, 3e3, "")], "us")
    assert "<svg" in pictures.bars("t", [], "us")


def test_a_report_without_results_is_a_page_too():
    empty = parity.Parity(ModelSource("m"), "none", {}, ())
    assert "m on 0 backends" in page.page(empty)
    assert summary.summary(empty)["parity"]["rows"] == []


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path):
    browser = pytest.importorskip("support.course.browser", reason="playwright is not installed")
    if not browser.find_chromium():
        pytest.skip("Chromium is not installed")
    path = tmp_path / "page.html"
    path.write_text(page.page(made()), "utf-8")
    colours = {}
    with browser.chromium() as opened:
        for scheme in ("light", "dark"):
            shown = opened.new_page(color_scheme=scheme, viewport={"width": 900, "height": 700})
            asked = []
            shown.on("request", lambda request, asked=asked: asked.append(request.url))
            shown.goto(path.as_uri())
            assert asked == [path.as_uri()]
            assert shown.evaluate("document.documentElement.scrollWidth") <= 900
            colour = "getComputedStyle(document.body).backgroundColor"
            colours[scheme] = shown.evaluate(colour)
            shown.check("#light" if scheme == "dark" else "#dark")
            colours[f"{scheme}, changed"] = shown.evaluate(colour)
            box = shown.locator("svg").first.bounding_box()
            assert box["width"] > 400 and box["height"] > 60
    assert colours["light"] == colours["dark, changed"] == "rgb(255, 255, 255)"
    assert colours["dark"] == colours["light, changed"] == "rgb(22, 22, 22)"
