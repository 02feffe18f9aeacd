# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "ONNX graphs: what is in the file", minutes: 100}
# ---

# %% [markdown] id="l09-title"
# # Lab 09 · ONNX graphs: what is in the file
# **From bytes to a graph whose shapes fit** · 100 minutes, 5 exercises
#
# PyTorch writes a model into one file. A runtime reads the file, orders its nodes, and finds a shape for every value. In this lab you do all three.
#
# **Afterwards you can**
# * read the bytes of an ONNX file without a library;
# * say where a weight lies, and which weights need no copy;
# * order the nodes of a graph, or name what makes that impossible;
# * carry shapes through a graph for a batch size that is not known yet;
# * export a PyTorch model with an open batch, and say what the checker cannot see.
#
# **Before this lab**: lab 00. You need dictionaries, sets, `divmod`, and how to raise an exception. All new words are in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/graph/onnx_file.py`, `vklab/graph/graph.py`, `vklab/course/labs/dims.py`.

# %% id="l09-setup"
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from IPython.display import display
from onnx import helper

import vklab
from vklab.course import attempt, banner, check, data, hint, predict, show
from vklab.course.figures import onnx_bytes as figures
from vklab.course.figures.networks import draw_network
from vklab.course.labs import dims, node_order, onnx_files, swapped
from vklab.graph import onnx_import
from vklab.graph.onnx_file import RAW_DATA, fields

# %% id="l09-banner"
banner()

# %% id="l09-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l09-1t"
# ## 1 · The file, byte by byte
# An ONNX file is one **message** of Protocol Buffers (short: protobuf): a row of **fields**, each with a *key* and a *value*. The key is `8 * field number + wire type`. The **wire type** says how long the value is; the field number says what it means. MiniClassifier's file begins like this:

# %% id="l09-1d" tags=["hide-input"]
MODEL = data("mini_classifier.onnx").read_bytes()
figures.draw_fields(MODEL, {1: "ir_version", 2: "producer_name", 3: "producer_version", 7: "graph"})

# %% [markdown] id="l09-1r"
# | wire type | the value | in ONNX |
# |---|---|---|
# | 0 | a **varint**: a number in one to ten bytes | sizes, versions, integers |
# | 1 | 8 bytes | (rare) |
# | 2 | a length, as a varint, and that many bytes | texts, weights, messages inside of messages |
# | 5 | 4 bytes | a float32 |
#
# In the last row, `3a` is 58 = 8 × 7 + 2: field 7 of wire type 2. The bytes do not say that field 7 is the graph. The **schema** [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) does: it names the fields of each kind of message. Keys and lengths are varints, too:

# %% id="l09-1v" tags=["hide-input"]
figures.draw_varint(300)

# %% [markdown] id="l09-1p"
# How many bytes does the varint of 127 have, of 128, and of -1? A negative integer is first written as a 64-bit number in two's complement: -1 is 64 ones.

# %% id="l09-p1"
predict("09-p1", of_127=..., of_128=..., of_minus_1=...)

# %% [markdown] id="l09-e1t"
# ### Exercise 1 · Read the fields of a message

# %% id="l09-e1" vklab={"role": "exercise", "id": "09-1", "points": 4, "lines": 17}
def read_fields(message):
    """Return the fields of a message as a list of (field number, wire type, value), in order.

    message: bytes.
    TODO     value: a number for wire type 0, at least 0 (so a stored -1 is 2**64 - 1);
             for the others bytes, without their length.
             Raise an exception (ValueError, say) if the message ends inside a field, if a field
             number is 0, or if a wire type is not 0, 1, 2 or 5.
    Approach a helper number(place) that returns a varint and the place behind it. Too few bytes:
             message[place] raises an IndexError by itself; a slice is only shorter.
    Example  read_fields(bytes([0x08, 0xac, 0x02, 0x12, 2]) + b"hi")
             -> [(1, 0, 300), (2, 2, b"hi")]                           (roughly 17 lines)
    """
    ### BEGIN SOLUTION
    def number(place):
        value, factor = message[place] % 128, 1
        while message[place] > 127:
            place, factor = place + 1, factor * 128
            value += message[place] % 128 * factor
        return value, place + 1

    found, place = [], 0
    while place < len(message):
        key, place = number(place)
        field, kind = divmod(key, 8)
        value, place = number(place) if kind in (0, 2) else ({1: 8, 5: 4}[kind], place)
        if kind != 0:
            place, value = place + value, message[place : place + value]
        if field == 0 or place > len(message):
            raise ValueError(f"field {field} ends at {place} of {len(message)}")
        found.append((field, kind, value))
    return found
    ### END SOLUTION


# %% id="l09-e1d" vklab={"role": "demo"}
with attempt("09-1"):  # down to the graph (field 7), its first node (1), its operator (4)
    message = MODEL
    for what, wanted in (("model", 7), ("graph", 1), ("node", 4)):
        found = {number: value for number, _, value in reversed(read_fields(message))}
        print(f"{what}: {len(message):,} bytes with the fields {sorted(found)}")
        message = found[wanted]
    print("the first operator is", message.decode())

# %% id="l09-e1c" vklab={"role": "check", "id": "09-1"}
check("09-1", read_fields)

# %% id="l09-e1h"
# hint("09-1")

# %% [markdown] id="l09-2t"
# ## 2 · Where a weight lies
# A weight of a model is an **initializer**: a tensor with a name and stored elements. ONNX has three ways to store them:

# %% id="l09-2d" tags=["hide-input"]
figures.draw_storage()

# %% [markdown] id="l09-2r"
# * `raw_data` holds the array as most machines hold it in memory: row by row, the lowest byte of each number first (*little-endian*).
# * `external_data` names another file, by its path from the model's folder. Large models need it: a protobuf message is smaller than 2 GiB.
# * **Typed fields**, such as `int64_data` and `float_data`, hold the numbers one by one: each `int64` is a varint there.
#
# The runtime's own function gives places, and copies nothing. `fields(file, start, end)` yields `(field number, place of the key, first byte of the value, byte after the value)` for each field between two places. `find_initializer` uses it, and returns a `TensorProto`, protobuf's object for one tensor, with two places:

# %% id="l09-walkd"
show(onnx_files.find_initializer)

# %% [markdown] id="l09-e2t"
# ### Exercise 2 · Find a weight
# Your function returns a **descriptor**: facts about the weight, and none of its bytes. With it, a runtime can plan before it reads a weight. VKML's models and tensors, too, "act as descriptors" (its page).

# %% id="l09-e2" vklab={"role": "exercise", "id": "09-2", "points": 6, "lines": 18}
def locate_weight(folder, name):
    """Return (file, offset, length, dtype, shape) of an initializer.

    folder: path of a folder with model.onnx, and perhaps files for external data.
    TODO     raw_data: "model.onnx", the place of its first byte, its number of bytes.
             external_data: its entries "location", "offset" (0 if there is none), "length" (what
             the shape needs if there is none).
             Otherwise (a typed field, or nothing): "", 0, 0.
             dtype: text such as "float32"; shape: a tuple.
             LookupError: no initializer has this name. ValueError: the length is not what shape
             and dtype need; or the location is an absolute path, or has a part ".." ("sub/w.bin"
             is allowed); or no such file is there, or it does not hold all these bytes.
    Approach onnx_files.find_initializer finds the tensor; str(helper.tensor_dtype_to_np_dtype(
             tensor.data_type)) is its dtype, tensor.dims its sizes. tensor.external_data is a
             list of entries with .key and .value, both texts; tensor.HasField("raw_data") is True
             or False. Its place: walk the tensor's message with `fields`; RAW_DATA is its number.
    Example  for conv1.bias of MiniClassifier -> ("model.onnx", 4525, 128, "float32", (32,))
                                                                       (roughly 18 lines)
    """
    ### BEGIN SOLUTION
    file = Path(folder, "model.onnx").read_bytes()
    tensor, start, end = onnx_files.find_initializer(file, name)
    dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    needed = int(np.prod(shape)) * dtype.itemsize
    where, offset, length = "", 0, 0
    if tensor.external_data:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        where, offset = entries["location"], int(entries.get("offset", 0))
        length = int(entries.get("length", needed))
    elif tensor.HasField("raw_data"):
        where, (offset, length) = "model.onnx", next(
            (first, last - first) for number, _, first, last in fields(file, start, end)
            if number == RAW_DATA)
    path, parts = Path(folder, where), Path(where).parts
    if where and (Path(where).is_absolute() or ".." in parts or not path.is_file()
                  or length != needed or offset < 0 or offset + length > path.stat().st_size):
        raise ValueError(f"{name}: {length} bytes at {offset} of {where}")
    return where, offset, length, str(dtype), shape
    ### END SOLUTION


# %% id="l09-e2d" vklab={"role": "demo"}
HOME = onnx_files.in_folder(data("mini_classifier.onnx"))
with attempt("09-2"):
    names = [tensor.name for tensor in onnx.load_from_string(MODEL).graph.initializer]
    places = [(name, *locate_weight(HOME.name, name)[1:3]) for name in names]
    display(figures.draw_places(len(MODEL), places))

# %% id="l09-e2c" vklab={"role": "check", "id": "09-2"}
check("09-2", locate_weight)

# %% id="l09-e2h"
# hint("09-2")

# %% [markdown] id="l09-zerot"
# ### Zero copy, seen
# A program can **map** a file: its bytes appear in memory, and the operating system reads a page when it is first touched. An array on such bytes needs no copy. The next model has three weights: `large` (2 MiB, `raw_data`), `small` (one float, `raw_data`) and `typed` (one float, `float_data`). vklab loads the file twice. Do both models use the same memory for a weight: True or False?

# %% id="l09-p2"
predict("09-p2", large=..., small=..., typed=...)

# %% id="l09-zero"
path = onnx_files.three_weights(HOME.name)
one, two = (onnx_import.load_graph(path).initializers for _ in range(2))
for name in one:
    a, b = one[name].constant, two[name].constant
    print(f"{name}: same memory {np.shares_memory(a, b)}, aligned {a.flags.aligned}")
with attempt("09-2"), path.open("r+b") as file:
    file.seek(locate_weight(HOME.name, "large")[1])
    file.write(np.float32(-7).tobytes())
    file.flush()
    print("first element of large, after a write into the file:", one["large"].constant[0, 0])

# %% [markdown] id="l09-claims"
# The last line is the price: whoever changes a mapped file changes the model in use. (*Aligned*: the first byte is at a multiple of the element's size. In a file it often is not.)
#
# [VKML](https://crates.io/crates/vkml) reads files with its own library, onnx-extractor. Its page (version 0.0.3), and the library's source (commit 78cb63b, May 2026):
#
# | the page says | what holds |
# |---|---|
# | onnx-extractor has "mmap and zero-copy tensor access" | True for `raw_data` and external data, which become slices of a mapping. |
# | "Model loading is full zero-copy" | Not for typed fields, which are decoded into a new list; nor for a GPU with memory of its own. |
# | "Model storage is sequential in memory" | In a file, yes: see your picture. The page does not say which memory it means. |
# | roadmap: "streaming model loader via mmap" | Planned. |

# %% [markdown] id="l09-3t"
# ## 3 · An order that works
# In an **order that works** (a *topological order*), each node stands after the nodes that make the values it reads. ONNX requires such an order in the file. A file, or a program that inserts nodes, may break this rule. So a runtime sorts.

# %% id="l09-3d" tags=["hide-input"]
figures.draw_cycle()

# %% [markdown] id="l09-3r"
# Every value needs exactly one maker: a node, or the caller who gives it. Nodes may also wait for each other in a **cycle**. Node `d` waits forever, too, but is not in the cycle: a good message names `b` and `c` only.
#
# A node is *ready* when every value that it reads exists. Often several nodes are ready, and a *rule for ties* picks one. vklab takes the first one in the file. Your rule is another one.

# %% [markdown] id="l09-e3t" vklab={"id": "09-3"}
# ### Exercise 3 · Order the nodes, or name the fault
# Of the nodes that are ready, take a `[[first]]` if there is one. Among several, take the name that comes first in the alphabet, as Python compares texts.

# %% id="l09-e3" vklab={"role": "exercise", "id": "09-3", "points": 7, "lines": 17}
FIRST = "[[first]]"


def order_nodes(nodes, given):
    """Return ("order", names of nodes), or a fault: ("values", names) or ("cycle", names).

    nodes: a list of (name, operator, inputs, outputs), in any order, no name twice; inputs and
    outputs are names of values, "" for one left out. given: values that the caller gives.
    TODO     "values": the values that a node reads or makes, or that are given, and that have not
             exactly one maker, sorted. If there are any, they are the answer.
             "cycle": the nodes of one cycle. Each reads a value that the node before it in the
             list makes, and the first one reads from the last.
             "order": of the ready nodes, those of operator FIRST first, then the alphabet.
    Approach count makers; then keep a set of values that exist, and take one ready node after the
             other. If nodes are left over, go back from one of them, from maker to maker.
    Example  order_nodes([("b", "Relu", ("q",), ("r",)), ("a", "Relu", ("x",), ("q",))], ["x"])
             -> ("order", ["a", "b"]); with given=[] -> ("values", ["x"])   (roughly 17 lines)
    """
    ### BEGIN SOLUTION
    makers = Counter([*given, *(value for node in nodes for value in node[3])])
    used = {*makers, *(value for node in nodes for value in node[2])} - {""}
    if wrong := sorted(value for value in used if makers[value] != 1):
        return "values", wrong
    left, known, order = {node[0]: node for node in nodes}, {*given, ""}, []
    while ready := [node for node in left.values() if known.issuperset(node[2])]:
        name, _, _, outputs = min(ready, key=lambda node: (node[1] != FIRST, node[0]))
        del left[name]
        known.update(outputs)
        order.append(name)
    if not left:
        return "order", order
    maker = {value: name for name, node in left.items() for value in node[3]}
    path = [next(iter(left))]
    while path.count(path[-1]) == 1:
        path.append(next(maker[value] for value in left[path[-1]][2] if value not in known))
    return "cycle", path[:path.index(path[-1]):-1]
    ### END SOLUTION


# %% id="l09-e3d" vklab={"role": "demo"}
with attempt("09-3"):
    digits, known = onnx_files.plain_graph(onnx.load(data("digits_cnn.onnx")))
    _, names = order_nodes(backwards := [node[:4] for node in digits][::-1], list(known))
    display(draw_network(backwards, alt="The digits network, numbered in your order.",
                         caption="The digits network, given backwards, numbered in your order. "
                         "To and from name the neighbour in the other row.",
                         notes={name: [f"number {n}"] for n, name in enumerate(names)}))
    print("the graph with the cycle:", order_nodes(node_order.TINY, ["x"]))

# %% id="l09-e3c" vklab={"role": "check", "id": "09-3"}
check("09-3", order_nodes)

# %% id="l09-e3h"
# hint("09-3")

# %% [markdown] id="l09-swapt"
# Now the real runtime asks your function; `node_order.asking` verifies each answer first. ResNet-50 is planned only, because its recorded graph has no weights. `->` stands between the runtime's number and yours.

# %% id="l09-swap" tags=["nbval-ignore-output"]
with attempt("09-3"):
    rows, problem = swapped.run_swapped("vklab.graph.onnx_import.topological_order",
                                        node_order.asking(order_nodes))
    print(*rows, problem, sep="\n")
show("vklab.graph.graph.topological_order", at="ready: list[int]", lines=8)

# %% [markdown] id="l09-swapr"
# The results are the same. The plans need not be: another order may need more memory, or other barriers. The listing is vklab's rule for ties: `heappop` takes the smallest place in the file. Of a cycle, vklab names one node only.
#
# In onnx-extractor's `topological_order` (same commit), a value without a maker counts as given, and nothing looks for two makers.

# %% [markdown] id="l09-4t"
# ## 4 · Shapes with an N
# The file gives the shapes of inputs and weights. All others follow. The next cell exports MiniClassifier with an open batch: `dynamic_shapes` makes axis 0 of the input a size without a number, `N`: a **symbolic dimension**. (In the older exporter: `dynamic_axes`.)

# %% id="l09-export" tags=["nbval-ignore-output"]
try:
    import torch

    from vklab.bench import mini_classifier

    with mini_classifier.quiet():
        exported = torch.onnx.export(
            mini_classifier.build_module(), (torch.zeros(2, 3, 32, 32),), dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("N")},), input_names=["image"],
            output_names=["logits"], opset_version=18, verbose=False).model_proto
except ImportError as missing:
    print(missing, "- so the file for one image is edited")
    exported = onnx_files.open_batch(data("mini_classifier.onnx"))
nodes, shapes = onnx_files.plain_graph(exported)
print(shapes["image"], *(f"{node[1]} {node[4].get('target', '')}" for node in nodes), sep="\n")

# %% [markdown] id="l09-4r"
# A size is now a number, or text: `"N"`, or a multiple such as `"128*N"`. A shape must be right for *every* N from 1 on, so `N` and 4 are different sizes. `dims.elements(["N", 64, 4, 4])` counts the elements: `(1024, 1)` means 1024 × N to the power of 1. `dims.dim(1024, 1)` turns such a pair into a size, `"1024*N"`.
#
# **Add** and its relatives *broadcast*: they stretch arrays until their shapes fit.

# %% id="l09-4addd" tags=["hide-input"]
figures.draw_broadcast()

# %% [markdown] id="l09-4text"
# **Reshape** keeps the elements and their order. Its *target* may hold two signs: `0` copies the input's size at the same place, `-1` (at most once) is what the other sizes leave. With the attribute `allowzero=1`, which PyTorch's exporter writes, 0 is simply a size.

# %% id="l09-4reshape" tags=["hide-input"]
figures.draw_reshape()

# %% [markdown] id="l09-e4t"
# ### Exercise 4 · Two shape rules

# %% id="l09-e4" vklab={"role": "exercise", "id": "09-4", "points": 6, "lines": 25}
def shape_of(op, shapes, attributes):
    """Return the shape of a node's output, a list of sizes.

    shapes: the shapes of its inputs. A size is a number, "N" or a multiple such as "128*N".
    TODO     "Add" (two shapes, broadcast): sizes of one column are equal, or one of them is 1.
             "Reshape" (one shape): attributes has target (a list) and allowzero (0 or 1).
             ValueError: no shape is right for every N, or more than one is (-1 beside a size 0);
             or the target is not allowed: two -1, a number below -1, or a 0 that copies where
             the input has no size. LookupError: another operator.
    Example  shape_of("Add", [["N", 1], [4]], {}) -> ["N", 4]
             shape_of("Reshape", [["N", 128, 64]], {"target": [-1, 64], "allowzero": 0})
             -> ["128*N", 64]                                           (roughly 25 lines)
    """
    ### BEGIN SOLUTION
    if op == "Add":
        rank = max(len(shape) for shape in shapes)
        rows, result = [[1] * (rank - len(shape)) + list(shape) for shape in shapes], []
        for n in range(rank):
            sizes = {row[n] for row in rows} - {1}
            if len(sizes) > 1:
                raise ValueError(f"column {n} has the sizes {sizes}")
            result.append(sizes.pop() if sizes else 1)
        return result
    if op != "Reshape":
        raise LookupError(f"no rule for {op}")
    (first,), target = shapes, list(attributes["target"])
    if 0 in target[len(first):] and not attributes["allowzero"]:
        raise ValueError("a 0 behind the input's last size")
    if not attributes["allowzero"]:
        target = [first[n] if size == 0 else size for n, size in enumerate(target)]
    rest = [size for size in target if size != -1]
    if len(target) > len(rest) + 1 or any(type(n) is int and n < -1 for n in target):
        raise ValueError(f"the target {target} is not allowed")
    (factor, power), (known, less) = dims.elements(first), dims.elements(rest)
    if -1 not in target and (factor != known or (factor and power != less)):
        raise ValueError(f"{target} has other elements than {first}")
    if -1 in target and (known == 0 or factor % known):
        raise ValueError(f"{known} does not divide {factor}")
    return [dims.dim(factor // known, power - less) if size == -1 else size for size in target]
    ### END SOLUTION


# %% id="l09-e4d" vklab={"role": "demo"}
with attempt("09-4"):
    inferred, problem = dims.infer_graph(nodes, shapes, dims.complete(shape_of))
    display(draw_network(
        [node[:4] for node in nodes], alt="MiniClassifier from image to logits, with shapes.",
        caption="MiniClassifier with an open batch: the shape of each output, by your rules.",
        notes={node[0]: [dims.text(inferred.get(node[3][0], ["?"]))] for node in nodes}))
    print(problem or "every value has a shape")

# %% id="l09-e4c" vklab={"role": "check", "id": "09-4"}
check("09-4", shape_of)

# %% id="l09-e4h"
# hint("09-4")

# %% [markdown] id="l09-e4r"
# `dims.complete` adds the rules of other operators. **Gemm** multiplies rows by a matrix: `[N, 1024]` by `[1024, 128]` is `[N, 128]`. **MaxPool** moves a window over rows and columns; Conv moves filters in the same way, and each filter makes one channel. `pads` first adds rows and columns at the edges: `[top, left, bottom, right]`. A row of 7, padded to 8, has room for a window of 3 at 0, 2 and 4 with strides of 2: three results.
#
# vklab itself computes no shape with an N: it waits for the sizes of the first run.

# %% id="l09-rules" tags=["nbval-ignore-output"]
show(dims._windows)

# %% [markdown] id="l09-5t"
# ## 5 · What would break this?
# ONNX has a checker, `onnx.checker.check_model(model)`. With `full_check=True` it also infers shapes. Does it accept these models *without* `full_check`: True or False?

# %% id="l09-p3"
predict("09-p3", unknown_operator=..., cycle=..., MatMul_2x4_by_5x3=..., Reshape_12_into_10=...)

# %% id="l09-checker" tags=["nbval-ignore-output"]
for words, model in onnx_files.faults().items():
    print(f"{words:25}", *(onnx_files.verdict(model, full_check=full) for full in (False, True)))

# %% [markdown] id="l09-openr"
# On the left without `full_check`, on the right with it. The last two faults pass both times: **a valid order with invalid shapes**. (vklab sorts the third model and refuses the other seven.)
#
# ### A promise in the file
# In PyTorch, MiniClassifier takes images of any size, because `AdaptiveAvgPool2d(4)` always leaves 4 × 4 numbers of each channel. Exported from images of 32 × 32, this became an AveragePool with a window of 8 × 8. The next cell declares height and width open in that file. ONNX's full check accepts it. How many rows of logits come out for *one* image of 64 × 64?

# %% id="l09-p4"
predict("09-p4", rows=...)

# %% id="l09-open" tags=["nbval-ignore-output"]
promised = onnx_files.open_image(data("mini_classifier.onnx"))
print("full check:", onnx_files.verdict(promised, full_check=True))
with vklab.load(promised) as session:
    for size in (32, 64):
        image = np.zeros((1, 3, size, size), np.float32)
        print(size, session.run({"image": image})["logits"].shape)

# %% [markdown] id="l09-e5t" vklab={"id": "09-5"}
# We edited this file by hand. PyTorch 2.13 makes half of the mistake: if `dynamic_shapes` names all three axes, it declares `[N, 3, H, W]`, and still writes the window 8 × 8.
#
# ### Exercise 5 · Which node is the first?
# Each of four models takes `[N, 3, 32, 32]` and declares an output `[N, 10]`. Pads are the same on all four sides; Conv has strides of 1, MaxPool no pads, Reshape `allowzero=0`. The checker accepts every file.
#
# | model | Conv | MaxPool | Reshape | Gemm |
# |---|---|---|---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
#
# Follow the shape from node to node, with N. Answer for each model:
# * `Conv`, `MaxPool`, `Reshape` or `Gemm`: the first node without a shape that is right for every N;
# * `output`: every node has a shape, but the output is not `[N, 10]`;
# * `right`: the output is `[N, 10]`.
#
# All rows together earn the points.

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
# | initializer | a weight: raw, external or typed | trusting its length |
# | topological order | each node after the makers of what it reads | blaming all nodes behind a cycle |
# | symbolic dimension | a size such as N, for every batch | a number of the example, kept in a Reshape or a window |
# | checker | rules for names and nodes | taking "accepted" for a proof of shapes |
#
# **Next**: [lab 09b](09b_plans.ipynb) plans such a graph, and looks for an order that needs little memory.
#
# **References**
# * Protocol Buffers, [Encoding](https://protobuf.dev/programming-guides/encoding/); ONNX, [external data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md), [Reshape](https://onnx.ai/onnx/operators/onnx__Reshape.html).
# * PyTorch, [torch.onnx](https://docs.pytorch.org/docs/stable/onnx.html); [onnx-extractor](https://github.com/void-research/onnx-extractor).
