# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "ONNX graphs: what is in the file", minutes: 90}
# ---

# %% [markdown] id="l09-title"
# # Lab 09 · ONNX graphs: what is in the file
# **From bytes to a graph whose shapes fit** · 90 minutes, 5 exercises
#
# PyTorch writes a model into one file. A runtime reads the file, puts the nodes into an order, finds a shape for every value, and only then reserves memory and starts kernels. In this lab you do these steps yourself, with real files. You also see what can be wrong with a file that every tool accepts.
#
# **Afterwards you can**
# * read the bytes of an ONNX file without a library;
# * say in which file, at which offset, each weight lies, and which weights need no copy;
# * order the nodes of a graph, or name the values or the cycle that make this impossible;
# * carry shapes through a graph, for a batch size that is not known yet;
# * export a PyTorch model with an open batch, and say which faults ONNX's checker cannot see.
#
# **Before this lab**: lab 00. You need lists, dictionaries, sets, `divmod`, and how to raise an exception. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/graph/onnx_file.py`, `vklab/graph/onnx_tensors.py`, `vklab/graph/graph.py`, `vklab/course/labs/dims.py`.

# %% id="l09-setup"
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
from IPython.display import display
from onnx import TensorProto, helper

import vklab
from vklab.course import attempt, banner, check, data, hint, predict, show
from vklab.course.figures import onnx_bytes as figures
from vklab.course.figures.networks import draw_network
from vklab.course.labs import dims, onnx_files
from vklab.course.labs.dims import elements
from vklab.course.labs.swapped import run_swapped
from vklab.graph import onnx_import
from vklab.graph.onnx_file import GRAPH, INITIALIZER, RAW_DATA, fields

# %% id="l09-banner"
banner()

# %% id="l09-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l09-1t"
# ## 1 · The file, byte by byte
# An ONNX file is one **message** of Protocol Buffers (short: protobuf), a format by Google. A message is a row of **fields**. Each field has a *key* and a *value*. The key is `8 * field number + wire type`. The **wire type** says how long the value is; the field number says what it means. Here are the first fields of MiniClassifier's file:

# %% id="l09-1d" tags=["hide-input"]
MODEL = data("mini_classifier.onnx").read_bytes()
figures.draw_fields(MODEL, {1: "ir_version", 2: "producer_name", 3: "producer_version", 7: "graph"},
                    "The file begins like this. Orange: the key. Blue: a length. Green: the value.")

# %% [markdown] id="l09-1r"
# | wire type | the value | in ONNX |
# |---|---|---|
# | 0 | a **varint**: a number in one to ten bytes | sizes, versions, integers |
# | 1 | 8 bytes | (rare) |
# | 2 | a length, as a varint, and that many bytes | texts, weights, and messages inside of messages |
# | 5 | 4 bytes | a float32 |
#
# Nothing in the bytes says that field 7 is the graph. That is in a **schema**: for each kind of message, a list of field numbers with their names. ONNX's schema is [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto). Keys and lengths are varints, too:

# %% id="l09-1v" tags=["hide-input"]
figures.draw_varint(300)

# %% [markdown] id="l09-1p"
# How many bytes does a varint have? A negative integer is first written as a 64-bit number, in two's complement.

# %% id="l09-p1"
predict("09-p1", of_127=..., of_128=..., of_minus_1=...)

# %% [markdown] id="l09-e1t"
# ### Exercise 1 · Read the fields of a message

# %% id="l09-e1" vklab={"role": "exercise", "id": "09-1", "points": 4, "lines": 16}
def read_fields(message):
    """Return the fields of a message as a list of (field number, wire type, value), in order.

    message: bytes.
    TODO     value: a number of at least 0 for wire type 0; else bytes, without their length.
             ValueError: the message ends inside a field, a field number is 0, or a wire type is
             not 0, 1, 2 or 5.
    Approach a helper number(place) that returns a varint and the place behind it.
    Example  read_fields(bytes([0x08, 0xac, 0x02, 0x12, 2]) + b"hi")
             -> [(1, 0, 300), (2, 2, b"hi")]                           (roughly 16 lines)
    """
    ### BEGIN SOLUTION
    def number(place):
        value, factor = 0, 1
        while place < len(message):
            value += message[place] % 128 * factor
            factor *= 128
            place += 1
            if message[place - 1] < 128:
                return value, place
        raise ValueError("the message ends inside a number")

    found, place = [], 0
    while place < len(message):
        key, place = number(place)
        field, kind = divmod(key, 8)
        if field == 0 or kind not in (0, 1, 2, 5):
            raise ValueError(f"field {field} of wire type {kind}")
        value, place = number(place) if kind in (0, 2) else ({1: 8, 5: 4}[kind], place)
        if kind != 0:
            place, value = place + value, message[place : place + value]
        if place > len(message):
            raise ValueError(f"field {field} is cut off")
        found.append((field, kind, value))
    return found
    ### END SOLUTION


# %% [markdown] id="l09-e1r"
# The demo below goes down with your function: the model, its graph (field 7), the first node (field 1), its operator (field 4).

# %% id="l09-e1d" vklab={"role": "demo"}
with attempt("09-1"):
    message = MODEL
    for what, wanted in (("model", 7), ("graph", 1), ("node", 4)):
        found = read_fields(message)
        print(f"{what}: {len(message):,} bytes, {len(found)} fields")
        message = next(value for number, _, value in found if number == wanted)
    print("the first operator is", message.decode())

# %% id="l09-e1c" vklab={"role": "check", "id": "09-1"}
check("09-1", read_fields)

# %% id="l09-e1h"
# hint("09-1")

# %% [markdown] id="l09-2t"
# ## 2 · Where a weight lies
# A weight of a model is called an **initializer**: a tensor with a name, whose elements are stored. ONNX has three ways to store them:

# %% id="l09-2d" tags=["hide-input"]
figures.draw_storage()

# %% [markdown] id="l09-2r"
# * `raw_data` holds the array as a program holds it in memory: little-endian, row by row.
# * `external_data` names another file in the model's folder. It is needed for large models, because a protobuf message must be smaller than 2 GiB.
# * **Typed fields**, such as `float_data` and `int64_data`, hold the numbers one by one. An `int64` is a varint there, so the bytes of the file are not the bytes of the array. (A list of `float_data` is usually stored in the bytes of `raw_data`. The schema also permits a key before each number, so a reader cannot rely on it.)
#
# The runtime finds these places with a walker like yours. It returns places instead of values, and copies nothing: `fields(data, start, end)` yields `(field number, place of the key, first byte of the value, byte after the value)` for each field between two places.

# %% id="l09-walk" vklab={"define": true}
def initializers(file):
    """Yield each initializer of a file: its TensorProto, and the places where its message lies."""
    for number, _, start, end in fields(file, 0, len(file)):
        if number == GRAPH:
            for inner, _, first, last in fields(file, start, end):
                if inner == INITIALIZER:
                    yield TensorProto.FromString(file[first:last]), first, last


# %% id="l09-walkd"
for tensor, first, last in initializers(MODEL):
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    print(f"{tensor.name:15} message at {first:7,} to {last:7,}  {dtype} {tuple(tensor.dims)}")

# %% [markdown] id="l09-e2t"
# ### Exercise 2 · Find a weight
# Your function returns a **descriptor**: facts about the weight, and no byte of it. With a descriptor a runtime can plan everything before it reads the weight. VKML's notes say the same of its own design: model and tensor "act as descriptors".

# %% id="l09-e2" vklab={"role": "exercise", "id": "09-2", "points": 6, "lines": 14}
def locate_weight(folder, name):
    """Return (file, offset, length, dtype, shape) of an initializer.

    folder: path of a folder with model.onnx, and perhaps files for external data.
    TODO     raw_data: "model.onnx", the place of its first byte, its number of bytes.
             external_data: its entries "location", "offset" (0 if there is none), "length" (what
             the shape needs if there is none).
             Otherwise (a typed field, or nothing): "", 0, 0.
             dtype: text such as "float32"; shape: a tuple.
             LookupError: no initializer has this name. ValueError: the length is not what shape
             and dtype need, or the bytes do not all lie in a file of the folder itself.
    Approach `initializers` gives the tensor and its places. tensor.external_data is a list of
             entries with .key and .value, both texts. tensor.HasField("raw_data") tells.
    Example  for conv1.bias of MiniClassifier -> ("model.onnx", 4520, 128, "float32", (32,))
                                                                       (roughly 14 lines)
    """
    ### BEGIN SOLUTION
    file = Path(folder, "model.onnx").read_bytes()
    for tensor, start, end in initializers(file):
        if tensor.name == name:
            dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
            needed = math.prod(shape) * dtype.itemsize
            where, offset, length = "", 0, 0
            if tensor.external_data:
                entries = {entry.key: entry.value for entry in tensor.external_data}
                where, offset = entries["location"], int(entries.get("offset", 0))
                length = int(entries.get("length", needed))
            elif tensor.HasField("raw_data"):
                where = "model.onnx"
                offset, length = next((first, last - first) for number, _, first, last
                                      in fields(file, start, end) if number == RAW_DATA)
            if where and (Path(where).name != where or length != needed or offset < 0
                          or offset + length > Path(folder, where).stat().st_size):
                raise ValueError(f"{name}: {length} bytes at {offset} of {where}")
            return where, offset, length, str(dtype), shape
    raise LookupError(f"there is no initializer {name!r}")
    ### END SOLUTION


# %% id="l09-e2d" vklab={"role": "demo"}
HOME = tempfile.TemporaryDirectory()
shutil.copy(data("mini_classifier.onnx"), Path(HOME.name, "model.onnx"))
with attempt("09-2"):
    names = [tensor.name for tensor, *_ in initializers(MODEL)]
    places = [(name, *locate_weight(HOME.name, name)[1:3]) for name in names]
    display(figures.draw_places(len(MODEL), places, "The weights in MiniClassifier's file, as you "
            "found them: offset + length. Above: all in the file."))
    print("offsets that are no multiple of 4:", sum(offset % 4 > 0 for _, offset, _ in places))

# %% id="l09-e2c" vklab={"role": "check", "id": "09-2"}
check("09-2", locate_weight)

# %% id="l09-e2h"
# hint("09-2")

# %% [markdown] id="l09-zerot"
# ### Zero copy, seen
# A program can **map** a file: the file's bytes appear in its memory, and the operating system reads a page of the file when the program first touches it. An array whose bytes are such a mapping needed no copy. The next model has three weights: `large` (2 MiB, `raw_data`), `small` (one float, `raw_data`) and `typed` (one float, `float_data`). vklab loads the file twice. For which weights do both models use the same memory?

# %% id="l09-p2"
predict("09-p2", large=..., small=..., typed=...)

# %% id="l09-zero"
path = onnx_files.three_weights(HOME.name)
one, two = onnx_import.load_graph(path), onnx_import.load_graph(path)
for name in ("large", "small", "typed"):
    a, b = one.initializers[name].constant, two.initializers[name].constant
    print(f"{name}: same memory {np.shares_memory(a, b)}, aligned {a.flags.aligned}")
with attempt("09-2"), path.open("r+b") as file:
    file.seek(locate_weight(HOME.name, "large")[1])
    file.write(np.float32(-7).tobytes())
print("first element of large, after a write into the file:", one.initializers["large"].constant[0, 0])

# %% [markdown] id="l09-claims"
# The last line is the price: whoever changes a mapped file changes the model in use. vklab therefore maps large weights only, and says so in `load_graph`. *Aligned* means that the first byte is at a multiple of the element's size. In a file it is often not. NumPy can still read the array; a staging buffer copies its bytes to the device.
#
# [VKML](https://crates.io/crates/vkml) reads ONNX files with a library of its own, onnx-extractor. Three claims of its page (version 0.0.3), against what you saw:
#
# | the page says | what holds |
# |---|---|
# | onnx-extractor has "mmap and zero-copy tensor access" | True for `raw_data` and external data: both become slices of a mapping (its source, May 2026, commit 78cb63b). |
# | "Model loading is full zero-copy" | Not for typed fields: there the decoder fills a new list of numbers (same source), as it must. And the bytes are still copied to the device. |
# | "Model storage is sequential in memory" | In the file, yes: your picture has one weight after the other, with a few bytes of keys and names between them. The page does not say which memory it means. |
#
# A "streaming model loader via mmap" is on the roadmap of the same page: planned, not there.

# %% [markdown] id="l09-3t"
# ## 3 · An order that works
# A node reads values and makes values. In an **order that works** (a *topological order*), each node stands after the makers of all values that it reads. ONNX requires such an order in the file. Files break this rule, and passes that insert nodes do so, too (lab 10), so a runtime sorts.

# %% id="l09-3d" tags=["hide-input"]
TINY = [("a", "Conv", ("x",), ("p",)), ("b", "Relu", ("q",), ("r",)), ("c", "Add", ("p", "r"), ("q",)),
        ("d", "Relu", ("r",), ("s",))]
draw_network(TINY, alt="a makes p for c; c makes q for b; b makes r for c and for d.",
             caption="b reads q, which c makes; c reads r, which b makes. No order works.",
             colours={"b": "red", "c": "red"}, legend={"red": "the cycle"},
             notes={"a": ["a makes p"], "b": ["b: q to r"], "c": ["c: p, r to q"], "d": ["d: r to s"]})

# %% [markdown] id="l09-3r"
# Three faults make an order impossible: a value has **two makers**, a value has **no maker**, or nodes wait for each other in a **cycle**. Node `d` waits forever, too, but it is not part of the cycle. A good message names `b` and `c` only.
#
# Without faults there are usually many orders that work. A *rule for ties* picks one. vklab's own rule is: of the nodes that are ready, take the one that comes first in the file. Yours is another one.

# %% [markdown] id="l09-e3t" vklab={"id": "09-3"}
# ### Exercise 3 · Order the nodes, or name the fault
# Of the nodes that are ready, take a `[[first]]` if there is one. Among several, take the name that comes first in the alphabet, as Python compares texts.

# %% id="l09-e3" vklab={"role": "exercise", "id": "09-3", "points": 7, "lines": 20}
FIRST = "[[first]]"


def order_nodes(nodes, given):
    """Return ("order", names of nodes), or the first fault: ("twice" | "missing" | "cycle", names).

    nodes: a list of (name, operator, inputs, outputs), in any order; inputs and outputs are names
    of values, and "" stands for one that is left out. given: values that exist at the start.
    TODO     "twice": the values with two makers, or with one though they are given, sorted.
             "missing": the values that are read, not given, and made by no node, sorted.
             "cycle": the nodes of one cycle, each of them reads from the one before it, and the
             first one from the last.
             "order": ready nodes of operator FIRST come first, then the alphabet decides.
    Example  order_nodes([("b", "Relu", ("q",), ("r",)), ("a", "Relu", ("x",), ("q",))], ["x"])
             -> ("order", ["a", "b"]); with given=[] -> ("missing", ["x"])   (roughly 20 lines)
    """
    ### BEGIN SOLUTION
    maker, twice = {}, set()
    for node in nodes:
        for value in filter(None, node[3]):
            if value in maker or value in given:
                twice.add(value)
            maker[value] = node
    missing = {value for node in nodes for value in node[2]} - {*maker, *given, ""}
    if twice or missing:
        return ("twice", sorted(twice)) if twice else ("missing", sorted(missing))
    left, known, order = {node[0]: node for node in nodes}, {*given, ""}, []
    while ready := [node for node in left.values() if known.issuperset(node[2])]:
        name, _, _, outputs = min(ready, key=lambda node: (node[1] != FIRST, node[0]))
        del left[name]
        known.update(outputs)
        order.append(name)
    if not left:
        return "order", order
    path = [next(iter(left))]
    while path.count(path[-1]) == 1:
        waits = next(value for value in left[path[-1]][2] if value not in known)
        path.append(maker[waits][0])
    return "cycle", path[:path.index(path[-1]):-1]
    ### END SOLUTION


# %% id="l09-e3d" vklab={"role": "demo"}
with attempt("09-3"):
    digits, shapes = onnx_files.plain_graph(onnx.load(data("digits_cnn.onnx")))
    plain = [node[:4] for node in digits][::-1]
    kind, names = order_nodes(plain, list(shapes))
    display(draw_network(plain, alt="The digits network, numbered in your order.",
                         caption="The digits network, given backwards. Below each node: its place in your order.",
                         notes={name: [f"number {n}"] for n, name in enumerate(names)}))
    print(order_nodes(TINY, ["x"]))

# %% id="l09-e3c" vklab={"role": "check", "id": "09-3"}
check("09-3", order_nodes)

# %% id="l09-e3h"
# hint("09-3")

# %% [markdown] id="l09-swapt"
# Now the real runtime asks your function. It runs in a process of its own, with a time limit. `my_order` hands your function plain data; `verified_order` checks the answer before the runtime sees it. ResNet-50 is planned only, because its recorded graph has no weights.

# %% id="l09-swap" tags=["nbval-ignore-output"]
def my_order(nodes, known):
    """Answer vklab's question with your function."""
    given = {node.name: node for node in nodes}
    listed = [(node.name, node.op_type, node.reads, node.outputs) for node in given.values()]
    known = list(known)
    return onnx_files.verified_order(order_nodes(listed, known), given, set(known))


with attempt("09-3"):
    rows, problem = run_swapped("vklab.graph.onnx_import.topological_order", my_order,
                                planned=("resnet50", "inception_v1"))
    print(*rows, problem, sep="\n")
show("vklab.graph.graph.topological_order")

# %% [markdown] id="l09-swapr"
# Read the source: which of the three faults does it name as exactly as you do? onnx-extractor has a `topological_order`, too. Its comment promises an error for cycles and for "unresolved dependencies". In its source (commit 78cb63b) a value without a maker counts as given, and of two makers the last one stays. A comment is a claim like any other.

# %% [markdown] id="l09-4t"
# ## 4 · Shapes with an N
# The file gives shapes of inputs and weights. All other shapes follow, node by node. MiniClassifier in `data/` takes one image. The next cell exports it with an open batch: `dynamic_shapes` says that axis 0 of the input is a size without a number, called `N`. This is a **symbolic dimension**. (The older exporter calls the option `dynamic_axes`. Without PyTorch, the cell edits the file for one image.)

# %% id="l09-export" tags=["nbval-ignore-output"]
try:
    import torch
    from vklab.bench import mini_classifier

    with mini_classifier.quiet():
        batch = {0: torch.export.Dim("N")}
        exported = torch.onnx.export(
            mini_classifier.build_module(), (torch.zeros(2, 3, 32, 32),), dynamo=True,
            dynamic_shapes=(batch,), input_names=["image"], output_names=["logits"],
            opset_version=18, verbose=False).model_proto
except ImportError as missing:
    print(missing, "- so the file for one image is edited")
    exported = onnx_files.open_batch(data("mini_classifier.onnx"))
onnx.checker.check_model(exported)
nodes, shapes = onnx_files.plain_graph(exported)
print("image", shapes["image"], *(f"{node[1]} {node[4].get('target', '')}" for node in nodes), sep="\n")

# %% [markdown] id="l09-4r"
# A size is now a number, or text: `"N"`, or a multiple such as `"128*N"`. A shape must be right for *every* N from 1 on. So `N` and 4 are different sizes, though one batch has four images. `elements(shape)` counts: it returns `(factor, power)` for factor × N to that power. `dims.dim(factor, power)` makes a size of such a pair.

# %% id="l09-4e"
print(elements(["N", 64, 4, 4]), elements([32, 10]), dims.dim(128, 1), dims.dim(1, 1), dims.dim(7, 0))

# %% [markdown] id="l09-4add"
# **Add** and its relatives *broadcast*: arrays of different shapes are stretched until they fit.

# %% id="l09-4addd" tags=["hide-input"]
figures.draw_broadcast()

# %% [markdown] id="l09-4pool"
# **MaxPool** moves a window over rows and columns. `pads` first adds rows and columns at the edges: `[top, left, bottom, right]`. A row of 7, padded to 8, has room for a window of 3 at 0, 2 and 4 with strides of 2: three results. A Conv moves its filters in the same way.
#
# **Reshape** keeps the elements and their order. Its *target* may hold two signs: `0` copies the input's size at the same place, `-1` (at most once) is what the other sizes leave. With the attribute `allowzero=1`, which PyTorch's exporter writes, 0 is simply a size.

# %% id="l09-4reshape" tags=["hide-input"]
figures.draw_reshape()

# %% [markdown] id="l09-e4t"
# ### Exercise 4 · Three shape rules

# %% id="l09-e4" vklab={"role": "exercise", "id": "09-4", "points": 7, "lines": 20}
def shape_of(op, shapes, attributes):
    """Return the shape of a node's output, a list of sizes.

    shapes: the shapes of its inputs. A size is a number, "N" or a multiple such as "128*N"; only
    numbers can have to do with windows. attributes: a dictionary, see below.
    TODO     "Add" (two shapes, broadcast): sizes of one column are equal, or one of them is 1.
             "MaxPool": input [N, channels, height, width]; attributes kernel_shape [high, wide],
             strides [down, right], pads [top, left, bottom, right]. A window never leaves the
             padded input.
             "Reshape": attributes target (a list) and allowzero (0 or 1).
             ValueError: no shape is right for every N, or more than one is; or the target is not
             allowed. LookupError: another operator.
    Example  shape_of("Add", [["N", 1], [4]], {}) -> ["N", 4]
             shape_of("Reshape", [["N", 128, 64]], {"target": [-1, 64], "allowzero": 0})
             -> ["128*N", 64]                                           (roughly 20 lines)
    """
    ### BEGIN SOLUTION
    first = shapes[0]
    if op == "Add":
        rank = max(len(shape) for shape in shapes)
        one, other = ([1] * (rank - len(shape)) + list(shape) for shape in shapes)
        if any(a != b and 1 not in (a, b) for a, b in zip(one, other, strict=True)):
            raise ValueError(f"{one} and {other} do not broadcast")
        return [b if a == 1 else a for a, b in zip(one, other, strict=True)]
    if op == "MaxPool":
        kernel, strides, pads = (attributes[key] for key in ("kernel_shape", "strides", "pads"))
        free = [first[2 + n] + pads[n] + pads[2 + n] - kernel[n] for n in range(2)]
        if min(free) < 0:
            raise ValueError(f"a window {kernel} does not fit")
        return [*first[:2], *(free[n] // strides[n] + 1 for n in range(2))]
    if op != "Reshape":
        raise LookupError(f"no rule for {op}")
    target = list(attributes["target"])
    for n, size in enumerate(target):
        if size == 0 and not attributes["allowzero"]:
            if n >= len(first):
                raise ValueError(f"0 at place {n}, behind the input's last size")
            target[n] = first[n]
    rest = [size for size in target if size != -1]
    if len(target) > len(rest) + 1 or any(type(n) is int and n < 0 for n in rest):
        raise ValueError(f"the target {target} is not allowed")
    (factor, power), (known, less) = elements(first), elements(rest)
    if -1 in target:
        if known == 0 or factor % known:
            raise ValueError(f"{known} does not divide {factor}")
        target[target.index(-1)] = dims.dim(factor // known, power - less)
    elif factor != known or (factor and power != less):
        raise ValueError(f"{target} has other elements than {first}")
    return target
    ### END SOLUTION


# %% id="l09-e4d" vklab={"role": "demo"}
with attempt("09-4"):
    inferred, problem = dims.infer_graph(nodes, shapes, dims.complete(shape_of))
    display(draw_network(
        [node[:4] for node in nodes], alt="MiniClassifier from image to logits, with shapes.",
        caption="MiniClassifier with an open batch: the shape of each output, by your rules.",
        notes={node[0]: [dims.text(inferred.get(node[3][0], ["?"]))] for node in nodes}))
    print(problem or "every value has a shape; logits: " + dims.text(inferred["logits"]))

# %% id="l09-e4c" vklab={"role": "check", "id": "09-4"}
check("09-4", shape_of)

# %% id="l09-e4h"
# hint("09-4")

# %% [markdown] id="l09-e4r"
# `complete` builds the rules of Conv, AveragePool, MatMul, Gemm, Concat and Transpose around your three. vklab itself computes no shape with an N: it waits for the first run, takes the real sizes, and asks each operator. Lab 09b shows what a plan does when even that is not enough.

# %% id="l09-rules" tags=["nbval-ignore-output"]
show(dims.complete)

# %% [markdown] id="l09-5t"
# ## 5 · What would break this?
# ONNX has a checker, `onnx.checker.check_model(model)`. With `full_check=True` it also infers shapes. Which of these models does it accept *without* `full_check`?

# %% id="l09-p3"
predict("09-p3", unknown_operator=..., cycle=..., MatMul_2x4_by_5x3=..., Reshape_12_into_10=...)

# %% id="l09-checker" tags=["nbval-ignore-output"]
def verdict(model, **options):
    """Return what the checker says, in one word."""
    try:
        onnx.checker.check_model(model, **options)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return "refused"
    return "accepted"


for words, model in onnx_files.faults().items():
    print(f"{words:25} {verdict(model):9} full_check: {verdict(model, full_check=True)}")

# %% [markdown] id="l09-openr"
# The last two faults pass both times. Every node of these files has a maker before it, and the shapes still do not fit: **a valid order with invalid shapes**. vklab refuses all eight: some when it loads the file, some when it knows the sizes.
#
# ### A promise in the file
# MiniClassifier takes images of any size in PyTorch, because `AdaptiveAvgPool2d(4)` always leaves 4 × 4 fields. Exported from an image of 32 × 32, that became an AveragePool with a window of 8 × 8. The next cell declares height and width open in such a file. ONNX's full check accepts it. How many rows of logits come out for *one* image of 64 × 64?

# %% id="l09-p4"
predict("09-p4", rows=...)

# %% id="l09-open" tags=["nbval-ignore-output"]
promised = onnx_files.open_image(data("mini_classifier.onnx"))
print("full check:", verdict(promised, full_check=True))
with vklab.load(promised) as session:
    for size in (32, 64):
        logits = session.run({"image": np.zeros((1, 3, size, size), np.float32)})["logits"]
        print(f"one image of {size} x {size} gives logits of shape {logits.shape}")

# %% [markdown] id="l09-e5t" vklab={"id": "09-5"}
# We made this file by hand. PyTorch 2.13 does nearly the same when you name all three axes in `dynamic_shapes`: it declares `[N, 3, H, W]`, warns nobody, and writes the window 8 × 8. (Its Reshape is computed from H and W, so that 64 × 64 ends in an error of the Gemm.)
#
# ### Exercise 5 · Which node is the first?
# Four models. Each begins with `x` of shape `[N, 3, 32, 32]` and declares an output of shape `[N, 10]`. All strides that are not given are 1, all pads not given are 0, `allowzero` is 0, and no pool has pads. Every file passes the checker without `full_check`.
#
# | model | first | second | third | fourth |
# |---|---|---|---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
#
# Choose for each: `right`; `Conv`, `MaxPool`, `Reshape` or `Gemm` for the first node that has no shape for every N; `output` if every node has a shape, and the output is not `[N, 10]`. The points are for all rows together.

# %% id="l09-e5" vklab={"role": "exercise", "id": "09-5", "points": 3, "lines": 1}
first_wrong = ...  # {"A": "right", "B": ...}
### BEGIN SOLUTION
first_wrong = [[right]]
### END SOLUTION

# %% id="l09-e5c" vklab={"role": "check", "id": "09-5"}
check("09-5", first_wrong)

# %% id="l09-e5h"
# hint("09-5")

# %% [markdown] id="l09-recap"
# ## Recap
# | word | what it is | mistake to avoid |
# |---|---|---|
# | field, varint | a key and a value; a number in seven-bit groups | reading a length before its key says that there is one |
# | initializer | a weight: raw, external or typed | trusting a length that the shape does not confirm |
# | mapping | bytes of a file that appear in memory | changing a file that is in use |
# | topological order | each node after the makers of what it reads | calling every node behind a cycle a part of it |
# | symbolic dimension | a size such as N that holds for every batch | one number of the example, kept in a Reshape or a window |
# | checker | rules for names and nodes | "the checker accepts it" as a proof of its shapes |
#
# **Next**: lab 09b makes a plan of such a graph, for shapes that depend on the data, and looks for an order that needs little memory. Lab 10 rewrites the graph.
#
# **References**
# * Protocol Buffers, [Encoding](https://protobuf.dev/programming-guides/encoding/): varints, wire types.
# * ONNX, [IR specification](https://github.com/onnx/onnx/blob/main/docs/IR.md), [external data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md), [Reshape](https://onnx.ai/onnx/operators/onnx__Reshape.html) and [broadcasting](https://github.com/onnx/onnx/blob/main/docs/Broadcasting.md).
# * PyTorch, [torch.onnx](https://docs.pytorch.org/docs/stable/onnx.html): `dynamic_shapes`.
# * A. B. Kahn, "Topological sorting of large networks", 1962: the order of exercise 3.
# * [onnx-extractor](https://github.com/void-research/onnx-extractor), the parser of VKML.
