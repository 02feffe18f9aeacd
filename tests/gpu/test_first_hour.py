"""Habits of another runtime, and what a file tells of itself."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.small_models import relu
from vklab.apps import cli
from vklab.errors import ModelError


def test_the_order_of_another_runtime_is_refused_with_the_call_to_make(device_index):
    feeds = {"x": np.ones((2, 3), np.float32)}
    with vklab.load(relu(), device_index) as session:
        for first in (None, ["y"]):
            with pytest.raises(ModelError, match=r"run\(feeds, outputs=\[...\]\)"):
                session.run(first, feeds)
        assert session.run(feeds, outputs=["y"])["y"].shape == (2, 3)


def test_metadata_are_what_the_file_says(tmp_path, device_index):
    proto = relu()
    proto.producer_name, proto.producer_version, proto.model_version = "me", "2.1", 7
    proto.doc_string, proto.graph.doc_string = "a model", "a graph"
    entry = proto.metadata_props.add()
    entry.key, entry.value = "labels", "cat dog"
    with vklab.load(proto, device_index) as session:
        told = session.metadata
    assert told == {
        "producer_name": "me",
        "producer_version": "2.1",
        "model_version": 7,
        "domain": "",
        "ir_version": 8,
        "opsets": {"ai.onnx": 17},
        "doc_string": "a model",
        "graph_name": "test",
        "graph_doc_string": "a graph",
        "properties": {"labels": "cat dog"},
    }


def test_a_compiled_model_has_no_metadata(tmp_path, device_index, capsys):
    (tmp_path / "m.onnx").write_bytes(relu().SerializeToString())
    assert cli.main(["compile", str(tmp_path / "m.onnx"), "--device", str(device_index)]) == 0
    with vklab.load(tmp_path / "m.vklab", device_index) as session:
        assert session.metadata == {}
