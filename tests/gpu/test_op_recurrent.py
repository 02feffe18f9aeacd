"""LSTM, GRU and RNN against ONNX Runtime: directions, lengths, activations, clips, peepholes."""

from __future__ import annotations

import numpy as np
import pytest

from support.checks.check_operator import check_operator
from support.graphs.small_models import random_array
from vklab.errors import ModelError, UnsupportedOperatorError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, SIZE, UNITS = 5, 3, 7, 11
DIRECTIONS = ["forward", "reverse", "bidirectional"]


def inputs(name, directions=1, lengths=None, layout=0, given="BHCP", steps=STEPS):
    """Return the inputs of a network; `given` names the optional ones."""
    rows = GATES[name] * UNITS
    x = (BATCH, steps, SIZE) if layout else (steps, BATCH, SIZE)
    state = (BATCH, directions, UNITS) if layout else (directions, BATCH, UNITS)
    arrays = [
        random_array(x),
        random_array((directions, rows, SIZE), 1) / 3,
        random_array((directions, rows, UNITS), 2) / 3,
    ]
    arrays.append(random_array((directions, 2 * rows), 3) if "B" in given else None)
    arrays.append(None if lengths is None else np.array(lengths, np.int32))
    arrays.append(random_array(state, 4) if "H" in given else None)
    if name == "LSTM":
        arrays.append(random_array(state, 5) if "C" in given else None)
        arrays.append(random_array((directions, 3 * UNITS), 6) if "P" in given else None)
    return arrays


def run(name, device, arrays, **attributes):
    check_operator(
        name,
        inputs=arrays,
        device=device,
        outputs=3 if name == "LSTM" else 2,
        opset=14,
        hidden_size=UNITS,
        rtol=1e-3,
        atol=1e-5,
        **attributes,
    )


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", GATES)
def test_directions(device, name, direction):
    directions = 2 if direction == "bidirectional" else 1
    run(name, device, inputs(name, directions), direction=direction)
    run(name, device, inputs(name, directions, [5, 2, 3]), direction=direction)
    run(name, device, inputs(name, directions, given=""), direction=direction)


@pytest.mark.parametrize("name", GATES)
def test_one_step(device, name):
    run(name, device, inputs(name, steps=1))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gru_resets_after_the_product(device, direction):
    directions = 2 if direction == "bidirectional" else 1
    run("GRU", device, inputs("GRU", directions), direction=direction, linear_before_reset=1)


def test_clip_and_coupled_gates(device):
    for name in GATES:
        run(name, device, inputs(name, given="B"), clip=0.3)
    run("LSTM", device, inputs("LSTM", given="B"), input_forget=1)


@pytest.mark.parametrize(("names", "alpha", "beta"), [
    (["Relu"], None, None), (["LeakyRelu"], [0.3], None), (["ScaledTanh"], [0.7], [0.9]),
    (["HardSigmoid"], [0.3], [0.4]), (["Elu"], [0.5], None), (["Softsign"], None, None),
    (["Softplus"], None, None), (["ThresholdedRelu"], [0.2], None), (["Affine"], [0.5], [0.1]),
    (["Sigmoid"], None, None),
])  # fmt: skip
def test_activations(device, names, alpha, beta):
    more = {"activation_alpha": alpha} if alpha else {}
    more |= {"activation_beta": beta} if beta else {}
    run("RNN", device, inputs("RNN"), activations=names, **more)


def test_each_direction_has_its_activations(device):
    names = ["Sigmoid", "Tanh", "Softsign", "HardSigmoid", "LeakyRelu", "Tanh"]
    run(
        "LSTM",
        device,
        inputs("LSTM", 2),
        direction="bidirectional",
        activations=names,
        activation_alpha=[0.3, 0.1],
        activation_beta=[0.4],
    )


def test_what_does_not_fit_is_said(device):
    with pytest.raises(ModelError, match="must have shape"):
        run("GRU", device, inputs("LSTM")[:3])
    with pytest.raises(UnsupportedOperatorError, match="not known"):
        run("RNN", device, inputs("RNN"), activations=["Gelu"])
