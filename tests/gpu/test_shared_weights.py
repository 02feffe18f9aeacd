"""Sessions of one device read the same buffers where they have the same weights, and only there."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from support.runs.child import LIMIT_S
from support.runs.handles import left
from vklab.runtime import open_devices

SIZE = 640  # 1.6 MB of weights, more than is compared by the kept bytes


@pytest.fixture
def opened(device_index):
    """Return the device; nothing may be left there."""
    opened = open_devices.open_device(device_index)
    before = left(opened)
    yield opened
    assert left(opened) == before


def two_products(first, second):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "v"], ["y"], "second"),
    ]
    return model(
        nodes, [value("x", ("n", SIZE))], [value("y", ("n", SIZE))], {"w": first, "v": second}
    )


def uploaded(session):
    """Return the bytes that a session uploaded up to its first run."""
    session.run(X)
    return session.states[0].weights.uploaded_bytes


FIRST, SECOND, THIRD = (random_array((SIZE, SIZE), seed) / 16 for seed in range(3))
X = random_array((2, SIZE), 9)


def test_two_sessions_of_one_model_hold_its_weights_once(opened):
    index = opened.info.index
    source = two_products(FIRST, SECOND)
    with vklab.load(source, index) as one:
        expected = one.run(X)["y"]
        used = opened.allocator.used_bytes
        other = vklab.load(source, index)
        assert uploaded(one) == 2 * FIRST.nbytes and uploaded(other) == 0
        assert np.array_equal(other.run(X)["y"], expected)
        assert opened.allocator.used_bytes - used < FIRST.nbytes
        again = vklab.load(source.SerializeToString(), index)  # where it comes from is no matter
        assert uploaded(again) == 0
        one.close()
        assert opened.allocator.used_bytes >= 2 * FIRST.nbytes
        assert np.array_equal(other.run(X)["y"], expected)
        assert np.array_equal(other.run(X[:1])["y"], other.run(X[:1])["y"])
        other.close()
        assert np.array_equal(again.run(X)["y"], expected)
        with vklab.load(source, index) as last:  # those that uploaded them are gone
            assert uploaded(last) == 0
            again.close()
            assert np.array_equal(last.run(X)["y"], expected)


def test_models_with_equal_names_do_not_mix(opened):
    index = opened.info.index
    nearly = FIRST.copy()
    nearly[-1, -1] += 1  # equal up to its last bytes
    with vklab.load(two_products(FIRST, SECOND), index) as one:
        one.run(X)
        with vklab.load(two_products(nearly, THIRD), index) as other:
            assert uploaded(other) == 2 * FIRST.nbytes
            wanted = other.reference({"x": X})["y"]
            assert np.allclose(other.run(X)["y"], wanted, rtol=1e-3, atol=1e-3)
        wanted = one.reference({"x": X})["y"]
        assert np.allclose(one.run(X)["y"], wanted, rtol=1e-3, atol=1e-3)


def test_a_model_does_not_outlive_its_session_for_the_sake_of_a_little(opened):
    index = opened.info.index
    little = model(
        [helper.make_node("Add", ["x", "b"], ["y"])],
        [value("x", (SIZE,))],
        [value("y", (SIZE,))],
        {"b": SECOND[0]},
    )
    large = model(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])],
        [value("x", (2, SIZE))],
        [value("y", (2, SIZE))],
        {"w": FIRST, "b": SECOND[0]},
    )
    with vklab.load(large, index) as one:
        one.run(X)
        with vklab.load(little, index) as other:
            assert other.states[0].weights.uploaded_bytes == SECOND[0].nbytes
            one.close()
            assert opened.allocator.used_bytes < FIRST.nbytes
            assert np.allclose(other.run(X[0])["y"], X[0] + SECOND[0])


def test_sessions_come_and_go_on_several_threads(opened):
    index = opened.info.index
    sources = [two_products(FIRST, SECOND), two_products(SECOND, FIRST)]
    expected = []
    for source in sources:
        with vklab.load(source, index) as session:
            expected.append(session.run(X)["y"])
    failed: list[BaseException] = []

    def work(number):
        try:
            for turn in range(4):
                which = (number + turn) % 2
                with vklab.load(sources[which], index) as session:
                    assert np.array_equal(session.run(X)["y"], expected[which])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert not failed, failed
