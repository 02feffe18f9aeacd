"""docs/quantization.md and docs/language_models.md show the recorded figures."""

from __future__ import annotations

import json
from pathlib import Path

from vklab.apps.llm.weights import requantize
from vklab.apps.quantization import histogram

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECORDED = json.loads((DOCS / "quantization.json").read_text("utf-8"))


def test_the_table_of_speed_has_the_recorded_rows():
    page = (DOCS / "quantization.md").read_text("utf-8")
    for row in RECORDED["speed"]:
        cells = [
            f"{row[name]:,.0f}" if row[name] >= 100 else f"{row[name]:.1f}"
            for name in ("fp32_us", "fp16_us", "int8_us")
        ]
        ratios = [f"{row[name] / row['int8_us']:.2f}" for name in ("fp32_us", "fp16_us")]
        columns = (row["batch"], *cells, *ratios, row["run"])
        assert f"| {' | '.join(map(str, columns))} |" in page, row
    assert all(f"`{name}`" in page for name in histogram.METHODS)
    assert f"| {' | '.join(map(str, flips(page)))} |" in page


def test_the_text_names_the_kernels_of_the_recorded_rows():
    page = " ".join((DOCS / "quantization.md").read_text("utf-8").split())
    rows = {(row["model"], row["batch"]): row for row in RECORDED["speed"]}
    resnet, mobile = rows["resnet50", 16]["kernels"], rows["mobilenet_v2", 16]["kernels"]["int8"]
    halves = resnet["fp16"]
    assert f"all {resnet['int8']['words_tiled']} products of ResNet-50" in page
    assert f"{halves['matmul_registers']} of ResNet-50's {sum(halves.values())} disp" in page
    assert mobile["conv_words"] == 8 and f"{mobile['depthwise_words']} depthwise ones" in page
    assert "matmul_registers" not in rows["conv_many", 16]["kernels"]["fp16"]


def flips(page: str) -> list[int]:
    """Return the digits that each method changes; 35 was counted before spikes were taken out."""
    counts = RECORDED["changed_digits"]
    assert all(count <= 3 for count in counts.values())
    return [
        counts["min-max"],
        counts["percentile"],
        counts["entropy"],
        35,
        counts["the ranges of each run"],
    ]


def test_the_tables_of_perplexity_have_the_recorded_rows():
    page = (DOCS / "language_models.md").read_text("utf-8")
    for row in (*RECORDED["windows"], *RECORDED["steps"]):
        assert row["kind"] in requantize.TYPES
        if row["kind"] != "F16":  # it stands with F32
            assert f"{row['value']:.4f} | " in page and f" {row['top1']:.1%}"[:-1] in page, row
            assert f"| {row['llama_cpp']:.4f} |" in page, row
        if row["steps"]:
            assert f"| {row['kind']} | {row['chunks']} | {row['value']:.4f} | " in page, row
        bound = {"F32": 1e-6, "F16": 1e-6, "Q8_0": 0.002}.get(row["kind"], 0.025)
        assert abs(row["change"]) < bound and abs(row["value"] / row["llama_cpp"] - 1) < 0.003
