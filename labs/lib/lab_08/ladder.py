"""Ladder of matrix products: counts, speeds beside a record, and its roofline.

Visited by labs 08 and 08b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import vklab
from vklab.errors import ShaderError
from vklab.shader import compiler
from vklab_course.children.run_kernel import Run
from vklab_course.counting.observe import observe_kernel
from vklab_course.picture import Picture
from vklab_labs.lab_08.products import measure
from vklab_labs.lab_08.rungs import LADDER, RUNTIME, kernel_text
from vklab_labs.lab_08.tiling import draw_speeds
from vklab_labs.shared.gpus import Sheet
from vklab_labs.shared.roofline import Roof, draw_rooflines

__all__ = ["H200", "H200_MATRIX_TFLOPS", "PLANTED", "count_rungs", "draw_ladder",
           "draw_roofline", "peaks"]  # fmt: skip

Record = Mapping[str, Any]
SIDES = 32, 32, 16  # rows, columns and depth of a counted product
H200 = Sheet(
    "NVIDIA",
    132,
    128,
    1980,
    6144,
    6.25,
    1,
    1,
    141,
    700,
    "nvidia.com, H200 data sheet: 67 TFLOP/s, 4.8 TB/s",
)
H200_MATRIX_TFLOPS = 989.0  # dense float16, the same data sheet
# Bytes that all loads of a kernel ask for, in floats for each multiply-add.
LOADED = {"naive": 2.0, "coalesced": 2.0, "shared": 2 / 16, "registers": 2 / 64, "vectors": 2 / 64,
          "buffered": 2 / 64, RUNTIME: 2 / 128, "matrix": 1 / 64}  # fmt: skip

# matmul_shared with one line more, in which a guard has come too early.
PLANTED = kernel_text("shared").replace(
    "    float sum = 0.0;\n",
    "    if (row >= params.rows || column >= params.columns) return;\n    float sum = 0.0;\n",
)


def peaks(sheet: Sheet) -> tuple[float, float]:
    """Return the largest TFLOP/s of float32 without matrix units, and the bandwidth in GB/s."""
    tflops = 2e-6 * sheet.units * sheet.lanes * sheet.clock_mhz * sheet.issue * sheet.dies
    return tflops, sheet.bus_bits * sheet.gbit_per_pin / 8 * sheet.dies


def count_rungs(names: Sequence[str]) -> None:
    """Print what some kernels of the ladder do in a small product, counted in their SPIR-V.

    Args:
        names: kernels of `LADDER`.
    """
    rows, columns, depth = SIDES
    random = np.random.default_rng(8)
    a, b = (
        random.uniform(-1, 1, shape).astype(np.float32)
        for shape in ((rows, depth), (depth, columns))
    )
    print(f"{'':10} {'loads':>7} {'sectors per load: of a':>23} {'of b':>5} {'error < 1e-5':>13}")
    for name in names:
        rung = LADDER[name]
        arrays = {**rung.operands(a, b), "y": np.zeros(rows * columns, np.float32)}
        run = Run(arrays, rung.groups(rows, columns), rung.push(rows, columns, depth))
        done = observe_kernel(
            kernel_text(name),
            run,
            dispatches=("counted",),
            spirv=compiler.compile_variant(f"labs/matmul_{name}").spirv,
        )[0]
        if done.status != "ran":
            raise ShaderError(done.message)
        counts, exact = done.counts, a.astype(np.float64) @ b.astype(np.float64)
        sectors = [counts.sectors_a_load(operand) for operand in "ab"]
        error = np.abs(done.buffers["y"].reshape(rows, columns) - exact).max()
        print(
            f"{name:10} {counts.total('loads'):7} {sectors[0]:23.3g} {sectors[1]:5.3g} "
            f"{error < 1e-5!s:>13}"
        )


def draw_ladder(record: Record, side: int = 128) -> Picture:
    """Draw the speeds of the ladder on the device in use, and those that were recorded.

    Args:
        record: what `products.record` has printed on another device.
        side: rows and columns of the matrices on the device in use.
    """
    largest = {name: sizes["4096"]["gflops"] for name, sizes in record["products"].items()}
    device = vklab.devices()[0]
    here = measure(device.index, side, [name for name in LADDER if name != "matrix"])
    title = f"recorded: {record['device']}, side 4096"
    return draw_speeds(
        {f"your device, side {side}": here, title: largest},
        "The axes are logarithmic: from mark to mark a speed is ten times as high. Right: "
        f"{record['driver']}, {record['date']}, {record['made_by']}. Orange: vklab's "
        "own product, matmul_tiled.",
    )


def draw_roofline(record: Record) -> Picture:
    """Draw recorded kernels under the roofs of the H200, by the bytes that their loads ask for."""
    tflops, gb_s = peaks(H200)
    points = [
        (name, 2 / (4 * floats), record["products"][name]["4096"]["gflops"] / 1000)
        for name, floats in LOADED.items()
    ]
    return draw_rooflines(
        [
            Roof("float32", tflops, gb_s),
            Roof("float16", H200_MATRIX_TFLOPS, gb_s, "matrix", "orange"),
        ],
        "Kernels of the ladder at side 4096 on an H200 (crosses). To the right: fewer bytes are "
        "asked for. The numbers at the right edge are peaks in TFLOP/s.",
        points,
        (1 / 16, 1024.0),
    )
