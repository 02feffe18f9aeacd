"""Command `vklab quantize`: write a model in 8-bit codes, or with weights in blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer

from vklab.apps.cli import console
from vklab.apps.cli.inputs import Model
from vklab.apps.cli.options import Device, Json, written_file
from vklab.apps.llm.weights import gguf, gguf_writer, requantize
from vklab.apps.quantization import blocks, histogram, nbits
from vklab.apps.quantization import model as models
from vklab.apps.quantization import quantize as quantizing
from vklab.apps.quantization.quantize import Choice, Quantized
from vklab.base import draw
from vklab.runtime import loading


def quantize(
    model: Model,
    output: Annotated[Path, written_file("--output", "-o", help="ONNX file to write.")],
    int8: Annotated[
        bool, typer.Option("--int8", help="8-bit codes of weights and activations.")
    ] = False,
    bits: Annotated[
        int | None, typer.Option("--nbits", metavar="4|8", help="Weights of MatMul and Gemm in "
                                 "blocks of 4 or 8 bits.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--calibrate", metavar="FILE", help="Samples that fix the ranges "
                                  "of activations: an .npz file with an array for each input, or "
                                  "an .npy file for the only one. Without it, each run chooses "
                                  "its ranges.")
    ] = None,
    method: Annotated[
        str, typer.Option(help=f"How a range is taken: {', '.join(histogram.METHODS)}.")
    ] = "min-max",
    keep: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Node, or operator, that stays in "
                                       "float32; repeatable.")
    ] = None,
    max_drop: Annotated[
        float | None, typer.Option(metavar="SHARE", min=0, help="Keep the worst layers in float32 "
                                   "until at most this share of the samples has another class.")
    ] = None,
    per_tensor: Annotated[
        bool, typer.Option("--per-tensor", help="One scale for all filters of a layer.")
    ] = False,
    symmetric: Annotated[
        bool, typer.Option("--symmetric", help="Activations in int8 around 0, not in uint8.")
    ] = False,
    block_type: Annotated[
        str | None, typer.Option("--type", metavar="FORMAT", help="For a GGUF file: the format of "
                                 "its matrices, or llama.cpp's mix of formats: "
                                 f"{', '.join(requantize.TYPES)}.")
    ] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Quantise a float32 model, and report the error of each layer and the bytes saved."""
    if output.resolve() == model.resolve():
        raise typer.BadParameter(f"{output} is the model itself; name another file with --output")
    if block_type is not None:
        _quantize_gguf(model, output, block_type, as_json)
        return
    if int8 == (bits is not None):
        raise typer.BadParameter("give either --int8 or --nbits, or --type for a GGUF file")
    if bits is not None and bits not in nbits.BITS:
        raise typer.BadParameter(f"--nbits {bits}; choose 4 or 8")
    choice = Choice(bits or 0, method, tuple(keep or ()), max_drop, not per_tensor, symmetric)
    given = models.read(model)
    made = quantizing.quantize(
        given.proto,
        choice,
        None if data is None else _read(data, given),
        lambda proto: loading.load(proto, device),
    )
    onnx.save(made.proto, output)
    facts = _facts(made, output)
    if as_json:
        console.emit(facts)
        return
    console.table(
        "",
        ["layer", "operator", "in", "SQNR in dB", "weights"],
        [
            [
                each.name,
                each.op_type,
                "float32" if each.kept else f"int{bits or 8}",
                "" if each.sqnr_db is None else f"{each.sqnr_db:.1f}",
                f"{draw.bytes_text(each.before_bytes)} -> {draw.bytes_text(each.after_bytes)}",
            ]
            for each in made.layers
        ],
        right="dB",
    )
    console.say(f"{output}: {made}")


def _quantize_gguf(model: Path, output: Path, block_type: str, as_json: bool) -> None:
    """Write a GGUF file with matrices of another format."""
    if block_type not in requantize.TYPES:
        raise typer.BadParameter(f"--type {block_type}; choose {', '.join(requantize.TYPES)}")
    given = gguf.read_gguf(model)
    made = requantize.requantized(given, block_type, blocks.dequantize, blocks.quantize)
    gguf_writer.write_gguf(output, made.metadata, made.tensors.values())
    kinds = sorted({tensor.block_type for tensor in made.tensors.values()})
    if as_json:
        console.emit(
            {
                "path": str(output),
                "before_bytes": given.size_bytes,
                "after_bytes": made.size_bytes,
                "types": kinds,
            }
        )
        return
    console.say(
        f"{output}: {draw.bytes_text(given.size_bytes)} -> "
        f"{draw.bytes_text(made.size_bytes)}, {', '.join(kinds)}"
    )


def _read(path: Path, given: models.Model) -> dict[str, np.ndarray]:
    """Return the arrays of a calibration file by input."""
    try:
        loaded = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no calibration file {path}") from None
    except (ValueError, EOFError, OSError) as error:
        raise typer.BadParameter(f"{path} is not a .npy or .npz file: {error}") from None
    if not isinstance(loaded, np.ndarray):
        with loaded:
            return dict(loaded)
    names = [value.name for value in given.inputs]
    if len(names) != 1:
        raise typer.BadParameter(
            f"{path} has one array, but the model's inputs are "
            f"{', '.join(names)}; give an .npz file"
        )
    return {names[0]: loaded}


def _facts(made: Quantized, output: Path) -> dict[str, Any]:
    layers = [
        {
            "name": each.name,
            "op_type": each.op_type,
            "kept": each.kept,
            "sqnr_db": each.sqnr_db,
            "before_bytes": each.before_bytes,
            "after_bytes": each.after_bytes,
        }
        for each in made.layers
    ]
    return {
        "path": str(output),
        "before_bytes": made.before_bytes,
        "after_bytes": made.after_bytes,
        "saved_bytes": made.before_bytes - made.after_bytes,
        "drop": made.drop,
        "layers": layers,
    }
