# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Synchronization", minutes: 90}
# ---

# %% [markdown] id="l06-title"
# # Lab 06 · Synchronization
# **Who has to wait for whom, and how to wait no more than that** · 90 minutes, 5 exercises; the last one, about 20 minutes, may wait for another day
#
# A device may run two commands of a list at the same time, or finish them in another order. It does not look whether one reads what the other writes. Whoever records the list has to say so. If you say too little, a number is wrong on some machine, on some day. If you say too much, the device stands idle.
#
# **Afterwards you can**
# * tell an execution dependency from available and visible memory;
# * find every hazard in a list of commands, and place the fewest barriers, with a proof;
# * read the four masks of a barrier, and name the wrong one;
# * refill a staging buffer at the right time, with a fence or a timeline semaphore;
# * say what the validation layer sees, and what it misses;
# * order commands under a cap on memory, and say how far from the best you are.
#
# **Before this lab**: lab 04. You need lists, tuples, `sorted(key=...)`. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/plan/barriers.py`, `vklab/vulkan/command.py`, `vklab/vulkan/sync.py`.

# %% id="l06-setup"
from collections import Counter
from itertools import combinations

import numpy as np
from IPython.display import display

import vklab
from vklab.course import attempt, banner, check, data, hint, predict, run_limited, show, swap
from vklab.course.figures import commands as figures
from vklab.course.figures.commands import as_command, commands_of, full_barriers
from vklab.course.labs.synchronization import FAULTS, ask_layer, stream, three_branches
from vklab.settings import settings

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
# A **memory dependency** is all three. Vulkan lets you ask for the first alone, because there are three cases. Two commands have a **hazard** if they touch the same byte, at least one writes, and their order is not fixed:
#
# * **RAW**, read after write: the later command reads what the earlier one writes;
# * **WAR**, write after read: the later command overwrites what the earlier one reads;
# * **WAW**, write after write: both write; the later value has to stay.
#
# Which of the three need available and visible memory, and not only an execution dependency? Write True or False in place of each `...`; the explanation follows your guess.

# %% id="l06-p1"
predict("06-p1", RAW=..., WAR=..., WAW=...)

# %% [markdown] id="l06-listt"
# ### The commands of a real model
# vklab records a model's commands once and replays them in every run. The next cell takes that list from a loaded model. Each command is plain data: `(name, reads, writes)`. Each access is `(arena, first byte, byte behind the last)`; an **arena** is one large buffer in which many values have their places. Weights are left out, because no command writes them.

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
# Look at `activations 0:`. One value after another uses these bytes, to save memory (*aliasing*). So commands that have no value in common can have a hazard.
#
# A **barrier** with number `p` stands before command `p`. All commands before it end, and their writes are visible, before any command behind it begins. It orders command `i` and a later command `j` if it stands between them.
#
# ### Exercise 1 · Find the hazards
# Write the function that finds every hazard that no barrier orders. Compare every pair of commands, also where a command between them writes the same bytes.

# %% id="l06-e1" vklab={"role": "exercise", "id": "06-1", "points": 5, "lines": 9}
def find_hazards(commands, barriers=()):
    """Return the hazards (earlier, later, kind) that no barrier orders, in any order.

    commands: a list of (name, reads, writes); an access is (arena, first, behind), and has the
    bytes first ... behind - 1 of that arena. barriers: numbers p; p stands before command p.
    TODO     compare each command with each later one; kind is "RAW", "WAR" or "WAW". A pair may
             have several kinds, and then it is listed several times, once for each kind.
    Approach a helper that tells whether two lists of accesses share a byte; then three questions.
    Example  find_hazards([("a", (), (("x", 0, 4),)), ("b", (("x", 2, 8),), ())])
             -> [(0, 1, "RAW")]; with barriers=[1] -> []              (roughly 9 lines)
    """
    ### BEGIN SOLUTION
    def share(some, others):
        return any(a == b and first < behind_other and other < behind
                   for a, first, behind in some for b, other, behind_other in others)

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
    hazards = find_hazards(digits)
    display(figures.draw_hazards(
        digits, hazards, caption="Before: a bar for each hazard that you found."))

# %% id="l06-e1c" vklab={"role": "check", "id": "06-1"}
check("06-1", find_hazards)

# %% id="l06-e1h"
# hint("06-1")

# %% [markdown] id="l06-miss"
# ### A missing barrier that nobody notices
# `swap` now takes every barrier away from the real runtime, and the digits are read once more. Does the result change? On the CPU drivers lavapipe and SwiftShader it was right in 100 of 100 runs. A GPU may give wrong logits, or right ones until its next driver. So a right result proves nothing here. Your function needs no device, and sees the fault:

# %% id="l06-missc" tags=["nbval-ignore-output"]
def logits_with(place_barriers):
    """Run the digits while another function places the barriers."""
    with swap("vklab.plan.barriers.find_barriers", place_barriers), vklab.load(DIGITS) as session:
        return session.run({"image": images})["logits"]


with attempt("06-1"):
    usual = vklab.plan.barriers.find_barriers
    same = np.array_equal(logits_with(lambda work, to_host=True: ()), logits_with(usual))
    print("without any barrier the logits are the same:", same)
    print("hazards that you found:", dict(Counter(kind for _, _, kind in find_hazards(digits))))

# %% [markdown] id="l06-2t"
# ## 2 · As few barriers as possible
# A barrier costs time: work in progress has to end, and caches are written out, before new work begins. On an NVIDIA H200 a dispatch took 0.2 microseconds, and a barrier 2.4. So a barrier should serve many hazards. Think of the list as a line. A hazard `(i, j)` is a **gap**, from command `i` to command `j`. One barrier serves every gap that it stands in.

# %% id="l06-2d" tags=["hide-input"]
figures.draw_gaps()

# %% [markdown] id="l06-2p"
# **Wait as long as you can.** Take the gap that ends first, say at command `j`. Some barrier must stand in it. The best place is its end, directly before `j`: any other place in this gap serves no more of the remaining gaps, because they all end at `j` or later. Then drop the gaps that are served, and repeat.
#
# **Is that really the fewest?** Look at the gaps that made you place a barrier. Each begins where the barrier before it stands, or later. So no two of them can share a barrier, and *every* answer needs one barrier for each of them. The list of these gaps is a proof that anyone can check, without running your code: `(0, 2)` and `(3, 5)` in the picture. It must be as long as the list of barriers.
#
# ### Exercise 2 · Fewest barriers, with a proof
# Return both lists.

# %% id="l06-e2" vklab={"role": "exercise", "id": "06-2", "points": 5, "lines": 5}
def fewest_barriers(hazards):
    """Return (barriers, proof): numbers of barriers, and as many gaps that cannot share one.

    hazards: a list of (earlier, later, kind) in any order.
    TODO     barriers: as few as possible, so that each hazard has one with
             earlier < number <= later. proof: one (earlier, later) for each barrier; of any two,
             one begins where the other ends, or behind it.
    Approach sort; place a barrier only where the hazard at hand has none; note why you placed it.
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


# %% [markdown] id="l06-branch"
# The digits are a chain: each command needs the one before. A network with branches has more freedom. This one has three branches of three products, and a sum at the end. First vklab finishes one branch before the next begins.

# %% id="l06-e2d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("06-1"), attempt("06-2"):
    for words, switches in (("one branch after the other", {"DISABLE_REORDER": 1}),
                            ("vklab's own order", {})):
        listed = load_commands(three_branches(), {"x": VECTOR}, **switches)
        hazards = find_hazards(listed)
        barriers, proof = fewest_barriers(hazards)
        display(figures.draw_hazards(listed, hazards, barriers, proof, caption=f"After, {words}: "
                f"{len(barriers)} barriers (green). A dashed hazard has a barrier; the filled ones "
                "are your proof."))

# %% id="l06-e2c" vklab={"role": "check", "id": "06-2"}
check("06-2", fewest_barriers)

# %% id="l06-e2h"
# hint("06-2")

# %% [markdown] id="l06-e2r"
# Two things to see. Another order of the same work needs fewer barriers. And many of the hazards are WAR and WAW, which exist only because values share bytes: memory that you save costs barriers. Section 5 looks for the best of both.
#
# Now your two functions place the barriers of the real runtime. The one barrier more is for the host, which section 4 explains.

# %% id="l06-swap" tags=["nbval-ignore-output"]
def my_barriers(work, to_host=True):
    """Answer the runtime's question with your two functions."""
    commands = [as_command(access) for access in work]
    return full_barriers(fewest_barriers(find_hazards(commands))[0], len(commands))


with attempt("06-1"), attempt("06-2"):
    print("the same logits:", np.array_equal(logits_with(my_barriers), logits_with(usual)))
show("vklab.plan.barriers.find_barriers")

# %% [markdown] id="l06-3t"
# ## 3 · Four masks, and a layer that reads them
# `vkCmdPipelineBarrier` does not say "everything before, everything behind". It has four masks.

# %% id="l06-3d" tags=["hide-input"]
figures.draw_masks()

# %% [markdown] id="l06-3r"
# Here, *stages* are `compute_shader` (kernels), `transfer` (copies) and `host`. *Accesses* are `shader_read`, `shader_write`, `transfer_read`, `host_read`, and so on; `0` means none.
#
# The bug that is hardest to see has **right stages and wrong access masks**: `shader_read` instead of `shader_write` on the source side. The kernels run in the right order, and a GPU with separate caches may still show old bytes. Tests pass, and every barrier seems to be in place.
#
# ### Ask the validation layer
# The **validation layer** stands between program and driver and reads every call. Its *synchronization validation*, which must be switched on, follows the accesses and barriers of each command buffer. Before you run it: which of these faults does it report? `race_in_kernel` means two invocations of one dispatch that write the same element; `host_refill` means a host that writes through a pointer while a copy may still read.

# %% id="l06-p2"
predict("06-p2", no_barrier=..., wrong_masks=..., host_refill=..., race_in_kernel=...)

# %% id="l06-layer" tags=["nbval-ignore-output"]
for fault in FAULTS:
    asked = run_limited(ask_layer, fault, seconds=60)
    print(f"{fault:22} {asked.value or asked.message}")

# %% [markdown] id="l06-layert"
# Compare the last two lines, or, without the layer, these: with version 1.3.239 and lavapipe it reports 5 RAW and 3 WAR without barriers, and 5 RAW with the wrong masks. The stages are right, so the WAR hazards are gone; the masks are wrong, so every RAW is left. (The layer reports one hazard for each buffer of a command, so it counts fewer than you.)
#
# **What the layer misses.** A silent layer is no proof:
#
# | fault | reported? | where that is said |
# |---|---|---|
# | RAW, WAR inside one command buffer | yes | its guide, and the cell above |
# | writes and reads of the host through a pointer | no | its guide: host accesses are not tracked |
# | two buffers bound to the same memory | not properly | its guide: aliasing |
# | two invocations of one dispatch | no | it reads commands, not the run of a kernel |
# | WAW of two kernels; hazards between command buffers or submissions | not by 1.3.239; newer versions check submissions, too | measured here; its guide |
#
# ### Exercise 3 · Name the wrong mask
# What happens, and the barrier between the two, as stage / access on each side. In each row *at most one* thing is wrong. Two rules from lab 04 help: the host's reads need a barrier to `host`, also if the host has waited for a fence; and `vkQueueSubmit` itself makes earlier writes of the host visible to the device.

# %% [markdown] id="l06-e3t" vklab={"id": "06-3"}
# | row | what happens | source | target |
# |---|---|---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
# | F | [[f]] |
#
# Choose for each: `right`; `source stage`, `source access`, `target stage` or `target access` (that one is wrong); `not needed` (there is no hazard, or another rule already takes care of it).

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
# Barriers order commands on the device. The host runs beside it, and needs objects of its own.
#
# * A **fence** is one bit. The device sets it when a submission has ended, and the host waits for it. To use it again, the host resets it.
# * A **timeline semaphore** (Vulkan 1.2) is a number that only grows. Host and device can both set it, and both can wait until it has reached a value. One timeline can replace a hundred fences: copy 7 sets it to 7, and whoever waits for 5 knows that copies 1 to 5 are over.
#
# **Host visibility**: a fence says *ended* and *available*, not yet *visible to the host*. The last barrier of the list, from `compute_shader` or `transfer` to `host`, says that. In the other direction nothing is needed: `vkQueueSubmit` makes everything visible that the host wrote before it. (Memory that is not *coherent* also needs a flush or an invalidate, see lab 03.)
#
# ### A staging buffer, refilled too early
# A **staging buffer** is memory that the host writes and the device copies from. The host writes piece 1 into it, submits a copy, writes piece 2 into the same buffer, submits a copy. The device runs the first copy when it likes:

# %% id="l06-4d" tags=["hide-input"]
figures.draw_refill()

# %% [markdown] id="l06-4p"
# What arrives as the first and as the second piece, if the device is as slow as in the picture? Write 1 or 2.

# %% id="l06-p3"
predict("06-p3", first=..., second=...)

# %% [markdown] id="l06-linet"
# The next cell shows a wrapper for timeline semaphores, and a function that sends pieces. Its device is as lazy as Vulkan allows, on *every* driver: each copy waits, on the device, for a second timeline called `go`, and the host raises `go` only for copies that it is about to wait for. A fence covers the last submission. What may wait for ever runs in a child process with a time limit: that is `run_limited`.

# %% id="l06-line" tags=["nbval-ignore-output"]
display(show("vklab.course.labs.synchronization.Timeline"))
show("vklab.course.labs.synchronization.stream")

# %% id="l06-bug"
for words, plan in (("refilled at once", [(0, 0), (0, 0)]),
                    ("waits for value 1", [(0, 0), (0, 1)])):
    sent = run_limited(stream, [256, 256], 256, plan, seconds=30)
    print(f"{words:18} pieces arrive as {sent.value or sent.message}")

# %% [markdown] id="l06-bugr"
# This planted bug is wrong every time, on every driver. Without `go` it would depend on the moment: a busy device shows it, an idle one hides it. The repair is one number. With a fence instead, it is one more `fence.wait()` before `write 2`.
#
# Two *queues* wait for each other in the same way: one queue's submission sets a value, the other's waits for it. A CPU driver has a single queue; on a device with several, lab 12 does that.

# %% [markdown] id="l06-e4t" vklab={"id": "06-4"}
# ### Exercise 4 · A staging ring
# One buffer, refilled after each wait, makes host and device take turns. With a **ring** they work at the same time: each piece goes behind the one before it, or to offset 0 if it does not fit before the end. Copy `k` (the first is 0) sets the timeline to `[[step]] * (k + 1)`, and copies end in their order. Before it writes a piece, the host waits until no copy still reads those bytes, and not a value longer. (vklab's own ring, in `vklab/runtime/many/device_copies.py`, has slots of one size; yours has pieces of any size.)

# %% id="l06-e4" vklab={"role": "exercise", "id": "06-4", "points": 4, "lines": 8}
STEP = [[step]]


def ring_plan(sizes, ring):
    """Return (offset, value) for each piece: its place, and the value to wait for before writing.

    sizes: bytes of each piece, at least 1, at most `ring`; ring: bytes of the ring.
    TODO     offset: behind the piece before it; 0 for the first, and where it does not fit.
             value: the smallest that is safe; 0 if no earlier copy reads these bytes.
    Approach keep the places of all pieces; which earlier ones share a byte with the new one?
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
    display(figures.draw_ring(sizes, 256, mine, "Your ring. Red would be outside of it."))
    sent = run_limited(stream, sizes, 256, mine, STEP, seconds=30)
    print("every piece arrives as it was sent:", sent.value == [[n + 1] for n in range(len(sizes))])

# %% id="l06-e4c" vklab={"role": "check", "id": "06-4"}
check("06-4", ring_plan)

# %% id="l06-e4h"
# hint("06-4")

# %% [markdown] id="l06-5t"
# ## 5 · Order and barriers together
# In section 2 the order was fixed, and the memory, too. Now both are yours. A list is cut into **groups**. Inside a group nothing is ordered; between two groups stands a barrier. So a command may only read what *earlier* groups wrote.
#
# Few groups mean many results at the same time. A result is **live** from the group that writes it to the last group that reads it; a result that nobody reads is an output of the model and stays live to the end. The live bytes of a group must not exceed a **cap**, the memory that you have.

# %% id="l06-5d" tags=["hide-input"]
WORK = {"a": (4, ()), "b": (8, ("a",)), "c": (4, ()), "d": (5, ()), "e": (1, ("b",)),
        "f": (5, ("a",)), "g": (2, ("c", "f")), "h": (4, ("a",))}
CAP = 24
figures.draw_groups(WORK, [["a"], ["b", "c", "d"], ["e"], ["f"], ["g"], ["h"]], CAP,
            "The order as given, cut only where it must be: six groups, five barriers. Each box "
            "says the bytes of its result and what it reads.")

# %% [markdown] id="l06-5r"
# ### Exercise 5 · Groups under a cap (scored)
# Find as few groups as you can, for any list. A natural answer is *list scheduling*: fill a group with ready commands until none fits, then begin the next. That is better than the order as given, and not the best: to fill a group now may keep bytes from a group later. (No rule for "which ready command first" is always best.)
#
# One point is for valid groups. The other four count groups, one point for each list: the order as given earns nothing, the fewest possible groups earn the point, and an answer between them earns its share. Lists have at most ten commands, and each list can be done in the order given, one command a group. This exercise is open-ended: a better answer takes ten minutes, the best one may wait for another day.

# %% id="l06-e5" vklab={"role": "exercise", "id": "06-5", "points": 5, "lines": 12}
def ready(work, done):
    """Return the commands that are not done, and whose inputs are."""
    return [n for n, (_, reads) in work.items() if n not in done and all(r in done for r in reads)]


def kept_bytes(work, done):
    """Return the bytes of finished results that a later command reads, or that are outputs."""
    readers = {n: [m for m, (_, reads) in work.items() if n in reads] for n in work}
    return sum(work[n][0] for n in done
               if not readers[n] or any(m not in done for m in readers[n]))


def groups_under_cap(work, cap):
    """Return the commands in groups, as few groups as possible: [["a", "c"], ["b"], ...].

    work: {name: (bytes of its result, names of the commands whose results it reads)}, in an
    order that works. cap: most bytes that may be live.
    TODO     every command once; each reads only from earlier groups; for each group,
             kept_bytes(work, everything before) + the bytes of its own results <= cap.
    Approach what matters about the past is only which commands are done. Begin with none done;
             find all sets that one group can reach, then all that two can reach ...
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


# %% id="l06-e5d" vklab={"role": "demo"}
with attempt("06-5"):
    display(figures.draw_groups(WORK, groups_under_cap(WORK, CAP), CAP,
                        "Your groups. Red: too many bytes, or a result that is not there yet."))

# %% id="l06-e5c" vklab={"role": "check", "id": "06-5"}
check("06-5", groups_under_cap)

# %% id="l06-e5h"
# hint("06-5")

# %% [markdown] id="l06-e5r"
# vklab meets the same question for every model, with thousands of commands, so it cannot try all sets. It uses list scheduling with the longest chain first, under the memory that one branch after the other would take: `vklab/plan/tuning/layers.py`. That gave the second picture of section 2.

# %% [markdown] id="l06-6t"
# ## 6 · Tools that show it
# A missing barrier is found by thinking, by a finder like yours, or by the layer. These tools show what a device *did*, on one run, on one machine.
#
# | tool | shows | sees Vulkan compute? |
# |---|---|---|
# | RenderDoc | each command of a capture, and the bytes of each buffer at that point | yes. A program without a window has to start and end the capture by RenderDoc's in-application API, and the capture needs a queue with graphics |
# | PIX | commands and times of Direct3D 12 | no: Direct3D 12 only. For DirectML, lab 16 |
# | Instruments, Xcode | times of host and GPU; a capture of Metal commands | as Metal commands, through MoltenVK, which can start a capture by environment variables |
# | Nsight Systems | a timeline of host threads, `vkQueueSubmit` and the queues | yes, on NVIDIA GPUs |
# | Nsight Graphics | one frame: events, resources, a trace of the GPU | yes; it is made for programs with frames |
# | Nsight Compute | counters of one CUDA kernel | no |
# | RGP (Radeon GPU Profiler) | when each piece of work ran on a Radeon GPU, timed by its hardware | yes: Direct3D 12, Vulkan, OpenCL, HIP |
#
# They show one run: a hazard that did no harm in it does not show. (Looked up in November 2026; the pages are listed below.)
#
# ### What would break this?
# This function gives each piece a slot of its own, in turn. Its author tested it on a fast device, and every piece arrived. Here it meets the lazy device of section 4. Find the fault before you open the answer.

# %% id="l06-planted"
def slots_in_turn(count, slots, size):
    """Return (offset, value): piece k goes to slot k % slots, after the slot's last copy."""
    return [(k % slots * size, max(0, k - slots)) for k in range(count)]


sent = run_limited(stream, [64] * 6, 128, slots_in_turn(6, 2, 64), seconds=30).value
print("right pieces:", [arrived == [n] for n, arrived in enumerate(sent, 1)])

# %% [markdown] id="l06-plantedt"
# <details><summary>The fault</summary>
#
# Piece `k` reuses the slot of piece `k - slots`, whose copy sets the timeline to `k - slots + 1`. The function waits for one copy less. A fast device is never a whole ring behind, so the tests passed.
# </details>

# %% [markdown] id="l06-recap"
# ## Recap
# | word | what it orders | mistake to avoid |
# |---|---|---|
# | execution dependency | one command after another | believing that it moves bytes |
# | available, visible | bytes leave one cache, and old copies leave another | wrong access masks with right stages |
# | barrier | commands of one queue | one after every command; none because the test passed |
# | fence | the host after a submission | refilling what a copy may still read |
# | timeline semaphore | host and device, or two queues, by a growing number | waiting for one copy less |
# | host visibility | the host's reads after the device's writes | a fence without the barrier to `host` |
# | validation layer | nothing: it reports | taking silence for a proof |
#
# **Next**: lab 07 looks inside one workgroup, where `barrier()` orders invocations. Lab 12 runs host and device at the same time.
#
# **References**
# * Vulkan specification, [Synchronization and Cache Control](https://docs.vulkan.org/spec/latest/chapters/synchronization.html): dependencies, host write ordering, timeline semaphores; Khronos' [synchronization examples](https://github.com/KhronosGroup/Vulkan-Docs/wiki/Synchronization-Examples).
# * The layer's own [guide, with its known limitations](https://github.com/KhronosGroup/Vulkan-ValidationLayers/blob/main/docs/syncval_usage.md).
# * NVIDIA, [Vulkan Dos and Don'ts](https://developer.nvidia.com/blog/vulkan-dos-donts), which VKML's documentation recommends. Read what it says about barriers and submissions, and ask which advice your functions follow by themselves.
# * RenderDoc: [in-application API](https://renderdoc.org/docs/in_application_api.html), [capture without a window](https://github.com/baldurk/renderdoc/issues/1074), [a queue with graphics](https://github.com/baldurk/renderdoc/issues/1711). PIX: [what it captures](https://devblogs.microsoft.com/pix/changes-to-the-capture-experience/). MoltenVK: [captures by variables](https://ulrik.is/writing/using-metal-frame-capture-with-moltenvk/). NVIDIA: [Nsight Systems and Vulkan](https://developer.nvidia.com/blog/nvidia-nsight-systems-adds-vulkan-support/), [Nsight Compute](https://docs.nvidia.com/cuda/nsight-compute). AMD: [RGP](https://gpuopen.com/manuals/rgp_manual).
# * The gap that ends first, and why that is best: Kleinberg and Tardos, *Algorithm Design*, 2005, section 4.1 (interval scheduling).
