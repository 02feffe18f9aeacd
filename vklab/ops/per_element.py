"""The plainest way to share out work: one invocation for each element of the result."""

from __future__ import annotations

from collections.abc import Sequence

from vklab.ops.registry import WORKGROUP, Result, grid
from vklab.types import Dispatch, TensorInfo

__all__ = ["per_element"]


def per_element(
    kernel: str, result: TensorInfo, reads: Sequence[tuple[str, TensorInfo | None]],
    push: Sequence[tuple[str, float | tuple[int, ...]]], defines: Sequence[tuple[str, str]],
    flops: int = 0, iterations: int = 0, name: str = "y", stores: bool = False,
    loads: bool = False,
) -> Result:  # fmt: skip
    """Return a kernel's dispatch with an invocation for each element, and none without elements.

    Args:
        reads: what is read, named as the kernel's buffers are without `_buffer`; None is left out.
        push: the push constants beside `count`.
        flops: of one element.
        name: of the buffer that is written.
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
