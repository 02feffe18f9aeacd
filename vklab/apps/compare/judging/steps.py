"""Error that the steps of an 8-bit model lead to: each step as independent noise, run in float64.

Rounding to a step is wrong by up to half of it, evenly spread. How much of that reaches the outputs
depends on the network, so the tolerance does, too. A backend that saturates, or takes the scale of
another value, is wrong by more.

Source: Widrow, Kollar, "Quantization Noise", 2008, chapter 5
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vklab.apps.compare.backend import Steps
from vklab.apps.compare.truth import oracle
from vklab.runtime import tolerances
from vklab.runtime.tolerances import Tolerance

RUNS = 8
SEED = 0
NOISE = "/noise"


def deviation(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray],
    steps: Steps,
) -> dict[str, float]:  # fmt: skip
    """Return the standard deviation of each output under the noise of all steps.

    Args:
        model: the float32 model, with its external data.
        inputs: arrays by input name.
        truth: every value in float64, `Oracle.layers`.
        steps: steps of the quantised model.
    """
    random = np.random.default_rng(SEED)
    wide = oracle.widen(model)
    noisy = _with_noise(wide, steps)
    outputs = [info.name for info in model.graph.output]
    squares: dict[str, list[float]] = {name: [] for name in outputs}
    for _ in range(RUNS):
        fed = {
            **inputs,
            **{
                f"{name}{NOISE}": step * random.uniform(-0.5, 0.5, truth[name].shape)
                for name, step in steps.values.items()
                if name in truth
            },
        }
        for tensor, plain in zip(noisy.graph.initializer, wide.graph.initializer, strict=True):
            if tensor.name in steps.weights:
                array = numpy_helper.to_array(plain)
                moved = array + steps.weights[tensor.name] * random.uniform(-0.5, 0.5, array.shape)
                tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
        made = oracle.evaluate(noisy, fed)
        for name in outputs:
            squares[name].append(float(np.mean((made[name] - truth[name]) ** 2)))
    return {name: float(np.sqrt(np.mean(each))) for name, each in squares.items()}


def allowed(deviations: Mapping[str, float], truth: Mapping[str, np.ndarray]) -> Tolerance:
    """Return the tolerance of a quantised model: of the output with the largest relative noise."""
    sizes = {name: float(np.abs(truth[name]).max(initial=0.0)) for name in deviations}
    return tolerances.quantised(
        max((each / sizes[name] for name, each in deviations.items() if sizes[name]), default=0.0)
    )


def _with_noise(wide: onnx.ModelProto, steps: Steps) -> onnx.ModelProto:
    """Return a model that adds an input `NAME/noise` to each value with a step, where it is read.

    Args:
        wide: the model in float64.
        steps: steps of the quantised model.
    """
    noisy = onnx.ModelProto()
    noisy.CopyFrom(wide)
    graph = noisy.graph
    nodes = [*graph.node]
    del graph.node[:]
    weights = {tensor.name for tensor in graph.initializer}
    outputs = {info.name for info in graph.output}
    renamed: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in steps.values or name in weights:
            return
        source = f"{name}/exact" if name in outputs else name
        made = name if name in outputs else f"{name}/stepped"
        renamed[name] = made
        graph.input.append(
            helper.make_tensor_value_info(f"{name}{NOISE}", onnx.TensorProto.DOUBLE, None)
        )
        graph.node.append(helper.make_node("Add", [source, f"{name}{NOISE}"], [made]))

    for info in [*graph.input]:
        add(info.name)
    for node in nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        made = [*node.output]
        node.output[:] = [
            f"{name}/exact" if name in steps.values and name in outputs else name for name in made
        ]
        graph.node.append(node)
        for name in made:
            add(name)
    return noisy
