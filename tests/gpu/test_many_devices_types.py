"""Types that SwiftShader lacks, on both drivers: capability decides, results are equal."""

from __future__ import annotations

import pytest

from support.runs.two_drivers import both

pytestmark = pytest.mark.full
START = """
import sys
import numpy as np, vklab
from support.runs.split_models import *
number, name = int(sys.argv[1]), sys.argv[2]
nodes = [helper.make_node("Add", ["x", "x"], ["a"], "a"),
         helper.make_node("Mul", ["a", "x"], ["b"], "b"),
         helper.make_node("Max", ["b", "x"], ["c"], "c"),
         helper.make_node("Cast", ["c"], ["d"], "d", to=1),
         helper.make_node("Sqrt", ["d"], ["y"], "e")]
source = model(nodes, [value("x", (4, 64), number)],
               [value("y", (4, 64)), value("c", (4, 64), number)])
x = np.random.default_rng(0).integers(0, 8, (4, 64)).astype(name)
one = outputs_of(source, {"x": x})
np.testing.assert_array_equal(one["c"], np.maximum(2 * x * x, x))
def devices_of(session):
    found = {}
    for chunk in session.plan.chunks:
        assert session.run(x).keys() == one.keys() and not session.host_reasons
        assert np.array_equal(session.run(x)["c"], one["c"]) and differs(one, session.run(x)) < 1e-6
        number = session.devices[chunk.device].index
        found |= {node.name: (number, chunk.stored.get("x")) for node in chunk.graph.nodes}
    return found
"""


def test_int64_goes_by_itself_to_the_device_that_has_it_and_says_why():
    both(
        START
        + """
with nothing_left():
    for place in ({}, {"e": SWIFTSHADER}):
        with vklab.load(source, devices="all", place=place) as session:
            found = devices_of(session)
            assert {found[node][0] for node in "abcd"} == {LAVAPIPE}, found
            assert found["e"][0] == (SWIFTSHADER if place else LAVAPIPE), found
            reasons = session.plan.placement.reasons
            for node in "abcd":
                assert reasons[node].startswith("the only capable device: "), reasons
                assert "SwiftShader Device (Subzero) lacks shaderInt64" in reasons[node], reasons
            assert "the only one" not in reasons["e"]
""",
        7,
        "int64",
    )


@pytest.mark.parametrize(("number", "name", "wide"), [
    (3, "int8", "int32"), (2, "uint8", "uint32"), (10, "float16", "float32"),
])  # fmt: skip
def test_narrow_types_go_anywhere_and_are_stored_wide_where_a_device_lacks_them(number, name, wide):
    both(
        START
        + """
wide = sys.argv[3]
with nothing_left():
    with vklab.load(source, devices="all") as session:  # the faster one, by itself
        assert set(devices_of(session).values()) == {(LAVAPIPE, name)}
    caps = {LAVAPIPE: 64}  # no room there
    with vklab.load(source, devices="all", memory_caps=caps) as session:
        assert set(devices_of(session).values()) == {(SWIFTSHADER, wide)}
    with vklab.load(source, devices="all", place={"[ab]": LAVAPIPE, "c": SWIFTSHADER}) as session:
        found = devices_of(session)
        assert found["b"] == (LAVAPIPE, name) and found["c"] == (SWIFTSHADER, wide), found
        assert {move["path"] for move in session.plan.summary()["moves"]} == {"host copy"}
""",
        number,
        name,
        wide,
    )
