"""Choices of a conversion to Core ML, and which of them exclude each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.errors import ModelError

FRONTENDS = ("export", "script")
KINDS = ("mlprogram", "neuralnetwork")
PRECISIONS = ("float16", "float32")
WEIGHTS = ("", "palette", "sparse", "int8")
Size = int | tuple[int, int]  # one size, or the lowest and the highest
Sizes = tuple[Size, ...]


@dataclass(frozen=True)
class Options:
    """Choices of one conversion.

    Attributes:
        frontend: "export" (torch.export, decomposed) or "script" (a TorchScript trace).
        kind: "mlprogram" (.mlpackage) or "neuralnetwork" (.mlmodel).
        precision: "float16" or "float32" arithmetic of an ML Program.
        target: the oldest system that runs the package, for example "iOS18"; "" for the default.
        weights: "" as computed, or "palette" (4 bits), "sparse" (half zeros), "int8".
        shapes: of the first input; none for the example's. One shape may have ranges (RangeDim),
            several are the only ones allowed (EnumeratedShapes).
    """

    frontend: str = "export"
    kind: str = "mlprogram"
    precision: str = "float16"
    target: str = ""
    weights: str = ""
    shapes: tuple[Sizes, ...] = ()


def check(options: Options) -> None:
    """Raise ModelError for choices that do not exist, or that exclude each other."""
    for name, known in (
        ("frontend", FRONTENDS),
        ("kind", KINDS),
        ("precision", PRECISIONS),
        ("weights", WEIGHTS),
    ):
        value = getattr(options, name)
        if value not in known:
            raise ModelError(f"unknown {name} {value!r}; choose {_words(known)}")
    if options.kind == "neuralnetwork" and options.precision == "float16":
        raise ModelError(
            "a neuralnetwork has no precision of its own: Core ML chooses it; "
            "take float32, or the kind mlprogram"
        )
    if options.kind == "neuralnetwork" and options.weights:
        raise ModelError(f"{options.weights} weights need the kind mlprogram")
    if len(options.shapes) > 1:
        if any(isinstance(size, tuple) for shape in options.shapes for size in shape):
            raise ModelError("several shapes are a list of fixed ones; give one shape with ranges")
        if options.frontend == "export":
            raise ModelError(
                "coremltools takes a list of shapes from TorchScript only; "
                "choose the frontend 'script'"
            )


def parse_sizes(text: str) -> Sizes:
    """Return the sizes of "1,3,16..64,32"; raise ModelError for a size that is none."""
    sizes: list[Size] = []
    for part in text.split(","):
        low, dots, high = part.strip().partition("..")
        if not low.isdigit() or (dots and not high.isdigit()) or int(low) < 1:
            raise ModelError(
                f"{part.strip()!r} in the shape {text!r} is neither a size, as 32, "
                "nor a range, as 16..64"
            )
        if dots and int(high) <= int(low):
            raise ModelError(f"the range {part.strip()!r} in the shape {text!r} is empty")
        sizes.append((int(low), int(high)) if dots else int(low))
    return tuple(sizes)


def _words(names: Sequence[str]) -> str:
    return " or ".join(repr(name) for name in names)
