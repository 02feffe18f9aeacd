# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Eight bits"
#     minutes: 80
#     before: ["09"]
#     know: ["NumPy's dtypes", "`@` for matrix products"]
# ---

# %% [markdown] id="l14-title"
# # Lab 14 · Eight bits
# **How a model's numbers become codes of eight bits or fewer, and what that costs** · 80 minutes, 4 exercises
#
# A small MobileNetV2 reads 359 handwritten digits. With its numbers in 8 bits, one answer changes. With 4 bits, 45 answers change, and no error is raised. On some processors, two of its layers pass every test in 8 bits, while a third one gets every fifth sum wrong. In this lab you find out why, before a customer does.
#
# **Afterwards you can**
# * choose the step and the zero point of codes of any width;
# * round numbers to floats of eight bits, FP8, by the rules of the format;
# * compute a layer exactly from codes, with their zero points;
# * find codes that overflow on some processors, and say why tests miss them;
# * choose a kind of quantisation for a network.
#
# **Before this lab**: lab 09. You need NumPy's dtypes, and `@` for matrix products. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/apps/quantization/codes.py`, `vklab/apps/compare/onnxruntime/models.py`.

# %% id="l14-setup" tags=["hide-input"]
import numpy as np
import onnx
from IPython.display import display

from vklab.apps.quantization import codes, quantize
from vklab_course import attempt, banner, check, data, hint, predict, show, swap
from vklab_labs.lab_14 import codes_networks as networks
from vklab_labs.lab_14 import codes_pictures as figures
from vklab_labs.lab_14 import int8_pairs as pairs
from vklab_labs.lab_14 import small_floats as floats

METHODS = ("min-max", "percentile", "entropy")

# %% id="l14-banner"
banner()

# %% id="l14-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l14-1t"
# ## 1 · A step and a zero point
# A float32 number has 4 bytes. **Quantisation** stores a *code* in its place: a whole number of few bits. Neighbouring codes stand for numbers at the same distance, the **step** (also called *scale*). The code that stands for 0 is the **zero point**.

# %% id="l14-1d" tags=["hide-input"]
figures.draw_line()

# %% [markdown] id="l14-1r"
# * To store a number: divide by the step, round, add the zero point. Then *clip*: a code below the first one becomes the first, a code above the last one the last.
# * To get a number back: subtract the zero point, multiply by the step.
#
# So the number is `(code - zero) * step`. Rounding costs at most half a step. Clipping can cost any amount.
#
# The number 0 gets a code of its own, without an error. Zeros are frequent: a Relu makes them, and a convolution pads its borders with them.
#
# ### Exercise 1 · The step and the code of 0
# Codes of `bits` bits are `2 ** bits` whole numbers. Unsigned ones begin at 0, signed ones at `-2 ** (bits - 1)`. The first code stands for the lower end of the range (but for rounding), the last code for the upper end.

# %% id="l14-e1" vklab={"role": "exercise", "id": "14-1", "points": 4, "lines": 5}
def scale_and_zero(low, high, bits, signed):
    """Return (step, zero): the step, a float, and the code of 0, an int.

    low, high: ends of the range, low <= high. bits: from 2 to 8. signed: True or False.
    TODO     widen the range until it holds 0. The 2 ** bits codes cover it from end to end. Round
             the code of 0 to the nearest whole number, ties to the even one (round does this).
             A range that is 0 alone has the step 1.0 and the code 0.
    Example  scale_and_zero(-0.5, 3, 3, False) -> (0.5, 1), as in the picture;
             scale_and_zero(2, 6, 8, False) -> (0.0235..., 0)          (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    low, high = min(low, 0), max(high, 0)
    if low == high:
        return 1.0, 0
    step = (high - low) / (2**bits - 1)
    return step, round(-low / step) - (2 ** (bits - 1) if signed else 0)
    ### END SOLUTION


# %% id="l14-e1d" vklab={"role": "demo"}
with attempt("14-1"):
    counted = networks.histograms()[networks.SHOWN]
    step, zero = scale_and_zero(float(counted.low), float(counted.high), 4, False)
    display(figures.draw_histogram(counted, step, zero, 4, "The input of one layer, on 256 images. "
                                   "Heights are square roots of counts. Below: your 16 codes."))

# %% id="l14-e1c" vklab={"role": "check", "id": "14-1"}
check("14-1", scale_and_zero)

# %% id="l14-e1h"
# hint("14-1")

# %% [markdown] id="l14-methodst"
# ### Which range, and how many bits?
# The ranges of weights are known. Those of **activations**, the values between the layers, depend on the input. **Calibration** runs the model on samples and counts their numbers. `vklab quantize M.onnx --int8 --calibrate IMAGES.npy -o Q.onnx` has three methods to take a range from the counts:
#
# * `min-max` covers every number;
# * `percentile` leaves out the outermost 0.01 %;
# * `entropy` tries many cuts, and keeps the one that changes the distribution least.
#
# The next cell does this for the digits network of lab 00, and your function chooses the step and the zero point of every activation. *SQNR* is the power of a signal over the power of its error; 10 decibels (dB) more are ten times more power.

# %% id="l14-methods" tags=["nbval-ignore-output"]
arrays = np.load(data("digits.npz"))
samples = {"image": arrays["images"][~arrays["held_out"]][:256]}
runtimes = codes.of_range


def of_range(low, high, dtype="uint8"):
    """Your function in the place of the runtime's."""
    if dtype != "uint8":
        return runtimes(low, high, dtype)
    step, zero = scale_and_zero(low, high, 8, False)
    return codes.Scale(dtype, np.asarray(step, np.float32), np.asarray(zero, np.uint8))


with attempt("14-1"), swap("vklab.apps.quantization.codes.of_range", of_range):
    for method in METHODS:
        made = quantize.quantize(onnx.load(data("digits_cnn.onnx")),
                                 quantize.Choice(method=method), samples)  # fmt: skip
        print(f"{method:10} {made};", "SQNR of the layers in dB:",
              *(f"{layer.sqnr_db:.0f}" for layer in made.layers))  # fmt: skip

# %% [markdown] id="l14-widthst"
# Now the larger network, MobileNetV2 at half width. A program in NumPy computes it; before each layer your function turns the numbers into codes and back, at 8, 6, 5 and 4 bits. How many of the 359 classes change?

# %% id="l14-widths" tags=["nbval-ignore-output"]
with attempt("14-1"):
    exact, rows = networks.classes(), {}
    for bits in (8, 6, 5, 4):
        rows[f"{bits} bits"] = [int((networks.classes(scale_and_zero, bits, method)
                                     != exact).sum()) for method in METHODS]  # fmt: skip
        print(f"{bits} bits:", rows[f"{bits} bits"])
    display(figures.draw_rows(rows, METHODS, 60, "Changed classes of 359, by width and by method "
                              "of choosing ranges. Weights have a range for each filter."))

# %% [markdown] id="l14-widthsr"
# The width matters, and the method hardly. So this lab goes on with the codes themselves. (The worst of the three methods at 4 bits is `entropy`; at 8 bits it changes no class at all.) [Quantisation](../docs/quantization.md) tells how the methods work.
#
# ## 2 · Floats of eight bits
# Equal steps are bad for numbers of very different sizes. A float stores a power of two, the **exponent**, and the digits after it, the **mantissa**. *FP8* are floats of 8 bits.

# %% id="l14-2d" tags=["hide-input"]
display(figures.draw_formats(), figures.draw_spacing())

# %% [markdown] id="l14-2r" vklab={"id": "14-2"}
# The value of a code with exponent `E` and mantissa `M`, of `m` bits, is
#
# * `(1 + M / 2**m) * 2**(E - bias)` if `E > 0`: a *normal* number;
# * `(M / 2**m) * 2**(1 - bias)` if `E = 0`: a **subnormal** number, at the same distances as the smallest normal ones.
#
# The *bias* moves the range. In this exercise it is `2**(exponent_bits - 1) - 1 + [[shift]]`. (Standards have `+ 0`; the FP8 of AMD's MI300 has `+ 1`.)
#
# ### Exercise 2 · Round to a small float
# To keep it simple, every code here is a finite number: the largest e4m3 has all bits set. (Standard e4m3 keeps this one code of each sign for NaN, "not a number".) What is too large gets the largest code. `float16` on the way is no help: a number that is rounded twice can end at the wrong neighbour.

# %% id="l14-e2" vklab={"role": "exercise", "id": "14-2", "points": 5, "lines": 5}
def to_small_float(x, exponent_bits, mantissa_bits):
    """Return the codes of x, uint8 [n]: sign, exponent, mantissa in the lowest bits.

    x: float32 [n], without NaN. 1 + exponent_bits + mantissa_bits is 8 at most.
    TODO     each code is that of the nearest number of the format; in the middle of two, that of
             the neighbour whose last bit is 0. Numbers beyond the largest one, and infinity, get
             its code. Negative numbers, and -0.0, have the sign bit set (np.signbit).
    Approach np.frexp(size) gives (f, p) with size = f * 2**p and 0.5 <= f < 1, so that size lies
             between 2**(p - 1) and 2**p. np.rint rounds, ties to even.
    Example  2.0**-9 * [1, 3] are subnormals of (4, 3) with the usual bias, 7: codes 1 and 3
                                                                       (roughly 5 lines)
    """
    bias = 2 ** (exponent_bits - 1) - 1 + [[shift]]
    ### BEGIN SOLUTION
    size, codes_of_size = np.abs(x).astype(np.float64), 2 ** (exponent_bits + mantissa_bits)
    power = np.frexp(np.maximum(size, 2.0 ** (1 - bias)))[1] - 1
    steps = np.rint(size / 2.0 ** (power - mantissa_bits))  # in steps of this power of two
    found = np.minimum((power + bias - 1) * 2**mantissa_bits + steps, codes_of_size - 1)
    return (found + np.signbit(x) * codes_of_size).astype(np.uint8)
    ### END SOLUTION


# %% id="l14-e2d" vklab={"role": "demo", "id": "14-2"}
with attempt("14-2"):
    print("error of a trained network's weights in dB")
    for name, weights in floats.weights().items():
        row = {"int8 by filter": floats.int8_rounded(weights, True),
               "int8, one step": floats.int8_rounded(weights, False)}  # fmt: skip
        for words, bits in (("e4m3", (4, 3)), ("e5m2", (5, 2))):
            stored = to_small_float(weights.ravel(), *bits).reshape(weights.shape)
            row[words] = floats.numbers_of(stored, *bits, [[shift]])
        largest = np.abs(weights).max()
        stored = to_small_float((weights / largest).ravel(), 4, 3).reshape(weights.shape)
        row["e4m3, scaled"] = largest * floats.numbers_of(stored, 4, 3, [[shift]])
        print(f"{name:8}", *(f"{words}: {floats.decibels(weights, rounded):.0f}   "
                             for words, rounded in row.items()))  # fmt: skip

# %% id="l14-e2c" vklab={"role": "check", "id": "14-2"}
check("14-2", to_small_float)

# %% id="l14-e2h"
# hint("14-2")

# %% [markdown] id="l14-e2r"
# More dB are better. On these weights int8 wins or draws, although e4m3 has as many bits: the largest weight of a filter is only a few times as large as a typical one, so equal steps serve both. The error of a float hardly depends on a scale, and hardly differs from layer to layer: it is relative to each number.
#
# ## 3 · A layer of codes
# A layer multiplies `A`, the activations, and `B`, the weights. Their codes `a` and `b` stand for `(a - za) * step_a` and `(b - zb) * step_b`. The steps do not depend on the place inside a sum, so they come before it. What is left is a sum of whole numbers:

# %% id="l14-3d" tags=["hide-input"]
display(figures.draw_sums(), figures.draw_nodes())

# %% [markdown] id="l14-3r"
# In an ONNX file, codes begin at a node `QuantizeLinear` and end at `DequantizeLinear`; the product between them is float32. A pass of the runtime *fuses* these nodes: it puts one integer product in their place. In vklab the file that you made has 32 nodes, and runs as 7 dispatches.
#
# An integer product is exact, if nothing overflows. uint8 ends at 255. A product of two codes fits into 16 bits, a product of two differences may not, and a sum needs more. float32 holds every whole number up to 2<sup>24</sup> only.
#
# ### Exercise 3 · An exact layer
# Each column of `b` has its own zero point and its own step. The result is stored as codes again, unsigned ones of 8 bits.

# %% id="l14-e3" vklab={"role": "exercise", "id": "14-3", "points": 5, "lines": 4}
def int8_layer(a, b, a_zero, b_zeros, steps, out):
    """Return (sums, codes): int32 [m, n] and uint8 [m, n].

    a: uint8 [m, k]. b: int8 [k, n]. a_zero: int. b_zeros: int8 [n].
    steps: (the step of a, the steps of the columns of b, float64 [n]). out: (step, zero).
    TODO     sums: the exact sums of (a - a_zero) * (b - b_zeros) over k; all fit into int32.
             codes: a sum times both steps, divided by the output's step, rounded (ties to even);
             then plus the output's zero, and clipped to 0 ... 255.
    Example  int8_layer(np.array([[10, 20]], np.uint8), np.array([[1], [-2]], np.int8), 5,
             np.array([1], np.int8), (0.5, np.array([0.5])), (1.0, 128))
             -> ([[-45]], [[117]])                                     (roughly 4 lines)
    """
    ### BEGIN SOLUTION
    wide_a, wide_b = a.astype(np.int32) - a_zero, b.astype(np.int32) - b_zeros
    sums = wide_a @ wide_b
    found = np.rint(sums * (steps[0] * steps[1]) / out[0]) + out[1]
    return sums, np.clip(found, 0, 255).astype(np.uint8)
    ### END SOLUTION


# %% id="l14-e3d" vklab={"role": "demo"}
with attempt("14-3"):
    layer = pairs.trained_layer("layers.13.layers.4")
    sums, found = int8_layer(*layer[:6])
    step, zero = layer.out
    wanted = np.clip(np.rint(layer.exact / step) + zero, 0, 255)
    print(f"{(found == wanted).mean():.0%} of {found.size} codes are those of the float32 product")
    display(figures.draw_differences(found[:8, :20], wanted[:8, :20], "Your codes of a layer of "
                                     "the digits network, depth 288: 8 rows and 20 columns."))

# %% id="l14-e3c" vklab={"role": "check", "id": "14-3"}
check("14-3", int8_layer)

# %% id="l14-e3h"
# hint("14-3")

# %% [markdown] id="l14-e3r"
# Your sums are exact, and yet some codes are neighbours of the wanted ones. The codes of the inputs were rounded before; the sum of these errors shows here.
#
# ## 4 · What would break this?
# Processors have instructions for sums of 8-bit products. On x86 *without* VNNI, an extension for int8 dot products, the instruction multiplies a uint8 by an int8, and adds two neighbouring products **in int16**, before the sum goes on in int32. A result that int16 cannot hold *saturates*: it becomes the nearest number that int16 has.

# %% id="l14-4d" tags=["hide-input"]
figures.draw_pairs()

# %% [markdown] id="l14-4p"
# int16 reaches from -32,768 to 32,767. Can the sum of two products overflow?
#
# * `full_range`: activations 0 to 255, weights -128 to 127;
# * `seven_bit_weights`: activations 0 to 255, weights -64 to 63;
# * `seven_bit_activations`: activations 0 to 127, weights -128 to 127.
#
# Write True or False for each.

# %% id="l14-p1"
predict("14-p1", full_range=..., seven_bit_weights=..., seven_bit_activations=...)

# %% [markdown] id="l14-4r"
# The function `pair_sums` imitates this instruction. Its tests pass: the next cell runs it on two layers of MobileNetV2, with held-out digits. Each result is compared with your sums of exercise 3. **Find the line of `pair_sums` that can go wrong, and say which codes would show it**, before you run the cell after the next.

# %% id="l14-tests"
display(show("vklab_labs.lab_14.int8_pairs.pair_sums"))
with attempt("14-3"):
    for name in ("layers.13.layers.4", "layers.15.layers.4"):
        a, b = pairs.trained_layer(name)[:2]
        exact = int8_layer(a, b, 0, np.zeros(b.shape[1], np.int8), (1.0, np.ones(b.shape[1])),
                           (1.0, 0))[0]  # fmt: skip
        print(f"{name}: {(pairs.pair_sums(a, b) != exact).sum()} of {exact.size} sums are wrong,",
              f"{(a == 0).mean():.0%} of the activations have code 0")  # fmt: skip

# %% id="l14-found"
for words, made in (
    ("layers.16.layers.0", pairs.trained_layer("layers.16.layers.0")[:2]),
    ("the same, weights of 7 bits", pairs.trained_layer("layers.16.layers.0", weight_bits=7)[:2]),
    ("random codes, whole ranges", pairs.full_range_codes()),
    ("the same, weights of 7 bits", pairs.full_range_codes(weight_bits=7)),
):
    depth, share = made[0].shape[1], pairs.share_wrong(*made)
    print(f"{words:28} depth {depth:3}: {share:4.0%} of the sums are wrong")

# %% [markdown] id="l14-foundr" vklab={"says": ["21%", "99%", " 0%"]}
# The line with `.clip(-32768, 32767)` is the planted bug; in the real instruction it is part of the design. The first two layers stand behind a Relu6: 0 has code 0, and many codes are 0 or small. The third one stands behind a layer without Relu6, so its input has numbers on both sides of 0. There 0 has code 127, and the codes are large. So one layer in five sums is wrong, and no test of the other layers tells.
#
# ONNX Runtime's documentation names the cure: `reduce_range`, weights of 7 bits. vklab asks for it where it compares itself with ONNX Runtime, if the processor may saturate:

# %% id="l14-saturates"
show("vklab.apps.compare.onnxruntime.models.saturates")

# %% [markdown] id="l14-5t"
# ## 5 · Which quantisation?
# There are four kinds. *Calibration data* are samples like the inputs to come.
#
# | kind | weights | activations | multiplies |
# |---|---|---|---|
# | `"static"` | int8 | codes; ranges are fixed before delivery | integers |
# | `"dynamic"` (ExecuTorch: *8-bit dynamic quantization*) | int8 | codes; each run measures its ranges | integers |
# | `"weight-only"` | 8 or 4 bits | stay float | floats; weights are widened first |
# | `"FP8"` | e4m3 or e5m2 | e4m3 or e5m2 | small floats |
#
# What you measured on weights: int8 by filter 37 to 48 dB, int8 with one step 31 to 43, e4m3 31 to 32, with or without a scale, e5m2 26.

# %% [markdown] id="l14-e4t" vklab={"id": "14-4"}
# ### Exercise 4 · Four networks
# Choose a kind for each. The check asks for all rows at once; grading counts each row.
#
# | row | network |
# |---|---|
# | A | [[a]]. |
# | B | [[b]]. |
# | C | [[c]]. |
# | D | [[d]]. |

# %% id="l14-e4" vklab={"role": "exercise", "id": "14-4", "points": 3, "lines": 1}
kinds = ...  # {"A": "static", "B": ...}
### BEGIN SOLUTION
kinds = [[right]]
### END SOLUTION

# %% id="l14-e4c" vklab={"role": "check", "id": "14-4"}
check("14-4", kinds)

# %% id="l14-e4h" vklab={"id": "14-4"}
# hint("14-4")

# %% [markdown] id="l14-recap"
# ## Recap
# | word | is | mistake to avoid |
# |---|---|---|
# | step, zero point | number = (code - zero point) x step | a range without 0; `2**bits` steps |
# | calibration | samples tell the ranges of activations | to compare methods where the width decides |
# | e4m3, e5m2 | floats of 8 bits; the error is relative | to round twice; to lose the subnormals |
# | integer product | exact, in int32 | to subtract in uint8; to forget `k za zb` |
# | saturation | a sum stops at the end of its type | to test on small codes only |
#
# **Next**: lab 14b stores weights in blocks of four bits, and counts what fits.
#
# **References**
# * Jacob et al., [Quantization and Training of Neural Networks](https://arxiv.org/abs/1712.05877), 2018: steps, zero points, the four sums.
# * Micikevicius et al., [FP8 Formats for Deep Learning](https://arxiv.org/abs/2209.05433), 2022: e4m3 and e5m2.
# * ONNX: [QuantizeLinear](https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html). ONNX Runtime: [Quantize ONNX models](https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html), on `reduce_range`.
