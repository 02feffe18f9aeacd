"""A small attention block with open dimensions, and what it is fed."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from support.graphs.small_models import model, random_array, value

NODE = helper.make_node
BOUNDS = {"batch": 3, "length": 9}
SHAPES = [(b, n) for b in (1, 2, 3) for n in (1, 2, 7, 9)]


def block(suffix: str = "") -> onnx.ModelProto:
    """Return a model of products, a softmax, a mean, shape arithmetic, with two outputs.

    Args:
        suffix: ends the names of the second input's dimensions.
    """
    nodes = [
        NODE("MatMul", ["x", "w"], ["q"]),
        NODE("Shape", ["x"], ["dims"]),
        NODE("Gather", ["dims", "zero"], ["rows"], axis=0),
        NODE("Gather", ["dims", "one"], ["length"], axis=0),
        NODE("Concat", ["rows", "length", "heads"], ["split"], axis=0),
        NODE("Reshape", ["q", "split"], ["q4"]),
        NODE("Transpose", ["q4"], ["heads_first"], perm=[0, 2, 1, 3]),
        NODE("Transpose", ["q4"], ["turned"], perm=[0, 2, 3, 1]),
        NODE("MatMul", ["heads_first", "turned"], ["scores"]),
        NODE("Unsqueeze", ["mask", "axes"], ["wide"]),
        NODE("Add", ["scores", "wide"], ["masked"]),
        NODE("Softmax", ["masked"], ["weights"], axis=-1),
        NODE("MatMul", ["weights", "heads_first"], ["mixed"]),
        NODE("ReduceMean", ["mixed"], ["pooled"], axes=[1, 2], keepdims=0),
    ]
    constants = {
        "w": random_array((6, 8), 1),
        "zero": np.int64([0]),
        "one": np.int64([1]),
        "heads": np.int64([2, 4]),
        "axes": np.int64([1, 2]),
    }
    inputs = [
        value("x", ("batch", "length", 6)),
        value("mask", (f"batch{suffix}", f"length{suffix}")),
    ]
    return model(nodes, inputs, ["weights", "pooled"], constants)


def feeds(batch: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return inputs of a size; some of the mask is shut."""
    mask = np.where(random_array((batch, length), seed + 1) > 0.5, np.float32(-1e4), np.float32(0))
    return {"x": random_array((batch, length, 6), seed), "mask": mask}
