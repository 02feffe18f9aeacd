"""Gemm with transB = 1 and without C by the kernel of exercise 2. Visited by lab 08."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vklab.types import TensorInfo
from vklab_labs.shared.operator_kernels import Task, is_plain, kernel_piece

__all__ = ["GEMM"]

# The tile is a parameter of the workgroup only: the runtime has no module for tiles.
_PRODUCT = """
import lib.reduce;

StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns, depth; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads([[tile]], [[tile]], 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.y >= params.rows || id.x >= params.columns) return;
    float total = 0;
    for (uint k = 0; k < params.depth; ++k)
        total = plus(total, times(a[id.y * params.depth + k], b[id.x * params.depth + k]));
    y[id.y * params.columns + id.x] = total;
}
"""


def _product(
    params: Mapping[str, Any], A: TensorInfo, B: TensorInfo, C: TensorInfo | None = None, *,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> Task | None:  # fmt: skip
    fits = C is None and alpha == 1 and not transA and transB == 1
    if not fits or not is_plain(A, B) or (A.rank, B.rank) != (2, 2) or A.dims[1] != B.dims[1]:
        return None
    (rows, depth), columns, tile = A.dims, B.dims[0], params["tile"]
    grid = (-(-columns // tile), -(-rows // tile), 1)
    return (rows, columns), grid, {"rows": rows, "columns": columns, "depth": depth}


GEMM = kernel_piece("08-2", "Gemm", ("a", "b"), _PRODUCT, _product)
