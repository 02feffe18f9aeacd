"""Answers to try the checks of lab 09 with: wrong ones, and a second right one for each."""

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from vklab_course.author.answers import alternative, wrong
from vklab_labs.lab_09.dims import dim, elements

RIGHT = [(1, 2, b"group"), (3, 0, 384), (20, 0, 2)]
alternative("09-1")([list(field) for field in RIGHT])
for says, answer in (
    ("field 1 of your list, (3, 0, 896): the value", [RIGHT[0], (3, 0, 896), RIGHT[2]]),
    ("field 1 of your list, (3, 0, 49155): the value", [RIGHT[0], (3, 0, 49155), RIGHT[2]]),
    ("field 2 of your list, (160, 1, 2): field number", [*RIGHT[:2], (160, 1, 2)]),
    ("field 0 of your list, (2, 1, b'group'): field number", [(2, 1, b"group"), *RIGHT[1:]]),
    ("field 0 of your list, (1, 2, 'group'): the value", [(1, 2, "group"), *RIGHT[1:]]),
    ("4 is not the number of fields", [*RIGHT[:2], (20, 0, 1), (0, 2, b"")]),
    ("expected a list of (field number", [1, 3, 20]),
):
    wrong("09-1", says=says)(answer)


def _locator(check=True, leaves=lambda home, path: home.resolve() not in path.resolve().parents,
             start=0, typed=False, default=True, search=False, dtype_text=str, zero=True,
             one=1):  # fmt: skip
    """Return an answer to 09-2 in which one decision may be wrong."""
    def locate_weight(folder, name):
        data = Path(folder, "model.onnx").read_bytes()
        tensors = {each.name: each for each in onnx.ModelProto.FromString(data).graph.initializer}
        whole, tensor = tensors[name].SerializeToString(), tensors[name]
        dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
        needed, place = (int(np.prod(shape)) if shape else one) * dtype.itemsize, ("", 0, 0)
        if said := {each.key: each.value for each in tensor.external_data}:
            place = (said["location"], int(said.get("offset", 0)),
                     int(said.get("length", needed if default else 0)) or (0 if zero else needed))
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
    ("got ('model.onnx', 47, 16", {"start": -2}), ("(typed)", {"typed": True}),
    ("(no length)", {"default": False}),
    ("one byte too short", {"check": False}), ("outside", {"leaves": lambda *paths: False}),
    ("subfolder", {"leaves": lambda home, path: home != path.parent}),
    ("absolute", {"leaves": lambda home, path: ".." in path.parts}),
    ("of ('raw'", {"search": True}), ("on a length of 0: expected", {"zero": False}),
    ("expected ('model.onnx'", {"dtype_text": repr}), ("data of shape ()", {"one": 0}),
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


def _shapes(copies=True, zero=True, letter=True, whole=True, many=True):
    """Return an answer to 09-4 in which one decision may be wrong."""
    def shape_of(shape, target, allowzero):
        target = list(target)
        for n, size in enumerate(target):
            if size == 0 and copies and not (allowzero and zero):
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
    ("[0, ", {"copies": False}), (", 1", {"zero": False}), ("[1, 1024]", {"letter": False}),
    ("expected ValueError to be raised", {"whole": False}), ("[-1, -1]", {"many": False}),
):
    wrong("09-4", says=says)(_shapes(**decision))


@wrong("09-4", says="shape_of(['N', 6], [7, 6], 0)\n")
def tries_a_batch_of_7(shape, target, allowzero):
    example = [7 * elements([size])[0] if isinstance(size, str) else size for size in shape]
    _shapes()(example, target, allowzero)  # raises if it does not fit
    return _shapes(whole=False)(shape, target, allowzero)


@wrong("09-4", says="shape_of([4, 'N'], [2, 2, -1], 0)\n")
def looks_for_n_in_front(shape, target, allowzero):
    return _shapes()([*shape[:1], *(elements([size])[0] for size in shape[1:])], target, allowzero)


@wrong("09-4", says="shape_of([0, 3], [2, 3], 0)\n")
def takes_zero_elements_for_any_number(shape, target, allowzero):
    try:
        return _shapes()(shape, target, allowzero)
    except ValueError:
        if elements(shape)[0] or any(size < 0 for size in target) or 0 in target[len(shape):]:
            raise
        return target


@wrong("09-4", says="shape_of([4], [-7, 2], 0)\n")
def takes_every_negative_number_for_the_free_one(shape, target, allowzero):
    free = [max(size, -1) for size in target]
    return _shapes()(shape, target if free.count(-1) > 1 else free, allowzero)


VERDICTS = {"D": "right", "C": "Gemm", "B": "output", "A": "Reshape"}
alternative("09-5")(VERDICTS)
wrong("09-5", says="not all right")({**VERDICTS, "B": "right"})
