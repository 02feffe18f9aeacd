"""Options of a model's inputs and of the sizes of open dimensions.

Decides the input arrays of a run; the session checks them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from vklab.base import draw
from vklab.graph import bounds, shapes
from vklab.graph.graph import Graph
from vklab.types import ANY_SHAPE, TensorInfo

SEED = 0
_LITERAL = re.compile(r"[-\d\[]|true$|false$")  # how a value begins; a file's name may, too

Model = Annotated[Path, typer.Argument(help="An ONNX file.", show_default=False)]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=FILE.npy|VALUE",
        help="Read an input from a file, or inputs by name from FILE.npz, or give its "
        "value, as in steps=3 or sizes=[2,4]; repeatable. Other inputs are random, the "
        "same numbers every time; a default keeps its initializer.",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of an open dimension; repeatable. Default: that of --input, or 1.",
    ),
]
Size = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of an open dimension; repeatable. Default: that of --input, its upper "
        "bound, or 1.",
    ),
]
UpperBounds = Annotated[
    list[str] | None,
    typer.Option(
        "--upper-bound",
        metavar="NAME=SIZE",
        help="Largest size of an open dimension; repeatable. Memory for all sizes up to "
        "it is reserved once.",
    ),
]


@dataclass(frozen=True)
class Fed:
    """Input arrays of a model, and a line on the origin of each."""

    arrays: dict[str, np.ndarray]
    origins: tuple[str, ...]


def feed(
    infos: Sequence[TensorInfo],
    files: Sequence[str] | None,
    dims: Sequence[str] | None,
    defaults: Sequence[TensorInfo] = (),
) -> Fed:
    """Return an array for every input: from its file, else random; for a default from its file.

    Raises typer.BadParameter for options that do not fit the model, and FileNotFoundError.

    Args:
        infos: the model's inputs.
        files: values of --input.
        dims: values of --dim.
        defaults: the model's initializers that a file may override.
    """
    given = given_arrays((*infos, *defaults), files)
    infos = (*infos, *(info for info in defaults if info.name in given))
    sizes = open_sizes(infos, given, parse_dims(dims))
    arrays, origins = {}, []
    for info in infos:
        if info.name in given:
            arrays[info.name] = given[info.name]
            where = "from its file"
        else:
            arrays[info.name] = _random(info, sizes)
            where = "empty text" if info.dtype == "string" else f"random, seed {SEED}"
        array = arrays[info.name]
        dtype = "string" if info.dtype == "string" else array.dtype
        origins.append(f"{info.name}: {dtype}{list(array.shape)}, {where}")
    return Fed(arrays, tuple(origins))


def parse_dims(options: Sequence[str] | None, flag: str = "--dim") -> dict[str, int]:
    """Return the sizes of --dim, or of another option of its form."""
    sizes = {}
    for option in options or ():
        name, _, text = option.rpartition("=")
        if not name or not text.isdigit():
            raise typer.BadParameter(f"{flag} {option}: write NAME=SIZE with a whole number")
        sizes[name] = int(text)
    return sizes


def open_sizes(
    infos: Sequence[TensorInfo], given: dict[str, np.ndarray], sizes: dict[str, int]
) -> dict[str, int]:
    """Return a size for every open dimension: from --dim, a given array, or 1.

    Args:
        infos: the model's inputs.
        given: arrays of --input by name.
        sizes: sizes of --dim by name.
    """
    names = [
        dim
        for info in infos
        if info.shape != ANY_SHAPE
        for dim in info.shape
        if isinstance(dim, str)
    ]
    _require_known("--dim", sizes, names)
    defaults = dict.fromkeys(names, 1)
    for info in infos:
        if info.name in given and given[info.name].ndim == info.rank:
            pairs = zip(info.shape, given[info.name].shape, strict=True)
            defaults.update({dim: size for dim, size in pairs if isinstance(dim, str)})
    return {**defaults, **sizes}


def fixed_sizes(
    graph: Graph, files: Sequence[str] | None, dims: Sequence[str] | None,
    upper: Sequence[str] | None,
) -> tuple[dict[str, int], list[str], dict[str, int]]:  # fmt: skip
    """Return the upper bounds, values of --dim that begin with them, and a size for each dimension.

    Args:
        graph: the model's graph.
        files: values of --input.
        dims: values of --dim.
        upper: values of --upper-bound.
    """
    most = dict(bounds.resolve(graph.inputs, parse_dims(upper, "--upper-bound")))
    dims = [*(f"{name}={size}" for name, size in most.items()), *(dims or ())]
    given = given_arrays((*graph.inputs, *graph.defaults), files)
    return most, dims, open_sizes(graph.inputs, given, parse_dims(dims))


def given_arrays(infos: Sequence[TensorInfo], files: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Return the arrays of --input by name; a value has the dtype of its input.

    Raises typer.BadParameter for options that do not fit the model, and FileNotFoundError.
    """
    given = _read_files(files or ())
    _require_known("--input", given, [info.name for info in infos])
    for info in (info for info in infos if isinstance(given.get(info.name), _Value)):
        try:
            given[info.name] = np.asarray(given[info.name].value, info.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise typer.BadParameter(
                f"--input {info.name}={given[info.name].value}: no {info.dtype}: {error}"
            ) from None
    return given


def _require_known(option: str, given: dict, names: Sequence[str]) -> None:
    unknown = [name for name in given if name not in names]
    if unknown:
        known = ", ".join(dict.fromkeys(names)) or "none"
        raise typer.BadParameter(f"{option} {unknown[0]}=...: the model has {known}")


@dataclass(frozen=True)
class _Value:
    """A value that an option spells, before its input's dtype is known."""

    value: Any


def _read_files(options: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for option in options:
        name, equals, file = option.partition("=")
        path = Path(file if equals else option)
        if equals and not path.exists() and _LITERAL.match(file):
            try:
                given[name] = _Value(json.loads(file))
            except ValueError as error:
                raise typer.BadParameter(
                    f"--input {option}: neither a file nor a value: {error}"
                ) from None
            continue
        try:
            loaded = np.load(path, allow_pickle=False)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no input file {path}") from None
        except (ValueError, EOFError) as error:
            raise typer.BadParameter(f"{path} is not a .npy or .npz file: {error}") from None
        if isinstance(loaded, np.ndarray):
            if not equals:
                raise typer.BadParameter(f"--input {option}: write NAME={option}")
            given[name] = loaded
            continue
        with loaded:
            if equals and name not in loaded.files:
                have = ", ".join(loaded.files)
                raise typer.BadParameter(f"--input {option}: {path} holds {have}, not {name}")
            given.update({key: loaded[key] for key in ([name] if equals else loaded.files)})
    return given


def _random(info: TensorInfo, sizes: dict[str, int]) -> np.ndarray:
    """Return random numbers of an input's dtype: normal, or 0 and 1, which are valid indices.

    Text is empty.
    """
    shape = tuple(sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in info.shape)
    generator = np.random.default_rng(SEED)
    problem = f"input {info} has no random values; run the model from Python, with Session.run"
    count = math.prod(shape) * 8  # NumPy draws float64 and int64
    if count > shapes.MOST_BYTES:
        raise typer.BadParameter(
            f"input {info} with shape {shape} needs {draw.bytes_text(count)}, "
            "more than the memory of this machine; choose smaller sizes with "
            "--dim"
        )
    if info.dtype == "string":
        return np.full(shape, "", object)
    try:
        dtype = np.dtype(info.dtype)
    except TypeError:
        raise typer.BadParameter(problem) from None
    if dtype.kind in "biu":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "fcV":
        return generator.standard_normal(shape).astype(dtype)
    raise typer.BadParameter(problem)
