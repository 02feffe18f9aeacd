"""A Core ML program written by hand, loaded as a Graph: runs, checks and open dimensions."""

from __future__ import annotations

import coreml_written
import numpy as np

import vklab
from vklab import settings
from vklab.backends.coreml import program


def test_a_program_runs_and_is_checked_node_by_node(device, tmp_path):
    graph = program.import_package(coreml_written.small_program().save(tmp_path))
    x = np.random.default_rng(1).standard_normal((2, 5), np.float32)
    with settings.settings(CHECK="nodes"), vklab.load(graph, device) as session:
        result = session.run({"x": x})["z"]
    weight, bias = (graph.initializers[name].constant for name in ("weight", "bias"))
    np.testing.assert_allclose(result, np.maximum(x @ weight.T + bias, 0), rtol=1e-5, atol=1e-6)


def test_open_dimensions_stay_open(device_index, tmp_path):
    made = coreml_written.small_program()
    for kind in (made.function.inputs[0].type, *(o.outputs[0].type for o in made.block.operations)):
        if kind.tensorType.rank == 2 and kind.tensorType.dimensions[0].constant.size == 2:
            kind.tensorType.dimensions[0].unknown.SetInParent()
    graph = program.import_package(made.save(tmp_path))
    assert [str(info) for info in graph.inputs] == ["x: float32[x.0,5]"]
    x = np.random.default_rng(1).standard_normal((7, 5), np.float32)
    weight, bias = (graph.initializers[name].constant for name in ("weight", "bias"))
    with vklab.load(graph, device_index) as session:
        for count in (1, 7):
            wanted = np.maximum(x[:count] @ weight.T + bias, 0)
            np.testing.assert_allclose(session.run({"x": x[:count]})["z"], wanted, rtol=1e-5,
                                       atol=1e-6)  # fmt: skip
