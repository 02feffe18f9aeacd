"""Command `vklab gguf`: convert a folder as Hugging Face stores models to a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vklab import draw
from vklab.cli import console
from vklab.cli.inputs import written_file
from vklab.llm import gguf as files
from vklab.llm import hugging_face
from vklab.quantization import blocks

__all__ = ["gguf"]


def gguf(
    folder: Annotated[
        Path, typer.Argument(help="A folder with config.json, SafeTensors, and tokenizer.json or tokenizer.model.",
                             show_default=False)
    ],
    output: Annotated[Path, written_file("--output", "-o", help="GGUF file to write.")],
    block_type: Annotated[
        str, typer.Option("--type", metavar="FORMAT", help="Format of the matrices: "
                          f"{', '.join(hugging_face.FILE_TYPES)}.")
    ] = "F16",
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:  # fmt: skip
    """Convert a Llama, Qwen2, Qwen3 or GPT-2 model of Hugging Face to GGUF, with its tokenizer."""
    with console.bar("writing", " tensors") as progress:
        notes = hugging_face.convert(folder, output, block_type, blocks.quantize, progress)
    made = files.read_gguf(output)
    if as_json:
        console.emit({"path": str(output), "tensors": len(made.tensors), "type": block_type,
                      "size_bytes": output.stat().st_size, "notes": list(notes)})  # fmt: skip
        return
    for note in notes:
        console.warn(note)
    console.say(f"{output}: {made.text('general.architecture')}, {len(made.tensors)} tensors, "
                f"{draw.bytes_text(output.stat().st_size)}")  # fmt: skip
