"""Core ML packages, read and executed without coremltools: programs as plain data, facts, outputs.

Visited by lab 15.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vklab.apps.compare import vulkan
from vklab.apps.compare.backend import ModelSource
from vklab.apps.compare.coreml import inspect, on_vulkan, package, program
from vklab.apps.compare.models import texts
from vklab_course import data

__all__ = ["SETS", "Facts", "as_data", "clue_lines", "facts_of", "held_out_texts", "opened",
           "page_counts", "run_package", "set_facts", "text_scores"]  # fmt: skip

FOLDER = "packages"
# What the letters of an exercise stand for, by set; the exercise shows no name.
SETS = {
    "first": ("unnamed/p1.mlmodel", "mini_classifier.mlpackage", "unnamed/p5.mlpackage"),
    "second": ("unnamed/p2.mlpackage", "unnamed/p4.mlpackage", "text_classifier.mlpackage"),
    "third": ("unnamed/p1.mlmodel", "unnamed/p3.mlpackage", "unnamed/p6.mlpackage"),
    "fourth": ("unnamed/p2.mlpackage", "unnamed/p5.mlpackage", "unnamed/p4.mlpackage"),
}


@dataclass(frozen=True)
class Facts:
    """Contents of a package, as far as they can be read without running it.

    Attributes:
        specification: the version of the specification.
        layers: whether the file holds a list of layers, and no program.
        inputs: name and dtype of each input.
        outputs: the dtype of each output.
        casts: the dtypes to which operators of the type cast lead, in their order.
        operators: the count of each operator, constants left out.
        size_bytes: bytes of all files.
    """

    specification: int
    layers: bool
    inputs: dict[str, str]
    outputs: tuple[str, ...]
    casts: tuple[str, ...]
    operators: dict[str, int]
    size_bytes: int


def as_data(path: Path) -> dict[str, Any]:
    """Return the program of a package as plain data: functions, blocks, operations.

    A function of a real package may have several versions of its block; ours have one.
    """
    functions = package.open_package(path).model.mlProgram.functions
    made = {}
    for name in functions:
        (block,) = functions[name].block_specializations.values()
        made[name] = _block(block)
    return {"functions": made}


def _block(block: Any) -> dict[str, Any]:
    operations = []
    for operation in block.operations:
        made: dict[str, Any] = {"type": operation.type}
        if operation.blocks:
            made["blocks"] = [_block(inner) for inner in operation.blocks]
        operations.append(made)
    return {"operations": operations}


def page_counts(program_data: Mapping[str, Any]) -> dict[str, int]:
    """Count operators as Lab 07's page does: every operation of the outer blocks."""
    kinds = [
        operation["type"]
        for block in program_data["functions"].values()
        for operation in block["operations"]
    ]
    return dict(collections.Counter(kinds))


def facts_of(path: Path) -> Facts:
    """Return the facts of a package or of a single file."""
    found = inspect.inspect(path)
    return Facts(
        found.version,
        found.kind == "neuralNetwork",
        {each.name: each.dtype for each in found.inputs},
        tuple(each.dtype for each in found.outputs),
        _casts(path),
        found.operators,
        found.size_bytes,
    )


def _casts(path: Path) -> tuple[str, ...]:
    """Return the dtype of each cast in the outer blocks of a package; () for layers."""
    found = []
    for function in package.open_package(path).model.mlProgram.functions.values():
        for block in function.block_specializations.values():
            named = {
                each.outputs[0].name: each.attributes["val"].immediateValue.tensor.strings.values
                for each in block.operations
                if each.type == "const"
            }
            for each in block.operations:
                if each.type == "cast":
                    (dtype,) = named[each.inputs["dtype"].arguments[0].name]
                    found.append(str(dtype))
    return tuple(found)


def set_facts(name: str) -> dict[str, Facts]:
    """Return the facts of three packages by letter: P, Q, R.

    Args:
        name: a key of SETS.
    """
    folder = data(FOLDER)
    return {letter: facts_of(folder / file) for letter, file in zip("PQR", SETS[name], strict=True)}


def clue_lines(facts: Mapping[str, Facts]) -> str:
    """Return the facts of packages as lines of text."""
    lines = []
    for letter, each in facts.items():
        given = ", ".join(f"{name} {dtype}" for name, dtype in each.inputs.items())
        holds = "layers" if each.layers else "operators"
        casts = f"casts to {', '.join(each.casts)}" if each.casts else "no cast"
        kinds = ", ".join(f"{count} {kind}" for kind, count in each.operators.items())
        lines += [
            f"{letter}: specification {each.specification}, {each.size_bytes:,} bytes",
            f"   input {given}; output {', '.join(each.outputs)}; {casts}",
            f"   {holds}: {kinds}",
        ]
    return "\n".join(lines)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Load a package on the first Vulkan device, operators not fused; free it at the end."""
    kind = package.open_package(path).model.WhichOneof("kind")
    found = on_vulkan.computes_in(program.import_package(path))
    precision = found if kind == "mlProgram" else "float32"
    row = on_vulkan.CoreMLProgram(vulkan.every()[0], precision, kind=kind)
    loaded = row.prepare(ModelSource(path.stem, package=path))
    try:
        yield loaded
    finally:
        loaded.close()


def run_package(path: Path, rows: NDArray[Any]) -> NDArray[Any]:
    """Return the only output of a package with one input, executed by vklab row by row.

    Args:
        path: the package; its input has one row.
        rows: the inputs.
    """
    with opened(path) as loaded:
        (name,) = (info.name for info in loaded.inputs)
        results = [next(iter(loaded.run({name: row[None]}).values())) for row in rows]
    return np.concatenate(results)


def held_out_texts(novels: Path, classifier: Path) -> NDArray[np.int32]:
    """Return int32 [2900, 32], the words of the passages that were held out.

    Args:
        novels: the file of the novels.
        classifier: the file with the words and weights of the text classifier.
    """
    with np.load(classifier) as arrays:
        words = [str(word) for word in arrays["words"]]
    passages = texts.passages(novels).held_out
    return texts.tokens([passage.text for passage in passages], words)


def text_scores(rows: NDArray[np.int32], classifier: Path) -> NDArray[np.float64]:
    """Return the scores of the text classifier in float64, by NumPy alone.

    Args:
        rows: int32 [texts, 32], the words of each text.
        classifier: the file with the words and weights of the text classifier.
    """
    with np.load(classifier) as file:
        weights = {name: file[name].astype(np.float64) for name in file.files if name != "words"}
    gelu = np.frompyfunc(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2, 1, 1)

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    # Everything before the mean depends on the word alone: once for each word.
    words = norm(weights["embedding.weight"], "norm1")
    words = words + linear(gelu(linear(words, "linear1")).astype(np.float64), "linear2")
    return linear(norm(words, "norm2")[rows].mean(axis=1), "head")
