"""Choose the kernels of a GPU for a few rows times weights in blocks, and what they take along.

The weights of a unit are multiplied by int8 activations, rounded once for each row: an error of at
most 1/254 of the largest of 32 activations in each. Only a product that permits it is rounded so.
Weights as floats keep float32.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from vklab import settings
from vklab.base import catalogue
from vklab.ops import registry
from vklab.plan import storage
from vklab.types import CooperativeMatrix, DeviceInfo, Dispatch, TensorInfo

KERNELS = frozenset({"matvec_units", "matvec_floats"})
UNITS = {"Q4_K": 64, "Q5_K": 64, "Q6_K": 64}  # elements of a unit of blocks, if not GROUP
GROUP = 32  # elements with one scale of activations
FEW = 8  # the most rows of A
# Rows of A from which on the kernels of MatMul pay; and bytes of dequantised weights.
FEWEST_ROWS, MOST_BYTES = 16, 512 << 20
# Columns of a matrix of sums that gate the next ones.
SIDE = 16
HALVES = ("float16", "float16", "float32", "float32")  # dtypes of a matrix instruction
FLOATS = {"F16": 8, "BF16": 8, "F32": 4}  # elements of sixteen bytes
OPERATIONS = frozenset({"arithmetic", "shuffle"})
# Rows of A that share the weights; their codes, scales and sums lie in shared memory.
MOST_ROWS, CODE_BYTES, GROUP_BYTES = 4, 1, 16
# Bytes of rows of A as floats that a workgroup keeps in shared memory, and their share of it.
MOST_SHARED, SHARE = 32 << 10, 0.9
# The most invocations of a workgroup; eights of A that an invocation fetches at once.
WORKGROUP, MOST_AHEAD = 1024, 4


class Sizes(NamedTuple):
    """Shares of the rows of weights, for workgroups and for their subgroups.

    Attributes:
        workgroup: the invocations of a workgroup, whole subgroups.
        at_once: the rows, or with a gate pairs of rows, that a subgroup multiplies at once.
        tiles: how often a subgroup does that.
        depth: the steps along a row that a lane has fetched before it needs them.
    """

    workgroup: int
    at_once: int = 1
    tiles: int = 1
    depth: int = 1


# Sizes that fit every device, until `tuning.block_sizes` chooses better ones.
MODEST = Sizes(128)


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
    push, defines = dispatch.push_values, dispatch.define_values
    nbits = {name: defines[name] for name in ("ZERO", "BIAS") if name in defines}
    name = f"N{defines['BITS']}" if nbits else defines["DEQUANTIZE"].removeprefix("dequantize_")
    k, lanes = push["k"], info.subgroup_size
    rows = _rows(push["m"], k, name in FLOATS, info)
    if name not in FLOATS and not may_round(dispatch):
        return None
    whole = k % unit(name) == 0 and info.limit("minSubgroupSize") == lanes
    fits = MODEST.workgroup % lanes == 0 and info.subgroup_operations >= OPERATIONS
    if not rows or not whole or not fits:
        return None
    kept = tuple((key, defines[key]) for key in ("T", "T_LOAD", "Y", "Y_STORE"))
    fixed = () if name in FLOATS else (("SPLIT", "0"), ("NBITS", defines.get("BITS", "0")))
    sizes = {"K": k, "ROWS": rows, "SUBGROUP": lanes}
    if nbits:
        sizes["BLOCK"] = push["block"]
    made = replace(
        dispatch,
        kernel="matvec_floats" if name in FLOATS else "matvec_units",
        push=(("m", push["m"]), ("n", push["n"]), ("epsilon", 0.0)),
        defines=(*kept, ("NORM", "0"), ("GATED", "0"), ("FORMAT", name), *fixed, *nbits.items()),
        constants=tuple(sizes.items()),
        iterations=k // lanes + k // 8,
    )
    return sized(made, MODEST)


def may_round(dispatch: Dispatch) -> bool:
    """Tell whether a kernel may round the rows of A below their dtype.

    The model decides: a GGUF file permits it, as llama.cpp does, MatMulNBits at accuracy_level 4.
    PRECISION=exact forbids it for all, PRECISION=int8 permits it for all.
    """
    precision = settings.get("PRECISION")
    return precision == "int8" or (dispatch.rounds and precision != "exact")


def multiplies_halves(dispatch: Dispatch, info: DeviceInfo) -> bool:
    """Tell whether matrix units multiply a product's rows as halves, or as float32 if B has it."""
    if dispatch.kernel != "matmul_blocks" or settings.get("DISABLE_VARIANTS"):
        return False
    if not may_round(dispatch):
        return False
    push = dispatch.push_values
    m, n, k = push["m"], push["n"], push["k"]
    largest = min(MOST_BYTES, info.limit("maxStorageBufferRange"))
    fits = min(m, n) >= FEWEST_ROWS and not k % 8 and 2 * n * k <= largest
    return fits and has_matrices(info)


def gates_halves(dispatch: Dispatch, info: DeviceInfo) -> bool:
    """Tell whether two such products of one A may be one, in which columns gate others."""
    push, defines = dispatch.push_values, dispatch.define_values
    joint = replace(dispatch, push=tuple((push | {"n": 2 * push["n"]}).items()))
    is_float = defines["DEQUANTIZE"].removeprefix("dequantize_") in FLOATS
    wide = push["n"] % SIDE == 0 and min(push["m"], push["k"]) >= 2 * FEWEST_ROWS
    largest = max(_matrices(info), key=lambda each: each.m * each.n * each.k, default=None)
    fits = largest is not None and largest.n == SIDE
    return wide and not is_float and fits and multiplies_halves(joint, info)


def has_matrices(info: DeviceInfo) -> bool:
    """Tell whether a device has matrices of halves with sums in float32."""
    return bool(_matrices(info))


def _matrices(info: DeviceInfo) -> list[CooperativeMatrix]:
    return [
        each
        for each in info.cooperative_matrices
        if (each.a, each.b, each.c, each.result) == HALVES
        and not any(side % 8 for side in (each.m, each.n, each.k))
    ]


def _is_nbits(dispatch: Dispatch, info: DeviceInfo) -> bool:
    """Tell whether a dispatch is MatMulNBits of a few rows, whose blocks are groups of 32."""
    if dispatch.kernel != "matmul_nbits" or dispatch.define_values["BITS"] not in ("4", "8"):
        return False
    push = dispatch.push_values
    whole = push["block"] % GROUP == 0 and push["k"] % push["block"] == 0
    return push["m"] <= FEW and whole and storage.stored_dtype("uint8", info) == "uint8"


def unit(name: str) -> int:
    """Return the elements of a unit of a block format."""
    return FLOATS.get(name) or UNITS.get(name, GROUP)


def steps(dispatch: Dispatch) -> int:
    """Return the units of a row of weights that a lane of a dispatch of KERNELS multiplies."""
    constants = dispatch.constant_values
    each = unit(dispatch.define_values["FORMAT"]) * constants["SUBGROUP"]
    return -(-int(constants["K"]) // each)


def _rows(m: int, k: int, is_float: bool, info: DeviceInfo) -> int:
    """Return the rows of A of a workgroup; 0 if a device cannot multiply codes, or none fits."""
    rows = min(m, MOST_ROWS)
    if is_float:
        return rows
    if "shaderIntegerDotProduct" not in info.features or settings.get("DISABLE_INTEGER_DOT"):
        return 0
    sums = 4 * MOST_ROWS * WORKGROUP // info.subgroup_size
    left = max(0, info.limit("maxComputeSharedMemorySize") - sums)
    return min(rows, left // (CODE_BYTES * k + GROUP_BYTES * k // GROUP))


def shared(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return a product by floats that brings its rows of A to shared memory, where that pays.

    It pays where rows are normalised first. On an H200 (1.1B in F16, us): queries, keys and values
    10.6 without and 9.2 with it, logits 39.6 and 35.4, gate and up 16.2 and 16.1; without a norm
    7.4 and 7.6, or 11.4 and 11.5.
    """
    constants = dispatch.constant_values
    size = 4 * constants["ROWS"] * constants["K"]
    fits = size <= min(MOST_SHARED, info.limit("maxComputeSharedMemorySize") * SHARE)
    pays = dispatch.kernel == "matvec_floats" and dispatch.define_values["NORM"] == "1"
    if not fits or not pays or catalogue.is_off("shared_floats"):
        return dispatch
    return replace(dispatch, constants=tuple((constants | {"SHARED": 1}).items()))


def sized(dispatch: Dispatch, sizes: Sizes) -> Dispatch:
    """Return a dispatch of KERNELS with other sizes, and the workgroups that they need.

    Args:
        dispatch: the dispatch.
        sizes: how its work is shared.
    """
    push, constants = dispatch.push_values, dispatch.constant_values
    constants |= {
        "WORKGROUP": sizes.workgroup,
        "AT_ONCE": sizes.at_once,
        "DEPTH": sizes.depth,
        "TILES": sizes.tiles,
    }
    if dispatch.kernel == "matvec_units":
        constants["AHEAD"] = min(-(-constants["K"] // (8 * sizes.workgroup)), MOST_AHEAD)
    each = sizes.workgroup // constants["SUBGROUP"] * sizes.at_once * sizes.tiles
    x, y, _ = registry.grid(-(-push["n"] // each))
    return replace(
        dispatch,
        constants=tuple(constants.items()),
        workgroups=(x, y, -(-push["m"] // constants["ROWS"])),
    )


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
    if up.epilogue or gate.epilogue or up.define_values["NORM"] == "1":
        return None
    return replace(
        up,
        reads=(*up.reads, ("g_buffer", dict(gate.reads)["b_buffer"])),
        writes=(("y_buffer", result),),
        flops=up.flops + gate.flops,
        defines=_with(up.defines, "GATED", "1"),
    )


def normed(dispatch: Dispatch, x: TensorInfo, scale: TensorInfo, epsilon: float) -> Dispatch | None:
    """Return a product whose rows of A are x, normalised; None if they are normalised already.

    Args:
        dispatch: a dispatch of KERNELS.
        x: the tensor before RMSNormalization.
        scale: the factors of the elements of a row, float32.
        epsilon: the number added to the mean square.
    """
    if dispatch.define_values["NORM"] == "1" or dict(dispatch.reads)["a_buffer"].dtype != x.dtype:
        return None
    reads = ((name, x if name == "a_buffer" else info) for name, info in dispatch.reads)
    push = ((name, epsilon if name == "epsilon" else value) for name, value in dispatch.push)
    return replace(
        dispatch,
        reads=(*reads, ("w_buffer", scale)),
        push=tuple(push),
        defines=_with(dispatch.defines, "NORM", "1"),
    )


def _with(
    defines: tuple[tuple[str, str], ...], name: str, value: str
) -> tuple[tuple[str, str], ...]:
    return tuple((key, value if key == name else old) for key, old in defines)
