"""Stub: call an answer on a batch of cases, in the process that holds the answer.

A request and its reply are bytes of the codec, in a student's notebook as in a graded kernel. The
stub decides nothing: who compares sits elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vklab_course import limits, seam, words
from vklab_course.definition.case import Case, Folder, Got
from vklab_course.definition.codec import CodecError, Raised, decode, encode

__all__ = ["reply_to", "request_for", "results_of", "with_paths", "write_files"]

# PRINTED exceeds the longest message of a check.
PRINTED = 100_000
PRINTED_EACH = 400  # of one case
TREE = "/case"


def request_for(
    cases: Sequence[Case], takes: str, seconds: float, seams: Sequence[str] = ()
) -> bytes:
    """Return the request for a batch of cases.

    Args:
        cases: the cases; their oracles stay here.
        takes: function, or value for an answer that is not called.
        seconds: time limit of the batch.
        seams: functions of the runtime that raise meanwhile.
    """
    questions = [case.question for case in cases]
    return encode(
        {"takes": takes, "seconds": float(seconds), "seams": list(seams), "questions": questions}
    )


def reply_to(request: bytes, answer: Any) -> bytes:
    """Call an answer as a request says; return how each call ended, and what was printed."""
    asked = decode(request)
    outcomes: list[dict[str, Any]] = []
    printed, starts = None, [0]
    try:
        with seam.refusing(asked["seams"]), limits.limited(asked["seconds"], PRINTED) as printed:
            for question in asked["questions"]:
                outcomes.append(_outcome(answer, asked["takes"], decode(question)))
                starts.append(len(printed.text))
                if outcomes[-1]["how"] == "not_attempted":
                    break
    except limits.LimitReached as limit:
        how = "timeout" if isinstance(limit, limits.OutOfTime) else "too_much_output"
        outcomes.append({"how": how, "message": str(limit)})
    if printed is not None and printed.text:
        for outcome, first, last in zip(outcomes, starts, [*starts[1:], None], strict=False):
            outcome["printed"] = printed.text[first:last][:PRINTED_EACH]
    return encode({"outcomes": outcomes, "printed": printed.text[:2000] if printed else ""})


def results_of(reply: bytes, count: int) -> tuple[list[Got], str]:
    """Return one Got for each case, and what was printed. Raises CodecError for a strange reply.

    Args:
        reply: the bytes from the stub.
        count: number of cases asked.
    """
    content = decode(reply)
    if type(content) is not dict or type(content.get("outcomes")) is not list:
        raise CodecError("the reply has no outcomes")
    got = [_got(outcome) for outcome in content["outcomes"][:count]]
    got += [Got("not_run")] * (count - len(got))
    return got, words.whole(str(content.get("printed", ""))[:2000])


def _got(outcome: Any) -> Got:
    if type(outcome) is not dict or type(outcome.get("how")) is not str:
        raise CodecError("an outcome is no dictionary")
    data = outcome.get("data", b"")
    if type(data) is not bytes:
        raise CodecError("a result is no bytes")
    value = decode(data) if outcome["how"] == "returned" else outcome.get("value")
    if outcome["how"] == "raised" and type(value) is not Raised:
        raise CodecError("an exception without its names")
    kept = ("message", "changed", "printed")
    said = (words.whole(str(outcome.get(key, ""))[:4000]) for key in kept)
    return Got(outcome["how"], value, *said)


def _outcome(answer: Any, takes: str, question: Mapping[str, Any]) -> dict[str, Any]:
    try:
        value, changed = (answer, "") if takes == "value" else _called(answer, question)
        return {"how": "returned", "data": encode(value), "changed": changed}
    except NotImplementedError as error:
        said = words.short_message(error)
        if said.startswith("Lab "):
            return {"how": "not_attempted", "message": said}
        return {"how": "raised", "value": Raised.of(error)}
    except CodecError as error:
        return {"how": "cannot_travel", "message": f"returned something {error}"}
    except (Exception, SystemExit, GeneratorExit) as error:
        return {"how": "raised", "value": Raised.of(error)}


def _called(answer: Any, question: Mapping[str, Any]) -> tuple[Any, str]:
    """Return what the answer returns, and the name of an argument that it has changed, or ""."""
    with contextlib.ExitStack() as stack:
        # Most cases have no files, and most answers write none.
        tree = functools.cache(
            lambda: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vklab-")))
        )
        if question["files"]:
            write_files(question["files"], tree())
        args = with_paths(question["args"], tree)
        named = with_paths(question["named"], tree)
        given = {**_by_name(answer, args), **named}
        before = {name: _state(one) for name, one in given.items()}
        value = answer(*args, **named)
        if question["steps"]:
            value = [
                getattr(value, method)(*with_paths(args, tree))
                for method, args in question["steps"]
            ]
        if isinstance(value, Iterator):
            if not question["drain"]:
                raise CodecError(
                    f"of type {type(value).__name__}, which can be read only once: "
                    "return a list of it"
                )
            value = list(itertools.islice(value, int(question["drain"])))
        value = _without_paths(value, tree()) if question["files"] else value
        return value, next((n for n, one in given.items() if _state(one) != before[n]), "")


def write_files(files: Mapping[str, Any], tree: Path) -> None:
    """Write the files of a case, texts or bytes by relative path, into a folder."""
    for path, content in files.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


def _by_name(answer: Any, args: Sequence[Any]) -> dict[str, Any]:
    """Return positional arguments by the names that the answer gives them."""
    try:
        names = list(inspect.signature(answer).bind_partial(*args).arguments)
    except (TypeError, ValueError):
        names = []
    names = names if len(names) == len(args) else [f"number {i + 1}" for i in range(len(args))]
    return dict(zip(names, args, strict=True))


def _state(value: Any) -> bytes:
    """Return a value's bytes; the order of a dictionary's keys does not count."""
    try:
        return encode(_settled(value))
    except (CodecError, RecursionError):
        return b""  # an answer has put something into it


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted([encode(key), encode(_settled(one))] for key, one in value.items())
    return [_settled(one) for one in value] if isinstance(value, tuple | list) else value


def with_paths(value: Any, tree: Callable[[], Path]) -> Any:
    """Return arguments with the real paths of the case's folders."""
    if isinstance(value, Folder):
        return str(tree() / value.path) if value.path else str(tree())
    if isinstance(value, tuple | list):
        return type(value)(with_paths(item, tree) for item in value)
    if isinstance(value, dict):
        return {key: with_paths(item, tree) for key, item in value.items()}
    return value


def _without_paths(value: Any, tree: Path) -> Any:
    """Return a result with `/case` in place of the temporary folder, the same in every run."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return value.replace(os.path.realpath(tree), TREE).replace(str(tree), TREE)
    if isinstance(value, tuple | list):
        return type(value)(_without_paths(item, tree) for item in value)
    if isinstance(value, dict):
        return {_without_paths(k, tree): _without_paths(v, tree) for k, v in value.items()}
    return value
