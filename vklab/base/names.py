"""Names of what vklab makes from a model: none of them can be a name of the model itself.

A model may spell any name. So passes, lowering and tuning name values by `internal`, and import
escapes the separator in the model's names (`graph.separator`).
"""

from __future__ import annotations

SEPARATOR = "\N{MIDDLE DOT}"


def internal(base: str, role: str) -> str:
    """Return the name of something that is made from a value or a node.

    Args:
        base: name of the value or the node.
        role: what it is made for; each role belongs to one module, and none begins with `'`.
    """
    return f"{base}{SEPARATOR}{role}"


def origin(name: str) -> str:
    """Return the model's name that an internal name was made from; any other name is its own."""
    end = name.find(SEPARATOR)
    while name.startswith("'", end + 1) and end >= 0:  # an escaped separator of the model
        end = name.find(SEPARATOR, end + 1)
    return name if end < 0 else name[:end]
