"""docs/language_models.md shows the recorded rates."""

from __future__ import annotations

import json
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_has_the_recorded_rates():
    page = (DOCS / "language_models.md").read_text("utf-8")
    runs = json.loads((DOCS / "language_models.json").read_text("utf-8"))["runs"]
    rows = {
        (row["model"], row["kind"], row["runner"], row["depth"]): row
        for run in runs
        for row in run["rows"]
    }
    shown = []
    for model, kind in sorted({key[:2] for key in rows}):
        ours, theirs, deep, their_deep = (
            rows[model, kind, runner, depth]
            for depth in (0, 4096)
            for runner in ("vklab", "llama.cpp")
        )
        shown += [
            f"| {model}, {kind} | {ours['decode_per_s']:,.0f} | {theirs['decode_per_s']:.0f} | "
            f"{ours['decode_per_s'] / theirs['decode_per_s']:.2f} | {deep['decode_per_s']:,.0f} | "
            f"{their_deep['decode_per_s']:.0f} |",
            f"| {model}, {kind} | {ours['prompt_per_s']:,.0f} | {theirs['prompt_per_s']:,.0f} | "
            f"{ours['prompt_per_s'] / theirs['prompt_per_s']:.2f} |",
        ]
    large = rows["8B", "Q4_K_M", "vklab", 0]
    slower = 1 - rows["8B", "Q4_K_M", "vklab", 4096]["decode_per_s"] / large["decode_per_s"]
    shown += [
        f"{large['dispatches']} dispatches",
        f"in {large['device_us']:,.0f} us: "
        f"{large['bytes_per_token'] / large['device_us'] / 1e3:,.0f} GB/s, "
        f"{large['roof_share']:.0%}".replace("%", " %"),
        f"{slower:.1%} slower".replace("%", " %"),
    ]
    assert len(shown) >= 9 and [text for text in shown if text not in " ".join(page.split())] == []


def test_the_page_has_the_rates_on_a_cpu():
    page = (DOCS / "language_models.md").read_text("utf-8")
    rows = json.loads((DOCS / "language_models.json").read_text("utf-8"))["lavapipe"]["rows"]
    shown = []
    for ours, theirs, on_cpu in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert [row["runner"] for row in (ours, theirs, on_cpu)] == [
            "vklab",
            "llama.cpp",
            "llama.cpp CPU",
        ]
        for what, key in (("prompt", "prompt_per_s"), ("next tokens", "decode_per_s")):
            numbers = [
                f"{row[key]:,.{0 if row[key] >= 100 else 1}f}" for row in (ours, theirs, on_cpu)
            ]
            shown.append(
                f"| {ours['model']} | {what} | {numbers[0]} | {numbers[1]} | "
                f"{ours[key] / theirs[key]:.1f} | {numbers[2]} |"
            )
            assert ours[key] > theirs[key]
    assert len(shown) >= 6 and [line for line in shown if line not in page] == []
