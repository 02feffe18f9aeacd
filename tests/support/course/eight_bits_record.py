"""The figures of lab 14's demos: `python tests/support/course/eight_bits_record.py` records them.

The answers are the solutions of the lab; nothing here is timed.
"""

from __future__ import annotations

import datetime
import json
import platform
from typing import Any

import numpy as np
import onnx

from vklab.apps.quantization import quantize
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.data import data
from vklab_course.places import PROJECT
from vklab_labs.lab_14 import codes_networks, int8_pairs, small_floats

RECORD = PROJECT / "data" / "recorded" / "eight_bits.json"
METHODS = ("min-max", "percentile", "entropy")
COMMAND = "PYTHONPATH=.:labs/engine:tests python tests/support/course/eight_bits_record.py"


def changed_classes() -> dict[str, list[int]]:
    """Return the changed classes of 359 by width, for each method."""
    scale_and_zero = trials.answer_of(find_lab("14", PROJECT / "labs"), "14-1")
    exact = codes_networks.classes()
    return {
        str(bits): [
            int((codes_networks.classes(scale_and_zero, bits, method) != exact).sum())
            for method in METHODS
        ]
        for bits in (8, 6, 5, 4)
    }


def decibels() -> dict[str, list[float]]:
    """Return decibels of weights: int8 by filter, int8, e4m3, e5m2, scaled e4m3, by layer."""
    to_small_float = trials.answer_of(find_lab("14", PROJECT / "labs"), "14-2")
    found = {}
    for name, weights in small_floats.weights().items():
        rounded = [small_floats.int8_rounded(weights, by_filter) for by_filter in (True, False)]
        for bits in ((4, 3), (5, 2)):
            codes = to_small_float(weights.ravel(), *bits).reshape(weights.shape)
            rounded.append(small_floats.numbers_of(codes, *bits, 0))
        largest = np.abs(weights).max()
        codes = to_small_float((weights / largest).ravel(), 4, 3).reshape(weights.shape)
        rounded.append(largest * small_floats.numbers_of(codes, 4, 3, 0))
        found[name] = [round(small_floats.decibels(weights, each), 1) for each in rounded]
    return found


def wrong_shares() -> dict[str, float]:
    """Return the share of sums that pairs in int16 get wrong, by codes."""
    made = {
        f"{name}, weights of {bits} bits": int8_pairs.trained_layer(name, weight_bits=bits)[:2]
        for name in ("layers.13.layers.4", "layers.15.layers.4", "layers.16.layers.0")
        for bits in (8, 7)
    }
    for bits in (8, 7):
        made[f"random codes, weights of {bits} bits"] = int8_pairs.full_range_codes(256, bits)
    return {name: round(int8_pairs.share_wrong(*pair), 4) for name, pair in made.items()}


def sqnr() -> dict[str, list[float]]:
    """Return the decibels of the layers of the digits network, by method; needs a device."""
    with np.load(data("digits.npz")) as arrays:
        samples = {"image": arrays["images"][~arrays["held_out"]][:256]}
    proto = onnx.load(data("digits_cnn.onnx"))
    made = {
        method: quantize.quantize(proto, quantize.Choice(method=method), samples)
        for method in METHODS
    }
    return {
        method: [round(layer.sqnr_db or 0.0, 1) for layer in each.layers]
        for method, each in made.items()
    }


def main() -> None:
    """Write the record."""
    record: dict[str, Any] = {
        "device": "any processor",
        "recorded_on": f"{platform.machine()}, NumPy {np.__version__}, ONNX {onnx.__version__}, "
        "vklab on lavapipe",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": COMMAND,
        "methods": list(METHODS),
        "changed_classes_of_359": changed_classes(),
        "decibels_of_int8_by_filter_int8_e4m3_e5m2_e4m3_scaled": decibels(),
        "share_of_wrong_sums": wrong_shares(),
        "sqnr_db_of_digits_cnn": sqnr(),
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
