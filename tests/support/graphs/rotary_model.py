"""A model of queries, keys and values as decoders have them: products, heads, angles, a cache."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from support.graphs.small_models import model, random_array, value

K, SIZE, PAST = 24, 8, 5


def rotary_model(
    steps: int = 3, heads: tuple[int, ...] = (4, 2, 2), batch: int = 2, bias: bool = False,
    tables: str = "aaa", shared: bool = False, more: tuple[str, ...] = (),
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:  # fmt: skip
    """Return a model and what feeds it.

    Args:
        heads: of queries, keys and values; without values there is no third.
        tables: a letter for the tables by which queries, and keys, are turned.
        shared: another product reads the weights of the keys.
        more: names of values that are outputs as well.
    """
    nodes, constants = [], {}
    outputs = ["q", "k", "v"][: len(heads)]
    for name, count in zip("qkv", heads, strict=False):
        constants[f"w{name}"] = random_array((K, count * SIZE), ord(name))
        constants["shape"] = np.array([0, 0, -1, SIZE])
        product = f"{name}0"
        nodes.append(helper.make_node("MatMul", ["x", f"w{name}"], [product]))
        if bias:
            constants[f"b{name}"] = random_array((count * SIZE,), ord(name))
            nodes.append(helper.make_node("Add", [f"b{name}", product], [f"{name}1"]))
            product = f"{name}1"
        nodes += [
            helper.make_node("Reshape", [product, "shape"], [f"{name}2"]),
            helper.make_node("Transpose", [f"{name}2"], [f"{name}3"], perm=[0, 2, 1, 3]),
        ]
    for name, table in zip("qk", tables, strict=False):
        read = [f"{name}3", f"cos{table}", f"sin{table}"]
        turned = "q" if name == "q" else "k4"
        nodes.append(helper.make_node("RotaryEmbedding", read, [turned]))
    for name, part in zip("kv", ("k4", "v3")[: len(heads) - 1], strict=False):
        nodes.append(helper.make_node("Concat", [f"past_{name}", part], [name], axis=2))
    fed = {"x": random_array((batch, steps, K))}
    if shared:
        fed["z"] = random_array((2, K))
        nodes.append(helper.make_node("MatMul", ["z", "wk"], ["again"]))
        outputs.append("again")
    past = random_array((batch, heads[1], PAST, SIZE))
    fed |= {f"past_{n}": past + ord(n) for n in "kv"[: len(heads) - 1]}
    for table in sorted(set(tables)):
        angles = random_array((batch, steps, SIZE // 2), ord(table))
        fed |= {f"cos{table}": np.cos(angles), f"sin{table}": np.sin(angles)}
    given = [value(name, array.shape) for name, array in fed.items()]
    return model(nodes, given, [*outputs, *more], constants, opset=23), fed
