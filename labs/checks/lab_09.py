"""Exercises of lab 09: fields, places of weights, an order, shapes with N, a planted bug."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from vklab.course import words
from vklab.course.definition.case import Case, Folder
from vklab.course.definition.exercise import Function, exercise
from vklab.course.definition.kinds import Choice, Predict
from vklab.course.definition.report import Report
from vklab.course.labs import onnx_files
from vklab.course.labs.dims import dim, elements
from vklab.course.labs.node_order import PlainNode, ring, window
from vklab.course.labs.onnx_bytes import damaged, field_bytes, stored_model
from vklab.graph import onnx_file


@exercise(
    "09-1",
    hints=(
        "Write the varint first: the last seven bits of a byte are its remainder by 128. The next "
        "byte counts 128 times as much, the one after it 128 * 128 times as much.",
        "`message[place:end]` is shorter than you asked for if the message ends first. Which "
        "comparison notices that?",
    ),
    seams=("vklab.graph.onnx_file.fields",),
)
class ReadFields(Function):
    parts = {"numbers": ("numbers of one byte and of several", 2),
             "bytes": ("texts, messages, and numbers of fixed size", 1),
             "broken": ("broken messages are refused, others are read", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        numbers = [0, 1, 127, 128, 300, 16384, (1 << 32) + 5, -1, int(random.integers(1, 1 << 62))]
        for number in numbers:
            yield Case("numbers", (field_bytes(int(random.integers(1, 16)), 0, number),))
        drawn = [(int(n), 0, int(v)) for n, v in random.integers((1, 0), (4000, 1 << 40), (6, 2))]
        yield Case("numbers", (b"".join(field_bytes(*each) for each in drawn),))
        inner = field_bytes(4, 2, b"Conv") + field_bytes(1, 2, b"image")
        listed = [(8, 2, b"weight"), (7, 2, inner), (9, 2, b""), (2, 5, b"\0\0\x80?"), (1, 0, 32),
                  (3, 1, bytes(range(8))), (17, 2, bytes(random.integers(0, 256, 200, np.uint8)))]
        yield Case("bytes", (b"",), on="a message without bytes")
        for count in (1, 2, 3, 4, 6):
            chosen = random.choice(len(listed), count, replace=False)
            yield Case("bytes", (b"".join(field_bytes(*listed[n]) for n in chosen),))
        yield Case("bytes", (b"".join(field_bytes(*each) for each in listed * 2),))
        whole = field_bytes(1, 0, 300) + field_bytes(8, 2, b"weight") + field_bytes(2, 5, b"abcd")
        for length in (len(whole), 1, 2, 3, 5, 9, 11, len(whole) - 4, len(whole) - 1):
            yield Case("broken", (whole[:length],), on=f"the first {length} bytes of {whole!r}")
        for kind in (3, 4, 6, 7):
            for more in (b"", b"\x08\1" * 4):
                yield Case("broken", (bytes([1 << 3 | kind]) + more,), on=f"wire type {kind}")
        yield Case("broken", (field_bytes(0, 0, 1),), on="field number 0")
        yield Case("broken", (field_bytes(1, 1, bytes(8))[:-1],), on="7 of 8 bytes of wire type 1")

    def expected(self, case: Case) -> Any:
        (data,), found = case.args, []
        try:
            for number, head, first, last in onnx_file.fields(data, 0, len(data)):
                body = data[first:last]
                whole = sum((byte & 127) << 7 * place for place, byte in enumerate(body))
                found.append((number, data[head] & 7, body if data[head] & 7 else whole))
        except (IndexError, ValueError) as error:
            raise Exception("the message is broken") from error  # whichever the answer raises
        return found


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
)
class OrderNodes(Function):
    parts = {"order": ("an order that works, with the rule for ties", 3),
             "values": ("values with two makers, or with none", 2),
             "cycle": ("a cycle is named, and nothing else", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        kinds = ["Conv", "Relu", "MaxPool", "Concat", "Add"]
        yield Case("order", ([], []), on="a graph without nodes")
        yield Case("order", ([("a", "Add", ("x", "x"), ("y",))], ["x"]))
        wide: list[PlainNode] = [(f"{'nN'[n % 2]}{n}", kind, ("x",), (f"v{n}",)) for n, kind in zip(
            random.permutation(10).tolist(), kinds * 2, strict=True)]  # fmt: skip
        wide += [(f"z{n}", kind, ("x",), (f"z{n}",)) for n, kind in enumerate((
            "ConvTranspose", "LeakyRelu", "GlobalMaxPool", "ConcatFromSequence", "QLinearAdd",
            *kinds))]
        yield Case("order", (wide, ["x"]), on="20 nodes that read x")
        lstm = [("rnn", "LSTM", ("x", "", "h"), ("y", "", "")), ("h", "Relu", ("x",), ("h",))]
        yield Case("order", (lstm, ["x"]), on="a node that leaves inputs and outputs out ('')")
        for name, count in (("inception_v1", 40), ("shufflenet_v2", 30), ("bert_base", 40)):
            yield Case("order", window(random, name, count), on=f"{count} nodes of {name}")
        for part in ("values", "cycle"):
            yield Case(part, window(random, "inception_v1", 12), on="12 nodes without faults")
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
        wrong = {value for value in (*made, *(v for node in nodes for v in node[2]))
                 if value and made.count(value) != 1}  # fmt: skip
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
        report.expect(isinstance(got, list | tuple) and len(got) == 2 and isinstance(
            got[1], list | tuple), f"expected a pair (word, list of names), got {words.short(got)}")
        report.equal(got[0], kind, "which of the three words?")
        if kind != "cycle":
            report.expect(len(got[1]) == len(names),
                          f"expected {len(names)} names, got {len(got[1])}")  # fmt: skip
            for place, (one, right) in enumerate(zip(got[1], names, strict=True)):
                report.equal(one, right, f"name number {place} of the list")
            return
        cycle = list(got[1])
        report.expect(cycle, "the list of the cycle's nodes is empty")
        for place, name in enumerate(cycle):
            report.expect(name in list(nodes), f"{words.short(name)} is no node")
            report.expect(cycle.count(name) == 1, f"{name} is listed twice")
            before = cycle[place - 1]
            report.expect(before in list(nodes) and {*nodes[before][3]} & {*nodes[name][2]},
                          f"{name} of {words.short(cycle)} reads nothing that the node before it "
                          f"({words.short(before)}) makes")  # fmt: skip


@exercise(
    "09-4",
    hints=(
        "Add: write the shapes below each other, flush right. A missing size is 1. Which sizes of "
        "one column fit?",
        "Reshape: replace each 0 first. `elements` of the input and of the sizes that are known "
        "give two pairs; -1 has to be their quotient, and it must be whole.",
    ),
    seams=("vklab.graph.shapes.apply_node", "vklab.ops.registry.apply"),
)
class ShapeOf(Function):
    parts = {"add": ("broadcasting", 2), "reshape": ("0, -1 and the number of elements", 4)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for one, other in (([2, 3], [2, 3]), ([2, 3], [3]), ([], [4]), ([5, 1], [1, 7]),
                           (["N", 1, 8], [6, 1]), (["N", 4], [1, 4]), ([1, 4], ["N", 1]),
                           ([0, 3], [1, 3]), ([2, 3], [2]), (["N", 4], [2, 4]), ([0, 3], [2, 3]),
                           (["N", 4], ["2*N", 4]), (["3*N"], ["3*N"]),
                           ([1, 4], [1, 1])):  # fmt: skip
            yield Case("add", ("Add", [one, other], {}))
        yield Case("add", ("Softplus", [[2, 3]], {"target": [6], "allowzero": 0}))
        for _ in range(4):
            long = random.integers(1, 9, 4).tolist()
            short = [int(size if random.integers(0, 2) else 1) for size in long]
            pair = [["N", *long], short[int(random.integers(0, 4)):]]
            yield Case("add", ("Add", pair[:: int(random.choice([1, -1]))], {}))
        for shape, target, zero in (
            ([2, 6], [3, 4], 0), ([2, 6], [-1, 3], 0), ([2, 3, 4], [0, 0, -1], 0),
            (["N", 64, 4, 4], [-1, 1024], 1), (["N", 64, 4, 4], [0, -1], 0), ([2, 6], [5, -1], 0),
            (["N", 64, 4, 4], [1, 1024], 1), (["N", 128, 768], [-1, 768], 0),
            (["128*N", 768], [-1, 128, 12, 64], 0), (["N", 64, 8, 8], [-1, 1024], 0),
            (["N", 6], [-1, 4], 0), (["N", 6], [2, -1], 0), (["N", 6], [0, 2, -1], 0),
            (["6*N", 2], [0, 2, 1], 0), ([2, 6], [-1, -1], 0), ([2, 6], [0, 0, 0], 0),
            ([2, 6], [12], 0), ([2, 6], [7, 2], 0), ([0, 3], [0, 5], 0), ([0, 3], [0, 5], 1),
            ([0, 3], [0, -1], 0), ([2, 3], [0, -1], 1), ([4], [-2, -2], 0), ([1], [], 0),
            ([12], [-1], 0), (["N", 3], [3], 0), ([0, 3], [-1, 3], 0), (["N", 0], [-1, 4], 0),
            ([0], [2, 0], 1), ([9], [-3, -3], 0), (["N", 0], [0, 5], 1),
            (["N", 6, 4], [-1, 0, 2], 0),
        ):
            yield Case("reshape", ("Reshape", [shape], {"target": target, "allowzero": zero}))
        for _ in range(4):
            shape = ["N", *random.integers(1, 9, 3).tolist()]
            target = [0, *random.permutation(np.array(shape[1:])).tolist()]
            target[int(random.integers(0, 4))] = -1
            yield Case("reshape", ("Reshape", [shape], {"target": target, "allowzero": 0}))

    def expected(self, case: Case) -> Any:
        op, shapes, about = case.args
        if op == "Add":
            rank = max(map(len, shapes))
            columns = zip(*([1] * (rank - len(s)) + s for s in shapes), strict=True)
            sizes = [{*column} - {1} or {1} for column in columns]
            if any(len(each) > 1 for each in sizes):
                raise ValueError(shapes)
            return [each.pop() for each in sizes]
        if op != "Reshape":
            raise LookupError(op)
        shape, target, found = shapes[0], about["target"], []
        for number, size in enumerate(target):
            copied = size == 0 and not about["allowzero"]
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
ROWS = ((8, 3, 1, 2, 2, [-1, 2048], 2048), (8, 3, 0, 2, 2, [0, 2048], 2048),
        (16, 3, 1, 4, 4, [-1, 512], 512), (8, 5, 2, 2, 2, [1, 2048], 2048),
        (4, 3, 1, 8, 8, [0, -1], 128), (8, 3, 0, 2, 2, [-1, 1800], 1800),
        (4, 1, 0, 32, 1, [0, -1], 4), (4, 9, 0, 25, 1, [0, 4], 4), (8, 3, 1, 2, 2, [-1, 256], 256))
OPTIONS = ("right", "Conv", "MaxPool", "Reshape", "Gemm", "output")
VERDICTS = ("right", "Reshape", "output", "Reshape", "Gemm", "right", "right", "MaxPool", "output")


def _rows(*numbers: int) -> dict[str, str]:
    shown = [f"{filters} filters {size} x {size}, pads {pads} | {window} x {window}, strides {step}"
             f" | to {target} | by [{height}, 10]"
             for filters, size, pads, window, step, target, height in ROWS]  # fmt: skip
    return {key: shown[number] for key, number in zip("abcd", numbers, strict=True)}


@exercise(
    "09-5",
    hints=(
        "Write the shape behind each node, with N. `dims.complete(shape_of)` can do it, too.",
        "The Reshape with -1 accepts much. Which first size does it leave, and is that the N of "
        "the declared output?",
    ),
    variants=(_rows(1, 2, 4, 5), _rows(0, 7, 3, 8), _rows(4, 6, 2, 3), _rows(8, 5, 1, 7)),
)
class FirstWrong(Choice):
    parts = {"all": ("every model", 3)}

    def questions(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        right = {_rows(n, n, n, n)["a"]: verdict for n, verdict in enumerate(VERDICTS)}
        return {letter.upper(): (right[shown], OPTIONS) for letter, shown in self.params.items()}


@exercise("09-p1", hints=("Seven bits a byte. A negative number of 64 bits has its top bit set.",))
class VarintBytes(Predict):
    explains = ("127 is the last number of seven bits; 128 needs a second byte. -1 is stored as "
                "the 64 bits of its two's complement, all ones: ten bytes of seven bits. A million "
                "takes three.")

    def answers(self) -> Mapping[str, Any]:
        return {"of_127": 1, "of_128": 2, "of_minus_1": 10}


@exercise("09-p2", hints=("Which of the three is worth a mapping, and can be mapped?",))
class SharesMemory(Predict):
    explains = ("Only large is mapped: both models look at the same bytes of the file. small "
                "is raw, too, but vklab copies weights below 1 MiB: a mapping saves little "
                "there. The typed field is decoded element by element into a new array.")

    def answers(self) -> Mapping[str, Any]:
        return {"large": True, "small": False, "typed": False}


@exercise("09-p3", hints=("What can be seen from one node's name, inputs and attributes alone?",))
class CheckerAccepts(Predict):
    explains = ("Without full_check, the checker reads names: operators, attributes, makers, and "
                "whether each value is made before it is read. A cycle has no such order, so it is "
                "refused, too. It computes no shapes: MatMul and Reshape pass. With full_check it "
                "infers shapes, and finds MatMul; the Reshape still passes.")

    def answers(self) -> Mapping[str, Any]:
        return {"unknown_operator": False, "cycle": False, "MatMul_2x4_by_5x3": True,
                "Reshape_12_into_10": True}


@exercise("09-p4", hints=("What does AveragePool 8 x 8 leave of an image of 64 x 64?",))
class RowsOfOneImage(Predict):
    explains = ("64 x 64 pixels leave 8 x 8 numbers in each of 64 channels: 4,096. The "
                "Reshape to [-1, 1024] makes four rows of them, and Gemm takes each row for an "
                "image. The file promises [N, 10]; no node has noticed anything.")

    def answers(self) -> Mapping[str, Any]:
        return {"rows": 4}
