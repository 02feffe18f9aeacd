"""Multiply an image by one factor a channel inside the product that reads it.

Squeeze-and-excite scales channels before a convolution of one pixel; two kernels of products do it
as they read. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace

from vklab import settings
from vklab.plan.fusion.flow import Uses
from vklab.plan.lowering import Lowered
from vklab.plan.tuning.join_task import JoinTask
from vklab.types import Dispatch, Operand, Pointwise, TensorInfo

# The kernels that can, with the names of what they multiply and the dtype that they take.
KERNELS = {"matmul_registers": ("a_buffer", "float16"), "conv_last_tiled": ("x_buffer", "float32")}
SIGMOID, PRODUCT = "onnx::sigmoid(a)", "onnx::mul(a, b)"


def join(task: JoinTask) -> Lowered:
    """Merge each product with the element-wise product before it that only scales channels.

    Args:
        task: dispatches with the kernels that a device runs.

    Source: Hu et al. 2018, "Squeeze-and-Excitation Networks"
    """
    lowered = task.lowered
    if settings.get("DISABLE_FUSION"):
        return lowered
    uses = Uses(lowered.roots, lowered.dispatches, (lowered.roots[name] for name in task.outputs))
    dispatches, nodes = list[Dispatch | None](lowered.dispatches), list(lowered.nodes)
    for number, dispatch in enumerate(lowered.dispatches):
        read, dtype = KERNELS.get(dispatch.kernel, ("", ""))
        info = dict(dispatch.reads).get(read)
        maker = uses.maker(info, number) if info and info.dtype == dtype else None
        if info is None or maker is None or uses.count(info, dispatch) > 1:
            continue  # such as an image that is added to its own product
        if info.name not in {made.name for made in lowered.dispatches[maker].tensors_written}:
            continue
        made = _joined(dispatch, lowered.dispatches[maker], read)
        if made and not lowered.slices.get(info.name, 0) and not task.refused(made):
            dispatches[number], dispatches[maker] = made, None
            nodes[number] = f"{nodes[maker]} + {nodes[number]}"
    left = [(d, node) for d, node in zip(dispatches, nodes, strict=True) if d is not None]
    return replace(lowered, dispatches=tuple(d for d, _ in left), nodes=tuple(n for _, n in left))


def _joined(product: Dispatch, maker: Dispatch, read: str) -> Dispatch | None:
    """Return a product that scales its columns; None where the other dispatch does something else.

    Args:
        product: the product.
        maker: the dispatch that makes what it multiplies.
        read: the name of that in the product's kernel.
    """
    push, work = product.push_values, maker.pointwise
    if work is None or work.target:
        return None
    channels = product.constant_values.get("CHANNELS", push["k"])
    if channels != push["k"] or push.get("a_row", channels) != channels:
        return None
    found = _factors(work, channels)
    if found is None:
        return None
    image, gate, kind = found
    reads = tuple((name, image if name == read else info) for name, info in product.reads)
    return replace(
        product,
        reads=(*reads, ("gate_buffer", gate)),
        flops=product.flops + work.count,
        defines=(*product.defines, ("GATED", str(kind))),
    )


def _factors(work: Pointwise, channels: int) -> tuple[TensorInfo, TensorInfo, int] | None:
    """Return the image, the factors of its channels, and 2 if these pass a sigmoid, else 1."""
    *before, last = work.formulas
    if len(work.operands) != 2 or last.text != PRODUCT or len(before) > 1:
        return None
    gates = [
        number
        for number, operand in enumerate(work.operands)
        if _is_row(operand, work.shape, channels)
    ]
    dtypes = {f.dtype for f in work.formulas} | {o.dtype for o in work.operands}
    if len(gates) != 1 or dtypes | {o.info.dtype for o in work.operands} != {last.dtype}:
        return None
    gate, image = work.operands[gates[0]], work.operands[1 - gates[0]]
    if before and (before[0].text, before[0].arguments) != (SIGMOID, (gates[0],)):
        return None
    read = {1 - gates[0], 2 if before else gates[0]}
    if set(last.arguments) != read or not image.view.is_dense(work.shape):
        return None
    return image.info, gate.info, 1 + len(before)


def _is_row(operand: Operand, shape: tuple[int, ...], channels: int) -> bool:
    """Tell whether an operand has one element for each index of the last axis."""
    *before, last = operand.view.strides
    return (
        shape[-1] == channels == operand.info.count
        and last == 1
        and operand.view.start == 0
        and all(step == 0 or size == 1 for step, size in zip(before, shape, strict=False))
    )
