"""Mixes of block formats: which tensor of a file gets which format, as llama.cpp names and chooses.

A mix is data: a format for most matrices, and a longer one for those that lose most by rounding.
`requantize` converts the numbers.
Source: llama.cpp, src/llama-quant.cpp, llama_tensor_get_type (MIT).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vklab.apps.llm.graphs import models
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError
from vklab.ops import blocks

# Tells whether a layer has the longer format, from its number and the number of layers.
Layers = Callable[[int, int], bool]
TABLE, LOGITS = "token_embd.weight", "output.weight"
LONGEST, LOGITS_OF_32 = "Q6_K", "Q8_0"
# The format of rows that are no whole blocks of 256 elements; rows that are none of 32 become F16.
SHORTER = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
# Parts of the names of attn_v, alone or stored together with q and k, and of ffn_down.
VALUES, DOWN = ("attn_v.weight", "attn_qkv.weight"), ("ffn_down",)
# 80 layers whose heads share attn_v: its few bytes are worth more bits (llama.cpp's type 70B).
SHARED_LAYERS, SHARED = 80, {"Q4_K": "Q5_K"}


def _every_third(layer: int, layers: int) -> bool:
    """Tell whether a layer is in the first eighth, in the last, or a third one between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _first_four(layer: int, layers: int) -> bool:
    del layers
    return layer < 4


def _first_eighth(layer: int, layers: int) -> bool:
    return layer < layers // 8


@dataclass(frozen=True)
class Mix:
    """One mix: its number in `general.file_type`, and the formats of its matrices.

    Attributes:
        name: the name.
        file_type: llama.cpp's number of the mix.
        base: the format of all other matrices.
        longer: the longer format of attn_v and ffn_down.
        values: the layers whose attn_v has it.
        down: the layers whose ffn_down has it.
    """

    name: str
    file_type: int
    base: str
    longer: str = LONGEST
    values: Layers = field(default=lambda layer, layers: False, repr=False)
    down: Layers = field(default=lambda layer, layers: False, repr=False)


MIXES = {
    mix.name: mix
    for mix in (
        Mix("Q4_K_S", 14, "Q4_K", "Q5_K", _first_four, _first_eighth),
        Mix("Q4_K_M", 15, "Q4_K", LONGEST, _every_third, _every_third),
        Mix("Q5_K_S", 16, "Q5_K"),
        Mix("Q5_K_M", 17, "Q5_K", LONGEST, _every_third, _every_third),
    )
}


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Tell whether a tensor is stored in blocks: no vector, norm or table of positions."""
    return (
        len(shape) > 1
        and name.endswith("weight")
        and "_norm.weight" not in name
        and not name.startswith("position_embd")
    )


def of_file(file: GgufFile, mix: str) -> dict[str, str]:
    """Return the format of each matrix of a file, by name.

    Args:
        file: a model of one of the supported families.
        mix: a key of MIXES.

    Raises ModelError for another family, for which llama.cpp has other rules.
    """
    family = file.text("general.architecture")
    if family not in models.BUILDERS or file.metadata.get(f"{family}.expert_count", 0):
        raise ModelError(
            f"{file.name} holds a {family!r} model, perhaps with experts; {mix} is "
            f"known for {', '.join(models.BUILDERS)} without experts"
        )
    layers = int(file.number(f"{family}.block_count", 0))
    is_shared = layers == SHARED_LAYERS and (
        family == "qwen2"
        or (
            family == "llama"
            and (heads := file.size("attention.head_count"))
            != file.size("attention.head_count_kv", heads)
        )
    )
    columns = {
        name: tensor.shape[-1]
        for name, tensor in file.tensors.items()
        if is_matrix(name, tensor.shape)
    }
    return of_names(columns, mix, layers, is_shared)


def of_names(
    columns: Mapping[str, int], mix: str, layers: int, is_shared: bool = False
) -> dict[str, str]:
    """Return the format of each matrix of a model, by name.

    Args:
        columns: the elements of a row of each matrix, by the matrix's name.
        mix: a key of MIXES.
        layers: the number of layers.
        is_shared: whether it is a model of SHARED_LAYERS layers with fewer heads of values.
    """
    chosen = MIXES[mix]
    kinds: dict[str, str] = {}
    # llama.cpp numbers attn_v and ffn_down as it meets them, in the order of layers.
    values = sorted((name for name in columns if _is(name, VALUES)), key=_order)
    downs = sorted((name for name in columns if _is(name, DOWN)), key=_order)
    for name in columns:
        kind = chosen.base
        if name == LOGITS or (name == TABLE and LOGITS not in columns):
            whole = columns[name] % blocks.FORMATS[kind].elements == 0
            kind = LONGEST if whole else LOGITS_OF_32
        elif name in values:
            if chosen.values(values.index(name), len(values)):
                kind = chosen.longer
            kind = SHARED.get(kind, kind) if is_shared else kind
        elif name in downs and chosen.down(downs.index(name), layers):
            kind = chosen.longer
        kinds[name] = _fitting(kind, columns[name])
    return kinds


def _is(name: str, parts: tuple[str, ...]) -> bool:
    return any(part in name for part in parts)


def _order(name: str) -> tuple[int, str]:
    """Return a key that sorts tensors by layer, then by name."""
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1, name


def _fitting(kind: str, columns: int) -> str:
    """Return a format of which a row is whole blocks: this one, a shorter block, or F16."""
    for each in (kind, SHORTER.get(kind, kind)):
        if columns % blocks.FORMATS[each].elements == 0:
            return each
    return "F16"
