"""Register every ONNX operator: one declarative function each, one module per family.

A module that is imported here registers its operators; a test finds one that is not. Pure data, no
GPU. Visited by lab 09.
"""

# isort: off
from vklab.ops import (
    activation, arg_reduction, arithmetic, attention, batch_norm, blocks, body, cache, cast,
    channels_last, class_scores, contrib_attention, contrib_linear, contrib_quantized,
    convolution, convolution_kinds, dtypes, einsum, elementwise, features, fusable, generate,
    indexing, inputs, integer_linear, label_encoder, layer_norm, linear, linear_attention,
    logical, loss, movement, normalization, own, padding, per_element, pooling, quantize,
    recurrent, reduction, registry, resize, rotary, rows, sampling, scan, select, shape, signal,
    suppression, tree_groups, tree_nodes, trees, window, words, words_product,
)  # fmt: skip
# isort: on

__all__ = ["activation", "arg_reduction", "arithmetic", "attention", "batch_norm", "blocks",
           "body", "cache", "cast", "channels_last", "class_scores", "contrib_attention",
           "contrib_linear", "contrib_quantized", "convolution", "convolution_kinds", "dtypes",
           "einsum", "elementwise", "features", "fusable", "generate", "indexing", "inputs",
           "integer_linear", "label_encoder", "layer_norm", "linear", "linear_attention",
           "logical", "loss", "movement", "normalization", "own", "padding", "per_element",
           "pooling", "quantize", "recurrent", "reduction", "registry", "resize", "rotary", "rows",
           "sampling", "scan", "select", "shape", "signal", "suppression", "tree_groups",
           "tree_nodes", "trees", "window", "words", "words_product"]
