"""Choose the kernel that reads the weights once for a few rows: products of a few tokens.

Reading B takes nearly all the time of such a product. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.plan.tuning import forced, prepack, tiles
from vklab.plan.tuning.tiles import Pick, ProductSizes
from vklab.types import DeviceInfo, Dispatch

__all__ = ["KERNEL", "rows_at_once"]

KERNEL = "matmul_rows"
# Rows of a kernel, all of whose sums an invocation keeps in registers.
ROWS = (4, 8, 16)
COLUMNS, WORKGROUP = 8, 256
# Elements of B from which on reading it decides.
FEWEST_ELEMENTS = 1 << 20
TYPES = ("float", "half")
NAMES = ("m", "n", "k", "part", "a_row", "b_row", "c_row", "c_column", "alpha", "beta")


def rows_at_once(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> tuple[Dispatch, int] | None:
    """Return a product of 2 to 16 rows that reads B once, and the number of its parts.

    Args:
        dispatch: the product.
        sizes: m, n, k and the batch count.
        info: the device.
        pick: chooses among tiles, of which this kernel has none.
    """
    del info, pick
    (m, n, k, batch), push = sizes, dict[str, Any](dispatch.push)
    defines = dict(dispatch.defines)
    dense = push.get("a_column") == push.get("b_column") == 1
    if dispatch.kernel != "matmul" or batch != 1 or not dense or defines["T"] not in TYPES:
        return None
    if defines["T"] == "half" or k * n < FEWEST_ELEMENTS:
        if not forced.choice():
            return None
    steps = (n, k, push["a_row"], push["b_row"])
    if not 1 < m <= ROWS[-1] or any(step % prepack.FEWEST_AT_ONCE[KERNEL] for step in steps):
        return None
    rows = next(rows for rows in ROWS if rows >= m)
    kept = ((name, v) for name, v in dispatch.defines if name not in ("SUBGROUP", "BATCH_AXES"))
    workgroups = -(-n // (4 * COLUMNS))
    changed = replace(
        dispatch, kernel=KERNEL, workgroups=(workgroups, 1, 1),
        push=tuple((name, push[name]) for name in NAMES),
        constants=(("COLUMNS", COLUMNS), ("WORKGROUP", WORKGROUP)),
        defines=(*kept, ("ROWS", str(rows))),
    )  # fmt: skip
    return changed, tiles.parts(workgroups, k)
