"""Mutants of a solution: a right answer with one small mistake, which a good check rejects.

Python is changed as a syntax tree, the text of a shader token by token, only in the solution's
lines. A mutant is named by the first line that differs, before and after.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vklab_course.author import regions
from vklab_course.author.lab import Cell, Lab

__all__ = ["Mutant", "mutants_of"]


@dataclass(frozen=True)
class Mutant:
    """One changed cell: its whole text, and the line before and after."""

    text: str
    before: str
    after: str


COMPARED = {ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt,), ast.Gt: (ast.GtE, ast.Lt),
            ast.GtE: (ast.Gt,), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,),
            ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,)}  # fmt: skip
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
            ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift,
            ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
            ast.BitXor: ast.BitOr, ast.Pow: ast.Mult, ast.MatMult: ast.Add}  # fmt: skip
RENAMED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list",
           "sum": "max", "append": "insert_nothing"}  # fmt: skip
SHADER = (("<=", "<"), (">=", ">"), ("==", "!="), ("!=", "=="), ("&&", "||"), ("||", "&&"),
          ("<", "<="), (">", ">="), ("+", "-"), ("-", "+"), ("*", "+"), ("/", "*"), ("%", "/"),
          (".x", ".y"), (".y", ".x"))  # fmt: skip
OPERATORS = re.compile(r"<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[<>+\-*/%]|\.[xy]\b")


def mutants_of(lab: Lab, cell: Cell) -> Iterator[Mutant]:
    """Yield the mutants of an exercise's solution, each once.

    Source: DeMillo, Lipton, Sayward, "Hints on Test Data Selection", 1978
    """
    lines = regions.lines_of(lab, cell)
    is_shader = any(line.mark.endswith("SOLUTION shader") for line in lines)
    text = regions.solved(lab, cell)
    kept = [line for line in lines if line.region in ("", "solution")]
    inside = {number for number, line in enumerate(kept, 1) if line.region == "solution"}
    seen = {text}
    for mutant in _shader_mutants(text, inside) if is_shader else _python_mutants(text, inside):
        if mutant.text not in seen:
            seen.add(mutant.text)
            yield mutant


def _python_mutants(text: str, inside: set[int]) -> Iterator[Mutant]:
    tree = ast.parse(text)
    plain = ast.unparse(tree)
    for number, original in enumerate(ast.walk(tree)):
        if getattr(original, "lineno", None) not in inside:
            continue
        for change in range(len(_options(original, tree))):
            changed = copy.deepcopy(tree)
            node = next(itertools.islice(ast.walk(changed), number, None))
            _options(node, changed)[change]()
            try:
                mutated = ast.unparse(ast.fix_missing_locations(changed))
                compile(mutated, "mutant", "exec")
            except (SyntaxError, ValueError):
                continue
            if mutated != plain:
                yield _named(plain, mutated)


def _named(plain: str, mutated: str) -> Mutant:
    pairs = zip(plain.splitlines() + [""], mutated.splitlines() + [""], strict=False)
    before, after = next((a, b) for a, b in pairs if a != b)
    return Mutant(mutated, before.strip(), after.strip())


Options = list[Callable[[], None]]


def _options(node: ast.AST, tree: ast.Module) -> Options:
    """Return functions that each make one change to a node in place."""
    return next((find(node, tree) for kind, find in _CHANGES if isinstance(node, kind)), [])


def _compare(node: ast.Compare, tree: ast.Module) -> Options:
    def put(place: int, kind: type[ast.cmpop]) -> Callable[[], None]:
        return lambda: node.ops.__setitem__(place, kind())

    return [put(i, kind) for i, op in enumerate(node.ops) for kind in COMPARED[type(op)]]


def _computation(node: ast.BinOp | ast.AugAssign, tree: ast.Module) -> Options:
    options: Options = []
    other = COMPUTED.get(type(node.op))
    if other:
        options.append(lambda: setattr(node, "op", other()))
    ordered = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ordered):
        turned = {"left": node.right, "right": node.left}
        options.append(lambda: vars(node).update(turned))
    return options


def _logic(node: ast.BoolOp, tree: ast.Module) -> Options:
    other = ast.Or if isinstance(node.op, ast.And) else ast.And
    return [lambda: setattr(node, "op", other())]


def _constant(node: ast.Constant, tree: ast.Module) -> Options:
    value = node.value
    if isinstance(value, bool):
        return [lambda: setattr(node, "value", not value)]
    if isinstance(value, int):
        more, less = value + 1, value - 1
        return [lambda: setattr(node, "value", more), lambda: setattr(node, "value", less)]
    if isinstance(value, float):
        return [lambda: setattr(node, "value", value * 2 + 1)]
    return []


def _unary(node: ast.UnaryOp, tree: ast.Module) -> Options:
    if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        # `not x` and `-x` become `x`.
        return [lambda: _replace(tree, node, node.operand)]
    return []


def _branch(node: ast.If | ast.IfExp | ast.While, tree: ast.Module) -> Options:
    values = (True, False) if not isinstance(node, ast.While) else (False,)
    return [
        (lambda value=value: setattr(node, "test", ast.Constant(value)))  # type: ignore[misc]
        for value in values
    ]


def _call(node: ast.Call, tree: ast.Module) -> Options:
    options: Options = []
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in RENAMED:
        options.append(lambda: setattr(node.func, "id", RENAMED[name]))
    if name == "range" and node.args:
        stop = node.args[0] if len(node.args) == 1 else node.args[1]
        place = 0 if len(node.args) == 1 else 1
        less = ast.BinOp(stop, ast.Sub(), ast.Constant(1))
        options.append(lambda: node.args.__setitem__(place, less))
    if len(node.args) >= 2:
        options.append(lambda: node.args.__setitem__(slice(0, 2), node.args[1::-1]))
    return options


def _statement(node: ast.stmt, tree: ast.Module) -> Options:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return []
    return [lambda: _replace(tree, node, ast.Pass())]


def _leave(node: ast.Return | ast.Break | ast.Continue, tree: ast.Module) -> Options:
    if isinstance(node, ast.Return):
        return [lambda: setattr(node, "value", None)]
    other = ast.Continue() if isinstance(node, ast.Break) else ast.Break()
    return [lambda: _replace(tree, node, other)]


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(item is old for item in value):
                value[:] = [new if item is old else item for item in value]


def _augmented(node: ast.AugAssign, tree: ast.Module) -> Options:
    return [*_computation(node, tree), *_statement(node, tree)]


_CHANGES: tuple[tuple[tuple[type[ast.AST], ...], Callable[..., Options]], ...] = (
    ((ast.Compare,), _compare),
    ((ast.AugAssign,), _augmented),
    ((ast.BinOp,), _computation),
    ((ast.BoolOp,), _logic),
    ((ast.Constant,), _constant),
    ((ast.UnaryOp,), _unary),
    ((ast.If, ast.IfExp, ast.While), _branch),
    ((ast.Call,), _call),
    ((ast.Return, ast.Break, ast.Continue), _leave),
    ((ast.Expr, ast.Raise, ast.Assert, ast.Delete), _statement),
)


def _shader_mutants(text: str, inside: set[int]) -> Iterator[Mutant]:
    lines = text.splitlines()
    for number in sorted(inside):
        line = lines[number - 1]
        code = line.split("//")[0]
        for changed in _shader_lines(code):
            mutated = [*lines[: number - 1], changed, *lines[number:]]
            yield Mutant("\n".join(mutated), line.strip(), changed.strip())


def _shader_lines(code: str) -> Iterator[str]:
    for match in OPERATORS.finditer(code):
        for old, new in SHADER:
            if match.group() == old:
                yield code[: match.start()] + new + code[match.end() :]
    for match in re.finditer(r"(?<![\w.])(\d+)(?=u?\b(?!\.))", code):
        yield code[: match.start()] + str(int(match.group()) + 1) + code[match.end() :]
    if code.rstrip().endswith(";") and not re.match(r"\s*(return|for|\w+\s+\w+\s*=)", code):
        yield code[: len(code) - len(code.lstrip())] + ";"
    guard = re.search(r"\bif\s*\(", code)
    if guard and code.rstrip().endswith((")", "{")):
        yield f"{code[: guard.start()]}if (true){' {' if code.rstrip().endswith('{') else ''}"
