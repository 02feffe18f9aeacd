"""A plan for another size reads no element of a large attribute or weight again.

After a run of one size, lists raise an error if one of their elements is read, and arrays hold
other numbers, so that a result which was computed from them again is wrong.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from support.graphs.small_models import model, random_array, value
from support.graphs.tree_models import ML, classifier, features, ml_model, regressor
from vklab.graph import constant_cache, onnx_import, operator_cache
from vklab.ops import label_encoder, once, trees
from vklab.runtime import host, open_devices

COLUMNS = 2000
FLOATS = random_array((3 * COLUMNS,)).tolist()
LONG_TENSOR = 4096  # bytes: smaller arrays are compared by their bytes
SIZES = (1, 2, 3, 5, 8)


class Sealed(tuple):
    """A list of an attribute whose elements can be read until it is sealed."""

    seals: set[int] = set()

    def _read(self, count):
        if id(self) in Sealed.seals and count > once.LONG:
            raise AssertionError(f"{count} elements of an attribute are read again")

    def __getitem__(self, key):
        found = tuple.__getitem__(self, key)
        self._read(len(found) if isinstance(key, slice) else 1)
        return found


def _reading(name):
    def read(self, *given):
        self._read(len(self))
        return getattr(tuple, name)(self, *given)

    return read


READING = ("iter", "hash", "eq", "ne", "lt", "contains", "repr", "add", "mul")
for _name in (*(f"__{name}__" for name in READING), "index", "count"):
    setattr(Sealed, _name, _reading(_name))


@pytest.fixture(autouse=True)
def no_seals():
    yield
    Sealed.seals.clear()


class Model:
    """A graph with attributes and weights that can be sealed."""

    def __init__(self, proto):
        graph = onnx_import.load_graph(proto)
        self.lists, self.arrays = [], []
        self.graph = replace(
            graph,
            nodes=tuple(
                replace(node, attributes={k: self.given(v) for k, v in node.attributes.items()})
                for node in graph.nodes
            ),
            initializers=MappingProxyType(
                {
                    name: replace(info, constant=self.given(info.constant))
                    for name, info in graph.initializers.items()
                }
            ),
        )

    def given(self, item):
        if isinstance(item, tuple) and len(item) > once.LONG:
            self.lists.append(Sealed(item))
            return self.lists[-1]
        if isinstance(item, np.ndarray) and item.nbytes > LONG_TENSOR:
            self.arrays.append(np.array(item))
            return self.arrays[-1]
        return item

    def seal(self):
        assert self.lists or self.arrays
        Sealed.seals.update(map(id, self.lists))
        for array in self.arrays:
            array[...] = array.ravel()[::-1].reshape(array.shape) + np.asarray(3, array.dtype)


def check(proto, X, device, first=(4,)):
    """Run some sizes, seal the attributes, and compare runs of others with ONNX Runtime."""
    expected = [host.Reference(proto).run({"X": X[:rows]}) for rows in SIZES]
    made = Model(proto)
    with vklab.load(made.graph, device) as session:
        for rows in first:
            session.run({"X": X[:rows]})
        made.seal()
        for rows, truth in zip(SIZES, expected, strict=True):
            found = session.run({"X": X[:rows]})
            for name, array in truth.items():
                if array.dtype.kind == "f":
                    np.testing.assert_allclose(found[name], array, 1e-4, 1e-4)
                else:
                    np.testing.assert_array_equal(found[name], array)
    return made


def node(op_type, opset=3, kind=TensorProto.FLOAT, columns=COLUMNS, outputs=("y",), **attributes):
    """Return a model of one node of ai.onnx.ml; arrays become tensor attributes."""
    given = {
        name: numpy_helper.from_array(item, name) if isinstance(item, np.ndarray) else item
        for name, item in attributes.items()
    }
    made = helper.make_node(op_type, ["X"], outputs, "node", domain=ML, **given)
    return ml_model(made, kind, opset, ("N", columns))


def as_tensors(made):
    """Return a node whose lists of floats are tensors instead."""
    for item in [item for item in made.attribute if item.floats]:
        array = np.asarray(item.floats, np.float32)
        name = f"{item.name}_as_tensor"
        made.attribute.remove(item)
        made.attribute.append(helper.make_attribute(name, numpy_helper.from_array(array, name)))
    return made


def shared_trees():
    """Return a TreeEnsemble of stumps, whose branches and leaves have lists of their own."""
    rng, count = np.random.default_rng(0), 2000
    return node(
        "TreeEnsemble",
        5,
        columns=5,
        n_targets=1,
        tree_roots=range(count),
        nodes_featureids=rng.integers(5, size=count).tolist(),
        nodes_modes=np.zeros(count, np.uint8),
        nodes_splits=rng.normal(size=count).astype(np.float32),
        nodes_truenodeids=range(count),
        nodes_trueleafs=[1] * count,
        nodes_falsenodeids=range(count, 2 * count),
        nodes_falseleafs=[1] * count,
        leaf_targetids=[0] * (2 * count),
        leaf_weights=rng.normal(size=2 * count).astype(np.float32),
    )


def large_trees(make, *given, **more):
    return make(np.random.default_rng(0), *given, trees=60, depth=6, **more)


def weights():
    """Return a product with a Constant, a sum with an initializer, and a ConstantOfShape."""
    nodes = [
        helper.make_node(
            "Constant", [], ["c"], value=numpy_helper.from_array(random_array((COLUMNS, 7)), "c")
        ),
        helper.make_node("MatMul", ["X", "c"], ["m"]),
        helper.make_node("MatMul", ["m", "w"], ["p"]),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node(
            "ConstantOfShape",
            ["s"],
            ["f"],
            value=numpy_helper.from_array(np.array([2.0], np.float32), "f"),
        ),
        helper.make_node("Add", ["p", "f"], ["q"]),
        helper.make_node("Add", ["q", "b"], ["y"]),
    ]
    given = {"w": random_array((7, COLUMNS)), "b": random_array((COLUMNS,))}
    return model(nodes, [value("X", ("N", COLUMNS))], ["y"], given)


def dequantized():
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
        helper.make_node("MatMul", ["X", "w"], ["y"]),
    ]
    codes = np.random.default_rng(0).integers(-99, 99, (100, 120)).astype(np.int8)
    return model(
        nodes, [value("X", ("N", 100))], ["y"], {"q": codes, "s": np.array(0.02, np.float32)}
    )


KEYS = np.arange(COLUMNS, dtype=np.int64)
MODELS = {
    "TreeEnsembleRegressor": lambda: ml_model(large_trees(regressor, 2, 2)),
    "TreeEnsembleRegressor, tensors": lambda: ml_model(as_tensors(large_trees(regressor))),
    "TreeEnsembleClassifier": lambda: ml_model(large_trees(classifier)),
    "TreeEnsembleClassifier, two classes": lambda: ml_model(large_trees(classifier, 2, (0,))),
    "TreeEnsembleClassifier, text": lambda: ml_model(
        large_trees(classifier, classlabels_int64s=[], classlabels_strings=["a", "b", "c"])
    ),
    "TreeEnsembleClassifier, tensors": lambda: ml_model(as_tensors(large_trees(classifier, 3, 3))),
    "TreeEnsemble": shared_trees,
    "LabelEncoder, lists": lambda: node(
        "LabelEncoder",
        2,
        TensorProto.INT64,
        5,
        keys_int64s=KEYS.tolist(),
        values_floats=FLOATS[:COLUMNS],
    ),
    "LabelEncoder, tensors": lambda: node(
        "LabelEncoder", 4, TensorProto.INT64, 5, keys_tensor=KEYS, values_tensor=KEYS[::-1] * 7
    ),
    "LinearRegressor": lambda: node(
        "LinearRegressor", coefficients=FLOATS, intercepts=[1.0, 2.0, 3.0], targets=3
    ),
    "LinearRegressor of many targets": lambda: node(
        "LinearRegressor",
        columns=3,
        coefficients=FLOATS,
        intercepts=FLOATS[:COLUMNS],
        targets=COLUMNS,
        post_transform="SOFTMAX",
    ),
    "LinearClassifier": lambda: node(
        "LinearClassifier",
        columns=3,
        outputs=["label", "scores"],
        coefficients=FLOATS,
        intercepts=FLOATS[:COLUMNS],
        classlabels_ints=(KEYS + 5).tolist(),
    ),
    "Scaler": lambda: node("Scaler", scale=FLOATS[:COLUMNS], offset=FLOATS[COLUMNS:][:COLUMNS]),
    "Scaler of doubles": lambda: node(
        "Scaler", 3, TensorProto.DOUBLE, scale=FLOATS[:COLUMNS], offset=FLOATS[COLUMNS:][:COLUMNS]
    ),
    "Imputer": lambda: node(
        "Imputer", imputed_value_floats=FLOATS[:COLUMNS], replaced_value_float=float("nan")
    ),
    "weights": weights,
    "DequantizeLinear": dequantized,
}


def inputs(proto):
    info = onnx_import.load_graph(proto).inputs[0]
    if info.dtype == "int64":
        return np.random.default_rng(0).integers(-5, COLUMNS + 5, (8, info.shape[1]))
    if info.shape[1] == 5:
        return features(np.random.default_rng(0), 8)
    return random_array((8, info.shape[1])).astype(info.dtype) / 50


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_plan_of_another_size_reads_no_large_attribute_again(device_index, name):
    proto = MODELS[name]()
    check(proto, inputs(proto), device_index)


def reading(op_type, shape, *weights, **attributes):
    """Return a model of one node that reads X and weights."""
    names = [f"w{number}" for number in range(len(weights))]
    made = helper.make_node(op_type, ["X", *names], ["y"], **attributes)
    proto = model([made], [value("X", shape)], ["y"], dict(zip(names, weights, strict=True)))
    if "domain" in attributes:
        proto.opset_import.append(helper.make_opsetid(attributes["domain"], 1))
    return proto


WEIGHTS = {
    "Gemm": lambda: reading(
        "Gemm", ("N", 200), random_array((150, 200)), random_array((150,)), transB=1
    ),
    "Conv": lambda: reading("Conv", ("N", 16, 9, 9), random_array((32, 16, 3, 3))),
    "ConvTranspose": lambda: reading(
        "ConvTranspose", ("N", 16, 9, 9), random_array((16, 32, 3, 3))
    ),
    "LayerNormalization": lambda: reading(
        "LayerNormalization", ("N", COLUMNS), random_array((COLUMNS,)), random_array((COLUMNS,), 1)
    ),
    "LSTM": lambda: reading(
        "LSTM", ("N", 4, 30), random_array((1, 80, 30)), random_array((1, 80, 20)), hidden_size=20
    ),
    "MatMulNBits": lambda: reading(
        "MatMulNBits",
        ("N", 128),
        np.random.default_rng(0).integers(0, 255, (96, 4, 16)).astype(np.uint8),
        random_array((96 * 4,)),
        domain="com.microsoft",
        K=128,
        N=96,
        bits=4,
        block_size=32,
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_plan_of_another_size_reads_no_weight_again(device_index, name):
    """A weight is laid out once for each kernel: the first sizes are those of all kernels."""
    info = open_devices.select(device_index)
    if not info.is_cpu:
        pytest.skip(f"{info.name} is a GPU: which sizes have the same kernel is its own choice")
    proto = WEIGHTS[name]()
    _, *shape = onnx_import.load_graph(proto).inputs[0].shape
    check(proto, random_array((16, *shape)) / 4, device_index, (1, 4, 16))


READERS = {
    "tuple": tuple, "list": list, "array": np.asarray, "set": set, "hash": hash, "repr": repr,
    "equal": lambda given: given == (1,) * 100, "slice": lambda given: given[:-1],
    "star": lambda given: max(*given), "sum": sum, "joined": lambda given: (*given, 1),
    "types": lambda given: set(map(type, given)), "nested": lambda given: hash((given, 1)),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_each_way_to_read_a_sealed_list_is_found(reader):
    given = Sealed(range(100))
    READERS[reader](given)
    Sealed.seals.add(id(given))
    assert len(given) == 100 and given[5] == 5 and given[:64]
    with pytest.raises(AssertionError, match="are read again"):
        READERS[reader](given)


def copied(item):
    """Return an equal list or array that is another object."""
    kind = {np.ndarray: np.array, Sealed: tuple}.get(type(item))
    return kind(item) if kind else item


def plain(function):
    """Return a function that computes its answer each time, as it gets other objects."""
    return lambda *given: function(*map(copied, given))


MUTANTS = {
    "keys of values": ("TreeEnsembleRegressor", once, "same", lambda given: given),
    "lists flattened again": ("TreeEnsembleRegressor", trees, "flatten", plain(trees.flatten)),
    "the newer form": ("TreeEnsemble", trees, "flatten_shared", plain(trees.flatten_shared)),
    "types of all": ("Scaler", vklab.ops.registry, "LONG", 1 << 30),
    "long keys": ("Scaler", once, "LONG", 1 << 30),
    "weights again": ("DequantizeLinear", constant_cache, "derive",
                      lambda operation, function, *sources: function(*sources)),
    "arrays again": ("LabelEncoder, tensors", label_encoder, "_sorted",
                     plain(label_encoder._sorted)),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_plan_that_reads_an_attribute_again_is_found(device_index, monkeypatch, name):
    """Each mutant leaves out one of the means that the test above holds."""
    of, *patch = MUTANTS[name]
    proto = MODELS[of]()
    monkeypatch.setattr(*patch)
    with pytest.raises(AssertionError):
        check(proto, inputs(proto), device_index)


def test_long_lists_are_one_key_only_as_one_object():
    def key(value):
        graph = onnx_import.load_graph(MODELS["Scaler"]())
        made = replace(graph.nodes[0], attributes={"scale": value})
        return operator_cache.key(graph, made, ())

    short, long = (1.0,) * once.LONG, (1.0,) * (once.LONG + 1)
    assert key(short) == key((*short,))
    assert key(long) == key(long) != key((*long[1:], 1.0))


def test_an_answer_is_kept_for_the_same_object_only():
    asked = []
    kept = once.once(lambda *given: asked.append(given) or len(asked))
    numbers, zeros = (1, 2), (0.0, -0.0)
    assert kept(numbers, 1) == kept(numbers, 1) == 1
    assert kept((*numbers[:1], 2), 1) == 2 and kept(numbers, 2) == 3
    assert kept(zeros[0]) != kept(zeros[1])
