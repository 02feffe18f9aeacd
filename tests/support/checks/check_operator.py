"""Run one operator on a device and hold it to ONNX Runtime: the test states the case only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import vklab
from support.graphs.small_models import one_node, random_array
from vklab import settings
from vklab.ops.dtypes import ELEMENTS
from vklab.runtime.observe import compare


def lacks(device: int | None, *dtypes: Any) -> bool:
    """Tell whether a device leaves arithmetic of some dtype to the host: that of 64 bits.

    Args:
        device: the device; None for the first.
        dtypes: the dtypes that are computed in.
    """
    features = vklab.devices()[device or 0].features
    wide = {str(np.dtype(each)) for each in dtypes} & {"int64", "uint64", "float64"}
    return any(ELEMENTS[name].needs - features for name in wide)


def check_operator(
    op_type: str,
    shapes: Sequence[Sequence[int]] = (),
    inputs: Sequence[np.ndarray | None] | None = None,
    device: int | None = None,
    constants: Sequence[int] = (),
    opset: int = 17,
    rtol: float = compare.RTOL,
    atol: float = compare.ATOL,
    outputs: int = 1,
    domain: str = "",
    **attributes: Any,
) -> np.ndarray:
    """Compare an operator's outputs with ONNX Runtime's and return the first.

    Inputs are random of the given `shapes`, or the given arrays, None for one that is left out.
    No node runs on the host, unless the device lacks the dtype of the first input.
    """
    arrays = [random_array(s, i) for i, s in enumerate(shapes)] if inputs is None else inputs
    proto, fed = one_node(op_type, arrays, constants, opset, outputs, domain, **attributes)
    with (
        settings.settings(FALLBACK=arrays[0] is not None and lacks(device, arrays[0].dtype)),
        vklab.load(proto, device) as session,
        np.errstate(all="ignore"),
    ):
        found = session.run(fed)
        comparison = compare.compare(found, session.reference(fed), rtol, atol)
    case = ", ".join("-" if a is None else f"{a.dtype}{list(a.shape)}" for a in arrays)
    assert comparison.passed, f"{op_type}({case}, {attributes}): {comparison}"
    return found["y0"]
