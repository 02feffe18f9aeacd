"""Core ML packages written by the tests themselves, without coremltools: one program each."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.compare.coreml import package, protobuf, values

NUMBERS = {name: number for number, name in values.NAMES.items()}
CODES = {name: code for code, name in package.DTYPES.items()}
MIL_NAMES = {dtype: name for name, dtype in values.STORED.items() if name not in package.BITS}
WEIGHTS = "weights/weight.bin"
IDENTIFIER = "60D3ED87"


@dataclass
class WrittenWeights:
    """A weight file under construction."""

    data: bytearray = field(default_factory=lambda: bytearray(struct.pack("<II56x", 0, 2)))

    def add(self, array: np.ndarray, code: int | None = None) -> int:
        """Append an array; return the offset of its record."""
        raw = array.tobytes()
        offset = len(self.data)
        code = CODES[MIL_NAMES[str(array.dtype)]] if code is None else code
        self.data += struct.pack("<IIQQQ32x", 0xDEADBEEF, code, len(raw), offset + 64, 0)
        self.data += raw + bytes(-len(raw) % 64)
        self.data[:4] = struct.pack("<I", struct.unpack_from("<I", self.data)[0] + 1)
        return offset


def tensor_type(message: Any, dtype: str, shape: Sequence[int]) -> None:
    """Fill a ValueType."""
    message.tensorType.dataType = NUMBERS[MIL_NAMES.get(dtype, dtype)]
    message.tensorType.rank = len(shape)
    for dim in shape:
        message.tensorType.dimensions.add().constant.size = dim


def value_of(message: Any, array: Any, weights: WrittenWeights | None = None) -> None:
    """Fill a Value with a constant, in the weight file if there is one."""
    array = np.asarray(array)
    array = array.astype(np.int32) if array.dtype == np.int64 else array
    array = array.astype(np.float32) if array.dtype == np.float64 else array
    dtype = "string" if array.dtype.kind == "U" else str(array.dtype)
    tensor_type(message.type, dtype, array.shape)
    if weights is not None:
        message.blobFileValue.fileName = f"@model_path/{WEIGHTS}"
        message.blobFileValue.offset = weights.add(array)
        return
    tensor = message.immediateValue.tensor
    kinds = {"float32": "floats", "int32": "ints", "bool": "bools", "string": "strings"}
    if dtype in kinds:
        getattr(tensor, kinds[dtype]).values.extend(array.reshape(-1).tolist())
    else:
        tensor.bytes.values = array.tobytes()


class WrittenProgram:
    """A Core ML model with one function and one block; operations are added in order."""

    def __init__(self) -> None:
        self.weights = WrittenWeights()
        self.names: set[str] = set()
        self.model = protobuf.message_class("Model")()
        self.model.specificationVersion = 8
        self.model.description.SetInParent()
        self.model.mlProgram.version = 1
        self.function = self.model.mlProgram.functions["main"]
        self.function.opset = "CoreML7"
        self.block = self.function.block_specializations["CoreML7"]

    def input(self, name: str, dtype: str, shape: Sequence[int]) -> str:
        """Declare an input."""
        given = self.function.inputs.add(name=name)
        tensor_type(given.type, dtype, shape)
        self.names.add(name)
        return name

    def const(self, name: str, array: Any, is_in_file: bool = False) -> str:
        """Add a constant."""
        array = np.asarray(array)
        operation = self.operation("const", name, "float32", array.shape)
        value_of(operation.attributes["val"], array, self.weights if is_in_file else None)
        operation.outputs[0].type.CopyFrom(operation.attributes["val"].type)
        return name

    def operation(
        self,
        kind: str,
        name: str,
        dtype: str,
        shape: Sequence[int],
        inputs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Add an operation with one output; inputs are names, tuples of names, or constants."""
        operation = self.block.operations.add(type=kind)
        self.output(operation, name, dtype, shape)
        for key, given in (inputs or {}).items():
            for each in given if isinstance(given, tuple) else (given,):
                binding = operation.inputs[key].arguments.add()
                if isinstance(each, str) and each in self.names:
                    binding.name = each
                else:
                    value_of(binding.value, each)
        return operation

    def output(self, operation: Any, name: str, dtype: str, shape: Sequence[int]) -> None:
        """Declare an output of an operation."""
        tensor_type(operation.outputs.add(name=name).type, dtype, shape)
        self.names.add(name)

    def outputs(self, *names: str) -> None:
        """Declare the block's outputs."""
        self.block.outputs.extend(names)

    def save(self, folder: Path, name: str = "written.mlpackage") -> Path:
        """Write the package; return its path."""
        path = folder / name
        inner = path / "Data" / "com.apple.CoreML"
        (inner / "weights").mkdir(parents=True, exist_ok=True)
        (inner / "model.mlmodel").write_bytes(self.model.SerializeToString())
        (inner / WEIGHTS).write_bytes(self.weights.data)
        item = {"path": "com.apple.CoreML/model.mlmodel"}
        manifest = {"itemInfoEntries": {IDENTIFIER: item}, "rootModelIdentifier": IDENTIFIER}
        (path / "Manifest.json").write_text(json.dumps(manifest))
        return path


def small_program() -> WrittenProgram:
    """Return a program of a linear layer, with its weights in the file, and an activation."""
    random = np.random.default_rng(0)
    made = WrittenProgram()
    made.input("x", "float32", (2, 5))
    made.const("weight", random.standard_normal((3, 5), np.float32), is_in_file=True)
    made.const("bias", random.standard_normal(3, np.float32), is_in_file=True)
    made.operation("linear", "y", "float32", (2, 3), {"x": "x", "weight": "weight", "bias": "bias"})
    made.operation("relu", "z", "float32", (2, 3), {"x": "y"})
    made.outputs("z")
    return made
