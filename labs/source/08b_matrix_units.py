# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Occupancy and matrix units", minutes: 90}
# ---

# %% [markdown] id="l08b-title"
# # Lab 08b · Occupancy and matrix units
# **How full a processor is, what multiplies whole matrices, and which tile comes next** · 90 minutes, 5 exercises; the last one, about 20 minutes, may wait for another day
#
# In lab 08, a kernel with two buffers was slower than the same kernel with one. Halves (floats of 16 bits) on matrix units were faster than any kernel with float32. Both have reasons that you can compute without a GPU.
#
# **Afterwards you can**
# * compute how many workgroups fit on a multiprocessor, and what stops the next one;
# * say how many bytes must be under way to keep a memory busy;
# * choose a shape of cooperative matrix from a driver's table, and predict its rounding error;
# * refute a claim about a benchmark with two divisions;
# * order the tiles of a product so that a cache helps.
#
# **Before this lab**: lab 08; rooflines are explained in lab 01b. You need NumPy and `sorted(key=...)`. New words are in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `shaders/labs/matmul_matrix.slang`.

# %% id="l08b-setup"
import json

import numpy as np
from IPython.display import display

import vklab
from vklab.course import attempt, banner, check, data, hint, predict, show
from vklab.course.labs import units
from vklab.course.labs.strips import ORDERS, SMALL, bytes_loaded, draw_orders

RECORD = json.loads(data("recorded/products_h200.json").read_text())
print("recorded:", *(RECORD[key] for key in ("device", "driver", "date", "made_by")), sep=", ")

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

# %% [markdown] id="l08b-1m"
# The chain of loads was recorded with `shaders/labs/latency.slang`: one invocation, in which each load waits for the one before it. The small chain fits into the first-level cache, the second into the second-level cache.
#
# ### Exercise 1 · What fits?
# A multiprocessor has four limits, in this order: `"subgroups"`, `"workgroups"`, `"registers"`, `"shared memory"`.

# %% [markdown] id="l08b-e1t" vklab={"id": "08b-1"}
# * A workgroup takes whole subgroups of 32 invocations; the last one may be only partly filled.
# * Each subgroup takes 32 times the registers of an invocation, rounded up to a multiple of **[[step]]**.
# * A workgroup takes its shared memory. It is resident as a whole, or not at all.

# %% id="l08b-e1" vklab={"role": "exercise", "id": "08b-1", "points": 4, "lines": 8}
def occupancy(unit, kernel):
    """Return (workgroups, share, limit): what is resident on one multiprocessor.

    unit: {"subgroups", "workgroups", "registers", "shared_bytes"}: the most of each.
    kernel: {"invocations", "registers", "shared_bytes"}: invocations and shared bytes of a
    workgroup (0 bytes: no limit from shared memory), registers of an invocation.
    TODO     share: resident subgroups / unit["subgroups"]. limit: the name of the limit that allows
             the fewest workgroups, "subgroups", "workgroups", "registers" or "shared memory"; of
             several, the first in this order.
    Approach a dictionary from the name of each limit to the workgroups that it allows.
    Example  64 subgroups, 32 workgroups, 65536 registers, no shared memory; a kernel with 256
             invocations of 64 registers -> (4, 0.5, "registers")    (roughly 8 lines)
    """
    ### BEGIN SOLUTION
    subgroups = -(-kernel["invocations"] // 32)
    registers = -(-32 * kernel["registers"] // [[step]]) * [[step]] * subgroups
    allowed = {"subgroups": unit["subgroups"] // subgroups, "workgroups": unit["workgroups"],
               "registers": unit["registers"] // registers}
    if kernel["shared_bytes"]:
        allowed["shared memory"] = unit["shared_bytes"] // kernel["shared_bytes"]
    limit = min(allowed, key=allowed.get)
    return allowed[limit], allowed[limit] * subgroups / unit["subgroups"], limit
    ### END SOLUTION


# %% id="l08b-e1d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("08b-1"):
    rows = {}
    for name, made in RECORD["pipelines"].items():
        kernel = {"invocations": 32 if name == "matrix" else 256,
                  "registers": made["Register Count"], "shared_bytes": made["Shared Memory Size"]}
        rows[f"{name} ({made['Register Count']})"] = occupancy(units.UNITS["H200"], kernel)
    display(units.draw_resident(rows, "Kernels of the ladder on one multiprocessor of an H200. In "
            "brackets: registers of an invocation, as its driver's compiler reported them."))

# %% id="l08b-e1c" vklab={"role": "check", "id": "08b-1"}
check("08b-1", occupancy)

# %% id="l08b-e1h"
# hint("08b-1")

# %% [markdown] id="l08b-1e"
# With the real step of 256 this explains lab 08: `buffered` needs 73 registers where `vectors` needs 48. Three workgroups are resident in place of five: the likely reason why the second buffer's gain was lost. But high occupancy is no aim in itself: `matrix` is the fastest kernel of all, with nine subgroups of 64. It has much work between two loads, and many loads under way from each invocation. Occupancy is one way to have enough in flight; several independent loads in each invocation are the other.
#
# ## 2 · Cooperative matrices
# NVIDIA's tensor cores, AMD's matrix cores and Intel's XMX engines multiply small matrices in one step. Vulkan offers them as **cooperative matrices**: all invocations of a subgroup hold a matrix together.

# %% id="l08b-2d" tags=["hide-input"]
units.draw_matrix_unit()

# %% id="l08b-2s"
show("labs/matmul_matrix")

# %% id="l08b-2m" tags=["nbval-ignore-output"]
matrices = vklab.devices()[0].cooperative_matrices
print(f"your device: {len(matrices)} shapes")
speeds = {name: round(sizes["4096"]["gflops"]) for name, sizes in RECORD["products"].items()}
print("H200, side 4096, GFLOP/s:", {name: speeds[name] for name in ("vectors", "matrix")})

# %% [markdown] id="l08b-2r"
# A CPU driver may have none: lavapipe 22.3 and SwiftShader have no cooperative matrices. So the record stands in for the demo: 75 TFLOP/s with halves. This is more than the 67 TFLOP/s that the H200 can reach with float32 at all, and still a small part of the 989 TFLOP/s of its matrix units: the kernel has no shared memory, and no two buffers.
#
# `vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR` lists what a device can multiply. This is the recorded list of the H200, as (M, N, K, a, b, c, result, scope):

# %% id="l08b-2l"
for row in units.table_of(RECORD):
    print(*row)

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
    Approach collect (wasted, -M N K, index) of the rows that fit; take the smallest.
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

# %% [markdown] id="l08b-2v"
# ### Which version was it?
# The README of VKML, another Vulkan runtime for ONNX models, says under *Vendor specific extensions become standard*: "As of 1.3.300 VK_NV_cooperative_matrix". Something is wrong there. Compare with the dates before you open the answer.
#
# | extension | first in Vulkan | whose |
# |---|---|---|
# | VK_NV_cooperative_matrix | 1.1.101, 2019 | NVIDIA |
# | VK_KHR_cooperative_matrix | 1.3.255, June 2023 | Khronos: all vendors |
# | VK_NV_cooperative_matrix2 | 1.3.300, October 2024 | NVIDIA |
#
# <details><summary>What is wrong?</summary>
#
# The name, or the version. What came with 1.3.300 is the *second* NVIDIA extension; the one that is named is five years older. And neither has become a standard: the standard one is VK_KHR_cooperative_matrix, which the sentence leaves out. The link in the README leads to the old extension.
# </details>
#
# **Cooperative matrix 2** (read) builds on the KHR extension: matrices of a whole workgroup, which the driver stages through shared memory itself; loads by a *tensor layout* that fill what lies outside with a chosen value, so that nobody pads; reductions, conversions and functions for each element. The recorded H200 has it. The same README links a benchmark of cooperative matrices, [vk_cooperative_matrix_perf](https://github.com/jeffbolznv/vk_cooperative_matrix_perf) (read): it runs one product with many tile sizes, with and without shared memory, and prints TFLOP/s for each. It is a good place to see how much a tile matters.
#
# ## 3 · Fewer bits
# A **mantissa** is the part of a float that holds its digits. Matrix units read few of them.

# %% id="l08b-3d" tags=["hide-input"]
units.draw_formats()

# %% [markdown] id="l08b-e3t"
# ### Exercise 3 · What rounding costs
# Write what a matrix unit does with float32 inputs: it keeps `bits` bits of the mantissa, and adds up in float32. 10 bits are TF32, and also float16 for numbers that are neither huge nor tiny; 7 bits are bfloat16. A value in the middle between two neighbours goes to the one whose last kept bit is 0.

# %% id="l08b-e3" vklab={"role": "exercise", "id": "08b-3", "points": 4, "lines": 8}
def rounded_product(a, b, bits):
    """Return (a rounded, the largest error of the product of rounded a and b).

    a, b: float32 matrices of finite numbers. bits: bits of the mantissa that stay, from 4 to 12.
    TODO     round both to the nearest, ties to even; multiply in float32; the error is the largest
             distance from the product of the unrounded a and b in float64, a float.
    Approach x.view(np.uint32); add just under half of the last kept bit, and 1 if that bit is set;
             clear the rest; .view(np.float32)
    Example  1 + 3 / 2048 lies between two neighbours with 10 bits; it becomes 1 + 2 / 1024
                                                                       (roughly 8 lines)
    """
    ### BEGIN SOLUTION
    def keep(x):
        words, gone = x.view(np.uint32), 23 - bits
        odd = words >> gone & 1
        return ((words + (1 << gone - 1) - 1 + odd) >> gone << gone).view(np.float32)

    exact = a.astype(np.float64) @ b.astype(np.float64)
    return keep(a), float(np.abs(keep(a) @ keep(b) - exact).max())
    ### END SOLUTION


# %% id="l08b-e3d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("08b-3"):
    random = np.random.default_rng(8)  # the inputs of the record, and the 16 rows that it checked
    a, b = (random.uniform(-1, 1, (512, 512)).astype(np.float32) for _ in "ab")
    a = a[np.linspace(0, 511, 16).astype(int)]
    for bits, name in ((12, "12 bits"), (10, "TF32, float16"), (7, "bfloat16")):
        print(f"{name:14} largest error {rounded_product(a, b, bits)[1]:.2e}")
    for name in ("vectors", "matrix"):
        print(f"H200, {name:8} largest error {RECORD['products'][name]['512']['max_error']:.2e}")

# %% id="l08b-e3c" vklab={"role": "check", "id": "08b-3"}
check("08b-3", rounded_product)

# %% id="l08b-e3h"
# hint("08b-3")

# %% [markdown] id="l08b-3r"
# The line of `matrix` is the line of your float16: rounding the inputs makes the error, and the float32 sums hardly add to it. Float16 sums would: a float16 sum that has reached 2048 changes in steps of 2, and smaller terms are lost. So tables list inputs and sums apart.
#
# ## 4 · A footnote
# VKML's README compares runtimes on an RTX 3080, "all FP32", at batch 1. One row reads: *MatMul-heavy (19 ops), 973 MiB: VKML 72.39 ms, ONNX Runtime (CUDA) 10.78 ms, ncnn 72.33 ms*. A footnote explains the gap: ONNX Runtime "benefits from opaque Tensor Core / TF32 acceleration on large MatMul workloads". Can it?

# %% [markdown] id="l08b-e4t" vklab={"id": "08b-4"}
# ### Exercise 4 · Refute it, or confirm it
# The 973 MiB are float32 weights of products. At batch 1 each weight is loaded once and used for one multiply-add. Take an **[[gpu]]**: [[tflops]] TFLOP/s with float32 and no matrix units, [[gb_s]] GB/s. Compute, with four digits,
# * `memory_ms`: the shortest time to load the weights, in milliseconds;
# * `fp32_ms`: the shortest time to multiply them, in milliseconds;
# * `batch`: the smallest batch (a whole number) at which multiplying takes longer than loading.

# %% id="l08b-e4" vklab={"role": "exercise", "id": "08b-4", "points": 3, "lines": 5}
footnote = ...
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
# On the RTX 3080 the bytes need 1.34 ms, and the multiplications 0.017 ms with plain float32. TF32 does not make the bytes fewer: look at the picture, a TF32 number lies in memory with all 32 bits. So even infinitely fast units would save less than 0.02 ms of a gap of 61.6 ms. The row is bound by memory. What differs between the runtimes is how they load: 10.78 ms are 95 GB/s, and 72.39 ms are 14 GB/s, on a card with 760. The question to ask is where those bytes came from, and the footnote keeps readers from asking it.
# </details>
#
# **A fair comparison** names, for each runtime: the precision of inputs and of sums; whether TF32 is on (ONNX Runtime's CUDA provider has it on unless `use_tf32=0`; PyTorch has it off for products unless you set `torch.backends.cuda.matmul.allow_tf32`); whether weights were on the device before the clock started; batch, warm-up, and the error of the result. At a batch of hundreds TF32 does decide, and then the two columns do not compute the same thing.
#
# ## 5 · Which tile comes next?
# A large product has thousands of tiles. Workgroups start roughly in the order of their numbers, and the second-level cache keeps what was used last. Tiles that run close to each other should share strips. Here is a small model of it: one tile at a time, and a cache of strips in which the **least recently used** one leaves first (LRU).

# %% id="l08b-5d" tags=["hide-input"]
grid = [(i, j) for i in range(12) for j in range(12)]
draw_orders({name: sorted(grid, key=key) for name, key in ORDERS.items()}, [1] * 12, [1] * 12, 6,
            "12 x 12 tiles, a cache of six strips: three orders, and the bytes that they load.")

# %% [markdown] id="l08b-e5t"
# ### Exercise 5 · An order of tiles (scored)
# Tile `(i, j)` uses strip `i` of `a`, then strip `j` of `b`. A strip that is not in the cache is loaded, and its bytes count; before that, least recently used strips leave until it fits. `bytes_loaded(order, a, b, cache)` replays an order and returns the bytes. In some grids strips have several sizes, and in some not all tiles are wanted (as in attention, where later words are masked).
#
# **The bound**: each strip is loaded once at least. And a strip of `s` bytes meets at most `cache - s` bytes of other strips until the next load, so it can serve tiles worth `s (cache - s)`, where a tile is worth the product of its two strips. For 24 x 24 tiles and six strips of one byte that is 576 / 5, or 116; rows load 600, a snake 508, and 163 is the best we found. You get all points from a good order on, and the verdict names it. For the small grid below the bound is exact, because all of its orders can be searched: 13.

# %% id="l08b-5s" tags=["hide-input"]
tiles, a, b, cache = SMALL
draw_orders({name: sorted(tiles, key=ORDERS[name]) for name in ("rows", "snake")}, a, b, cache,
            "The small grid: two of its 15 tiles are not wanted. The strips of a have 3, 1 and 1 "
            "bytes, those of b 1, 2, 2, 1 and 1, and the cache has 7.")

# %% id="l08b-e5" vklab={"role": "exercise", "id": "08b-5", "points": 5, "lines": 14}
def order_tiles(tiles, a, b, cache):
    """Return the tiles in an order that loads few bytes.

    tiles: a list of (i, j). a, b: bytes of the strips of each operand. cache: bytes of the cache.
    TODO     every tile once, in an order with few bytes_loaded.
    Approach think about which strips stay while others pass by; compare several orders by replay.
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


# %% id="l08b-e5d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("08b-5"):
    mine = {"snake": sorted(grid, key=ORDERS["snake"]),
            "your order": order_tiles(grid, [1] * 12, [1] * 12, 6)}
    display(draw_orders(mine, [1] * 12, [1] * 12, 6, "The same grid and cache, with your order."))

# %% id="l08b-e5c" vklab={"role": "check", "id": "08b-5"}
check("08b-5", order_tiles)

# %% id="l08b-e5h"
# hint("08b-5")

# %% [markdown] id="l08b-5r"
# Real kernels do this with one line: they turn the number of the workgroup into a tile by groups of rows. Triton's tutorial calls it *grouped ordering*, CUTLASS *threadblock swizzle*.
#
# ## 6 · What would break this?
# The depth of a product is padded to a multiple of K. Somebody allocates the padded buffers anew for each product and says: "The padding of `b` is zero. Zero times anything is zero, so I need not clear the padding of `a`." The three tests differ in what the buffer of `a` held before: zeros, ordinary numbers, or numbers of which one is infinite. Is the result right?

# %% id="l08b-p2"
predict("08b-p2", right_zeros=..., right_numbers=..., right_infinity=...)

# %% id="l08b-6c"
a, b = np.ones((20, 20), np.float16), np.ones((20, 20), np.float16)
for words, memory in (("zeros", [0]), ("numbers", [3, 7]), ("infinity", [3, np.inf])):
    y = units.padded_product(a, b, np.array(memory, np.float16))
    print(f"{words:9} right: {np.array_equal(y, np.full((20, 20), 20))}, NaN: {np.isnan(y).sum()}")

# %% [markdown] id="l08b-6r"
# <details><summary>Which line is it, and why is this bug hard to find?</summary>
#
# `a_padded = np.resize(memory, (high, deep))` takes over what lay there before. Zero times infinity is NaN, and a NaN stays in the sum. Half precision makes it likely: everything above 65,504 becomes infinite. The result depends on what *another* product left behind, so the bug comes and goes. Along rows and columns old contents do no harm: they only reach elements of `y` that nobody reads. Along the depth both operands need zeros.
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
# **Next**: the graph around the products: how a model becomes a list of dispatches.
#
# **To read**
# * J. Little, *A Proof for the Queuing Formula L = λW* (1961): <https://doi.org/10.1287/opre.9.3.383>
# * V. Volkov, *Better Performance at Lower Occupancy* (2010): <https://www.nvidia.com/content/GTC-2010/pdfs/2238_GTC2010.pdf>
# * NVIDIA, *Hopper Tuning Guide*, for the limits of a multiprocessor: <https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html>
# * Vulkan 1.3.255 with VK_KHR_cooperative_matrix: <https://www.phoronix.com/news/Vulkan-1.3.255>; 1.1.101 with the first NVIDIA extension: <https://github.com/KhronosGroup/Vulkan-Docs/issues/923>; 1.3.300 with the second: <https://www.phoronix.com/news/Vulkan-1.3.300-Released>
# * ONNX Runtime, `use_tf32` of its CUDA provider: <https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html>
