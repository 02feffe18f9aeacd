"""Options that several commands share, and groups of them.

Decides names, forms and help of these options; imports no numpy, so that `doctor` starts without.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from vklab.apps.cli import console


def written_file(*names: str, help: str, metavar: str = "FILE") -> Any:
    """Return an option that names a file to write; a folder that is missing is a usage error.

    Args:
        names: the option's names; by default that of the parameter.
        help: what is written.
        metavar: the placeholder in the help.
    """
    return typer.Option(
        *names,
        metavar=metavar,
        help=f"{help} Its folder must exist.",
        callback=_require_folder,
        show_default=False,
    )


def require_parent(path: Path | None) -> Path | None:
    """Return the path of an option; typer.BadParameter if its folder is not there."""
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(
            f"there is no folder {path.parent}; create it first, for example "
            f"with mkdir -p {path.parent}"
        )
    return path


def _require_folder(path: Path | None) -> Path | None:
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it")
    return require_parent(path)


Json = Annotated[bool, typer.Option("--json", help=console.JSON_HELP)]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="INDEX|NAME|gpu|cpu",
        help="Device to use: its index, part of its name, or the fastest GPU or CPU. "
        "Default: the fastest.",
    ),
]
DType = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="float16",
        help="Compute a float32 model in half precision. Default: the model's dtype.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="bf16x3|half-sums|int8|exact",
        help="Products of float32 as three of bfloat16, or sums of float16 in float16: "
        "faster on matrix units, less exact. int8 and exact: rows times weights in blocks "
        "may, or may not, be rounded. Default: as the model permits.",
        show_default=False,
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE.npz",
        help="Inputs by name. Default: those of a PyTorch factory, else random ones of a seed.",
        show_default=False,
    ),
]
Peers = Annotated[
    Path | None,
    typer.Option(
        "--peers",
        metavar="FOLDER",
        help="Folder with a folder for each package that "
        "cannot stand beside the others. Default: one in the cache folder, which `vklab "
        "bench peers` fills.",
        show_default=False,
    ),
]


def split(devices: str | None) -> list[str] | str | None:
    """Return the argument `devices` of `vklab.load` for a value of --devices."""
    if devices is None or devices == "all":
        return devices
    return [name.strip() for name in devices.split(",")]


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that takes an option for each field of its groups.

    A group is a parameter whose type is a dataclass; its fields have defaults, and are annotated
    as options are.
    """
    given = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in given if dataclasses.is_dataclass(one.annotation)
    }
    options: list[inspect.Parameter] = []
    for one in given:
        group = groups.get(one.name)
        options += [one.replace(kind=one.KEYWORD_ONLY)] if group is None else _options(group)

    @functools.wraps(command)
    def flat(**values: Any) -> Any:
        made = {
            name: group(
                **{field.name: values.pop(field.name) for field in dataclasses.fields(group)}
            )
            for name, group in groups.items()
        }
        return command(**values, **made)

    flat.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return flat


def _options(group: Any) -> list[inspect.Parameter]:
    """Return the fields of a group as parameters of a command."""
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]
