# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Core ML without a Mac"
#     minutes: 65
#     before: ["09"]
#     know: ["recursion", "`np.sort`"]
# ---

# %% [markdown] id="l15-title"
# # Lab 15 · Core ML without a Mac
# **What is in a package, what it costs, and what goes wrong on the way** · 65 minutes, 5 exercises, two of them extra
#
# *Lab 07*, the page that this course grew from, prints one line on Linux: *CoreML requires macOS. Skipping conversion*. Four cells do nothing then. So a wrong precision, a wrong target or a refused layer is found later, by somebody who has a Mac. Nearly all of it can be found here.
#
# **Afterwards you can**
# * convert a model for Core ML on Linux, and execute the package without a Mac;
# * count the operators of a package, also those inside of other operators;
# * say which classes can change by float16, and which cannot;
# * tell kind, target, precision and weights of a package from what is inside;
# * find an epsilon that float16 has changed;
# * judge claims about Core ML's units, and say which command would test them.
#
# **Before this lab**: lab 09 (a graph, its operators and weights). You need recursion and `np.sort`. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/apps/compare/coreml/units.py`; it runs those beside it.

# %% id="l15-setup" tags=["hide-input"]
import json

import numpy as np
from IPython.display import display

from vklab_course import attempt, banner, check, data, hint, predict, run_limited, show
from vklab_labs.lab_15 import conversions, packages, shapes
from vklab_labs.lab_15 import coreml_pictures as figures

PACKAGES = data("packages")
RECORD = json.loads(data("recorded/coreml_linux.json").read_text("utf-8"))
random = np.random.default_rng(0)

# %% id="l15-banner"
banner()

# %% id="l15-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l15-1t"
# ## 1 · From a module to a package
# **Core ML** is the part of macOS and iOS that runs models. It reads two kinds of files:
#
# * an **ML Program**: a folder `.mlpackage` with a manifest, a model file and a weight file. The model is a program of operators. Their language is called **MIL**, *Model Intermediate Language*.
# * a **NeuralNetwork**: a single file `.mlmodel`, the older kind. The model is a list of layers.
#
# **coremltools**, Apple's package for Python, converts PyTorch modules. It has two *frontends*: one reads TorchScript, a recording of one run; the other reads an exported program, as `torch.export` makes it.

# %% id="l15-1d" tags=["hide-input"]
figures.draw_way()

# %% [markdown] id="l15-livet"
# The next cell converts MiniClassifier by both frontends, here. vklab reads the two packages without coremltools, and executes their operators on Vulkan. The names `text_classifier`, `resnet18` and `encoder` work, too. Is coremltools missing (it has wheels for macOS and Linux x86-64 only)? Then the cell says so; the recorded table below does not need it.

# %% id="l15-live" tags=["nbval-ignore-output"]
ran = run_limited(conversions.both_frontends, "mini_classifier", seconds=180)
print(*(ran.value or [ran.message]), sep="\n")

# %% id="l15-table" tags=["hide-input"]
print("coremltools", RECORD["versions"]["coremltools"], "on", RECORD["device"], RECORD["date"])
print(figures.table_lines(RECORD["table"]))
print("both frontends give equal bits:", RECORD["equal_bits"])

# %% [markdown] id="l15-tabler"
# Read the table by columns.
#
# * **KB**: float16 halves float32; `int8` and `palette` shorten the weights further. `palette` replaces each weight by a code of 4 bits into a table of 16 values.
# * **error**: the largest error of a score, with vklab's arithmetic, against PyTorch in float64. ResNet-18 as a palette has an error as large as its scores. (Its weights are drawn at random; those of a trained network can do better or worse.)
# * **spec**: the version of the specification. It rises with the oldest system that you ask for.
# * **operators**: without constants, and in brackets with them.
#
# ### Exercise 1 · Count operators
# The page counts the operators of a package, too, and its largest number is `const`. A **constant** is an operator in MIL: each weight, each stride, each axis is one. It computes nothing.

# %% [markdown] id="l15-e1t" vklab={"id": "15-1"}
# A program, as plain data, has functions by name. Each is a **block**: `{"operations": [...]}`. An operation is `{"type": "relu"}`. Some have blocks of their own, in a list `"blocks"`: `cond` has one block for each of two cases, `while_loop` one for its condition and one for its body. These may have such operations again.
#
# Count what is in all blocks of all functions. Leave out `const`, and [[left_out]].

# %% id="l15-e1" vklab={"role": "exercise", "id": "15-1", "points": 4, "lines": 10}
LEFT_OUT = ("const", "[[left_out]]")


def count_operators(program):
    """Return {type: count} of the operators of a program.

    program: {"functions": {name: {"operations": [{"type": text, "blocks": [block, ...]}, ...]}}};
    most operations have no "blocks".
    TODO     all functions, and all blocks inside of operations; nothing that is in LEFT_OUT.
    Approach a function that counts one block, and calls itself for each block inside.
    Example  count_operators({"functions": {"main": {"operations": [
                 {"type": "const"}, {"type": "relu"},
                 {"type": "cond", "blocks": [{"operations": [{"type": "relu"}]}]}]}}})
             -> {"relu": 2, "cond": 1}                               (roughly 10 lines)
    """
    ### BEGIN SOLUTION
    counts = {}

    def add(block):
        for operation in block["operations"]:
            kind = operation["type"]
            if kind not in LEFT_OUT:
                counts[kind] = counts.get(kind, 0) + 1
            for inner in operation.get("blocks", ()):
                add(inner)

    for block in program["functions"].values():
        add(block)
    return counts
    ### END SOLUTION


# %% id="l15-e1d" vklab={"role": "demo"}
with attempt("15-1"):
    names = ("mini_classifier", "text_classifier")
    mine = {name: count_operators(packages.as_data(PACKAGES / f"{name}.mlpackage"))
            for name in names}
    display(figures.draw_operators(mine, "Operators of the two packages in data/packages, as "
                                   "your function counts them. Above: the sum."))

# %% id="l15-e1c" vklab={"role": "check", "id": "15-1"}
check("15-1", count_operators)

# %% id="l15-e1h"
# hint("15-1")

# %% [markdown] id="l15-2t" vklab={"extra": true}
# ## 2 · Open sizes (optional)
# No later lab needs this section. An input of **open size** may have another height or length in each run. coremltools knows two ways: `RangeDim`, a smallest and a largest size, and `EnumeratedShapes`, a list of shapes. The page's MiniClassifier takes neither. This is what coremltools alone says:

# %% id="l15-2d" vklab={"extra": true}
for kind, words in RECORD["flexible"]["refused"].items():
    print(f"{kind}:\n   {words}")

# %% [markdown] id="l15-2r" vklab={"extra": true}
# The reason is **adaptive average pooling**: whatever the size, the result has 4 x 4 *bins*, each the mean of some pixels. Bins depend on the size, and coremltools wants to know them when it converts. But a mean is a product with a matrix: a row for each bin, and 1 / (number of elements) where the bin has an element.

# %% [markdown] id="l15-e2t" vklab={"id": "15-2"}
# ### Exercise 2 · Pooling as a product (extra)
# PyTorch's rule: of `size` elements, bin *i* has those from `floor(i * size / bins)` to `ceil((i + 1) * size / bins) - 1`. So neighbours may share an element.

# %% id="l15-e2" vklab={"role": "exercise", "id": "15-2", "points": 4, "lines": 5}
def pooling_matrix(size, bins):
    """Return float32 [bins, size]: row i averages the elements of bin i.

    size, bins: ints, 1 or more; there may be more bins than elements.
    TODO     matrix @ x is the adaptive average of x.
    Example  pooling_matrix(3, 2) -> [[0.5, 0.5, 0], [0, 0.5, 0.5]]   (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    matrix = np.zeros((bins, size), np.float32)
    for row in range(bins):
        first, end = row * size // bins, -(-(row + 1) * size // bins)
        matrix[row, first:end] = 1 / (end - first)
    return matrix
    ### END SOLUTION


# %% id="l15-e2d" vklab={"role": "demo", "id": "15-2"}
with attempt("15-2"):
    display(figures.draw_pooling(pooling_matrix(10, 4), "Your matrix for 10 elements and 4 bins. "
                                 "A number is the weight of an element in a bin."))

# %% id="l15-e2c" vklab={"role": "check", "id": "15-2"}
check("15-2", pooling_matrix)

# %% id="l15-e2h" vklab={"id": "15-2"}
# hint("15-2")

# %% [markdown] id="l15-flext" vklab={"extra": true}
# vklab's converter writes these matrices as MIL operators, which compute the bins from the size in each run (`adaptive_average` in `converter.py`). Then both ways convert. The record has the largest error of a score at each size, and what happens outside of the allowed shapes. To try it: `vklab coreml convert mini_classifier -o open.mlpackage --shape 1,3,16..64,16..64`.

# %% id="l15-flex" vklab={"extra": true}
for kind, errors in RECORD["flexible"]["errors"].items():
    print(kind, {size: round(error, 4) for size, error in errors.items()})
    print("  ", *RECORD["flexible"]["outside"][kind], sep="\n   ")

# %% [markdown] id="l15-3t"
# ## 3 · float16, and the class
# An ML Program in **float16** stores weights and values in 16 bits: 11 binary digits, numbers up to 65,504. A **cast** changes the dtype of a value. The caller's image is float32, so the program begins with a cast.

# %% id="l15-3d" tags=["hide-input"]
figures.draw_casts()

# %% [markdown] id="l15-3r"
# In the table, the row *float16, iOS16* has one cast less, and its result is float16. This holds for all three models.
#
# What does float16 do to an *answer*? The page calls a difference of 1e-2 a pass. That number says nothing about the class: where two scores are 0.003 apart, an error of 0.006 may swap them; where they are 3 apart, it cannot. The **margin** of a row is its highest score minus its second highest.
#
# ### Exercise 3 · Which classes can flip?
# Each score may be off by at most `error`, in either direction. For which rows may another class come out on top?

# %% id="l15-e3" vklab={"role": "exercise", "id": "15-3", "points": 4, "lines": 2}
def can_flip(scores, error):
    """Return bool [rows]: may the class of a row change, if each score is off by `error` at most?

    scores: float32 [rows, classes], two classes or more. error: a float above 0.
    TODO     a row whose two highest scores can just meet is safe. Equal ones are not.
    Example  can_flip(np.array([[3, 1, 0], [3, 2.5, 0]], np.float32), 1.0) -> [False, True]
             (roughly 2 lines)
    """
    ### BEGIN SOLUTION
    ordered = np.sort(scores, axis=1)
    return ordered[:, -1] - ordered[:, -2] < 2 * error
    ### END SOLUTION


# %% [markdown] id="l15-e3t"
# The text classifier names the novel, of six, that 32 words come from. `truth` has its scores on 2,900 texts that it was not trained on, by NumPy in float64. In our record, the package in float16 is off by at most 0.006 on all of them. Your function says which texts that can change. The next cell executes the package on *these texts only*: for the others there is nothing to find.

# %% id="l15-e3d" vklab={"role": "demo"}
CLASSIFIER, ERROR = data("text_classifier.npz"), RECORD["held_out"]["error"]
texts = packages.held_out_texts(data("novels.txt.xz"), CLASSIFIER)
truth = packages.text_scores(texts, CLASSIFIER)
with attempt("15-3", seconds=120):
    flags = can_flip(truth.astype(np.float32), ERROR)
    found = packages.run_package(PACKAGES / "text_classifier.mlpackage", texts[flags])
    flipped = found.argmax(axis=1) != truth[flags].argmax(axis=1)
    print(f"{len(texts)} texts: {flags.sum()} can flip, {flipped.sum()} do")
    display(figures.draw_margins(truth, ERROR, "Margins of all texts; each bar counts texts. "
                                 "Red: the class can flip."))

# %% id="l15-e3c" vklab={"role": "check", "id": "15-3"}
check("15-3", can_flip)

# %% id="l15-e3h"
# hint("15-3")

# %% [markdown] id="l15-mixt"
# The page asks whether *tokens* flip in this task. A token is a word of the input here; what may flip is the class of a text. And none does: a bound tells what is possible, not what happens.
#
# ### Mixed precision
# `compute_precision` also takes a function: it sees each operator, and decides whether float16 may be used. So one can keep *some* operators in float32. The picture has five such mixes of the text classifier, on 300 texts.

# %% id="l15-mix" tags=["hide-input"]
figures.draw_mixes(RECORD["mixed"], "The text classifier with some operators in float32. "
                   "Each error is the largest on 300 texts.")  # fmt: skip

# %% [markdown] id="l15-mixr"
# The largest thing is not the one to widen. The table of word vectors in float32 costs nearly all bytes that float16 has saved, and the error stays the same to the last digit: the next operator rounds its vectors to float16 anyway. The three `linear` operators in float32 cost 6 % of the bytes, and halve the error. (In the code: `FP16ComputePrecision(op_selector=...)`, in `labs/lib/lab_15/conversions.py`.)
#
# ## 4 · Units, and three packages without a name
# A Mac has up to three **units** that can run operators: the CPU, the GPU, and the **Neural Engine** (ANE), a processor for networks. Whoever loads a package names a *choice* of units:

# %% id="l15-4d" tags=["hide-input"]
figures.draw_units()

# %% [markdown] id="l15-4r"
# Core ML takes its own decision for each operator. So *loaded with ALL* does not mean *ran on the Neural Engine*, and a speed-up of ALL is that of Core ML's choice. `vklab coreml benchmark --plan` asks Core ML for its plan: for each operator the unit that it prefers, and those that could run it. And a time of the four choices is worth something only if they take turns:

# %% id="l15-show" tags=["nbval-ignore-output"]
show("vklab.apps.compare.coreml.units.benchmark", at="for _ in range(runs)", lines=6)

# %% [markdown] id="l15-4s"
# Which choice a package can use well depends on what is in it. Somebody sends you three files, and no word about them. No Mac is needed to find out:
#
# * **Specification**: its version tells the oldest system. Version 4 is iOS 13, 5 is 14, 6 is 15, 7 is 16, 8 is 17, 9 is 18. (Each has its macOS: iOS 16 came with macOS 13.) coremltools writes it, whichever operators the program has; if an operator needs more, it raises the version.
# * **constexpr**: an operator whose name begins so makes weights when the model is loaded. `constexpr_affine_dequantize` multiplies whole numbers of 8 bits by a scale; `constexpr_lut_to_dense` looks codes up in a table. A matrix of less than 2,048 weights stays as it is.
# * **Results and casts**: a program in float16 returns float16 from target iOS 16 on; before, its last cast leads back. The dtype of an *input* only tells what the caller hands over, and casts to int16 belong to indices, not to the arithmetic.
# * **Layers** have weights, and no dtype of their arithmetic: Core ML chooses, by the unit.
#
# ### Exercise 4 · What is in three unnamed packages?
# For each letter give four texts: the kind (`"mlProgram"` or `"neuralNetwork"`), the target (`"iOS13"` to `"iOS18"`), the precision (`"float16"`, `"float32"` or `"Core ML's choice"`), the weights (`"as computed"`, `"int8"` or `"palette"`).

# %% id="l15-e4t" vklab={"role": "demo", "id": "15-4"}
print(packages.clue_lines(packages.set_facts("[[set]]")))

# %% id="l15-e4" vklab={"role": "exercise", "id": "15-4", "points": 3, "lines": 3}
contents = ...  # {"P": (kind, target, precision, weights), "Q": ..., "R": ...}
### BEGIN SOLUTION
contents = [[right]]
### END SOLUTION

# %% id="l15-e4c" vklab={"role": "check", "id": "15-4"}
check("15-4", contents)

# %% id="l15-e4h"
# hint("15-4")

# %% [markdown] id="l15-5t" vklab={"extra": true}
# ## 5 · Few allowed lengths (optional)
# No later lab needs this section. An Apple engineer writes in Apple's forum ([thread 724930](https://developer.apple.com/forums/thread/724930)): with a range of sizes, the Neural Engine is supported for the default size only; of enumerated shapes, each one should be able to run there. So a text is **padded**: filled up to the next length of a list. The list should be short, and the padding, too.

# %% [markdown] id="l15-e5t" vklab={"id": "15-5"}
# ### Exercise 5 · Choose the lengths (extra)
# Choose at most `most` lengths, so that few elements are added in all. The score counts them. Equal steps, halves and quantiles earn nothing. Taking the best next length again and again earns some points, and so does moving one length at a time. The best list earns all. (The same family of searches as the last exercises of labs 14b, 16 and 17: one of them is enough.)

# %% id="l15-e5" vklab={"role": "exercise", "id": "15-5", "points": 5, "lines": 11}
def choose_shapes(sizes, most):
    """Return a sorted list of at most `most` lengths, with little padding.

    sizes: the lengths of the inputs. Each input is padded to the smallest length that holds it.
    TODO     the longest input must fit; add few elements. All cases together have 10 seconds.
    Start    [max(sizes)] is valid. Only lengths of inputs are worth trying.
    Example  choose_shapes([1, 2, 2, 9, 10], 2) -> [2, 10]            (roughly 11 lines)
    """
    ### BEGIN SOLUTION
    lengths = {*sizes}
    held = {top: sum(size <= top for size in sizes) for top in (0, *lengths)}
    best = {0: (0, ())}  # by longest length: elements of all inputs up to it, padded; lengths
    for _ in range(most):
        longer = {
            top: min((padded + top * (held[top] - held[low]), (*below, top))
                     for low, (padded, below) in best.items() if low < top)
            for top in lengths
        }
        best = {0: best[0]} | longer
    return list(best[max(sizes)][1])
    ### END SOLUTION


# %% id="l15-e5d" vklab={"role": "demo", "id": "15-5"}
with attempt("15-5"):
    sentences = shapes.sentence_lengths(data("novels.txt.xz"), 120)
    mine = choose_shapes(sentences, 4)
    others = {rule: added for rule, added in shapes.naturals(sentences, 4).items()
              if rule in ("equal_steps", "halves", "quantiles")}
    print("yours", mine, "adds", shapes.padding(sentences, mine), "to", sum(sentences), "words")
    print("others add", others)
    display(figures.draw_padding(sentences, mine, "A line for each of 120 sentences of the "
                                 "novels, in words. Orange: padding to your lengths."))

# %% id="l15-e5c" vklab={"role": "check", "id": "15-5"}
check("15-5", choose_shapes)

# %% id="l15-e5h" vklab={"id": "15-5"}
# hint("15-5")

# %% [markdown] id="l15-6t"
# ## 6 · What would break this?
# **LayerNorm** subtracts the mean of a row, and divides by `sqrt(variance + epsilon)`. The **epsilon** is there so that nothing is divided by 0. A trained network may have 1e-5; BERT has 1e-12. In a package in float16, the epsilon is a float16 constant.
#
# What is stored for an epsilon of 1e-5, of 1e-8, of 1e-12: `"nearly the same"`, `"about 6e-8"` or `"0"`?

# %% id="l15-p1"
predict("15-p1", from_1e_5=..., from_1e_8=..., from_1e_12=...)

# %% [markdown] id="l15-6r"
# A colleague has converted such a model. The test compares results on random rows, and passes. Then a customer has rows in which all numbers are nearly alike. Look for the reason: `layer_norm` computes in float64, and only the epsilon differs.

# %% id="l15-bug"
def layer_norm(x, epsilon):
    """Return the rows of x with mean 0 and variance 1."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)


for words, spread in (("ordinary rows", 1), ("flat rows", 1e-3), ("constant rows", 0)):
    x = 5 + spread * random.standard_normal((32, 64))
    differs = np.abs(layer_norm(x, 1e-12) - layer_norm(x, 5.96e-8)).max()
    print(f"{words}: {differs:.5f}")

# %% id="l15-bugr" tags=["hide-input"]
print("recorded, packages executed by vklab: largest error on ordinary and on flat rows")
for name, row in RECORD["epsilons"].items():
    print(f"epsilon {name:15} stored {row['stored']:.3g}: {row['ordinary']:.4f} {row['flat']:.4f}")

# %% [markdown] id="l15-bugt"
# The variance of an ordinary row is 1, and 6e-8 beside it is nothing. The variance of a flat row is 1e-6: there it is 6 %, and a result that should be 3 is off by 0.1. A constant row gives 0 either way. So a test with random rows or with constant rows passes, and no NaN warns. *Test with rows as flat as those of your users.* The repair: keep `layer_norm` in float32 (the last recorded row), or train with 1e-5.
#
# ### Claims, judged
# | sentence | from | verdict |
# |---|---|---|
# | *CoreML requires macOS. Skipping conversion* | the page, 1.2 | false: only Core ML's own prediction does |
# | *CoreML ANE requires static input shapes - use ct.RangeDim* | the page, takeaways | contradicts itself: RangeDim makes shapes open. And this model would not convert |
# | the Neural Engine is reached *indirectly through Metal shaders* | the page on runtimes | false: shaders run on a GPU. In Core ML's list of devices, the [GPU](https://developer.apple.com/documentation/coreml/mlgpucomputedevice) has a Metal device, the [Neural Engine](https://developer.apple.com/documentation/coreml/mlneuralenginecomputedevice) none |
# | CPU_ONLY: *Deterministic*; CPU_AND_GPU: *good for dynamic shapes*; ANE, *best for: fixed-shape inference, transformers* | the page, 1.1 | open: the page has no measurement, and we have no Mac |
#
# For open claims there are commands, and empty rows. Whoever has a Mac can fill them:
#
# | question | command | result |
# |---|---|---|
# | the time of each choice; the unit of each operator | `vklab coreml benchmark data/packages/mini_classifier.mlpackage --plan` | |
# | do repeated runs give the same bits, CPU_ONLY and the others? | `vklab parity vklab.apps.compare.models:text_classifier --backends coreml` | |
# | ResNet-18: from which batch on is the GPU faster? | `vklab coreml convert resnet18 -o batches.mlpackage --shape 1..32,3,64,64`, then `vklab parity vklab.apps.compare.models:resnet18 --package batches.mlpackage --backends coreml --batches 1,8,32` | |
#
# On Linux, `benchmark` and `parity` say that Core ML is a part of macOS. Nothing is simulated.

# %% [markdown] id="l15-recap"
# ## Recap
# | word | what it is | mistake to avoid |
# |---|---|---|
# | package | manifest, program, weights | to believe that only a Mac can read one |
# | `const` | a weight or an attribute, as an operator | to count it as work |
# | specification | the oldest system that runs the package | to guess it from the newest operator |
# | cast | where the arithmetic changes its dtype | to read the precision from the input |
# | margin | highest score minus second highest | to compare it with the error, and not with twice the error |
# | compute units | what is permitted | to take it for what was used |
# | epsilon | a number that float16 may not have | to test it with random rows only |
#
# **Next**: lab 16 does the same for ONNX Runtime: which part of it ran a model, and where.
#
# **References**
# * [coremltools: flexible input shapes](https://apple.github.io/coremltools/docs-guides/source/flexible-inputs.html); [Core ML: compute units](https://developer.apple.com/documentation/coreml/mlcomputeunits).
# * `docs/backends.md` of vklab has all commands of this lab, point by point.
