"""to_float16: float32 values become float16; inputs and outputs of the graph stay as they are.

Decides where float32 is kept because float16 would spoil the result; weights are rounded once.
What kernels sum in is theirs to decide (float32). Visited by lab 10.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from vklab import settings
from vklab.errors import ModelError, PlanError, UnsupportedOperatorError, ValueNeededError
from vklab.graph import constant_cache, shapes
from vklab.graph.graph import Graph, Node
from vklab.ops.body import Expansion
from vklab.types import TensorInfo

__all__ = ["FRAGILE", "LARGEST", "to_float16"]

LARGEST, SMALLEST = 65504.0, 2.0**-14  # of float16's normal numbers
CODES = {"float32": 1, "float16": 10}  # ONNX's numbers

_OVERFLOW = "results soon exceed 65504"
_SUMS = "sums of many terms exceed 65504, or lose the small ones"
_PLACES = "places of pixels and angles need more than 11 bits"
_TINY = "small arguments have no digits left"
_STEPS = "a scale decides all steps of a quantized tensor"
_LOSS = "losses and gradients span more than float16 does"
FRAGILE: dict[str, str] = {
    **dict.fromkeys(("Exp", "Pow", "Sinh", "Cosh", "ReduceProd", "CumProd", "Det"), _OVERFLOW),
    **dict.fromkeys(("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum",
                     "ReduceLogSumExp", "CumSum", "SumToShape", "DFT", "STFT"), _SUMS),
    **dict.fromkeys(("Sin", "Cos", "Tan", "Range", "AffineGrid", "RoiAlign", "MaxRoiPool",
                     "NonMaxSuppression", "MelWeightMatrix"), _PLACES),
    **dict.fromkeys(("Log", "Acosh", "Atanh"), _TINY),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), _STEPS),
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "Adagrad",
                     "Adam", "Momentum"), _LOSS),
}  # fmt: skip
# Inputs that may be wider than the others, and are left as they are.
WIDE_INPUTS = {"Attention": (3,), "GridSample": (1,), "Resize": (1, 2), "Upsample": (1,)}
# A divisor, or what a root is taken of, that was kept wide may be tiny.
DIVIDING = frozenset({"Div", "Reciprocal", "Sqrt"})
# Half precision is what they profit from: they never stay wide because of what they read.
PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "Attention", "LSTM",
                      "GRU", "RNN", "FusedMatMul"})  # fmt: skip
# A number beyond float16, such as that of a mask, is still there in what these make of it. To cast
# it would make infinity, and NaN of a softmax whose row is all masked.
MASKING = frozenset({"Add", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
                     "Identity", "Mul", "Neg", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Sub",
                     "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"})  # fmt: skip
# A bound beyond float16 is none.
BOUNDING = frozenset({"Clip", "Min", "Max"})
# float16 holds these whole, other integers may be places or counts.
SMALL_INTEGERS = frozenset({"bool", "int8", "uint8", "int4", "uint4", "int2", "uint2"})
# Arithmetic of integers with constants up to this size stays exact; larger ones are weights.
FEW = 1024


def to_float16(graph: Graph) -> Graph:
    """Compute a float32 graph in float16, with casts where it reads or leaves float32.

    KEEP_FLOAT32 names operators or nodes that are computed in float32 whatever they are.
    """
    walk = _Walk(graph)
    for node in graph.nodes:
        walk.visit(node)
    nodes = _without_unread_casts(walk.nodes, graph.outputs)
    if nodes == graph.nodes:
        return graph
    initializers = {**graph.initializers, **walk.constants}
    return graph.with_nodes(nodes, initializers=initializers, infos=walk.infos)


class _Walk:
    """One pass over the nodes: each is narrowed or kept, and what it reads is brought in line."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.infos = dict(graph.infos)
        self.constants: dict[str, TensorInfo] = {}
        self.nodes: list[Node] = []
        self.halves: dict[str, str] = {}  # float32 value -> the same in float16
        self.wides: dict[str, str] = {}  # float16 value -> the same in float32
        self.kept: set[str] = set()  # made in float32, for a reason
        self.exact: set[str] = set()  # those made of integers: positions, masks
        self.far: set[str] = set()  # those that may hold numbers beyond float16
        given = str(settings.get("KEEP_FLOAT32")).split(",")
        self.patterns = [text.strip() for text in given if text.strip()]

    def visit(self, node: Node) -> None:
        """Narrow a node, or keep it."""
        values = [name for name in (*node.inputs, *node.outputs) if name]
        if not any(self._was_float32(name) for name in values):
            self.nodes.append(node)
        elif not self._is_cast(node) and (self._stays(node) or not self._narrow(node)):
            self._keep(node)

    def _was_float32(self, name: str) -> bool:
        return self.graph.infos[name].dtype == "float32"

    def _is_cast(self, node: Node) -> bool:
        """Take over the graph's own casts, so that nothing is cast twice."""
        if node.op_type != "Cast":
            return False
        source, made = node.inputs[0], node.outputs[0]
        before, after = (self.graph.infos[name].dtype for name in (source, made))
        if source in self.far:
            return False
        if after == "float32" and before in (*SMALL_INTEGERS, "float32"):
            changed = replace(node, attributes={**node.attributes, "to": CODES["float16"]})
            half = replace(self.graph.infos[made], dtype="float16")
            self._place(changed, (self._half(source),), (half,))
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
        """Tell whether a node is computed in float32."""
        floats = [self.graph.infos[name] for name in self._floats(node)]
        read = [info.name for info in floats if info.constant is None]
        constants = [info for info in floats if info.constant is not None]
        is_square = node.op_type == "Mul" and len(read) == 2 and read[0] == read[1]
        if (not floats or node.op_type in FRAGILE or is_square or self._is_named(node)
                or not all(_fits(info, node.op_type) for info in constants)
                or not self.far.isdisjoint(read)):  # fmt: skip
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
        names = (node.op_type, node.name, node.name.rpartition("/")[0])
        return any(fnmatch.fnmatchcase(name, p) for p in self.patterns for name in names)

    def _floats(self, node: Node) -> list[str]:
        """Return the inputs that float16 changes."""
        wide = WIDE_INPUTS.get(node.op_type, ())
        return [name for number, name in enumerate(node.inputs)
                if name and number not in wide and self._was_float32(name)]  # fmt: skip

    # ---------------------------------------------------------------------------- rewriting

    def _narrow(self, node: Node) -> bool:
        """Compute a node in float16; tell whether its operator does that."""
        floats = set(self._floats(node))
        seen = {
            name: _narrowed(self.graph.infos[name]) if name in floats else self.infos[name]
            for name in node.inputs if name
        }  # fmt: skip
        try:
            answer, made = shapes.apply_node(self.graph, node, seen)
        except (ModelError, PlanError, UnsupportedOperatorError, ValueNeededError):
            return False
        if isinstance(answer, Expansion):
            return False
        inputs = [self._half(name) if name in floats else name for name in node.inputs]
        self._place(node, inputs, made)
        return True

    def _keep(self, node: Node) -> None:
        """Compute a node in float32."""
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

    def _place(self, node: Node, inputs: Iterable[str], made: Iterable[TensorInfo]) -> None:
        """Add a node that makes float16; a graph output of that is cast back under its name."""
        names, casts = list(node.outputs), []
        for number, info in enumerate(made):
            narrowed = info.name and info.dtype == "float16" and self._was_float32(info.name)
            if narrowed and info.name in self.graph.outputs:
                names[number] = self._twin(info.name, "float16", self.halves)
                casts.append(_cast(names[number], info.name, "float32"))
                self.wides[names[number]] = info.name
            elif narrowed:
                self.infos[info.name] = info
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=tuple(names)))
        self.nodes += casts

    def _half(self, name: str) -> str:
        """Return the name of a value in float16: cast or rounded at its first use."""
        if not name or self.infos[name].dtype != "float32":
            return name
        info = self.infos[name]
        if info.constant is not None:
            half = replace(_narrowed(info), name=f"{name}:float16")
            self.constants[half.name] = self.infos.setdefault(half.name, half)
            return half.name
        if name not in self.halves:
            clone = self._twin(name, "float16", self.halves)
            self.nodes.append(_cast(name, clone, "float16"))
        return self.halves[name]

    def _wide(self, name: str) -> str:
        """Return the name of a value as wide as it was: cast at its first use."""
        if not name or not self._was_float32(name) or self.infos[name].dtype == "float32":
            return name
        if name not in self.wides:
            clone = self._twin(name, "float32", self.wides)
            self.nodes.append(_cast(name, clone, "float32"))
        return self.wides[name]

    def _twin(self, name: str, dtype: str, twins: dict[str, str]) -> str:
        clone = f"{name}:{dtype}"
        self.infos[clone] = replace(self.graph.infos[name], name=clone, dtype=dtype)
        twins[name] = clone
        return clone


def _cast(source: str, made: str, dtype: str) -> Node:
    return Node(f"{made}:cast", "Cast", (source,), (made,), {"to": CODES[dtype]})


def _without_unread_casts(nodes: Iterable[Node], outputs: Iterable[str]) -> tuple[Node, ...]:
    read = set(outputs)
    kept: list[Node] = []
    for node in reversed(list(nodes)):
        if node.op_type != "Cast" or node.outputs[0] in read:
            kept.append(node)
            read.update(node.reads)
    return tuple(reversed(kept))


def _largest(info: TensorInfo) -> float:
    """Return the size of the largest finite number in a constant."""

    def largest(array: np.ndarray) -> np.ndarray:
        return np.abs(array).max(where=np.isfinite(array), initial=0.0, keepdims=True)

    assert info.constant is not None
    return float(constant_cache.derive("largest", largest, info.constant).max(initial=0.0))


def _fits(info: TensorInfo, op_type: str) -> bool:
    """Tell whether a constant may be rounded to float16 for an operator."""
    largest = _largest(info)
    if info.count == 1 and 0 < largest < SMALLEST:
        return False
    return largest <= LARGEST or op_type in BOUNDING


def _narrowed(info: TensorInfo) -> TensorInfo:
    """Return what is known of a value in float16."""

    def rounded(array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return array.astype(np.float16)

    constant = info.constant
    if constant is not None:
        constant = constant_cache.derive("float16", rounded, constant)
    return replace(info, dtype="float16", constant=constant)
