"""Rules of the optional folders, in the manner of architecture_rules.py."""

from __future__ import annotations

import re
from pathlib import Path

from support.rules import architecture_rules as rules
from support.rules import package_imports

# Folders that a reader of one model on one device may skip, and may delete: each is loaded through
# a door, when it is used. `tests/gpu/test_reading_path.py` deletes them.
OPTIONAL = (
    "graph/passes", "plan/place", "plan/tuning", "plan/fusion", "plan/templates", "plan/report",
    "runtime/many", "runtime/observe", "runtime/compiled", "runtime/bound", "runtime/cuda",
    "runtime/polled", "apps/compare", "apps/distributed", "apps/pytorch", "apps/quantization",
    "apps/llm", "apps/doctor",
)  # fmt: skip
# The files that may call `vklab.base.optional`: they load folders, one inlines local functions.
DOORS = {"plan/plan.py", "plan/memory.py", "runtime/session.py", "runtime/loading.py",
         "graph/onnx_import.py"}
# The door of each folder: a module of the folder must not import it.
DOOR_OF = {"graph/passes": "plan.plan", "plan/place": "plan.plan", "plan/tuning": "plan.plan",
           "plan/fusion": "plan.plan", "plan/report": "plan.plan",
           "plan/templates": "plan.plan",
           "runtime/many": "runtime.session",
           "runtime/observe": "runtime.session", "runtime/compiled": "runtime.session",
           "runtime/bound": "runtime.session", "runtime/cuda": "runtime.session",
           "runtime/polled": "runtime.session"}  # fmt: skip
# Optional folders that another one needs, with the reason.
NEEDED = {
    ("runtime/many", "plan/place"): "runs the plans that placement has split",
    ("runtime/observe", "runtime/many"): "calibration keeps the speeds that splitting reads",
    ("runtime/observe", "plan/place"): "calibration measures what placement weighs",
    ("runtime/observe", "plan/tuning"): "times the candidates that tuning chooses from",
    ("runtime/bound", "graph/passes"): "drops the nodes that no chosen output needs",
    ("runtime/bound", "runtime/many"): "reads device memory that the host cannot map",
}


def optional_of(path: str) -> str:
    """Return the optional folder that a file or module of the package is in, or ""."""
    return next((folder for folder in OPTIONAL if f"{path}/".startswith(f"{folder}/")), "")


def optional_folders(root: Path) -> list[str]:
    """Check that optional folders are loaded by doors only, and stand without each other.

    Applications may import all that the import table allows.
    A door may import the types of what its methods return, for type checkers alone.
    """
    problems = []
    for path in package_imports.package_files(root):
        if rules.part_of(root, path) not in rules.CORE:
            continue
        name = str(path.relative_to(root / "vklab"))
        own = optional_of(name.removesuffix(".py"))
        calls = re.search(r"\boptional\.(load|require)\(|Door[\[(]", path.read_text("utf-8"))
        if calls and name not in DOORS:
            problems.append(f"vklab/{name}: loads an optional folder and is no door")
        for item in package_imports.imports_of(root, path):
            if item.is_for_types and name in DOORS:
                continue
            modules = [item.module, *(f"{item.module}.{each}" for each in item.names)]
            for module in modules:
                inner = module.removeprefix("vklab.")
                other = optional_of(inner.replace(".", "/"))
                where = f"{item.path}:{item.line}"
                if other and other != own and (own, other) not in NEEDED:
                    problems.append(f"{where}: {own or 'the reading path'} imports {other}")
                if own and DOOR_OF.get(own) == inner:
                    problems.append(f"{where}: {own} imports its door, {inner}")
    return sorted(set(problems))
