"""Shared memory of attention's kernels: every size of head must fit the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.fakes.matrix_gpu import GPU, NVIDIA
from vklab.ops import registry
from vklab.plan.fusion import attention
from vklab.plan.tuning.attention import matrix_attention
from vklab.shader import compiler, toolchain
from vklab.types import DeviceInfo, Dispatch, TensorInfo

pytestmark = pytest.mark.skipif(
    toolchain.find_toolchain("slang") is None, reason="no Slang compiler is installed"
)
# Queries and keys on both sides of what the tables tell apart.
LENGTHS = [(197, 128), (64, 256), (512, 512), (512, 1024), (1024, 4096)]
# All sizes up to 256 of which rows are read in pieces of 16 bytes, and some that are not.
SIZES = [*range(8, 257, 8), 1, 31, 63, 65, 100, 127]


def limited(info: DeviceInfo, shared: int) -> DeviceInfo:
    return replace(info, limits={**info.limits, "maxComputeSharedMemorySize": shared})


def attending(
    size: int, value_size: int, info: DeviceInfo, lengths: tuple[int, int] = (512, 512)
) -> Dispatch | None:
    """Return attention in one dispatch by the kernel chosen for a device; None if it stays three.

    Args:
        size: the elements of a row of queries and keys.
        value_size: the elements of a row of values.
        info: the device.
        lengths: the numbers of queries and of keys.
    """
    queries, keys = lengths
    shapes = ((1, 4, queries, size), (1, 4, keys, size), (1, 4, keys, value_size))
    given = [TensorInfo(name, "float16", shape) for name, shape in zip("qkv", shapes, strict=True)]
    three = registry.apply("Attention", given, {}, 23).dispatches
    one = attention.one_dispatch(*three, info.limit("maxComputeSharedMemorySize"))
    return matrix_attention.choose(one, info)[0] if one else None


def resized(dispatch: Dispatch, info: DeviceInfo) -> Iterator[Dispatch]:
    """Yield the kernels chosen for every size of head, and all lengths that tables tell apart."""
    for size in SIZES:
        for value_size in SIZES:
            for queries, keys in LENGTHS:
                steps = {
                    "q_row": size,
                    "k_row": size,
                    "v_row": value_size,
                    "queries": queries,
                    "columns": keys,
                    "q_batch": (queries * size,),
                    "k_batch": (keys * size,),
                    "v_batch": (keys * value_size,),
                }
                constants = {**dispatch.constant_values, "SIZE": size, "VALUE_SIZE": value_size}
                yield from matrix_attention.choose(
                    replace(
                        dispatch,
                        push=tuple({**dispatch.push_values, **steps}.items()),
                        constants=tuple(constants.items()),
                    ),
                    info,
                )


def shared_bytes(dispatch: Dispatch) -> int:
    """Return the shared memory of a dispatch's workgroup, as its compiled kernel has it."""
    facts = compiler.compile_variant(*dispatch.variant).reflection
    values = dispatch.constant_values
    return facts.workgroup.shared_bytes(
        {known.id: values[name] for name, known in facts.constants.items() if name in values}
    )


@pytest.mark.parametrize("shared", [16384, 32768, 49152, 101376])
@pytest.mark.parametrize("known", [GPU, NVIDIA], ids=["unknown-order", "nvidia"])
def test_every_size_of_head_fits_the_shared_memory(known, shared):
    info = limited(known, shared)
    plain = attending(64, 64, replace(info, cooperative_matrices=()))
    assert plain is not None and plain.kernel == "attention"
    chosen = {(d.kernel, d.constants): d for d in resized(plain, info) if d.kernel != "attention"}
    kernels = {d.kernel for d in chosen.values()}
    expected = "attention_registers" if known is NVIDIA else "attention_cooperative"
    assert expected in kernels and ("attention_direct" in kernels) == (
        known is NVIDIA and shared > 16384
    )
    for dispatch in chosen.values():
        assert shared_bytes(dispatch) <= shared, (dispatch.kernel, dispatch.constant_values)


@pytest.mark.parametrize("shared", [16384, 49152])
def test_every_size_of_head_of_the_plain_kernel_fits(shared):
    info = limited(replace(GPU, cooperative_matrices=()), shared)
    sizes = [*range(1, 257, 15), 64, 96, 128, 160, 192, 256]
    made = [attending(size, value_size, info) for size in sizes for value_size in sizes]
    fused = {d.constants: d for d in made if d is not None}
    assert len(fused) > 20
    for dispatch in fused.values():
        assert dispatch.kernel == "attention" and shared_bytes(dispatch) <= shared


@pytest.mark.parametrize("subgroups", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("value_size", [64, 128])
def test_the_rule_knows_the_bytes_of_the_kernel(monkeypatch, subgroups, value_size):
    monkeypatch.setattr(matrix_attention, "ATTENTION_DIRECT", ((128, 1024, subgroups, 1),))
    made = attending(96, value_size, limited(NVIDIA, 1 << 20))
    assert made is not None and made.kernel == "attention_direct"
    assert shared_bytes(made) == matrix_attention.direct_bytes(subgroups, value_size)
    assert shared_bytes(made) <= 16 * 1024 + 192 * subgroups + 1536


def test_a_tile_too_large_for_the_device_is_passed_over(monkeypatch):
    need = matrix_attention.direct_bytes(8, 128)
    monkeypatch.setattr(
        matrix_attention, "ATTENTION_DIRECT", ((128, 1024, 8, 1), (128, 1024, 1, 1))
    )
    for shared, lanes in ((need, 256), (need - 1, 32)):
        made = attending(128, 128, limited(NVIDIA, shared))
        assert made is not None and made.kernel == "attention_direct"
        assert made.constant_values["WORKGROUP"] == lanes
