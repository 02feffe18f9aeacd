"""From fused descriptions to Slang: the text before a kernel, and the buffers and numbers it needs.

Text depends on structure only, never on sizes or names, so that layers and shapes share kernels.
`show` prints it like any other kernel. Visited by lab 10.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vklab.ops import dtypes, registry
from vklab.ops.dtypes import ELEMENTS
from vklab.plan.lowering import Lowered
from vklab.types import Dispatch, Formula, Operand, Pointwise, StridedView, TensorInfo

__all__ = ["PUSH_BYTES", "emit", "fits", "is_move", "title", "write"]

# What every device takes.
PUSH_BYTES = 128
# More numbers than this are written into the text.
PUSHED_NUMBERS = 8
WORD = 0xFFFFFFFF
RAW = ("a", "onnx::select(a, b, c)")
_PLAIN = {"float32": "float", "int32": "int", "uint32": "uint", "bool": "bool"}
_NAME = re.compile(r"\b(?:a|b|c|p0|p1)\b")
_TITLE = re.compile(r"onnx::(\w+)")


def fits(dispatch: Dispatch, buffers: int) -> bool:
    """Tell whether a fused dispatch keeps within push constants and a number of buffers."""
    is_core = dispatch.kernel != "pointwise"
    last = dispatch.epilogue if is_core else dispatch.pointwise
    works = dispatch.siblings or tuple(filter(None, (dispatch.prologue, last)))
    bound = len(dispatch.reads) + len(dispatch.writes) if is_core else len(_results(dispatch))
    words = _words(dispatch.push) if is_core else 1
    before, after = _Function("in_"), _Function()
    for work in works:
        made = before if work is dispatch.prologue else after
        made.indices.clear()
        for view in (*(operand.view for operand in work.operands), work.target):
            if view:
                _offset(made, work, view)
        if dispatch.siblings:
            made.number("part", work.count)
        words += len(_pushed(work))
        bound += len(work.operands)
    words += _words(before.push) + _words(after.push)
    return 4 * words <= PUSH_BYTES and bound <= buffers


def _words(push: Iterable[tuple[str, Any]]) -> int:
    return sum(len(value) if isinstance(value, tuple) else 1 for _, value in push)


def write(lowered: Lowered) -> Lowered:
    """Return a plan's dispatches with text in place of descriptions."""
    return replace(lowered, dispatches=tuple(map(emit, lowered.dispatches)))


def emit(dispatch: Dispatch) -> Dispatch:
    """Return the dispatch with its fused descriptions turned into text; itself if it has none."""
    if dispatch.kernel == "pointwise" and dispatch.pointwise:
        return _pointwise(dispatch, dispatch.pointwise)
    if dispatch.siblings:
        return _siblings(dispatch)
    functions = [_load_function(dispatch.prologue)] if dispatch.prologue else []
    if dispatch.epilogue:
        functions.append(_store_function(dispatch.epilogue, dispatch.writes[0][1]))
    return _joined(dispatch, functions) if functions else dispatch


@dataclass
class _Function:
    """A generated function and what it needs: buffers, push constants, defines."""

    prefix: str = ""
    lines: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    reads: list[tuple[str, TensorInfo]] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    push: list[tuple[str, Any]] = field(default_factory=list)
    defines: dict[str, str] = field(default_factory=dict)
    in_place: list[str] = field(default_factory=list)
    indices: list[str] = field(default_factory=list)

    def number(self, name: str, value: Any, kind: str = "uint") -> str:
        """Add a push constant; return how the text calls it. Equal ones are pushed once."""
        for known, old in self.push:
            if old == value and known.rstrip("0123456789") == self.prefix + name:
                return f"params.{known}"
        unique = f"{self.prefix}{name}{len(self.push)}"
        size = f"[{len(value)}]" if isinstance(value, tuple) else ""
        self.fields.append(f"{kind} {unique}{size};")
        self.push.append((unique, value))
        return f"params.{unique}"


def _pointwise(dispatch: Dispatch, work: Pointwise) -> Dispatch:
    made = _Function()
    _write(made, work, "compute", "void compute(uint element)", result=dispatch.writes[0][1])
    return replace(
        _joined(replace(dispatch, reads=(), push=(("count", work.count),), defines=()), [made]),
        workgroups=registry.grid(-(-work.count // registry.WORKGROUP)),
    )


def _siblings(dispatch: Dispatch) -> Dispatch:
    """Write one function for each work, and one that knows whose an element is."""
    made, results, body = _Function(), _results(dispatch), ["void compute(uint element) {"]
    names = {name: "y" if not n else f"y{n}" for n, name in enumerate(results)}
    made.buffers += [f"RWStructuredBuffer<Y> {name}_buffer;" for name in [*names.values()][1:]]
    for n, (work, (_, result)) in enumerate(zip(dispatch.siblings, dispatch.writes, strict=True)):
        made.indices.clear()
        header = f"void compute{n}(uint element)"
        _write(made, work, "compute", header, result=result, target=names[result.name])
        made.buffers.clear()
        if n == len(dispatch.siblings) - 1:
            body += [f"    compute{n}(element);", "}"]
            break
        part = made.number("part", work.count)
        body += [f"    if (element < {part}) return compute{n}(element);",
                 f"    element -= {part};"]  # fmt: skip
    made.lines += body
    count = sum(work.count for work in dispatch.siblings)
    return replace(
        _joined(replace(dispatch, reads=(), push=(("count", count),), defines=()), [made]),
        writes=tuple((f"{names[name]}_buffer", info) for name, info in results.items()),
        workgroups=registry.grid(-(-count // registry.WORKGROUP)), in_place=(),
    )  # fmt: skip


def _results(dispatch: Dispatch) -> dict[str, TensorInfo]:
    return {info.name: info for _, info in dispatch.writes}


def _store_function(work: Pointwise, result: TensorInfo) -> _Function:
    made = _Function()
    made.lines.append("#define STORE(element, value) store_fused(element, value)")
    kind = ELEMENTS[work.operands[0].dtype].value
    header = f"void store_fused(uint element, {kind} value)"
    _write(made, work, "store", header, result=result, given="value")
    return made


def _load_function(work: Pointwise) -> _Function:
    made = _Function("in_")
    made.lines.append("#define LOAD(element) load_fused(element)")
    kind = ELEMENTS[work.formulas[-1].dtype].value
    _write(made, work, "load", f"{kind} load_fused(uint element)")
    return made


def _joined(dispatch: Dispatch, functions: Sequence[_Function]) -> Dispatch:
    """Return a dispatch whose kernel finds these functions before its own text."""
    fields = " ".join(field for made in functions for field in made.fields)
    modules = dict.fromkeys(f"import {module};" for made in functions for module in made.imports)
    lines = [*modules, *([f"#define FUSED_PARAMS {fields}"] if fields else [])]
    defines = dict(dispatch.defines)
    own = dict(dispatch.reads)
    if dispatch.prologue:
        del own["x_buffer"]
    reads, push, in_place = list(own.items()), list(dispatch.push), list(dispatch.in_place)
    names = [info.name for info in own.values()]
    for made in functions:
        lines += ["", *made.lines]
        in_place += [n for n, i in made.reads if n in made.in_place and i.name not in names]
        reads += made.reads
        push += made.push
        defines |= made.defines
    return replace(
        dispatch, reads=tuple(reads), push=tuple(push), defines=tuple(defines.items()),
        fragment="\n".join(lines), in_place=tuple(in_place),
    )  # fmt: skip


def _write(
    made: _Function,
    work: Pointwise,
    role: str,
    header: str,
    result: TensorInfo | None = None,
    given: str = "",
    target: str = "y",
) -> None:
    """Write the function: its title, its buffers, loads, formulas, and the store or the result.

    Args:
        given: the parameter that stands for operand 0, which is then not read.
        result: what is written; without it the function returns the last value.
        target: the name of the buffer that is written.
    """
    raw = is_move(work) and not given and bool(result)
    names, body = [given] if given else [], []
    for operand in work.operands[len(names) :]:
        name = f"{made.prefix}x{len(made.reads)}"
        body.append(f"    let {name} = {_load(made, work, operand, name, raw)};")
        names.append(name)
        if result and work.target is None and operand.view.is_dense(work.shape) and (
            np.dtype(operand.dtype).itemsize == np.dtype(result.dtype).itemsize
        ):
            made.in_place.append(f"{name}_buffer")
    if given:  # rounded as if it had been stored
        body += _rounded(made, given, given, work.operands[0].dtype, declare=False)
    body += _steps(made, work, names, raw)
    if result:
        storage, _, store = (dtypes.raw_defines if raw else dtypes.type_defines)("Y", result.dtype)
        made.defines |= dict((storage, store))
        place = _offset(made, work, work.target) if work.target else "element"
        body.append(f"    {target}_buffer[{place}] = Y(Y_STORE({names[-1]}));")
    else:
        body.append(f"    return {names[-1]};")
    titles = [title(formula) for formula in work.formulas if formula.arguments]
    shown = ", ".join(titles[:12]) + (f" ... {len(titles)} in all" if len(titles) > 12 else "")
    used = " ".join(formula.text for formula in work.formulas)
    made.imports += ["lib.elementwise", "lib.numeric"]
    made.imports += ["lib.integers"] if "onnx::int_" in used else []
    made.lines += [f"// {role}: {shown}", *made.buffers, header + " {",
                   *made.indices, *body, "}"]  # fmt: skip


def title(formula: Formula) -> str:
    """Return what a person calls a formula."""
    if formula.text == RAW[0]:
        return "move"
    found = _TITLE.search(formula.text)
    return found[1] if found else formula.text


def is_move(work: Pointwise) -> bool:
    """Tell whether elements are only moved, so that kernels need not know what they mean."""
    return all(formula.text in RAW for formula in work.formulas)


def _load(made: _Function, work: Pointwise, operand: Operand, name: str, raw: bool) -> str:
    binding, kind = f"{name}_buffer", name.upper()
    made.reads.append((binding, operand.info))
    value = f"{binding}[{_offset(made, work, operand.view)}]"
    if not raw and operand.dtype in ("float32", "int32", "uint32"):
        kind = _PLAIN[operand.dtype]
    else:
        storage, load, _ = (dtypes.raw_defines if raw else dtypes.type_defines)(kind, operand.dtype)
        made.defines |= dict((storage,) if raw else (storage, load))
        value = value if raw else f"{kind}_LOAD({value})"
    made.buffers.append(f"StructuredBuffer<{kind}> {binding};")
    return value


def _steps(made: _Function, work: Pointwise, names: list[str], raw: bool) -> list[str]:
    """Return one line a formula; `names` grows by the name of each result."""
    lines: list[str] = []
    many = not _pushed(work)
    for formula in work.formulas:
        numbers = [_literal(n) if many else made.number("p", n, "float") for n in formula.numbers]
        if not formula.arguments or (formula.text == "a" and (raw or _same(work, formula))):
            names.append(names[formula.arguments[0]] if formula.arguments else numbers[0])
            continue
        words = dict(zip("abc", (names[n] for n in formula.arguments), strict=False))
        words |= {f"p{i}": number for i, number in enumerate(numbers)}
        call = _NAME.sub(functools.partial(_word, words), formula.text)
        name = f"{made.prefix}t{len(lines)}"
        if raw:
            lines.append(f"    let {name} = {call};")
        else:
            lines += _rounded(made, name, call, formula.dtype, declare=True)
        names.append(name)
    return lines


def _word(words: Mapping[str, str], match: re.Match[str]) -> str:
    return words.get(match[0], match[0])


def _same(work: Pointwise, formula: Formula) -> bool:
    """Tell whether a move leaves the dtype as it is: nothing is to be rounded."""
    number = formula.arguments[0]
    count = len(work.operands)
    source = work.operands[number].dtype if number < count else work.formulas[number - count].dtype
    return source == formula.dtype


def _rounded(made: _Function, name: str, value: str, dtype: str, declare: bool) -> list[str]:
    """Return the line that keeps a value as a tensor of a dtype would."""
    plain = _PLAIN.get(dtype)
    if plain:
        return [f"    {plain} {name} = {value};"] if declare else []
    if dtype == "float16":  # drivers drop a conversion there and back
        return [f"    {'float ' if declare else ''}{name} = narrow_half({value});"]
    alias = f"R_{dtype.upper()}"
    made.defines |= dict(dtypes.type_defines(alias, dtype))
    kind = ELEMENTS[dtype].value if ELEMENTS[dtype].value in ("float", "int", "uint") else alias
    line = f"{name} = {alias}_LOAD({alias}({alias}_STORE({value})));"
    return [f"    {kind} {line}" if declare else f"    {line}"]


def _pushed(work: Pointwise) -> tuple[float, ...]:
    """Return the numbers of formulas; none if there are too many for push constants."""
    found: list[float] = []
    for formula in work.formulas:
        found += formula.numbers
        if len(found) > PUSHED_NUMBERS:
            return ()
    return tuple(found)


def _literal(value: float) -> str:
    if not math.isfinite(value):
        return f"asfloat(0x{np.float32(value).view(np.uint32):08x})"
    return f"float({np.float32(value)!s})"


def _offset(made: _Function, work: Pointwise, view: StridedView) -> str:
    """Return the Slang expression of a walk's place for `element`."""
    if view.is_dense(work.shape):
        return "element"
    start = f" + {made.number('start', view.start)}" if view.start else ""
    moving = [axis for axis, stride in enumerate(view.strides) if stride]
    if not moving:
        return start[3:] or "0"
    block = range(moving[0], moving[-1] + 1)
    inside = StridedView(tuple(view.strides[a] for a in block))
    if len(moving) == len(block) and inside.is_dense(tuple(work.shape[a] for a in block)):
        run = math.prod(work.shape[moving[-1] + 1 :])
        size = math.prod(work.shape[a] for a in block)
        place = "element" if moving[-1] == len(work.shape) - 1 else (
            f"element / {made.number('run', run)}")  # fmt: skip
        return (place if moving[0] == 0 else f"{place} % {made.number('size', size)}") + start
    return " + ".join([*_terms(made, work, view), *([start[3:]] if start else [])])


def _terms(made: _Function, work: Pointwise, view: StridedView) -> list[str]:
    """Return index * stride for each axis that a walk moves along."""
    if not made.indices:
        shape, rest = made.number("shape", work.shape), "element"
        for axis in reversed(range(len(work.shape))):
            index = f"{rest} % {shape}[{axis}]" if axis else rest
            made.indices.append(f"    uint {made.prefix}i{axis} = {index};")
            rest += f" / {shape}[{axis}]"
    strides = made.number("stride", tuple(s & WORD for s in view.strides))
    return [f"{made.prefix}i{axis} * {strides}[{axis}]" for axis, s in enumerate(view.strides) if s]
