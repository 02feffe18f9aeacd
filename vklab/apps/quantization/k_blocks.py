"""Choose the scales and codes of blocks of 256 elements: Q4_K, Q5_K and Q6_K.

Sums run in float32 and in ggml's order, so that blocks equal those of its reference quantiser
(built without fused multiply-adds). Source: ggml, ggml-quants.c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vklab.ops import blocks

# Groups whose largest magnitude is smaller are taken for zeros.
LEAST_MAGNITUDE = np.float32(1e-15)
_ROUNDING = np.float32(12582912)  # 1.5 * 2^23: the sum's last bits are the rounded number
F32 = np.float32


def nibbles(data: np.ndarray, count: int) -> np.ndarray:
    """Return the low halves of `count` bytes, then their high halves, as uint8 [..., 2 * count]."""
    given = data.reshape(*data.shape[:-1], -1, 1, count)
    halves = given >> np.array([[0], [4]], np.uint8) & 15
    return halves.reshape(*data.shape[:-1], 2 * data.shape[-1])


def pack_nibbles(codes: np.ndarray, count: int) -> np.ndarray:
    """Return codes below 16 as bytes; the inverse of `nibbles`."""
    pairs = codes.reshape(*codes.shape[:-1], -1, 2, count)
    joined = pairs[..., 0, :] | pairs[..., 1, :] << 4
    return joined.reshape(*codes.shape[:-1], codes.shape[-1] // 2)


def group_scales(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales and the minima of eight groups from 12 bytes, uint8 [blocks, 8] each.

    Four bytes hold scales of the first groups, four their minima, and four the low halves of the
    last groups' numbers, whose high bits fill the first eight bytes.
    """
    scale, least, low = data[:, :4], data[:, 4:8], data[:, 8:]
    scales = np.concatenate([scale & 63, low & 15 | scale >> 2 & 48], axis=1)
    return scales, np.concatenate([least & 63, low >> 4 | least >> 2 & 48], axis=1)


def pack_group_scales(scales: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return 12 bytes a block of eight scales and eight minima; the inverse of `group_scales`."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = least[:, :4] | least[:, 4:] >> 4 << 6
    low = scales[:, 4:] & 15 | (least[:, 4:] & 15) << 4
    return np.concatenate([first, second, low], axis=1)


def _nearest(values: np.ndarray) -> np.ndarray:
    """Return values rounded to integers, ties to even, as int32; exact below 2^22."""
    bits = np.ascontiguousarray(values + _ROUNDING, np.float32).view(np.int32)
    return (bits & 0x007FFFFF) - 0x00400000


def _sum(terms: np.ndarray) -> np.ndarray:
    """Return sums along the last axis, added from left to right in float32."""
    return np.add.accumulate(terms, axis=-1, dtype=np.float32)[..., -1]


def _ratio(above: np.ndarray | np.float32, below: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return a quotient where it is wanted, and 0 elsewhere."""
    return np.where(where, above / np.where(where, below, F32(1)), F32(0))


@dataclass
class _Fit:
    """Best line through the groups so far: code = (value - least) / scale."""

    codes: np.ndarray
    scale: np.ndarray
    least: np.ndarray
    error: np.ndarray

    def update(self, other: _Fit, better: np.ndarray) -> None:
        """Replace the groups for which another fit is better."""
        for name in ("codes", "scale", "least", "error"):
            new, old = getattr(other, name), getattr(self, name)
            chosen = better[:, None] if new.ndim > 1 else better
            setattr(self, name, np.where(chosen, new, old))


def _fit_lines(
    x: np.ndarray, weights: np.ndarray, most: int, start: float, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes, scales and minima (negated) of groups, chosen by weighted least squares.

    Tries `steps + 1` spacings, each a tenth wider: ggml's make_qkx2_quants.
    """
    least, peak = np.minimum(x.min(axis=1), F32(0)), x.max(axis=1)
    is_flat = peak == least
    span = np.where(is_flat, F32(1), peak - least)
    all_weights, all_x = _sum(weights), _sum(weights * x)

    def codes_of(spacing: np.ndarray, least: np.ndarray) -> np.ndarray:
        return np.clip(_nearest(spacing[:, None] * (x - least[:, None])), 0, most)

    def error_of(codes: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
        rest = scale[:, None] * codes.astype(F32) + offset[:, None] - x
        return _sum(weights * (rest * rest))

    spacing = F32(most) / span
    codes, scale = codes_of(spacing, least), 1 / spacing
    best = _Fit(codes, scale, least, error_of(codes, scale, least))
    for step in range(steps + 1):
        # The best minimum so far is where the next spacing starts.
        span = np.where(is_flat, F32(1), peak - best.least)
        wide = F32(start) + F32(0.1) * F32(step) + F32(most)
        codes = codes_of(wide / span, best.least)
        real = codes.astype(F32)
        linear = weights * real
        total, squares, products = _sum(linear), _sum(linear * real), _sum(linear * x)
        determinant = all_weights * squares - total * total
        usable = determinant > 0
        scale = _ratio(all_weights * products - all_x * total, determinant, usable)
        offset = _ratio(squares * all_x - total * products, determinant, usable)
        is_above = offset > 0
        scale = np.where(is_above, _ratio(products, squares, squares != 0), scale)
        offset = np.where(is_above, F32(0), offset)
        error = error_of(codes, scale, offset)
        best.update(_Fit(codes, scale, offset, error), usable & (error < best.error))
    codes = np.where(is_flat[:, None], 0, best.codes)
    return codes, np.where(is_flat, F32(0), best.scale), -np.where(is_flat, least, best.least)


def _write_groups(
    block_type: str, most: int, start: float, steps: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that writes Q4_K or Q5_K: eight groups of 32, each with a minimum."""

    def write(values: np.ndarray) -> np.ndarray:
        block = np.zeros(len(values), blocks.FORMATS[block_type].fields)
        x = values.reshape(-1, 32)
        average = np.sqrt(_sum(x * x) / F32(32))
        codes, scale, least = _fit_lines(x, average[:, None] + np.abs(x), most, start, steps)
        scale, least = scale.reshape(-1, 8), least.reshape(-1, 8)
        packed = []
        for field, numbers in (("d", scale), ("dmin", least)):
            peak = np.maximum(numbers.max(axis=1, keepdims=True), F32(0))
            steps_of = _nearest(_ratio(F32(63), peak, peak > 0) * numbers).astype(np.uint8)
            packed.append(np.minimum(steps_of, np.uint8(63)))
            block[field] = (peak / F32(63))[:, 0]
        block["scales"] = pack_group_scales(*packed)
        stored, offsets = group_scales(block["scales"])
        factor = (block["d"].astype(F32)[:, None] * stored.astype(F32)).reshape(-1, 1)
        offset = (block["dmin"].astype(F32)[:, None] * offsets.astype(F32)).reshape(-1, 1)
        again = np.clip(_nearest(_ratio(x + offset, factor, factor != 0)), 0, most)
        codes = np.where(factor != 0, again, codes).astype(np.uint8).reshape(-1, 4, 64)
        block["qs"] = pack_nibbles(codes & 15, 32).reshape(-1, 128)
        if "qh" in (block.dtype.names or ()):
            high = codes.reshape(-1, 8, 32) >> 4 << np.arange(8, dtype=np.uint8)[:, None]
            block["qh"] = np.bitwise_or.reduce(high, axis=1)
        return block

    return write


def _fit_centred(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return codes from 0 to 63 and scales of groups around zero: ggml's make_qx_quants."""
    peak = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1)
    is_zero = np.abs(peak) < LEAST_MAGNITUDE
    safe, weights = np.where(is_zero, F32(1), peak), x * x

    def sums(spacing: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes = np.clip(_nearest(spacing * x), -32, 31)
        real = codes.astype(F32)
        return codes, _sum(weights * x * real), _sum(weights * real * real)

    codes, products, squares = sums(F32(-32) / safe)
    scale = _ratio(products, squares, squares != 0)
    best = scale * products
    for step in (*range(-9, 0), *range(1, 10)):
        new, products, squares = sums(-(F32(32) + F32(0.1) * F32(step)) / safe)
        better = (squares > 0) & (products * products > best * squares)
        codes = np.where(better[:, None], new, codes)
        scale = np.where(better, _ratio(products, squares, better), scale)
        best = np.where(better, scale * products, best)
    return np.where(is_zero, 0, codes + 32), np.where(is_zero[:, 0], F32(0), scale)


def _write_q6_k(values: np.ndarray) -> np.ndarray:
    block = np.zeros(len(values), blocks.FORMATS["Q6_K"].fields)
    x = values.reshape(-1, 16)
    codes, scale = _fit_centred(x)
    scale = scale.reshape(-1, 16)
    peak = np.take_along_axis(scale, np.abs(scale).argmax(axis=1, keepdims=True), axis=1)
    is_zero = np.abs(peak) < LEAST_MAGNITUDE
    spacing = F32(-128) / np.where(is_zero, F32(1), peak)
    block["d"] = np.where(is_zero, F32(0), 1 / spacing)[:, 0]
    steps = np.minimum(_nearest(spacing * scale), 127)
    block["scales"] = np.where(is_zero, 0, steps)
    factor = (block["d"].astype(F32)[:, None] * block["scales"].astype(F32)).reshape(-1, 1)
    again = np.clip(_nearest(_ratio(x, factor, factor != 0)), -32, 31) + 32
    kept = np.where(factor != 0, again, codes).reshape(-1, 256)
    kept = np.where(is_zero, 0, kept).astype(np.uint8)
    block["ql"] = pack_nibbles(kept.reshape(-1, 2, 128) & 15, 64).reshape(-1, 128)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = kept.reshape(-1, 2, 4, 32) >> 4 << shifts
    block["qh"] = np.bitwise_or.reduce(high, axis=2).reshape(-1, 64)
    return block


WRITERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Q4_K": _write_groups("Q4_K", 15, -1.0, 20),
    "Q5_K": _write_groups("Q5_K", 31, -0.5, 15),
    "Q6_K": _write_q6_k,
}
