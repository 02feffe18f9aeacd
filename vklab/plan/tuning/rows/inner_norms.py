"""Compute LayerNormalization inside the products that read its rows, rather than before them.

The product before it writes the moments of its rows while it has them in registers; the products
after it multiply the rows as they are, and correct their sums. So no dispatch, and no barrier, is
left for the norm. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.plan.fusion.flow import Uses
from vklab.plan.lowering import Lowered
from vklab.plan.tuning import precision, prepack
from vklab.plan.tuning.join_task import JoinTask
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Moments of a row that an invocation has, and buffers that every device can bind beside others.
MOST_MOMENTS, MOST_BUFFERS = 8, 8
KERNEL, NORM = "matmul_registers", "normalize_registers"
LANES = precision.LANES

# For each dispatch before tuning, those that were chosen for it.
Chosen = list[tuple[Dispatch, ...]]


def join(task: JoinTask) -> Lowered:
    """Return the roots and constants with those of joined norms, which `task.chosen` then lacks.

    Args:
        task: dispatches before kernels were chosen, with those that were.

    Source: Ba, Kiros and Hinton 2016, "Layer Normalization", equation 3
    """
    lowered, chosen = task.lowered, task.chosen
    if lowered.kept is None:
        return lowered
    work = _Work(chosen, lowered, task.info)
    for number, pieces in enumerate(chosen):
        if len(pieces) == 1 and pieces[0].kernel == NORM:
            work.visit(number, pieces[0])
    return replace(lowered, roots=work.roots, constants=work.constants, nodes=tuple(work.nodes))


class _Work(Uses):
    """One traversal of the norms of a chunk."""

    def __init__(self, chosen: Chosen, lowered: Lowered, info: DeviceInfo) -> None:
        self.chosen, self.lowered, self.info = chosen, lowered, info
        super().__init__(lowered.roots)
        self.constants = dict(lowered.constants)
        self.nodes = list(lowered.nodes)
        for number, dispatch in ((n, each) for n, pieces in enumerate(chosen) for each in pieces):
            self.enter(number, dispatch)

    def visit(self, number: int, norm: Dispatch) -> None:
        """Leave out a norm between products, if all that read its rows are some."""
        source, made = dict(norm.reads)["x_buffer"], norm.writes[0][1]
        readers = sorted(self.readers.get(self.root(made), ()))
        writers = sorted(self.writers.get(self.root(source), ()))
        kept = self.lowered.kept or frozenset()
        if not _is_plain(norm) or len(writers) != 1 or not readers or self.root(made) in kept:
            return
        before = self._making(writers[0], norm)
        if before is None or not all(self._takes(each, norm, before) for each in readers):
            return  # another reader takes the norm itself
        products = [product for each in readers if (product := self._normed(each, norm, before))]
        if len(products) < len(readers):
            return
        self.chosen[writers[0]], self.chosen[number] = (before,), ()
        for reader, product in zip(readers, products, strict=True):
            self.chosen[reader] = (product,)
            self.nodes[reader] = f"{self.nodes[number]} + {self.nodes[reader]}"
            for name, value in product.reads:
                if name in ("b_buffer", "norm_buffer"):
                    self.roots[value.name], self.constants[value.name] = value.name, value

    def _making(self, number: int, norm: Dispatch) -> Dispatch | None:
        """Return the product that makes the rows of a norm, with their moments; None if none is."""
        product = self._product(number)
        source, push = dict(norm.reads)["x_buffer"], norm.push_values
        if product is None or product.epilogue is None or product.epilogue.target is not None:
            return None
        (rows, columns), made = _sizes(product), product.writes[0][1]
        tile = int(product.constant_values["TILE_N"])
        width = tile & -tile  # neighbours add up what they have: a power of two
        is_whole = (self.root(made), made.count) == (self.root(source), source.count)
        if (
            not is_whole
            or source.name in self.lowered.slices
            or made.dtype != "float16"
            or (rows, columns) != (push["rows"], push["columns"])
            or columns % tile
            or width > 4 * LANES
        ):
            return None
        if ("MOMENTS", "1") in product.defines:
            return product
        moments = TensorInfo(internal(made.name, "moments"), "float32", (rows, columns // width, 2))
        return self._bound(
            replace(
                product,
                writes=(*product.writes, ("moments_buffer", moments)),
                in_place=(),
                defines=(*product.defines, ("MOMENTS", "1")),
            )
        )

    def _takes(self, number: int, norm: Dispatch, before: Dispatch) -> bool:
        """Tell whether a dispatch is a product of a norm's rows that can have the norm inside.

        Args:
            number: the number of the dispatch.
            norm: the norm.
            before: the product that writes the moments of the rows.
        """
        product = self._product(number)
        if product is None or ("NORM", "1") in product.defines:
            return False
        push, given = product.push_values, norm.push_values
        constants, root = product.constant_values, self.root(norm.writes[0][1])
        a = dict(product.reads)["a_buffer"]
        shares = int(constants["WORKGROUP"]) // int(constants["TILE_M"])
        sharing = min(1 << shares.bit_length() - 1, LANES) if shares else 0
        return (
            self.count(a, product) == 1
            and self.root(a) == root
            and a.name not in self.lowered.slices
            and push["alpha"] == 1
            and (push["m"], push["k"]) == (given["rows"], given["columns"])
            and push["a_row"] == given["columns"]
            and _moments(before).dims[1] <= MOST_MOMENTS * sharing
        )

    def _normed(self, number: int, norm: Dispatch, before: Dispatch) -> Dispatch | None:
        """Return a product with the norm inside; None if the norm's factors are not known.

        Args:
            number: the number of the product.
            norm: the norm.
            before: the product that writes the moments of the rows.
        """
        (product,), moments = self.chosen[number], _moments(before)
        scaled = self._scaled(dict(product.reads)["b_buffer"], norm)
        if scaled is None:
            return None
        weight, rows, power = scaled
        changed = {"a_buffer": dict(norm.reads)["x_buffer"], "b_buffer": weight}
        named = tuple((name, changed.get(name, i)) for name, i in product.reads)
        numbers = {
            **product.push_values,
            "alpha": power,
            "pieces": moments.dims[1],
            "epsilon": norm.push_values["epsilon"],
        }
        return self._bound(
            replace(
                product,
                push=tuple(numbers.items()),
                flops=product.flops + norm.flops,
                reads=(*named, ("given_buffer", moments), ("norm_buffer", rows)),
                defines=(*product.defines, ("NORM", "1")),
            )
        )

    def _product(self, number: int) -> Dispatch | None:
        """Return the only dispatch chosen for a number, if it is a product that takes norms."""
        pieces = self.chosen[number]
        if len(pieces) != 1 or pieces[0].kernel != KERNEL or ("WINDOW", "1") in pieces[0].defines:
            return None
        whole = pieces[0].workgroups[2] == 1 and "shuffle" in self.info.subgroup_operations
        return pieces[0] if whole else None

    def _bound(self, dispatch: Dispatch) -> Dispatch | None:
        """Return a dispatch, if the device can bind its buffers."""
        limit = self.info.limits.get("maxPerStageDescriptorStorageBuffers", MOST_BUFFERS)
        count = len(dispatch.tensors_read) + len(dispatch.writes)
        return dispatch if count <= MOST_BUFFERS and count <= int(str(limit)) else None

    def _scaled(
        self, packed: TensorInfo, norm: Dispatch
    ) -> tuple[TensorInfo, TensorInfo, float] | None:
        """Return a packed weight times the norm's factors over a power of two, its rows, the power.

        The rows are the sums of its columns, and what the norm's bias adds to the results.
        """
        factors = [self.constants.get(self.root(i)) for name, i in norm.reads if name != "x_buffer"]
        values = [
            each.constant for each in factors if each is not None and each.constant is not None
        ]
        lanes = packed.layout if isinstance(packed.layout, prepack.ByLane) else None
        source = self.constants.get(lanes.weight) if lanes else None
        if (
            lanes is None
            or source is None
            or source.constant is None
            or (len(values) < len(factors) or not all(np.isfinite(each).all() for each in values))
        ):
            return None
        scale, *biases = values
        power = float(2.0 ** np.ceil(np.log2(float(np.abs(scale).max()) or 1.0)))

        def scaled(given: np.ndarray, factor: np.ndarray) -> np.ndarray:
            matrix = lanes.matrix(given) * (factor.astype(np.float32) / power)[:, None]
            return prepack.in_lanes(matrix.astype(given.dtype))

        def rows(given: np.ndarray, made: np.ndarray, *added: np.ndarray) -> np.ndarray:
            matrix = lanes.matrix(given).astype(np.float64)
            sums = made.sum(axis=(0, 3, 4), dtype=np.float64).ravel()[: matrix.shape[1]]
            moved = sum((each @ matrix for each in added), np.zeros_like(sums))
            return np.stack([sums, moved]).astype(np.float32)

        array = constant_cache.derive(("scaled", lanes), scaled, source.constant, scale)
        beside = constant_cache.derive(("norm", lanes), rows, source.constant, array, *biases)
        names = ", ".join(each.name for each in factors if each is not None)
        return (
            replace(packed, name=internal(packed.name, f"scaled by {names}"), constant=array),
            TensorInfo(internal(packed.name, f"sums for {names}"), "float32", beside.shape, beside),
            power,
        )


def _is_plain(norm: Dispatch) -> bool:
    """Tell whether a dispatch is LayerNormalization of rows of halves, with factors for columns."""
    push, defines = norm.push_values, norm.define_values
    return (
        not (norm.prologue or norm.epilogue or norm.siblings)
        and len(norm.writes) == 1
        and (defines["CENTER"], defines["STATISTICS"]) == ("1", "0")
        and {i.dtype for _, i in (norm.reads[0], norm.writes[0])} == {"float16"}
        and push["run"] == 1
        and (push["step"] == 0 or push["period"] == 1)
        and all(i.count == push["columns"] for _, i in norm.reads[1:])
    )


def _moments(product: Dispatch) -> TensorInfo:
    return dict(product.writes)["moments_buffer"]


def _sizes(product: Dispatch) -> tuple[Any, Any]:
    push = product.push_values
    return push["m"], push["n"]
