"""Catalogue of the rules that make a model faster: a row for each, in the order of their use.

A rule's module is imported when a model on a device needs it. Everything that names rules reads
this list: planning itself, DISABLE_PASSES, `vklab bench ablate`, docs/tuning.md. Visited by
lab 10.
"""

from __future__ import annotations

import functools
from collections.abc import Collection

from vklab import settings
from vklab.base.stages import (
    CHAIN,
    CODES,
    CPU,
    DTYPE,
    FUSION,
    GATE,
    GPU,
    KERNEL,
    LAYOUT,
    NORM,
    PASS,
    PRODUCT,
    STEP,
    WORDS,
    Choice,
    Rule,
)
from vklab.errors import PlanError

# Kernels that some rules need.
BLOCKS = ("matmul_blocks", "matvec_blocks", "matvec_floats", "matvec_units")
MOVES, PLAIN, LAST, WORD = (
    ("elementwise", "pointwise"),
    ("matmul", "conv"),
    ("conv_last",),
    ("conv_words",),
)

RULES: tuple[Rule | Choice, ...] = (
    Rule("fold_constants", PASS, "vklab.graph.passes.fold_constants",
         because="first: later passes read constants"),
    Rule("drop_no_ops", PASS, "vklab.graph.passes.drop_no_ops",
         because="patterns need not skip Identity"),
    Rule("slice_gathers", PASS, "vklab.graph.passes.slice_gathers", needs=("Gather",),
         because="before passes that know how to move a Slice"),
    Rule("move_transposes", PASS, "vklab.graph.passes.move_transposes", needs=("Transpose",),
         because="nodes between two Transposes become a chain"),
    Rule("join_views", PASS, "vklab.graph.passes.join_views",
         because="patterns need not know Squeeze, Flatten and their like"),
    Rule("common_subexpressions", PASS, "vklab.graph.passes.common_subexpressions",
         because="patterns compare values by name"),
    Rule("merge_pads", PASS, "vklab.graph.passes.merge_pads", needs=("Pad",),
         because="a convolution pads by itself"),
    Rule("open_quantized", PASS, "vklab.graph.passes.open_quantized",
         needs=("QLinearConv", "QLinearMatMul"), because="later passes know one form of a product"),
    Rule("move_quantization", PASS, "vklab.graph.passes.move_quantization",
         needs=("DequantizeLinear",), because="a product then finds the codes that it reads"),
    Rule("fuse_quantized", PASS, "vklab.graph.passes.fuse_quantized", needs=("DequantizeLinear",),
         because="a product of codes needs no floats in between"),
    Rule("join_words", PASS, "vklab.graph.passes.join_words", needs=("UnpackWords",),
         because="codes stay packed between two products"),
    Rule("fuse_sums", PASS, "vklab.graph.passes.fuse_sums", needs=("AddWords",),
         because="a sum of codes is part of the product before it"),
    Rule("fuse_dynamic", PASS, "vklab.graph.passes.fuse_dynamic", needs=("DynamicQuantizeLinear",),
         because="scales that a run measures are used where they are made"),
    Rule("fuse_layer_norm", PASS, "vklab.graph.passes.fuse_layer_norm", needs=("ReduceMean",),
         groups=("norm patterns",), because="before RMSNorm, a smaller pattern inside it"),
    Rule("fuse_rms_norm", PASS, "vklab.graph.passes.fuse_rms_norm", needs=("ReduceMean",),
         groups=("norm patterns",), because="a norm reads its row once"),
    Rule("fuse_gelu", PASS, "vklab.graph.passes.fuse_gelu", needs=("Erf", "Tanh"),
         groups=("gelu pattern",), because="five nodes are one function"),
    Rule("fuse_rotary", PASS, "vklab.graph.passes.fuse_rotary", needs=("Neg",),
         because="a rotation reads its row once"),
    Rule("fuse_attention", PASS, "vklab.graph.passes.fuse_attention",
         needs=("Softmax", "Attention"), groups=("one attention",),
         because="scores need not be in memory"),
    Rule("join_products", PASS, "vklab.graph.passes.join_products", needs=("RotaryEmbedding",),
         groups=("joint products",), because="after fuse_rotary, whose nodes it looks for"),
    Rule("fold_batch_norm", PASS, "vklab.graph.passes.fold_batch_norm", needs=("Mul", "Add"),
         because="after every exact pass: it changes rounding"),
    Rule("drop_dead_nodes", PASS, "vklab.graph.passes.drop_dead_nodes",
         because="after passes that leave nodes unread"),
    Rule("widen_weights", PASS, "vklab.graph.passes.widen_weights", needs=("DequantizeLinear",),
         because="what integer products use is gone by now"),
    Rule("patches", LAYOUT, "vklab.graph.passes.patches", on=GPU, needs=("Conv",),
         because="before channels_last, which converts other convolutions"),
    Rule("spread_sums", LAYOUT, "vklab.graph.passes.spread_sums", on=GPU, needs=("Concat",),
         because="a product of parts is a sum of products"),
    Rule("join_heads", LAYOUT, "vklab.graph.passes.join_heads", on=GPU, needs=("Attention",),
         because="attention reads the heads where they lie"),
    Rule("fewer_rows", LAYOUT, "vklab.graph.passes.fewer_rows", on=GPU, needs=("Slice",),
         because="rows that nobody reads need not be computed"),
    Rule("channels_last", LAYOUT, "vklab.graph.passes.channels_last", on=GPU, needs=("Conv",),
         groups=("channels last",), because="last: lanes read neighbouring channels at once"),
    Rule("to_float16", DTYPE, "vklab.graph.passes.to_float16",
         because="derived weights are rounded once, and no casts are inside patterns"),
    Rule("fuse_chains", FUSION, "vklab.plan.fusion.chains", groups=("chains",),
         because="first: what is left of element-wise work is one expression"),
    Rule("fuse_epilogues", FUSION, "vklab.plan.fusion.epilogues", groups=("epilogues",),
         because="results are used before they are stored"),
    Rule("fuse_conv_pools", FUSION, "vklab.plan.fusion.conv_pools", on=GPU, needs=("pool",),
         groups=("convolutions with maxima",), because="after epilogues: a ReLU in between is one"),
    Rule("fuse_depthwise_norms", FUSION, "vklab.plan.fusion.depthwise_norms",
         needs=("normalize",), because="after epilogues: an activation in between stays one"),
    Rule("fuse_squeezes", FUSION, "vklab.plan.fusion.squeezes", on=GPU, needs=("matmul",),
         because="after epilogues: what lies between the products is one"),
    Rule("fuse_gates", FUSION, "vklab.plan.fusion.block_products", needs=BLOCKS,
         because="after epilogues: the gate is applied by one of the products"),
    Rule("gate_rows", FUSION, "vklab.plan.fusion.block_products", needs=BLOCKS,
         because="after epilogues, for rows that share weights"),
    Rule("fuse_norms", FUSION, "vklab.plan.fusion.block_products", needs=BLOCKS,
         because="after gates: fewer products repeat the norm"),
    Rule("join_rows", FUSION, "vklab.plan.fusion.same_rows", needs=BLOCKS,
         because="after norms: products that repeat one norm read the same rows"),
    Rule("fuse_prologues", FUSION, "vklab.plan.fusion.prologues", groups=("prologues",),
         because="after epilogues, which store a result transposed at no cost"),
    Rule("read_strided", FUSION, "vklab.plan.fusion.operands", needs=MOVES,
         groups=("strided reads",),
         because="after epilogues, which store a result transposed at no cost"),
    Rule("join_attention", FUSION, "vklab.plan.fusion.attention", on=GPU,
         needs=("attention_weights",), groups=("one attention",),
         because="after read_strided: the joint kernel reads the same strides"),
    Rule("place_parts", FUSION, "vklab.plan.fusion.parts", needs=MOVES,
         because="for copies that no fusion above has removed"),
    Rule("join_siblings", FUSION, "vklab.plan.fusion.siblings", groups=("siblings",),
         because="dispatches beside each other are launched as one"),
    Rule("round_rows", FUSION, "vklab.plan.fusion.block_products", needs=BLOCKS,
         because="after all that changes what reads and writes rows"),
    Rule("use_native_halves", FUSION, "vklab.plan.fusion.native_halves",
         groups=("halves of the device",), because="last: it marks what the texts will be"),
    Rule("row_chains", CHAIN, "vklab.plan.tuning.rows.row_chains", "join", on=GPU,
         groups=("products in turn",), because="several products of one row take one launch"),
    Rule("matrix_attention", KERNEL, "vklab.plan.tuning.attention.matrix_attention", "choose",
         needs=("attention", "cache_attention", "cache_combine", "sample_draw"),
         groups=("matrix units",), because="matrix units compute scores and sums of values"),
    Choice("matrix_cache", GPU, ("matrix units", "attention of a prompt"),
           "matrix units for many queries over a cache"),
    Choice("direct", GPU, ("attention of few keys",), "few keys stay in registers"),
    Rule("elements", KERNEL, "vklab.plan.tuning.rows.elements", "choose", on=GPU, needs=MOVES,
         groups=("wide elements",), because="an invocation moves 16 bytes"),
    Rule("row_registers", KERNEL, "vklab.plan.tuning.rows.row_registers", "load_ahead", on=GPU,
         needs=("arg_reduce", "reduce"), groups=("rows in registers",),
         because="loads do not wait for sums"),
    Rule("row_registers", KERNEL, "vklab.plan.tuning.rows.row_registers", "choose", on=GPU,
         needs=("normalize",), groups=("rows in registers",), because="a row is read once"),
    Rule("row_registers", KERNEL, "vklab.plan.tuning.rows.row_registers", "softmax", on=GPU,
         needs=("softmax",), groups=("rows in registers",), because="a row is read once"),
    Rule("last_pools", KERNEL, "vklab.plan.tuning.rows.last_pools", "choose",
         on=GPU, needs=("pool",),
         groups=("maxima with channels last",), because="lanes read neighbouring channels"),
    Rule("blocks", CODES, "vklab.plan.tuning.blocks.block_choices", "choose",
         needs=("matmul_nbits", *BLOCKS),
         groups=("weights in blocks",), because="sizes and layouts of weights in blocks"),
    Choice("shared_floats", GPU, ("a row in shared memory",),
           "a row of A is normalised once for a workgroup"),
    Rule("words", CODES, "vklab.plan.tuning.blocks.word_variants", "choose",
         needs=("conv_words", "depthwise_words"), groups=("convolutions of int8",),
         because="dot products of four bytes"),
    Rule("row_words", WORDS, "vklab.plan.tuning.blocks.word_tiles", "by_few_columns",
         on=GPU, needs=WORD,
         groups=("convolutions of int8",), because="few pixels: lanes share a sum"),
    Rule("matrix_words", WORDS, "vklab.plan.tuning.blocks.word_tiles", "on_matrix_units", on=GPU,
         needs=WORD, groups=("convolutions of int8",), because="matrix units sum int8"),
    Rule("dot_words", WORDS, "vklab.plan.tuning.blocks.word_tiles", "by_dots", on=GPU, needs=WORD,
         groups=("convolutions of int8",), because="tiles in shared memory, dot products"),
    Rule("words", WORDS, "vklab.plan.tuning.blocks.word_variants", "untiled", needs=WORD,
         because="last: it always applies"),
    Choice("winograd", "", ("winograd",), "a convolution of 3 x 3 takes 16 or 36 products"),
    Rule("depthwise", PRODUCT, "vklab.plan.tuning.products.plain_rows", on=CPU, needs=PLAIN,
         groups=("depthwise",), because="first: other rules are no gain for one filter a channel"),
    Rule("pairs", PRODUCT, "vklab.plan.tuning.products.pairs",
         on=CPU, needs=PLAIN, groups=("pairs",),
         because="an invocation computes two columns of several rows"),
    Rule("shared_rows", PRODUCT, "vklab.plan.tuning.products.plain_rows", on=CPU, needs=PLAIN,
         groups=("shared rows",), because="a workgroup reads each row once"),
    Rule("one_row", PRODUCT, "vklab.plan.tuning.products.row_products", on=GPU, needs=PLAIN,
         groups=("one and few rows",), because="first: tiles waste what one row leaves idle"),
    Rule("rows_at_once", PRODUCT, "vklab.plan.tuning.products.row_products", on=GPU, needs=PLAIN,
         groups=("one and few rows",), because="few rows read the weights once"),
    Rule("registers", PRODUCT, "vklab.plan.tuning.products.register_products", on=GPU, needs=PLAIN,
         groups=("matrix units", "products in registers"),
         because="matrix units, operands in registers"),
    Rule("sliced", PRODUCT, "vklab.plan.tuning.products.last_convs", on=GPU, needs=PLAIN,
         groups=("shared sums",), because="subgroups share a sum where results are few"),
    Rule("matrix_product", PRODUCT, "vklab.plan.tuning.products.tiled", on=GPU, needs=PLAIN,
         groups=("matrix units",), because="matrix units, operands in shared memory"),
    Rule("matrix_conv", PRODUCT, "vklab.plan.tuning.products.tiled", on=GPU, needs=PLAIN,
         groups=("matrix units",), because="the same for convolutions"),
    Rule("tiled", PRODUCT, "vklab.plan.tuning.products.tiled",
         on=GPU, needs=PLAIN, groups=("tiles",),
         because="tiles in shared memory, sums in registers"),
    Rule("few_rows", PRODUCT, "vklab.plan.tuning.products.plain_rows", on=GPU, needs=PLAIN,
         groups=("one and few rows",), because="last: for sizes that fill no tile"),
    Rule("registers", PRODUCT, "vklab.plan.tuning.products.register_products", "windows",
         on=GPU, needs=LAST,
         groups=("matrix units", "products in registers"),
         because="matrix units, operands in registers"),
    Rule("sliced", PRODUCT, "vklab.plan.tuning.products.last_convs", on=GPU, needs=LAST,
         groups=("shared sums",), because="subgroups share a sum where results are few"),
    Rule("matrix_last", PRODUCT, "vklab.plan.tuning.products.tiled", on=GPU, needs=LAST,
         groups=("matrix units",), because="matrix units, operands in shared memory"),
    Rule("tiled_last", PRODUCT, "vklab.plan.tuning.products.tiled", on=GPU, needs=LAST,
         groups=("tiles",), because="tiles in shared memory, sums in registers"),
    Rule("paired_last", PRODUCT, "vklab.plan.tuning.products.last_convs", "paired",
         on=GPU, needs=LAST,
         groups=("depthwise with channels last",),
         because="an invocation computes pairs of channels"),
    Choice("fours", GPU, ("results in fours",), "an epilogue takes four neighbours at once"),
    Choice("split_sums", GPU, ("split sums",), "parts of a sum fill a device that results do not"),
    Choice("unpack_ahead", GPU, ("weights ahead",),
           "weights are dequantised beside the products before their own"),
    Rule("inner_norms", NORM, "vklab.plan.tuning.rows.inner_norms", "join", on=GPU,
         needs=("normalize_registers",), groups=("norms in products",),
         because="a product norms the rows that it reads"),
    Rule("gated", GATE, "vklab.plan.tuning.products.gated", "join", on=GPU,
         needs=("conv_last_tiled", "matmul_registers"), groups=("gated products",),
         because="last: a product scales the channels that it reads"),
    Rule("no driver", STEP, "vklab.vulkan.driver_search", "no_driver",
         because="for the error of a machine without a driver"),
    Rule("explain an instance", STEP, "vklab.vulkan.driver_search", "explain",
         because="for the error of an instance that cannot be made"),
    Rule("import a model", STEP, "vklab.graph.onnx_import", "load_graph",
         because="a compiled model needs no onnx"),
    Rule("no model", STEP, "vklab.graph.other_formats", "no_onnx",
         because="for the error of a file in another format"),
    Rule("escape names", STEP, "vklab.graph.escaping", "escaped",
         because="for names that could be the planner's"),
    Rule("inline functions", STEP, "vklab.graph.local_functions", "inlined",
         because="for models with functions of their own"),
    Rule("read compiled", STEP, "vklab.runtime.compiled.saved", "read",
         because="for files that `vklab compile` wrote"),
    Rule("restore plans", STEP, "vklab.runtime.compiled.restore", "root",
         because="for the same, whose plans are in the file"),
    Rule("only outputs", STEP, "vklab.runtime.bound.chosen", "only",
         because="for `load(outputs=)`"),
    Rule("override defaults", STEP, "vklab.runtime.overrides", "Root",
         because="for inputs with a default"),
    Rule("device options", STEP, "vklab.runtime.many.device_options", "DeviceOptions",
         because="for several devices"),
    Rule("split devices", STEP, "vklab.runtime.many.split", "Split",
         because="for one model on several devices"),
    Rule("frames in flight", STEP, "vklab.runtime.many.frames", "Frames",
         because="for runs that are submitted"),
    Rule("overlap chunks", STEP, "vklab.runtime.many.overlap", "of",
         because="for models with chunks on device and host"),
    Rule("host chunks", STEP, "vklab.runtime.host", "HostChunk",
         because="for nodes on the host; it needs onnx"),
    Rule("evaluate a node", STEP, "vklab.runtime.host", "evaluate",
         because="for nodes whose inputs are known; it needs onnx"),
    Rule("control nodes", STEP, "vklab.runtime.control", "Control",
         because="for If, Loop and Scan"),
    Rule("profile once", STEP, "vklab.runtime.observe.profile", "once", because="for DEBUG=2"),
    Rule("share with CUDA", STEP, "vklab.runtime.cuda.sharing", "of",
         because="for tensors of PyTorch on the same GPU"),
    Rule("warn of the host", STEP, "vklab.runtime.observe.host_nodes", "warn_of",
         because="for sessions with nodes on the host"),
    Rule("check precision", STEP, "vklab.plan.tuning.precision", "check",
         because="for `load(precision=)`"),
    Rule("write fours", STEP, "vklab.plan.fusion.text.fours", "emit",
         because="for epilogues of four neighbours"),
    Rule("wide results", STEP, "vklab.plan.tuning.products.matrix_products", "wide",
         because="for sums in parts"),
    Rule("sizes of windows", STEP, "vklab.plan.tuning.products.last_convs", "sizes",
         because="for convolutions with channels last"),
    Rule("name a product", STEP, "vklab.plan.tuning.problems", "of",
         because="for choices that `vklab tune` has measured"),
    Rule("place nodes", STEP, "vklab.plan.place.split", "split", because="for several devices"),
    Rule("cut ranges", STEP, "vklab.plan.tuning.range_cutter", "cut",
         because="for tensors beyond maxStorageBufferRange"),
    Rule("trace sizes", STEP, "vklab.plan.templates.tracing", "trace",
         because="for models with upper bounds, at their second size"),
)  # fmt: skip


def step(name: str) -> Rule:
    """Return the row of a step by its name."""
    return next(rule for rule in stage(STEP) if rule.name == name)


def names() -> frozenset[str]:
    """Return the names of all rules and choices, as DISABLE_PASSES spells them."""
    return frozenset(row.name for row in RULES if row not in stage(STEP))


def check_names() -> None:
    """Raise PlanError for a name in DISABLE_PASSES that no row has."""
    known = {"all", *names()}
    unknown = sorted(settings.names("DISABLE_PASSES") - known)
    if unknown:
        raise PlanError(
            f"unknown pass {unknown[0]!r} in VKLAB_DISABLE_PASSES; choose from "
            f"{', '.join(sorted(known))}"
        )


def is_off(name: str) -> bool:
    """Tell whether DISABLE_PASSES leaves a rule or choice out."""
    return name in settings.names("DISABLE_PASSES")


@functools.cache
def stage(name: str) -> tuple[Rule, ...]:
    """Return all rules of a stage, in order."""
    return tuple(row for row in RULES if isinstance(row, Rule) and row.stage == name)


def enabled(name: str, is_cpu: bool, kinds: Collection[str] | None = None) -> tuple[Rule, ...]:
    """Return the rules of a stage for a device, without those that DISABLE_PASSES names.

    Args:
        name: the stage.
        is_cpu: whether the device is a CPU.
        kinds: the kernels that there are: rules that need others are left out; None: not looked at.
    """
    left_out = settings.names("DISABLE_PASSES")
    return tuple(
        rule
        for rule in stage(name)
        if rule.name not in left_out and rule.suits(is_cpu) and (kinds is None or rule.meets(kinds))
    )


def groups(is_cpu: bool) -> dict[str, str]:
    """Return for each group that a device meets the names of its rows, joined by commas."""
    found: dict[str, dict[str, None]] = {}
    for row in RULES:
        for group in row.groups:
            found.setdefault(group, {})[row.name] = None
    device = CPU if is_cpu else GPU
    met = {group for row in RULES for group in row.groups if row.on in ("", device)}
    return {group: ",".join(own) for group, own in found.items() if group in met}
