"""Kernels that take part in fusion: dispatches declare what the texts say."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from support.graphs.small_models import ROOT, stock_variant
from vklab.ops import fusable, registry
from vklab.ops.dtypes import raw_defines, type_defines
from vklab.plan.fusion import attention, squeezes
from vklab.plan.tuning import precision, variants
from vklab.plan.tuning.products import winograd
from vklab.shader import compiler, toolchain
from vklab.types import CooperativeMatrix, Dispatch, TensorInfo

KERNELS = {path.stem: path.read_text("utf-8") for path in (ROOT / "shaders/ops").glob("*.slang")}
STORE = """
#define FUSED_PARAMS uint e_run, e_size; float p0;
#define STORE(element, value) store_fused(element, value)
StructuredBuffer<float> e_buffer;
void store_fused(uint element, float value) {
    float e = e_buffer[element / params.e_run % params.e_size];
    y_buffer[element] = Y(Y_STORE(value * params.p0 + e));
}
"""
LOAD = """
#define LOAD(element) load_fused(element)
StructuredBuffer<float> z_buffer;
float load_fused(uint element) { return abs(z_buffer[element]); }
"""


def kernels_with(pattern: str) -> set[str]:
    return {name for name, text in KERNELS.items() if re.search(pattern, text)}


STORES = kernels_with(r"\bSTORE(_MOVE)?\(")
LOADS = kernels_with(r"\bLOAD(_PIECE|_RAW)?\(")
FUSED = STORES | LOADS
# Kernels that only store four elements at a time, with an epilogue for four.
IN_FOURS = {"matmul_registers"}


def infos(*shapes: tuple[int, ...], dtype: str = "float32") -> list[TensorInfo]:
    return [TensorInfo(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]


def known(*numbers: int, dtype: str = "int64") -> TensorInfo:
    return TensorInfo("k", dtype, (len(numbers),), np.array(numbers, dtype))


SCALAR = TensorInfo("axis", "int64", (), np.array(0))
WINDOW = {"kernel_shape": (2, 2)}
BLOCKS = {"block_type": "Q8_0", "N": 4, "K": 64}
# Nodes that dispatch every fused kernel of an operator: op_type, inputs, attributes, domain.
NODES: list[tuple[str, list[TensorInfo], dict[str, Any], str]] = [
    ("ArgMax", infos((3, 4)), {}, ""),
    ("Attention", infos((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), {}, ""),
    ("AveragePool", infos((1, 1, 4, 4)), WINDOW, ""),
    ("CacheAttention", [*infos((1, 1, 64)), *[TensorInfo("c", "uint32", (1, 1, 300, 8))] * 2,
                        *[TensorInfo("n", "int32", (1,))] * 2], {"num_heads": 4}, "vklab"),
    ("CacheLast", [*infos((1, 3, 8)), TensorInfo("n", "int32", (1,))], {}, "vklab"),
    ("Conv", infos((1, 2, 4, 4), (3, 2, 2, 2)), {}, ""),
    ("Conv", infos((1, 2, 4, 4, 4), (3, 2, 2, 2, 2)), {}, ""),
    ("ConvTranspose", infos((1, 2, 4, 4), (2, 3, 2, 2)), {}, ""),
    *(("ConvWords", infos((1, 2, 4, 4), (2, 1, *weights), (8, 4), dtype="uint32"),
       {"filters": 8, "group": group, "depth": 8 // group, "kernel_shape": (1, 1),
        "strides": (1, 1), "dilations": (1, 1), "pads": (0,) * 4, "zeros": (0, 0),
        "limits": (-128, 127), "codes": codes}, "vklab")
      for group, weights in ((1, (2, 4)), (8, ())) for codes in (0, 1)),
    ("ChannelsLastConv", infos((1, 5, 6, 4), (3, 3, 1, 4)),
     {"group": 4, "pads": (0,) * 4, "strides": (1, 1), "dilations": (1, 1)}, "vklab"),
    ("CumSum", [*infos((3, 4)), SCALAR], {}, ""),
    ("DequantizeWords", infos((1, 2, 3), dtype="uint32"),
     {"axis": 1, "size": 7, "scale": 0.1, "zero": 3}, "vklab"),
    ("Gather", [*infos((3, 4)), known(0, 2)], {}, ""),
    ("LRN", infos((1, 3, 2, 2)), {"size": 3}, ""),
    ("LayerNormalization", infos((3, 8), (8,)), {}, ""),
    ("LayerNormalization", infos((1, 1 << 17), (1 << 17,)), {}, ""),
    ("MatMul", infos((3, 4), (4, 5)), {}, ""),
    ("MatMulInteger", infos((3, 4), (4, 5), dtype="int8"), {}, ""),
    ("MatMulNBits", [*infos((3, 16)), *infos((5, 1, 8), dtype="uint8"), *infos((5,))],
     {"K": 16, "N": 5, "block_size": 16}, "com.microsoft"),
    *(("MatMulBlocks", [*infos((rows, 64)), TensorInfo("b", "uint32", (68,))], BLOCKS, "vklab")
      for rows in (1, 100)),
    ("GatherBlocks", [TensorInfo("b", "uint32", (68,)), known(0, 3)], BLOCKS, "vklab"),
    ("MaxPool", infos((1, 1, 4, 4)), WINDOW, ""),
    ("Pad", [*infos((3, 4)), known(1, 0, 0, 2)], {}, ""),
    ("PadLast", infos((1, 3, 4, 4)), {"width": 4}, "vklab"),
    ("QuantizeWords", infos((1, 7, 3)), {"axis": 1, "scale": 0.1, "zero": 3}, "vklab"),
    ("ReduceSum", [*infos((3, 4)), known(1)], {}, ""),
    ("Resize", [*infos((1, 1, 2, 2)), None, None, known(1, 1, 5, 5)], {}, ""),
    ("RotaryEmbedding", infos((1, 2, 3, 4), (1, 3, 2), (1, 3, 2)), {}, ""),
    ("Softmax", infos((3, 4)), {}, ""),
]  # fmt: skip
# Products that variants take over: one row, tiles, parts of a long sum.
WIDE = re.compile(r"#if WIDE_Y\n(?:#if.*?#endif|.)*?#(?:else|endif)", re.DOTALL)
PRODUCTS = [("MatMul", infos((1, 512), (512, 2000))), ("MatMul", infos((2048, 64), (64, 2048))),
            ("MatMul", infos((4, 2048), (2048, 2048))),
            ("Conv", infos((1, 64, 32, 32), (64, 64, 3, 3))), ("Conv", [
                *infos((1, 64, 64, 64)), TensorInfo("w", "float32", (512, 64, 3, 3),
                                                    np.ones((512, 64, 3, 3), np.float32))]),
            ("MatMul", infos((64, 8192), (8192, 64))),
            ("MatMul", infos((64, 64), (64, 64), dtype="float16")),
            ("Conv", [*infos((1, 64, 32, 32), dtype="float16"),
                      TensorInfo("w", "float16", (64, 64, 3, 3),
                                 np.ones((64, 64, 3, 3), np.float16))])]  # fmt: skip


def word_products() -> Iterator[Dispatch]:
    """Yield products of int8 in words whose weights are known: for few rows, and for many."""
    weights = TensorInfo("w", "uint32", (8, 1, 32, 4), np.ones((8, 1, 32, 4), np.uint32))
    for rows in (1, 64):
        yield from registry.apply(
            "MatMulWords",
            [*infos((rows, 32), dtype="uint32"), weights, *infos((32, 4), dtype="uint32")],
            {"filters": 32, "depth": 128, "zeros": (0, 0), "limits": (-128, 127), "codes": 0},
            1,
            "vklab",
        ).dispatches


def convolutions() -> Iterator[Dispatch]:
    """Yield what GPUs make of channels-last convolutions, and CPU devices of others."""
    matrices = CooperativeMatrix(16, 16, 16, "float16", "float16", "float32", "float32")
    gpu = fake_device(
        {"maxComputeSharedMemorySize": 49152}, subgroup_size=32, cooperative_matrices=(matrices,)
    )
    for dtype, size in itertools.product(("float16", "float32"), (12, 90)):
        image, weight = infos((1, size, size, 64), (3, 3, 64, 256), dtype=dtype)
        given = {"pads": (1,) * 4, "strides": (1, 1), "dilations": (1, 1)}
        made = registry.apply("ChannelsLastConv", [image, weight], given, 1, "vklab")
        yield from variants.choose(*made.dispatches, gpu)
    image, weight = infos((1, 12, 12, 64), (3, 3, 1, 64))
    made = registry.apply("ChannelsLastConv", [image, weight], {**given, "group": 64}, 1, "vklab")
    yield from variants.choose(*made.dispatches, gpu)
    pooled = registry.apply("MaxPool", infos((1, 1, 8, 8, 4)), {"kernel_shape": (2, 2, 1)}, 22)
    yield from variants.choose(pooled.dispatches[0], gpu)
    cpu = replace(gpu, type="cpu", features=frozenset({"shaderInt64"}))
    for shape, group in (((32, 32, 3, 3), 1), ((32, 32, 1, 1), 1), ((32, 1, 3, 3), 32)):
        weight = TensorInfo("w", "float32", shape, np.ones(shape, np.float32))
        given = {"group": group, "pads": (1,) * 4 if shape[2] > 1 else (0,) * 4}
        made = registry.apply("Conv", [*infos((1, 32, 8, 8)), weight], given, 22)
        for piece in winograd.parts(*made.dispatches, cpu):
            yield from variants.choose(piece, cpu)


def built() -> Iterator[Dispatch]:
    """Yield the dispatches of all nodes above, and the variants of their products."""
    dots = fake_device(features=frozenset({"shaderIntegerDotProduct"}))
    for product in word_products():
        yield from variants.choose(product, dots)
    yield from convolutions()
    for op_type, inputs, attributes, domain in NODES:
        yield from registry.apply(op_type, inputs, attributes, 23, domain).dispatches
    matrices = CooperativeMatrix(16, 16, 16, "float16", "float16", "float32", "float32")
    device = fake_device(subgroup_size=32, cooperative_matrices=(matrices,))
    for op_type, inputs in PRODUCTS:
        for product in registry.apply(op_type, inputs, {}, 23).dispatches:
            yield from variants.choose(product, device)
    gpu = replace(
        device,
        features=frozenset({"shaderIntegerDotProduct"}),
        limits={**device.limits, "minSubgroupSize": 32},
        subgroup_operations=frozenset({"arithmetic", "shuffle"}),
    )
    for op_type, inputs, given in (
        ("LayerNormalization", infos((3, 64), (64,)), {}),
        ("Softmax", infos((3, 65)), {}),
        ("Softmax", infos((3, 7, 40)), {"axis": 1}),
    ):
        yield from variants.choose(*registry.apply(op_type, inputs, given, 23).dispatches, gpu)
    for block_type, words in (("Q8_0", 68), ("F16", 128)):
        given = [*infos((1, 64)), TensorInfo("b", "uint32", (words,))]
        made = registry.apply(
            "MatMulBlocks", given, BLOCKS | {"block_type": block_type}, 1, "vklab"
        )
        yield from variants.choose(*made.dispatches, gpu)
        yield from variants.choose(
            *made.dispatches, replace(gpu, type="cpu", features=frozenset({"shaderInt64"}))
        )
    x, w, v = infos((1, 64), (64, 8), (8, 96))
    (first,) = registry.apply("MatMul", [x, w], {}, 23).dispatches
    (last,) = registry.apply("MatMul", [first.writes[0][1], v], {}, 23).dispatches
    joint = squeezes.one_dispatch(last, first, 256)
    assert joint is not None
    yield joint
    for dtype, keys in (("float32", 32), ("float16", 32), ("float16", 2048)):
        shapes = ((1, 2, 32, 64), *[(1, 2, keys, 64)] * 2)
        three = registry.apply("Attention", infos(*shapes, dtype=dtype), {}, 23)
        one = attention.one_dispatch(*three.dispatches, shared_bytes=49152)
        assert one is not None
        large = replace(device, limits={**device.limits, "maxComputeSharedMemorySize": 49152})
        yield from variants.choose(one, large)
        yield from variants.choose(
            one,
            replace(
                large,
                vendor_id=precision.NVIDIA,
                driver="NVIDIA 580",
                subgroup_operations=gpu.subgroup_operations,
            ),
        )


def declared() -> Iterator[tuple[str, bool, bool]]:
    """Yield kernel, `stores` and `loads` of every call of an operator that names a kernel."""
    for path in sorted((ROOT / "vklab" / "ops").glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            named = {word.arg for word in call.keywords}
            kernel = next((w.value for w in call.keywords if w.arg == "kernel"), None)
            if call.func.id in ("Dispatch", "per_element") and call.args:
                kernel = call.args[0]
            if isinstance(kernel, ast.Constant) and kernel.value in KERNELS:
                yield kernel.value, "stores" in named, "loads" in named


def test_dispatches_declare_what_their_kernels_do():
    seen = set()
    for one in built():
        writes_y = "y_buffer" in dict(one.writes)
        assert one.stores == (one.kernel in STORES and writes_y), one
        assert one.loads == (one.kernel in LOADS), one
        seen.add(one.kernel)
    assert seen >= FUSED


def test_every_kernel_that_operators_name_is_declared_as_its_text_says():
    calls = list(declared())
    assert calls == [(name, name in STORES, name in LOADS) for name, _, _ in calls]
    # Of vklab/plan:
    others = {
        "attention",
        "attention_cooperative",
        "attention_direct",
        "attention_registers",
        "cache_attention_matrices",
        "conv_cooperative",
        "conv_packed",
        "conv_tiled",
        "matmul_cooperative",
        "matmul_rows",
        "matmul_tiled",
        "matvec",
        "normalize_registers",
        "pointwise",
        "softmax_columns",
        "softmax_registers",
        "sum_splits",
        "transpose",
    }
    others |= {
        "conv_depthwise",
        "conv_last_cooperative",
        "conv_last_depthwise",
        "conv_last_sliced",
        "conv_last_tiled",
        "matmul_pairs",
        "pool_last",
        "squeeze",
        "winograd_input",
        "winograd_output",
    }
    others |= {"max_roi_pool", "roi_align"}  # a parameter names them
    others |= {"conv_words", "depthwise_words"}  # the weights decide
    others |= {"matvec_words", "words_tiled"}  # the device decides
    others |= {"matmul_blocks", "matvec_blocks"}  # the number of rows chooses
    others |= {"cache_attention_registers"}  # the device decides
    others |= {"matvec_floats", "matvec_pairs", "matvec_units", "unpack_units"}
    others |= {"clear_words", "conv_pool", "matvec_chain", "matvec_head", "matvec_long"}
    assert {name for name, _, _ in calls} | others | IN_FOURS == set(KERNELS)


def test_fused_kernels_take_the_macros_and_room_for_push_constants():
    assert kernels_with(r'#include "lib/fused.slangh"') == FUSED | IN_FOURS
    assert kernels_with(r"struct Params \{[^}]*\n    FUSED_PARAMS\n\}") >= FUSED


def test_what_is_fused_goes_through_the_macros_alone():
    for name in STORES - {"squeeze"}:  # which reads its y again: it lies in shared memory
        # Under WIDE_Y formulas for four neighbours stand in the generated text.
        fusing = WIDE.sub("", KERNELS[name])
        assert not re.search(r"\by_buffer\[", fusing), name
    for name in LOADS:
        assert not re.search(r"\bx_buffer\[", KERNELS[name]), name


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(FUSED))
def test_kernels_compile_with_what_is_fused_and_keep_room_for_it(name):
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no compiler for slang")
    _, defines, _ = stock_variant(name)
    plain = compiler.compile_variant(name, defines).reflection
    fragment = LOAD * (name in LOADS) + STORE * (name in STORES)
    fused = compiler.compile_variant(name, defines, fragment).reflection
    bindings, push = set(plain.bindings), set(plain.push)
    if name in LOADS:
        bindings = bindings - {"x_buffer"} | {"z_buffer"}
    if name in STORES:
        bindings |= {"e_buffer"}
        push |= {"e_run", "e_size", "p0"}
    assert (set(fused.bindings), set(fused.push)) == (bindings, push)
    assert plain.push_bytes <= 128


def test_usual_products_and_convolutions_leave_room_for_ten_numbers():
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no compiler for slang")
    for name in ("matmul", "conv"):
        assert compiler.compile_variant(*stock_variant(name)).reflection.push_bytes <= 128 - 40


def dispatch(kernel: str, defines: tuple[tuple[str, str], ...], *written: str) -> Dispatch:
    x, y = TensorInfo("x", "float32", (4,)), TensorInfo("y", "float32", (4,))
    writes = tuple((name, y) for name in written)
    return Dispatch(
        kernel, (("x_buffer", x),), writes, (1, 1, 1), (), defines, stores=True, loads=True
    )


def test_only_what_writes_one_y_takes_an_epilogue():
    pool = dispatch("pool", (), "y_buffer")
    assert fusable.stores(pool) and fusable.loads(pool)
    assert not fusable.stores(dispatch("pool", (), "indices_buffer"))
    assert not fusable.stores(dispatch("normalize", (), "y_buffer", "mean_buffer"))
    assert not fusable.stores(replace(pool, stores=False))
    assert not fusable.loads(replace(pool, loads=False))
    assert not fusable.loads(replace(pool, reads=()))


def test_kernels_that_move_bits_are_told_what_these_mean():
    raw = (*raw_defines("X", "float32")[:2], *raw_defines("Y", "float32")[::2], ("K", "int"))
    typed = (*type_defines("X", "float32")[:2], *type_defines("Y", "float32")[::2], ("K", "int"))
    assert dict(fusable.typed(dispatch("gather", raw, "y_buffer"))) == dict(typed)
    assert dict(fusable.typed(dispatch("gather", typed, "y_buffer"))) == dict(typed)
