"""Choose the kernels that read the weights once for one row or a few: products of some tokens.

Reading B takes nearly all the time of such a product. Visited by lab 08.
"""

from __future__ import annotations

import math
from dataclasses import replace

from vklab.ops import registry
from vklab.plan import block_units
from vklab.plan.tuning import forced, prepack, tiles
from vklab.plan.tuning.tiles import Chosen, ProductTask
from vklab.types import DeviceInfo, Dispatch

KERNEL = "matmul_rows"
# Rows of a kernel, all of whose sums an invocation keeps in registers.
ROWS = (4, 8, 16)
COLUMNS, WORKGROUP = 32, 256
# Elements of B from which on reading it decides.
FEWEST_ELEMENTS = 1 << 22
TYPES = ("float", "half")
# One row with B dense along k: lanes that share a column, columns of a workgroup, and fours that a
# lane fetches at once; few columns take all lanes of a workgroup each.
SHARING, AT_ONCE, DEPTH, FEW_COLUMNS, ALL_LANES = 32, 4, 4, 512, 256
# Columns from which on a subgroup takes one each: the dtype of B, and units fetched at once.
MANY_COLUMNS, FORMATS, DEPTHS = 1024, {"float": "F32", "half": "F16"}, {"F32": 4, "F16": 2}
NAMES = ("m", "n", "k", "part", "a_row", "b_row", "c_row", "c_column", "alpha", "beta")


def rows_at_once(given: ProductTask) -> Chosen | None:
    """Return a product of 2 to 16 rows that reads B once, and the number of its parts."""
    dispatch, sizes, _, _ = given
    (m, n, k, batch), push = sizes, dispatch.push_values
    defines = dispatch.define_values
    dense = push.get("a_column") == push.get("b_column") == 1
    if dispatch.kernel != "matmul" or batch != 1 or not dense or defines["T"] not in TYPES:
        return None
    if (defines["T"] == "half" or k * n < FEWEST_ELEMENTS) and not forced.choice():
        return None
    steps = (n, k, push["a_row"], push["b_row"])
    if not 1 < m <= ROWS[-1] or any(step % prepack.FEWEST_AT_ONCE[KERNEL] for step in steps):
        return None
    rows = next(rows for rows in ROWS if rows >= m)
    workgroups = -(-n // (4 * COLUMNS))
    changed = replace(
        dispatch,
        kernel=KERNEL,
        workgroups=(workgroups, 1, 1),
        push=tuple((name, push[name]) for name in NAMES),
        constants=(("COLUMNS", COLUMNS), ("WORKGROUP", WORKGROUP)),
        defines=(*_own_defines(dispatch), ("ROWS", str(rows))),
    )
    return changed, tiles.parts(workgroups, k)


def one_row(given: ProductTask) -> Chosen | None:
    """Return a product of one row, and the number of its parts: reading B takes all the time."""
    dispatch, sizes, info, _ = given
    (m, n, k, batch), push = sizes, dispatch.push_values
    if dispatch.kernel != "matmul" or m != 1 or batch != 1:
        return None
    if units := _in_units(dispatch, n, k, info):
        return units, 1
    # Dense along k: the lanes of a column read neighbouring elements.
    is_turned = push["b_row"] == 1 and k > 1
    deep = is_turned and push["a_column"] == 1 and not (k % 4 or push["b_column"] % 4)
    fours = not is_turned and prepack.by_fours(dispatch, n)
    columns = 1 if is_turned else 16 if fours else 32
    lanes = 256 if columns > 1 else 64
    if deep:
        columns, lanes = (1, ALL_LANES) if n <= FEW_COLUMNS else (AT_ONCE, SHARING * AT_ONCE)
    names = ("n", "k", "part", "a_column", "b_row", "b_column", "c_column", "alpha", "beta")
    workgroups = registry.grid(-(-n // (4 * columns if fours else columns)))
    changed = replace(
        dispatch,
        kernel="matvec",
        workgroups=workgroups,
        push=tuple((name, push[name]) for name in names),
        constants=(("COLUMNS", columns), ("WORKGROUP", lanes), ("DEPTH", DEPTH if deep else 2)),
        defines=(*_own_defines(dispatch), ("FOURS", "2" if deep else str(int(fours)))),
    )
    return changed, tiles.parts(math.prod(workgroups), k, 4 if fours else 2)


def _in_units(dispatch: Dispatch, n: int, k: int, info: DeviceInfo) -> Dispatch | None:
    """Return a product of one row by the kernel for weights as floats, whole columns at a time.

    Args:
        dispatch: the product.
        n: columns of B.
        k: terms of a sum.
        info: the device.

    Returns None unless B is dense along k, its columns are many and whole units, and nothing is
    scaled or added.
    """
    push, defines = dispatch.push_values, dispatch.define_values
    name = FORMATS.get(defines["T"]) if defines["T_LOAD"] == "float" else None
    plain = defines["BIAS"] == "0" and push["alpha"] == 1.0 and n >= MANY_COLUMNS
    dense = push["a_column"] == push["b_row"] == 1 and push["b_column"] == k
    if not name or not plain or not dense or k % block_units.unit(name):
        return None
    whole = info.limit("minSubgroupSize") == info.subgroup_size
    if not whole or not info.subgroup_operations >= block_units.OPERATIONS:
        return None
    kept = tuple((key, defines[key]) for key in ("T", "T_LOAD", "Y", "Y_STORE"))
    made = replace(
        dispatch,
        kernel="matvec_floats",
        reads=dispatch.reads[:2],
        push=(("m", 1), ("n", n), ("epsilon", 0.0)),
        defines=(*kept, ("NORM", "0"), ("GATED", "0"), ("FORMAT", name)),
        constants=(("K", k), ("ROWS", 1), ("SUBGROUP", info.subgroup_size)),
    )
    return block_units.sized(made, block_units.Sizes(SHARING * AT_ONCE, depth=DEPTHS[name]))


def _own_defines(dispatch: Dispatch) -> tuple[tuple[str, str], ...]:
    """Return the defines without those of strides and of batches."""
    return tuple(pair for pair in dispatch.defines if pair[0] not in ("SUBGROUP", "BATCH_AXES"))
