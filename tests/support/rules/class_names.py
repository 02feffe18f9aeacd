"""Names of the core's public classes are unique: a name in a message or a page means one class."""

from __future__ import annotations

import ast
from pathlib import Path

from support.rules import architecture_rules as rules
from support.rules import package_imports

__all__ = ["repeated_class_names"]


def repeated_class_names(root: Path) -> list[str]:
    """Check that no two files of the core define public classes of the same name."""
    problems, owners = [], dict[str, str]()
    for path in package_imports.package_files(root):
        if rules.part_of(root, path) not in rules.CORE | rules.BASE:
            continue
        for node in package_imports.parsed(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where = f"{path.relative_to(root)}:{node.lineno}"
                owner = owners.setdefault(node.name, where)
                if owner != where:
                    problems.append(f"{where}: {node.name} is a class of {owner}, too")
    return problems
