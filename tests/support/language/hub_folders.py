"""Folders as Hugging Face stores models, of tiny models with random weights, written by hand.

A folder's tensors have the order that Hugging Face uses: Llama's rotary embeddings rotate element i
with i + half, as Qwen2's do, and GPT-2's matrices are transposed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from support.language import gpt2_models, llama_models
from support.language.vocabularies import MERGES, SPECIAL
from vklab.apps.llm.tokens.hugging_face_steps import SPLITS
from vklab.apps.llm.tokens.tokenizer import LETTERS
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.apps.quantization import blocks

NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
GPT2_NAMES = {
    "token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}  # fmt: skip


def write_folder(folder: Path, kind: str, parts: int = 1, **config) -> GgufFile:
    """Write a folder, and return the model with the same weights as Hugging Face orders them.

    Args:
        folder: the folder, which is made.
        kind: llama, qwen2, qwen3 or gpt2.
        parts: the number of files of weights.
        config: entries of config.json to change.
    """
    if kind == "gpt2":
        model = gpt2_models.tiny_gpt2(vocabulary=300)
    else:
        # Half apart: the architecture of the reference tells how to rotate.
        model = llama_models.tiny_model(
            "qwen3" if kind == "qwen3" else "qwen2", tied=False, kinds={"": "F32"}, vocabulary=300
        )
    folder.mkdir()
    tensors = {}
    for name, tensor in model.tensors.items():
        values = blocks.dequantize(tensor.block_type, tensor.data).reshape(tensor.shape)
        is_swapped = kind == "gpt2" and name.startswith("blk.") and values.ndim == 2
        tensors[hub_name(name, kind)] = values.T if is_swapped else values
    write_weights(folder, tensors, parts)
    known = {**(gpt2_config() if kind == "gpt2" else llama_config(kind)), **config}
    (folder / "config.json").write_text(json.dumps(known))
    write_tokenizer(folder, "gpt-2" if kind == "gpt2" else "qwen2")
    return model


def hub_name(name: str, kind: str) -> str:
    """Return Hugging Face's name of a tensor."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    layer, stem, ending = match.groups()
    if kind == "gpt2":
        return f"transformer.{f'h.{layer}.' if layer else ''}{GPT2_NAMES[stem]}.{ending}"
    return f"{f'model.layers.{layer}.' if layer else ''}{NAMES[stem]}.{ending}"


def llama_config(kind: str) -> dict:
    """Return config.json of `llama_models.tiny_model`."""
    return {
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": llama_models.EPSILON,
        "vocab_size": 300,
        "eos_token_id": 1,
    }


def gpt2_config() -> dict:
    """Return config.json of `gpt2_models.tiny_gpt2`."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "n_embd": 64,
        "n_layer": 2,
        "n_head": gpt2_models.HEADS,
        "n_positions": 32,
        "vocab_size": 300,
        "layer_norm_epsilon": gpt2_models.EPSILON,
        "eos_token_id": 1,
    }


def write_weights(folder: Path, tensors: dict[str, np.ndarray], parts: int = 1) -> None:
    """Write SafeTensors: one file, or several with an index."""
    names = list(tensors)
    groups = [names[part::parts] for part in range(parts)]
    files = (
        ["model.safetensors"]
        if parts == 1
        else [f"model-{part + 1:05}-of-{parts:05}.safetensors" for part in range(parts)]
    )
    for file, group in zip(files, groups, strict=True):
        header, data = {}, b""
        for name in group:
            raw = np.ascontiguousarray(tensors[name], "<f4").tobytes()
            header[name] = {
                "dtype": "F32",
                "shape": tensors[name].shape,
                "data_offsets": [len(data), len(data) + len(raw)],
            }
            data += raw
        text = json.dumps(header).encode()
        (folder / file).write_bytes(len(text).to_bytes(8, "little") + text + data)
    if parts > 1:
        index = {name: file for file, group in zip(files, groups, strict=True) for name in group}
        text = json.dumps({"weight_map": index})
        (folder / "model.safetensors.index.json").write_text(text)


def byte_level(family: str) -> dict:
    """Return the object of tokenizer.json with the vocabulary of `vocabularies.byte_bpe`."""
    merges = [merge.split(" ") for merge in MERGES]
    words = (*LETTERS, *("".join(pair) for pair in merges))
    plain = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    splits = {
        "gpt-2": plain,
        "smollm": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, plain],
        },
        **{
            name: {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"},
                    {**plain, "use_regex": False},
                ],
            }
            for pattern, name in SPLITS.items()
        },
    }
    added = [
        {"id": number, "content": text, "special": number < 2}
        for number, text in enumerate((*SPECIAL, "<tool>"))
    ]
    return {
        "model": {
            "type": "BPE",
            "merges": merges,
            "vocab": {text: number for number, text in enumerate(words, 3)},
        },
        "added_tokens": added,
        "pre_tokenizer": splits[family],
        "normalizer": {"type": "NFC"},
        "post_processor": {"type": "ByteLevel"},
    }


def sentence_piece() -> dict:
    """Return the object of tokenizer.json with the vocabulary of `vocabularies.sentencepiece`.

    Its merges have the order of the scores there: "ba" before "ab" before "▁ab".
    """
    texts = (
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "ab",
        "▁ab",
        "ba",
        "c",
    )
    return {
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "merges": ["b a", "a b", "▁ ab"],
            "vocab": {text: number for number, text in enumerate(texts)},
        },
        "added_tokens": [{"id": n, "content": texts[n], "special": True} for n in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        },
    }


def write_tokenizer(folder: Path, family: str, **settings) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    Args:
        folder: the folder.
        family: "llama" for SentencePiece, or the name of a split.
        settings: entries of tokenizer_config.json.
    """
    is_spm = family == "llama"
    given = sentence_piece() if is_spm else byte_level(family)
    (folder / "tokenizer.json").write_text(json.dumps(given), "utf-8")
    known = {
        "bos_token": "<s>" if is_spm else SPECIAL[0],
        "eos_token": {"content": "</s>" if is_spm else SPECIAL[1]},
        **settings,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(known), "utf-8")
