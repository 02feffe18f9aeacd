# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Occupancy and matrix units"
#     minutes: 80
#     before: ["01b", "08"]
#     know: ["NumPy", "`sorted(key=...)`"]
# ---

# %% [markdown] id="l08b-title"
# # Lab 08b · Occupancy and matrix units
# **How full a multiprocessor is, what multiplies whole matrices, and which tile comes next** · 80 minutes, 5 exercises, the last one extra
#
# In lab 08, a kernel with two buffers was slower than the same kernel with one. Halves (floats of 16 bits) on matrix units were faster than any kernel with float32. Both have reasons that you can compute without a GPU.
#
# **Afterwards you can**
# * compute how many workgroups fit on a multiprocessor, and which limit is reached first;
# * say how many bytes must be under way to keep a memory busy;
# * choose a shape of cooperative matrix from a driver's table, and round numbers as it needs them;
# * refute a claim about a benchmark with two divisions;
# * order the tiles of a product so that a cache helps.
#
# **Before this lab**: lab 08, and lab 01b (rooflines), or the page [Rooflines](inserts/rooflines.md). You need NumPy and `sorted(key=...)`. New words are in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `shaders/labs/matmul_matrix.slang`.

# %% id="l08b-setup" tags=["hide-input"]
import json

import numpy as np
from IPython.display import display

import vklab
from vklab_course import attempt, banner, check, data, hint, predict, show
from vklab_labs.lab_08 import units
from vklab_labs.lab_08.strips import ORDERS, SMALL, bytes_loaded, draw_orders

RECORD = json.loads(data("recorded/products_h200.json").read_text())
print("recorded:", ", ".join(RECORD[key] for key in ("device", "driver", "date", "made_by")))

# %% id="l08b-banner"
banner()

# %% id="l08b-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l08b-1t"
# ## 1 · Occupancy
# A load from the memory of a GPU takes hundreds of nanoseconds. A GPU does not make that shorter: it does other work meanwhile. This is called **latency hiding**.

# %% id="l08b-1d" tags=["hide-input"]
units.draw_latency()

# %% [markdown] id="l08b-1r"
# A GPU consists of many **multiprocessors** (NVIDIA's word; AMD says compute unit). Each holds the registers and the shared memory of several workgroups at a time, so it can switch from one subgroup to another without saving anything. The workgroups that it holds are called *resident*. **Occupancy** is the number of resident subgroups, divided by the largest number that the multiprocessor can hold.
#
# **Little's law** says how much must be under way: bytes in flight = bandwidth x latency. Take a memory of 4,000 GB/s and a latency of 600 ns. How many `kilobytes` (of 1,000 bytes) are in flight when the memory is busy? The GPU has 132 multiprocessors, each with 2048 resident invocations. How many `floats` does each invocation need in flight? Round up.

# %% id="l08b-p1"
predict("08b-p1", kilobytes=..., floats=...)

# %% id="l08b-1l" tags=["nbval-ignore-output"]
for kib, ns in RECORD["latency_ns"].items():
    print(f"H200, a chain of loads through {int(kib):7,} KiB: {ns:6.1f} ns for each load")
print("One multiprocessor of an H200 has at most")
for limit, most in units.UNITS["H200"].items():
    print(f"  {limit:13}{most:7}")

# %% [markdown] id="l08b-1m"
# The chain of loads was recorded with `shaders/labs/latency.slang`: one invocation, in which each load waits for the one before it. The first chain fits into the first-level cache, the second into the second-level cache, the third into neither. Its time is that of one load alone; a busy memory takes longer, hence the 600 ns of the prediction.
#
# ### Exercise 1 · What fits?
# The limits above are NVIDIA's for CUDA; through Vulkan a workgroup gets at most 48 KiB of shared memory. There are four, in this order: `"subgroups"`, `"workgroups"`, `"registers"`, `"shared memory"`.

# %% [markdown] id="l08b-e1t" vklab={"id": "08b-1"}
# * A workgroup takes whole subgroups of 32 invocations; the last one may be only partly filled.
# * Each subgroup takes 32 times the registers of an invocation, rounded up to a multiple of **[[step]]** ([[real]]).
# * A workgroup takes its shared memory. It is resident as a whole, or not at all.

# %% id="l08b-e1" vklab={"role": "exercise", "id": "08b-1", "points": 4, "lines": 8}
def occupancy(multiprocessor, kernel):
    """Return (workgroups, share, limit): what is resident on one multiprocessor.

    multiprocessor: {"subgroups", "workgroups", "registers", "shared_bytes"}: the most of each.
    kernel: {"invocations", "registers", "shared_bytes"}: invocations and shared bytes of a
    workgroup (0 bytes: no limit from shared memory), registers of an invocation.
    TODO     share: resident subgroups / most subgroups. limit: the name of the limit that allows
             the fewest workgroups, "subgroups", "workgroups", "registers" or "shared memory"; of
             several, the first in this order.
    Approach a dictionary from the name of each limit to the workgroups that it allows.
    Example  64 subgroups, 32 workgroups, 65536 registers, no shared memory; a kernel with 256
             invocations of 64 registers -> (4, 0.5, "registers")    (roughly 8 lines)
    """
    ### BEGIN SOLUTION
    subgroups = -(-kernel["invocations"] // 32)
    registers = -(-32 * kernel["registers"] // [[step]]) * [[step]] * subgroups
    allowed = {"subgroups": multiprocessor["subgroups"] // subgroups,
               "workgroups": multiprocessor["workgroups"],
               "registers": multiprocessor["registers"] // registers}
    if kernel["shared_bytes"]:
        allowed["shared memory"] = multiprocessor["shared_bytes"] // kernel["shared_bytes"]
    limit = min(allowed, key=allowed.get)
    return allowed[limit], allowed[limit] * subgroups / multiprocessor["subgroups"], limit
    ### END SOLUTION


# %% id="l08b-e1d" vklab={"role": "demo", "id": "08b-1"} tags=["nbval-ignore-output"]
with attempt("08b-1"):
    rows = {}
    for name, made in RECORD["pipelines"].items():
        kernel = {"invocations": 32 if name == "matrix" else 256,
                  "registers": made["Register Count"], "shared_bytes": made["Shared Memory Size"]}
        rows[f"{name} ({made['Register Count']})"] = occupancy(units.UNITS["H200"], kernel)
    display(units.draw_resident(rows, "One multiprocessor of an H200 by your function, with "
            "registers in steps of [[step]]. In brackets: registers of an invocation, as the "
            "compiler of its driver reported them."))

# %% id="l08b-e1c" vklab={"role": "check", "id": "08b-1"}
check("08b-1", occupancy)

# %% id="l08b-e1h"
# hint("08b-1")

# %% [markdown] id="l08b-1e"
# An H200 has steps of 256. There `buffered` needs 73 registers where `vectors` needs 48, so three workgroups are resident in place of five. This is probably why the second buffer's gain was lost at side 4096. But high occupancy is no aim in itself: `matrix` is the fastest kernel of all, with nine subgroups of 64. (In truth eight: the registers lie in four parts, and two of these subgroups fit into each.) It has much work between two loads, and many loads under way from each invocation. Occupancy is one way to have enough in flight; several independent loads in each invocation are the other.
#
# ## 2 · Cooperative matrices
# NVIDIA's tensor cores, AMD's matrix cores and Intel's XMX engines are **matrix units**: they multiply small matrices in one step. Vulkan offers them as **cooperative matrices**: all invocations of a subgroup hold a matrix together.

# %% id="l08b-2d" tags=["hide-input"]
units.draw_matrix_unit()

# %% id="l08b-2s"
show("labs/matmul_matrix")

# %% [markdown] id="l08b-2k"
# A subgroup of 32 keeps 4 x 4 sums, each of them a matrix of 16 x 16. In a step of `k` it loads four matrices of `b` and four of `a`, and `coopMatMulAdd` adds each product to its sum. (`false`: the sums do not stop at a largest value.)

# %% id="l08b-2m" tags=["nbval-ignore-output"]
matrices = vklab.devices()[0].cooperative_matrices
print(f"your device: {len(matrices)} shapes")
speeds = {name: round(sizes["4096"]["gflops"]) for name, sizes in RECORD["products"].items()}
print("H200, side 4096, GFLOP/s:", {name: speeds[name] for name in ("vectors", "matrix")})

# %% [markdown] id="l08b-2r"
# A CPU driver may have none: lavapipe 22.3 and SwiftShader have no cooperative matrices. So the record stands in for the demo: 76 TFLOP/s with halves. This is more than the 67 TFLOP/s that the H200 can reach with float32 at all, and still a small part of the 989 TFLOP/s of its matrix units. With tiles of 64 x 64 the kernel does 32 operations per byte that it asks for, and 989 TFLOP/s need 206. Larger tiles in shared memory are missing, and a second buffer.
#
# `vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR` lists what a device can multiply. This is the recorded list of the H200, with the sides M, N and K, the kinds of numbers, and the scope (which invocations hold a matrix together):

# %% id="l08b-2l"
heads = ("row", "M", "N", "K", "a", "b", "c", "result", "scope")
for row in (heads, *((index, *row) for index, row in enumerate(units.table_of(RECORD)))):
    print(*(f"{each!s:8}" for each in row))

# %% [markdown] id="l08b-e2t"
# ### Exercise 2 · The shape that wastes least
# A product whose sides the shape does not divide is padded with zeros, and the unit multiplies the padding, too. Choose the row with the least waste. The check uses the table of the H200, and a second one that is **made up**.

# %% id="l08b-e2" vklab={"role": "exercise", "id": "08b-2", "points": 4, "lines": 10}
def choose_shape(table, sizes, kinds):
    """Return (index of the row, wasted multiply-adds), or None if no row fits.

    table: rows (M, N, K, a, b, c, result, scope). sizes: (m, n, k) of the product.
    kinds: (inputs, sums): a and b must be inputs, c and result must be sums, and the scope must be
    "subgroup".
    TODO     wasted: multiply-adds of the padded product, less m n k. Choose the row that wastes
             least; of those the one with the largest M N K (fewest instructions), then the first.
    Approach leave out the rows that do not fit, then compare what the others multiply.
    Example  for (64, 24, 32), ("float16", "float32") and the H200 -> (4, 0): 16 does not divide 24
                                                                       (roughly 10 lines)
    """
    ### BEGIN SOLUTION
    inputs, sums = kinds
    fitting = []
    for index, (*shape, a, b, c, result, scope) in enumerate(table):
        if (a, b, c, result, scope) == (inputs, inputs, sums, sums, "subgroup"):
            done = 1
            for n in range(3):
                done *= -(-sizes[n] // shape[n]) * shape[n]
            wasted = done - sizes[0] * sizes[1] * sizes[2]
            fitting.append((wasted, -shape[0] * shape[1] * shape[2], index))
    return (min(fitting)[2], min(fitting)[0]) if fitting else None
    ### END SOLUTION


# %% id="l08b-e2c" vklab={"role": "check", "id": "08b-2"}
check("08b-2", choose_shape)

# %% id="l08b-e2h"
# hint("08b-2")

# %% [markdown] id="l08b-3t"
# ## 3 · Fewer bits
# The **mantissa** of a float is the part that holds its digits. Matrix units use only some of its bits.

# %% id="l08b-3d" tags=["hide-input"]
units.draw_formats()

# %% [markdown] id="l08b-e3t"
# ### Exercise 3 · Round to fewer bits
# Before a matrix unit multiplies float32 numbers, they are rounded to fewer bits of mantissa: 10 for TF32 (float16 has 10 bits, too, for numbers that are neither huge nor tiny), 7 for bfloat16. Write the rounding that a host uses for float16 and bfloat16: to the nearest neighbour; a value in the middle goes to the neighbour whose last kept bit is 0. (NVIDIA's instruction for TF32, `cvt.rna`, moves it away from zero. Without such an instruction the unit cuts the lower 13 bits off.)

# %% id="l08b-e3" vklab={"role": "exercise", "id": "08b-3", "points": 4, "lines": 5}
def rounded(x, bits):
    """Return a float32 array, rounded to `bits` bits of mantissa.

    x: finite float32 numbers, 0 or larger in size than 1e-37. bits: bits of the mantissa that
    stay, from 4 to 12.
    TODO     round to the nearest neighbour, ties to even.
    Approach x.view(np.uint32) gives the bits as whole numbers: change them, then .view(np.float32)
    Example  bits = 10: 1 + 3 / 2048 is the middle of its two neighbours, and becomes 1 + 2 / 1024
                                                                       (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    words, gone = x.view(np.uint32), 23 - bits
    odd = words >> gone & 1
    return ((words + (1 << gone - 1) - 1 + odd) >> gone << gone).view(np.float32)
    ### END SOLUTION


# %% id="l08b-e3d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("08b-3"):
    random = np.random.default_rng(8)  # the inputs of the record, and the 16 rows that it checked
    a, b = (random.uniform(-1, 1, (512, 512)).astype(np.float32) for _ in "ab")
    a = a[np.linspace(0, 511, 16).astype(int)]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for bits, name in ((12, "12 bits"), (10, "TF32, float16"), (7, "bfloat16")):
        error = np.abs(rounded(a, bits) @ rounded(b, bits) - exact).max()
        print(f"{name:14} largest error {error:.2e}")
    for name in ("vectors", "matrix"):
        print(f"H200, {name:8} largest error {RECORD['products'][name]['512']['max_error']:.2e}")

# %% id="l08b-e3c" vklab={"role": "check", "id": "08b-3"}
check("08b-3", rounded)

# %% id="l08b-e3h"
# hint("08b-3")

# %% [markdown] id="l08b-3r"
# The error of `matrix` is that of your 10 bits: rounding the inputs makes it, and the sums, which are float32, hardly add to it. Float16 sums would: a float16 sum that has reached 2048 changes in steps of 2: terms up to 1 are lost, and others are rounded to an even number. So tables list inputs and sums apart.
#
# ## 4 · A footnote
# VKML's README compares runtimes on an RTX 3080, "all FP32", at batch 1. One row reads: *MatMul-heavy (19 ops), 973 MiB: VKML 72.39 ms, ONNX Runtime (CUDA) 10.78 ms, ncnn 72.33 ms*. A footnote explains the gap: ONNX Runtime "benefits from opaque Tensor Core / TF32 acceleration on large MatMul workloads". Can it?

# %% [markdown] id="l08b-e4t" vklab={"id": "08b-4"}
# ### Exercise 4 · Refute it, or confirm it
# The 973 MiB (of 2 ** 20 bytes) are float32 weights of products. Suppose that each product is a matrix times one vector, so that each weight is loaded once and used for one multiply-add (two operations). Take an **[[gpu]]**: [[tflops]] TFLOP/s with float32 without matrix units, [[gb_s]] GB/s. Compute, with four digits,
# * `memory_ms`: the shortest time to load the weights, in milliseconds;
# * `fp32_ms`: the shortest time to multiply them, in milliseconds;
# * `batch`: the smallest batch (a whole number) at which multiplying takes longer than loading.

# %% id="l08b-e4" vklab={"role": "exercise", "id": "08b-4", "points": 3, "lines": 5}
footnote = ...  # {"memory_ms": ..., "fp32_ms": ..., "batch": ...}
### BEGIN SOLUTION
weight_bytes = 973 * 2**20
memory_ms = weight_bytes / ([[gb_s]] * 1e9) * 1e3
fp32_ms = 2 * weight_bytes / 4 / ([[tflops]] * 1e12) * 1e3
footnote = {"memory_ms": memory_ms, "fp32_ms": fp32_ms, "batch": int(memory_ms / fp32_ms) + 1}
### END SOLUTION

# %% id="l08b-e4c" vklab={"role": "check", "id": "08b-4"}
check("08b-4", footnote)

# %% id="l08b-e4h"
# hint("08b-4")

# %% [markdown] id="l08b-4r"
# <details><summary>What follows for the footnote?</summary>
#
# On the RTX 3080 the bytes need 1.34 ms, and the multiplications 0.017 ms with plain float32, if the products are those of one vector (look into the model before you write to its authors). TF32 does not make the bytes fewer: look at the picture, a TF32 number lies in memory with all 32 bits. So even infinitely fast units would save less than 0.02 ms of a gap of 61.6 ms. Arithmetic cannot be the bound. What differs between the runtimes is how they load: 10.78 ms are 95 GB/s, and 72.39 ms are 14 GB/s, on a card with 760. The question to ask is where those bytes came from, and the footnote keeps readers from asking it.
# </details>
#
# **A fair comparison** names, for each runtime:
# * the precision of the inputs and of the sums, and the error of the result;
# * whether TF32 is on. In ONNX Runtime's CUDA provider it is, unless `use_tf32=0`; in PyTorch it is off for products, unless `torch.backends.cuda.matmul.allow_tf32` is set;
# * batch, warm-up, and whether the weights were on the device before the clock started.
#
# At a batch of hundreds TF32 does decide, and then the two columns do not compute the same thing.
#
# ## 5 · Which tile comes next?
# A large product has thousands of tiles. Workgroups start roughly in the order of their numbers, and the second-level cache keeps what was used last. Tiles that run close to each other should share strips. Here is a small model of it: one tile at a time, and a cache of strips in which the **least recently used** one leaves first (LRU).

# %% id="l08b-5d" tags=["hide-input"]
grid = [(i, j) for i in range(12) for j in range(12)]
draw_orders({name: sorted(grid, key=key) for name, key in ORDERS.items()}, [1] * 12, [1] * 12, 6,
            "12 x 12 tiles, a cache of six strips: three orders, and the bytes that they load.")

# %% [markdown] id="l08b-e5t" vklab={"id": "08b-5"}
# ### Exercise 5 · An order of tiles (scored, extra)
# Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra. Tile `(i, j)` uses strip `i` of `a`, then strip `j` of `b`. A strip that is not in the cache is loaded, and its bytes count; before that, least recently used strips leave until it fits. `bytes_loaded(order, a, b, cache)` replays an order and returns the bytes. The check has two tiny grids, of one and of two tiles, and five that count: the small one below, two with strips of equal size, and two with strips of several sizes. Of two, the worse one counts. All seven together have 10 seconds, so search a grid for one second at most.
#
# For 24 x 24 tiles and six strips of one byte, rows load 600 bytes, a snake 508, and 163 is the best that we know. A snake is the "obvious answer" of the verdict and gets no points; the check tells how few bytes give all points. For the small grid, in which two of 15 tiles are not wanted, these are 13, which a search has shown to be the best. There, trying many small changes pays.
#
# <details><summary>A lower bound, for those who want one</summary>
#
# Each strip is loaded once at least. And count each tile for the one of its two strips that was loaded later: the other one was in the cache at that moment, among at most `cache - s` bytes if the new strip has `s`. So this load can serve tiles worth at most `s (cache - s)`, where a tile is worth the product of its two strips. For the 24 x 24 tiles this gives 576 / 5, or 116.
# </details>

# %% id="l08b-5s" vklab={"id": "08b-5"} tags=["hide-input"]
tiles, a, b, cache = SMALL
draw_orders({name: sorted(tiles, key=ORDERS[name]) for name in ("rows", "snake")}, a, b, cache,
            "The small grid: two of its 15 tiles are not wanted. The strips of a have 3, 1 and 1 "
            "bytes, those of b 1, 2, 2, 1 and 1, and the cache has 7.")

# %% id="l08b-e5" vklab={"role": "exercise", "id": "08b-5", "points": 5, "lines": 14}
def order_tiles(tiles, a, b, cache):
    """Return the tiles in an order that loads few bytes.

    tiles: a list of (i, j). a, b: bytes of the strips of each operand. cache: bytes of the cache.
    TODO     every tile once, in an order with few bytes_loaded. The check calls this function for
             all of its grids within 10 seconds.
    Approach which strips should stay while others pass by? Compare several orders by replay.
    Example  order_tiles(*SMALL): rows load 22 bytes, a snake 17, a best order 13
                                                                       (roughly 14 lines)
    """
    ### BEGIN SOLUTION
    def in_bands(turn, wide, by_size):
        lines, places = ({n: rank for rank, n in enumerate(sorted(
            range(len(strips)), key=lambda n: strips[n] * by_size))} for strips in (a, b)[::turn])

        def key(tile):
            line, place = lines[tile[::turn][0]], places[tile[::turn][1]]
            down = place // wide % 2
            return place // wide, -line if down else line

        return sorted(tiles, key=key)

    # bands of columns or of rows, of each width, with the strips as they come or by size
    orders = [in_bands(turn, wide, by_size) for turn in (1, -1) for by_size in (False, True)
              for wide in range(1, 21)]
    return min(orders, key=lambda order: bytes_loaded(order, a, b, cache))
    ### END SOLUTION


# %% id="l08b-e5d" vklab={"role": "demo", "id": "08b-5"} tags=["nbval-ignore-output"]
with attempt("08b-5"):
    mine = {"snake": sorted(grid, key=ORDERS["snake"]),
            "your order": order_tiles(grid, [1] * 12, [1] * 12, 6)}
    display(draw_orders(mine, [1] * 12, [1] * 12, 6, "The same grid and cache, with your order."))

# %% id="l08b-e5c" vklab={"role": "check", "id": "08b-5"}
check("08b-5", order_tiles)

# %% id="l08b-e5h" vklab={"id": "08b-5"}
# hint("08b-5")

# %% [markdown] id="l08b-5r"
# Real kernels do this with one line: they turn the number of the workgroup into a tile by groups of rows. Triton's tutorial calls it *grouped ordering*, CUTLASS *threadblock swizzle*.
#
# ## 6 · What would break this?
# The depth of a product is padded to a multiple of K. The padded buffers are new for each product, and new memory holds what was there before. A colleague clears only the padding of `b`: "Zero times anything is zero, so `a` needs no zeros." The three tests differ in what the memory of `a` held before: zeros, ordinary numbers, or numbers of which one is infinite. Is the result right (True or False)?

# %% id="l08b-p2"
predict("08b-p2", right_zeros=..., right_numbers=..., right_infinity=...)

# %% id="l08b-6c"
a, b = np.ones((20, 20), np.float16), np.ones((20, 20), np.float16)
for words, memory in (("zeros", [0]), ("numbers", [3, 7]), ("infinity", [3, np.inf])):
    y = units.padded_product(a, b, np.array(memory, np.float16))
    print(f"{words:9} right: {np.array_equal(y, np.full((20, 20), 20))}, NaN: {np.isnan(y).sum()}")

# %% id="l08b-6s"
show(units.padded_product)

# %% [markdown] id="l08b-6r"
# <details><summary>Which line is it, and why is this bug hard to find?</summary>
#
# `a_padded = np.resize(memory, (high, deep))` takes over what lay there before. Zero times infinity is NaN, and a NaN stays in the sum. Half precision makes it likely: everything from 65,520 on becomes infinite. The result depends on what *another* product left behind, so the bug comes and goes. Along rows and columns old contents do no harm: they only reach elements of `y` that nobody reads. Along the depth both operands need zeros.
# </details>

# %% [markdown] id="l08b-recap"
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | occupancy | resident subgroups, divided by the most that a multiprocessor can hold | 08b-1 |
# | Little's law | bytes in flight = bandwidth x latency | section 1 |
# | cooperative matrix | a matrix that the invocations of a subgroup hold and multiply together | 08b-2 |
# | TF32 | float32 in memory, 10 bits of mantissa in the unit | 08b-3, 08b-4 |
# | least recently used | the strip whose last use is longest ago leaves the cache | 08b-5 |
#
# All words are in the [glossary](GLOSSARY.md), the language is in [Slang on one page](SLANG.md).
#
# **Next**: [lab 09](09_onnx_graphs.ipynb), the graph around the products: how a model becomes a list of dispatches.
#
# **To read**
# * J. Little, *A Proof for the Queuing Formula L = λW* (1961): <https://doi.org/10.1287/opre.9.3.383>
# * V. Volkov, *Better Performance at Lower Occupancy* (2010): <https://www.nvidia.com/content/GTC-2010/pdfs/2238_GTC2010.pdf>
# * NVIDIA, *Hopper Tuning Guide*, for the limits of a multiprocessor: <https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html>
# * Three extensions: VK_NV_cooperative_matrix (1.1.101, 2019: <https://github.com/KhronosGroup/Vulkan-Docs/issues/923>), VK_KHR_cooperative_matrix (1.3.255, 2023, for all vendors: <https://www.phoronix.com/news/Vulkan-1.3.255>) and VK_NV_cooperative_matrix2 (1.3.300, 2024, matrices of a whole workgroup: <https://www.phoronix.com/news/Vulkan-1.3.300-Released>). VKML's README has "As of 1.3.300 VK_NV_cooperative_matrix": the name is that of the first, the version that of the third.
# * A benchmark of tile sizes with cooperative matrices: <https://github.com/jeffbolznv/vk_cooperative_matrix_perf>
# * ONNX Runtime, `use_tf32` of its CUDA provider: <https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html>
