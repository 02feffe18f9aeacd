"""Docstrings, names and import cycles as rules: each takes a project root and returns problems.

test_prose.py runs them on this repository, and on small trees with one planted violation each.
`python tests/support/rules/prose_rules.py cli doctor` prints what is wrong in some folders or files
of vklab.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from support.rules import architecture_rules as rules
from support.rules import package_imports

# From this many parameters on, a docstring explains each of them.
EXPLAINED_PARAMETERS = 3
PRONOUNS = {
    "How", "It", "Such", "That", "The", "This", "Those", "What", "Where", "Which", "Who", "Whose",
}  # fmt: skip
# A method's opening in the third person is told by its last letter; a class, a module or a
# property may open with a plural noun ("Blocks of ..."), so there only these verbs are refused.
THIRD_PERSON = {
    "Adds", "Applies", "Asks", "Builds", "Calls", "Chooses", "Collects", "Computes", "Contains",
    "Converts", "Creates", "Decides", "Describes", "Does", "Draws", "Executes", "Finds", "Gives",
    "Has", "Holds", "Is", "Keeps", "Knows", "Makes", "Opens", "Prints", "Raises", "Reads",
    "Records", "Represents", "Returns", "Runs", "Says", "Shows", "Starts", "Stores", "Takes",
    "Tells", "Turns", "Uses", "Waits", "Wraps", "Writes", "Yields",
}  # fmt: skip
HOMELY = {
    "found": "devices, matches or the noun of what it is",
    "held": "resident or owned",
    "lying": "resident",
    "members": "devices",
    "places": "bindings",
    "twin": "clone",
    "walk": "traversal",
    "ways": "transfer paths",
    "wish": "options",
}
# Class names that two folders of the core share, each with the reason.
SHARED_CLASS_NAMES: dict[str, str] = {}
# Lazy imports of optional folders: the doors, which the import rule of DESIGN.md names.
DOORS = ("vklab/plan/plan.py", "vklab/runtime/session.py", "vklab/runtime/loading.py",
         "vklab/apps/cli/")  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.Module
ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): \S")
VISITED = re.compile(r"[Vv]isited by (labs?) (\d\w*(?:(?:, | and | to )\d\w*)*)")
NAMED = re.compile(r"\b[Ll]abs? (\d\d\w*(?:(?:, | and | to )\d\d\w*)*)")


@dataclass(frozen=True)
class Source:
    """One file of the package: its path from the project root, and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module


def sources(root: Path, folders: Sequence[str] = ()) -> Iterator[Source]:
    """Yield the files of the package, or those under the given folders or files of `vklab/`."""
    for path in package_imports.package_files(root):
        name = path.relative_to(root).as_posix()
        if not folders or _inside(name, folders):
            yield Source(name, path, package_imports.parsed(path.read_text("utf-8")))


def _inside(name: str, folders: Sequence[str]) -> bool:
    return any(name == f"vklab/{f}" or name.startswith(f"vklab/{f.rstrip('/')}/") for f in folders)


@functools.cache  # several rules ask for the definitions of each file
def definitions(tree: ast.Module) -> tuple[Definition, ...]:
    """Return the module and all its classes and functions, private and nested ones too."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))


def public_functions(tree: ast.Module) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """Yield public functions, public methods and constructors, each with its class."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_"):
                yield node, None
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and (
                    inner.name == "__init__" or not inner.name.startswith("_")
                ):
                    yield inner, node


def parameters(function: Function, owner: ast.ClassDef | None) -> list[str]:
    """Return the names of a function's parameters, with their stars and without self or cls."""
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args)]
    decorators = [ast.unparse(d) for d in function.decorator_list]
    names = names[1:] if owner and "staticmethod" not in decorators else names
    names += [f"*{given.vararg.arg}"] if given.vararg else []
    names += [a.arg for a in given.kwonlyargs]
    return names + ([f"**{given.kwarg.arg}"] if given.kwarg else [])


def explained(docstring: str) -> tuple[list[str], list[str]] | None:
    """Return the names of a docstring's Args section and its malformed lines; None without one."""
    lines = iter(docstring.splitlines())
    if not any(line == "Args:" for line in lines):
        return None
    names, malformed = [], []
    for line in lines:
        if line and not line.startswith("    "):
            break
        entry = ENTRY.match(line[4:])
        if entry:
            names += entry.group(1).split(", ")
        elif line.strip() and not line.startswith(" " * 5):
            malformed.append(line.strip())
    return names, malformed


def _needs_no_args(source: Source, function: Function) -> bool:
    decorators = " ".join(ast.unparse(d) for d in function.decorator_list)
    if re.search(r"\boperator\(|\boverload\b", decorators):
        return True  # the ONNX page documents an operator
    if not source.name.startswith(("vklab/apps/cli/", "labs/engine/vklab_course/cli/")):
        return False
    # A command's options carry their help.
    is_named_like_its_file = function.name == Path(source.name).stem
    return (
        is_named_like_its_file
        or ".command(" in decorators
        or "typer." in ast.unparse(function.args)
    )


def wrong_args(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """Check that an Args section names each parameter, and stands where there are three."""
    problems = []
    for source in sources(root, folders):
        for function, owner in public_functions(source.tree):
            where = f"{source.name}:{function.lineno}: {function.name}"
            docstring = ast.get_docstring(function) or ""
            if not docstring and owner and function.name == "__init__":
                docstring = ast.get_docstring(owner) or ""
            names, section = parameters(function, owner), explained(docstring)
            if section is None:
                if len(names) >= EXPLAINED_PARAMETERS and not _needs_no_args(source, function):
                    problems.append(f"{where}: {len(names)} parameters and no Args section")
                continue
            given = [name.lstrip("*") for name in section[0]]
            taken = [name.lstrip("*") for name in names]
            problems += [f"{where}: write `name: meaning`, not {line!r}" for line in section[1]]
            problems += [f"{where}: Args names {n}, no parameter" for n in given if n not in taken]
            problems += [f"{where}: Args leaves out {n}" for n in taken if n not in given]
    return problems


def wrong_openings(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """Check that no docstring opens with a pronoun, an article or a verb in the third person."""
    problems = []
    for source in sources(root, folders):
        for node in definitions(source.tree):
            words = (ast.get_docstring(node) or "").split()
            if not words:
                continue
            first = re.sub(r"\W+$", "", words[0])
            is_order = isinstance(node, Function) and not node.decorator_list
            third = rules.THIRD_PERSON.match(first) if is_order else first in THIRD_PERSON
            if first in PRONOUNS or third:
                name, line = getattr(node, "name", "the module"), getattr(node, "lineno", 1)
                problems.append(
                    f"{source.name}:{line}: {name}: open with a verb as an order, "
                    f"or a noun, not `{first}`"
                )
    return problems


def labs(root: Path) -> set[str]:
    """Return the numbers of the labs that exist, such as 09 and 09b."""
    return {path.stem.partition("_")[0] for path in (root / "labs" / "source").glob("*.py")}


def unknown_labs(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """Check that docstrings of modules name labs in labs/source, and how "Visited by" is written.

    "Visited by lab 09." names one lab, "Visited by labs 09 and 12b." several.
    """
    problems, known = [], labs(root)
    for source in sources(root, folders):
        docstring = " ".join((ast.get_docstring(source.tree) or "").split())
        where = f"{source.name}:1"
        for numbers in NAMED.findall(docstring):
            problems += [
                f"{where}: labs/source has no lab {number}"
                for number in re.findall(r"\d\w*", numbers)
                if number not in known
            ]
        for noun, numbers in VISITED.findall(docstring):
            if (noun == "lab") != numbers.isalnum():
                problems.append(f"{where}: `{noun} {numbers}`: lab or labs?")
        without_all = docstring.lower().replace("visited by all labs", "")
        if without_all.count("visited by") > len(VISITED.findall(docstring)):
            problems.append(f"{where}: write `Visited by lab 09.` or `Visited by labs 09 and 12.`")
    return problems


def homely_names(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """Check that no public name is a homely word for which the field has another."""
    problems = []
    for source in sources(root, folders):
        for line, kind, name in public_names(source.tree):
            if name.lower() in HOMELY:
                problems.append(f"{source.name}:{line}: {kind} {name}; say {HOMELY[name.lower()]}")
    return problems


def public_names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the kind and the name of all that a module shows to others."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.lineno, "class", node.name
            yield from ((line, "attribute", name) for line, name in _attributes(node))
        yield from ((node.lineno, "name", name) for name in _assigned(node))
    for function, owner in public_functions(tree):
        yield function.lineno, "method" if owner else "function", function.name
        for name in parameters(function, owner):
            yield function.lineno, f"{function.name}'s parameter", name.lstrip("*")


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _attributes(owner: ast.ClassDef) -> Iterator[tuple[int, str]]:
    for node in owner.body:
        yield from ((node.lineno, name) for name in _assigned(node))
    for inner in ast.walk(owner):
        is_written = isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
        if is_written and ast.unparse(inner.value) == "self":
            yield inner.lineno, inner.attr


def public_classes(root: Path) -> dict[str, list[str]]:
    """Return file and line of the public classes of the core, by name."""
    homes: dict[str, list[str]] = {}
    for source in sources(root):
        if rules.part_of(root, source.path) not in rules.CORE:
            continue
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(f"{source.name}:{node.lineno}")
    return homes


def shared_class_names(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """Check that a public class of the core has a name of its own."""
    homes = public_classes(root)
    return [
        f"{' and '.join(positions)}: two classes are called {name}"
        for name, positions in sorted(homes.items())
        if len(positions) > 1
        and name not in SHARED_CLASS_NAMES
        and (not folders or any(_inside(p.split(":")[0], folders) for p in positions))
    ]


def file_imports(root: Path) -> dict[str, set[str]]:
    """Return the files of the package that each file imports, doors and lazy names apart.

    Imports under TYPE_CHECKING and inside functions count. A sub-module's import of its own
    package does not: Python has the package in hand when it starts the sub-module.
    """
    edges: dict[str, set[str]] = {}
    for path in package_imports.package_files(root):
        name = path.relative_to(root).as_posix()
        edges[name] = set()
        for item in package_imports.imports_of(root, path):
            if not (item.function and name.startswith(DOORS)):
                edges[name] |= {
                    path.relative_to(root).as_posix()
                    for path in package_imports.files_of(root, item)
                }
        edges[name] -= {"vklab/__init__.py"}
    edges.pop("vklab/__init__.py", None)
    return edges


def import_cycles(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """Check that the files of the package import each other in one direction only."""
    edges = file_imports(root)
    cycles: dict[frozenset[str], list[str]] = {}
    for start in sorted(edges):
        cycle = _shortest_cycle(edges, start)
        if cycle and (not folders or any(_inside(name, folders) for name in cycle)):
            cycles.setdefault(frozenset(cycle), cycle)
    return [" imports ".join([*cycle, cycle[0]]) for cycle in cycles.values()]


def _shortest_cycle(edges: dict[str, set[str]], start: str) -> list[str]:
    paths = {start: [start]}
    queue = [start]
    for name in queue:
        for target in sorted(edges.get(name, ())):
            if target == start:
                return paths[name]
            if target not in paths:
                paths[target] = [*paths[name], target]
                queue.append(target)
    return []


def empty_sources(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """Check that each `Source:` line of a docstring names its source."""
    problems = []
    for source in sources(root, folders):
        for node in definitions(source.tree):
            name, line = getattr(node, "name", "the module"), getattr(node, "lineno", 1)
            if re.search(r"^\s*Source:[^\S\n]*$", ast.get_docstring(node) or "", re.MULTILINE):
                problems.append(f"{source.name}:{line}: {name}: `Source:` names nothing")
    return problems


Rule = Callable[[Path, Sequence[str]], list[str]]
RULES: dict[str, Rule] = {
    "Args": wrong_args,
    "openings": wrong_openings,
    "labs": unknown_labs,
    "names": homely_names,
    "class names": shared_class_names,
    "cycles": import_cycles,
    "sources": empty_sources,
}

if __name__ == "__main__":
    for title, rule in RULES.items():
        for problem in rule(Path.cwd(), sys.argv[1:]):
            print(f"{title}: {problem}")
