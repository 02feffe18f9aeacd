"""Pictures of ONNX files: the bytes of fields, varints, where weights lie. Visited by lab 09."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vklab.graph import onnx_file
from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_broadcast", "draw_cycle", "draw_fields", "draw_places", "draw_reshape",
           "draw_storage", "draw_varint"]  # fmt: skip

CELL, HIGH, GAP = 24, 26, 14


def draw_fields(data: bytes, meanings: Mapping[int, str]) -> Picture:
    """Draw the first fields of a message, one a row: key, length, value.

    Args:
        data: a whole message; at most ten bytes of a value are drawn.
        meanings: for each field number its name in the schema.
    """
    shown = [field for field in onnx_file.fields(data, 0, len(data)) if field[0] in meanings]
    diagram = Diagram(680, 30 + (HIGH + GAP) * len(shown))
    for place, words in ((60, "key"), (200, "length, and value")):
        diagram.note((place, 14), words)
    for row, (number, head, first, last) in enumerate(shown):
        y, x, kind = 24 + row * (HIGH + GAP), 60, data[head] & 7
        diagram.note((50, y + 17), f"byte {head}", anchor="end", size=11)
        cells = [(head, "orange")]
        cells += [(n, "blue") for n in range(head + 1, first)]
        cells += [(n, "green") for n in range(first, min(last, first + 10))]
        for byte, colour in cells:
            x += 12 if byte == head + 1 else 0
            diagram.box((x, y, CELL, HIGH), f"{data[byte]:02x}", colour)
            x += CELL
        what = (
            f'"{data[first:last].decode()}"'
            if last - first < 20 and kind == 2
            else f"{last - first:,} bytes"
            if kind == 2
            else str(data[first])
        )
        more = "... " if last > first + 10 else ""
        diagram.note(
            (x + 8, y + 17), f"{more}field {number}, type {kind}: {meanings[number]} {what}"
        )
    return diagram.picture(
        "Rows of bytes. "
        + "; ".join(
            f"byte {head}: key {data[head]:02x}, {meanings[number]}" for number, head, *_ in shown
        ),
        "The first fields. Orange: the key. Blue: a length. Green: the value.",
    )


def draw_varint(number: int) -> Picture:
    """Draw how a number of two bytes becomes a varint."""
    low, high = number % 128, number // 128
    diagram = Diagram(640, 150).note((20, 32), f"{number} in bits:")
    for x, bits, colour in ((150, high, "blue"), (250, low, "green")):
        diagram.box((x, 14, 90, 28), f"{bits:07b}", colour)
    diagram.arrow((195, 44), (375, 88)).arrow((295, 44), (225, 88)).note((20, 112), "as a varint:")
    for x, flag, bits, colour, what in (
        (150, 1, low, "green", "more follow"),
        (300, 0, high, "blue", "the last byte"),
    ):
        diagram.box((x, 92, 24, 30), str(flag), "orange", bold=True)
        diagram.box((x + 24, 92, 100, 30), f"{bits:07b}", colour)
        diagram.note((x, 140), f"{flag << 7 | bits:02x}: {what}")
    return diagram.picture(
        f"{number} is cut into groups of seven bits, and the lowest group is stored first.",
        f"The varint of {number}: groups of seven bits, the lowest first. The top bit of a byte "
        "says whether more bytes follow.",
    )


def draw_storage() -> Picture:
    """Draw the three places where the elements of an initializer can be."""
    diagram = Diagram(640, 190).box((20, 26, 330, 130), "", "grey", filled=False)
    diagram.note((20, 18), "model.onnx").note((440, 18), "weights.bin")
    diagram.box((430, 26, 190, 130), "", "grey", filled=False)
    rows = (
        ("raw_data (field 9)", "green", "the array's bytes"),
        ("external_data (13)", "blue", "file, offset, length"),
        ("int64_data (7), ...", "orange", "numbers, one by one"),
    )
    for row, (name, colour, what) in enumerate(rows):
        y = 36 + 40 * row
        diagram.box((30, y, 140, 30), name, colour).box((176, y, 164, 30), what, colour)
    diagram.arrow((340, 91), (470, 91)).box((474, 76, 110, 30), "the array's bytes", "blue")
    diagram.note((20, 178), "green, blue: usable where they lie; orange: decoded into a new array")
    return diagram.picture(
        "raw_data lies in the model's file, external_data points into another file, typed fields "
        "hold numbers one by one.",
        "Three ways to store one initializer.",
    )


def draw_places(size: int, weights: Sequence[tuple[str, int, int]]) -> Picture:
    """Draw which bytes of a file are weights: a bar, and a row for each weight.

    Args:
        size: bytes of the file.
        weights: name, offset and length of each.
    """
    width, left = 360, 110
    diagram = Diagram(640, 44 + 22 * len(weights)).box((left, 6, width, 20), "", "grey")
    for row, (name, offset, length) in enumerate(weights):
        colour = ("blue", "orange", "green", "pink")[row % 4]
        x, wide = left + width * offset / size, max(2, width * length / size)
        y = 34 + 22 * row
        diagram.box((x, 6, wide, 20), "", colour, shade=0.55)
        diagram.box((x, y, wide, 14), "", colour, shade=0.55)
        diagram.note((left - 8, y + 12), name, anchor="end", size=11)
        diagram.note((left + width + 10, y + 12), f"{offset:,} + {length:,}", size=11)
    return diagram.picture(
        "Places in the file: "
        + ", ".join(f"{name} {offset} + {length}" for name, offset, length in weights),
        "The weights, as you found them: offset + length in bytes. Top row: the whole file. "
        "Colours only tell the rows apart.",
    )


def draw_cycle() -> Picture:
    """Draw four nodes, of which two wait for each other."""
    diagram = Diagram(640, 106)
    for x, y, name, colour in (
        (30, 20, "a: Conv", "grey"),
        (190, 50, "c: Add", "red"),
        (350, 50, "b: Relu", "red"),
        (510, 20, "d: Relu", "grey"),
    ):
        diagram.box((x, y, 90, 40), name, colour)
    diagram.arrow((122, 44), (188, 60), "p").arrow((442, 60), (508, 44), "r")
    diagram.arrow((282, 62), (348, 62), "q").arrow((348, 80), (282, 80)).note((310, 96), "r")
    return diagram.picture(
        "a makes p for c; c makes q for b; b makes r for c and for d.",
        "b reads q, which c makes; c reads r, which b makes. No order works.",
    )


def draw_broadcast() -> Picture:
    """Draw two shapes flush right, and their common shape."""
    diagram = Diagram(640, 150)
    rows = (
        ("a", ("N", "4", "1", "8"), 30),
        ("b", ("", "1", "6", "8"), 66),
        ("a + b", ("N", "4", "6", "8"), 112),
    )
    for name, sizes, y in rows:
        diagram.note((70, y + 18), name, anchor="end")
        for column, size in enumerate(sizes):
            words, colour = size or "1", "green" if name == "a + b" else "blue"
            diagram.box((90 + 80 * column, y, 66, 26), words, colour, dashed=not size)
    diagram.line((80, 102), (410, 102)).note((430, 83), "a missing size counts as 1")
    diagram.note((430, 130), "equal sizes stay; 1 is stretched")
    return diagram.picture(
        "Shapes N 4 1 8 and 1 6 8 broadcast to N 4 6 8.",
        "Broadcasting: flush right, column by column.",
    )


def draw_reshape() -> Picture:
    """Draw what 0 and -1 in the target of a Reshape stand for."""
    diagram = Diagram(640, 130)
    for x, size in ((90, "N"), (170, "64"), (250, "4"), (330, "4")):
        diagram.box((x, 14, 66, 26), size, "blue")
    diagram.note((70, 32), "input", anchor="end").note((430, 32), "1024 * N elements")
    diagram.arrow((123, 42), (123, 78)).note((62, 64), "copied")
    diagram.line((170, 47), (396, 47)).arrow((283, 48), (215, 78))
    diagram.note((275, 68), "what is left: 64 * 4 * 4")
    for x, size, is_now in ((90, "0", "N"), (170, "-1", "1024")):
        diagram.box((x, 80, 86 if x > 100 else 66, 26), f"{size} is {is_now}", "green")
    diagram.note((70, 98), "target", anchor="end").note((430, 98), "1024 * N elements")
    return diagram.picture(
        "Reshape of N 64 4 4 to 0, -1 gives N, 1024.",
        "Reshape to [0, -1]: the same elements in the same order.",
    )
