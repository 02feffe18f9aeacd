"""Kernels run with text that fusion might write, by hand: each contract stands alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vklab
from support.checks.run_node import close
from support.graphs.small_models import one_node, random_array
from vklab import settings
from vklab.ops import fusable
from vklab.plan import lowering
from vklab.plan.tuning import tune
from vklab.shader import toolchain
from vklab.types import DeviceInfo, Dispatch, TensorInfo

STORE = """
#define FUSED_PARAMS uint e_size;
#define STORE(element, value) store_fused(element, value)
StructuredBuffer<float> e_buffer;
void store_fused(uint element, float value) {
    y_buffer[element] = Y(Y_STORE(max(value + e_buffer[element % params.e_size], 0)));
}
"""
LOAD = """
#define LOAD(element) load_fused(element)
StructuredBuffer<float> z_buffer;
float load_fused(uint element) { return abs(z_buffer[element]); }
"""
ADDED = TensorInfo("added", "float32", (7,), random_array((7,), 5))
INT = np.array([2, 0, 1, 2, 2], np.int64)
CASES = {
    "matmul": ("MatMul", [random_array((2, 17, 70)), random_array((70, 33), 1)], {}),
    "two batch axes": ("MatMul", [random_array((2, 1, 4, 5)), random_array((1, 3, 5, 3), 1)], {}),
    "row": ("MatMul", [random_array((1, 2048)), random_array((2048, 35), 1)], {}),
    "gemm": ("Gemm", [random_array((5, 3000)), random_array((3000, 9), 1), random_array((9,), 2)],
             {"alpha": 0.5}),
    "conv": ("Conv", [random_array((2, 64, 9, 9)), random_array((20, 64, 3, 3), 1),
                      random_array((20,), 2)], {}),
    "softmax": ("Softmax", [random_array((5, 37))], {}),
    "reduce": ("ReduceSum", [random_array((6, 50, 3)), np.array([1])], {}),
    "pool": ("MaxPool", [random_array((1, 3, 8, 9))], {"kernel_shape": [2, 3]}),
    "normalize": ("LayerNormalization", [random_array((6, 41)), random_array((41,), 1)], {}),
    "gather": ("Gather", [random_array((3, 11)), INT], {}),
    "pad": ("Pad", [random_array((3, 4)), np.array([1, 0, 0, 2])], {}),
}  # fmt: skip


def answer(case: str, device: int, *first: np.ndarray) -> np.ndarray:
    """Run one node as a model; `first` stands in for its first input."""
    op_type, arrays, attributes = CASES[case]
    arrays = [*first, *arrays[len(first) :]]
    indices = [i for i, array in enumerate(arrays) if array.dtype == np.int64]
    proto, fed = one_node(op_type, arrays, indices if op_type != "Gather" else [], 18, **attributes)
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        return session.run(fed)["y0"]


def fuse(monkeypatch, change) -> list[Dispatch]:
    """Let every plan change its last dispatch; return the dispatches before the change."""
    tuned, fused = tune.tune, []

    def changed(lowered: lowering.Lowered, *given: object) -> lowering.Lowered:
        found = tuned(lowered, *given)
        *before, last = found.dispatches
        fused.append(last)
        last = replace(change(last), defines=fusable.typed(last))
        return replace(
            found,
            dispatches=(*before, last),
            roots={**found.roots, "added": "added"},
            constants={**found.constants, "added": ADDED},
        )

    monkeypatch.setattr(tune, "tune", changed)
    return fused


def with_store(dispatch: Dispatch) -> Dispatch:
    return replace(
        dispatch,
        reads=(*dispatch.reads, ("e_buffer", ADDED)),
        fragment=STORE,
        push=(*dispatch.push, ("e_size", ADDED.count)),
    )


def with_load(dispatch: Dispatch) -> Dispatch:
    reads = tuple(("z_buffer" if name == "x_buffer" else name, i) for name, i in dispatch.reads)
    return replace(dispatch, reads=reads, fragment=LOAD)


@pytest.fixture(params=["as it is", "as a GPU"])
def device_kind(request, monkeypatch):
    """Try the kernels that the device gets and those that a GPU gets."""
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no compiler for slang")
    if request.param == "as a GPU":
        monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_an_epilogue_sees_every_value_once_and_its_place(device, case, monkeypatch, device_kind):
    plain = answer(case, device)
    fused = fuse(monkeypatch, with_store)
    added = np.resize(ADDED.constant, plain.shape)
    close(answer(case, device), np.maximum(plain + added, 0))
    assert fused and all(map(fusable.stores, fused))


@pytest.mark.full
@pytest.mark.parametrize("case", ["softmax", "reduce", "pool", "normalize", "gather", "pad"])
def test_a_prologue_stands_for_what_is_read(device, case, monkeypatch, device_kind):
    plain = answer(case, device, np.abs(CASES[case][1][0]))
    fused = fuse(monkeypatch, with_load)
    close(answer(case, device), plain)
    assert fused and all(map(fusable.loads, fused))
