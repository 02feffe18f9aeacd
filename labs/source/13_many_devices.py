# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Many devices"
#     minutes: 90
#     before: ["09", "09b", "10", "11", "12"]
#     know: ["lists", "dictionaries", "loops"]
# ---

# %% [markdown] id="l13-title"
# # Lab 13 · Many devices
# **Which device runs which node, and why** · 90 minutes, 4 exercises
#
# A network may need more memory than one device has. A device may lack a feature that one node needs. Or two devices together may finish sooner than one. The choice of a device for every node is called a **placement**.
#
# **Afterwards you can**
# * reproduce a published placement, and say what is wrong with its rule;
# * say which device can run which node, and why; find a planner that asks the wrong device;
# * find the cheapest placement on two devices with a minimum cut;
# * place and order nodes on three devices with little memory, and say how far from the best you are.
#
# **Before this lab**: labs 09, 09b, 10, 11 and 12. You need lists, dictionaries, loops. New words: [glossary](GLOSSARY.md). **Files it opens**: `vklab/plan/place/search.py`, `vklab/plan/place/placement.py`, `vklab/plan/capability.py`.

# %% id="l13-setup" tags=["hide-input", "nbval-ignore-output"]
from functools import partial

from IPython.display import display

import vklab
from vklab.plan import capability
from vklab.plan.options import Options, PlacementOptions
from vklab.plan.tuning import tune
from vklab_course import attempt, banner, check, hint, predict, show, showcase, use
from vklab_labs.lab_13 import placement as figures
from vklab_labs.lab_13 import placing_rules, spreading
from vklab_labs.lab_13.placing_rules import network, paths
from vklab_labs.lab_13.schedules import CAPS, WORK, next_steps
from vklab_labs.lab_13.second_device import second_device
from vklab_labs.lab_13.spreading import simulated_gpus
from vklab_labs.shared.swapped import run_swapped

MIB = 1 << 20
banner()

# %% id="l13-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l13-1t"
# ## 1 · A published split
# Two GPUs stand in one machine. Each has memory of its own.

# %% id="l13-1d" tags=["hide-input"]
figures.draw_roads()

# %% [markdown] id="l13-1r"
# VKML is a Vulkan runtime for networks, written in Rust. The example in its paper is a network of 15 nodes, here called conv_many. The memory of GPU 0 has a **cap**, a limit that the user sets. (VKML does not publish its channels. Ours give 259 MiB of weights, and our cap is 128 MiB.)
#
# The rule of VKML is **first fit**: take the nodes in order, and give each one to the first device, counted from GPU 0, that still has room for it. Such a rule is *greedy*: it decides one node after the other, and takes nothing back.
#
# Convolution `conv4`, the ninth node, has 196 MiB of weights, so it goes to GPU 1. The six nodes after it need 2 MiB together. On which GPU does first fit put the next node, `relu4`? And how many values cross from one GPU to the other in one run? Write a number in place of each `...`; the explanation follows your guess.

# %% id="l13-p1"
predict("13-p1", relu4_on_gpu=..., transfers=...)

# %% id="l13-split"
# vklab's policy "greedy" is first fit. A plan needs facts about a device, so the GPUs are made up.
conv_many = spreading.conv_many()
gpus = simulated_gpus(2)
greedy = spreading.place(conv_many, gpus, {0: 128 * MIB}, policy="greedy")
print("transferred:", [(move.value, move.size_bytes) for move in greedy.transfers])
print("conv4:", *greedy.reasons["conv4"].split("; "), sep="\n    ")
figures.draw_split(conv_many, greedy.devices, "First fit: 8 nodes on GPU 0, 1 on GPU 1, 6 on GPU "
                   "0. VKML publishes the same split.")

# %% [markdown] id="l13-splitr"
# The network goes to GPU 1 for one node, and comes back. Nothing forces it back: GPU 1 has room for the last six nodes. First fit never asks what a transfer costs.
#
# Where two neighbours in the list are on different devices, there is a **change**. With two devices, each change after the first is a **return** to a device that was left before. A return is *needed* only if capability (a device cannot run a node) or memory forces it. Which line of the code below starts again at the first device?

# %% id="l13-fit" tags=["nbval-ignore-output"]
show("vklab.plan.place.search.first_fit")

# %% [markdown] id="l13-e1t"
# ### Exercise 1 · No needless return
# (It is the inner `for`: for each node it walks `order` from the beginning.) Now place a list of nodes on two devices with as few changes as possible. Then every return that is left is needed. As in first fit, a node keeps its memory to the end, so the sizes on a device add up.
#
# Trying all placements is too slow: 40 nodes have 2⁴⁰ of them. What do the later nodes need to know about the first ones?

# %% id="l13-e1" vklab={"role": "exercise", "id": "13-1", "points": 5, "lines": 10}
def few_changes(nodes, caps):
    """Return a list of devices, 0 or 1, one for each node, with as few changes as possible.

    nodes: a list of (name, size, devices that can run it), sizes are whole numbers.
    caps: room of device 0, room of device 1.
    TODO     each node on a device that can run it; the sizes on a device add up to its cap at
             most. Return None if there is no such placement.
    Approach go through the nodes; for each pair (last device, size on device 0) keep one placement
             of the nodes so far, with its changes: `reached` holds them before the first node.
             All lists together have 10 seconds.
    Example  few_changes([("a", 3, (0, 1)), ("b", 5, (0, 1)), ("c", 1, (0, 1))], [4, 9])
             -> [1, 1, 1]; with caps [4, 6] -> [0, 1, 1]               (roughly 10 lines)
    """
    reached = {(None, 0): (0, [])}  # {(last device, size on device 0): (changes, devices)}
    ### BEGIN SOLUTION
    total = 0
    for _, size, able in nodes:
        further, total = {}, total + size
        for (last, used), (changes, placed) in reached.items():
            for device in able:
                key = device, used + size * (device == 0)
                more = changes + (device != last), [*placed, device]
                if key[1] <= caps[0] and total - key[1] <= caps[1]:
                    further[key] = min(further.get(key, more), more)
        reached = further
    return min(reached.values())[1] if reached else None
    ### END SOLUTION

# %% id="l13-e1d" vklab={"role": "demo"}
with attempt("13-1"):
    for caps in ([128, 300], [128, 230]):  # MiB
        mine = few_changes(spreading.weights_of(conv_many), caps)
        display(figures.draw_split(conv_many, mine, f"Your placement with {caps[0]} MiB on GPU 0 "
                                   f"and {caps[1]} MiB on GPU 1."))

# %% id="l13-e1c" vklab={"role": "check", "id": "13-1"}
check("13-1", few_changes)

# %% id="l13-e1h"
# hint("13-1")

# %% [markdown] id="l13-swapt"
# ### In the real runtime
# The next cell puts your function in the place of `first_fit`. First ResNet-50 and Inception v1 are planned for the two simulated GPUs. (Both have branches, so one change in the list may mean several transfers.)
#
# Then two small networks run on two real devices, if there are two. Where lavapipe and SwiftShader are installed, they stand for two vendors. They share the processor's cores, so they never show that two devices are faster than one.

# %% id="l13-swap" tags=["nbval-ignore-output"]
SEAM = "vklab.plan.place.search.first_fit"
little = Options(placement=PlacementOptions(policy="greedy", caps={0: 40 * MIB, 1: 200 * MIB}))
spread = {"devices": [0, 1], "policy": "greedy", "memory_caps": {0: 60_000}}
drivers = second_device()  # variables under which a process sees two devices, or None
with attempt("13-1"):
    mine, why = run_swapped(SEAM, spreading.guarded(few_changes), models=(), infos=gpus,
                            planned=("resnet50", "inception_v1"), options=little)
    print(*mine, why, sep="\n")
    mine, why = (), "one device and one driver here: nothing to run on two devices"
    if drivers is not None:
        mine, why = run_swapped(SEAM, spreading.guarded(few_changes), planned=(),
                                load=partial(vklab.load, **spread), variables=drivers)
    print(*mine, why, sep="\n")

# %% [markdown] id="l13-bothread"
# Left of `->` is first fit, right is your function. Fewer changes mean fewer chunks, and more nodes that can be fused. `arena_bytes` may grow: a value that stays on its device lies in the arena, and no longer in host memory (`host_bytes`).

# %% [markdown] id="l13-2t"
# ## 2 · Which device can run which node
# Until now both devices could run every node. Real devices differ:
#
# | | lavapipe (Mesa 22.3) | SwiftShader | NVIDIA H200 |
# |---|---|---|---|
# | `maxComputeWorkGroupInvocations`, most invocations in one workgroup | 1,024 | 256 | 1,024 |
# | `maxStorageBufferRange`, most bytes of one buffer that a kernel can bind | 128 MiB | 1 GiB | 4 GiB - 1 byte |
# | `shaderFloat16`: can it compute in float16? | yes | no | yes |
#
# **Capability partitioning** asks each device about each node, before anything is placed.

# %% id="l13-2d" tags=["hide-input"]
figures.draw_questions()

# %% [markdown] id="l13-2r"
# The weights of `conv4` are one buffer of 196 MiB. The next cell asks the runtime's own function about GPU 1, and about a device with the limit of lavapipe. An empty reason, `''`, means: it can run. In the last line, the runtime first cuts the node into several dispatches.

# %% id="l13-refusal"
small = simulated_gpus(1, name="small", limits={"maxStorageBufferRange": 128 * MIB})[0]
conv4 = next(node for node in conv_many.nodes if node.name == "conv4")
print("GPU 1:", repr(capability.refusal(conv_many, conv4, gpus[1])))
print("small:", capability.refusal(conv_many, conv4, small))
print("small, cut:", repr(capability.refusal(conv_many, conv4, small, tune=tune.adapt)))

# %% [markdown] id="l13-e2t" vklab={"id": "13-2"}
# A need that equals a limit is allowed. A node that no Vulkan device can run goes to the **host**: vklab lets ONNX Runtime compute it on the processor. (On a device without float16 vklab computes in 32 bits. The runtime below has to refuse the node.)
#
# ### What would break this?
# This planner was tested with two equal GPUs, and every test passed. Then it runs on a machine whose devices differ:
#
# ```python
# def can_run(node, device, devices):
#     first = devices[0]  # read once, used for all
#     has_features = set(node["features"]) <= set(first["features"])
#     return has_features and fits(node, first["limits"])
# ```
#
# | | invocations | largest buffer | float16 |
# |---|---|---|---|
# | device 0 | [[threads0]] | [[buffer0]] MiB | [[half0]] |
# | device 1 | [[threads1]] | [[buffer1]] MiB | [[half1]] |
#
# | node | invocations | largest buffer | needs float16 |
# |---|---|---|---|
# | P | 256 | 64 MiB | |
# | Q | 512 | 64 MiB | |
# | R | 256 | 200 MiB | |
# | S | 128 | 8 MiB | yes |
# | T | 1024 | 300 MiB | |
#
# ### Exercise 2 · The limits of device 0
# What does the planner say about each node **on device 1**? `right`: the true answer; `beyond a limit`: it says yes, and device 1 cannot run the node (a missing feature counts, too); `kept away for nothing`: it says no, and device 1 can. The check asks for all nodes at once; grading counts each node.

# %% id="l13-e2" vklab={"role": "exercise", "id": "13-2", "points": 3, "lines": 1}
on_device_1 = ...  # {"P": "right", "Q": ...}
### BEGIN SOLUTION
on_device_1 = [[right]]
### END SOLUTION

# %% id="l13-e2c" vklab={"role": "check", "id": "13-2"}
check("13-2", on_device_1)

# %% id="l13-e2h"
# hint("13-2")

# %% [markdown] id="l13-e2r"
# Beyond a limit, Vulkan promises nothing: an error, a crash, wrong numbers. A node that is kept away only makes the program slower. Equal devices hide both. In vklab the device is a parameter of the question: `refusal(graph, node, i) for i in self.devices`, in `vklab/plan/place/costs.py`.

# %% [markdown] id="l13-3t"
# ## 3 · Time: a cost for each node on each device
# The fewest changes are not always the least time. GPU 0 has 128 MiB again, and the second device is now the **CPU**, which can run everything and is slow. The next cell prints this table in microseconds. vklab guesses the times from the type of a device.
#
# `None`: the node does not fit. `0`: less than half a microsecond. The last column is the time to **move** the result to the other device (`-`: no node reads it). A move takes time for its bytes on the link of each device, and for one more submission.

# %% id="l13-cost"
mixed = simulated_gpus(2, name="CPU", type="cpu")
times, moves = spreading.prices(conv_many, mixed, {0: 128 * MIB})
after = {maker: price for (maker, _), price in moves.items()}
print("node         GPU 0       CPU    move")
for name, (on_gpu, on_cpu) in times.items():
    print(f"{name:9} {on_gpu!s:>8} {on_cpu:>9} {after.get(name, '-'):>7}")

# %% [markdown] id="l13-3p"
# Take a chain of three nodes: `a` needs 2 ms on device 0 and 9 on device 1, `b` needs 6 and 3, `c` needs 2 and 9. Each move takes 3 ms. How many ms does the chain take with each node on its fastest device? And with all on device 0?

# %% id="l13-p3"
predict("13-p3", fastest_each=..., all_on_0=...)

# %% [markdown] id="l13-cutt"
# ### A placement is a cut
# If the devices take turns, as on a chain, the time of a placement is a plain sum: each node on its device, plus each move. Then the best of all 2ⁿ placements on two devices can be found quickly, because the sum is a **cut**.

# %% id="l13-cutd" tags=["hide-input"]
figures.draw_cut()

# %% [markdown] id="l13-cutr"
# * The **source** stands for device 0, the **sink** for device 1. Each node is on one of the two sides.
# * The edge from the source to a node carries the node's time on device *1*: it is cut if the node is on the other side, and then this time is paid. The edge to the sink carries the time on device 0.
# * The edges between neighbours carry the price of a move, in both directions.
#
# Imagine the edges as pipes. What flows from source to sink passes every cut, so no flow is larger than any cut. Ford and Fulkerson proved in 1956 that the *largest flow* equals the *smallest cut*. To find it, repeat:
#
# 1. Look for a path from source to sink on which each edge still has **room**. At first, the room of an edge is its price.
# 2. Send as much as its smallest room. Each edge of the path loses this room. The opposite edges gain it, so that a later path can undo the flow.
# 3. When no path is left, the nodes that the source still reaches are on device 0, all others on device 1.
#
# In the picture, source → a → sink has room 9 and 2, so it carries 2. Then source → b → sink carries 3, and source → c → sink 2. What is left goes through b: source → a → b → sink carries 2, and source → c → b → sink 2. In all 11, as much as the cut. The source still reaches a and c, and not b.
#
# A cut knows no caps on the sum of several nodes. With three devices the problem is NP-hard.

# %% [markdown] id="l13-e3t" vklab={"id": "13-3"}
# ### Exercise 3 · The cheapest placement on two devices
# A move takes [[price]] units of time for the submission, plus a time that depends on the pair of nodes. Two functions are given. `network(times, moves, PRICE)` returns `room[start][end]`, the room of each edge; the ends are node names, `"source"` and `"sink"`, and the opposite of each edge is there, too, if only with room 0. `paths(room)` does step 1: for every end that the source reaches through edges with room, it returns the edges of a shortest path, as a list of (start, end).
#
# Trying all placements earns some of the points; 48 nodes need the cut. (A value with two readers on the other device counts as two moves here.)

# %% id="l13-e3" vklab={"role": "exercise", "id": "13-3", "points": 5, "lines": 8}
PRICE = [[price]]


def cheapest_cut(times, moves):
    """Return {name: 0 or 1}, the placement with the least sum of times and moves.

    times: {name: (time on device 0, time on device 1)}, at most one of them None: cannot run.
    moves: {(maker, reader): time}; PRICE + time is paid if the two are on different devices.
    TODO     send flow along paths(room)["sink"], until paths(room) has no "sink".
    Example  cheapest_cut({"a": (1, 99), "b": (99, 1)}, {("a", "b"): 2}) -> {"a": 0, "b": 1}
             (roughly 8 lines)
    """
    ### BEGIN SOLUTION
    room = network(times, moves, PRICE)
    found = paths(room)
    while "sink" in found:
        most = min(room[start][end] for start, end in found["sink"])
        for start, end in found["sink"]:
            room[start][end] -= most
            room[end][start] += most
        found = paths(room)
    return {name: 0 if name in found else 1 for name in times}
    ### END SOLUTION

# %% id="l13-e3d" vklab={"role": "demo"}
with attempt("13-3"):
    cut = cheapest_cut(times, moves)
    display(figures.draw_split(conv_many, cut, "Your cut of conv_many, between GPU 0 with 128 MiB "
                               "and the CPU.", names=("GPU 0", "CPU")))

# %% id="l13-e3c" vklab={"role": "check", "id": "13-3"}
check("13-3", cheapest_cut)

# %% id="l13-e3h"
# hint("13-3")

# %% [markdown] id="l13-uset"
# How many chunks does your cut need? The cutter is yours of lab 12 if it is kept in `work/mine/`, else vklab's.

# %% id="l13-use" tags=["nbval-ignore-output"]
build_chunks = use("12-1")
with attempt("13-3"):
    reads = {name: tuple(one for one, other in moves if other == name) for name in times}
    chunks = build_chunks([(name, cut[name], reads[name]) for name in times])
    print(*(f"device {device}: {len(names)} nodes" for device, names, *_ in chunks), sep="\n")

# %% [markdown] id="l13-e3r" vklab={"extra": true}
# It is VKML's split again, 8, 1 and 6 nodes! Beside a slow CPU the return pays, because the last six nodes take 5 ms on the CPU. Beside a second, equal GPU it is a waste. First fit never looks at a price.
#
# vklab's policy `"cost"` does look at prices. But where memory is short, it gives each device at most *one* run of neighbouring nodes, so that the search stays fast. Here it misses the return:

# %% id="l13-own-cost"
for policy in ("greedy", "cost"):
    placed = spreading.place(conv_many, mixed, {0: 128 * MIB}, policy).devices
    ms, _ = spreading.predicted(conv_many, mixed, placed)
    print(f"{policy:7} {ms:6.1f} ms predicted, devices", *placed.values())

# %% [markdown] id="l13-4t"
# ## 4 · Several devices at the same time
# Branches of a graph can run at the same time. Then the **makespan** counts: the time from the first start to the last end. First a graph without branches: a chain of six nodes takes 12 ms on one GPU, 2 ms for each node. A second, equal GPU is added; a move takes 1 ms. What is the least makespan of one run of the chain?

# %% id="l13-p4"
predict("13-p4", milliseconds=...)

# %% id="l13-4d" tags=["hide-input"]
figures.draw_work(WORK, "Nine nodes. Each box: ms on GPU 0, GPU 1 and CPU (- means it cannot run), "
                  "MiB of weights, and the ms to move its result to another device.")

# %% [markdown] id="l13-4r"
# A **schedule** is a list of (name, device). Each device runs its nodes in this order. A node starts when its device is free and all its inputs have arrived. A result is on its own device at once, and on another one after its time to move. A device can compute during a move. The caps for the weights are 14, 12 and 64 MiB.
#
# The next cell compares simple rules. "Contiguous split" divides the list into at most three runs, one for each device, in the best of all ways. "Fastest device" and "earliest end" choose a device for one node after the other, in the order of the list. **HEFT** (heterogeneous earliest finish time) takes the device where a node ends first, and changes the order, too: the node with the longest chain of work from it to the end of the graph comes first.

# %% id="l13-rules"
for name, ms in placing_rules.naturals(WORK, CAPS).items():
    print(f"{name:20} {ms:g} ms")
plan = placing_rules.earliest_end(WORK, CAPS, placing_rules.ranks(WORK))
figures.draw_schedule(WORK, CAPS, plan, "HEFT. Below the line: ms. An arrow is a move, from the "
                      "end of a node to the arrival of its result.")

# %% [markdown] id="l13-e4t"
# ### Exercise 4 · The shortest schedule (scored)
# Find a schedule as short as you can. `next_steps(work, caps, plan)` takes the beginning of a schedule; it returns (name, device, start, end) for every node that can come next, on every device with room.
#
# One point is for valid schedules. The other four count milliseconds, one point for each graph: first fit ("the obvious answer" in the messages) earns nothing, the least makespan earns the point, a schedule between them earns its share. Graphs have at most ten nodes; the CPU can run every node and has room for all.
#
# The judge knows the least exactly, from a search that gives up a beginning when a **bound** says that it cannot win: the *critical path* (the longest chain of fastest times that is left), or the *area* (all of them, divided by three devices).

# %% id="l13-e4" vklab={"role": "exercise", "id": "13-4", "points": 5, "lines": 10}
def makespan(work, caps):
    """Return a schedule [(name, device), ...], as short as you can.

    work: {name: (ms on each of three devices or None, MiB, ms to move its result, names of the
    nodes whose results it reads)}, in an order that works. caps: MiB of each device.
    TODO     every node once, after all that it reads, on a device that can run it; the MiB on a
             device add up to its cap at most. All graphs together have 10 seconds.
    Start    [(name, 2) for name in work] is always valid: all on the CPU.
    Example  makespan({"a": ((1, 2, 9), 3, 1, ()), "b": ((4, 2, 9), 3, 1, ("a",))}, [6, 6, 6])
             -> [("a", 0), ("b", 1)] (1 + 1 + 2 = 4 ms; so is all on GPU 1)  (roughly 10 lines)
    """
    ### BEGIN SOLUTION
    found = []

    def extend(plan, starts, ends):
        if len(plan) == len(work):
            found.append((max(ends), plan))
        for name, device, start, end in next_steps(work, caps, plan):
            # By rising starts only: other lists of the same schedule are left out.
            in_order = all(earlier <= start for earlier in starts)
            if in_order and (not found or end < min(found)[0]):
                extend([*plan, (name, device)], [*starts, start], [*ends, end])

    extend([], [], [])
    return min(found)[1]
    ### END SOLUTION

# %% id="l13-e4d" vklab={"role": "demo"}
with attempt("13-4"):
    display(figures.draw_schedule(WORK, CAPS, makespan(WORK, CAPS), "Your schedule."))

# %% id="l13-e4c" vklab={"role": "check", "id": "13-4"}
check("13-4", makespan)

# %% id="l13-e4h"
# hint("13-4")

# %% [markdown] id="l13-e4r" vklab={"extra": true}
# A real network has hundreds of nodes. vklab takes the cheapest of a few placements, and moves whole branches to other devices as long as the predicted makespan falls: `vklab/plan/place/branches.py`.

# %% [markdown] id="l13-showt" vklab={"extra": true}
# ### All your functions in one runtime
# `showcase()` runs models with all functions that you have kept so far, and writes a page about it. Beside yours stand a naive runtime and vklab's own. This takes a minute or two.

# %% id="l13-show" tags=["nbval-ignore-output"]
showcase()

# %% [markdown] id="l13-recap"
# ## Recap
# | word | what it means | mistake to avoid |
# |---|---|---|
# | first fit | the first device with room | starting again at device 0 for every node |
# | capability | features and limits of a device, asked for each node | using the limits of device 0 for all |
# | minimum cut | the cheapest placement on two devices that take turns | using it for devices that work at the same time |
# | makespan | the last end of a schedule | expecting a chain to be faster on two devices |
#
# **Next**: [lab 13b](13b_parallelism.ipynb) moves values between devices, and divides a model by data, by pipeline, by tensor.
#
# **References**
# * Ford and Fulkerson, [Maximal flow through a network](https://doi.org/10.4153/CJM-1956-045-5), 1956.
# * Stone, [Multiprocessor scheduling with the aid of network flow algorithms](https://doi.org/10.1109/TSE.1977.233840), 1977: the cut for two devices.
# * Topcuoglu, Hariri, Wu, [HEFT](https://doi.org/10.1109/71.993206), 2002.
# * VKML: [source and page](https://github.com/void-research/vkml), version 0.0.3, and `paper/paper.pdf` there (section 7: the split).
