"""Child process that renders chat templates, which are untrusted, in Jinja's sandbox.

Reads one JSON object a line from stdin and writes one JSON line to stdout. The parent
(`template_process`) bounds time and memory; this file bounds what an operator makes and the text.
Imports nothing of vklab, so that it starts quickly. Source: transformers, chat_template_utils.py.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import signal
import sys
from typing import Any

# Ctrl-C is for the parent, which ends this process when it wants to.
signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    import jinja2
    from jinja2 import ext, nodes, parser, sandbox
except ImportError as error:  # reported to the parent: the extra `llm` brings Jinja
    sys.stdout.write(json.dumps({"missing": str(error)}) + "\n")
    raise SystemExit(0) from None
try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["main"]

LARGEST_NUMBER = 1 << 64


class _Generation(ext.Extension):
    """Block `generation`, which marks an answer for training; its body alone counts."""

    tags = {"generation"}

    def parse(self, parser: parser.Parser) -> list[nodes.Node]:
        """Return the body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(sandbox.ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which products and powers stay small."""

    intercepted_binops = frozenset({"*", "**"})
    most_characters = 0

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
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)  # fmt: skip


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _environment(most_characters: int) -> _Environment:
    made = _Environment(trim_blocks=True, lstrip_blocks=True,
                        extensions=[_Generation, ext.loopcontrols])  # fmt: skip
    made.most_characters = most_characters
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    return made


def _rendered(request: dict[str, Any]) -> dict[str, str]:
    """Return the text of a request, or an error in one line."""
    most = int(request["most_characters"])
    try:
        template = _environment(most).from_string(request["template"])
        parts, size = [], 0
        for part in template.generate(**request["variables"]):
            size += len(part)
            if size > most:
                return {"error": f"makes more than {most} characters"}
            parts.append(part)
        return {"text": "".join(parts)}
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
