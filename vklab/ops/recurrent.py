"""Dispatch LSTM, GRU and RNN: one product for the inputs of all steps, then step by step.

A step is one dispatch for all directions, batches and units (two for a GRU that resets first);
states between steps are float32. Visited by lab 09. Source: Hochreiter and Schmidhuber, "Long
Short-Term Memory", 1997 (LSTM); Cho et al., 2014 (GRU).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import FLOATS, table, type_defines
from vklab.ops.elementwise import strided
from vklab.ops.inputs import require, same
from vklab.ops.linear import product
from vklab.ops.registry import Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo, dense_strides

UNIT_WORKGROUP = 64
CELLS = {"RNN": (0, 1, ("Tanh",)), "GRU": (1, 3, ("Sigmoid", "Tanh")),
         "LSTM": (2, 4, ("Sigmoid", "Tanh", "Tanh"))}  # fmt: skip
DIRECTIONS = {"forward": (1, 0), "reverse": (1, 1), "bidirectional": (2, 2)}
# The default alpha and beta; None if the activation has no such parameter.
ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "relu": (None, None), "tanh": (None, None), "sigmoid": (None, None), "softsign": (None, None),
    "softplus": (None, None), "affine": (1.0, 0.0), "leakyrelu": (0.01, None), "elu": (1.0, None),
    "thresholdedrelu": (1.0, None), "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5),
}  # fmt: skip


@dataclass
class _Cell:
    """Collect the dispatches of a network; its inputs and attributes have ONNX's names."""

    name: str
    X: TensorInfo
    W: TensorInfo
    R: TensorInfo
    B: TensorInfo | None
    sequence_lens: TensorInfo | None
    initial_h: TensorInfo | None
    layout: int
    direction: str
    clip: float
    hidden_size: int
    initial_c: TensorInfo | None = None
    P: TensorInfo | None = None
    defines: tuple[tuple[str, str], ...] = ()
    dispatches: list[Dispatch] = field(default_factory=list)
    scratch: list[TensorInfo] = field(default_factory=list)

    def __post_init__(self) -> None:
        require(FLOATS, self.X, self.W, self.R, self.B, self.initial_h, self.initial_c, self.P)
        self.dtype = same(self.X, self.W, self.R, self.B, self.initial_h, self.initial_c, self.P)
        self.number, self.gates, self.default = CELLS[self.name]
        if self.direction not in DIRECTIONS or self.layout not in (0, 1) or self.X.rank != 3:
            raise ModelError(
                f"direction={self.direction!r}, layout={self.layout}, X {self.X}: "
                f"choose one of {', '.join(DIRECTIONS)}, layout 0 or 1, X of rank 3"
            )
        self.directions, self.backward = DIRECTIONS[self.direction]
        first, second, self.size = self.X.dims
        self.steps, self.batch = (second, first) if self.layout else (first, second)
        self.units = self.hidden_size or self.R.dims[-1]
        d, h, rows = self.directions, self.units, self.gates * self.units
        state = (self.batch, d, h) if self.layout else (d, self.batch, h)
        wanted = (
            (self.W, (d, rows, self.size)),
            (self.R, (d, rows, h)),
            (self.B, (d, 2 * rows)),
            (self.sequence_lens, (self.batch,)),
            (self.initial_h, state),
            (self.initial_c, state),
            (self.P, (d, 3 * h)),
        )
        for info, shape in wanted:
            if info is not None and info.dims != shape:
                raise ModelError(f"{info} must have shape {shape}")
        self.state_shape = state
        inner = (self.batch, self.steps, d, h) if self.layout else (self.steps, d, self.batch, h)
        self.y = output(self.dtype, inner)

    def make(self, shape: Sequence[int]) -> TensorInfo:
        self.scratch.append(output("float32", shape))
        return self.scratch[-1]

    def state(self, initial: TensorInfo | None) -> TensorInfo:
        """Return an initial state as float32 [direction, batch, unit]; zeros for None."""
        shape = (self.directions, self.batch, self.units)
        if initial is None:
            self.scratch.append(table(np.zeros(shape), "float32"))
            return self.scratch[-1]
        copy = self.make(shape)
        self.dispatches += self.turned(initial, copy)
        return copy

    def turned(self, source: TensorInfo, target: TensorInfo) -> tuple[Dispatch, ...]:
        """Copy a state to another dtype; with layout 1, swap the axes of batch and direction."""
        steps = dense_strides(source.dims)
        strides = (steps[1], steps[0], steps[2]) if self.layout else steps
        return strided("onnx::identity(a)", (source,), (strides,), target)

    def from_inputs(self) -> TensorInfo:
        """Return X W' of every direction and gate, [direction, step * batch, gate * unit]."""
        rows, columns = self.steps * self.batch, self.gates * self.units
        result = self.make((self.directions, rows, columns))
        self.dispatches += product(
            self.X,
            self.W,
            None,
            result,
            (rows, columns, self.size),
            (self.size, 1),
            (1, self.size),
            (self.directions,),
            ((0,), (columns * self.size,)),
        )
        return result

    def run(self, activations: tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]],
            reset_first: bool = False) -> Result:  # fmt: skip
        """Return the Result: Y, Y_h, and Y_c for an LSTM."""
        states = [self.initial_h, self.initial_c][: 2 if self.name == "LSTM" else 1]
        final = tuple(output(self.dtype, self.state_shape) for _ in states)
        if self.y.count == 0:
            if self.steps == 0 and final[0].count:
                raise UnsupportedOperatorError("X has 0 steps; kernels need 1 or more")
            return Result((self.y, *final))
        gates = self.from_inputs()
        now = [self.state(initial) for initial in states]
        shape = (self.directions, self.batch, self.units)
        swap = [[self.make(shape) for _ in states] for _ in range(min(2, self.steps))]
        reset = self.make(shape) if reset_first else None
        for step in range(self.steps):
            after = swap[step % 2]
            self.dispatches += self.dispatch(step, gates, now, after, reset, activations)
            now = after
        for source, target in zip(now, final, strict=True):
            self.dispatches += self.turned(source, target)
        return Result((self.y, *final), tuple(self.dispatches), tuple(self.scratch))

    def dispatch(
        self,
        step: int,
        gates: TensorInfo,
        now: Sequence[TensorInfo],
        after: Sequence[TensorInfo],
        reset: TensorInfo | None,
        activations: tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]],
    ) -> Iterator[Dispatch]:
        functions, alpha, beta = activations
        optional = (("bias", self.B), ("lengths", self.sequence_lens), ("peephole", self.P))
        reads = [("gates_buffer", gates), ("r_buffer", self.R), ("h_buffer", now[0])]
        reads += [(f"{name}_buffer", info) for name, info in optional if info is not None]
        names = zip(("BIAS", "LENGTHS", "PEEPHOLES"), optional, strict=True)
        given = tuple((name, str(int(info is not None))) for name, (_, info) in names)
        lengths = self.sequence_lens
        defines = (
            ("CELL", str(self.number)),
            *given,
            *self.defines,
            *type_defines("T", self.dtype),
            *(type_defines("I", lengths.dtype)[:2] if lengths is not None else ()),
            *((f"F{i}", f"cell::{name}") for i, name in enumerate(functions)),
        )
        x_steps = (1, self.steps) if self.layout else (self.batch, 1)
        y = dense_strides(self.y.dims)
        y_steps = (y[1], y[0], y[2]) if self.layout else (y[0], y[2], y[1])
        push = (
            ("directions", self.directions),
            ("batches", self.batch),
            ("units", self.units),
            ("steps", self.steps),
            ("step", step),
            ("backward", self.backward),
            ("x_step", x_steps[0]),
            ("x_batch", x_steps[1]),
            ("y_step", y_steps[0]),
            ("y_batch", y_steps[1]),
            ("y_direction", y_steps[2]),
            ("limit", self.clip),
            ("alpha", alpha),
            ("beta", beta),
        )
        count = self.directions * self.batch * self.units
        groups = grid(-(-count // UNIT_WORKGROUP))
        constants = (("WORKGROUP", UNIT_WORKGROUP),)
        if reset is not None:
            yield Dispatch(
                "recurrent",
                tuple(reads),
                (("reset_buffer", reset),),
                groups,
                push,
                (*defines, ("PHASE", "0")),
                constants,
                2 * count * self.units,
                self.units,
            )
            reads.append(("reset_buffer", reset))
        writes = [("next_h_buffer", after[0]), ("y_buffer", self.y)]
        if len(now) > 1:
            reads.append(("c_buffer", now[1]))
            writes.append(("next_c_buffer", after[1]))
        yield Dispatch(
            "recurrent",
            tuple(reads),
            tuple(writes),
            groups,
            push,
            (*defines, ("PHASE", "1")),
            constants,
            2 * count * self.units * self.gates,
            self.units * self.gates,
        )


def _activations(
    cell: _Cell,
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    """Return three activations for each of two directions, with their alpha and beta."""
    given = tuple(names) if names else cell.default * cell.directions
    if len(given) != len(cell.default) * cell.directions:
        raise ModelError(
            f"{len(given)} activations for {cell.directions} directions; give "
            f"{len(cell.default)} for each direction"
        )
    lists = [list(alphas or ()), list(betas or ())]
    chosen: list[tuple[str, float, float]] = []
    for name in map(str.lower, given):
        if name not in ACTIVATIONS:
            raise UnsupportedOperatorError(
                f"activation {name!r} is not known; choose one of {', '.join(ACTIVATIONS)}"
            )
        # Each activation that has a parameter consumes the next value of its list.
        numbers = [
            0.0 if default is None else values.pop(0) if values else default
            for default, values in zip(ACTIVATIONS[name], lists, strict=True)
        ]
        chosen.append((name, numbers[0], numbers[1]))
        if len(chosen) % 3 and len(chosen) % 3 == len(cell.default):
            chosen += [("tanh", 0.0, 0.0)] * (3 - len(cell.default))
    chosen += chosen[: 6 - len(chosen)]  # the kernel takes two directions
    functions, alpha, beta = zip(*chosen, strict=True)
    return functions, alpha, beta


@operator("RNN", since=7)
def rnn(
    X: TensorInfo,
    W: TensorInfo,
    R: TensorInfo,
    B: TensorInfo | None = None,
    sequence_lens: TensorInfo | None = None,
    initial_h: TensorInfo | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> Result:
    """Compute the recurrence H = f(X W' + H R' + b). Source: ONNX RNN-22."""
    cell = _Cell("RNN", X, W, R, B, sequence_lens, initial_h, layout, direction, clip, hidden_size)
    return cell.run(_activations(cell, activations, activation_alpha, activation_beta))


@operator("GRU", since=7)
def gru(
    X: TensorInfo,
    W: TensorInfo,
    R: TensorInfo,
    B: TensorInfo | None = None,
    sequence_lens: TensorInfo | None = None,
    initial_h: TensorInfo | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Result:
    """Compute gated recurrent units. Source: ONNX GRU-22."""
    cell = _Cell(
        "GRU",
        X,
        W,
        R,
        B,
        sequence_lens,
        initial_h,
        layout,
        direction,
        clip,
        hidden_size,
        defines=(("AFTER", str(int(bool(linear_before_reset)))),),
    )
    return cell.run(
        _activations(cell, activations, activation_alpha, activation_beta), not linear_before_reset
    )


@operator("LSTM", since=7)
def lstm(
    X: TensorInfo,
    W: TensorInfo,
    R: TensorInfo,
    B: TensorInfo | None = None,
    sequence_lens: TensorInfo | None = None,
    initial_h: TensorInfo | None = None,
    initial_c: TensorInfo | None = None,
    P: TensorInfo | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
) -> Result:
    """Compute long short-term memory. Source: ONNX LSTM-22."""
    cell = _Cell(
        "LSTM",
        X,
        W,
        R,
        B,
        sequence_lens,
        initial_h,
        layout,
        direction,
        clip,
        hidden_size,
        initial_c,
        P,
        (("COUPLED", str(int(bool(input_forget)))),),
    )
    return cell.run(_activations(cell, activations, activation_alpha, activation_beta))
