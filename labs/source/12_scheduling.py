# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Scheduling"
#     minutes: 90
#     before: ["06", "09", "09b"]
# ---

# %% [markdown] id="l12-title"
# # Lab 12 · Scheduling
# **What runs where, in which order, and what waits for what** · 90 minutes, 4 exercises
#
# A plan says which kernels run. With two devices, or with several requests at the same time, someone has to decide where and when. One schedule can take almost twice as long as another one that does the same work.
#
# **Afterwards you can**
# * say what recording once saves, and count it;
# * cut a placed graph into few chunks, and find a cut that never ends;
# * say how dependency counters start chunks, and what breaks them;
# * compute latency and throughput with several frames in flight;
# * read a trace of host and device, and calibrate a table of costs;
# * write a schedule for two devices, and say how far from the best it is.
#
# **Before this lab**: labs 09 and 09b, and lab 06. In place of 06, the pages [From a kernel to a submission](inserts/submission.md) and [Orders of work](inserts/orders.md) are enough. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/plan/place/cutting.py`, `vklab/runtime/many/scheduler.py`.

# %% id="l12-setup" tags=["hide-input"]
import json
from statistics import median

import numpy as np
from IPython.display import display

import vklab
from vklab.settings import settings
from vklab_course import attempt, banner, check, data, hint, predict, run_limited, show
from vklab_labs.lab_12 import chunking, frames
from vklab_labs.lab_12 import schedules_pictures as figures
from vklab_labs.lab_12.chunking import fill, join_inputs, real_completions
from vklab_labs.lab_12.list_scheduling import naturals
from vklab_labs.lab_12.makespan import EXAMPLE, bounds, earliest, outlook, ready
from vklab_labs.lab_12.replays import adds, recordings

# %% id="l12-banner"
banner()

# %% id="l12-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l12-1t"
# ## 1 · Record once
# A command buffer is a list of commands in the driver's own form. To **record** it is work for the host: for each kernel a pipeline, its buffers, its push constants and a dispatch. To **submit** it is one call. The same buffer may be submitted again and again: that is a **replay**.

# %% id="l12-1d" tags=["hide-input"]
figures.draw_replay()

# %% [markdown] id="l12-1r"
# vklab replays. The switch `DISABLE_REPLAY` makes each run record its list again. The list of the digits network has 6 steps. A session is loaded and then run ten times. How many steps are recorded in all, loading included: with replay, and without?

# %% id="l12-p1"
predict("12-p1", replayed=..., recorded_again=...)

# %% [markdown] id="l12-countt"
# The next cell counts. `recordings` puts a counter in front of the function of the runtime that records.

# %% id="l12-count"
DIGITS = data("digits_cnn.onnx")
images = np.load(data("digits.npz"))["images"]
ten = {"image": images[:10]}
print("replayed:", recordings(DIGITS, ten, 10)[0])
print("recorded again:", recordings(DIGITS, ten, 10, DISABLE_REPLAY=1)[0])

# %% [markdown] id="l12-timet"
# What does it save? To add two numbers is nearly no work, so a chain of 300 additions shows what a step costs besides its work. The next cell times its recording and a replayed run, on *your* machine. On a CPU device both are times of this processor. For comparison: vkml, a runtime in Rust, states "1.62 µs/op dispatch latency on a linear chain-add benchmark" on an RTX 3080 (its page, version 0.0.3). With vklab on an NVIDIA H200, a dispatch with its barrier took 2.3 to 2.6 microseconds (November 2026).

# %% id="l12-time" tags=["nbval-ignore-output"]
chain, zero = adds(300), {"x0": np.zeros(1, np.float32)}
_, record_us = recordings(chain, zero, 9, DISABLE_FUSION=1, DISABLE_REPLAY=1)
with settings(DISABLE_FUSION=1), vklab.load(chain) as session:
    run_us = median(session.time(zero, repeats=9).host_ns) / 1e3
print(f"a step: {record_us:.1f} us to record, {run_us / 300:.1f} us in a replayed run")

# %% [markdown] id="l12-2t"
# ## 2 · Chunks
# A graph is **placed** if each node has a device. Nodes of one device that run together form a **chunk**: one command buffer and one submission. If a chunk reads a result of another device, the result is moved there first. That is a **transfer**. A chunk starts when all its inputs are there, and its results leave when it ends. So chunks depend on chunks, and these dependencies must not form a circle.

# %% id="l12-2d" tags=["hide-input"]
display(figures.draw_chunks(chunking.BRANCHES, [(0, "ab"), (1, "cd"), (0, "ef")],
                            "Three chunks. c waits for b, although it does not read it."))
display(figures.draw_chunks(chunking.BRANCHES, [(0, "a"), (1, "cd"), (0, "be"), (0, "f")],
                            "Four chunks. c waits for a only; b and e run beside c and d."))

# %% [markdown] id="l12-e1t"
# ### Exercise 1 · Few chunks
# Each chunk costs a submission, so fewer are better if nothing else counts. **A rule that helps:** once you have chosen the device of the next chunk, take *every* node of this device that can run now, then all that can run after these. To leave a node out saves nothing: it needs a later chunk, and the nodes that read it wait, too.

# %% id="l12-e1" vklab={"role": "exercise", "id": "12-1", "points": 6, "lines": 15}
def build_chunks(nodes):
    """Return chunks (device, names, waits, arrivals), in an order in which they can run.

    nodes: list of (name, device, names of the nodes that it reads), in any order.
    TODO     names: the nodes of the chunk; each node is in one chunk, of its own device.
             waits: numbers of the earlier chunks that the chunk reads from, each once.
             arrivals: names of the nodes of other devices that it reads from, each once.
             As few chunks as possible. ValueError for nodes that wait for each other.
    Approach fill(nodes, done, device) applies the rule. done: names that have run. It returns the
             names of the next chunk in order, [] if none can run. Keep a list of cuts, first the
             empty one. Extend each cut by one chunk, of each device in turn, until one has all
             nodes. Of two cuts with the same nodes done, one is enough. At the end,
             chunking.predecessors(nodes, [(device, names), ...]) returns all waits.
    Example  build_chunks([("a", 0, ()), ("b", 1, ("a",)), ("c", 0, ("a", "b"))])
             -> [(0, ["a"], [], []), (1, ["b"], [0], ["a"]), (0, ["c"], [0, 1], ["b"])]
             (roughly 15 lines)
    """
    device_of = {name: device for name, device, _ in nodes}
    reads_of = {name: reads for name, _, reads in nodes}
    unknown = set().union(*reads_of.values()) - device_of.keys()
    if unknown or len(device_of) < len(nodes):
        raise ValueError("two nodes have one name, or a node reads a name that is not there")
    ### BEGIN SOLUTION
    cuts, seen = [[]], set()
    for groups in cuts:  # grows in the loop: all cuts of two chunks come before those of three
        done = [name for _, names in groups for name in names]
        if len(done) == len(nodes):
            break
        for device in set(device_of.values()):
            more = fill(nodes, done, device)
            if more and frozenset(done + more) not in seen:
                seen.add(frozenset(done + more))
                cuts.append([*groups, (device, more)])
    else:
        raise ValueError("nodes wait for each other")
    chunks, before = [], chunking.predecessors(nodes, groups)
    for number, (device, names) in enumerate(groups):
        reads = set().union(*(reads_of[name] for name in names))
        arrivals = [read for read in reads if device_of[read] != device]
        chunks.append((device, names, before[number], arrivals))
    return chunks
    ### END SOLUTION


# %% id="l12-e1d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("12-1"):
    mine = build_chunks(chunking.BRANCHES)
    display(figures.draw_chunks(chunking.BRANCHES, [chunk[:2] for chunk in mine], "Your chunks."))
    for number, chunk in enumerate(mine):
        print(f"chunk {number} of device {chunk[0]}: waits {chunk[2]}, arrivals {chunk[3]}")

# %% id="l12-e1c" vklab={"role": "check", "id": "12-1"}
check("12-1", build_chunks)

# %% id="l12-e1h"
# hint("12-1")

# %% [markdown] id="l12-swapt"
# ### Your chunks in the runtime's plan
# `cut(graph, devices, early)` decides the chunks of vklab. Now your function takes its place, in a process of its own. That process plans three models for two devices, and runs nothing: the second device is a copy of yours *on paper*. `PINS` places all poolings, or all Relus, on the copy. `cut_by` asks your function, and verifies your cut before the runtime sees it. (Your cut may ignore `early`, the large values that should leave at once.)

# %% id="l12-swap" tags=["nbval-ignore-output"]
PINS = {"mini_classifier.onnx": {"Relu": 1, "*": 0}, "digits_cnn.onnx": {"MaxPool": 1, "*": 0},
        "inception_v1": {"MaxPool": 1, "*": 0}}

for whose, replacement in (("vklab", None), ("yours", chunking.cut_by(build_chunks))):
    with attempt("12-1"):
        planned = run_limited(chunking.planned_on_two, PINS, replacement, seconds=90)
        for model, chunks, transfers, in_a_row in planned.value or ():
            print(f"{whose} {model:19} {chunks:2} chunks, {transfers:2} transfers, "
                  f"{in_a_row} times two in a row on one device")
        print(planned.message, end="")

# %% [markdown] id="l12-swapr"
# Inception needs 21 chunks; vklab takes 27. Six times, two chunks of one device follow each other in its plan. Read only the docstring of `cut`, below. It calls chunks *stages*, and gives the reason: "no device waits for work that it does not need". Few chunks and early starts are two different goals; section 6 takes the second.

# %% id="l12-show" tags=["hide-input"]
show(chunking.CUT)

# %% [markdown] id="l12-bugt" vklab={"id": "12-2"}
# ### Exercise 2 · What would break this?
# This cutter is shorter than yours. A node joins the chunk of its first input on the same device; if there is none, it begins a new chunk. Its author has tested it on chains and on a network with two branches. Find a graph on which exactly [[chunks]] of its chunks wait for each other in a circle: such a plan never ends. List each node after the nodes that it reads.

# %% id="l12-bug"
show("vklab_labs.lab_12.chunking.join_inputs")

# %% id="l12-e2" vklab={"role": "exercise", "id": "12-2", "points": 2, "lines": 3}
CHUNKS = [[chunks]]
breaks = ...  # [("a", 0, ()), ("b", 1, ("a",)), ...]: at most 12 nodes, on devices 0, 1 and 2
### BEGIN SOLUTION
breaks = [("a", 0, ())]
for device in ([1, 2] * CHUNKS)[:CHUNKS - 1]:
    breaks.append((f"w{len(breaks)}", device, (breaks[-1][0],)))
breaks.append(("z", 0, ("a", breaks[-1][0])))
### END SOLUTION

# %% id="l12-e2d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("12-2"):
    groups = join_inputs(breaks)
    display(figures.draw_chunks(breaks, groups, "Your graph, as this cutter cuts it."))
    asked = run_limited(real_completions, chunking.predecessors(breaks, groups), seconds=30)
    print("the runtime's scheduler says:", asked.value or asked.message)

# %% id="l12-e2c" vklab={"role": "check", "id": "12-2"}
check("12-2", breaks)

# %% id="l12-e2h"
# hint("12-2")

# %% [markdown] id="l12-3t"
# ## 3 · Dependency counters
# Each chunk has a **dependency counter**: how many of its predecessors have not completed. When a chunk completes, the counters of the chunks that wait for it go down by one. A chunk whose counter is zero is **ready**. vkml's page says the same: "chunk completion signals atomic dependency counters; zero-count triggers immediate successor submission".

# %% id="l12-3d" tags=["hide-input"]
figures.draw_counters()

# %% [markdown] id="l12-3r"
# Suppose, in the picture, that the end of chunk 2 is reported twice by mistake: the completions are 0, 2, 2, and nobody notices. How many chunks become ready at the first 2, and which chunk at the second?

# %% id="l12-3p"
predict("12-p2", ready_at_first=..., starts_at_second=...)

# %% [markdown] id="l12-3s"
# So a wrong report must be refused. `next_ready` returns the chunks that are ready at the start, then those that each completion frees. Only a chunk that is running may complete. (Lab 12b lets two threads change a counter at once.)

# %% id="l12-3n"
def next_ready(predecessors, completions):
    """Return lists of chunks: those ready at the start, then those that each completion frees."""
    counters = [len(before) for before in predecessors]
    result = [[chunk for chunk, count in enumerate(counters) if count == 0]]
    running = set(result[0])
    for chunk in completions:
        if chunk not in running:
            raise ValueError(f"chunk {chunk} cannot complete now")
        waiting = [other for other, before in enumerate(predecessors) if chunk in before]
        for other in waiting:
            counters[other] -= 1
        result.append([other for other in waiting if counters[other] == 0])
        running = (running - {chunk}).union(result[-1])
    return result


print(next_ready([[], [0], [0], [1, 2]], [0, 2, 1]))

# %% [markdown] id="l12-realt"
# The runtime's own scheduler now runs seven chunks that do nothing, and reports the order of completions. `next_ready` says what became ready. The scheduler calls a chunk a job, and counts in `_freed`, under a lock. It need not look for a second report: one function, `_finish`, reports each started job once.

# %% id="l12-real" tags=["nbval-ignore-output"]
diamonds = [[], [0], [0], [1, 2], [3], [3], [4, 5]]
ended = run_limited(real_completions, diamonds, seconds=30)
print("the scheduler completed", ended.value or ended.message)
print("next_ready: ready      ", next_ready(diamonds, ended.value or []))
show("vklab.runtime.many.scheduler.Run._freed")

# %% [markdown] id="l12-4t"
# ## 4 · Frames in flight
# Each run has a part on the host (read the inputs, copy them, submit) and a part on the device. If each run waits for the end of the one before, the host is idle while the device works, and the other way round. **Frames in flight** are runs that have begun and not ended. Each has buffers of its own, or the second input would overwrite the first. **Latency** is the time from the start of a frame to its end. **Throughput** is the number of frames in a second.
#
# In the picture the host takes 2 ms for a frame, and the device 4. With two in flight, frame 1 begins on the host as soon as the host is free; frame 2 has to wait until frame 0 has ended. Then the device has no gap any more.

# %% id="l12-4d" tags=["hide-input"]
display(figures.draw_frames([(0, 6), (6, 12), (12, 18)], 2, 4, "One frame at a time."))
display(figures.draw_frames([(0, 6), (2, 10), (6, 14), (10, 18)], 2, 4, "Two frames in flight."))

# %% [markdown] id="l12-e4t" vklab={"id": "12-3"}
# ### Exercise 3 · Three in flight
# Would *three* in flight give more frames in a second? Would a late frame take longer from its start to its end?
#
# The host takes [[host]] ms for a frame, the device [[device]] ms. There are [[count]] frames, and all their inputs are there from the start. The host takes them in order. With *n* in flight, a frame begins when the host is free and the frame *n* places before it has ended. Compute, or simulate.

# %% id="l12-e4" vklab={"role": "exercise", "id": "12-3", "points": 3, "lines": 4}
HOST, DEVICE, COUNT = [[host]], [[device]], [[count]]
# one_ms: one frame alone. alone_ms, two_ms, three_ms: all frames with one, two, three in flight.
# late_ms: latency of the last frame, with three in flight.
in_flight = ...  # {"one_ms": ..., "alone_ms": ..., "two_ms": ..., and the other two}
### BEGIN SOLUTION
busy = HOST + COUNT * DEVICE  # the device never waits, but for the first frame
in_flight = {"one_ms": HOST + DEVICE, "alone_ms": COUNT * (HOST + DEVICE), "two_ms": busy,
             "three_ms": busy, "late_ms": 3 * DEVICE}
### END SOLUTION

# %% id="l12-e4c" vklab={"role": "check", "id": "12-3"}
check("12-3", in_flight)

# %% id="l12-e4h"
# hint("12-3")

# %% [markdown] id="l12-mapt"
# `session.submit` starts a frame and returns at once; `session.map` keeps several in flight; `trace` records eight of them, with host and device on one clock. A CPU device *is* this processor, so there is little to gain, and a busy machine may show a loss. So a record of an NVIDIA H200 stands below your traces, with frames of 1,000 pictures: there two in flight take two thirds of the time. In the pictures, colours tell the kind of work; the number before a name is the frame.

# %% id="l12-map" tags=["nbval-ignore-output"]
with vklab.load(DIGITS) as session:
    one_by_one = session.trace(ten, frames=8, in_flight=1, steps=False)
    two_at_once = session.trace(ten, frames=8, in_flight=2, steps=False)
RECORD = json.loads(data("recorded/schedules_h200.json").read_text("utf-8"))
rows = {"your device": (one_by_one, two_at_once),
        RECORD["device"]: [frames.recorded_trace(RECORD, flying) for flying in (1, 2)]}
for words, traces in rows.items():
    times = [f"{trace.duration_ns / 8e6:.2f} ms" for trace in traces]
    print(f"{words}: a frame takes {times[0]} with one in flight, {times[1]} with two")
for words, (_, two) in rows.items():
    display(figures.two_in_flight(two, words))

# %% [markdown] id="l12-5t"
# ## 5 · Read a trace, and make a table of costs
# The picture above is a **Gantt chart**: a row for each place of work, time to the right. Its thin orange line is the **critical path**: the longest chain in which each piece of work waited for the one before. Faster work outside this chain does not shorten the run.
#
# `to_chrome` returns the same trace as events that [Perfetto](https://ui.perfetto.dev) opens. An event of phase `X` is a bar, with a start `ts` and a length `dur` in microseconds. A process is a device, a thread is a row. To look at it there, write `text` to a file of your own.

# %% id="l12-perfetto"
text = json.dumps(two_at_once.to_chrome())
bars = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
print("processes: the host and one device:", len({bar["pid"] for bar in bars}) == 2)
print("chunks, one for each frame:", sum(bar["cat"] == "chunk" for bar in bars))
print("fields of a bar:", *sorted(bars[0]))

# %% [markdown] id="l12-costt"
# To plan a schedule, one must know times *before* the run. A **cost table** has the time of each kernel. A GPU can write its clock between two commands: a **timestamp**. `session.profile` does that around each dispatch. The next cell **calibrates** a table, that is, fits it to measurements. From runs of 8, 16 and 32 pictures it gets a line `a + b * pictures` for each step, by least squares. Then it predicts 64 pictures, and measures them. Other work of the machine can only lengthen a time. So the sizes take turns, nine times, and the *least* time of each step counts. Fusion is off, so that the steps are the same at every size. Below is the record of an H200.

# %% id="l12-cost" tags=["nbval-ignore-output"]
with settings(DISABLE_FUSION=1), vklab.load(DIGITS) as session:
    measured = frames.least_us(session, "image", images)
for words, times in (("yours", measured), (RECORD["device"], frames.recorded_times(RECORD))):
    print(words, frames.table_of(times), sep="\n")

# %% [markdown] id="l12-costr"
# On the quiet GPU all lines but one are within 7 percent. `conv1` is off by more: a line is only a model, and this kernel probably grows in steps. On a processor that does other work at the same time, even the largest step may be far off, because a long step is interrupted more often. Such a table must be measured again. The sum has one more error than its parts: for the profile each dispatch runs alone, between two full barriers, and in a run neighbours may overlap. So the best schedule for a table need not be the best for the device.

# %% [markdown] id="l12-6t"
# ## 6 · The shortest schedule
# Now each task has a time on each of two devices, and a time that its result takes to the other device. A device runs one task at a time. Transfers run beside all work. The **makespan** is the end of the last task. Three bounds hold for every schedule, so the makespan is at least the largest of them:
#
# * the **critical path**: the longest chain, each task on its faster device, no transfers;
# * the **work over the devices**: all tasks, each on its faster device, shared evenly;
# * the **work of one device**: tasks that only this device can run.
#
# **List scheduling** (lab 06, or [Orders of work](inserts/orders.md)) is the natural answer: take the ready task with the longest chain behind it, put it where it ends first, repeat. (HEFT, in the output, is a known variant; its chains count mean times, and transfers.) The picture shows list scheduling of six tasks.

# %% id="l12-6d" tags=["hide-input"]
display(figures.draw_list_scheduling(EXAMPLE))
print("task, (times on devices 0 and 1, what it reads, time of a transfer)")
print(*EXAMPLE.items(), sep="\n")
print("bounds:", bounds(EXAMPLE, 2))
print("makespan of each rule:")
for rule, end in naturals(EXAMPLE).items():
    print(f"  {rule:30}{end:3}")

# %% [markdown] id="l12-e5t"
# The first step decides. Both devices run `a` in 2, so it goes to device 0. From there its result needs 4 to reach device 1, which would run `c` in half the time. List scheduling never looks so far ahead.
#
# ### Exercise 4 · A short schedule (scored)
# Find schedules as short as you can. Three functions help; the docstring names them. One point is for valid schedules. The others count time: everything on one device earns nothing; the best schedule, which a search has found, earns all points. There are at most nine tasks: a part of Inception, and two requests for parts of it, with drawn times.

# %% id="l12-e5" vklab={"role": "exercise", "id": "12-4", "points": 6, "lines": 12}
WIDTH = 500  # how many tables to keep


def schedule(tasks):
    """Return two lists of names: what device 0 runs, and what device 1 runs, in order.

    tasks: {name: ((time on device 0, time on device 1), names that it reads, time of a transfer)}
    in an order that works; a time of None: this device cannot run the task.
    TODO     every task once, on a device that can run it. A task starts when its device is free
             and its inputs are there. All cases together have 10 seconds. No tasks: [[], []].
    Start    list scheduling: a table {name: (device, start, end)} that grows task by task.
             ready(tasks, table): names of the tasks that can come next.
             earliest(tasks, table, name, device): the time at which a task can start there.
    Then     keep WIDTH tables, not one: extend each by every ready task on every device. Sort by
             outlook(tasks)(table): (lower bound of its makespan, sum of both devices' ends).
    Example  schedule({"a": ((2, 1), (), 3), "b": ((2, None), ("a",), 1)}) -> [["a", "b"], []]
             (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    look, tables = outlook(tasks), [{}]
    for _ in tasks:
        further = {}
        for table in tables:
            for name in ready(tasks, table):
                for device, time in enumerate(tasks[name][0]):
                    if time is not None:
                        start = earliest(tasks, table, name, device)
                        new = {**table, name: (device, start, start + time)}
                        further[frozenset(new.items())] = new
        tables = sorted(further.values(), key=look)[:WIDTH]
    return [[name for name, (d, _, _) in tables[0].items() if d == each] for each in (0, 1)]
    ### END SOLUTION


# %% id="l12-e5d" vklab={"role": "demo"}
with attempt("12-4"):
    display(figures.draw_schedule(EXAMPLE, schedule(EXAMPLE), "Your schedule."))

# %% id="l12-e5c" vklab={"role": "check", "id": "12-4"}
check("12-4", schedule)

# %% id="l12-e5h"
# hint("12-4")

# %% [markdown] id="l12-recap"
# ## Recap
# | word | what it is | mistake to avoid |
# |---|---|---|
# | replay | the same command buffer, submitted again | recording in every run |
# | chunk | nodes of one device, one submission | a circle of chunks |
# | dependency counter | predecessors that have not completed | counting a predecessor twice |
# | frames in flight | runs that have begun and not ended | more than keep the device busy: only latency grows |
# | critical path | the longest chain of work | making other work faster |
# | cost table | time of each kernel, from timestamps | adding up what may overlap |
# | makespan | end of the last task | taking the best next step every time |
#
# **Next**: [lab 12b](12b_races.ipynb) lets several threads complete chunks at once. Lab 13 chooses the devices.
#
# **References**
# * vkml 0.0.3, its page at [crates.io](https://crates.io/crates/vkml), read in November 2026.
# * H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", 2002: HEFT.
# * R. L. Graham, "Bounds on multiprocessing timing anomalies", 1969: how bad list scheduling can be, and why a faster machine can end later.
