"""norm_scales: multiply the factors of LayerNormalization into the products that read its rows.

What is left has mean 0 and deviation 1, which a product can compute with the rows that it reads
(`plan/tuning/inner_norms`). For GPUs. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import layouts, rewriting
from vklab.ops.dtypes import FLOATS
from vklab.types import TensorInfo

__all__ = ["norm_scales"]

HALVES = 8
# Rows from which on products are multiplied in tiles.
FEWEST_ROWS = 16


def norm_scales(graph: Graph, width: int = 0) -> Graph:
    """Replace (h * w + b) W by h (w W) + b W, where h is normalised.

    Readers of h * w + b that are no products keep the norm as it is.

    Args:
        graph: the graph.
        width: elements of 16 bytes; only models in half have such products.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section on
    layer normalization
    """
    if width != HALVES:
        return graph
    work = _Rewriter(graph)
    for node in graph.nodes:
        if node.op_type == "LayerNormalization" and not node.domain:
            work.visit(node)
    if not work.changed:
        return graph
    nodes = (each for node in graph.nodes for each in work.changed.get(node.outputs[0], (node,)))
    return rewriting.rewritten(graph, nodes, *work.new)


class _Rewriter:
    """One traversal of the norms; `changed` has the nodes that replace the maker of a value."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.infos = graph, graph.infos
        self.kept = rewriting.fixed(graph)
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.reads:
                self.readers.setdefault(name, []).append(node)
        self.changed: dict[str, tuple[Node, ...]] = {}
        self.new: list[TensorInfo] = []

    def visit(self, norm: Node) -> None:
        """Rewrite a norm and its products, if all of its readers are products."""
        made = self.infos[norm.outputs[0]]
        factors = [self.infos[name] for name in norm.inputs[1:] if name]
        is_last = int(norm.attributes.get("axis", -1)) % max(made.rank, 1) == made.rank - 1
        if (not is_last or any(norm.outputs[1:]) or made.dtype not in FLOATS or not made.is_static
                or made.count < FEWEST_ROWS * made.dims[-1]
                or any(f.constant is None or f.shape != made.shape[-1:] for f in factors)
                or all(_is_plain(f, number) for number, f in enumerate(factors))):  # fmt: skip
            return
        products, source = self._products(made), made.name
        ones = rewriting.constant(f"{made.name}:one", np.ones_like(factors[0].constant))
        plain = replace(norm, inputs=(norm.inputs[0], ones.name))
        self.changed[made.name] = (plain,)
        if products is None:  # other readers keep the norm, which then is on no product's way
            products = [(n, self._bias(n)) for n in self.readers.get(made.name, ())
                        if self._is_product(n, made)]  # fmt: skip
            source = f"{made.name}:plain"
            self.changed[made.name] = (norm, replace(plain, name=source, outputs=(source,)))
        if not products:
            del self.changed[made.name]
            return
        self.new += [ones, replace(made, name=source)]
        for product, added in products:
            self._scale(product, added, factors, source if source != made.name else "")

    def _products(self, made: TensorInfo) -> list[tuple[Node, Node | None]] | None:
        """Return the products that read a value, each with the Add of a bias behind it.

        Returns None if another node reads it, or the value must stay.
        """
        found: list[tuple[Node, Node | None]] = []
        nodes = self.readers.get(made.name, [])
        if made.name in self.kept or not nodes:
            return None
        for node in nodes:
            if node.domain:
                return None
            if self._keeps_rows(node, made):
                more = self._products(self.infos[node.outputs[0]])
                if more is None:
                    return None
                found += more
                continue
            if not self._is_product(node, made):
                return None
            found.append((node, self._bias(node)))
        return found

    def _is_product(self, node: Node, made: TensorInfo) -> bool:
        """Tell whether a node multiplies the rows of a value by a constant matrix."""
        matrix = self.infos[node.inputs[1]] if node.op_type == "MatMul" else None
        return (matrix is not None and matrix.constant is not None and matrix.rank == 2
                and node.inputs[0] == made.name and not node.domain)  # fmt: skip

    def _keeps_rows(self, node: Node, made: TensorInfo) -> bool:
        """Tell whether a node only moves whole rows, and reads nothing else that is computed."""
        after = self.infos[node.outputs[0]]
        if node.inputs[0] != made.name or not after.rank or after.shape[-1:] != made.shape[-1:]:
            return False
        if node.op_type == "Transpose":
            return layouts.permutation(node, made.rank)[-1] == made.rank - 1
        return node.op_type == "Reshape"

    def _bias(self, product: Node) -> Node | None:
        """Return the Add of a constant row that alone reads a product."""
        value = product.outputs[0]
        nodes = self.readers.get(value, [])
        if len(nodes) != 1 or nodes[0].op_type != "Add" or nodes[0].domain or value in self.kept:
            return None
        other = next(self.infos[name] for name in nodes[0].inputs if name != value)
        wide = self.infos[product.inputs[1]].shape[-1:]
        return nodes[0] if other.constant is not None and other.shape == wide else None

    def _scale(
        self, product: Node, added: Node | None, factors: list[TensorInfo], source: str = ""
    ) -> None:
        """Scale the matrix of a product, which then reads `source`, if one is given."""
        matrix, scale = self.infos[product.inputs[1]], factors[0]
        made = product.outputs[0]
        array = constant_cache.derive("scaled rows", _scaled, rewriting.value(matrix),
                                      rewriting.value(scale))
        scaled = rewriting.constant(f"{made}:scaled", array)
        self.new.append(scaled)
        turned = replace(product, inputs=(source or product.inputs[0], scaled.name))
        if len(factors) == 1:
            self.changed[made] = (turned,)
            return
        sources = [rewriting.value(matrix), rewriting.value(factors[1])]
        if added is not None:
            before = next(name for name in added.inputs if name != made)
            sources.append(rewriting.value(self.infos[before]))
        row = rewriting.constant(f"{made}:row", constant_cache.derive("row", _row, *sources))
        self.new.append(row)
        if added is not None:
            self.changed[made] = (turned,)
            self.changed[added.outputs[0]] = (replace(added, inputs=(made, row.name)),)
            return
        plain = replace(self.infos[made], name=f"{made}:plain")
        self.new.append(plain)
        self.changed[made] = (replace(turned, outputs=(plain.name,)),
                              Node(made, "Add", (plain.name, row.name), (made,), {}))  # fmt: skip


def _is_plain(factor: TensorInfo, number: int) -> bool:
    """Tell whether a scale is all ones, or a bias all zeros."""
    assert factor.constant is not None
    return bool((factor.constant == 1 - number).all())


def _scaled(matrix: np.ndarray, scale: np.ndarray) -> np.ndarray:
    product: np.ndarray = (matrix.astype(np.float64) * scale[:, None]).astype(matrix.dtype)
    return product


def _row(matrix: np.ndarray, bias: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    row = bias.astype(np.float64) @ matrix.astype(np.float64)
    whole: np.ndarray = (row if before is None else row + before).astype(matrix.dtype)
    return whole
