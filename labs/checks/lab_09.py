"""Exercises of lab 09: an attribute, places of weights, an order, shapes with N, a planted bug."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from vklab.graph import onnx_file
from vklab_course import words
from vklab_course.definition.case import Case, Folder
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_09 import onnx_files
from vklab_labs.lab_09.dims import dim, elements
from vklab_labs.lab_09.node_order import ORDER, PlainNode, ring, window
from vklab_labs.lab_09.onnx_bytes import damaged, stored_model


@exercise(
    "09-1",
    hints=(
        "Divide a key by 8: the quotient is the field number, the remainder the wire type. The "
        "first byte is 0a: 10 = 8 * 1 + 2. What follows a key of wire type 2?",
        "A byte of 128 or more (hexadecimal 80) is not the last one of its varint. Take 128 away "
        "from it, and add 128 times the next byte. A key may have two bytes, too.",
    ),
    variants=(
        {"message": "0a 05 67 72 6f 75 70 18 80 03 a0 01 02"},
        {"message": "0a 06 6f 66 66 73 65 74 18 d4 02 a0 01 02"},
        {"message": "0a 04 73 69 7a 65 18 85 02 a0 01 02"},
        {"message": "0a 06 6e 67 72 6f 75 70 18 f0 05 a0 01 02"},
    ),
    seams=("vklab.graph.onnx_file.fields",),
)
class Attribute(Value):
    parts = {"keys": ("field number and wire type", 2), "values": ("the value", 2)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in self.parts:
            yield Case(part, on="the bytes of your attribute")

    def expected(self, case: Case) -> Any:
        data, found = bytes.fromhex(self.params["message"]), []
        for number, head, first, last in onnx_file.fields(data, 0, len(data)):
            body = data[first:last]
            text = data[head] & 7 == 2
            whole = sum((byte & 127) << 7 * place for place, byte in enumerate(body))
            found.append((number, data[head] & 7, body if text else whole))
        return found

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple)
            and all(isinstance(each, list | tuple) and len(each) == 3 for each in got),
            "expected a list of (field number, wire type, value)",
        )
        report.expect(len(got) == len(case.expected), f"{len(got)} is not the number of fields")
        for place, (mine, right) in enumerate(zip(got, case.expected, strict=True)):
            same = mine[2] == right[2] if report.part == "values" else [*mine[:2]] == [*right[:2]]
            report.expect(
                same,
                f"field {place} of your list, {words.short(mine)}: "
                f"{self.parts[report.part][0]} is not right",
            )


@exercise(
    "09-2",
    hints=(
        "A TensorProto has no places. `fields` has: pass it the whole file, and where the message "
        "begins and ends; then its places count from the start of the file.",
        "How many bytes do shape and dtype need? Compare that number with what the file holds.",
    ),
    seams=("vklab.graph.onnx_tensors.array",),
)
class LocateWeight(Function):
    parts = {"inside": ("raw data in the model's file", 2),
             "outside": ("external data, and data in a typed field", 2),
             "refused": ("sizes and locations that cannot be right are refused", 2)}  # fmt: skip
    follows = {"outside": "inside", "refused": "inside outside"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for hows in (("raw",) * 4, ("typed", "raw", "external", "raw")):
            files, listed = stored_model(random, hows)
            for name, how, *_ in listed:
                if how == "raw":
                    yield Case("inside", (Folder(), name), files=files, on=f"{name} of {hows}")
        hows = ("external", "typed", "no length", "raw", "external", "no offset")
        files, listed = stored_model(random, hows)
        for name, how, *_ in listed:
            yield Case("outside", (Folder(), name), files=files, on=f"{name} ({how})")
        for what, name, files in damaged(random):
            inner = {posixpath.normpath(f"inner/{path}"): data for path, data in files.items()}
            yield Case("refused", (Folder("inner"), name), files=inner, on=what)

    def expected(self, case: Case) -> Any:
        (_, name), home = case.args, f"{case.args[0].path}/".lstrip("/")
        data = case.files[f"{home}model.onnx"]
        tensor, first, last = onnx_files.find_initializer(data, name)
        shape, dtype = tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type)
        wanted, where = int(np.prod(shape)) * dtype.itemsize, ("", 0, 0)
        if tensor.data_location == TensorProto.EXTERNAL:
            said = {entry.key: entry.value for entry in tensor.external_data}
            where = said["location"], int(said.get("offset", 0)), int(said.get("length", wanted))
        elif tensor.HasField("raw_data"):
            raw = next(each for each in onnx_file.fields(data, first, last) if each[0] == 9)
            where = "model.onnx", raw[2], raw[3] - raw[2]
        file, offset, length = where
        held = len(case.files.get(home + file, b""))
        if file and (length != wanted or offset < 0 or offset + length > held):
            raise ValueError(name)
        return (*where, str(dtype), shape)


@exercise(
    "09-3",
    hints=(
        "Count the makers of every value first; a given value has one already. The outputs of a "
        "node may hold '', too.",
        "Keep a set of values that exist. A node is ready when all its inputs are in it. Which of "
        "the ready nodes is next? `min` takes a key.",
        "No node ready, and some are left: each of these reads a value that another one of them "
        "makes. Go from a node to such a maker, and on. When do you meet a node again?",
    ),
    seams=("vklab.graph.onnx_import.topological_order", "vklab.graph.graph.topological_order"),
    variants=tuple({"first": name} for name in ("Conv", "Relu", "MaxPool", "Concat", "Add")),
    builds=ORDER,
)
class OrderNodes(Function):
    parts = {"order": ("an order that works, with the rule for ties", 3),
             "values": ("values with two makers, or with none", 2),
             "cycle": ("a cycle is named, and nothing else", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        kinds = ["Conv", "Relu", "MaxPool", "Concat", "Add"]
        yield Case("order", ([], []), on="a graph without nodes")
        yield Case("order", ([("a", "Add", ("x", "x"), ("y",))], ["x"]))
        wide: list[PlainNode] = [
            (f"{'nN'[n % 2]}{n}", kind, ("x",), (f"v{n}",))
            for n, kind in zip(random.permutation(10).tolist(), kinds * 2, strict=True)
        ]
        wide += [
            (f"z{n}", kind, ("x",), (f"z{n}",))
            for n, kind in enumerate(
                (
                    "ConvTranspose",
                    "LeakyRelu",
                    "GlobalMaxPool",
                    "ConcatFromSequence",
                    "QLinearAdd",
                    *kinds,
                )
            )
        ]
        yield Case("order", (wide, ["x"]), on="20 nodes that read x")
        lstm = [("rnn", "LSTM", ("x", "", "h"), ("y", "", "")), ("h", "Relu", ("x",), ("h",))]
        yield Case("order", (lstm, ["x"]), on="a node that leaves inputs and outputs out ('')")
        for name, count in (("inception_v1", 40), ("shufflenet_v2", 30), ("bert_base", 40)):
            yield Case("order", window(random, name, count), on=f"{count} nodes of {name}")
        for part in ("values", "cycle"):
            faultless = window(random, "inception_v1", 12)
            yield Case(part, faultless, on="12 nodes without faults", mixed=True)
        nodes, given = window(random, "inception_v1", 15)
        outputs = nodes[4][3]
        again: PlainNode = ("again", "Relu", (given[0],), outputs)
        lost: PlainNode = ("lost", "Sum", (*"fbdace", given[0]), ("lost",))
        yield Case("values", ([*nodes, again], given), on="two makers")
        spare: list[PlainNode] = [(f"s{n}", "Relu", (given[0],), ("spare",)) for n in range(3)]
        yield Case("values", ([*nodes, *spare], given), on="three makers of a value nobody reads")
        yield Case("values", (nodes, [*given, *outputs]), on="a given value that a node makes")
        yield Case("values", ([lost, *nodes], given), on="values without a maker")
        yield Case("values", ([lost, again, *nodes], given), on="both faults")
        yield Case("values", ([*ring(random, 2, 1), lost], ["x", *given]), on="also a cycle")
        yield Case("cycle", ([("self", "Add", ("x", "y"), ("y",))], ["x"]))
        for length, tail in ((2, 1), (3, 4), (5, 2), (12, 6)):
            yield Case("cycle", (ring(random, length, tail), ["x"]), on=f"a cycle of {length}")

    def expected(self, case: Case) -> Any:
        nodes, given = case.args
        made = [*given, *(value for node in nodes for value in node[3])]
        wrong = {
            value
            for value in (*made, *(v for node in nodes for v in node[2]))
            if value and made.count(value) != 1
        }
        if wrong:
            return "values", sorted(wrong)
        left, known, order = sorted(nodes), {*given, ""}, []
        left.sort(key=lambda node: node[1] != self.params["first"])
        while left:
            ready = [node for node in left if known.issuperset(node[2])]
            if not ready:
                return "cycle", []
            left.remove(ready[0])
            known.update(ready[0][3])
            order.append(ready[0][0])
        return "order", order

    def compare(self, case: Case, got: Any, report: Report) -> None:
        nodes, (kind, names) = {node[0]: node for node in case.args[0]}, case.expected
        report.expect(
            isinstance(got, list | tuple) and len(got) == 2 and isinstance(got[1], list | tuple),
            f"expected a pair (word, list of names), got {words.short(got)}",
        )
        report.equal(got[0], kind, "which of the three words?")
        if kind != "cycle":
            report.expect(
                len(got[1]) == len(names), f"expected {len(names)} names, got {len(got[1])}"
            )
            known = {*case.args[1], ""}
            for place, (one, right) in enumerate(zip(got[1], names, strict=True)):
                ready = kind == "order" and one in list(nodes) and known.issuperset(nodes[one][2])
                why = "; both are ready: which rule decides?" if ready else ""
                report.equal(one, right, f"name number {place} of the list{why}")
                known.update(nodes[right][3] if kind == "order" else ())
            return
        cycle = list(got[1])
        report.expect(cycle, "the list of the cycle's nodes is empty")
        for place, name in enumerate(cycle):
            report.expect(name in list(nodes), f"{words.short(name)} is no node")
            report.expect(cycle.count(name) == 1, f"{name} is listed twice")
            before = cycle[place - 1]
            report.expect(
                before in list(nodes) and {*nodes[before][3]} & {*nodes[name][2]},
                f"{name} of {words.short(cycle)} reads nothing that the node before it "
                f"({words.short(before)}) makes",
            )


@exercise(
    "09-4",
    hints=(
        "Replace each 0 that copies first. Which targets are not allowed, whatever the input is?",
        "`elements` of the input and of the sizes that are known give two pairs; -1 has to be "
        "their quotient, and it must be whole. Without -1 the pairs must be equal.",
    ),
    seams=("vklab.graph.shapes.apply_node", "vklab.ops.registry.apply"),
)
class ShapeOf(Function):
    parts = {"given": ("sizes without 0 and -1: the number of elements", 1),
             "rest": ("-1 is what is left", 1), "copied": ("0 copies the size at its place", 1),
             "empty": ("no elements, and allowzero", 1)}  # fmt: skip
    follows = {"rest": "given", "copied": "given", "empty": "given"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for shape, target, zero in (
            ([2, 6], [3, 4], 0),
            ([2, 6], [-1, 3], 0),
            ([2, 3, 4], [0, 0, -1], 0),
            (["N", 64, 4, 4], [-1, 1024], 1),
            (["N", 64, 4, 4], [0, -1], 0),
            ([2, 6], [5, -1], 0),
            (["N", 64, 4, 4], [1, 1024], 1),
            (["N", 128, 768], [-1, 768], 0),
            (["128*N", 768], [-1, 128, 12, 64], 0),
            (["N", 64, 8, 8], [-1, 1024], 0),
            (["N", 6], [-1, 4], 0),
            (["N", 6], [2, -1], 0),
            (["N", 6], [0, 2, -1], 0),
            (["6*N", 2], [0, 2, 1], 0),
            ([2, 6], [-1, -1], 0),
            ([2, 6], [0, 0, 0], 0),
            ([2, 6], [12], 0),
            ([2, 6], [7, 2], 0),
            ([0, 3], [0, 5], 0),
            ([0, 3], [0, 5], 1),
            ([0, 3], [0, -1], 0),
            ([2, 3], [0, -1], 1),
            ([4], [-2, -2], 0),
            ([1], [], 0),
            ([12], [-1], 0),
            (["N", 3], [3], 0),
            ([0, 3], [-1, 3], 0),
            (["N", 0], [-1, 4], 0),
            ([0], [2, 0], 1),
            ([9], [-3, -3], 0),
            (["N", 0], [0, 5], 1),
            (["N", 6, 4], [-1, 0, 2], 0),
            ([0, 3], [0, 3, 0], 0),
            ([2, 6], [2, 6, 0], 0),
            ([4, "N", 6], [0, -1], 0),
            ([4, "N"], [2, 2, -1], 0),
            ([4, "2*N"], [-1, 0], 0),
            (["N", "2*N", 3], [0, -1, 3], 0),
            ([4, "N"], [0, 0], 0),
            (["N", 3], [1, -1], 0),
            ([], [1, 1], 0),
            ([], [-1], 1),
            ([], [0], 0),
            ([], [], 0),
            ([0, 3], [2, 3], 0),
            ([2, 3], [0, 3], 1),
            ([0, 3], [0, -1], 1),
            ([0, 3], [3, 2, 0], 1),
            ([0], [-2, 0], 1),
            ([2, 3, 4], [-1, 0, -1], 0),
            ([2, 3, 4], [-1, -1, -1], 0),
            ([4], [-1, -2], 0),
            ([4], [-7, 2], 0),
            ([4], [-2], 0),
            (["N", 4], [-3, 2, 2], 0),
            ([6], [-6], 1),
            (["N", "N"], [-1], 0),
        ):
            yield self._case(shape, target, zero)
        for n in (*range(2, 14), 16, 32, 64, 97, 100, 101, 127, 128, 1000):  # no number is N
            yield self._case(["N", 6], [n, 6], 0)
        for _ in range(12):
            sizes = random.choice([2, 2, 3, 4, 6], 3).tolist()
            shape = random.permutation(np.array(["N", *sizes], object)).tolist()
            target = random.permutation(np.array([0, -1, *sizes[:2]])).tolist()
            yield replace(self._case(shape, target, 0), mixed=True)

    def _case(self, shape: list[Any], target: list[int], allowzero: int) -> Case:
        """Return a case of the part that its zeros and negative numbers belong to."""
        copies, rest = 0 in target and not allowzero, any(n < 0 for n in target)
        part = "copied" if copies else "rest" if rest else "given"
        if 0 in shape or (allowzero and 0 in target):
            part = "empty"
        mixed = copies and (rest or part == "empty")
        return Case(part, (shape, target, allowzero), mixed=mixed)

    def expected(self, case: Case) -> Any:
        (shape, target, allowzero), found = case.args, []
        for number, size in enumerate(target):
            copied = size == 0 and not allowzero
            if size < -1 or (copied and number >= len(shape)) or target.count(-1) > 1:
                raise ValueError(target)
            found.append(shape[number] if copied else size)
        (all_, power), (known, less) = elements(shape), elements(n for n in found if n != -1)
        if -1 not in target and (all_, power * (all_ > 0)) != (known, less * (known > 0)):
            raise ValueError(target)
        if -1 in target:
            if known == 0 or all_ % known or (all_ and not 0 <= power - less <= 1):
                raise ValueError(target)
            found[found.index(-1)] = dim(all_ // known, power - less)
        return found


# Filters, their size, pads; window, strides; target; rows of the matrix of Gemm.
ROWS = (
    (8, 3, 1, 2, 2, [-1, 2048], 2048),
    (8, 3, 0, 2, 2, [0, 2048], 2048),
    (16, 3, 1, 4, 4, [-1, 512], 512),
    (8, 5, 2, 2, 2, [1, 2048], 2048),
    (4, 3, 1, 8, 8, [0, -1], 128),
    (8, 3, 0, 2, 2, [-1, 1800], 1800),
    (4, 1, 0, 32, 1, [0, -1], 4),
    (4, 9, 0, 25, 1, [0, 4], 4),
    (8, 3, 1, 2, 2, [-1, 256], 256),
)
OPTIONS = ("right", "Conv", "MaxPool", "Reshape", "Gemm", "output")
VERDICTS = ("right", "Reshape", "output", "Reshape", "Gemm", "right", "right", "MaxPool", "output")
# By row: the fact that decides it, and the reason of the right answer.
WHY = (
    (
        "Behind the window, an image has 8 · 16 · 16 = 2048 numbers.",
        "2048 numbers of an image become one row, so the -1 is N. The weights have 2048 rows: the "
        "output is [N, 10].",
    ),
    (
        "Without pads, the filters leave 30 x 30. Behind the window, an image has 8 · 15 · 15 = "
        "1800 numbers.",
        "The target keeps N and asks for 2048 numbers of each image, but there are 1800.",
    ),
    (
        "Behind the window, an image has 16 · 8 · 8 = 1024 numbers, and the target makes rows of "
        "512.",
        "Each image becomes two rows, so every node has a shape, and the last one is [2N, 10].",
    ),
    (
        "Behind the window, the shape is [N, 8, 16, 16]: N · 2048 numbers. The target has 1 · "
        "2048.",
        "The target is a number of the example: it is right for N = 1 only.",
    ),
    (
        "Behind the window, an image has 4 · 4 · 4 = 64 numbers, and -1 becomes 64.",
        "The rows have 64 numbers, and the weights of Gemm have 128 rows.",
    ),
    (
        "Without pads, the filters leave 30 x 30. Behind the window, an image has 8 · 15 · 15 = "
        "1800 numbers.",
        "1800 numbers of an image become one row, so the -1 is N. The weights have 1800 rows: the "
        "output is [N, 10].",
    ),
    (
        "The window covers all of 32 x 32, and leaves one number of each of the 4 channels.",
        "The target keeps N, and -1 becomes 4. The weights have 4 rows: the output is [N, 10].",
    ),
    (
        "Without pads, filters of 9 x 9 leave 24 x 24.",
        "A window of 25 x 25 does not fit into 24 x 24.",
    ),
    (
        "Behind the window, an image has 8 · 16 · 16 = 2048 numbers, and the target makes rows of "
        "256.",
        "Each image becomes eight rows, so every node has a shape, and the last one is [8N, 10].",
    ),
)


def _rows(*numbers: int) -> dict[str, str]:
    shown = [
        f"{filters} filters {size} x {size}, pads {pads} | {window} x {window}, strides {step}"
        f" | to {target} | by [{height}, 10]"
        for filters, size, pads, window, step, target, height in ROWS
    ]
    return {key: shown[number] for key, number in zip("abcd", numbers, strict=True)}


@exercise(
    "09-5",
    hints=(
        "Write the shape behind each node, with N. `dims.complete(shape_of)` can do it, too.",
        "The Reshape with -1 accepts much. Which first size does it leave, and is that the N of "
        "the declared output?",
    ),
    variants=(_rows(1, 2, 4, 5), _rows(0, 7, 3, 8), _rows(4, 6, 2, 3), _rows(8, 5, 1, 7)),
    extra=True,
)
class FirstWrong(Choice):
    parts = {"all": ("every model", 3)}

    def questions(self) -> Mapping[str, Question]:
        rows = {
            _rows(n, n, n, n)["a"]: Question(verdict, OPTIONS, *why)
            for n, (verdict, why) in enumerate(zip(VERDICTS, WHY, strict=True))
        }
        return {letter.upper(): rows[shown] for letter, shown in self.params.items()}


@exercise("09-p2", hints=("Which of the three is worth a mapping, and can be mapped?",))
class SharesMemory(Predict):
    explains = (
        "Only large is mapped: both models look at the same bytes of the file. small "
        "is raw, too, but vklab copies weights below 1 MiB: a mapping saves little "
        "there. The typed field is decoded element by element into a new array."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"large": True, "small": False, "typed": False}


@exercise("09-p3", hints=("What can be seen from one node's name, inputs and attributes alone?",))
class CheckerAccepts(Predict):
    explains = (
        "Without full_check, the checker reads names: operators, attributes, makers, and "
        "whether each value is made before it is read. A cycle has no such order, so it is "
        "refused, too. It computes no shapes: MatMul and Reshape pass. With full_check it "
        "infers shapes, and finds MatMul; the Reshape still passes."
    )

    def answers(self) -> Mapping[str, Any]:
        return {
            "unknown_operator": False,
            "cycle": False,
            "MatMul_2x4_by_5x3": True,
            "Reshape_12_into_10": True,
        }


@exercise("09-p4", hints=("What does AveragePool 8 x 8 leave of an image of 64 x 64?",))
class RowsOfOneImage(Predict):
    explains = (
        "64 x 64 pixels leave 8 x 8 numbers in each of 64 channels: 4,096. The "
        "Reshape to [-1, 1024] makes four rows of them, and Gemm takes each row for an "
        "image. The file promises [N, 10]; no node has noticed anything."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"rows": 4}
