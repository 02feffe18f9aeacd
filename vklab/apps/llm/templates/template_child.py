"""Child process that renders chat templates, which are untrusted, in Jinja's sandbox.

Reads one JSON object a line from stdin and writes one JSON line to stdout. The parent
(`template_process`) bounds time and memory; this file bounds what an operator makes and the text,
and tells which characters of a text are the template's own. Imports nothing of vklab, so that it
starts quickly. Source: transformers, chat_template_utils.py.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import operator
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

# Ctrl-C is for the parent, which ends this process when it wants to.
signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    import jinja2
    from jinja2 import compiler, ext, filters, nodes, parser, sandbox
except ImportError as error:  # reported to the parent: the extra `llm` brings Jinja
    sys.stdout.write(json.dumps({"missing": str(error)}) + "\n")
    raise SystemExit(0) from None
try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

LARGEST_NUMBER = 1 << 64
OTHER = "\ud800"  # in no name of a token, since UTF-8 has no such character
# Fields of the two ways to format; else a literal character, as group 1.
PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*[*\d]*(?:\.[*\d]*)?[hlL]?.|(.)", re.DOTALL)
BRACES = re.compile(r"\{\{|\}\}|\{(?:[^{}]|\{[^{}]*\})*\}|(.)", re.DOTALL)


class _Text(str):
    """Text that knows which of its characters are the template's own.

    `_own` is the text with OTHER in place of every character that is not. To a template's program
    this is a str like any other. A method of str that is not defined here returns a plain str,
    which is nowhere the template's own: an operation may lose that mark, but never give it.
    """

    _own: str

    def __new__(cls, text: str, own: str = "") -> _Text:
        made = super().__new__(cls, text)
        made._own = own or OTHER * len(made)
        return made

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        return _Text(super().__getitem__(key), self._own[key])

    def __add__(self, other: str) -> str:
        return EMPTY.join((self, other)) if type(other) in (str, _Text) else NotImplemented

    def __radd__(self, other: str) -> str:
        return EMPTY.join((other, self)) if type(other) is str else NotImplemented

    def __mul__(self, count: SupportsIndex) -> str:
        return _Text(super().__mul__(count), self._own * count)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return self._formatted(PERCENT, lambda text: text % values)

    def join(self, items: Iterable[str]) -> _Text:
        parts = [part for item in items for part in (self, item)][1:]
        return _Text(
            "".join(parts),
            "".join(
                [part._own if isinstance(part, _Text) else OTHER * len(part) for part in parts]
            ),
        )

    def lstrip(self, chars: str | None = None) -> str:
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None) -> str:
        return self[: len(super().rstrip(chars))]

    def strip(self, chars: str | None = None) -> str:
        return self.lstrip(chars).rstrip(chars)

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        pieces, start = super().split(sep, maxsplit), 0
        for number, piece in enumerate(pieces if sep is not None else ()):
            pieces[number] = self[start : start + len(piece)]
            start += len(piece) + len(sep or "")
        return pieces

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> str:
        if not old:
            return super().replace(old, new, count)
        return (new if isinstance(new, _Text) else _Text(new)).join(self.split(old, count))

    def _formatted(self, fields: re.Pattern[str], form: Callable[[str], str]) -> str:
        """Return what a formatting makes of this text; the literals between fields are kept.

        A second formatting, of a text in which OTHER stands for each literal, shows where they are.
        """
        plain = str.__str__(self)
        made = form(plain)
        shown = form(
            fields.sub(
                lambda found: OTHER if found[1] and self._own[found.start()] != OTHER else found[0],
                plain,
            )
        )
        if len(made) != len(shown) or any(map(_differ, made, shown)):
            return made
        return _Text(
            made,
            "".join(
                [one if other == OTHER else OTHER for one, other in zip(made, shown, strict=True)]
            ),
        )


EMPTY = _Text("")


def _differ(one: str, other: str) -> bool:
    return other not in (one, OTHER)


def _own(text: str) -> _Text:
    return _Text(text, text)


class _CodeGenerator(compiler.CodeGenerator):
    """Generator of a template's program, in which every string is the template's own."""

    def visit_Const(self, node: nodes.Const, frame: compiler.Frame) -> None:
        """Write a constant of an expression."""
        if isinstance(node.value, str):
            self.write(f"environment.own({node.value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: compiler.Frame) -> None:
        """Write the operator `~`."""
        self.write("concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.own({super()._output_const_repr(group)})"


class _Generation(ext.Extension):
    """Block `generation`, which marks an answer for training; its body alone counts."""

    tags = {"generation"}

    def parse(self, parser: parser.Parser) -> list[nodes.Node]:
        """Return the body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(sandbox.ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which products and powers stay small, and own text is known."""

    code_generator_class = _CodeGenerator
    concat = EMPTY.join
    own = staticmethod(_own)
    intercepted_binops = frozenset({"*", "**"})
    most_characters = 0

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute; the method `format` of a text keeps what is the template's own."""
        if not isinstance(obj, _Text) or attribute != "format":
            return super().getattr(obj, attribute)
        formatter = sandbox.SandboxedFormatter(self)
        return lambda *args, **named: obj._formatted(
            BRACES, lambda text: formatter.vformat(text, args, named)
        )

    def call_binop(
        self, context: Any, operator: str, left: Any, right: Any
    ) -> Any:  # fmt: skip
        """Return a product or a power; TemplateError for one that is too large."""
        if operator == "**":
            small = isinstance(left, (int, float)) and abs(left) <= 1000 and abs(right) <= 16
            if not small:
                raise jinja2.TemplateError(f"{left!r:.20} ** {right!r:.20} may be too large")
        for count, items in ((left, right), (right, left)):
            if isinstance(count, int) and hasattr(items, "__len__"):
                if count * len(items) > self.most_characters:
                    raise jinja2.TemplateError(f"{count!r:.20} * {len(items)} items are too many")
            elif isinstance(count, int) and abs(count) > LARGEST_NUMBER:
                raise jinja2.TemplateError(f"{count!r:.20} is too large for a product")
        return super().call_binop(context, operator, left, right)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(str(message))


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
    sort_keys: bool = False,
) -> str:  # fmt: skip
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


@jinja2.pass_eval_context
def _join(context: Any, items: Any, separator: str = "", attribute: Any = None) -> str:
    return filters.do_join(context, items, EMPTY + str(separator), attribute)


def _environment(most_characters: int) -> _Environment:
    # The optimizer would write lists of strings, in which no string is the template's own.
    made = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        extensions=[_Generation, ext.loopcontrols],
    )
    made.most_characters = most_characters
    made.filters.update(tojson=_to_json, join=_join)
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    return made


def _variables(given: dict[str, Any], own: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the variables, in which the strings at some paths are the template's own."""
    for *path, last in own:
        holder = functools.reduce(operator.getitem, path, given)
        holder[last] = _own(holder[last])
    return given


def _rendered(request: dict[str, Any]) -> dict[str, str]:
    """Return the text of a request and what of it is the template's, or an error in one line."""
    most = int(request["most_characters"])
    try:
        template = _environment(most).from_string(request["template"])
        parts, size = [], 0
        for part in template.generate(_variables(request["variables"], request["own"])):
            size += len(part)
            if size > most:
                return {"error": f"makes more than {most} characters"}
            parts.append(part)
        text = EMPTY.join(parts)
        return {"text": text, "own": text._own}
    except MemoryError:
        return {"error": "needs too much memory"}
    except Exception as error:  # whatever a stranger's template raises
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())!s:.300}"}


def _limit_memory(most_bytes: int) -> None:
    """Bound the memory and the files of this process, where the system supports it."""
    if resource is None:
        return
    for name, most in (("RLIMIT_AS", most_bytes), ("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (most, most))


def main() -> None:
    """Answer requests until stdin ends; the only argument is the limit of memory in bytes."""
    _limit_memory(int(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_rendered(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
