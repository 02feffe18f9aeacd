"""Run one node for all its outputs, and compare arrays as the runtime's own check does."""

from __future__ import annotations

import numpy as np
from onnx import helper

import vklab
from support.graphs.small_models import model, value
from vklab.runtime.observe import compare


def run_all(op_type, arrays, outputs, device, opset=21, domain="", **attributes):
    """Return all outputs of one node; None leaves an input out."""
    names = [f"x{i}" for i in range(len(arrays))]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(
        op_type,
        [n if a is not None else "" for n, a in zip(names, arrays, strict=True)],
        made,
        name="node",
        domain=domain,
        **attributes,
    )
    fed = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    described = [
        value(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in fed.items()
    ]
    proto = model([node], described, made, {}, opset)
    if domain:
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    with vklab.load(proto, device) as session:
        got = session.run(fed)
    return [got[name] for name in made]


def close(got, expected, rtol=compare.RTOL, atol=compare.ATOL):
    """Demand that arrays agree as the runtime's own check sees it."""
    expected = np.asarray(expected).astype(got.dtype)
    comparison = compare.compare({"y": got}, {"y": expected}, rtol, atol)
    assert comparison.passed, comparison
