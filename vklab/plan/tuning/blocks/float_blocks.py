"""Multiply many rows by weights in blocks on a CPU device: as float32, by the kernel of MatMul.

The weights are dequantised once for each product, into memory that is used again by the next one.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.base.names import internal
from vklab.ops import linear, registry
from vklab.ops.dtypes import ELEMENT_TYPES
from vklab.plan.tuning.blocks import wide_blocks
from vklab.plan.tuning.products import split_sums
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Rows from which on it pays, and columns; and bytes of dequantised weights.
FEWEST_ROWS, FEWEST_COLUMNS, MOST_BYTES = 16, 32, 512 << 20


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return the dispatches that make floats of the weights, and the product.

    On a GPU they are those of `wide_blocks`. Measured on llvmpipe, 32 rows times 1536 x 768: 1.5
    times the speed of `block_rows` with Q4_1, 1.65 times with Q8_0 and Q4_K, 3 times with F16.

    Args:
        dispatch: a product with blocks.
        info: the device.

    Returns nothing for a product that another kernel should compute.
    """
    if not info.is_cpu:
        return wide_blocks.choose(dispatch, info)
    push, defines = dispatch.push_values, dispatch.define_values
    m, n, k = (push.get(name, 0) for name in ("m", "n", "k"))
    largest = min(MOST_BYTES, info.limit("maxStorageBufferRange"))
    is_large = m >= FEWEST_ROWS and n >= FEWEST_COLUMNS and 4 * n * k <= largest
    result, reads = dispatch.writes[0][1], dict(dispatch.reads)
    if dispatch.kernel != "matmul_blocks" or not is_large or reads["a_buffer"].dtype != "float32":
        return ()
    name, given = defines["DEQUANTIZE"].removeprefix("dequantize_"), reads["b_buffer"]
    made: tuple[Dispatch, ...] = ()
    weights = TensorInfo(given.name, "float32", (n, k))  # F32 lies in the file as it is read
    if name != "F32":
        weights = replace(weights, name=internal(result.name, "block floats"))
        found = registry.apply(
            "DequantizeBlocks",
            (given,),
            {"block_type": name, "N": n, "K": k, "to": ELEMENT_TYPES["float32"]},
            1,
            "vklab",
        )
        assert isinstance(found, registry.Result), "DequantizeBlocks is not expanded"
        made = tuple(replace(each, writes=(("y_buffer", weights),)) for each in found.dispatches)
    (product,) = linear.product(
        reads["a_buffer"], weights, None, split_sums.computed(dispatch), (m, n, k), (k, 1), (1, k)
    )
    kept = {key: value for key, value in defines.items() if key in ("Y", "Y_STORE")}
    return *made, replace(
        product,
        writes=dispatch.writes,
        epilogue=dispatch.epilogue,
        flops=dispatch.flops,
        defines=tuple({**product.define_values, **kept}.items()),
    )
