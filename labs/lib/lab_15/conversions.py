"""Conversions to Core ML on Linux, executed by vklab: what lab 15 records, and measures again.

    PYTHONPATH=.:labs/engine python3 -P labs/lib/lab_15/conversions.py FILE

Needs coremltools and PyTorch. Nothing here is timed.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vklab.apps.compare import models
from vklab.apps.compare.coreml import convert, inspect, options, program
from vklab.errors import ModelError
from vklab_course import data
from vklab_labs.lab_15 import packages

__all__ = ["EPSILONS", "FORMS", "MIXES", "both_frontends", "converted", "epsilons", "equal_bits",
           "flexible", "held_out", "mixed", "record", "table"]  # fmt: skip

COMMAND = (
    "PYTHONPATH=.:labs/engine python3 -P labs/lib/lab_15/conversions.py "
    "data/recorded/coreml_linux.json"
)
VERSIONS = ("coremltools", "torch", "numpy")
FORMS = {
    "float16": options.Options(),
    "float16, iOS16": options.Options(target="iOS16"),
    "float32": options.Options(precision="float32"),
    "NeuralNetwork": options.Options(kind="neuralnetwork", precision="float32"),
    "int8": options.Options(weights="int8", target="iOS16"),
    "palette": options.Options(weights="palette", target="iOS16"),
}
"""Conversions by name. From iOS 16 on, weights may be shortened."""

# By name of the mix: does an operator of this type compute in float16?
MIXES: dict[str, Callable[[str], bool]] = {
    "all float16": lambda kind: True,
    "linear in float32": lambda kind: kind != "linear",
    "LayerNorm in float32": lambda kind: kind != "layer_norm",
    "table in float32": lambda kind: kind != "gather",
    "only the table in float16": lambda kind: kind == "gather",
}
EPSILONS = (1e-5, 1e-7, 1e-8, 1e-12)
TEXTS = 300  # of the mixed programs


def _tools() -> tuple[Any, Any]:
    """Import coremltools and torch, in the order in which coremltools is silent."""
    convert.load_converter()
    return importlib.import_module("coremltools"), importlib.import_module("torch")


def converted(name: str, form: options.Options, folder: Path, file: str = "made") -> Path:
    """Convert a model of `models.MODELS`, and return the package.

    Args:
        name: the model.
        form: the choices.
        folder: where to write the package.
        file: its name without ending.
    """
    _tools()
    module, examples = models.MODELS[name](1)
    ending = "mlpackage" if form.kind == "mlprogram" else "mlmodel"
    path = folder / f"{file}.{ending}"
    return convert.convert(module, examples, path, form, (models.INPUTS[name],))


def table(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return bytes, error, specification and operators of each conversion of a model.

    Args:
        name: the model, a key of `models.MODELS`.
        folder: an empty folder for the packages.
    """
    module, (example,) = models.MODELS[name](1)
    truth = module.double()(example.double() if example.is_floating_point() else example)
    truth = truth.detach().numpy()
    rows = {}
    for number, (form, chosen) in enumerate(FORMS.items()):
        path = converted(name, chosen, folder, f"{name}_{number}")
        facts = inspect.inspect(path)
        found = packages.run_package(path, example.numpy())
        rows[form] = {
            "bytes": facts.size_bytes,
            "error": float(np.abs(found - truth).max()),
            "largest": float(np.abs(truth).max()),
            "specification": facts.version,
            "casts": facts.operators.get("cast", 0),
            "result": facts.outputs[0].dtype,
            "operators": sum(facts.operators.values()),
            "with_constants": _with_constants(path) or sum(facts.operators.values()),
        }
    return rows


def _with_constants(path: Path) -> int:
    return sum(packages.page_counts(packages.as_data(path)).values())


def _both(name: str, folder: Path) -> tuple[dict[str, Path], bool]:
    """Return the package of each frontend, and whether vklab computes the same bits from both."""
    _tools()
    _, (example,) = models.MODELS[name](1)
    paths = {
        each: converted(name, options.Options(frontend=each), folder, f"{name}_{each}")
        for each in options.FRONTENDS
    }
    bits = {packages.run_package(path, example.numpy()).tobytes() for path in paths.values()}
    return paths, len(bits) == 1


def equal_bits(name: str, folder: Path) -> bool:
    """Tell whether the packages of both frontends give the same bits when vklab executes them.

    Args:
        name: the model, a key of `models.MODELS`.
        folder: where to write the packages.
    """
    return _both(name, folder)[1]


def both_frontends(name: str) -> list[str]:
    """Convert a model by both frontends, execute both packages, and return what came out.

    Args:
        name: the model, a key of `models.MODELS`.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths, is_equal = _both(name, Path(folder))
        found = {each: inspect.inspect(path) for each, path in paths.items()}
    lines = [
        f"{each}: {facts.kind}, {facts.size_bytes / 1e3:.0f} KB, "
        f"{sum(facts.operators.values())} operators"
        for each, facts in found.items()
    ]
    return [*lines, f"equal bits in vklab: {is_equal}"]


def held_out() -> dict[str, Any]:
    """Return the error of the shipped text classifier on all texts, and the classes that flip."""
    path = data("packages") / "text_classifier.mlpackage"
    rows = packages.held_out_texts(data("novels.txt.xz"), data("text_classifier.npz"))
    truth = packages.text_scores(rows, data("text_classifier.npz"))
    found = packages.run_package(path, rows)
    flips = int((found.argmax(axis=1) != truth.argmax(axis=1)).sum())
    return {"texts": len(rows), "error": float(np.abs(found - truth).max()), "flips": flips}


def mixed(folder: Path, texts: int = TEXTS) -> dict[str, dict[str, float]]:
    """Return bytes and error of the text classifier with some operators in float32.

    Args:
        folder: where to write the packages.
        texts: the number of texts of the error.
    """
    tools, torch = _tools()
    rows = packages.held_out_texts(data("novels.txt.xz"), data("text_classifier.npz"))[:texts]
    truth = packages.text_scores(rows, data("text_classifier.npz"))
    module, examples = models.text_classifier(1)
    exported = torch.export.export(module, examples).run_decompositions({})
    found = {}
    for number, (name, is_half) in enumerate(MIXES.items()):

        def halves(operator: Any, is_half: Callable[[str], bool] = is_half) -> bool:
            return is_half(operator.op_type)

        made = tools.convert(
            exported,
            compute_precision=tools.transform.FP16ComputePrecision(op_selector=halves),
            skip_model_load=True,
        )
        path = folder / f"mixed_{number}.mlpackage"
        made.save(str(path))
        error = np.abs(packages.run_package(path, rows) - truth).max()
        size = inspect.inspect(path).size_bytes
        found[name] = {"bytes": size, "error": float(error)}
    return found


def epsilons(folder: Path) -> dict[str, dict[str, float]]:
    """Return what float16 packages store for epsilons of LayerNorm, and their errors.

    Rows of 64 numbers: `ordinary` with a spread of 1, `flat` with a spread of 1e-3. The last entry
    is a package in float32.

    Args:
        folder: where to write the packages.
    """
    _, torch = _tools()
    random = np.random.default_rng(0)
    spread = {"ordinary": 1.0, "flat": 1e-3}
    rows = random.standard_normal((32, 64)).astype(np.float32)
    found = {}
    for number, epsilon in enumerate((*EPSILONS, EPSILONS[-1])):
        is_wide = number == len(EPSILONS)
        module = torch.nn.LayerNorm(64, eps=epsilon, elementwise_affine=False).eval()
        path = folder / f"norm_{number}.mlpackage"
        example = torch.from_numpy(rows[:1])
        form = options.Options(target="iOS16", precision="float32" if is_wide else "float16")
        convert.convert(module, (example,), path, form)
        entry = {"stored": _stored_epsilon(path)}
        for name, scale in spread.items():
            given = (rows * np.float32(scale)).astype(np.float16).astype(np.float32)
            truth = module.double()(torch.from_numpy(given).double()).numpy()
            entry[name] = float(np.abs(packages.run_package(path, given) - truth).max())
        found[f"{epsilon:g}" + ", float32" * is_wide] = entry
    return found


def _stored_epsilon(path: Path) -> float:
    """Return the epsilon that a package with one LayerNorm holds."""
    graph = program.import_package(path)
    (node,) = (node for node in graph.nodes if node.op_type == "LayerNormalization")
    return float(node.attributes["epsilon"])


def flexible(folder: Path) -> dict[str, Any]:
    """Return what MiniClassifier with open sizes does: refusals, and errors at several sizes.

    `refused`: what coremltools says of adaptive pooling. `errors`: by kind of shapes and size, with
    pooling written as products. `outside`: the sizes that the packages refuse.

    Args:
        folder: where to write the packages.
    """
    _tools()
    module, (example,) = models.mini_classifier(1)
    sizes, outside = (16, 24, 32, 64), (8, 65)
    kinds = {
        "RangeDim": options.Options(shapes=((1, 3, (16, 64), (16, 64)),), target="iOS16"),
        "EnumeratedShapes": options.Options(
            frontend="script", shapes=tuple((1, 3, size, size) for size in sizes), target="iOS16"
        ),
    }
    result: dict[str, Any] = {"refused": _refusals(module, example), "errors": {}, "outside": {}}
    random = np.random.default_rng(0)
    for kind, form in kinds.items():
        path = folder / f"open_{kind}.mlpackage"
        convert.convert(module, (example,), path, form, ("image",))
        errors, refused = {}, []
        for size in sizes + outside:
            given = random.random((1, 3, size, size), np.float32)
            try:
                found = packages.run_package(path, given)
            except Exception as error:  # vklab's Refused, with the shapes that are allowed
                refused.append(f"{size}: {error}")
                continue
            errors[str(size)] = float(np.abs(found - _truth(module, given)).max())
        result["errors"][kind], result["outside"][kind] = errors, refused
    return result


def _truth(module: Any, given: NDArray[np.float32]) -> NDArray[np.float64]:
    _, torch = _tools()
    wide = module.double()(torch.from_numpy(given).double()).detach().numpy()
    module.float()
    return np.asarray(wide, np.float64)


def _refusals(module: Any, example: Any) -> dict[str, str]:
    """Return what coremltools alone says of three kinds of open sizes."""
    tools, torch = _tools()
    with torch.no_grad():
        trace = torch.jit.trace(module, (example,))
    bound, size = tools.RangeDim(16, 64), tools.RangeDim(16)
    shapes: Mapping[str, Any] = {
        "RangeDim of 16 to 64": tools.Shape([1, 3, bound, bound]),
        "EnumeratedShapes": tools.EnumeratedShapes(shapes=[[1, 3, n, n] for n in (16, 32, 64)]),
        "RangeDim of the batch": tools.Shape([tools.RangeDim(1, 8), 3, 32, 32]),
        "RangeDim without an upper bound": tools.Shape([1, 3, size, size]),
    }
    return {name: _refusal(tools, trace, shape) for name, shape in shapes.items()}


def _refusal(tools: Any, trace: Any, shape: Any) -> str:
    given = [tools.TensorType(name="image", shape=shape, dtype=np.float32)]
    try:
        tools.convert(trace, inputs=given, convert_to="mlprogram", skip_model_load=True)
    except Exception as error:  # coremltools raises what its parts raise
        return f"{type(error).__name__}: {error}".partition(" Received")[0].splitlines()[0]
    return "converted"


def record(steps: Mapping[str, Callable[[Path], Any]] | None = None) -> dict[str, Any]:
    """Return everything that lab 15 shows of conversions, with versions and date."""
    every: Mapping[str, Callable[[Path], Any]] = steps or {
        "table": lambda folder: {
            name: table(name, folder) for name in ("mini_classifier", "text_classifier", "resnet18")
        },
        "equal_bits": lambda folder: {
            name: equal_bits(name, folder)
            for name in ("mini_classifier", "text_classifier", "resnet18", "encoder")
        },
        "held_out": lambda folder: held_out(),
        "mixed": mixed,
        "epsilons": epsilons,
        "flexible": flexible,
    }
    found: dict[str, Any] = {
        "device": f"{platform.system()} {platform.machine()}",
        "command": COMMAND,
        "date": datetime.date.today().isoformat(),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, step in every.items():
            try:
                found[name] = step(Path(folder))
            except ModelError as error:
                found[name] = str(error)
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(), indent=1) + "\n", "utf-8")
