"""What the packaging files must agree on, as functions over a project root.

pyproject.toml and labs/pyproject.toml are the sources; constraints.txt and environment.yml follow.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.rules import package_imports

# conda-forge's name where it differs, and what it lacks (or may lack in the version wanted).
CONDA_NAMES = {"torch": "pytorch", "msgpack": "msgpack-python"}
PIP_ONLY = {"gguf", "playwright", "vulkan"}
CONDA_EXTRAS = ("labs", "grade", "test")
PROJECTS = ("pyproject.toml", "labs/pyproject.toml")
OWN = ("vklab", "vklab-course")
NAME = r"[\w.-]+(\[.*?\])?"

# The distribution that brings a module, where the names differ.
DISTRIBUTIONS = {"zmq": "pyzmq", "google": "protobuf",
    "IPython": "ipython", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml",
}  # fmt: skip
# Modules that come with a declared distribution and are part of its interface.
COMES_WITH = {
    "cffi": "vulkan", "IPython": "jupyterlab", "nbformat": "jupyterlab",
}  # fmt: skip


def declared(root: Path, *projects: str) -> dict[str, list[str]]:
    """Return the requirement lines of projects, else of both, by extra; '' is none."""
    lines: dict[str, list[str]] = {"": []}
    for name in projects or PROJECTS:
        if (root / name).is_file():
            project = tomllib.loads((root / name).read_text("utf-8"))["project"]
            lines[""] += project["dependencies"]
            lines |= project.get("optional-dependencies", {})
    return lines


def flatten(root: Path, extras: tuple[str, ...]) -> list[str]:
    """Return the lines of the core and of some extras, with references to other extras resolved."""
    lines = declared(root)
    found: list[str] = []
    waiting = ["", *extras]
    for extra in waiting:
        for line in lines.get(extra, ()):
            requirement = Requirement(line)
            if requirement.name in OWN:
                waiting += sorted(requirement.extras - set(waiting))
            elif line not in found:
                found.append(line)
    return found


def twice_declared(root: Path) -> list[str]:
    """Check that each distribution is declared in one place."""
    seen: dict[str, str] = {}
    problems = []
    for extra, lines in declared(root).items():
        for line in lines:
            name = canonicalize_name(Requirement(line).name)
            if name not in OWN and seen.setdefault(name, extra) != extra:
                problems.append(f"{name} is declared in {seen[name] or 'core'!r} and {extra!r}")
    return problems


def pins(root: Path) -> dict[str, list[Requirement]]:
    """Return the pins of constraints.txt by canonical name."""
    found: dict[str, list[Requirement]] = {}
    for line in (root / "constraints.txt").read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(line)
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def wrong_pins(root: Path) -> list[str]:
    """Check that every declared distribution has exact pins inside its range."""
    problems, pinned = [], pins(root)
    for name, entries in pinned.items():
        for entry in entries:
            if not re.fullmatch(r"==[\w.]+", str(entry.specifier)):
                problems.append(
                    f"constraints.txt: {name}{entry.specifier} is not one exact version"
                )
        if len(entries) > 1 and not all(entry.marker for entry in entries):
            problems.append(f"constraints.txt: {name} is pinned twice without markers")
    for line in {line for lines in declared(root).values() for line in lines}:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name in OWN:
            continue
        if name not in pinned:
            problems.append(f"constraints.txt: no pin of {name}")
        for entry in pinned.get(name, ()):
            version = str(entry.specifier).removeprefix("==")
            if not requirement.specifier.contains(version, prereleases=True):
                problems.append(f"constraints.txt: {name} {version} is outside {line}")
    return problems


def unpinned_closure(root: Path, extras: tuple[str, ...]) -> list[str]:
    """Check that all that the installed declared distributions bring along is pinned too."""
    pinned = pins(root)
    waiting = [Requirement(line) for line in flatten(root, extras)]
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        try:
            brings = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        waiting += [Requirement(text) for text in brings]
    # CUDA packages come with the default build of torch and carry its version, not ours.
    return sorted(
        name for name in seen - set(pinned) if not re.match(r"nvidia-|cuda-|triton", name)
    )


def conda_differences(root: Path) -> list[str]:
    """Check that environment.yml mirrors both projects, with the extras labs, grade and test."""
    file = yaml.safe_load((root / "environment.yml").read_text("utf-8"))
    *conda, last = file["dependencies"]
    problems = []
    if not isinstance(last, dict) or list(last) != ["pip"]:
        return ["environment.yml: the pip section is not the last entry"]
    if any(not isinstance(entry, str) for entry in conda):
        problems.append("environment.yml: one pip section only")
    wanted_conda, wanted_pip = {"pip"}, {"-e ."}
    wanted_pip |= {"-e ./labs"} if (root / PROJECTS[1]).is_file() else set()
    python = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    wanted_conda.add(f"python{python['requires-python']}")
    for line in flatten(root, CONDA_EXTRAS):
        requirement = Requirement(line)
        if requirement.marker or requirement.name in PIP_ONLY:
            wanted_pip.add(line)
        else:
            renamed = CONDA_NAMES.get(requirement.name, requirement.name)
            # Without extras, which conda does not know: its packages come with theirs.
            wanted_conda.add(f"{renamed}{line[re.match(NAME, line).end() :]}")
    for place, wanted, there in (
        ("conda", wanted_conda, set(conda)),
        ("pip", wanted_pip, set(last["pip"])),
    ):
        problems += [f"environment.yml, {place}: lacks {line}" for line in sorted(wanted - there)]
        problems += [f"environment.yml, {place}: has {line}" for line in sorted(there - wanted)]
    return problems


def undeclared_imports(root: Path) -> list[str]:
    """Check that what vklab imports is declared in its project, and the course's in one of both."""
    problems = []
    known: set[str] = set()
    for project, folder in zip(PROJECTS, ("vklab", "labs"), strict=True):
        known |= {
            canonicalize_name(Requirement(line).name)
            for lines in declared(root, project).values()
            for line in lines
        }
        for path in package_imports.package_files(root):
            if path.is_relative_to(root / folder):
                problems += _undeclared(root, path, known, project)
    return problems


def _undeclared(root: Path, path: Path, known: set[str], project: str) -> list[str]:
    problems = []
    for node in ast.walk(package_imports.parsed(path.read_text("utf-8"))):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        for module in {name.split(".")[0] for name in modules}:
            distribution = COMES_WITH.get(module) or DISTRIBUTIONS.get(module, module)
            own = module in ("vklab", *package_imports.COURSE) or module in sys.stdlib_module_names
            if not own and canonicalize_name(distribution) not in known:
                where = f"{path.relative_to(root)}:{node.lineno}"  # type: ignore[attr-defined]
                problems.append(f"{where}: {module} is not declared in {project}")
    return problems


def different_versions(root: Path) -> list[str]:
    """Check that the course has the version of vklab, and asks for no other."""
    if not (root / PROJECTS[1]).is_file():
        return []
    found = {
        name: re.findall(pattern, (root / name).read_text("utf-8"))
        for name, pattern in (
            ("vklab/base/version.py", r'(?m)^__version__ = "(.+)"'),
            ("labs/engine/vklab_course/__init__.py", r'(?m)^__version__ = "(.+)"'),
            (PROJECTS[1], r'"vklab==(.+)"'),
        )
    }
    return [] if len({*map(tuple, found.values())}) == 1 else [f"versions differ: {found}"]


# Assembled from pieces, so that this file does not hold what it forbids.
FORBIDDEN = {
    "a path of somebody's machine": (
        r"(?<![\w.~})/-])/" + r"work/(?=[a-z])|/" + r"tmp/dev\b|/" + r"opt/(?:wheels|pypi)"
        r"|/" + r"root/|/" + r"home/(?!user\b|student\b|\.)\w+"
    ),
    "a package registry's host": (
        r"\bpy" + r"pi\.org|python" + r"hosted\.org|\banaconda" + r"\.org|npm" + r"js\.(?:org|com)"
    ),
    "words about the tools that wrote this": (
        r"(?i)\bcl" + r"aude\b|\banth" + r"ropic\b|\bAI ag" + r"ent|\bag" + r"ent session"
        r"|\bsession of the ag" + r"ent|\bissues " + r"show\b|\bthe lead's " + r"brief"
    ),
}


def tracked_files(root: Path) -> list[Path]:
    """Return the files that git tracks or would, or all files where there is no git."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(git, cwd=root, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        found = [root / name for name in listed.stdout.split("\0") if name]
    else:
        hidden = {".venv", "work", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
        found = [p for p in root.rglob("*") if not hidden & set(p.relative_to(root).parts)]
    return [path for path in found if path.is_file()]


def forbidden_words(root: Path) -> list[str]:
    """Check that no file carries words that belong to the place where it was written."""
    problems = []
    for path in tracked_files(root):
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            for what, pattern in FORBIDDEN.items():
                found = re.search(pattern, line)
                if found:
                    where = f"{path.relative_to(root)}:{number}"
                    problems.append(f"{where}: {what}: {found.group()!r}")
    return problems
