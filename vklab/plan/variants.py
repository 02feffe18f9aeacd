"""Which faster kernel or tile a device and a shape allow, instead of the one right everywhere.

Each rule is a pure function from a Dispatch to a Dispatch; DISABLE_VARIANTS switches all off.
Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vklab.ops import linear, registry
from vklab.types import DeviceInfo, Dispatch

__all__ = [
    "TILES",
    "Tile",
    "choose",
    "integer",
    "one_row",
    "product_sizes",
    "shared_rows",
    "soonest",
    "tiled",
]

Tile = tuple[int, int, int, int, int]

# (TILE_M, TILE_N, TILE_K, ROWS, COLUMNS) and how fast its inner loop runs beside the others:
# more sums in registers means fewer loads for each product. TILE_N never exceeds the workgroup.
TILES: tuple[tuple[Tile, float], ...] = (
    ((128, 128, 16, 8, 8), 3.0),
    ((64, 64, 8, 8, 8), 2.8),
    ((64, 64, 16, 4, 4), 2.0),
    ((16, 64, 8, 4, 4), 1.3),
    ((32, 32, 16, 2, 2), 1.0),
)
# Workgroups that a GPU runs side by side; the real number differs, its order does not.
GPU_WORKGROUPS = 128


def choose(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return the dispatch that computes the same thing fastest on a device."""
    if dispatch.kernel == "matmul":
        return one_row(dispatch) or tiled(dispatch, info) or shared_rows(dispatch, info)
    if dispatch.kernel == "conv":
        return tiled(dispatch, info) or shared_rows(dispatch, info)
    return dispatch


def product_sizes(dispatch: Dispatch) -> tuple[int, int, int, int]:
    """Return m, n, k and the batch count of a matmul, or of the product that a conv is."""
    push, batch = dict(dispatch.push), dispatch.workgroups[2]
    if dispatch.kernel == "matmul":
        return integer(push, "m"), integer(push, "n"), integer(push, "k"), batch
    window = integer(push, "kernel_h") * integer(push, "kernel_w")
    pixels = integer(push, "out_h") * integer(push, "out_w")
    return integer(push, "out_channels"), pixels, integer(push, "in_channels") * window, batch


def shared_rows(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Let the lanes of a subgroup fetch the row operand for each other.

    On a CPU that plays a GPU every fetch of a lane is a separate load, and this saves most.
    """
    if not info.subgroup_operations & {"shuffle"}:
        return dispatch
    m, n, _, batch = product_sizes(dispatch)
    smallest = info.limit("minSubgroupSize") or info.subgroup_size
    lanes = next((size for size in (8, 4) if size <= min(m, smallest)), 0)
    if not lanes:
        return dispatch
    blocks = 2 if 2 * lanes <= m else 1
    workgroups, constants = linear.row_blocks(m, n, batch, lanes, blocks)
    defines = tuple((name, "1" if name == "SUBGROUP" else v) for name, v in dispatch.defines)
    return replace(dispatch, workgroups=workgroups, constants=constants, defines=defines)


def one_row(dispatch: Dispatch) -> Dispatch | None:
    """Use matvec where the left operand is one row: then reading B is all the time it takes."""
    push = dict(dispatch.push)
    if push["m"] != 1 or dispatch.workgroups[2] != 1:
        return None
    # Dense along k: one column a workgroup, whose lanes read neighbouring elements.
    columns = 1 if push["b_row"] == 1 and push["k"] != 1 else 32
    names = ("n", "k", "a_column", "b_row", "b_column", "c_column", "alpha", "beta")
    return replace(
        dispatch,
        kernel="matvec",
        workgroups=registry.grid(-(-integer(push, "n") // columns)),
        push=tuple((name, push[name]) for name in names),
        constants=(("COLUMNS", columns), ("WORKGROUP", 256 if columns > 1 else 64)),
    )


def tiled(dispatch: Dispatch, info: DeviceInfo) -> Dispatch | None:
    """Use shared memory on a GPU, where a product is large enough to fill some tiles."""
    m, n, k, batch = product_sizes(dispatch)
    if info.is_cpu or m < 16 or n < 16 or k < 64:
        return None
    tile = soonest(m, n, batch, info)
    tile_m, tile_n, _, rows, columns = tile
    names = ("TILE_M", "TILE_N", "TILE_K", "ROWS", "COLUMNS")
    # A tiled conv divides by its kernel's sizes at every step: as constants that is cheap.
    fixed = [item for item in dispatch.push if item[0] in ("kernel_h", "kernel_w")]
    return replace(
        dispatch,
        kernel=f"{dispatch.kernel}_tiled",
        workgroups=(-(-n // tile_n), -(-m // tile_m), batch),
        push=tuple(item for item in dispatch.push if item not in fixed),
        constants=(
            *zip(names, tile, strict=True),
            ("WORKGROUP", tile_m // rows * (tile_n // columns)),
            *((name.upper(), integer(dict(fixed), name)) for name, _ in fixed),
        ),
        defines=tuple(item for item in dispatch.defines if item[0] != "SUBGROUP"),
    )


def soonest(m: int, n: int, batch: int, info: DeviceInfo) -> Tile:
    """Return the tile with the least padded work over its speed, in waves of workgroups."""

    def cost(candidate: tuple[Tile, float]) -> float:
        tile, speed = candidate
        count = -(-m // tile[0]) * -(-n // tile[1]) * batch
        return -(-count // GPU_WORKGROUPS) * tile[0] * tile[1] / speed

    shared = info.limit("maxComputeSharedMemorySize")
    fitting = [(t, s) for t, s in TILES if 4 * t[2] * (t[0] + t[1] + 2) <= shared]
    return min(fitting, key=cost)[0]


def integer(push: Mapping[str, object], name: str) -> int:
    """Return a push constant that is an integer."""
    value = push[name]
    assert isinstance(value, int), f"{name} is {value!r}"
    return value
