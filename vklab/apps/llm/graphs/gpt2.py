"""Build the graph of a GPT-2 model from a GGUF file, of the runtime's own operators.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners",
2019; ggml's names of tensors and metadata.
"""

from __future__ import annotations

import numpy as np

from vklab.apps.llm.graphs.build import BoundedCache, GraphBuild
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError
from vklab.graph.graph import Graph


def gpt2_graph(
    file: GgufFile,
    context: int | None = None,
    every_logit: bool = False,
    bounded: BoundedCache | None = None,
) -> Graph:
    """Return the graph of a model, with the inputs and outputs of `models.model_graph`.

    Args:
        file: the GGUF file; its weights are not copied.
        context: the most positions; default the model's own, which is also the largest.
        every_logit: return the logits after every token, not after the last only.
        bounded: the form of a cache of `context` positions; None for a cache that grows.

    Raises ModelError for metadata or tensors that are missing or do not fit.
    """
    if file.text("general.architecture") != "gpt2":
        raise ModelError(f"{file.name} holds no GPT-2 model")
    layers, width, heads, most = (
        file.size(key)
        for key in ("block_count", "embedding_length", "attention.head_count", "context_length")
    )
    epsilon = float(file.number("gpt2.attention.layer_norm_epsilon"))
    if width % heads or layers > len(file.tensors) or not 0 < epsilon < 1:
        raise ModelError(
            f"{file.name}: {layers} layers of {width} elements, {heads} heads and "
            f"epsilon {epsilon} do not fit {len(file.tensors)} tensors"
        )
    if not 1 <= (context or most) <= most:
        raise ModelError(f"{file.name} is trained for {most} positions, not for {context}")
    for key, plain in (
        ("head_count_kv", heads),
        ("key_length", width // heads),
        ("value_length", width // heads),
    ):
        if (given := file.size(f"attention.{key}", plain)) != plain:
            raise ModelError(f"{file.name}: {key} is {given}; GPT-2 has {plain}")
    made = GraphBuild(file, context or most, bounded)
    x = made.add(
        "Add",
        made.embed("token_embd.weight", None, width, "tokens"),
        made.embed("position_embd.weight", most, width, made.positions),
    )
    sizes = made.constant("sizes", np.full(3, width, np.int64))
    for layer in range(layers):
        part = f"blk.{layer}."
        y = made.project(
            _norm(made, x, f"{part}attn_norm", width, epsilon),
            f"{part}attn_qkv.weight",
            3 * width,
            width,
        )
        q = made.add("Split", y, sizes, outputs=3, axis=-1)
        y = made.attention((q, f"{q}.1", f"{q}.2"), layer, heads, heads, width // heads)
        x = made.add("Add", x, made.project(y, f"{part}attn_output.weight", width, width))
        hidden = file.tensor(f"{part}ffn_up.weight").shape[0]
        y = made.project(
            _norm(made, x, f"{part}ffn_norm", width, epsilon), f"{part}ffn_up.weight", hidden, width
        )
        y = made.add("Gelu", y, approximate="tanh")
        x = made.add("Add", x, made.project(y, f"{part}ffn_down.weight", width, hidden))
    x = _norm(made, x if every_logit else made.last(x), "output_norm", width, epsilon)
    made.project(x, made.head, file.tensor("token_embd.weight").shape[0], width, to="logits")
    return made.graph()


def _norm(made: GraphBuild, x: str, name: str, width: int, epsilon: float) -> str:
    scale, bias = (made.vector(f"{name}.{part}", width) for part in ("weight", "bias"))
    return made.add("LayerNormalization", x, scale, bias, epsilon=epsilon)
