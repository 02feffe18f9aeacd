"""What a picture of the course shows."""

from __future__ import annotations

import re
from urllib.parse import unquote
from xml.etree import ElementTree

from vklab_course.picture import Picture


def svg_of(picture: Picture) -> str:
    """Return the SVG of a picture; ParseError if a browser would not show it in an <img>."""
    found = re.search(r'<img src="data:image/svg\+xml,([^"]*)"', picture.html)
    assert found, picture.html
    svg = unquote(found[1])
    ElementTree.fromstring(svg)
    return svg
