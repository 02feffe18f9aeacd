"""pyproject.toml, constraints.txt and environment.yml agree; ruff and mypy find nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fakes.fake_machine import ROOT
from support.rules import packaging_rules as rules
from support.rules import users_program
from support.runs.waits import LIMIT_S

RULES: dict[str, Callable[[Path], list[str]]] = {
    "declared once": rules.twice_declared,
    "pins": rules.wrong_pins,
    "conda": rules.conda_differences,
    "imports": rules.undeclared_imports,
    "words": rules.forbidden_words,
    "versions": rules.different_versions,
}

PYPROJECT = """
[project]
name = "vklab"
requires-python = ">=3.11"
dependencies = ["numpy>=2,<3"]
[project.optional-dependencies]
labs = ["torch>=2; sys_platform == 'linux'"]
test = ["vklab[labs]", "vulkan>=1"]
"""
CONSTRAINTS = "numpy==2.4.6\ntorch==2.13.0\nvulkan==1.3\n"
CONDA = """
dependencies: ["python>=3.11", pip, "numpy>=2,<3",
  {pip: ["torch>=2; sys_platform == 'linux'", "vulkan>=1", "-e ."]}]
"""

# rule, file, its text with one violation, words of the message
PLANTED = [
    ("declared once", "pyproject.toml", PYPROJECT.replace("vulkan", "numpy"), "numpy is declared"),
    ("pins", "constraints.txt", CONSTRAINTS.replace("numpy==2.4.6\n", ""), "no pin of numpy"),
    ("pins", "constraints.txt", CONSTRAINTS.replace("2.4.6", "3.0"), "outside numpy>=2,<3"),
    ("pins", "constraints.txt", CONSTRAINTS.replace("2.13.0", "2.13.0+cpu"), "not one exact"),
    ("pins", "constraints.txt", CONSTRAINTS.replace("==2.4.6", ">=2.4.6"), "not one exact"),
    ("pins", "constraints.txt", CONSTRAINTS + "numpy==2.4.7\n", "twice without markers"),
    ("conda", "environment.yml", CONDA.replace('"numpy>=2,<3",', ""), "lacks numpy>=2,<3"),
    ("conda", "environment.yml", CONDA.replace("<3", "<4"), "has numpy>=2,<4"),
    ("conda", "environment.yml", CONDA.replace('"vulkan>=1", ', ""), "lacks vulkan>=1"),
    ("conda", "environment.yml", 'dependencies: [{pip: ["-e ."]}, pip]', "not the last"),
    ("imports", "vklab/a.py", "def f():\n    import scipy.linalg", "scipy is not declared"),
    ("imports", "vklab/a.py", "from yaml import safe_load", "yaml is not declared"),
    ("words", "a.md", "see /wor" + "k/main/README.md", "machine"),
    ("words", "a.md", "see /tm" + "p/dev/bin", "machine"),
    ("words", "a.txt", "https://py" + "pi.org/simple", "registry"),
    ("words", "a.py", "# written by Cl" + "aude", "tools"),
]


def plant(root: Path, name: str, text: str) -> Path:
    """Make a small project in which everything agrees, but for one file."""
    (root / "vklab").mkdir()
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "constraints.txt").write_text(CONSTRAINTS)
    (root / "environment.yml").write_text(CONDA)
    (root / name).write_text(text)
    return root


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.full
def test_this_repository_keeps(rule):
    problems = RULES[rule](ROOT)
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(("rule", "name", "text", "words"), PLANTED)
def test_a_planted_violation_is_found(tmp_path, rule, name, text, words):
    problems = RULES[rule](plant(tmp_path, name, text))
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize("rule", RULES)
def test_a_good_project_is_left_alone(tmp_path, rule):
    text = "import numpy\nimport json\nfrom cffi import FFI\npath = root / 'work' / '01.ipynb'\n"
    assert RULES[rule](plant(tmp_path, "vklab/a.py", text)) == []


def test_what_the_dependencies_bring_is_pinned_too():
    assert rules.unpinned_closure(ROOT, ("labs", "test", "grade", "bench")) == []


def test_a_dependency_of_a_dependency_without_a_pin_is_found(tmp_path):
    root = plant(tmp_path, "constraints.txt", CONSTRAINTS)
    assert "cffi" in rules.unpinned_closure(root, ("test",))


@pytest.mark.parametrize(
    "options", [["check", "--output-format", "concise"], ["format", "--check"]]
)
def test_ruff_finds_nothing(options):
    command = [sys.executable, "-m", "ruff", *options, "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, "\n" + done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.slow
def test_mypy_finds_nothing_in_the_package_and_in_a_strict_program_that_uses_it(tmp_path):
    (tmp_path / "user.py").write_text(users_program.USER)
    assert (ROOT / "vklab/py.typed").exists()
    # mypy takes a module's name from its path: what is in labs/lib gets that of its package. A
    # plain `mypy` has not found these modules, and its cache says so.
    named = tmp_path / "named" / "vklab_labs"
    shutil.copytree(ROOT / "labs/engine/vklab_labs", named)
    shutil.copytree(ROOT / "labs/lib", named, dirs_exist_ok=True)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--cache-dir",
            ".mypy_cache/named",
            "vklab",
            "labs/engine/vklab_course",
            str(named),
            str(tmp_path / "user.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "MYPYPATH": str(named.parent)},
    )
    assert done.returncode == 0, "\n" + done.stdout + done.stderr
    assert "Iterator[dict[str, numpy.ndarray" in done.stdout, done.stdout  # not Any
