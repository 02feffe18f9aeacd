"""Refusal of kernels with accesses to buffers that could escape the counters.

Capabilities, instructions, kinds of variables and bindings are allowed by list; everything else is
refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Collection

from vklab.errors import ShaderError
from vklab_course.counting.spirv import Decoration, Module, Op, Storage

__all__ = ["ATOMICS", "HAS_NO_TYPE", "refuse", "uses_subgroups"]

MOST_INSTRUCTIONS = 50_000
_SUBGROUPS = frozenset({*range(61, 69), 4423, 4431})
# Matrix, Shader, Float16, Float64, Int64, Int16, Int8, small numbers in buffers, dot products,
# the Vulkan memory model, and variable pointers, whose uses are refused one by one.
_CAPABILITIES = _SUBGROUPS | {
    0,
    1,
    9,
    10,
    11,
    22,
    39,
    *range(4433, 4436),
    *range(4448, 4451),
    4441,
    4442,
    5345,
    5346,
    6016,
    6017,
    6018,
    6019,
}
ATOMICS = frozenset({*range(Op.ATOMIC_LOAD, Op.ATOMIC_XOR + 1), Op.ATOMIC_F_ADD} - {231})
_OPCODES = ATOMICS | {
    0,
    1,
    *range(2, 9),
    10,
    11,
    12,
    *range(14, 25),
    *range(28, 31),
    32,
    33,
    *range(41, 47),
    *range(48, 53),
    *range(54, 58),
    59,
    *range(61, 64),
    65,
    66,
    68,
    *range(71, 76),
    *range(77, 85),
    *range(109, 117),
    124,
    *range(126, 153),
    *range(154, 158),
    *range(160, 192),
    *range(194, 206),
    224,
    225,
    *range(245, 252),
    *range(253, 256),
    317,
    330,
    331,
    332,
    *range(333, 367),
    400,
    4421,
    4422,
    4428,
    4429,
    4430,
    *range(4450, 4456),
    5632,
    5633,
}
# Instructions of functions that have no type and result as their first two words.
HAS_NO_TYPE = frozenset({0, 8, 56, 62, 63, 224, 225, 228, *range(246, 256), 317})
# Instructions that may make a pointer into a buffer; FUNCTION_PARAMETER is refused by name.
_POINTERS = frozenset({Op.VARIABLE, Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN, Op.COPY_OBJECT})
_IN_PLACE = {35: "modf", 51: "frexp"}  # functions of GLSL.std.450 that write through a pointer
_IMAGES = {25: "an image", 26: "a sampler", 27: "a sampled image"}
_KINDS = frozenset(Storage)
_NEEDS = {5347: "pointers to memory (PhysicalStorageBufferAddresses)", 43: "images", 44: "images",
          6022: "matrices of a whole subgroup"}  # fmt: skip


def refuse(module: Module, names: Collection[str], bindings: dict[int, str]) -> None:
    """Raise ShaderError for a module with something that the counters cannot follow.

    Args:
        module: the compiled kernel.
        names: the exercise's buffers; a kernel may have no others.
        bindings: name of each variable with a binding, by its id.
    """
    if len(module.functions) > MOST_INSTRUCTIONS:
        _fail(f"it has {len(module.functions)} instructions, of at most {MOST_INSTRUCTIONS}")
    for opcode, words in (*module.declared, *module.head, *module.annotations, *module.functions):
        if opcode == Op.CAPABILITY and words[0] not in _CAPABILITIES:
            _fail(f"it needs {_NEEDS.get(words[0], f'SPIR-V capability {words[0]}')}")
        if opcode in _IMAGES:
            _fail(f"it declares {_IMAGES[opcode]}: use storage buffers")
        if opcode not in _OPCODES:
            _fail(f"it uses SPIR-V instruction {opcode}")
    if sum(opcode == Op.ENTRY_POINT for opcode, _ in module.head) != 1:
        _fail("it has several entry points: keep one")
    _variables(module, names, bindings)
    _pointers(module)


def _fail(reason: str) -> None:
    raise ShaderError(f"the accesses of this kernel cannot be counted: {reason}")


def _variables(module: Module, names: Collection[str], bindings: dict[int, str]) -> None:
    places: dict[int, str] = {}
    for opcode, words in module.declared:
        if opcode != Op.VARIABLE:
            continue
        variable, storage = words[1], words[2]
        name = bindings.get(variable, module.names.get(variable, "a variable"))
        if storage not in _KINDS:
            _fail(f"{name} is in storage class {storage}")
        if storage not in (Storage.UNIFORM, Storage.BUFFER):
            continue
        facts, structure = module.decorations[variable], module.types[words[0]][1][1]
        if module.types[structure][0] != Op.TYPE_STRUCT:
            _fail(f"{name} is an array of buffers: declare each buffer by itself")
        if storage == Storage.UNIFORM and (
            Decoration.BUFFER_BLOCK not in module.decorations[structure]
        ):
            _fail(f"{name} is a uniform buffer: use a storage buffer, or push constants")
        number = facts.get(Decoration.BINDING)
        if facts.get(Decoration.SET, 0) != 0 or number is None:
            _fail(f"{name} is not in descriptor set 0 with a binding number")
        elif number in places:
            _fail(f"{places[number]} and {name} share binding {number}")
        elif name not in names or name in places.values():
            _fail(f"{name} is not a buffer of this exercise, which has {', '.join(sorted(names))}")
        else:
            places[number] = name


def _pointers(module: Module) -> None:
    """Refuse pointers into buffers and shared arrays that come from elsewhere than an index."""
    far = {
        result
        for result, (opcode, words) in module.types.items()
        if opcode == Op.TYPE_POINTER
        and words[0] in (Storage.UNIFORM, Storage.BUFFER, Storage.WORKGROUP)
    }
    for result, (opcode, words) in module.types.items():
        parts = (
            words[1:2]
            if opcode == Op.TYPE_POINTER
            else (words if opcode == Op.TYPE_STRUCT else words[:1])
        )
        if opcode in (Op.TYPE_POINTER, Op.TYPE_STRUCT, Op.TYPE_ARRAY) and far & {*parts}:
            _fail(f"type {module.names.get(result, result)} holds a pointer: use an index")
    made: set[int] = set(module.type_of) & {
        words[1] for opcode, words in module.declared if opcode == Op.VARIABLE and words[0] in far
    }
    for opcode, words in module.functions:
        if opcode == Op.EXT_INST and words[3] in _IN_PLACE and made & {*words[4:]}:
            _fail(f"{_IN_PLACE[words[3]]} writes into a buffer: give it a variable")
        if opcode in HAS_NO_TYPE or not words or words[0] not in far:
            continue
        if opcode == Op.FUNCTION_PARAMETER:
            _fail("a function takes a pointer into a buffer or a shared array: give it the index")
        if opcode not in _POINTERS:
            _fail(f"SPIR-V instruction {opcode} makes a pointer into a buffer: use an index")
        made.add(words[1])


def uses_subgroups(module: Module) -> bool:
    """Tell whether a module uses operations across a subgroup."""
    return any(opcode == Op.CAPABILITY and words[0] in _SUBGROUPS for opcode, words in module.head)
