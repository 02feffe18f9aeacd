"""Compile every stock variant into the folder that `stock` reads.

A kernel's `// stock:` lines list its variants (`T=float MODE=MAXIMUM|AVERAGE`); `EACH=lib/x.slang`
means one EXPRESSION per function of a module. Run: python -m vklab.shader.stock_builder
Visited by lab 05.
"""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

from vklab.shader import compiler, source, stock

_LINE = re.compile(r"^// stock:(.*)$", re.M)
_FUNCTION = re.compile(r"^public (?:Real|float) (\w+)(?:<[^>]*>)?\(([^)]*)\)", re.M)


def expressions(text: str) -> list[tuple[str, int]]:
    """Return (EXPRESSION, ARITY) for each function of an element-wise module.

    Parameters named a, b and c are operands; the others become p0, p1.
    """
    pairs = []
    for name, parameters in _FUNCTION.findall(text):
        names = [parameter.split()[-1] for parameter in parameters.split(",")]
        operands = [item for item in names if item in ("a", "b", "c")]
        attributes = [f"p{i}" for i in range(len(names) - len(operands))]
        pairs.append((f"onnx::{name}({', '.join([*operands, *attributes])})", len(operands)))
    return pairs


def _types(arity: int) -> list[tuple[str, str]]:
    """Return the defines of a function whose operands and result are float32."""
    operands = [
        item for name in "ABC"[:arity] for item in ((name, "float"), (f"{name}_LOAD", "float"))
    ]
    return [*operands, ("Y", "float"), ("Y_STORE", "float")]


def variants(path: Path) -> list[compiler.Variant]:
    """Return the variants listed by the `// stock:` lines of a kernel file."""
    listed: list[compiler.Variant] = []
    for line in _LINE.findall(path.read_text(encoding="utf-8")):
        axes = [field.split("=", 1) for field in line.split()]
        plain = {name: values.split("|") for name, values in axes if name != "EACH"}
        combinations = [
            tuple(zip(plain, chosen, strict=True)) for chosen in itertools.product(*plain.values())
        ]
        for _, module in (axis for axis in axes if axis[0] == "EACH"):
            text = (path.parent.parent / module).read_text(encoding="utf-8")
            combinations = [
                (*combination, ("ARITY", str(arity)), ("EXPRESSION", expression), *_types(arity))
                for combination in combinations
                for expression, arity in expressions(text)
            ]
        listed += [(path.stem, tuple(sorted(combination)), "") for combination in combinations]
    return listed


def _listed() -> list[compiler.Variant]:
    kernels = sorted((source.roots()[0] / "ops").glob("*.slang"))
    return list(dict.fromkeys(variant for path in kernels for variant in variants(path)))


def is_complete(folder: Path = stock.FOLDER) -> bool:
    """Tell whether a folder has every stock variant of the present texts."""
    return all(
        (folder / f"{compiler.text_key(name, defines)}.spv").is_file()
        for name, defines, _ in _listed()
    )


def build(folder: Path = stock.FOLDER) -> int:
    """Compile all stock variants into a folder and return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.spv"):
        stale.unlink()
    shaders = compiler.compile_all(_listed())
    for (name, defines, _), shader in shaders.items():
        (folder / f"{compiler.text_key(name, defines)}.spv").write_bytes(shader.spirv)
    return len(shaders)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else stock.FOLDER
    sys.stdout.write(f"{build(target)} stock kernels in {target}\n")
