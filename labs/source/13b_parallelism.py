# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Transfers and parallelism"
#     minutes: 90
#     before: ["12", "13"]
#     know: ["dictionaries", "tuples", "`min(key=...)`"]
# ---

# %% [markdown] id="l13b-title"
# # Lab 13b · Transfers and parallelism
# **How values move between devices, and how one model uses several of them** · 90 minutes, 5 exercises, the last one extra
#
# In lab 13, a transfer between devices had a price. Here you look inside a transfer: how many copies is it, and who makes them? Then you spread a product, two layers and a whole model over several devices, and count the bytes that move.
#
# **Afterwards you can**
# * choose the path of a value from facts about two devices, and count the bytes that are copied;
# * cut a matrix product by columns, by rows or both ways, and price the collective that follows;
# * write an all-reduce as a list of sends, and say why a ring is hard to beat;
# * find a transfer that is read before it has arrived;
# * find the errors of a project's page, and date its claims.
#
# **Before this lab**: lab 13; lab 12 for traces. You need dictionaries, tuples and `min(key=...)`. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/plan/place/transfer_paths.py`, `vklab/runtime/many/device_copies.py`.

# %% id="l13b-setup" tags=["hide-input"]
import numpy as np
from IPython.display import display

from vklab_course import attempt, banner, check, hint, predict, show
from vklab_labs.lab_13 import parallelism_pictures as figures
from vklab_labs.lab_13 import transfers
from vklab_labs.lab_13.parallelism import even_parts, events_of, replay, step_times
from vklab_labs.shared import swapped

random = np.random.default_rng(0)

# %% id="l13b-banner"
banner()

# %% id="l13b-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l13b-1t"
# ## 1 · How a value moves
# GPU 0 has computed a value of 8 MiB, and GPU 1 needs it. Both are *discrete*: each has memory of its own. Here neither the host nor the other GPU can see it. VKML's page (version 0.0.3) promises *zero-copy throughout*. Its notes say: *GPU-to-GPU movement currently routes through CPU*.
#
# How many MiB do all copies together write? `through_cpu_mib`: the value goes through two places in host memory, one that GPU 0 sees and one that GPU 1 sees. `shared_mib`: both GPUs see the *same* place. Write your numbers in place of `...`.

# %% id="l13b-p1"
predict("13b-p1", through_cpu_mib=..., shared_mib=...)

# %% id="l13b-1d" tags=["hide-input"]
figures.draw_copies()

# %% [markdown] id="l13b-1r"
# These are the words for paths with fewer copies:
#
# * **Direct access**: the kernels of a device read and write host memory themselves, at full speed. A CPU driver and a GPU built into the processor do. A discrete GPU copies first.
# * **Shared host memory**, `VK_EXT_external_memory_host`: the program allocates memory, and *imports* it into both devices.
# * **Ring**: shared host memory, used in small pieces called *slots*. While GPU 1 empties one slot, GPU 0 fills the other. The whole value is never in host memory.
# * **dma-buf** (Linux): GPU 0 *exports* device memory as a file descriptor. GPU 1 *imports* it, and copies from it.
# * **Opaque fd**: an exported file descriptor that only the same GPU can import, opened a second time. (Vulkan compares the UUIDs of device and driver.)
# * **Device group**: a driver shows several GPUs as one group, and one GPU can copy into the memory of another.
#
# A path can fail although both devices list its extension, so vklab first sends test bytes through a dma-buf. Two NVIDIA H200 joined by NVLink were no group in our run, so `VK_KHR_device_group`, which VKML plans for NVLink, cannot help there.
#
# ### Exercise 1 · A path from facts
# A device is a dictionary of facts: `uuid`; `group` (a number, or None for no group); `offers`, a tuple with some of `"opaque_fd"`, `"dma_export"`, `"dma_import"` and `"host_import"`; `direct` (has it direct access?); `element_bytes`, the size in which it stores one element of the value.
#
# | path | works if | bytes that are copied |
# |---|---|---|
# | `"opaque fd"` | same `uuid`, and both offer `opaque_fd` | 0 |
# | `"device group"` | both are in the same group | the value |
# | `"dma-buf"` | the source offers `dma_export`, the target `dma_import` | the value |
# | `"shared host"` | both offer `host_import`, at least one has direct access | the value for each end without direct access |
# | `"ring"` | both offer `host_import`, none has direct access | the value, twice |
# | `"host copy"` | always | the value for each end without direct access, and once more for the host's own copy |
#
# Only the host can change the size of elements: if `element_bytes` differ, only the last path works. The first lines and the first row of the table are given. `out` is the value's size in the source, and `value` its size in the target, which the host's own copy has, too. `ends` counts the copies at the ends without direct access.

# %% id="l13b-e1" vklab={"role": "exercise", "id": "13b-1", "points": 5, "lines": 11}
def choose_path(source, target, elements):
    """Return (path, bytes): the path that copies the fewest bytes, and how many these are.

    source, target: facts of the devices. elements: how many the value has.
    TODO     of equal bytes, the path that stands first in the table; ("nothing", 0) for 0 elements.
    Approach a list of (path, bytes) of all paths that work, in the order of the table.
    Example  with gpu = {"uuid": "a", "group": None, "offers": ("host_import",), "direct": False,
             "element_bytes": 4} and other = {**gpu, "uuid": "b"}:
             choose_path(gpu, other, 10) -> ("ring", 80)              (roughly 11 lines)
    """
    out, value = elements * source["element_bytes"], elements * target["element_bytes"]
    ends = (0 if source["direct"] else out) + (0 if target["direct"] else value)
    both = [offer for offer in source["offers"] if offer in target["offers"]]
    paths, same_size = [], source["element_bytes"] == target["element_bytes"]
    if same_size and source["uuid"] == target["uuid"] and "opaque_fd" in both:
        paths.append(("opaque fd", 0))
    ### BEGIN SOLUTION
    if elements == 0:
        return "nothing", 0
    if same_size and source["group"] is not None and source["group"] == target["group"]:
        paths.append(("device group", value))
    if same_size and "dma_export" in source["offers"] and "dma_import" in target["offers"]:
        paths.append(("dma-buf", value))
    if same_size and "host_import" in both:
        direct = source["direct"] or target["direct"]
        paths.append(("shared host" if direct else "ring", ends))
    paths.append(("host copy", ends + value))
    return min(paths, key=lambda path: path[1])
    ### END SOLUTION


# %% id="l13b-e1d" vklab={"role": "demo"}
with attempt("13b-1"):
    chosen = {words: choose_path(*pair, 2 << 20) for words, pair in transfers.PAIRS.items()}
    display(figures.draw_chosen(chosen, 8 << 20, "The path of a value of 8 MiB, as your function "
                                "chooses it: a box for each copy."))  # fmt: skip

# %% id="l13b-e1c" vklab={"role": "check", "id": "13b-1"}
check("13b-1", choose_path)

# %% id="l13b-e1h"
# hint("13b-1")

# %% [markdown] id="l13b-swapt"
# ### Your function in the runtime
# The planner's function `unseen` names the values that move by dma-buf or through a ring, never whole in memory that the host sees. The next cell lets your function decide this instead. A path that the devices do not have is refused.
#
# U-Net is only planned, for two described GPUs. Two small models also run, if there are two devices: GPUs, or the CPU drivers lavapipe and SwiftShader. In the second and third part, `VKLAB_DISABLE_DIRECT_IO` makes CPU drivers behave like discrete GPUs. The third part swaps in a function that knows one path only.
#
# Read `transfers`, `host_bytes` (memory that the host sees) and `paths`. An arrow, `a -> b`, means: `a` without the swap, `b` with it.

# %% id="l13b-swap" tags=["nbval-ignore-output"]
UNSEEN, NO_DIRECT = "vklab.plan.place.transfer_paths.unseen", {"VKLAB_DISABLE_DIRECT_IO": "1"}
with attempt("13b-1"):
    for words, function, switches in (
        ("your paths", choose_path, {}), ("your paths, no direct access", choose_path, NO_DIRECT),
        ("always a host copy", lambda *facts: ("host copy", 0), NO_DIRECT),
    ):  # fmt: skip
        rows, why = swapped.run_swapped(UNSEEN, transfers.guarded(function), planned=("unet",),
                                        **transfers.spread(**switches))  # fmt: skip
        print(words, *(rows or [why]), sep="\n  ")

# %% [markdown] id="l13b-swapr"
# With your function no count has an arrow: it plans as the runtime does. In the third part, with host copies only, the outputs are still the same, but `host_bytes` grow: U-Net's large values now lie whole in host memory. (With one driver only, nothing runs. Our record between two CPU drivers: `shared host memory`, and without direct access `ring in shared host memory`.)
#
# **VKML's two sentences, judged by your picture.** Only its last row has no copy, and no discrete GPU is in it. Between two discrete GPUs the best path of the table copies once, and the way through separate host memory copies three times. So *zero-copy throughout* may hold for loading a file, and not for transfers that *route through CPU*.

# %% [markdown] id="l13b-tracet"
# The next cell records a real run on two devices, if this machine has them. On two CPU drivers it never shows a speed-up: both use the same cores.

# %% id="l13b-trace" tags=["nbval-ignore-output"]
spans, why = transfers.traced_split("digits_cnn.onnx", {"image": np.zeros((64, 1, 28, 28), "f4")})
print(why or [words for _, words, _, _, kind in spans if kind == "transfer"])
if spans:
    display(figures.draw_spans(spans, "The digits network on two devices. Blue: a chunk of the "
                               "plan. Orange: a transfer, which is short here."))  # fmt: skip

# %% [markdown] id="l13b-2t"
# ## 2 · One product on several devices
# A product `C = A @ B`, with `A` of shape `[m, k]` and `B` of shape `[k, n]`, is too large for one device, or too slow. So each device gets a **shard**, a part of `B`. This is **tensor parallelism**. Each device computes with its shard; then the devices exchange what is missing. An exchange among several devices is a **collective**:
#
# * **all-gather**: before, every device has one part of an array; afterwards, all of it;
# * **reduce-scatter**: before, every device has an array of its own; afterwards, one part of the sum of all arrays;
# * **all-reduce**: before, every device has an array of its own; afterwards, the whole sum. It can be done as a reduce-scatter and then an all-gather.
#
# `B` is cut by columns, or by rows. What do the devices have to do with their results to get `C`: `"gather"` or `"add"`?

# %% id="l13b-p2"
predict("13b-p2", columns=..., rows=...)

# %% id="l13b-2d" tags=["hide-input"]
figures.draw_cuts()

# %% [markdown] id="l13b-2r" vklab={"id": "13b-2"}
# **What it costs.** Count all bytes that cross from one device to another, among `p` devices. Let `V` be the bytes of the whole result.
#
# * All-gather: each of the `V` bytes has to reach `p - 1` other devices. That is `(p - 1) * V`.
# * Reduce-scatter: for each byte of the sum, `p - 1` terms have to travel. Again `(p - 1) * V`.
# * All-reduce: both, so `2 * (p - 1) * V`; for each device, `2 * (p - 1) / p * V`.
#
# **Both ways at once.** A grid of devices, `rows` times `columns`, cuts the rows of `B` in `rows` parts and its columns in `columns` parts. Device number `i * columns + j` has part `i` of the rows and part `j` of the columns. First, the devices of each *column* of the grid all-reduce their sums. Then the devices of each *row* of the grid all-gather. Here an element has [[bytes]] bytes.
#
# ### Exercise 2 · Shards and their price
# `even_parts(7, 3)` returns `[(0, 3), (3, 5), (5, 7)]`: parts as equal as possible, longer ones first. Some are empty if there are more parts than elements. A device with an empty shard still takes part in the collectives, because it needs the result.

# %% id="l13b-e2" vklab={"role": "exercise", "id": "13b-2", "points": 5, "lines": 6}
def shard_matmul(m, k, n, rows, columns):
    """Return (shards, all-reduce bytes, all-gather bytes) of A[m, k] @ B[k, n] on a grid.

    rows, columns: of the grid of devices; ValueError if one of them is less than 1.
    TODO     shards: for each device, in the order of their numbers, ((first row, end row),
             (first column, end column)) of its part of B. Bytes: of all devices together.
    Example  with elements of 4 bytes, shard_matmul(1, 4, 6, 2, 1)
             -> ([((0, 2), (0, 6)), ((2, 4), (0, 6))], 48, 0)         (roughly 6 lines)
    """
    ### BEGIN SOLUTION
    if rows < 1 or columns < 1:
        raise ValueError("a grid has at least one device")
    shards = [(of_rows, of_columns) for of_rows in even_parts(k, rows)
              for of_columns in even_parts(n, columns)]  # fmt: skip
    size = m * n * [[bytes]]
    return shards, 2 * (rows - 1) * size, rows * (columns - 1) * size
    ### END SOLUTION


# %% id="l13b-e2d" vklab={"role": "demo"}
with attempt("13b-2"):
    wide = random.standard_normal((4, 100)), random.standard_normal((100, 70))
    for rows, columns in ((1, 4), (4, 1), (2, 2), (2, 3)):
        mine = shard_matmul(4, 100, 70, rows, columns)
        C = np.zeros((4, 70))  # what the collectives make of the devices' results
        for (first, end), (left, right) in mine[0]:
            C[:, left:right] += wide[0][:, first:end] @ wide[1][first:end, left:right]
        print(f"{rows} x {columns}: all-reduce {mine[1]} bytes, all-gather {mine[2]} bytes,",
              "right:", np.allclose(C, wide[0] @ wide[1]))  # fmt: skip
    display(figures.draw_shards((4, 100, 70), mine, 3, "Your shards on a grid of 2 x 3: a colour "
                                "and a number for each device. C names whose sums are added."))

# %% id="l13b-e2c" vklab={"role": "check", "id": "13b-2"}
check("13b-2", shard_matmul)

# %% id="l13b-e2h"
# hint("13b-2")

# %% [markdown] id="l13b-mlpt"
# ### Two layers, one collective
# The first transformer (2017) has pairs of layers: `y = relu(x @ W1) @ W2`. Later ones differ in the function between, and are cut in the same way. Megatron-LM cuts `W1` by columns and `W2` by rows:

# %% id="l13b-mlpd" tags=["hide-input"]
figures.draw_mlp()

# %% id="l13b-mlp"
x, W1, W2 = (random.standard_normal(shape) for shape in ((8, 16), (16, 64), (64, 16)))
right = np.maximum(x @ W1, 0) @ W2
halves = even_parts(64, 2)
sums = [np.maximum(x @ W1[:, a:b], 0) @ W2[a:b] for a, b in halves]
print("columns, then rows:", np.allclose(sum(sums), right))
with attempt("13b-2"):
    first, second = shard_matmul(8, 16, 64, 1, 2), shard_matmul(8, 64, 16, 1, 2)
    print("columns, columns:", first[2] + second[2], "bytes in two all-gathers")
    print("columns, rows:   ", shard_matmul(8, 64, 16, 2, 1)[1], "bytes in one all-reduce")

# %% [markdown] id="l13b-mlpr"
# The columns of `W1` on a device make those columns of the hidden layer that its rows of `W2` read. So nothing moves between the two layers. This works because Relu treats each element alone; a Softmax would need all columns. With the rows of `W1` first, each device has only part of each sum, and `relu(a) + relu(b)` is not `relu(a + b)`.
#
# ## 3 · An all-reduce as a list of sends
# The simplest all-reduce sends everything to device 0, which adds, and sends the sum back. Then the link of device 0 is the bottleneck. In a **ring**, each device sends to the next one only, and all links work at the same time.

# %% id="l13b-3d" tags=["hide-input"]
figures.draw_reduction()

# %% [markdown] id="l13b-3r"
# The first half of the steps is the reduce-scatter: what arrives is *added*. The second half is the all-gather: what arrives *replaces* the old part.
#
# **Is a ring good?** In one step a device sends at most once and receives at most once. A step takes as long as its largest send. Of the bytes counted in section 2, some device has to send at least its share: `2 * (p - 1) / p * E` elements, if the array has `E`. (A switch that adds on the way, as NVLink SHARP does, needs about `E`.) A ring needs no more, if `p` divides `E`. But each of its `2 * (p - 1)` steps begins with a fixed delay. For very small arrays, fewer and larger sends are faster.
#
# ### Exercise 3 · All-reduce
# Write the sends of an all-reduce. The check replays them, and counts whose numbers are in which sum. You may choose any order of sends that is no slower than a ring.

# %% id="l13b-e3" vklab={"role": "exercise", "id": "13b-3", "points": 5, "lines": 6}
def ring_all_reduce(devices, elements):
    """Return the steps, each a list of sends (source, target, first, end, adds).

    A send takes the elements first ... end - 1 of its source, as they are before the step. The
    target adds them to its own if adds is True, and replaces its own by them if it is False.
    TODO     at the end every device holds the sum over all devices in every element. In a step, a
             device sends and receives at most once. Time: the largest send of each step, added
             up over all steps, is at most 2 * (devices - 1) * (elements / devices, rounded up).
    Approach part n is the elements parts[n]. As in the picture, device n first sends part n, and
             in every later step the part that has just arrived.
    Example  ring_all_reduce(2, 2)
             -> [[(0, 1, 0, 1, True), (1, 0, 1, 2, True)],
                 [(0, 1, 1, 2, False), (1, 0, 0, 1, False)]]          (roughly 6 lines)
    """
    parts, steps = even_parts(elements, devices), []
    ### BEGIN SOLUTION
    for step in range(2 * (devices - 1)):
        sends = []
        for device in range(devices):
            first, end = parts[(device - step) % devices]
            sends.append((device, (device + 1) % devices, first, end, step < devices - 1))
        steps.append(sends)
    return steps
    ### END SOLUTION


# %% id="l13b-e3d" vklab={"role": "demo"}
with attempt("13b-3"):
    ring = ring_all_reduce(4, 12)
    print("all sums are complete:", bool((replay(4, 12, ring) == 1).all()))
    print("the largest sends of all steps:", sum(step_times(ring)), "elements")
    print("all to device 0 and back, one after the other:", 2 * 3 * 12, "elements")
    display(figures.draw_ring(4, ring, "Your all-reduce on four simulated devices. A bar is a "
                              "send: add elements 0-2 to device 1, or set them there."))

# %% id="l13b-e3c" vklab={"role": "check", "id": "13b-3"}
check("13b-3", ring_all_reduce)

# %% id="l13b-e3h"
# hint("13b-3")

# %% [markdown] id="l13b-4t"
# ## 4 · Pipelines, and what would break them
# **Pipeline parallelism** cuts a model by layers: each device is a *stage*. But one input keeps only one device busy at a time. So a batch is cut into `m` *micro-batches* that follow each other. At the beginning and at the end, some devices still wait: that is the **bubble**.
#
# Four stages, twelve micro-batches, one unit of time for each piece of work: how many units until the last result? Which share of the time is each device idle, in percent?

# %% id="l13b-p3"
predict("13b-p3", units=..., idle_percent=...)

# %% id="l13b-4d"
figures.draw_pipeline(4, 6, "Four simulated devices, six micro-batches: 9 units, a third of them "
                            "idle. Each bar has the number of its micro-batch.")  # fmt: skip

# %% [markdown] id="l13b-4r"
# With `p` stages and `m` micro-batches the idle share is `(p - 1) / (m + p - 1)`: many micro-batches make it small.
#
# **Data parallelism** is the third way: every device has the whole model, and takes other requests (in vklab: `vklab.load(..., replicate=True)`). If one request takes 8 ms, four devices answer 500 requests a second instead of 125. Throughput grows, but each request still takes 8 ms.
#
# | parallel by | cut | moves, for each batch | helps |
# |---|---|---|---|
# | data | the requests | nothing (in training: an all-reduce of gradients) | throughput |
# | pipeline | the layers | one activation at each cut | memory; throughput, but for the bubble |
# | tensor | each product | collectives in every pair of layers | memory and latency, on fast links |
#
# ### What would break this?
# A transfer is an event like any other, and somebody has to wait for it. In this trace, two GPUs are a pipeline for four pieces of work. Piece 0: `a0` computes on GPU 0; `out0` copies its result to a slot in shared host memory; `in0` copies from the slot to GPU 1; `b0` computes there. Pieces 0 and 2 share slot 0, pieces 1 and 3 share slot 1. One event begins **before its input is completely written**. Then, now and then, one result is wrong.

# %% id="l13b-e4t" vklab={"id": "13b-4"}
TRACE = """[[trace]]"""
events = events_of(TRACE)
for event in events:
    print(f"{event.name:5} {event.start:2} to {event.end:2}  {event.reads:6} -> {event.writes}")

# %% id="l13b-e4d" tags=["hide-input"]
figures.draw_trace(events, "The trace: a colour for each piece of work, time to the right.")

# %% [markdown] id="l13b-e4r"
# ### Exercise 4 · Read too early
# Name the event that reads too early, and the earliest time at which it may begin.

# %% id="l13b-e4" vklab={"role": "exercise", "id": "13b-4", "points": 3, "lines": 1}
too_early = ...  # ("name of the event", time)
### BEGIN SOLUTION
by_name = {event.name: event for event in events}
for k in "0123":
    for writer, reader in (("a", "out"), ("out", "in"), ("in", "b")):
        if by_name[reader + k].start < by_name[writer + k].end:
            too_early = (reader + k, by_name[writer + k].end)
### END SOLUTION

# %% id="l13b-e4c" vklab={"role": "check", "id": "13b-4"}
check("13b-4", too_early)

# %% id="l13b-e4h"
# hint("13b-4")

# %% [markdown] id="l13b-ringt" vklab={"extra": true}
# To read: vklab's ring has the same two slots, and three kinds of waits. `_out.wait(slot)`: a slot is full before it is read. `_into.wait(slot)` in `_fill`: a slot has been read before it is filled again. The last loop of `_move`: the whole value is there before the move ends, and only then the next chunk starts. Which wait forbids your event? None, if it is an `out`: then the move began before its chunk had ended.

# %% id="l13b-ring"
display(show("vklab.runtime.many.device_copies.StagingRing._move"),
        show("vklab.runtime.many.device_copies.StagingRing._fill"))

# %% [markdown] id="l13b-5t" vklab={"extra": true}
# ## 5 · ExecuTorch beside vklab (optional)
# No later lab needs this section. ExecuTorch runs PyTorch models on phones, and has a Vulkan backend. It cuts a model at what the GPU can do, as lab 13 did. The *edge dialect*, which `to_edge` makes, is PyTorch's small core set of operators, each with the dtypes that it may have. A `.pte` file holds the program, ready to run.

# %% id="l13b-5d" vklab={"extra": true} tags=["hide-input"]
figures.draw_layers()

# %% [markdown] id="l13b-5r" vklab={"extra": true}
# | ExecuTorch, in `backends/vulkan/` | holds | vklab |
# |---|---|---|
# | `runtime/api` | one object of Vulkan in each file | `vklab/vulkan/` |
# | `runtime/graph` | what runs, in which order, in which memory | `vklab/plan/`, `vklab/runtime/` |
# | `runtime/graph/ops/impl` | host code that starts a kernel | `vklab/ops/` |
# | `runtime/graph/ops/glsl` | kernels | `shaders/ops/` |
# | `partitioner`, `op_registry.py` | what the GPU can do | `vklab/plan/capability.py`, `vklab/ops/registry.py` |
#
# **Supported operators, then and now.** We read ExecuTorch's page of 8 October 2024. A note on it says that *only binary arithmetic operators* run on the GPU. The same page links a list of operators:
#
# | date | where | entries |
# |---|---|---|
# | 17 April 2024, the note is new | `partitioner/vulkan_partitioner.py` | 19, with convolution and matrix product; 6 are binary arithmetic |
# | 8 October 2024, our page | `partitioner/supported_ops.py` | 61 |
# | 22 August 2026 (since 28 October 2024 that file, and so the link, is gone) | `op_registry.py` | 157 |
#
# Counted in the repository, [commit 414cd05](https://github.com/pytorch/executorch/commit/414cd05d17) to [cff6f4d](https://github.com/pytorch/executorch/commit/cff6f4dd32). So the note was wrong on its first day.
#
# ### What the pages say
# 1. *Features*: tensors can change shape between inferences, as long as the current shape is *smaller than the bounds specified during lowering*. (The plan reserves memory for the bounds.)
# 2. *End to end example*: a script produces *a lowered MobileNet V2 model as `vulkan_mobilenetv2.pte`*. The script below this sentence defines `class Add`, whose `forward` returns `x + y`, lowers it, and writes to `open("vk_add.pte", "wb")`.
# 3. *Build*: a shell command is `rm -rf cmake-android-out && pp cmake . -DCMAKE_INSTALL_PREFIX=...`. The page neither explains `pp` nor lists it among the tools to install.
# 4. *Run*: the note on *binary arithmetic operators* goes on: expect slow inference, *as the majority of operators are being executed via Portable operators*, on the CPU. Then the page runs `vk_add.pte`.
# 5. VKML, *key design decisions*: *Zero-copy throughout: model loading, CPU allocations, and GPU reference-based transfers avoid unnecessary copies*. Development notes: *GPU-to-GPU movement currently routes through CPU*.

# %% [markdown] id="l13b-e5t" vklab={"id": "13b-5"}
# ### Exercise 5 · Which sentence is wrong, and who says so? (extra)
# Three or more of these sentences are wrong. Choose `holds` if nothing here speaks against a sentence. Otherwise choose what does: `its script` (the page's own example), `its link` (the list that the page links), `its own notes` (another sentence of the same page; not its script or link), `at most` (the bound itself is allowed), `no such command` (the page does not say where the command comes from). The check asks for all rows at once; grading counts each row.
#
# | row | sentence |
# |---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
# | F | [[f]] |

# %% id="l13b-e5" vklab={"role": "exercise", "id": "13b-5", "points": 3, "lines": 1}
sentences = ...  # {"A": "holds", "B": ...}
### BEGIN SOLUTION
sentences = [[right]]
### END SOLUTION

# %% id="l13b-e5c" vklab={"role": "check", "id": "13b-5"}
check("13b-5", sentences)

# %% id="l13b-e5h" vklab={"id": "13b-5"}
# hint("13b-5")

# %% [markdown] id="l13b-recap"
# ## Recap
# | word | costs | mistake to avoid |
# |---|---|---|
# | host copy, ring, dma-buf | 3, 2, 1 copies between two discrete GPUs | to call one of them zero-copy |
# | opaque fd | no copy | to import it into another GPU |
# | cut by columns | an all-gather | to gather before a cut by rows |
# | cut by rows | an all-reduce | to apply Relu before the sum |
# | ring all-reduce | `2 * (p - 1) / p` of the array for each device | to use the ring for very small arrays |
# | pipeline | a bubble of `(p - 1) / (m + p - 1)` | to read a value before its copy has ended |
# | data parallelism | the whole model on each device | to expect lower latency |
#
# **Next**: lab 14 makes numbers smaller, and every transfer with them.
#
# **References**
# * Vulkan: [external memory handle types](https://registry.khronos.org/vulkan/specs/latest/man/html/VkExternalMemoryHandleTypeFlagBits.html), [VK_EXT_external_memory_host](https://registry.khronos.org/vulkan/specs/latest/man/html/VK_EXT_external_memory_host.html), [VK_KHR_device_group](https://registry.khronos.org/vulkan/specs/latest/man/html/VK_KHR_device_group.html).
# * Shoeybi et al., [Megatron-LM](https://arxiv.org/abs/1909.08053), 2019: columns, then rows. Huang et al., [GPipe](https://arxiv.org/abs/1811.06965), 2018: the bubble.
# * Patarasuk and Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, 2009: the ring.
# * [VKML](https://github.com/void-research/vkml); ExecuTorch's [Vulkan backend](https://github.com/pytorch/executorch/tree/main/backends/vulkan).
