# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Subgroups"
#     minutes: 90
#     before: ["04", "04b"]
# ---

# %% [markdown] id="l07-title"
# # Lab 07 · Subgroups
# **How invocations make one result of many values** · 90 minutes, 4 exercises
#
# In labs 04 and 04b each invocation worked alone. A sum, a largest value or a softmax needs all values of a row, so invocations exchange values and wait for each other. Where one of them does not wait, the result is wrong on some GPU, on some day, and no test of values has to show it.
#
# **Afterwards you can**
# * find a race that no test of values can see;
# * exchange values through shared memory, with the barriers that this needs;
# * reduce many values to one by a tree, and count what it costs;
# * say what a subgroup is, how wide it is on which GPU, and what Vulkan promises about it;
# * count how many lanes of a subgroup work while the others wait;
# * compute a softmax of large logits, and load each logit only twice.
#
# **Before this lab**: labs 04 and 04b. At hand: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md).
#
# **File it opens**: `shaders/ops/softmax.slang`.

# %% id="l07-setup" tags=["hide-input"]
import json

import numpy as np
from IPython.display import display

from vklab_course import Run, attempt, banner, check, data, hint, predict, show
from vklab_course.children.run_kernel import Job, run_jobs
from vklab_course.counting.shapes import race_shape
from vklab_labs.lab_07 import workgroups as figures

RECORD = json.loads(data("recorded/shared_memory_h200.json").read_text("utf-8"))

# %% id="l07-banner"
banner()

# %% id="l07-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l07-break"
# ## 1 · What would break this?
# A **scan** computes the sum up to every place; this one adds from the end. The invocations of its workgroup exchange values through `part`, and wait for each other at each `GroupMemoryBarrierWithGroupSync()`. Its author tested it well: 100 of 100 runs on a CPU driver were right. **One line is missing.** Section 2 has the words to say which, and where.

# %% id="l07-5d" tags=["hide-input"]
figures.draw_scan()

# %% id="l07-scan"
SCAN = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
groupshared float part[64];

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint lane : SV_GroupIndex) {
    part[lane] = x[lane];
    GroupMemoryBarrierWithGroupSync();
    for (uint step = 1; step < 64; step *= 2) {
        float further = 0;
        if (lane + step < 64) further = part[lane + step];
        part[lane] += further;
        GroupMemoryBarrierWithGroupSync();
    }
    y[lane] = part[lane];
}
"""

# %% [markdown] id="l07-5p"
# A CPU driver runs the invocations of a workgroup from the first to the last. Is the result right? Is it right if the driver begins with the last invocation? Do the counters see a race? Write True or False, then run the next cell.

# %% id="l07-p3"
predict("07-p3", plain_right=..., mirrored_right=..., race_seen=...)

# %% id="l07-races" tags=["nbval-ignore-output"]
x = np.arange(64, dtype=np.float32)
seen = figures.observe(SCAN, {"x": x, "y": np.zeros_like(x)}, (1,), None, ("counted", "mirrored"))
for way, done in seen.dispatches.items():
    print(f"{way:9} right: {np.array_equal(done.buffers['y'], np.cumsum(x[::-1])[::-1])}")
print(race_shape(seen) or "no race")

# %% [markdown] id="l07-1t"
# ## 2 · Shared memory and a tree
# Registers belong to one invocation. **Shared memory** belongs to one workgroup: it is small, fast, and gone when the workgroup ends.

# %% id="l07-1d" tags=["hide-input"]
figures.draw_workgroup()

# %% [markdown] id="l07-1r"
# In Slang, `groupshared float part[256];` declares it, outside of `main`. Its content is undefined at the start. The invocations of a workgroup run in any order, so one must not read what another writes without a **barrier** between: `GroupMemoryBarrierWithGroupSync()` lets no invocation pass before all of the workgroup have arrived and their writes to shared memory are visible. (It orders shared memory only; `DeviceMemoryBarrierWithGroupSync()` orders buffers only, `AllMemoryBarrierWithGroupSync()` both.)
#
# **Nobody leaves early.** All invocations must reach every barrier, also those without an element. A `return` above a barrier, or a barrier inside of an `if` that some invocations skip, is undefined, even where it seems to work.
#
# Which line is missing in the kernel of section 1?

# %% [markdown] id="l07-5r"
# <details><summary>The missing line</summary>
#
# A barrier between `further = part[lane + step]` and `part[lane] += further`. Invocation 0 reads element 1, and invocation 1 writes it in the same step; nothing says which comes first. The barrier at the end of the loop orders the steps, not the two halves of a step.
#
# The check of this course runs kernels without subgroup operations in mirrored order, too, and counts who has used each element of shared memory since the last barrier.
# </details>
#
# To make one value of many is a **reduction**. The simplest one is serial: one invocation goes through all values, and 255 wait. A **tree** combines pairs:

# %% id="l07-1e" tags=["hide-input"]
figures.draw_tree()

# %% [markdown] id="l07-1p"
# A workgroup has 256 values. How many steps has the tree? How many combinations of two values does it make in all steps together?

# %% id="l07-p1"
predict("07-p1", tree_steps=..., combinations=...)

# %% [markdown] id="l07-e1t" vklab={"id": "07-1"}
# ### Exercise 1 · Largest minus smallest
# Each workgroup of [[size]] invocations looks at its own [[size]] elements, and writes one number: its largest element minus its smallest. Each invocation loads one element; everything else comes from shared memory, without the subgroup operations of section 3. The result must be right whichever invocation runs first.

# %% id="l07-e1" vklab={"role": "exercise", "id": "07-1", "points": 5, "lines": 11}
SPREAD = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;      // one number for each workgroup
struct Params { uint count; };    // elements of x
[vk::push_constant] ConstantBuffer<Params> params;

groupshared float low[[[size]]], high[[[size]]];

[shader("compute")]
[numthreads([[size]], 1, 1)]
void main(uint3 id : SV_DispatchThreadID, uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
    // TODO     y[group.x] = largest - smallest of the elements of this workgroup.
    // Approach put your element into low and high, then a tree for both. The last workgroup has
    //          fewer elements: what does an invocation without an element put there?
    // Limits   an invocation makes at most 4 shared loads a step and 8 more, a workgroup 5 for each
    //          element; one barrier a step, and two more.
    // Example  the elements 1, 2, ... [[size]] give [[size]] - 1             (roughly 11 lines)
    // ### BEGIN SOLUTION
    low[lane] = 3.4e38;
    high[lane] = -3.4e38;
    if (id.x < params.count) low[lane] = high[lane] = x[id.x];
    for (uint step = [[size]] / 2; step > 0; step /= 2) {
        GroupMemoryBarrierWithGroupSync();  // the values of the step before
        if (lane < step) {
            low[lane] = min(low[lane], low[lane + step]);
            high[lane] = max(high[lane], high[lane + step]);
        }
    }
    if (lane == 0) y[group.x] = high[0] - low[0];
    // ### END SOLUTION
}
"""

# %% [markdown] id="l07-e1m"
# Counters in the compiled kernel count what your tree costs. In a serial sum of 256 values, one invocation makes 256 loads from shared memory.

# %% id="l07-e1d" vklab={"role": "demo", "id": "07-1"}
with attempt("07-1"):
    x = np.arange(3 * [[size]] - 5, dtype=np.float32) ** 2
    seen = figures.observe(SPREAD, {"x": x, "y": x[:3]}, (3,), {"count": x.size})
    print("expected:", [float(np.ptp(part)) for part in np.split(x, [[[size]], 2 * [[size]]])])
    print("yours:   ", seen.buffers["y"].tolist())
    by = seen.counts.by_invocation
    print("the busiest invocation:", by["shared_loads"].max(), "loads from shared memory,",
          by["barriers"].max(), "barriers")

# %% id="l07-e1c" vklab={"role": "check", "id": "07-1"}
check("07-1", SPREAD)

# %% id="l07-e1h" tags=["nbval-ignore-output"]
# hint("07-1")

# %% [markdown] id="l07-2t"
# ## 3 · Subgroups
# **SIMD** instructions of a processor work on a vector of, say, eight numbers, and the program names the vector. A GPU does the same with another kind of program, **SIMT**: you write for one element, and compiler or hardware puts several invocations into the **lanes** of one instruction.

# %% id="l07-2d" tags=["hide-input"]
figures.draw_subgroups()

# %% [markdown] id="l07-2r"
# The invocations that share instructions form a **subgroup**. CUDA says *warp*, AMD *wave*, Metal *simdgroup*. They can exchange values without shared memory and without a barrier, by **subgroup operations**:
#
# | Slang | gives each lane |
# |---|---|
# | `WaveGetLaneCount()`, `WaveGetLaneIndex()` | the size of the subgroup; its own number in it |
# | `WaveActiveSum(v)`, `WaveActiveMax(v)` | the sum, the largest of `v` over the *active* lanes |
# | `WavePrefixSum(v)` | the sum over the lanes before it |
# | `WaveReadLaneAt(v, n)` | the `v` of lane `n`, which must be active |
# | `WaveIsFirstLane()` | true in the first active lane, false in all others |
#
# **How wide is a subgroup?** A power of two from 1 to 128; it depends on device and driver, and the program has to ask.
#
# | device | lanes | shared memory in hardware | source |
# |---|---|---|---|
# | NVIDIA | 32 | 48 KiB a workgroup in Vulkan | recorded on an H200 |
# | AMD Instinct (CDNA) | 64 | 64 KiB (MI350: 160) | AMD's table |
# | AMD Radeon (RDNA) | 32, also 64 | 64 KiB a workgroup | AMD's table; LLVM |
# | Intel | 8, 16 or 32 | 64 KiB and more | Intel's guide |
# | Apple | 32 | 32 KiB | Metal's tables |
# | lavapipe 22.3 | 4 or 8, by the processor; 16 on demand | 32 KiB | measured |
# | SwiftShader | 4 | 32 KiB | measured |
#
# Vulkan requires 16 KiB of shared memory for a workgroup; a driver may offer less than the hardware has, so ask `maxComputeSharedMemorySize`. With `VK_EXT_subgroup_size_control` (in Vulkan since 1.3) a program can ask which widths there are, and require one.
#
# **What is promised?** A program can ask which operations a device has: only a few basic ones are required, and `WaveActiveSum` is not among them. An operation includes the *active* lanes. Which lanes are active behind an `if` or a loop that has divided them? Vulkan promises that they meet again at the end of the block if the *whole workgroup* has entered it together. For one subgroup of many, or for lanes that came divided, it promises this only with an extension: `VK_KHR_shader_subgroup_uniform_control_flow`, `VK_KHR_shader_maximal_reconvergence`. It never promises that the lanes run in step. Since Volta (2017), each lane of an NVIDIA GPU has its own place in the program, so lanes of one warp may be at different lines. So exchange by subgroup operations, or wait at a barrier.
#
# To "optimize for AMD, Intel and Apple GPUs", a Vulkan program asks for the width and the size of shared memory, is right at every width, chooses workgroup and tile by specialization constants (lab 05), and measures on each device.
#
# `WaveActiveSum` in a workgroup of 64, at two widths. lavapipe takes its width from a variable; another driver ignores it and shows its own width twice.

# %% id="l07-widths" tags=["nbval-ignore-output"]
SUM = """
RWStructuredBuffer<uint> y;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint lane : SV_GroupIndex) {
    uint sum = WaveActiveSum(1);
    if (lane == 0) { y[0] = WaveGetLaneCount();  y[1] = sum; }
}
"""
for bits in ("128", "256"):
    job = Job("kernel.slang", Run({"y": np.zeros(2, np.uint32)}))
    done = run_jobs({"kernel.slang": SUM.encode()}, [job], 20, None,
                    {"LP_NATIVE_VECTOR_WIDTH": bits})[0]
    width, total = done.buffers["y"] if done.buffers else ("?", done.message)
    print(f"{width} lanes: WaveActiveSum(1) is {total} in lane 0 of a workgroup of 64")
print(f"{RECORD['device']}: {RECORD['subgroup_size']} lanes, shared memory "
      f"{RECORD['shared_memory_bytes'] // 1024} KiB; recorded {RECORD['date']}")

# %% [markdown] id="l07-e2t" vklab={"id": "07-2"}
# ### Exercise 2 · Right at which width?
# Each kernel has workgroups of 64 and shall write the sum of its 64 values `v`, each a `uint`; some of them are 0. `barrier` is short for `GroupMemoryBarrierWithGroupSync()`, and `InterlockedAdd(total, sum)` adds as one step (lab 07b). `part` and `total` are shared; `total` is 0, and a barrier stands before these lines.
#
# Assume that invocations 0, 1, 2 ... fill the subgroups in order, and that all lanes of a subgroup arrive together at the first line. Rely on nothing else that Vulkan does not promise. Widths are powers of two from 4 to 128 here. Where is each kernel right? (The check asks for all six at once; grading counts each kernel.)
#
# ```
# A   uint sum = WaveActiveSum(v);
#     if (lane == 0) y[group.x] = sum;
#
# B   uint sum = WaveActiveSum(v);
#     if (WaveIsFirstLane()) InterlockedAdd(total, sum);
#     barrier;
#     if (lane == 0) y[group.x] = total;
#
# C   uint sum = WaveActiveSum(v);
#     if (lane % [[width]] == 0) part[lane / [[width]]] = sum;
#     barrier;
#     if (lane == 0) { for (uint i = 1; i < 64 / [[width]]; ++i) sum += part[i];  y[group.x] = sum; }
#
# D   part[lane] = v;
#     barrier;
#     for (uint step = 32; step > 0; step /= 2) {
#         if (lane < step) part[lane] += part[lane + step];
#         if (step > [[width]]) barrier;       // the last steps stay in one subgroup
#     }
#     if (lane == 0) y[group.x] = part[0];
#
# E   part[lane] = v;
#     for (uint step = 32; step > 0; step /= 2) {
#         barrier;
#         if (lane < step) part[lane] += part[lane + step];
#     }
#     if (lane == 0) y[group.x] = part[0];
#
# F   if (v > 0) {
#         uint sum = WaveActiveSum(v);
#         if (WaveGetLaneIndex() == 0) InterlockedAdd(total, sum);
#     }
#     barrier;
#     if (lane == 0) y[group.x] = total;
# ```
#
# The options are `"at every width"`, `"at width [[width]] only"`, `"at width 64 or more only"`, `"not promised at any width"`.

# %% id="l07-e2" vklab={"role": "exercise", "id": "07-2", "points": 4, "lines": 6}
WIDTHS = ...  # TODO  {"A": "at every width", "B": ..., ... "F": ...}
### BEGIN SOLUTION
WIDTHS = [[right]]
### END SOLUTION

# %% id="l07-e2c" vklab={"role": "check", "id": "07-2"}
check("07-2", WIDTHS)

# %% id="l07-e2h"
# hint("07-2")

# %% [markdown] id="l07-2u"
# How much is it worth? Recorded on the H200: sums of four million numbers, 256 a workgroup. All three kernels load the same 16 MiB. The serial sum takes 256 turns where the tree takes 8 steps, and yet it is only 1.2 times as slow: while the lanes of one workgroup wait, others of the 16,384 use the GPU. `tree` has 9 barriers, `subgroups` one.

# %% id="l07-h200" tags=["nbval-ignore-output"]
for name, time in RECORD["sums"]["time_ns"].items():
    print(f"{name:10} {time / 1000:8.1f} microseconds")

# %% [markdown] id="l07-3t"
# ## 4 · Lanes that wait
# Invocations of a subgroup share instructions. If an `if` divides them, the subgroup takes both branches, one after the other, and in each branch the other lanes wait. This is **divergence**. In a loop, the subgroup goes round until its last lane has finished. A **lane turn** is one lane during one turn of that loop, whether it works or waits.

# %% id="l07-3d" tags=["hide-input"]
figures.draw_active([3, 1, 5, 2, 2, 2, 1, 2], 4, "Eight invocations, two subgroups.")

# %% [markdown] id="l07-e3t"
# ### Exercise 3 · Count the lanes
# Return the lane turns that do work, and those that the subgroups pay for.

# %% id="l07-e3" vklab={"role": "exercise", "id": "07-3", "points": 3, "lines": 5}
def lane_turns(turns, width):
    """Return (used, paid), in lane turns, if invocation i makes turns[i] turns of a loop.

    turns: a list; width: lanes of a subgroup. Invocations fill the subgroups in order.
    TODO     used: the turns of all invocations. paid: each lane of a subgroup, in each of its
             turns; a subgroup goes round as often as its slowest lane. The missing lanes of the
             last subgroup are paid for, too.
    Example  lane_turns([3, 1, 0, 2], 2) -> (6, 10)                        (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    paid = 0
    for first in range(0, len(turns), width):
        paid += width * max(turns[first : first + width])
    return sum(turns), paid
    ### END SOLUTION


# %% [markdown] id="l07-e3m"
# A loop of very different lengths: the steps of the Collatz sequence of each number from 1 to 256 (halve an even number, else take 3 n + 1, until 1 is reached).

# %% id="l07-e3d" vklab={"role": "demo"}
def collatz(n):
    """Return the steps from n to 1."""
    return 0 if n == 1 else 1 + collatz(3 * n + 1 if n % 2 else n // 2)


with attempt("07-3"):
    turns = [collatz(n) for n in range(1, 257)]
    for width in (4, 8, 16, 32, 64):
        (used, paid), (_, ordered) = lane_turns(turns, width), lane_turns(sorted(turns), width)
        print(f"{width:2} lanes: {used / paid:4.0%} active; sorted by turns {used / ordered:4.0%}")
    display(figures.draw_active(turns, 32, "Collatz sequences of 1 to 256."))

# %% id="l07-e3c" vklab={"role": "check", "id": "07-3"}
check("07-3", lane_turns)

# %% id="l07-e3h"
# hint("07-3")

# %% [markdown] id="l07-3r"
# Narrow subgroups lose less, and neighbours with similar work lose little. The H200 shows the same: a kernel has 1 to 32 branches with a loop in each, and every invocation takes one of them, chosen by its lane, or by its group of 32 lanes (a workgroup of 256 has eight groups, so at most eight branches are taken). The times are multiples of the time with one branch.

# %% id="l07-branches" tags=["nbval-ignore-output"]
branches = RECORD["branches"]["time_ns"]
print("branches  chosen by lane  by group")
for paths in branches["inside a subgroup"]:
    lanes, groups = (each[paths] / each["1"] for each in branches.values())
    print(f"{paths:>8}  {lanes:14.2f}", f"{groups:9.2f}" if int(paths) <= 8 else "")

# %% [markdown] id="l07-4t"
# ## 5 · A softmax that survives
# The last layer of a classifier gives **logits**, numbers of any size. A **softmax** makes probabilities of them: `exp(x) / sum of exp(x)` over the row. float32 ends near 3.4e38. Is exp(88) finite in float32, and exp(100)? Write True or False.

# %% id="l07-p2"
predict("07-p2", logit_88_finite=..., logit_100_finite=...)

# %% [markdown] id="l07-4r"
# So a softmax that does not overflow subtracts the largest logit of the row first. Three passes find the largest, the sum and the result: three loads of each logit. The loops of the runtime's kernel are in lines 34, 41 and 50; the rest is for other layouts.

# %% id="l07-show" tags=["nbval-ignore-output"]
show("softmax")

# %% [markdown] id="l07-4s"
# The first two passes can be one. Each part of the row becomes a pair: its largest logit so far, and the sum of `exp(logit - largest)`. A tree joins the pairs. This is the **online softmax**.

# %% id="l07-4d" tags=["hide-input"]
figures.draw_join()

# %% [markdown] id="l07-e4t"
# ### Exercise 4 · Join two parts
# Write the join, and the pass in which each invocation makes its own pair. The rest is given: the tree, and the pass that writes. Some logits are -infinity: *masked*, with the probability 0; each row has at least one that is not. (Vulkan promises to keep infinities only where a kernel asks for `SignedZeroInfNanPreserve`; some programs mask with a large negative number.)

# %% id="l07-e4" vklab={"role": "exercise", "id": "07-4", "points": 5, "lines": 5}
SOFTMAX = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint columns; };         // one workgroup for each row
[vk::push_constant] ConstantBuffer<Params> params;

groupshared float2 part[64];

float2 join(float2 a, float2 b) {
    // TODO     the pair of two parts: .x is the largest logit, .y the sum of exp(logit - .x).
    // Example  join(float2(3, 1), float2(5, 1)) is (5, 1 + exp(-2))        (roughly 2 lines)
    // ### BEGIN SOLUTION
    float largest = max(a.x, b.x);
    return float2(largest, a.y * exp(a.x - largest) + b.y * exp(b.x - largest));
    // ### END SOLUTION
}

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
    uint first = group.x * params.columns;
    float2 mine = float2(-3e38, 0);      // no logit yet
    // TODO     join the logits lane, lane + 64, lane + 128 ... of this row into mine.
    // ### BEGIN SOLUTION
    for (uint c = lane; c < params.columns; c += 64)
        mine = join(mine, float2(x[first + c], 1));
    // ### END SOLUTION
    part[lane] = mine;
    for (uint step = 32; step > 0; step /= 2) {
        GroupMemoryBarrierWithGroupSync();
        if (lane < step) part[lane] = join(part[lane], part[lane + step]);
    }
    GroupMemoryBarrierWithGroupSync();
    for (uint column = lane; column < params.columns; column += 64)
        y[first + column] = exp(x[first + column] - part[0].x) / part[0].y;
}
"""

# %% id="l07-e4d" tags=["nbval-ignore-output"]
with attempt("07-4"):
    x = np.array([1000, 999, 998, -np.inf], np.float32)
    seen = figures.observe(SOFTMAX, {"x": x, "y": np.zeros(4, np.float32)}, (1,), {"columns": 4})
    with np.errstate(all="ignore"):
        print("exp(x) / sum:", np.round(np.exp(x) / np.exp(x).sum(), 4))
    print("yours:       ", np.round(seen.buffers["y"], 4), "loads:", seen.counts.total("loads"))

# %% id="l07-e4c" vklab={"role": "check", "id": "07-4"}
check("07-4", SOFTMAX)

# %% id="l07-e4h" tags=["nbval-ignore-output"]
# hint("07-4")

# %% [markdown] id="l07-recap"
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | shared memory | memory of one workgroup; a barrier must stand between a write and a read by another, and nobody leaves early | section 2 |
# | reduction, tree | one value of many; pairs are combined, in log2(n) steps | 07-1 |
# | subgroup, lane | invocations that share instructions; 1 to 128 of them, so ask | 07-2 |
# | SIMD, SIMT | the program names the vector, or is written for one element | section 3 |
# | divergence | lanes wait while others take another branch or more turns | 07-3 |
# | online softmax | largest logit and sum in one pass, by joining pairs | 07-4 |
# | scan | the reduction up to every place; `WavePrefixSum` is the usual first step of one | section 1 |
#
# All words are in the [glossary](GLOSSARY.md), the language is in [Slang on one page](SLANG.md).
#
# **Next**: [lab 07b](07b_atomics_and_banks.ipynb), invocations that meet at one element or at one bank, with the open-ended exercise. Then [lab 08](08_matmul.ipynb), products of matrices.
#
# **To read**
# * Vulkan's subgroups, with a table of operations: <https://www.khronos.org/blog/vulkan-subgroup-tutorial>
# * Lanes and shared memory: [AMD's table](https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html), [LLVM's AMDGPU guide](https://llvm.org/docs/AMDGPUUsage.html), [Intel's guide](https://www.intel.com/content/www/us/en/docs/oneapi/optimization-guide-gpu/2025-0/shared-local-memory.html), [Metal's tables](https://developer.apple.com/metal/Metal-Feature-Set-Tables.pdf), [CUDA's guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#simt-architecture)
# * M. Milakov, N. Gimelshein, *Online normalizer calculation for softmax* (2018): <https://arxiv.org/abs/1805.02867>
# * W. D. Hillis, G. L. Steele, *Data parallel algorithms* (1986): the scan of section 1
