"""Kernels of labs 04 and 04b as the kernels of Add and Transpose. Visited by labs 04 and 04b."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vklab.types import TensorInfo
from vklab_labs.shared.operator_kernels import Task, is_plain, kernel_piece

__all__ = ["ADD", "TRANSPOSE"]

# The runtime's Add has no scale: this kernel leaves it out, too.
_SUM = """
import lib.elementwise;

StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> y;
struct Params { uint count; float scale; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x >= params.count) return;
    y[id.x] = onnx::add(a[id.x], b[id.x]);
}
"""
# As in the runtime's element-wise kernel, the operand is read by strides.
_TURNED = """
import lib.index;

StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (any(id.xy >= uint2(params.columns, params.rows))) return;
    uint shape[5] = { 1, 1, 1, params.columns, params.rows };
    uint strides[5] = { 0, 0, 0, 1, params.columns };
    uint element = id.x * params.rows + id.y;
    y[element] = x[broadcast_offset(element, shape, strides)];
}
"""


def _sum(params: Mapping[str, Any], A: TensorInfo, B: TensorInfo) -> Task | None:
    if not is_plain(A, B) or A.shape != B.shape:
        return None
    return A.dims, (-(-A.count // 64), 1, 1), {"count": A.count, "scale": 1.0}


def _turned(
    params: Mapping[str, Any], data: TensorInfo, *, perm: Sequence[int] | None = None
) -> Task | None:
    if not is_plain(data) or data.rank != 2 or tuple(perm or (1, 0)) != (1, 0):
        return None
    rows, columns = data.dims
    grid = (-(-columns // 8), -(-rows // 8), 1)
    return (columns, rows), grid, {"rows": rows, "columns": columns}


ADD = kernel_piece("04-2", "Add", ("a", "b"), _SUM, _sum)
TRANSPOSE = kernel_piece("04b-1", "Transpose", ("x",), _TURNED, _turned)
