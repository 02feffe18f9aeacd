"""Recordings shipped in data/recorded: complete, of models that exist, without private paths."""

from __future__ import annotations

import re

import numpy as np
import pytest

from vklab.backends import models
from vklab.backends.backend import ModelSource
from vklab.backends.report import recorded

FACTORY = "vklab.backends.models:encoder"


@pytest.mark.parametrize("path", recorded.shipped(), ids=lambda path: path.stem)
def test_a_recording_says_where_it_comes_from_and_holds_numbers(path):
    for each in recorded.read(path):
        assert each.model["factory"].rpartition(":")[2] in models.MODELS
        assert all(each.provenance[name] for name in recorded.PROVENANCE if name != "source")
        assert not re.search(r"(^|\s)[/~]|[A-Z]:\\", each.provenance["command"])
        assert each.latencies_ns and each.size_bytes > 0
        for array in each.outputs.values():
            assert array.size and np.isfinite(array).all()


def test_rows_of_cuda_are_recorded_for_the_encoder():
    found = recorded.of_model(recorded.shipped(), ModelSource("encoder", factory=FACTORY))
    assert {"torch-cuda-eager-float32", "torch-cuda-eager-float16"} <= set(found)
    shapes = {tuple(each.outputs["output"].shape) for each in found.values()}
    assert len(shapes) == 1
