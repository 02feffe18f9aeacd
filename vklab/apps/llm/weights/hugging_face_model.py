"""Sizes and names of a model in Hugging Face's folder, as GGUF has them.

Source: llama.cpp, conversion/ (MIT).
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from vklab.apps.llm.weights.gguf import Value
from vklab.apps.llm.weights.noted import Noted, require, short
from vklab.errors import ModelError

# The architecture in GGUF by the class that config.json names.
ARCHITECTURES = {
    "LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3",
    "GPT2LMHeadModel": "gpt2",
}  # fmt: skip
# Names of tensors: a pattern of Hugging Face's, and ggml's name. `{}` is the layer.
_LLAMA = {
    r"model\.embed_tokens": "token_embd", r"model\.norm": "output_norm", "lm_head": "output",
    r"model\.layers\.(\d+)\.input_layernorm": "blk.{}.attn_norm",
    r"model\.layers\.(\d+)\.post_attention_layernorm": "blk.{}.ffn_norm",
    **{rf"model\.layers\.(\d+)\.self_attn\.{theirs}": f"blk.{{}}.attn_{ours}"
       for theirs, ours in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"),
                            ("o_proj", "output"), ("q_norm", "q_norm"), ("k_norm", "k_norm"))},
    **{rf"model\.layers\.(\d+)\.mlp\.{name}_proj": f"blk.{{}}.ffn_{name}"
       for name in ("gate", "up", "down")},
}  # fmt: skip
_GPT2 = {
    "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output",
    **{rf"h\.(\d+)\.{theirs}": f"blk.{{}}.{ours}"
       for theirs, ours in (("ln_1", "attn_norm"), (r"attn\.c_attn", "attn_qkv"),
                            (r"attn\.c_proj", "attn_output"), ("ln_2", "ffn_norm"),
                            (r"mlp\.c_fc", "ffn_up"), (r"mlp\.c_proj", "ffn_down"))},
}  # fmt: skip
# Entries of config.json that change the numbers, and the values that can be converted.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "scale_attn_by_inverse_layer_idx": (False, None), "scale_attn_weights": (True, None),
    "use_sliding_window": (False, None), "layer_types": ("full_attention", None),
    "add_cross_attention": (False, None), "is_encoder_decoder": (False, None),
    "is_causal": (True, None), "use_bidirectional_attention": (False, None),
    "partial_rotary_factor": (1.0, None), "rope_interleaved": (False, None),
    "quantization_config": (None,),
}  # fmt: skip
# Patterns of entries that change no number: of training and of generation, and what tensors tell.
_KNOWN = re.compile(
    r"_?name_or_path|_?attn_implementation|model_type|(torch_)?dtype|transformers[._]\w+|"
    r"unsloth_\w+|is_llama_config|initializer_range|use_cache|\w*dropout|\w+_pdrop|summary_\w+|"
    r"pretraining_tp|(attention|mlp)_bias|reorder_and_upcast_attn|n_ctx|vocab_size|sliding_window|"
    r"max_window_layers|(bos|eos|pad|sep)_token_id|task_specific_params|id2label|label2id|"
    r"problem_type|(max|min)_length|num_(beams|beam_groups|return_sequences)|temperature|"
    r"top_[kp]|typical_p|(repetition|length|diversity)_penalty|chunk_size_feed_forward"
)


class HubModel:
    """Sizes of a model by config.json, which has other names in each family."""

    def __init__(self, config: Noted, owner: str) -> None:
        found = config.get("architectures")
        name = found[0] if isinstance(found, list) and found else None
        if name not in ARCHITECTURES:
            raise ModelError(
                f"{owner} holds a {name!r} model; {', '.join(ARCHITECTURES)} can be converted"
            )
        self.kind = ARCHITECTURES[name]
        self.owner, self._config = owner, config
        self.is_gpt2 = self.kind == "gpt2"
        self.is_tied = bool(config.get("tie_word_embeddings", self.is_gpt2))
        self.heads = self.number("n_head" if self.is_gpt2 else "num_attention_heads")
        self.kv_heads = int(config.get("num_key_value_heads") or self.heads)
        self.layers = self.number("n_layer" if self.is_gpt2 else "num_hidden_layers")
        width = self.number("n_embd" if self.is_gpt2 else "hidden_size")
        self.width, self.head = width, int(config.get("head_dim") or width // self.heads)
        act = (
            {"activation_function": ("gelu_new", "gelu_pytorch_tanh")}
            if self.is_gpt2
            else {"hidden_act": ("silu", "swish")}
        )
        for key, plain in {**act, **_PLAIN}.items():
            require(config, key, plain, f"{owner}: config.json", "can be converted")
        self.scaling = self._scaling()
        older = self.scaling.get("type")
        self.scaling_kind = self.scaling.get("rope_type") or older or "default"
        if self.scaling_kind not in ("default", "linear", "llama3"):
            raise ModelError(
                f"{owner} scales rotary embeddings by {self.scaling_kind!r}; 'linear' "
                "and 'llama3' are known"
            )
        where = f"{owner}: config.json, rotary embeddings"
        require(self.scaling, "partial_rotary_factor", (1.0, None), where, "can be converted")
        if self.scaling_kind == "default":
            require(
                self.scaling,
                "factor",
                (1.0, None),
                f"{where} of no type",
                "changes nothing; add rope_type",
            )

    def _scaling(self) -> Noted:
        """Return how rotary embeddings are scaled; ModelError if layers differ."""
        found = Noted()
        for name in ("rope_scaling", "rope_parameters"):
            given = self._config.get(name) or {}
            if not isinstance(given, dict):
                raise ModelError(f"{self.owner}: config.json has {name}={given!r:.40}, no object")
            found.update(given)
        kinds = [key for key, value in found.items() if isinstance(value, dict)]
        if kinds:
            raise ModelError(
                f"{self.owner}: config.json has rotary embeddings for each of "
                f"{', '.join(kinds)}; one for all layers can be converted"
            )
        return found

    def number(self, key: str) -> int:
        """Return a size of config.json; ModelError if it is missing or none."""
        value = self._config.get(key)
        if type(value) is not int or value < 1:
            raise ModelError(f"{self.owner}: config.json has {key}={value!r:.40}, no size")
        return value

    def _real(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ModelError(
                f"{self.owner}: config.json has {key}={value!r:.40}, no number above 0"
            )
        return float(value)

    def left_out(self) -> list[str]:
        """Return the entries of config.json that nothing reads, and that may change the numbers."""
        left = {**self._config.unread, **self.scaling.unread}
        is_off = (None, False, "")
        return [
            f"{key}={short(value)}"
            for key, value in left.items()
            if value not in is_off and value not in ([], {}) and not _KNOWN.fullmatch(key)
        ]

    def metadata(self) -> dict[str, Value]:
        """Return the sizes as llama.cpp names them."""
        kind, config = self.kind, self._config
        names = (
            ("n_positions" if "n_positions" in config else "n_ctx", "layer_norm_epsilon")
            if self.is_gpt2
            else ("max_position_embeddings", "rms_norm_eps")
        )
        hidden = (
            (config.get("n_inner") or 4 * self.width)
            if self.is_gpt2
            else self.number("intermediate_size")
        )
        epsilon = "layer_norm_epsilon" if self.is_gpt2 else "layer_norm_rms_epsilon"
        found: dict[str, Value] = {
            "general.architecture": kind,
            "general.type": "model",
            f"{kind}.block_count": self.layers,
            f"{kind}.context_length": self.number(names[0]),
            f"{kind}.embedding_length": self.width,
            f"{kind}.feed_forward_length": hidden,
            f"{kind}.attention.head_count": self.heads,
            f"{kind}.attention.{epsilon}": self._real(names[1], config.get(names[1])),
        }
        if self.is_gpt2:
            return found
        base = self.scaling.get("rope_theta", config.get("rope_theta", 10000.0))
        found |= {
            f"{kind}.attention.head_count_kv": self.kv_heads,
            f"{kind}.rope.freq_base": self._real("rope_theta", base),
        }
        if config.get("head_dim"):
            found |= {f"{kind}.attention.{part}_length": self.head for part in ("key", "value")}
        if kind == "llama":
            found |= {
                "llama.vocab_size": self.number("vocab_size"),
                "llama.rope.dimension_count": self.head,
            }
        if self.scaling_kind == "linear":
            found |= {
                f"{kind}.rope.scaling.type": "linear",
                f"{kind}.rope.scaling.factor": self._real("factor", self.scaling.get("factor")),
            }
        return found

    def rename(self, name: str) -> str:
        """Return ggml's name of a tensor; ModelError for one that no part of the graph reads."""
        stem, _, ending = name.removeprefix("transformer.").rpartition(".")
        for pattern, ours in (_GPT2 if self.is_gpt2 else _LLAMA).items():
            match = re.fullmatch(pattern, stem)
            if match and ending in ("weight", "bias"):
                if any(int(layer) >= self.layers for layer in match.groups()):
                    raise ModelError(
                        f"{self.owner} has a tensor {name!r}, but config.json has "
                        f"{self.layers} layers"
                    )
                return f"{ours.format(*match.groups())}.{ending}"
        raise ModelError(f"{self.owner} has a tensor {name!r}, which {self.kind} models lack")

    def arranged(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return a tensor's values as ggml orders them.

        GPT-2's matrices are transposed. Llama's rotary embeddings rotate neighbours, where
        Hugging Face's rotate element i with i + half: the rows of Q and K change places.
        """
        if self.is_gpt2:
            is_matrix = name.startswith("blk.") and values.ndim == 2
            return np.ascontiguousarray(values.T) if is_matrix else values
        part = re.fullmatch(r"blk\.\d+\.attn_([qk])\.(weight|bias)", name)
        if self.kind != "llama" or part is None:
            return values
        heads = self.heads if part[1] == "q" else self.kv_heads
        if len(values) != heads * self.head:
            raise ModelError(
                f"{self.owner}: {name} has {len(values)} rows, not {heads} heads of {self.head}"
            )
        pairs = values.reshape(heads, 2, self.head // 2, *values.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)

    def divisors(self) -> np.ndarray | None:
        """Return the divisor of each pair's frequency in Llama 3.1; None for other models."""
        if self.scaling_kind != "llama3":
            return None
        of = {
            key: self._real(key, self.scaling.get(key))
            for key in (
                "factor",
                "low_freq_factor",
                "high_freq_factor",
                "original_max_position_embeddings",
            )
        }
        base = self.scaling.get("rope_theta", self._config.get("rope_theta", 10000.0))
        lengths = 2 * math.pi * float(base) ** (np.arange(0, self.head, 2) / self.head)
        old, low = of["original_max_position_embeddings"], of["low_freq_factor"]
        smooth = (old / lengths - low) / (of["high_freq_factor"] - low)
        smooth = np.clip(smooth, 0, 1)  # 1: short waves, which stay; 0: long ones
        return (1 / ((1 - smooth) / of["factor"] + smooth)).astype(np.float32)
