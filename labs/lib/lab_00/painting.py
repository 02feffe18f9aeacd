"""A picture from a few lines of Slang, which colour one pixel. Visited by lab 00.

`paint` puts the lines into FRAME, a whole kernel, and dispatches it with one invocation a pixel. A
fault becomes a sentence in place of the picture.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import image

from vklab_course.attempt import Note
from vklab_course.children.run_kernel import Dispatched, Run, run_kernel
from vklab_course.picture import Picture, picture

__all__ = ["FRAME", "paint"]

FRAME = """\
RWStructuredBuffer<float> picture;
struct Params { uint wide, high; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x >= params.wide || id.y >= params.high) return;
    float x = (id.x + 0.5) / params.wide, y = (id.y + 0.5) / params.high;
    float red = 0, green = 0, blue = 0;
#line 1 "yours"
YOUR LINES
#line 1 "frame"
    uint at = 3 * (id.y * params.wide + id.x);
    picture[at] = red; picture[at + 1] = green; picture[at + 2] = blue;
}
"""
WIDE, HIGH, GROUP = 320, 200, 8
ENLARGED = 2  # a pixel of the picture is 2 x 2 pixels of the screen
SECONDS = 5.0
# The buffer's content before the dispatch: a NaN that no computation gives.
UNTOUCHED = np.uint32(0x7FC0BEEF)
GREY, MAGENTA = (0.6, 0.6, 0.6), (1.0, 0.0, 1.0)
CORNERS = {"top left": (0, 0), "top right": (0, -1), "middle": (HIGH // 2, WIDE // 2),
           "bottom left": (-1, 0), "bottom right": (-1, -1)}  # fmt: skip
# As slangc words it, in a line that it compiles or in one that it cannot read.
PLACE = re.compile(r"\b(yours|frame)[:(](\d+)\)?: (?:error \d+: )?(.+)")


def paint(text: str) -> Picture | Note:
    """Return the picture that a few lines of Slang colour, or a sentence about their fault.

    The lines read `x` and `y`, from 0 to 1, and `id`; they set `red`, `green` and `blue`.
    """
    lines = str(text).strip("\n").splitlines()
    before = np.full(3 * WIDE * HIGH, UNTOUCHED).view(np.float32)
    run = Run(
        {"picture": before}, (-(-WIDE // GROUP), -(-HIGH // GROUP)), {"wide": WIDE, "high": HIGH}
    )
    kernel = FRAME.replace("YOUR LINES", "\n".join(lines))
    done = run_kernel(kernel, run, "slang", SECONDS)[0]
    if done.status != "ran":
        return Note("00", "error", _fault(done, lines))
    return _drawn(done.buffers["picture"].reshape(HIGH, WIDE, 3))


def _drawn(colours: np.ndarray) -> Picture:
    """Draw the pixels; say which were not stored, are no numbers, or are out of range."""
    untouched = (colours.view(np.uint32) == UNTOUCHED).all(axis=2)
    nan = np.isnan(colours).any(axis=2) & ~untouched
    outside = ((colours < 0) | (colours > 1)).any(axis=2)
    said = [
        f"{_share(pixels)} of the pixels {what}."
        for pixels, what in (
            (untouched, "have no colour, and are grey: a `return` comes before they are stored"),
            (nan, "are magenta: a colour is no number (NaN), such as 0.0 / 0.0 or a root of -1"),
            (outside, "have a colour below 0 or above 1, which is drawn as 0 or as 1"),
        )
        if pixels.any()
    ]
    shown = np.clip(colours, 0, 1)
    shown[untouched], shown[nan] = GREY, MAGENTA
    pixels = np.rint(255 * shown).astype(np.uint8)
    data = io.BytesIO()
    large = pixels.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)
    named: dict[str, Any] = {"Software": None}  # no version of matplotlib in the file
    image.imsave(data, large, format="png", metadata=named)
    seen = "; ".join(f"{name} {', '.join(map(str, pixels[at]))}" for name, at in CORNERS.items())
    alt = f"A picture. Red, green and blue, from 0 to 255: {seen}. {' '.join(said)}".strip()
    caption = " ".join([f"{WIDE} × {HIGH} pixels, an invocation for each.", *said])
    return picture(data.getvalue(), alt, caption)


def _share(pixels: Any) -> str:
    percent = round(100 * np.mean(pixels))
    return f"{percent} %" if percent else "Less than 1 %"


def _fault(done: Dispatched, lines: Sequence[str]) -> str:
    """Return the sentence about a kernel that gave no picture."""
    if done.status == "compile_error":
        return _refused(done.message, lines)
    if done.status == "timeout":
        return (
            f"Your kernel did not end within {SECONDS:g} s, and was stopped. Does every loop end? "
            "Is this computer busy with other programs? Then run the cell again."
        )
    if done.status == "mismatch" and "never used" in done.message:
        return (
            "Your kernel stores no colour, so the compiler has removed the picture. No pixel comes "
            "to the end of your lines: look for a loop that never ends, or for a `return`."
        )
    return f"Your kernel could not run: {done.message}"


def _refused(message: str, lines: Sequence[str]) -> str:
    """Return the compiler's first complaint, with the line that it is about."""
    found = PLACE.search(message)
    if found is None:
        return f"The compiler refuses your lines: {message.splitlines()[0]}"
    number, said = int(found[2]), found[3].rstrip(".")
    behind = found[1] == "frame" or number > len(lines)
    number = len(lines) + 1 if behind else number
    if said.endswith("expected ';'"):
        code = [re.sub(r"//.*", "", line).rstrip() for line in lines[: number - 1]]
        before = next((n for n in range(len(code), 0, -1) if code[n - 1]), 0)
        if before and code[before - 1][-1] not in ";{}":
            return (
                f"Line {before}, `{lines[before - 1].strip()}`: the semicolon at its end is "
                "missing. The compiler misses it only where the next line begins."
            )
    if behind:
        return (
            f"Behind your last line: {said}. Has each bracket in your lines its partner, and each "
            "comment its end?"
        )
    return f"Line {number}, `{lines[number - 1].strip()}`: {said}."
