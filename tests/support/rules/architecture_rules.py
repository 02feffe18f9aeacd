"""The rules of the house as functions: each takes a project root and returns what breaks the rule.

test_architecture.py runs them on this repository, and on small trees with one planted violation
each, so that every rule is known to be able to fail.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.rules.package_imports import (
    COURSE,
    Import,
    files_of,
    imports_of,
    package_files,
    parsed,
)
from support.rules.reading_path import logical_lines

BASE = {"base", "errors", "forward", "manifests", "settings", "types"}
CORE = {"vulkan", "shader", "graph", "ops", "plan", "runtime"}
# Files of base that run before anything is installed, and so are parts of their own.
OF_BASE = {"forward", "manifests"}
# Run before anything is installed: the standard library and each other.
STDLIB_ONLY = {"__main__", "bootstrap", "run_tests", *OF_BASE}

# What a part of vklab may import beside itself. The parts are the folders and files of vklab, and
# those of vklab/apps; `apps` is its __init__ alone. The core imports none of the applications.
ALLOWED = {
    **dict.fromkeys(BASE, BASE),
    **dict.fromkeys(OF_BASE, set()),
    "vulkan": BASE,
    "shader": BASE,
    "ops": BASE,
    "graph": BASE | {"ops"},
    "plan": BASE | {"graph", "ops"},
    "runtime": BASE | CORE,
    "apps": {"forward"},
    "onnx_backend": BASE | CORE,
    "distributed": BASE | CORE,
    "pytorch": BASE | {"graph", "runtime"},
    "conformance": BASE | CORE | {"onnx_backend"},
    "doctor": BASE | CORE | {"bootstrap"},
    "quantization": BASE | {"graph", "ops", "plan", "runtime"},
    "llm": BASE | {"graph", "ops", "plan", "runtime"},
    "compare": BASE | {"graph", "runtime", "llm"},
    "bootstrap": {"manifests"},
    "run_tests": set(),
    "__main__": {"bootstrap", "cli"},
}
ALLOWED["cli"] = ALLOWED["__init__"] = {*ALLOWED}
ALLOWED["labs"] = {*ALLOWED}
ALLOWED["course"] = {"labs", "forward"}  # forwards its old names; no other part imports the course
# Start-up time is theirs to keep: they may import parts of vklab inside functions.
LAZY = {"__init__", "__main__", "cli"}

# Too heavy to import with the module that needs them; one function of a module may load each.
HEAVY = {
    "IPython", "coremltools", "dask", "ipywidgets", "jupyterlab", "matplotlib", "nbclient",
    "iree", "nbconvert", "nbformat", "ncnn", "onnx", "onnxruntime", "onnxscript", "psutil",
    "scipy", "sklearn", "torch", "torchvision", "transformers", "wgpu",
}  # fmt: skip

# Two catalogues grow entry by entry, bounded by the entry: operators, and graph passes. What a
# student reads has a budget of its own: tests/gpu/test_reading_path.py.
# Sizes are logical lines, which no formatter moves.
OPERATOR_LINES = 20
PASS_LINES = 85
FILE_LINES = 250
FOLDERS, FOLDER_FILES = 8, 20
CATALOGUES = ("ops", "graph/passes", "apps/cli")  # one file for each operator, pass, command

OPERATOR = re.compile(r"\boperator\(")
THIRD_PERSON = re.compile(r"^(This|The)$|^(?!.*ss$)[A-Z][a-z]+s$")


def part_of(root: Path, path: Path) -> str:
    """Return the part that a file belongs to: `labs`, or one of the import table."""
    if not path.is_relative_to(root / "vklab"):
        return "labs"
    return _part(path.relative_to(root / "vklab").with_suffix("").parts)


def _part(steps: Sequence[str]) -> str:
    """Return the part of a module, by the steps of its name below `vklab`."""
    first, second = steps[0], [*steps, ""][1]
    is_part = first == "apps" and second not in ("", "__init__") or second in OF_BASE
    return second if is_part else first


def targets(item: Import) -> set[str]:
    """Return the parts that one import reaches."""
    steps = item.module.split(".")
    if steps[0] in COURSE:
        return {"labs"}
    if steps[0] != "vklab":
        return set()
    folders = steps[1:] in ([], ["apps"], ["base"])  # of parts: each name is one
    return {_part([*steps[1:], *names]) for names in zip(item.names if folders else ("",)) if names}


def forbidden_imports(root: Path) -> list[str]:
    """Check the import table, and that the parts it names are the parts there are."""
    problems = []
    for path in package_files(root):
        part = part_of(root, path)
        if part not in ALLOWED:
            problems.append(f"{path.relative_to(root)}: `{part}` is not in the import table")
            continue
        for item in imports_of(root, path):
            for target in sorted(targets(item) - {part} - ALLOWED[part] - {"__version__"}):
                problems.append(f"{item.path}:{item.line}: {part} must not import {target}")
            if part in STDLIB_ONLY and not _is_stdlib(item.module):
                problems.append(f"{item.path}:{item.line}: {part} is standard library only")
            if "*" in item.names:
                problems.append(f"{item.path}:{item.line}: import *")
    return problems


def _is_stdlib(module: str) -> bool:
    return module.split(".")[0] in sys.stdlib_module_names | {"vklab"}


def names_across_folders(root: Path) -> list[str]:
    """Check that another folder's module is imported, not a function out of it.

    Classes may be imported by name: as annotations their modules' names (`device`, `plan`) would
    shadow the variables that hold their objects.
    """
    problems = []
    for path in package_files(root):
        part = part_of(root, path)
        for item in imports_of(root, path):
            steps = item.module.split(".")
            if steps[0] != "vklab" or len(steps) < 2 or part in LAZY:
                continue
            if {part, *BASE} >= targets(item) or not item.names:
                continue
            folder = root.joinpath(*steps)
            for name in item.names:
                is_module = (folder / f"{name}.py").exists() or (folder / name).is_dir()
                if not is_module and not name[0].isupper():
                    problems.append(
                        f"{item.path}:{item.line}: import the module, not {name} out of it"
                    )
    return problems


def imports_in_functions(root: Path) -> list[str]:
    """Check that only heavy packages are imported inside functions, in one function a module.

    A module of ours that has a heavy package at its top counts as heavy itself.
    """
    problems = []
    for path in package_files(root):
        part = part_of(root, path)
        loaders: dict[str, str] = {}
        for item in imports_of(root, path):
            package = item.module.split(".")[0]
            if not item.function or (part in LAZY and (package == "vklab" or _is_stdlib(package))):
                continue
            where = f"{item.path}:{item.line}"
            is_ours = package == "vklab" or package in COURSE
            reached = [*files_of(root, item)] if is_ours else []
            if reached and all(_owns_heavy(root, file) for file in reached):
                continue
            if package not in HEAVY:
                problems.append(f"{where}: {package} is imported inside {item.function}()")
            elif loaders.setdefault(package, item.function) != item.function:
                problems.append(f"{where}: {package} is loaded in {loaders[package]}() already")
    return problems


def _owns_heavy(root: Path, path: Path) -> bool:
    return path.exists() and any(
        item.module.split(".")[0] in HEAVY and not item.function for item in imports_of(root, path)
    )


def is_public_module(path: Path) -> bool:
    """Tell whether a file is a public module; a package's __init__ without code is not one."""
    if path.name == "__init__.py":
        tree = parsed(path.read_text("utf-8"))
        return any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in tree.body)
    return path.name == "__main__.py" or not path.stem.startswith("_")


def _is_operator(node: ast.AST) -> bool:
    # The decorator is the registry, and the ONNX page is the documentation.
    decorators = getattr(node, "decorator_list", [])
    return any("operator" in ast.unparse(d).split("(")[0] for d in decorators)


def _public_definitions(tree: ast.Module) -> list[ast.FunctionDef | ast.ClassDef]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not _is_operator(node)
    ]


def _defined_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


def wrong_all(root: Path) -> list[str]:
    """Check that an __all__ names what its module defines, and all of it."""
    problems = []
    for path in package_files(root):
        if not is_public_module(path) or path == root / "vklab" / "__init__.py":
            continue  # the package's own table is lazy; test_architecture.py resolves its names
        name, tree = path.relative_to(root), parsed(path.read_text("utf-8"))
        listed = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        if not listed:  # what begins with no underscore is public
            continue
        try:
            exported = set(ast.literal_eval(listed[0]))
        except ValueError:
            problems.append(f"{name}: __all__ is not a literal list")
            continue
        for missing in sorted(exported - _defined_names(tree)):
            problems.append(f"{name}: __all__ names {missing}, which is not there")
        for node in _public_definitions(tree):
            if node.name not in exported:
                problems.append(f"{name}:{node.lineno}: {node.name} is public but not in __all__")
    return problems


def documented(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.ClassDef, bool]]:
    """Yield every public function, class and method, and whether a verb must open its docstring."""
    for node in _public_definitions(tree):
        yield node, isinstance(node, ast.FunctionDef)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    yield inner, not inner.decorator_list


def wrong_docstrings(root: Path) -> list[str]:
    """Check that public things have a docstring that opens with one sentence, as an order."""
    problems = []
    for path in package_files(root):
        if not is_public_module(path):
            continue
        tree = parsed(path.read_text("utf-8"))
        if not ast.get_docstring(tree):
            problems.append(f"{path.relative_to(root)}:1: the module has no docstring")
        for node, is_order in documented(tree):
            where = f"{path.relative_to(root)}:{node.lineno}: {node.name}"
            opening = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            if not opening:
                problems.append(f"{where} has no docstring")
            elif not re.search(r"\.(\s|$)", opening):
                problems.append(f"{where}: the docstring's first sentence has no full stop")
            elif is_order and THIRD_PERSON.match(opening.split()[0]):
                problems.append(f"{where}: say it as an order, not `{opening.split()[0]} ...`")
    return problems


def vulkan_commands() -> set[str]:
    """Return the commands that the bindings know, read from their sources (no loader needed)."""
    spec = importlib.util.find_spec("vulkan")
    assert spec and spec.origin
    folder = Path(spec.origin).parent
    text = "".join(path.read_text("utf-8", "replace") for path in folder.glob("*.[ph]*"))
    return set(re.findall(r"\bvk[A-Z]\w+", text))


def unknown_vulkan_commands(root: Path, commands: set[str]) -> list[str]:
    """Check that each docstring line `Vulkan: vkCmdX` names real commands."""
    problems = []
    for path in package_files(root):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            named = re.match(r"\s*Vulkan:\s*(.+)", line)
            for word in re.split(r"[,\s]+", named.group(1).strip().rstrip(".")) if named else ():
                if re.match(r"vk[A-Z]", word) and word.rstrip(".") not in commands:
                    problems.append(f"{path.relative_to(root)}:{number}: no command {word}")
    return problems


def crowded_folders(root: Path) -> list[str]:
    """Check that vklab/ has eight folders at most, and a folder twenty files."""
    files = [path for path in package_files(root) if path.is_relative_to(root / "vklab")]
    counts = Counter(str(path.parent.relative_to(root / "vklab")) for path in files)
    problems = [
        f"vklab/{folder}: {count} files; which subjects are they?"
        for folder, count in counts.items()
        if count > FOLDER_FILES and folder not in CATALOGUES
    ]
    folders = {folder.split("/")[0] for folder in counts} - {"."}
    if len(folders) > FOLDERS:
        problems.append(f"vklab/ has {len(folders)} folders: {', '.join(sorted(folders))}")
    return problems


def too_big(root: Path, file_lines: int = FILE_LINES) -> list[str]:
    """Check the size of the catalogues, of every file, and the width of every line."""
    problems: list[str] = []
    catalogue = operators = 0
    passes: list[int] = []
    sources = [*package_files(root), *sorted((root / "tests").rglob("*.py"))]
    for path in sources:
        name, text = str(path.relative_to(root)), path.read_text("utf-8")
        part = part_of(root, path) if path.is_relative_to(root / "vklab") else ""
        is_pass = bool(part) and path.parent.name == "passes"
        # No file has more logical lines than lines.
        is_counted = part == "ops" or is_pass or len(text.splitlines()) > file_lines
        count = len(logical_lines(text)) if is_counted else 0
        if part:
            passes += [count] if is_pass else []
            catalogue += count if part == "ops" else 0
            operators += len(OPERATOR.findall(text)) if part == "ops" else 0
        if count > file_lines:
            problems.append(f"{name}: {count} lines; which second thing does it do?")
        widths = [(number, len(line)) for number, line in enumerate(text.splitlines(), 1)]
        problems += [f"{name}:{number}: {width} columns" for number, width in widths if width > 100]
    of_operators = OPERATOR_LINES * max(operators, 10)
    if catalogue > of_operators:
        problems.append(f"{operators} operators take {catalogue} lines of {of_operators}")
    of_passes = PASS_LINES * max(len(passes), 10)
    if sum(passes) > of_passes:
        problems.append(f"{len(passes)} passes take {sum(passes)} lines of {of_passes}")
    return problems
