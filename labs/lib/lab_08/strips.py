"""Orders of output tiles through a cache of strips, replayed and drawn. Visited by lab 08b."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["ORDERS", "SMALL", "bytes_loaded", "draw_orders", "replay"]

Tiles = Sequence[tuple[int, int]]
# Tiles, bytes of the strips of a and of b, and bytes of the cache.
SMALL = ([(0, 0), (0, 1), (0, 3), (0, 4), (1, 0), (1, 1), (1, 2), (1, 4), (2, 0), (2, 1), (2, 2),
          (2, 3), (2, 4)], [3, 1, 1], [1, 2, 2, 1, 1], 7)  # fmt: skip
ORDERS = {
    "rows": lambda tile: tile,
    "snake": lambda tile: (tile[0], tile[1] if tile[0] % 2 == 0 else -tile[1]),
    "squares of 3": lambda tile: (tile[0] // 3, tile[1] // 3, tile),
}


def replay(tiles: Tiles, a: Sequence[int], b: Sequence[int], cache: int) -> list[int]:
    """Return the bytes that each tile of an order loads, through a least-recently-used cache.

    A tile (i, j) uses strip i of a, then strip j of b. A strip that is not in the cache is loaded;
    before that, the strips whose last use is longest ago leave until there is room.

    Args:
        tiles: the order.
        a: bytes of each strip of a.
        b: bytes of each strip of b.
        cache: bytes of the cache.
    """
    resident: dict[tuple[str, int], int] = {}  # the least recently used strip comes first
    loads, used = [], 0
    for i, j in tiles:
        loaded = 0
        for strip, size in ((("a", i), a[i]), (("b", j), b[j])):
            if strip not in resident:
                loaded += size
                used += size
                while used > cache and resident:
                    used -= resident.pop(next(iter(resident)))
            resident[strip] = resident.pop(strip, size)
        loads.append(loaded)
    return loads


def bytes_loaded(tiles: Tiles, a: Sequence[int], b: Sequence[int], cache: int) -> int:
    """Return the bytes that an order of tiles loads altogether.

    Args:
        tiles: the order.
        a: bytes of each strip of a.
        b: bytes of each strip of b.
        cache: bytes of the cache.
    """
    return sum(replay(tiles, a, b, cache))


def draw_orders(
    orders: Mapping[str, Tiles], a: Sequence[int], b: Sequence[int], cache: int, caption: str
) -> Picture:
    """Draw orders of tiles as paths over their grids; a tile is darker if it loads more.

    Args:
        orders: lists of tiles by title.
        a: bytes of each strip of a.
        b: bytes of each strip of b.
        cache: bytes of the cache.
        caption: text below the picture.
    """
    cell = min(22.0, 220 / max(len(a), len(b)))
    wide, high = cell * len(b) + 24, cell * len(a)
    page, said = Diagram(max(370, int(16 + wide * len(orders))), int(high + 56)), []
    most = max((max(replay(tiles, a, b, cache)) for tiles in orders.values() if tiles), default=1)
    for number, (title, tiles) in enumerate(orders.items()):
        loads, left = replay(tiles, a, b, cache), 12 + wide * number
        page.note((left, 16), f"{title}: {sum(loads)} bytes", bold=True)
        for (i, j), loaded in zip(tiles, loads, strict=True):
            place = (left + cell * j, 28 + cell * i, cell - 1, cell - 1)
            page.box(
                place, "", "orange" if loaded else "grey", shade=0.1 + 0.9 * (loaded / most) ** 2
            )
        middle = [(left + cell * (j + 0.5), 28 + cell * (i + 0.5)) for i, j in tiles]
        for start, end in zip(middle, middle[1:], strict=False):
            page.line(start, end)
        for x, y in middle[:1]:
            page.dot((x, y))
        said.append(f"{title} loads {sum(loads)}")
    page.note(
        (12, high + 48), "dot: first tile; grey: loads nothing; the darker, the more bytes", size=11
    )
    return page.picture("Orders of tiles. " + "; ".join(said), caption)
