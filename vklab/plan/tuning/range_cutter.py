"""Cut dispatches on tensors beyond maxStorageBufferRange into dispatches on slices of them.

Products are cut along batches, rows, columns or the summed axis, convolutions along the batch or
the filters, element-wise work along its first axis, normalisations between rows, gathers along
their data, weights in blocks between rows. Others stay; `limits` refuses them. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vklab.base.names import internal
from vklab.ops import blocks, elementwise, linear, registry
from vklab.plan import storage
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch, TensorInfo

NO_LIMIT = 1 << 62
Numbers = Mapping[str, Any]
Pieces = list[Dispatch]
# (tensor, elements from one index of an axis to the next, elements read at one index)
Steps = tuple[TensorInfo, int, int]


def cut(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return equivalent dispatches whose operands fit into the device's range, if possible.

    Source: Golub and Van Loan, Matrix Computations, section 1.3, block matrices
    """
    cutter = _Cutter(info, dict(lowered.roots), dict(lowered.slices))
    pieces = [cutter.cut(dispatch) for dispatch in lowered.dispatches]
    if all(len(each) == 1 for each in pieces):
        return lowered
    nodes = (name for name, each in zip(lowered.nodes, pieces, strict=True) for _ in each)
    return replace(
        lowered,
        dispatches=tuple(d for each in pieces for d in each),
        nodes=tuple(nodes),
        roots=cutter.roots,
        slices=cutter.slices,
    )


@dataclass
class _Cutter:
    """Cutter of dispatches for one device; records the slices that it creates."""

    info: DeviceInfo
    roots: dict[str, str]
    slices: dict[str, int]
    wholes: dict[str, TensorInfo] = field(default_factory=dict)

    def cut(self, dispatch: Dispatch) -> Pieces:
        """Return the dispatches that replace a dispatch: itself if it fits, or cannot be cut."""
        if not self._is_large(dispatch) or dispatch.prologue or dispatch.epilogue:
            return [dispatch]
        rules: dict[str, Callable[[Dispatch], Pieces]] = {
            "matmul": self._product,
            "conv": self._conv,
            "elementwise": self._elementwise,
            "gather": self._gather,
            "normalize": self._rows,
            "softmax": self._rows,
            "matvec_blocks": self._blocks,
            "matmul_blocks": self._blocks,
            "gather_blocks": self._blocks,
        }
        rule = rules.get(dispatch.kernel)
        made = rule(dispatch) if rule else []
        return [piece for part in made for piece in self.cut(part)] or [dispatch]

    def _is_large(self, dispatch: Dispatch) -> bool:
        return any(self._is_beyond(info) for _, info in dispatch.reads + dispatch.writes)

    def _is_beyond(self, info: TensorInfo) -> bool:
        return self._room(info) < info.count

    def _room(self, info: TensorInfo) -> int:
        """Return the number of elements of a tensor's dtype that can be bound."""
        return self.info.limit("maxStorageBufferRange") // self._width(info)

    def _width(self, info: TensorInfo) -> int:
        return np.dtype(storage.stored_dtype(info.dtype, self.info)).itemsize

    def _slice(self, info: TensorInfo, start: int, stop: int) -> TensorInfo:
        """Return the elements `start` to `stop` of a flat tensor as a tensor of its own."""
        if start == 0 and stop >= info.count:
            return info
        first = self.slices.get(info.name, 0)
        whole = self.wholes.get(info.name, info)
        start, stop = first + start, first + min(stop, info.count)
        name = internal(whole.name or str(id(whole)), f"elements {start}:{stop}")
        self.roots[name] = self.roots.get(whole.name, whole.name)
        self.slices[name], self.wholes[name] = start, whole
        return TensorInfo(name, whole.dtype, (stop - start,))

    def _ranges(
        self, size: int, moving: Mapping[str, Steps], most: int = NO_LIMIT
    ) -> Iterator[tuple[int, int, dict[str, TensorInfo]]]:
        """Yield ranges of an axis, each with the slices of tensors that it accesses.

        Args:
            size: length of the axis.
            moving: the tensors that advance along the axis, by binding.
            most: largest length of one range.
        """
        aligned, unit = self.info.limit("minStorageBufferOffsetAlignment"), 1
        moving = {name: steps for name, steps in moving.items() if steps[1]}
        for tensor, stride, reach in moving.values():
            # a slice starts at an offset with the device's alignment
            unit = math.lcm(unit, aligned // math.gcd(aligned, stride * self._width(tensor)))
            if self._is_beyond(tensor):
                most = min(most, (self._room(tensor) - reach) // stride + 1)
        step = most // unit * unit
        if not 0 < step < size:
            return
        for start in range(0, size, step):
            stop = min(start + step, size)
            yield (
                start,
                stop,
                {
                    name: self._slice(tensor, start * stride, (stop - 1) * stride + reach)
                    for name, (tensor, stride, reach) in moving.items()
                },
            )

    def _along(self, axis: str, dispatch: Dispatch, strides: Mapping[str, int]) -> Pieces:
        """Cut a product along an axis; `strides` are the elements from one index to the next.

        A slice of an operand that could be bound whole, and is only read, reaches to its end.
        """
        tensors = _operands(dispatch)
        moving = {
            name: (
                whole,
                stride,
                stride if name == "y_buffer" or self._is_beyond(whole) else whole.count,
            )
            for name, stride in strides.items()
            if (whole := tensors.get(name))
        }
        return [
            _resized(dispatch, {axis: stop - start}, parts)
            for start, stop, parts in self._ranges(dispatch.push_values[axis], moving)
        ]

    # -------------------------------------------------------------------------------- products

    def _product(self, dispatch: Dispatch) -> Pieces:
        dispatch = _flat(dispatch)
        push, tensors = dispatch.push_values, _operands(dispatch)
        large = {name for name, info in tensors.items() if self._is_beyond(info)}
        if push["batches"] * push["m"] * push["n"] != tensors["y_buffer"].count:
            return []
        if push["batches"] > 1:
            return self._batches(dispatch, most=1 if "b_buffer" in large else NO_LIMIT)
        if large & {"a_buffer", "y_buffer"}:
            strides = {"a_buffer": push["a_row"], "y_buffer": push["n"], "c_buffer": push["c_row"]}
            return self._along("m", dispatch, strides) if push["a_row"] >= push["k"] else []
        if large != {"b_buffer"}:
            return []
        return self._columns(dispatch) if push["b_column"] >= push["k"] else self._sums(dispatch)

    def _batches(self, dispatch: Dispatch, most: int) -> Pieces:
        push, tensors = dispatch.push_values, _operands(dispatch)
        shape = push["batch_shape"]
        axis = next((axis for axis, dim in enumerate(shape) if dim > 1), 0)
        inside = push["batches"] // shape[axis]
        strides = {
            "a_buffer": push["a_batch"][axis],
            "b_buffer": push["b_batch"][axis],
            "y_buffer": inside * push["m"] * push["n"],
        }
        moving = {name: (tensors[name], s, s) for name, s in strides.items()}
        return [
            _resized(
                dispatch,
                {
                    "batches": (stop - start) * inside,
                    "batch_shape": (*shape[:axis], stop - start, *shape[axis + 1 :]),
                },
                parts,
            )
            for start, stop, parts in self._ranges(shape[axis], moving, most)
        ]

    def _columns(self, dispatch: Dispatch) -> Pieces:
        """Cut a column-major B between columns; with several rows, move each piece into Y after."""
        push = dispatch.push_values
        m, n = push["m"], push["n"]
        strides = {"b_buffer": push["b_column"], "c_buffer": push["c_column"]}
        if m == 1:
            return self._along("n", dispatch, {**strides, "y_buffer": 1})
        made: Pieces = []
        start = 0
        for piece in self._along("n", dispatch, strides):
            made += self._into_columns(piece, (m, n), start)
            start += piece.push_values["n"]
        return made

    def _sums(self, dispatch: Dispatch) -> Pieces:
        """Cut a row-major B between rows: each piece adds its partial sum to the previous one."""
        push, result = dispatch.push_values, dispatch.writes[0][1]
        pieces = self._along(
            "k", dispatch, {"a_buffer": push["a_column"], "b_buffer": push["b_row"]}
        )
        before: TensorInfo | None = None
        made = []
        for number, piece in enumerate(pieces):
            changed: dict[str, Any] = {"part": piece.push_values["k"]}
            if before is not None:
                changed |= {"beta": 1.0, "c_row": push["n"], "c_column": 1}
                defines = tuple((k, "1" if k == "BIAS" else v) for k, v in piece.defines)
                reads = (*piece.reads[:2], ("c_buffer", before))
                piece = replace(piece, reads=reads, defines=defines)
            before = (
                result
                if number == len(pieces) - 1
                else self._between(
                    internal(result.name, f"partial sum{number}"), result, (push["m"], push["n"])
                )
            )
            piece = replace(piece, writes=(("y_buffer", before),))
            made.append(_resized(piece, changed, {}))
        return made

    def _blocks(self, dispatch: Dispatch) -> Pieces:
        """Cut weights in blocks between rows: products for some columns, gathers of some rows."""
        push, tensors, result = dispatch.push_values, _operands(dispatch), dispatch.writes[0][1]
        if {name for name, info in tensors.items() if self._is_beyond(info)} != {"b_buffer"}:
            return []
        kind = dispatch.define_values["DEQUANTIZE"].removeprefix("dequantize_")
        size, m, n = blocks.block_format(kind).row_bytes(push["k"]), push.get("m", 0), push["n"]
        unit = 4 // math.gcd(size, 4)  # rows that end with a word
        words = unit * size // 4
        moving = {"b_buffer": (tensors["b_buffer"], words, words)}
        moving |= {"y_buffer": (result, unit, unit)} if m == 1 else {}
        made: Pieces = []
        for start, stop, parts in self._ranges(-(-n // unit), moving):
            first, count = start * unit, min(stop * unit, n) - start * unit
            numbers = {"n": count} if m else {"first": first, "bound": count}
            piece = _resized(dispatch, numbers, parts)
            made += self._into_columns(piece, (m, n), first) if m > 1 else [piece]
        return made

    def _into_columns(self, piece: Dispatch, sizes: tuple[int, int], start: int) -> Pieces:
        """Return a product with a result of its own, and its move into columns of the whole."""
        (m, n), width, result = sizes, piece.push_values["n"], piece.writes[0][1]
        part = self._between(internal(result.name, f"columns{start}"), result, (m, width))
        moved = elementwise.move(part, (width, 1), result, place=((m, width), (n, 1), start))
        return [replace(piece, writes=(("y_buffer", part),)), *moved]

    def _between(self, name: str, result: TensorInfo, shape: tuple[int, ...]) -> TensorInfo:
        """Return a new tensor for an intermediate result."""
        self.roots[name] = name
        return TensorInfo(name, result.dtype, shape)

    # ------------------------------------------------------------------------------ the others

    def _conv(self, dispatch: Dispatch) -> Pieces:
        push, tensors = dispatch.push_values, _operands(dispatch)
        groups, filters = push["groups"], push["out_channels"]
        weight, batch = tensors["w_buffer"], push["batches"] // push["groups"]
        if batch == 1:
            strides = {
                "w_buffer": weight.count // filters,
                "bias_buffer": 1,
                "y_buffer": tensors["y_buffer"].count // filters,
            }
            return self._along("out_channels", dispatch, strides) if groups == 1 else []
        moving = {
            name: (tensors[name], tensors[name].count // batch, tensors[name].count // batch)
            for name in ("x_buffer", "y_buffer")
        }
        most = 1 if self._is_beyond(weight) else NO_LIMIT
        return [
            _resized(dispatch, {"batches": (stop - start) * groups}, parts)
            for start, stop, parts in self._ranges(batch, moving, most)
        ]

    def _elementwise(self, dispatch: Dispatch) -> Pieces:
        """Cut the first axis; views with a negative stride or an offset are left uncut."""
        work, result = dispatch.pointwise, dispatch.writes[0][1]
        if work is None or work.target or "layout_buffer" in _operands(dispatch):
            return []
        views = [operand.view for operand in work.operands]
        if any(view.start or min(view.strides, default=0) < 0 for view in views):
            return []
        (formula,) = work.formulas
        shape, strides = elementwise.merge_axes(work.shape, [view.strides for view in views])
        reach = [
            1 + sum((dim - 1) * s for dim, s in zip(shape[1:], steps[1:], strict=True))
            for steps in strides
        ]
        inner = math.prod(shape[1:])
        moving = {
            f"x{n}": (o.info, steps[0], one)
            for n, (o, steps, one) in enumerate(zip(work.operands, strides, reach, strict=True))
        }
        made: Pieces = []
        for start, stop, parts in self._ranges(shape[0], {**moving, "y": (result, inner, inner)}):
            inputs = [parts.get(name, whole) for name, (whole, _, _) in moving.items()]
            made += elementwise.strided(
                formula.text,
                inputs,
                strides,
                replace(parts["y"], shape=(stop - start, *shape[1:])),
                tuple((f"p{i}", number) for i, number in enumerate(formula.numbers)),
                dtypes=[*(o.dtype for o in work.operands), formula.dtype],
            )
        return made

    def _gather(self, dispatch: Dispatch) -> Pieces:
        """Cut the data: every piece writes the elements whose indices fall into its slice."""
        x = _operands(dispatch)["x_buffer"]
        if any(self._is_beyond(i) for _, i in (*dispatch.reads[1:], *dispatch.writes)):
            return []
        return [
            _resized(dispatch, {"first": start, "held": stop - start}, parts)
            for start, stop, parts in self._ranges(x.count, {"x_buffer": (x, 1, 1)})
        ]

    def _rows(self, dispatch: Dispatch) -> Pieces:
        """Cut between rows, which are independent of each other."""
        push, tensors = dispatch.push_values, _operands(dispatch)
        x, y = tensors["x_buffer"], tensors["y_buffer"]
        together = push.get("inner", 1) * push.get("period", 1)  # interleaved rows
        each, many = together * push["columns"], push["rows"] // together
        if len(dispatch.writes) > 1 or x.count != many * each:
            return []
        moving = {"x_buffer": (x, each, each), "y_buffer": (y, each, each)}
        return [
            _resized(dispatch, {"rows": (stop - start) * together}, parts)
            for start, stop, parts in self._ranges(many, moving)
        ]


def _operands(dispatch: Dispatch) -> dict[str, TensorInfo]:
    return dict(dispatch.reads + dispatch.writes)


def _flat(dispatch: Dispatch) -> Dispatch:
    """Return a batched product with one common B as one product of more rows."""
    push = dispatch.push_values
    m, count, rest = push["m"], push["batches"], push["batch_shape"][:-1]
    one = not any(push["b_batch"]) and "c_buffer" not in _operands(dispatch)
    if count == 1 or not one or max(rest) > 1 or push["a_batch"][-1] != m * push["a_row"]:
        return dispatch
    return _resized(dispatch, {"m": m * count, "batches": 1, "batch_shape": (*rest, 1)}, {})


def _resized(dispatch: Dispatch, numbers: Numbers, parts: Mapping[str, TensorInfo]) -> Dispatch:
    """Return a dispatch with other push constants and operands, and the grid for them."""
    push = dispatch.push_values | dict(numbers)
    changed = replace(
        dispatch,
        push=tuple(push.items()),
        reads=tuple((name, parts.get(name, info)) for name, info in dispatch.reads),
        writes=tuple((name, parts.get(name, info)) for name, info in dispatch.writes),
    )
    if dispatch.kernel in ("gather", "gather_blocks"):
        return changed
    if dispatch.kernel == "matmul_blocks":
        columns = -(-push["n"] // blocks.TILE)
        return replace(changed, workgroups=(columns, *dispatch.workgroups[1:]))
    if dispatch.kernel == "matvec_blocks":
        sizes: Numbers = dispatch.constant_values
        groups = registry.grid(-(-push["n"] * sizes["LANES"] // sizes["WORKGROUP"]))
        return replace(changed, workgroups=groups)
    if dispatch.kernel in ("normalize", "softmax"):
        one = 1 if dispatch.define_values.get("WIDE", "1") == "1" else registry.WORKGROUP
        return replace(changed, workgroups=registry.grid(-(-push["rows"] // one)))
    if dispatch.kernel == "matmul":
        m, n = push["m"], push["n"]
    else:
        m, n = push["out_channels"], push["out_h"] * push["out_w"]
    workgroups, constants = linear.row_blocks(m, n, push["batches"], linear.default_lanes(m), 1)
    return replace(changed, workgroups=workgroups, constants=constants)
