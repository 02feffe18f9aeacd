"""Choose the fastest kernel for a product or convolution on one device.

Each rule is a pure function from a Dispatch to an equivalent one; DISABLE_VARIANTS switches off all
rules but those that a driver's limits require. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.ops import dtypes, linear, registry
from vklab.plan import limits
from vklab.plan.tuning import prepack
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["choose"]

Tile = tuple[int, int, int, int, int]
# m, n, k and batch count of a matmul, or of the matrix product that a conv computes.
ProductSizes = tuple[int, int, int, int]
KernelRule = Callable[[Dispatch, ProductSizes, DeviceInfo], Dispatch | None]

# (TILE_M, TILE_N, TILE_K, ROWS, COLUMNS) and the relative speed of the inner loop: more sums in
# registers need fewer loads for each product. Speeds of products are fitted to the fastest tile of
# ten on an H200. A subgroup of 32 covers 8 x 4 blocks of 4 x 4 sums of them.
_PRODUCT_TILES: tuple[tuple[Tile, float], ...] = (
    ((32, 32, 16, 4, 4), 1.5),
    ((64, 64, 16, 4, 4), 3.5),
    ((64, 128, 16, 8, 8), 5.0),
    ((128, 128, 16, 8, 8), 6.0),
)
# TILE_N of a convolution never exceeds the workgroup.
_CONV_TILES: tuple[tuple[Tile, float], ...] = (
    ((16, 16, 32, 1, 1), 0.55),
    ((32, 32, 32, 2, 2), 1.0),
    ((64, 64, 16, 4, 4), 2.0),
    ((128, 128, 16, 8, 8), 3.0),
)
# Workgroups that a GPU runs side by side; the real number differs, its order does not.
GPU_WORKGROUPS = 128
# Columns of one invocation on a CPU: eight are faster still, but take llvmpipe twice as long to
# compile. It compiles an epilogue once for each column: with more formulas, one column.
CPU_COLUMNS, MOST_FORMULAS = 4, 2
# A split shorter than this along k is not worth the second dispatch.
SHORTEST_SPLIT = 256
# The second dispatch adds the parts sequentially.
MOST_SPLITS = 64


def choose(
    dispatch: Dispatch, info: DeviceInfo, resident: Collection[str] = ()
) -> tuple[Dispatch, ...]:
    """Return the fastest equivalent dispatches for a device; `dispatch` itself if it is no product.

    Args:
        dispatch: one dispatch of a plan.
        info: the device.
        resident: names of weights already on the device; a prepacked name encodes its layout.
    """
    if dispatch.kernel not in ("matmul", "conv"):
        return (dispatch,)
    chosen, sizes = dispatch, _product_sizes(dispatch)
    # The rules are for sums in float32 only.
    in_float32 = dict(dispatch.defines).get("ACC", "float") == "float"
    if in_float32 and not settings.get("DISABLE_VARIANTS"):
        on_gpu: tuple[KernelRule, ...] = (_one_row, _tiled, _few_rows)
        rules = (_shared_rows,) if info.is_cpu else on_gpu
        laid_out = prepack.along_k(dispatch, sizes[:3], info, resident)
        variants = (rule(laid_out, sizes, info) for rule in rules)
        chosen = next(filter(None, variants), laid_out)
    return _split(chosen, dispatch, sizes, info)


def _product_sizes(dispatch: Dispatch) -> ProductSizes:
    push: dict[str, Any] = dict(dispatch.push)
    if dispatch.kernel == "matmul":
        return push["m"], push["n"], push["k"], push["batches"]
    k = push["in_channels"] * push["kernel_h"] * push["kernel_w"]
    return push["out_channels"], push["out_h"] * push["out_w"], k, push["batches"]


def _shared_rows(dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo) -> Dispatch | None:
    """Share the loads of the row operand among the lanes of a subgroup, by shuffles.

    On a CPU device every load of a lane is a separate instruction, which this saves.
    """
    m, n, _, batch = sizes
    smallest = info.limit("minSubgroupSize") or info.subgroup_size
    lanes = next((size for size in (8, 4) if size <= m and size <= smallest), 0)
    if not lanes or "shuffle" not in info.subgroup_operations:
        return None
    blocks = 2 if 2 * lanes <= m else 1
    formulas = dispatch.epilogue.formulas if dispatch.epilogue else ()
    columns = CPU_COLUMNS if len(formulas) <= MOST_FORMULAS else 1
    workgroups, constants = linear.row_blocks(m, n, batch, lanes, blocks, columns)
    defines = tuple((name, "1" if name == "SUBGROUP" else v) for name, v in dispatch.defines)
    return replace(dispatch, workgroups=workgroups, constants=constants, defines=defines)


def _few_rows(dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo) -> Dispatch | None:
    """Compute one row per invocation where larger blocks would leave a GPU idle."""
    del info
    m, n, _, batch = sizes
    if m * n * batch > GPU_WORKGROUPS * 1024:
        return None
    workgroups, constants = linear.row_blocks(m, n, batch, 1, 1)
    return replace(dispatch, workgroups=workgroups, constants=constants)


def _one_row(dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo) -> Dispatch | None:
    """Use matvec where the left operand is one row: reading B then takes all the time."""
    del info
    m, n, k, batch = sizes
    push = dict(dispatch.push)
    if dispatch.kernel != "matmul" or m != 1 or batch != 1:
        return None
    # Dense along k: one column per workgroup, whose lanes read neighbouring elements.
    columns = 1 if push["b_row"] == 1 and k != 1 else 32
    fours = columns > 1 and prepack.by_fours(dispatch, n)
    names = ("n", "k", "part", "a_column", "b_row", "b_column", "c_column", "alpha", "beta")
    return replace(
        dispatch,
        kernel="matvec",
        workgroups=registry.grid(-(-n // (4 * columns if fours else columns))),
        push=tuple((name, push[name]) for name in names),
        constants=(("COLUMNS", columns), ("WORKGROUP", 256 if columns > 1 else 64)),
        defines=(*_without(dispatch.defines, "SUBGROUP", "BATCH_AXES"), ("FOURS", str(int(fours)))),
    )


def _tiled(dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo) -> Dispatch | None:
    """Use shared-memory tiles where a product is large enough to fill some.

    Source: CUDA C++ Programming Guide, section 'Shared Memory'.
    """
    m, n, k, batch = sizes
    if m < 16 or n < 16 or k < 64:
        return None
    is_product = dispatch.kernel == "matmul"
    tile = _soonest(_PRODUCT_TILES if is_product else _CONV_TILES, sizes, info)
    workgroups = (-(-n // tile[1]), -(-m // tile[0]), batch)
    if max(workgroups) > linear.MOST_GROUPS:
        return None
    changed = replace(
        dispatch,
        kernel=f"{dispatch.kernel}_tiled",
        workgroups=workgroups,
        constants=(("TILE_M", tile[0]), ("TILE_N", tile[1]), ("ROWS", tile[3]),
                   ("COLUMNS", tile[4]), ("WORKGROUP", tile[0] // tile[3] * (tile[1] // tile[4]))),
        defines=_without(dispatch.defines, "SUBGROUP"),
    )  # fmt: skip
    return _product_loads(changed, sizes, tile) if is_product else _conv_loads(changed, tile)


def _product_loads(dispatch: Dispatch, sizes: ProductSizes, tile: Tile) -> Dispatch | None:
    """Tell matmul_tiled along which sides its operands are dense, and how much it loads at once."""
    m, n, k, _ = sizes
    push: dict[str, Any] = dict(dispatch.push)
    if 1 not in (push["a_row"], push["a_column"]) or 1 not in (push["b_row"], push["b_column"]):
        return None
    along_k, along_n = push["a_column"] == 1, push["b_column"] == 1
    # Four elements are read at once if each four begins at a multiple of 16 bytes.
    steps = (push["a_row"] if along_k else push["a_column"], k if along_k else m,
             push["b_row"] if along_n else push["b_column"], n if along_n else k,
             *push["a_batch"], *push["b_batch"])  # fmt: skip
    aligned = not any(side % step for side, step in zip((m, n, k), tile[:3], strict=True))
    constants = {"A_ALONG_K": along_k, "B_ALONG_N": along_n, "ALIGNED": aligned}
    return replace(
        dispatch,
        constants=(*dispatch.constants, *((name, int(is_so)) for name, is_so in constants.items())),
        defines=(*dispatch.defines, ("FOURS", str(int(not any(step % 4 for step in steps))))),
    )


def _conv_loads(dispatch: Dispatch, tile: Tile) -> Dispatch:
    """Make the kernel's sizes constants: conv_tiled divides by them at every step."""
    fixed = [(name.upper(), size) for name, size in dispatch.push
             if name in ("kernel_h", "kernel_w") and isinstance(size, int)]  # fmt: skip
    changed = replace(
        dispatch,
        push=_without(dispatch.push, "kernel_h", "kernel_w"),
        constants=(*dispatch.constants, ("TILE_K", tile[2]), *fixed),
    )
    return prepack.in_chunks(changed, tile)


def _soonest(
    tiles: Sequence[tuple[Tile, float]], sizes: ProductSizes, info: DeviceInfo
) -> Tile:
    """Return the tile with the least padded work over its speed, in waves of workgroups.

    Assumes that `_split` cuts a long sum into more workgroups.
    """
    m, n, k, batch = sizes

    def cost(candidate: tuple[Tile, float]) -> float:
        tile, speed = candidate
        count = -(-m // tile[0]) * -(-n // tile[1]) * batch
        splits = _wanted_splits(count, k)
        waves = -(-count * splits // GPU_WORKGROUPS)
        return waves * tile[0] * tile[1] / speed * k / splits

    shared = info.limit("maxComputeSharedMemorySize")
    fitting = [(t, s) for t, s in tiles if 4 * t[2] * (t[0] + t[1] + 8) <= shared]
    return min(fitting, key=cost)[0]


def _wanted_splits(workgroups: int, k: int) -> int:
    """Return the number of parts into which to cut a sum of k terms for a GPU."""
    return max(1, min(2 * GPU_WORKGROUPS // workgroups, k // SHORTEST_SPLIT, MOST_SPLITS))


def _split(
    chosen: Dispatch, original: Dispatch, sizes: ProductSizes, info: DeviceInfo
) -> tuple[Dispatch, ...]:
    """Cut a long sum into parts that run in parallel, and add them up in a second dispatch.

    For a GPU with too few workgroups, and for loops longer than llvmpipe allows.
    Source: CUTLASS, 'Efficient GEMM in CUDA', split K.
    """
    m, n, k, batch = sizes
    push: dict[str, Any] = dict(original.push)
    steps = push["part"]  # the whole sum, in the kernel's unit: terms of k, or channels
    wanted = _wanted_splits(math.prod(chosen.workgroups), k)
    result = _computed(original)
    shares = original.kernel == "matmul" and m * n * batch < result.count  # the result with others
    if info.is_cpu or settings.get("DISABLE_VARIANTS") or shares:
        wanted = 1
    if "llvmpipe" in info.driver:
        wanted = max(wanted, -(-k // (limits.LLVMPIPE_ITERATIONS // 2)))
    whole = prepack.chunk(chosen)
    part = -(-steps // (wanted * whole)) * whole
    splits = -(-steps // part) if steps else 1
    if splits == 1:
        return (chosen,)
    # Parts are not rounded; their sum is, once.
    wide = "float32" if result.dtype in dtypes.FLOATS else result.dtype
    partial = TensorInfo(f"{chosen.writes[0][1].name}:splits", wide, (splits, *result.dims))
    changed = {"BIAS": "0", **dict(dtypes.type_defines("Y", wide))}
    # Scaling and C apply to the whole sum, not to a part.
    plain = {"part": part, "alpha": 1.0}
    biased = dict(chosen.defines)["BIAS"] == "1"
    first = replace(
        chosen,
        reads=chosen.reads[:2],
        writes=(("y_buffer", partial),),
        workgroups=(*chosen.workgroups[:2], chosen.workgroups[2] * splits),
        push=tuple((name, plain.get(name, value)) for name, value in chosen.push),
        defines=tuple((name, changed.get(name, v)) for name, v in chosen.defines),
        epilogue=None,
    )
    bias = chosen.reads[2][1] if biased else None
    return first, _sum_splits(partial, bias, original, sizes)


def _computed(dispatch: Dispatch) -> TensorInfo:
    """Return the tensor that the kernel itself computes, before any epilogue."""
    if dispatch.epilogue is None:
        return dispatch.writes[0][1]
    own = dispatch.epilogue.operands[0]
    return replace(own.info, dtype=own.dtype)


def _sum_splits(
    partial: TensorInfo, bias: TensorInfo | None, original: Dispatch, sizes: ProductSizes
) -> Dispatch:
    push: dict[str, Any] = dict(original.push)
    result, splits, (m, n, _, _) = _computed(original), partial.dims[0], sizes
    if original.kernel == "conv":  # the bias is one column, with one row per channel
        rows, steps, scales = m * push["groups"], (1, 0), (1.0, 1.0)
    else:
        rows, steps = m, (push["c_row"], push["c_column"])
        scales = (float(push["alpha"]), float(push["beta"]))
    return Dispatch(
        kernel="sum_splits",
        reads=(("x_buffer", partial), *((("c_buffer", bias),) if bias else ())),
        writes=original.writes,
        workgroups=registry.grid(-(-result.count // registry.WORKGROUP)),
        push=(
            ("count", result.count), ("splits", splits), ("rows", rows), ("n", n),
            ("c_row", steps[0]), ("c_column", steps[1]),
            ("alpha", scales[0]), ("beta", scales[1]),
        ),
        defines=(
            ("BIAS", "1" if bias else "0"), *linear.value_defines(result.dtype),
            *dtypes.type_defines("X", partial.dtype)[:2],
            *dtypes.type_defines("T", bias.dtype if bias else result.dtype)[:2],
            *dtypes.type_defines("Y", original.writes[0][1].dtype)[::2],
        ),
        flops=result.count * splits,
        iterations=splits,
        stores=True,
        epilogue=original.epilogue,
    )  # fmt: skip


def _without(pairs: tuple[Any, ...], *names: str) -> tuple[Any, ...]:
    """Return the pairs whose names are not listed."""
    return tuple(pair for pair in pairs if pair[0] not in names)
