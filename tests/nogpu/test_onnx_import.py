"""Importing ONNX: what a good model becomes, and one clear error for every way to be wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.graphs.small_models import DATA, FLOAT, model, relu, value
from vklab.errors import ModelError
from vklab.graph import onnx_import
from vklab.types import ANY_SHAPE


def two_nodes() -> onnx.ModelProto:
    """Build y = Relu(x + c)."""
    nodes = [
        helper.make_node("Add", ["x", "c"], ["t"], name="add"),
        helper.make_node("Relu", ["t"], ["y"], name="relu"),
    ]
    constants = {"c": np.ones((3,), np.float32)}
    return model(nodes, [value("x", (2, 3))], [value("y", (2, 3))], constants)


def test_a_model_becomes_a_graph():
    graph = onnx_import.load_graph(two_nodes())
    assert [str(node) for node in graph.nodes] == ["add: t = Add(x, c)", "relu: y = Relu(t)"]
    assert [str(info) for info in graph.inputs] == ["x: float32[2,3]"]
    assert graph.outputs == ("y",) and graph.opset == 17
    np.testing.assert_array_equal(graph.initializers["c"].constant, np.ones(3))


def test_path_bytes_and_proto_are_the_same_model(tmp_path):
    proto = two_nodes()
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    texts = {
        onnx_import.load_graph(m)._repr_html_()
        for m in (proto, path, str(path), proto.SerializeToString())
    }
    assert len(texts) == 1


def test_nodes_in_any_order_are_sorted():
    proto = two_nodes()
    proto.graph.node.reverse()
    assert [node.name for node in onnx_import.load_graph(proto).nodes] == ["add", "relu"]


def test_old_models_list_initializers_among_the_inputs():
    proto = two_nodes()
    proto.ir_version = 3
    proto.graph.input.append(value("c", (3,)))
    graph = onnx_import.load_graph(proto)
    assert [info.name for info in graph.inputs] == ["x"] and "c" in graph.initializers


def test_the_long_name_of_the_default_domain():
    proto = two_nodes()
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    graph = onnx_import.load_graph(proto)
    assert graph.opset == 17 and graph.nodes[0].domain == ""


def test_nodes_without_names_get_one():
    proto = two_nodes()
    for node in proto.graph.node:
        node.name = ""
    assert [node.name for node in onnx_import.load_graph(proto).nodes] == ["Add_0", "Relu_1"]


def test_open_dimensions_keep_or_get_a_name():
    shape = onnx_import.load_graph(relu(("batch", None, 3))).inputs[0].shape
    assert shape == ("batch", "x.1", 3)


def test_constants_become_initializers():
    attributes = [
        {"value": numpy_helper.from_array(np.float32([1, 2]))},
        {"value_float": 1.5},
        {"value_floats": [1.0, 2.0]},
        {"value_int": 3},
        {"value_ints": [3, 4]},
    ]
    nodes = [helper.make_node("Constant", [], [f"c{i}"], **a) for i, a in enumerate(attributes)]
    nodes.append(helper.make_node("Relu", ["c0"], ["y"]))
    infos = onnx_import.load_graph(model(nodes, [], ["y"])).initializers
    assert [str(infos[f"c{i}"]) for i in range(5)] == [
        "c0: float32[2]",
        "c1: float32[]",
        "c2: float32[2]",
        "c3: int64[]",
        "c4: int64[2]",
    ]


def test_functions_are_put_in_place():
    body = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Neg", ["b"], ["c"])]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("mine", "ReluNeg", ["a"], ["c"], body, opsets)
    call = helper.make_node("ReluNeg", ["x"], ["y"], domain="mine")
    proto = model([call], [value("x", (3,))], [value("y", (3,))], functions=[function])
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    assert [n.op_type for n in onnx_import.load_graph(proto).nodes] == ["Relu", "Neg"]


def test_functions_of_one_name_differ_by_their_overload():
    opsets = [helper.make_opsetid("", 17)]
    functions = [
        helper.make_function(
            "mine", "F", ["a"], ["b"], [helper.make_node(op, ["a"], ["b"])], opsets, overload=op
        )
        for op in ("Neg", "Relu")
    ]
    calls = [
        helper.make_node("F", [a], [b], domain="mine", overload=op)
        for a, b, op in (("x", "t", "Relu"), ("t", "y", "Neg"))
    ]
    proto = model(calls, [value("x", (3,))], [value("y", (3,))], functions=functions)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    assert [n.op_type for n in onnx_import.load_graph(proto).nodes] == ["Relu", "Neg"]
    functions[1].overload = "Neg"
    twice = model(calls, [value("x", (3,))], [value("y", (3,))], functions=functions)
    with pytest.raises(ModelError, match="two functions of the model have one name and one overl"):
        onnx_import.load_graph(twice)


def of_function(op_type: str, own: int, given: int = 0, **attributes: int) -> onnx.ModelProto:
    """Return a model of opset `given`, 0 for none, whose function imports opset `own`."""
    body = [helper.make_node(op_type, ["a"], ["b"], **attributes)]
    function = helper.make_function("mine", "F", ["a"], ["b"], body, [helper.make_opsetid("", own)])
    call = helper.make_node("F", ["x"], ["y"], domain="mine")
    proto = model([call], [value("x", (3,))], [value("y", (3,))], functions=[function])
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    if given:
        proto.opset_import.append(helper.make_opsetid("", given))
    return proto


@pytest.mark.parametrize(("op_type", "own", "given"), [
    ("Neg", 13, 17), ("Softmax", 18, 17), ("Tanh", 21, 17), ("Relu", 6, 17), ("Relu", 21, 12),
    ("Elu", 22, 17), ("Neg", 17, 0),
])  # fmt: skip
def test_a_function_may_import_another_version_of_the_same_operator(op_type, own, given):
    found = onnx_import.load_graph(of_function(op_type, own, given))
    assert [n.op_type for n in found.nodes] == [op_type]
    assert found.opset == (given or own)


@pytest.mark.parametrize(("op_type", "own", "attributes"), [
    ("Softmax", 11, {}), ("Softmax", 11, {"axis": 0}), ("Upsample", 9, {}), ("Neg", 99, {}),
    ("GroupNormalization", 21, {"num_groups": 1}),
])  # fmt: skip
def test_an_operator_of_a_function_that_differs_between_versions_is_named(op_type, own, attributes):
    with pytest.raises(
        ModelError,
        match=f"'F' imports version {own} of .* version 17, and {op_type} is not the same in both",
    ):
        onnx_import.load_graph(of_function(op_type, own, 17, **attributes))


# ------------------------------------------------------------------------------------ bad input


def test_what_is_not_there():
    with pytest.raises(FileNotFoundError, match=r"gone\.onnx"):
        onnx_import.load_graph("gone.onnx")


@pytest.mark.parametrize("data", [b"", b"hello, world", b"\x89PNG\r\n\x1a\n", bytes(1000),
                                  b"\x08\x08", np.random.default_rng(0).bytes(4096)])  # fmt: skip
def test_bytes_that_are_no_model(data, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    for given, words in ((data, "the given bytes"), (path, "m.onnx")):
        with pytest.raises(ModelError, match=words):
            onnx_import.load_graph(given)


def test_a_folder_and_a_number_are_no_model(tmp_path):
    with pytest.raises(ModelError, match="is a folder"):
        onnx_import.load_graph(tmp_path)
    with pytest.raises(ModelError, match="not int"):
        onnx_import.load_graph(3)  # type: ignore[arg-type]


def test_a_file_cut_off_anywhere_is_an_error():
    data = (DATA / "digits_cnn.onnx").read_bytes()
    cuts = {*range(200), *range(0, len(data), 997), *range(len(data) - 200, len(data))}
    survivors = []
    for cut in sorted(cuts):
        try:
            onnx_import.load_graph(data[:cut])
        except ModelError:
            continue
        survivors.append(cut)
    # Only what follows graph and opsets may be missing.
    whole = onnx.load_from_string(data)
    whole.ClearField("metadata_props")
    assert all(cut > whole.graph.ByteSize() for cut in survivors), survivors


def test_flipped_bytes_are_an_error_or_a_model():
    data = bytearray(two_nodes().SerializeToString())
    for position in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= mask
            try:
                onnx_import.load_graph(bytes(damaged))
            except ModelError:
                continue


def change(edit: str) -> onnx.ModelProto:
    """Return the good model after one edit, written as a line of Python on `proto`."""
    proto = two_nodes()
    names = {
        "np": np,
        "helper": helper,
        "value": value,
        "FLOAT": FLOAT,
        "from_array": numpy_helper.from_array,
        "TensorProto": TensorProto,
        "onnx": onnx,
    }
    exec(
        edit,
        {
            **names,
            "proto": proto,
            "graph": proto.graph,
            "tensor": proto.graph.initializer[0],
            "shape": proto.graph.input[0].type.tensor_type.shape,
        },
    )
    return proto


BAD = {
    "opset too old": (
        "proto.opset_import[0].version = 5; graph.node[0].op_type = 'Nonsense'",
        "opset 5; 7 and up are supported, and onnx cannot convert it",
    ),
    "opset too new": ("proto.opset_import[0].version = 999", "opset 999.*Update"),
    "no opset": ("del proto.opset_import[:]", "imports no opset"),
    "undefined value": ("graph.node[0].input[0] = 'q'", "'add'.*'q', which no node makes"),
    "value made twice": ("graph.node[1].output[0] = 't'", "'t' is already defined"),
    "value over an input": ("graph.node[0].output[0] = 'x'", "'x' is already defined"),
    "value over an initializer": ("graph.node[0].output[0] = 'c'", "'c' is already defined"),
    "cycle": ("graph.node[0].input[0] = 'y'", "cycle"),
    "itself": ("graph.node[0].input[0] = 't'", "cycle"),
    "missing output": ("graph.output[0].name = 'q'", "output 'q' is made by no node"),
    "initializer twice": ("graph.initializer.append(tensor)", "'c' is defined twice"),
    "input twice": ("graph.input.append(graph.input[0])", "two inputs of one name"),
    "input without type": ("graph.input[0].ClearField('type')", "no type"),
    "input of unknown dtype": (
        "graph.input[0].type.tensor_type.elem_type = 999",
        "unknown element type 999",
    ),
    "input of undefined dtype": (
        "graph.input[0].type.tensor_type.elem_type = 0",
        "unknown element type 0",
    ),
    "too few bytes": ("tensor.raw_data = b'1234'", r"'c' of shape \(3,\) needs 12 bytes.*4"),
    "too many bytes": ("tensor.raw_data = bytes(16)", "needs 12 bytes.*16"),
    "no data": ("tensor.ClearField('raw_data')", "'c'"),
    "absurd dimension": ("tensor.dims[0] = 2**60", "'c' of shape"),
    "absurd dimensions": ("tensor.dims.extend([2**62] * 3)", "'c' of shape"),
    "absurd without raw data": (
        "tensor.ClearField('raw_data'); tensor.dims[0] = 2**60",
        "'c' of shape",
    ),
    "negative dimension": ("tensor.dims[0] = -3", "negative dimension"),
    "unknown dtype": ("tensor.data_type = 77", "'c' has unknown element type 77"),
    "constant over an initializer": (
        "graph.node.insert(0, helper.make_node('Constant', [], ['c'], value_int=1))",
        "'c', which is already defined",
    ),
    "constant over an input": (
        "graph.node.insert(0, helper.make_node('Constant', [], ['x'], value_int=1))",
        "'x', which is already defined",
    ),
    "constant twice": (
        "graph.node.extend([helper.make_node('Constant', [], ['k'], value_int=1)] * 2)",
        "'k' is already defined",
    ),
    "constant of nothing": (
        "graph.node.append(helper.make_node('Constant', [], ['k']))",
        "one attribute, not 0",
    ),
    "constant of a wrong type": (
        "graph.node.append(helper.make_node('Constant', [], ['k'], value=1.0))",
        "attribute value should be",
    ),
    "constant float that is text": (
        "graph.node.append(helper.make_node('Constant', [], ['k'], value_float='a'))",
        "attribute value_float should be",
    ),
    "attribute without type": (
        "graph.node[0].attribute.append(onnx.AttributeProto(name='__a'))",
        "attribute '__a'",
    ),
    "attribute tensor damaged": (
        "graph.node[0].attribute.append(helper.make_attribute('__a', TensorProto("
        "data_type=1, dims=[5], raw_data=b'1')))",
        "'add', attribute '__a'.*needs 20 bytes",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_models(case):
    edit, words = BAD[case]
    with pytest.raises(ModelError, match=f"(?s){words}"):
        onnx_import.load_graph(change(edit))


OTHERS = {
    "string input": ("graph.input[0].type.tensor_type.elem_type = 8", "x", "string"),
    "string initializer": (
        "tensor.CopyFrom(from_array(np.array(['a'], object), 'c'))", "c", "string",
    ),
    "sequence input": (
        "graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info('x', FLOAT, [3]))",
        "x", "sequence",
    ),
    "constant string": (
        "graph.node.append(helper.make_node('Constant', [], ['k'], value_string='a'))",
        "k", "string",
    ),
    "no shape": ("graph.input[0].type.tensor_type.ClearField('shape')", "x", "float32"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_what_only_the_host_looks_into(case):
    edit, name, dtype = OTHERS[case]
    info = onnx_import.load_graph(change(edit)).infos[name]
    assert info.dtype == dtype and (name != "x" or dtype == "string" or info.shape == ANY_SHAPE)


def test_sparse_initializers_are_made_dense():
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([5, 7]), "c"),
        numpy_helper.from_array(np.int64([1, 4])),
        [6],
    )
    proto = change("graph.initializer.pop()")
    proto.graph.sparse_initializer.append(sparse)
    np.testing.assert_array_equal(
        onnx_import.load_graph(proto).initializers["c"].constant, [0, 5, 0, 0, 7, 0]
    )
    sparse.dims[0] = 3
    proto.graph.sparse_initializer[0].CopyFrom(sparse)
    with pytest.raises(ModelError, match=r"'c' of shape \(3,\)"):
        onnx_import.load_graph(proto)


def test_functions_that_call_each_other_in_a_circle():
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    functions = [
        helper.make_function(
            "mine",
            name,
            ["a"],
            ["b"],
            [helper.make_node(other, ["a"], ["b"], domain="mine")],
            opsets,
        )
        for name, other in (("F", "G"), ("G", "F"))
    ]
    call = helper.make_node("F", ["x"], ["y"], domain="mine")
    proto = model([call], [value("x", (3,))], [value("y", (3,))], functions=functions)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(ModelError, match="call each other in a cycle: "):
        onnx_import.load_graph(proto)


def test_scalars_and_empty_tensors():
    constants = {"s": np.float32(2), "e": np.zeros((0, 3), np.float32)}
    nodes = [helper.make_node("Add", ["x", "s"], ["y"]), helper.make_node("Relu", ["e"], ["z"])]
    graph = onnx_import.load_graph(model(nodes, [value("x", ())], ["y", "z"], constants))
    assert graph.inputs[0].shape == () and graph.initializers["s"].count == 1
    assert graph.initializers["e"].shape == (0, 3)
