"""Sliding windows: what convolutions and poolings share of ONNX's spatial attributes.

Pure arithmetic over shapes: pads, strides, dilations, auto_pad and ceil_mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.errors import ModelError, UnsupportedOperatorError

__all__ = ["Window", "resolve"]

MAX_AXES = 2


@dataclass(frozen=True)
class Window:
    """A window over height and width, with the shape of what comes out.

    Every tuple is (height, width); a 1-D window has height 1.
    """

    input: tuple[int, int]
    output: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads_begin: tuple[int, int]
    pads_end: tuple[int, int]


def resolve(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> tuple[Window, tuple[int, ...]]:
    """Return the window and the output's spatial shape, of the input's rank.

    Raises ModelError for attributes that contradict each other or the input's rank.
    """
    rank = len(spatial)
    if not 1 <= rank <= MAX_AXES:
        raise UnsupportedOperatorError(f"{rank} spatial axes; kernels exist for 1 and 2")
    kernel = tuple(kernel)
    strides = tuple(strides) if strides else (1,) * rank
    dilations = tuple(dilations) if dilations else (1,) * rank
    for name, values in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        if len(values) != rank or any(value < 1 for value in values):
            raise ModelError(f"{name}={values} does not fit {rank} spatial axes")
    if pads and (len(pads) != 2 * rank or any(pad < 0 for pad in pads)):
        raise ModelError(f"pads={tuple(pads)} does not fit {rank} spatial axes")
    outputs, begins, ends = [], [], []
    for axis, size in enumerate(spatial):
        begin, end = (pads[axis], pads[axis + rank]) if pads else (0, 0)
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        length, begin, end = _axis(size, reach, strides[axis], begin, end, auto_pad, ceil_mode)
        outputs.append(length)
        begins.append(begin)
        ends.append(end)
    ones, zeros = (1,) * (MAX_AXES - rank), (0,) * (MAX_AXES - rank)
    window = Window(
        input=_pair(ones + tuple(spatial)),
        output=_pair(ones + tuple(outputs)),
        kernel=_pair(ones + kernel),
        strides=_pair(ones + strides),
        dilations=_pair(ones + dilations),
        pads_begin=_pair(zeros + tuple(begins)),
        pads_end=_pair(zeros + tuple(ends)),
    )
    return window, tuple(outputs)


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return values[0], values[1]


def _axis(
    size: int, reach: int, stride: int, begin: int, end: int, auto_pad: str, ceil_mode: int
) -> tuple[int, int, int]:
    """Return the output length and the pads of one axis."""
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        length = -(-size // stride)
        total = max((length - 1) * stride + reach - size, 0)
        begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        return length, begin, total - begin
    if auto_pad == "VALID":
        begin = end = 0
    elif auto_pad != "NOTSET":
        raise ModelError(f"auto_pad={auto_pad!r} is not one of NOTSET, SAME_UPPER, SAME_LOWER, "
                         "VALID")  # fmt: skip
    room = size + begin + end - reach
    if room < 0:
        if size == 0:
            return 0, begin, end
        raise ModelError(f"a window of {reach} does not fit {size} with pads {begin} and {end}")
    length = (-(-room // stride) if ceil_mode else room // stride) + 1
    # A window that would start beyond the input and its begin pad sees nothing at all.
    if ceil_mode and (length - 1) * stride >= size + begin:
        length -= 1
    return length, begin, end
