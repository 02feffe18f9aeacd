"""Judgements on an observed kernel: each returns "" or a sentence for the student.

They are pure functions of what was counted, so a verdict never depends on a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vklab_course.counting import observe
from vklab_course.counting.counts import Counts
from vklab_course.counting.layout import READ, WRITE
from vklab_course.counting.observe import Counted, Observed

__all__ = ["ALL_ARRIVE", "barrier_shape", "input_shape", "load_shape", "order_matters",
           "outside_shape", "partial_shape", "race_shape", "room_shape", "row_shape",
           "shared_shape", "size_shape", "turn_shape", "unset_shape", "work_shape"]  # fmt: skip

Owner = Callable[[np.ndarray], np.ndarray]
ALL_ARRIVE = "all must arrive at each barrier"
_WHO = "Which invocation should write element {}, and which one writes it in your kernel?"
ORDERS = {
    "mirrored": "with the invocations of each workgroup in mirrored order",
    "reversed": "with the workgroups in reversed order",
    "counted": "in a second run",
}


def outside_shape(observed: Observed) -> str:
    """Name the first element outside of a buffer or shared array that was read or written."""
    return observe.outside(observed.dispatches, observed.run)


def work_shape(
    observed: Observed,
    buffer: str,
    *,
    elements_per_invocation: int | None = 1,
    writes_per_element: int | None = 1,
) -> str:
    """Judge how the writes of a buffer are shared out among invocations.

    Args:
        observed: the observed kernel.
        buffer: name of the buffer of results.
        elements_per_invocation: most elements that one invocation may write; None for any number.
        writes_per_element: most writes of one element; None for any number.
    """
    if said := outside_shape(observed):
        return said
    counts = observed.counts
    if buffer not in counts.writes:
        return f"nothing was written to {buffer}"
    written, writes = counts.elements_written[buffer], counts.writes[buffer]
    workers = np.flatnonzero(written)
    if not workers.size:
        return f"nothing was written to {buffer}"
    elements = int((writes > 0).sum())
    if (
        elements_per_invocation is not None
        and workers.size == 1 < written.size
        and (elements > elements_per_invocation)
    ):
        return (
            f"one invocation did all the work: invocation {workers[0]} wrote {elements} "
            f"elements of {buffer}, {written.size - 1} invocations wrote none"
        )
    if writes_per_element is not None and writes.max() > writes_per_element:
        return _often(counts, buffer, int(writes.argmax()), writes_per_element)
    most = elements_per_invocation
    if most is not None and written.max() > most * (writes_per_element or 1):
        worst = int(written.argmax())
        return (
            f"invocation {worst} wrote {written[worst]} elements of {buffer}, allowed are at "
            f"most {most}"
        )
    return ""


def _often(counts: Counts, buffer: str, element: int, most: int) -> str:
    """Say how often one element was written, and by how many invocations if the log tells."""
    times = int(counts.writes[buffer][element])
    logged = counts.logged(buffer, WRITE)
    by = np.unique(logged[logged[:, 1] == element, 0])
    if not counts.is_log_full and by.size > 1:
        return (
            f"element {element} of {buffer} was written by {by.size} invocations, the first "
            f"of them {', '.join(map(str, by[:3]))}"
        )
    allowed = "once" if most == 1 else f"at most {most} times"
    return f"element {element} of {buffer} was written {times} times, allowed is {allowed}"


def race_shape(observed: Observed) -> str:
    """Name an element of a shared array that two invocations use with no barrier between them."""
    for touch in observed.counts.races:
        verb = "reads" if touch.kind == READ else "writes"
        other = "writes" if touch.kind == READ else "reads or writes"
        return (
            f"invocation {touch.invocation} {verb} element {touch.element} of the shared array "
            f"{touch.buffer}, which another invocation of its workgroup {other} with no "
            "barrier between them"
        )
    return ""


def unset_shape(observed: Observed) -> str:
    """Name an element of a shared array of numbers that was read before anybody wrote it."""
    for touch in observed.counts.unset:
        return (
            f"invocation {touch.invocation} reads element {touch.element} of the shared array "
            f"{touch.buffer}, which nobody has written: its content is undefined"
        )
    return ""


def barrier_shape(observed: Observed) -> str:
    """Name an invocation that skips a barrier at which others of its workgroup wait."""
    counts = observed.counts
    made = counts.by_invocation["barriers"]
    groups = counts.group_of(np.arange(made.size))
    most = np.zeros(int(np.prod(counts.grid)), made.dtype)
    np.maximum.at(most, groups, made)
    for i in np.flatnonzero(made < most[groups])[:1]:
        return (
            f"invocation {i} meets {made[i]} barriers, another one of its workgroup "
            f"{most[groups[i]]}: {ALL_ARRIVE}"
        )
    paths = counts.by_invocation["barrier_path"]
    _, first = np.unique(groups, return_index=True)
    for i in np.flatnonzero(paths != paths[first][groups])[:1]:
        return (
            f"invocations {first[groups[i]]} and {i} of a workgroup meet different barriers: "
            f"{ALL_ARRIVE}"
        )
    return ""


def input_shape(observed: Observed, output: str) -> str:
    """Name a buffer of inputs that was written, or say that the results were read.

    Args:
        observed: the observed kernel.
        output: name of the buffer of results, which is for writing only.
    """
    for name, writes in observed.counts.writes.items():
        if name != output and (at := np.flatnonzero(writes)).size:
            return f"element {at[0]} of {name} was written, and {name} is an input"
    reads = observed.counts.reads.get(output)
    if reads is not None and (at := np.flatnonzero(reads)).size:
        return (
            f"element {at[0]} of {output} was read: a result depends on the inputs alone, not "
            f"on what {output} had before"
        )
    return ""


def turn_shape(observed: Observed, *, most: int) -> str:
    """Judge how many turns of loops one invocation makes.

    Args:
        observed: the observed kernel.
        most: most turns of one invocation.
    """
    turns = observed.counts.by_invocation["turns"]
    if not turns.size or turns.max() <= most:
        return ""
    worst = int(turns.argmax())
    return (
        f"invocation {worst} made {turns[worst]} turns of loops: its own share needs {most} at "
        "most, so it goes through the work of others"
    )


def shared_shape(observed: Observed, *, most: int) -> str:
    """Judge how often one invocation uses shared arrays.

    Args:
        observed: the observed kernel.
        most: most accesses of one invocation, atomic operations included.
    """
    by = observed.counts.by_invocation
    uses = by["shared_loads"].astype(np.int64) + by["shared_stores"] + by["atomics"]
    if not uses.size or uses.max() <= most:
        return ""
    worst = int(uses.argmax())
    return (
        f"invocation {worst} used shared arrays {uses[worst]} times: its own share needs "
        f"{most} at most, so it works for others"
    )


def size_shape(observed: Observed, *, size: int) -> str:
    """Judge whether the workgroups have the size that the dispatch is made for.

    Args:
        observed: the observed kernel.
        size: invocations of a workgroup.
    """
    given = int(np.prod(observed.counts.local))
    if given == size:
        return ""
    return (
        f"a workgroup of your kernel has {given} invocations; the host dispatches as many "
        f"workgroups as it needs with {size}"
    )


def load_shape(observed: Observed, buffer: str, *, most: int, most_elements: int) -> str:
    """Judge how many elements of a buffer one invocation reads.

    Args:
        observed: the observed kernel.
        buffer: name of a buffer of inputs.
        most: most reads of one invocation.
        most_elements: most different elements among them.
    """
    read = observed.counts.elements_read.get(buffer, np.zeros(0, int))
    pairs = np.unique(observed.counts.logged(buffer, READ), axis=0)
    different = np.bincount(pairs[:, 0], minlength=read.size)
    for count, limit, words in (
        (read, most, "elements"),
        (different, most_elements, "different elements"),
    ):
        if count.size and count.max() > limit:
            worst = int(count.argmax())
            return (
                f"invocation {worst} read {count[worst]} {words} of {buffer}, allowed are at "
                f"most {limit}"
            )
    return ""


def row_shape(observed: Observed, buffer: str, *, most: int) -> str:
    """Judge whether the elements that an invocation writes lie one after the other.

    Args:
        observed: the observed kernel.
        buffer: name of the buffer of results.
        most: elements of one invocation.
    """
    rows = observed.counts.logged(buffer, WRITE)
    order = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    apart = (np.diff(order[:, 0]) == 0) & (np.diff(order[:, 1]) > 1)
    if not (at := np.flatnonzero(apart)).size:
        return ""
    (invocation, one), other = order[at[0]], order[at[0] + 1][1]
    return (
        f"the elements of invocation {invocation} are not {most} in a row: after element {one} "
        f"comes {other}"
    )


def room_shape(observed: Observed, room: int) -> str:
    """Name an element that was read or written behind the last one of a longer array.

    Args:
        observed: the observed kernel.
        room: elements of each array behind its last one.
    """
    for verb, counted in (("written", observed.counts.writes), ("read", observed.counts.reads)):
        for name, touched in counted.items() if room else ():
            size = touched.size - room
            if (at := np.flatnonzero(touched[size:])).size:
                return (
                    f"element {size + at[0]} of {name} was {verb}: the push constants say that "
                    f"{name} ends with element {size - 1}, though its array is longer"
                )
    return ""


def partial_shape(
    observed: Observed,
    buffer: str,
    *,
    elements_per_invocation: int = 1,
    owner: Owner | None = None,
) -> str:
    """Judge a dispatch of some workgroups: their elements change, and no others.

    Args:
        observed: the observed kernel.
        buffer: name of the buffer of results.
        elements_per_invocation: elements that belong to each invocation, one after the other.
        owner: the invocation of each element, if they do not lie one after the other.
    """
    way = observed.dispatches.get("partial")
    if way is None or buffer not in way.counts.writes:
        return ""
    before = observed.run.buffers[buffer].reshape(-1)
    elements = np.arange(before.size)
    owners = owner(elements) if owner else elements // elements_per_invocation
    exists = owners < way.counts.by_invocation["stores"].size
    groups = way.counts.group_of(np.where(exists, owners, 0))
    ran = _ran(way)[groups]
    changed = _differ(way.buffers[buffer], before) | (way.counts.writes[buffer] > 0)
    expected = _differ(observed.buffers[buffer], before)
    only = f"the check also ran a part of the grid, only workgroups {_range(way)}: element"
    if (wrong := np.flatnonzero(exists & changed & ~ran)).size:
        return (
            f"{only} {wrong[0]} of {buffer} changed, but it is the work of workgroup "
            f"{_group(way, int(groups[wrong[0]]))}, which did not run. "
            f"{_WHO.format(wrong[0])}"
        )
    if (wrong := np.flatnonzero(exists & expected & ran & ~changed)).size:
        return (
            f"{only} {wrong[0]} of {buffer} did not change, but it is the work of workgroup "
            f"{_group(way, int(groups[wrong[0]]))}, which ran. {_WHO.format(wrong[0])}"
        )
    return ""


def _ran(way: Counted) -> np.ndarray:
    """Return a bool for each workgroup of the grid, by its linear number."""
    ran = np.zeros(way.counts.grid[::-1], bool)
    box = tuple(
        slice(first, first + count)
        for first, count in zip(way.base[::-1], way.groups[::-1], strict=True)
    )
    ran[box] = True
    return ran.reshape(-1)


def _differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    bits = np.dtype(f"u{one.itemsize}")
    return np.asarray(one.reshape(-1).view(bits) != other.reshape(-1).view(bits))


def _axes(way: Counted) -> int:
    return max((n + 1 for n, count in enumerate(way.counts.grid) if count > 1), default=1)


def _name(at: Sequence[int], axes: int) -> str:
    return str(at[0]) if axes == 1 else f"({', '.join(map(str, at[:axes]))})"


def _group(way: Counted, number: int) -> str:
    wide, high = way.counts.grid[0], way.counts.grid[1]
    return _name((number % wide, number // wide % high, number // (wide * high)), _axes(way))


def _range(way: Counted) -> str:
    last = [first + count - 1 for first, count in zip(way.base, way.groups, strict=True)]
    return f"{_name(way.base, _axes(way))} to {_name(last, _axes(way))}"


def order_matters(
    observed: Observed,
    buffers: Sequence[str] | None = None,
    *,
    relative: float = 1e-5,
    absolute: float = 1e-6,
) -> str:
    """Judge whether results depend on the order of invocations, which is a race.

    Args:
        observed: the observed kernel.
        buffers: names of the buffers of results; by default all.
        relative: relative difference of floats that does not count.
        absolute: absolute difference of floats that does not count.
    """
    for name in observed.buffers if buffers is None else buffers:
        plain = observed.buffers[name].reshape(-1)
        for way, words in ORDERS.items():
            if way not in observed.dispatches or name not in observed.dispatches[way].buffers:
                continue
            other = observed.dispatches[way].buffers[name].reshape(-1)
            differ = _differ(other, plain)
            if plain.dtype.kind == "f":
                differ = ~np.isclose(other, plain, relative, absolute, equal_nan=True)
            if (wrong := np.flatnonzero(differ)).size:
                n = wrong[0]
                return (
                    f"{words}, element {n} of {name} is {other[n]:g} instead of {plain[n]:g}: "
                    "invocations race for it; is a barrier or an atomic operation missing?"
                )
    return ""
