"""Pictures of codes: on a number line, as bits, in sums, in a graph, and under a histogram.

Visited by lab 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vklab.apps.quantization.histogram import BINS, Histogram
from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_differences", "draw_formats", "draw_histogram", "draw_line", "draw_nodes",
           "draw_pairs", "draw_rows", "draw_spacing", "draw_sums"]  # fmt: skip

FORMATS = {"e5m2": (5, 2), "e4m3": (4, 3), "float16": (5, 10)}
COLOURS = ("blue", "orange", "green", "pink")


def draw_line() -> Picture:
    """Draw eight codes of three bits on a number line: a step of 0.5, and 0 at code 1."""
    page = Diagram(690, 150)

    def at(number: float) -> float:
        return 120 + 130 * (number + 0.5)

    page.line((at(-0.5) - 40, 66), (at(3) + 40, 66))
    for code in range(8):
        number = 0.5 * (code - 1)
        colour = "orange" if code == 1 else "blue"
        page.box((at(number) - 15, 78, 30, 24), str(code), colour, bold=True)
        page.line((at(number), 60), (at(number), 76))
        page.note((at(number), 52), f"{number:g}", anchor="middle")
    page.note((6, 52), "numbers").note((6, 95), "codes", bold=True)
    page.dot((at(1.1), 66)).note((at(1.1), 24), "1.1", anchor="middle", bold=True)
    page.arrow((at(1.1), 30), (at(1.1), 58))
    page.arrow((at(2.5), 118), (at(3), 118), both=True)
    page.note((at(2.75), 138), "step 0.5", anchor="middle")
    page.note((at(0), 122), "zero point", anchor="middle")
    return page.picture(
        "A number line from -0.5 to 3 with eight codes, 0 to 7, at a distance of 0.5. The number 0 "
        "has the code 1, the zero point. The number 1.1 lies next to 1, which has the code 3.",
        "Eight codes of three bits for the range -0.5 to 3. The number 1.1 is stored as code 3, "
        "and comes back as 1.",
    )


def draw_formats() -> Picture:
    """Draw the bits of three float formats."""
    page = Diagram(690, 132)
    for row, (name, (exponent, mantissa)) in enumerate(FORMATS.items()):
        y = 8 + 40 * row
        page.note((70, y + 20), name, anchor="end", bold=True)
        for bit in range(1 + exponent + mantissa):
            colour = "grey" if bit == 0 else "orange" if bit <= exponent else "blue"
            page.box((84 + 26 * bit, y, 24, 28), "s" if bit == 0 else
                     "e" if bit <= exponent else "m", colour)  # fmt: skip
        largest = {"e5m2": "57,344", "e4m3": "448", "float16": "65,504"}[name]
        page.note((520, y + 20), f"largest number {largest}")
    return page.picture(
        "e5m2: a sign, five bits of exponent, two of mantissa. e4m3: a sign, four and three. "
        "float16: a sign, five and ten.",
        "s: sign; e: exponent; m: mantissa. Largest numbers of the standard formats, which keep "
        "some codes for NaN (e5m2 and float16 also for infinity).",
    )


def draw_spacing() -> Picture:
    """Draw the numbers of a small float format, with and without subnormals."""
    page = Diagram(690, 112)

    def at(number: float) -> float:
        return 130 + 65 * number

    for row, subnormal in enumerate((True, False)):
        y = 30 + 46 * row
        page.note((6, y + 5), "with subnormals" if subnormal else "without", bold=True)
        page.line((at(0), y), (at(8), y))
        for code in range(1, 24):
            exponent, mantissa = divmod(code, 4)
            number = 2.0 ** (exponent - 3) * (1 + mantissa / 4) if exponent else mantissa / 16
            if (exponent or subnormal) and number <= 8:
                page.line((at(number), y - 9), (at(number), y + 9))
        page.line((at(0), y - 14), (at(0), y + 14))
    for number in (0, 1, 2, 4, 8):
        page.note((at(number), 106), f"{number:g}", anchor="middle")
    return page.picture(
        "Numbers of a format with two bits of mantissa. Four neighbours have the same distance, "
        "then the distance doubles. Below the least normal number, 0.25, subnormals fill the gap "
        "to 0; without them the gap stays empty.",
        "Three bits of exponent, two of mantissa: the distance doubles at each power of two, but "
        "not below the least normal number, 0.25.",
    )


def draw_sums() -> Picture:
    """Draw the four sums of a product of codes with zero points."""
    page = Diagram(700, 118)
    terms = (
        ("sum of a b", "integer product\nof the codes", "blue"),
        ("- zb  sum of a", "one for each\nrow of A", "orange"),
        ("- za  sum of b", "one for each\ncolumn of B", "green"),
        ("+ k za zb", "a constant\nfor each column", "pink"),
    )
    page.note((10, 20), "sum of (a - za)(b - zb) over a depth of k  =", bold=True)
    for n, (words, about, colour) in enumerate(terms):
        page.box((10 + 172 * n, 32, 158, 30), words, colour, bold=True)
        page.note((89 + 172 * n, 82), about, anchor="middle")
    return page.picture(
        "The sum of (a - za)(b - zb) is the sum of a b, minus zb times the sum of a, minus za "
        "times the sum of b, plus k za zb.",
        "Four sums. Only the first one needs a product of matrices; the others are sums of rows, "
        "sums of columns, and a constant.",
    )


def draw_nodes() -> Picture:
    """Draw quantise and dequantise nodes around a product, before and after fusion."""
    page = Diagram(720, 176)
    page.note((6, 18), "in the file: the product is float32", bold=True)
    chain = (("Quantize", "blue"), ("Dequantize", "blue"), ("Conv", "grey"), ("Relu", "grey"),
             ("Quantize", "blue"))  # fmt: skip
    for n, (words, colour) in enumerate(chain):
        page.box((10 + 146 * n, 30, 88, 30), words, colour)
        if n:
            kind = "codes" if n == 1 else "float"
            page.arrow((98 + 146 * n - 146, 45), (8 + 146 * n, 45), kind)
    page.box((156, 72, 88, 30), "Dequantize", "orange").note((150, 92), "weights", anchor="end")
    page.arrow((246, 86), (322, 62))
    page.note((6, 132), "after fusion: one integer product", bold=True)
    page.box((10, 142, 88, 30), "Quantize", "blue")
    page.arrow((98, 157), (154, 157), "codes")
    page.box((156, 142, 526, 30),
             "int8 product, int32 sums, steps and zero points, Relu, codes", "green")  # fmt: skip
    return page.picture(
        "In the file, a value is quantised and dequantised before a float32 convolution, its "
        "weights are dequantised, and the result is quantised again. After fusion, the product "
        "takes codes, adds in int32, and stores codes.",
        "Quantise and dequantise nodes say where codes are; fusion makes integer products of them.",
    )


def draw_pairs() -> Picture:
    """Draw how an instruction adds two products in 16 bits."""
    page = Diagram(690, 106)
    for n in range(4):
        page.box((20 + 96 * n, 8, 80, 26), f"a{n} x b{n}", "blue")
    for pair in range(2):
        left = 20 + 192 * pair
        for n in range(2):
            page.arrow((left + 40 + 96 * n, 34), (left + 78 + 20 * n, 64))
        page.box((left + 28, 66, 120, 28), "int16", "orange", bold=True)
        page.arrow((left + 148, 80), (448 if pair else left + 218, 80))
    page.box((450, 66, 120, 28), "int32 sum", "green", bold=True)
    page.note((420, 26), "int16: from -32,768 to 32,767")
    return page.picture(
        "Two neighbouring products are added in int16, then all pairs are added in int32.",
        "An instruction that adds pairs of products in 16 bits before the sum in 32 bits.",
    )


def draw_histogram(histogram: Histogram, step: float, zero: int, bits: int,
                   caption: str) -> Picture:  # fmt: skip
    """Draw how often numbers occur, with the numbers of unsigned codes below.

    Args:
        histogram: counts of the numbers.
        step: the distance of two codes.
        zero: the code of 0.
        bits: width of the codes.
        caption: the line below.
    """
    page, bars, left, wide = Diagram(720, 184), 128, 20, 680
    counts = histogram.counts.reshape(bars, -1).sum(axis=1)
    heights = np.sqrt(counts / max(int(counts.max()), 1)) * 110
    width = wide / bars
    for n in np.flatnonzero(counts):
        page.box((left + width * n, 120 - heights[n], width - 1, heights[n]), "", "blue", shade=0.6)
    page.line((left, 120), (left + wide, 120))
    for code in range(1 << bits):
        x = left + ((code - zero) * step / histogram.limit + 1) * wide / 2
        if 0 <= x <= 720:
            page.line((x, 122), (x, 134))
            page.note((x, 148), f"{code}", anchor="middle", bold=code == zero)
    page.note((left, 166), f"{-histogram.limit:.3g}")
    page.note((left + wide, 166), f"{histogram.limit:.3g}", anchor="end")
    page.note((left + wide / 2, 166), "0", anchor="middle")
    page.note((left, 181), "upper row: codes; lower row: numbers", size=11)
    low, high = -zero * step, ((1 << bits) - 1 - zero) * step
    return page.picture(
        f"A histogram of {counts.sum()} numbers from {histogram.low:.3g} to {histogram.high:.3g}, "
        f"most of them near 0. {1 << bits} codes with a step of {step:.3g} reach from "
        f"{low:.3g} to {high:.3g} ({BINS} bins were counted, the bars join them).",
        caption,
    )


def draw_rows(rows: Mapping[str, Sequence[int]], names: Sequence[str], most: int,
              caption: str) -> Picture:  # fmt: skip
    """Draw groups of bars of counts.

    Args:
        rows: for each group its counts.
        names: what the counts of a group belong to.
        most: the count of the longest bar.
        caption: the line below.
    """
    high = 20 * len(names) + 12
    page, told = Diagram(700, high * len(rows) + 8), []
    for group, (title, counts) in enumerate(rows.items()):
        top = 6 + high * group
        page.note((8, top + high / 2 - 4), title, bold=True)
        for n, (name, count) in enumerate(zip(names, counts, strict=True)):
            y = top + 20 * n
            page.note((196, y + 13), name, anchor="end")
            page.box((202, y, max(1.0, 420 * count / most), 16), "", COLOURS[n], shade=0.6)
            page.note((210 + 420 * count / most, y + 13), f"{count}")
            told.append(f"{title}, {name}: {count}")
    return page.picture("; ".join(told) + ".", caption)


def draw_differences(ours: np.ndarray, wanted: np.ndarray, caption: str) -> Picture:
    """Draw a table of codes; a colour shows how far each is from the wanted one.

    Args:
        ours: codes, rows x columns.
        wanted: the codes that they should be near.
        caption: the line below.
    """
    high, wide = wanted.shape
    page = Diagram(16 + 35 * wide, 24 * high + 28)
    differences = ours.astype(int) - wanted.astype(int)
    for (row, column), far in np.ndenumerate(differences):
        colour = "green" if not far else "yellow" if abs(far) == 1 else "red"
        page.box((8 + 35 * column, 6 + 24 * row, 33, 22), str(ours[row, column]), colour,
                 dashed=bool(far), bold=bool(far))  # fmt: skip
    page.note((8, 24 * high + 22), "green: the same code; dashed: another one, yellow for a "
              "neighbour, red for further away", size=11)  # fmt: skip
    near = int((np.abs(differences) == 1).sum())
    same = int((differences == 0).sum())
    return page.picture(
        f"{differences.size} codes: {same} are the same as the float32 product's, {near} are "
        f"neighbours, {differences.size - same - near} are further away.",
        caption,
    )
