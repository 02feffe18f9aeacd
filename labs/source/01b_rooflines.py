# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Rooflines: what a spec sheet promises", minutes: 80}
# ---

# %% [markdown] id="l01b-title"
# # Lab 01b · Rooflines
# **What a GPU can reach, and which printed numbers cannot be true** · 80 minutes, 4 exercises; the last one, about 25 minutes, may wait for another day
#
# [Lab 01](01_backends.ipynb) chose a backend. This lab looks at the chips. Two overview pages on the web print tables of GPUs and of speeds. You compute the same values from spec sheets, put all chips on one plot, and find values that are swapped, doubled, or above what the chip can do. At the end you buy the boards that serve a list of models with the least power.
#
# **Afterwards you can**
# * compute peak, bandwidth and ridge of a GPU from its spec sheet;
# * tell a vector peak from a matrix peak and from dual issue, and a die from a package;
# * refute a speed with two divisions;
# * choose boards for several models, and say how far from the best you are.
#
# **Before this lab**: lab 00. You need functions, `max`, and `min(key=...)`.
#
# **Files it opens**: `vklab/course/figures/gpus.py`, the spec sheets with their sources. New words are in the [glossary](GLOSSARY.md).

# %% id="l01b-setup"
from itertools import combinations

from vklab.course import attempt, banner, check, hint, predict, show
from vklab.course.figures.boards import draw_boards
from vklab.course.figures.gpus import MATRIX_PEAKS, SHEETS, Sheet
from vklab.course.figures.roofline import Roof, draw_rooflines

# %% id="l01b-banner"
banner()

# %% id="l01b-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l01b-1text"
# ## 1 · Two limits
# A GPU does two things: it computes, and it moves bytes. Both have a limit. The **peak** is the number of operations in a second, in TFLOP/s (10^12 floating-point operations in a second). The **bandwidth** is the number of bytes between memory and chip in a second, in GB/s.
#
# Which limit counts depends on the program. Adding two long fp32 vectors reads 8 bytes, writes 4, and does 1 operation: 1/12 operation for a byte. A product of two matrices of 4096 x 4096 does 8192 operations for each result, and can keep what it has read: about 680 operations for a byte. This number is the **arithmetic intensity**.
#
# The **roofline** draws the reachable speed over the intensity. It rises as long as bytes are the limit, and is flat when operations are. The point between is the **ridge**.

# %% id="l01b-roof-picture" tags=["hide-input"]
draw_rooflines([Roof("RX 6900 XT", 23.04, 512)], "One GPU: memory limits the program left of the "
               "ridge (45 FLOP/byte), arithmetic right of it. x: the two programs, at best.",
               [("add", 1 / 12, 0.0427), ("product", 680, 23.04)], (1 / 16, 1024))

# %% [markdown] id="l01b-p1-text"
# **Your guess first.** You replace this card by an RX 7900 XTX. Its sheet says 61.4 instead of 23.0 TFLOP/s, and 960 instead of 512 GB/s. How many times as fast is the *addition* at best? Write a number with one decimal.

# %% id="l01b-p1"
predict("01b-p1", addition=...)

# %% [markdown] id="l01b-2text" vklab={"role": "text", "id": "01b-1"}
# ## 2 · From the spec sheet to the roof
# A peak is a product of counts. A GPU has *units*; each has *lanes*. In each clock a lane starts a multiply-add, which counts as 2 operations. Some chips can start two multiply-adds of a lane at once if the compiler finds a pair (*dual issue*, or one *packed* instruction): `issue` is 2. A package may hold several **dies**, each with its own units and memory.
#
# | field of `Sheet` | MI100 | MI250X, one die |
# |---|---|---|
# | `units` × `lanes` | 120 × 64 | 110 × 64 |
# | `clock_mhz` | 1502 | 1700 |
# | `bus_bits`: wires to the memory | 4096 | 4096 |
# | `gbit_per_pin`: 10^9 bits in a second on one wire | 2.4 | 3.2 |
# | `issue`, `dies` | 1, 1 | 1, 2 |
#
# A sheet's bandwidth is never reached. In this lab a program gets [[percent]] % of it.
#
# ### Exercise 1 · Peak, bandwidth, ridge

# %% id="l01b-1" vklab={"role": "exercise", "id": "01b-1", "points": 4, "lines": 6}
def roofline(sheet, dies=1, dual=False):
    """Return (TFLOP/s, GB/s, ridge in FLOP/byte) of a GPU.

    sheet: a Sheet; its units and its bus are those of one die.
    dies: the number of dies that the program uses.  dual: count sheet.issue multiply-adds of a
    lane in a clock; otherwise count one.
    TODO     two products: operations in a second, and [[percent]] % of the bytes in a second, both
             for all dies. Raise ValueError if dies is larger than sheet.dies.
    Example  roofline(SHEETS["MI100"])[0] -> 23.07, [2] -> 18.78 times 100 / [[percent]]
    (roughly 6 lines)
    """
    ### BEGIN SOLUTION
    if dies > sheet.dies:
        raise ValueError(f"the package has {sheet.dies} dies")
    starts = sheet.issue if dual else 1
    tflops = sheet.units * sheet.lanes * 2 * starts * sheet.clock_mhz * dies / 1e6
    gb_s = sheet.bus_bits / 8 * sheet.gbit_per_pin * dies * [[percent]] / 100
    return tflops, gb_s, 1000 * tflops / gb_s
    ### END SOLUTION


# %% id="l01b-1d" vklab={"role": "demo"}
with attempt("01b-1"):
    for name in ("MI100", "MI250X", "RX 7900 XTX", "M2 Ultra"):
        print(f"{name:12} {roofline(SHEETS[name])[0]:6.1f} TFLOP/s   one die, one start a clock")

# %% id="l01b-1c" vklab={"role": "check", "id": "01b-1"}
check("01b-1", roofline)

# %% id="l01b-1h"
# hint("01b-1")

# %% [markdown] id="l01b-3text"
# ## 3 · All GPUs of the pages on one plot
# Now every GPU of the pages' tables, through your function. Solid lines are vector peaks of the whole package. Dashed lines are fp32 peaks of **matrix units**: hardware that multiplies small matrices, and nothing else. NVIDIA calls them tensor cores. Dotted lines count dual issue. A program reaches a dashed or dotted line only if its kernel uses that hardware.

# %% id="l01b-all" vklab={"role": "demo"} tags=["hide-input"]
VENDORS = {"AMD": "red", "Intel": "blue", "Apple": "grey", "NVIDIA": "green"}
with attempt("01b-1"):
    roofs = []
    for name, sheet in SHEETS.items():
        tflops, gb_s, _ = roofline(sheet, sheet.dies)
        colour = VENDORS[sheet.vendor]
        roofs.append(Roof(name, tflops, gb_s, "vector", colour))
        if sheet.issue > 1:
            both = roofline(sheet, sheet.dies, True)[0]
            roofs.append(Roof(name, both, gb_s, "dual issue", colour))
        if "fp32" in MATRIX_PEAKS.get(name, {}):
            roofs.append(Roof(name, MATRIX_PEAKS[name]["fp32"], gb_s, "matrix", colour))
    display(draw_rooflines(roofs, "fp32 roofs of the pages' GPUs, by your function, in TFLOP/s. "
                           "Red: AMD, blue: Intel, grey: Apple, green: NVIDIA. Dots: the ridges, "
                           "with this lab's share of the bandwidth.", span=(4, 256)))

# %% [markdown] id="l01b-2task" vklab={"role": "text", "id": "01b-2"}
# ### Exercise 2 · What do the printed values mean?
# The pages print these values in columns named "FP32 TFLOPS", "Memory BW" and "Compute Units". Compute each one with `roofline` and `MATRIX_PEAKS` (a sheet prints the full bandwidth, not a share of it). Which is it?
#
# | | printed |
# |---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
# | F | [[f]] |
#
# * `vector`: the fp32 vector peak of the package, as the column says;
# * `matrix`: the peak of the matrix units;
# * `dual issue`: a peak that counts two multiply-adds of a lane in a clock;
# * `swapped`: the value belongs to fp64, and the fp32 value stands beside it;
# * `doubled`: the value of the package, multiplied by the number of dies once more;
# * `one die`: the value of one of two dies;
# * `other unit`: the number is right, and counts something else.

# %% id="l01b-2try"
print(SHEETS["MI210"], MATRIX_PEAKS["MI210"], sep="\n")

# %% id="l01b-2" vklab={"role": "exercise", "id": "01b-2", "points": 3, "lines": 3}
# meaning = {"A": "vector", "B": ...}
meaning = ...
### BEGIN SOLUTION
meaning = [[right]]
### END SOLUTION

# %% id="l01b-2c" vklab={"role": "check", "id": "01b-2"}
check("01b-2", meaning)

# %% id="l01b-2h"
# hint("01b-2")

# %% [markdown] id="l01b-2after"
# The MI250X deserves a second look. Its two dies share a package and a price, but not a memory: programs see **two GPUs of 64 GB** (guide of the computer Frontier; llama.cpp lists two devices of 65,520 MiB for each card). Its 3,277 GB/s are the sum of two times 1,638 GB/s. Both numbers stand on the same page, for the same card, without a word. Intel's Max 1550 has two *stacks* with 64 cores each. None of this is news: AMD published its tables with the chips, in November 2020 (MI100), November 2021 (MI250X) and March 2022 (MI210).

# %% [markdown] id="l01b-4text"
# ## 4 · Speeds above the roof
# A language model reads and writes **tokens**, pieces of text with a number each. A model with 6.7 billion **parameters** (weights) does about 2 operations with each parameter for each token. One run can handle many tokens of a prompt at once, and reads each weight once. When it *generates* text, each token needs a run of its own. So a prompt of 512 tokens costs 512 times the operations of one token, and the same bytes.
#
# A quantised model (Q4_K_M) has about 5 bits a parameter: 4.2 GB for 6.7 billion.
#
# ### Exercise 3 · The fastest possible time
# No program is faster than its operations at the peak, nor than its bytes at the bandwidth.

# %% id="l01b-3" vklab={"role": "exercise", "id": "01b-3", "points": 3, "lines": 4}
def fastest_ms(billions, tokens, gigabytes, tflops, gb_s, users=1):
    """Return (milliseconds, limit) of one run of a language model, at best.

    billions: 10^9 parameters, with 2 operations each for a token.  tokens: those of one user.
    gigabytes: all weights, read once in a run for all users together.  users: how many prompts of
    this length the run handles.
    TODO     limit is "memory" if the bytes take longer than the operations, else "arithmetic".
    Example  fastest_ms(6.7, 512, 4.2, 312, 2039) -> (21.99, "arithmetic")     (roughly 4 lines)
    """
    ### BEGIN SOLUTION
    arithmetic = 2 * billions * tokens * users / tflops
    memory = 1000 * gigabytes / gb_s
    return max(arithmetic, memory), "memory" if memory > arithmetic else "arithmetic"
    ### END SOLUTION


# %% id="l01b-3d" vklab={"role": "demo"}
with attempt("01b-3"):
    for tokens in (1, 64, 512):
        ms, limit = fastest_ms(6.7, tokens, 4.2, 27.2, 819)
        print(f"M2 Ultra, {tokens:3} tokens in one run: {ms:6.1f} ms, limit {limit}")

# %% id="l01b-3c" vklab={"role": "check", "id": "01b-3"}
check("01b-3", fastest_ms)

# %% id="l01b-3h"
# hint("01b-3")

# %% [markdown] id="l01b-p2-text"
# **Your guess first.** One page prints times for a prompt of 512 tokens and this model: 45 ms on an M2 Ultra (27.2 TFLOP/s), 15 ms on an A100 (312 TFLOP/s with fp16 matrix units, 624 TOP/s with int8), and 35 ms on a Max 1550. On an early Max 1550 somebody measured 263 TFLOP/s in fp16. Which of these times are impossible? True or False.

# %% id="l01b-p2"
predict("01b-p2", m2_ultra=..., a100_fp16=..., a100_int8=..., max_1550=...)

# %% id="l01b-claims" vklab={"role": "demo"}
CLAIMS = [("M2 Ultra, fp32", 6.7, 45, 27.2), ("M2 Ultra, 13 billion", 13.0, 80, 27.2),
          ("M2 Ultra, 70 billion", 69.0, 420, 27.2), ("A100, fp16", 6.7, 15, 312),
          ("A100, int8", 6.7, 15, 624), ("RTX 4090, fp16", 6.7, 12, 330.3),
          ("RTX 4090, int8", 6.7, 12, 660.6), ("MI250X package, fp16", 6.7, 18, 383),
          ("MI250X one die, fp16", 6.7, 18, 191.5), ("Max 1550, measured", 6.7, 35, 263)]
with attempt("01b-3"):
    for name, billions, claimed, tflops in CLAIMS:
        ms, _ = fastest_ms(billions, 512, 0.63 * billions, tflops, 819)
        word = "impossible" if claimed < ms else f"{100 * ms / claimed:.0f} % of the peak"
        print(f"{name:21} claimed {claimed:3} ms, at best {ms:6.1f} ms: {word}")

# %% [markdown] id="l01b-4after"
# The times for the M2 Ultra are refuted by a factor of five: its sheet has no matrix units, and lists the same peak for fp16 and fp32. The A100 and the RTX 4090 could do it with int8 only, at 73 and 87 % of the peak. The MI250X would need every operation of *both* dies. So do not repeat these times. The page's times for *generation* are possible: they lie above 4.2 GB divided by the bandwidth.
#
# A measured value beside them: llama.cpp read 2,143 tokens of a prompt in a second on an M1 Ultra (3.21 billion parameters, Q4_K_M; [report of February 2026](https://github.com/geerlingguy/ai-benchmarks/issues/48)). For 512 tokens that is 239 ms. At best are 157 ms: 66 % of the peak, which is believable.

# %% id="l01b-measured" vklab={"role": "demo"} tags=["hide-input"]
with attempt("01b-1"):
    tflops, gb_s, _ = roofline(SHEETS["M2 Ultra"])
    display(draw_rooflines(
        [Roof("M2 Ultra", tflops, gb_s), Roof("M1 Ultra", roofline(SHEETS["M1 Ultra"])[0], gb_s,
                                             colour="orange")],
        "x: 512 tokens, 6.7 billion parameters in 45 ms, as claimed; and the measured M1 Ultra.",
        [("claimed", 1633, 152.5), ("measured", 1633, 13.8)], (0.25, 4096)))

# %% [markdown] id="l01b-5text"
# ## 5 · The least watts
# A club wants to run several models day and night. Each model needs memory (GB), and bandwidth (GB/s): its gigabytes times the tokens that it must generate in a second. Models on one board share both. A model is not split, and runs where its backend runs (lab 01): on some boards only. A board may be bought several times. The club pays for power, and the vendors publish the power of a board. Apple publishes none for a GPU alone, and two cards of the table are really two devices. So this shop has the rest:

# %% id="l01b-shop"
SHOP = {name: (sheet.watts, sheet.memory_gb, int(sheet.bus_bits * sheet.gbit_per_pin / 8))
        for name, sheet in SHEETS.items() if sheet.watts and sheet.dies == 1}
for name, (watts, memory_gb, gb_s) in SHOP.items():
    print(f"{name:12} {watts} W, {memory_gb:3} GB, {gb_s} GB/s")

# %% [markdown] id="l01b-5greedy"
# Six models: `code` is written in CUDA, `read` needs ROCm, `chat` uses HIP and so runs on both, the others use Vulkan. The obvious way takes one model after the other. If a board that is bought has room, the model goes there. If not, buy the board with the least watts that can hold it:

# %% id="l01b-greedy-picture" tags=["hide-input"]
FEW = {name: SHOP[name] for name in ("Arc A770", "RX 7900 XTX", "MI210", "RTX 4090", "A100")}
ALL, AMD, NVIDIA = tuple(FEW), ("RX 7900 XTX", "MI210"), ("RTX 4090", "A100")
MODELS = {"chat": (20, 400, AMD + NVIDIA), "code": (28, 425, NVIDIA), "speech": (32, 525, ALL),
          "draw": (31, 225, ALL), "read": (5, 775, AMD), "search": (14, 650, ALL)}
draw_boards(FEW, MODELS, [("MI210", ["chat", "speech"]), ("A100", ["code", "draw", "search"]),
                          ("MI210", ["read"])],
            "One model after the other: three boards. Above GB, below GB/s.")

# %% [markdown] id="l01b-5task"
# ### Exercise 4 · Buy the boards (scored)
# Find boards with fewer watts, for any shop and any models. `groups` is given: it lists every group of models that contains the first one.
#
# One point is for *valid* answers. The others count watts, one point for each list of models: the best of several obvious answers (one model after the other in some order, joining pairs of boards) earns nothing, the least possible watts earn the point, and an answer in between earns its share. There are at most seven models, so you may try many choices. This is the open-ended exercise of the lab: a first better answer takes a quarter of an hour, the best one may wait for another day.

# %% id="l01b-4" vklab={"role": "exercise", "id": "01b-4", "points": 5, "lines": 14}
def groups(names):
    """Yield every group of names that contains the first one, as a list."""
    for count in range(len(names)):
        for more in combinations(names[1:], count):
            yield [names[0], *more]


def least_watts(boards, models):
    """Return the boards to buy as a list of (board, [models on it]), with the least watts.

    boards: {name: (watts, GB, GB/s)}; each may be bought any number of times.
    models: {name: (GB, GB/s, names of the boards that it runs on)}; each fits on one of them.
    TODO     each model stands on one board that it runs on. On each board, the GB of its models
             together fit into its GB, and their GB/s into its GB/s.
    Approach which group does the first model share a board with? Try every group on every board
             that holds it, and serve the rest in the same way.
    Example  least_watts({"A": (9, 8, 8), "B": (5, 4, 9)}, {"x": (3, 2, ("A", "B"))})
             -> [("B", ["x"])]
    (roughly 14 lines)
    """
    ### BEGIN SOLUTION
    def serve(left):
        if not left:
            return 0, []
        plans = []
        for group in groups(left):
            gb, gb_s = (sum(models[name][i] for name in group) for i in (0, 1))
            watts, rest = serve([name for name in left if name not in group])
            for board, (power, has_gb, has_gb_s) in boards.items():
                suits = all(board in models[name][2] for name in group)
                if suits and gb <= has_gb and gb_s <= has_gb_s:
                    plans.append((power + watts, [(board, group), *rest]))
        return min(plans, key=lambda plan: plan[0])

    return serve(list(models))[1]
    ### END SOLUTION


# %% id="l01b-4d" vklab={"role": "demo"}
with attempt("01b-4"):
    display(draw_boards(FEW, MODELS, least_watts(FEW, MODELS),
                        "Your boards. Red: too much for the board, or a board that does not suit."))

# %% id="l01b-4c" vklab={"role": "check", "id": "01b-4"}
check("01b-4", least_watts)

# %% id="l01b-4h"
# hint("01b-4")

# %% [markdown] id="l01b-6text"
# ## 6 · What would break this?
# **Bug hunt.** Before it buys a card, a program asks whether a model fits. It was tested with an A100 and an M2 Ultra. Then somebody bought an MI250X. For which models is its answer right? Guess, run both cells, and mend the function until every line says True.

# %% id="l01b-p3"
predict("01b-p3", gb_40=..., gb_60=..., gb_100=...)

# %% id="l01b-bug"
def fits(gigabytes, sheet):
    """Tell whether a model that cannot be split fits on one device of a card."""
    return gigabytes <= sheet.memory_gb


for gigabytes, truth in ((40, True), (60, True), (100, False)):
    print(f"{gigabytes:3} GB on an MI250X: {fits(gigabytes, SHEETS['MI250X']) == truth}")

# %% [markdown] id="l01b-recap"
# ## Recap
# | question | answer | mistake to avoid |
# |---|---|---|
# | what is the peak? | units × lanes × 2 × starts × clock | a matrix peak in a vector column |
# | what is the bandwidth? | bits of the bus / 8 × rate | the package's for one die |
# | which limit counts? | intensity left or right of the ridge | buying TFLOP/s for an addition |
# | is a speed possible? | operations / peak, bytes / bandwidth | repeating a printed time |
# | which boards? | groups of models, both limits | one model after the other |
#
# **Next**: lab 02 asks your own machine for its devices. Labs 08 and 18 put your kernels and their measured times on a roofline.
#
# **References**
# * S. Williams, A. Waterman, D. Patterson: [Roofline](https://doi.org/10.1145/1498765.1498785), 2009.
# * AMD's figures: AnandTech on the [MI210](https://www.anandtech.com/show/17326/amd-releases-instinct-mi210-accelerator-cdna-2-on-a-pcie-card), March 2022; [Frontier User Guide](https://docs.olcf.ornl.gov/systems/frontier_user_guide.html) on the MI250X; [devices in llama.cpp](https://github.com/ggml-org/llama-install.sh/pull/21), June 2026.
# * [Max 1550](https://glennklockwood.com/garden/processors/pvc), with measured values; [A100](https://glennklockwood.com/garden/processors/A100). The source of each sheet stands in `SHEETS[name].source`.
