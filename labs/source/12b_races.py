# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Races of a scheduler"
#     minutes: 90
#     before: ["06", "12"]
# ---

# %% [markdown] id="l12b-title"
# # Lab 12b · Races of a scheduler
# **A scheduler that passes every test, and two orders of events in which it fails** · 90 minutes, 4 exercises, the third one extra
#
# In lab 12 one program decided which chunk starts next. Now many threads decide at once. Such code is right only if it is right in *every* order of their steps, and a test meets few of them. So you will write down the order that fails, and then try all orders.
#
# **Afterwards you can**
# * find an order of events in which a chunk reads bytes that are not there yet;
# * explain release and acquire by the views of threads, and find the stale read without acquire;
# * say what "lock-free" and "Miri verified" promise, and what they do not;
# * write a scheduler's step as a pure function, and explore every order of its events;
# * order two queues by a timeline semaphore, and say why vklab's runtime waits for fences.
#
# **Before this lab**: labs 06 and 12: chunks, dependency counters, fences, timeline semaphores. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/runtime/many/scheduler.py`, `vklab/runtime/many/split.py`, `labs/lib/lab_12/races.py`, `stepping.py`, `two_queues.py`.

# %% id="l12b-setup" tags=["hide-input"]
import threading
import timeit

from IPython.display import display

from vklab_course import attempt, banner, check, hint, predict, run_limited, show
from vklab_labs.lab_12 import races_pictures as figures
from vklab_labs.lab_12 import stepping
from vklab_labs.lab_12.races import Queues, Workers, count_states, replay
from vklab_labs.lab_12.two_queues import ordered_copies

# %% id="l12b-banner"
banner()

# %% id="l12b-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l12b-1t"
# ## 1 · Counters in place of a coordinator
# VKML is an inference runtime in Rust, and its [page](https://github.com/void-research/vkml) describes a scheduler with "no central coordinator". A chunk that has ended lowers the counter of each chunk that reads it. Whoever lowers a counter to zero submits that chunk at once. A *thread pool* is a fixed set of threads that take jobs from a common list. Every thread of VKML's pool runs the same few lines:
#
# ```
# run the chunk
# for each chunk that reads it:
#     lower its counter by 1, as one atomic step
#     if it is 0 now: hand this chunk to the pool
# ```
#
# The page shows such chunks in a figure, two of them in a row on GPU 0. The page also says that *contiguous operations on the same device* become a single command buffer. Do these words agree with the figure?

# %% id="l12b-1d" tags=["hide-input"]
figures.draw_chunks()

# %% [markdown] id="l12b-1p"
# A chunk starts when everything that any part of it reads has ended. Its results can be read when all of it has ended. In which of the two graphs could chunks 0 and 1 be recorded as one chunk? Write True or False in place of each `...`; the explanation follows your guess.

# %% id="l12b-p1"
predict("12b-p1", A=..., B=...)

# %% [markdown] id="l12b-1r"
# VKML's source adds an operation to the open chunk of its device only if this chunk already holds every operation whose result it reads (`execution_plan.rs`, commit ee2a2bb of August 2026). So two chunks in a row on one GPU occur where a graph has a detour, or where another operation came between. In the plain chain of the figure they would be one.
#
# ## 2 · One queue is not one order
# What orders two chunks in a row on one GPU? In that version of the source, a chunk gets a fence only if it is an output, or if another device reads it. Without a fence the thread does not wait: it submits, and lowers the counters at once. The next chunk goes into the same queue, with no barrier and no semaphore between the two.
#
# `vkQueueSubmit` requires that access to its queue is *externally synchronized* ([specification](https://docs.vulkan.org/spec/latest/chapters/fundamentals.html#fundamentals-threadingbehavior)): the program itself, usually by a lock, must keep two threads from using one queue at the same time. That lock orders nothing on the GPU: a queue takes submissions in order, but it may run their commands at the same time and end them in any order (lab 06). **Sketch 1** says that in three events for each chunk:
#
# | event | may come when |
# |---|---|
# | `("submit", chunk)` | each chunk that it reads on *another* device has ended; each one on its *own* device has been submitted |
# | `("begin", chunk)` | it has been submitted, and all chunks that were submitted before it on this device have begun |
# | `("end", chunk)` | it has begun |
#
# A list of events in a possible order is a **trace**. `replay` plays one, and returns each begin that reads a chunk too early, before it has ended. Here is graph B again: `a` is its chunk 0, `b` the one on GPU 1, `c` its chunk 1. A fourth chunk, `d`, reads `c`. This trace does no harm:

# %% id="l12b-2d"
CHUNKS = {"a": ("GPU 0", ()), "b": ("GPU 1", ("a",)), "c": ("GPU 0", ("a", "b")),
          "d": ("GPU 0", ("c",))}
calm = [(kind, chunk) for chunk in "abcd" for kind in ("submit", "begin", "end")]
print("read too early:", replay(Queues(CHUNKS), calm))
figures.draw_queues(CHUNKS, calm)

# %% [markdown] id="l12b-2e"
# ### Exercise 1 · Overtake
# Write the function that finds a trace in which a chunk begins before a chunk that it reads has ended. For some graphs there is none: return `[]`.
#
# Two of the points reward a short trace; the shortest possible one earns both.

# %% id="l12b-e1" vklab={"role": "exercise", "id": "12b-1", "points": 5, "lines": 9}
def overtaking(jobs):
    """Return a short trace of sketch 1 in which a chunk reads too early; [] if there is none.

    jobs: {name: (device, names of the chunks that it reads)}, in an order that works.
    TODO     choose a chunk, and let everything that it needs run, but without the ends that
             nothing forces. Then submit it and begin it. Which choice needs fewest events?
    Approach `needs`, below, has all that each chunk needs, directly or through others. A read on
             its own device may still run, unless a needed chunk on another device reads it,
             too. (Why?)
    Example  overtaking({"a": ("GPU 0", ()), "b": ("GPU 0", ("a",))}) -> [("submit", "a"),
             ("begin", "a"), ("submit", "b"), ("begin", "b")]       (roughly 9 lines)
    """
    needs = {}
    for name, (_, reads) in jobs.items():
        needs[name] = {n for read in reads for n in (read, *needs[read])}
    ### BEGIN SOLUTION
    found = []
    for name, (device, reads) in jobs.items():
        running = [read for read in reads if jobs[read][0] == device
                   and not any(read in jobs[other][1] for other in needs[name])]
        trace = [(kind, n) for n in jobs if n in needs[name] for kind in ("submit", "begin", "end")
                 if kind != "end" or n not in running]
        if running:
            found.append([*trace, ("submit", name), ("begin", name)])
    return min(found, key=len, default=[])
    ### END SOLUTION


# %% id="l12b-e1d" vklab={"role": "demo"}
with attempt("12b-1"):
    display(figures.draw_queues(CHUNKS, overtaking(CHUNKS)))

# %% id="l12b-e1c" vklab={"role": "check", "id": "12b-1"}
check("12b-1", overtaking)

# %% id="l12b-e1h"
# hint("12b-1")

# %% [markdown] id="l12b-2r"
# Here, `c` cannot overtake `a`: `b` on the other GPU forces `a` to end. So this bug needs a graph where *nothing else* orders the two chunks, and a device that does overlap them. lavapipe runs one submission after the other, and shows nothing.
#
# VKML is a little more careful than the sketch: its thread waits for a chunk with a fence before it lowers *any* counter. So there the bug needs a chunk without a fence.
#
# **The repair** is not a fence: the host need not wait. A barrier at the beginning of the second command buffer orders it behind all earlier work of the queue. The next cell walks through all states that the sketch can reach, without and with that barrier. Then `_behind` shows how vklab finds, for each chunk, the predecessors that a barrier has to wait for: they are on the same device, and their results stay where they are.

# %% id="l12b-2c"
for words, waits in (("no order", False), ("with the barrier", True)):
    states, bad = count_states(Queues(CHUNKS, waits))
    print(f"{words:17} {states:4} states, events that read too early: {bad}")

# %% id="l12b-2s" tags=["nbval-ignore-output"]
show("vklab.runtime.many.split._behind")

# %% [markdown] id="l12b-3t"
# ## 3 · The number arrives, the bytes do not
# The second bug is in the counters themselves. A counter does not care what it counts, so from here on we say **job**: a chunk, or a kernel for the CPU. Job `c` reads the results of `a` and `b`, which two threads write. The counter of `c` is atomic: no decrement is lost, and exactly one thread sees it reach zero. Does that thread also see what the *other* thread has written? Not by itself. Compilers and processors may delay writes and reads of ordinary memory. What a thread is sure to see is its **view**.

# %% id="l12b-3d" tags=["hide-input"]
figures.draw_handover()

# %% [markdown] id="l12b-3r"
# * **Release**: a decrement publishes the view of its thread along with the number. Later decrements keep what earlier ones have published.
# * **Acquire**: a decrement takes the published views into its thread's own view.
#
# VKML lowers its counters with release only (`execution_state.rs`, same commit).
#
# **Sketch 2** has threads, and three events:
#
# * `("start", thread, job)` reads the results that the job needs;
# * `("write", thread, job)` writes the job's own result;
# * `("count", thread, job, dependent)` lowers the counter of a job that reads it.
#
# A thread starts a job, writes, and counts *all* dependents, in any order. Only then it may start another job. A job is ready when its counter is zero, and any thread may start it. The thread that starts it adds to its own view the view of the thread that made the job ready. A start reads **stale** (old) bytes if its thread's view lacks a result that the job needs.
#
# The next cell explores every state of this sketch three times. *Plain* memory shows each write to all threads at once, which is how most of us think. In which of the three can a start read stale bytes? Write True or False.

# %% id="l12b-p2"
predict("12b-p2", plain_without_acquire=..., views_without_acquire=..., views_with_acquire=...)

# %% id="l12b-3c"
JOIN = {"a": ("", ()), "b": ("", ()), "c": ("", ("a", "b"))}
for words, options in (("plain, without acquire", {"views": False}), ("views, without acquire", {}),
                       ("views, with acquire", {"acquire": True})):
    states, stale = count_states(Workers(JOIN, 2, **options))
    print(f"{words:23} {states:3} states, {stale} starts that read stale bytes")

# %% [markdown] id="l12b-3m"
# A simulator without views calls this scheduler right. So do most tests on an x86 processor, where the instruction of an atomic decrement orders all memory accesses, whatever the program has asked for. (A compiler may still move accesses around it.) An Arm processor may do a later read before the decrement.
#
# Rust's [`Arc`](https://doc.rust-lang.org/nomicon/arc-mutex/arc-drop.html) shows the repair. It counts the owners of a record, and the last one frees it: it lowers with release, and the thread that reaches zero does an acquire before it frees the data.

# %% [markdown] id="l12b-e2t" vklab={"id": "12b-2"}
# ### Exercise 2 · A stale read
# Here is another graph. `[[second]]` reads `[[first]]`, and `[[third]]` reads both. Is it safe, because the thread that runs `[[second]]` was told about `[[first]]`? It is not. Write a trace of two threads, 0 and 1, without acquire, in which a start reads stale bytes. The trace may end there; one point asks for the fewest events.

# %% id="l12b-e2j" vklab={"id": "12b-2", "define": true}
READS = [[reads]]

# %% id="l12b-e2" vklab={"role": "exercise", "id": "12b-2", "points": 3, "lines": 8}
stale_trace = ...  # [("start", 0, "[[first]]"), ("write", 0, "[[first]]"), ...]
### BEGIN SOLUTION
stale_trace = [
    ("start", 0, "[[first]]"), ("write", 0, "[[first]]"),
    ("count", 0, "[[first]]", "[[second]]"), ("start", 1, "[[second]]"),
    ("write", 1, "[[second]]"), ("count", 1, "[[second]]", "[[third]]"),
    ("count", 0, "[[first]]", "[[third]]"), ("start", 0, "[[third]]"),
]
### END SOLUTION

# %% id="l12b-e2d" vklab={"role": "demo"}
with attempt("12b-2"):
    jobs = {name: ("", reads) for name, reads in READS.items()}
    display(figures.draw_workers(jobs, list(stale_trace)))
    print("with acquire, reads of old bytes:", replay(Workers(jobs, acquire=True), stale_trace))

# %% id="l12b-e2c" vklab={"role": "check", "id": "12b-2"}
check("12b-2", stale_trace)

# %% id="l12b-e2h"
# hint("12b-2")

# %% [markdown] id="l12b-4t" vklab={"extra": true}
# ## 4 · What the words promise (optional)
# No later section needs this one. VKML's threads come from zero-pool. VKML's page calls it lock-free, with cooperative memory reclamation, and Miri verified. These are three different promises.
#
# **Lock-free** is about progress. However the threads are suspended, *some* thread completes its operation in a finite number of steps. (A thread that is suspended while it holds a lock stops all others.) The word does not say that *every* thread gets on (that is **wait-free**), that nobody sleeps (idle workers do), that the code has no race, or that it is fast.
#
# **Miri** is an interpreter for Rust programs. It runs your tests and reports leaks of memory and *undefined behaviour*, after which the language promises nothing. Examples are a read of freed memory and a *data race*: two threads touch the same memory, one of them writes, and nothing orders the two. Its [README](https://github.com/rust-lang/miri) states the limits: it tests one of many possible executions, some legal stale reads never come up, and it cannot call most functions of other languages. So no call into a Vulkan driver is verified. For complicated atomic code the README recommends tools such as loom, which try many orders of the threads' steps, as you do here.
#
# zero-pool's [report](https://github.com/void-research/zero-pool/blob/v0.8.4/tests/README.md) on version 0.8.4 lists 8 tests and 5 examples that passed. A day later, commit d92d831 of version 0.8.5 mended a fault that Miri reports. So the label says that these runs of these tests were clean, in one version. VKML's counters are not in these tests.
#
# ### Memory that another thread still reads
# A lock-free structure has one more difficulty: when may a record be freed? The worker below lowers the last counter, and then looks up whom to wake. Between these two steps, the caller may see the 0, return, and free the record. VKML's `execution_state.rs` takes the same steps (same commit), and is safe: each worker holds a share of the record, an `Arc` as in section 3.

# %% id="l12b-4d" vklab={"extra": true} tags=["hide-input"]
figures.draw_reclaim()

# %% [markdown] id="l12b-4r" vklab={"extra": true}
# **Reclamation** is a more general answer: a record that is taken out of a structure is *retired*, and freed only when nobody can hold it any more. In *epoch-based* reclamation, as in zero-pool's `queue.rs`, a global number, the epoch, grows from time to time. Before a worker touches records, it announces the present epoch. A record may be freed when every announced epoch is later than the one in which it was retired. "Cooperative" means that workers do this themselves, between two jobs. The price: one worker that stays in an old epoch keeps all retired memory alive.

# %% [markdown] id="l12b-e3t" vklab={"id": "12b-3"}
# ### Exercise 3 · Which word keeps which promise? (extra)
# | row | promise |
# |---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
#
# Which word, taken alone, gives this promise for a thread pool or a counter? (To *push* is to add a job to the pool's list.) Choose `lock-free`, `Miri verified`, `atomic counter`, `release and acquire` or `none of them`. The check asks for all rows at once; grading counts each row.

# %% id="l12b-e3" vklab={"role": "exercise", "id": "12b-3", "points": 3, "lines": 1}
guarantees = ...  # {"A": "lock-free", "B": ...}
### BEGIN SOLUTION
guarantees = [[right]]
### END SOLUTION

# %% id="l12b-e3c" vklab={"role": "check", "id": "12b-3"}
check("12b-3", guarantees)

# %% id="l12b-e3h" vklab={"id": "12b-3"}
# hint("12b-3")

# %% [markdown] id="l12b-5t"
# ## 5 · One step, every order
# vklab's scheduler takes a lock for its counters. One completion changes three things that belong together: the counters, the set of jobs in flight, and the number of completed jobs. Python has no atomic counter in its library, and `self._waiting[other] -= 1` is a load, a subtraction and a store, between which another thread may come. A lock is also release and acquire: who takes it sees what the last holder wrote.

# %% id="l12b-5s" tags=["nbval-ignore-output"]
show("vklab.runtime.many.scheduler.Run._complete")

# %% id="l12b-5c" tags=["nbval-ignore-output"]
seconds = timeit.timeit("with lock: pass", number=100_000, globals={"lock": threading.Lock()})
print(f"a lock that nobody else wants costs {seconds * 1e4:.0f} ns")

# %% [markdown] id="l12b-5r"
# A submission and the wait for its fence took about 20 microseconds on an NVIDIA H200 (lab 03), far more than such a lock. So "lock-free" would gain next to nothing here.
#
# Under a lock, whole completions come one after another, but still in any order. So the scheduler can be a **pure function**: a state and an event go in, the next state comes out. Nothing is hidden, and every order of events can be tried.

# %% id="l12b-5d" tags=["hide-input"]
figures.draw_step()

# %% [markdown] id="l12b-5e"
# ### Exercise 4 · The step
# Yours differs from vklab's in one rule: vklab starts nothing more after an error. Yours serves several requests at once. A failed job takes down only the jobs that need its result.
#
# The check asks your function about every state that some order of events reaches, with every event that may come next. A function that is right there is right in every order.

# %% id="l12b-e4" vklab={"role": "exercise", "id": "12b-4", "points": 6, "lines": 18}
def step(jobs, state, event):
    """Return the state after an event, as a new dict.

    jobs: as in exercise 1. state: {"left": {job: reads not counted yet}, "in_flight": [jobs
    started and not ended], "failed": [jobs that ended without a good result]}; lists in any order.
    event: ("go", "") comes first; then ("ended", job) or ("failed", job).
    TODO   go      starts each job that reads nothing.
           end     of either kind: the job leaves in_flight. It joins `failed` if the event says
                   so, or if a job that it reads is in `failed`. If it does not join, count down
                   the jobs on other devices that read it.
           start   of a job: it joins in_flight, and the jobs on its own device that read it are
                   counted down at once, because the device itself orders them (section 2).
           zero    a job counted down to 0 starts, unless a job that it reads is in `failed`.
           twice   an event of a job that is not in flight changes nothing.
    Approach write two functions inside this one, and let them call each other: start(job), and
             count_readers(job, same_device). The copies below leave the old state as it was.
    Example  for {"a": ("X", ()), "b": ("X", ("a",)), "c": ("Y", ("b",))}, go gives {"left":
             {"a": 0, "b": 0, "c": 1}, "in_flight": ["a", "b"], "failed": []}  (roughly 18 lines)
    """
    kind, name = event
    left, flying, failed = dict(state["left"]), list(state["in_flight"]), list(state["failed"])
    ### BEGIN SOLUTION

    def start(job):
        flying.append(job)
        count_readers(job, same_device=True)

    def count_readers(job, same_device):
        for other, (device, reads) in jobs.items():
            if job in reads and (device == jobs[job][0]) == same_device:
                left[other] -= 1
                if left[other] == 0 and not any(read in failed for read in reads):
                    start(other)

    if kind == "go":
        for job, (_, reads) in jobs.items():
            if not reads:
                start(job)
    elif name in flying:
        flying.remove(name)
        if kind == "failed" or any(read in failed for read in jobs[name][1]):
            failed.append(name)
        else:
            count_readers(name, same_device=False)
    return {"left": left, "in_flight": flying, "failed": failed}
    ### END SOLUTION


# %% [markdown] id="l12b-5x"
# First try all orders yourself. `explore` asks your function for each of them, and stops at the first problem: a job started twice, or before what it reads; a job that is lost; a run that ends too early, or never. The jobs are two requests, each with the four chunks of section 2.

# %% id="l12b-e4d" vklab={"role": "demo"}
REQUESTS = {f"{chunk}{n}": (device, tuple(f"{read}{n}" for read in reads))
            for n in (1, 2) for chunk, (device, reads) in CHUNKS.items()}
with attempt("12b-4"):
    for failing in ("", "a1", "c2"):
        tried = run_limited(stepping.explore, REQUESTS, step, failing, seconds=20)
        print(f"{failing or 'nothing'} fails: {tried.value or tried.message}")

# %% id="l12b-e4c" vklab={"role": "check", "id": "12b-4"}
check("12b-4", step)

# %% id="l12b-e4h"
# hint("12b-4")

# %% [markdown] id="l12b-5w"
# ### Inside the runtime
# Now your step runs in vklab's scheduler, in place of `Run._complete(self, number, failure)`. The jobs are the 139 nodes of Inception, on two devices. In place of its kernel, each job sleeps for a moment, on the worker thread of its device. What your function starts is compared with the runtime's own answer before any job begins.

# %% id="l12b-5i" vklab={"role": "demo"}
with attempt("12b-4"):
    ran = run_limited(stepping.run_inside, step, seconds=60)
    print(ran.value or ran.message)

# %% [markdown] id="l12b-6t" vklab={"extra": true}
# ## 6 · Two queues (optional)
# No later section needs this one. A device may have several kinds of queues, its *queue families*: one for kernels, and perhaps one that only copies (`transfer`). The two work at the same time, so a copy for the next frame hides behind the kernels of this one. Two things must then be stated.
#
# **Order.** A barrier orders commands of *one* queue; two queues need a semaphore. **Ownership.** A buffer that is made `EXCLUSIVE` belongs to one family at a time. A *queue family ownership transfer* hands it over:

# %% id="l12b-6d" vklab={"extra": true} tags=["hide-input"]
figures.draw_ownership()

# %% [markdown] id="l12b-6r" vklab={"extra": true}
# Without this pair of barriers the bytes that the second family sees are undefined. The other choice is `CONCURRENT`: the buffer belongs to all listed families, and no transfer is needed. Which one does vklab take?

# %% id="l12b-6s" vklab={"extra": true} tags=["nbval-ignore-output"]
show("vklab.vulkan.memory.buffer_info")

# %% [markdown] id="l12b-6p" vklab={"extra": true}
# Two families make vklab's buffers `CONCURRENT`; one leaves them `EXCLUSIVE`. Now for the order. The class `TwoQueues` belongs to this lab: it submits a writer to the transfer queue and a reader to the compute queue. The writer sets a timeline semaphore to 1; the reader waits until it is at least `value`, and value 0 is no wait. In Vulkan, such a wait holds up everything that is submitted to the same queue later, too. Many devices, lavapipe among them, have *one* queue for both.
#
# Take such a device, and submit the **reader first**, then the writer. What happens to the reader without a wait, and what if it waits for 1? Write `"old"`, `"new"` (the bytes that it sees) or `"never"` (it never ends).

# %% id="l12b-p4"
predict("12b-p3", no_wait=..., waits_for_1=...)

# %% id="l12b-6c" vklab={"extra": true} tags=["nbval-ignore-output"]
for submitted, value in (("writer first", 1), ("reader first", 0), ("reader first", 1)):
    seen = run_limited(ordered_copies, submitted, value, seconds=30)
    print(f"{submitted}, waits for {value}: {seen.value or seen.message}")

# %% id="l12b-6w" vklab={"extra": true} tags=["nbval-ignore-output"]
show("vklab_labs.lab_12.two_queues.TwoQueues._copy")

# %% [markdown] id="l12b-6e" vklab={"extra": true}
# vklab's scheduler uses no timeline semaphore. (One other place of the runtime does: results that are handed to a CUDA program.) Why none here? On one queue, a barrier is enough, and cheaper. And a semaphore belongs to one device: a chunk on *another* device cannot wait for it, unless both drivers can share semaphores. The host has to know the end anyway, to copy the result. So a thread waits for a fence, then copies, then counts: `ChunkTask.finish` in `split.py`. The price is a round trip through the host for each change of device.

# %% [markdown] id="l12b-7t"
# ## 7 · What would break this?
# This planted scheduler works for every graph and in every order, as long as nothing fails. Before you run the cell: who waits for what?

# %% id="l12b-planted"
def speaks_up(jobs, state, event):
    """Do a right step, but let a failing job end its thread."""
    if event[0] == "failed":
        return {**state, "failed": [*state["failed"], event[1]]}
    return step(jobs, state, event)


with attempt("12b-4"):
    for failing in ("", "b1"):
        tried = run_limited(stepping.explore, REQUESTS, speaks_up, failing, seconds=20)
        print(f"{failing or 'nothing'} fails: {tried.value or tried.message}")

# %% [markdown] id="l12b-7r"
# The failed job is never taken out of `in_flight`. A program like this prints its message and then stands still: a test that waits for the result waits for ever. Two rules keep a runtime from this. The *end* of a job is counted whether it succeeds or fails, as in `_complete`. And every wait has a time limit: `Run.go` raises an error that names the jobs in flight.
#
# ## Recap
# | word | what it gives | what it does not give |
# |---|---|---|
# | atomic counter | no decrement is lost, one thread sees 0 | the bytes behind the number |
# | release, acquire | a view is published, and taken | anything, if one half is missing |
# | lock around `vkQueueSubmit` | one thread at a time uses the queue | any order on the GPU |
# | submission order | the order in which a queue takes work | the order in which the work ends |
# | lock-free | some thread always gets on | freedom from races, speed, workers that never sleep |
# | Miri verified | these runs had no undefined behaviour | other orders, the driver, the GPU |
# | reclamation | no record is freed under a reader | memory that is free at once |
# | pure step | every order can be tried | an atomic step: a lock or hardware must give it |
# | timeline semaphore | order of two queues of a device | order of two devices |
#
# **Next**: [lab 13](13_many_devices.ipynb) places chunks on several devices.
#
# **References**
# * Vulkan specification, [Synchronization and Cache Control](https://docs.vulkan.org/spec/latest/chapters/synchronization.html): submission order, queue family ownership transfer, timeline semaphores.
# * VKML and zero-pool: the pages linked above. Commits and versions are those of August 2026; later ones may be mended.
# * Views for release and acquire: Kang and others, *A promising semantics for relaxed-memory concurrency*, POPL 2017. Lock-free and wait-free: Herlihy and Shavit, *The Art of Multiprocessor Programming*, chapter 3.
