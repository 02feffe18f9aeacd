"""Graded kernel's side of a check: find the answer, and pass the request to the stub.

Everything here can be replaced by the submission, so nothing here decides: only decoded results
leave the kernel, and they are compared outside.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from vklab_course.definition import stub
from vklab_course.definition.codec import encode

__all__ = ["reply"]


def reply(request: str, expression: str, namespace: Mapping[str, Any]) -> str:
    """Return the stub's reply to a request, as base64 text.

    Args:
        request: the stub's request, as base64 text.
        expression: the answer, as the check cell names it.
        namespace: names of the notebook.
    """
    try:
        answer = eval(expression, dict(namespace))
    except NameError as error:
        return _text({"no_answer": str(error)[:1000]})
    if answer is ...:
        return _text({"not_attempted": "the dots have not been replaced by an answer"})
    return _text({"reply": stub.reply_to(base64.b64decode(request), answer)})


def _text(content: Mapping[str, Any]) -> str:
    return base64.b64encode(encode(dict(content))).decode("ascii")
