"""Reflection of SPIR-V: names of storage buffers, push constants and specialization constants.

Every compiler writes SPIR-V, so GLSL, Slang and stock kernels are all read in the same way.
Source: SPIR-V specification, sections 2.3 and 3. Visited by labs 04 and 05.
"""

from __future__ import annotations

import functools
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vklab.errors import ShaderError
from vklab.shader.workgroup import Workgroup, workgroup_of

MAGIC = 0x07230203
_OP_SOURCE, _OP_NAME, _OP_MEMBER_NAME, _OP_ENTRY_POINT = 3, 5, 6, 15
_OP_TYPE_INT, _OP_TYPE_FLOAT, _OP_TYPE_BOOL = 21, 22, 20
_OP_TYPE_VECTOR, _OP_TYPE_ARRAY, _OP_TYPE_STRUCT, _OP_TYPE_POINTER = 23, 28, 30, 32
_OP_CONSTANT, _OP_SPEC_TRUE, _OP_SPEC_FALSE, _OP_SPEC_CONSTANT = 43, 48, 49, 50
_OP_VARIABLE, _OP_DECORATE, _OP_MEMBER_DECORATE = 59, 71, 72
_SPEC_ID, _ARRAY_STRIDE, _NON_WRITABLE, _BINDING, _SET, _OFFSET = 1, 6, 24, 33, 34, 35
_UNIFORM, _PUSH, _STORAGE = 2, 9, 12
# SPIR-V capability -> the device feature that it requires; a device may lack it.
_OP_CAPABILITY = 17
_FEATURES = {
    9: "shaderFloat16", 10: "shaderFloat64", 11: "shaderInt64", 22: "shaderInt16",
    39: "shaderInt8", 4433: "storageBuffer16BitAccess", 4434: "uniformAndStorageBuffer16BitAccess",
    4448: "storageBuffer8BitAccess", 4449: "uniformAndStorageBuffer8BitAccess",
    5116: "shaderBFloat16Type", 5118: "shaderBFloat16CooperativeMatrix", 6022: "cooperativeMatrix",
}  # fmt: skip
# (opcode, operands)
Instruction = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Binding:
    """One storage buffer: its binding number, and whether the shader may write to it."""

    number: int
    writable: bool


@dataclass(frozen=True)
class PushConstant:
    """One push-constant member: byte offset, struct format of one number, count of numbers.

    An array whose elements have a gap of unused bytes behind them has as many rows as elements.
    """

    offset: int
    format: str
    count: int
    rows: int = 1
    gap: int = 0


@dataclass(frozen=True)
class SpecConstant:
    """One specialization constant: its id, struct format and default value."""

    id: int
    format: str
    default: int | float | bool


@dataclass(frozen=True)
class Reflection:
    """Interface of a kernel by names, and what the device must have."""

    entry: str
    bindings: dict[str, Binding]
    push: dict[str, PushConstant]
    constants: dict[str, SpecConstant]
    features: frozenset[str] = frozenset()
    workgroup: Workgroup = Workgroup()

    @functools.cached_property
    def packing(self) -> struct.Struct:
        """Return the layout of the push-constant block: its members, padded to words."""
        layout = struct.Struct("<")
        for m in self.push.values():
            rows = f"{m.count // m.rows}{m.format}{m.gap}x" * m.rows
            layout = struct.Struct(f"{layout.format}{m.offset - layout.size}x{rows}")
        return struct.Struct(f"{layout.format}{-layout.size % 4}x")

    @property
    def push_bytes(self) -> int:
        """Return the size of the push-constant block, a multiple of 4."""
        return self.packing.size


def instructions(spirv: bytes) -> Iterator[Instruction]:
    """Yield each instruction of a module; ShaderError for a damaged one.

    Source: SPIR-V 1.6, section 'Physical Layout of a SPIR-V Module and Instruction'.
    """
    if len(spirv) < 20 or len(spirv) % 4:
        raise ShaderError(f"not SPIR-V: {len(spirv)} bytes; a module is 5 or more words of 4 bytes")
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    if words[0] != MAGIC:
        raise ShaderError(f"not SPIR-V: it starts with {words[0]:#010x} instead of {MAGIC:#010x}")
    position = 5
    while position < len(words):
        length, opcode = words[position] >> 16, words[position] & 0xFFFF
        if length == 0 or position + length > len(words):
            raise ShaderError(f"damaged SPIR-V: instruction at word {position} has length {length}")
        yield opcode, words[position + 1 : position + length]
        position += length


def assemble(header: bytes, kept: Iterable[Instruction]) -> bytes:
    """Return a module of these instructions with the header (five words) of another module."""
    words: list[int] = []
    for opcode, operands in kept:
        words += [(len(operands) + 1) << 16 | opcode, *operands]
    return header[:20] + struct.pack(f"<{len(words)}I", *words)


def drop_source(spirv: bytes) -> bytes:
    """Return the module without OpSource, because older validators reject Slang as its language."""
    return assemble(spirv, (each for each in instructions(spirv) if each[0] != _OP_SOURCE))


def _string(words: tuple[int, ...]) -> str:
    data = struct.pack(f"<{len(words)}I", *words)
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")


class _Module:
    """Instructions of a module that reflection uses, by the kind of their result."""

    def __init__(self, spirv: bytes) -> None:
        by_opcode = self.by_opcode = defaultdict[int, list[tuple[int, ...]]](list)
        for opcode, words in instructions(spirv):
            by_opcode[opcode].append(words)
        self.features = {_FEATURES.get(words[0], "") for words in by_opcode[_OP_CAPABILITY]}
        self.names = {words[0]: _string(words[1:]) for words in by_opcode[_OP_NAME]}
        self.member_names = {words[:2]: _string(words[2:]) for words in by_opcode[_OP_MEMBER_NAME]}
        entries = by_opcode[_OP_ENTRY_POINT]
        self.entry = _string(entries[-1][2:]) if entries else "main"
        self.decorations: dict[int, dict[int, int]] = defaultdict(dict)
        for words in by_opcode[_OP_DECORATE]:
            self.decorations[words[0]][words[1]] = words[2] if len(words) > 2 else 1
        self.member_decorations: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        for words in by_opcode[_OP_MEMBER_DECORATE]:
            self.member_decorations[words[:2]][words[2]] = words[3] if len(words) > 3 else 1
        types = range(_OP_TYPE_BOOL, _OP_TYPE_POINTER + 1)
        self.types = {
            words[0]: (opcode, words[1:]) for opcode in types for words in by_opcode[opcode]
        }
        self.constants = {words[1]: (words[0], words[2:]) for words in by_opcode[_OP_CONSTANT]}
        special = (_OP_SPEC_TRUE, _OP_SPEC_FALSE, _OP_SPEC_CONSTANT)
        self.specials = {
            words[1]: (opcode, words[0], words[2:])
            for opcode in special
            for words in by_opcode[opcode]
        }
        self.variables = [(words[1], words[0], words[2]) for words in by_opcode[_OP_VARIABLE]]

    def pointee(self, type_id: int) -> int:
        return self.types[type_id][1][1]

    def element(self, type_id: int, name: str = "") -> tuple[str, int, int, int]:
        """Return struct format, count of numbers, rows and gap of a number, vector or array."""
        opcode, words = self.types[type_id]
        if opcode == _OP_TYPE_FLOAT:
            return {16: "e", 32: "f", 64: "d"}[words[0]], 1, 1, 0
        if opcode == _OP_TYPE_INT:
            letter = {8: "b", 16: "h", 32: "i", 64: "q"}[words[0]]
            return (letter if words[1] else letter.upper()), 1, 1, 0
        if opcode == _OP_TYPE_VECTOR:
            return self.element(words[0], name)[0], words[1], 1, 0
        if opcode == _OP_TYPE_ARRAY:
            letter, count, rows, _ = self.element(words[0], name)
            stride = self.decorations[type_id].get(_ARRAY_STRIDE, 0) // rows
            gap = max(0, stride - count // rows * struct.calcsize(f"<{letter}"))
            length = self.constants[words[1]][1][0]
            return letter, count * length, rows * length if gap else 1, gap
        if opcode == _OP_TYPE_STRUCT:
            if len(words) == 1 and self.types[words[0]][0] == _OP_TYPE_ARRAY:
                return self.element(words[0], name)  # Slang wraps arrays in a structure
            inside = [self.member_names.get((type_id, n), f"member {n}") for n in range(len(words))]
            raise ShaderError(
                f"push constant {name} is a structure: write its members ("
                + ", ".join(inside)
                + f") into the block itself, in place of {name}"
            )
        raise ShaderError(f"push constant {name} has SPIR-V type {opcode}: use numbers or arrays")


def reflect(spirv: bytes) -> Reflection:
    """Read bindings, push constants and specialization constants of a SPIR-V module."""
    try:
        module = _Module(spirv)
        return Reflection(
            entry=module.entry,
            bindings=_bindings(module),
            push=_push(module),
            constants=_constants(module),
            features=frozenset(filter(None, module.features)),
            workgroup=workgroup_of(module),
        )
    except (KeyError, IndexError) as error:
        raise ShaderError(f"damaged SPIR-V: {error!r} is used but not defined") from error
    except (RecursionError, struct.error) as error:
        raise ShaderError(f"damaged SPIR-V: {error}") from error


def _bindings(module: _Module) -> dict[str, Binding]:
    bindings: dict[str, Binding] = {}
    for variable, type_id, storage in module.variables:
        decorations = module.decorations[variable]
        if storage not in (_UNIFORM, _STORAGE) or _BINDING not in decorations:
            continue
        if decorations.get(_SET, 0) != 0:
            raise ShaderError(
                f"binding {module.names.get(variable)} is in descriptor set "
                f"{decorations[_SET]}; vklab uses set 0 only"
            )
        structure = module.pointee(type_id)
        # GLSL puts NonWritable on the member, Slang on the variable.
        owners = decorations, module.member_decorations[structure, 0]
        read_only = any(_NON_WRITABLE in owner for owner in owners)
        name = module.names.get(variable) or module.names.get(structure, f"binding{variable}")
        bindings[name] = Binding(decorations[_BINDING], not read_only)
    return dict(sorted(bindings.items(), key=lambda item: item[1].number))


def _push(module: _Module) -> dict[str, PushConstant]:
    push: dict[str, PushConstant] = {}
    for structure in (module.pointee(words[1]) for words in module.variables if words[2] == _PUSH):
        for number, member in enumerate(module.types[structure][1]):
            name = module.member_names[structure, number]
            offset = module.member_decorations[structure, number][_OFFSET]
            push[name] = PushConstant(offset, *module.element(member, name))
    return push


def _constants(module: _Module) -> dict[str, SpecConstant]:
    constants: dict[str, SpecConstant] = {}
    for identifier, (opcode, type_id, words) in module.specials.items():
        decorations = module.decorations[identifier]
        if _SPEC_ID not in decorations:
            continue
        if opcode == _OP_SPEC_CONSTANT:
            letter = module.element(type_id)[0]
            default = struct.unpack_from(f"<{letter}", struct.pack(f"<{len(words)}I", *words))[0]
        else:
            letter, default = "I", opcode == _OP_SPEC_TRUE
        name = module.names.get(identifier, f"constant{decorations[_SPEC_ID]}")
        constants[name] = SpecConstant(decorations[_SPEC_ID], letter, default)
    return constants
