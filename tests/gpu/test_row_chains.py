"""Products of one row in one dispatch, planned as for an NVIDIA GPU, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from support.runs import child
from vklab.plan.tuning import precision
from vklab.plan.tuning.rows import chain_kernels, row_chains
from vklab.runtime import host
from vklab.settings import settings
from vklab.types import DeviceInfo

node = helper.make_node


# llvmpipe ends loops that wait (`limits.LLVMPIPE_ITERATIONS`): on one thread none has to.
ONE_THREAD = """
import sys
sys.path.insert(0, "tests/gpu")
import pytest, test_row_chains as cases
with pytest.MonkeyPatch.context() as patched:
    cases.pretend(patched, "tickets")
    for given in [*cases.CHAINS, cases.LARGE]:
        proto, fed = cases.layers(*given)
        assert "matvec_chain" in cases.check(int(sys.argv[1]), proto, fed, times=3), given
    cases.check_halves(int(sys.argv[1]))
"""


def pretend(patched, kernel):
    """Plan as for a GPU of NVIDIA; `kernel` computes all products that follow each other."""
    patched.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    patched.setattr(precision, "is_nvidia", lambda info: kernel != "head")
    patched.setattr(row_chains, "MANY_ELEMENTS", 1)
    if kernel == "tickets":
        patched.setattr(row_chains, "FEW_ELEMENTS", 0)
    if kernel == "head":
        patched.setattr(row_chains, "FEW_ELEMENTS", 1 << 16)


@pytest.fixture(params=["head", "tickets"])
def kernel(request, monkeypatch, device):
    """Let one workgroup compute all products, or many of which each takes a ticket."""
    if request.param == "tickets" and vklab.devices()[device].is_cpu:
        pytest.skip("llvmpipe ends loops that wait: test_tickets_on_one_thread")
    pretend(monkeypatch, request.param)
    return {"head": "matvec_head", "tickets": "matvec_chain"}[request.param]


def joins(device, kernel):
    """Tell whether a device joins products: one workgroup that computes all must be large."""
    most = vklab.devices()[device].limit("maxComputeWorkGroupInvocations")
    return kernel != "matvec_head" or most >= chain_kernels.HEAD_LANES


@pytest.fixture
def as_gpu(monkeypatch):
    pretend(monkeypatch, "head")


def layers(widths, bias=True, relu=True, softmax=True):
    """Return a model of products of one row, B given as [n, k], and its input."""
    nodes, constants, at = [], {}, "x"
    for number, (k, n) in enumerate(zip(widths, widths[1:], strict=False)):
        constants[f"w{number}"] = random_array((n, k), number) / np.float32(k) ** 0.5
        if bias:
            constants[f"b{number}"] = random_array((n,), 50 + number)
        names = [at, f"w{number}", *[f"b{number}"] * bias]
        nodes.append(node("Gemm", names, [f"g{number}"], transB=1))
        at = f"g{number}"
        if relu and number < len(widths) - 2:
            nodes.append(node("Relu", [at], [f"r{number}"]))
            at = f"r{number}"
    nodes.append(node("Softmax" if softmax else "Identity", [at], ["y"]))
    fed = {"x": random_array((1, widths[0]), 99)}
    return model(nodes, [value("x", (1, widths[0]))], ["y"], constants, opset=18), fed


def check(device, proto, fed, times=1, **given):
    """Compare the last of some runs with ONNX Runtime; return the kernels."""
    (expected,) = host.Reference(proto).run(fed).values()
    with settings(**given), vklab.load(proto, device) as session:
        for _ in range(times):
            (y,) = session.run(fed).values()
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    np.testing.assert_allclose(y, expected, rtol=3e-5, atol=3e-5)
    return kernels


CHAINS = [((64, 256, 128, 10), True, True, True), ((128, 100, 36, 7), False, False, False),
          ((8, 8, 12, 4, 4), True, True, False),
          ((132, 60, 260, 44, 20), False, True, True)]  # fmt: skip
LARGE = (516, 1028, 132, 2052, 20), True, True, False


@pytest.mark.full
def test_tickets_on_one_thread(device_index):
    if not vklab.devices()[device_index].is_cpu:
        pytest.skip("the other tests run there")
    child.python(ONE_THREAD, device_index, LP_NUM_THREADS="1")


@pytest.mark.parametrize(("widths", "bias", "relu", "softmax"), CHAINS)
def test_products_in_turn(device, kernel, widths, bias, relu, softmax):
    proto, fed = layers(widths, bias, relu, softmax)
    kernels = check(device, proto, fed, times=5)  # counters are zero again in each run
    apart = check(device, proto, fed, DISABLE_PASSES="row_chains")
    assert kernel not in apart and len(apart) == len(widths) - 1 + softmax
    if not joins(device, kernel):
        assert kernels == apart
        return
    assert kernel in kernels and "softmax" not in kernels
    assert len(kernels) == (1 if kernel == "matvec_head" else 3) or "matvec_head" in kernels


def test_products_too_large_for_one_workgroup(device, kernel):
    kernels = check(device, *layers(*LARGE), times=5)
    assert ("matvec_chain" in kernels) == (kernel == "matvec_chain")


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(device, kernel, odd):
    proto, fed = layers((64, 32, 16, 8))
    fed["x"][0, 5] = odd
    with np.errstate(invalid="ignore"):
        assert (kernel in check(device, proto, fed)) == joins(device, kernel)


def test_products_of_a_forced_kernel_stay_apart(device, as_gpu):
    kernels = check(device, *layers((64, 32, 16, 8)), VARIANT="tiled 32x32x16 by 4x4")
    assert kernels[:3] == ["matmul_tiled"] * 3


def test_a_row_beside_a_product_is_added_by_it(device, as_gpu):
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "b"], ["c"]),
        node("Relu", ["c"], ["y"]),
    ]
    constants = {"w": random_array((96, 10), 1), "b": random_array((1, 10), 2)}
    proto = model(nodes, [value("x", (1, 96))], ["y"], constants)
    joined = "matvec_head" if joins(device, "matvec_head") else "matvec"
    assert check(device, proto, {"x": random_array((1, 96))}) == [joined]


@pytest.mark.parametrize(("k", "n", "bias", "softmax", "dtype"), [
    (2052, 10, True, True, None), (5000, 16, False, False, None), (100_352, 10, False, True, None),
    (4096, 2, True, False, None), (8200, 7, True, True, "float16"),
])  # fmt: skip
def test_few_long_columns(device, as_gpu, k, n, bias, softmax, dtype):
    proto, fed = layers((k, n), bias, False, softmax)
    proto.graph.node[0].input[0] = "v"  # made by a dispatch, beside which the counter becomes 0
    proto.graph.node.insert(0, node("Sin", ["x"], ["v"]))
    (expected,) = host.Reference(proto).run(fed).values()
    with vklab.load(proto, device, dtype=dtype) as session:
        for _ in range(3):
            (y,) = session.run(fed).values()
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    assert kernels[-1] == "matvec_long" and kernels.count("clear_words") == 1
    tolerance = 2e-2 if dtype else 1e-4
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    reads_input = layers((k, n), bias, False, softmax)
    assert check(device, *reads_input)[0] != "matvec_long"


def test_values_that_others_need_stay(device, kernel):
    proto, fed = layers((64, 32, 16, 8), softmax=False)
    proto.graph.output.extend([value("r0", (1, 32)), value("r1", (1, 16))])
    expected = host.Reference(proto).run(fed)
    with vklab.load(proto, device) as session:
        found = session.run(fed)
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    assert len(kernels) == 3 and "matvec_chain" not in kernels
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=3e-5, atol=3e-5)


def test_a_weight_of_two_products_is_stored_once(device, kernel):
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["a", "w"], ["b"]),
        node("MatMul", ["b", "w"], ["y"]),
    ]
    proto = model(nodes, [value("x", (1, 64))], ["y"], {"w": random_array((64, 64)) / 8})
    assert kernel not in check(device, proto, {"x": random_array((1, 64), 1)})


@pytest.mark.parametrize("kind", ["MatMul", "Gemm"])
def test_a_row_that_is_added_to_its_own_product_stays(device, as_gpu, kind):
    """The first result is read twice: multiplied, and added to the second product."""
    last = (
        [node("Gemm", ["r", "v", "r"], ["y"])]
        if kind == "Gemm"
        else [node("MatMul", ["r", "v"], ["p"]), node("Add", ["p", "r"], ["y"])]
    )
    nodes = [node("Gemm", ["x", "w", "b"], ["a"]), node("Relu", ["a"], ["r"]), *last]
    constants = {
        "w": random_array((64, 32), 1) / 8,
        "b": random_array((1, 32), 2),
        "v": random_array((32, 32), 3) / 6,
    }
    proto = model(nodes, [value("x", (1, 64))], ["y"], constants, opset=18)
    kernels = check(device, proto, {"x": random_array((1, 64))})
    assert len(kernels) == 2


def check_halves(device):
    """Compare products in float16 with ONNX Runtime in float32."""
    proto, fed = layers((64, 32, 16, 8, 8), softmax=False)
    (expected,) = host.Reference(proto).run(fed).values()
    with vklab.load(proto, device, dtype="float16") as session:
        (y,) = session.run(fed).values()
    np.testing.assert_allclose(y, expected, rtol=2e-2, atol=2e-2)


def test_halves_in_turn(device, kernel):
    check_halves(device)
