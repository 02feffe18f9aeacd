# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "First dispatch", minutes: 140}
# ---

# %% [markdown] id="l04-title"
# # Lab 04 · First dispatch
# **Write, compile, bind, dispatch, read back** · 140 minutes in two sittings (sections 1 to 6: 95, sections 7 to 9: 45), 7 exercises
#
# NumPy adds two arrays in one line. On a GPU you write what happens to *one* element, and start that code a thousand times. In the first half of this lab you write such kernels. In the second half you open the box below them: seven steps and about 15 objects, each made once by hand.
#
# **Afterwards you can**
# * write map, zip and two-dimensional kernels in Slang, and recognise the same kernel in five other languages;
# * compute how many workgroups to dispatch, also when one row of them is not enough;
# * guard a kernel, and find a write out of bounds from the memory that it changed;
# * see and count which invocation touches which element, and make a kernel load less;
# * name the seven steps from an empty process to a result, and say what each object is for.
#
# **Before this lab**: lab 00; lab 02 helps with section 7. You need NumPy arrays and enough C to read `if (i < n) y[i] = a[i];`. At hand: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md).
#
# **Files it opens**: `shaders/labs/vector_add.slang`, `shaders/labs/vector_add.comp`, `vklab/course/children/kernel_child.py`.

# %% id="l04-setup"
import re
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import vulkan as vk
from IPython.display import display

from vklab.course import Run, attempt, banner, check, hint, predict, run_kernel, show
from vklab.course.figures.accesses import draw_access_counts, draw_invocation_map, draw_owners
from vklab.course.figures.diagram import Diagram
from vklab.course.figures.lanes import draw_arena, draw_graph, draw_timeline
from vklab.course.figures.listings import draw_listings
from vklab.course.figures.steps import ObjectStack
from vklab.course.figures.trace import READ, WRITE, trace
from vklab.runtime import open_devices
from vklab.shader import source, toolchain

# %% id="l04-banner"
banner()

# %% id="l04-own" vklab={"role": "own", "id": "l04-own"}
# Your own helpers and imports, if you need any: this cell is handed in with your answers.

# %% [markdown] id="l04-one"
# ## 1 · One addition, a thousand times
# A **kernel** is the code for one element. One run of that code is an **invocation**. Invocations come in **workgroups** of a fixed size, and you start (*dispatch*) whole workgroups.

# %% id="l04-one-d" tags=["hide-input"]
grid = Diagram(660, 150)
for n, words in enumerate(("workgroup 0", "workgroup 1", "...", "workgroup 15")):
    grid.box((10 + 162 * n, 6, 152, 46), words + ("\n64 invocations" if n != 2 else ""), "blue")
    last = "960 to 999" if n == 3 else ("0 to 63", "64 to 127", "...")[min(n, 2)]
    grid.box((10 + 162 * n, 96, 95 if n == 3 else 152, 46), "elements\n" + last, "green")
    grid.arrow((50 + 162 * n, 54), (50 + 162 * n, 94))
grid.note((58, 78), "i = id.x")
grid.box((596, 96, 56, 46), "nothing", "grey", dashed=True, filled=False)
grid.arrow((628, 54), (628, 94))
grid.picture("Sixteen workgroups of 64 invocations above a thousand elements; in the last group "
             "some invocations have no element.",
             "1000 elements, 16 workgroups of 64: invocation i takes care of element i.")

# %% [markdown] id="l04-one-k"
# This is a whole kernel, in the language Slang, in which you will write yours:

# %% id="l04-slang"
ADD = show("labs/vector_add.slang").text
show("labs/vector_add.slang")

# %% [markdown] id="l04-one-r"
# * A **buffer** is an array in memory that the device can reach. `StructuredBuffer<float> a` may be read; `RW` (read and write) marks a buffer that may be written, too.
# * `[shader("compute")]` marks `main` as the start of a compute kernel; `[numthreads(64, 1, 1)]` sets the size of its workgroups: 64 x 1 x 1 invocations.
# * `SV_DispatchThreadID` is the number of this invocation in the whole dispatch. `SV_` means *system value*: the device supplies it. It is a `uint3`, three unsigned integers, because a grid may have three dimensions; `id.x` is the first of the three.
# * `params.count` is a **push constant**: a few bytes that travel with the dispatch.
#
# First predict: there are 1000 elements and workgroups of 64. Put a number in place of each `...`, then run the cell; the explanation appears below it.

# %% id="l04-p1"
predict("04-p1", workgroups=..., invocations=..., idle=...)

# %% [markdown] id="l04-run-t"
# `run_kernel` compiles a kernel, copies the buffers to the device, dispatches, and copies the buffers back. It works in a process of its own: a kernel that loops for ever, or crashes the driver, ends there and not in your notebook. Section 7 shows what it does inside.

# %% id="l04-run"
a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)
run = Run({"a": a, "b": b, "y": np.zeros_like(a)}, workgroups=(16,), push={"count": a.size})
done = run_kernel(ADD, run)[0]
print(done.status, np.array_equal(done.buffers["y"], a + b))

# %% [markdown] id="l04-trace-t"
# Which invocation touches which element? `trace` puts a counter beside every load and store of the compiled kernel, runs it, and returns what was counted. Here are 100 elements and two workgroups:

# %% id="l04-trace" tags=["nbval-ignore-output"]
x = np.arange(100, dtype=np.float32)
add_traced = trace(ADD, {"a": x, "b": x, "y": np.zeros_like(x)}, (2,), {"count": 100})
print(add_traced)
draw_invocation_map(add_traced)

# %% [markdown] id="l04-trace-r"
# Reads and writes are what this lab counts, in place of time: a count is the same on every machine. `vector_add` moves three numbers for one addition. On large arrays it therefore waits for memory, not for arithmetic, on every device; on 1000 elements the start of the dispatch costs more than both. Lab 08 makes that precise.

# %% [markdown] id="l04-guard"
# ## 2 · The guard
# Whole workgroups run, so some invocations have no element. The line `if (i < params.count)` is the **guard** that stops them. Below, `vector_add` has lost its guard; it runs on 100 elements with two workgroups. First predict how many elements of `y` are right, and how many writes land outside of `y`.

# %% id="l04-p2"
predict("04-p2", elements_right=..., writes_outside=...)

# %% [markdown] id="l04-guard-t"
# To see such writes, `run_kernel` lays **guard words** before and behind each buffer: a pattern that hardly any kernel writes. Afterwards it looks whether the pattern is still there.

# %% id="l04-guard-d" tags=["hide-input"]
draw_arena([("guard words", 4096, "grey"), ("y: 100 floats", 400, "green"),
            ("guard words", 4096, "grey")], least=170,
           alt="A buffer of 400 bytes between two blocks of 4096 bytes of guard words.",
           caption="What run_kernel allocates for y, with byte numbers; not to scale.")

# %% id="l04-unguarded"
UNGUARDED = """
StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> y;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    y[id.x] = a[id.x] + b[id.x];
}
"""
x = np.arange(100, dtype=np.float32)
arrays = {"a": x, "b": x, "y": np.zeros_like(x)}
done = run_kernel(UNGUARDED, Run(arrays, (2,)))[0]
print(f"{done.status} | the 100 elements are right: {np.array_equal(done.buffers['y'], x + x)}\n"
      f"bytes outside of y that changed, the first eight words: {done.out_of_bounds.get('y')}")

# %% id="l04-unguarded-d" tags=["nbval-ignore-output"]
draw_invocation_map(trace(UNGUARDED, arrays, (2,), {}))

# %% [markdown] id="l04-guard-r"
# The result is **right**, and the kernel is broken: it wrote behind `y`, where another array may lie. There is no error; a wrong number turns up later, somewhere else. (Byte 400 is the first byte behind 100 floats.)
#
# Vulkan has a feature for this, `robustBufferAccess`. Every driver must offer it, but a program must ask for it, and even then a stray write may change other bytes of the memory that is bound. It limits the damage and hides the bug.
#
# Guard words reach 4096 bytes. The counters of `trace` and of the checks have no such limit: they see the element that your kernel *asks for*, however far away, for reads as well as for writes. The checks reject both, because what lies outside is not yours.

# %% [markdown] id="l04-e1t" vklab={"id": "04-1"}
# ### Exercise 1 · Map
# **Map**: each element of `y` depends on the one element of `x` with the same number. Yours is a *squared clamp*: `max(x, [[low]])`, times itself. One invocation handles one element: a loop in which one invocation does everything gives the right values, and leaves the rest of the GPU idle. In all exercises, write each element of `y` once, and do not read `y`. The check also uses sizes that are no multiple of 64, and a workgroup that has no work at all.
#
# The line with `#error` stops the compiler until you have replaced it.
#
# *GLSL instead?* Every exercise accepts it. Replace the whole text, start with `#version 450`, and name the blocks and arrays as `vector_add.comp` in section 7 does: block `X` with array `x`, block `Y` with array `y`.

# %% id="l04-e1" vklab={"role": "exercise", "id": "04-1", "points": 4, "lines": 5}
SQUARED_RELU = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     y[i] = max(x[i], [[low]]) squared, for each i below params.count
    // Approach the number of this invocation is id.x; guard it, then one element in, one out.
    // Example  x = [3, -4, 5] gives y = [9, [[low]] * [[low]], 25]            (roughly 5 lines)
    // ### BEGIN SOLUTION
    uint i = id.x;
    if (i < params.count) {
        float positive = max(x[i], [[low]]);
        y[i] = positive * positive;
    }
    // ### END SOLUTION
}
"""

# %% id="l04-e1d" tags=["nbval-ignore-output"]
with attempt("04-1"):
    x = np.linspace(-3, 3, 100, dtype=np.float32)
    traced = trace(SQUARED_RELU, {"x": x, "y": np.zeros_like(x)}, (2,), {"count": 100})
    print(traced)
    display(draw_invocation_map(traced))

# %% id="l04-e1c" vklab={"role": "check", "id": "04-1"}
check("04-1", SQUARED_RELU)

# %% [markdown] id="l04-e1s"
# Stuck? Remove the `#` below and run the cell: each run gives one more hint. The other exercises have such a cell as well.

# %% id="l04-e1h" tags=["nbval-ignore-output"]
# hint("04-1")

# %% [markdown] id="l04-bad-t"
# ### When a kernel does not end well
# First predict the status of two kernels. The first writes `coutn`, a name that nobody declared. The second declares a buffer `x` and never reads it. Choose from `"ran"`, `"compile_error"`, `"timeout"`.

# %% id="l04-p3"
predict("04-p3", misspelt=..., unused=...)

# %% id="l04-bad" tags=["nbval-ignore-output"]
HEAD = """RWStructuredBuffer<float> y;
[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
"""
MISSPELT = HEAD + "    y[id.x] = coutn; }"
UNUSED = "StructuredBuffer<float> x;\n" + HEAD + "    y[id.x] = 2.0; }"
ENDLESS = HEAD + "    while (y[id.x] > -1.0) y[id.x] = 0.5 * y[id.x]; }"
for text in (MISSPELT, UNUSED, ENDLESS):
    arrays = {name: np.ones(64, np.float32) for name in "xy" if f"<float> {name}" in text}
    done = run_kernel(text, Run(arrays), seconds=2)[0]
    print(done.status, "|", done.message.splitlines()[0] if done.message else "no message")

# %% [markdown] id="l04-bad-r"
# *x is never used* in a message means: your kernel does not look at its input. Slang's compiler leaves such a buffer out of the compiled kernel.
#
# The loop of the third kernel never ends, because halving a positive number never makes it smaller than -1. A GPU goes on until its driver steps in; `run_kernel` stops its process after the time limit and says `timeout`. If yours says `ran | no message`, you are on lavapipe, Mesa's Vulkan driver for CPUs (the banner calls its device llvmpipe): lavapipe of Mesa 22.3 ends every loop after 65535 turns and says nothing. The checks count turns, and do say it.

# %% [markdown] id="l04-push-t"
# ## 3 · Push constants
# Push constants are part of the command, not of a buffer. Every device takes at least 128 bytes of them. The host writes bytes; the kernel reads a struct.

# %% id="l04-push-d" tags=["hide-input"]
draw_arena([("uint count", 4, "blue"), ("float scale", 4, "orange")],
           alt="Eight bytes: four of count, a uint, then four of scale, a float.",
           caption="The struct of exercise 04-2 as bytes: each member takes four.")

# %% id="l04-push"
data = struct.pack("<If", 1000, 0.5)  # < little endian, I uint, f float
floats = [f"{value:.3g}" for value in struct.unpack("<2f", data)]
print(f"{data.hex(' ', 4)}\nread as two floats: {floats}")

# %% [markdown] id="l04-push-r"
# Vulkan copies bytes and knows no types. A struct with `float count` would read 1000 as 1.4e-42, a number next to nothing, without an error. vklab is kinder: it reads names and types back from your compiled kernel, and packs 1000 by the type that it finds there. So a wrong type can still give right results here, and be wrong everywhere else; the check therefore looks at the types.
#
# ### Exercise 2 · Zip
# **Zip**: each element of `y` depends on the elements of two inputs at the same place. Yours is `y = scale * a + b`. This time you write the struct, too: the host pushes `count`, a `uint`, and `scale`, a `float`.

# %% id="l04-e2" vklab={"role": "exercise", "id": "04-2", "points": 5, "lines": 5}
SCALED_SUM = """
StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> y;

struct Params {
    // TODO     two members: what the host pushes, by its names                 (2 lines)
    // ### BEGIN SOLUTION
    uint count;
    float scale;
    // ### END SOLUTION
};
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     y[i] = scale * a[i] + b[i], guarded
    // Example  a = [1, 2], b = [10, 20], scale = 3 gives y = [13, 26]          (roughly 3 lines)
    // ### BEGIN SOLUTION
    uint i = id.x;
    if (i < params.count)
        y[i] = params.scale * a[i] + b[i];
    // ### END SOLUTION
}
"""

# %% id="l04-e2c" vklab={"role": "check", "id": "04-2"}
check("04-2", SCALED_SUM)

# %% id="l04-e2h" tags=["nbval-ignore-output"]
# hint("04-2")

# %% [markdown] id="l04-grid-t"
# ## 4 · How many workgroups?
# You dispatch workgroups, so you divide: elements by workgroup size, **rounded up**. Rounding down loses the last elements.
#
# There is a second rule. Vulkan promises 65535 workgroups along x (`maxComputeWorkGroupCount`), and many devices offer exactly this number. With 64 invocations each, that is 4,194,240 elements, just short of an image of 2048 x 2048. A longer grid continues along y, in rows of a fixed length:

# %% id="l04-grid-d" tags=["hide-input"] vklab={"id": "04-3"}
rows_of = Diagram(640, 132)
for n, words in enumerate(("groups 0 to ROW - 1", "groups ROW to 2 ROW - 1", "the rest")):
    rows_of.note((10, 26 + 42 * n), f"group.y = {n}")
    rows_of.box((90, 6 + 42 * n, (540, 540, 200)[n], 32), words, "blue")
rows_of.box((290, 90, 340, 32), "idle: the guard stops them", "grey", dashed=True, filled=False)
rows_of.picture("Three rows of workgroups; the last row is only partly needed.",
                "A long grid: workgroup number = group.x + ROW * group.y, with ROW = [[row]].")

# %% [markdown] id="l04-e3t"
# ### Exercise 3 · The grid
# Keep one row as long as the limit allows; in this exercise the limit is `LIMIT = [[limit]]`. Beyond it, use as few rows of exactly `ROW` workgroups as cover all elements. (vklab's own rule is in `vklab/ops/registry.py`; it starts the second row earlier, and the check wants the rule of this text.)

# %% id="l04-e3" vklab={"role": "exercise", "id": "04-3", "points": 4, "lines": 4}
LIMIT, ROW = [[limit]], [[row]]


def workgroups(count, size=64):
    """Return the workgroups (x, y, z) that cover `count` elements, `size` in each workgroup.

    All three are ints; np.ceil returns floats.

    TODO     up to LIMIT workgroups: one row, (n, 1, 1). More: rows of ROW, (ROW, rows, 1), and as
             few rows as cover them all.
    Approach divide and round up; if that is too many for one row, divide and round up again.
    Example  workgroups(1000) -> (16, 1, 1)      workgroups(0) -> (0, 1, 1)
             workgroups((LIMIT + 1) * 64) -> (ROW, rows, 1)                  (roughly 4 lines)
    """
    ### BEGIN SOLUTION
    groups = -(-count // size)
    if groups <= LIMIT:
        return (groups, 1, 1)
    return (ROW, -(-groups // ROW), 1)
    ### END SOLUTION


# %% [markdown] id="l04-e3p"
# First in use: 4.2 million elements, more than one row holds. The kernel adds each element's number, counted from 1, to the element; `InterlockedAdd` is an addition that no other invocation can interrupt. Where two workgroups overlap, a number is added twice.

# %% id="l04-e3d" vklab={"id": "04-3"}
NUMBER = """
RWStructuredBuffer<uint> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint place : SV_GroupIndex) {  // of the group; inside the group
    uint i = (group.x + [[row]] * group.y) * 64 + place;
    if (i < params.count) InterlockedAdd(y[i], i + 1);
}
"""
with attempt("04-3", seconds=120):
    many = 4_200_000
    run = Run({"y": np.zeros(many, np.uint32)}, workgroups(many), {"count": many})
    done = run_kernel(NUMBER, run, seconds=60)[0]
    if done.status != "ran":
        raise RuntimeError(f"{done.status}: {done.message}")
    once = np.array_equal(done.buffers["y"], np.arange(1, many + 1))
    print(f"{workgroups(many)}: every element has its number, and no workgroup repeats one: {once}")

# %% id="l04-e3c" vklab={"role": "check", "id": "04-3"}
check("04-3", workgroups)

# %% id="l04-e3h" tags=["nbval-ignore-output"]
# hint("04-3")

# %% [markdown] id="l04-two"
# ## 5 · Two dimensions
# A buffer has one dimension, and a matrix lies in it row after row. The grid may have two: with `[numthreads(8, 8, 1)]`, `id.x` counts along a row and `id.y` counts rows.

# %% id="l04-two-d" tags=["hide-input"]
matrix = Diagram(640, 118)
for row, colour in enumerate(("blue", "orange")):
    for column in range(3):
        name = f"{row},{column}"
        matrix.box((20 + 46 * column, 12 + 40 * row, 42, 34), name, colour)
        matrix.box((250 + 62 * (3 * row + column), 32, 58, 34), name, colour)
        number = str(3 * row + column)
        matrix.note((279 + 62 * (3 * row + column), 86), number, anchor="middle")
matrix.arrow((170, 48), (240, 48))
matrix.picture("A matrix of two rows and three columns, and the same six elements in a line.",
               "Row r, column c of a matrix with 3 columns is element 3 r + c of the buffer.")

# %% [markdown] id="l04-two-p"
# First predict: a matrix of 37 rows and 53 columns, workgroups of 8 x 8. How many workgroups along x (`across`) and along y (`down`)? How many invocations are idle?

# %% id="l04-p4"
predict("04-p4", across=..., down=..., idle=...)

# %% [markdown] id="l04-e4t"
# ### Exercise 4 · Transpose
# `y` is `x` with rows and columns exchanged: for an `x` of 37 x 53, `y` has 53 rows of 37. Reading along a row of `x` means writing down a column of `y`. In the picture each workgroup has a colour of its own, so you see which part of `y` it filled.

# %% id="l04-e4" vklab={"role": "exercise", "id": "04-4", "points": 4, "lines": 4}
TRANSPOSE = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns; };   // of x
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     the element in row r, column c of x goes to row c, column r of y.
    // Approach c = id.x, r = id.y; guard both; one read, one write.
    // Example  rows = 2, columns = 3: x = [1, 2, 3, 4, 5, 6] gives y = [1, 4, 2, 5, 3, 6]
    //                                                                         (roughly 4 lines)
    // ### BEGIN SOLUTION
    uint c = id.x;
    uint r = id.y;
    if (r < params.rows && c < params.columns)
        y[c * params.rows + r] = x[r * params.columns + c];
    // ### END SOLUTION
}
"""

# %% id="l04-e4d" tags=["nbval-ignore-output"]
with attempt("04-4"):
    x = np.arange(37 * 53, dtype=np.float32)
    arrays, push = {"x": x, "y": np.zeros_like(x)}, {"rows": 37, "columns": 53}
    display(draw_owners(trace(TRANSPOSE, arrays, (7, 5), push), "y", (53, 37)))

# %% id="l04-e4c" vklab={"role": "check", "id": "04-4"}
check("04-4", TRANSPOSE)

# %% id="l04-e4h" tags=["nbval-ignore-output"]
# hint("04-4")

# %% [markdown] id="l04-sectors-t"
# Each element is read once and written once, as rarely as possible. But no GPU moves single floats: memory comes in pieces of 32 to 128 bytes. We count **sectors** of 32 bytes, or 8 floats. The next cell counts the sectors that eight neighbours in one row touch, and those that a whole workgroup touches.

# %% id="l04-sectors" tags=["nbval-ignore-output"]
with attempt("04-4"):
    transposed = trace(TRANSPOSE, arrays, (7, 5), push)
    for what, touches in (("x, read", transposed.of("x", READ)),
                          ("y, written", transposed.of("y", WRITE))):
        group = touches[(touches[:, 0] // 8 == 1) & (touches[:, 1] // 8 == 1)]  # workgroup (1, 1)
        eight = group[group[:, 1] == 8]  # its first row
        print(f"{what}: eight neighbours touch {len(set(eight[:, 2] // 8))} sectors, "
              f"the 64 invocations of the workgroup {len(set(group[:, 2] // 8))}")

# %% [markdown] id="l04-sectors-r"
# Neighbours read side by side and write 37 elements apart, so one row of invocations touches one or two sectors of `x` and eight of `y`. Over the whole workgroup the difference vanishes: the other rows fill the same sectors of `y`, if the cache keeps them until then. With workgroups of 64 x 1 the other rows would belong to other workgroups. Lab 07 removes the dependence on the cache.

# %% [markdown] id="l04-some"
# ## 6 · Several elements for each invocation
# An invocation may handle more than one element: fewer invocations, each with more to do. In this kernel each handles four. Somebody tested it with 1000 elements, and it passed.

# %% id="l04-some-k"
PASSED_ONCE = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    uint first = 4 * id.x;
    if (first < params.count)
        for (uint k = 0; k < 4; ++k)
            y[first + k] = 0.5 * x[first + k];
}
"""

# %% [markdown] id="l04-some-p"
# First predict: how many elements are written outside of `y` with 1000 elements, and with 1003?

# %% id="l04-p5"
predict("04-p5", outside_1000=..., outside_1003=...)

# %% id="l04-some-r"
for count in (1000, 1003):
    x = np.arange(count, dtype=np.float32)
    done = run_kernel(PASSED_ONCE, Run({"x": x, "y": np.zeros_like(x)}, (4,), {"count": count}))[0]
    right, outside = np.array_equal(done.buffers["y"], x / 2), done.out_of_bounds.get("y", "none")
    print(f"count={count}: {done.status}, y is right: {right}, bytes outside: {outside}")

# %% [markdown] id="l04-e5t" vklab={"id": "04-5"}
# The guard is there. It asks the right question about the wrong element.
#
# ### Exercise 5 · Repair it
# Give [[each]] elements in a row to each invocation, and move the question to where the element is.

# %% id="l04-e5" vklab={"role": "exercise", "id": "04-5", "points": 4, "lines": 3}
HALVES = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    uint first = [[each]] * id.x;
    for (uint k = 0; k < [[each]]; ++k) {
        // TODO     y[i] = 0.5 * x[i] for the element i of this turn, if there is such an element
        // Example  count = [[each]] + 1: invocation 1 has one element             (roughly 3 lines)
        // ### BEGIN SOLUTION
        uint i = first + k;
        if (i < params.count)
            y[i] = 0.5 * x[i];
        // ### END SOLUTION
    }
}
"""

# %% id="l04-e5d" tags=["nbval-ignore-output"]
with attempt("04-5"):
    x = np.arange(103, dtype=np.float32)
    display(draw_invocation_map(trace(HALVES, {"x": x, "y": np.zeros_like(x)}, (1,),
                                      {"count": 103})))  # fmt: skip

# %% id="l04-e5c" vklab={"role": "check", "id": "04-5"}
check("04-5", HALVES)

# %% id="l04-e5h" tags=["nbval-ignore-output"]
# hint("04-5")

# %% [markdown] id="l04-e6t"
# ### Exercise 6 · Fewest loads (scored)
# A **box sum** replaces each element of an image by the sum of the 3 x 3 elements around it. So that every element has eight neighbours, `x` has a border: it has `rows + 2` rows of `columns + 2`, and `y[r, c]` is the sum of `x[r .. r + 2, c .. c + 2]`. Each invocation computes **16 elements** of `y`. *Which* 16, and in which order, is your choice.

# %% id="l04-e6a" tags=["hide-input"]
tile = Diagram(640, 150)
tiles = ((20, 1, 1, "1 x 1: needs 9"), (190, 16, 1, "1 x 16: needs 3 x 18 = 54"),
         (510, 2, 8, "8 x 2: needs ..."))
for left, wide, high, words in tiles:
    cell = 12 if wide < 16 else 14
    tile.box((left, 8, cell * (wide + 2), cell * (high + 2)), "", "orange")
    tile.box((left + cell, 8 + cell, cell * wide, cell * high), "", "green")
    tile.note((left, 144 if high > 1 else 76), words)
tile.picture("Tiles of elements of y, each with the larger rectangle of x that it needs.",
             "Green: elements of y of one invocation. Orange: elements of x that it needs.")

# %% id="l04-e6n" tags=["nbval-ignore-output"]
SIXTEEN_IN_A_ROW = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns; };   // of y; both are multiples of 16
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    uint end = min(16 * id.x + 16, params.rows * params.columns);
    for (uint i = 16 * id.x; i < end; ++i) {
        uint r = i / params.columns, c = i % params.columns;
        float sum = 0.0;
        for (uint k = 0; k < 9; ++k) sum += x[(r + k / 3) * (params.columns + 2) + c + k % 3];
        y[i] = sum;
    }
}
"""


def trace_box_sum(text):
    """Trace a box sum of 32 x 48 elements: 96 invocations have work, in two workgroups."""
    arrays = {"x": np.ones(34 * 50, np.float32), "y": np.zeros(32 * 48, np.float32)}
    return trace(text, arrays, (2,), {"rows": 32, "columns": 48})


draw_access_counts(trace_box_sum(SIXTEEN_IN_A_ROW), "x", (34, 50))

# %% [markdown] id="l04-e6p"
# The obvious kernel above loads nine values for each element. Your score is the number of loads of `x` for each element of `y`, counted in the compiled kernel; fewer is better. A value that an invocation keeps in a local array, such as `float seen[54];`, costs no second load. You get all points for 2.25 or less; less than 2.25 is possible. No kernel can do with less than one load for each element of `x`; memory that a workgroup shares (lab 07) comes close to this bound.

# %% id="l04-e6" vklab={"role": "exercise", "id": "04-6", "points": 4, "lines": 14}
BOX_SUM = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns; };   // of y; both are multiples of 16
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     compute 16 elements of y in this invocation, with few loads of x.
    // Approach choose a tile; find its first row and column from id.x; guard; load; add up; store.
    // Example  with tiles of 1 x 16, invocation 5 of an image with 48 columns starts at row 1,
    //          column 32, and needs 54 values for 16 elements: 3.4 loads an element.
    // ### BEGIN SOLUTION
    uint tiles = params.columns / 4;
    uint top = id.x / tiles * 4, left = id.x % tiles * 4;
    if (top >= params.rows) return;
    float seen[36];
    for (uint k = 0; k < 36; ++k)
        seen[k] = x[(top + k / 6) * (params.columns + 2) + left + k % 6];
    for (uint n = 0; n < 16; ++n) {
        uint r = n / 4, c = n % 4;
        float sum = 0.0;
        for (uint k = 0; k < 9; ++k)
            sum += seen[(r + k / 3) * 6 + c + k % 3];
        y[(top + r) * params.columns + left + c] = sum;
    }
    // ### END SOLUTION
}
"""

# %% id="l04-e6d" tags=["nbval-ignore-output"]
with attempt("04-6"):
    display(draw_access_counts(trace_box_sum(BOX_SUM), "x", (34, 50)))

# %% id="l04-e6c" vklab={"role": "check", "id": "04-6"}
check("04-6", BOX_SUM)

# %% id="l04-e6h" tags=["nbval-ignore-output"]
# hint("04-6")

# %% [markdown] id="l04-steps"
# ## 7 · The seven steps
# *A good place for a pause: the second sitting starts here.* Until now `run_kernel` did everything around your kernel. Now you do it, with the calls of Vulkan itself. One row of the picture is one step; dashed boxes do not exist yet.
#
# `objects` is a stack: it records each object that you create, together with the call that destroys it. Run a step again, and the stack first destroys what that step and later ones created.

# %% id="l04-empty"
objects = ObjectStack()
objects.picture()

# %% [markdown] id="l04-s1"
# ### Step 1: instance and device
# The **instance** connects this process to Vulkan. It lists **physical devices**: what is in the machine. From one of them you create a logical **device**, your own connection to it, with one **queue** that takes work. Queues come in **families**; yours must be able to compute.

# %% id="l04-s1c" tags=["nbval-ignore-output"]
objects.step(1)

# On macOS Vulkan runs on Metal; such drivers are listed only if the program names two extensions.
offered = {e.extensionName for e in vk.vkEnumerateInstanceExtensionProperties(None)}
portable = list({"VK_KHR_portability_enumeration"} & offered)  # on macOS
application = vk.VkApplicationInfo(apiVersion=vk.VK_MAKE_VERSION(1, 3, 0))
instance_info = vk.VkInstanceCreateInfo(pApplicationInfo=application,
                                        flags=1 if portable else 0,
                                        ppEnabledExtensionNames=portable)
instance = vk.vkCreateInstance(instance_info, None)
objects.keep("instance", instance, vk.vkDestroyInstance)

number = open_devices.select().index  # the device of the banner
physical = objects.keep("physical device", vk.vkEnumeratePhysicalDevices(instance)[number])

families = vk.vkGetPhysicalDeviceQueueFamilyProperties(physical)
family = next(i for i, f in enumerate(families) if f.queueFlags & vk.VK_QUEUE_COMPUTE_BIT)
offered = {e.extensionName for e in vk.vkEnumerateDeviceExtensionProperties(physical, None)}
priorities = [1.0]
queue_info = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, pQueuePriorities=priorities)
subset = list({"VK_KHR_portability_subset"} & offered)  # the second
device_info = vk.VkDeviceCreateInfo(pQueueCreateInfos=[queue_info], ppEnabledExtensionNames=subset)
device = vk.vkCreateDevice(physical, device_info, None)
objects.keep("device", device, vk.vkDestroyDevice)

queue = objects.keep("queue", vk.vkGetDeviceQueue(device, family, 0))
objects.picture()

# %% [markdown] id="l04-s1r"
# You create neither the physical device nor the queue: the one belongs to the instance, the other to the device. One trap of these Python bindings: a structure inside another must have a name of its own, as `application` and `queue_info` have. The bindings do not keep it alive, and an object without a name may be gone before the call reads it.
#
# ### Step 2: compile
# Vulkan reads neither GLSL nor Slang. It takes **SPIR-V**, a list of 32-bit words that is the same for every vendor; the driver turns it into the machine code of the device.

# %% id="l04-s2d" tags=["hide-input"]
draw_graph([{"GLSL": "blue", "Slang": "blue"}, {"SPIR-V": "orange"}, {"machine code": "green"}],
           [("GLSL", "SPIR-V", "glslc"), ("Slang", "SPIR-V", "slangc"),
            ("SPIR-V", "machine code", "the driver")],
           alt="GLSL and Slang are compiled to SPIR-V; the driver compiles that to machine code.",
           caption="Two compilers: a program on any computer, and a part of the driver.")

# %% id="l04-comp"
show("labs/vector_add.comp")

# %% [markdown] id="l04-s2t"
# This is `vector_add` in GLSL. It writes down the `binding` number of each buffer; Slang numbers buffers in the order of declaration. The next cell compiles it, or the Slang version where no compiler for GLSL is installed.

# %% id="l04-s2c" tags=["nbval-ignore-output"]
objects.step(2)

found, kernel_file = toolchain.find_toolchain("glsl"), "labs/vector_add.comp"
if found is None:
    print("no GLSL compiler here. To have one:", toolchain.REPAIRS["glsl"])
    found, kernel_file = toolchain.require_toolchain("slang"), "labs/vector_add.slang"

with tempfile.TemporaryDirectory() as folder:
    output = Path(folder) / "vector_add.spv"
    command = found.command(source.find(kernel_file), output, (), ())
    print("$", " ".join(Path(word).name for word in command))
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    spirv = output.read_bytes()

words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
print(f"{len(words)} words; the first is {words[0]:#010x}, SPIR-V's magic number")
objects.keep("SPIR-V", spirv)
objects.picture()

# %% [markdown] id="l04-s3"
# ### Step 3: shader module
# A **shader module** hands the words to the driver. `codeSize` is in *bytes*, although `pCode` points to words.

# %% id="l04-s3c" tags=["nbval-ignore-output"]
objects.step(3)

module_info = vk.VkShaderModuleCreateInfo(codeSize=len(spirv), pCode=spirv)
module = vk.vkCreateShaderModule(device, module_info, None)
objects.keep("shader module", module, vk.vkDestroyShaderModule, device)
objects.picture()

# %% [markdown] id="l04-s4"
# ### Step 4: pipeline
# A **descriptor** tells the device where one buffer is. The **descriptor set layout** has a slot for each descriptor that the kernel needs. The **pipeline layout** adds the push constants, as a range of bytes. From module and layout the driver builds the **compute pipeline**. Most drivers make the machine code now; some wait until the first dispatch.

# %% id="l04-s4d" tags=["hide-input"]
slots = Diagram(640, 126)
for n, name in enumerate("aby"):
    slots.box((20, 6 + 40 * n, 130, 32), f"kernel: {name}", "blue")
    slots.box((250, 6 + 40 * n, 130, 32), f"slot: binding {n}", "orange")
    slots.box((480, 6 + 40 * n, 140, 32), f"buffer of {name}", "green")
    slots.arrow((150, 22 + 40 * n), (248, 22 + 40 * n))
    slots.arrow((380, 22 + 40 * n), (478, 22 + 40 * n))
slots.picture("Each name in the kernel leads to a slot with a binding number, and on to a buffer.",
              "Step 4 makes the slots, step 5 the buffers and the right-hand arrows.")

# %% [markdown] id="l04-s4p"
# First predict: the kernel uses three buffers. A layout with two slots is passed to the calls of this step: `"an error"` or `"no error"`?

# %% id="l04-p6"
predict("04-p6", calls=...)

# %% [markdown] id="l04-e7t"
# ### Exercise 7 · What the kernel takes
# Describe the interface of a kernel in the numbers of Vulkan's structures. No driver checks this answer, so step 4 waits until `check` calls it correct.

# %% id="l04-e7" vklab={"role": "exercise", "id": "04-7", "points": 3, "lines": 4}
STORAGE, COMPUTE = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, vk.VK_SHADER_STAGE_COMPUTE_BIT


def kernel_interface(buffers, members):
    """Return the descriptor slots of a kernel and its push-constant range, as plain numbers.

    buffers: binding number by name, {"a": 0, "b": 1, "y": 2} for vector_add; each is one storage
    buffer. members: types in the struct of push constants, ("uint",) for vector_add.

    TODO     a list of (binding, descriptor type, descriptor count), one for each buffer; and the
             range (first byte, bytes) that covers the struct, or None for a struct without members.
    Approach every member (uint, int or float) takes four bytes.
    Example  kernel_interface({"y": 7}, ("uint", "float")) -> ([(7, STORAGE, 1)], (0, 8))
                                                                             (roughly 3 lines)
    """
    ### BEGIN SOLUTION
    slots = [(binding, STORAGE, 1) for binding in buffers.values()]
    return slots, (0, 4 * len(members)) if members else None
    ### END SOLUTION


# %% id="l04-e7c" vklab={"role": "check", "id": "04-7"}
check("04-7", kernel_interface)

# %% id="l04-e7h" tags=["nbval-ignore-output"]
# hint("04-7")

# %% id="l04-s4c" tags=["nbval-ignore-output"]
with attempt("04-7"):
    interface = objects.checked("04-7", kernel_interface)
    slots, (first_byte, push_bytes) = interface({"a": 0, "b": 1, "y": 2}, ("uint",))
    objects.step(4)

    bindings = [vk.VkDescriptorSetLayoutBinding(binding=number, descriptorType=kind,
                                                descriptorCount=count, stageFlags=COMPUTE)
                for number, kind, count in slots]
    push_range = vk.VkPushConstantRange(stageFlags=COMPUTE, offset=first_byte, size=push_bytes)
    set_layout_info = vk.VkDescriptorSetLayoutCreateInfo(pBindings=bindings)
    set_layout = vk.vkCreateDescriptorSetLayout(device, set_layout_info, None)
    objects.keep("set layout", set_layout, vk.vkDestroyDescriptorSetLayout, device)

    layout_info = vk.VkPipelineLayoutCreateInfo(pSetLayouts=[set_layout],
                                                pPushConstantRanges=[push_range])
    layout = vk.vkCreatePipelineLayout(device, layout_info, None)
    objects.keep("pipeline layout", layout, vk.vkDestroyPipelineLayout, device)

    stage = vk.VkPipelineShaderStageCreateInfo(stage=COMPUTE, module=module, pName="main")
    pipeline_info = vk.VkComputePipelineCreateInfo(stage=stage, layout=layout)
    pipeline = vk.vkCreateComputePipelines(device, None, 1, [pipeline_info], None)[0]
    objects.keep("pipeline", pipeline, vk.vkDestroyPipeline, device)
    display(objects.picture())

# %% [markdown] id="l04-s5"
# ### Step 5: buffers
# A **buffer** has a size and a use, and no memory. For each buffer: ask what memory it needs, allocate that, and **bind** the two. The memory here is *host-visible* (the CPU may map it and write into it) and *coherent* (with no extra command). Then a **descriptor set** fills the slots of step 4: `dstBinding=0` here and `binding = 0` in the kernel are all that connects the two `a`.

# %% id="l04-s5c" tags=["nbval-ignore-output"]
with attempt("04-7"):
    objects.step(5)
    a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)

    types = vk.vkGetPhysicalDeviceMemoryProperties(physical)
    wanted = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
    buffers, mapped = [], []
    for _ in range(3):
        buffer_info = vk.VkBufferCreateInfo(size=a.nbytes,
                                            usage=vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT)
        buffer = vk.vkCreateBuffer(device, buffer_info, None)
        objects.keep("buffers", buffer, vk.vkDestroyBuffer, device)

        needed = vk.vkGetBufferMemoryRequirements(device, buffer)
        kind = next(i for i in range(types.memoryTypeCount)
                    if needed.memoryTypeBits >> i & 1
                    and types.memoryTypes[i].propertyFlags & wanted == wanted)
        memory_info = vk.VkMemoryAllocateInfo(allocationSize=needed.size, memoryTypeIndex=kind)
        memory = vk.vkAllocateMemory(device, memory_info, None)
        objects.keep("memory", memory, vk.vkFreeMemory, device)
        vk.vkBindBufferMemory(device, buffer, memory, 0)
        buffers.append(buffer)
        mapped.append(vk.vkMapMemory(device, memory, 0, a.nbytes, 0))
    mapped[0][:] = a.tobytes()
    mapped[1][:] = b.tobytes()

    room = vk.VkDescriptorPoolSize(type=STORAGE, descriptorCount=3)
    pool_info = vk.VkDescriptorPoolCreateInfo(maxSets=1, pPoolSizes=[room])
    pool = vk.vkCreateDescriptorPool(device, pool_info, None)
    # The set is part of its pool, and is destroyed with it.
    objects.keep("descriptor set", pool, vk.vkDestroyDescriptorPool, device)
    set_info = vk.VkDescriptorSetAllocateInfo(descriptorPool=pool, pSetLayouts=[set_layout])
    descriptor_set = vk.vkAllocateDescriptorSets(device, set_info)[0]
    infos = [vk.VkDescriptorBufferInfo(buffer=x, offset=0, range=a.nbytes) for x in buffers]
    writes = [vk.VkWriteDescriptorSet(dstSet=descriptor_set, dstBinding=n, descriptorCount=1,
                                      descriptorType=STORAGE, pBufferInfo=infos[n])
              for n in range(3)]
    vk.vkUpdateDescriptorSets(device, 3, writes, 0, None)
    display(objects.picture())

# %% [markdown] id="l04-s6"
# ### Steps 6 and 7: record, submit, wait
# A **command buffer** is a list of commands for later. Recording runs nothing. Five commands go in: which pipeline, which buffers, which push constants, how many workgroups, and a barrier. `vkQueueSubmit` hands the list to the device and returns at once. A **fence** is an object that the device signals when the work is done; the host waits for it, here for ten seconds at most.

# %% id="l04-s6d" tags=["hide-input"]
host = [("step 6: record", 0, 3, "blue"), ("submit", 3, 4, "orange"),
        ("wait for the fence", 4, 8.4, "grey"), ("read y", 8.4, 10, "blue")]
gpu = [("read a, b; write y", 4.6, 7.4, "green"), ("barrier", 7.4, 8.4, "pink")]
draw_timeline({"host": host, "device": gpu},
              [("host", 3.8, "device", 4.8), ("device", 8.3, "host", 8.5)],
              alt="The host records, submits, waits; the device runs the kernel and the barrier.",
              caption="Nothing runs before the submission; the host reads y after the barrier.")

# %% [markdown] id="l04-s6b"
# Why a **barrier**, if the host waits anyway? The fence says that the work is *done*. The specification says that this alone does not make the kernel's writes *visible* to the CPU; the barrier does. In the other direction nothing is needed: `vkQueueSubmit` makes everything that the host wrote before visible to the device.

# %% id="l04-s6c" tags=["nbval-ignore-output"]
with attempt("04-3"):
    groups = objects.checked("04-3", workgroups)(1000)
    objects.step(6)

    command_pool_info = vk.VkCommandPoolCreateInfo(queueFamilyIndex=family)
    command_pool = vk.vkCreateCommandPool(device, command_pool_info, None)
    objects.keep("command pool", command_pool, vk.vkDestroyCommandPool, device)
    commands_info = vk.VkCommandBufferAllocateInfo(
        commandPool=command_pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1)
    commands = objects.keep("command buffer", vk.vkAllocateCommandBuffers(device, commands_info)[0])

    visible = vk.VkMemoryBarrier(srcAccessMask=vk.VK_ACCESS_SHADER_WRITE_BIT,
                                 dstAccessMask=vk.VK_ACCESS_HOST_READ_BIT)
    BIND_POINT, pushed = vk.VK_PIPELINE_BIND_POINT_COMPUTE, struct.pack("<I", 1000)

    vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo())
    vk.vkCmdBindPipeline(commands, BIND_POINT, pipeline)
    vk.vkCmdBindDescriptorSets(commands, BIND_POINT, layout, 0, 1, [descriptor_set], 0, None)
    vk.vkCmdPushConstants(commands, layout, COMPUTE, 0, len(pushed),
                          vk.ffi.from_buffer(pushed))  # a C pointer to Python's bytes
    vk.vkCmdDispatch(commands, *groups)
    vk.vkCmdPipelineBarrier(commands, vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                            vk.VK_PIPELINE_STAGE_HOST_BIT, 0, 1, [visible], 0, None, 0, None)
    vk.vkEndCommandBuffer(commands)
    display(objects.picture())

# %% id="l04-s7c" tags=["nbval-ignore-output"]
with attempt("04-3"):
    objects.step(7)

    fence = vk.vkCreateFence(device, vk.VkFenceCreateInfo(), None)
    objects.keep("fence", fence, vk.vkDestroyFence, device)
    submit_info = vk.VkSubmitInfo(pCommandBuffers=[commands])
    vk.vkQueueSubmit(queue, 1, [submit_info], fence)
    vk.vkWaitForFences(device, 1, [fence], True, 10 * 10**9)  # nanoseconds

    y = np.frombuffer(mapped[2], np.float32).copy()  # a copy: the memory is freed soon
    print("y == a + b:", np.array_equal(y, a + b))
    display(objects.picture())

# %% [markdown] id="l04-s7r"
# Objects are destroyed in reverse order: what was created from the device goes before the device. (Some may go earlier: a shader module is not needed once its pipeline exists.) After the next cell the steps can be run again from 1.

# %% id="l04-end" tags=["nbval-ignore-output"]
print(objects.end(), "destroy calls, the object made last first")

# %% [markdown] id="l04-where"
# Nothing in vklab is hidden from you. This is the function of `run_kernel` that does steps 6 and 7; each method carries one command. It has one command more than yours, a barrier from host to shader, which `vkQueueSubmit` makes unnecessary. The other steps are in `vklab/vulkan/`: `instance.py` and `device.py` (1), `pipeline.py` (3, 4), `memory.py` and `descriptors.py` (5); step 2 is in `vklab/shader/compiler.py`.

# %% id="l04-where-s"
show("vklab.course.children.kernel_child._submit")

# %% [markdown] id="l04-six"
# ## 8 · One kernel, six languages
# The languages differ in words, not in ideas: a number for each invocation, a guard, one addition, and a launch with groups times group size. The marked lines find the number.

# %% id="l04-six-d" tags=["hide-input"]
CUDA = """
__global__ void vector_add(const float* a, const float* b,
                           float* y, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = a[i] + b[i];
}
vector_add<<<(count + 63) / 64, 64>>>(a, b, y, count);
"""
SYCL = """
sycl::nd_range<1> range((count + 63) / 64 * 64, 64);
queue.parallel_for(range, [=](sycl::nd_item<1> item) {
    size_t i = item.get_global_id(0);
    if (i < count) y[i] = a[i] + b[i];
});
"""
METAL = """
kernel void vector_add(device const float* a [[buffer(0)]],
                       device const float* b [[buffer(1)]],
                       device float* y [[buffer(2)]],
                       constant uint& count [[buffer(3)]],
                       uint i [[thread_position_in_grid]]) {
    if (i < count) y[i] = a[i] + b[i];
}
[encoder dispatchThreadgroups:MTLSizeMake((count + 63) / 64, 1, 1)
        threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
"""
GLSL = source.find("labs/vector_add.comp").read_text("utf-8").partition("\n\n")[2]
HIP = "#include <hip/hip_runtime.h>" + CUDA
draw_listings({"CUDA (NVIDIA)": CUDA, "HIP (AMD, NVIDIA): the same text, by hipcc": HIP,
               "SYCL (Intel, AMD, NVIDIA)": SYCL, "Metal (Apple)": METAL,
               "GLSL for Vulkan": GLSL + "vkCmdDispatch(commands, (count + 63) / 64, 1, 1);",
               "Slang": ADD.partition("guard.\n")[2].strip() + "\n(launched as GLSL is)"},
              ["threadIdx", "get_global_id", "thread_position", "gl_Global", "SV_Dispatch"],
              "vector_add in six languages, each with its launch; marked: the invocation's number.")

# %% [markdown] id="l04-six-t"
# | Vulkan says | CUDA, HIP | SYCL | Metal |
# |---|---|---|---|
# | invocation | thread | work-item | thread |
# | workgroup | block | work-group | threadgroup |
# | dispatch of *groups* | launch of *blocks* | range in *work-items* | threadgroups, or threads |
#
# ### A published version with two bugs
# A course on the web shows `vector_add` for Vulkan like this (here in Slang): workgroups of 256, no `count`, and a dispatch of `N/256` workgroups. First predict for N = 1000: how many elements are `written`? Somebody mends the division and rounds up: how many writes are then outside of `y`?

# %% id="l04-p7"
predict("04-p7", written=..., outside_when_rounded_up=...)

# %% id="l04-lesson" tags=["nbval-ignore-output"]
LESSON = UNGUARDED.replace("numthreads(64", "numthreads(256")
x = np.ones(1000, np.float32)
for groups in (1000 // 256, -(-1000 // 256)):
    seen = trace(LESSON, {"a": x, "b": x, "y": np.zeros_like(x)}, (groups,), {})
    print(f"{groups} workgroups: {(seen.writes['y'] > 0).sum()} elements written, "
          f"{seen.outside['y']} writes outside")

# %% [markdown] id="l04-lesson-r"
# Each bug hides the other: the missing guard does no harm while the division rounds down, and nobody notices the lost elements if N is a multiple of 256 in the test. (In Metal, `dispatchThreads` starts exactly N threads on devices that support groups of unequal size; there a missing guard is no bug.)
#
# The same page says that Vulkan takes "~1000 lines" and "100x more code than CUDA". Count it, in the cells of this notebook:

# %% id="l04-lines" tags=["nbval-ignore-output"]
cells = {int(step[1]): text for text in In if (step := re.search(r"objects\.step\((\d)\)", text))}
skipped = ("#", "objects.", "display(", "print(", "with attempt", "a, b =", "y =")
lines = [line for text in cells.values() for line in map(str.strip, text.splitlines())
         if line and not line.startswith(skipped)]
calls = re.findall(r"vk\.(vk[A-Z]\w+)\(", "\n".join(lines))
print(f"{len(cells)} steps: {len(lines)} lines of Python, {len(calls)} calls that create or do")
print("CUDA: cudaMalloc 3, cudaMemcpy 3, the launch, cudaFree 3: about 10 lines and 10 calls")

# %% [markdown] id="l04-lines-r"
# The order of magnitude is a factor of ten, not a hundred. In C, where each field of a structure takes a line, expect two or three times as many lines. And they are paid once: a second kernel repeats steps 2 to 4, a second dispatch only steps 6 and 7.
#
# ## 9 · What would break this?
# The kernel below is `vector_add`, with its guard, unchanged. The function around it has **one wrong line**. The sum is right, and the guard words say that something is not. Find the line before you open the answer.

# %% id="l04-planted"
def add_on_device(a, b):
    """Add two arrays on the device; return the sum and the bytes written outside of it."""
    y = np.zeros_like(a)
    groups = -(-a.size // 64)
    push = {"count": a.nbytes}
    done = run_kernel(ADD, Run({"a": a, "b": b, "y": y}, (groups,), push))[0]
    return done.buffers["y"], done.out_of_bounds


x = np.arange(1000, dtype=np.float32)
total, outside = add_on_device(x, x)
print(f"the sum is right: {np.array_equal(total, x + x)}\nbytes outside: {outside}")

# %% [markdown] id="l04-planted-r"
# <details><summary>Which line?</summary>
#
# `push = {"count": a.nbytes}`: the kernel counts elements, the host counted bytes. With 4000 for `count` the guard lets all 1024 invocations pass. It must be `a.size`. Names with units (`count`, `size_bytes`) make such a line look wrong at once.
# </details>
#
# Two more faults, this time in your step cells. What would you see, and where would you look?
#
# <details><summary>Step 6 without the barrier</summary>
#
# On many machines nothing: the sum is right. A device with its own caches may show old bytes, sometimes. A test cannot find this. Reading can, and so can a habit: whoever maps memory to read it writes the barrier.
# </details>
#
# <details><summary>Step 6 with 15 workgroups</summary>
#
# Elements 960 to 999 keep what the memory held before. In fresh memory that is often zero, which looks like a result. The checks of this lab fill `y` with -1 first, so that an element that nobody wrote shows.
# </details>

# %% [markdown] id="l04-recap"
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | kernel, invocation, workgroup | code for one element; one run of it; the unit that you dispatch | section 1 |
# | guard | an invocation asks whether *its* element exists | 04-1 to 04-6 |
# | workgroups | elements divided by workgroup size, rounded up; in rows beyond the limit | 04-3 |
# | sector | a piece of memory that moves as a whole, here 32 bytes | section 5 |
# | instance, physical device, device, queue | the way to one GPU | step 1 |
# | SPIR-V, shader module | the kernel, for any vendor; the same words, held by the driver | steps 2, 3 |
# | descriptor set layout, pipeline layout, pipeline | what the kernel takes; the kernel, ready to run | step 4 |
# | buffer, memory, descriptor set | where the numbers are; which buffer is which binding | step 5 |
# | command buffer, barrier, fence | the list of commands; makes writes visible; says that all is done | steps 6, 7 |
#
# **Next**: pipelines, layouts from reflection and specialization constants; then barriers and the validation layers; then what happens inside one workgroup.
#
# **To read**
# * Vulkan specification, chapters *Synchronization and Cache Control* (fences, host access types, host write ordering), *Pipelines*, *Resource Descriptors*, *Dispatching Commands*, *Limits*: <https://docs.vulkan.org/spec/latest/index.html>
# * Slang user guide, *Targeting SPIR-V*: <https://docs.shader-slang.org>
# * S. Rush, *GPU Puzzles*, which draws a kernel before it judges it: <https://github.com/srush/GPU-Puzzles>
