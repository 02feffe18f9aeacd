"""Attributes of nodes: each is used, refused by name, or known to change no result."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.graphs.small_models import model, value
from vklab import ops
from vklab.apps.compare.coreml import emission, operators  # noqa: F401  (fills the table)
from vklab.errors import ModelError, UnusedWarning
from vklab.graph import onnx_import
from vklab.ops import registry

# Parameters that the functions of operators do not read, and why they change no result.
UNREAD = {
    "Attention.softmax_precision FlexAttention.softmax_precision": "it is in float32",
    "SimplifiedLayerNormalization.stash_type": "it is in float32",
    "LinearAttention.chunk_size": "how steps are divided is the kernel's choice",
    "TopK.sorted": "a sorted result is one of those in any order",
    "Dropout.seed Dropout.ratio": "of training",
    "LabelEncoder.default_string": "of labels that are text, which run on the host",
    "LinearClassifier.multi_class": "a hint that ONNX Runtime does not use either",
    "TreeEnsemble.nodes_hitrates": "a hint of how often a branch is taken",
    "EmbedLayerNormalization.mask_index_type": "a hint for shapes, which the inputs give",
    "MaxPoolWords.storage_order": "of indices, which this operator does not make",
    "gather.validate_indices": "what unchecked indices give is undefined in MIL",
}


def unread(function) -> set[str]:
    """Return the parameters of an operator's function that its body never reads."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    names = {argument.arg for argument in (*tree.args.args, *tree.args.kwonlyargs)}
    used = [node for part in tree.body for node in ast.walk(part) if isinstance(node, ast.Name)]
    calls = {node.id for node in used if isinstance(node.ctx, ast.Load)}
    return set() if "locals" in calls else names - calls


def test_every_parameter_of_an_operator_is_read_or_listed_with_a_reason():
    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"vklab.ops.{module.name}")
    functions = [
        (entry.op_type, entry.function)
        for entries in registry.OPERATORS.values()
        for entry in entries
    ]
    found = {
        f"{kind}.{name}"
        for kind, function in (*functions, *emission.OPERATORS.items())
        for name in unread(function)
    }
    assert found - {*" ".join(UNREAD).split()} == set()


def one(*nodes, functions=(), opsets=(("", 20), ("own", 1)), **constants):
    made = model(list(nodes), [value("x", (3, 4))], [value("y", (3, 4))], constants)
    del made.opset_import[:]
    made.opset_import.extend(helper.make_opsetid(*entry) for entry in opsets)
    made.functions.extend(functions)
    return made


def with_attribute(node, **fields):
    node.attribute.append(onnx.AttributeProto(**fields))
    return node


RELU = ("Relu", ["x"], ["y"])
SCALED = helper.make_function(
    "own",
    "F",
    ["a"],
    ["b"],
    [
        with_attribute(
            helper.make_node("LeakyRelu", ["a"], ["b"]), name="alpha", type=1, ref_attr_name="alpha"
        )
    ],
    [helper.make_opsetid("", 20)],
    ["alpha"],
)
CARELESS = onnx.FunctionProto.FromString(SCALED.SerializeToString())
del CARELESS.attribute[:]


def calling(function, **attributes):
    return one(
        helper.make_node("F", ["x"], ["y"], "n", domain="own", **attributes), functions=[function]
    )


ALPHA = {"name": "alpha", "type": 1, "f": 0.5}
BAD = [
    (one(helper.make_node(*RELU, foo=3)), "has the attribute foo, which the operator lacks"),
    (one(helper.make_node("Gelu", ["x"], ["y"], alpha=1.0)), "alpha.*it has approximate"),
    (one(with_attribute(helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft",
                                         alpha=2.0), **ALPHA)), "two attributes of one name"),
    (one(with_attribute(helper.make_node("LeakyRelu", ["x"], ["y"]), **ALPHA, i=3)),
     "'alpha' has several values: f, i"),
    (calling(SCALED, beta=1.0), "the function 'F' with the attribute 'beta'; .* takes alpha"),
    (calling(CARELESS), "function 'F' reads the attribute 'alpha', which it does not declare"),
    (one(helper.make_node(*RELU), opsets=(("", 20), ("ai.onnx", 13))), "opsets 20 and 13 of one"),
]  # fmt: skip


@pytest.mark.parametrize(("proto", "words"), BAD)
def test_an_attribute_that_nothing_reads_is_refused_by_name(proto, words):
    with pytest.raises(ModelError, match=words):
        onnx_import.load_graph(proto)


def test_attributes_that_are_good_stay_good():
    onnx_import.load_graph(one(helper.make_node(*RELU, __internal=3)))
    graph = onnx_import.load_graph(calling(SCALED, alpha=0.25))
    assert graph.nodes[0].attributes == {"alpha": 0.25}
    assert "alpha" not in onnx_import.load_graph(calling(SCALED)).nodes[0].attributes


def test_an_initializer_has_one_name_and_one_value():
    add = helper.make_node("Add", ["x", "w"], ["y"])
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("w", TensorProto.FLOAT, [1], [5.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [0]),
        [3, 4],
    )
    made = one(add, w=np.ones((3, 4), np.float32))
    made.graph.sparse_initializer.append(sparse)
    with pytest.raises(ModelError, match="'w' is defined twice"):
        onnx_import.load_graph(made)
    for more in ({"float_data": [1.0] * 12}, {"data_location": TensorProto.EXTERNAL}):
        made = one(add)
        made.graph.initializer.append(numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
        made.graph.initializer[0].MergeFrom(TensorProto(**more))
        with pytest.raises(ModelError, match=r"'w' holds its elements in .*raw_data"):
            onnx_import.load_graph(made)


def test_a_model_newer_than_onnx_is_told():
    made = one(helper.make_node(*RELU))
    made.ir_version = onnx.IR_VERSION + 1
    with pytest.warns(UnusedWarning, match="nothing that is newer in the file"):
        onnx_import.load_graph(made)


def test_a_recurrence_of_another_size_is_refused():
    info = [registry.output("float32", shape) for shape in ((5, 1, 3), (1, 4, 3), (1, 4, 4))]
    with pytest.raises(ModelError, match=r"must have shape \(1, 7, 3\)"):
        registry.apply("RNN", info, {"hidden_size": 7}, 14)
