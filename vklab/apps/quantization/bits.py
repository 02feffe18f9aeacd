"""Pack and unpack the bit fields of blocks: nibbles, and scales of six bits.

Source: ggml, ggml-quants.c.
"""

from __future__ import annotations

import numpy as np


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
