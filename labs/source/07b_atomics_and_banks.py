# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Atomics and banks"
#     minutes: 60
#     before: ["07"]
# ---

# %% [markdown] id="l07b-title"
# # Lab 07b · Atomics and banks
# **When invocations meet at one place** · 60 minutes, 3 exercises, the last one extra
#
# Two invocations may meet at the same *element*, and then an update can be lost. Or they meet at the same *bank* of shared memory, and then one of them waits. The first makes results wrong, the second makes kernels slow.
#
# **Afterwards you can**
# * say which updates can be lost, and prevent it with atomic operations;
# * build a histogram that is private to each workgroup, and merge it;
# * say why two right sums of the same floats differ;
# * count the transactions of an access to shared memory;
# * place a tile in shared memory without padding, and say how far from the best you are.
#
# **Before this lab**: lab 07. At hand: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md).
#
# **File it opens**: `labs/lib/lab_07/shared_memory.py`, with the kernels of the recorded measurements.

# %% id="l07b-setup" tags=["hide-input"]
import json

import numpy as np
from IPython.display import display

from vklab_course import Run, attempt, banner, check, data, hint, predict, run_kernel
from vklab_course.children.run_kernel import Job, run_jobs
from vklab_labs.lab_07 import banks, conflicts
from vklab_labs.lab_07 import workgroups as figures
from vklab_labs.lab_07.shared_memory import KERNELS

RECORD = json.loads(data("recorded/shared_memory_h200.json").read_text("utf-8"))

# %% id="l07b-banner"
banner()

# %% id="l07b-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l07b-1t"
# ## 1 · Lost updates
# A **histogram** counts how many elements fall into each of some **bins**. For every element, an invocation adds 1 to a bin. The addition looks like one step: `y[bin] = y[bin] + 1`. It is three.

# %% id="l07b-1d" tags=["hide-input"]
figures.draw_lost()

# %% [markdown] id="l07b-1p"
# An **atomic operation** loads, computes and stores as one step: no other invocation comes between. In Slang, `InterlockedAdd(y[bin], 1)` is an atomic addition. It makes this one element safe; it orders no other access, so barriers are still needed. Other atomic operations take the smaller or larger value, exchange, or compare and exchange.
#
# A processor runs eight invocations as one vector: it loads for all eight, then adds for all, then stores for all. All eight count into one bin, which holds 0. What does the bin hold afterwards with the plain line, and with the atomic addition?

# %% id="l07b-p1"
predict("07b-p1", plain=..., atomic=...)

# %% [markdown] id="l07b-1r"
# Now 65,536 elements, in 256 bins: first evenly spread, then all in one bin. A processor with vectors of eight loses 7 of 8 updates of one bin, and more where two of its threads meet in the bin. A GPU runs more invocations at the same time, and loses more.

# %% id="l07b-lost" tags=["nbval-ignore-output"]
chance = np.random.default_rng(0)
INPUTS = {"evenly spread": chance.integers(0, 256, 65536), "one bin": np.full(65536, 7)}
NAMES = ("no atomics", "global atomics")
jobs = [Job(f"{name}.slang", Run({"x": x.astype(np.uint32), "y": np.zeros(256, np.uint32)}, (16,),
                                 {"count": 16})) for name in NAMES for x in INPUTS.values()]
done = iter(run_jobs({f"{name}.slang": KERNELS[name].encode() for name in NAMES}, jobs, 10, None))
for name in NAMES:
    for words in INPUTS:
        lost = 65536 - next(done).buffers["y"].sum()
        print(f"{name:15} {words:15} {lost:6} updates were lost")

# %% [markdown] id="l07b-2t"
# ### Fewer atomic operations in the buffer
# Atomic operations on one element take turns, and here all invocations of the *dispatch* share 256 elements of a buffer. The remedy is an idea that you will meet often: **first inside the workgroup, then across workgroups**.

# %% id="l07b-2d" tags=["hide-input"]
figures.draw_bins()

# %% [markdown] id="l07b-e1t" vklab={"id": "07b-1"}
# ### Exercise 1 · A private histogram
# Write the kernel of the picture, for [[bins]] bins and workgroups of 64 invocations. Each workgroup has 1024 elements that lie side by side; each invocation counts 16 of them, whichever you like. Two barriers are enough, and the check allows four: one inside of the loop is too many. Shared memory has no defined content at the start. `y` starts with zeros; other workgroups add to it at the same time.

# %% id="l07b-e1" vklab={"role": "exercise", "id": "07b-1", "points": 5, "lines": 12}
HISTOGRAM = """
StructuredBuffer<uint> x;         // each element is a bin, 0 to [[bins]] - 1
RWStructuredBuffer<uint> y;       // [[bins]] bins
struct Params { uint count; };    // elements of x
[vk::push_constant] ConstantBuffer<Params> params;

groupshared uint own[[[bins]]];

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
    // TODO     add to y how many of the elements group.x * 1024 ... group.x * 1024 + 1023 are in
    //          each bin. The last workgroup has fewer elements.
    // Approach clear own; count 16 elements an invocation into own; add own to y. All invocations
    //          share each of the three steps. Which steps need a barrier, which an atomic addition?
    // Example  x = [1, 1, 0] gives y = [1, 2, 0, ...]                       (roughly 12 lines)
    // ### BEGIN SOLUTION
    for (uint bin = lane; bin < [[bins]]; bin += 64) own[bin] = 0;
    GroupMemoryBarrierWithGroupSync();
    for (uint k = 0; k < 16; ++k) {
        uint i = group.x * 1024 + k * 64 + lane;
        if (i < params.count) InterlockedAdd(own[x[i]], 1);
    }
    GroupMemoryBarrierWithGroupSync();
    for (uint bin = lane; bin < [[bins]]; bin += 64) InterlockedAdd(y[bin], own[bin]);
    // ### END SOLUTION
}
"""

# %% id="l07b-e1d" vklab={"role": "demo", "id": "07b-1"}
with attempt("07b-1"):
    x = chance.integers(0, [[bins]], 4096).astype(np.uint32)
    seen = figures.observe(HISTOGRAM, {"x": x, "y": np.zeros([[bins]], np.uint32)}, (4,),
                           {"count": 4096})
    print("right:", np.array_equal(seen.buffers["y"], np.bincount(x, minlength=[[bins]])))
    print(f"{seen.counts.total('atomics')} atomic operations,",
          f"{seen.counts.elements_atomic['y'].sum()} of them on y (4 workgroups x [[bins]] bins),",
          f"{seen.counts.by_invocation['barriers'].max()} barriers")

# %% id="l07b-e1c" vklab={"role": "check", "id": "07b-1"}
check("07b-1", HISTOGRAM)

# %% id="l07b-e1h" tags=["nbval-ignore-output"]
# hint("07b-1")

# %% [markdown] id="l07b-2r"
# The recorded times of an H200, for four million elements. The private histogram is 70 times as fast as atomic additions in the buffer where elements are evenly spread, and 15 times with one bin. It loses nothing; the plain line loses almost everything.

# %% id="l07b-h200" tags=["nbval-ignore-output"]
print("recorded: {device}, {driver}, {date}".format_map(RECORD))
for name in ("no atomics", "global atomics", "shared atomics"):
    found = {spread: RECORD["histograms"][spread][name] for spread in INPUTS}
    print(f"{name:15}", *(f"{spread}: {one['time_ns'] / 1000:8.0f} us, {max(one['lost']):8} lost"
                          for spread, one in found.items()), sep="  ")

# %% [markdown] id="l07b-2s"
# Two numbers surprise. With one bin, atomic additions in the buffer are *faster* than evenly spread: 4.2 million in 102 microseconds are 41 a nanosecond. One element can hardly be changed so often, so the GPU probably adds up some of them before. And where elements are evenly spread, the plain line is slower than the atomic one; we do not know why. So measure before you believe a rule about speed.
#
# ### The order of a sum
# Whole numbers can be added in any order. Floats cannot: each addition is rounded, so `(a + b) + c` and `a + (b + c)` may differ in the last digits. The cell adds the same 65,536 numbers in three orders, one after the other.

# %% id="l07b-order"
floats = np.random.default_rng(7).random(65536, np.float32)
for words, ordered in (("forwards", floats), ("backwards", floats[::-1]),
                       ("smallest first", np.sort(floats))):
    print(f"{words:15} {np.cumsum(ordered, dtype=np.float32)[-1]:.4f}")
print(f"{'in 64 bits':15} {floats.sum(dtype=np.float64):.4f}")

# %% [markdown] id="l07b-order-r"
# Atomic additions take invocations in the order in which they arrive, and this order changes from run to run. The H200 added 65,536 floats 50 times with the kernel `sum of floats`, which loses no update:

# %% id="l07b-orders" tags=["nbval-ignore-output"]
sums = RECORD["orders"]["sums"]
print(f"{len(sums)} runs gave {len(set(sums))} different sums, from {min(sums):.4f} to "
      f"{max(sums):.4f}; in 64 bits {RECORD['orders']['exact']:.4f}")

# %% [markdown] id="l07b-order-s"
# None of these sums is exact, and all lie within what rounding explains: neighbouring floats are 0.004 apart here, and each of 65,536 additions rounds. But a test that compares them bit by bit fails now and then. So a kernel with a fixed order, such as the tree of lab 07, is easier to test: it gives the same bits in every run. (Vulkan itself has atomic additions of floats only with the extension `VK_EXT_shader_atomic_float`; the kernel above builds one from compare and exchange.)
#
# ## 2 · Banks
# Shared memory is divided into **banks** that work at the same time. In the model of this lab, **32 banks of 4 bytes**, word `w` lies in bank `w % 32`, and a bank serves one word in a **transaction**. NVIDIA describes its GPUs so, for loads of 4 bytes; a load of a `float4` is served in four parts. The picture has eight banks, to be readable.

# %% id="l07b-4d" tags=["hide-input"]
figures.draw_banks()

# %% [markdown] id="l07b-4r"
# An access of a subgroup takes as many transactions as the busiest bank has *different* words to serve. Lanes that need the same word get it together; this is a **broadcast**. Several words in one bank are a **bank conflict**.
#
# Lane `n` needs word `stride * n`, for 32 lanes. How many transactions are that for strides of 1, 2, 32 and 33?

# %% id="l07b-p2"
predict("07b-p2", stride_1=..., stride_2=..., stride_32=..., stride_33=...)

# %% [markdown] id="l07b-e2t" vklab={"id": "07b-2"}
# ### Exercise 2 · Count the transactions
# Write the model as a function, for [[banks]] banks.

# %% id="l07b-e2" vklab={"role": "exercise", "id": "07b-2", "points": 4, "lines": 5}
def transactions(words):
    """Return the transactions of one access.

    words: a list with the word that each lane needs, or None for a lane that does not take part;
    there may be any number of lanes.
    TODO     the largest number of different words in one of [[banks]] banks; word w is in bank
             w % [[banks]]. Without any lane it is 0.
    Approach collect the words of each bank; count each word once.
    Example  transactions([0, 1, 1, None]) -> 1; transactions([0, [[banks]], 1]) -> 2
                                                                       (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    found = [set() for _ in range([[banks]])]
    for word in words:
        if word is not None:
            found[word % [[banks]]].add(word)
    return max(len(bank) for bank in found)
    ### END SOLUTION


# %% [markdown] id="l07b-e2m"
# The next picture has squares from your function, and dots from a GPU: the time of the kernel `banks`, in which each lane makes 4096 loads, with words so far apart. (A processor has no such banks; the same kernel takes equally long there for all strides.) From a stride of 4 on the dots are at half of your number: the dot of stride 32 is at 16. With a stride of 2 the second transaction costs almost nothing. A likely reason: the other instructions of the loop take as long as two transactions, and hide them.

# %% id="l07b-e2d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("07b-2"):
    display(conflicts.draw_strides(
        lambda stride: transactions([stride * lane for lane in range(32)]), RECORD))

# %% id="l07b-e2c" vklab={"role": "check", "id": "07b-2"}
check("07b-2", transactions)

# %% id="l07b-e2h"
# hint("07b-2")

# %% [markdown] id="l07b-5t"
# ## 3 · A tile without padding
# A kernel keeps a tile of 32 x 32 words in shared memory. Its 32 lanes read a row, then a column. Stored row by row, a column lies in one bank: 32 transactions. The usual remedy is **padding**: rows of 33 words, of which one is never used. It costs 128 bytes for each tile, and leaves blocks with conflicts, and diagonals of odd slopes (all 64 of the list below).
#
# There is another way: leave out the padding, and *exchange* words. Element `(row, column)` gets some word of the 1024, each word once. A well-known choice is `column ^ row` as the place in the row, the XOR of two numbers: each bit that differs is 1. Rows and columns are then free of conflicts. Such an exchange is called a **swizzle**. What about other accesses?
#
# * **blocks**, such as 8 rows x 4 columns that lie side by side;
# * **diagonals** that wrap around: column `(d + row) % 32`, or with another slope;
# * **butterflies**: column `d ^ row`, or `d ^ p(row)`, where `p(row)` is the row with its five bits in another order. Sorting networks and the fast Fourier transform use such accesses.
#
# The extra exercise arranges such a tile. The picture below your function shows a list of 192 accesses: 32 rows, 32 columns, 64 wrapped diagonals (slopes 1 and -1), 64 blocks (8 x 4 and 4 x 8).

# %% id="l07b-5c" vklab={"id": "07b-3"}
ACCESSES = banks.accesses_of(banks.PICTURE)  # an array: a row for each access, with 32 elements
print("shape:", ACCESSES.shape, " elements 32 * row + column of the second one:", ACCESSES[1][:4])
for name, cost in sorted(banks.obvious(ACCESSES).items(), key=lambda pair: pair[1])[::-1]:
    if name in ("row by row", "XOR", "skew by 1", "skew by 6"):
        print(f"{name:12} {cost:5} transactions")

# %% [markdown] id="l07b-5r" vklab={"id": "07b-3"}
# `skew by k` puts element `(row, column)` at place `(column + k * row) % 32` of its row.
#
# **The bound.** Each access takes one transaction at least, so no table needs fewer than 192. No table needs exactly 192 either. Suppose one had no conflict. Each bank has 1024 / 32 = 32 words, and serves each access once. The 32 words of a bank would be in 32 different rows, 32 different columns, and on 32 different diagonals `d = (column - row) % 32`. Add up `column - row` over these 32 words: the sum is 0, because rows and columns both run through 0 to 31. The sum of the `d` is 0 + 1 + ... + 31 = 496, and 496 % 32 is 16, not 0. So this cannot be.
#
# ### Exercise 3 · Few transactions (scored, extra)
# Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra. Your function gets a list of accesses and returns a table. `banks.total(table, accesses)` counts the transactions, and `banks.of_each` those of each access. The check asks for six lists: two short ones, for which any table is right; that of the picture; and three with rows, columns, blocks and butterflies at random, for which a table without any conflict exists. All six together have 30 seconds, so stop after 4 seconds each.
#
# A list's point grows from 0 to 1. The 0 is at the best of the simple tables: row by row, XOR and `skew by k`. The 1 is at one transaction for each access of a random list, and at 240 for the picture. (The fewest that we know there is 224.)

# %% id="l07b-e3" vklab={"role": "exercise", "id": "07b-3", "points": 5, "lines": 8}
def arrange(accesses):
    """Return a table of 1024 words: the word of each element, so that few transactions are needed.

    accesses: an array of shape (count, 32); element 32 * row + column of the tile.
    TODO     a permutation of 0 ... 1023 with a small banks.total(table, accesses).
    Approach begin with a table that is simple and right. Then look at its picture: which accesses
             have conflicts? Try several tables, and return the one with the smallest total. The
             first line has names that may help: 32 numbers, the values of their bits, a source of
             random numbers. A table of shape (32, 32), row by row, is right, too.
    Example  list(range(1024)) is a right answer: row by row, and 1504 transactions in the picture.
    """
    number, bits, chance = np.arange(32), (1, 2, 4, 8, 16), np.random.default_rng(5)  # to use
    ### BEGIN SOLUTION
    tables = []
    for _ in range(500):
        turn = np.zeros_like(number)
        for bit, mask in zip(bits, chance.permutation(number), strict=False):
            turn ^= mask * (number & bit > 0)
        tables.append((32 * number[:, None] + (number ^ turn[:, None])).ravel())
    return min(tables, key=lambda table: banks.total(table, accesses))
    ### END SOLUTION


# %% id="l07b-e3d" vklab={"role": "demo", "id": "07b-3"} tags=["nbval-ignore-output"]
with attempt("07b-3"):
    mine = arrange(ACCESSES)
    kinds = {"rows": 32, "columns": 32, "diagonals": 64, "blocks": 64}
    display(conflicts.draw_bank_grid(mine, ACCESSES, kinds))

# %% id="l07b-e3c" vklab={"role": "check", "id": "07b-3"}
check("07b-3", arrange)

# %% id="l07b-e3h" vklab={"id": "07b-3"}
# hint("07b-3")

# %% [markdown] id="l07b-break"
# ## 4 · What would break this?
# `largest_on_device` finds the largest element with one atomic operation an invocation. Atomic operations on floats are optional in Vulkan, and the bits of floats sort like whole numbers; so it compares bits. Two of its three tests pass. **Which line is wrong, and for which numbers?**

# %% id="l07b-planted" tags=["nbval-ignore-output"]
LARGEST = """
StructuredBuffer<float> x;
RWStructuredBuffer<uint> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x < params.count)
        InterlockedMax(y[0], asuint(x[id.x]));
}
"""


def largest_on_device(arrays):
    """Return the largest element of each array, by an atomic operation on bits."""
    runs = [Run({"x": x, "y": np.zeros(1, np.uint32)}, (-(-x.size // 64),), {"count": x.size})
            for x in arrays]
    return [done.buffers["y"].view(np.float32)[0] for done in run_kernel(LARGEST, runs)]


some = np.random.default_rng(1).random(1000, np.float32)
TESTS = {"probabilities": some, "pixels": some * 255, "logits": some - 1}
for words, got in zip(TESTS, largest_on_device(TESTS.values()), strict=True):
    print(f"{words:14} right: {got == TESTS[words].max()}")

# %% [markdown] id="l07b-planted-r"
# <details><summary>Which line?</summary>
#
# `InterlockedMax(y[0], asuint(x[id.x]))`. The first bit of a float is its sign. As a whole number, the bits of every negative float are larger than those of every positive one, and -0.5 is larger than -0.1. So with logits the *smallest* one wins. The first two tests have no negative number.
#
# Make the order right before you compare: for a float that is not negative, set the first bit; for a negative one, invert all bits. Undo it in the end. The 0 at the start is then smaller than every float. This is how floats are sorted by radix, too.
# </details>

# %% [markdown] id="l07b-recap"
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | lost update | two invocations load the same value, and the later store undoes the earlier one | section 1 |
# | atomic operation | load, compute and store as one step | 07b-1 |
# | private histogram | count in shared memory, then add each bin to the buffer once | 07b-1 |
# | order of a sum | each addition of floats rounds, so another order gives other last digits | section 1 |
# | bank, transaction | a part of shared memory; one word of it at a time | 07b-2 |
# | bank conflict, broadcast | several words of one bank take turns; one word for many lanes does not | 07b-2 |
# | padding, swizzle | an unused word in each row; an exchange of words without unused ones | 07b-3 |
#
# All words are in the [glossary](GLOSSARY.md), the language is in [Slang on one page](SLANG.md).
#
# **Next**: [lab 08](08_matmul.ipynb), products of matrices: tiles in shared memory that are used many times.
#
# **To read**
# * The CUDA programming guide on banks of shared memory: <https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#shared-memory>
# * M. Harris, *An Efficient Matrix Transpose in CUDA C/C++*, with padding: <https://developer.nvidia.com/blog/efficient-matrix-transpose-cuda-cc/>
# * I. Wanless, *Transversals in Latin squares* (2007), on the bound of section 3 for any even side: <https://arxiv.org/abs/0903.5142>
# * `VK_EXT_shader_atomic_float`: <https://registry.khronos.org/vulkan/specs/latest/man/html/VK_EXT_shader_atomic_float.html>
# * D. Goldberg, *What every computer scientist should know about floating-point arithmetic* (1991)
