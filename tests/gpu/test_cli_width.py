"""What the commands print fits a terminal of 60 or 80 columns, also with long names."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from support.graphs.small_models import model, random_array, value
from vklab.apps import cli

LONG = "/model/decoder/layers.12/self_attention/projection"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return the path of a model with long names."""
    names = [f"{LONG}/{kind}_output_0" for kind in ("Conv", "Relu", "Pool", "Flatten")]
    make = helper.make_node
    nodes = [
        make("Conv", ["pixels", "w"], names[:1], f"{LONG}/Conv", kernel_shape=[3, 3]),
        make("Relu", names[:1], names[1:2], f"{LONG}/Relu"),
        make("MaxPool", names[1:2], names[2:3], f"{LONG}/Pool", kernel_shape=[2, 2]),
        make("Flatten", names[2:3], names[3:], f"{LONG}/Flatten"),
    ]
    made = model(
        nodes,
        [value("pixels", ("batch_size", 3, 33, 33))],
        names[3:],
        {"w": random_array((16, 3, 3, 3))},
    )
    target = tmp_path_factory.mktemp("width") / "model.onnx"
    onnx.save(made, target)
    return str(target)


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("line", [
    "plan", "plan --set HOST=Relu", "plan --passes", "plan --devices all", "run --check --repeat 1",
    "run --repeat 1 --set HOST=*", "trace", "profile --repeat 1", "devices",
])  # fmt: skip
def test_no_line_is_wider_than_the_terminal(capsys, monkeypatch, device_index, path, line, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("VKLAB_DEVICE", str(device_index))
    command, *options = line.split()
    assert cli.main([command, *([] if command == "devices" else [path]), *options]) == 0
    shown = capsys.readouterr().out.splitlines()
    wide = [text for text in shown if len(text) > width]
    assert shown and not wide, "\n".join(wide)
