"""Softmax along the last axis by the kernel of exercise 4. Visited by lab 07."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vklab.types import TensorInfo
from vklab_labs.shared.operator_kernels import Task, is_plain, kernel_piece

__all__ = ["SOFTMAX"]

_ROWS = """
import lib.reduce;

StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint columns; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
    uint begin = group.x * params.columns, end = begin + params.columns;
    float most = asfloat(0xff800000), sum = 0;
    for (uint i = begin + lane; i < end; i += 64) most = larger(most, x[i]);
    most = workgroup_max(most, lane, 64);
    for (uint i = begin + lane; i < end; i += 64) sum += exp(x[i] - most);
    sum = workgroup_sum(sum, lane, 64);
    for (uint i = begin + lane; i < end; i += 64) y[i] = exp(x[i] - most) / sum;
}
"""


def _rows(params: Mapping[str, Any], X: TensorInfo, *, axis: int | None = None) -> Task | None:
    """Return one workgroup a row. Without an axis, versions differ unless there are two axes."""
    if not is_plain(X) or not X.rank:
        return None
    last = axis in (-1, X.rank - 1) or (axis is None and X.rank == 2)
    return (X.dims, (X.count // X.dims[-1], 1, 1), {"columns": X.dims[-1]}) if last else None


SOFTMAX = kernel_piece("07-4", "Softmax", ("x",), _ROWS, _rows)
