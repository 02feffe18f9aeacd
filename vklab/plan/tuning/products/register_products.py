"""Multiply halves by constant weights with operands in registers, where matrices' order is known.

Short products spend their time waiting: weights packed as invocations hold them arrive without a
detour through shared memory, several steps at once. Visited by lab 08b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.base.names import internal
from vklab.plan.tuning import precision, prepack, tiles
from vklab.plan.tuning.products import last_convs, matrix_products
from vklab.plan.tuning.tiles import Chosen, ProductSizes, ProductTask, Tile
from vklab.types import DeviceInfo, Dispatch, TensorInfo

LANES, SIDE = precision.LANES, precision.SIDE
# Terms of a step: two matrices.
STEP = 32
# The table LAST leaves out a launch of 7.5 us, that of windows here one of 3. In ResNet-50 products
# by COOPERATIVE take so much longer than the table says, those by REGISTERS do not.
LAUNCH_NS, WARM_NS = 4500, 1000


def registers(given: ProductTask) -> Chosen | None:
    """Multiply by weights that are packed in the order of the registers of matrix units."""
    dispatch, sizes, info, pick = given
    if not precision.has_known_order(info) or not _is_suited(dispatch, sizes):
        return None
    push = dispatch.push_values
    m, n, k, _ = sizes
    weight = dict(dispatch.reads)["b_buffer"]
    packed = by_lane(weight, (k, n), push["b_column"] == 1)
    picked = pick(_fitting(tiles.REGISTERS, info), sizes) if packed else None
    if packed is None or picked is None:
        return None
    tile, parts = picked
    # Through shared memory go sums of at least one step.
    if (
        pick is tiles.soonest
        and k >= STEP
        and not _is_sooner(tile, parts, sizes, tiles.COOPERATIVE, WARM_NS)
    ):
        return None
    names = ("m", "n", "k", "part", "a_row", "c_row", "c_column", "alpha", "beta")
    return _made(dispatch, {name: push[name] for name in names}, packed, tile), parts


def by_lane(weight: TensorInfo, sizes: tuple[int, int], along_n: bool) -> TensorInfo | None:
    """Return a matrix as invocations of matmul_registers read it, eight terms of a column each.

    Args:
        weight: a tensor with a constant value, or the same in rows that `in_wide_rows` has padded.
        sizes: k and n.
        along_n: whether it is dense along n, or along k.

    Returns a tensor [steps, eights of columns, 8, 4, 8] without value; None for a weight unknown
    before the run, or DISABLE_PREPACK.
    """
    k, n = sizes
    wide = weight.layout if isinstance(weight.layout, prepack.Turned) else None
    is_padded = wide is not None and wide == prepack.Turned(wide.weight, (k, n, 1, 1), 1, 8)
    is_known = weight.constant is not None and weight.count == k * n
    if settings.get("DISABLE_PREPACK") or not (is_known or is_padded):
        return None
    k, n = int(k), int(n)  # a layout is of numbers
    layout = prepack.ByLane(wide.weight if wide and is_padded else weight.name, k, n, along_n)
    name = internal(layout.weight, f"by lane {k}x{n}{'n' if along_n else 'k'}")
    return TensorInfo(name, weight.dtype, (-(-k // 32), -(-n // 8), 8, 4, 8), layout=layout)


def windows(given: ProductTask) -> Chosen | None:
    """Convolve channels-last halves by weights that are packed likewise."""
    dispatch, sizes, info, pick = given
    is_taken = precision.has_known_order(info) and _is_half(dispatch)
    product = last_convs.as_product(dispatch, 8, 4) if is_taken else None
    m, n, k, _ = sizes
    if product is None or min(m, n, k) < SIDE or not _in_fours(dispatch, n):
        return None
    packed = by_lane(dict(dispatch.reads)["w_buffer"], (k, n), True)
    picked = pick(_fitting(tiles.REGISTERS_LAST, info), sizes) if packed else None
    if packed is None or picked is None:
        return None
    tile, parts = picked
    if pick is tiles.soonest and not _is_sooner(tile, parts, sizes, tiles.LAST, LAUNCH_NS):
        return None
    names = ("a_buffer", "b_buffer", "c_buffer")
    reads = tuple(zip(names, (read for _, read in dispatch.reads), strict=False))
    push = product.push_values
    part = {name: push.pop(name) for name in ("m", "n", "k", "part")}
    push = {**part, **push, "c_row": 0, "c_column": 1, "alpha": 1.0, "beta": 1.0}
    ready = replace(
        product,
        reads=reads,
        constants=(),
        defines=(*product.defines, ("ACC", "float"), ("WINDOW", "1")),
    )
    return last_convs.fixed(_made(ready, push, packed, tile), dispatch), parts


def _made(dispatch: Dispatch, push: dict[str, Any], packed: TensorInfo, tile: Tile) -> Dispatch:
    """Return a product by the kernel with operands in registers.

    Args:
        dispatch: the product, with the kernel's names of buffers.
        push: the kernel's push constants.
        packed: the weight.
        tile: the tile.
    """
    reads = ((name, packed if name == "b_buffer" else read) for name, read in dispatch.reads)
    kept = tuple(pair for pair in dispatch.defines if pair[0] not in ("SUBGROUP", "BATCH_AXES"))
    return replace(
        dispatch,
        kernel="matmul_registers",
        reads=tuple(reads),
        workgroups=(-(-push["n"] // tile.n), -(-push["m"] // tile.m), 1),
        push=tuple(push.items()),
        constants=(
            ("TILE_M", tile.m),
            ("TILE_N", tile.n),
            ("ROWS", tile.rows // SIDE),
            ("COLUMNS", tile.columns // SIDE),
            ("SLICES", tile.slices),
            ("WORKGROUP", tile.blocks * tile.slices * LANES),
        ),
        defines=(
            *kept,
            ("DEPTH", str(tile.depth)),
            ("WHOLE", str(int(not push["k"] % STEP))),
            ("WIDE_Y", "1"),
        ),
    )


def _is_suited(dispatch: Dispatch, sizes: ProductSizes) -> bool:
    """Tell whether a product has one large enough weight of halves, and operands in eights."""
    push = dispatch.push_values
    if dispatch.kernel != "matmul" or not _is_half(dispatch):
        return False
    m, n, k, batches = sizes
    steps = ((n, 1), (-(-n // 8) * 8, 1), (1, k))  # the second: in padded rows
    dense = push["a_column"] == 1 and (push["b_row"], push["b_column"]) in steps
    return (
        dense
        and _in_fours(dispatch, n)
        and batches == 1
        and push["start"] == 0
        and min(m, n, k) >= SIDE
        and not k % 8
        and not push["a_row"] % 8
    )


def _is_half(dispatch: Dispatch) -> bool:
    """Tell whether operands are halves, and nothing asks for another kernel."""
    return dispatch.define_values["T"] == "half" and not precision.chosen()


def _in_fours(dispatch: Dispatch, columns: int) -> bool:
    """Tell whether results can be written four at a time."""
    return matrix_products.wide(dispatch, columns, fused=True) == ("WIDE_Y", "1")


def _fitting(choices: Sequence[Tile], info: DeviceInfo) -> list[Tile]:
    """Return the tiles whose sums, and moments of whose rows, fit the shared memory."""
    room, lanes = (
        info.limit(name)
        for name in ("maxComputeSharedMemorySize", "maxComputeWorkGroupInvocations")
    )
    return [
        each
        for each in choices
        if each.blocks * each.slices * LANES <= lanes
        and each.slices * (each.m // each.rows * SIDE) * (each.n + 8) * 4 + 8 * each.m <= room
    ]


def _is_sooner(
    tile: Tile, parts: int, sizes: ProductSizes, others: Sequence[Tile], more_ns: int
) -> bool:
    """Tell whether a tile takes less time than one of others, through shared memory.

    Args:
        tile: the tile.
        parts: the parts into which sums are cut.
        sizes: m, n, k and the batch count.
        others: the table of the others.
        more_ns: what their times leave out.
    """
    other = tiles.expected_ns(*tiles.soonest(others, sizes), sizes)
    return tiles.expected_ns(tile, parts, sizes) < other + more_ns
