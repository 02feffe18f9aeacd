"""Names of modules that moved into vklab/apps and vklab/base, and public names that stay."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import operator
import pickle
from pathlib import Path

import pytest

import vklab
from support.runs.child import python
from vklab import apps
from vklab.apps.compare.backend import Availability
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.base import forward

ROOMS = {**vklab._MOVED, **{f"apps.{old}": f"apps.{new}" for old, new in apps._MOVED.items()}}
INNER = {"llm": "gguf", "distributed": "batches", "pytorch": "frontend", "quantization": "blocks",
         "backends": "judging.flips", "bench": "runners.runner", "draw": "svg", "trace": "gantt",
         "doctor": "checks", "cli": "console", "bootstrap": "steps"}  # fmt: skip


@pytest.mark.parametrize("old", ROOMS)
def test_an_old_name_is_the_same_module(old):
    if old.endswith("mini_classifier"):
        pytest.importorskip("torch")
    new = importlib.import_module(f"vklab.{ROOMS[old]}")
    before = new.__spec__
    assert importlib.import_module(f"vklab.{old}") is new
    assert operator.attrgetter(old)(vklab) is new
    assert new.__spec__ is before and new.__name__ == f"vklab.{ROOMS[old]}"


@pytest.mark.parametrize("old", INNER)
def test_a_module_inside_a_folder_that_moved_is_the_same_module(old):
    new = importlib.import_module(f"vklab.{ROOMS[old]}.{INNER[old]}")
    assert importlib.import_module(f"vklab.{old}.{INNER[old]}") is new


FORMS = """
import sys
{first}
import vklab.llm
import vklab.llm.gguf as gguf
from vklab import distributed, draw, llm
from vklab.llm import load, gguf as again
from vklab.apps.llm.weights import gguf as now
from vklab.backends.judging import flips
import vklab.apps.llm.gguf, vklab.apps.compare.judging.flips
assert vklab.llm is llm is vklab.apps.llm and gguf is again is vklab.apps.llm.gguf is now
assert flips is vklab.apps.compare.judging.flips and callable(load) and callable(distributed.map)
for module in (gguf, flips, draw):
    assert len({{id(m) for m in sys.modules.values() if m.__name__ == module.__name__}}) == 1
print("fine")
"""


def test_a_module_that_moved_inside_llm_is_an_attribute_without_an_import():
    code = "import vklab; print(vklab.llm.gguf.__name__, hasattr(vklab.llm, 'nix'))"
    assert python(code) == "vklab.apps.llm.weights.gguf False\n"


@pytest.mark.parametrize("first", ["", "import vklab.apps.llm.gguf", "from vklab import draw"])
def test_every_form_of_import_gives_the_same_objects(first):
    assert python(FORMS.format(first=first)) == "fine\n"


@pytest.mark.parametrize("line", [
    "from vklab.bench import mini_classifier as found",
    "import vklab.bench.mini_classifier as found",
    "from vklab.apps.compare.speed import mini_classifier as found",
])  # fmt: skip
def test_a_module_that_moved_twice_is_found_by_both_names(line):
    pytest.importorskip("torch")
    from vklab.apps.compare.models import exporting

    names: dict[str, object] = {}
    exec(line, names)
    assert names["found"] is exporting


@pytest.mark.parametrize("name", ["nix", "llm.nix", "backends.coreml.nix", "bench.models.nix"])
def test_a_name_that_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=rf"vklab\.(apps\.\w+\.)*.*{name.split('.')[-1]}"):
        importlib.import_module(f"vklab.{name}")


def test_a_folder_that_a_pull_left_behind_hides_nothing(tmp_path):
    # git removes the files of vklab/llm, and leaves the folder with its bytecode.
    left = f"import vklab; vklab.__path__.insert(0, {str(tmp_path)!r})\n"
    (tmp_path / "llm/__pycache__").mkdir(parents=True)
    assert python(left + "from vklab.llm import load\nprint(load.__name__)") == "load\n"


def test_what_was_pickled_by_an_old_name_is_read():
    text = pickle.dumps(Availability, protocol=0).replace(b"vklab.apps.compare", b"vklab.backends")
    assert b"vklab.backends.backend" in text and pickle.loads(text) is Availability
    for old in (b"vklab.llm.gguf", b"vklab.apps.llm.gguf"):
        text = pickle.dumps(GgufFile, protocol=0).replace(b"vklab.apps.llm.weights.gguf", old)
        assert old in text and pickle.loads(text) is GgufFile


@pytest.mark.parametrize(
    ("old", "new"),
    [("vklab.backends.models:encoder", "vklab.apps.compare.models:encoder"),
     ("vklab.bench.models:mlp", "vklab.apps.compare.models.graphs:mlp"),
     ("vklab.llm", "vklab.apps.llm"), ("vklab.llm.gguf", "vklab.apps.llm.weights.gguf"),
      ("vklab.runtime.session", "vklab.runtime.session"),
     ("mine.models:net", "mine.models:net"), ("vklab", "vklab")],
)  # fmt: skip
def test_the_name_that_something_has_now(old, new):
    assert forward.current(old) == new


def test_type_checkers_see_the_names_that_a_program_sees():
    tree = ast.parse(Path(vklab.__file__).with_suffix(".pyi").read_text("utf-8"))
    seen = {"__version__": vklab.__version__}
    for line in tree.body:
        if isinstance(line, ast.ImportFrom):
            [name] = line.names
            assert name.name == name.asname, f"{name.name} is not exported"
            seen[name.name] = getattr(importlib.import_module(line.module), name.name)
    assert seen.keys() == {*vklab.__all__, "distributed", "llm"}
    assert [name for name, value in seen.items() if value is not getattr(vklab, name)] == []


def test_the_entry_point_of_pytorch_stays():
    [entry] = [
        each
        for each in importlib.metadata.entry_points(group="torch_dynamo_backends")
        if each.name == "vklab"
    ]
    assert entry.load() is importlib.import_module("vklab.apps.pytorch.backend").vklab_backend
