# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Matrix products"
#     minutes: 75
#     before: ["01b", "04b", "07", "07b"]
# ---

# %% [markdown] id="l08-title"
# # Lab 08 · Matrix products
# **One sum, seven kernels, and a factor of 150 between them** · 75 minutes, 4 exercises
#
# Most of the time of a neural network goes into products of matrices. The naive kernel has six lines and is right. On an NVIDIA H200 it reached 0.5 TFLOP/s, and the last kernel of this lab 76. Both do the same number of multiplications. They differ in how often they fetch the same numbers, from where, and in the units that multiply. The last one also stores its inputs in 16 bits.
#
# **Afterwards you can**
# * say how many bytes a tiled product asks for, and how many operations it does per byte;
# * tell why two kernels that load the same elements differ by a factor of ten;
# * share a tile among the invocations of a workgroup, with the barriers it needs;
# * keep a block of sums in registers;
# * recognise a kernel of this kind by its counts, and place it on a roofline.
#
# **Before this lab**: lab 04b (two dimensions, sectors, tiles), lab 07 (shared memory, barriers), lab 07b (banks) and lab 01b (rooflines). In place of the last two, the pages [Banks](inserts/banks.md) and [Rooflines](inserts/rooflines.md) are enough. At hand: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md).
#
# **Files it opens**: `shaders/labs/matmul_naive.slang` to `matmul_matrix.slang`, `shaders/ops/matmul_tiled.slang`.

# %% id="l08-setup" tags=["hide-input"]
import json

import numpy as np

from vklab_course import Run, attempt, banner, check, data, hint, predict, run_kernel, show
from vklab_labs.lab_08 import tiling
from vklab_labs.lab_08.ladder import PLANTED, count_rungs, draw_ladder, draw_roofline

RECORD = json.loads(data("recorded/products_h200.json").read_text())

# %% id="l08-banner"
banner()

# %% id="l08-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l08-1t"
# ## 1 · Same bytes, different speed
# `y = a b` has `rows x columns` elements, and each is a sum of `depth` products. This is the first kernel of the **ladder**: a row of kernels, each of which changes little of the one before it. All of them lie in `shaders/labs`.

# %% id="l08-1s"
show("labs/matmul_naive")

# %% [markdown] id="l08-1p"
# Predict for matrices of 128 x 128: how many elements does one invocation load (`of_invocation`)? How often is one element of `a` loaded, over the whole dispatch (`of_element`)?

# %% id="l08-p1"
predict("08-p1", of_invocation=..., of_element=...)

# %% [markdown] id="l08-1n"
# The second kernel exchanges `x` and `y` in one line. In memory nothing else changes: every invocation computes one sum and loads the same elements as before. What changes is *which invocations run together*. On NVIDIA's GPUs 32 neighbours along x form a subgroup and load at the same time.
#
# On these GPUs memory moves in sectors of 32 bytes, or 8 floats. Predict how many sectors 32 neighbours touch in one load of `a` and in one of `b`, for both kernels. The cell after your prediction counts: it inserts counters into the compiled kernels and runs a small product, of 32 x 32 elements with depth 16.

# %% id="l08-1d" tags=["hide-input"]
tiling.draw_neighbours()

# %% id="l08-p2"
predict("08-p2", naive_a=..., naive_b=..., coalesced_a=..., coalesced_b=...)

# %% id="l08-1c"
count_rungs(["naive", "coalesced"])

# %% [markdown] id="l08-1e"
# The number of loads is the same, and so is the number of bytes that the invocations ask for. But one step of k, a load of `a` and a load of `b`, needs 32 + 1 sectors in the first kernel and 1 + 4 in the second. Loads whose neighbours lie side by side are called **coalesced**. On the H200 this one line made the product 8 to 11 times faster. A CPU driver runs few invocations together: it may show no difference, or the opposite one.
#
# ## 2 · A tile is shared
# For sides of 128, coalesced loads still ask for 16.8 MB where 0.13 MB exist. A **tile** of `y` mends this: a workgroup computes a square of `y`, and each element that it has fetched serves a whole row or column of the square.

# %% id="l08-2d" tags=["hide-input"]
tiling.draw_tile()

# %% [markdown] id="l08-2t" vklab={"id": "08-1"}
# ### Exercise 1 · Bytes of a tiled product
# Each workgroup loads the strips that its tile needs, each element once. At the edge of a matrix a tile reaches over: it loads only what exists. Here an element is [[kind]]. The result's own bytes are written once and are left out.
#
# The number of operations per byte is called **arithmetic intensity**. A multiply-add counts as two operations.

# %% id="l08-e1" vklab={"role": "exercise", "id": "08-1", "points": 4, "lines": 5}
def tiled_traffic(rows, columns, depth, tile_rows, tile_columns):
    """Return (bytes, operations per byte) of a product y = a b.

    a has rows x depth elements, b has depth x columns, y has rows x columns.
    TODO     bytes that all workgroups load together, and 2 rows columns depth / bytes.
    Approach how many tiles need one element of a? How many need one of b?
    Example  tiled_traffic(128, 128, 128, 1, 1)[0] -> 4194304 * [[bytes]]; with tiles of 16 x 16 it
             is a sixteenth of that                                   (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    across = -(-columns // tile_columns)
    down = -(-rows // tile_rows)
    elements = across * rows * depth + down * depth * columns
    moved = [[bytes]] * elements
    return moved, 2 * rows * columns * depth / moved
    ### END SOLUTION


# %% id="l08-e1d" vklab={"role": "demo"}
with attempt("08-1"):
    for side in (1, 16, 64, 128):
        moved, intensity = tiled_traffic(128, 128, 128, side, side)
        print(f"tiles of {side:3} x {side:3}: {moved / 1e6:6.2f} MB, {intensity:6.3f} FLOP/byte")

# %% id="l08-e1c" vklab={"role": "check", "id": "08-1"}
check("08-1", tiled_traffic)

# %% id="l08-e1h"
# hint("08-1")

# %% [markdown] id="l08-2s"
# The third kernel of the ladder holds one step of both strips in **shared memory** (lab 07). Here it needs three rules.
# * **Everyone loads.** The 256 invocations of a tile of 16 x 16 load 256 elements of each operand, one each. Which element an invocation loads depends on its place in the workgroup (`local.x`, `local.y`). It need not belong to the sum that this invocation computes.
# * **Barriers on both sides.** One `GroupMemoryBarrierWithGroupSync()` stands before the tile is used, one before it is overwritten.
# * **Nobody leaves early.** An invocation without an element of `y` still loads for the others, and what lies outside of a matrix counts as 0, in both tiles.

# %% id="l08-2show"
show("labs/matmul_shared")

# %% [markdown] id="l08-e2t" vklab={"id": "08-2"}
# ### Exercise 2 · A shared tile, for y = a times b transposed
# The weights of a linear layer are often stored with **a row for each output**: here `b` has `columns` rows of `depth` elements, and `y[r, c]` is the sum of `a[r, k] * b[c, k]`. So a strip of `b` consists of rows, too. Load it along its rows.
#
# The check counts: each element that a tile needs is loaded once by its workgroup, every invocation has an equal share, and neighbours along x load side by side, from both operands. One case has infinite elements: 0 times infinity is NaN, so an old value in a tile shows.

# %% id="l08-e2" vklab={"role": "exercise", "id": "08-2", "points": 5, "lines": 12}
SHARED_TILE = """
StructuredBuffer<float> a;
StructuredBuffer<float> b;   // b has a row for each column of y
RWStructuredBuffer<float> y;
struct Params { uint rows, columns, depth; };   // y is rows x columns
[vk::push_constant] ConstantBuffer<Params> params;

static const uint TILE = [[tile]];
groupshared float a_tile[TILE * TILE];
groupshared float b_tile[TILE * TILE];

[shader("compute")]
[numthreads(TILE, TILE, 1)]
void main(uint3 group : SV_GroupID, uint3 local : SV_GroupThreadID) {
    uint row = group.y * TILE + local.y, column = group.x * TILE + local.x;
    float sum = 0.0;
    // TODO     y[r, c] = sum of a[r, k] * b[c, k] over k, one step of TILE after the other.
    // Approach load one element of each operand, 0 outside; barrier; TILE multiply-adds; barrier.
    //          At the end, only who has an element of y writes it.
    // Example  rows = columns = 1, depth = 2: a = [1, 2], b = [3, 4] gives y = [11]
    //                                                                       (roughly 12 lines)
    // ### BEGIN SOLUTION
    for (uint first = 0; first < params.depth; first += TILE) {
        uint k = first + local.x, b_row = group.x * TILE + local.y;
        uint at = local.y * TILE + local.x;
        bool in_a = row < params.rows && k < params.depth;
        bool in_b = b_row < params.columns && k < params.depth;
        a_tile[at] = in_a ? a[row * params.depth + k] : 0.0;
        b_tile[at] = in_b ? b[b_row * params.depth + k] : 0.0;
        GroupMemoryBarrierWithGroupSync();
        for (uint i = 0; i < TILE; ++i)
            sum += a_tile[local.y * TILE + i] * b_tile[local.x * TILE + i];
        GroupMemoryBarrierWithGroupSync();
    }
    if (row < params.rows && column < params.columns) y[row * params.columns + column] = sum;
    // ### END SOLUTION
}
"""

# %% id="l08-e2c" vklab={"role": "check", "id": "08-2"}
check("08-2", SHARED_TILE)

# %% id="l08-e2h"
# hint("08-2")

# %% [markdown] id="l08-uset"
# ### Two of your kernels in a row
# `SHARED_TILE` needs `b` with a row for each column of `y`. A model often has a row for each `k`; then a transpose comes first. Correct answers that build a piece of a runtime are kept in `work/mine/`. `use("04b-1")` returns your `TRANSPOSE` of lab 04b if it is kept, else a kernel of vklab's, and prints which of the two.

# %% id="l08-use" vklab={"role": "demo", "id": "08-2"}
from vklab_course import showcase, use

rows, columns, depth = 40, 24, 33
a, b = (np.arange(n, dtype=np.float32) % 7 for n in (rows * depth, depth * columns))
transpose, push = use("04b-1"), {"rows": depth, "columns": columns}
with attempt("08-2"):
    (turned,) = run_kernel(transpose, Run({"x": b, "y": np.zeros_like(b)}, (3, 5), push))
    buffers = {"a": a, "b": turned.buffers["y"], "y": np.zeros(rows * columns, np.float32)}
    push = {"rows": rows, "columns": columns, "depth": depth}
    groups = -(-columns // [[tile]]), -(-rows // [[tile]])
    (done,) = run_kernel(SHARED_TILE, Run(buffers, groups, push))
    if done.status == "ran":
        right = a.reshape(rows, depth) @ b.reshape(depth, columns)
        print("y = a b:", np.array_equal(done.buffers["y"].reshape(rows, columns), right))

# %% [markdown] id="l08-2e"
# Shared memory has a price, too: this kernel makes two shared loads for each multiply-add. And neighbours along x read `b_tile` a whole row apart. With tiles of 16 x 16 these words lie in only 2 of the 32 banks (lab 07b), so one access takes 8 transactions. Unused words at the end of each row help: with one of them, rows of 17 words, an access takes one transaction; with four, two. (`matmul_tiled.slang`, the product of vklab's runtime, has four, because its invocations read four words at once.)
#
# On a CPU driver shared memory *costs*: there it is ordinary memory behind the same caches, so a tile is an extra copy. Your own timings below may show that.

# %% [markdown] id="l08-3t"
# ## 3 · Sums in registers
# A **register** holds one number of one invocation, beside the units that compute; no memory is faster. An invocation that keeps several sums uses each number that it has loaded several times.

# %% id="l08-3d" vklab={"role": "demo", "id": "08-3"} tags=["hide-input"]
tiling.draw_block([[high]], [[wide]])

# %% [markdown] id="l08-e3t" vklab={"id": "08-3"}
# ### Exercise 3 · A block of registers, for y = a transposed times b
# Here `a` is stored with a row for each `k`: `y[r, c]` is the sum of `a[k, r] * b[k, c]`. Each invocation computes a block of [[high]] x [[wide]] elements of `y`; `top` and `left` are its first row and column. An array stays in registers only if the compiler knows every index: `[unroll]` before a loop writes out its turns one after the other. No shared memory is needed. The check counts the loads of each invocation: [[high]] elements of `a` and [[wide]] of `b` in each step, each of them once.

# %% id="l08-e3" vklab={"role": "exercise", "id": "08-3", "points": 4, "lines": 12}
REGISTER_BLOCK = """
StructuredBuffer<float> a;   // a has a row for each k
StructuredBuffer<float> b;   // so has b
RWStructuredBuffer<float> y;
struct Params { uint rows, columns, depth; };   // y is rows x columns
[vk::push_constant] ConstantBuffer<Params> params;

static const uint HIGH = [[high]], WIDE = [[wide]];

[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    uint top = HIGH * id.y, left = WIDE * id.x;
    float sums[HIGH][WIDE];
    [unroll] for (uint i = 0; i < HIGH * WIDE; ++i) sums[i / WIDE][i % WIDE] = 0.0;
    // TODO     add up all products, then write the sums that are elements of y.
    // Approach one step of k after the other: what does it need of a, and what of b?
    // Example  rows = columns = 2, depth = 1: a = [1, 2], b = [3, 4] gives y = [3, 4, 6, 8]
    //                                                                       (roughly 12 lines)
    // ### BEGIN SOLUTION
    for (uint k = 0; k < params.depth; ++k) {
        float from_a[HIGH], from_b[WIDE];
        [unroll] for (uint r = 0; r < HIGH; ++r)
            from_a[r] = top + r < params.rows ? a[k * params.rows + top + r] : 0.0;
        [unroll] for (uint c = 0; c < WIDE; ++c)
            from_b[c] = left + c < params.columns ? b[k * params.columns + left + c] : 0.0;
        [unroll] for (uint r = 0; r < HIGH; ++r)
            [unroll] for (uint c = 0; c < WIDE; ++c) sums[r][c] += from_a[r] * from_b[c];
    }
    [unroll] for (uint r = 0; r < HIGH; ++r)
        [unroll] for (uint c = 0; c < WIDE; ++c)
            if (top + r < params.rows && left + c < params.columns)
                y[(top + r) * params.columns + left + c] = sums[r][c];
    // ### END SOLUTION
}
"""

# %% id="l08-e3c" vklab={"role": "check", "id": "08-3"}
check("08-3", REGISTER_BLOCK)

# %% id="l08-e3h"
# hint("08-3")

# %% [markdown] id="l08-4t"
# ## 4 · The rest of the ladder
# | kernel | what it changes |
# |---|---|
# | `naive` | one sum per invocation |
# | `coalesced` | neighbours go along a row |
# | `shared` | a tile of 16 x 16 in shared memory |
# | `registers` | a tile of 64 x 64, 4 x 4 sums per invocation |
# | `vectors` | four floats in each load, from buffers and from shared memory; unused words end most bank conflicts of its stores |
# | `buffered` | two buffers: the next step is loaded while this one is multiplied |
# | `matrix` | halves (floats of 16 bits), and a subgroup multiplies matrices of 16 x 16 (lab 08b) |

# %% id="l08-4d" tags=["hide-input"]
tiling.draw_overlap()

# %% [markdown] id="l08-e4t" vklab={"id": "08-4"}
# ### Exercise 4 · Whose counts are these?
# Six kernels multiplied matrices of [[side]] x [[side]]. One row belongs to each; a load of four floats counts as one load. The sectors are those of one load of 32 neighbours (32 loads of four floats are 512 bytes, at least 16 sectors).
#
# | | loads | sectors, a | sectors, b | shared loads | barriers per invocation |
# |---|---:|---:|---:|---:|---:|
# | A | [[row_a]] |
# | B | [[row_b]] |
# | C | [[row_c]] |
# | D | [[row_d]] |
# | E | [[row_e]] |
# | F | [[row_f]] |
#
# Write for each letter one of "naive", "coalesced", "shared", "registers", "vectors", "buffered". The check asks for all six at once; grading counts each row.

# %% id="l08-e4" vklab={"role": "exercise", "id": "08-4", "points": 2, "lines": 1}
counts_of = ...  # {"A": "...", "B": "...", and so on}
### BEGIN SOLUTION
counts_of = [[right]]
### END SOLUTION

# %% id="l08-e4c" vklab={"role": "check", "id": "08-4"}
check("08-4", counts_of)

# %% id="l08-e4h"
# hint("08-4")

# %% [markdown] id="l08-speed"
# Now the clock: it is shown, and never marked. Left is your device with small matrices, right a recorded H200 with large ones.

# %% id="l08-speedc" tags=["nbval-ignore-output"]
draw_ladder(RECORD)

# %% [markdown] id="l08-speedr"
# Read the right column from top to bottom.
# * vklab's own product is 1.5 times as fast as `vectors`. It has larger tiles, its invocations keep 8 x 8 sums instead of 4 x 4, and it fetches the next tile into registers while it multiplies the present one.
# * `buffered` is *slower* than `vectors`. At side 512 it was faster, 9.0 against 8.3 TFLOP/s (in the same record, `data/recorded/products_h200.json`): there 64 workgroups run on 132 multiprocessors (cores of the GPU), so no other workgroup runs while one waits, and the second buffer helps. At side 4096 several workgroups share a multiprocessor and hide each other's loads. `buffered` needs more registers, so fewer of them fit. This is probably the reason; lab 08b computes how many fit.
#
# What is still possible? NVIDIA's library cuBLAS reached 51 TFLOP/s with float32 at this side on an H200, where vklab's product has 46, and 768 with halves. (Measured in November 2026 with PyTorch 2.11; no cell of this lab shows it.)
#
# The **roofline** (lab 01b) shows the same record. A kernel's place from left to right is its arithmetic intensity, as in exercise 1 with floats of 4 bytes: 0.25 without tiles, 4 with tiles of 16 x 16, 16 with tiles of 64 x 64. Kernels above each other differ in something else: in sectors, in the width of their loads, in barriers.

# %% id="l08-roof"
draw_roofline(RECORD)

# %% [markdown] id="l08-roofr"
# `coalesced` lies above the slanted blue line, the line of the bytes. This is possible because caches answer most of its loads. `registers`, `vectors`, `buffered` and the runtime's product stand to the right of the ridge, where the blue lines meet: there the bytes that loads ask for are no longer the limit, and the work inside the multiprocessors is. Larger tiles bring no float32 kernel above the flat blue line, 67 TFLOP/s. `matrix` has the orange line and stands far left of its ridge, which is at 206 FLOP/byte: larger tiles would help it. Its units are a subject of lab 08b.

# %% [markdown] id="l08-break"
# ## 5 · What would break this?
# A guard at the top of `main` is a good habit. Somebody has added one to `matmul_shared`: `if (row >= params.rows || column >= params.columns) return;` before the loop. Predict for square matrices of 48 and of 40, with the tile of 16: are all elements right (True or False)?

# %% id="l08-p3"
predict("08-p3", right_48=..., right_40=...)

# %% id="l08-breakc" tags=["nbval-ignore-output"]
wholes = [np.arange(side * side, dtype=np.float32).reshape(side, side) % 7 for side in (48, 40)]
runs = [Run({"a": whole.ravel(), "b": whole.ravel(), "y": np.zeros(whole.size, np.float32)},
            (3, 3), dict.fromkeys(("rows", "columns", "depth"), len(whole))) for whole in wholes]
for whole, done in zip(wholes, run_kernel(PLANTED, runs), strict=True):
    right = done.status == "ran" and done.buffers["y"].reshape(whole.shape) == whole @ whole
    print(f"side {len(whole)}: {done.status}, wrong elements: {whole.size - np.sum(right)}")

# %% [markdown] id="l08-breakr"
# <details><summary>What goes wrong?</summary>
#
# In the last tile, the invocations without an element of `y` have left. But each of them was to load one element of `a` and one of `b` that *others* need. What they would have stored is missing from the tile: it holds whatever was there before.
#
# It is worse than a wrong number. The Vulkan specification requires that all invocations of a workgroup reach a barrier, or none. Otherwise the behaviour is undefined: one driver waits for ever, another one goes on. NVIDIA's GPUs since Volta wait only for invocations that have not ended. There nothing hangs, and only the wrong numbers tell. With sides that 16 divides the kernel is right, so a test with 48, 64 and 128 finds nothing. Test with sides around the tile: 15, 16, 17.
# </details>

# %% [markdown] id="l08-showt"
# ### All your functions in one runtime
# `showcase()` runs models with all functions that you have kept so far, and writes a page about it. Beside yours stand a naive runtime and vklab's own. This takes a minute or two.

# %% id="l08-show" tags=["nbval-ignore-output"]
showcase()

# %% [markdown] id="l08-recap"
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | coalesced | neighbours load side by side, so a load needs few sectors | section 1 |
# | arithmetic intensity | operations per byte that is moved | 08-1 |
# | shared memory, barrier | a tile that a workgroup loads once; wait before use and before it is overwritten | 08-2 |
# | register block | several sums per invocation; each loaded number is used several times | 08-3 |
# | double buffering | the next step is loaded while this one is multiplied | section 4 |
#
# All words are in the [glossary](GLOSSARY.md), the language is in [Slang on one page](SLANG.md).
#
# **Next**: [lab 08b](08b_matrix_units.ipynb), why two buffers were slower, what multiplies whole matrices, and in which order tiles should come.
#
# **To read**
# * `show("matmul_tiled")`: the runtime's product. Find the tile, the block of registers and the padding.
# * S. Boehm, *How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance*, a ladder of the same kind in CUDA: <https://siboehm.com/articles/22/CUDA-MMM>
# * S. Williams, A. Waterman, D. Patterson, *Roofline: An Insightful Visual Performance Model* (2009): <https://doi.org/10.1145/1498765.1498785>
# * Vulkan specification, SPIR-V *OpControlBarrier* and tangled execution: <https://docs.vulkan.org/spec/latest/appendices/spirvenv.html>
