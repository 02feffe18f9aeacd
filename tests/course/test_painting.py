"""What lab 00 draws from three lines of Slang: the right pixels, and a sentence for each fault."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from matplotlib import image

from vklab_course.attempt import Note
from vklab_course.children.run_kernel import Dispatched
from vklab_course.picture import Picture
from vklab_labs.lab_00 import painting
from vklab_labs.lab_00.painting import HIGH, WIDE, paint

pytestmark = pytest.mark.full
NO_COLOUR = "Your kernel stores no colour"
PARTNER = "Has each bracket in your lines its partner, and each comment its end?"


def drawn(text):
    """Return the picture of some lines, and its pixels as 0 to 255, without the enlargement."""
    made = paint(text)
    assert isinstance(made, Picture), made
    data = base64.b64decode(re.search(r"base64,([^\"]+)", made.html)[1])
    pixels = np.rint(255 * image.imread(io.BytesIO(data))[::2, ::2, :3]).astype(int)
    assert pixels.shape == (HIGH, WIDE, 3)
    return made, pixels


def test_three_lines_colour_every_pixel():
    made, pixels = drawn("\nred = x;\ngreen = y;\nblue = 0.5;\n")
    across = np.rint(255 * (np.arange(WIDE) + 0.5) / WIDE)
    down = np.rint(255 * (np.arange(HIGH) + 0.5) / HIGH)
    assert np.abs(pixels[..., 0] - across).max() <= 1
    assert np.abs(pixels[..., 1] - down[:, np.newaxis]).max() <= 1
    assert set(pixels[..., 2].flat) <= {127, 128}
    assert made.caption == "320 × 200 pixels, an invocation for each."
    assert "top right 255, 1, " in made.alt and "bottom left 0, 254, " in made.alt
    assert f'alt="{made.alt}"' in made.html


def test_workgroups_become_visible():
    _, pixels = drawn("red = (id.x / 8 + id.y / 8) % 2;")
    rows, columns = np.indices((HIGH, WIDE)) // 8
    assert np.array_equal(pixels[..., 0], 255 * ((rows + columns) % 2))
    assert not pixels[..., 1:].any()  # what no line sets is 0


@pytest.mark.parametrize(("text", "said"), [
    ("red = x\ngreen = y;", "Line 1, `red = x`: the semicolon at its end is missing."),
    ("red = x;  // a\n\n  green = y // b\n// c\nblue = 1;", "Line 3, `green = y // b`: the"),
    ("red = x;\ngreen = y", "Line 2, `green = y`: the semicolon at its end is missing."),
    ("red = 2 x;\ngreen = y;", "Line 1, `red = 2 x;`: unexpected identifier, expected ';'."),
    ("red = x;\ngren = y;", "Line 2, `gren = y;`: undefined identifier 'gren'."),
    ("red = float2(x, y);", "Line 1, `red = float2(x, y);`: expected an expression of"),
    ('red = x;\n"text', 'Line 2, `"text`: newline in literal.'),
    ("if (x < 0.5) {\nred = x;", PARTNER),
    ("red = x; /* no end", PARTNER),
    ("red = x; }", PARTNER),
    ("discard;", "The compiler refuses your lines: "),
    ("return;", NO_COLOUR),
    ("while (true) red += x;", NO_COLOUR),
])  # fmt: skip
def test_a_fault_has_its_sentence(text, said):
    made = paint(text)
    assert isinstance(made, Note) and made.status == "error"
    assert said in str(made) and "yours" not in str(made)


def test_a_kernel_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr(painting, "SECONDS", 1.0)
    said = str(paint("while (x < 2) { picture[0] = red; if (picture[1] > 5) x = 3; }"))
    assert said.startswith("Your kernel did not end within 1 s, and was stopped. Does every loop")


def test_a_machine_without_a_driver_says_so(monkeypatch):
    none = Dispatched("no_device", message="no Vulkan device; run: vklab doctor")
    monkeypatch.setattr(painting, "run_kernel", lambda *given: [none])
    assert str(paint("red = x;")) == f"Your kernel could not run: {none.message}"


def test_colours_out_of_range_are_cut_off_and_named_once():
    made, pixels = drawn("red = 2 * x - 0.5;\ngreen = -y;\nblue = 7;")
    assert made.caption.count("100 % of the pixels have a colour below 0 or above 1") == 1
    assert (pixels[0, 0] == (0, 0, 255)).all() and (pixels[-1, -1] == (255, 0, 255)).all()
    made, _ = drawn("red = id.x == 7 && id.y == 7 ? 9 : 0;")
    assert "Less than 1 % of the pixels have a colour below 0 or above 1, which" in made.caption


def test_pixels_that_are_no_numbers_are_magenta():
    made, pixels = drawn("red = x < 0.25 ? asfloat(0x7FC00000) : 0;")
    quarter = WIDE // 4
    assert (pixels[:, :quarter] == (255, 0, 255)).all() and not pixels[:, quarter:].any()
    assert "25 % of the pixels are magenta: a colour is no number (NaN)" in made.caption
    assert "(NaN)" in made.alt


def test_pixels_that_are_never_stored_are_grey():
    made, pixels = drawn("red = 1;\nif (y > 0.5) return;")
    assert (pixels[: HIGH // 2] == (255, 0, 0)).all() and (pixels[HIGH // 2 :] == 153).all()
    assert "50 % of the pixels have no colour, and are grey" in made.caption
    assert "NaN" not in made.caption and "above 1" not in made.caption
