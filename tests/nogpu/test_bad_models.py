"""Models that break rules in their graph, bodies and functions: one error that names the node."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from support.graphs.small_models import model, value
from support.models.planned import next_chunk
from vklab.errors import ModelError, PlanError, UnsupportedOperatorError, VklabError
from vklab.graph import onnx_import, shapes

TRAINING = "ai.onnx.preview.training"


def plan(proto: onnx.ModelProto) -> object:
    """Walk as far as a session goes before a device is needed."""
    graph = onnx_import.load_graph(proto)
    shapes.require_operators(graph)
    given = {info.name: info for info in graph.inputs}
    return next_chunk(graph, given)


def one(op_type: str, inputs: list[str], constants: dict, **attributes: object) -> onnx.ModelProto:
    """Return a model of one node named n that reads x and constants."""
    node = helper.make_node(op_type, inputs, ["y"], name="n", **attributes)
    return model([node], [value("x", (2, 3))], ["y"], constants)


def body(outputs: list[str], reads: str = "x", inputs: tuple = ()) -> onnx.GraphProto:
    """Return a body of one Relu and Identities of it."""
    nodes = [helper.make_node("Relu", [reads], ["r"], name="inner")]
    nodes += [helper.make_node("Identity", ["r"], [name]) for name in outputs]
    named = [onnx.ValueInfoProto(name=name) for name in outputs]
    return helper.make_graph(nodes, "body", list(inputs), named)


def control(op_type: str, inputs: list[str], outputs: list[str], **bodies: object) -> object:
    """Return a model of one control node named n."""
    node = helper.make_node(op_type, inputs, outputs, name="n", **bodies)
    given = [value("x", (2, 3)), value("c", (), TensorProto.BOOL), value("m", (), 7)]
    return model([node], given, outputs[:1])


@pytest.mark.parametrize(("proto", "words"), [
    (control("If", ["c"], ["y"], then_branch=body(["a"])), "'n'.*else_branch is missing"),
    (control("If", ["c"], ["y"]), "'n'.*branch is missing"),
    (control("If", [], ["y"], then_branch=body(["a"]), else_branch=body(["b"])), "'n'.*0 are"),
    (control("If", ["c"], ["y"], then_branch=1, else_branch=body(["b"])), "'n'.*of type GRAPH"),
    (control("If", ["c"], ["y"], then_branch=body(["a"], "gone"), else_branch=body(["b"])),
     "'inner'.*'gone', which no node makes"),
    (control("If", ["c"], ["y"], then_branch=body(["a"]), else_branch=body([])), "'n'.*1 outputs"),
    (control("If", ["c"], ["y", "z"], then_branch=body(["a"]), else_branch=body(["b"])),
     "'n'.*2 outputs"),
    (control("If", ["c"], ["y"], then_branch=body(["a"], inputs=(value("i", ()),)),
             else_branch=body(["b"])), "'n'.*0 inputs"),
    (control("Loop", ["m", "c", "x"], ["y"], body=body(["a", "b"])), "'n'.*3 inputs"),
    (control("Loop", ["m", "c"], ["y"], body=body(["a"], inputs=(value("i", ()), value("k", ())))),
     "'n'.*2 outputs"),
    (control("Loop", ["m", "c"], ["y"]), "'n'.*body is missing"),
    (control("Scan", ["x"], ["y"], body=body(["a"]), num_scan_inputs=1), "'n'.*1 inputs"),
    (control("Scan", ["x"], ["y"], body=body(["a"], inputs=(value("i", ()),)), num_scan_inputs=5),
     "'n'.*num_scan_inputs=5"),
    (control("Scan", ["x"], ["y"], body=body(["a"], inputs=(value("i", ()),))), "num_scan_inputs"),
])  # fmt: skip
def test_bodies_that_do_not_fit(proto, words):
    with pytest.raises(ModelError, match=f"(?s){words}"):
        plan(proto)


@pytest.mark.parametrize(("proto", "words"), [
    (one("MatMul", ["x", "c"], {"c": np.zeros((2, 3), np.float32)}), "'n'"),
    (one("Add", ["x", "c"], {"c": np.zeros(5, np.float32)}), "'n'"),
    (one("Concat", ["x", "c"], {"c": np.zeros((2, 2), np.float32)}, axis=0), "'n'"),
    (one("Reshape", ["x", "c"], {"c": np.int64([7])}), "'n'"),
    (one("Transpose", ["x"], {}, perm=[0, 0]), "'n'"),
    (one("Add", ["x", "c"], {"c": np.zeros(3, np.int32)}), "'n'"),
])  # fmt: skip
def test_shapes_and_dtypes_that_contradict(proto, words):
    with pytest.raises(ModelError, match=words) as caught:
        plan(proto)
    assert not isinstance(caught.value, UnsupportedOperatorError)


HUGE = 2**60
ABSURD = {
    "ConstantOfShape": (["c"], {"c": np.int64([HUGE])}, {}),
    "Expand": (["x", "c"], {"c": np.int64([HUGE, 2, 3])}, {}),
    "Tile": (["x", "c"], {"c": np.int64([HUGE, 1])}, {}),
    "Range": (["a", "b", "c"], {"a": np.int64(0), "b": np.int64(HUGE), "c": np.int64(1)}, {}),
    "Resize": (["x", "", "", "c"], {"c": np.int64([HUGE, 3])}, {"mode": "linear"}),
    "Pad": (["x", "c"], {"c": np.int64([HUGE, 0, 0, 0])}, {}),
    "OneHot": (["i", "c", "v"],
               {"i": np.int64([1]), "c": np.int64(HUGE), "v": np.float32([0, 1])}, {}),
    "HannWindow": (["c"], {"c": np.int64(HUGE)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("op_type", ABSURD)
def test_absurd_sizes_are_refused_before_anything_is_made(op_type):
    inputs, constants, attributes = ABSURD[op_type]
    with pytest.raises(VklabError, match=r"'n'.*1152921504606846976|'n'.*bytes"):
        plan(one(op_type, inputs, constants, **attributes))


def function(name: str, calls: list[str], domain: str = "mine") -> onnx.FunctionProto:
    """Return a function that applies others one after the other."""
    values = ["a", *(f"v{number}" for number in range(len(calls) - 1)), "b"]
    nodes = [
        helper.make_node(call, [before], [after], domain="" if call == "Relu" else domain)
        for call, before, after in zip(calls, values, values[1:], strict=False)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_function(domain, name, ["a"], ["b"], nodes, opsets)


def calling(name: str, functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    """Return a model that calls a function."""
    call = helper.make_node(name, ["x"], ["y"], domain="mine")
    proto = model([call], [value("x", (3,))], [value("y", (3,))], functions=functions)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    return proto


def test_functions_that_multiply():
    names = [f"F{number}" for number in range(30)]
    functions = [function(names[0], ["Relu"])]
    functions += [function(b, [a] * 4) for a, b in zip(names, names[1:], strict=False)]
    with pytest.raises(ModelError, match="more than 10000000 nodes; 'F29'"):
        onnx_import.load_graph(calling("F29", functions))


def test_a_function_that_calls_itself_in_a_body():
    branch = helper.make_graph(
        [helper.make_node("F", ["a"], ["z"], domain="mine")],
        "branch",
        [],
        [onnx.ValueInfoProto(name="z")],
    )
    found = function("F", ["Relu"])
    found.node.append(helper.make_node("If", ["a"], ["b2"], then_branch=branch, else_branch=branch))
    with pytest.raises(ModelError, match="call each other in a cycle: "):
        onnx_import.load_graph(calling("F", [found]))


@pytest.mark.parametrize(("proto", "words"), [
    (one("Max", ["x", "", "x"], {}), "'n'.*input 1.*left out"),
    (one("Relu", ["x", "x"], {}), "'n'.*takes 1 inputs, 2"),
    (one("Nonsense", ["x"], {}), "'?n'?: .*Nonsense.*known neither"),
    (one("Relu", ["x"], {}, domain="nobody"), "nobody.Relu"),
    (one("Gradient", ["x"], {}, domain=TRAINING, xs=["x"], y="x"), "'?n'?: .*known neither"),
])  # fmt: skip
def test_nodes_that_no_schema_allows(proto, words):
    with pytest.raises(ModelError, match=words):
        plan(proto)


def test_a_name_that_is_no_text():
    data = one("Relu", ["x"], {}).SerializeToString().replace(b"Relu", b"Re\xffu")
    with pytest.raises(ModelError, match="is not text"):
        onnx_import.load_graph(data)


def test_a_circle_of_many_nodes_names_one_of_them():
    nodes = [
        helper.make_node("Relu", [f"v{i}"], [f"v{(i + 1) % 9}"], name=f"n{i}") for i in range(9)
    ]
    with pytest.raises(ModelError, match="node 'n0'.*cycle"):
        onnx_import.load_graph(model(nodes, [], ["v3"]))


def test_two_nodes_of_one_name_are_told_apart():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="n"),
        helper.make_node("Relu", ["a"], ["y"], name="n"),
    ]
    names = [n.name for n in onnx_import.load_graph(model(nodes, [value("x", (3,))], ["y"])).nodes]
    assert names == ["n", "n#1"]


def test_an_input_that_no_device_holds():
    with pytest.raises((ModelError, PlanError), match="x|'n'"):
        proto = one("Relu", ["x"], {})
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = HUGE
        plan(proto)
