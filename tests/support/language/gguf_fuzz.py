"""Damaged GGUF files of a language model: reader, tokenizer, graph and plan, without a device.

`python gguf_fuzz.py FOLDER FIRST COUNT` is a process of its own, as a native crash would end the
tests: before each file it leaves the file's bytes and seed in FOLDER. A seed gives the same file
every time.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from support.fakes.fake_device import fake_device
from support.language import llama_models, vocabularies, weight_files
from support.models import planned
from support.runs.fuzz import limit_memory
from vklab.apps.llm.graphs.models import model_graph
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import GgufFile, parse
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.errors import VklabError
from vklab.graph import passes, shapes

__all__ = ["damaged", "examine", "fuzz", "hurt", "whole"]

DEVICE = fake_device(features=frozenset({"shaderInt64"}))
HANG_SECONDS, MEMORY_BYTES, STEPS = 60, 3 << 30, 5
TEXT = "hello world, Größe 12345 \u65e5\u672c <|im_start|>\r\n\t "
VALUES: tuple[Any, ...] = (
    0, 1, 2, 3, 7, 255, 65537, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, -1, -(2**40), 0.0, -1.5, 0.5,
    float("nan"), float("inf"), 1e30, 1e-30, True, False, "", "llama", "gpt2", "qwen2", "qwen3",
    "smollm", "linear", "\x00", ("a",), ("", "a b", "\u00e9"), np.arange(3, dtype=np.int32),
    np.full(2, np.nan, np.float32), np.zeros(0, np.uint8),
)  # fmt: skip


def whole(kind: str, layers: int = 1) -> GgufFile:
    """Return an undamaged model with a vocabulary of a kind: "bpe" or "spm"."""
    words = vocabularies.byte_bpe() if kind == "bpe" else vocabularies.sentencepiece()
    count = len(words["tokenizer.ggml.tokens"])
    kinds = {"attn": "F16", "ffn": "Q5_1"}
    made = llama_models.tiny_model(
        layers=layers, vocabulary=count, kinds=kinds, **{"llama.rope.freq_base": 5e5}
    )
    return replace(made, metadata={**made.metadata, **words, "general.name": "tiny"})


def hurt(file: GgufFile, rng: np.random.Generator) -> GgufFile:
    """Return a file with one to three entries or tensors that are wrong, or missing."""
    metadata, tensors = dict(file.metadata), dict(file.tensors)
    for _ in range(rng.integers(1, 4)):
        key, name, other = (
            str(rng.choice(sorted(names))) for names in (metadata, tensors, tensors)
        )
        value = metadata[key]
        match rng.integers(0, 6):
            case 0:
                del metadata[key]
            case 1 | 2:
                metadata[key] = VALUES[rng.integers(len(VALUES))]
            case 3 if isinstance(value, tuple | np.ndarray) and len(value) > 1:
                order = rng.integers(0, len(value), rng.integers(1, len(value) + 2))
                metadata[key] = (
                    tuple(value[i] for i in order) if isinstance(value, tuple) else value[order]
                )
            case 4 if len(tensors) > 1:
                del tensors[name]
            case _:
                tensors[name] = replace(tensors[other], name=name)
    return replace(file, metadata=metadata, tensors=tensors)


def examine(data: bytes) -> str:
    """Return which parts refused a file, or "planned"; any other exception is a finding."""
    try:
        file = parse(data, "damaged.gguf")
    except VklabError as error:
        return _refusal("reader", error)
    parts = [part for part in (_encode(file), _plan(file)) if part]
    return " and ".join(parts) or "planned"


def _refusal(part: str, error: VklabError) -> str:
    assert len(str(error)) > 20, f"an error that says nothing: {error!r}"
    return f"refused by the {part}"


def _encode(file: GgufFile) -> str:
    try:
        tokenizer = Tokenizer(file)
        tokenizer.decode(tokenizer.encode(TEXT, parse_special=True), special=True)
    except VklabError as error:
        return _refusal("tokenizer", error)
    return ""


def _plan(file: GgufFile) -> str:
    at = "graph"
    try:
        graph = model_graph(file, every_logit=True)
        at = "plan"
        sizes = dict.fromkeys(shapes.unknown_dims(graph), STEPS) | {"batch": 1}
        planned.plan_graph(passes.run(shapes.infer(shapes.bind(graph, sizes))), DEVICE)
    except VklabError as error:
        return _refusal(at, error)
    return ""


def fuzz(folder: Path, first: int, count: int) -> dict[str, int]:
    """Examine damaged files, and return how often each outcome was.

    Args:
        folder: where the file in hand is left.
        first: the first seed.
        count: the number of files.
    """
    given, bases = [whole(kind) for kind in ("bpe", "spm")], []
    for file in given:
        write_gguf(folder / "whole.gguf", file.metadata, file.tensors.values())
        bases.append((folder / "whole.gguf").read_bytes())
        assert examine(bases[-1]) == "planned"
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(first, first + count):
        data = damaged(folder, seed, given[seed % 2], bases[seed % 2])
        (folder / "damaged.gguf").write_bytes(data)
        (folder / "seed.txt").write_text(str(seed))
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        counts[examine(data)] += 1
        faulthandler.cancel_dump_traceback_later()
    return dict(counts)


def damaged(folder: Path, seed: int, file: GgufFile, data: bytes) -> bytes:
    """Return a file of a seed: half have wrong bytes, half wrong entries or tensors."""
    if seed % 4 < 2:
        return weight_files.damaged(data, seed, len(data) - file.size_bytes)
    wrong = hurt(file, np.random.default_rng(seed))
    write_gguf(folder / "wrong.gguf", wrong.metadata, wrong.tensors.values())
    return (folder / "wrong.gguf").read_bytes()


if __name__ == "__main__":
    limit_memory(MEMORY_BYTES)
    print(json.dumps(fuzz(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
