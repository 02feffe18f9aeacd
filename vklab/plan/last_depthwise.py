"""Describe depthwise convolutions of channels-last images for a kernel of several channels at once.

A LayerNormalization over the channels of each pixel may follow in the same dispatch. Visited by
lab 08.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.ops import dtypes, registry
from vklab.types import DeviceInfo, Dispatch

# Channels of an invocation, pixels of an invocation, and its workgroup without a norm.
WIDTH, PIXELS, WORKGROUP = 2, (4, 2, 1), 128
# Invocations, and workgroups with a norm, from which on each takes more pixels.
FEWEST_LANES, FEWEST_GROUPS = 1 << 16, 250
# Subgroups whose sums one workgroup adds.
MOST_SUBGROUPS = 32


def paired(dispatch: Dispatch) -> Dispatch | None:
    """Return a convolution by the kernel of several channels; None if it has no such form."""
    if not _is_depthwise(dispatch):
        return None
    pieces = dispatch.push_values["n"] // WIDTH
    for pixels in _choices(dispatch):
        strips = _strips(dispatch, pixels)
        if strips * pieces >= FEWEST_LANES or pixels == 1:
            break
    groups = registry.grid(-(-strips * pieces // WORKGROUP))
    return _made(dispatch, strips, pixels, groups, {"WORKGROUP": WORKGROUP}, {"NORM": "0"})


def normed(dispatch: Dispatch, norm: Dispatch, info: DeviceInfo) -> Dispatch | None:
    """Return a convolution and the norm of its result as one dispatch; None if it has no such form.

    Args:
        dispatch: the convolution.
        norm: the LayerNormalization that reads its result.
        info: the device.
    """
    push, flags, lanes = norm.push_values, norm.define_values, info.subgroup_size
    given, convolved = dict(norm.reads), dispatch.writes[0][1]
    if not _is_depthwise(dispatch) or "arithmetic" not in info.subgroup_operations:
        return None
    channels = dispatch.push_values["n"]
    workgroup = -(-(channels // WIDTH) // lanes) * lanes
    plain = (flags["CENTER"], flags["BIAS"], flags["STATISTICS"]) == ("1", "1", "0")
    own = norm.epilogue.operands[0] if norm.epilogue else norm.writes[0][1]
    alike = {own.dtype, *(each.dtype for _, each in norm.reads)} == {convolved.dtype}
    most = min(info.limit("maxComputeWorkGroupInvocations"), MOST_SUBGROUPS * lanes)
    layout = push["columns"], push["step"], push["run"]
    if not plain or not alike or layout != (channels, 0, 1) or workgroup > most:
        return None
    for pixels in _choices(dispatch):
        strips = _strips(dispatch, pixels)
        if strips >= FEWEST_GROUPS or pixels == 1:
            break
    made = _made(
        dispatch,
        strips,
        pixels,
        registry.grid(strips),
        {"WORKGROUP": workgroup, "SUBGROUP": lanes},
        {"NORM": "1"},
    )
    return replace(
        made,
        reads=(
            *made.reads,
            ("scale_buffer", given["w_buffer"]),
            ("shift_buffer", given["b_buffer"]),
        ),
        writes=norm.writes,
        push=(*made.push, ("epsilon", push["epsilon"])),
        flops=made.flops + norm.flops,
        epilogue=norm.epilogue,
    )


def _is_depthwise(dispatch: Dispatch) -> bool:
    push = dispatch.push_values
    return (
        dispatch.kernel == "conv_last"
        and push["filters"] == 1
        and dispatch.constant_values["DEPTH"] == 1
        and push["n"] % WIDTH == 0
    )


def _choices(dispatch: Dispatch) -> tuple[int, ...]:
    return PIXELS if dispatch.push_values["dilation_w"] == 1 else (1,)


def _strips(dispatch: Dispatch, pixels: int) -> int:
    """Return how many groups of so many pixels the lines of all images have."""
    push, own = dispatch.push_values, dispatch.constant_values["PIXELS"]
    lines: int = push["count"] // push["n"] // -(-push["out_w"] // own)
    return lines * -(-push["out_w"] // pixels)


def _made(
    dispatch: Dispatch, strips: int, pixels: int, groups: tuple[int, int, int],
    constants: dict[str, int], defines: dict[str, str],
) -> Dispatch:  # fmt: skip
    left = tuple(pair for pair in dispatch.push if pair[0] not in ("count", "filters"))
    stride = dispatch.constant_values["STRIDE_W"]
    result = dispatch.epilogue.operands[0] if dispatch.epilogue else None
    dtype = result.dtype if result else dispatch.writes[0][1].dtype
    return replace(
        dispatch,
        kernel="conv_last_depthwise",
        workgroups=groups,
        push=(("strips", strips), *left),
        constants=(*constants.items(), ("PIXELS", pixels), ("STRIDE_W", stride)),
        defines=(
            *dispatch.defines,
            dtypes.type_defines("T", dtype)[2],
            ("WIDTH", str(WIDTH)),
            *defines.items(),
        ),
    )
