"""Multiply many rows by weights in blocks as halves, on matrix units: by the kernels of MatMul.

The weights are dequantised once for each product, into memory that is used again by the next one.
Rows of A are rounded to halves, so numbers beyond 65,504 become infinite. Weights in float32 and
their rows keep float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from vklab.base.names import internal
from vklab.ops import linear, registry
from vklab.ops.dtypes import ELEMENT_TYPES
from vklab.plan import block_units
from vklab.plan.tuning import tiles
from vklab.plan.tuning.products import split_sums
from vklab.types import DeviceInfo, Dispatch, TensorInfo

HALF = "float16"


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return the dispatches that make halves of the operands, and the product by MatMul's kernel.

    Args:
        dispatch: a product with blocks.
        info: the device.

    Returns nothing for a product that another kernel should compute.
    """
    push, defines = dispatch.push_values, dispatch.define_values
    if not block_units.multiplies_halves(dispatch, info):
        return ()
    m, n, k = push["m"], push["n"], push["k"]
    kept = {key: value for key, value in defines.items() if key in ("Y", "Y_STORE")}
    result, reads = dispatch.writes[0][1], dict(dispatch.reads)
    name = defines["DEQUANTIZE"].removeprefix("dequantize_")
    dtype = "float32" if name == "F32" else HALF
    gate = reads.get("g_buffer")
    made = [
        *_rows(reads["a_buffer"], dtype),
        *_weights(reads["b_buffer"], internal(result.name, "unpacked weights"), name, n, k, gate),
    ]
    if gate is not None:
        n, kept = 2 * n, kept | {"GATED": "1"}
    written = {each.reads[0][1].name: each.writes[0][1] for each in made}
    rows = written.get(reads["a_buffer"].name, reads["a_buffer"])
    # Floats lie in the file as the product reads them.
    as_given = TensorInfo(reads["b_buffer"].name, dtype, (n, k))
    weights = written.get(reads["b_buffer"].name, as_given)
    own = replace(split_sums.computed(dispatch), shape=(m, n))
    (product,) = linear.product(rows, weights, None, own, (m, n, k), (k, 1), (1, k))
    return *made, replace(
        product,
        writes=dispatch.writes,
        epilogue=dispatch.epilogue,
        flops=dispatch.flops,
        defines=tuple({**product.define_values, **kept}.items()),
    )


def _rows(a: TensorInfo, dtype: str) -> tuple[Dispatch, ...]:
    """Return the dispatch that rounds A to a dtype; none if A has it.

    The name of the result is that of A, so that products of one A share it.
    """
    name = internal(a.name, "halves") if dtype == HALF else internal(a.name, f"rounded to {dtype}")
    return () if a.dtype == dtype else _applied("Cast", a, name, {}, 13, "", dtype)


def _weights(
    b: TensorInfo, name: str, block: str, n: int, k: int, gate: TensorInfo | None
) -> tuple[Dispatch, ...]:
    """Return the dispatch that makes halves of B; none if B has floats that a product can read.

    Args:
        b: weights in blocks.
        name: the name of the halves.
        block: the name of the block format.
        n: rows of B.
        k: elements of a row.
        gate: a matrix like B, whose rows come before those of B, some at a time; None for none.
    """
    if block in ("F16", "F32"):
        return ()
    if block == "BF16":
        return _applied(
            "DequantizeBlocks", b, name, {"block_type": block, "N": n, "K": k}, 1, "vklab"
        )
    count = 1 if gate is None else 2
    eights, more = count * n * k // 8, (("line", k // 8), ("side", block_units.SIDE))
    return (
        Dispatch(
            "unpack_units",
            (("b_buffer", b), *((("g_buffer", gate),) if gate else ())),
            (("y_buffer", TensorInfo(name, HALF, (count * n, k))),),
            registry.grid(-(-eights // registry.WORKGROUP)),
            (("eights", eights), *(more if gate else ())),
            (("SPLIT", "0"), ("FORMAT", block), ("GATED", str(count - 1))),
        ),
    )


def _applied(
    op_type: str, x: TensorInfo, name: str, attributes: dict[str, Any], opset: int, domain: str,
    dtype: str = HALF,
) -> tuple[Dispatch, ...]:  # fmt: skip
    """Return the dispatches of an operator that turns x into another dtype.

    Args:
        op_type: the operator.
        x: its input.
        name: the name of its result.
        attributes: its attributes but `to`.
        opset: the version of its operator set.
        domain: its domain.
        dtype: the dtype of its result.
    """
    made = registry.apply(op_type, (x,), {**attributes, "to": ELEMENT_TYPES[dtype]}, opset, domain)
    assert isinstance(made, registry.Result), f"{op_type} is not expanded"
    result = replace(made.outputs[0], name=name)
    return tuple(
        replace(each, writes=tuple((key, result) for key, _ in each.writes))
        for each in made.dispatches
    )


def gated(
    product: Dispatch, made: Callable[[tiles.Pick], tuple[Dispatch, int] | None]
) -> Dispatch | None:
    """Return a product in which columns gate others, in a tile that has both; None for another.

    Args:
        product: a product, as `choose` returns it.
        made: returns it by matrix units in the tile that a function picks.
    """
    if "GATED" not in product.define_values:
        return None

    def pick(choices: Iterable[tiles.Tile], sizes: tiles.ProductSizes) -> Any:
        return tiles.whole(filter(_has_pairs, choices), sizes)

    found = made(pick)
    assert found is not None, "`block_units.gates_halves` asks for such a product"
    return replace(found[0], defines=tuple((found[0].define_values | {"WIDE_Y": "1"}).items()))


def _has_pairs(tile: tiles.Tile) -> bool:
    """Tell whether a subgroup has both columns, and whole sums of its own."""
    is_plain = len(tile.shape) == len(("m", "n", "k", "rows", "columns"))
    return is_plain and not tile.columns % (2 * block_units.SIDE)
