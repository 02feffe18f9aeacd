"""Limits of multiprocessors, tables of matrix units, and number formats. Visited by lab 08b."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram
from vklab_labs.shared.gpus import SHEETS, Sheet

__all__ = ["FORMATS", "GPUS", "MADE_UP", "UNITS", "draw_formats", "draw_latency",
           "draw_matrix_unit", "draw_resident", "padded_product", "table_of"]  # fmt: skip

# What one multiprocessor has, by NVIDIA's tuning guides for Hopper and for Ampere (8.6).
UNITS: Mapping[str, Mapping[str, int]] = {
    "H200": {"subgroups": 64, "workgroups": 32, "registers": 65536, "shared_bytes": 228 << 10},
    "RTX 3080": {"subgroups": 48, "workgroups": 16, "registers": 65536, "shared_bytes": 100 << 10},
}
GPUS: Mapping[str, Sheet] = {
    "RTX 3080": Sheet(
        "NVIDIA", 68, 128, 1710, 320, 19, 1, 1, 10, 320, "cputronic.com, nvidia-geforce-rtx-3080"
    ),
    **{name: SHEETS[name] for name in ("RTX 4090", "A100", "MI100")},
}
# Rows of cooperative matrices that no driver has listed: (M, N, K, a, b, c, result, scope).
MADE_UP = (
    (8, 8, 16, "float16", "float16", "float32", "float32", "subgroup"),
    (16, 16, 16, "float16", "float16", "float32", "float32", "subgroup"),
    (32, 8, 16, "float16", "float16", "float32", "float32", "subgroup"),
    (8, 32, 16, "float16", "float16", "float32", "float32", "subgroup"),
    (64, 64, 16, "float16", "float16", "float32", "float32", "workgroup"),
    (16, 16, 16, "float16", "float16", "float16", "float16", "subgroup"),
    (8, 8, 32, "int8", "int8", "int32", "int32", "subgroup"),
    (16, 8, 32, "int8", "uint8", "int32", "int32", "subgroup"),
    (16, 16, 32, "int8", "int8", "uint32", "int32", "subgroup"),
    (32, 16, 16, "float16", "float16", "float32", "float32", "device"),
    (16, 16, 32, "uint8", "int8", "int32", "int32", "subgroup"),
    (16, 16, 32, "int8", "int8", "int32", "uint32", "subgroup"),
    (16, 8, 64, "float16", "float16", "float32", "float32", "subgroup"),
)
FORMATS = {"float32": (8, 23), "TF32": (8, 10), "float16": (5, 10), "bfloat16": (8, 7)}
_SCOPES = {2: "workgroup", 3: "subgroup"}  # SPIR-V's numbers


def table_of(record: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    """Return a recorded table of cooperative matrices, as rows like those of `MADE_UP`."""
    names = ("m", "n", "k", "a", "b", "c", "result")
    return tuple(
        (*(row[name] for name in names), _SCOPES.get(row["scope"], "other"))
        for row in record["cooperative_matrices"]
    )


def padded_product(a: np.ndarray, b: np.ndarray, memory: np.ndarray, side: int = 16) -> np.ndarray:
    """Multiply matrices whose sides the unit's shape does not divide. It has one wrong line.

    Args:
        a: rows x depth, float16.
        b: depth x columns, float16.
        memory: what the padded buffers held before.
        side: rows, columns and depth of the unit's shape.
    """
    (rows, depth), columns = a.shape, b.shape[1]
    high, wide, deep = (-(-size // side) * side for size in (rows, columns, depth))
    a_padded = np.resize(memory, (high, deep))
    a_padded[:rows, :depth] = a
    b_padded = np.zeros((deep, wide), np.float16)
    b_padded[:depth, :columns] = b
    with np.errstate(invalid="ignore"):
        y = a_padded.astype(np.float32) @ b_padded.astype(np.float32)
    return np.asarray(y[:rows, :columns])


# ------------------------------------------------------------------------------------- pictures


def draw_latency() -> Picture:
    """Draw one subgroup that waits for memory, and four that take turns."""
    page = Diagram(690, 178)
    page.note((10, 18), "one subgroup", bold=True).note((10, 62), "four subgroups", bold=True)
    for row, top in enumerate((6, 50, 74, 98, 122)):
        x = 130.0 + 34 * max(0, row - 1)
        for _ in range(3):
            page.box((x, top, 30, 18), "", "green", shade=0.6)
            page.box((x + 32, top, 104, 18), "waits" if row == 0 else "", "grey", dashed=True)
            x += 138
    page.note((130, 164), "green: computes; dashed: waits for a load that it has sent", size=11)
    return page.picture(
        "One subgroup computes a little and waits long. With four, one computes while the others "
        "wait.",
        "Latency hiding: while one subgroup waits, the multiprocessor runs another one.",
    )


def draw_resident(rows: Mapping[str, tuple[int, float, str]], caption: str) -> Picture:
    """Draw how full a multiprocessor is with each of several kernels.

    Args:
        rows: workgroups, share of the subgroups, and the limit, by kernel.
        caption: text below the picture.
    """
    page, said = Diagram(740, 16 + 28 * len(rows)), []
    for number, (name, (groups, share, limit)) in enumerate(rows.items()):
        top = 8 + 28 * number
        page.note((134, top + 15), name, anchor="end", bold=True)
        page.box((142, top, 320, 20), "", "grey", filled=False)
        for group in range(groups):
            wide = 320 * share / groups
            page.box((142 + wide * group, top, wide, 20), "", "blue", shade=0.5)
        page.note((472, top + 15), f"{share:.0%}, {groups} workgroups; limit: {limit}")
        said.append(f"{name}: {groups} workgroups, {share:.0%}, limited by {limit}")
    return page.picture("; ".join(said), caption)


def draw_matrix_unit() -> Picture:
    """Draw one multiply-add of cooperative matrices by a subgroup."""
    page = Diagram(690, 190)
    parts = (
        ("A: M x K", "blue", 20, 110),
        ("B: K x N", "orange", 200, 110),
        ("C: M x N", "grey", 380, 110),
        ("result: M x N", "green", 560, 110),
    )
    for (name, colour, x, side), sign in zip(parts, ("x", "+", "=", ""), strict=True):
        page.note((x + side / 2, 16), name, anchor="middle", bold=True)
        for lane in range(16):
            place = (x + side / 4 * (lane % 4), 26 + side / 4 * (lane // 4), side / 4, side / 4)
            page.box(place, "", colour, shade=0.15 + 0.4 * (lane % 3) / 2)
        page.note((x + side + 34, 86), sign, anchor="middle", size=18)
    page.note(
        (20, 164),
        "Each shade belongs to some invocations of the subgroup. Which elements "
        "an invocation has,\nthe specification leaves open: only the whole subgroup can use "
        "the matrix.",
    )
    return page.picture(
        "A subgroup multiplies matrix A by B and adds C; the elements are spread over its "
        "invocations.",
        "One instruction: a cooperative matrix multiply-add.",
    )


def draw_formats(formats: Mapping[str, Sequence[int]] = FORMATS) -> Picture:
    """Draw the bits of number formats: sign, exponent, mantissa, and bits that are not used.

    Args:
        formats: bits of exponent and mantissa by name.
    """
    page, said = Diagram(690, 44 * len(formats) + 30), []
    for row, (name, (exponent, mantissa)) in enumerate(formats.items()):
        top, x = 20 + 44 * row, 110
        page.note((102, top + 15), name, anchor="end", bold=True)
        page.note((117, top - 5), "sign", anchor="middle", size=10)
        for bits, colour, words in (
            (1, "red", ""),
            (exponent, "orange", f"exponent {exponent}"),
            (mantissa, "blue", f"mantissa {mantissa}"),
            (13 if name == "TF32" else 0, "grey", "13 rounded away"),
        ):
            if bits:
                page.box((x, top, 15 * bits, 20), words, colour, dashed=colour == "grey")
            x += 15 * bits
        said.append(f"{name}: 1 sign, {exponent} exponent, {mantissa} mantissa")
    page.note((110, 44 * len(formats) + 20), "dashed: in memory, and not used", size=11)
    return page.picture(
        "Bits of number formats. " + "; ".join(said),
        "TF32 lies in memory like float32, with 32 bits; the matrix unit uses 19.",
    )
