"""Dispatch a kernel with one invocation for each element of the result.

Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.ops.registry import WORKGROUP, Result, grid
from vklab.types import Dispatch, TensorInfo


def per_element(
    kernel: str, result: TensorInfo, reads: Sequence[tuple[str, TensorInfo | None]],
    push: Sequence[tuple[str, float | tuple[int, ...]]], defines: Sequence[tuple[str, str]],
    flops: int = 0, iterations: int = 0, name: str = "y", stores: bool = False,
    loads: bool = False,
) -> Result:  # fmt: skip
    """Return a kernel's dispatch with one invocation per element; none for an empty result.

    Args:
        kernel: the name of the file in shaders/ops.
        result: the tensor that is written.
        reads: the tensors that are read, by buffer name without `_buffer`; None is left out.
        push: the push constants after `count`.
        defines: the defines of the variant.
        flops: floating-point operations of one element.
        iterations: the most loop iterations of one invocation.
        name: the name of the written buffer without `_buffer`.
        stores: see Dispatch.stores.
        loads: see Dispatch.loads.
    """
    if result.count == 0:
        return Result((result,))
    dispatch = Dispatch(
        kernel=kernel,
        reads=tuple((f"{name}_buffer", info) for name, info in reads if info is not None),
        writes=((f"{name}_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(("count", result.count), *push),
        defines=tuple(defines),
        flops=flops * result.count,
        iterations=iterations,
        stores=stores,
        loads=loads,
    )
    return Result((result,), (dispatch,))
