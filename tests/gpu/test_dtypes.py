"""Every dtype goes in, through and out unchanged, on the device, on the host and between both."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import vklab
from support.graphs import dtype_graphs
from support.graphs.small_models import model, one_node, random_array, value
from support.runs.two_drivers import both
from vklab import settings
from vklab.errors import ModelError
from vklab.ops.dtypes import ELEMENT_TYPES
from vklab.runtime import host
from vklab.runtime.on_cpu import host_values

pytestmark = [
    pytest.mark.filterwarnings("ignore::vklab.HostWarning"),
    pytest.mark.filterwarnings("ignore:Casting complex values"),
]
node = helper.make_node
# The types that NumPy has by itself are quick to run, and the ones that fail least.
DTYPES = sorted(ELEMENT_TYPES, key=lambda name: name != "float8_e4m3fn")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_stays_what_it_is(device_index, dtype):
    for case in dtype_graphs.graphs(dtype):
        for kept in case.hosts:
            with settings.settings(HOST=kept), vklab.load(case.model, device_index) as session:
                got = session.run(case.fed)
                told = {info.name: info.dtype for info in session.output_infos}
            wrong = {
                n: got[n]
                for n, want in case.expected.items()
                if not dtype_graphs.equal(want, got[n])
            }
            assert not wrong, (case.name, kept)
            assert all(
                told[n] == dtype
                for n, v in got.items()
                if v is not None and told[n] != "sequence" and case.expected[n].dtype == dtype
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_stays_what_it_is_where_it_is_stored_in_32_bits(device_index, dtype):
    with settings.settings(DISABLE_NARROW=True):
        test_a_dtype_stays_what_it_is(device_index, dtype)


def test_a_cast_on_the_host_makes_float8_for_run_check_and_a_binding(device_index):
    x = np.array([1, 2, -3], np.float32)
    made, fed = one_node("Cast", [x], opset=19, to=TensorProto.FLOAT8E4M3FN)
    with settings.settings(HOST="Cast"), vklab.load(made, device_index) as session:
        y = session.run(fed)["y0"]
        assert str(y.dtype) == "float8_e4m3fn" and y.tolist() == [1, 2, -3]
        assert session.check(fed).passed
        with session.bind(fed) as bound:
            assert dtype_graphs.equal(y, bound.run()["y0"].numpy())


def test_onnx_runtime_computes_the_types_that_numpy_lacks():
    """`onnx.reference` would take over without a word, and far slower."""
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "int4", "uint2"):
        x = dtype_graphs.values(dtype)
        made, fed = one_node("Cast", [x], opset=25, to=TensorProto.FLOAT)
        back, _ = one_node("Cast", [x.astype(np.float32)], opset=25, to=ELEMENT_TYPES[dtype])
        for proto, given, wanted in (
            (made, x, x.astype(np.float32)),
            (back, x.astype(np.float32), x),
        ):
            (name,) = fed
            (y,) = host.Reference(proto).run({name: given}).values()
            assert dtype_graphs.equal(wanted, y)


# ------------------------------------------------------------------- what is compared, and refused


def branches(kind: int) -> onnx.ModelProto:
    """Build y = x or 2 x by a condition, in float32, with a declared kind."""
    parts = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["x", "x"], [name])], name, [], [onnx.ValueInfoProto(name=name)]
        )
        for name, op in (("then", "Add"), ("else", "Mul"))
    }
    return model(
        [node("If", ["c"], ["y"], "if", **parts)],
        [value("x", (3,)), value("c", (), TensorProto.BOOL)],
        [value("y", (3,), kind)],
    )


def test_an_if_of_another_dtype_than_declared_is_refused(device_index):
    fed = {"x": np.ones(3, np.float32), "c": np.asarray(True)}
    with vklab.load(branches(TensorProto.FLOAT), device_index) as session:
        assert session.run(fed)["y"].tolist() == [2, 2, 2]
    with (
        vklab.load(branches(TensorProto.DOUBLE), device_index) as session,
        pytest.raises(
            ModelError,
            match=r"node if: y = If\(c\) makes y: float32\[3\]; the model declares float64",
        ),
    ):
        session.run(fed)


@pytest.mark.parametrize("kept", ["", "Cast"])
def test_an_output_of_another_dtype_than_declared_is_refused(device_index, kept):
    made = model(
        [node("Cast", ["x"], ["y"], "c", to=TensorProto.FLOAT)],
        [value("x", (3,), TensorProto.INT64)],
        [value("y", (3,), TensorProto.FLOAT16)],
    )
    words = r"node c: y = Cast\(x\) makes y: float32\[3\]; the model declares float16"
    with (
        settings.settings(HOST=kept),
        pytest.raises(ModelError, match=words),
        vklab.load(made, device_index) as session,
    ):
        session.run(np.arange(3))


@pytest.mark.parametrize(("result", "words"), [
    (np.zeros((2, 3), np.float64), r"as float64\[2, 3\]; ONNX declares complex64\[2,3\]"),
    (np.zeros((3, 2), np.complex64), r"as complex64\[3, 2\]; ONNX declares complex64\[2,3\]"),
    (np.zeros(6, np.complex64), r"as complex64\[6\]"),
    ([np.zeros((2, 3), np.complex64)] * 2, r"as complex64\[2, 2, 3\]"),
    (1j, r"as complex128\[\]"), (None, r"as object\[\]"),
])  # fmt: skip
def test_what_onnx_reference_returns_is_compared_with_what_onnx_declares(
    device_index, monkeypatch, result, words
):
    monkeypatch.setattr(host.ProcessModel, "run", lambda model, fed: {"y0": result})
    made, fed = one_node("Identity", [dtype_graphs.values("complex64")], opset=21)
    with (
        settings.settings(HOST="Identity"),
        vklab.load(made, device_index) as session,
        pytest.raises(ModelError, match=r"returned 'y0' of node .*Identity\(x0\) " + words),
    ):
        session.run(fed)


def test_an_optional_of_onnx_reference_is_a_list_of_one():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    x = np.ones(2, np.float32)
    assert host_values.as_declared("o", [x], kind) is x
    assert host_values.as_declared("o", x, kind) is x
    assert host_values.as_declared("o", None, kind) is None
    assert host_values.as_declared("o", {"a": 1}, None) == {"a": 1}


# --------------------------------------------- where ONNX Runtime and ONNX differ, ONNX is right


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masked_scores_of_attention_are_infinite_on_the_host_too(device_index, kind):
    q, k = random_array((2, 2, 3, 8)), random_array((2, 2, 5, 8))
    mask = random_array((3, 5)) > 0 if kind == "bool" else random_array((3, 5))
    made, fed = one_node(
        "Attention", [q, k, k, mask], opset=24, outputs=4, is_causal=1, qk_matmul_output_mode=2
    )
    (expected,) = ReferenceEvaluator(made).run(["y3"], fed)
    assert np.isneginf(expected).any()
    for kept in ("", "Attention"):
        with settings.settings(HOST=kept), vklab.load(made, device_index) as session:
            np.testing.assert_allclose(session.run(fed)["y3"], expected, 1e-5, 1e-5)
            assert bool(session.host_reasons) == bool(kept)
            assert session.check(fed).passed


def test_indices_of_max_unpool_count_pooled_cells_on_the_host_too(device_index):
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2) + 1
    index = np.array([5, 7, 13, 15], np.int64).reshape(1, 1, 2, 2)
    shape = np.array([1, 1, 5, 5], np.int64)
    made, fed = one_node("MaxUnpool", [x, index, shape], (2,), kernel_shape=[2, 2], strides=[2, 2])
    results = []
    for kept in ("", "MaxUnpool"):
        with settings.settings(HOST=kept), vklab.load(made, device_index) as session:
            results.append(session.run(fed)["y0"])
    assert dtype_graphs.equal(*results) and results[0][0, 0, 1, 1] == 1


# ----------------------------------------------------------------------------------- two drivers


@pytest.mark.full
def test_a_dtype_passes_between_two_drivers_and_the_host():
    both(
        """
import sys, warnings
import numpy as np, vklab
from support.graphs import dtype_graphs
from vklab import settings
from support.runs.split_models import *
warnings.simplefilter("ignore", vklab.HostWarning)
for dtype in sys.argv[1].split(","):
    for case in dtype_graphs.graphs(dtype):
        if case.name == "casts":
            for place in ({"first": 0, "turn": 1}, {"turn": 1}):
                for kept in ("", "last", "first"):
                    pins = {n: d for n, d in place.items() if n != kept}
                    with settings.settings(HOST=kept), \\
                            vklab.load(case.model, devices="all", place=pins) as session:
                        got = session.run(case.fed)
                    assert all(dtype_graphs.equal(want, got[n])
                               for n, want in case.expected.items()), (dtype, place, kept, got)
""",
        "float32,bfloat16,float16,float8_e4m3fn,float8_e5m2,int4,uint2,bool,int8,float6_e2m3fn",
    )
