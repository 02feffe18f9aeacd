"""Command `vklab gguf`: convert a folder of Hugging Face to GGUF, or that to ONNX; list a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vklab.apps.cli import console
from vklab.apps.cli.options import Json, written_file
from vklab.apps.llm.graphs import models
from vklab.apps.llm.weights import gguf as files
from vklab.apps.llm.weights import hugging_face, onnx_export
from vklab.apps.quantization import blocks
from vklab.base import draw


def gguf(
    source: Annotated[
        Path, typer.Argument(help="A folder with config.json, SafeTensors, and tokenizer.json or "
                             "tokenizer.model; or a GGUF file.", show_default=False)
    ],
    output: Annotated[
        Path | None, written_file("--output", "-o", help="GGUF file to write; for a GGUF file, an "
                                  "ONNX file.")
    ] = None,
    block_type: Annotated[
        str, typer.Option("--type", metavar="FORMAT", help="Format of the matrices: "
                          f"{', '.join(hugging_face.FILE_TYPES)}; in ONNX "
                          f"{' or '.join(onnx_export.FLOATS)}.")
    ] = "F16",
    unused: Annotated[
        bool, typer.Option("--unused", help="List what vklab does not read of a GGUF file, and why "
                           "that changes no number; exit with 1 if that is unknown of a part.")
    ] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Convert a Llama, Qwen2, Qwen3 or GPT-2 model of Hugging Face to GGUF, or one of GGUF to ONNX.

    GGUF has the tokenizer, too. ONNX has the standard operators alone, and a cache that grows.
    """
    if unused:
        _list_unused(source, as_json)
        return
    if output is None:
        raise typer.BadParameter("--output is missing: name the file to write")
    if source.is_file():
        _to_onnx(source, output, block_type, as_json)
        return
    with console.bar("writing", " tensors") as progress:
        notes = hugging_face.convert(source, output, block_type, blocks.quantize, progress)
    made = files.read_gguf(output)
    if as_json:
        console.emit(
            {
                "path": str(output),
                "tensors": len(made.tensors),
                "type": block_type,
                "size_bytes": output.stat().st_size,
                "notes": list(notes),
            }
        )
        return
    for note in notes:
        console.warn(note)
    console.say(
        f"{output}: {made.text('general.architecture')}, {len(made.tensors)} tensors, "
        f"{draw.bytes_text(output.stat().st_size)}"
    )


def _list_unused(source: Path, as_json: bool) -> None:
    """Print what nothing reads of a GGUF file."""
    if source.is_dir():
        raise typer.BadParameter(
            f"{source} is a folder; --unused lists parts of a GGUF file, and "
            "a conversion tells what it leaves out"
        )
    found = models.unused_entries(files.read_gguf(source))
    if as_json:
        console.emit({"path": str(source), "unused": [asdict(each) for each in found]})
    else:
        console.table(
            "",
            ("entry or tensor", "value", "why it changes no number"),
            [(each.name, each.value, each.reason or "unknown") for each in found],
        )
    if not all(each.reason for each in found):
        raise typer.Exit(1)


def _to_onnx(source: Path, output: Path, block_type: str, as_json: bool) -> None:
    """Write a GGUF file's model as ONNX."""
    if output.suffix != ".onnx":
        raise typer.BadParameter(
            f"{source} is a file: it becomes ONNX, so the name {output.name} "
            "must end in .onnx; `vklab quantize` changes formats"
        )
    if block_type not in onnx_export.FLOATS:
        raise typer.BadParameter(
            f"--type {block_type}; in ONNX choose {', '.join(onnx_export.FLOATS)}"
        )
    size = onnx_export.export(files.read_gguf(source), output, blocks.dequantize, block_type)
    if as_json:
        console.emit({"path": str(output), "type": block_type, "size_bytes": size, "notes": []})
        return
    console.say(f"{output}: ONNX, opset {onnx_export.OPSET}, weights of {draw.bytes_text(size)}")
