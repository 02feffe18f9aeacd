"""What of a notebook is executed for an answer: what it needs, and no demo."""

from __future__ import annotations

import ast
import time

import pytest

from support.course.hand_ins import nested
from vklab_course import slices

CELLS = """
import math
def helper(x): return table()[x] + later
def unused(x): return demo_only
first = open_device()
table = make(first)
table += [7]
print(table)
other = slow_demo()
"""


@pytest.mark.parametrize(("text", "read"), [
    ("def f(x):\n y = x + a\n def g(): return y + b\n return g()", {"a", "b"}),
    ("c = d", {"d"}), ("[x for x in e]", {"e"}),
    ("y = [x for x in e]\nprint(x)", {"e", "x", "print"}),
    ("class C:\n j = k\n l = j", {"k"}), ("m += n", {"m", "n"}),
    ("class C:\n j = k\nprint(j)", {"k", "j", "print"}), ("f.g(h=i)", {"f", "i"}),
    ("def f():\n global q\n q += 1", {"q"}), ("def f(q):\n q += 1", set()),
    ("async def f(): await g()", {"g"}), ("await h", {"h"}), ("o: P = 3", {"P"}),
])  # fmt: skip
def test_the_globals_that_a_text_reads(text, read):
    assert slices.globals_read(text) == read


def loops(levels):
    """Return such a text of loops that `finally` leaves by `break` and `continue`."""
    lines = []
    for n in range(levels):
        lines += [
            " " * 2 * n + "while a:",
            " " * (2 * n + 1) + "try: continue",
            " " * (2 * n + 1) + "finally:",
        ]
    return "\n".join([*lines, " " * 2 * levels + "break"])


@pytest.mark.parametrize("text", [nested(19), " or ".join(["a"] * 40_000), loops(9)],
                         ids=["finally", "or", "continue"])  # fmt: skip
def test_a_text_costs_what_it_has_in_characters(text):
    began = time.process_time()
    assert slices.globals_read(text) == {"a"}
    assert time.process_time() - began < 5


def test_a_slice_holds_what_is_needed_and_no_more():
    needed = {"helper"}
    kept = slices.needed_statements(ast.parse(CELLS).body, needed, whole=False)
    assert [ast.unparse(node).splitlines()[0] for node in kept] == ["import math", "def helper(x):"]
    assert needed == {"table", "later"}
    needed = {"table"}
    kept = slices.needed_statements(ast.parse(CELLS).body, needed, whole=False)
    assert [ast.unparse(node) for node in kept] == [
        "import math",
        "first = open_device()",
        "table = make(first)",
        "table += [7]",
    ]
    assert needed == {"open_device", "make"}
    assert len(slices.needed_statements(ast.parse(CELLS).body, set(), whole=True)) == 8
