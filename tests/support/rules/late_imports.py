"""Rules of late imports in the core: four places have them, and none guards a module of our own."""

from __future__ import annotations

import ast
from pathlib import Path

from support.rules import architecture_rules as rules
from support.rules import package_imports

# The files that may import by a name in a string: rows, doors, public names and their forwards.
BY_NAME = {"base/late.py", "base/forward.py", "__init__.py"}
# The classes with methods in other modules: the session, and data that draws itself.
WITH_DOORS = {"runtime/session.py", "plan/plan.py", "plan/memory.py", "base/hardware.py"}


def late_imports(root: Path) -> list[str]:
    """Check that core modules are imported late by the catalogue and by doors only."""
    problems = []
    for path in package_imports.package_files(root):
        if rules.part_of(root, path) not in (*rules.CORE, "base", "types", "__init__"):
            continue
        name = str(path.relative_to(root / "vklab"))
        text = path.read_text("utf-8")
        if not any(word in text for word in ("import_module", "Door", "try")):
            continue  # most files have nothing that is looked for here
        for node in ast.walk(package_imports.parsed(text)):
            called = ast.unparse(node.func).split("[")[0] if isinstance(node, ast.Call) else ""
            where = f"vklab/{name}:{getattr(node, 'lineno', 0)}"
            if called.endswith("import_module") and name not in BY_NAME:
                problems.append(f"{where}: a row of the catalogue imports late, not import_module")
            if called in ("Door", "PropertyDoor") and name not in WITH_DOORS:
                problems.append(f"{where}: {name} has no doors")
            if isinstance(node, ast.Try) and _guards_own(node):
                problems.append(f"{where}: an import of vklab is guarded: a wrong one is not seen")
    return problems


def _guards_own(node: ast.Try) -> bool:
    """Tell whether an ImportError of a module of the package would be caught."""
    caught = " ".join(ast.unparse(each.type) for each in node.handlers if each.type)
    if not any(name in caught for name in ("ImportError", "ModuleNotFoundError", "Exception")):
        return False
    for inner in (each for statement in node.body for each in ast.walk(statement)):
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").split(".")[0] == "vklab":
            return True
        if isinstance(inner, ast.Import) and any(
            a.name.split(".")[0] == "vklab" for a in inner.names
        ):
            return True
    return False
