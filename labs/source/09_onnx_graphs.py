# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "ONNX graphs: what is in the file"
#     minutes: 90
#     before: ["00"]
#     know: ["dictionaries", "sets", "`divmod`", "exceptions"]
# ---

# %% [markdown] id="l09-title"
# # Lab 09 · ONNX graphs: what is in the file
# **From bytes to a graph whose shapes fit** · 90 minutes, 5 exercises, the last one extra
#
# PyTorch writes a model into one file. A runtime reads it, orders its nodes, and finds a shape for every value.
#
# **Afterwards you can**
# * read the bytes of an ONNX file, and say where a weight lies;
# * order the nodes of a graph, or name what makes that impossible;
# * carry shapes through a graph whose batch size is open;
# * export such a model from PyTorch, and say what the checker cannot see;
# * extra: find the first node for which no shape is right.
#
# **Before this lab**: lab 00. You need dictionaries, sets, `divmod` and exceptions. All new words are in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/graph/graph.py`, `labs/lib/lab_09/onnx_files.py`, `labs/lib/lab_09/dims.py`.

# %% id="l09-setup" tags=["hide-input"]
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from IPython.display import display

import vklab
from vklab.graph import onnx_import
from vklab.graph.onnx_file import RAW_DATA, fields
from vklab_course import attempt, banner, check, data, hint, predict, show
from vklab_labs.lab_09 import dims, node_order, onnx_files
from vklab_labs.lab_09 import onnx_bytes_pictures as figures
from vklab_labs.shared import swapped
from vklab_labs.shared.networks import draw_network

# %% id="l09-banner"
banner()

# %% id="l09-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l09-1t"
# ## 1 · The file, byte by byte
# An ONNX file is one **message** of Protocol Buffers (protobuf): a row of **fields**, each with a *key* and a *value*. The key is `8 * field number + wire type`. The **wire type** says how long the value is; the field number says what it means. MiniClassifier is a small network of this course: ten numbers, the *logits*, come out for an image of 32 × 32 pixels. Its file begins like this:

# %% id="l09-1d" tags=["hide-input"]
MODEL = data("mini_classifier.onnx").read_bytes()
figures.draw_fields(MODEL, {1: "ir_version", 2: "producer_name", 3: "producer_version", 7: "graph"})

# %% [markdown] id="l09-1r"
# | wire type | the value | in ONNX |
# |---|---|---|
# | 0 | a **varint**: a number in one to ten bytes | sizes, versions, integers |
# | 2 | a length, as a varint, and that many bytes | texts, weights, messages inside of messages |
# | 5 | 4 bytes | attributes with a fraction, such as 0.5 |
# | 1 | 8 bytes | no field |
#
# In the picture's last row, `3a` is 58 = 8 × 7 + 2: field 7 of wire type 2. The bytes do not say that field 7 is the graph. The **schema** [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) does: it names the fields of each kind of message. Keys and lengths are varints, too:

# %% id="l09-1v" tags=["hide-input"]
figures.draw_varint(300)

# %% [markdown] id="l09-e1t" vklab={"id": "09-1"}
# ### Exercise 1 · Read an attribute by hand
# A node may have **attributes**: settings with a name and a value. These are all the bytes of one attribute:
#
# `[[message]]`
#
# List its fields in order, as `(field number, wire type, value)`. Write a number for wire type 0, and bytes such as `b"Conv"` for wire type 2. Python turns bytes into letters: `bytes.fromhex("43 6f 6e 76")` is `b"Conv"`.

# %% id="l09-e1" vklab={"role": "exercise", "id": "09-1", "points": 4, "lines": 1}
attribute = ...  # [(1, 2, b"..."), ...]
### BEGIN SOLUTION
attribute = [[right]]
### END SOLUTION

# %% id="l09-e1c" vklab={"role": "check", "id": "09-1"}
check("09-1", attribute)

# %% id="l09-e1h"
# hint("09-1")

# %% [markdown] id="l09-e1r"
# The runtime reads in the same way. `fields(file, start, end)` yields `(field number, place of the key, first byte of the value, byte after the value)` for each field. The next cell goes down to the first operator: graph (field 7), node (1), operator (4).

# %% id="l09-e1d"
start, end = 0, len(MODEL)
for what, wanted in (("model", 7), ("graph", 1), ("node", 4)):
    listed = [*fields(MODEL, start, end)]
    print(f"{what}: {end - start:,} bytes with the fields {sorted({each[0] for each in listed})}")
    start, end = next(each[2:] for each in listed if each[0] == wanted)
print("the first operator is", MODEL[start:end].decode())

# %% [markdown] id="l09-2t"
# ## 2 · Where a weight lies
# A weight of a model is an **initializer**: a tensor with a name and stored elements. ONNX has three ways to store them:

# %% id="l09-2d" tags=["hide-input"]
figures.draw_storage()

# %% [markdown] id="l09-2r"
# * `raw_data` holds the array as it lies in memory: row by row, the lowest byte of each number first (*little-endian*).
# * `external_data` names another file, by its path from the model's folder. Large models need it: a protobuf message is smaller than 2 GiB.
# * **Typed fields**, such as `int64_data` and `float_data`, hold the numbers one by one: each `int64` is a varint there.
#
# `find_initializer` looks for a weight with `fields`. It returns a `TensorProto`, protobuf's object for one tensor, and the places where its message begins and ends:

# %% id="l09-walkd"
show(onnx_files.find_initializer)

# %% [markdown] id="l09-e2t"
# ### Exercise 2 · Find a weight
# Your function returns a **descriptor**: facts about the weight, and none of its bytes. With it, a runtime can plan before it reads a weight.

# %% id="l09-e2" vklab={"role": "exercise", "id": "09-2", "points": 6, "lines": 13}
def locate_weight(folder, name):
    """Return (file, offset, length, dtype, shape) of an initializer.

    folder: path of a folder with model.onnx, and perhaps files for external data.
    TODO     raw_data: "model.onnx", the place of its first byte, its number of bytes.
             external_data: its "location", "offset" (0 if there is none) and "length" (what the
             shape needs if there is none).
             Otherwise (a typed field, or nothing): "", 0, 0.
             dtype: text such as "float32"; shape: a tuple.
             ValueError: the length is not what shape and dtype need; or the file does not hold
             all these bytes; or the file is not in the folder. onnx_files.bytes_in(folder,
             location) returns a file's size, and raises the last of these errors by itself.
    Approach tensor.dims are the sizes, dtype.itemsize is the size of one element in bytes, and
             tensor.HasField("raw_data") is True or False. To find the place of raw_data, walk
             the tensor's message with `fields`; RAW_DATA is its field number.
    Example  for conv1.bias of MiniClassifier -> ("model.onnx", 4525, 128, "float32", (32,))
                                                                       (roughly 13 lines)
    """
    file = Path(folder, "model.onnx").read_bytes()
    tensor, start, end = onnx_files.find_initializer(file, name)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    external = {entry.key: entry.value for entry in tensor.external_data}  # all values are texts
    ### BEGIN SOLUTION
    shape = tuple(tensor.dims)
    needed = int(np.prod(shape)) * dtype.itemsize
    where, offset, length = "", 0, 0
    if external:
        where, offset = external["location"], int(external.get("offset", 0))
        length = int(external.get("length", needed))
    elif tensor.HasField("raw_data"):
        where, (offset, length) = "model.onnx", next(
            (first, last - first) for number, _, first, last in fields(file, start, end)
            if number == RAW_DATA)
    if where and (length != needed or offset < 0
                  or offset + length > onnx_files.bytes_in(folder, where)):
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
# A program can **map** a file: its bytes appear in memory, and are read at their first use. An array on such bytes needs no copy. The next model has three weights: `large` (2 MiB, `raw_data`), `small` (one float, `raw_data`) and `typed` (one float, `float_data`). vklab loads the file twice. Do both models share the memory of a weight: True or False?

# %% id="l09-p2"
predict("09-p2", large=..., small=..., typed=...)

# %% id="l09-zero"
path = onnx_files.three_weights(HOME.name)
one, two = (onnx_import.load_graph(path).initializers for _ in range(2))
for name in one:
    print(name, "same memory:", np.shares_memory(one[name].constant, two[name].constant))

# %% [markdown] id="l09-claims"
# The price: whoever changes a mapped file changes the model in use.
#
# [VKML](https://crates.io/crates/vkml) reads files with a library of its own, onnx-extractor. Its page (version 0.0.3) says "Model loading is full zero-copy". The library's source (commit 78cb63b, May 2026) maps `raw_data` and external data, but decodes typed fields into a new list. A GPU with memory of its own needs a copy, too.

# %% [markdown] id="l09-3t"
# ## 3 · An order that works
# In an **order that works** (a *topological order*), each node stands after the nodes that make the values it reads. ONNX requires such an order, but not every file keeps the rule. So a runtime sorts.

# %% id="l09-3d" tags=["hide-input"]
figures.draw_cycle()

# %% [markdown] id="l09-3r"
# Every value needs exactly one maker: a node, or the caller who gives it. Nodes that wait for each other form a **cycle**. Node `d` waits forever, too, but is not in the cycle: a good message names `b` and `c` only.

# %% [markdown] id="l09-e3t" vklab={"id": "09-3"}
# ### Exercise 3 · Order the nodes, or name the fault
# A node is *ready* when every value that it reads exists. Of the ready nodes, take a `[[first]]` if there is one; among several, take the name that comes first in the alphabet, as Python compares texts.

# %% id="l09-e3" vklab={"role": "exercise", "id": "09-3", "points": 7, "lines": 16}
FIRST = "[[first]]"


def order_nodes(nodes, given):
    """Return ("order", names of nodes), or a fault: ("values", names) or ("cycle", names).

    nodes: a list of (name, operator, inputs, outputs), in any order, no name twice; inputs and
    outputs are names of values, "" for one left out. given: values that the caller gives.
    TODO     "values": every value that a node reads or makes, or that is given, needs exactly one
             maker. Name those that have none or several, sorted. If there are any, stop here.
             "cycle": the nodes of one cycle. Each reads a value that the node before it in the
             list makes, and the first one reads from the last.
             "order": of the ready nodes, those of operator FIRST first, then the alphabet.
    Approach keep a set of values that exist, and take one ready node after the other. If nodes
             are left over, go back from one of them, from maker to maker, until you meet a node
             again. Going back lists the cycle from its end to its beginning.
    Example  order_nodes([("b", "Relu", ("q",), ("r",)), ("a", "Relu", ("x",), ("q",))], ["x"])
             -> ("order", ["a", "b"]); with given=[] -> ("values", ["x"])   (roughly 16 lines)
    """
    makers = Counter([*given, *(value for node in nodes for value in node[3])])  # "" is in it, too
    ### BEGIN SOLUTION
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
                         caption="The digits network, given backwards, numbered in your order.",
                         notes={name: [f"number {n}"] for n, name in enumerate(names)}))
    print("the graph with the cycle:", order_nodes(node_order.TINY, ["x"]))

# %% id="l09-e3c" vklab={"role": "check", "id": "09-3"}
check("09-3", order_nodes)

# %% id="l09-e3h"
# hint("09-3")

# %% [markdown] id="l09-swapt" vklab={"says": [" -> "]}
# Now the real runtime asks your function; `node_order.asking` verifies each answer first. ResNet-50 is only planned, because its recorded graph has no weights. Winograd's kernels are switched off: the memory that they need would hide what an order changes (lab 09b). `->` stands between the runtime's number and yours.

# %% id="l09-swap" tags=["nbval-ignore-output"]
with attempt("09-3"):
    rows, problem = swapped.run_swapped("vklab.graph.onnx_import.topological_order",
                                        node_order.asking(order_nodes),
                                        variables={"VKLAB_DISABLE_PASSES": "winograd"})
    print(*rows, problem, sep="\n")
show("vklab.graph.graph.topological_order", at="ready: list[int]", lines=8)

# %% [markdown] id="l09-swapr" vklab={"says": ["same outputs: True", " -> "]}
# The results are the same. The plans need not be. For ResNet-50 most rules for ties save one barrier, and need more `arena_bytes`, the memory for the values between the nodes. (Lab 09b explains chunks.) The listing is vklab's rule for ties: `heappop` takes the node that stands first in the file.

# %% [markdown] id="l09-4t"
# ## 4 · Shapes with an N
# The file gives the shapes of inputs and weights. MiniClassifier takes images `[N, 3, 32, 32]`: three channels of 32 × 32 pixels. Two convolutions make 32 and then 64 channels of the same size, a pooling leaves 4 × 4 numbers of each, and two matrix products make 128 and then 10 numbers. A Relu follows all of them but the last. The next cell exports it with an open batch: `dynamic_shapes` (in the older exporter `dynamic_axes`) makes axis 0 of the input a size without a number, `N`: a **symbolic dimension**.

# %% id="l09-export" tags=["nbval-ignore-output"]
try:
    import torch

    from vklab.apps.compare.models import exporting

    with exporting.quiet():
        exported = torch.onnx.export(
            exporting.build_module(), (torch.zeros(2, 3, 32, 32),), dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("N")},), input_names=["image"],
            output_names=["logits"], opset_version=18, verbose=False).model_proto
except ImportError as missing:
    print(missing, "- so the file for one image is edited")
    exported = onnx_files.open_batch(data("mini_classifier.onnx"))
nodes, shapes = onnx_files.plain_graph(exported)
print(shapes["image"], *(f"{node[1]} {node[4].get('target', '')}" for node in nodes), sep="\n")

# %% [markdown] id="l09-4r"
# A size is now a number, or text: `"N"`, or a multiple such as `"128*N"`. A shape must be right for *every* N from 1 on, so `N` and 4 are different sizes.
#
# **Add** and its relatives *broadcast*: they stretch arrays until their shapes fit.

# %% id="l09-4addd" tags=["hide-input"]
figures.draw_broadcast()

# %% id="l09-rules"
show(dims.broadcast)

# %% [markdown] id="l09-4text"
# **Reshape** keeps the elements and their order. In its *target*, `0` copies the input's size at the same place, and `-1` (at most once) is what the other sizes leave. With the attribute `allowzero=1`, which PyTorch's exporter writes, 0 is simply a size.

# %% id="l09-4reshape" tags=["hide-input"]
figures.draw_reshape()

# %% [markdown] id="l09-e4r"
# The other operators that change a shape:
# * **Gemm** multiplies rows by a matrix: `[N, 1024]` by `[1024, 128]` is `[N, 128]`.
# * **Conv** moves filters over rows and columns, and each filter makes one channel. **MaxPool** and **AveragePool** move a window over each channel.
# * `pads` first adds rows and columns at the edges; `strides` says how far the window moves. A row of 7, padded to 8, has room for a window of 3 at 0, 2 and 4 if the stride is 2: (8 - 3) // 2 + 1 results.

# %% [markdown] id="l09-e4t"
# ### Exercise 4 · The rule of Reshape
# `dims.elements(["N", 64, 4, 4])` counts the elements: `(1024, 1)` means 1024 × N to the power of 1. `dims.dim(1024, 1)` turns such a pair into a size, `"1024*N"`. The cell after yours adds the rules of the other operators (`dims.complete`), and carries shapes through MiniClassifier.

# %% id="l09-e4" vklab={"role": "exercise", "id": "09-4", "points": 4, "lines": 13}
def shape_of(shape, target, allowzero):
    """Return the shape of a Reshape's output, a list of sizes.

    shape: of the input. A size is a number, "N" or a multiple such as "128*N".
    target: a list of numbers. allowzero: 0 or 1.
    TODO     the target, with sizes in place of -1 and of each 0 that copies.
             ValueError: no shape is right for every N, or more than one is (-1 beside a size 0);
             or the target is not allowed: two -1, a number below -1, or a 0 that copies where
             the input has no size.
    Approach replace each 0 that copies; then compare the elements of the input with those of the
             other sizes. Both are pairs. (0, 1) and (0, 0) are both no elements.
    Example  shape_of(["N", 128, 64], [-1, 64], 0) -> ["128*N", 64]     (roughly 13 lines)
    """
    ### BEGIN SOLUTION
    if not allowzero:
        if 0 in target[len(shape):]:
            raise ValueError("a 0 behind the input's last size")
        target = [shape[n] if size == 0 else size for n, size in enumerate(target)]
    rest = [size for size in target if size != -1]
    if len(target) > len(rest) + 1 or any(type(n) is int and n < -1 for n in target):
        raise ValueError(f"the target {target} is not allowed")
    (factor, power), (known, less) = dims.elements(shape), dims.elements(rest)
    if -1 not in target and (factor != known or (factor and power != less)):
        raise ValueError(f"{target} has other elements than {shape}")
    if -1 in target and (known == 0 or factor % known):
        raise ValueError(f"{known} does not divide {factor}")
    return [dims.dim(factor // known, power - less) if size == -1 else size for size in target]
    ### END SOLUTION


# %% id="l09-e4d" vklab={"role": "demo"}
with attempt("09-4"):
    inferred, problem = dims.infer_graph(nodes, shapes, dims.complete(shape_of))
    display(draw_network(
        [node[:4] for node in nodes], alt="MiniClassifier from image to logits, with shapes.",
        caption="MiniClassifier with an open batch: the shape of each output, with your rule.",
        notes={node[0]: [dims.text(inferred.get(node[3][0], ["?"]))] for node in nodes}))
    print(problem or "every value has a shape")

# %% id="l09-e4c" vklab={"role": "check", "id": "09-4"}
check("09-4", shape_of)

# %% id="l09-e4h"
# hint("09-4")

# %% [markdown] id="l09-5t"
# ## 5 · What would break this?
# ONNX has a checker, `onnx.checker.check_model(model)`. With `full_check=True` it also infers shapes. Does it accept these models *without* `full_check`: True or False?

# %% id="l09-p3"
predict("09-p3", unknown_operator=..., cycle=..., MatMul_2x4_by_5x3=..., Reshape_12_into_10=...)

# %% id="l09-checker" tags=["nbval-ignore-output"]
print(f"{'full_check':25} False    True")
for words, model in onnx_files.faults().items():
    print(f"{words:25}", *(onnx_files.verdict(model, full_check=full) for full in (False, True)))

# %% [markdown] id="l09-openr"
# With onnx 1.23.2, which this course pins, the last two faults pass both times: **a valid order with invalid shapes**. Another version may find them.
#
# ### A promise in the file
# In PyTorch, MiniClassifier takes images of any size: `AdaptiveAvgPool2d(4)` leaves 4 × 4 numbers of each channel. Exported from images of 32 × 32, it became an AveragePool with a window of 8 × 8. The next cell declares height and width open in that file, and the full check accepts it. How many rows of logits come out for *one* image of 64 × 64?

# %% id="l09-p4"
predict("09-p4", rows=...)

# %% id="l09-open" tags=["nbval-ignore-output"]
promised = onnx_files.open_image(data("mini_classifier.onnx"))
print("full check:", onnx_files.verdict(promised, full_check=True))
with vklab.load(promised) as session:
    image = np.zeros((1, 3, 64, 64), np.float32)
    print("logits of one image:", session.run({"image": image})["logits"].shape)

# %% [markdown] id="l09-e5t" vklab={"id": "09-5"}
# ### Exercise 5 · Which node is the first? (extra)
# Each of four models takes `[N, 3, 32, 32]` and declares an output `[N, 10]`. Pads are the same on all four sides; Conv has strides of 1, MaxPool no pads, Reshape `allowzero=0`. The checker accepts every file.
#
# | model | Conv | MaxPool | Reshape | Gemm |
# |---|---|---|---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
#
# Follow the shape with N. Answer for each model:
# * `Conv`, `MaxPool`, `Reshape` or `Gemm`: the first node without a shape that is right for every N;
# * `output`: every node has a shape, but the output is not `[N, 10]`;
# * `right`: the output is `[N, 10]`.
#
# The check asks for all rows at once; grading counts each row.

# %% id="l09-e5" vklab={"role": "exercise", "id": "09-5", "points": 3, "lines": 1}
first_wrong = ...  # {"A": "right", "B": ...}
### BEGIN SOLUTION
first_wrong = [[right]]
### END SOLUTION

# %% id="l09-e5c" vklab={"role": "check", "id": "09-5"}
check("09-5", first_wrong)

# %% id="l09-e5h" vklab={"id": "09-5"}
# hint("09-5")

# %% [markdown] id="l09-recap"
# ## Recap
# | word | what it is | mistake to avoid |
# |---|---|---|
# | initializer | a weight: raw, external or typed | trusting its length |
# | topological order | each node after the makers of what it reads | blaming all nodes behind a cycle |
# | symbolic dimension | a size such as N | a number of the example, kept in a window |
# | checker | rules for names and nodes | taking "accepted" for a proof of shapes |
#
# **Next**: [lab 09b](09b_plans.ipynb) plans such a graph.
#
# **References**: Protocol Buffers, [Encoding](https://protobuf.dev/programming-guides/encoding/); ONNX, [external data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md); [onnx-extractor](https://github.com/void-research/onnx-extractor).
