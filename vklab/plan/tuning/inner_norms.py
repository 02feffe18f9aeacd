"""Compute LayerNormalization inside the products that read its rows, rather than before them.

A product of halves on matrix units reads whole rows in any case. It collects their means and
deviations, which take less time than a dispatch and its barrier. Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.graph import constant_cache
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["join"]

# Defines of a product whose rows can be normalised, and of a norm without factors.
Defines = Mapping[str, str | None]
PRODUCT: Defines = {"T": "half", "EIGHTS": "1", "WIDE_Y": "1", "SUM": None,
                    "UNIT": None, "NORM": None}
NORM: Defines = {"CENTER": "1", "BIAS": "0", "STATISTICS": "0"}


def join(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return the dispatches without norms whose readers, products alone, compute them.

    Args:
        lowered: dispatches with the kernels of a device.
        info: the device.

    Source: Chan, Golub and LeVeque 1979, "Updating Formulae and a Pairwise Algorithm for
    Computing Sample Variances"
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
    return (alike and _has(norm, NORM) and known is not None and bool((known == 1).all()))


def _has(dispatch: Dispatch, wanted: Defines) -> bool:
    defines = dict(dispatch.defines)
    return all(defines.get(name) == value for name, value in wanted.items())


def _joined(
    lowered: Lowered, product: Dispatch, norm: Dispatch, root: str, info: DeviceInfo
) -> Dispatch | None:
    """Return a product that normalises its rows of A; None for another kind of reader."""
    push, constants = dict[str, Any](product.push), dict(product.constants)
    given, reads = dict[str, Any](norm.push), dict(product.reads)
    packed = product.kernel == "matmul_registers"
    if not packed and (product.kernel != "matmul_cooperative" or not _has(product, PRODUCT)):
        return None
    weight = lowered.constants.get(lowered.roots.get(reads["b_buffer"].name, ""))
    lanes = 4 if packed else int(dict(product.defines)["TILE_K"]) // 8
    uses = [i for i in _inputs(product) if lowered.roots.get(i.name) == root]
    if (weight is None or weight.constant is None or len(uses) != 1
            or lowered.roots[reads["a_buffer"].name] != root
            or lowered.slices.get(reads["a_buffer"].name, 0)
            or (push["a_row"], push.get("a_column", 1)) != (push["k"], 1)
            or (push["m"], push["k"]) != (given["rows"], given["columns"])
            or push.get("batches", 1) != 1 or product.workgroups[2] != 1 or push["n"] % 4
            or lanes & (lanes - 1) or lanes > constants.get("SUBGROUP", lanes)
            or "shuffle" not in info.subgroup_operations):  # fmt: skip
        return None
    strides = () if packed else (push["b_row"], push["b_column"])
    key = ("column sums", push["k"], push["n"], strides, given["epsilon"])
    array = constant_cache.derive(key, _Sums(push["k"], push["n"], strides, given["epsilon"]),
                                  weight.constant)  # fmt: skip
    sums = TensorInfo(f"{product.writes[0][1].name}:column sums", "float32", array.shape, array)
    source = dict(norm.reads)["x_buffer"]
    changed = tuple((name, source if name == "a_buffer" else i) for name, i in product.reads)
    return replace(product, reads=(*changed, ("norm_buffer", sums)),
                   defines=(*product.defines, ("NORM", "1")),
                   flops=product.flops + norm.flops)  # fmt: skip


class _Sums:
    """Sum of each column of a matrix, and then epsilon, in fours."""

    def __init__(self, k: int, n: int, strides: Sequence[int], epsilon: float) -> None:
        self.shape, self.strides, self.epsilon = (k, n), strides, epsilon

    def __call__(self, matrix: np.ndarray) -> np.ndarray:
        if not self.strides:  # packed: steps, eights of columns, columns, lanes, terms
            sums = matrix.sum(axis=(0, 3, 4), dtype=np.float64).ravel()[: self.shape[1]]
            return self._with_epsilon(sums)
        flat = matrix.ravel()
        steps = tuple(step * flat.itemsize for step in self.strides)
        whole = np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)
        return self._with_epsilon(whole.sum(axis=0, dtype=np.float64))

    def _with_epsilon(self, sums: np.ndarray) -> np.ndarray:
        return np.concatenate((sums, np.full(4, self.epsilon))).astype(np.float32)
