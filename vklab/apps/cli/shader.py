"""Commands `vklab shader ...`: compile a shader and show its interface; show and list kernels.

Visited by labs 04 and 05.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab.apps.cli.options import Json, written_file
from vklab.base import draw
from vklab.errors import ShaderError
from vklab.shader import compiler, source, stock_builder

shader = typer.Typer(no_args_is_help=True, help="Compile, show and list shaders.")
Name = Annotated[str, typer.Argument(help="A kernel's name (softmax), labs/NAME.comp, or a path.")]
TYPES = {"b": "int8", "B": "uint8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32",
         "q": "int64", "Q": "uint64", "e": "float16", "f": "float32", "d": "float64"}  # fmt: skip


@shader.command("compile")
def compile_shader(
    name: Annotated[str, typer.Argument(metavar="FILE", help="A path, or a kernel's name.")],
    define: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="NAME=VALUE", help="Define a macro; repeatable. Default: the "
                     "macros of the kernel's first stock variant."),
    ] = None,
    output: Annotated[
        Path | None, written_file("-o", metavar="FILE.spv", help="Write the SPIR-V here.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compile a shader to SPIR-V and show its buffers, push and specialization constants."""
    path = source.find(name)
    defines = _defines(path, define or ())
    try:
        compiled = compiler.compile_variant(name, defines)
    except ShaderError as error:
        console.warn(str(error))
        if as_json:
            console.emit({"ok": False, "path": str(path), "errors": str(error).splitlines()})
        raise typer.Exit(1) from None
    if output:
        output.write_bytes(compiled.spirv)
    if as_json:
        console.emit(_facts(path, compiled))
    else:
        _show_compiled(path, compiled, output)


def _defines(path: Path, given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the macros of -D, else those of the first stock variant of a runtime kernel."""
    pairs = (text.partition("=") for text in given)
    defines = tuple((name, value if equals else "1") for name, equals, value in pairs)
    stock = [] if defines else stock_builder.variants(path)
    return stock[0][1] if stock else defines


def _facts(path: Path, compiled: compiler.Shader) -> dict[str, Any]:
    reflection = compiled.reflection
    return {
        "ok": True,
        "path": str(path),
        "bytes": len(compiled.spirv),
        "origin": compiled.origin,
        "entry": reflection.entry,
        "defines": dict(compiled.defines),
        "bindings": {
            name: {"number": binding.number, "writable": binding.writable}
            for name, binding in reflection.bindings.items()
        },
        "push_bytes": reflection.push_bytes,
        "push_constants": {
            name: {"offset": member.offset, "type": TYPES[member.format], "count": member.count}
            for name, member in reflection.push.items()
        },
        "specialization_constants": {
            name: {"id": item.id, "type": TYPES[item.format], "default": item.default}
            for name, item in reflection.constants.items()
        },
    }


def _show_compiled(path: Path, compiled: compiler.Shader, output: Path | None) -> None:
    facts = _facts(path, compiled)
    size = f"{draw.bytes_text(facts['bytes'])} of SPIR-V from the {facts['origin']}"
    console.say(f"{path}: {size}" + (f", written to {output}" if output else ""))
    if compiled.defines:
        console.say("defines " + ", ".join(f"{name}={value}" for name, value in compiled.defines))
    for title, headers, rows in (
        (
            "storage buffers",
            ("binding", "name", "access"),
            [
                (item["number"], name, "read and write" if item["writable"] else "read")
                for name, item in facts["bindings"].items()
            ],
        ),
        (
            f"push constants, {facts['push_bytes']} bytes",
            ("offset", "name", "type"),
            [
                (
                    item["offset"],
                    name,
                    item["type"] + (f"[{item['count']}]" if item["count"] > 1 else ""),
                )
                for name, item in facts["push_constants"].items()
            ],
        ),
        (
            "specialization constants",
            ("id", "name", "type", "default"),
            [
                (item["id"], name, item["type"], item["default"])
                for name, item in facts["specialization_constants"].items()
            ],
        ),
    ):
        if rows:
            console.say()
            console.table(title, headers, rows, right="binding offset id")


@shader.command("show")
def show(name: Name) -> None:
    """Print a shader with all imports expanded: the text that the cache's key is made of."""
    console.say(source.expand(source.find(name)))


@shader.command("list")
def list_shaders(
    as_json: Json = False,
) -> None:
    """List all shaders, each with the first line of its header."""
    shaders: dict[str, dict[str, str]] = {}
    for root in source.roots():
        for path in sorted(path for path in root.rglob("*") if path.suffix in (".slang", ".comp")):
            name = path.relative_to(root).as_posix()
            opening = path.read_text("utf-8", "replace").split("\n", 1)[0]
            facts = {
                "name": name,
                "language": source.language(path),
                "path": str(path),
                "about": " ".join(opening.strip("/ ").split()),
            }
            shaders.setdefault(name, facts)
    if as_json:
        console.emit({"shaders": list(shaders.values())})
        return
    console.table("", ("name", "about"), [(f["name"], f["about"]) for f in shaders.values()])
