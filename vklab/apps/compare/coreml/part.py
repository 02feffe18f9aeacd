"""Part of an ML Program as a package of its own: some operations, fed what the others computed.

Core ML itself runs such a part on a Mac. Nothing is converted again: operations, types and weights
are those of the whole package.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from vklab.apps.compare.coreml import package, values
from vklab.errors import ModelError

MODEL = "com.apple.CoreML/model.mlmodel"
WEIGHTS = "com.apple.CoreML/weights"
IDENTIFIER = "part"
HALVES = 7  # the first version of the format that takes and returns float16
# Element types of Core ML's interface by the dtype of a value.
CODES = {"float16": 65552, "float32": 65568, "int32": 131104}


def owner(value: str) -> str:
    """Return the operation's output to which a value of the imported graph belongs."""
    return value.partition("/")[0]


def write(source: Path, outputs: Collection[str], operations: Collection[str], path: Path) -> Path:
    """Write some operations of a package as a package, and return its path.

    Constants that they read come along; other values that they read become inputs.

    Args:
        source: an .mlpackage with an ML Program.
        outputs: names of the values that the part returns.
        operations: names of the outputs of its operations.
        path: the .mlpackage to write; one that is there is replaced.

    Raises ModelError for a package without a program, or for a part that it has not.
    """
    opened = package.open_package(source)
    if opened.model.WhichOneof("kind") != "mlProgram" or opened.folder is None:
        raise ModelError(f"{source} is no .mlpackage with an ML Program")
    name = opened.model.description.defaultFunctionName or "main"
    function = opened.model.mlProgram.functions[name]
    block = function.block_specializations[function.opset]
    made = {output.name: each for each in block.operations for output in each.outputs}
    missing = {*outputs, *operations} - made.keys()
    if missing:
        raise ModelError(f"{source} has no operations {', '.join(sorted(missing))}")
    kept = _with_constants({*operations}, made)
    given = [each for each in dict.fromkeys(_reads_of(kept, made)) if each not in kept]
    types = {value.name: value.type for value in function.inputs}
    types |= {output.name: output.type for each in block.operations for output in each.outputs}
    model = type(opened.model)()
    model.CopyFrom(opened.model)
    small = model.mlProgram.functions[name]
    inner = small.block_specializations[small.opset]
    del small.inputs[:], inner.operations[:], inner.outputs[:]
    for each in given:
        small.inputs.add(name=each, type=types[each])
    inner.operations.extend(
        each for each in block.operations if {output.name for output in each.outputs} & kept
    )
    inner.outputs.extend(outputs)
    _describe(model.description, given, outputs, types)
    model.specificationVersion = max(model.specificationVersion, HALVES)
    return _saved(model, opened.folder, path)


def _with_constants(operations: set[str], made: dict[str, Any]) -> set[str]:
    """Return operations by name of output, with the constants that they read."""
    kept = {output.name for name in operations for output in made[name].outputs}
    waiting = [*kept]
    while waiting:
        for name in _reads(made[waiting.pop()]):
            if name in made and name not in kept and _is_constant(made[name]):
                kept.add(name)
                waiting.append(name)
    return kept


def _is_constant(operation: Any) -> bool:
    return operation.type == "const" or operation.type.startswith("constexpr_")


def _reads(operation: Any) -> Iterator[str]:
    for key in sorted(operation.inputs):
        for binding in operation.inputs[key].arguments:
            if binding.WhichOneof("kind") == "name":
                yield binding.name


def _reads_of(kept: set[str], made: dict[str, Any]) -> Iterator[str]:
    for name, operation in made.items():
        if name in kept:
            yield from _reads(operation)


def _describe(
    description: Any, given: Collection[str], outputs: Collection[str], types: dict[str, Any]
) -> None:
    """Declare the interface of the part.

    Args:
        description: the model's description, which is changed.
        given: names of the inputs.
        outputs: names of the outputs.
        types: type of each value.
    """
    del description.input[:], description.output[:], description.state[:]
    for names, features in ((given, description.input), (outputs, description.output)):
        for name in names:
            tensor = types[name].tensorType
            dtype = values.STORED.get(values.NAMES.get(tensor.dataType, ""), "")
            if dtype not in CODES:
                raise ModelError(
                    f"{name!r} is {dtype or 'of an unknown type'}; a Core ML model "
                    f"takes and returns {', '.join(CODES)}"
                )
            array = features.add(name=name).type.multiArrayType
            array.dataType = CODES[dtype]
            if not all(dim.HasField("constant") for dim in tensor.dimensions):
                raise ModelError(f"{name!r} has an open size; a part is written with fixed ones")
            array.shape.extend(dim.constant.size for dim in tensor.dimensions)


def _saved(model: Any, folder: Path, path: Path) -> Path:
    """Write a package with the weights of another one.

    Args:
        model: the message.
        folder: folder to which weight files are relative.
        path: the .mlpackage.
    """
    shutil.rmtree(path, ignore_errors=True)
    place = path / "Data" / MODEL
    place.parent.mkdir(parents=True)
    place.write_bytes(model.SerializeToString())
    items = {
        IDENTIFIER: {
            "author": "com.apple.CoreML",
            "description": "CoreML Model Specification",
            "name": "model.mlmodel",
            "path": MODEL,
        }
    }
    if (folder / "weights").is_dir():
        shutil.copytree(folder / "weights", path / "Data" / WEIGHTS)
        items["weights"] = {
            "author": "com.apple.CoreML",
            "description": "CoreML Model Weights",
            "name": "weights",
            "path": WEIGHTS,
        }
    manifest = {
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": items,
        "rootModelIdentifier": IDENTIFIER,
    }
    (path / "Manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")
    return path
