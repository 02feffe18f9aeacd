# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Blocks of four bits"
#     minutes: 90
#     before: ["07"]
#     know: ["NumPy's `view` and `float16`", "bit operators", "means and deviations"]
# ---

# %% [markdown] id="l14b-title"
# # Lab 14b · Blocks of four bits
# **How weights get four bits each, and what that costs** · 90 minutes, 5 exercises, the last one extra
#
# Somebody downloads a language model with 70 billion parameters, 42 GB, for a GPU with 24 GB. It does not fit, and a day is lost. The same model in another format does fit, and then it may answer nonsense. Both can be computed before the download: how many bytes a format needs, and how far it moves the model's predictions.
#
# **Afterwards you can**
# * read one number out of a block of the format Q4_K, bit by bit;
# * write a kernel that multiplies by such blocks, with as few loads as possible;
# * say which model, with which context, fits into a memory, and the least time of a token;
# * judge a change of perplexity with its error;
# * extra: choose a format for each matrix, within a budget of bytes.
#
# **Before this lab**: lab 07 (shared memory, barriers, reductions). You need NumPy's `view` and `float16`, bit operators, and means and deviations. New words are explained where they come first, and in the [glossary](GLOSSARY.md). For the kernel: [Slang on one page](SLANG.md).
#
# **Files it opens**: `vklab/apps/quantization/block_picture.py`, `shaders/ops/matvec_blocks.slang`.

# %% id="l14b-setup" tags=["hide-input"]
import numpy as np
from IPython.display import display

from vklab.apps.llm.weights.gguf import read_gguf
from vklab.apps.quantization.block_picture import BlockPicture
from vklab.apps.quantization.blocks import quantize
from vklab_course import Run, attempt, banner, check, data, hint, picture, predict, run_kernel, show
from vklab_labs.lab_14 import blocks_pictures, formats_mixes, formats_models, formats_pictures
from vklab_labs.lab_14.blocks_q4k import draw_blocks, values_of
from vklab_labs.shared.listings import draw_listings

# %% id="l14b-banner"
banner()

# %% id="l14b-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l14b-1t"
# ## 1 · A block
# To **quantise** is to store a number as a small whole number, its **code**, together with a **scale** that many codes share. In **Q4_K**, a format of llama.cpp, a code has four bits: 0 to 15. A **block** has 256 weights of a row, in 144 bytes: 4.5 bits for each weight.
#
# The next cell quantises 256 weights of a small language model.

# %% id="l14b-1p"
MODEL = read_gguf(data("novels_llama.gguf"))
weights = MODEL.tensors["blk.1.ffn_up.weight"].data.view(np.float16).astype(np.float32)
block = BlockPicture("Q4_K", weights.reshape(768, 256)[5])
picture(block, alt="256 weights as dots, and the numbers that a block stores as short lines. The "
        "bytes: d 2, dmin 2, scales 12, qs 128.", caption="One block of Q4_K.")  # fmt: skip

# %% [markdown] id="l14b-1r"
# A block has eight **groups** of 32 weights. Each group has a scale `s` and a **minimum** `m`, which are whole numbers of six bits. Two float16 numbers, `d` and `dmin`, hold for the whole block. Element `i` of a group is
#
# `d * s * code[i] - dmin * m`
#
# The bytes of a block, in this order: `d` (2 bytes, lowest byte first), `dmin` (2), `scales` (12), `qs` (128, the codes).

# %% id="l14b-1d" tags=["hide-input"]
display(blocks_pictures.draw_scales(), blocks_pictures.draw_codes())

# %% [markdown] id="l14b-1e"
# So `s5` has its low four bits in byte 9 of `scales`, and its two high bits at the top of byte 1.
#
# **Equal bits on every GPU.** `d` has 11 significant bits, `s` six and a code four: 21 bits, and float32 holds 24. So `d * s * code` is exact in float32, and so is `dmin * m`. Only the subtraction rounds, once. A *fused multiply-add* leaves out the rounding of the product, and there is none. So every GPU gives the same bits, with or without it. In float16 three operations would round.
#
# ### Exercise 1 · One element
# The check compares all bits of your float32.

# %% id="l14b-e1" vklab={"role": "exercise", "id": "14b-1", "points": 5, "lines": 14}
def value_at(row, index):
    """Return one element of a row that is stored as blocks of Q4_K.

    row: uint8, 144 bytes for each block of 256 elements. index: the element of the row.
    TODO     d * s * code - dmin * m, as np.float32.
    Approach block, group and place from the index; then the six bits of s and m; then the code.
             Turn bytes into Python's int before you shift them. row[a:b].view("<f2") reads float16.
    Example  a row of one block, all bytes 0 but d = 1.0 (bytes 0 and 1 are 0 and 60), byte 4 = 3
             (s of group 0) and byte 16 = 5 (two codes): value_at(row, 0) -> 15.0
                                                                       (roughly 14 lines)
    """
    ### BEGIN SOLUTION
    block, inside = divmod(int(index), 256)
    group, place = divmod(inside, 32)
    here = row[144 * block : 144 * (block + 1)]
    d, dmin = here[:4].view("<f2").astype(np.float32)
    low, high = int(here[4 + group % 4]), int(here[8 + group % 4])
    if group < 4:
        s, m = low & 63, high & 63
    else:
        both = int(here[8 + group])
        s, m = both & 15 | low >> 6 << 4, both >> 4 | high >> 6 << 4
    code = int(here[16 + 32 * (group // 2) + place]) >> 4 * (group % 2) & 15
    return d * np.float32(s * code) - dmin * np.float32(m)
    ### END SOLUTION


# %% id="l14b-e1d" vklab={"role": "demo"}
with attempt("14b-1"):
    display(blocks_pictures.draw_read(value_at, (3, 40, 140, 172), "The bytes that your function "
                                      "reads for four elements: groups 0, 1, 4 and 5."))  # fmt: skip

# %% id="l14b-e1c" vklab={"role": "check", "id": "14b-1"}
check("14b-1", value_at)

# %% id="l14b-e1h"
# hint("14b-1")

# %% [markdown] id="l14b-2t"
# ## 2 · A row times a vector
# To generate one token, a model multiplies each of its matrices by one vector: `y = W x`. Every weight is used once, so the time is the time of loading the weights. That is why four bits are *fast*, and not only small.
#
# A GPU multiplies by the blocks as they are. Nobody first writes a float32 matrix. 32 invocations, the **lanes** of a small workgroup, share one row:

# %% id="l14b-2d" tags=["hide-input"]
blocks_pictures.draw_lanes()

# %% [markdown] id="l14b-2r"
# A lesson about Apple's GPUs prints such a kernel, shortened, and says that a *simdgroup*, Metal's name for a subgroup of 32, does the work. This is its structure in Slang, with the same faults. Find four before you read on.

# %% id="l14b-2s" tags=["hide-input"]
LESSON = """
uint row = group.y, column = group.x * 32 + lane;
float sum = 0.0;
for (uint i = 0; i < columns_of_w / 256; ++i)
    sum += dot_of_block(w, BLOCK_WORDS * i, x, lane);
if (column < rows_of_w) y[row * rows_of_w + column] = sum;
"""
draw_listings({"the lesson's kernel, in Slang": LESSON}, (), "A kernel with four faults.")

# %% [markdown] id="l14b-2q"
# Who adds up the sums of the lanes? Which `x` does block 1 meet? Where does the second row of `w` begin? What has a workgroup behind the last row already read, when it comes to its guard? And there is more: `y[row * rows_of_w + column]` is the place in the result of a *matrix* product. A vector has no second index.
#
# ### Exercise 2 · The kernel without the faults
# Workgroup `r` computes `y[r]`. `w` has the blocks as words of 32 bits, 36 for each block, lowest byte first: word 0 holds `d` and `dmin`, words 1 to 3 `scales`, the others `qs`. `scales_of` is given: exercise 1 in Slang.
#
# The host may start more workgroups than there are rows. The check counts accesses in the compiled kernel. One lane may load at most 64 elements for each block, from `w` and `x` together; exactly one lane stores each `y[r]`.
#
# **The score** counts all loads from both buffers, for each block of a row. 292 is the bound: each of 36 words and 256 values has to be loaded once. With seven loads for each weight, 1,792, nothing is earned.

# %% id="l14b-e2" vklab={"role": "exercise", "id": "14b-2", "points": 6, "lines": 27}
Q4K_MATVEC = """
StructuredBuffer<uint> w;    // rows x blocks x 36 words
StructuredBuffer<float> x;   // 256 values for each block of a row
RWStructuredBuffer<float> y;
struct Params { uint rows, blocks; };
[vk::push_constant] ConstantBuffer<Params> params;

groupshared uint head[4];
groupshared float sums[32];

// Returns d * s and dmin * m of a group, from the first four words of its block.
float2 scales_of(uint4 head, uint group) {
    uint shift = 8 * (group % 4);
    uint2 first = uint2(head.y, head.z) >> shift;
    uint2 last = uint2(head.w, head.w >> 4) >> shift & 15 | first >> 2 & 48;
    uint2 six = group < 4 ? first & 63 : last;
    return float2(f16tof32(head.x) * six.x, f16tof32(head.x >> 16) * six.y);
}

[shader("compute")]
[numthreads(32, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
    // TODO     y[r] = the sum over a row of (d * s * code - dmin * m) * x. r is group.x.
    // Approach each lane takes one word of qs in each block, and the eight values of x that its
    //          codes meet. head: four words for all lanes. sums: a tree, as in lab 07.
    // Example  rows = blocks = 1; w[0] = 15360 (d = 1), w[1] = 3, w[4] = 5; x[0] = 2: y[0] = 30
    //                                                                       (roughly 27 lines)
    // ### BEGIN SOLUTION
    uint row = group.x;
    if (row >= params.rows) return;
    float sum = 0.0;
    for (uint block = 0; block < params.blocks; ++block) {
        uint first = 36 * (row * params.blocks + block);
        if (lane < 4) head[lane] = w[first + lane];
        GroupMemoryBarrierWithGroupSync();
        uint4 words = uint4(head[0], head[1], head[2], head[3]);
        float2 low = scales_of(words, lane / 8 * 2);
        float2 high = scales_of(words, lane / 8 * 2 + 1);
        uint codes = w[first + 4 + lane], at = 256 * block + 64 * (lane / 8) + 4 * (lane % 8);
        for (uint i = 0; i < 4; ++i) {
            sum += (low.x * float(codes & 15) - low.y) * x[at + i];
            sum += (high.x * float(codes >> 4 & 15) - high.y) * x[at + 32 + i];
            codes >>= 8;
        }
        GroupMemoryBarrierWithGroupSync();
    }
    sums[lane] = sum;
    GroupMemoryBarrierWithGroupSync();
    for (uint width = 16; width > 0; width /= 2) {
        if (lane < width) sums[lane] += sums[lane + width];
        GroupMemoryBarrierWithGroupSync();
    }
    if (lane == 0) y[row] = sums[0];
    // ### END SOLUTION
}
"""

# %% id="l14b-e2d" vklab={"role": "demo"}
with attempt("14b-2"):
    down = MODEL.tensors["blk.0.ffn_down.weight"].data.view(np.float16).reshape(256, 768)
    blocks, x = quantize("Q4_K", down.astype(np.float32)), np.sin(np.arange(768, dtype=np.float32))
    buffers = {"w": blocks.reshape(-1).view(np.uint32), "x": x, "y": np.zeros(256, np.float32)}
    (done,) = run_kernel(Q4K_MATVEC, Run(buffers, (256,), {"rows": 256, "blocks": 3}))
    if done.status == "ran":
        exact = values_of(blocks).reshape(256, 768).astype(np.float64) @ x
        error = abs(done.buffers["y"] - exact).max() / abs(exact).max()
        print("a real matrix, 256 x 768:", "right" if error < 1e-4 else "wrong")
        shorter = abs(exact - down.astype(np.float64) @ x).max() / abs(exact).max()
        print(f"what four bits changed: {100 * shorter:.0f} % of the largest element")

# %% id="l14b-e2c" vklab={"role": "check", "id": "14b-2"}
check("14b-2", Q4K_MATVEC)

# %% id="l14b-e2h"
# hint("14b-2")

# %% [markdown] id="l14b-readt" vklab={"extra": true}
# To read (optional): vklab's own kernel, for all its formats. Lanes take steps of 32 elements, and the sum over lanes is by subgroup where a subgroup is wide enough.

# %% id="l14b-read" vklab={"extra": true} tags=["nbval-ignore-output"]
show("matvec_blocks")

# %% [markdown] id="l14b-3t"
# ## 3 · Does it fit?
# Two things fill the memory: the weights, and the **cache** of keys and values. For each earlier token, each layer keeps a key and a value. Several heads of queries may share one head of keys and values: the cache has `kv_heads` of them, not `heads`.
#
# To generate a token, a device reads each matrix once. Of the embedding table it reads one row. It also reads the cache of all earlier tokens. No token can take less time than these bytes divided by the **bandwidth**, the bytes that a device reads in a second.

# %% [markdown] id="l14b-e3t" vklab={"id": "14b-3"}
# ### Exercise 3 · Bytes, tokens, seconds
# Here the cache is allocated in **pages** of [[page]] tokens: a page is there as a whole, or not at all. So the bytes count whole pages. The time counts the tokens that are there.

# %% id="l14b-e3" vklab={"role": "exercise", "id": "14b-3", "points": 4, "lines": 12}
def fits(matrices, formats, kv, memory, bandwidth):
    """Return (bytes, tokens, least_seconds) of a model on a device.

    matrices: (rows, columns, format, rows_read) of each; a token reads rows_read of the rows.
    formats: {format: (weights of a block, bytes of a block)}. A row has whole blocks.
    kv: a dict with layers, heads, kv_heads, head_size, element_bytes, context.
    memory: bytes. bandwidth: bytes a second.
    TODO     bytes of the weights and of a cache for kv["context"] tokens; the longest context that
             fits into the memory, in whole pages, 0 if none does; the least time of a token, with
             kv["context"] tokens in the cache. ValueError if a row ends inside a block.
    Example  with one matrix (10, 256, "Q4_K", 10), {"Q4_K": (256, 144)}, a memory of 10000, a
             bandwidth of 1e6 and kv of 1 layer, 1 head (both kinds), 2 elements of 2 bytes,
             context 5: (1440 + [[page]] * 8, 8560 // ([[page]] * 8) * [[page]], 0.00148)
                                                                       (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    stored = read = 0
    for rows, columns, kind, rows_read in matrices:
        elements, size = formats[kind]
        if columns % elements:
            raise ValueError(f"a row of {columns} ends inside a block of {kind}")
        stored += rows * (columns // elements * size)
        read += rows_read * (columns // elements * size)
    token = 2 * kv["layers"] * kv["kv_heads"] * kv["head_size"] * kv["element_bytes"]
    page, context = [[page]] * token, kv["context"]
    tokens = max(memory - stored, 0) // page * [[page]]
    return stored + -(-context // [[page]]) * page, tokens, (read + context * token) / bandwidth
    ### END SOLUTION


# %% id="l14b-e3c" vklab={"role": "check", "id": "14b-3"}
check("14b-3", fits)

# %% id="l14b-e3h"
# hint("14b-3")

# %% [markdown] id="l14b-claimt"
# ### A claim
# The lesson says: *RTX 4090 (24 GB) cannot fit 70B even quantized.* The picture is by your function: Llama 2 70B, all matrices in one format, a cache of 4,096 tokens in float16.

# %% id="l14b-claim" vklab={"role": "demo"}
with attempt("14b-3"):
    rows, kv = [], formats_models.cache_of("70B", 4096)
    for kind in ("Q4_K", "Q3_K", "Q2_K", "IQ2_XXS"):
        elements, size = formats_models.BYTES[kind]
        matrices = formats_models.matrices_of("70B", kind)
        got = fits(matrices, formats_models.BYTES, kv, 24 * 10**9, 1.008e12)
        rows.append((f"{kind}, {8 * size / elements:.1f} bits", *map(int, got[:2])))
    display(formats_pictures.draw_fits(rows, 24 * 10**9, "Llama 2 70B with a cache of 4,096 "
                                       "tokens, and the longest context in 24 GB."))  # fmt: skip

# %% [markdown] id="l14b-claimr"
# So *even quantized* is false: below 2.7 bits it fits. (A real device also needs memory for activations and for its screen, which leaves Q2_K little. IQ2_XXS has room. What its text is worth is another question: section 4.)
#
# The lesson also prints the times of a token. Are they possible? The last rows are vklab's, measured on an H200 on 28 November 2026.

# %% id="l14b-times" vklab={"role": "demo"}
with attempt("14b-3"):
    for gpu, gb_s, model, kind, ms in (*formats_models.LESSON, *formats_models.RECORDED):
        kv = formats_models.cache_of(model, 0 if gpu == "H200" else 512)
        matrices = formats_models.matrices_of(model, kind)
        least = 1e3 * fits(matrices, formats_models.BYTES, kv, 0, 1e9 * gb_s)[2]
        print(f"{gpu:8} {model:>4} {kind:6} at least {least:6.2f} ms, said {ms:7.2f}: "
              f"{100 * least / ms:3.0f} % of the bandwidth")  # fmt: skip

# %% [markdown] id="l14b-timesr"
# All of them are possible: no share is above 100 %. That does not make them true. A share of 6 % asks for a reason.
#
# ## 4 · What does it cost?
# A language model gives every possible next token a probability. The **loss** of a token is minus the logarithm of the probability that the model gave to the token that really came, in *nats*. **Perplexity** is `exp(mean loss)`.
#
# A page of a lab tells a tolerance for Q4_K: *0.1 to 0.3 (perplexity metric)*. But a difference in units of perplexity says little. On our small model Q4_K adds about 0.3 to a perplexity of about 29; the same percentage of a perplexity of 6 would be 0.06. And a text of some thousand tokens gives a perplexity with an error of several units. So we ask in percent, and with an error.
#
# Both models judge the *same* tokens. A hard token is hard for both, so the difference of their losses varies far less than the losses do:
#
# `d = quantised - reference`, `g = exp(mean of d)`, `percent = 100 * (g - 1)`, `error = 100 * g * deviation of d / sqrt(n)`
#
# The deviation has `n - 1` in its divisor (`ddof=1`).

# %% [markdown] id="l14b-e4t" vklab={"id": "14b-4"}
# ### Exercise 4 · A verdict with an error
# The interval reaches [[width]] errors to both sides of `percent`. `"within"`: its upper end is at most what is allowed. `"above"`: its lower end is above that. Otherwise the text has `"too few tokens"`.

# %% id="l14b-e4" vklab={"role": "exercise", "id": "14b-4", "points": 4, "lines": 9}
def compare_perplexity(reference, quantised, allowed_percent):
    """Return (percent, error, verdict) of a change of perplexity.

    reference, quantised: losses of the same tokens in nats, float64, two or more.
    allowed_percent: the largest change that is allowed.
    TODO     percent, its error, and "within", "above" or "too few tokens".
    Example  compare_perplexity(np.array([1.0, 2.0]), np.array([1.02, 2.0]), 9.0)
             -> (1.005..., 1.010..., "within")                         (roughly 9 lines)
    """
    ### BEGIN SOLUTION
    apart = quantised - reference
    ratio = np.exp(apart.mean())
    percent = 100 * (ratio - 1)
    error = 100 * ratio * apart.std(ddof=1) / np.sqrt(len(apart))
    if percent + [[width]] * error <= allowed_percent:
        return percent, error, "within"
    verdict = "above" if percent - [[width]] * error > allowed_percent else "too few tokens"
    return percent, error, verdict
    ### END SOLUTION


# %% id="l14b-e4d" vklab={"role": "demo", "id": "14b-4"}
with attempt("14b-4"):
    reference = formats_pictures.losses_of("F16")
    kinds = ("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0")
    rows = {k: compare_perplexity(reference, formats_pictures.losses_of(k), 1.0) for k in kinds}
    display(formats_pictures.draw_changes(rows, [[width]], 1.0, "Your verdicts on the small model, "
                                          f"all matrices in one format, {len(reference):,} tokens."))

# %% id="l14b-e4c" vklab={"role": "check", "id": "14b-4"}
check("14b-4", compare_perplexity)

# %% id="l14b-e4h"
# hint("14b-4")

# %% [markdown] id="l14b-5t"
# ## 5 · Not all matrices are equal
# No rule says that all matrices have the same format. A **mix** gives more bits to those that need them. What is a need? The **divergence** of Kullback and Leibler says how far the probabilities of the next token move, as a mean over tokens, here in millionths of a nat. It needs no right answers, and has less noise than perplexity. If one matrix at a time is shortened, the divergences nearly add up.
#
# Our model has 29 matrices. The embedding table, `token_embd`, is the largest: one weight in seven. It gives the logits, too. Two mixes have equal bytes; all other matrices are in Q4_K:
#
# * **A**: `token_embd` in Q6_K;
# * **B**: `attn_v` of all four layers and `ffn_down` of two layers in Q6_K. These are the matrices that llama.cpp's mixes favour.
#
# Which has the smaller divergence, A or B?

# %% id="l14b-p1"
predict("14b-p1", better="...")

# %% [markdown] id="l14b-5r"
# ### What would break this?
# A colleague has a budget and one idea: *the largest matrix saves most, so it gets the fewest bits*. `token_embd` is stored in Q4_K, and the bytes go to the other matrices in the best way. All tests pass: the file is small enough, the text reads well. This is the record, judged on **another text** than the one that the divergences were measured on:

# %% id="l14b-mixes"
RECORD = formats_pictures.recorded()
for title, apart in RECORD["judged"].items():
    print(f"{title:28} {RECORD['bytes'][title]:>9,} bytes, divergence {apart:8,.0f}")

# %% [markdown] id="l14b-mixesr"
# The sum of the table's single divergences predicts these numbers, though another text was measured. What finds the bug: the divergence of each matrix, and not the bytes.

# %% [markdown] id="l14b-e5t" vklab={"id": "14b-5"}
# ### Exercise 5 · The best mix (scored, extra)
# Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra. Choose a format for each matrix, so that the sum of the divergences is least and the bytes stay within a budget. The check draws matrices with six formats. Two points are for a better answer than one format for all: full at the best of two greedy rules, with exchanges of two matrices after them. Three more are for the rest of the way to the optimum, which is exact.

# %% id="l14b-e5" vklab={"role": "exercise", "id": "14b-5", "points": 5, "lines": 12}
def choose_formats(matrices, budget):
    """Return the format of each matrix: the least sum of divergence within a budget of bytes.

    matrices: dicts {format: (bytes, divergence)}, whole numbers. budget: bytes.
    TODO     a list of formats, one for each matrix. ValueError if none fits.
    Example  choose_formats([{"a": (1, 9), "b": (2, 1)}, {"a": (1, 5), "b": (2, 4)}], 3)
             -> ["b", "a"]                                             (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    front = [(0, 0, [])]  # mixes of the first matrices: bytes rise, divergence falls
    for options in matrices:
        longer = [(size + more, apart + far, names + [name]) for size, apart, names in front
                  for name, (more, far) in options.items() if size + more <= budget]  # fmt: skip
        front, least = [], float("inf")
        for mix in sorted(longer):
            if mix[1] < least:
                front.append(mix)
                least = mix[1]
    if not front:
        raise ValueError("no mix fits into the budget")
    return front[-1][2]
    ### END SOLUTION


# %% id="l14b-e5d" vklab={"role": "demo", "id": "14b-5"}
with attempt("14b-5"):
    names, matrices = formats_pictures.table()
    mine = choose_formats(matrices, RECORD["bytes"]["Q4_K_M"])
    display(formats_pictures.draw_mix(names, matrices, mine, "Your mix of the small model, with at "
                                      "most the bytes of llama.cpp's Q4_K_M."))  # fmt: skip

# %% id="l14b-e5c" vklab={"role": "check", "id": "14b-5"}
check("14b-5", choose_formats)

# %% id="l14b-e5h" vklab={"id": "14b-5"}
# hint("14b-5")

# %% [markdown] id="l14b-e5x" vklab={"id": "14b-5"}
# On the real model the greedy rule, gain per byte first, is almost as good as the optimum; on the drawn matrices it is not. To judge a mix yourself: `vklab quantize data/novels_llama.gguf --type Q4_K_M -o q4.gguf`, then `vklab perplexity q4.gguf data/held_out.txt --against data/novels_llama.gguf --chunks 20`.

# %% [markdown] id="l14b-recap"
# ## Recap
# | word | what it is | mistake to avoid |
# |---|---|---|
# | block, group | 256 weights in 144 bytes; 32 that share a scale and a minimum | to count four bits: it is 4.5 |
# | code | a whole number of four bits | to forget that two groups share a byte |
# | lane | an invocation that has a part of a row | to load before the guard |
# | page of a cache | tokens that are allocated together | to count all heads |
# | bandwidth | bytes that a device reads in a second | to read the whole embedding table |
# | perplexity | `exp` of the mean loss | a tolerance in units of perplexity; unpaired errors |
# | divergence | how far probabilities move | to shorten the largest matrix because it is large |
#
# **Next**: a later lab runs a language model, token by token.
#
# **References**
# * ggml, [ggml-common.h](https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h): the structures of blocks; llama.cpp, [llama-quant.cpp](https://github.com/ggml-org/llama.cpp/blob/master/src/llama-quant.cpp): its mixes.
# * Jelinek et al., *Perplexity, a measure of the difficulty of speech recognition tasks*, 1977. Kullback and Leibler, *On information and sufficiency*, 1951.
# * `docs/language_models.md` of vklab, with the recorded times and perplexities.
