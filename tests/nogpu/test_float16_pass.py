"""to_float16 on hand-written graphs: what is narrowed, what is kept wide, where casts stand."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, value
from support.models import exported_models
from support.models.planned import next_chunk, plan_graph
from vklab.base.names import internal
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph import onnx_import, passes, shapes
from vklab.graph.passes import to_float16
from vklab.ops import registry
from vklab.ops.dtypes import ELEMENTS
from vklab.plan.partition import Needed
from vklab.runtime import plan_cache
from vklab.runtime.observe import compare, reference
from vklab.settings import settings

INT64, HALF, FLOAT = TensorProto.INT64, TensorProto.FLOAT16, TensorProto.FLOAT
LOWEST = float(np.finfo(np.float32).min)


def node(op_type, inputs, output, **attributes):
    return helper.make_node(op_type, inputs.split(), [output], output, **attributes)


def graph_of(nodes, inputs, outputs, sizes=None, **constants):
    """Return a shaped graph of nodes that are named after their outputs."""
    given = {
        name: np.asarray(array, None if isinstance(array, np.ndarray) else np.float32)
        for name, array in constants.items()
    }
    proto = model(nodes, inputs, outputs.split(), given, opset=18)
    return shapes.infer(shapes.bind(onnx_import.from_proto(proto), sizes or {}))


def narrow(graph):
    """Return the graph in float16, checked: infos are right, and a second time changes nothing."""
    made = to_float16.to_float16(graph)
    inferred = shapes.infer(made)
    assert {n: (i.dtype, i.shape) for n, i in inferred.infos.items()}.items() <= {
        n: (i.dtype, i.shape) for n, i in made.infos.items()
    }.items()
    assert [i.dtype for i in made.inputs] == [i.dtype for i in graph.inputs]
    for name in graph.outputs:
        assert inferred.infos[name].dtype == graph.infos[name].dtype
    assert to_float16.to_float16(made) is made
    return made


def told(graph):
    """Return `op_type dtype` of every node, by the dtype of its first output."""
    return [f"{n.op_type} {graph.infos[n.outputs[0]].dtype}" for n in graph.nodes]


def test_values_and_weights_become_float16_and_the_ends_stay():
    graph = graph_of(
        [
            node("MatMul", "x w", "h"),
            node("Add", "h b", "s"),
            node("Relu", "s", "y"),
            node("Neg", "x", "z"),
        ],
        [value("x", (2, 3))],
        "y z",
        w=np.ones((3, 4), np.float32),
        b=[0.1, 0.2, 0.3, 0.4],
    )
    made = narrow(graph)
    assert told(made) == [
        "Cast float16",
        "MatMul float16",
        "Add float16",
        "Relu float16",
        "Cast float32",
        "Neg float16",
        "Cast float32",
    ]
    assert {i.dtype for i in made.initializers.values()} == {"float16"}
    np.testing.assert_array_equal(
        made.initializers[internal("b", "float16")].constant, np.float16([0.1, 0.2, 0.3, 0.4])
    )


def test_weights_are_converted_once_for_all_shapes():
    parts = [node("MatMul", "x w", "y")], [value("x", ("n", 3))], "y"
    proto = model(parts[0], parts[1], ["y"], {"w": np.ones((3, 4), np.float32)})
    graph = onnx_import.from_proto(proto)
    one, two = (narrow(shapes.infer(shapes.bind(graph, {"n": n}))) for n in (1, 2))
    name = internal("w", "float16")
    assert one.initializers[name].constant is two.initializers[name].constant


@pytest.mark.parametrize(("kind", "source"), [(HALF, "h"), (INT64, "i"), (11, "d")])
def test_other_graphs_are_left_alone(kind, source):
    given = [value(source, (2, 3), kind)]
    graph = graph_of([node("Add", f"{source} {source}", "y")], given, "y")
    assert to_float16.to_float16(graph) is graph


def test_casts_of_the_graph_are_used():
    graph = graph_of(
        [
            node("Cast", "x", "h", to=HALF),
            node("Relu", "h", "r"),
            node("Cast", "r", "w", to=FLOAT),
            node("Neg", "w", "n"),
            node("Abs", "x", "a"),
            node("Add", "n a", "y"),
        ],
        [value("x", (5,))],
        "y",
    )
    made = narrow(graph)
    assert told(made) == [
        "Cast float16",
        "Relu float16",
        "Neg float16",
        "Abs float16",
        "Add float16",
        "Cast float32",
    ]
    assert made.nodes[3].inputs == ("h",)


def test_a_chain_that_is_kept_is_cast_at_its_ends_only():
    graph = graph_of(
        [
            node("Relu", "x", "r"),
            node("Pow", "r two", "p"),
            node("ReduceMean", "p", "m"),
            node("Add", "m eps", "e"),
            node("Sqrt", "e", "s"),
            node("Div", "r s", "d"),
            node("Mul", "d gamma", "y"),
        ],
        [value("x", (4, 5))],
        "y",
        two=2.0,
        eps=1e-12,
        gamma=np.ones(5, np.float32),
    )
    assert told(narrow(graph)) == [
        "Cast float16",
        "Relu float16",
        "Cast float32",
        "Pow float32",
        "ReduceMean float32",
        "Add float32",
        "Sqrt float32",
        "Div float32",
        "Cast float16",
        "Mul float16",
        "Cast float32",
    ]


def test_a_square_is_kept_however_it_is_written():
    graph = graph_of(
        [node("Mul", "x x", "s"), node("ReduceMean", "s", "y")], [value("x", (4, 5))], "y"
    )
    assert to_float16.to_float16(graph) is graph


def test_positions_stay_exact_until_they_meet_float16():
    graph = graph_of(
        [
            node("Cast", "at", "p", to=FLOAT),
            node("Mul", "p rate", "angle"),
            node("Cos", "angle", "c"),
            node("Mul", "x c", "y"),
        ],
        [value("at", (6, 1), INT64), value("x", (6, 4))],
        "y",
        rate=np.ones(4, np.float32),
    )
    assert told(narrow(graph)) == [
        "Cast float32",
        "Mul float32",
        "Cos float32",
        "Cast float16",
        "Cast float16",
        "Mul float16",
        "Cast float32",
    ]


def test_weights_gathered_by_integers_are_no_positions():
    graph = graph_of(
        [node("Gather", "table at", "g"), node("MatMul", "g w", "y")],
        [value("at", (6,), INT64)],
        "y",
        table=np.ones((99, 8), np.float32),
        w=np.ones((8, 2), np.float32),
    )
    assert told(narrow(graph)) == ["Gather float16", "MatMul float16", "Cast float32"]


def test_flags_and_bytes_become_float16_at_once():
    graph = graph_of(
        [node("Cast", "b", "f", to=FLOAT), node("Add", "f x", "y")],
        [value("b", (3,), TensorProto.BOOL), value("x", (3,))],
        "y",
    )
    assert told(narrow(graph)) == ["Cast float16", "Cast float16", "Add float16", "Cast float32"]


def test_a_mask_beyond_float16_stays_wide_as_far_as_the_softmax():
    graph = graph_of(
        [
            node("Cast", "mask", "m", to=FLOAT),
            node("Sub", "one m", "off"),
            node("Mul", "off lowest", "far"),
            node("Unsqueeze", "far at", "u"),
            node("Add", "x u", "s"),
            node("Softmax", "s", "p"),
            node("MatMul", "p x", "y"),
        ],
        [value("mask", (4, 4), INT64), value("x", (1, 4, 4))],
        "y",
        one=1.0,
        lowest=LOWEST,
        at=np.int64([0]),
    )
    assert told(narrow(graph)) == [
        "Cast float32",
        "Sub float32",
        "Mul float32",
        "Unsqueeze float32",
        "Add float32",
        "Softmax float32",
        "Cast float16",
        "Cast float16",
        "MatMul float16",
        "Cast float32",
    ]


@pytest.mark.parametrize(("op_type", "given"), [("Add", "s far"), ("Where", "when s far")])
def test_scores_are_cast_for_a_constant_mask(op_type, given):
    graph = graph_of(
        [node("MatMul", "x x", "s"), node(op_type, given, "m"), node("Softmax", "m", "y")],
        [value("x", (4, 4)), value("when", (4, 4), TensorProto.BOOL)],
        "y",
        far=np.full((4, 4), -1e9, np.float32),
    )
    assert told(narrow(graph)) == [
        "Cast float16",
        "MatMul float16",
        "Cast float32",
        f"{op_type} float32",
        "Softmax float32",
    ]


def test_masks_of_infinity_and_of_what_fits_are_float16():
    graph = graph_of(
        [node("Add", "x far", "s"), node("Softmax", "s", "y")],
        [value("x", (4,))],
        "y",
        far=[0, -np.inf, -10000, 60000],
    )
    made = narrow(graph)
    assert told(made) == ["Cast float16", "Add float16", "Softmax float16", "Cast float32"]
    far = made.initializers[internal("far", "float16")].constant
    assert far.tolist() == [0, -np.inf, -10000, 60000]


def test_the_mask_of_an_attention_stays_wide_beside_float16():
    attend = helper.make_node("Attention", ["q", "q", "q", "m"], ["y"], "y")
    proto = model(
        [node("Mul", "on low", "m"), attend],
        [value("q", (1, 2, 4, 8)), value("on", (4, 4))],
        ["y"],
        {"low": np.float32(LOWEST)},
        opset=23,
    )
    made = narrow(shapes.infer(onnx_import.from_proto(proto)))
    assert told(made) == ["Mul float32", "Cast float16", "Attention float16", "Cast float32"]


def test_bounds_beyond_float16_are_none():
    graph = graph_of(
        [node("Clip", "x low high", "y")], [value("x", (4,))], "y", low=-1e30, high=7e4
    )
    made = narrow(graph)
    assert told(made) == ["Cast float16", "Clip float16", "Cast float32"]
    assert made.initializers[internal("low", "float16")].constant == -np.inf
    assert made.initializers[internal("high", "float16")].constant == np.inf


@pytest.mark.parametrize("op_type", ["Mul", "Div", "Less"])
@pytest.mark.parametrize("number", [1e5, 1e-7])
def test_numbers_that_float16_lacks_keep_their_node(op_type, number):
    graph = graph_of([node(op_type, "x c", "y")], [value("x", (4,))], "y", c=number)
    assert to_float16.to_float16(graph) is graph


def test_scales_of_a_resize_stay_float32():
    graph = graph_of(
        [node("Resize", "x roi scales", "y")],
        [value("x", (1, 1, 4, 4))],
        "y",
        roi=np.zeros(0, np.float32),
        scales=[1, 1, 1.5, 1.5],
    )
    made = narrow(graph)
    assert told(made) == ["Cast float16", "Resize float16", "Cast float32"]
    assert made.initializers["scales"].dtype == "float32"


def test_a_declining_operator_keeps_float32(monkeypatch):
    entry = registry.OPERATORS["", "Relu"][0]

    def only_float32(X):
        if X.dtype != "float32":
            raise UnsupportedOperatorError("not today")
        return entry.function(X)

    monkeypatch.setitem(registry.OPERATORS, ("", "Selfish"), [])
    registry.operator("Selfish")(only_float32)
    graph = graph_of(
        [node("Neg", "x", "n"), node("Relu", "n", "r"), node("Neg", "r", "y")],
        [value("x", (4,))],
        "y",
    )
    changed = [
        n if n.op_type != "Relu" else type(n)("r", "Selfish", n.inputs, n.outputs)
        for n in graph.nodes
    ]
    assert told(narrow(graph.with_nodes(changed))) == [
        "Cast float16",
        "Neg float16",
        "Cast float32",
        "Selfish float32",
        "Neg float32",
    ]


@pytest.mark.parametrize(("given", "kept"), [
    ("", []), ("m1", ["m1", "r1"]), ("MatMul", ["m1", "r1", "m2", "y"]), ("nothing, m2",
    ["m2", "y"]), ("m*", ["m1", "r1", "m2", "y"]),
])  # fmt: skip
def test_the_switch_names_nodes_and_operators(given, kept):
    graph = graph_of(
        [
            node("MatMul", "x w", "m1"),
            node("Relu", "m1", "r1"),
            node("MatMul", "r1 w", "m2"),
            node("Relu", "m2", "y"),
        ],
        [value("x", (3, 3))],
        "y",
        w=np.ones((3, 3), np.float32),
    )
    with settings(KEEP_FLOAT32=given):
        made = narrow(graph)
    wide = [
        n.name
        for n in made.nodes
        if n.op_type != "Cast" and made.infos[n.outputs[0]].dtype == "float32"
    ]
    assert wide == kept


def test_the_tables_name_operators_that_there_are():
    known = {op_type for _, op_type in registry.OPERATORS}
    tables = (
        to_float16.FRAGILE,
        to_float16.WIDE_INPUTS,
        to_float16.DIVIDING,
        to_float16.PRODUCTS,
        to_float16.MASKING,
        to_float16.BOUNDING,
    )
    for table in tables:
        assert set(table) <= known


def test_an_unknown_dtype_is_an_error_that_lists_the_known():
    graph = graph_of([node("Neg", "x", "y")], [value("x", (4,))], "y")
    for wrong in ("half", "float8", "FLOAT16"):
        with pytest.raises(ModelError, match=f"dtype='{wrong}'.* float16"):
            passes.run(graph, wrong)
    assert told(passes.run(graph, "float16")) == ["Cast float16", "Neg float16", "Cast float32"]


# ------------------------------------------------------------------------------------ whole models

SIZES = {"batch": 2, "sequence": 64, "past": 64, "total": 128, "height": 64, "width": 64}
HAS_HALVES = fake_device(features=frozenset().union(*(e.needs for e in ELEMENTS.values())))
# The rest of the arena that stays: states of all steps, which are sums; a small model's input,
# which float32 reads where the caller put it; halves of an output, which float32 has outside.
LARGER = {"lstm": 0.95, "mobilenet_v3": 0.65, "bert": 0.6}


def part_of(name):
    """Return what a device runs of an exported model, which is all of it, before its passes."""
    proto = exported_models.load(name)
    sizes = {**SIZES, "sequence": 6} if name == "lstm" else SIZES
    inputs = exported_models.inputs_of(proto, sizes)
    infos = {key: plan_cache.describe(key, array) for key, array in inputs.items()}
    asked = True
    while asked:
        graph = onnx_import.from_proto(proto)
        found = next_chunk(graph, infos, HAS_HALVES)
        asked = found.names if isinstance(found, Needed) else ()
        infos |= {key: plan_cache.describe(key, inputs[key], inputs[key]) for key in asked}
    chunk, rest = found
    assert not rest.nodes
    return chunk.graph


@pytest.mark.parametrize("name", [
    "bert", "gpt2_script", "llama", "llama_script", "vit", "unet", "efficientnet_b0",
    "mobilenet_v3", "lstm",
])  # fmt: skip
def test_weights_and_activations_take_half_the_memory(name):
    graph = part_of(name)
    wide, half = (plan_graph(passes.run(graph, d), HAS_HALVES).memory for d in ("", "float16"))
    assert half.weights_bytes <= 0.52 * wide.weights_bytes
    assert half.arena_bytes <= LARGER.get(name, 0.55) * wide.arena_bytes
    narrow(passes.run(graph))


# ------------------------------------------------------------------------------------- check mode


def compared(got, truth, is_half=True):
    graph = graph_of([node("Neg", "x", "a"), node("Exp", "a", "y")], [value("x", (4,))], "y")
    arrays = [{n: np.float32(v) for n, v in values.items()} for values in (got, truth)]
    return reference.compare_nodes(graph, *arrays, is_half)


def test_the_first_node_that_overflows_is_named_before_one_that_is_off():
    truth = {"a": [1, 2, 3, 4], "y": [1, 81234, 3, 70000]}
    found = compared({"a": [1, 2, 3, 9], "y": [1, np.inf, 3, np.nan]}, truth)
    assert not found.passed and found.nodes == 2 and found.node.startswith("y: ")
    assert found.note == (
        "node 'y' (Exp): 2 of 4 values overflow float16 (largest reference value "
        "81234 > 65504); keep it in float32 by KEEP_FLOAT32=y"
    )
    assert found.note in str(found) and found.summary()["note"] == found.note
    plain = compared({"a": [1, 2, 3, 9], "y": [1, np.inf, 3, 4]}, truth, is_half=False)
    assert plain.node.startswith("a: ") and not plain.note


def test_errors_of_float16_pass_and_larger_ones_do_not():
    truth = {"a": [1, 2, 3, 4], "y": [1, 2, 3, 4]}
    assert compared({"a": [1.01, 2, 3, 4], "y": [1, 2, 3, 4]}, truth).passed
    assert not compared({"a": [1.01, 2, 3, 4], "y": [1, 2, 3, 4]}, truth, is_half=False).passed
    assert not compared({"a": [1.2, 2, 3, 4], "y": [1, 2, 3, 4]}, truth).passed


def test_outputs_that_overflow_say_where_to_look():
    got, truth = {"y": np.float32([1, np.inf])}, {"y": np.float32([1, 1e5])}
    found = reference.compare_outputs(got, truth, is_half=True)
    assert "1 of 2 values overflow" in found.note and "--check=nodes" in found.note
    assert reference.compare_outputs(truth, truth, is_half=True) == compare.compare(truth, truth)
