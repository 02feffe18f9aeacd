"""Compute LayerNormalization inside the products that read its rows, rather than before them.

A product of halves on matrix units reads whole rows in any case. It collects their means and
deviations, which take less time than a dispatch and its barrier. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.graph import constant_cache
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["join"]

# Defines of a norm without factors.
NORM = {"CENTER": "1", "BIAS": "0", "STATISTICS": "0"}


def join(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return the dispatches without norms whose readers, products alone, compute them.

    Args:
        lowered: dispatches with the kernels of a device.
        info: the device.

    Source: Ba, Kiros and Hinton 2016, "Layer Normalization", equation 3
    """
    if lowered.kept is None or "inner_norms" in settings.names("DISABLE_PASSES"):
        return lowered
    dispatches: list[Dispatch | None] = list(lowered.dispatches)
    roots, constants = dict(lowered.roots), dict(lowered.constants)
    readers: dict[str, list[int]] = {}
    for number, dispatch in enumerate(lowered.dispatches):
        for name in {roots.get(i.name, i.name) for i in _inputs(dispatch)}:
            readers.setdefault(name, []).append(number)
    for number, norm in enumerate(lowered.dispatches):
        root = roots[norm.writes[0][1].name]
        numbers = readers.get(root, [])
        alone = numbers and root not in lowered.kept and _is_norm(norm, lowered)
        made = [_joined(lowered, lowered.dispatches[n], norm, root, info)
                for n in numbers] if alone else []  # fmt: skip
        if made and all(made):
            dispatches[number] = None
            for reader, product in zip(numbers, made, strict=True):
                dispatches[reader] = product
                sums = dict(product.reads)["norm_buffer"] if product else norm.writes[0][1]
                roots[sums.name], constants[sums.name] = sums.name, sums
    left = [number for number, dispatch in enumerate(dispatches) if dispatch is not None]
    return replace(lowered, dispatches=tuple(filter(None, dispatches)), roots=roots,
                   constants=constants, nodes=tuple(lowered.nodes[n] for n in left))  # fmt: skip


def _inputs(dispatch: Dispatch) -> list[TensorInfo]:
    """Return all tensors that a dispatch reads, those of fused work included."""
    works = (dispatch.prologue, dispatch.epilogue, dispatch.pointwise, *dispatch.siblings)
    return [*(i for _, i in dispatch.reads), *(o.info for w in works if w for o in w.operands)]


def _is_norm(norm: Dispatch, lowered: Lowered) -> bool:
    """Tell whether a dispatch is LayerNormalization of halves without factors."""
    if norm.kernel not in ("normalize", "normalize_registers") or norm.prologue or norm.epilogue:
        return False
    factor = lowered.constants.get(lowered.roots[dict(norm.reads)["w_buffer"].name])
    alike = {info.dtype for _, info in (*norm.reads, *norm.writes)} == {"float16"}
    known = factor.constant if factor else None
    plain = NORM.items() <= dict(norm.defines).items()
    return alike and plain and known is not None and bool((known == 1).all())


def _joined(
    lowered: Lowered, product: Dispatch, norm: Dispatch, root: str, info: DeviceInfo
) -> Dispatch | None:
    """Return a product that normalises its rows of A; None for another kind of reader."""
    push, given = dict[str, Any](product.push), dict[str, Any](norm.push)
    reads = dict(product.reads)
    if product.kernel != "matmul_registers" or product.workgroups[2] != 1:
        return None
    weight = lowered.constants.get(lowered.roots.get(reads["b_buffer"].name, ""))
    uses = [i for i in _inputs(product) if lowered.roots.get(i.name) == root]
    if (weight is None or weight.constant is None or len(uses) != 1
            or lowered.roots[reads["a_buffer"].name] != root
            or lowered.slices.get(reads["a_buffer"].name, 0)
            or (push["a_row"], push["n"] % 4) != (push["k"], 0)
            or (push["m"], push["k"]) != (given["rows"], given["columns"])
            or "shuffle" not in info.subgroup_operations):  # fmt: skip
        return None
    array = constant_cache.derive("column sums", _column_sums, weight.constant)
    sums = TensorInfo(f"{product.writes[0][1].name}:column sums", "float32", array.shape, array)
    source = dict(norm.reads)["x_buffer"]
    changed = tuple((name, source if name == "a_buffer" else i) for name, i in product.reads)
    return replace(product, reads=(*changed, ("norm_buffer", sums)),
                   defines=(*product.defines, ("NORM", "1"),
                            ("EPSILON", f"float({np.float32(given['epsilon'])!s})")),
                   flops=product.flops + norm.flops)  # fmt: skip


def _column_sums(packed: np.ndarray) -> np.ndarray:
    """Return the sums of the columns of a packed matrix.

    Its axes: steps, eights of columns, columns, lanes, terms.
    """
    return packed.sum(axis=(0, 3, 4), dtype=np.float64).astype(np.float32).ravel()
