"""Pictures of command lists: hazards and barriers, a staging ring, groups under a cap.

A command is plain data: (name, reads, writes), each access (arena, first byte, byte after the
last). Visited by lab 06.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from vklab.plan import barriers as planned
from vklab.plan import device_chunk
from vklab.plan.barriers import Access, Barrier
from vklab.plan.chunk import Chunk
from vklab.plan.memory import WEIGHTS, Slot
from vklab_course.picture import Picture
from vklab_course.piece import Given, Piece
from vklab_labs.shared.diagram import Diagram, draw_steps
from vklab_labs.shared.grouping import Work, kept_bytes
from vklab_labs.shared.lanes import draw_timeline

__all__ = ["BARRIERS", "as_command", "commands_of", "draw_gaps", "draw_groups", "draw_hazards",
           "draw_masks", "draw_path", "draw_refill", "draw_ring", "full_barriers"]  # fmt: skip

Span = tuple[str, int, int]
Command = tuple[str, tuple[Span, ...], tuple[Span, ...]]
Hazard = tuple[int, int, str]
COLOUR = {"RAW": "red", "WAR": "blue", "WAW": "orange"}
EVERYWHERE = ("compute_shader", "transfer")
ROW, LANE, LIST = 40, 44, 330


def as_command(access: Access, name: str = "") -> Command:
    """Return what one step of a plan reads and writes, as a plain command; weights left out."""

    def spans(slots: Sequence[Slot]) -> tuple[Span, ...]:
        return tuple(
            (s.arena, s.offset_bytes, s.offset_bytes + s.size_bytes)
            for s in slots
            if not s.arena.startswith(WEIGHTS)
        )

    return name, spans(access.reads), spans(access.writes)


def commands_of(chunk: Chunk) -> list[Command]:
    """Return the steps of a chunk as plain commands, named by their first node."""
    return [
        as_command(device_chunk.access(step, chunk.memory.slots), name.split(" + ")[0])
        for name, step in zip(chunk.nodes, chunk.steps, strict=True)
    ]


def full_barriers(numbers: Sequence[int], count: int) -> tuple[Barrier, ...]:
    """Return barriers before these steps, and one after the last step for the host.

    Args:
        numbers: the number of the step after each barrier.
        count: the number of steps.
    """
    between = [Barrier(number, EVERYWHERE, EVERYWHERE) for number in numbers]
    return (*between, Barrier(count, EVERYWHERE, ("host",)))


def draw_path() -> Picture:
    """Draw the path of a written byte, from one kernel to the next, step by step."""
    places = {
        "first kernel": "orange",
        "its cache": "grey",
        "memory": "green",
        "another cache": "grey",
        "second kernel": "blue",
    }
    early = "A second kernel that began now could still read 3."
    steps = (
        (
            "The first kernel has written 7 into its own cache.",
            early,
            ("runs", "x = 7", "x = 3", "x = 3", ""),
        ),
        (
            "1 execution dependency: the first kernel has ended.",
            early,
            ("has ended", "x = 7", "x = 3", "x = 3", ""),
        ),
        (
            "2 available: the written bytes have left the writer's cache.",
            early,
            ("has ended", "", "x = 7", "x = 3", ""),
        ),
        (
            "3 visible: the reader's cache has dropped its old copy.",
            "A second kernel that begins now reads 7.",
            ("has ended", "", "x = 7", "", ""),
        ),
        ("The second kernel runs.", "", ("has ended", "", "x = 7", "x = 7", "reads 7")),
    )
    pages, before = [], steps[0][2]
    for number, (words, warning, states) in enumerate(steps):
        page = Diagram(700, 134).note((6, 18), words, bold=True).note((6, 118), warning)
        for n, (name, colour) in enumerate(places.items()):
            new = states[n] != before[n]
            page.box(
                (6 + 142 * n, 36, 112, 52),
                f"{name}\n{states[n]}",
                colour,
                shade=0.5 if new else 0.15,
                bold=new,
            )
        for n in {0: (0,), 2: (1,), 4: (2, 3)}.get(number, ()):
            page.arrow((118 + 142 * n, 62), (147 + 142 * n, 62))
        held = "; ".join(f"{n}: {s or 'no x'}" for n, s in zip(places, states, strict=True))
        pages.append((page, f"{words} {held}. {warning}".strip()))
        before = states
    return draw_steps(
        pages,
        "The path of a written byte: x was 3 and becomes 7. None of the three steps happens by "
        "itself between two commands.",
    )


def draw_gaps() -> Picture:
    """Draw three hazards as gaps on a line of commands, and two barriers that order them."""
    page = Diagram(660, 156)
    for n in range(6):
        page.box((10 + 108 * n, 8, 92, 26), f"command {n}", "grey")
    for row, (i, j, kind) in enumerate(((0, 2, "RAW"), (1, 3, "WAR"), (3, 5, "RAW"))):
        place = (56 + 108 * i, 48 + 34 * row, 108 * (j - i), 24)
        page.box(place, f"({i}, {j}, {kind})", COLOUR[kind])
    for number in (2, 5):
        page.box((2 + 108 * number, 4, 4, 146), "", "green", shade=0.9)
    return page.picture(
        "Three gaps on a line of six commands; a barrier before command 2 crosses the first two "
        "gaps, a barrier before command 5 the third one.",
        "Two barriers (green), before commands 2 and 5, order three hazards.",
    )


def draw_masks() -> Picture:
    """Draw the four masks of a barrier."""
    page = Diagram(680, 148)
    for n, (title, words, colour) in enumerate(
        (
            ("source stage", "commands of this stage\nmust have ended", "orange"),
            ("source access", "these writes become\navailable", "orange"),
            ("target stage", "commands of this stage\nwait", "blue"),
            ("target access", "these accesses see\nthe writes", "blue"),
        )
    ):
        page.box((8 + 168 * n, 26, 158, 62), f"{title}\n{words}", colour)
    page.note((8, 16), "before the barrier", bold=True)
    page.note((344, 16), "after the barrier", bold=True)
    page.note(
        (8, 112),
        "The two stages are the execution dependency: enough for WAR.\nThe two "
        "accesses are the rest of the memory dependency: RAW and WAW need them, too.",
    )
    return page.picture(
        "Source stage, source access, target stage and target access, with what each does.",
        "The masks of one barrier. An access has an effect only together with its stage.",
    )


def draw_refill() -> Picture:
    """Draw a staging buffer that is refilled before the device has read it."""
    host = [
        ("write 0", 0, 1.4, "blue"),
        ("submit", 1.4, 2.4, "orange"),
        ("write 1", 2.4, 3.8, "red"),
        ("submit", 3.8, 4.8, "orange"),
    ]
    device = [("copy 0", 4.9, 6.4, "green"), ("copy 1", 6.4, 8, "green")]
    return draw_timeline(
        {"host": host, "device": device},
        [("host", 2.1, "device", 4.9), ("host", 4.5, "device", 6.6)],
        alt="The host writes piece 0, submits, writes piece 1, submits; the device copies later.",
        caption="Nothing makes the host wait between submit and write 1.",
    )


def draw_hazards(
    commands: Sequence[Command], hazards: Sequence[Hazard], barriers: Sequence[int] = (),
    proof: Sequence[tuple[int, int]] = (), *, caption: str,
) -> Picture:  # fmt: skip
    """Draw commands from top to bottom, a bar for each hazard, a line for each barrier.

    Args:
        commands: the list.
        hazards: (earlier, later, kind) of each hazard; the bar spans the two commands.
        barriers: numbers of the commands that a barrier stands before.
        proof: hazards to fill, as (earlier, later).
        caption: the line below.
    """
    lanes: list[int] = []  # the last command of the lowest bar in each lane
    places = []
    for earlier, later, kind in sorted(hazards, key=lambda h: (h[0], h[1], h[2])):
        lane = next((n for n, end in enumerate(lanes) if end < earlier), len(lanes))
        lanes[lane : lane + 1] = [later]
        places.append((lane, earlier, later, kind))
    width = LIST + LANE * max(len(lanes), 3) + 20
    page = Diagram(width, ROW * len(commands) + 16)
    for number, (name, reads, writes) in enumerate(commands):
        y = 10 + ROW * number
        page.note((6, y + 17), f"{number}  {name}", bold=True)
        for word, spans, line in (("reads", reads, 10), ("writes", writes, 24)):
            page.note((110, y + line), f"{word} {_listed(spans)}", size=11)
    unseen = set(map(tuple, proof))
    for lane, earlier, later, kind in places:
        cut = any(earlier < number <= later for number in barriers)
        y = 12 + ROW * earlier
        place = (LIST + LANE * lane, y, 36.0, ROW * (later - earlier) + 24)
        colour, proves = COLOUR.get(kind, "grey"), (earlier, later) in unseen
        unseen -= {(earlier, later)}  # of a pair with several kinds, one bar is enough
        page.box(place, "", colour, dashed=cut and not proves, filled=proves or not cut, shade=0.4)
        page.note((place[0] + 18, y + 18), kind, anchor="middle", bold=proves)
    for number in barriers:
        page.box((LIST - 8, 4 + ROW * number, width - LIST + 2, 4), "", "green", shade=0.9)
    left = sum(not any(a < n <= b for n in barriers) for a, b, _ in hazards)
    listed = "; ".join(f"{kind} from {a} to {b}" for a, b, kind in hazards) or "none"
    return page.picture(
        f"{len(commands)} commands; hazards: {listed}; barriers before "
        f"{list(barriers)}; {left} hazards without a barrier",
        caption,
    )


def _listed(spans: Sequence[Span]) -> str:
    """Return accesses as text; an arena is named once."""
    arenas: dict[str, list[str]] = {}
    for arena, first, behind in spans:
        arenas.setdefault(arena, []).append(f"{first}:{behind}")
    return "; ".join(f"{arena} {', '.join(parts)}" for arena, parts in arenas.items())


def draw_ring(
    sizes: Sequence[int], ring: int, plan: Sequence[tuple[int, int]],
    arrived: Sequence[Sequence[int]], caption: str,
) -> Picture:  # fmt: skip
    """Draw the place of each piece in a staging ring, a row for each piece.

    Args:
        sizes: bytes of each piece.
        ring: bytes of the ring.
        plan: (offset, timeline value to wait for) of each piece.
        arrived: the numbers of the pieces that arrived in the place of each piece.
        caption: the line below; where a piece does not arrive, it says what red means.
    """
    left, scale, page = 250, 420 / ring, Diagram(720, 30 * len(sizes) + 26)
    rows = []
    for row, (size, (offset, value)) in enumerate(zip(sizes, plan, strict=True)):
        y, right = 6 + 30 * row, list(arrived[row : row + 1]) == [[row]]
        waits = f"wait for {value} before writing" if value else "no wait"
        page.note((6, y + 17), f"piece {row}", bold=True)
        page.note((66, y + 17), waits)
        page.box((left, y, 420, 24), "", "grey", filled=False)
        begin, end = (min(max(at, 0), ring + 24) for at in (offset, offset + size))
        page.box(
            (left + scale * begin, y, scale * max(end - begin, 2), 24),
            f"{size}",
            "blue" if right else "red",
            shade=0.4,
        )
        rows.append(
            f"piece {row}: bytes {offset} to {offset + size}, {waits}, "
            f"{'right' if right else 'wrong'}"
        )
    page.note((left, 30 * len(sizes) + 18), "byte 0", size=11)
    page.note((left + 420, 30 * len(sizes) + 18), f"byte {ring}", anchor="end", size=11)
    if any(row.endswith("wrong") for row in rows):
        caption += " Red: this piece does not arrive as it was sent."
    return page.picture(f"Pieces in a ring of {ring} bytes. {'; '.join(rows)}", caption)


def draw_groups(
    work: Work, groups: Sequence[Sequence[str]], cap: int,
    caption: str,
) -> Picture:  # fmt: skip
    """Draw groups of commands between barriers, and below each the bytes that are live.

    Args:
        work: (bytes of its result, commands whose results it reads) of each command.
        groups: the names of each group.
        cap: most bytes that may be live.
        caption: the line below; where a group breaks a rule, it says what red means.
    """
    high, wide = max(map(len, groups), default=1), 640 / max(len(groups), 1)
    base = 44 * high + 30
    page = Diagram(740, base + 120)
    page.note((6, 20), "commands")
    page.note((6, base + 60), "live bytes")
    done: set[str] = set()
    sizes, wrong = [], False
    for number, group in enumerate(groups):
        x = 84 + wide * number
        for row, name in enumerate(group):
            late = any(read not in done for read in work[name][1])
            wrong |= late
            reads = f"\nreads {' '.join(work[name][1])}" if work[name][1] else ""
            page.box(
                (x + 6, 6 + 44 * row, wide - 16, 38),
                f"{name}: {work[name][0]}{reads}",
                "red" if late else "blue",
            )
        kept, own = kept_bytes(work, done), sum(work[name][0] for name in group)
        live = kept + own
        sizes.append(live)
        wrong |= live > cap
        tall = 80 * min(live / cap, 1.2)
        page.box((x + 6, base + 96 - tall, wide - 16, tall), "", "red" if live > cap else "green")
        page.note(
            (x + wide / 2 - 2, base + 112), f"{kept} + {own} = {live}", size=11, anchor="middle"
        )
        if number:
            page.box((x - 3, 4, 4, base + 100), "", "green", shade=0.9)
        done |= set(group)
    page.box((84, base + 15, 648, 1.5), "", "red")
    page.note((6, base + 20), f"cap {cap}")
    listed = "; ".join(
        f"{' '.join(group)} ({live} live)" for group, live in zip(groups, sizes, strict=True)
    )
    if wrong:
        caption += " Red: too many bytes, or a result that is not there yet."
    return page.picture(f"{len(groups)} groups under a cap of {cap} bytes: {listed}", caption)


# -------------------------------------------------------------- the piece of exercises 1 and 2

_REAL = planned.find_barriers  # while a piece stands at the seam, the name means the piece


def _runtime_hazards(params: Mapping[str, Any]) -> Callable[..., list[Hazard]]:
    """Return the runtime's test of two slots behind the signature of exercise 1.

    The runtime keeps no list of hazards: it places a barrier as soon as it meets one.
    """

    def find_hazards(commands: Sequence[Command], barriers: Iterable[int] = ()) -> list[Hazard]:
        numbers, found = sorted(barriers), []
        slots = [
            [[Slot(arena, first, end - first) for arena, first, end in spans] for spans in both]
            for _, *both in commands
        ]
        for one, other in combinations(range(len(slots)), 2):
            if bisect(numbers, one) < bisect(numbers, other):
                continue
            for kind, before, after in (("RAW", 1, 0), ("WAR", 0, 1), ("WAW", 1, 1)):
                pairs = ((a, b) for a in slots[one][before] for b in slots[other][after])
                if any(a.overlaps(b) for a, b in pairs):
                    found.append((one, other, kind))
        return found

    return find_hazards


def _runtime_barriers(
    params: Mapping[str, Any],
) -> Callable[[Sequence[Hazard]], tuple[list[int], list[tuple[int, int]]]]:
    """Return the runtime's `find_barriers` behind the signature of exercise 2.

    Each hazard becomes an arena that its earlier command writes and its later command reads. The
    proof is read off the result: at each barrier there is a hazard that the one before leaves.
    """

    def fewest_barriers(hazards: Sequence[Hazard]) -> tuple[list[int], list[tuple[int, int]]]:
        count = 1 + max((later for _, later, _ in hazards), default=0)
        work = [
            Access(
                "compute_shader",
                tuple(Slot(f"h{n}", 0, 1) for n, (_, j, _) in enumerate(hazards) if j == step),
                tuple(Slot(f"h{n}", 0, 1) for n, (i, _, _) in enumerate(hazards) if i == step),
            )
            for step in range(count)
        ]
        numbers = [barrier.before for barrier in _REAL(work, False)]
        gaps = sorted((later, -earlier) for earlier, later, _ in hazards)
        last = dict(reversed(gaps))  # of the hazards of a command, the shortest
        return numbers, [(-last[number], number) for number in numbers]

    return fewest_barriers


def _placing(hazards: Given, fewest: Given) -> Callable[..., tuple[Barrier, ...]]:
    """Return `find_barriers` with two answers; it raises AssertionError for a missing barrier."""
    known = _runtime_hazards({})

    def find_barriers(work: Sequence[Access], to_host: bool = True) -> tuple[Barrier, ...]:
        commands = [as_command(access, str(number)) for number, access in enumerate(work)]
        found = hazards.value(commands)
        assert isinstance(found, list | tuple | set), f"{found!r} is no list of hazards"
        for each in found:
            assert isinstance(each, list | tuple) and len(each) == 3, f"{each!r} is no hazard"
        got = fewest.value(list(found))
        pair = isinstance(got, tuple | list) and len(got) == 2
        assert pair and isinstance(got[0], tuple | list), f"{got!r} are not two lists"
        for number in got[0]:
            inside = isinstance(number, int | np.integer) and 0 < number < len(work)
            assert inside, f"there is no place for a barrier before command {number!r}"
        numbers = sorted({int(number) for number in got[0]})
        for earlier, later, kind in known(commands, numbers)[:1]:
            raise AssertionError(
                f"no barrier stands between command {earlier} and command {later}, a {kind} hazard"
            )
        return _with_the_last(numbers, work, to_host)

    return find_barriers


def _every_step(work: Sequence[Access], to_host: bool = True) -> tuple[Barrier, ...]:
    return _with_the_last(range(1, len(work)), work, to_host)


def _with_the_last(
    numbers: Sequence[int], work: Sequence[Access], to_host: bool
) -> tuple[Barrier, ...]:
    """Return barriers of all stages; the one for the host only where the runtime asks for it."""
    return full_barriers(numbers, len(work))[: len(numbers) + (to_host and len(work) > 0)]


BARRIERS = Piece(
    "find_barriers",
    "vklab.plan.barriers.find_barriers",
    {"06-1": _runtime_hazards, "06-2": _runtime_barriers},
    _placing,
    _every_step,
)
