"""The rules of the house, held on this repository and shown to be able to fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.rules import architecture_rules as rules
from support.rules import class_names, format_rules, late_imports

ROOT = Path(__file__).resolve().parent.parent

RULES: dict[str, Callable[[Path], list[str]]] = {
    "imports": rules.forbidden_imports,
    "names across folders": rules.names_across_folders,
    "imports in functions": rules.imports_in_functions,
    "__all__": rules.wrong_all,
    "docstrings": rules.wrong_docstrings,
    "Vulkan commands": lambda root: rules.unknown_vulkan_commands(root, rules.vulkan_commands()),
    "sizes": rules.too_big,
    "folders": rules.crowded_folders,
    "late imports": late_imports.late_imports,
    "formats": format_rules.unformatted,
    "class names": class_names.repeated_class_names,
}

GOOD = '"""A module."""\n\n__all__ = ["go"]\n\n\ndef go():\n    """Go there."""\n'

# rule, file, text with one violation, words of the message
PLANTED = [
    ("imports", "plan/memory.py", "from vklab.vulkan import api", "plan must not import vulkan"),
    ("imports", "graph/a.py", "from vklab import runtime", "graph must not import runtime"),
    ("imports", "ops/a.py", "import vklab.graph.graph", "ops must not import graph"),
    ("imports", "errors.py", "from .plan import memory", "errors must not import plan"),
    ("imports", "plan/a.py", "if TYPE_CHECKING:\n    from vklab.runtime import session", "runtime"),
    ("imports", "ops/a.py", "importlib.import_module('vklab.plan.memory')", "import plan"),
    ("imports", "apps/bootstrap/a.py", "import numpy", "standard library only"),
    ("imports", "apps/bootstrap/a.py", "from vklab import errors", "must not import errors"),
    ("imports", "runtime/a.py", "from vklab.apps import llm", "runtime must not import llm"),
    ("imports", "plan/a.py", "import vklab.apps.llm.chat", "plan must not import llm"),
    ("imports", "base/a.py", "from vklab.apps.compare import models", "base must not import comp"),
    ("imports", "base/manifests.py", "from vklab.base import store", "must not import base"),
    ("imports", "apps/llm/a.py", "from vklab.apps import compare", "llm must not import compare"),
    ("imports", "apps/new/a.py", "import os", "`new` is not in the import table"),
    ("imports", "graph/a.py", "from os import *", "import *"),
    ("imports", "helpers.py", "import os", "not in the import table"),
    ("imports", "apps/cli/a.py", "from vklab_course import places", "cli must not import labs"),
    ("imports", "runtime/a.py", "import vklab_labs.shared", "runtime must not import labs"),
    ("imports", "apps/cli/a.py", "from vklab.course import check", "cli must not import course"),
    ("names across folders", "plan/a.py", "from vklab.graph.graph import order", "not order"),
    ("names across folders", "plan/a.py", "from vklab.graph import order", "not order"),
    ("imports in functions", "plan/a.py", "def f():\n    import json", "json is imported inside f"),
    ("imports in functions", "plan/a.py", "def f():\n    from vklab import types", "inside f"),
    (
        "imports in functions",
        "apps/compare/a.py",
        "def f():\n    import torch\n\ndef g():\n    import torch",
        "loaded in f() already",
    ),
    ("__all__", "plan/a.py", '__all__ = ["gone"]', "names gone"),
    ("__all__", "plan/a.py", "__all__ = []\ndef f(): ...", "f is public"),
    ("__all__", "plan/a.py", "__all__ = list(x)", "not a literal"),
    ("docstrings", "plan/a.py", "x = 1", "module has no docstring"),
    ("docstrings", "plan/a.py", '"""M."""\ndef f(): ...', "f has no docstring"),
    ("docstrings", "plan/a.py", '"""M."""\ndef f():\n    """Go there"""', "no full stop"),
    ("docstrings", "plan/a.py", '"""M."""\ndef f():\n    """Returns it."""', "as an order"),
    (
        "docstrings",
        "plan/a.py",
        '"""M."""\nclass C:\n    """One C."""\n    def f(self): ...',
        "f has no docstring",
    ),
    ("Vulkan commands", "vulkan/a.py", '"""Go.\n\n  Vulkan: vkCmdDispatsch\n"""', "vkCmdDispatsch"),
    ("sizes", "plan/a.py", "x = 1\n" * 251, "251 lines"),
    ("late imports", "plan/a.py", "importlib.import_module('vklab.plan.b')", "not import_module"),
    ("late imports", "runtime/a.py", "run = Door[int]('vklab.runtime.b', 'run')", "has no doors"),
    (
        "late imports",
        "plan/a.py",
        "try:\n    from vklab.plan import b\nexcept ImportError:\n    b = 0",
        "is guarded",
    ),
    (
        "late imports",
        "plan/a.py",
        "try:\n    import vklab.plan.b\nexcept Exception:\n    b = 0",
        "is guarded",
    ),
    ("sizes", "plan/a.py", "x = " + "1" * 97, "101 columns"),
    ("formats", "plan/a.py", "x = f(1,\n      2)  # fmt: skip", "on no table"),
    ("formats", "plan/a.py", "def f():\n    x = [1,\n  2, 3]  # fmt: skip", "on no table"),
    ("formats", "plan/a.py", "# fmt: off\nX = [1,\n  2, 3]", "on no table"),
]


def plant(root: Path, name: str, text: str) -> Path:
    """Make a small project with one file of the given text."""
    path = root / "vklab" / name
    path.parent.mkdir(parents=True)
    (root / "vklab" / "graph").mkdir(exist_ok=True)
    path.write_text(text + "\n")
    return root


@pytest.mark.parametrize("rule", RULES)
def test_this_repository_keeps(rule):
    problems = RULES[rule](ROOT)
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(("rule", "name", "text", "words"), PLANTED)
def test_a_planted_violation_is_found(tmp_path, rule, name, text, words):
    problems = RULES[rule](plant(tmp_path, name, text))
    assert any(words in problem for problem in problems), problems


def test_crowded_folders_are_found(tmp_path):
    for number in range(21):
        plant_more(tmp_path, f"plan/file{number}.py")
        plant_more(tmp_path, f"ops/file{number}.py")
    for number in range(8):
        plant_more(tmp_path, f"folder{number}/a.py")
    crowded, many = sorted(rules.crowded_folders(tmp_path))
    assert crowded.startswith("vklab/ has 10 folders") and many.startswith("vklab/plan: 21 files")


def test_a_class_name_of_two_files_is_found(tmp_path):
    text = "class Trace: ...\nclass _Own: ..."
    plant(tmp_path, "base/a.py", text)
    plant(tmp_path, "plan/b.py", text)
    plant(tmp_path, "apps/llm/c.py", text)
    (problem,) = class_names.repeated_class_names(tmp_path)
    assert problem == "vklab/plan/b.py:1: Trace is a class of vklab/base/a.py:1, too"


def plant_more(root: Path, name: str) -> None:
    path = root / "vklab" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(GOOD)


@pytest.mark.parametrize("rule", RULES)
def test_a_good_module_is_left_alone(tmp_path, rule):
    assert RULES[rule](plant(tmp_path, "plan/memory.py", GOOD)) == []


def test_allowed_imports_are_left_alone(tmp_path):
    text = "from vklab import errors\nfrom vklab.graph import graph\nfrom vklab.types import A"
    root = plant(tmp_path, "plan/a.py", text)
    (root / "vklab/graph/graph.py").write_text("")
    assert rules.forbidden_imports(root) == rules.names_across_folders(root) == []


def test_a_guarded_package_of_others_is_left_alone(tmp_path):
    text = "def f():\n    try:\n        import onnx\n    except ImportError:\n        raise"
    assert late_imports.late_imports(plant(tmp_path, "runtime/a.py", text)) == []


def test_a_module_that_owns_a_heavy_package_may_be_imported_late(tmp_path):
    text = "def load_model():\n    from vklab.apps.compare import torch_model"
    root = plant(tmp_path, "apps/compare/a.py", text)
    model = root / "vklab/apps/compare/torch_model.py"
    model.write_text("import torch\n")
    assert rules.imports_in_functions(root) == []
    model.write_text("import json\n")
    assert len(rules.imports_in_functions(root)) == 1


def test_an_operator_needs_no_second_list(tmp_path):
    text = '"""M."""\n__all__ = []\n@operator("Relu")\ndef relu(X): ...'
    root = plant(tmp_path, "ops/a.py", text)
    assert rules.wrong_all(root) == rules.wrong_docstrings(root) == []


def test_tables_and_signatures_keep_a_shape_of_their_own(tmp_path):
    text = "X = [1,\n     2, 3]  # fmt: skip\ndef f(a, b):  # fmt: skip\n    ..."
    assert format_rules.unformatted(plant(tmp_path, "plan/a.py", text)) == []


def test_passes_are_a_catalogue_with_a_budget_of_their_own(tmp_path):
    root = plant(tmp_path, "graph/passes/a.py", "x = 1\n" * 200)
    assert rules.too_big(root) == []
    (root / "vklab/graph/passes/b.py").write_text("x = 1\n" * (rules.PASS_LINES * 10))
    assert any("2 passes take" in text for text in rules.too_big(root, file_lines=10**6))


def test_files_read_before_the_version_check_parse_on_old_pythons():
    import ast

    for name in ("__init__.py", "__main__.py"):
        ast.parse((ROOT / "vklab" / name).read_text("utf-8"), feature_version=(3, 7))


def python(code: str, *options: str) -> str:
    """Run code in a fresh Python at the project root and return what it printed."""
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_importing_vklab_imports_the_standard_library_only():
    code = "import sys; old = set(sys.modules); import vklab; print(*set(sys.modules) - old)"
    seen = python(code)
    strangers = {n for n in seen.split() if n.split(".")[0] not in sys.stdlib_module_names}
    assert strangers == {"vklab", "vklab.base", "vklab.base.forward", "vklab.base.version"}


def test_importing_vklab_is_cheap():
    code = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"
    # The fastest of several: the slower ones pay for cold caches.
    times_s = [float(python(code.format("vklab"))) for _ in range(5)]
    assert min(times_s) < 0.15


def test_every_name_of_the_package_is_there():
    import vklab

    assert set(vklab.__all__) <= set(dir(vklab))
    missing = [name for name in vklab.__all__ if not hasattr(vklab, name)]
    assert not missing
