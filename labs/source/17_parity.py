# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Parity"
#     minutes: 80
#     before: ["00", "09"]
#     know: ["NumPy arrays", "`x.view(dtype)`", "dictionaries", "recursion"]
# ---

# %% [markdown] id="l17-title"
# # Lab 17 · Parity
# **When do two backends agree, and if they do not, which layer is wrong?** · 80 minutes, 5 exercises, the last one extra
#
# One model runs on several backends: runtimes, devices, dtypes. Their numbers differ a little, always. *Parity* means that the differences are as small as rounding makes them. In this lab you judge arrays, judge the limits of a page, and find the wrong layer of a network.
#
# **Afterwards you can**
# * count the steps between two floats;
# * write a verdict that NaN, empty arrays and unequal shapes cannot fool;
# * derive a tolerance from a dtype and a number of terms;
# * name the layer to blame, and say why bisection over a graph fails;
# * read a parity report: what passed, what failed, and what nobody has judged.
#
# **Before this lab**: labs 00 and 09. You need NumPy arrays, `x.view(dtype)`, dictionaries, and for the extra exercise recursion. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/apps/compare/judging/errors.py`, `vklab/runtime/tolerances.py`, `vklab/apps/compare/layerwise/layers.py`.

# %% id="l17-setup" tags=["hide-input"]
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from IPython.display import display

from vklab_course import attempt, banner, check, hint, predict, show
from vklab_course.swap import swap
from vklab_labs.lab_17 import blind, plans, reports
from vklab_labs.lab_17 import encoder as encoders
from vklab_labs.lab_17 import parity_pictures as figures
from vklab_labs.lab_17.verdicts import judging

# %% id="l17-banner"
banner()

# %% id="l17-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l17-1t"
# ## 1 · A check that a blind backend passes
# The page on backends from which this course grew (here: *the page*) ends in a report. It runs a small network on one random image, compares the ten logits with PyTorch's, and prints PASS if no difference reaches `1e-2`. The network has PyTorch's default weights. It was never trained.
#
# Imagine a backend that **ignores its input**. It always returns the same ten numbers: the mean logits over some random images. On which share of other random images does it pass? Choose `none`, `about a tenth`, `about half` or `more than nine tenths`, once for default weights, and once for weights that were trained on digits.

# %% id="l17-p1"
predict("17-p1", default_weights=..., trained_weights=...)

# %% id="l17-1b"
for words, trained in (("default weights", False), ("trained weights", True)):
    passed = np.mean(blind.differences(trained) < 1e-2)
    print(f"{words}: more than nine tenths pass: {passed > 0.9}, none passes: {passed == 0}")

# %% [markdown] id="l17-1r"
# With four seeds of default weights we counted 93 to 96 % of 800 images. So a limit means nothing without the numbers that it is compared with. What is a small difference?
#
# ### Steps between floats
# Between two floats there are finitely many others. A **ULP** (*unit in the last place*) is the step from one float to the next. Its length depends on where you are: it doubles at each power of two.

# %% id="l17-1d" tags=["hide-input"]
figures.draw_ladder()

# %% [markdown] id="l17-1e"
# The bits of a float32 are a sign, 8 bits of exponent and 23 bits of fraction. Read as a whole number, the bits of a *positive* float grow by 1 at each step, through powers of two and from the largest number to infinity. For negative floats they grow away from zero.
#
# ### Exercise 1 · Steps
# Count the steps between the elements of two arrays. 0 and -0 are the same number.

# %% id="l17-e1" vklab={"role": "exercise", "id": "17-1", "points": 5, "lines": 6}
def ulp_distance(a, b):
    """Return how many steps lie between the elements of two float32 arrays, as int64.

    TODO     infinity is one step above the largest number. NaN and NaN: 0. NaN and a number: -1.
    Approach a number of steps from zero for each float, negative below zero; then subtract.
    Example  with tiny = np.float32(2.0**-149):
             ulp_distance(np.array([-tiny, 1], np.float32), np.array([tiny, 1], np.float32))
             -> array([2, 0])                                          (roughly 6 lines)
    """
    ### BEGIN SOLUTION
    def rung(x):
        bits = x.view(np.int32).astype(np.int64)
        return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)

    steps = np.abs(rung(a) - rung(b))
    lost = np.isnan(a).astype(int) + np.isnan(b)
    return np.where(lost == 0, steps, np.where(lost == 2, 0, -1))
    ### END SOLUTION


# %% id="l17-e1d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("17-1"):
    x = np.linspace(-5, 5, 1001).astype(np.float32)
    truth = np.exp(x.astype(np.float64)).astype(np.float32)
    print("exp of NumPy in float32, most steps:", ulp_distance(np.exp(x), truth).max())
    rows, _ = encoders.shares(encoders.encoder, "sound")
    right = encoders.truth_of(encoders.encoder)["logits"].astype(np.float32)
    model = encoders.encoder.part(0, 11)
    logits = encoders.BACKENDS["vklab"](model, {"x": encoders.encoder.x})["logits"]
    steps = ulp_distance(logits, right).ravel()
    print("logits of vklab: median", int(np.median(steps)), "steps, most", steps.max())
    far = np.argmax(steps)
    print("most at", right.ravel()[far], "while the largest logit is", np.abs(right).max())

# %% id="l17-e1c" vklab={"role": "check", "id": "17-1"}
check("17-1", ulp_distance)

# %% id="l17-e1h"
# hint("17-1")

# %% [markdown] id="l17-2t"
# ## 2 · A verdict
# Steps suit one function, such as exp. They do not suit a sum: where large terms cancel, the result is small and the error is not, so the most steps stand at a logit near zero. So a tolerance has two parts, and a verdict compares each element with what is allowed *there*:
#
# `|actual - expected|  <=  atol * (largest finite |expected|) + rtol * |expected|`
#
# Here `atol` is a share of the array's largest element, and no absolute number as in `np.allclose`. A difference of `0.01` is nothing beside logits of 1,000, and everything beside logits of 0.01.
#
# A verdict can be wrong without a sound. Each of these lines has been used as one. `bad` is an array of NaN, or it has another shape:

# %% id="l17-2d"
good, bad = np.arange(3.0), np.full(3, np.nan)
print("not (d.max() > tol):  ", not np.abs(bad - good).max() > 1e-2)
print("not (d > tol).any():  ", not (np.abs(bad - good) > 1e-2).any())
one = np.array([0.0, np.nan, 2.0])
print("nanmax(d) < tol:      ", np.nanmax(np.abs(one - good)) < 1e-2)
flat, column = np.ones(50), np.ones((50, 1))
print("(50, 1) against (50,):", np.abs(column - flat).max() < 1e-2)
large = np.array([1000.0, 0.001])
turned = np.array([1000.0, -0.001])
cosine = large @ turned / np.linalg.norm(large) / np.linalg.norm(turned)
print("cosine > 0.999:       ", cosine > 0.999)

# %% [markdown] id="l17-2e"
# ### Exercise 2 · Verdict
# Return the largest error as a **share** of what is allowed. Up to 1 passes, exactly 1 too. This function builds a piece: vklab's own is `errors.share`, the judge of every parity report. A correct answer is kept, and a later lab can take it with `use("17-2")`.

# %% id="l17-e2" vklab={"role": "exercise", "id": "17-2", "points": 5, "lines": 12}
def verdict(actual, expected, rtol, atol):
    """Return (passed, share) of two float arrays; compute in float64.

    TODO     error 0 is a share of 0, even if nothing is allowed; another error is then infinite.
             NaN with NaN and equal infinities are a share of 0. Every other pair with a NaN or an
             infinity makes the share infinite, and so do unequal shapes. Equal shapes without
             elements: (True, 0.0).
    Example  verdict(np.array([1.0, 8.5]), np.array([1.0, 8.0]), 0.0, 0.125) -> (True, 0.5)
             verdict(np.array([np.nan]), np.array([1.0]), 0.1, 0.1) -> (False, inf)
                                                                       (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        return False, np.inf
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    finite = np.isfinite(actual) & np.isfinite(expected)
    if not (same | finite).all():
        return False, np.inf
    error, size = np.abs(actual - expected)[finite], np.abs(expected[finite])
    allowed = atol * size.max(initial=0.0) + rtol * size
    with np.errstate(divide="ignore"):
        shares = np.divide(error, allowed, out=np.zeros_like(error), where=error > 0)
    share = float(shares.max(initial=0.0))
    return share <= 1, share
    ### END SOLUTION


# %% id="l17-e2d" vklab={"role": "demo"}
with attempt("17-2"):
    for words, actual, expected in (
        ("all NaN", bad, good), ("one NaN", one, good), ("another shape", column, flat),
        ("wrong sign", turned, large), ("no elements", flat[:0], flat[:0]),
        ("one rounding", np.float32(good / 3) * 3, good),
    ):  # fmt: skip
        print(f"{words:14}", verdict(actual, expected, 1e-4, 0.0)[0])

# %% id="l17-e2c" vklab={"role": "check", "id": "17-2"}
check("17-2", verdict)

# %% id="l17-e2h"
# hint("17-2")

# %% [markdown] id="l17-3t" vklab={"id": "17-3"}
# ## 3 · Where do limits come from?
# The page has **three** limits for each backend: one in the section on the backend, one in a table (part 4), one in its report (4.1). All are absolute, and a check passes *below* its limit.
#
# | backend, float32 | its own section | table, part 4 | report 4.1 |
# |---|---|---|---|
# | CPU | 2.3: 1e-4 | 1e-5 | 1e-2 |
# | CUDA | 2.5: 1e-3 | 1e-4 | 1e-2 |
# | DirectML | 2.4: 1e-2 | 1e-3 | 1e-2 |
#
# Say one run has a largest error of [[error]] on each backend. Which checks pass?
#
# vklab derives a layer's tolerance instead. **Epsilon** is the distance from 1 to the next float: 2^-23 in float32, 2^-10 in float16. A layer rounds its factors, its sum and its result. The errors of a sum of `n` terms are random in sign, so they grow like `sqrt(n)`. Here a layer may add up at least [[roundings]] roundings:
#
# * `atol` = epsilon x max([[roundings]], sqrt(terms));
# * `rtol` = 2 epsilon; in float16, a function such as exp adds 23 epsilon.
#
# (vklab has 8 roundings. Vulkan allows exp in float16 an error of 1 + 2 |x| ULP, and 11 is the largest `x` whose exp float16 holds: 23.)
#
# ### Exercise 3 · Which checks pass?
# For the backends, write three letters, P (passes) or F (fails), in the order of the table. For three layers, write `(rtol, atol)`: a convolution of 9 terms and a product of 1,024 terms in float32, and a softmax of 64 terms in float16. Numbers may be off by 1 %.

# %% id="l17-e3" vklab={"role": "exercise", "id": "17-3", "points": 4, "lines": 1}
checks = ...  # {"CPU": "PFP", "CUDA": ..., "DirectML": ..., "convolution": (rtol, atol),
#               "product": ..., "softmax": ...}
### BEGIN SOLUTION
checks = [[right]]
### END SOLUTION

# %% id="l17-e3c" vklab={"role": "check", "id": "17-3"}
check("17-3", checks)

# %% id="l17-e3h"
# hint("17-3")

# %% [markdown] id="l17-3r"
# One run passes and fails, and the strictest word about a backend depends on the page that you open. In vklab every check reads one table, by dtype. The table of part 4 also has a row for a quantised language model, `0.1-0.3 (perplexity metric)`: that is a difference of another quantity, and no tolerance of outputs.

# %% id="l17-3s"
show("vklab.runtime.tolerances.layer")

# %% [markdown] id="l17-4t"
# ## 4 · Which layer is wrong?
# The outputs failed. To find the layer, compare all values of the network, not the outputs only. There are two errors of a layer:

# %% id="l17-4d" tags=["hide-input"]
figures.draw_local()

# %% [markdown] id="l17-4r"
# One run with all values as outputs gives every **cumulative** error. A **local** error needs a run of the layer alone, fed the truth: the values that float64 computes. A backend that cannot run parts has no local errors.
#
# Cumulative errors mislead. Rounding alone can grow past a tolerance. A later layer, such as a softmax with one large score, can make an error vanish. And a graph is no chain:

# %% id="l17-4g" tags=["hide-input"]
figures.draw_chain()

# %% [markdown] id="l17-4e" vklab={"id": "17-4"}
# Bisection asks layer 4, finds it right, and looks behind it. So it names `scores`. We planted wrong weights into an encoder of 91 layers: bisection named the right layer in 7 of 13 runs.
#
# ### Exercise 4 · To blame
# Shares of a tolerance are given, in the order of execution. Blame the first layer with a *local* share above [[limit]]. If there is none, and the outputs failed, blame the first with a *cumulative* share above [[limit]]. If the outputs passed, cumulative shares prove nothing.

# %% id="l17-e4" vklab={"role": "exercise", "id": "17-4", "points": 4, "lines": 5}
def to_blame(layers, passed):
    """Return the name of the layer to blame, or None.

    layers: dictionaries {"name", "local", "cumulative"}; a share that was not measured is None.
    passed: whether the outputs passed.
    TODO     local shares of all layers come before any cumulative share.
    Example  to_blame([{"name": "a", "local": 0.2, "cumulative": 9.0},
                       {"name": "b", "local": 7.0, "cumulative": None}], False) -> "b"
                                                                       (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    for kind in ("local",) if passed else ("local", "cumulative"):
        for layer in layers:
            if layer[kind] is not None and layer[kind] > [[limit]]:
                return layer["name"]
    return None
    ### END SOLUTION


# %% [markdown] id="l17-e4t"
# The next cell runs a small encoder of twelve layers: on vklab and on `onnx.reference`, and on vklab with four planted defects, such as a weight that is read as if it were transposed.

# %% id="l17-e4d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
columns = {"vklab": encoders.shares(encoders.encoder, "sound"),
           "onnx.reference": encoders.shares(encoders.encoder, "sound",
                                             encoders.BACKENDS["onnx.reference"])}  # fmt: skip
for defect in list(encoders.DEFECTS)[1:]:
    columns[defect] = encoders.shares(encoders.encoder, defect)
with attempt("17-4"):
    blamed = {name: to_blame(*each) for name, each in columns.items()}
    display(figures.draw_blame({name: rows for name, (rows, _) in columns.items()}, blamed,
                               "Layers of an encoder on two sound and four spoilt backends."))
    for name, (rows, passed) in columns.items():
        if not passed:
            print(f"{name}: you blame {blamed[name]}, bisection {encoders.bisected(rows)}")

# %% id="l17-e4c" vklab={"role": "check", "id": "17-4"}
check("17-4", to_blame)

# %% id="l17-e4h"
# hint("17-4")

# %% [markdown] id="l17-5t" vklab={"id": "17-5"}
# ## 5 · The cheapest search (extra)
# Some backends take minutes to prepare a part of a model. Then you test few parts, and choose them well. (This search is of one family with those of labs 14b, 15 and 16. If you do one of them, do 14b-5.)
#
# One of 12 layers is wrong, and `chances[n]` of 1,000 is the chance that it is layer `n`. A test feeds the truth to layers `i` to `j`, both included, and tells whether the wrong one is among them. It costs `setup` plus the costs of these layers.
#
# ### Exercise 5 · A plan of tests (extra)
# A plan is a list of rows `(i, j, fails, passes)`. `fails` and `passes` say what follows if the test fails or passes: `("test", row)`, or `("layer", n)` if the wrong layer is known. Row 0 is the first test.
#
# Two points are for being better than bisection: full at the best of five simple rules, such as *the likeliest layer first*. Three are for being better than these rules: full at the least possible cost.

# %% id="l17-e5" vklab={"role": "exercise", "id": "17-5", "points": 5, "lines": 22}
def search_plan(chances, costs, setup):
    """Return the rows of a plan with the least expected cost.

    TODO     whichever layer is wrong, even one of chance 0, the plan names it.
    Approach for each set of suspects, the best test is the one with the least sum of: its cost
             times the chance of the set, and the costs of the best plans for its two halves.
    Example  search_plan([500, 500], [1, 9], 2) -> [(0, 0, ("layer", 0), ("layer", 1))]
                                                                       (roughly 22 lines)
    """
    ### BEGIN SOLUTION
    from functools import cache

    everyone = range(len(chances))

    @cache
    def best(group):
        if len(group) == 1:
            return 0, None
        found = None
        weight = sum(chances[n] for n in group)
        for i in everyone:
            price = setup
            for j in range(i, len(chances)):
                price += costs[j]
                inside = tuple(n for n in group if i <= n <= j)
                if 0 < len(inside) < len(group):
                    outside = tuple(n for n in group if not i <= n <= j)
                    cost = price * weight + best(inside)[0] + best(outside)[0]
                    if found is None or cost < found[0]:
                        found = cost, (i, j, inside, outside)
        return found

    rows = []

    def add(group):
        if len(group) == 1:
            return "layer", group[0]
        number = len(rows)
        rows.append(None)
        i, j, inside, outside = best(group)[1]
        rows[number] = i, j, add(inside), add(outside)
        return "test", number

    add(tuple(everyone))
    return rows
    ### END SOLUTION


# %% id="l17-e5d" vklab={"role": "demo", "id": "17-5"} tags=["nbval-ignore-output"]
chances = [90, 70, 70, 110, 60, 100, 130, 80, 70, 90, 60, 70]
costs = [3, 6, 6, 1, 6, 5, 2, 5, 6, 1, 3, 4]
with attempt("17-5"):
    plan = search_plan(chances, costs, 2)
    display(figures.draw_tree(plan, chances, costs, 2, "Your plan. Blue: layers tested, and the "
                              "cost. Left below: the test fails. Green: layer and chance."))
    row, spent = ("test", 0), 0  # the plan drives parts of the encoder
    while row[0] == "test":
        i, j, fails, passes = plan[row[1]]
        passed = encoders.part_passes(encoders.encoder, i, j, "wv turned")
        spent += plans.cost_of(plan[row[1]], costs, 2)
        print(f"layers {i} to {j}:", "pass" if passed else "fail")
        row = passes if passed else fails
    print("the wrong layer:", encoders.NAMES[row[1]], "- cost", spent)

# %% id="l17-e5c" vklab={"role": "check", "id": "17-5"}
check("17-5", search_plan)

# %% id="l17-e5h" vklab={"id": "17-5"}
# hint("17-5")

# %% [markdown] id="l17-6t"
# ## 6 · A report, and what it does not say
# ### What would break this?
# This is the heart of the page's report, shortened. `run` returns a PyTorch tensor; one backend is a GPU, and its tensor lies in the GPU's memory. The GPU's outputs are right.
#
# ```python
# failures = 0
# for name, run in backends.items():
#     try:
#         difference = np.abs(run(image).numpy() - reference).max()
#         passed = difference < 1e-2
#         failures += not passed
#         print(name, "PASS" if passed else "FAIL")
#     except Exception as error:
#         print(name, "SKIP", str(error)[:80])
# ```
#
# What does it print in the GPU's row (`PASS`, `FAIL` or `SKIP`), and what is `failures` at the end, if all other rows pass?

# %% id="l17-p2"
predict("17-p2", gpu_row=..., failures=...)

# %% id="l17-6d" tags=["nbval-ignore-output"]
try:
    import torch

    torch.zeros(3, device="meta").numpy()  # a tensor that is not in the host's memory
except ImportError:
    print("torch is not installed. Recorded: TypeError: can't convert meta device type tensor")
except TypeError as error:
    print("TypeError:", error)

# %% [markdown] id="l17-6r"
# The repair is `.cpu().numpy()`. But the worse mistake is the `except`: a bug of the report, a crash and an absent backend all look alike, and a report without failures is green. A report has to **count what it has not judged**:

# %% id="l17-6c"
print(reports.page_table([("CPU", True), ("GPU", None), ("DirectML", None)]))

# %% [markdown] id="l17-6l"
# ### Your verdict as the judge
# The next cell makes a parity report of MiniClassifier on this machine, with layers. Each backend runs in a process of its own, so that a crash is its row. Your `verdict` stands in the place of `errors.share`: it judges every output and every layer. Without an answer, there is a note.

# %% id="l17-6s" tags=["nbval-ignore-output"]
with attempt("17-2", seconds=240):
    with swap("vklab.apps.compare.judging.errors.share", judging(verdict)):
        made = reports.made_here()
    for each in made.rows:
        share = max(each.verdict.shares.values()) if each.verdict else float("nan")
        print(f"{each.row.backend:24} passed: {each.row.passed}, share {share:.3f}")
    with TemporaryDirectory() as folder:
        print("the page has", reports.page_of(made, Path(folder) / "report.html"), "bytes")

# %% [markdown] id="l17-6m"
# The command makes the same report of all backends, with a heat map of layers:
#
# `vklab parity data/mini_classifier.onnx --layers --html report.html`

# %% [markdown] id="l17-recap"
# ## Recap
# | question | answer |
# |---|---|
# | How far are two floats from each other? | in steps, by their bits as whole numbers |
# | Is an array right? | largest error as a share of `atol * largest + rtol * element` |
# | Where does a tolerance come from? | epsilon of the dtype, roundings, the root of the terms |
# | Which layer is wrong? | the first whose local error is too large |
# | What does a green report prove? | nothing about the rows that it has not judged |
#
# **Next**: lab 18 measures time. Words of this lab are in the [glossary](GLOSSARY.md).
