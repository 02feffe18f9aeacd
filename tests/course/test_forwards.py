"""`vklab.course`: old names give the modules of vklab_course and vklab_labs, for one release."""

from __future__ import annotations

import importlib
import pickle

import pytest

import vklab_course
from support.runs.child import python
from vklab_course.definition import case
from vklab_course.grade.sandbox import package
from vklab_labs.lab_09 import onnx_bytes, onnx_bytes_pictures
from vklab_labs.lab_12 import races, races_pictures, schedules_pictures
from vklab_labs.lab_13 import parallelism, parallelism_pictures, schedules
from vklab_labs.shared import diagram

MODULES = {
    "vklab.course": vklab_course,
    "vklab.course.definition.case": case,
    "vklab.course.grade.sandbox.package": package,
    "vklab.course.figures.diagram": diagram,
    "vklab.course.labs.onnx_bytes": onnx_bytes,
    "vklab.course.figures.onnx_bytes": onnx_bytes_pictures,
    "vklab.course.labs.races": races,
    "vklab.course.figures.races": races_pictures,
    "vklab.course.labs.schedules": schedules,
    "vklab.course.figures.schedules": schedules_pictures,
    "vklab.course.labs.parallelism": parallelism,
    "vklab.course.figures.parallelism": parallelism_pictures,
}


@pytest.mark.parametrize(("name", "module"), MODULES.items(), ids=MODULES)
def test_an_old_name_is_the_same_module(name, module):
    before = module.__spec__
    assert importlib.import_module(name) is module
    assert module.__spec__ is before and module.__name__ != name


FORMS = """
import sys
{first}
import vklab.course
import vklab.course.check
import vklab.course.definition.codec as codec
from vklab.course import check, hint, show, swap, figures, labs
from vklab.course import definition
from vklab.course.check import check as again
from vklab.course.definition.codec import encode
from vklab.course.figures import diagram, races as drawn
from vklab.course.labs import races
from vklab.course.figures.diagram import Diagram
import vklab_course, vklab_labs.shared.diagram
assert vklab.course is vklab_course and check is again is vklab_course.check
assert callable(check) and callable(hint) and callable(show) and callable(swap)
assert codec is definition.codec is vklab_course.definition.codec
assert vklab.course.figures.diagram is figures.diagram is diagram is vklab_labs.shared.diagram
assert Diagram is diagram.Diagram and labs.races is races is not drawn
assert len({{id(m) for n, m in sys.modules.items() if n.endswith("definition.codec")}}) == 1
print("fine")
"""


@pytest.mark.parametrize("first", ["", "import vklab_course", "import vklab.course.figures.diagram",
                                   "import vklab_course.definition.codec"])  # fmt: skip
def test_every_form_of_import_gives_the_same_objects(first):
    assert python(FORMS.format(first=first)) == "fine\n"


@pytest.mark.parametrize("name", ["nix", "figures.nix", "labs.diagram.nix", "grade.nix"])
def test_a_name_that_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=f"vklab.course.{name}"):
        importlib.import_module(f"vklab.course.{name}")


def test_what_was_pickled_by_an_old_name_is_read():
    text = pickle.dumps(case.Case, protocol=0).replace(b"vklab_course", b"vklab.course")
    assert b"vklab.course.definition" in text and pickle.loads(text) is case.Case


def test_without_the_course_an_old_name_says_what_to_install():
    code = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "vklab_course" else real(name, *a)
try:
    import vklab.course
except ModuleNotFoundError as error:
    print(error)
"""
    assert "pip install" in python(code)


def test_the_course_refuses_another_version_of_vklab():
    code = """
import vklab
vklab.__version__ = "9.9"
try:
    import vklab_course
except vklab.SetupError as error:
    print(error)
"""
    said = python(code, PYTHON_SERVER="")
    assert "does not work with vklab 9.9" in said and "pip install vklab==0." in said
