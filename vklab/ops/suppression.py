"""Dispatch non-maximum suppression: keep the best box of each object, drop overlapping boxes.

Choices depend on each other, so one workgroup makes all choices of a class of an image. Their
number is known only after the run. Visited by lab 09.
"""

from __future__ import annotations

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import table
from vklab.ops.indexing import index_defines
from vklab.ops.inputs import known_integers, require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.select import compact
from vklab.types import Dispatch, TensorInfo

STEPS = 60_000  # loop iterations of an invocation in one dispatch
DISPATCHES = 512


@operator("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: TensorInfo,
    scores: TensorInfo,
    max_output_boxes_per_class: TensorInfo | None = None,
    iou_threshold: TensorInfo | None = None,
    score_threshold: TensorInfo | None = None,
    *,
    center_point_box: int = 0,
) -> Result:
    """List the best boxes of each class, greedily, without boxes that overlap a better box.

    Source: ONNX NonMaxSuppression-11.
    """
    require(frozenset({"float32"}), boxes, scores, iou_threshold, score_threshold)
    if boxes.rank != 3 or boxes.dims[2] != 4 or scores.rank != 3:
        raise ModelError(f"boxes {boxes.shape}, scores {scores.shape} must be [N,B,4], [N,C,B]")
    images, classes, size = scores.dims
    if boxes.dims[:2] != (images, size) or center_point_box not in (0, 1):
        raise ModelError(
            f"{boxes.shape=} and {scores.shape=} must agree, {center_point_box=} be 0 or 1"
        )
    for info in (iou_threshold, score_threshold):
        if info is not None and info.count != 1:
            raise ModelError(f"threshold {info} must be one number")
    limit = max_output_boxes_per_class
    given = known_integers(limit, "max_output_boxes_per_class") if limit is not None else (0,)
    if len(given) != 1:
        raise ModelError(f"max_output_boxes_per_class={given} must be one number")
    rows, most = images * classes, max(0, min(given[0], size))
    result = output("int64", (rows * most, 3))
    if result.count == 0:
        return Result((result,))
    overlap = iou_threshold or table([0.0], "float32")
    keys, chosen = output("int32", (rows, size)), output("int32", (rows, most))
    order = output("int32", (rows * most,))
    sizes = (("boxes", size), ("classes", classes), ("most", most))
    read = [("s_buffer", scores)]
    read += [("least_buffer", score_threshold)] if score_threshold is not None else []
    defines = (*index_defines("Y", "int64")[::2], ("CENTER", str(center_point_box)))
    each = -(-size // WORKGROUP) + WORKGROUP.bit_length() + 1  # loop iterations of a choice
    chunk = STEPS // each
    if not chunk or -(-most // chunk) > DISPATCHES:
        raise UnsupportedOperatorError(f"{most} choices among {size} boxes are too many steps")
    dispatches = [
        Dispatch(
            kernel="non_max_suppression",
            reads=(("x_buffer", boxes), ("overlap_buffer", overlap), *(() if first else read)),
            writes=(("k_buffer", keys), ("c_buffer", chosen)),
            workgroups=grid(rows),
            push=(("count", rows), *sizes, ("first", first), ("last", min(first + chunk, most))),
            defines=(
                ("STAGE", "SELECT"),
                ("START", str(int(not first))),
                ("LEAST", str(len(read) - 1 if not first else 0)),
                *defines,
            ),
            iterations=min(chunk, most) * each,
        )
        for first in range(0, most, chunk)
    ]
    compacted, scratch = compact(chosen, order, (rows * most,))
    write = Dispatch(
        kernel="non_max_suppression",
        reads=(("c_buffer", chosen), ("order_buffer", order), ("total_buffer", scratch[-1])),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-rows * most // WORKGROUP)),
        push=(("count", rows * most), *sizes, ("first", 0), ("last", 0)),
        defines=(("STAGE", "ROWS"), ("START", "0"), ("LEAST", "0"), *defines),
    )
    trims = ((0, 0, scratch[-1]),)
    return Result(
        (result,), (*dispatches, *compacted, write), (keys, chosen, order, *scratch), trims=trims
    )
