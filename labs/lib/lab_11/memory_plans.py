"""Pictures of memory plans: lifetimes, packings, rules, in-place writes, moves under a cap.

Visited by lab 11.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from vklab.base.draw import bytes_text, svg
from vklab.plan import memory
from vklab.plan.memory import Lifetime
from vklab_course.picture import Picture, picture
from vklab_labs.lab_11 import offload
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_alignment", "draw_bound", "draw_in_place", "draw_lives", "draw_moves",
           "draw_offload", "draw_orders", "draw_packing", "draw_slots", "draw_view",
           "slots_of"]  # fmt: skip

LEFT, WIDTH, HIGH = 120, 560, 110
LONG = 6  # steps from which on a thin bar has its name at its end
Bars = Mapping[str, Sequence[tuple[int, int, bool]]]  # first step, last step, away or not


def _chart(
    bars: Bars, live: Sequence[int], line: int, words: str, alt: str, caption: str,
    uses: Mapping[str, Sequence[int]] | None = None,
) -> Picture:  # fmt: skip
    """Draw a row of bars for each value, and below them the live bytes of each step.

    Args:
        bars: the bars of each value; one that is away is dashed.
        live: live bytes of each step.
        line: bytes at which a line is drawn.
        words: what the line means.
        alt: the content in words.
        caption: the line below.
        uses: steps to mark by a dot, by value; without them, steps at the line are orange.
    """
    row = 18 if len(bars) <= 20 else 9
    across, top = WIDTH / max(len(live), 1), 14 + row * len(bars)
    high = max([line, *live, 1])
    page = Diagram(LEFT + WIDTH + 12, top + HIGH + 58)
    for number, (name, spans) in enumerate(bars.items()):
        y = 6 + row * number
        end = 1 + max(last for _, last, _ in spans)
        right, room = LEFT + across * end + 4, 6 * len(name[:17])
        if row == 9 and end - spans[0][0] >= LONG:
            fits = right + room <= LEFT + WIDTH + 12  # otherwise its name stands before it
            place = right if fits else LEFT + across * spans[0][0] - 4
            page.note(
                (place, y + row / 2 + 2), name[:17], anchor="start" if fits else "end", size=10
            )
        elif row > 9 or number % 2 == 0:
            page.note((LEFT - 6, y + row / 2 + 2), name[:17], anchor="end", size=min(11, row + 1))
        for first, last, away in spans:
            page.box(
                (LEFT + across * first, y, across * (last - first + 1) - 1, row - 2),
                "",
                "grey" if away else "blue",
                dashed=away,
                filled=not away,
                shade=0.5,
            )
        for step in (uses or {}).get(name, ()):
            page.dot((LEFT + across * (step + 0.5), y + row / 2 - 1), 3)
    for step, count in enumerate(live):
        tall = HIGH * count / high
        colour = "red" if count > line or not uses and count == line else "green"
        page.box(
            (LEFT + across * step, top + 16 + HIGH - tall, across - 1, tall), "", colour, shade=0.5
        )
    up = top + 16 + HIGH * (1 - line / high)
    page.line((LEFT - 4, up), (LEFT + WIDTH, up)).note((LEFT - 6, up + 4), words, anchor="end")
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100) if across * n >= 22 or n == 100)
    for step in range(0, len(live), every):
        page.note(
            (LEFT + across * (step + 0.5), top + HIGH + 31), str(step), anchor="middle", size=10
        )
    page.note((LEFT + WIDTH / 2, top + HIGH + 50), "step", anchor="middle")
    return page.note((LEFT - 6, top + HIGH + 31), "live bytes", anchor="end").picture(alt, caption)


def draw_lives(
    lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int], caption: str
) -> Picture:
    """Draw lifetimes as bars, and the sum of live bytes below.

    Args:
        lives: first and last step by value.
        sizes: bytes by value.
        caption: the line below; the largest live set is added.
    """
    live = [0] * (1 + max((last for _, last in lives.values()), default=0))
    for name, (first, last) in lives.items():
        for step in range(first, last + 1):
            live[step] += sizes[name]
    most = max(live)
    steps = [str(step) for step, count in enumerate(live) if count == most]
    where = f"{len(steps)} steps" if len(steps) > 4 else f"step {', '.join(steps)}"
    said = f"Largest live set (orange): {bytes_text(most)} in {where}."
    return _chart(
        {name: [(*span, False)] for name, span in lives.items()},
        live,
        most,
        bytes_text(most),
        f"Lifetimes of {len(lives)} values, and live bytes by step. {said}",
        f"{caption} {said}",
    )


def draw_moves(
    values: offload.Values, moves: Collection[offload.Move], cap: int, caption: str
) -> Picture:
    """Draw when each value is on the device, when it is away, and the live bytes under the cap.

    Args:
        values: bytes and uses by name.
        moves: what leaves after which use.
        cap: bytes of the device.
        caption: the line below; the bytes moved are added.
    """
    bars, dots = {}, {}
    for name, (size, uses) in values.items():
        gaps = [offload.gap(values, (name, step)) for step in uses[:-1] if (name, step) in moves]
        starts = [uses[0], *(steps.stop for steps in gaps)]
        stops = [*(steps.start - 1 for steps in gaps), uses[-1]]
        bars[f"{name}: {size}"] = [
            *((a, b, False) for a, b in zip(starts, stops, strict=True)),
            *((steps.start, steps.stop - 1, True) for steps in gaps),
        ]
        dots[f"{name}: {size}"] = uses
    live = offload.live_bytes(values, moves)
    said = f"{offload.moved_bytes(values, moves)} bytes moved, at most {max(live)} live, cap {cap}."
    return _chart(
        bars,
        live,
        cap,
        f"cap {cap}",
        f"Values on the device and away: {said}",
        f"{caption} {said}",
        dots,
    )


def draw_packing(
    lifetimes: Sequence[Lifetime], packing: tuple[Mapping[str, int], int], caption: str
) -> Picture:
    """Draw a packing as a memory map: time to the right, addresses upwards.

    The title names two values that share bytes while both are alive.

    Args:
        lifetimes: the values.
        packing: offsets by name, and the size of the arena.
        caption: the line below.
    """
    offsets, size = packing
    bound = memory.lower_bound(lifetimes)
    title = f"arena: {bytes_text(size)}; largest live set (line): {bytes_text(bound)}"
    wrong = next(
        (
            f"WRONG: {a.name} and {b.name} are alive together and share bytes"
            for a, b in combinations(lifetimes, 2)
            if a.first <= b.last
            and b.first <= a.last
            and offsets[a.name] < offsets[b.name] + b.size_bytes
            and offsets[b.name] < offsets[a.name] + a.size_bytes
        ),
        "",
    )
    title = wrong or title
    boxes = [(o.name, o.first, o.last, offsets[o.name], o.size_bytes) for o in lifetimes]
    steps = 1 + max(o.last for o in lifetimes)
    return picture(svg.memory_map_svg(title, boxes, steps, size, bound), title, caption)


def draw_orders(table: Mapping[str, Mapping[str, float]], caption: str) -> Picture:
    """Draw how many percent above the largest live set each rule ends, by network.

    Args:
        table: for each rule its percent by column.
        caption: the line below.
    """
    columns = list(next(iter(table.values())))
    page = Diagram(210 + 92 * len(columns), 34 + 30 * len(table))
    for number, name in enumerate(columns):
        page.note((250 + 92 * number, 18), name, anchor="middle", size=11)
    for row, (rule, cells) in enumerate(table.items()):
        page.note((6, 46 + 30 * row), rule)
        for number, percent in enumerate(cells.values()):
            words = "bound" if round(percent, 1) == 0 else f"+{percent:.1f} %"
            page.box(
                (208 + 92 * number, 28 + 30 * row, 86, 26),
                words,
                "green" if words == "bound" else "red",
                shade=min(0.15 + percent / 60, 0.55),
            )
    alt = "; ".join(
        f"{rule}: " + ", ".join(f"{name} +{p:.1f} %" for name, p in cells.items())
        for rule, cells in table.items()
    )
    return page.picture(alt, caption)


def draw_view() -> Picture:
    """Draw four nodes with a view between them, and the lifetimes that follow."""
    page = Diagram(660, 176)
    for number, (words, colour) in enumerate(
        (
            ("0  Conv\nx → a", "orange"),
            ("1  Relu\na → b", "orange"),
            ("2  Flatten\nb → f, a view", "grey"),
            ("3  Gemm\nf → y", "orange"),
            ("the caller", "grey"),
        )
    ):
        page.box((40 + 124 * number, 8, 112, 44), words, colour)
    for row, (name, first, last, note) in enumerate(
        (
            ("a", 0, 1, ""),
            ("b", 1, 3, "also read through f"),
            ("y", 3, 4, "an output"),
        )
    ):
        page.note((8, 84 + 34 * row), name, bold=True)
        page.box((40 + 124 * first, 66 + 34 * row, 124 * (last - first) + 112, 26), note, "blue")
    return page.picture(
        "Conv, Relu, Flatten and Gemm in a row. a lives in steps 0 and 1, b in steps 1 to 3 "
        "because its view f is read in step 3, y from step 3 to the caller in step 4.",
        "Lifetimes (blue) of four nodes. f has no bar: it shows the bytes of b.",
    )


def draw_alignment() -> Picture:
    """Draw three aligned values, and free bytes between two of them that nobody can use."""
    page = Diagram(660, 118)
    for n in range(6):
        page.line((20 + 124 * n, 10), (20 + 124 * n, 78))
        page.note((20 + 124 * n, 94), str(256 * n), anchor="middle", size=11)
    page.box((20, 24, 100, 40), "a: 200", "blue").box((144, 24, 145, 40), "b: 300", "orange")
    page.box((392, 24, 150, 40), "c: 310", "green")
    page.box((289, 24, 103, 40), "212 free", "grey", dashed=True, filled=False)
    return page.picture(
        "Offsets 0, 256 and 768 hold values of 200, 300 and 310 bytes; 212 bytes before 768 are "
        "free, but no multiple of 256 lies in them.",
        "An arena with alignment 256. The 212 free bytes from 556 to 767 are lost while a, b and c "
        "are alive: no value may begin in them.",
    )


def draw_in_place() -> Picture:
    """Draw why an element-by-element result may overwrite its operand, and a convolution not."""
    page = Diagram(680, 168)
    for left, title, reach, good in (
        (8, "Relu: element by element", 0, True),
        (352, "Conv: three neighbours", 1, False),
    ):
        page.note((left, 16), title, bold=True)
        for n in range(5):
            page.box((left + 64 * n, 26, 58, 30), f"a[{n}]", "blue")
            page.box((left + 64 * n, 106, 58, 30), f"b[{n}]", "green" if good else "red")
            for m in range(max(0, n - reach), min(4, n + reach) + 1):
                aside = 14 * (n - m)  # heads of arrows to one box stand apart
                page.arrow((left + 64 * m + 29 + aside, 56), (left + 64 * n + 29 - aside, 104))
    page.note((8, 156), "only the writer of b[1] reads a[1]")
    page.note((352, 156), "b[0] and b[2] may still need a[1]")
    return page.picture(
        "Relu: arrows straight down from a[n] to b[n]. Conv: arrows from a[n-1], a[n], a[n+1] to "
        "b[n].",
        "Which results may use the bytes of their operand. Invocations run in any order.",
    )


Row = tuple[str, tuple[str, ...], str, int]


def slots_of(plan: str) -> list[Row]:
    """Return (operator, operands, result, slot) of each step of a plan, which is text.

    A step is "result operator operands slot", as in "c Add ab 0"; "-" is the slot of a view.
    """
    rows = (step.split() for step in plan.split(";"))
    return [
        (op, tuple(reads), result, -1 if slot == "-" else int(slot))
        for result, op, reads, slot in rows
    ]


def draw_slots(plan: str) -> Picture:
    """Draw a plan: a row for each step, a column for each slot, a box where a result is written.

    Args:
        plan: as for `slots_of`.
    """
    rows = slots_of(plan)
    count = 1 + max(slot for *_, slot in rows)
    page = Diagram(240 + 96 * count, 34 + 30 * len(rows))
    for slot in range(count):
        page.note((272 + 96 * slot, 18), f"slot {slot}", anchor="middle", bold=True)
    for step, (op, reads, result, slot) in enumerate(rows):
        y = 28 + 30 * step
        page.note((6, y + 17), f"step {step}   {result} = {op}({', '.join(reads)})")
        if slot >= 0:
            page.box((232 + 96 * slot, y, 80, 24), result, "blue")
        else:
            page.note((216, y + 17), "a view", anchor="end", size=11)
    said = ", ".join(
        f"step {n} writes {result} to slot {slot}"
        if slot >= 0
        else f"step {n} makes the view {result}"
        for n, (_, _, result, slot) in enumerate(rows)
    )
    return page.picture(
        f"A plan: {said}",
        "Where each step writes. A slot keeps its value until "
        "the next box below. x is the input; the caller reads j.",
    )


def draw_bound() -> Picture:
    """Draw batches of 7, 8 and 9 in an arena that is laid out for 8."""
    page = Diagram(620, 132)
    for row, count in enumerate((7, 8, 9)):
        page.note((8, 26 + 38 * row), f"batch {count}")
        for n in range(9):
            colour, used = ("red" if n == 8 else "green"), n < count
            if n < 8 or used:
                page.box(
                    (80 + 56 * n, 8 + 38 * row, 52, 26),
                    "" if used else "unused",
                    colour,
                    dashed=not used,
                    filled=used,
                )
    page.line((528, 2), (528, 122))
    return page.note((524, 130), "bound: 8", anchor="end").picture(
        "An arena for 8 pictures: a batch of 7 leaves one place unused, 8 fills it, 9 needs bytes "
        "behind its end.",
        "An arena laid out for a bound of 8.",
    )


def draw_offload() -> Picture:
    """Draw a value that is idle for a while: kept, offloaded, or computed again."""
    page = Diagram(680, 150)
    for row, (words, parts) in enumerate(
        (
            ("keep", [(120, 520, "bytes held all the time", "blue")]),
            (
                "offload",
                [
                    (120, 110, "on the device", "blue"),
                    (258, 244, "a copy in host memory", "grey"),
                    (530, 110, "here again", "blue"),
                ],
            ),
            (
                "recompute",
                [(120, 110, "on the device", "blue"), (520, 120, "made again", "orange")],
            ),
        )
    ):
        y = 12 + 46 * row
        page.note((8, y + 20), words, bold=True)
        for left, width, note, colour in parts:
            page.box((left, y, width, 32), note, colour)
    page.arrow((230, 74), (256, 74)).arrow((502, 74), (528, 74))
    return page.picture(
        "A value between two uses: kept on the device; copied to the host and back; or dropped and "
        "computed again.",
        "Three ways through a gap between two uses of a value. Offload moves bytes over the bus, "
        "recompute costs work.",
    )
