"""Tiles of products and convolutions, and a model of the time that each of them takes.

The tables are data: another chip is another table. Two measurements on an H200 (driver 580) gave
each row: two lengths of a sum with few workgroups, and with a full device. PACKED and
COOPERATIVE_CONV lie between what windows of 1 x 1 and of 3 x 3 took. CONV was not measured in
steps: its numbers keep the order of whole convolutions. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vklab.types import DeviceInfo, Dispatch

# m, n, k and batch count of a matmul, or of the matrix product that a conv computes.
ProductSizes = tuple[int, int, int, int]
# Compute units of a GPU. The real number differs, but tiles keep nearly the same order.
UNITS = 128
# A second dispatch, which adds the parts of a sum: its fixed time, and bytes it reads in one ns.
SECOND_NS, SECOND_BYTES_PER_NS = 5000, 2000
# Elements beyond which a matrix of halves comes from memory: its rate, the time of one read, and
# the bytes of a step that a workgroup takes in one ns. Fitted to 60 times of 16 rows on an H200.
CACHED, MEMORY_BYTES_PER_NS, LATENCY_NS, READ_BYTES_PER_NS = 1 << 24, 4000, 590, 64
# Bytes that one compute unit waits for at a time.
MOST_UNDER_WAY = 1 << 16
# A part shorter than this along k is not worth the second dispatch.
SHORTEST_PART = 256
# The second dispatch adds the parts sequentially.
MOST_PARTS = 64


@dataclass(frozen=True)
class Tile:
    """One way to cut a product into workgroups, and the times of one step along k.

    Attributes:
        m: rows of the result that a workgroup computes.
        n: columns of the result that a workgroup computes.
        k: terms of one step.
        rows: rows of one invocation's block; of a subgroup's block with cooperative matrices.
        columns: columns of that block.
        alone_ns: time of a step if few workgroups run: waiting for memory decides.
        busy_ns: time of a step for each workgroup of a full compute unit: arithmetic decides.
        ends_ns: time before the first step and after the last, without the launch of the kernel.
        slices: subgroups that share the steps of one block.
        depth: steps that are on their way from memory.
        more_ns: what each further workgroup of a compute unit adds to the ends, where workgroups
            of a unit run side by side; 0 where one waits for another.
        buffers: pairs of tiles in shared memory: with two, the next is stored before a
            multiplication, and one barrier a step is enough.
        units: compute units that the model of its time reckons with.
    """

    m: int
    n: int
    k: int
    rows: int
    columns: int
    alone_ns: float
    busy_ns: float
    ends_ns: float = 0
    slices: int = 1
    depth: int = 1
    more_ns: float = 0
    buffers: int = 1
    units: int = UNITS

    @property
    def blocks(self) -> int:
        """Return the number of blocks of a workgroup."""
        return self.m // self.rows * (self.n // self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return what identifies the tile: m, n, k, rows, columns, and what is not 1 after them."""
        own = (self.m, self.n, self.k, self.rows, self.columns)
        return own if self.slices == self.depth == 1 else (*own, self.slices, self.depth)


# Kernel matmul_tiled. A subgroup of 32 covers 8 x 4 blocks of 4 x 4 sums. Fitted to 40 times of
# 1000 x 3000 x 777 in one to nine parts, and to squares of 2048, 4096 and 8192, on 132 units.
PRODUCT: tuple[Tile, ...] = (
    Tile(32, 32, 16, 4, 4, 374, 134, units=132),
    Tile(64, 64, 16, 4, 4, 546, 475, units=132),
    Tile(64, 64, 16, 8, 8, 967, 382, units=132),
    Tile(64, 128, 16, 8, 8, 904, 707, 9000, buffers=2, units=132),
    Tile(128, 64, 16, 8, 8, 914, 745, 3000, buffers=2, units=132),
    Tile(128, 128, 16, 8, 8, 1478, 1445, units=132),
)
# The same for many products of dense matrices at once, as Winograd's tiles are: fewer steps.
MANY: tuple[Tile, ...] = (*PRODUCT, Tile(64, 64, 32, 4, 4, 900, 900, units=132))
# Kernel conv_packed. A workgroup is a multiple of n.
PACKED: tuple[Tile, ...] = (
    Tile(32, 32, 16, 4, 4, 680, 195),
    Tile(64, 32, 32, 4, 4, 1000, 660),
    Tile(64, 64, 16, 4, 4, 690, 600),
    Tile(128, 64, 16, 8, 8, 1500, 1080),
)
# Kernel conv_tiled, for weights that cannot be packed. n never exceeds the workgroup.
CONV: tuple[Tile, ...] = (
    Tile(16, 16, 32, 1, 1, 700, 330),
    Tile(32, 32, 32, 2, 2, 900, 730),
    Tile(64, 64, 16, 4, 4, 900, 730),
    Tile(128, 128, 16, 8, 8, 2000, 1950),
)
# Kernel matmul_cooperative: halves, with weights that come from memory. Fitted, as the next table,
# to 20 products from 197 x 768 x 128 to 8192 x 8192 x 8192.
COOPERATIVE: tuple[Tile, ...] = (
    Tile(16, 64, 64, 16, 16, 619, 195, 597, more_ns=223),
    Tile(16, 64, 128, 16, 16, 823, 359, 923, more_ns=328),
    Tile(16, 64, 256, 16, 16, 1415, 745, 1029, more_ns=734),
    Tile(16, 128, 64, 16, 32, 774, 291, 574, more_ns=986),
    Tile(32, 32, 64, 16, 16, 621, 209, 481, more_ns=292),
    Tile(32, 32, 128, 16, 16, 780, 394, 1099, more_ns=375),
    Tile(32, 64, 64, 16, 32, 704, 234, 478, more_ns=866),
    Tile(32, 64, 128, 16, 32, 909, 497, 825, more_ns=778),
    Tile(64, 64, 64, 32, 32, 748, 358, 1099, more_ns=1167),
    Tile(128, 64, 64, 32, 32, 725, 545, 1727, more_ns=8000),
    Tile(64, 128, 64, 32, 64, 840, 587, 2811),
    Tile(128, 128, 64, 32, 64, 1061, 1049, 3175),
    Tile(128, 128, 64, 64, 64, 1222, 849, 5014),
)
# Kernel matmul_registers: k is a step of all slices, each of 32 terms.
REGISTERS: tuple[Tile, ...] = (
    Tile(16, 32, 256, 16, 32, 500, 290, 900, 8, 1, 350),
    Tile(16, 32, 256, 16, 32, 420, 310, 1200, 8, 2, 350),
    Tile(16, 64, 256, 16, 64, 560, 490, 1100, 8, 1, 900),
    Tile(32, 32, 128, 32, 32, 398, 177, 1541, 4, 2, 399),
    Tile(32, 32, 256, 32, 32, 581, 411, 1717, 8, 1, 526),
    Tile(32, 32, 256, 32, 32, 287, 457, 2911, 8, 3, 1086),
    Tile(32, 64, 128, 32, 64, 665, 333, 1333, 4, 1, 630),
    Tile(32, 64, 128, 32, 64, 457, 320, 1628, 4, 2, 1010),
    Tile(32, 64, 256, 32, 64, 520, 830, 2032, 8, 2, 1295),
    Tile(64, 64, 128, 64, 64, 861, 451, 2203, 4, 1, 2463),
    Tile(128, 128, 32, 64, 64, 863, 479, 4063, 1, 1),
)
# The same kernel over windows, beside a launch of 3 us: fitted to ResNet-50, weights in a cache.
REGISTERS_LAST: tuple[Tile, ...] = (
    Tile(16, 32, 256, 16, 32, 470, 250, 100, 8, 1, 300),
    Tile(16, 32, 256, 16, 32, 375, 300, 400, 8, 2, 300),
    Tile(16, 64, 256, 16, 64, 500, 500, 300, 8, 1, 1000),
    Tile(32, 64, 128, 32, 64, 600, 250, 1100, 4, 1, 700),
    Tile(64, 64, 128, 64, 64, 909, 484, 1577, 4, 1, 4026),
)
# The same kernel for halves with sums in float16, and for floats as three products of bfloat16.
HALF_SUMS: tuple[Tile, ...] = (
    *COOPERATIVE,
    Tile(128, 256, 32, 64, 128, 720, 730, 9000),
)
SPLIT: tuple[Tile, ...] = (
    Tile(32, 32, 32, 16, 16, 420, 230),
    Tile(64, 64, 32, 32, 32, 700, 450, 2000),
    Tile(128, 64, 32, 32, 32, 900, 810, 3000),
    Tile(128, 128, 32, 64, 64, 1230, 1160, 6000),
)
COOPERATIVE_CONV: tuple[Tile, ...] = (
    Tile(32, 32, 32, 16, 16, 760, 145),
    Tile(64, 32, 32, 32, 16, 810, 233),
    Tile(64, 64, 32, 32, 32, 1220, 368),
    Tile(128, 64, 32, 64, 32, 1470, 592),
    Tile(128, 128, 64, 64, 64, 4390, 2334),
)
# Kernel words_tiled: int8 on matrix units, and by dot products. Fitted to 43 products of ResNet-50,
# MobileNetV2 and conv_many, of one and of 16 images.
WORDS: tuple[Tile, ...] = (
    Tile(32, 32, 128, 16, 16, 896, 236, 5635),
    Tile(32, 32, 256, 16, 16, 1002, 479, 5428),
    Tile(32, 32, 512, 16, 16, 1316, 1021, 5136),
    Tile(32, 64, 256, 16, 32, 1117, 974, 6494),
    Tile(64, 64, 128, 16, 32, 1007, 675, 6272),
    Tile(64, 64, 256, 32, 32, 1446, 1431, 7388),
    Tile(128, 64, 128, 32, 32, 1220, 1121, 7671),
    Tile(128, 128, 128, 32, 64, 1215, 1528, 11186),
)
DOTS: tuple[Tile, ...] = (
    Tile(32, 32, 128, 4, 2, 1411, 502, 5918),
    Tile(64, 64, 64, 8, 4, 1574, 828, 8424),
)
# Kernels conv_last_cooperative, and conv_last_tiled without slices. Fitted, as the next tables, to
# 500 times of the convolutions and products of ResNet-50 and ConvNeXt-T.
LAST: tuple[Tile, ...] = (
    Tile(16, 64, 64, 16, 16, 690, 206, -2200),
    Tile(32, 32, 64, 16, 16, 600, 176, -1200),
    Tile(32, 32, 128, 16, 16, 830, 276, -100),
    Tile(32, 64, 64, 16, 32, 760, 240, -1500),
    Tile(32, 64, 128, 16, 32, 870, 450, 500),
    Tile(64, 64, 64, 32, 32, 930, 445, 100),
    Tile(128, 64, 64, 32, 32, 950, 984, 100),
    Tile(128, 128, 64, 64, 64, 1800, 1400, 10200),
)
LAST_FLOAT: tuple[Tile, ...] = (
    Tile(32, 32, 16, 4, 4, 470, 134, 1700),
    Tile(64, 64, 16, 4, 4, 560, 430, 300),
    Tile(64, 64, 16, 8, 8, 1000, 394, 7400),
    Tile(128, 128, 16, 8, 8, 1480, 1500, 12000),
)
# The same kernels with slices, and conv_last_sliced: k is a step of all slices of a workgroup, each
# of 16 terms in float32, and of n terms in half.
SLICED: tuple[Tile, ...] = (
    Tile(32, 32, 32, 4, 4, 470, 203, 1100),
    Tile(32, 32, 64, 4, 4, 620, 524, 400),
    Tile(32, 32, 128, 4, 4, 900, 1150, 2000),
)
SLICED_HALF: tuple[Tile, ...] = (
    Tile(32, 32, 64, 32, 32, 800, 207, 400),
    Tile(32, 32, 128, 32, 32, 780, 475, 0),
    Tile(32, 32, 256, 32, 32, 1000, 1625, -1000),
    Tile(16, 64, 256, 16, 64, 1270, 1118, -200),
)
# A measured way to compute a product: the name of a rule of `variants`, the shape of its tile
# (empty for a rule without tiles), and the number of parts. An empty name: as the model expects.
Choice = tuple[str, tuple[int, ...], int]
# Returns one of the tiles that fit a device, and the number of parts; None for none of them.
Pick = Callable[[Iterable[Tile], ProductSizes], tuple[Tile, int] | None]
# A kernel's dispatch and the number of parts into which its sums should be cut.
Chosen = tuple[Dispatch, int]


class ProductTask(NamedTuple):
    """A product or convolution for which a rule may have a faster kernel.

    Attributes:
        dispatch: the kernel of its operator.
        sizes: m, n, k and the batch count; of words as from `word_tiles.sizes_of`.
        info: the device.
        pick: returns one of the tiles that fit the device, and the number of parts.
    """

    dispatch: Dispatch
    sizes: ProductSizes
    info: DeviceInfo
    pick: Pick


KernelRule = Callable[[ProductTask], Chosen | None]


def soonest(tiles: Iterable[Tile], sizes: ProductSizes) -> tuple[Tile, int]:
    """Return the tile, and the number of parts to cut the sums into, that take the least time."""
    pairs = [(tile, count) for tile in tiles for count in counts(sizes[2])]
    return min(pairs, key=lambda pair: expected_ns(pair[0], pair[1], sizes))


def whole(tiles: Iterable[Tile], sizes: ProductSizes) -> tuple[Tile, int]:
    """Return the tile that takes the least time with whole sums, for kernels that cut none."""
    return min(tiles, key=lambda tile: expected_ns(tile, 1, sizes)), 1


def first(tiles: Iterable[Tile], sizes: ProductSizes) -> tuple[Tile, int] | None:
    """Return the first tile, with whole sums: the pick of a CPU, whose times have no model."""
    del sizes
    return next(((tile, 1) for tile in tiles), None)


def only(shape: Sequence[int], count: int) -> Pick:
    """Return a pick of the first tile whose shape begins so, and of `count` parts, if any."""

    def pick(tiles: Iterable[Tile], sizes: ProductSizes) -> Any:
        del sizes
        return next(
            ((tile, count) for tile in tiles if tile.shape[: len(shape)] == tuple(shape)), None
        )

    return pick


def counts(k: int) -> list[int]:
    """Return the numbers of parts into which a sum of k terms may be cut."""
    each = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, MOST_PARTS)
    return [count for count in each if count == 1 or count * SHORTEST_PART <= k]


def expected_ns(tile: Tile, count: int, sizes: ProductSizes) -> float:
    """Return the time that a product takes in tiles.

    Args:
        tile: how the result is cut into workgroups.
        count: the parts into which each sum is cut.
        sizes: m, n, k and the batch count.
    """
    m, n, k, batch = sizes
    workgroups = -(-m // tile.m) * -(-n // tile.n) * batch * count
    steps = -(-k // (count * tile.k))
    load = workgroups / tile.units if tile.more_ns else -(-workgroups // tile.units)
    time = tile.ends_ns + tile.more_ns * max(0, load - 1)
    time += steps * max(tile.alone_ns, load * tile.busy_ns)
    if n * k > CACHED:
        step = 2 * tile.n * tile.k
        under_way = min(workgroups * step, UNITS * MOST_UNDER_WAY)
        waiting = 2 * n * k * (LATENCY_NS + step / READ_BYTES_PER_NS) / under_way
        time = max(time, math.hypot(2 * n * k / MEMORY_BYTES_PER_NS, waiting))
    if count == 1:
        return time
    return time + SECOND_NS + 4 * m * n * batch * count / SECOND_BYTES_PER_NS


def parts(workgroups: int, k: int, each: int = 2) -> int:
    """Return into how many parts a kernel without a tile cuts a sum of k terms.

    Args:
        workgroups: the workgroups of whole sums.
        k: the terms of a sum.
        each: the workgroups that keep one compute unit busy.
    """
    return max(1, min(each * UNITS // workgroups, k // SHORTEST_PART, MOST_PARTS))
