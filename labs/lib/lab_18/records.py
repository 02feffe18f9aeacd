"""A record of two runners, as exercise 18-2 reads it. Visited by lab 18."""

from __future__ import annotations

from typing import Any

__all__ = ["EXAMPLE"]

# Two runners of one product, in turns. The roofs are those of the H200 in docs/speed, rounded.
EXAMPLE: dict[str, Any] = {
    "runners": [
        {
            "begins": [0, 410_000, 800_000, 1_170_000, 1_540_000, 1_910_000, 2_280_000],
            "times": [201_340, 48_120, 47_300, 47_910, 163_050, 46_880, 47_550],
            "reported": 47_550,
            "flops": 1_000_000_000,
            "bytes": 160_000_000,
            "series": (20, 940_000),
        },
        {
            "begins": [210_000, 470_000, 860_000, 1_230_000, 1_720_000, 1_970_000, 2_340_000],
            "times": [152_610, 9_870, 9_900, 9_840, 9_910, 9_860, 9_930],
            "reported": 9_840,
            "flops": 1_000_000_000,
            "bytes": 160_000_000,
            "series": (20, 868_000),
        },
    ],
    "flops_per_s": 5.12e13,
    "bytes_per_s": 4.11e12,
    "warm_up": 2,
}
