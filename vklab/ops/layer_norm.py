"""Dispatch normalisations of rows to mean zero and variance one. ONNX: LayerNormalization, ...

Dense rows use one kernel; other layouts, and rows too long for one workgroup, are expanded into
reductions. Visited by lab 07. Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.body import Body
from vklab.ops.dtypes import FLOATS, REALS, type_defines
from vklab.ops.elementwise import broadcast_shape
from vklab.ops.inputs import normal_axis, require, same
from vklab.ops.reduction import KINDS, Kind, reduce_work
from vklab.ops.registry import WORKGROUP, Answer, Result, grid, operator, output
from vklab.ops.rows import Rows, Work
from vklab.types import Dispatch, TensorInfo

# Rows above LONGEST, or above LONG_ROW if fewer than FEW_ROWS, are divided among workgroups.
FEW_ROWS, LONG_ROW, LONGEST = 64, 1 << 15, 1 << 21
# ONNX's numbers of the dtypes that Cast converts between here.
CODES = {"float32": 1, "float16": 10, "float64": 11, "bfloat16": 16}
STASHED = 1


@operator("LayerNormalization")
def layer_normalization(
    X: TensorInfo,
    Scale: TensorInfo,
    B: TensorInfo | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    output_count: int = 1,
) -> Answer:
    """Normalise over all axes from `axis` on. Source: ONNX LayerNormalization-17."""
    _check_stash(stash_type)
    return normalize(
        X, Scale, B, normal_axis(axis, X.rank), epsilon, X.dtype, statistics=output_count > 1
    )


@operator("RMSNormalization")
def rms_normalization(
    X: TensorInfo,
    scale: TensorInfo,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    output_count: int = 1,
) -> Answer:
    """Divide by the root of the mean square, then scale. Source: ONNX RMSNormalization-23."""
    _check_stash(stash_type)
    return normalize(
        X,
        scale,
        None,
        normal_axis(axis, X.rank),
        epsilon,
        scale.dtype,
        center=False,
        statistics=output_count > 1,
    )


def _check_stash(stash_type: int) -> None:
    if stash_type != STASHED:
        raise UnsupportedOperatorError(f"stash_type={stash_type}; kernels take 1 (float32)")


@operator("InstanceNormalization")
def instance_normalization(
    input: TensorInfo, scale: TensorInfo, B: TensorInfo, *, epsilon: float = 1e-5
) -> Answer:
    """Normalise each channel of each image. Source: ONNX InstanceNormalization-22."""
    if input.rank < 3:
        raise ModelError(f"X of rank {input.rank} has no spatial axes")
    channels = input.dims[1]
    return _grouped(input, scale, B, channels, channels, epsilon)


@operator("GroupNormalization", since=21)
def group_normalization(
    X: TensorInfo,
    scale: TensorInfo,
    bias: TensorInfo,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Answer:
    """Normalise groups of channels and scale channels. Source: ONNX GroupNormalization-21."""
    _check_stash(stash_type)
    return _grouped(X, scale, bias, num_groups, X.dims[1] if X.rank > 1 else 0, epsilon)


@operator("GroupNormalization", since=18)
def group_normalization_of_18(
    X: TensorInfo, scale: TensorInfo, bias: TensorInfo, *, epsilon: float = 1e-5, num_groups: int
) -> Answer:
    """Normalise groups of channels and scale groups. Source: ONNX GroupNormalization-18."""
    return _grouped(X, scale, bias, num_groups, num_groups, epsilon)


def _grouped(
    X: TensorInfo, scale: TensorInfo, bias: TensorInfo, groups: int, parameters: int, epsilon: float
) -> Answer:
    """Normalise X [N,C,...] in groups of channels, with `parameters` scales along C."""
    require(REALS, X, scale, bias)
    same(X, scale, bias)
    if X.rank < 2:
        raise ModelError(f"X of rank {X.rank} has no channels")
    batch, channels = X.dims[:2]
    if groups <= 0 or channels % groups:
        raise ModelError(f"{channels} channels do not divide into {groups} groups")
    if scale.dims != (parameters,) or bias.dims != (parameters,):
        raise ModelError(f"scale {scale.shape} and bias {bias.shape} must be [{parameters}]")
    result = output(X.dtype, X.dims)
    if X.count == 0:
        return Result((result,))
    rows = Rows(batch * groups, X.count // (batch * groups), 1, wide=True)
    if X.dtype in FLOATS:
        step = parameters // groups
        layout = (groups, step, rows.columns // step)
        return _result(X, scale, bias, (result,), rows, layout, epsilon)
    body = Body()
    split = body("Reshape", X, np.array([batch, parameters, -1]))
    grouped = body("Reshape", split, np.array([batch, groups, -1]))
    normal, *_ = standardize(body, grouped, X.dtype, (2,), epsilon)
    normal = body("Reshape", normal, np.array([batch, parameters, -1]))
    scaled = body("Mul", normal, body("Reshape", scale, np.array([-1, 1])))
    shifted = body("Add", scaled, body("Reshape", bias, np.array([-1, 1])))
    return body.result(body("Reshape", shifted, np.array(X.dims)))


def normalize(
    X: TensorInfo,
    scale: TensorInfo,
    bias: TensorInfo | None,
    axis: int,
    epsilon: float,
    dtype: str,
    center: bool = True,
    statistics: bool = False,
) -> Answer:
    """Normalise X over all axes from `axis` on.

    Args:
        X: the tensor to normalise.
        scale: the factor of every element, broadcast to X.
        bias: the summand of every element, broadcast to X; None for none.
        axis: the first axis of a row, counted from the front.
        epsilon: the number added to the variance.
        dtype: the dtype of the result.
        center: subtract the mean (LayerNormalization) or not (RMSNormalization).
        statistics: return Mean (if centred) and InvStdDev too.
    """
    require(REALS, X, scale, bias)
    for info in (scale, bias):
        if info is not None and broadcast_shape(info.dims, X.dims) != X.dims:
            raise ModelError(f"{info} does not broadcast to {X.shape}")
    result, shape = output(dtype, X.dims), (*X.dims[:axis], *(1,) * (X.rank - axis))
    count = (2 if center else 1) if statistics else 0
    known = [output("float32", shape) for _ in range(count)]
    if X.count == 0:
        unknown = np.full(shape, np.nan, np.float32)
        return Result((result, *(output("float32", shape, unknown) for _ in known)))
    rows = Rows(math.prod(shape), math.prod(X.dims[axis:]), 1, wide=True)
    run, *others = [_run(info, X.dims[axis:]) for info in (scale, bias) if info is not None]
    plain = bias is None or bias.dtype == scale.dtype
    if X.dtype in FLOATS and plain and run and all(run == other for other in others):
        layout = (1, 0, run)
        return _result(X, scale, bias, (result, *known), rows, layout, epsilon, center)
    body = Body()
    axes = tuple(range(axis, X.rank))
    normal, mean, inverse = standardize(body, X, X.dtype, axes, epsilon, center)
    y = body("Mul", body("Cast", normal, to=CODES[dtype]), body("Cast", scale, to=CODES[dtype]))
    y = y if bias is None else body("Add", y, body("Cast", bias, to=CODES[dtype]))
    known_too = [body("Cast", v, to=CODES["float32"]) for v in (mean, inverse) if v and statistics]
    return body.result(y, *known_too)


def _run(info: TensorInfo, shape: tuple[int, ...]) -> int:
    """Return how many neighbouring elements of a row share one parameter; 0 for other layouts."""
    if info.count == 1:
        return math.prod(shape)
    own = (1,) * (len(shape) - info.rank) + info.dims
    return 1 if own[-len(shape) :] == shape and info.count == math.prod(shape) else 0


def standardize(
    body: Body, X: Any, dtype: str, axes: tuple[int, ...], epsilon: float, center: bool = True
) -> tuple[str, str, str]:
    """Add nodes for (X - mean) / sqrt(variance + epsilon); return their names.

    Returns the quotient, the mean ("" without centring) and 1 / sqrt(variance + epsilon), computed
    in float32, or in float64 if X is float64.

    Args:
        body: the body that gets the nodes.
        X: the value to normalise.
        dtype: the dtype of X.
        axes: the axes of the mean and the variance, counted from the front.
        epsilon: the number added to the variance.
        center: subtract the mean.
    """
    wide = np.float64 if dtype == "float64" else np.float32
    over = np.array(axes, np.int64)
    X = body("Cast", X, to=CODES["float32"]) if dtype in FLOATS - {"float32"} else X
    mean = body("ReduceMean", X, over) if center else ""
    distance = body("Sub", X, mean) if center else X
    variance = body("ReduceMean", body("Mul", distance, distance), over)
    root = body("Sqrt", body("Add", variance, wide(epsilon)))
    inverse = body("Div", wide(1), root)
    normal = body("Mul", distance, inverse)
    if dtype in FLOATS - {"float32"}:
        normal = body("Cast", normal, to=CODES[dtype])
    return normal, mean, inverse


def _result(
    X: TensorInfo, scale: TensorInfo, bias: TensorInfo | None, outputs: tuple[TensorInfo, ...],
    rows: Rows, layout: tuple[int, int, int], epsilon: float, center: bool = True,
) -> Result:  # fmt: skip
    few = rows.count < FEW_ROWS and rows.columns > LONG_ROW
    if not few and rows.columns <= LONGEST:
        dispatch = _dispatch(X, scale, bias, outputs, rows, layout, epsilon, center)
        return Result(outputs, (dispatch,))
    work, count = Work(), 2 if center else 1
    known = outputs[1:] or tuple(work.temporary("float32", (rows.count,)) for _ in range(count))
    mean, shape = known[0] if center else None, (rows.count, rows.columns)
    if mean:
        reduce_work(KINDS["ReduceMean"], X, (1,), mean, None, work, shape)
    kind = Kind(
        map="(a-shift)*(a-shift)" if center else "a*a", finish=f"1.0/sqrt(mean(total)+{epsilon!r})"
    )
    reduce_work(kind, X, (1,), known[-1], mean, work, shape)
    storage, _, store = type_defines("Y", outputs[0].dtype)
    apply = Dispatch(
        kernel="normalize_known",
        reads=(
            ("x_buffer", X),
            ("w_buffer", scale),
            *((("b_buffer", bias),) if bias else ()),
            *((("mean_buffer", mean),) if mean else ()),
            ("deviation_buffer", known[-1]),
        ),
        writes=(("y_buffer", outputs[0]),),
        workgroups=grid(-(-X.count // WORKGROUP)),
        push=(
            ("count", X.count),
            ("columns", rows.columns),
            *zip(("period", "step", "run"), layout, strict=True),
        ),
        defines=(
            *type_defines("X", X.dtype)[:2],
            *type_defines("W", scale.dtype)[:2],
            storage,
            store,
            ("CENTER", str(int(center))),
            ("BIAS", str(int(bias is not None))),
        ),
        flops=4 * X.count,
        stores=True,
        loads=True,
    )
    return Result(outputs, (*work.dispatches, apply), work.scratch)


def _dispatch(
    X: TensorInfo, scale: TensorInfo, bias: TensorInfo | None, outputs: tuple[TensorInfo, ...],
    rows: Rows, layout: tuple[int, int, int], epsilon: float, center: bool,
) -> Dispatch:  # fmt: skip
    names = ("y_buffer", *(("mean_buffer",) if center else ()), "deviation_buffer")
    storage, _, store = type_defines("Y", outputs[0].dtype)
    flags = {"CENTER": center, "BIAS": bias is not None, "STATISTICS": len(outputs) > 1}
    period, step, run = layout
    return Dispatch(
        kernel="normalize",
        reads=(("x_buffer", X), ("w_buffer", scale), *((("b_buffer", bias),) if bias else ())),
        writes=tuple(zip(names, outputs, strict=False)),
        workgroups=rows.workgroups,
        push=(
            ("rows", rows.count),
            ("columns", rows.columns),
            ("period", period),
            ("step", step),
            ("run", run),
            ("epsilon", epsilon),
        ),
        defines=(
            *type_defines("X", X.dtype)[:2],
            *type_defines("W", scale.dtype)[:2],
            storage,
            store,
            *((name, str(int(flag))) for name, flag in flags.items()),
        ),
        constants=(("WORKGROUP", rows.lanes),),
        flops=8 * X.count,
        iterations=3 * rows.iterations + 32,
        stores=True,
        loads=True,
    )
