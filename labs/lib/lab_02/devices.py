"""Pictures of devices as an answer sees them: versions, queues, fields, capabilities, heaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

from vklab.types import DeviceInfo, QueueFamily
from vklab.vulkan import device as vulkan_device
from vklab_course import words
from vklab_course.picture import Picture
from vklab_course.piece import Given, Piece
from vklab_labs.shared.diagram import Diagram

__all__ = [
    "QUEUE_FAMILIES",
    "draw_apart",
    "draw_bits",
    "draw_capabilities",
    "draw_families",
    "draw_rented",
]

Fields = Sequence[tuple[str, int]]


def draw_bits(rows: Sequence[tuple[str, int, Fields, str]], caption: str) -> Picture:
    """Draw 32-bit numbers as fields of bits, with an answer's text for each.

    Args:
        rows: (title, packed number, (field, bits) from the left, text of the answer).
        caption: the caption.
    """
    diagram = Diagram(720, 84 * len(rows))
    for row, (title, packed, fields, said) in enumerate(rows):
        top, bit = 84 * row + 24, 31
        diagram.note((8, top - 7), f"{title}: {packed} = {packed:#x}", bold=True)
        diagram.note((712, top - 7), said, anchor="end")
        for (name, bits), colour in zip(
            fields, ("grey", "sky", "orange", "green")[-len(fields) :], strict=True
        ):
            diagram.note(
                (8 + 22 * (31 - bit) + 11 * bits, top + 40), f"{name} ({bits})", anchor="middle"
            )
            for place in range(bit, bit - bits, -1):
                diagram.box((8 + 22 * (31 - place), top, 22, 24), str(packed >> place & 1), colour)
            bit -= bits
    alt = "; ".join(
        f"{title} {packed}, in bits {' '.join(f'{n} {bits}' for n, bits in fields)}: {said}"
        for title, packed, fields, said in rows
    )
    return diagram.picture(alt, caption)


Picks = Callable[[tuple[QueueFamily, ...]], Any]


def draw_families(
    devices: Mapping[str, tuple[QueueFamily, ...]], caption: str, answer: Picks | None = None
) -> Picture:
    """Draw queue families as boxes; the two that an answer picks are in colour.

    Args:
        devices: the families of each device, by its name.
        caption: the caption.
        answer: function from families to (compute, copies).
    """
    diagram, told = Diagram(720, 76 * len(devices) + 4), []
    for row, (name, families) in enumerate(devices.items()):
        compute, copies = answer(families) if answer else (None, None)
        top = 76 * row + 6
        diagram.note((6, top + 28), name, bold=True)
        known = [family.index for family in families]
        strange = [words.short(n) for n in (compute, copies) if answer and n not in known]
        if strange:
            diagram.note((6, top + 46), f"no family {' and '.join(strange)}")
        for place, family in enumerate(families):
            jobs = [
                job
                for job, n in (("compute", compute), ("copies", copies))
                if n == family.index and n is not None
            ]
            flags = " ".join(sorted(family.flags - {"sparse_binding"})).replace("_decode", "")
            clock = f"clock {family.timestamp_valid_bits or 'none'}"
            queues = f"{family.queue_count} queue{'s' * (family.queue_count > 1)}"
            text = f"{family.index}: {queues}, {clock}\n{flags}"
            text += f"\n→ {' + '.join(jobs)}" if jobs else ""
            colour = {"compute": "blue", "copies": "orange"}.get(jobs[0] if jobs else "", "grey")
            diagram.box(
                (140 + 194 * place, top, 186, 66), text, colour, filled=bool(jobs) or answer is None
            )
        picked = f", compute on {compute}, copies on {copies}" if answer else ""
        told.append(f"{name}: {len(families)} famil{'ies' if len(families) > 1 else 'y'}{picked}")
    diagram.width = max(720, 140 + 194 * max(map(len, devices.values())))
    return diagram.picture("; ".join(told), caption)


def draw_apart(
    sizes: Mapping[str, int], values: Mapping[str, Sequence[Any]], chosen: Sequence[str],
    caption: str,
) -> Picture:  # fmt: skip
    """Draw which pairs of devices some fields tell apart, and the bytes of these fields.

    Args:
        sizes: bytes of each field.
        values: of each field, the value of each device.
        chosen: names of fields.
        caption: the caption.
    """
    known = [name for name in chosen if name in sizes]
    rows = list(zip(*(values[name] for name in sizes), strict=True))
    seen = [tuple(values[name][n] for name in known) for n in range(len(rows))]
    diagram, same = Diagram(720, 24 * len(rows) + 32), []
    for row in range(len(rows)):
        diagram.note((20, 24 * row + 42), str(row), anchor="end")
        diagram.note((24 * row + 38, 20), str(row), anchor="middle")
        for column in range(row):
            place = (24.0 * column + 26, 24.0 * row + 26, 24.0, 24.0)
            alike = seen[row] == seen[column]
            same += [f"{column} and {row}"] if alike else []
            diagram.box(
                place,
                "=" if alike else "",
                "red" if alike else "sky",
                bold=alike,
                shade=0.35 if alike else 0.12,
            )
    left, total = 24.0 * len(rows) + 60, sum(sizes[name] for name in known)
    scale = (700 - left) / max(16, total)
    for row, (title, names, colour) in enumerate(
        (("chosen fields", known, "blue"), ("the UUID alone", ["deviceUUID"], "grey"))
    ):
        x, top = left, 72.0 * row + 48
        diagram.note((left, top - 8), f"{title}: {16 if row else total} bytes", bold=not row)
        for name in names:
            width = sizes.get(name, 16) * scale
            diagram.box((x, top, width, 26), name if width > 7 * len(name) else "", colour)
            x += width
    diagram.note((left, 90), ", ".join(known), size=11)
    pairs = len(rows) * (len(rows) - 1) // 2
    diagram.note((left, 188), f"{pairs - len(same)} of {pairs} pairs are told apart", bold=True)
    diagram.note((left, 206), "= the two devices look the same" if same else "")
    lost = [str(name) for name in chosen if name not in sizes]
    diagram.note((left, 224), f"no such field: {', '.join(lost)}" if lost else "")
    told = f"fields {', '.join(known) or 'none'}, {total} bytes; "
    return diagram.picture(
        told + (f"still the same: {', '.join(same)}" if same else "every pair is told apart"),
        caption,
    )


def _room(device: DeviceInfo) -> int:
    return max((heap.size_bytes for heap in device.heaps if heap.device_local), default=0)


# title -> (number of a device, its text)
CAPABILITIES: Mapping[str, tuple[Callable[[DeviceInfo], float], Callable[[float], str]]] = {
    "Vulkan": (lambda d: d.api_version[1], lambda v: f"1.{v:.0f}"),
    "heap, MiB": (_room, lambda v: f"{v / 2**20:.0f}"),
    "invocations": (lambda d: d.limit("maxComputeWorkGroupInvocations"), "{:.0f}".format),
    "shared": (lambda d: d.limit("maxComputeSharedMemorySize") / 1024, "{:.0f} KiB".format),
    "fp16": (lambda d: "shaderFloat16" in d.features, lambda v: "yes" if v else "no"),
}


def draw_capabilities(
    devices: Sequence[DeviceInfo], answer: Callable[[DeviceInfo], Any], caption: str
) -> Picture:
    """Draw a heat map of capabilities, and at the right an answer's code for each device.

    Args:
        devices: one row each.
        answer: function from a device to its code.
        caption: the caption.
    """
    diagram, told = Diagram(750, 26 * len(devices) + 34), []
    for column, title in enumerate(CAPABILITIES):
        diagram.note((183 + 76 * column, 20), title, anchor="middle", size=11, bold=True)
    diagram.note((536, 20), "your function says", size=11, bold=True)
    for row, device in enumerate(devices):
        top, code = 26 * row + 30, answer(device)
        said = {"": "✓ usable", None: "None (is a return missing?)"}.get(code, words.short(code))
        diagram.note((6, top + 16), device.name.partition(" (")[0][:20])
        diagram.note((536, top + 16), said.strip("'")[:36], size=11)
        told.append(f"{device.name}: {said}")
        for column, (value, text) in enumerate(CAPABILITIES.values()):
            logs = [math.log2(1 + value(other)) for other in devices]
            share = (logs[row] - min(logs)) / ((max(logs) - min(logs)) or 1)
            diagram.box(
                (147 + 76 * column, top, 72, 23),
                text(value(device)),
                "blue",
                shade=0.04 + 0.5 * share,
            )
    return diagram.picture("; ".join(told), caption)


Devices = Mapping[str, tuple[int, int]]
Programs = Mapping[str, tuple[int, tuple[str, ...]]]


def draw_rented(
    devices: Devices, programs: Programs, placed: Mapping[str, str], caption: str
) -> Picture:
    """Draw the heaps of devices as bars, and in them the programs that an answer places there.

    Args:
        devices: (price, MiB) by name.
        programs: (MiB, devices that suit it) by name.
        placed: device of each program.
        caption: the caption.
    """
    diagram = Diagram(720, 42 * len(devices) + 40)
    inside = {name: [p for p in programs if placed.get(p) == name] for name in devices}
    loads = {name: sum(programs[p][0] for p in inside[name]) for name in devices}
    scale = 430 / max(*(room for _, room in devices.values()), *loads.values())
    total = sum(devices[name][0] for name in devices if inside[name])
    for row, (name, (price, room)) in enumerate(devices.items()):
        top, left = 42 * row + 8, 130.0
        diagram.note((6, top + 20), f"{name}: {room} MiB", bold=bool(inside[name]))
        diagram.box((130, top, room * scale, 32), "", "grey", dashed=not inside[name], filled=False)
        for program in inside[name]:
            mib, suited = programs[program]
            wrong = loads[name] > room or name not in suited
            diagram.box(
                (left, top + 3, mib * scale, 26),
                f"{program}{' !' * wrong}",
                "red" if wrong else "blue",
            )
            left += mib * scale
        cost = f"{price} cents" if inside[name] else f"not rented ({price})"
        diagram.note((712, top + 20), cost, anchor="end", bold=bool(inside[name]))
    lost = [program for program in programs if placed.get(program) not in devices]
    words_below = f"no device: {', '.join(lost)}" if lost else ""
    diagram.note((6, 42 * len(devices) + 28), words_below)
    diagram.note((712, 42 * len(devices) + 28), f"{total} cents an hour", anchor="end", bold=True)
    alt = "; ".join(f"{program} on {placed.get(program)}" for program in programs)
    return diagram.picture(f"{alt}: {total} cents an hour", caption)


# ------------------------------------------------------------------- the piece of exercise 3

_REAL = (
    vulkan_device.choose_queue_families
)  # while a piece stands at the seam, the name means the piece


def _runtime_families(params: Mapping[str, Any]) -> Picks:
    """Return the runtime's `choose_queue_families`: exercise 3 has its signature."""
    return lambda families: _REAL(tuple(families))


def _picking(pick: Given) -> Picks:
    """Return `choose_queue_families` with an answer to exercise 3, whose result is verified."""

    def choose_queue_families(families: tuple[QueueFamily, ...]) -> tuple[int, int]:
        got = pick.value(families)
        assert isinstance(got, tuple | list) and len(got) == 2, f"{got!r} are not two indices"
        known = {family.index: family for family in families}
        for number, work in zip(got, ("compute", "copies"), strict=True):
            assert isinstance(number, Integral) and number in known, (
                f"for {work} you return {number!r}; there are families {sorted(known)}"
            )
        compute, copies = (known[int(number)] for number in got)
        assert "compute" in compute.flags, f"family {compute.index} does not compute"
        assert copies.flags & {"graphics", "compute", "transfer"}, (
            f"family {copies.index} does not copy"
        )
        return compute.index, copies.index

    return choose_queue_families


QUEUE_FAMILIES = Piece(
    "choose_queue_families",
    "vklab.vulkan.device.choose_queue_families",
    {"02-3": _runtime_families},
    _picking,
)
