"""Session: what it takes, what it refuses, what it gives back."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import DATA, model, random_array, relu, value
from support.runs.child import LIMIT_S
from vklab import settings
from vklab.errors import ModelError, SetupError, UnsupportedOperatorError, VklabError
from vklab.runtime import executor


def affine(batch="batch"):
    """Build y = x * w + b and z = Relu(y), for any batch."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="gemm"),
        helper.make_node("Relu", ["y"], ["z"], name="relu"),
    ]
    constants = {"w": random_array((5, 3)), "b": random_array((3,))}
    return model(nodes, [value("x", (batch, 5))], ["y", "z"], constants)


def two_inputs():
    """Build y = a - b."""
    node = helper.make_node("Sub", ["a", "b"], ["y"], name="sub")
    inputs = [value("a", (2, "n")), value("b", (2, "n"))]
    return model([node], inputs, [value("y", (2, "n"))])


def test_inputs_by_name_and_by_position(device):
    a, b = random_array((2, 3)), random_array((2, 3), 1)
    with vklab.load(two_inputs(), device) as session:
        for outputs in (session.run({"b": b, "a": a}), session.run(a, b)):
            assert list(outputs) == ["y"]
            np.testing.assert_array_equal(outputs["y"], a - b)


def test_outputs_come_in_the_graphs_order(device):
    with vklab.load(affine(), device) as session:
        outputs = session.run(random_array((2, 5)))
        assert list(outputs) == ["y", "z"] == list(session.outputs)
        np.testing.assert_array_equal(outputs["z"], np.maximum(outputs["y"], 0))


WRONG = {
    "unknown name": ({"c": 0, "a": 0}, r"inputs \['c'\] are not known, \['b'\] are missing; the "
                                       r"model has a: float32\[2,n\], b: float32\[2,n\]"),
    "missing name": ({"a": 0}, r"\['b'\] are missing"),
    "too many": ((0, 0, 0), "3 inputs are given, the model has 2: a: "),
    "too few": ((0,), "1 inputs are given"),
    "none": ((), "0 inputs are given"),
    "wrong dtype": ((np.zeros((2, 3)), np.zeros((2, 3))),
                    r"input a: float32\[2,n\] is given as float64; convert it with \.astype"),
    "swapped bytes": ((np.zeros((2, 3), ">f4"), np.zeros((2, 3), ">f4")), "given as >f4"),
    "wrong rank": ((np.zeros(3, np.float32), np.zeros((2, 3), np.float32)),
                   r"input a: float32\[2,n\] is given with shape \(3,\)"),
    "wrong size": ((np.zeros((3, 3), np.float32), np.zeros((3, 3), np.float32)),
                   r"given with shape \(3, 3\)"),
    "sizes that differ": ((np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)),
                          "dimension 'n' is 3 in one input and 4 in b"),
    "ragged list": (([[1, 2], [3]], np.zeros((2, 2), np.float32)),
                    "input a.*cannot be converted to an array"),
    "text": (("hello", np.zeros((2, 2), np.float32)), "given as <U5"),
    "nothing": ((None, np.zeros((2, 2), np.float32)), "given as NoneType, not as an array"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_inputs_that_do_not_fit(device_index, case):
    given, words = WRONG[case]
    with vklab.load(two_inputs(), device_index) as session:
        with pytest.raises(ModelError, match=words):
            session.run(given) if isinstance(given, dict) else session.run(*given)
        # The session is none the worse for it.
        ones = np.ones((2, 3), np.float32)
        assert not session.run(ones, ones)["y"].any()


def test_arrays_of_any_layout(device_index):
    base = random_array((20, 10))
    read_only = base[:2, :5].copy()
    read_only.flags.writeable = False
    with vklab.load(affine(), device_index) as session:
        for x in (
            base[::7, ::2],
            base.T[:4, ::-1][:, :5],
            np.asfortranarray(base[:3, :5]),
            read_only,
            np.broadcast_to(base[0, :5], (3, 5)),
            base[:0, :5],
        ):
            expected = session.run(np.ascontiguousarray(x))
            np.testing.assert_array_equal(session.run(x)["y"], expected["y"])


def test_lists_of_numbers(device_index):
    with vklab.load(affine(), device_index) as session:
        expected = session.run(np.float32([[1, 2, 3, 4, 5.5]]))["y"]
        np.testing.assert_array_equal(session.run([[1, 2, 3, 4, 5.5]])["y"], expected)
        np.testing.assert_array_equal(session.run({"x": ((1, 2, 3, 4, 5.5),)})["y"], expected)


def test_numbers_with_a_fraction_are_no_integers(device_index):
    shape = np.int64([3, 1])
    from onnx import TensorProto

    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    proto = model([node], [value("x", (3,), TensorProto.INT64)], ["y"], {"s": shape})
    with vklab.load(proto, device_index) as session:
        assert session.run([1, 2, 3])["y"].tolist() == [[1], [2], [3]]
        with pytest.raises(ModelError, match="float64"):
            session.run([1.5, 2, 3])
        with pytest.raises(ModelError, match="is given as NoneType, not as an array"):
            session.run({"x": None})


def test_outputs_belong_to_the_caller(device_index):
    x = random_array((2, 5))
    with vklab.load(affine(), device_index) as session:
        first = session.run(x)
        kept = first["y"].copy()
        first["y"][:] = 99
        np.testing.assert_array_equal(session.run(x)["y"], kept)
        session.run(x + 1)
        assert (first["y"] == 99).all()
    assert (first["y"] == 99).all() and first["y"].flags.owndata


def test_inputs_are_not_changed(device_index):
    x = random_array((2, 5))
    before = x.copy()
    with vklab.load(affine(), device_index) as session:
        session.run(x)
    np.testing.assert_array_equal(x, before)


def test_open_dimensions_take_every_size(device):
    with vklab.load(affine(), device) as session:
        with pytest.raises(ModelError, match="first run tells the sizes of batch"):
            session.plan  # noqa: B018
        for rows in (1, 3, 0, 257, 1, 3):
            x = random_array((rows, 5), rows)
            assert session.check({"x": x}).passed
            assert session.plan.chunks[0].graph.inputs[0].shape == (rows, 5)


def test_the_programs_used_last_are_kept(device_index):
    with vklab.load(affine(), device_index) as session:
        for rows in (*range(1, 9), 1, 20):
            session.run(random_array((rows, 5)))
        kept = [key[0][0][0] for key in session.roots[0].entries]
        assert kept == [3, 4, 5, 6, 7, 8, 1, 20] and len(kept) == executor.KEPT_PROGRAMS
        assert session.check({"x": random_array((2, 5))}).passed


def test_programs_of_all_sizes_share_the_weights(device_index):
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    proto = model(nodes, [value("x", ("n", 50))], ["y"], {"w": random_array((70, 50))})
    with vklab.load(proto, device_index) as session:
        for rows in range(1, 20):
            assert session.check({"x": random_array((rows, 50))}).passed
        assert session.states[0].weights.uploaded_bytes == 50 * 70 * 4


def test_an_unknown_operator_is_named_when_the_model_is_loaded(device_index):
    for shape in ((2, 3), ("batch", 3)):
        node = helper.make_node("Nonsense", ["x"], ["y"], name="mine")
        proto = model([node], [value("x", shape)], ["y"])
        with pytest.raises(UnsupportedOperatorError, match="mine.*Nonsense.*known neither"):
            vklab.load(proto, device_index)


# --------------------------------------------------------------------------------- open, closed


def test_a_closed_session_says_so(device_index):
    session = vklab.load(affine(2), device_index)
    session.close()
    session.close()
    x = random_array((2, 5))
    for use in (
        lambda: session.run(x),
        lambda: session.plan,
        lambda: session.device,
        lambda: session.profile(x),
        lambda: session.check({"x": x}),
        lambda: session.check({"x": x}, nodes=True),
        session.__enter__,
    ):
        with pytest.raises(VklabError, match="this session is closed; load the model again"):
            use()
    assert "closed" in repr(session)


def test_a_session_shows_itself(device_index):
    with vklab.load(affine(), device_index) as session:
        assert "2 nodes" in repr(session) and session.device.name in repr(session)
        assert "gemm" in session._repr_html_()
        session.run(random_array((2, 5)))
        assert "gemm" in session._repr_html_() and "svg" in session._repr_html_()
        assert session.devices == (session.device,)
        assert [str(info) for info in session.inputs] == ["x: float32[batch,5]"]


def test_two_sessions_at_once(device):
    x = random_array((2, 5))
    with vklab.load(affine(), device) as one, vklab.load(two_inputs(), device) as other:
        expected = one.run(x)["y"]
        assert not other.run(x[:, :3], x[:, :3])["y"].any()
        np.testing.assert_array_equal(one.run(x)["y"], expected)


def test_threads_share_a_session(device_index):
    with vklab.load(affine(), device_index) as session:
        inputs = [random_array((rows, 5), rows) for rows in (1, 2, 3)]
        expected = [session.run(x)["y"] for x in inputs]
        wrong = []

        def work(number):
            for _ in range(20):
                got = session.run(inputs[number])["y"]
                if not np.array_equal(got, expected[number]):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(i % 3,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert not wrong and not any(thread.is_alive() for thread in threads)


def test_threads_load_and_close_sessions_of_their_own(device_index):
    failures = []

    def work(number):
        try:
            for _ in range(5):
                with vklab.load(affine(number + 1), device_index) as session:
                    assert session.check({"x": random_array((number + 1, 5))}).passed
        except Exception as error:  # shown below, outside of the thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not failures and not any(thread.is_alive() for thread in threads)


# ------------------------------------------------------------------------------ choosing devices


def test_devices_by_number_and_name(device_index, monkeypatch):
    info = vklab.devices()[device_index]
    for wanted in (
        device_index,
        str(device_index),
        info.name,
        info.name[2:9].upper(),
        np.int64(device_index),
    ):
        with vklab.load(relu(), wanted) as session:
            assert session.device.name == info.name
    monkeypatch.setenv("VKLAB_DEVICE", str(device_index))
    with vklab.load(relu()) as session:
        assert session.device == session.devices[0] and session.device.index == device_index


@pytest.mark.parametrize(("wanted", "words"), [
    (99, "there is no device 99; there are:\n0: "), ("99", "no device 99"), (-1, "no device -1"),
    ("no such", "no device is called 'no such'; there are:\n0: "), (1.5, "device=1.5"),
    ("", "device='' is neither"), (" ", "device=' ' is neither"),
])  # fmt: skip
def test_devices_that_are_not_there(device_index, wanted, words, monkeypatch):
    with pytest.raises(SetupError, match=words):
        vklab.load(relu(), wanted)
    if wanted != "":  # an empty variable is an unset one
        monkeypatch.setenv("VKLAB_DEVICE", str(wanted))
        with pytest.raises(SetupError):
            vklab.load(relu())


def test_another_device_beside_the_first(device_index):
    usable = [info for info in vklab.devices() if not info.refusal and info.index != device_index]
    if not usable:
        pytest.skip("there is one usable device (test_two_drivers.py has two)")
    x = random_array((2, 5))
    with vklab.load(affine(), device_index) as one, vklab.load(affine(), usable[0].index) as other:
        np.testing.assert_allclose(one.run(x)["y"], other.run(x)["y"], rtol=1e-4, atol=1e-5)


def test_the_example_model_by_path_and_string(device_index):
    for path in (DATA / "digits_cnn.onnx", str(DATA / "digits_cnn.onnx")):
        with vklab.load(path, device_index) as session:
            image = np.load(DATA / "digits.npz")["images"][:1]
            assert session.check({"image": image}).passed


def test_check_is_also_known_as_a_switch(device_index):
    with vklab.load(affine(), device_index) as session, settings.settings(CHECK="outputs"):
        session.run(random_array((2, 5)))
        with settings.settings(CHECK="everything"), pytest.raises(SetupError, match="everything"):
            session.run(random_array((2, 5)))
