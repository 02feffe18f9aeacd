"""Resolve the spatial attributes that convolutions and poolings share, by arithmetic on shapes.

Pads, strides, dilations, auto_pad, ceil_mode and output_shape. Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.types import TensorInfo

MAX_AXES = 3
SAME = ("SAME_UPPER", "SAME_LOWER")
Push = tuple[tuple[str, float | tuple[int, ...]], ...]


@dataclass(frozen=True)
class Window:
    """Describe a window over spatial axes, the last of which is width, and its output shape."""

    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]

    def lifted(self, rank: int) -> Window:
        """Return the same window over more axes; new axes come first and have size one."""
        more = rank - len(self.input)
        ones, zeros = (1,) * more, (0,) * more
        sizes = (self.input, self.output, self.kernel, self.strides, self.dilations)
        pads = (self.pads_begin, self.pads_end)
        return Window(*(ones + size for size in sizes), *(zeros + pad for pad in pads))

    def push(self) -> Push:
        """Return the push constants of a kernel over three spatial axes."""
        whole = self.lifted(MAX_AXES)
        return (
            ("in_size", whole.input),
            ("out_size", whole.output),
            ("kernel", whole.kernel),
            ("stride", whole.strides),
            ("dilation", whole.dilations),
            ("pad", whole.pads_begin),
        )

    def plane(self) -> tuple[tuple[str, int], ...]:
        """Return the push constants of a kernel over height and width."""
        pairs = {
            "in": self.input,
            "out": self.output,
            "kernel": self.kernel,
            "stride": self.strides,
            "dilation": self.dilations,
        }
        return (
            *(
                (f"{name}_{side}", sizes[axis])
                for name, sizes in pairs.items()
                for axis, side in enumerate("hw")
            ),
            ("pad_top", self.pads_begin[0]),
            ("pad_left", self.pads_begin[1]),
        )


def spatial_axes(X: TensorInfo) -> tuple[int, ...]:
    """Return the sizes of the axes after N and C; ModelError if there are none."""
    if X.rank < 3:
        raise ModelError(f"X of rank {X.rank} has no spatial axes")
    if X.rank > 2 + MAX_AXES:
        raise UnsupportedOperatorError(f"{X.rank - 2} spatial axes; kernels exist for 1 to 3")
    return X.dims[2:]


def resolve(
    spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int] | None,
    dilations: Sequence[int] | None, pads: Sequence[int] | None, auto_pad: str,
    ceil_mode: int = 0,
) -> Window:  # fmt: skip
    """Return the window that slides over the input.

    Raises ModelError for attributes that contradict each other or the input's rank.

    Args:
        spatial: the input's spatial sizes.
        kernel: the window's sizes.
        strides: the window's steps; None for 1.
        dilations: the distances between taps; None for 1.
        pads: pads at the begin of all axes, then at the end of all axes; None for 0.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        ceil_mode: round the output's sizes up.

    Source: ONNX Conv-22, AveragePool-22.
    """
    kernel, strides, dilations = _steps(len(spatial), kernel, strides, dilations)
    begins, ends = _explicit(len(spatial), pads)
    axes = [
        _axis(size, (k - 1) * dilation + 1, stride, begin, end, auto_pad, ceil_mode)
        for size, k, stride, dilation, begin, end in zip(
            spatial, kernel, strides, dilations, begins, ends, strict=True
        )
    ]
    outputs, begins, ends = (tuple(column) for column in zip(*axes, strict=True))
    return Window(tuple(spatial), outputs, kernel, strides, dilations, begins, ends)


def resolve_transposed(
    spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int] | None,
    dilations: Sequence[int] | None, pads: Sequence[int] | None, auto_pad: str,
    output_padding: Sequence[int] | None, output_shape: Sequence[int] | None,
) -> Window:  # fmt: skip
    """Return the window of a transposed convolution, which slides over the output.

    Raises ModelError for attributes that contradict each other or the input's rank.

    Args:
        spatial, kernel, strides, dilations, pads, auto_pad: as in `resolve`.
        output_padding: elements added to the end of each output axis; None for 0.
        output_shape: the output's spatial sizes, or its whole shape; None to infer them.

    Source: ONNX ConvTranspose-22.
    """
    rank = len(spatial)
    kernel, strides, dilations = _steps(rank, kernel, strides, dilations)
    _check_auto_pad(auto_pad)
    begins, ends = _explicit(rank, pads if auto_pad == "NOTSET" else None)
    extra = tuple(output_padding) if output_padding else (0,) * rank
    if output_shape is not None and len(output_shape) == rank + 2:
        output_shape = output_shape[2:]
    for name, values in (("output_padding", extra), ("output_shape", output_shape or extra)):
        if len(values) != rank or any(value < 0 for value in values):
            raise ModelError(f"{name}={tuple(values)} does not fit {rank} spatial axes")
    wanted = output_shape
    if auto_pad in SAME and wanted is None:
        wanted = [size * stride for size, stride in zip(spatial, strides, strict=True)]
    full = tuple(
        stride * (size - 1) + more + (k - 1) * dilation + 1
        for size, k, stride, dilation, more in zip(
            spatial, kernel, strides, dilations, extra, strict=True
        )
    )
    if (
        auto_pad in SAME
        and output_shape is None
        and any(size < want for size, want in zip(full, wanted or (), strict=False))
    ):  # ONNX Runtime and onnx.reference disagree about the elements between windows
        raise UnsupportedOperatorError(
            f"auto_pad={auto_pad} with strides {strides} longer than "
            f"the kernel {kernel} is not supported"
        )
    if wanted is not None:
        totals = [max(0, size - want) for size, want in zip(full, wanted, strict=True)]
        halves = tuple(total // 2 for total in totals)
        rests = tuple(total - half for total, half in zip(totals, halves, strict=True))
        begins, ends = (halves, rests) if auto_pad == "SAME_UPPER" else (rests, halves)
        outputs = tuple(wanted)
    else:
        outputs = tuple(size - b - e for size, b, e in zip(full, begins, ends, strict=True))
    if any(size < 0 for size in outputs):
        raise ModelError(f"pads={tuple(pads or ())} leave nothing of an output of {full}")
    return Window(tuple(spatial), outputs, kernel, strides, dilations, begins, ends)


def _steps(
    rank: int,
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    if not 1 <= rank <= MAX_AXES:
        raise UnsupportedOperatorError(f"{rank} spatial axes; kernels exist for 1 to 3")
    ones = (1,) * rank
    named = {"kernel_shape": kernel, "strides": strides or ones, "dilations": dilations or ones}
    for name, values in named.items():
        if len(values) != rank or any(value < 1 for value in values):
            raise ModelError(f"{name}={tuple(values)} does not fit {rank} spatial axes")
    return tuple(kernel), tuple(named["strides"]), tuple(named["dilations"])


def _explicit(rank: int, pads: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the pads at the begin and at the end of each axis."""
    pads = tuple(pads) if pads else (0,) * (2 * rank)
    if len(pads) != 2 * rank or any(pad < 0 for pad in pads):
        raise ModelError(f"pads={pads} does not fit {rank} spatial axes")
    return pads[:rank], pads[rank:]


def _check_auto_pad(auto_pad: str) -> None:
    if auto_pad not in ("NOTSET", "VALID", *SAME):
        raise ModelError(
            f"unknown auto_pad={auto_pad!r}; choose one of NOTSET, SAME_UPPER, SAME_LOWER, VALID"
        )


def _axis(
    size: int, reach: int, stride: int, begin: int, end: int, auto_pad: str, ceil_mode: int
) -> tuple[int, int, int]:
    """Return the output length and the pads of one axis."""
    _check_auto_pad(auto_pad)
    if auto_pad in SAME:
        length = -(-size // stride)
        total = max((length - 1) * stride + reach - size, 0)
        begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        return length, begin, total - begin
    if auto_pad == "VALID":
        begin = end = 0
    room = size + begin + end - reach
    if room < 0:
        if size == 0:
            return 0, begin, end
        raise ModelError(f"a window of {reach} does not fit {size} with pads {begin} and {end}")
    length = (-(-room // stride) if ceil_mode else room // stride) + 1
    # A window that starts beyond the input and its begin pad would contain no element.
    if ceil_mode and (length - 1) * stride >= size + begin:
        length -= 1
    return length, begin, end
