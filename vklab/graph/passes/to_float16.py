"""to_float16: compute a float32 graph in float16; graph inputs and outputs keep their dtypes.

Decides which nodes stay in float32 to keep the result accurate, and rounds weights once. Kernels
choose the dtype of their sums (float32). Visited by lab 10.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from vklab import settings
from vklab.base.names import internal, origin
from vklab.errors import ModelError, PlanError, UnsupportedOperatorError, ValueNeededError
from vklab.graph import constant_cache, shapes
from vklab.graph.graph import Graph, Node
from vklab.ops.body import Expansion
from vklab.types import TensorInfo

LARGEST, SMALLEST = 65504.0, 2.0**-14  # the range of float16's normal numbers
CODES = {"float32": 1, "float16": 10}  # ONNX's TensorProto.DataType

_OVERFLOW = "results soon exceed 65504"
_SUMS = "sums of many terms exceed 65504, or lose the small terms"
_POSITIONS = "pixel positions and angles need more than 11 bits"
_TINY = "small arguments lose their significant digits"
_STEPS = "the error of a scale is the error of every step of a quantized tensor"
_LOSS = "losses span a wider range than float16"
FRAGILE: dict[str, str] = {
    **dict.fromkeys(("Exp", "Pow", "Sinh", "Cosh", "ReduceProd", "CumProd", "Det"), _OVERFLOW),
    **dict.fromkeys(("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum",
                     "ReduceLogSumExp", "CumSum", "DFT", "STFT"), _SUMS),
    **dict.fromkeys(("Sin", "Cos", "Tan", "Range", "AffineGrid", "RoiAlign", "MaxRoiPool",
                     "NonMaxSuppression", "MelWeightMatrix"), _POSITIONS),
    **dict.fromkeys(("Log", "Acosh", "Atanh"), _TINY),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), _STEPS),
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), _LOSS),
}  # fmt: skip
# Inputs that may have a wider dtype than the others, and keep it.
WIDE_INPUTS = {"Attention": (3,), "GridSample": (1,), "Resize": (1, 2), "Upsample": (1,)}
# A divisor or radicand in float32 may be too small for float16.
DIVIDING = frozenset({"Div", "Reciprocal", "Sqrt"})
# Operators that gain most from float16: a float32 input does not keep them in float32.
PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "Attention", "LSTM",
                      "GRU", "RNN", "FusedMatMul", "ChannelsLastConv"})  # fmt: skip
# Operators that preserve a number beyond float16, such as that of a mask. A cast would turn it into
# infinity, and a softmax over a fully masked row into NaN.
MASKING = frozenset({"Add", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
                     "Identity", "Mul", "Neg", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Sub",
                     "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"})  # fmt: skip
# Operators for which a bound beyond float16 has no effect.
BOUNDING = frozenset({"Clip", "Min", "Max"})
# float16 holds these integers exactly; wider ones may be positions or counts.
SMALL_INTEGERS = frozenset({"bool", "int8", "uint8", "int4", "uint4", "int2", "uint2"})
# Arithmetic of integers with constants up to this size stays exact; larger ones are weights.
FEW = 1024


def to_float16(graph: Graph) -> Graph:
    """Convert a float32 graph to float16, with casts at its borders and around float32 nodes.

    KEEP_FLOAT32 names operators and nodes that always stay in float32.

    Source: Micikevicius et al. 2018, "Mixed Precision Training"
    """
    conversion = _Conversion(graph)
    for node in graph.nodes:
        conversion.visit(node)
    nodes = _without_unread_casts(conversion.nodes, graph.outputs)
    if nodes == graph.nodes:
        return graph
    initializers = {**graph.initializers, **conversion.constants}
    return graph.with_nodes(nodes, initializers=initializers, infos=conversion.infos)


class _Conversion:
    """One traversal of the nodes: each is narrowed or kept, and its inputs are cast to match."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.infos = dict(graph.infos)
        self.constants: dict[str, TensorInfo] = {}
        self.nodes: list[Node] = []
        self.halves: dict[str, str] = {}  # float32 value -> its float16 clone
        self.wides: dict[str, str] = {}  # float16 value -> its float32 clone
        self.kept: set[str] = set()  # values that stay in float32
        self.exact: set[str] = set()  # kept values computed from integers: positions, masks
        self.far: set[str] = set()  # kept values that may hold numbers beyond float16
        given = str(settings.get("KEEP_FLOAT32")).split(",")
        self.patterns = [text.strip() for text in given if text.strip()]

    def visit(self, node: Node) -> None:
        """Add a node in float16, or in float32 if it has to stay so."""
        values = [name for name in (*node.inputs, *node.outputs) if name]
        if not any(self._was_float32(name) for name in values):
            self.nodes.append(node)
        elif not self._is_cast(node) and (self._stays(node) or not self._narrow(node)):
            self._keep(node)

    def _was_float32(self, name: str) -> bool:
        return self.graph.infos[name].dtype == "float32"

    def _is_cast(self, node: Node) -> bool:
        """Take over a Cast of the graph, so that no value is cast twice; tell whether it does."""
        if node.op_type != "Cast":
            return False
        source, made = node.inputs[0], node.outputs[0]
        before, after = (self.graph.infos[name].dtype for name in (source, made))
        if source in self.far:
            return False
        if after == "float32" and before in (*SMALL_INTEGERS, "float32"):
            changed = replace(node, attributes={**node.attributes, "to": CODES["float16"]})
            half = replace(self.graph.infos[made], dtype="float16")
            self._add(changed, (self._half(source),), (half,))
        elif (before, after) == ("float32", "float16"):
            self.nodes.append(node)
            if self.infos[source].dtype == "float32":
                self.halves.setdefault(source, made)
        elif (before, after) == ("float16", "float32"):
            self.nodes.append(node)
            self.halves[made] = source
            self.wides.setdefault(source, made)
        else:
            return False
        return True

    # ------------------------------------------------------------------------------- deciding

    def _stays(self, node: Node) -> bool:
        """Tell whether a node has to stay in float32."""
        floats = [self.graph.infos[name] for name in self._floats(node)]
        read = [info.name for info in floats if info.constant is None]
        constants = [info for info in floats if info.constant is not None]
        is_square = node.op_type == "Mul" and len(read) == 2 and read[0] == read[1]
        if (
            not floats
            or node.op_type in FRAGILE
            or is_square
            or self._is_named(node)
            or not all(_fits(info, node.op_type) for info in constants)
            or not self.far.isdisjoint(read)
        ):
            return True
        wide = [name for name in read if name in self.kept]
        if node.op_type in DIVIDING and wide and floats[-1].name == wide[-1]:
            return True
        if not read or len(wide) < len(read):
            return False
        if self.exact.issuperset(wide) and all(info.count <= FEW for info in constants):
            return True
        return node.op_type not in PRODUCTS and all(info.count == 1 for info in constants)

    def _is_named(self, node: Node) -> bool:
        """Tell whether KEEP_FLOAT32 names a node, or the node whose expansion it is part of."""
        names = (node.op_type, node.name, origin(node.name))
        return any(fnmatch.fnmatchcase(name, p) for p in self.patterns for name in names)

    def _floats(self, node: Node) -> list[str]:
        """Return the inputs whose dtype the conversion changes."""
        wide = WIDE_INPUTS.get(node.op_type, ())
        return [
            name
            for number, name in enumerate(node.inputs)
            if name and number not in wide and self._was_float32(name)
        ]

    # ---------------------------------------------------------------------------- rewriting

    def _narrow(self, node: Node) -> bool:
        """Add a node in float16; return False if its operator does not support float16."""
        floats = set(self._floats(node))
        seen = {
            name: _narrowed(self.graph.infos[name]) if name in floats else self.infos[name]
            for name in node.inputs
            if name
        }
        try:
            answer, made = shapes.apply_node(self.graph, node, seen)
        except (ModelError, PlanError, UnsupportedOperatorError, ValueNeededError):
            return False
        if isinstance(answer, Expansion):
            return False
        inputs = [self._half(name) if name in floats else name for name in node.inputs]
        self._add(node, inputs, made)
        return True

    def _keep(self, node: Node) -> None:
        """Add a node in float32 and record the properties of its outputs."""
        self.nodes.append(replace(node, inputs=tuple(map(self._wide, node.inputs))))
        outputs = {name for name in node.outputs if name and self._was_float32(name)}
        floats = [self.graph.infos[name] for name in self._floats(node)]
        read = {info.name for info in floats if info.constant is None}
        self.kept |= outputs
        if self.exact >= read:
            self.exact |= outputs
        beyond = any(info.constant is not None and _largest(info) > LARGEST for info in floats)
        if (beyond and node.op_type in MASKING) or (
            self.far & read and node.op_type in MASKING | BOUNDING
        ):
            self.far |= outputs

    def _add(self, node: Node, inputs: Iterable[str], made: Iterable[TensorInfo]) -> None:
        """Add a node with float16 outputs; cast graph outputs back to float32 under their names."""
        names, casts = list(node.outputs), []
        for number, info in enumerate(made):
            narrowed = info.name and info.dtype == "float16" and self._was_float32(info.name)
            if narrowed and info.name in self.graph.outputs:
                names[number] = self._clone(info.name, "float16", self.halves)
                casts.append(_cast(names[number], info.name, "float32"))
                self.wides[names[number]] = info.name
            elif narrowed:
                self.infos[info.name] = info
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=tuple(names)))
        self.nodes += casts

    def _half(self, name: str) -> str:
        """Return the name of a value's float16 clone; add its cast at the first use."""
        if not name or self.infos[name].dtype != "float32":
            return name
        info = self.infos[name]
        if info.constant is not None:
            half = replace(_narrowed(info), name=internal(name, "float16"))
            self.constants[half.name] = self.infos.setdefault(half.name, half)
            return half.name
        if name not in self.halves:
            clone = self._clone(name, "float16", self.halves)
            self.nodes.append(_cast(name, clone, "float16"))
        return self.halves[name]

    def _wide(self, name: str) -> str:
        """Return the name of a value's float32 clone; add its cast at the first use."""
        if not name or not self._was_float32(name) or self.infos[name].dtype == "float32":
            return name
        if name not in self.wides:
            clone = self._clone(name, "float32", self.wides)
            self.nodes.append(_cast(name, clone, "float32"))
        return self.wides[name]

    def _clone(self, name: str, dtype: str, clones: dict[str, str]) -> str:
        clone = internal(name, f"as {dtype}")
        self.infos[clone] = replace(self.graph.infos[name], name=clone, dtype=dtype)
        clones[name] = clone
        return clone


def _cast(source: str, made: str, dtype: str) -> Node:
    return Node(internal(made, "cast"), "Cast", (source,), (made,), {"to": CODES[dtype]})


def _without_unread_casts(nodes: Iterable[Node], outputs: Iterable[str]) -> tuple[Node, ...]:
    read = set(outputs)
    kept: list[Node] = []
    for node in reversed(list(nodes)):
        if node.op_type != "Cast" or node.outputs[0] in read:
            kept.append(node)
            read.update(node.reads)
    return tuple(reversed(kept))


def _largest(info: TensorInfo) -> float:
    """Return the largest absolute value among a constant's finite elements."""

    def largest(array: np.ndarray) -> np.ndarray:
        return np.abs(array).max(where=np.isfinite(array), initial=0.0, keepdims=True)

    assert info.constant is not None
    return float(constant_cache.derive("largest", largest, info.constant).max(initial=0.0))


def _fits(info: TensorInfo, op_type: str) -> bool:
    """Tell whether an operator may read a constant rounded to float16."""
    largest = _largest(info)
    if info.count == 1 and 0 < largest < SMALLEST:
        return False
    return largest <= LARGEST or op_type in BOUNDING


def _narrowed(info: TensorInfo) -> TensorInfo:
    """Return a value's info with dtype float16, its constant rounded."""

    def rounded(array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return array.astype(np.float16)

    constant = info.constant
    if constant is not None:
        constant = constant_cache.derive("float16", rounded, constant)
    return replace(info, dtype="float16", constant=constant)
