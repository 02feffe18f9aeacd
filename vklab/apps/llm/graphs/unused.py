"""Entries and tensors of a GGUF file that nothing reads: refused, known, or named by a warning.

An entry or a tensor that changes the numbers and is not used is refused by name. One of `KNOWN`
changes no number. Every other one is unknown, and named once.
Source: llama.cpp, src/llama-arch.cpp, src/llama-model.cpp and src/llama-context.cpp (MIT).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from vklab.apps.llm.weights.gguf import GgufFile
from vklab.apps.llm.weights.noted import noted, require, short
from vklab.errors import ModelError, UnusedWarning

SHOWN = 6
# Entries of the whole file, and the values with which the file is a model in one piece.
WHOLE = {"general.type": ("model",), "split.count": (0, 1)}
# Entries of an architecture that change its numbers, and the values that change none.
CHANGES: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,), "use_parallel_residual": (False,), "swin_norm": (False,),
    **dict.fromkeys(("logit_scale", "residual_scale", "embedding_scale", "rope.scaling.alpha",
                     "full_attention_interval"), (0, 1)),
    "rope.scaling.yarn_ext_factor": (0, -1), "rope.scaling.yarn_attn_factor": (1, -1),
    **dict.fromkeys((
        "expert_count", "nextn_predict_layers", "n_deepstack_layers",
        "embedding_length_per_layer_input", "attn_logit_softcapping", "final_logit_softcapping",
        "attention.clamp_kqv", "attention.max_alibi_bias", "attention.output_scale",
        "attention.temperature_length", "attention.temperature_scale", "attention.q_lora_rank",
        "attention.kv_lora_rank", "attention.shared_kv_layers", "rope.dimension_sections",
        "swiglu_clamp_exp", "swiglu_clamp_shexp", "activation_sparsity_scale",
        "rescale_every_n_layers", "token_shift_count"), (0,)),
}  # fmt: skip
# Tensors of a language model; others, as those of a vision encoder, may stand beside them.
_TENSOR = re.compile(r"(blk\.|output|token_|position_embd|rope_|per_layer_|altup_)")
_GGML = r"tokenizer\.ggml\."
# Patterns of entries that change no number, with the reason; `{}` is the architecture. What they
# depend on is checked: there are no experts, no YaRN, no window within the context.
KNOWN = {
    r"general\.alignment": "the reader of tensors has used it",
    r"general\.sampling\..*": "a recommendation; options of sampling decide",
    r"general\.(?!quantization_version).*|quantize\.imatrix\..*": "describes the file",
    r"split\.(no|tensors\.count)": "the file is whole",
    r"{}\.(vocab_size|feed_forward_length)": "the shapes of the tensors tell it",
    r"{}\.tensor_data_layout": "the architecture tells it",
    r"{}\.rope\.scaling\.(original_context_length|finetuned|yarn_.*)": "of YaRN, which is not used",
    r"{}\.(experts?|moe|leading_dense|interleave_moe|router)_.*": "of experts, which it lacks",
    r"{}\.(.*_swa|attention\.sliding_window_pattern)": "of a window, which is not used",
    _GGML + r"(padding|mask|sepe?a?rator|cls|prefix|suffix|middle|fim_\w+)_token_id":
        "names a token that no prompt needs",
    _GGML + r"token_type_count": "of BERT",
    _GGML + r"pre": "SentencePiece splits no words before",
    r"tokenizer\.chat_templates?(\..+)?": "one template is used; --template takes another",
    r"tokenizer\.(huggingface\.json|rwkv\.world)": "another form of the vocabulary",
}  # fmt: skip


@dataclass(frozen=True)
class Unused:
    """An entry or a tensor that nothing reads.

    Attributes:
        name: its name.
        value: its value, or the format and shape of a tensor, as short text.
        reason: why it changes no number; "" if nothing is known of it.
    """

    name: str
    value: str
    reason: str


def require_model(file: GgufFile) -> None:
    """Raise ModelError for a file that is an adapter, or one part of a model."""
    for key, plain in WHOLE.items():
        require(
            file.metadata,
            key,
            plain,
            file.name,
            "is a model in one piece: merge an adapter "
            "into its model, and parts by `llama-gguf-split --merge`",
        )


def require_known(file: GgufFile) -> None:
    """Raise ModelError for an entry that changes a model's numbers in a way that vklab lacks."""
    family = file.text("general.architecture")
    for key, plain in CHANGES.items():
        require(file.metadata, f"{family}.{key}", plain, file.name)


def require_attention(file: GgufFile, head: int, context: int) -> None:
    """Raise ModelError for attention with another scale, or within a window.

    Args:
        file: the file.
        head: the elements of a head.
        context: the most positions.
    """
    family = file.text("general.architecture")
    scale = file.number(f"{family}.attention.scale", 0)
    if scale and not math.isclose(scale, head**-0.5, rel_tol=1e-5):
        raise ModelError(
            f"{file.name}: metadata '{family}.attention.scale' is {scale}; vklab has "
            f"only {head**-0.5:g}, for heads of {head}"
        )
    window = file.number(f"{family}.attention.sliding_window", 0)
    if 0 < window < context:
        raise ModelError(
            f"{file.name}: metadata '{family}.attention.sliding_window' is {window}; "
            f"vklab has no attention within a window, so choose a context of {window} "
            f"at most, not {context}"
        )


def require_read(file: GgufFile) -> None:
    """Raise ModelError for tensors of a language model that its graph does not read."""
    left = [name for name in noted(file.tensors).unread if _TENSOR.match(name)]
    if left:
        raise ModelError(
            f"{file.name}: no layer of a {file.text('general.architecture')!r} model "
            f"reads {_listed(left)}; without them its numbers are wrong"
        )


def entries(file: GgufFile) -> tuple[Unused, ...]:
    """Return what nothing has read of a file so far; the unknown comes first.

    Entries of a tokenizer count only if the vocabulary was read.
    """
    family = file.text("general.architecture")
    has_words = "tokenizer.ggml.model" in noted(file.metadata).read
    found = [
        Unused(key, short(value), _reason(key, value, family))
        for key, value in noted(file.metadata).unread.items()
        if has_words or not key.startswith("tokenizer.")
    ]
    found += [
        Unused(name, str(tensor).removeprefix(f"{name}: "), "")
        for name, tensor in noted(file.tensors).unread.items()
    ]
    return tuple(sorted(found, key=lambda each: bool(each.reason)))


def warn(file: GgufFile) -> None:
    """Warn, once for a file, of entries and tensors that nothing reads and nothing is known of."""
    unknown = [f"{each.name} ({each.value})" for each in entries(file) if not each.reason]
    notes = noted(file.metadata)
    if unknown and not notes.is_told:
        notes.is_told = True
        UnusedWarning.issue(
            f"{file.name}: nothing reads {_listed(unknown)}; results may differ "
            f"from other programs'. `vklab gguf {file.name} --unused` lists all"
        )


def _reason(key: str, value: Any, family: str) -> str:
    for pattern, reason in KNOWN.items():
        if re.fullmatch(pattern.replace("{}", re.escape(family)), key):
            return reason
    if key == "general.quantization_version" and value == 2:
        return "describes the file"
    is_off = value is False or (not isinstance(value, (bool, int, float)) and len(value) == 0)
    return "it is off" if is_off and key.startswith("tokenizer.") else ""


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
