"""Generate Slang from fused descriptions, with the buffers and push constants that it needs.

The text depends on structure only, never on sizes or names: layers and shapes share kernels.
`show` prints it like any other kernel. The fusion of dispatches is decided elsewhere. Visited by
lab 10.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.ops import dtypes, elementwise, registry
from vklab.ops.dtypes import ELEMENTS
from vklab.plan.fusion.text import rounding
from vklab.plan.fusion.text.generated import Function
from vklab.types import Dispatch, Formula, Operand, Pointwise, StridedView, TensorInfo

# Every device has room for these: Vulkan's least maxPushConstantsSize.
PUSH_BYTES = 128
# Descriptions with more numbers have them written into the text.
PUSHED_NUMBERS = 8
WORD = 0xFFFFFFFF
RAW = (elementwise.MOVE, "onnx::select(a, b, c)")
_NAME = re.compile(r"\b(?:a|b|c|p0|p1)\b")


def fits(dispatch: Dispatch, buffers: int) -> bool:
    """Tell whether a fused dispatch needs at most PUSH_BYTES and a number of buffers."""
    is_core = dispatch.kernel != "pointwise"
    last = dispatch.epilogue if is_core else dispatch.pointwise
    works = dispatch.siblings or tuple(filter(None, (dispatch.prologue, last)))
    bound = len(dispatch.reads) + len(dispatch.writes) if is_core else len(_results(dispatch))
    words = _words(dispatch.push) if is_core else 1
    before, after = Function("in_"), Function()
    for work in works:
        code = before if work is dispatch.prologue else after
        code.indices.clear()
        for view in (*(operand.view for operand in work.operands), work.target):
            if view:
                offset(code, work, view)
        if dispatch.siblings:
            code.number("part", work.count)
        words += len(_pushed(work))
        bound += len(work.operands)
    words += _words(before.push) + _words(after.push)
    return 4 * words <= PUSH_BYTES and bound <= buffers


def _words(push: Iterable[tuple[str, Any]]) -> int:
    return sum(len(value) if isinstance(value, tuple) else 1 for _, value in push)


def emit(dispatch: Dispatch) -> Dispatch:
    """Return a dispatch with its fused descriptions turned into Slang; itself if it has none."""
    if dispatch.kernel == "pointwise" and dispatch.pointwise:
        return _pointwise(dispatch, dispatch.pointwise)
    if dispatch.siblings:
        return _siblings(dispatch)
    native = bool(rounding.kept(dispatch))
    functions = [_load_function(dispatch.prologue, native)] if dispatch.prologue else []
    if dispatch.epilogue:
        functions.append(_store_function(dispatch.epilogue, dispatch.writes[0][1], native))
    return joined(dispatch, functions) if functions else dispatch


def _pointwise(dispatch: Dispatch, work: Pointwise) -> Dispatch:
    kept = rounding.kept(dispatch)
    code = Function(native=bool(kept))
    _write(code, work, "compute", "Y value(uint element)", result=dispatch.writes[0][1], target="")
    code.indices.clear()
    at = offset(code, work, work.target) if work.target else "element"
    code.lines += ["uint place(uint element) {", *code.indices, f"    return {at};", "}"]
    each = registry.WORKGROUP * int(dispatch.constant_values.get("EACH", 1))
    return replace(
        joined(replace(dispatch, reads=(), push=(("count", work.count),), defines=kept), [code]),
        workgroups=registry.grid(-(-work.count // each)),
    )


def _siblings(dispatch: Dispatch) -> Dispatch:
    """Write one function for each sibling, and one that picks the sibling of an element."""
    kept, results = rounding.kept(dispatch), _results(dispatch)
    code, body = Function(native=bool(kept)), ["void compute(uint element) {"]
    code.lines.append("#define SIBLINGS")
    names = {name: "y" if not n else f"y{n}" for n, name in enumerate(results)}
    code.buffers += [f"RWStructuredBuffer<Y> {name}_buffer;" for name in [*names.values()][1:]]
    for n, (work, (_, result)) in enumerate(zip(dispatch.siblings, dispatch.writes, strict=True)):
        code.indices.clear()
        header = f"void compute{n}(uint element)"
        _write(code, work, "compute", header, result=result, target=names[result.name])
        code.buffers.clear()
        if n == len(dispatch.siblings) - 1:
            body += [f"    compute{n}(element);", "}"]
            break
        part = code.number("part", work.count)
        body += [
            f"    if (element < {part}) return compute{n}(element);",
            f"    element -= {part};",
        ]
    code.lines += body
    count = sum(work.count for work in dispatch.siblings)
    return replace(
        joined(replace(dispatch, reads=(), push=(("count", count),), defines=kept), [code]),
        writes=tuple((f"{names[name]}_buffer", info) for name, info in results.items()),
        workgroups=registry.grid(-(-count // registry.WORKGROUP)),
        in_place=(),
    )


def _results(dispatch: Dispatch) -> dict[str, TensorInfo]:
    return {info.name: info for _, info in dispatch.writes}


def _store_function(work: Pointwise, result: TensorInfo, native: bool) -> Function:
    code = Function(native=native)
    code.lines.append("#define STORE(element, value) store_fused(element, value)")
    kind = ELEMENTS[work.operands[0].dtype].value
    header = f"void store_fused(uint element, {kind} value)"
    _write(code, work, "store", header, result=result, given="value")
    return code


def _load_function(work: Pointwise, native: bool) -> Function:
    code = Function("in_", native)
    code.lines.append("#define LOAD(element) load_fused(element)")
    kind = ELEMENTS[work.formulas[-1].dtype].value
    _write(code, work, "load", f"{kind} load_fused(uint element)")
    return code


def joined(dispatch: Dispatch, functions: Sequence[Function]) -> Dispatch:
    """Return a dispatch whose kernel is preceded by these functions."""
    fields = " ".join(field for code in functions for field in code.fields)
    modules = dict.fromkeys(f"import {module};" for code in functions for module in code.imports)
    lines = [*modules, *([f"#define FUSED_PARAMS {fields}"] if fields else [])]
    defines = dispatch.define_values
    own = dict(dispatch.reads)
    if dispatch.prologue:
        del own["x_buffer"]
    reads, push, in_place = list(own.items()), list(dispatch.push), list(dispatch.in_place)
    names = [info.name for info in own.values()]
    for code in functions:
        lines += ["", *code.lines]
        in_place += [n for n, i in code.reads if n in code.in_place and i.name not in names]
        reads += code.reads
        push += code.push
        defines |= code.defines
    return replace(
        dispatch,
        reads=tuple(reads),
        push=tuple(push),
        defines=tuple(defines.items()),
        fragment="\n".join(lines),
        in_place=tuple(in_place),
    )


def _write(
    code: Function,
    work: Pointwise,
    role: str,
    header: str,
    result: TensorInfo | None = None,
    given: str = "",
    target: str = "y",
) -> None:
    """Write a function: its title, buffers, loads, formulas, and its store or return statement.

    Args:
        result: the tensor to write; without it the function returns the last value.
        given: the parameter that stands for operand 0, which is then not read.
        target: the name of the buffer that is written, without "_buffer"; "" returns the element.
    """
    raw = is_move(work) and not given and bool(result)
    names, body = [given] if given else [], []
    for operand in work.operands[len(names) :]:
        name = f"{code.prefix}x{len(code.reads)}"
        body.append(f"    let {name} = {_load(code, work, operand, name, raw)};")
        names.append(name)
        if (
            result
            and work.target is None
            and operand.view.is_dense(work.shape)
            and (np.dtype(operand.dtype).itemsize == np.dtype(result.dtype).itemsize)
        ):
            code.in_place.append(f"{name}_buffer")
    if given:  # round the kernel's result as if it had been stored
        body.append(rounded(code, given, given, work.operands[0].dtype, declare=False))
    body += steps(code, work, names, raw)
    if result:
        storage, _, store = (dtypes.raw_defines if raw else dtypes.type_defines)("Y", result.dtype)
        code.defines |= dict((storage, store))
        if target:
            at = offset(code, work, work.target) if work.target else "element"
            body.append(f"    {target}_buffer[{at}] = Y(Y_STORE({names[-1]}));")
        else:
            body.append(f"    return Y(Y_STORE({names[-1]}));")
    else:
        body.append(f"    return {names[-1]};")
    code.imports += ["lib.elementwise", "lib.numeric", *integers(work)]
    code.lines += [
        f"// {role}: {titles(work)}",
        *code.buffers,
        header + " {",
        *code.indices,
        *body,
        "}",
    ]


def integers(work: Pointwise) -> list[str]:
    """Return the module of integer operators, if a description uses one."""
    used = " ".join(formula.text for formula in work.formulas)
    return ["lib.integers"] if "onnx::int_" in used else []


def titles(work: Pointwise) -> str:
    """Return the names of the functions that a description calls, for people."""
    every = [formula.title for formula in work.formulas if formula.arguments]
    return ", ".join(every[:12]) + (f" ... {len(every)} in all" if len(every) > 12 else "")


def is_move(work: Pointwise) -> bool:
    """Tell whether elements are only moved or selected, so that their raw bits suffice."""
    return all(formula.text in RAW for formula in work.formulas)


def _load(code: Function, work: Pointwise, operand: Operand, name: str, raw: bool) -> str:
    binding, kind = f"{name}_buffer", name.upper()
    code.reads.append((binding, operand.info))
    value = f"{binding}[{offset(code, work, operand.view)}]"
    if not raw and operand.dtype in ("float32", "int32", "uint32"):
        kind = rounding.plain(operand.dtype)
    else:
        storage, load, _ = (dtypes.raw_defines if raw else dtypes.type_defines)(kind, operand.dtype)
        code.defines |= dict((storage,) if raw else (storage, load))
        value = value if raw else f"{kind}_LOAD({value})"
    code.buffers.append(f"StructuredBuffer<{kind}> {binding};")
    return value


def steps(
    code: Function, work: Pointwise, names: list[str], raw: bool, stored: Collection[str] = ()
) -> list[str]:
    """Return the lines of all formulas; the name of each result is appended to `names`.

    Args:
        code: the function that they belong to.
        work: the description.
        names: the names of its operands.
        raw: whether elements are moved without a change of their bits.
        stored: the names that are halves already, where the result is only stored.
    """
    halves = set(stored)  # the names of values that are halves, not floats
    lines = ["    round_halves_to_even();"] if code.native else []
    many = not _pushed(work)
    for formula in work.formulas:
        numbers = [_literal(n) if many else code.number("p", n, "float") for n in formula.numbers]
        if not formula.arguments or (formula.text == RAW[0] and (raw or _same(work, formula))):
            names.append(names[formula.arguments[0]] if formula.arguments else numbers[0])
            continue
        native = code.native and rounding.is_native(work, formula)
        words = rounding.words(names, formula.arguments, halves, native)
        words |= {f"p{i}": number for i, number in enumerate(numbers)}
        call = _NAME.sub(functools.partial(_word, words), formula.text)
        name = f"{code.prefix}t{len(lines)}"
        if raw:
            lines.append(f"    let {name} = {call};")
        elif native or (stored and rounding.stays_half(work, len(names))):
            lines.append(f"    half {name} = {call if native else f'half({call})'};")
            halves.add(name)
        elif rounding.is_representable(work, formula):
            lines.append(f"    float {name} = {call};")
        else:
            lines.append(rounded(code, name, call, formula.dtype, declare=True))
        names.append(name)
    names[-1] = f"float({names[-1]})" if names[-1] in halves else names[-1]
    return lines


def _word(words: Mapping[str, str], match: re.Match[str]) -> str:
    return words.get(match[0], match[0])


def _same(work: Pointwise, formula: Formula) -> bool:
    """Tell whether a move keeps the dtype, so that nothing has to be rounded."""
    number = formula.arguments[0]
    count = len(work.operands)
    source = work.operands[number].dtype if number < count else work.formulas[number - count].dtype
    return source == formula.dtype


def rounded(code: Function, name: str, value: str, dtype: str, declare: bool) -> str:
    """Return the line that rounds a value as storing it in a tensor of a dtype would.

    Args:
        code: the function that it belongs to.
        name: the variable.
        value: the Slang of the value.
        dtype: the dtype of the tensor.
        declare: whether the line declares the variable.
    """
    line, defines = rounding.rounded(name, value, dtype, declare)
    code.defines |= defines
    return line


def _pushed(work: Pointwise) -> tuple[float, ...]:
    """Return the numbers of all formulas; none if they are too many for push constants."""
    every = itertools.chain.from_iterable(f.numbers for f in work.formulas)
    numbers = tuple(itertools.islice(every, PUSHED_NUMBERS + 1))
    return numbers if len(numbers) <= PUSHED_NUMBERS else ()


def _literal(value: float) -> str:
    if not math.isfinite(value):
        return f"asfloat(0x{np.float32(value).view(np.uint32):08x})"
    return f"float({np.float32(value)!s})"


def offset(code: Function, work: Pointwise, view: StridedView) -> str:
    """Return the Slang expression of the buffer offset of `element` in a view.

    Args:
        code: the function that it belongs to, which gets the push constants.
        work: the description.
        view: the view of one of its tensors.
    """
    if view.is_dense(work.shape):
        return "element"
    start = f" + {code.number('start', view.start)}" if view.start else ""
    moving = [axis for axis, stride in enumerate(view.strides) if stride]
    if not moving:
        return start[3:] or "0"
    block = range(moving[0], moving[-1] + 1)
    inside = StridedView(tuple(view.strides[a] for a in block))
    if len(moving) == len(block) and inside.is_dense(tuple(work.shape[a] for a in block)):
        run = math.prod(work.shape[moving[-1] + 1 :])
        size = math.prod(work.shape[a] for a in block)
        index = (
            "element"
            if moving[-1] == len(work.shape) - 1
            else (f"element / {code.number('run', run)}")
        )
        return (index if moving[0] == 0 else f"{index} % {code.number('size', size)}") + start
    return " + ".join([*_terms(code, work, view), *([start[3:]] if start else [])])


def _terms(code: Function, work: Pointwise, view: StridedView) -> list[str]:
    """Return index * stride for each axis whose stride in a view is not zero."""
    if not code.indices:
        shape, rest = code.number("shape", work.shape), "element"
        for axis in reversed(range(len(work.shape))):
            index = f"{rest} % {shape}[{axis}]" if axis else rest
            code.indices.append(f"    uint {code.prefix}i{axis} = {index};")
            rest += f" / {shape}[{axis}]"
    strides = code.number("stride", tuple(s & WORD for s in view.strides))
    return [f"{code.prefix}i{axis} * {strides}[{axis}]" for axis, s in enumerate(view.strides) if s]
