"""Cut a long sum of a product into parts that run in parallel, and add them up.

For a GPU with too few workgroups, and for loops longer than llvmpipe allows.
Source: CUTLASS, 'Efficient GEMM in CUDA', split K. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.base import catalogue
from vklab.base.names import internal
from vklab.ops import dtypes, linear, registry
from vklab.plan import limits
from vklab.plan.tuning import prepack, tiles
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Invocations of a workgroup that adds four neighbours each.
FOUR_LANES = 64


def split(
    chosen: Dispatch, wanted: int, original: Dispatch, sizes: tiles.ProductSizes, info: DeviceInfo
) -> tuple[Dispatch, ...]:
    """Return a product whose sums are cut into parts, and the dispatch that adds these up.

    Args:
        chosen: the kernel that computes the product.
        wanted: the number of parts; a device may need more, and some products allow only one.
        original: the product before a kernel was chosen for it.
        sizes: m, n, k and the batch count.
        info: the device.
    """
    m, n, k, batch = sizes
    push: dict[str, Any] = {**original.push_values, **chosen.push_values}
    steps = push.get("part", 0)  # the whole sum, in the kernel's unit: terms of k, or channels
    result = computed(original)
    shares = original.kernel == "matmul" and m * n * batch < result.count  # the result with others
    is_off = settings.get("DISABLE_VARIANTS") or catalogue.is_off("split_sums")
    if info.is_cpu or is_off or shares:
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
    is_tiled = chosen.kernel == "matmul_tiled" and wide == "float32"
    pitch = -(-n // 4) * 4 if is_tiled else n
    in_fours = result.dtype in dtypes.FLOATS and original.epilogue is not None and not n % 4
    dims = result.dims if pitch == n else (result.count // n, pitch)
    partial = TensorInfo(internal(result.name, "splits"), wide, (splits, *dims))
    changed = {"BIAS": "0", **dict(dtypes.type_defines("Y", wide))}
    changed |= {"WIDE_Y": "1"} if is_tiled or in_fours else {}
    # Scaling and C apply to the whole sum, not to a part.
    plain = {"part": part, "alpha": 1.0}
    biased = chosen.define_values["BIAS"] == "1"
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
    return first, _sum_splits(partial, bias, original, sizes, pitch, info)


def computed(dispatch: Dispatch) -> TensorInfo:
    """Return the tensor that a product itself computes, before any epilogue."""
    if dispatch.epilogue is None:
        return dispatch.writes[0][1]
    own = dispatch.epilogue.operands[0]
    return replace(own.info, dtype=own.dtype)


def _sum_splits(
    partial: TensorInfo, bias: TensorInfo | None, original: Dispatch, sizes: tiles.ProductSizes,
    pitch: int, info: DeviceInfo,
) -> Dispatch:  # fmt: skip
    push = original.push_values
    result, splits, (m, n, _, _) = computed(original), partial.dims[0], sizes
    if original.kernel == "conv":  # the bias is one column, with one row per channel
        rows, steps, scales = m * push["groups"], (1, 0), (1.0, 1.0)
    elif original.kernel == "conv_last":
        rows, steps, scales = m, (0, 1), (1.0, 1.0)
    else:
        rows, steps = m, (push["c_row"], push["c_column"])
        scales = (float(push["alpha"]), float(push["beta"]))
    is_wide = not info.is_cpu and result.dtype in dtypes.FLOATS and partial.dtype == "float32"
    fours = catalogue.step("wide results")(original, n, True) if is_wide else ("WIDE_Y", "0")
    lanes = FOUR_LANES if fours[1] == "1" else registry.WORKGROUP
    each = 4 * lanes if fours[1] == "1" else lanes
    return Dispatch(
        kernel="sum_splits",
        reads=(("x_buffer", partial), *((("c_buffer", bias),) if bias else ())),
        writes=original.writes,
        workgroups=registry.grid(-(-result.count // each)),
        constants=(("WORKGROUP", lanes),),
        push=(
            ("count", result.count),
            ("splits", splits),
            ("rows", rows),
            ("n", n),
            ("pitch", pitch),
            ("c_row", steps[0]),
            ("c_column", steps[1]),
            ("alpha", scales[0]),
            ("beta", scales[1]),
        ),
        defines=(
            ("BIAS", "1" if bias else "0"),
            *linear.value_defines(result.dtype),
            *dtypes.type_defines("X", partial.dtype)[:2],
            *dtypes.type_defines("T", bias.dtype if bias else result.dtype)[:2],
            *dtypes.type_defines("Y", original.writes[0][1].dtype)[::2],
            fours,
        ),
        flops=result.count * splits,
        iterations=splits,
        stores=True,
        epilogue=original.epilogue,
    )
