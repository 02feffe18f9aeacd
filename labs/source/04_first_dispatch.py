# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "First dispatch"
#     minutes: 75
#     before: ["00"]
#     know: ["NumPy arrays", "C"]
# ---

# %% [markdown] id="l04-title"
# # Lab 04 · First dispatch
# **Write a kernel, dispatch it, read the result back** · 75 minutes, 3 exercises
#
# NumPy adds two arrays in one line. On a GPU you write what happens to *one* element, and start that code a thousand times. In this lab you write such kernels. Lab 04b gives them other shapes; in lab 04c you write the program around them.
#
# **Afterwards you can**
# * write map and zip kernels in Slang, and recognise the same kernel in five other languages;
# * compute how many workgroups to dispatch, also when one row of them is not enough;
# * guard a kernel, and find a write out of bounds from the memory that it changed;
# * pass push constants, and say which bytes arrive where;
# * see which invocation touches which element.
#
# **Before this lab**: lab 00. You need NumPy arrays and enough C to read `if (i < n) y[i] = a[i];`. At hand: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md).
#
# **Files it opens**: `shaders/labs/vector_add.slang`, `shaders/labs/vector_add.comp`.

# %% id="l04-setup" tags=["hide-input"]
import struct

import numpy as np
from IPython.display import display

from vklab.shader import source
from vklab_course import Run, attempt, banner, check, hint, predict, run_kernel, show
from vklab_labs.lab_04.accesses import draw_invocation_map
from vklab_labs.lab_04.trace import trace
from vklab_labs.shared.diagram import Diagram
from vklab_labs.shared.lanes import draw_arena
from vklab_labs.shared.listings import draw_listings

# %% id="l04-banner"
banner()

# %% id="l04-own" vklab={"role": "own", "id": "l04-own"}
# Your own helpers and imports, if you need any: this cell is handed in with your answers.

# %% [markdown] id="l04-one"
# ## 1 · One addition, a thousand times
# A **kernel** is a small program that a device runs many times at once. One such run is an **invocation**; here each invocation takes care of one element. Invocations come in **workgroups**, all of the same size, and you start (*dispatch*) whole workgroups.

# %% id="l04-one-d" tags=["hide-input"]
grid = Diagram(660, 150)
for n, last in enumerate(("0 to 63", "64 to 127", "128 to 191", "192 to 199")):
    left, width = 10 + 162 * n, 152 if n < 3 else 88
    grid.box((left, 6, 152, 46), f"workgroup {n}\n64 invocations", "blue")
    grid.box((left, 96, width, 46), "elements\n" + last, "green").arrow((left + 40, 54),
                                                                        (left + 40, 94))
grid.note((58, 78), "i = id.x")
grid.box((592, 96, 60, 46), "none\nfor 56", "grey", dashed=True, filled=False)
grid.arrow((624, 54), (624, 94))
grid.picture("Four workgroups of 64 invocations above 200 elements; in the last workgroup "
             "8 invocations have an element and 56 have none.",
             "200 elements, 4 workgroups of 64: invocation i takes care of element i. The last "
             "56 invocations have none (the boxes below workgroup 3 are not to scale).")

# %% [markdown] id="l04-one-k"
# This is a whole kernel, in the language Slang, in which you will write yours:

# %% id="l04-slang"
listing = show("labs/vector_add.slang")
ADD = listing.text
listing

# %% [markdown] id="l04-one-r"
# * A **buffer** is an array in memory that the device can reach. `StructuredBuffer<float> a` may be read; `RW` (read and write) marks a buffer that may be written, too.
# * `[shader("compute")]` marks `main` as the start of a compute kernel; `[numthreads(64, 1, 1)]` sets the size of its workgroups: 64 x 1 x 1 invocations.
# * `SV_DispatchThreadID` is the number of this invocation in the whole dispatch. `SV_` means *system value*: the device supplies it. It is a `uint3`, three unsigned integers, because the workgroups of a dispatch, its **grid**, may have three dimensions; `id.x` is the first of the three.
# * `params.count` is a **push constant**: a few bytes that travel with the dispatch.
#
# First predict: there are 1000 elements and workgroups of 64. How many workgroups do you dispatch, how many invocations run, and how many of them are *idle*: without an element? Put a number in place of each `...`, then run the cell; the explanation appears below it.

# %% id="l04-p1"
predict("04-p1", workgroups=..., invocations=..., idle=...)

# %% [markdown] id="l04-run-t"
# `run_kernel` compiles a kernel, copies the buffers to the device, dispatches, and copies the buffers back. It works in a process of its own: a kernel that loops for ever, or crashes the driver, costs you that process and not your notebook. Lab 04c shows what it does inside.

# %% id="l04-run"
a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)
run = Run({"a": a, "b": b, "y": np.zeros_like(a)}, workgroups=(16,), push={"count": a.size})
done = run_kernel(ADD, run)[0]
print(done.status, np.array_equal(done.buffers["y"], a + b))

# %% [markdown] id="l04-trace-t"
# Which invocation touches which element? `trace` puts a counter beside every *load* and *store* (each read and write of memory) of the compiled kernel, runs it, and returns what was counted. Here are 100 elements and two workgroups:

# %% id="l04-trace" tags=["nbval-ignore-output"]
x = np.arange(100, dtype=np.float32)
add_traced = trace(ADD, {"a": x, "b": x, "y": np.zeros_like(x)}, (2,), {"count": 100})
print(add_traced)
draw_invocation_map(add_traced)

# %% [markdown] id="l04-trace-r"
# Reads and writes are what this lab counts, in place of time: a count is the same on every machine. (It counts what the kernel asks for; a cache may answer a part of that.) `vector_add` moves three numbers for one addition. On large arrays it therefore waits for memory, not for arithmetic, on every device; on 1000 elements the start of the dispatch costs more than both.

# %% [markdown] id="l04-e1t" vklab={"id": "04-1"}
# ### Exercise 1 · Map
# **Map**: each element of `y` depends on the one element of `x` with the same number. Yours is a *squared maximum*: `max(x, [[low]])`, times itself. One invocation handles one element, and workgroup `g` the elements from `64 * g` on. The line `if (i < params.count)`, the **guard**, stops the invocations that have no element: section 2 shows what happens without it. In all exercises, keep the size of the workgroup, write each element of `y` once, and do not read `y`. Leave no element to another invocation: a loop in which one invocation does all the work gives the right values, and the rest of the GPU waits. The check also uses sizes that are no multiple of 64, and a `count` of 0, which leaves no work at all.
#
# The line with `#error` stops the compiler until you have replaced it.
#
# *GLSL instead?* Every exercise accepts it. Replace the whole text, start with `#version 450`, and name the blocks and arrays as the GLSL version in section 5 does: block `X` with array `x`, block `Y` with array `y`.

# %% id="l04-e1" vklab={"role": "exercise", "id": "04-1", "points": 4, "lines": 5}
SQUARED_MAX = """
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
        float larger = max(x[i], [[low]]);
        y[i] = larger * larger;
    }
    // ### END SOLUTION
}
"""

# %% id="l04-e1d" tags=["nbval-ignore-output"]
with attempt("04-1"):
    x = np.linspace(-3, 3, 100, dtype=np.float32)
    traced = trace(SQUARED_MAX, {"x": x, "y": np.zeros_like(x)}, (2,), {"count": 100})
    print(traced)
    display(draw_invocation_map(traced))

# %% id="l04-e1c" vklab={"role": "check", "id": "04-1"}
check("04-1", SQUARED_MAX)

# %% [markdown] id="l04-e1s"
# Stuck? Remove the `#` below and run the cell: each run gives one more hint. The other exercises have such a cell as well.

# %% id="l04-e1h" tags=["nbval-ignore-output"]
# hint("04-1")

# %% [markdown] id="l04-bad-t"
# ### When a kernel does not end well
# First predict the status of two kernels. The first writes `coutn`, a name that nobody declared. The second declares a buffer `x` and never reads it. Choose from `"ran"` and `"compile_error"`.
#
# The cell after the prediction also runs a third kernel, `ENDLESS`, which never ends. Vulkan forbids such kernels. If your GPU also draws your screen, save your work first: the screen may freeze for some seconds, and the driver may restart the GPU. To leave this kernel out, remove `ENDLESS` from the `for` line.

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
# The loop of the third kernel never ends, because halving a positive number never makes it smaller than -1. What happens then depends on the driver. Some drivers restart the GPU after a few seconds; others let the kernel run until its process ends. `run_kernel` ends its process after the time limit and says `timeout`, or `crashed` where the driver was faster. If yours says `ran | no message`, you are probably on lavapipe, Mesa's Vulkan driver for CPUs (the banner calls its device llvmpipe): lavapipe of Mesa 22.3 ends every loop after 65535 turns and says nothing. The checks count the turns of every loop, and report an endless one.

# %% [markdown] id="l04-guard"
# ## 2 · The guard
# Below, `vector_add` has lost its guard; it runs on 100 elements with two workgroups. Where do the other 28 invocations write?
#
# To see such writes, `run_kernel` lays **guard words** of four bytes before and behind each buffer: a pattern that hardly any kernel writes. Afterwards it looks whether the pattern is still there. All bytes are counted from the start of the buffer: a float takes four bytes, so element `i` has the bytes `4 i` to `4 i + 3`. Bytes before the buffer have negative numbers.

# %% id="l04-guard-d" tags=["hide-input"]
draw_arena([("guard words", 4096, "grey"), ("y: 100 floats", 400, "green"),
            ("guard words", 4096, "grey")], least=170, start=-4096,
           alt="A buffer of 400 bytes between two blocks of 4096 bytes of guard words.",
           caption="What run_kernel allocates for y. Bytes count from y's start; not to scale.")

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
      f"words outside of y that changed, the first eight: at byte {done.out_of_bounds.get('y')}")

# %% id="l04-unguarded-d" tags=["nbval-ignore-output"]
draw_invocation_map(trace(UNGUARDED, arrays, (2,), {}))

# %% [markdown] id="l04-guard-r"
# The result is **right**, and the kernel is broken: it wrote behind `y`, where another array may lie. Vulkan reports no error; a wrong number turns up later, somewhere else.
#
# Vulkan has a feature for this, `robustBufferAccess`. Every driver must offer it, but a program must ask for it, and even then a write out of bounds may change other bytes of that buffer's memory. It limits the damage and hides the bug.
#
# Guard words reach 4096 bytes. The counters of `trace` and of the checks have no such limit: they see each element that your kernel *asks for*, however far away. The checks reject reads as well as writes outside of a buffer.

# %% [markdown] id="l04-push-t"
# ## 3 · Push constants
# Push constants need no buffer. Your program, the *host*, writes their bytes into the list of commands for the device; they hold for every dispatch that follows in this list, until it writes others. Every device takes at least 128 bytes of them, and at least 256 with Vulkan 1.4. The kernel reads them as a struct.

# %% id="l04-push-d" tags=["hide-input"]
draw_arena([("uint count", 4, "blue"), ("float scale", 4, "orange")],
           alt="Eight bytes: four of count, a uint, then four of scale, a float.",
           caption="What the host pushes in exercise 04-2: each of the two numbers takes 4 bytes.")

# %% [markdown] id="l04-push-q"
# Vulkan copies bytes. It knows neither types nor names. First predict: the host pushes the `uint` 1000 and the `float` 0.5, as in the picture. A kernel has the two members in the other order: `struct Params { float scale; uint count; };`. Which values does it read? Choose `scale` from `"0.5"`, `"1000"`, `"almost 0"`, and `count` from `"0"`, `"1000"`, `"about a billion"`.

# %% id="l04-p5"
predict("04-p5", scale=..., count=...)

# %% id="l04-push"
data = struct.pack("<If", 1000, 0.5)  # <: lowest byte first; I: uint; f: float
scale, count = struct.unpack("<fI", data)
print(f"{data.hex(' ', 4)}\nread as a float, then a uint: {scale:.3g}, {count}")

# %% [markdown] id="l04-push-r"
# There is no error. `i < params.count` is now true for every invocation: the guard is there and stops nobody.
#
# vklab hides such a mistake: it reads names, types and places back from your compiled kernel, and packs the numbers to fit. So a wrong struct can still give right results here, and be wrong everywhere else. The check therefore looks at types and places.
#
# ### Exercise 2 · Zip
# **Zip**: each element of `y` depends on the elements of two inputs at the same place. Yours is `y = scale * a + b`. This time you write the struct, too: the host pushes `count`, a `uint`, and then `scale`, a `float`, as in the picture.

# %% id="l04-e2" vklab={"role": "exercise", "id": "04-2", "points": 5, "lines": 5}
SCALED_SUM = """
StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> y;

struct Params {
    // TODO     two members: what the host pushes, by its names, in its order   (2 lines)
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
# There is a second rule. Vulkan promises 65535 workgroups along each axis (`maxComputeWorkGroupCount`), and many devices offer exactly this number along x. With 64 invocations each, that is 4,194,240 elements, just short of an image of 2048 x 2048. A longer grid continues along y, in rows of a fixed length:

# %% id="l04-grid-d" tags=["hide-input"] vklab={"id": "04-3"}
rows_of = Diagram(640, 132)
for n, words in enumerate(("groups 0 to ROW - 1", "groups ROW to 2 ROW - 1", "the rest")):
    rows_of.note((10, 26 + 42 * n), f"group.y = {n}")
    rows_of.box((90, 6 + 42 * n, (540, 540, 200)[n], 32), words, "blue")
rows_of.box((290, 90, 340, 32), "idle: the guard stops them", "grey", dashed=True, filled=False)
rows_of.picture("Three rows of workgroups; the last row is only partly needed.",
                "A long grid: workgroup number = group.x + ROW * group.y, with ROW = [[row]].")

# %% [markdown] id="l04-e3t" vklab={"id": "04-3"}
# ### Exercise 3 · The grid
# Use one row if it has at most `LIMIT` workgroups; in this exercise `LIMIT` is [[limit]]. If more are needed, use rows of exactly `ROW` workgroups, as few as cover all elements. (vklab's own rule is in `vklab/ops/registry.py`. It starts the second row earlier; the check wants the rule of this text.)

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
# First in use: 4.2 million elements, more than one row holds. The kernel adds each element's number, counted from 1, to the element; `InterlockedAdd` reads, adds and writes as one step: no access of another invocation comes between. Where two workgroups overlap, a number is added twice.

# %% id="l04-e3d" vklab={"id": "04-3"}
NUMBER = """
RWStructuredBuffer<uint> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint place : SV_GroupIndex) {
    uint i = (group.x + [[row]] * group.y) * 64 + place;  // place: number inside the group
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

# %% [markdown] id="l04-six"
# ## 5 · One kernel, six languages
# The languages differ in words, not in ideas: a number for each invocation, a guard, one addition, and a launch with groups times group size. The marked lines find the number.

# %% id="l04-six-d" tags=["hide-input"]
CUDA = """
__global__ void vector_add(const float* a,
        const float* b, float* y, unsigned count) {
    auto i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = a[i] + b[i];
}
vector_add<<<(count + 63) / 64,
             64>>>(a, b, y, count);
"""
SYCL = """
sycl::nd_range<1> range((count + 63) / 64 * 64, 64);
q.parallel_for(range, [=](sycl::nd_item<1> item) {
    size_t i = item.get_global_id(0);
    if (i < count) y[i] = a[i] + b[i];
});
"""
METAL = """
kernel void vector_add(
        device const float* a [[buffer(0)]],
        device const float* b [[buffer(1)]],
        device float* y [[buffer(2)]],
        constant uint& count [[buffer(3)]],
        uint i [[thread_position_in_grid]]) {
    if (i < count) y[i] = a[i] + b[i];
}
[encoder dispatchThreadgroups:
            MTLSizeMake((count + 63) / 64, 1, 1)
        threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
"""
GLSL = source.find("labs/vector_add.comp").read_text("utf-8").partition("\n\n")[2]
GLSL = GLSL.replace(" { float", "\n    { float")  # lines that fit beside each other
HIP = "#include <hip/hip_runtime.h>" + CUDA
draw_listings({"CUDA (NVIDIA)": CUDA, "HIP (AMD, NVIDIA): same text, by hipcc": HIP,
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
# A course on the web shows `vector_add` for Vulkan like this (here in Slang): workgroups of 256, no `count`, and a dispatch of `N/256` workgroups. First predict for N = 1000: how many elements are `written`? Somebody fixes the division and rounds up: how many writes are then outside of `y`?

# %% id="l04-p4"
predict("04-p4", written=..., outside_when_rounded_up=...)

# %% id="l04-lesson" tags=["nbval-ignore-output"]
LESSON = UNGUARDED.replace("numthreads(64", "numthreads(256")
x = np.ones(1000, np.float32)
for groups in (1000 // 256, -(-1000 // 256)):
    seen = trace(LESSON, {"a": x, "b": x, "y": np.zeros_like(x)}, (groups,), {})
    print(f"{groups} workgroups: {(seen.writes['y'] > 0).sum()} elements written, "
          f"{seen.outside['y']} writes outside")

# %% [markdown] id="l04-lesson-r"
# The second bug, the division, hides the first: while it rounds down, no invocation is without an element, and the missing guard does no harm. The division itself stays hidden as long as the tests use multiples of 256. The size 256 is a risk of its own: Vulkan promises 128 invocations in a workgroup, and 256 only from version 1.4 on (`maxComputeWorkGroupInvocations`). (In Metal, `dispatchThreads` starts exactly N threads on devices that support groups of unequal size; there a missing guard is no bug.)
#
# ## 6 · What would break this?
# The kernel below is `vector_add`, with its guard, unchanged. The function around it has **one wrong line**. The sum is right, and the guard words say that something is not. Find the line before you open the answer.

# %% id="l04-planted"
def add_on_device(a, b):
    """Add two arrays on the device; return the sum, and where guard words changed."""
    y = np.zeros_like(a)
    groups = -(-a.size // 64)
    push = {"count": a.nbytes}
    done = run_kernel(ADD, Run({"a": a, "b": b, "y": y}, (groups,), push))[0]
    return done.buffers["y"], done.out_of_bounds


x = np.arange(1000, dtype=np.float32)
total, outside = add_on_device(x, x)
print(f"the sum is right: {np.array_equal(total, x + x)}\n"
      f"words outside of a buffer that changed, the first eight: at byte {outside}")

# %% [markdown] id="l04-planted-r"
# <details><summary>Which line?</summary>
#
# `push = {"count": a.nbytes}`: the kernel counts elements, the host counted bytes. With 4000 for `count` the guard lets all 1024 invocations pass. It must be `a.size`. Names with units (`count`, `size_bytes`) make such a line look wrong at once.
# </details>

# %% [markdown] id="l04-recap"
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | kernel, invocation, workgroup | a small program; one run of it; the unit that you dispatch | section 1 |
# | guard | an invocation asks whether *its* element exists | section 2, 04-1 |
# | guard words | a pattern before and behind a buffer; shows writes that miss it | section 2 |
# | push constants | bytes in the list of commands; the kernel's struct gives them their types | 04-2 |
# | workgroups | elements divided by workgroup size, rounded up; in rows beyond the limit | 04-3 |
#
# All words are in the [glossary](GLOSSARY.md), the language is in [Slang on one page](SLANG.md).
#
# **Next**: [lab 04b](04b_shapes_of_work.ipynb), kernels of two dimensions and with several elements for each invocation. Lab 04c takes the seven steps that `run_kernel` takes for you.
#
# **To read**
# * Vulkan specification, chapters *Dispatching Commands* and *Limits*, and *Push Constant Updates* in *Descriptor Sets* (older editions: *Resource Descriptors*): <https://docs.vulkan.org/spec/latest/index.html>
# * Slang user guide, *Targeting SPIR-V*: <https://docs.shader-slang.org>
# * S. Rush, *GPU Puzzles*, which draws a kernel before it judges it: <https://github.com/srush/GPU-Puzzles>
