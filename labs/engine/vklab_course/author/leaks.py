"""Leaks: expressions of a solution that occur in what students get, names and spacing apart.

A solution is cut into its expressions. Each is compared as a sequence of tokens in which the names
of variables count by their order of first use, so that `(count+63)//64` and `(n + 63) // 64` are
one expression. Texts of any kind are searched: code, hints, markdown, shaders.
"""

from __future__ import annotations

import ast
import builtins
import functools
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vklab_course.author import regions
from vklab_course.author.lab import Lab

__all__ = [
    "WEIGHT",
    "Leak",
    "Secret",
    "Words",
    "expressions_of",
    "leaks_in",
    "normal",
    "problems",
    "tokens",
    "weight",
]

TOKEN = re.compile(
    r"[A-Za-z_]\w*|0[xX][0-9a-fA-F]+|\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?[a-zA-Z]?"
    r"|\*\*|//|<<|>>|<=|>=|==|!=|&&|\|\||->|\S"
)
OPERATORS = {*"+-*/%&|^~<>?[", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
             "and", "or", "not", "in", "if", "for", "lambda"}  # fmt: skip
KEPT = {*keyword.kwlist, *dir(builtins)}
# Expressions lighter than this occur by chance.
WEIGHT = 5


@dataclass(frozen=True)
class Leak:
    """One expression of a solution that occurs in a text."""

    exercise: str
    expression: str
    where: str

    def __str__(self) -> str:
        return (
            f"{self.where} contains {self.expression!r}, an expression of the solution of "
            f"{self.exercise}"
        )


def tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a text, numbers in one form."""
    return tuple(_number(token) for token in TOKEN.findall(text))


def _number(token: str) -> str:
    if not token[0].isdigit():
        return token
    plain = token.replace("_", "").rstrip("uUlLfF") if token[:2].lower() != "0x" else token
    try:
        return str(int(plain, 0))
    except ValueError:
        return plain


def normal(words: Sequence[str]) -> tuple[str, ...]:
    """Return tokens with each variable as its order of first use; attributes and calls stay."""
    order: dict[str, str] = {}
    made = []
    for place, word in enumerate(words):
        named = word.isidentifier() and word not in KEPT
        member = place > 0 and words[place - 1] == "."
        called = place + 1 < len(words) and words[place + 1] == "("
        if named and not member and not called:
            word = order.setdefault(word, f"${len(order)}")
        made.append(word)
    return tuple(made)


def weight(words: Sequence[str]) -> int:
    """Return how much an expression says: operators, calls, groups, and unusual numbers."""
    total = 0
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        unusual = word[0].isdigit() and word not in ("0", "1", "2")
        total += word in OPERATORS or word == "(" or unusual or before == "."
    return total


def expressions_of(text: str, lines: set[int]) -> list[str]:
    """Return the expressions of a cell that stand in the given lines, outer ones first.

    Args:
        text: the solved cell.
        lines: numbers of the lines of its solution, from 1.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    made = []
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and not isinstance(
            node, ast.Name | ast.JoinedStr | ast.Constant
        ):
            secret = node.lineno in lines and (node.end_lineno or node.lineno) in lines
            inside = ast.get_source_segment(text, node) if secret else None
            made += [inside] if inside else []
    return list(dict.fromkeys(made))


def _shader_expressions(text: str) -> list[str]:
    """Return the statements of a shader's solution, and what stands behind their equals signs."""
    made = []
    for statement in re.split(r"[;{}\n]", text):
        made.append(statement.strip())
        _, equals, value = statement.partition("=")
        if equals and not value.startswith("="):
            made.append(value.strip())
    return [statement for statement in made if statement]


class Words:
    """Tokens of a text, and where each occurs."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.positions: dict[str, list[int]] = {}
        for index, word in enumerate(self.tokens):
            self.positions.setdefault(word, []).append(index)


words_of = functools.lru_cache(maxsize=4096)(Words)  # a release reads each text once a lab


class Secret:
    """One expression of a solution, as it is searched for in texts."""

    def __init__(self, exercise: str, expression: str) -> None:
        self.exercise, self.expression = exercise, expression
        self.wanted = normal(tokens(expression))
        self.kept = [(n, word) for n, word in enumerate(self.wanted) if word[0] != "$"]

    def is_in(self, text: Words) -> bool:
        """Tell whether the expression occurs in a text, at the places of its rarest word."""
        if any(word not in text.positions for _, word in self.kept):
            return False
        ahead, rare = min(
            self.kept, key=lambda entry: len(text.positions[entry[1]]), default=(0, "")
        )
        for at in text.positions[rare] if rare else range(len(text.tokens)):
            part = text.tokens[at - ahead : at - ahead + len(self.wanted)] if at >= ahead else ()
            if (
                all(part[n : n + 1] == (word,) for n, word in self.kept)
                and normal(part) == self.wanted
            ):
                return True
        return False


def _secrets(lab: Lab) -> Iterator[Secret]:
    """Yield the heavy expressions of each exercise's solution."""
    for identifier, cell in lab.named("exercise").items():
        kept = [line for line in regions.lines_of(lab, cell) if line.region in ("", "solution")]
        solved = "\n".join(line.text for line in kept)
        numbers = {n for n, line in enumerate(kept, 1) if line.region == "solution"}
        written = expressions_of(solved, numbers)
        if not written:
            written = _shader_expressions(
                "\n".join(line.text for line in kept if line.region == "solution")
            )
        given = Words(" ".join(line.text for line in kept if not line.region))
        for expression in written:
            if weight(tokens(expression)) >= WEIGHT:
                secret = Secret(identifier, expression)
                if not secret.is_in(given):
                    yield secret


def leaks_in(lab: Lab, texts: Iterable[tuple[str, str]], allowed: Iterable[str] = ()) -> list[Leak]:
    """Return the expressions of a lab's solutions that occur in texts.

    Args:
        lab: the lab.
        texts: names and texts: cells of a notebook, hints, files of a release.
        allowed: expressions that a lab teaches before it asks for them.
    """
    taught = {normal(tokens(text)) for text in allowed}
    secrets = [secret for secret in _secrets(lab) if secret.wanted not in taught]
    leaks = []
    for where, text in texts:
        leaks += [
            Leak(secret.exercise, secret.expression, where)
            for secret in secrets
            if secret.is_in(words_of(text))
        ]
    return leaks


def problems(lab: Lab, texts: Iterable[tuple[str, str]], allowed: Iterable[str] = ()) -> list[str]:
    """Return one sentence a leak, the longest expression of each place first.

    Args:
        lab: the lab.
        texts: as in `leaks_in`.
        allowed: as in `leaks_in`.
    """
    said: dict[tuple[str, str], Leak] = {}
    for leak in leaks_in(lab, texts, allowed):
        key = leak.exercise, leak.where
        if key not in said or len(leak.expression) > len(said[key].expression):
            said[key] = leak
    return [f"{lab.name}: {leak}" for leak in said.values()]
