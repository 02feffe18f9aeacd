"""Natural rules for a cap on memory: the bytes that they move, and not the moves themselves.

Visited by lab 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from vklab_labs.lab_11.offload import (
    Move,
    Values,
    farthest_first,
    gap,
    gaps_of,
    live_bytes,
    moved_bytes,
)

__all__ = ["best_random", "natural", "rules"]


def _brought_back(values: Values, cap: int, moves: Sequence[Move], orders: Iterable[Sequence[int]]
                 ) -> int:  # fmt: skip
    """Keep what fits, in each order of these moves; return the fewest bytes moved.

    Args:
        values: bytes and uses by name.
        cap: bytes of the device.
        moves: what is sent away at first.
        orders: numbers of moves, in the order in which they are taken back.
    """
    alone, spans = live_bytes(values, moves), [gap(values, move) for move in moves]
    found = [moved_bytes(values, moves)]
    for order in orders:
        live, left = [*alone], []
        for number in order:
            size, away = values[moves[number][0]][0], spans[number]
            if max(live[away.start : away.stop]) + size > cap:
                left.append(moves[number])
                continue
            for step in away:
                live[step] += size
        found.append(moved_bytes(values, left))
    return min(found)


def _most_help(values: Values, cap: int) -> list[Move]:
    """Send away what brings most bytes under the cap for each byte moved, until all fits."""
    moves: list[Move] = []
    left, live = gaps_of(values), live_bytes(values)
    while max(live) > cap:
        names = {name for name, _ in moves}
        helps = [
            sum(min(values[n][0], max(0, live[step] - cap)) for step in gap(values, (n, at)))
            / (values[n][0] * (2 - (n in names)))
            for n, at in left
        ]
        moves.append(left.pop(int(np.argmax(helps))))
        for step in gap(values, moves[-1]):
            live[step] -= values[moves[-1][0]][0]
    return moves


def rules(values: Values, cap: int) -> dict[str, int]:
    """Return the bytes that each natural rule moves.

    Args:
        values: bytes and uses by name.
        cap: bytes of the device; all rules can reach it.
    """
    starts = {
        "farthest": farthest_first(values, cap),
        "most help": _most_help(values, cap),
        "all": gaps_of(values),
    }
    keys: Mapping[str, Callable[[Move], int]] = {
        "largest": lambda move: -values[move[0]][0],
        "smallest": lambda move: values[move[0]][0],
        "shortest": lambda move: len(gap(values, move)),
    }
    found = {name: moved_bytes(values, moves) for name, moves in starts.items()}
    for name, moves in starts.items():
        for title, key in keys.items():
            order = sorted(range(len(moves)), key=[*map(key, moves)].__getitem__)
            found[f"{name}, keep the {title}"] = _brought_back(values, cap, moves, [order])
    return found


def best_random(values: Values, cap: int, count: int) -> int:
    """Return the fewest bytes if all moves are taken back in random orders, as far as possible.

    Args:
        values: bytes and uses by name.
        cap: bytes of the device.
        count: how many random orders to try.
    """
    chance, gaps = np.random.default_rng(0), gaps_of(values)
    orders = (chance.permutation(len(gaps)).tolist() for _ in range(count))
    return _brought_back(values, cap, gaps, orders)


def natural(values: Values, cap: int, count: int) -> dict[str, int]:
    """Return the bytes that each natural answer moves: the rules, and the best of random orders.

    Args:
        values: bytes and uses by name.
        cap: bytes of the device; all rules can reach it.
        count: how many random orders to try.
    """
    return rules(values, cap) | {f"best of {count} random": best_random(values, cap, count)}
