"""What of a notebook is executed for an answer: what it needs, and no demo."""

from __future__ import annotations

import ast

import pytest

from vklab_course.author import slices

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
])  # fmt: skip
def test_the_globals_that_a_text_reads(text, read):
    assert slices.globals_read(text) == read


def test_a_slice_holds_what_is_needed_and_no_more():
    needed = {"helper"}
    kept = slices.needed_statements(ast.parse(CELLS).body, needed, whole=False)
    assert [ast.unparse(node).splitlines()[0] for node in kept] == [
        "import math", "def helper(x):"]  # fmt: skip
    assert needed == {"table", "later"}
    needed = {"table"}
    kept = slices.needed_statements(ast.parse(CELLS).body, needed, whole=False)
    assert [ast.unparse(node) for node in kept] == [
        "import math", "first = open_device()", "table = make(first)", "table += [7]"]  # fmt: skip
    assert needed == {"open_device", "make"}
    assert len(slices.needed_statements(ast.parse(CELLS).body, set(), whole=True)) == 8
