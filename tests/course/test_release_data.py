"""Data of a release: every file that its notebooks and the modules behind them open is in it."""

from __future__ import annotations

import ast

import pytest

from vklab_course.grade.assignment import data_files
from vklab_course.places import labs_folder

COMPUTED = ("recorded_graphs.py", "swapped.py")  # data_files names the recorded graphs


def test_no_name_of_data_is_put_together_since_a_release_could_not_find_it():
    for folder in ("lib", "checks"):
        for path in sorted((labs_folder() / folder).rglob("*.py")):
            calls = [
                node
                for node in ast.walk(ast.parse(path.read_text("utf-8")))
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "data"
            ]
            put_together = [
                call for call in calls if isinstance(call.args[0], ast.JoinedStr | ast.BinOp)
            ]
            assert not put_together or path.name in COMPUTED, path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("from vklab_labs.lab_03 import swapped_memory", {"digits.npz"}),
        ("from vklab_labs.lab_12 import (\n    chunking as c,\n)", {"graphs/resnet50.onnx"}),
        ("from vklab_labs.shared.recorded_graphs import recorded", {"graphs/unet.onnx"}),
        ("from vklab_labs.shared import copies, swapped", {"mini_classifier.onnx"}),
        ("PINS = {'mini_classifier.onnx': {}}", {"mini_classifier.onnx"}),
        ("data('packages')", {"packages"}),
    ],
)
def test_files_of_modules_are_found(text, wanted):
    assert data_files.names_in([text]) >= wanted
    assert "packages" in wanted or "packages" not in data_files.names_in([text])


def test_a_folder_and_a_file_are_copied(tmp_path):
    data_files.copy_to(tmp_path, ["data('recorded/none.npz')", "data('graphs')", "'../pyproject'"])
    copied = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert "data/graphs/resnet50.onnx" in copied and "data/digits.npz" in copied
    assert not any("none" in name or "pyproject" in name for name in copied)
