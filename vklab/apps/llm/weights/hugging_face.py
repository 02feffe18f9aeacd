"""Convert a folder as Hugging Face stores models (config.json, SafeTensors) to a GGUF file.

Decides the formats of the tensors; `hugging_face_model` names them, and
`hugging_face_vocabulary` converts the tokenizer.
Source: llama.cpp, conversion/ (MIT).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.llm.tokens.hugging_face_vocabulary import vocabulary_metadata
from vklab.apps.llm.weights.gguf import Value
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.apps.llm.weights.hugging_face_model import HubModel
from vklab.apps.llm.weights.noted import read_json
from vklab.apps.llm.weights.safetensors import read_safetensors
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.errors import ModelError
from vklab.ops import blocks

Quantize = Callable[[str, np.ndarray], np.ndarray]

# The number that llama.cpp writes as general.file_type, by the format of the matrices.
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9,
              "Q4_K": 14, "Q5_K": 16, "Q6_K": 18, "BF16": 32}  # fmt: skip
# Tensors that are computed anew: masks and tables of angles.
_SKIPPED = re.compile(r"\.attn\.(masked_)?bias$|rotary_emb\.inv_freq$")


def convert(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], block_type: str = "F16",
    quantize: Quantize | None = None, progress: Callable[[int, int, str], None] | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Write a folder's model as a GGUF file, and return what is different from what was asked.

    Args:
        folder: config.json, tokenizer.json or tokenizer.model, and model.safetensors or its parts.
        path: the GGUF file.
        block_type: format of the matrices; a matrix whose rows are no whole blocks becomes Q8_0
            or F16, vectors stay F32.
        quantize: `vklab.quantization.blocks.quantize`; needed for formats of more than one element.
        progress: called with the tensors done, their number, and the name of the next one.

    Raises FileNotFoundError for a missing file, and ModelError for a model, a tokenizer or a
    tensor that the conversion does not know.
    """
    source = Path(folder)
    config = read_json(source / "config.json")
    model = HubModel(config, str(source))
    if block_type not in FILE_TYPES:
        raise ModelError(f"unknown block format {block_type!r}; choose {', '.join(FILE_TYPES)}")
    if quantize is None and blocks.FORMATS[block_type].elements > 1:
        raise ModelError(f"{block_type} needs a function that quantises")
    stored = _stored(source)
    notes: list[str] = []
    metadata: dict[str, Value] = {
        **model.metadata(),
        "general.name": source.resolve().name,
        "general.file_type": FILE_TYPES[block_type],
        "general.quantization_version": 2,
        **vocabulary_metadata(source, config, notes),
    }
    tensors = list(_tensors(model, stored, block_type, notes, quantize or _floats))
    if not model.is_tied and "output.weight" not in [tensor.name for tensor in tensors]:
        notes.append("there is no lm_head.weight, so the embedding makes the logits")
    if left := model.left_out():
        notes.append(f"config.json has {', '.join(left)}, which nothing uses")
    for number, tensor in enumerate(tensors):
        tensor.before = _step(progress, number, len(tensors), tensor.name)
    write_gguf(path, metadata, tensors)
    if progress:
        progress(len(tensors), len(tensors), "")
    return tuple(notes)


def _step(progress: Any, number: int, count: int, name: str) -> Callable[[], None]:
    return lambda: progress(number, count, name) if progress else None


@dataclass(eq=False)
class _Lazy:
    """A tensor of the new file, whose bytes are made when they are written."""

    name: str
    block_type: str
    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]
    before: Callable[[], None] = lambda: None

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the tensor in the file."""
        row = blocks.FORMATS[self.block_type].row_bytes(self.shape[-1])
        return math.prod(self.shape[:-1]) * row

    @property
    def data(self) -> np.ndarray:
        """Make the bytes."""
        self.before()
        return self.make()


def _stored(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a folder's SafeTensors files by name; their bytes stay in the files."""
    index = folder / "model.safetensors.index.json"
    names, parts = {"model.safetensors"}, {}
    if index.exists():
        parts = read_json(index).get("weight_map")
        if not isinstance(parts, dict) or not all(_is_plain(name) for name in parts.values()):
            raise ModelError(f"{index} has no weight_map from tensors to files beside it")
        names = set(parts.values())
    elif not (folder / "model.safetensors").exists():
        others = sorted(path.name for path in folder.glob("pytorch_model*.bin"))
        raise FileNotFoundError(
            f"there is no model.safetensors in {folder}"
            + (
                f"; save {others[0]} with save_pretrained(safe_serialization=True)"
                if others
                else ""
            )
        )
    found: dict[str, StoredTensor] = {}
    for name in sorted(names):
        for key, tensor in read_safetensors(folder / name).tensors.items():
            if key in found:
                raise ModelError(f"{folder}: tensor {key!r} stands in two files")
            found[key] = tensor
    if missing := sorted(parts.keys() - found.keys()):
        raise ModelError(
            f"{index} names {len(missing)} tensors that its files lack, first {missing[0]!r:.80}"
        )
    return found


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name and name not in ("", ".", "..")


def _tensors(
    model: HubModel, stored: Mapping[str, StoredTensor], block_type: str, notes: list[str],
    quantize: Quantize,
) -> Iterator[_Lazy]:  # fmt: skip
    """Yield the tensors of the new file; `notes` gets a line for each format that is not asked for.

    Args:
        model: the model's sizes and names.
        stored: the tensors of the folder.
        block_type: format of the matrices.
        notes: lines are added to it.
        quantize: turns float32 into blocks.
    """
    for name, tensor in stored.items():
        if _SKIPPED.search(name) or (name == "lm_head.weight" and model.is_tied):
            continue
        ours = model.rename(name)
        is_swapped = model.is_gpt2 and ours.startswith("blk.") and len(tensor.shape) == 2
        shape = tensor.shape[::-1] if is_swapped else tensor.shape
        # As llama.cpp: vectors, norms and the table of positions stay whole.
        is_whole = len(shape) == 1 or ours.startswith("position_embd")
        kind = "F32" if is_whole else _fitting(block_type, shape[-1])
        if not is_whole and kind != block_type:
            notes.append(f"{ours} is {kind}: its rows have {shape[-1]} elements")
        yield _Lazy(ours, kind, shape, _made(model, ours, tensor, kind, quantize))
    divisors = model.divisors()
    if divisors is not None:
        yield _Lazy("rope_freqs.weight", "F32", divisors.shape, lambda: _floats("F32", divisors))


def _made(
    model: HubModel, name: str, tensor: StoredTensor, kind: str, quantize: Quantize
) -> Callable[[], np.ndarray]:
    store = _floats if blocks.FORMATS[kind].elements == 1 else quantize
    return lambda: store(kind, model.arranged(name, _values(tensor)))


def _fitting(block_type: str, elements: int) -> str:
    """Return a format of which rows of some elements are whole blocks."""
    kinds = (block_type, "Q8_0", "F16")
    return next(kind for kind in kinds if not elements % blocks.FORMATS[kind].elements)


def _values(tensor: StoredTensor) -> np.ndarray:
    """Return a tensor of SafeTensors as float32."""
    raw = np.ascontiguousarray(tensor.data).reshape(-1)
    if tensor.block_type == "BF16":
        values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        dtype = "<f4" if tensor.block_type == "F32" else "<f2"
        values = raw.view(dtype).astype(np.float32)
    return values.reshape(tensor.shape)


def _floats(kind: str, values: np.ndarray) -> np.ndarray:
    """Return float32 values as bytes in F32, F16 or BF16, rounded to the nearest, ties to even."""
    if kind == "BF16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        raw = np.where(np.isnan(values), bits >> 16 | 64, rounded).astype("<u2")
    else:
        with np.errstate(over="ignore"):
            raw = np.ascontiguousarray(values, "<f4" if kind == "F32" else "<f2")
    return raw.view(np.uint8).reshape(*values.shape[:-1], -1)
