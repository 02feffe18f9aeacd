"""Put the text of a kernel in the place of an operator's, for the shapes that it can do.

Visited by labs 04, 04b, 07 and 08.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vklab.errors import ShaderError
from vklab.ops import registry
from vklab.ops.registry import Operator, Result
from vklab.shader import compiler
from vklab.types import Dispatch, TensorInfo
from vklab_course.children.kernel_answers import is_glsl
from vklab_course.piece import Given, Piece

__all__ = ["MOST_GROUPS", "Task", "is_plain", "kernel_piece"]

MOST_GROUPS = 65535  # along one axis: what every device can do
# From the parameters of a variant, inputs and attributes: the shape of y, workgroups and pushed
# numbers of a kernel; None where it cannot do the operator's work.
Task = tuple[tuple[int, ...], tuple[int, int, int], Mapping[str, Any]]
Tasks = Callable[..., Task | None]


def kernel_piece(
    identifier: str, op_type: str, reads: tuple[str, ...], own: str, tasks: Tasks
) -> Piece:
    """Return the piece of an exercise whose answer is the kernel of an operator.

    Args:
        identifier: the exercise, "04-2".
        op_type: the operator.
        reads: the kernel's names of the operator's first inputs; its result is `y`.
        own: the text of a kernel that calls the runtime's shader modules; [[tile]] stands for a
            parameter of the variant.
        tasks: see `Tasks`.
    """

    def rendered(params: Mapping[str, Any]) -> str:
        text = own
        for name, value in params.items():
            text = text.replace(f"[[{name}]]", str(value))
        return text

    def standing(kernel: Given) -> dict[tuple[str, str], list[Operator]]:
        path = _written(identifier, kernel.value)
        buffers = [name.upper() if path.endswith(".comp") else name for name in (*reads, "y")]
        found = sorted(compiler.compile_variant(path).reflection.bindings)
        assert found == sorted(buffers), (
            f"the kernel has the buffers {', '.join(found)}; it needs {', '.join(buffers)}"
        )
        entries = [
            replace(entry, function=_either(entry.function, path, buffers, kernel.params, tasks))
            for entry in registry.OPERATORS["", op_type]
        ]
        return {**registry.OPERATORS, ("", op_type): entries}

    return Piece(op_type, "vklab.ops.registry.OPERATORS", {identifier: rendered}, standing)


def is_plain(*infos: TensorInfo | None) -> bool:
    """Tell whether all are float32 tensors of known shapes with elements, one of unknown values."""
    return any(info is not None and info.constant is None for info in infos) and all(
        info is not None
        and info.dtype == "float32"
        and all(type(dim) is int and dim > 0 for dim in info.shape)
        for info in infos
    )


def _either(
    real: Callable[..., Any], path: str, buffers: Sequence[str], params: Mapping[str, Any],
    tasks: Tasks,
) -> Callable[..., Any]:  # fmt: skip
    """Return an operator's function that dispatches a kernel, or calls the real function.

    Args:
        real: the runtime's function.
        path: file of the kernel.
        buffers: its names of what it reads, and of what it writes.
        params: parameters of the kernel's variant.
        tasks: see `Tasks`.
    """

    def function(*inputs: TensorInfo | None, **attributes: Any) -> Any:
        task = tasks(params, *inputs, **attributes)
        if task is None or max(task[1]) > MOST_GROUPS:
            return real(*inputs, **attributes)
        shape, groups, push = task
        y, (*reads, made) = registry.output("float32", shape), buffers
        operands = tuple((name, info) for name, info in zip(reads, inputs, strict=False) if info)
        dispatch = Dispatch(path, operands, ((made, y),), groups, tuple(push.items()))
        return Result((y,), (dispatch,))

    return function


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="vklab-kernels-")  # until the process ends


def _written(identifier: str, text: Any) -> str:
    """Return the file of a kernel. Raises AssertionError for a text that does not compile."""
    assert isinstance(text, str), f"{text!r} is no text of a kernel"
    suffix = ".comp" if is_glsl(text) else ".slang"
    path = Path(_folder().name) / f"yours_{identifier.replace('-', '_')}{suffix}"
    path.write_text(text, "utf-8")
    try:
        compiler.compile_variant(str(path))
    except ShaderError as error:
        raise AssertionError(f"the kernel does not compile: {error}") from None
    return str(path)
