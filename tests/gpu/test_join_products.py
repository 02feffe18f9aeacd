"""One product for queries, keys and values computes what three do, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.rotary_model import rotary_model
from vklab import settings


@pytest.mark.parametrize("given", [
    {}, {"steps": 1}, {"steps": 1, "batch": 1}, {"heads": (3, 1, 1)}, {"heads": (4, 2)},
    {"bias": True, "steps": 11},
])  # fmt: skip
def test_joined_and_apart(device_index, given):
    made, fed = rotary_model(**given)
    found = {}
    for off in ("", "join_products"):
        with settings.settings(DISABLE_PASSES=off), vklab.load(made, device_index) as session:
            found[off] = session.run(fed), len(session.plan.dispatches)
    (joined, few), (apart, many) = found.values()
    assert few < many
    for name, expected in apart.items():
        np.testing.assert_array_equal(joined[name], expected, err_msg=name)
