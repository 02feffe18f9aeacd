"""Choose the kernels of a GPU for a few rows times weights in blocks, and what they take along.

The weights of a unit are multiplied by int8 activations, rounded once for each row: an error of at
most 1/254 of the largest of 32 activations in each. DISABLE_INTEGER_DOT keeps float32 for them.
Weights as floats keep float32. Visited by lab 19.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.ops import registry
from vklab.plan import storage
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["KERNELS", "gated", "normed", "of", "unit"]

KERNELS = frozenset({"matvec_units", "matvec_floats"})
UNITS = {"Q4_K": 64, "Q5_K": 64, "Q6_K": 64}  # elements of a unit of blocks, if not GROUP
GROUP = 32  # elements with one scale of activations
FEW = 8  # the most rows of A
FLOATS = {"F16": 8, "BF16": 8, "F32": 4}  # elements of sixteen bytes
OPERATIONS = frozenset({"arithmetic", "shuffle"})
# Rows of A that share the weights; their codes, scales and sums lie in shared memory.
MOST_ROWS, CODE_BYTES, GROUP_BYTES = 4, 1, 16
# Invocations of a workgroup, and rows of weights of a subgroup at once.
WORKGROUP, AT_ONCE = 256, 2


def of(dispatch: Dispatch, info: DeviceInfo) -> Dispatch | None:
    """Return a matvec_blocks dispatch as one of KERNELS; None where a device cannot run those.

    Args:
        dispatch: a dispatch of any kernel.
        info: the device.
    """
    if dispatch.kernel in KERNELS:
        return dispatch
    is_known = dispatch.kernel == "matvec_blocks" or _is_nbits(dispatch, info)
    if not is_known or info.is_cpu or settings.get("DISABLE_VARIANTS"):
        return None
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    nbits = {name: defines[name] for name in ("ZERO", "BIAS") if name in defines}
    name = f"N{defines['BITS']}" if nbits else defines["DEQUANTIZE"].removeprefix("dequantize_")
    k, lanes = push["k"], info.subgroup_size
    rows = _rows(push["m"], k, name in FLOATS, info)
    whole = k % FLOATS.get(name, unit(name)) == 0 and info.limit("minSubgroupSize") == lanes
    if not rows or not whole or WORKGROUP % lanes or not info.subgroup_operations >= OPERATIONS:
        return None
    kept = tuple((key, defines[key]) for key in ("T", "T_LOAD", "Y", "Y_STORE"))
    fixed = () if name in FLOATS else (("SPLIT", "0"), ("NBITS", defines.get("BITS", "0")))
    made = replace(
        dispatch, kernel="matvec_floats" if name in FLOATS else "matvec_units",
        push=(("m", push["m"]), ("n", push["n"]), ("epsilon", 0.0)),
        defines=(*kept, ("NORM", "0"), ("GATED", "0"), ("FORMAT", name), *fixed, *nbits.items()),
        constants=(("K", k), ("ROWS", rows), ("AT_ONCE", AT_ONCE if rows == 1 else 1),
                   ("SUBGROUP", lanes), ("WORKGROUP", WORKGROUP),
                   *((("BLOCK", push["block"]),) if nbits else ())),
        iterations=k // lanes + k // 8,
    )  # fmt: skip
    return _sized(made)


def _is_nbits(dispatch: Dispatch, info: DeviceInfo) -> bool:
    """Tell whether a dispatch is MatMulNBits of a few rows, whose blocks are groups of 32."""
    if dispatch.kernel != "matmul_nbits" or dict(dispatch.defines)["BITS"] not in ("4", "8"):
        return False
    push = dict[str, Any](dispatch.push)
    whole = push["block"] % GROUP == 0 and push["k"] % push["block"] == 0
    return push["m"] <= FEW and whole and storage.stored_dtype("uint8", info) == "uint8"


def unit(name: str) -> int:
    """Return the elements of a unit of a block format."""
    return UNITS.get(name, GROUP)


def _rows(m: int, k: int, is_float: bool, info: DeviceInfo) -> int:
    """Return the rows of A of a workgroup; 0 if a device cannot multiply codes, or none fits."""
    rows = min(m, MOST_ROWS)
    if is_float:
        return rows
    if "shaderIntegerDotProduct" not in info.features or settings.get("DISABLE_INTEGER_DOT"):
        return 0
    left = info.limit("maxComputeSharedMemorySize") - 4 * WORKGROUP
    return min(rows, left // (CODE_BYTES * k + GROUP_BYTES * k // GROUP))


def _sized(dispatch: Dispatch) -> Dispatch:
    """Return a dispatch of KERNELS with the workgroups for its sizes."""
    push, sizes = dict[str, Any](dispatch.push), dict[str, Any](dispatch.constants)
    each = sizes["WORKGROUP"] // sizes["SUBGROUP"] * sizes["AT_ONCE"]
    x, y, _ = registry.grid(-(-push["n"] // each))
    return replace(dispatch, workgroups=(x, y, -(-push["m"] // sizes["ROWS"])))


def gated(up: Dispatch, gate: Dispatch, result: TensorInfo) -> Dispatch | None:
    """Return SiLU(A G') * (A B') as one dispatch; None for products that do not match.

    Args:
        up: the product by B, as `of` returns it.
        gate: the product by G, of the same A, sizes and format.
        result: the tensor to write.

    Source: Shazeer 2020, SwiGLU
    """
    if (up.kernel, up.defines, up.push) != (gate.kernel, gate.defines, gate.push):
        return None
    if up.epilogue or gate.epilogue or dict(up.defines)["NORM"] == "1":
        return None
    made = replace(
        up, reads=(*up.reads, ("g_buffer", dict(gate.reads)["b_buffer"])),
        writes=(("y_buffer", result),), flops=up.flops + gate.flops,
        defines=_with(up.defines, "GATED", "1"),
        constants=tuple((name, 1 if name == "AT_ONCE" else v) for name, v in up.constants),
    )  # fmt: skip
    return _sized(made)


def normed(
    dispatch: Dispatch, x: TensorInfo, scale: TensorInfo, epsilon: float
) -> Dispatch | None:
    """Return a product whose rows of A are x, normalised; None if they are normalised already.

    Args:
        dispatch: a dispatch of KERNELS.
        x: the tensor before RMSNormalization.
        scale: the factors of the elements of a row, float32.
        epsilon: the number added to the mean square.
    """
    if dict(dispatch.defines)["NORM"] == "1" or dict(dispatch.reads)["a_buffer"].dtype != x.dtype:
        return None
    reads = ((name, x if name == "a_buffer" else info) for name, info in dispatch.reads)
    push = ((name, epsilon if name == "epsilon" else value) for name, value in dispatch.push)
    return replace(dispatch, reads=(*reads, ("w_buffer", scale)), push=tuple(push),
                   defines=_with(dispatch.defines, "NORM", "1"))  # fmt: skip


def _with(
    defines: tuple[tuple[str, str], ...], name: str, value: str
) -> tuple[tuple[str, str], ...]:
    return tuple((key, value if key == name else old) for key, old in defines)
