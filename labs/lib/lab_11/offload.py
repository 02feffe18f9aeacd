"""Values that leave the device between two uses, and what it costs to fit under a cap.

Values are {name: (bytes, steps that use it)}; the first of these steps writes the value. A move
(name, step) sends a value away after this use; it is back for the next one. Visited by lab 11.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from vklab_labs.shared.recorded_graphs import RecordedGraph, irregular

__all__ = ["CAP", "Move", "VALUES", "Values", "drawn_values", "farthest_first", "gap", "gaps_of",
           "live_bytes", "moved_bytes", "values_of"]  # fmt: skip

Values = Mapping[str, tuple[int, tuple[int, ...]]]
Move = tuple[str, int]
CAP = 24
VALUES: Values = {"a": (4, (0, 1, 4, 6)), "b": (8, (1, 2, 5)), "c": (7, (2, 3, 7)),
                  "d": (6, (3, 4, 8)), "e": (2, (4, 5)), "f": (6, (5, 6)), "g": (4, (6, 7)),
                  "h": (6, (7, 8)), "i": (2, (8, 9))}  # fmt: skip


def drawn_values(random: np.random.Generator, count: int) -> Values:
    """Return the values of an irregular wiring; a value that nobody reads is an output.

    Args:
        random: the source of chance.
        count: number of values; outputs are used in this step, the last one.
    """
    uses = [[number] for number in range(count)]
    for number, reads in enumerate(irregular(random, count, (3,), reach=9)):
        for read in reads:
            uses[read].append(number)
    return {
        f"v{n}": (int(random.integers(1, 21)), tuple(steps if len(steps) > 1 else [n, count]))
        for n, steps in enumerate(uses)
    }


def gap(values: Values, move: Move) -> range:
    """Return the steps in which a move keeps its value away.

    Raises a ValueError if the move does not follow a use, or follows the last one.
    """
    name, step = move
    uses = values[name][1]
    if step not in uses[:-1]:
        raise ValueError(
            f"{move} is no move: {name} is used in steps {uses}, and may leave after "
            "each of them but the last"
        )
    return range(step + 1, uses[uses.index(step) + 1])


def gaps_of(values: Values) -> list[Move]:
    """Return every move that brings something."""
    return [
        (name, at) for name, (_, uses) in values.items() for at in uses[:-1] if at + 1 not in uses
    ]


def live_bytes(values: Values, moves: Iterable[Move] = ()) -> list[int]:
    """Return the bytes on the device in each step.

    Args:
        values: the values; each is on the device from its first to its last use.
        moves: what is sent away in between.
    """
    live = [0] * (1 + max((uses[-1] for _, uses in values.values()), default=0))
    for size, uses in values.values():
        for step in range(uses[0], uses[-1] + 1):
            live[step] += size
    for move in moves:
        for step in gap(values, move):
            live[step] -= values[move[0]][0]
    return live


def moved_bytes(values: Values, moves: Collection[Move]) -> int:
    """Return the bytes that cross the bus: out once for each value, and back for each move."""
    back = sum(values[name][0] for name, _ in moves)
    return back + sum(values[name][0] for name in {name for name, _ in moves})


def farthest_first(values: Values, cap: int) -> list[Move]:
    """Return moves by Belady's rule: in each step, what is used last goes first, until all fits.

    Source: Belady, A Study of Replacement Algorithms for a Virtual-Storage Computer, 1966
    """
    moves: list[Move] = []
    live = live_bytes(values)
    for step in range(len(live)):
        idle = [
            (min(use for use in uses if use > step), name, max(u for u in uses if u < step))
            for name, (_, uses) in values.items()
            if uses[0] < step < uses[-1] and step not in uses
        ]
        for _, name, before in sorted(idle, reverse=True):
            if live[step] > cap and (name, before) not in moves:
                moves.append((name, before))
                for away in gap(values, (name, before)):
                    live[away] -= values[name][0]
    return moves


def values_of(graph: RecordedGraph, unit: int = 1 << 10) -> Values:
    """Return the values that the nodes of a graph write, in units of bytes, with their uses.

    Graph outputs are used once more, after the last step.
    """
    uses: dict[str, list[int]] = {}
    for step, node in enumerate(graph.nodes):
        for name in node.outputs:
            uses[name] = [step]
        for name in graph.activations(node):
            if name in uses:
                uses[name].append(step)
    for name in graph.outputs:
        if name in uses:
            uses[name].append(len(graph.nodes))
    return {
        name: (-(-graph.size_bytes(name) // unit), tuple(steps)) for name, steps in uses.items()
    }
