# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Shapes of work"
#     minutes: 65
#     before: ["04"]
# ---

# %% [markdown] id="l04b-title"
# # Lab 04b · Shapes of work
# **Two dimensions, and several elements for each invocation** · 65 minutes, 3 exercises
#
# In lab 04, invocation `i` handled element `i`. Here the work has other shapes: rows of a matrix become columns, an invocation handles several elements, and 16 elements share the values that they load.
#
# **Afterwards you can**
# * write a kernel for a grid of two dimensions, with a guard for each;
# * count the sectors of memory that neighbours touch;
# * write a guard for an invocation that has several elements;
# * make a kernel load less, and say by how much.
#
# **Before this lab**: lab 04. At hand: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md).
#
# **Files it opens**: none.

# %% id="l04b-setup" tags=["hide-input"]
import numpy as np
from IPython.display import display

from vklab_course import Run, attempt, banner, check, hint, predict, run_kernel
from vklab_labs.lab_04.accesses import draw_access_counts, draw_invocation_map, draw_owners
from vklab_labs.lab_04.trace import READ, WRITE, trace
from vklab_labs.shared.diagram import Diagram

# %% id="l04b-banner"
banner()

# %% id="l04b-own" vklab={"role": "own", "id": "l04b-own"}
# Your own helpers and imports, if you need any: this cell is handed in with your answers.

# %% [markdown] id="l04b-recall"
# **From lab 04 you need**
# * An *invocation* is one run of a kernel. Invocations run in *workgroups* of a fixed size, and you dispatch whole workgroups: elements divided by the size, rounded up. The workgroups of a dispatch are its *grid*.
# * So some invocations have no element. The *guard*, an `if` in the kernel, stops them.
# * `run_kernel(text, Run(buffers, workgroups, push))` compiles and dispatches a kernel. Of its result, `.buffers` has the arrays afterwards, and `.out_of_bounds` the places outside of a buffer that changed, as byte numbers from the start of the buffer.
# * `trace` runs a kernel with a counter beside every load and store; the pictures are drawn from its counts.
# * In all exercises, keep the size of the workgroup, write each element of `y` once, and do not read `y`. GLSL is accepted, too.

# %% [markdown] id="l04b-two"
# ## 1 · Two dimensions
# A buffer has one dimension, and a matrix lies in it row after row, as in NumPy. The grid may have two dimensions: `[numthreads(8, 8, 1)]` makes workgroups of 8 x 8 invocations. What each axis counts is the choice of the kernel. In this lab `id.x` counts along a row and `id.y` counts rows.

# %% id="l04b-two-d" tags=["hide-input"]
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

# %% [markdown] id="l04b-two-p"
# First predict: a matrix of 37 rows and 53 columns, workgroups of 8 x 8. How many workgroups along x (`across`) and along y (`down`)?

# %% id="l04b-p1"
predict("04b-p1", across=..., down=...)

# %% [markdown] id="l04b-e1t"
# ### Exercise 1 · Transpose
# `y` is `x` with rows and columns exchanged: for an `x` of 37 x 53, `y` has 53 rows of 37. Reading along a row of `x` means writing down a column of `y`. Each workgroup moves its own 8 x 8 part of `x`. In the picture its numbers stand on it, so you see which part of `y` it filled.

# %% id="l04b-e1" vklab={"role": "exercise", "id": "04b-1", "points": 4, "lines": 4}
TRANSPOSE = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns; };   // of x
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     the element in row r, column c of x goes to row c, column r of y.
    // Approach r and c from id; a guard for each; one read, one write.
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

# %% id="l04b-e1d" tags=["nbval-ignore-output"]
with attempt("04b-1"):
    x = np.arange(37 * 53, dtype=np.float32)
    arrays, push = {"x": x, "y": np.zeros_like(x)}, {"rows": 37, "columns": 53}
    display(draw_owners(trace(TRANSPOSE, arrays, (7, 5), push), "y", (53, 37)))

# %% id="l04b-e1c" vklab={"role": "check", "id": "04b-1"}
check("04b-1", TRANSPOSE)

# %% id="l04b-e1h" tags=["nbval-ignore-output"]
# hint("04b-1")

# %% [markdown] id="l04b-sectors-t"
# Each element is read once and written once. But between memory and its caches no GPU moves single floats: it moves pieces of 32 to 128 bytes. On most GPUs, neighbours along x also execute each load together (lab 07), so neighbours that load from the same piece share it. We count **sectors** of 32 bytes, or 8 floats; the first sector of a buffer has the elements 0 to 7, the next one 8 to 15.
#
# First predict: the eight invocations with `id.y = 8` and `id.x` from 8 to 15 read the elements 432 to 439 of `x`. How many sectors of `x` do they read, and how many sectors of `y` do they write?

# %% id="l04b-p3"
predict("04b-p3", x_sectors=..., y_sectors=...)

# %% id="l04b-sectors" tags=["nbval-ignore-output"]
with attempt("04b-1"):
    transposed = trace(TRANSPOSE, arrays, (7, 5), push)
    for what, touches in (("x, read", transposed.of("x", READ)),
                          ("y, written", transposed.of("y", WRITE))):
        group = touches[(touches[:, 0] // 8 == 1) & (touches[:, 1] // 8 == 1)]  # workgroup (1, 1)
        eight = group[group[:, 1] == 8]  # its first row
        print(f"{what}: sectors of the eight neighbours: {len(set(eight[:, 2] // 8))}, "
              f"of the 64 invocations of their workgroup: {len(set(group[:, 2] // 8))}")

# %% [markdown] id="l04b-sectors-r"
# Over the whole workgroup the difference between `x` and `y` vanishes: the other rows write into the same sectors of `y`, if the cache keeps them until then. (It is 15 sectors and not 8, because neither 53 nor 37 is a multiple of 8: most rows of eight elements begin inside a sector and end in the next one.) With workgroups of 64 x 1 the other rows would belong to other workgroups. A workgroup also has **shared memory**, a memory of its own, which is fast on most GPUs. A transpose can exchange its elements there, and write its part of `y` row by row. With larger parts than 8 x 8, most sectors are then written whole, and the cache matters less. Lab 07 shows shared memory.

# %% [markdown] id="l04b-some"
# ## 2 · Several elements for each invocation
# An invocation may handle more than one element: fewer invocations, each with more to do. In this kernel each handles four in a row. (On a GPU that is not always the best four: neighbours then load from places 16 bytes apart, so one load of all of them touches up to four times as many sectors. Lab 08 counts this.) Somebody tested the kernel with 1000 elements, and it passed.

# %% id="l04b-some-k"
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

# %% [markdown] id="l04b-some-p"
# First predict: how many elements are written outside of `y` with 1000 elements, and with 1003?

# %% id="l04b-p2"
predict("04b-p2", outside_1000=..., outside_1003=...)

# %% id="l04b-some-r"
for count in (1000, 1003):
    x = np.arange(count, dtype=np.float32)
    done = run_kernel(PASSED_ONCE, Run({"x": x, "y": np.zeros_like(x)}, (4,), {"count": count}))[0]
    right, outside = np.array_equal(done.buffers["y"], x / 2), done.out_of_bounds.get("y", "none")
    print(f"count={count}: {done.status}, y is right: {right}, written outside at byte: {outside}")

# %% [markdown] id="l04b-e2t" vklab={"id": "04b-2"}
# The guard is there. It checks the first element of four, not each of them.
#
# ### Exercise 2 · Repair it
# Give [[each]] elements in a row to each invocation, and write each of them only if it exists.

# %% id="l04b-e2" vklab={"role": "exercise", "id": "04b-2", "points": 4, "lines": 6}
HALVES = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     y[i] = 0.5 * x[i] for the elements i of this invocation that exist
    // Approach take over the loop of PASSED_ONCE, and change its guard.
    // Example  count = [[each]] + 1: invocation 1 has one element             (roughly 6 lines)
    // ### BEGIN SOLUTION
    uint first = [[each]] * id.x;
    for (uint k = 0; k < [[each]]; ++k) {
        uint i = first + k;
        if (i < params.count)
            y[i] = 0.5 * x[i];
    }
    // ### END SOLUTION
}
"""

# %% id="l04b-e2d" tags=["nbval-ignore-output"]
with attempt("04b-2"):
    x = np.arange(103, dtype=np.float32)
    display(draw_invocation_map(trace(HALVES, {"x": x, "y": np.zeros_like(x)}, (1,),
                                      {"count": 103})))

# %% id="l04b-e2c" vklab={"role": "check", "id": "04b-2"}
check("04b-2", HALVES)

# %% id="l04b-e2h" tags=["nbval-ignore-output"]
# hint("04b-2")

# %% [markdown] id="l04b-e3t"
# ### Exercise 3 · Fewest loads (scored)
# A **box sum** replaces each element of an image by the sum of the 3 x 3 elements around it. So that every element has eight neighbours, `x` has a border: it has `rows + 2` rows of `columns + 2`, and `y[r, c]` is the sum of `x[r .. r + 2, c .. c + 2]`. Each invocation computes **16 elements** of `y`. *Which* 16, and in which order, is your choice; a rectangle of them is called a **tile**. `rows` and `columns` are multiples of 16. The check dispatches `rows * columns / 1024` workgroups of 64, rounded up: as many invocations as are needed, and at most 48 without work.

# %% id="l04b-e3a" tags=["hide-input"]
tile = Diagram(640, 150)
tiles = ((20, 1, 1, "1 x 1: needs 9"), (190, 16, 1, "1 x 16: needs 3 x 18 = 54"),
         (510, 2, 8, "8 x 2: needs ..."))
for left, wide, high, words in tiles:
    cell = 12 if wide < 16 else 14
    tile.box((left, 8, cell * (wide + 2), cell * (high + 2)), "", "orange")
    tile.box((left + cell, 8 + cell, cell * wide, cell * high), "", "green")
    tile.note((left, 144 if high > 1 else 76), words)
tile.picture("Tiles of elements of y, each with the larger rectangle of x that it needs.",
             "Green: elements of y of one invocation, rows x columns. Orange: elements of x "
             "that it needs.")

# %% id="l04b-e3n" tags=["nbval-ignore-output"]
SIXTEEN_IN_A_ROW = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns; };   // of y
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


draw_access_counts(trace_box_sum(SIXTEEN_IN_A_ROW), "x", (34, 50), most=9)

# %% [markdown] id="l04b-e3p"
# An element in the middle of `x` belongs to nine windows of 3 x 3 and is read nine times; a corner of the border belongs to one window.
#
# Your score is the number of elements of `x` that are loaded for each element of `y`, counted while the kernel runs; fewer is better. (A load of a `float2` counts as two.) The kernel above needs 13824 / (32 x 48) = 9. A value that an invocation keeps in a local array, such as `float seen[54];`, costs no second load. (That is how we count. A real GPU saves the load only if the compiler can keep the array in registers; for that it must unroll the loops over it.)
#
# | loads for each element | points |
# |---|---|
# | 9 | 0 |
# | 3.38, a row of 16 with each value loaded once | 1 |
# | 2.25 or fewer | 4 |
#
# Between these numbers you get a share. 2.25 is the best for an invocation that works alone; kernels that share loads inside a workgroup need fewer still. Every kernel must load each element of `x` at least once.

# %% id="l04b-e3" vklab={"role": "exercise", "id": "04b-3", "points": 4, "lines": 14}
BOX_SUM = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns; };   // of y
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     compute 16 elements of y in this invocation, with few loads of x.
    // Example  with a row of 16, invocation 5 of an image with 48 columns starts at row 1,
    //          column 32, and needs 54 values for 16 elements.
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

# %% id="l04b-e3d" tags=["nbval-ignore-output"]
with attempt("04b-3"):
    display(draw_access_counts(trace_box_sum(BOX_SUM), "x", (34, 50), most=9))

# %% id="l04b-e3c" vklab={"role": "check", "id": "04b-3"}
check("04b-3", BOX_SUM)

# %% id="l04b-e3h" tags=["nbval-ignore-output"]
# hint("04b-3")

# %% [markdown] id="l04b-break"
# ## 3 · What would break this?
# The function below runs your kernel of exercise 1, which is right. The function has **one wrong line**, and two of its three tests pass. Which line is it, and what have the two tests in common? Find it before you open the answer.

# %% id="l04b-planted" tags=["nbval-ignore-output"]
def transpose_on_device(x):
    """Return the transpose of a matrix, by the kernel of exercise 1."""
    rows, columns = x.shape
    groups = (-(-rows // 8), -(-columns // 8))
    y = np.full(x.size, -1, np.float32)
    run = Run({"x": x.reshape(-1), "y": y}, groups, {"rows": rows, "columns": columns})
    done = run_kernel(TRANSPOSE, run)[0]
    if done.status != "ran":
        raise RuntimeError(f"{done.status}: {done.message}")
    return done.buffers["y"].reshape(columns, rows)


with attempt("04b-1"):
    for shape in ((32, 32), (37, 39), (37, 53)):
        x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        y = transpose_on_device(x)
        print(f"{shape}: right: {np.array_equal(y, x.T)}, never written: {(y == -1).sum()}")

# %% [markdown] id="l04b-planted-r"
# <details><summary>Which line?</summary>
#
# `groups = (-(-rows // 8), -(-columns // 8))`: the first number of a grid counts along x, that is along a row, so it follows from the number of *columns*. NumPy's shape has the rows first. A square matrix cannot show the difference. 37 x 39 cannot either: both sides need five workgroups. For 37 x 53 there are 5 workgroups along x where 7 are needed. So columns 40 to 52 are never read, and 13 x 37 = 481 elements of `y` keep their -1.
#
# Test with sides that need different numbers of workgroups.
# </details>

# %% [markdown] id="l04b-recap"
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | grid of two dimensions | `id.x` counts along a row, `id.y` counts rows; each needs a guard | 04b-1 |
# | sector | a piece of memory that moves as a whole, here 32 bytes | section 1 |
# | guard in a loop | an invocation with several elements checks each of them | 04b-2 |
# | tile | a rectangle of elements that share inputs: loaded once, used several times | 04b-3 |
#
# All words are in the [glossary](GLOSSARY.md), the language is in [Slang on one page](SLANG.md).
#
# **Next**, by your path (`start.ipynb` has all paths): [lab 01](01_backends.ipynb), the ways to a GPU, if you take every lab; [lab 05](05_pipelines.ipynb), pipelines, on the path *GPU*; [lab 07](07_subgroups.ipynb), what the invocations of one workgroup can share, in a weekend.
#
# **To read**
# * Vulkan specification, chapter *Dispatching Commands*: <https://docs.vulkan.org/spec/latest/index.html>
# * M. Harris, *An Efficient Matrix Transpose in CUDA C/C++*, which continues exercise 1 with shared memory: <https://developer.nvidia.com/blog/efficient-matrix-transpose-cuda-cc/>
# * S. Rush, *GPU Puzzles*, which draws a kernel before it judges it: <https://github.com/srush/GPU-Puzzles>
