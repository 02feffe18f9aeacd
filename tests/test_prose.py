"""Docstrings, names and import cycles: held on this repository and shown to be able to fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.rules import prose_rules as rules

ROOT = Path(__file__).resolve().parent.parent

ARGS = '''def go(device, size_bytes, *, queue=0):
    """Go there.

    Args:
        device: index of the device.
        size_bytes: size of the buffer
            on that device.
        queue: index of the queue family.
    """
'''
GOOD = '"""Routes of transfers.\n\nVisited by labs 09 and 12b.\n"""\n\n\n' + ARGS
THREE = "    def __init__(self, a, b, c): ..."
NO_LAB = "labs/source has no lab 21"

# rule, file, text with one violation, words of the message
PLANTED = [
    ("Args", "plan/a.py", "def f(a, b, *, c): ...", "3 parameters and no Args section"),
    ("Args", "plan/a.py", "def f(a, *rest, **options): ...", "3 parameters and no Args section"),
    ("Args", "plan/a.py", "class C:\n    def f(self, a, b, c): ...", "f: 3 parameters"),
    ("Args", "plan/a.py", f"class C:\n{THREE}", "__init__: 3 parameters"),
    ("Args", "plan/a.py", "class C:\n    @staticmethod\n    def f(a, b, c): ...", "f: 3"),
    ("Args", "cli/console.py", "def table(a, b, c): ...", "table: 3 parameters"),
    ("Args", "plan/a.py", ARGS.replace("queue:", "family:"), "Args names family, no parameter"),
    ("Args", "plan/a.py", ARGS.replace("queue:", "family:"), "Args leaves out queue"),
    ("Args", "plan/a.py", ARGS.replace("queue: ", "the queue "), "not 'the queue index"),
    ("Args", "plan/a.py", ARGS.replace("queue:", "queue, family:"), "Args names family"),
    ("Args", "plan/a.py", ARGS.replace(", *, queue=0", ""), "Args names queue, no parameter"),
    ("openings", "plan/a.py", '"""What a plan is."""', "the module"),
    ("openings", "plan/a.py", '"""Decides the order of nodes."""', "not `Decides`"),
    ("openings", "plan/a.py", 'class C:\n    """The plan."""', "not `The`"),
    ("openings", "plan/a.py", 'class C:\n    """It, the plan."""', "not `It`"),
    ("openings", "plan/a.py", 'def _f():\n    """Sorts all nodes."""', "not `Sorts`"),
    ("openings", "plan/a.py", 'def f():\n    def g():\n        """Those."""', "g: open with"),
    ("labs", "plan/a.py", '"""Plans.\n\nVisited by lab 21.\n"""', NO_LAB),
    ("labs", "plan/a.py", '"""Plans.\n\nVisited by labs 09\nand 21.\n"""', NO_LAB),
    ("labs", "plan/a.py", '"""Plans.\n\nVisited by labs 02 to 21.\n"""', NO_LAB),
    ("labs", "plan/a.py", '"""Plans.\n\nVisited by labs 09.\n"""', "lab or labs"),
    ("labs", "plan/a.py", '"""Plans.\n\nVisited by lab 09 and 10.\n"""', "lab or labs"),
    ("labs", "plan/a.py", '"""Plans.\n\nVisited by lab 09b.\n"""', "no lab 09b"),
    ("labs", "plan/a.py", '"""Plans, used by references (lab\n21)."""', NO_LAB),
    ("labs", "plan/a.py", '"""Plans.\n\nVisited by every lab.\n"""', "write `Visited by lab 09.`"),
    ("names", "plan/a.py", "def walk(): ...", "function walk; say traversal"),
    ("names", "plan/a.py", "class Wish: ...", "class Wish"),
    ("names", "plan/a.py", "def f(*, places=()): ...", "f's parameter places"),
    ("names", "plan/a.py", "class C:\n    members: int", "attribute members"),
    ("names", "plan/a.py", "class C:\n    def _f(self):\n        self.held = 1", "attribute held"),
    ("names", "plan/a.py", "twin = 1", "name twin"),
    ("sources", "plan/a.py", 'def f():\n    """Sort.\n\n    Source:\n    """', "f: `Source:`"),
]

# Files of one small package, and words of the only message.
CYCLES = [
    ({"a": "from vklab.plan import b", "b": "from vklab.plan import a"}, "a.py imports"),
    ({"a": "from vklab.plan.b import B", "b": "def f():\n    from vklab.plan import a"}, "b.py"),
    ({"a": "import vklab.plan.b", "b": "if TYPE_CHECKING:\n    from . import a"}, "b.py"),
    ({"__init__": "from vklab.plan import a", "a": "from vklab import plan"}, "__init__.py"),
    ({"__init__": "from vklab.plan import a", "a": "from vklab.plan import make"}, "__init__.py"),
    ({"a": "from . import b", "b": "from . import c", "c": "from . import a"}, "c.py"),
]


def plant(root: Path, **texts: str) -> Path:
    """Make a small project with the given files, named by their paths under `vklab/`."""
    for name, text in {"graph/__init__": "", "plan/__init__": "", **texts}.items():
        path = root / "vklab" / f"{name.removesuffix('.py')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (root / "labs" / "source").mkdir(parents=True, exist_ok=True)
    for lab in ("02_devices", "09_onnx_graphs", "10_passes", "12b_races"):
        (root / "labs" / "source" / f"{lab}.py").touch()
    return root


@pytest.mark.parametrize("rule", rules.RULES)
def test_this_repository_keeps(rule):
    problems = rules.RULES[rule](ROOT, ())
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(("rule", "name", "text", "words"), PLANTED)
def test_a_planted_violation_is_reported(tmp_path, rule, name, text, words):
    problems = rules.RULES[rule](plant(tmp_path, **{name: text}), ())
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize("rule", rules.RULES)
def test_a_good_module_is_left_alone(tmp_path, rule):
    assert rules.RULES[rule](plant(tmp_path, **{"plan/memory": GOOD}), ()) == []


@pytest.mark.parametrize(("files", "words"), CYCLES)
def test_a_cycle_is_reported_once(tmp_path, files, words):
    root = plant(tmp_path, **{f"plan/{name}": text for name, text in files.items()})
    (problem,) = rules.import_cycles(root)
    assert words in problem


def test_doors_and_lazy_names_make_no_cycle(tmp_path):
    root = plant(
        tmp_path,
        __init__="from vklab.plan import plan",
        **{
            "plan/plan": "def f():\n    from vklab.plan import fusion",
            "plan/fusion/__init__": "from vklab.plan.fusion import codegen",
            "plan/fusion/codegen": "import vklab\nfrom vklab.plan import plan\n"
            "from vklab.plan.fusion import flow",
            "plan/fusion/flow": "from vklab import load",
        },
    )
    assert rules.import_cycles(root) == []


def test_one_class_name_in_two_folders_is_reported_unless_it_is_an_alias(tmp_path):
    texts = {
        "plan/a": "class Chunk: ...",
        "runtime/a": "Chunk = tuple",
        "cli/a": "class Chunk: ...",
    }
    root = plant(tmp_path, **texts)
    assert rules.shared_class_names(root) == []
    plant(tmp_path, **{"runtime/b": "class Chunk: ..."})
    (problem,) = rules.shared_class_names(root)
    assert "plan/a.py:1 and vklab/runtime/b.py:1" in problem


def test_shared_class_names_are_listed_while_they_are_shared(monkeypatch):
    listed = rules.SHARED_CLASS_NAMES
    monkeypatch.setattr(rules, "SHARED_CLASS_NAMES", {})
    problems = "\n".join(rules.shared_class_names(ROOT))
    assert all(f"are called {name}" in problems for name in listed)


def test_some_functions_need_no_args(tmp_path):
    texts = {
        "ops/a": '@operator("Relu")\ndef relu(X, Y, Z): ...',
        "plan/a": "@overload\ndef f(a, b, c): ...\ndef _g(a, b, c): ...\ndef h(a, b, *, c=0):\n"
        '    """Do it.\n\n    Args:\n        a: one.\n        b: two.\n        c: three.\n    """',
        "plan/b": f'class C:\n    """A thing.\n\n    Args:\n        a, b: one, two.\n'
        f'        c: three.\n    """\n\n{THREE}\n    def __exit__(self, a, b, c): ...',
        "apps/cli/run": "def run(a, b, c): ...\n@shader.command('show')\ndef show(a, b, c): ...\n"
        "def switches(context: typer.Context, a, b): ...",
    }
    assert rules.wrong_args(plant(tmp_path, **texts)) == []


def test_a_rule_can_be_held_on_some_folders_only(tmp_path):
    root = plant(tmp_path, **{"plan/a": "def f(a, b, c): ...", "errors": '"""The tree."""'})
    assert len(rules.wrong_args(root, ["plan"])) == len(rules.wrong_args(root, ["plan/a.py"])) == 1
    assert rules.wrong_args(root, ["pla", "graph"]) == rules.wrong_openings(root, ["plan"]) == []
    assert len(rules.wrong_openings(root, ["errors.py"])) == 1


def test_contributing_names_files_that_exist_and_shows_real_code():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    words = re.findall(r"`([\w./*-]+)`|\]\(([^)#]+)\)", text)
    paths = {name for pair in words for name in pair if "/" in name or name.endswith(".md")}
    paths = {path for path in paths if not re.search("NAME|NN", path)}
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not [*ROOT.glob(path)]] == []
    (function,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert function in (ROOT / "vklab/ops/activation.py").read_text("utf-8")
    (kernel,) = re.findall(r"```slang\n(.*?)```", text, re.DOTALL)
    library = (ROOT / "shaders/lib/elementwise.slang").read_text("utf-8")
    assert " ".join(kernel.split()) in " ".join(library.split())
