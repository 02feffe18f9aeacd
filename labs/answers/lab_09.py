"""Answers to try the checks of lab 09 with: wrong ones, and a second right one for each."""

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from vklab.course.author.answers import alternative, wrong
from vklab.course.labs.dims import dim, elements


def _reader(low=7, kinds=(0, 1, 2, 5), least=1, strict=True, order=lambda n, kind: (n, kind)):
    """Return an answer to 09-1 in which one decision may be wrong."""
    def varint(rest):
        end = next((n for n, byte in enumerate(rest) if byte < 128), len(rest) - (not strict))
        return sum((rest[n] & 127) << low * n for n in range(end + 1)), rest[end + 1 :]

    def read_fields(message):
        found, rest = [], message
        while rest:
            key, rest = varint(rest)
            number, kind = key >> 3, key & 7
            count, rest = varint(rest) if kind in (0, 2) else (4 if kind == 5 else 8, rest)
            value, rest = (rest[:count], rest[count:]) if kind else (count, rest)
            if number < least or kind not in kinds or (strict and kind and len(value) < count):
                raise ValueError("broken")
            found.append((*order(number, kind), value))
        return found

    return read_fields


alternative("09-1")(_reader())
for says, decision in (
    ("expected [(", {"low": 8}), ("wire type 3", {"kinds": (0, 1, 2, 3, 5)}),
    ("on field number 0", {"least": 0}), ("on the first", {"strict": False}),
    ("expected [(", {"order": lambda n, kind: (kind, n)}), ("raised", {"kinds": (0, 2)}),
):
    wrong("09-1", says=says)(_reader(**decision))


def _locator(check=True, leaves=lambda home, path: home.resolve() not in path.resolve().parents,
             start=0, typed=False, default=True, search=False, dtype_text=str):
    """Return an answer to 09-2 in which one decision may be wrong."""
    def locate_weight(folder, name):
        data = Path(folder, "model.onnx").read_bytes()
        tensors = {each.name: each for each in onnx.ModelProto.FromString(data).graph.initializer}
        whole, tensor = tensors[name].SerializeToString(), tensors[name]
        dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
        needed, place = int(np.prod(shape)) * dtype.itemsize, ("", 0, 0)
        if said := {each.key: each.value for each in tensor.external_data}:
            place = (said["location"], int(said.get("offset", 0)),
                     int(said.get("length", needed if default else 0)))
        elif tensor.HasField("raw_data") or typed:
            raw = tensor.raw_data  # the last field of these messages
            at = data.find(raw) if search else data.find(whole) + len(whole) - len(raw)
            place = "model.onnx", at + start, len(raw)
        file, offset, length = place
        path = Path(folder, file)
        if check and file and (length != needed or offset < 0 or leaves(Path(folder), path)
                               or not path.is_file() or offset + length > path.stat().st_size):
            raise ValueError(name)
        return (*place, dtype_text(dtype), shape)

    return locate_weight


alternative("09-2")(_locator())
for says, decision in (
    ("(raw)", {"start": -2}), ("(typed)", {"typed": True}), ("(no length)", {"default": False}),
    ("one byte too short", {"check": False}), ("outside", {"leaves": lambda *paths: False}),
    ("subfolder", {"leaves": lambda home, path: home != path.parent}),
    ("absolute", {"leaves": lambda home, path: ".." in path.parts}),
    ("of ('raw'", {"search": True}),
    ("expected ('model.onnx'", {"dtype_text": repr}),
):
    wrong("09-2", says=says)(_locator(**decision))


def _sorter(key=lambda node: (node[1] != "Conv", node[0]), empty=("",), bad=lambda n: n != 1,
            names=lambda cycle, nodes: cycle):  # fmt: skip
    """Return an answer to 09-3 in which one decision may be wrong."""
    def order_nodes(nodes, given):
        makers = {value: [""] * (value in given)
                  for value in (*given, *(v for node in nodes for v in node[2] + node[3]))}
        for node in nodes:
            for value in node[3]:
                makers[value].append(node[0])
        if faults := sorted(v for v in makers if v not in empty and bad(len(makers[v]))):
            return "values", faults
        by_name = {node[0]: node for node in nodes}
        graph = {node[0]: [makers[v][0] for v in node[2] if v and makers[v][0]] for node in nodes}
        sorter, order, ready = TopologicalSorter(graph), [], []
        try:
            sorter.prepare()
        except CycleError as error:
            return "cycle", names(error.args[1][1:], graph)
        while sorter.is_active():
            ready = sorted([*ready, *sorter.get_ready()], key=lambda name: key(by_name[name]))
            order.append(ready.pop(0))
            sorter.done(order[-1])
        return "order", order

    return order_nodes


alternative("09-3")(_sorter())
for says, decision in (
    ("name number", {"key": lambda node: node[0]}),
    ("name number", {"key": lambda node: (node[1] == "Conv", node[0])}),
    ("name number", {"key": lambda node: ("Conv" not in node[1], node[0].lower())}),
    ("leaves inputs and outputs out", {"empty": ()}), ("two makers", {"bad": lambda n: n < 1}),
    ("values without a maker", {"bad": lambda n: n > 1}),
    ("reads nothing that the node before it", {"names": lambda cycle, nodes: [*nodes]}),
    ("reads nothing that the node before it", {"names": lambda cycle, nodes: cycle[::-1]}),
):
    wrong("09-3", says=says)(_sorter(**decision))


def _shapes(stretch=lambda a, b: b if a == 1 else a, fits=lambda a, b: a == b or 1 in (a, b),
            flush=True, copies=True, zero=True, letter=True, whole=True, many=True):  # fmt: skip
    """Return an answer to 09-4 in which one decision may be wrong."""
    def shape_of(op, shapes, attributes):
        if op == "Add":
            one, other = (list(shape) for shape in shapes)
            while len(one) != len(other):
                short = one if len(one) < len(other) else other
                short.insert(0 if flush else len(short), 1)
            if not all(map(fits, one, other)):
                raise ValueError("no common shape")
            return [*map(stretch, one, other)]
        if op != "Reshape":
            raise KeyError(op)
        target, (shape,) = list(attributes["target"]), shapes
        for n, size in enumerate(target):
            if size == 0 and copies and not (attributes["allowzero"] and zero):
                target[n] = shape[n] if n < len(shape) else -9
        known = [size for size in target if size != -1]
        if (many and target.count(-1) > 1) or any(str(size)[0] == "-" for size in known):
            raise ValueError("no target")
        (all_, power), (count, less) = elements(shape), elements(known)
        if -1 not in target and whole and (all_ != count or (letter and all_ and power != less)):
            raise ValueError("other elements")
        if -1 in target and (count == 0 or (whole and all_ % count)):
            raise ValueError("no whole number")
        return [dim(all_ // count, power - less) if size == -1 else size for size in target]

    return shape_of


alternative("09-4")(_shapes())
for says, decision in (
    ("expected [0, 3], got [1, 3]", {"stretch": lambda a, b: max(a, b, key=str)}),
    ("expected ValueError to be raised", {"fits": lambda a, b: True}),
    ("expected ValueError to be raised", {"fits": lambda a, b: a == b or {1, "N"} & {a, b}}),
    ("[[2, 3], [3]], {}: raised", {"flush": False}), ("'target': [0, ", {"copies": False}),
    ("'allowzero': 1", {"zero": False}), ("'target': [1, 1024]", {"letter": False}),
    ("expected ValueError to be raised", {"whole": False}), ("'target': [-1, -1]", {"many": False}),
):
    wrong("09-4", says=says)(_shapes(**decision))

RIGHT = {"D": "right", "C": "Gemm", "B": "output", "A": "Reshape"}
alternative("09-5")(RIGHT)
wrong("09-5", says="3 of 4 are right")({**RIGHT, "B": "right"})
