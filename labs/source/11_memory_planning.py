# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Memory planning"
#     minutes: 80
#     before: ["09", "09b", "10"]
# ---

# %% [markdown] id="l11-title"
# # Lab 11 · Memory planning
# **Where every value of a model lies, before the model runs** · 80 minutes, 5 exercises, the last one extra
#
# U-Net, a network for medical images, computes 134 MiB of values for one picture (with fused nodes, and without Winograd's convolution). vklab runs it in 43 MiB: values that are never needed at the same time share their bytes. Who shares with whom is decided once, when the model is loaded.
#
# **Afterwards you can**
# * find the lifetime of every value, also where several names show the same bytes;
# * place values in an arena, aligned, and compare the result with a lower bound;
# * decide which results may overwrite an operand, and find one that must not;
# * test what an upper bound of a shape allows;
# * extra: fit a model under a cap on memory, and say how far from the best you are.
#
# **Before this lab**: labs 09, 09b and 10 (graph, order, live bytes, passes). New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/plan/memory.py`, `vklab/plan/arenas.py`, `vklab/plan/tuning/in_place.py`, `vklab/graph/bounds.py`.

# %% id="l11-setup" tags=["hide-input"]
from collections import Counter
from itertools import combinations

import numpy as np
from IPython.display import display

import vklab
from vklab.settings import settings
from vklab_course import attempt, banner, check, data, hint, predict, show, showcase, use
from vklab_labs.lab_06.commands import commands_of
from vklab_labs.lab_11 import memory_plans as figures
from vklab_labs.lab_11 import packing
from vklab_labs.lab_11.offload import CAP, VALUES, farthest_first, gaps_of, live_bytes, moved_bytes
from vklab_labs.shared.offsets import verified
from vklab_labs.shared.recorded_graphs import NAMES, recorded
from vklab_labs.shared.swapped import plan_recorded, run_swapped

banner()

# %% id="l11-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l11-1t"
# ## 1 · Lifetimes
# The nodes of a graph run in a fixed order. Node number `n` runs in **step** `n`. A value needs bytes from the step that writes it to the last step that reads it. That is its **lifetime**: the pair `(first, last)`.

# %% id="l11-1d" tags=["hide-input"]
figures.draw_view()

# %% [markdown] id="l11-1r"
# Two rules need care:
#
# * A **view** is another name for bytes that exist already. `Flatten` and `Reshape` change the shape of a value and none of its bytes, so the node does nothing in its step. Whoever reads the view reads the bytes of the value behind it: `Gemm` reads `f`, so `b` must live until step 3.
# * An **output** is read by the caller, after the last step. With four nodes that is step 4.
#
# ### Exercise 1 · Find the lifetimes
# An order that cannot run must not get a plan. So the given lines raise `ValueError` if a value is read before its node has run, or if two nodes write the same value. Write the rest. The cell after yours draws the 49 nodes of U-Net. Its four long bars are results of the first half that the second half reads.

# %% id="l11-e1" vklab={"role": "exercise", "id": "11-1", "points": 5, "lines": 10}
VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def find_lifetimes(nodes, outputs):
    """Return {value: (first, last)} for each value that has bytes of its own.

    nodes: a list of (operator, names that it reads, names that it writes), in the order in which
    they run; node n runs in step n. outputs: names that the caller reads in step len(nodes).
    TODO     first: the step that writes the value. last: the last step that reads the value, or a
             view of it; equal to `first` if nobody reads it. A node whose operator is in VIEWS
             lengthens no lifetime: it makes another name for the bytes of its first input.
             Not in the result: views, and values that no node writes. (An input of the graph
             may have views, and may be an output.)
    Approach for each node fill both dictionaries; after the loop, the outputs. (roughly 10 lines)
    Example  find_lifetimes([("Conv", ("x",), ("a",)), ("Flatten", ("a",), ("f",)),
                             ("Relu", ("f",), ("b",))], ["b"]) -> {"a": (0, 2), "b": (2, 3)}
    """
    lives = {}
    shows = {}  # for each name that a node has written: the value whose bytes it shows
    made = {name for _, _, writes in nodes for name in writes}
    for step, (operator, reads, writes) in enumerate(nodes):
        early = any(name in made and name not in shows for name in reads)
        if early or any(name in shows for name in writes):
            raise ValueError(f"step {step} reads too early, or writes a value again")
        ### BEGIN SOLUTION
        if operator in VIEWS:
            behind, *_ = reads
            shows |= {name: shows.get(behind, behind) for name in writes}
            continue
        for root in {shows.get(name, name) for name in reads} & lives.keys():
            lives[root] = lives[root][0], step
        for name in writes:
            shows[name], lives[name] = name, (step, step)
    for root in {shows.get(name, name) for name in outputs} & lives.keys():
        lives[root] = lives[root][0], len(nodes)
    ### END SOLUTION
    return lives


# %% id="l11-e1d" vklab={"role": "demo"}
with attempt("11-1"):
    unet = recorded("unet")
    nodes, sizes = packing.plain(unet)
    lives = find_lifetimes(nodes, unet.outputs)
    display(figures.draw_lives(lives, sizes, "The lifetimes that you found in U-Net."))

# %% id="l11-e1c" vklab={"role": "check", "id": "11-1"}
check("11-1", find_lifetimes)

# %% id="l11-e1h"
# hint("11-1")

# %% [markdown] id="l11-boundt"
# **The lower bound.** Add the bytes that are live in one step. The largest such sum, over all steps, is the **largest live set**. No smaller memory can be enough.
#
# Memory without sharing takes the sum of all sizes. For one of three networks, this sum is almost 28 times the largest live set: U-Net (a picture, 23 convolutions), ResNet-50 (a picture, 53 convolutions) or BERT (a text, twelve equal layers). Which one? Write `"unet"`, `"resnet50"` or `"bert_base"`.

# %% id="l11-p1"
predict("11-p1", network=...)

# %% id="l11-boundd" tags=["nbval-ignore-output"]
planned = {name: packing.planned_memory(name) for name in NAMES}
for name, plan in planned.items():
    print(packing.bound_text(name, sum(life.length_bytes for life in plan.lifetimes), plan))

# %% [markdown] id="l11-boundr"
# Nothing ran here: these are plans. They leave out Winograd's convolution (lab 09b), whose scratch tensors only some devices need. The runtime has fused nodes (lab 10), so its U-Net has fewer values than yours, and a smaller largest live set. On all five networks, the arena is as small as the largest live set. Section 3 asks why.

# %% [markdown] id="l11-2t"
# ## 2 · Offsets in an arena
# An **arena** is one large buffer; every value gets an **offset** in it. The runtime has arenas for weights, inputs, outputs and *activations*, which are all other values. Only activations share bytes, which is called **aliasing**.
#
# A device does not accept every offset. `minStorageBufferOffsetAlignment` is a power of two, at most 256, and each offset must be a multiple of it. vklab therefore counts each value with its size rounded up: with alignment 256, a value of 257 bytes takes 512.

# %% id="l11-2d" tags=["hide-input"]
figures.draw_alignment()

# %% [markdown] id="l11-e2t" vklab={"id": "11-2"}
# ### Exercise 2 · The lowest offset
# The values get their places one after the other. For the next one, some byte ranges are *taken*: those of all placed values whose lifetimes overlap its own. All other bytes are free. Return the lowest offset at which the value fits. The alignment is [[align]] bytes unless the call says otherwise.
#
# Two taken ranges may share bytes: one of the two values may be dead before the other is born.

# %% id="l11-e2" vklab={"role": "exercise", "id": "11-2", "points": 5, "lines": 5}
ALIGN = [[align]]


def lowest_offset(size, taken, alignment=ALIGN):
    """Return the lowest multiple of `alignment` at which `size` bytes are free.

    size: bytes of the value, not rounded up; 0 counts as 1: Vulkan binds no empty range.
    taken: a list of (first byte, byte after the last), in any order; they may share bytes.
    TODO     the offset: no byte of offset ... offset + size - 1 lies in a taken range.
    Approach go through the sorted ranges with the lowest offset that may still be free.
    Example  lowest_offset(100, [(0, 300), (1024, 2048)], alignment=256) -> 512
             lowest_offset(600, [(0, 300), (1024, 2048)], 256) -> 2048   (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    offset = 0
    for begin, stop in sorted(taken):
        if begin < offset + (size or 1):
            offset = max(offset, stop + -stop % alignment)
    return offset
    ### END SOLUTION


# %% [markdown] id="l11-e2r"
# The runtime asks for *all* offsets at once. `largest_first` makes a function with the signature of its `vklab.plan.memory.assign_offsets`: it calls your function for each value, the largest first. In the picture, a *dispatch* is a step of the runtime's plan. `cat_2` joins two values. It is born before both exist, because the runtime lets each of them write directly into its part of `cat_2`.

# %% id="l11-e2d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
show(packing.largest_first)
my_offsets = packing.largest_first(lowest_offset)
with attempt("11-2"):
    lifetimes = planned["unet"].lifetimes
    display(figures.draw_packing(lifetimes, my_offsets(lifetimes), "Your packing of U-Net. A "
                                 "box is as wide as a lifetime and as high as the bytes; its "
                                 "colour means nothing."))

# %% id="l11-e2c" vklab={"role": "check", "id": "11-2"}
check("11-2", lowest_offset)

# %% id="l11-e2h"
# hint("11-2")

# %% [markdown] id="l11-swapt"
# Now your packing goes into the real runtime. Two models run with it, in a process of their own; U-Net and BERT are only planned. No driver would report a wrong offset. So `verified` first tests every packing with the runtime's own `check_offsets`. The second attempt moves one value of your packing down by one unit of its alignment, and must be refused.

# %% id="l11-swap" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("11-2"):
    for each in (my_offsets, packing.one_unit_lower(my_offsets)):
        rows, why = run_swapped("vklab.plan.memory.assign_offsets", verified(each),
                                planned=["unet", "bert_base"],
                                variables={"VKLAB_DISABLE_PASSES": "winograd"})
        print(*rows, why, sep="\n")

# %% [markdown] id="l11-uset"
# ### What shared bytes cost
# A value that takes over the bytes of another one makes new hazards (lab 06): it must not be written while the old value is still read. The cell counts them in Inception, and the barriers that they need. `use` returns your functions of lab 06 if they are kept in `work/mine/`, else vklab's. With shared bytes there are many times more hazards, and here not one barrier more: the barriers that stand there anyway order the new hazards, too. (The three branches of lab 06 needed 6 barriers in place of 3.)

# %% id="l11-use" tags=["nbval-ignore-output"]
find_hazards, fewest_barriers = use("06-1"), use("06-2")
for words, switches in (("bytes of its own for each value", {"DISABLE_ALIASING": 1}),
                        ("shared bytes", {})):
    with settings(**switches):
        commands = commands_of(plan_recorded("inception_v1").chunks[0])
    hazards = find_hazards(commands)
    kinds = Counter(kind for *_, kind in hazards)
    print(f"{words:32}", dict(sorted(kinds.items())), len(fewest_barriers(hazards)[0]), "barriers")

# %% [markdown] id="l11-3t"
# ## 3 · The order decides
# Your function takes the lowest gap that is large enough, which is called **first fit**. *Best fit* takes the smallest such gap, *worst fit* the largest one inside the arena. More important is the order in which the values come: **by birth** (first step), **by lifetime length** (the longest first), **by size** (the largest first), or **by crowd** (the value with the most bytes alive beside it first).
#
# Five networks, packed with first fit: does the arena end at the largest live set on *all* five? Write True or False for two of the orders.

# %% id="l11-p2"
predict("11-p2", by_birth=..., by_size=...)

# %% id="l11-orders" tags=["nbval-ignore-output"]
figures.draw_orders(packing.compared(planned), "Percent by which an arena is larger than the "
                    "largest live set. Last column: the mean of 20 drawn sets of 40 values.")

# %% [markdown] id="l11-whyt"
# **Why is the order by size so good on real networks?** In the last column, with drawn sizes, every rule is above the bound. So the rule alone is not the reason. The next cell keeps the lifetimes of each network and changes the sizes: 20 times it exchanges them among the values, and 20 times it draws new ones. How often does the order by size then miss the bound? The second line counts the nodes that keep the size, and those that change it.

# %% id="l11-why" tags=["nbval-ignore-output"]
for name, plan in planned.items():
    print(packing.sizes_text(name, plan.lifetimes))

# %% [markdown] id="l11-whyr"
# For two networks the sizes are the reason. Many nodes write as many bytes as they read, and outside Inception nearly all others multiply or divide the size by 2 or 4. So in BERT and U-Net every size is a multiple of all smaller ones. When the large values have their places, the gaps are multiples of the small sizes, and the small values fill them without a rest. Inception, ShuffleNet and ResNet-50 are easy for another reason: in the step with the most live bytes, only two or three values are live.
#
# With drawn sizes the gaps have rests. Real networks can have such sizes, too: where a device convolves U-Net by Winograd's algorithm, in tiles of 4 x 4 pixels, a scratch tensor has 9/4 of the bytes of its picture. Then by size ends 11 % above the bound. By crowd still reaches it.
#
# In general, to find the smallest arena is *NP-hard*: no fast method is known. The runtime tries birth order first, because that is fast, and other orders only where it misses the bound.

# %% [markdown] id="l11-4t"
# ## 4 · In place
# Suppose that step 5, `b = Relu(a)`, is the last one that reads `a`. In step 5 both are live, so they cannot share bytes, unless the result is written *over* the operand: **in place**. Then both together take the bytes of one.

# %% id="l11-4d" tags=["hide-input"]
figures.draw_in_place()

# %% [markdown] id="l11-4r"
# A result may overwrite an operand if all of this holds:
#
# 1. The operator works **element by element**: element `i` of the result needs only element `i` of the operand.
# 2. Both have the **same size** in bytes. A larger result has no room. A smaller one, such as float32 to float16, would put element 2 where another invocation still has to read element 1.
# 3. **No later step reads the operand**, neither by its own name nor through a view, and it is no output.
# 4. The bytes **belong to the plan**: an input or a weight belongs to the caller, who may use it again.
#
# ### Exercise 3 · Who may take over
# Find the results that can be written in place. Views are already resolved: a node that read a view `f` of `b` is listed as reading `b`. The lifetimes are those of exercise 1, so an output has the last step `len(nodes)`. The cell after yours draws 60 nodes of ResNet-50.

# %% id="l11-e3" vklab={"role": "exercise", "id": "11-3", "points": 5, "lines": 4}
ELEMENTWISE = ("Add", "Mul", "Div", "Relu", "Sigmoid", "Erf")


def take_over(nodes, sizes, lives):
    """Return {result: operand} for each result that may overwrite one of its operands.

    nodes: a list of (operator, names that it reads, names that it writes); node n runs in step n,
    and an operator of ELEMENTWISE writes one value. sizes: bytes of every name.
    lives: {value: (first, last)}, without inputs and weights.
    TODO     apply the four rules. If two operands qualify, take either.
    Example  with nodes = [("Conv", ("x",), ("a",)), ("Relu", ("a",), ("b",))], all sizes equal and
             lives = {"a": (0, 1), "b": (1, 2)} -> {"b": "a"}          (roughly 4 lines)
    """
    taken = {}
    for step, (operator, reads, writes) in enumerate(nodes):
        result, *_ = writes
        ### BEGIN SOLUTION
        for name in reads if operator in ELEMENTWISE else ():
            _, last = lives.get(name, (None, None))
            if last == step and sizes[name] == sizes[result]:
                taken[result] = name
        ### END SOLUTION
    return taken


# %% id="l11-e3d" vklab={"role": "demo"}
with attempt("11-1"), attempt("11-3"):
    resnet = recorded("resnet50").window(0, 60)
    nodes, sizes = packing.plain(resnet)
    lives = find_lifetimes(nodes, resnet.outputs)
    mine = packing.merged(lives, take_over(nodes, sizes, lives))
    display(figures.draw_lives(mine, sizes, "In place: a bar is a chain of values."))

# %% id="l11-e3c" vklab={"role": "check", "id": "11-3"}
check("11-3", take_over)

# %% id="l11-e3h"
# hint("11-3")

# %% [markdown] id="l11-runt"
# The same question in the runtime. Without fusion, each `Relu` is a dispatch of its own, and in-place results save a quarter or more. With fusion, `Conv` applies the `Relu` before it writes, and only the `Add` of ResNet-50 is left to gain from.

# %% id="l11-run" tags=["nbval-ignore-output"]
for name in ("resnet50", "inception_v1", "bert_base"):
    for words, apart, mine in packing.in_place_gains(name):
        print(f"{name:14}{words:16}{apart / 2**20:4.1f} MiB -> {mine / 2**20:.1f} MiB in place")

# %% [markdown] id="l11-5t"
# ## 5 · What would break this?
# Here is the plan of a small graph. All values have the same size, so the arena is a row of equal places, its **slots**. Some results are written in place, and that is right. **One** of them overwrites a value that a later step still reads. The model runs, nothing is reported, and the result is wrong.

# %% id="l11-e4d" vklab={"role": "demo", "id": "11-4"}
figures.draw_slots("""[[plan]]""")

# %% [markdown] id="l11-e4t"
# ### Exercise 4 · Overwritten too early
# Which step overwrites which value? The value is the one whose bytes are lost, by its own name, not by the name of a view.

# %% id="l11-e4" vklab={"role": "exercise", "id": "11-4", "points": 2, "lines": 1}
overwritten = ...  # {"step": "0", "value": "a"}; the step is text, too
### BEGIN SOLUTION
overwritten = [[right]]
### END SOLUTION

# %% id="l11-e4c" vklab={"role": "check", "id": "11-4"}
check("11-4", overwritten)

# %% id="l11-e4h"
# hint("11-4")

# %% [markdown] id="l11-6t"
# ## 6 · Shapes that change
# A batch may have another size in every run. A plan needs sizes. One way out is an **upper bound**: plan for the largest batch once, and use a part of the memory for a smaller one.

# %% id="l11-6d" tags=["hide-input"]
figures.draw_bound()

# %% [markdown] id="l11-6r"
# [ExecuTorch's page](https://docs.pytorch.org/executorch/stable/backends-vulkan.html) about Vulkan says, in the edition that this course examines, that tensors can change shape *"as long as its current shape is smaller than the bounds"*. vklab has upper bounds, too. Test the sentence there, with bound 8. Which batches run? Write True or False.

# %% id="l11-p3"
predict("11-p3", batch_7=..., batch_8=..., batch_9=...)

# %% id="l11-bounds" tags=["nbval-ignore-output"]
with vklab.load(data("digits_cnn.onnx"), upper_bounds={"batch": 8}) as session:
    for batch in (7, 8, 9):
        try:
            logits = session.run({"image": np.zeros((batch, 1, 28, 28), np.float32)})["logits"]
            print(batch, "runs:", logits.shape, "arena", session.plan.memory.arena_bytes)
        except vklab.errors.ModelError as error:
            print(batch, "is refused:", error)

# %% [markdown] id="l11-boundsr"
# So the right words are *at most*. The page is off by one; the project's reference is not: a shape [cannot exceed the initial capacity](https://docs.rs/executorch-sys/latest/executorch_sys/enum.TensorShapeDynamism.html). Batch 7 and batch 8 use an arena of the same size: the price of a bound is memory for the largest case.

# %% [markdown] id="l11-7t" vklab={"id": "11-5"}
# ## 7 · Under a cap (extra)
# No packing is smaller than the largest live set. If the device has less memory than that, some value has to leave it for a while. A value can leave between two uses that are at least two steps apart. (In the step with the most live bytes, this helps only BERT and U-Net. In the other three networks, a step with that many live bytes uses every live value.)

# %% id="l11-7d" vklab={"id": "11-5"} tags=["hide-input"]
figures.draw_offload()

# %% [markdown] id="l11-7r" vklab={"id": "11-5"}
# **Offload** copies the value to the host and back. **Recompute** drops it and runs its nodes again, which also needs their inputs. Which is cheaper depends on the value and on the device. Take `relu_1`, the first long bar of U-Net, 12.25 MiB. Out and back over a bus with 25 GB/s is 1 ms. To compute it again is 3.9 GFLOP: 0.1 ms at 30 TFLOP/s, 8 ms at 0.5 TFLOP/s.

# %% [markdown] id="l11-e5t" vklab={"id": "11-5"}
# From here on, only offload, and we count bytes. A **move** `(name, step)` sends a value away after its use in this step; it is back for its next use. It costs the bytes of the value twice: out and back. A value never changes after it was written, so its copy on the host stays good: *a second move of the same value costs only the way back*.
#
# The classical rule (Belady, 1966): send away the value whose **next use is farthest** away. It is the best rule for pages of one size that cost the same. Here are nine values, with their bytes, under a cap of 24. A dot is a use, a dashed box a value that is away.

# %% id="l11-e5f" vklab={"id": "11-5"}
figures.draw_moves(VALUES, farthest_first(VALUES, CAP), CAP, "Farthest next use first.")

# %% [markdown] id="l11-e5r" vklab={"id": "11-5"}
# The rule moves 42 bytes, and 26 are enough. It ignores how large a value is, and whether the host already has a copy. On larger cases, it also keeps moves that later moves have made needless.
#
# ### Exercise 5 · The fewest bytes under a cap (scored, extra)
# Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra. Find moves that keep every step under the cap, and move as few bytes as you can. Three functions help: `live_bytes(values, moves)` lists the bytes on the device in each step, `moved_bytes(values, moves)` is the cost, and `gaps_of(values)` lists every possible move.
#
# One point is for valid moves. Two draws of 48 values give two points each: the rule above earns nothing, the fewest possible bytes earn the points, and an answer between them its share. The bound is exact: the check searches all states.

# %% id="l11-e5" vklab={"role": "exercise", "id": "11-5", "points": 5, "lines": 17}
def moves_under_cap(values, cap):
    """Return moves [(name, step), ...] that cost as few bytes as you can.

    values: {name: (bytes, steps that use it)}; the first of these steps writes the value, and it
    is live until the last one. cap: most bytes that may be on the device in any step.
    TODO     each step: a use of the value, not its last one, and its next use is at least two
             steps later. max(live_bytes(values, moves)) <= cap. All draws: 10 seconds.
    Start    farthest_first(values, cap) is always valid. Drop the moves that are not needed. Then
             try other moves, and keep the best.
    Example  {"a": (4, (0, 1, 4)), "b": (3, (1, 2)), "c": (5, (2, 3)), "d": (2, (3, 4))}, cap 9
             -> [("a", 1)], which moves 8 bytes                        (roughly 17 lines)
    """
    ### BEGIN SOLUTION
    # A state: values that are away, and values with a copy on the host that are used again.
    start, size = (frozenset(), frozenset()), {name: most for name, (most, _) in values.items()}
    ways = {start: (0, [])}  # the cheapest way to each state: cost, moves
    for step, whole in enumerate(live_bytes(values)):
        needed = {name for name, (_, uses) in values.items() if step in uses}
        idle = [name for name, last in gaps_of(values) if last == step - 1]
        over = {name for name, (_, uses) in values.items() if uses[-1] <= step}
        further = {}
        for (away, copied), (cost, moves) in ways.items():
            for count in range(len(idle) + 1):
                for leave in combinations(idle, count):
                    gone = (away | set(leave)) - needed
                    if whole - sum(map(size.get, gone)) > cap:
                        continue
                    price = cost + sum(size[n] * (1 if n in copied else 2) for n in leave)
                    state = gone, (copied | gone) - over
                    if state not in further or price < further[state][0]:
                        further[state] = price, moves + [(name, step - 1) for name in leave]
        ways = further
    return ways[start][1]
    ### END SOLUTION


# %% id="l11-e5d" vklab={"role": "demo", "id": "11-5"}
with attempt("11-5"):
    display(figures.draw_moves(VALUES, moves_under_cap(VALUES, CAP), CAP, "Your moves."))

# %% id="l11-e5c" vklab={"role": "check", "id": "11-5"}
check("11-5", moves_under_cap)

# %% id="l11-e5h" vklab={"id": "11-5"}
# hint("11-5")

# %% [markdown] id="l11-showt"
# ### All your functions in one runtime
# `showcase()` runs models with all functions that you have kept so far, and writes a page about it. Beside yours stand a naive runtime and vklab's own. This takes a minute or two.

# %% id="l11-show" tags=["nbval-ignore-output"]
showcase()

# %% [markdown] id="l11-recap"
# ## Recap
# | word | what it means | mistake to avoid |
# |---|---|---|
# | lifetime | from the writing step to the last reading step | forgetting readers through a view, and the caller |
# | largest live set | lower bound of every arena | taking the sum of all sizes for what is needed |
# | first fit, by size | the largest value first, each in the lowest gap | believing that it is best for any sizes |
# | in place | a result over its operand | overwriting what a later step, or the caller, reads |
# | upper bound | the largest size that a plan allows | "smaller than" where "at most" is meant |
# | offload, recompute | a value leaves the device between two uses | moving what need not leave |
#
# **Next**: [lab 12](12_scheduling.ipynb) cuts a plan into chunks and runs them, some of them at the same time.
#
# **References**
# * Pisarchyk and Lee, [Efficient Memory Management for Deep Neural Net Inference](https://arxiv.org/abs/2001.03288), 2020: the order by size, and the lower bound.
# * Chen et al., [Training Deep Nets with Sublinear Memory Cost](https://arxiv.org/abs/1604.06174), 2016: in-place results, and recompute as a trade.
# * Belady, *A Study of Replacement Algorithms for a Virtual-Storage Computer*, 1966.
