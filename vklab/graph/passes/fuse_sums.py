"""fuse_sums: a product of words adds another tensor in words, such as a residual.

The product's codes are rounded as before, then added: every code stays the same. Visited by
lab 10.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.graph.passes.quantized import Rewrite

PRODUCTS = frozenset({"ConvWords", "MatMulWords"})


def fuse_sums(graph: Graph) -> Graph:
    """Replace AddWords of a product that nothing else reads by a product with one more operand.

    Source: Chen et al. 2018, "TVM", section 3 (operator fusion)
    """
    work = Rewrite(graph)
    for node in graph.nodes:
        if node.op_type == "AddWords" and node.domain == "vklab":
            _replace(work, node)
    return work.result()


def _replace(work: Rewrite, node: Node) -> None:
    """Let one of the two operands' products add the other operand."""
    given = [node.attributes[name] for name in ("scales", "zeros", "limits")]
    for own in (1, 0):  # the second operand is more often the product, the first the residual
        product = work.search.makers.get(node.inputs[own])
        if product is None or product.op_type not in PRODUCTS or len(product.inputs) != 3:
            continue
        if work.only_reader(product.outputs[0]) is not node:
            continue
        (a, b), (a_zero, b_zero, zero), limits = given
        pair = ((a, b), (a_zero, b_zero)) if own == 0 else ((b, a), (b_zero, a_zero))
        sums = tuple(map(float, (*pair[0], *pair[1], zero, *limits)))
        added = replace(
            product,
            name=internal(product.name, f"with {node.name}"),
            outputs=node.outputs,
            inputs=(*product.inputs, "", node.inputs[1 - own]),
            attributes={**product.attributes, "sums": sums},
        )
        if work.put(node, [added]):
            return
