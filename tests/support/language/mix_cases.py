"""Models whose matrices llama-quantize has stored in mixes of formats, and what it chose.

    PYTHONPATH=. python tests/support/language/mix_cases.py LLAMA_QUANTIZE

records mix_cases.json anew.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from support.graphs.small_models import DATA
from support.language import gpt2_models, llama_models
from vklab.apps.llm.weights.gguf import GgufFile, read_gguf
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.apps.llm.weights.mixes import MIXES
from vklab.apps.quantization import blocks

__all__ = ["CASES", "FACTS", "digest", "facts", "small"]

FACTS = Path(__file__).with_suffix(".json")


def small(layers: int, **more: Any) -> GgufFile:
    """Return a model with as many layers as a real one, of 256 elements a row unless said.

    All layers have the same weights.
    """
    sizes = {"width": 256, "hidden": 256, "kinds": {"": "F16"}} | more
    file = llama_models.tiny_model(layers=1, **sizes)
    return _deeper(file, layers)


def _deeper(file: GgufFile, layers: int) -> GgufFile:
    """Return a model of one layer with copies of it."""
    family = file.metadata["general.architecture"]
    tensors = {}
    for name, tensor in file.tensors.items():
        for layer in range(layers if name.startswith("blk.0.") else 1):
            copy = name.replace("blk.0.", f"blk.{layer}.")
            tensors[copy] = replace(tensor, name=copy)
    return replace(
        file, tensors=tensors, metadata={**file.metadata, f"{family}.block_count": layers}
    )


def _gpt2() -> GgufFile:
    file = gpt2_models.tiny_gpt2(256, layers=1)
    floats = {
        name: tensor
        if tensor.block_type != "Q8_0"
        else replace(
            tensor,
            block_type="F16",
            data=blocks.quantize("F16", blocks.dequantize("Q8_0", tensor.data)),
        )
        for name, tensor in file.tensors.items()
    }
    return _deeper(replace(file, tensors=floats), 12)


CASES: dict[str, Callable[[], GgufFile]] = {
    "novels_llama": lambda: read_gguf(DATA / "novels_llama.gguf"),
    "2 layers": lambda: small(2, tied=False, hidden=512),
    "as 1.1B": lambda: small(22, tied=False),
    "as 8B": lambda: small(32, tied=False),
    "as 70B": lambda: small(80, tied=False),
    "as 65B": lambda: small(80, kv_heads=4),
    "qwen2": lambda: small(80, architecture="qwen2"),
    "qwen2, rows of 96": lambda: small(24, architecture="qwen2", width=96, hidden=288),
    "qwen3, rows of 192": lambda: small(28, architecture="qwen3", width=192, hidden=256),
    "rows of 48": lambda: small(9, width=48, hidden=256, tied=False),
    "gpt2": _gpt2,
}


def facts(file: GgufFile) -> dict[str, Any]:
    """Return the names of a file's matrices by format, layers last, and a digest of all bytes."""
    kinds: dict[str, dict[str, list[int]]] = {}
    for name in sorted(file.tensors, key=_order):
        tensor = file.tensors[name]
        if len(tensor.shape) > 1:
            layer, part = _order(name)
            kinds.setdefault(tensor.block_type, {}).setdefault(part, []).append(layer)
    texts = {kind: [_text(*entry) for entry in parts.items()] for kind, parts in kinds.items()}
    return {"formats": texts, "sha256": digest(file)}


def _text(part: str, layers: list[int]) -> str:
    """Return a name and the layers that have it; -1 is none."""
    return " ".join([part, *(str(layer) for layer in layers if layer >= 0)])


def digest(file: GgufFile) -> str:
    """Return the SHA-256 of the bytes of all tensors, in the order of their names."""
    found = hashlib.sha256()
    for name in sorted(file.tensors):
        found.update(file.tensors[name].data.tobytes())
    return found.hexdigest()


def _order(name: str) -> tuple[int, str]:
    parts = name.split(".")
    return (int(parts[1]), ".".join(parts[2:])) if parts[0] == "blk" else (-1, name)


def main() -> int:
    """Record what llama-quantize makes of each model in each mix."""
    recorded: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.gguf", Path(folder) / "made.gguf"
        for name, build in CASES.items():
            file = build()
            family = file.metadata["general.architecture"]
            words = {
                f"{family}.vocab_size": file.tensors["token_embd.weight"].shape[0],
                "tokenizer.ggml.model": "none",
            }
            write_gguf(given, {**words, **file.metadata}, file.tensors.values())
            for mix in MIXES:
                line = [sys.argv[1], str(given), str(made), mix]
                ran = subprocess.run(line, capture_output=True, text=True)
                if ran.returncode:
                    raise SystemExit(f"{name}, {mix}: {ran.stderr[-2000:]}{ran.stdout[-2000:]}")
                recorded.setdefault(name, {})[mix] = facts(read_gguf(made))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(recorded[name])}" for name in recorded)
    FACTS.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
