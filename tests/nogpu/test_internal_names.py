"""Every name that the planner makes comes from `internal`, and nothing parses a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("vklab/graph", "vklab/plan")
# They take text apart that is no name: Slang, generated Python, the text of a switch.
PARSERS = {"plan/fusion/text/codegen.py", "plan/templates/writer.py", "plan/tuning/forced.py"}
NAMED = {"TensorInfo": 0, "Node": 0, "constant": 0, "replace": None}  # the argument with the name


def files(*more: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in (*FOLDERS, *more):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT / "vklab")), ast.parse(path.read_text("utf-8"))


def start_of(role: ast.expr) -> str:
    """Return the text of a role before its first number or name."""
    first = role.values[0] if isinstance(role, ast.JoinedStr) else role
    assert isinstance(first, ast.Constant | ast.FormattedValue), ast.unparse(role)
    return str(first.value) if isinstance(first, ast.Constant) else ""


def roles(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "internal":
            yield start_of(node.args[1])


def spelt(tree: ast.Module) -> Iterator[int]:
    """Yield the lines where a tensor or a node gets a name that is put together there."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in NAMED:
            at = NAMED[called]
            given = [node.args[at]] if at is not None and len(node.args) > at else []
            given += [each.value for each in node.keywords if each.arg == "name"]
            if any(isinstance(each, ast.JoinedStr | ast.BinOp) for each in given):
                yield node.lineno


def test_each_role_belongs_to_one_module():
    owners: dict[str, set[str]] = defaultdict(set)
    for name, tree in files():
        for role in roles(tree):
            assert not role.startswith("'"), f"{name}: {role}"
            owners[role].add(name)
    assert len(owners) > 60
    assert {role: names for role, names in owners.items() if len(names) > 1} == {}


def test_no_name_is_put_together_beside():
    assert [f"{name}:{line}" for name, tree in files() for line in spelt(tree)] == []


@pytest.mark.parametrize("text", ['TensorInfo(f"{a}:b", "float32", ())', 'Node(a + "/x", "Relu")',
                                  'replace(info, name=f"{info.name}:half")'])  # fmt: skip
def test_a_name_that_is_put_together_is_found(text):
    assert [*spelt(ast.parse(text))] == [1]


def test_nothing_takes_a_name_apart():
    using = {
        name
        for name, tree in files()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and any(each.name == "re" for each in node.names)
    }
    assert {name for name in using if name.startswith(("plan/", "graph/passes/"))} == PARSERS


def test_kinds_of_objects_are_told_by_their_types():
    # Of the system, and of named tuples in general.
    allowed = {
        "graph/shapes.py: hasattr(os, 'sysconf')",
        "plan/templates/writer.py: hasattr(value, '_fields')",
    }
    asked = {
        f"{name}: {ast.unparse(node)}"
        for name, tree in files("vklab/ops")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "hasattr"
    }
    assert asked == allowed
