# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Synchronization"
#     minutes: 90
#     before: ["04", "04c"]
#     know: ["lists", "tuples", "`sorted(key=...)`"]
# ---

# %% [markdown] id="l06-title"
# # Lab 06 · Synchronization
# **Who has to wait for whom, and how to wait no more than that** · 90 minutes, 5 exercises, the last one extra
#
# A device may run two commands of a list at the same time, and does not check whether one reads what the other writes. CUDA orders the kernels of a stream by itself; in Vulkan, whoever records the list has to say so. If you say too little, a number is wrong on some machine, on some day. If you say too much, the device stands idle.
#
# **Afterwards you can**
# * tell an execution dependency from available and visible memory;
# * find every hazard in a list of commands, and place the fewest barriers, with a proof;
# * read the four masks of a barrier, name the wrong one, and say what the validation layer misses;
# * refill a staging buffer at the right time, with a fence or a timeline semaphore.
#
# **Before this lab**: labs 04 and 04c; in place of 04c, the page [The objects of seven steps](inserts/seven_steps.md) is enough. You need lists, tuples, `sorted(key=...)`. New words are in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/plan/barriers.py`, `labs/lib/shared/synchronization.py`.

# %% id="l06-setup" tags=["hide-input"]
from itertools import combinations

import numpy as np
from IPython.display import display

import vklab
from vklab.settings import settings
from vklab_course import attempt, banner, check, data, hint, predict, run_limited, show, swap
from vklab_labs.lab_06 import commands as figures
from vklab_labs.lab_06.commands import as_command, commands_of, full_barriers
from vklab_labs.shared.grouping import CAP, WORK, kept_bytes, ready
from vklab_labs.shared.synchronization import FAULTS, ask_layer, stream, three_branches

# %% id="l06-banner"
banner()

# %% id="l06-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l06-1t"
# ## 1 · Hazards
# One kernel writes an array, and the next one reads it. Three things have to happen in between.

# %% id="l06-1d" tags=["hide-input"]
figures.draw_path()

# %% [markdown] id="l06-1r"
# 1. **Execution dependency**: the second kernel begins after the first has ended.
# 2. **Available**: the written bytes have left the writer's cache.
# 3. **Visible**: the reader drops old copies from its own cache, so that it sees the new bytes.
#
# A **memory dependency** is all three. Two commands have a **hazard** if they touch the same byte and at least one of them writes it:
#
# * **RAW**, read after write: the later command reads bytes that the earlier one writes;
# * **WAR**, write after read: the later command overwrites bytes that the earlier one reads;
# * **WAW**, write after write: both write; the later value has to stay.
#
# Which of the three need all of a memory dependency, and not only its first part? Write True or False.

# %% id="l06-p1"
predict("06-p1", RAW=..., WAR=..., WAW=...)

# %% [markdown] id="l06-listt"
# ### The commands of a real model
# vklab records a model's commands once and replays them in every run. Each command is plain data: `(name, reads, writes)`. Each access is `(arena, first byte, byte after the last)`; an **arena** is one large buffer in which many values have their places. Weights are left out, because no command writes them.

# %% id="l06-list" vklab={"define": true}
def load_commands(model, feed, **switches):
    """Return the commands of a model, as vklab records them for these inputs."""
    with settings(**switches), vklab.load(model) as session:
        session.run(feed)
        return commands_of(session.plan.chunks[0])


DIGITS, VECTOR = data("digits_cnn.onnx"), np.zeros((1, 16), np.float32)
images = np.load(data("digits.npz"))["images"][:10]

# %% id="l06-listd" tags=["nbval-ignore-output"]
digits = load_commands(DIGITS, {"image": images})
figures.draw_hazards(digits, [], caption="The commands of the digits network, for ten pictures.")

# %% [markdown] id="l06-listr"
# One value after another uses the bytes from byte 0 of `activations` on, to save memory (*aliasing*). So two commands can have a hazard although no value goes from one to the other.
#
# A **barrier** with number `p` stands before command `p`. All commands before it end, and their writes are visible, before any command after it begins. It orders the hazard of command `i` and a later command `j` if it stands between the two.
#
# ### Exercise 1 · Find the hazards
# Find every hazard that no barrier orders. Compare every pair of commands, also where a command between them writes the same bytes.

# %% id="l06-e1" vklab={"role": "exercise", "id": "06-1", "points": 5, "lines": 9}
def find_hazards(commands, barriers=()):
    """Return the hazards (earlier, later, kind) that no barrier orders, in any order.

    commands: a list of (name, reads, writes); an access is (arena, first, end), and has the
    bytes first ... end - 1 of that arena. barriers: numbers p; p stands before command p.
    TODO     compare each command with each later one; kind is "RAW", "WAR" or "WAW". A pair may
             have several kinds, and then it is listed several times, once for each kind.
    Approach a helper that tells whether two lists of accesses share a byte; then three questions.
    Example  find_hazards([("a", (), (("x", 0, 4),)), ("b", (("x", 2, 8),), ())])
             -> [(0, 1, "RAW")]; with barriers=[1] -> []              (roughly 9 lines)
    """
    ### BEGIN SOLUTION
    def share(some, others):
        return any(a == b and first < other_end and other < end
                   for a, first, end in some for b, other, other_end in others)

    found = []
    for i, j in combinations(range(len(commands)), 2):
        if not any(i < number <= j for number in barriers):
            (_, reads, writes), (_, later_reads, later_writes) = commands[i], commands[j]
            pairs = {"RAW": (writes, later_reads), "WAR": (reads, later_writes),
                     "WAW": (writes, later_writes)}
            found += [(i, j, kind) for kind, pair in pairs.items() if share(*pair)]
    return found
    ### END SOLUTION


# %% id="l06-e1d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("06-1"):
    display(figures.draw_hazards(digits, find_hazards(digits), caption="Without barriers. Each bar "
            "goes down from the earlier command to the later one. The column means nothing."))

# %% id="l06-e1c" vklab={"role": "check", "id": "06-1"}
check("06-1", find_hazards)

# %% id="l06-e1h"
# hint("06-1")

# %% [markdown] id="l06-miss"
# ### A missing barrier that nobody notices
# `swap` now takes every barrier away from the real runtime. On the CPU drivers lavapipe and SwiftShader the result was right in 100 of 100 runs. A GPU may give wrong logits, or right ones until its next driver. Your function needs no device, and sees the fault:

# %% id="l06-missc" tags=["nbval-ignore-output"]
def logits_with(place_barriers):
    """Run the digits while another function places the barriers."""
    with swap("vklab.plan.barriers.find_barriers", place_barriers), vklab.load(DIGITS) as session:
        return session.run({"image": images})["logits"]


with attempt("06-1"):
    usual = vklab.plan.barriers.find_barriers
    same = np.array_equal(logits_with(lambda work, to_host=True: ()), logits_with(usual))
    print("without any barrier the logits are the same:", same)
    print("hazards that you found:", len(find_hazards(digits)))

# %% [markdown] id="l06-2t"
# ## 2 · As few barriers as possible
# At a barrier, work in progress has to end, and caches may be written out or emptied, before new work begins. On an NVIDIA H200 a very small dispatch took 0.2 microseconds, and 2.4 with a barrier before it. So one barrier should order many hazards. On the line of commands a hazard `(i, j)` is a **gap**, from command `i` to command `j`. A barrier orders every gap that it stands in.

# %% id="l06-2d" tags=["hide-input"]
figures.draw_gaps()

# %% [markdown] id="l06-2p"
# **Wait as long as you can.** Take the gap that ends first, say at command `j`. Some barrier must stand in it. The best place is its end, directly before `j`: any other place in this gap is in no more of the remaining gaps, because they all end at `j` or later. Then drop the gaps that are ordered, and repeat.
#
# **Is that the fewest?** Each gap that made you place a barrier begins where the barrier before it stands, or later. So no two of them can share a barrier, and *every* answer needs one barrier for each of them. The list of these gaps is a proof that anyone can check: `(0, 2)` and `(3, 5)` in the picture. It is as long as the list of barriers.
#
# ### Exercise 2 · Fewest barriers, with a proof
# Return both lists.

# %% id="l06-e2" vklab={"role": "exercise", "id": "06-2", "points": 5, "lines": 5}
def fewest_barriers(hazards):
    """Return (barriers, proof): numbers of barriers, and as many gaps that cannot share one.

    hazards: a list of (earlier, later, kind) in any order.
    TODO     barriers: as few as possible, so that each hazard has one with
             earlier < number <= later. proof: one (earlier, later) for each barrier; of any two,
             one begins where the other ends, or later.
    Example  fewest_barriers([(0, 2, "RAW"), (1, 3, "WAR"), (3, 5, "RAW")])
             -> ([2, 5], [(0, 2), (3, 5)])                            (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    barriers, proof = [], []
    for earlier, later, _ in sorted(hazards, key=lambda hazard: hazard[1]):
        if not barriers or barriers[-1] <= earlier:
            barriers.append(later)
            proof.append((earlier, later))
    return barriers, proof
    ### END SOLUTION


# %% id="l06-e2d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("06-1"), attempt("06-2"):
    hazards = find_hazards(digits)
    display(figures.draw_hazards(digits, hazards, *fewest_barriers(hazards), caption="With your "
            "barriers (green): each hazard has one. The filled bars are your proof."))

# %% id="l06-e2c" vklab={"role": "check", "id": "06-2"}
check("06-2", fewest_barriers)

# %% id="l06-e2h"
# hint("06-2")

# %% [markdown] id="l06-swapt"
# Now your two functions place the barriers of the real runtime. `full_barriers` makes barriers from your numbers, and adds the last one for the host, which section 4 explains. vklab's own function reads the list once, and at each barrier it forgets what it has seen. Why may it? Its docstring gives the reason.

# %% id="l06-swap" tags=["nbval-ignore-output"]
def my_barriers(work, to_host=True):
    """Answer the runtime's question with your two functions."""
    commands = [as_command(access) for access in work]
    mine = full_barriers(fewest_barriers(find_hazards(commands))[0], len(commands))
    for name, barriers in (("yours", mine), ("vklab", usual(work, to_host))):
        print(name, "before", [each.before for each in barriers])
    return mine


with attempt("06-1"), attempt("06-2"):
    print("the same logits:", np.array_equal(logits_with(my_barriers), logits_with(usual)))
show("vklab.plan.barriers.find_barriers")

# %% [markdown] id="l06-branch"
# ### The order decides
# The digits are a chain. This network has three branches of three products; its last command, `c2`, also adds the three results. The next cell writes `|` for a barrier.

# %% id="l06-branchd" tags=["nbval-ignore-output"]
with attempt("06-1"), attempt("06-2"):
    for words, switches in (("one branch after the other", {"DISABLE_REORDER": 1}),
                            ("vklab's own order", {})):
        listed = load_commands(three_branches(), {"x": VECTOR}, **switches)
        barriers, _ = fewest_barriers(find_hazards(listed))
        print(f"{words:27}", *("| " * (n in barriers) + listed[n][0] for n in range(len(listed))))

# %% [markdown] id="l06-e2r"
# Another order of the same work needs 6 barriers in place of 8. And memory that you save costs barriers: in both orders, 15 of the 23 hazards exist only because values share bytes. If each value had bytes of its own, three barriers would be enough in vklab's order: before `a1`, `a2` and `c2`.

# %% [markdown] id="l06-3t"
# ## 3 · Four masks, and a layer that reads them
# Until now, a barrier ordered everything. The real calls, `vkCmdPipelineBarrier` and the newer `vkCmdPipelineBarrier2`, have four masks.

# %% id="l06-3d" tags=["hide-input"]
figures.draw_masks()

# %% [markdown] id="l06-3r"
# Here, *stages* are `compute_shader` (kernels), `transfer` (copies) and `host`. *Accesses* are `shader_read` and `shader_write` (storage buffers), `transfer_read`, `host_read`, and so on; `0` means none.
#
# The bug that is hardest to see has **right stages and wrong access masks**: `shader_read` instead of `shader_write` on the source side. The kernels run in the right order, and a GPU with separate caches may still show old bytes.
#
# ### Ask the validation layer
# The **validation layer** stands between program and driver and reads every call. Its *synchronization validation*, which must be switched on, follows the accesses and barriers of each command buffer. Layers since 2024 look at the accesses of kernels only if `shader_accesses_heuristic` is on, as in the next cell. Does the layer see wrong access masks, too?

# %% id="l06-layer" tags=["nbval-ignore-output"]
for fault in FAULTS:
    asked = run_limited(ask_layer, fault, seconds=60)
    print(f"{fault:22} {asked.value or asked.message}")

# %% [markdown] id="l06-layert"
# Compare the last two lines. Without the layer, use these numbers, from lavapipe and versions 1.3.239 and 1.4.309: 5 RAW and 3 WAR without barriers, 5 RAW with the wrong masks. The stages are right, so the WAR hazards are gone; the masks are wrong, so every RAW is left.
#
# **What synchronization validation misses.** A silent layer is no proof:
#
# | fault | reported? | source |
# |---|---|---|
# | RAW, WAR of two kernels in one command buffer | yes; by 1.4.309 only with the heuristic | measured: with its default it is silent about the missing barriers above |
# | WAW of two kernels in one command buffer | no, on purpose | tried when this lab was written; the layer's source |
# | hazards between two submissions | not by 1.3.239; by 1.4.309 with the heuristic | measured |
# | writes and reads of the host through a pointer | no | guide: host accesses are not tracked |
# | two buffers bound to the same memory | not always | guide: aliasing |
# | two invocations of one dispatch | no | it reads commands, not the run of a kernel |
#
# ### Exercise 3 · Name the wrong mask
# Each row has two commands and the barrier between them. *At most one* thing in a row is wrong. Two rules help: the host's reads need a barrier to `host`, also if the host has waited for a fence; and `vkQueueSubmit` itself makes earlier writes of the host visible to the device.

# %% [markdown] id="l06-e3t" vklab={"id": "06-3"}
# | row | what happens | source stage / access | target stage / access |
# |---|---|---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
#
# Choose for each: `right`; `source stage`, `source access`, `target stage` or `target access` (that one is wrong); `not needed` (there is no hazard, or another rule already takes care of it). The check asks for all rows at once; grading counts each row.

# %% id="l06-e3" vklab={"role": "exercise", "id": "06-3", "points": 3, "lines": 1}
masks = ...  # {"A": "right", "B": ...}
### BEGIN SOLUTION
masks = [[right]]
### END SOLUTION

# %% id="l06-e3c" vklab={"role": "check", "id": "06-3"}
check("06-3", masks)

# %% id="l06-e3h"
# hint("06-3")

# %% [markdown] id="l06-4t"
# ## 4 · The host waits, too
# Barriers order commands on the device. For the host there are two objects.
#
# * A **fence** is one bit. The device sets it when a submission has ended, and the host waits for it. To use it again, the host resets it.
# * A **timeline semaphore** (Vulkan 1.2) is a number that only grows. Host and device can both set it, and both can wait until it has reached a value. If copies end in their order, and each one adds 1, then whoever waits for 5 knows that five copies are over. Two *queues* can wait for each other, too (lab 12b).
#
# **Host visibility**: a fence says *ended* and *available*, not yet *visible to the host*. The last barrier of the list, from `compute_shader` or `transfer` to `host`, says that. (Memory that is not *coherent* also needs a flush or an invalidate, see lab 03.)
#
# ### A staging buffer, refilled too early
# The host writes piece 0 into a **staging buffer** (the device copies from it), submits copy 0, writes piece 1 into the same buffer, submits copy 1. The device runs copy 0 when it likes:

# %% id="l06-4d" tags=["hide-input"]
figures.draw_refill()

# %% [markdown] id="l06-linet"
# The device of the next function is as lazy as Vulkan allows, on *every* driver: each copy waits, on the device, for a timeline called `go`. `device.wait(value)` raises `go` to the value, and then waits until the timeline of the copies has reached it. So a copy runs only when the host waits for it. A wrong wait may never end; `run_limited` ends it.

# %% id="l06-line" tags=["nbval-ignore-output"]
show("vklab_labs.shared.synchronization.stream")

# %% id="l06-bug"
for words, plan in (("refilled at once", [(0, 0), (0, 0)]),
                    ("waits for value 1", [(0, 0), (0, 1)])):
    sent = run_limited(stream, [256, 256], 256, plan, seconds=30)
    print(f"{words:18} pieces arrive as {sent.value or sent.message}")

# %% [markdown] id="l06-bugr"
# Refilled at once, piece 0 arrives as piece 1, on lavapipe and on SwiftShader. Without `go`, an idle device hides it. The repair is one number: copy 0 sets the timeline to 1, and the host waits for 1. With a fence, it is one more `fence.wait()` before `write 1`.

# %% [markdown] id="l06-e4t" vklab={"id": "06-4"}
# ### Exercise 4 · A staging ring
# With a **ring** host and device work at the same time: each piece follows the one before it, or goes to offset 0 if it does not fit before the end. Copy `k` (the first is 0) sets the timeline to `[[step]] * (k + 1)`, and copies end in their order. Before it writes a piece, the host waits until no copy still reads those bytes, and no longer than that.

# %% id="l06-e4" vklab={"role": "exercise", "id": "06-4", "points": 4, "lines": 8}
STEP = [[step]]


def ring_plan(sizes, ring):
    """Return (offset, value) for each piece: its place, and the value to wait for before writing.

    sizes: bytes of each piece, at least 1, at most `ring`; ring: bytes of the ring.
    TODO     offset: after the piece before it; 0 for the first, and where it does not fit.
             value: that of the last earlier copy which reads a byte of this place; 0 if there is
             none. (A smaller value is right, too, if an earlier wait has made it safe.)
    Example  ring_plan([4, 4, 4], 8) -> [(0, 0), (4, 0), (0, STEP)]     (roughly 8 lines)
    """
    ### BEGIN SOLUTION
    plan, free = [], 0
    for number, size in enumerate(sizes):
        start = free if free + size <= ring else 0
        free = start + size
        value = 0
        for k in range(number):
            if plan[k][0] < free and start < plan[k][0] + sizes[k]:
                value = STEP * (k + 1)
        plan.append((start, value))
    return plan
    ### END SOLUTION


# %% id="l06-e4d" vklab={"role": "demo"}
with attempt("06-4"):
    sizes = [96, 96, 32, 64, 128, 32, 200]
    mine = ring_plan(sizes, 256)
    sent = run_limited(stream, sizes, 256, mine, STEP, seconds=30)
    print("pieces arrive as", sent.value or sent.message)
    display(figures.draw_ring(sizes, 256, mine, sent.value or [], "Your ring."))

# %% id="l06-e4c" vklab={"role": "check", "id": "06-4"}
check("06-4", ring_plan)

# %% id="l06-e4h"
# hint("06-4")

# %% [markdown] id="l06-5t" vklab={"id": "06-5"}
# ## 5 · Order and barriers together (extra)
# Now order and memory are yours. A list is cut into **groups**. Inside a group nothing is ordered; between two groups stands a barrier. So a command may only read what *earlier* groups wrote.
#
# Few groups mean many results at the same time. A result is **live** from the group that writes it to the last group that reads it; a result that nobody reads is an output of the model and stays live to the end. The live bytes of a group must not exceed a **cap**. Only the sum counts here, not the places.

# %% id="l06-5d" vklab={"id": "06-5"} tags=["hide-input"]
figures.draw_groups(WORK, [["a"], ["b", "c", "d"], ["e"], ["f"], ["g"], ["h"]], CAP,
            "The order as given, cut only where it must be: six groups, five barriers. A box says "
            "the bytes of its result and what it reads. Below: bytes kept + bytes of the group.")

# %% [markdown] id="l06-5r" vklab={"id": "06-5"}
# ### Exercise 5 · Groups under a cap (scored, extra)
# Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra. Find as few groups as you can, for any list. Two functions help: `ready(work, done)` returns the commands that are not done and whose inputs are; `kept_bytes(work, done)` adds the results of `done` that are still live.
#
# A natural answer is *list scheduling*: fill a group with ready commands until none fits, then begin the next. It often needs fewer groups than the order as given. But to fill a group now may keep bytes from a group later. It can even get stuck, with no room for any command: in the example below with cap 6, `a` and `c` fill the memory, and `b` never fits.
#
# One point is for valid groups. The other four count groups, one point for each list: the order as given earns nothing, the fewest possible groups earn the point, and an answer between them earns its share. Lists have at most ten commands.

# %% id="l06-e5" vklab={"role": "exercise", "id": "06-5", "points": 5, "lines": 12}
def groups_under_cap(work, cap):
    """Return the commands in groups, as few groups as you can: [["a", "c"], ["b"], ...].

    work: {name: (bytes of its result, names of the commands whose results it reads)}, in an
    order that works. cap: most bytes that may be live.
    TODO     every command once, no empty group; each reads only from earlier groups; for each
             group, kept_bytes(work, all before it) + the bytes of its own results <= cap.
             All lists together have 10 seconds.
    Start    [[name] for name in work] is always valid. Which groups can be one?
    Example  with work = {"a": (4, ()), "b": (2, ("a",)), "c": (2, ())}:
             cap 8 -> [["a", "c"], ["b"]]; cap 6 -> [["a"], ["b"], ["c"]]   (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    reached = {frozenset(): []}  # commands that are done: one way to them, in groups
    while frozenset(work) not in reached:
        further = {}
        for done, groups in reached.items():
            room, able = cap - kept_bytes(work, done), ready(work, done)
            for count in range(len(able)):
                for group in combinations(able, count + 1):
                    if sum(work[name][0] for name in group) <= room:
                        further.setdefault(done | set(group), [*groups, list(group)])
        reached = further
    return reached[frozenset(work)]
    ### END SOLUTION


# %% id="l06-e5d" vklab={"role": "demo", "id": "06-5"}
with attempt("06-5"):
    display(figures.draw_groups(WORK, groups_under_cap(WORK, CAP), CAP, "Your groups."))

# %% id="l06-e5c" vklab={"role": "check", "id": "06-5"}
check("06-5", groups_under_cap)

# %% id="l06-e5h" vklab={"id": "06-5"}
# hint("06-5")

# %% [markdown] id="l06-e5r"
# vklab orders a plan by **list scheduling**: fill a group with commands whose inputs are ready until none fits, then begin the next. It takes the longest chain first, under the memory that one branch after the other would take: `vklab/plan/tuning/layers.py`. That gave the second order of section 2.

# %% [markdown] id="l06-6t"
# ## 6 · What would break this?
# This function gives each piece a slot of its own, in turn. On its author's fast device every piece arrived. Now it meets the lazy device of section 4, with six pieces and two slots. How many of the six arrive as they were sent?

# %% id="l06-planted"
def slots_in_turn(count, slots, size):
    """Return (offset, value): piece k goes to slot k % slots, after the slot's last copy."""
    return [(k % slots * size, max(0, k - slots)) for k in range(count)]


# %% id="l06-p4"
predict("06-p4", right_pieces=...)

# %% id="l06-plantedd"
sent = run_limited(stream, [64] * 6, 128, slots_in_turn(6, 2, 64), seconds=30)
print("pieces arrive as", sent.value or sent.message)

# %% [markdown] id="l06-tools"
# ### Tools that show it
# These tools show what a device *did* in one run; a hazard that did no harm in it does not show. [RenderDoc](https://renderdoc.org/docs/in_application_api.html) (the bytes of each buffer after each command), [Nsight Systems](https://developer.nvidia.com/blog/nvidia-nsight-systems-adds-vulkan-support/) (a timeline of host and queues; NVIDIA) and [RGP](https://gpuopen.com/manuals/rgp_manual) (when each piece of work ran; AMD) see Vulkan compute. Apple's Instruments sees the Metal commands that [MoltenVK](https://ulrik.is/writing/using-metal-frame-capture-with-moltenvk/) makes of it. [PIX](https://devblogs.microsoft.com/pix/changes-to-the-capture-experience/) sees Direct3D 12 only, and Nsight Compute CUDA only.

# %% [markdown] id="l06-recap"
# ## Recap
# | word | what it orders | mistake to avoid |
# |---|---|---|
# | memory dependency | one command after another, and the bytes between their caches | right stages with wrong access masks |
# | barrier | commands of one queue | one after every command; none because the test passed |
# | fence | the host after a submission | refilling what a copy may still read |
# | timeline semaphore | host and device, or two queues, by a growing number | waiting for one copy less |
# | host visibility | the host's reads after the device's writes | a fence without the barrier to `host` |
# | validation layer | nothing: it reports | believing that no message means no fault |
#
# **Next**: [lab 07](07_subgroups.ipynb) looks inside one workgroup, where barriers order invocations.
#
# **References**
# * Vulkan specification, [Synchronization and Cache Control](https://docs.vulkan.org/spec/latest/chapters/synchronization.html); Khronos' [synchronization examples](https://github.com/KhronosGroup/Vulkan-Docs/wiki/Synchronization-Examples).
# * The layer's own [guide, with its known limitations](https://github.com/KhronosGroup/Vulkan-ValidationLayers/blob/main/docs/syncval_usage.md).
# * NVIDIA, [Vulkan Dos and Don'ts](https://developer.nvidia.com/blog/vulkan-dos-donts), which VKML's documentation recommends.
# * The gap that ends first, and why that is best: Kleinberg and Tardos, *Algorithm Design*, 2005, section 4.1 (interval scheduling).
