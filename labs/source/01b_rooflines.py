# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Rooflines: what a spec sheet promises"
#     minutes: 60
#     before: ["00", "04"]
#     know: ["functions", "`max`", "`min(key=...)`"]
# ---

# %% [markdown] id="l01b-title"
# # Lab 01b · Rooflines
# **What a GPU can reach, and which printed numbers cannot be true** · 60 minutes, 4 exercises, the last one extra
#
# [Lab 01](01_backends.ipynb) chose a backend. This lab looks at the chips. Two of its three pages print tables of GPUs and of speeds. You compute the same values from spec sheets, put chips on one plot, and find values that are swapped, belong to something else, or lie above what the chip can do.
#
# **Afterwards you can**
# * compute peak, bandwidth and ridge of a GPU from its spec sheet;
# * tell a vector peak from a matrix peak and from dual issue, and a die from a package;
# * refute a speed with two divisions.
#
# **Before this lab**: lab 00, and your first kernel in lab 04. You need functions, `max`, and `min(key=...)`.
#
# **Files it opens**: `labs/lib/shared/gpus.py`, the spec sheets with their sources. New words are in the [glossary](GLOSSARY.md).

# %% id="l01b-setup" tags=["hide-input"]
from itertools import combinations

from vklab_course import attempt, banner, check, hint, predict, show
from vklab_labs.lab_01.boards import draw_boards
from vklab_labs.shared.gpus import MATRIX_PEAKS, SHEETS, Sheet
from vklab_labs.shared.roofline import Roof, draw_rooflines

# %% id="l01b-banner"
banner()

# %% id="l01b-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l01b-1text"
# ## 1 · Two limits
# A GPU does two things: it computes, and it moves bytes. Both have a limit. The **peak** is the number of operations in a second, in TFLOP/s (10^12 floating-point operations in a second). The **bandwidth** is the number of bytes between memory and chip in a second, in GB/s.
#
# Which limit counts depends on the program. Take two fp32 vectors, too long for any cache. For each element, their addition reads 8 bytes, writes 4, and does 1 operation: 1/12 operation per byte. A product of two matrices of 4096 x 4096 does 8192 operations for each result. If it reuses what it has read, it moves 12 bytes for each result: about 680 operations per byte. This number is the **arithmetic intensity**.
#
# The **roofline** draws the reachable speed over the intensity. It rises as long as bytes are the limit, and is flat when operations are. The point between is the **ridge**.

# %% id="l01b-roof-picture" tags=["hide-input"]
draw_rooflines([Roof("RX 6900 XT", 23.04, 512)], "One GPU with the full bandwidth of its sheet: "
               "memory limits the program left of the ridge (45 FLOP/byte), arithmetic right of "
               "it. x: the two programs, at best.",
               [("add", 1 / 12, 0.0427), ("product", 680, 23.04)], (1 / 16, 1024))

# %% [markdown] id="l01b-p1-text"
# **Your guess first.** You replace this card by an RX 7900 XTX. Its sheet says 61.4 instead of 23.0 TFLOP/s, and 960 instead of 512 GB/s. How many times as fast is the *addition* at best? Write a number with one decimal.

# %% id="l01b-p1"
predict("01b-p1", addition=...)

# %% [markdown] id="l01b-2text" vklab={"role": "text", "id": "01b-1"}
# ## 2 · From the spec sheet to the roof
# A peak is a product of counts. A GPU has *units*; each has *lanes*. In each clock a lane starts a multiply-add, which counts as 2 operations. Some chips can start two multiply-adds of a lane at once if the compiler finds a pair (*dual issue*, or one *packed* instruction): `issue` is 2. A package may hold several **dies**, each with its own units and memory.
#
# | field of `Sheet` | MI100 | MI250X (values of one die) |
# |---|---|---|
# | `units` × `lanes` | 120 × 64 | 110 × 64 |
# | `clock_mhz` | 1502 | 1700 |
# | `bus_bits`: wires to the memory | 4096 | 4096 |
# | `gbit_per_pin`: 10^9 bits in a second on one wire | 2.4 | 3.2 |
# | `issue`, `dies` | 1, 1 | 2, 2 |
#
# ### Exercise 1 · Peak, bandwidth, ridge
# Write the function that computes all three. The picture above used the full bandwidth of a sheet, as a bound. Programs get less: your function counts [[percent]] % of it.

# %% id="l01b-1" vklab={"role": "exercise", "id": "01b-1", "points": 4, "lines": 6}
def roofline(sheet, dies=1, dual=False):
    """Return (TFLOP/s, GB/s, ridge in FLOP/byte) of a GPU.

    sheet: a Sheet; its units and its bus are those of one die.
    dies: the number of dies that the program uses.  dual: count sheet.issue multiply-adds of a
    lane in a clock; otherwise count one.
    TODO     two products: operations in a second, and [[percent]] % of the bytes in a second, both
             for all dies. Raise ValueError if dies is larger than sheet.dies.
             Do not round.
    Example  roofline(SHEETS["MI100"])[0] -> 23.07..., [2] -> [[ridge]]...    (roughly 6 lines)
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
# ## 3 · Six GPUs on one plot
# Six GPUs of the pages' tables, through your function. Solid lines are vector peaks. Dashed lines are fp32 peaks of **matrix units**: hardware that multiplies small matrices, and nothing else. NVIDIA calls them tensor cores. Dotted lines count dual issue. A program reaches a dashed or dotted line only if its kernel uses that hardware. Which GPU needs the most operations per byte before its solid line is flat?

# %% id="l01b-all" vklab={"role": "demo"} tags=["hide-input"]
SIX = {"MI100": "red", "RX 7900 XTX": "red", "Arc A770": "blue", "M2 Ultra": "grey",
       "A100": "green", "RTX 4090": "green"}
with attempt("01b-1"):
    roofs = []
    for name, colour in SIX.items():
        tflops, gb_s, _ = roofline(SHEETS[name])
        roofs.append(Roof(name, tflops, gb_s, "vector", colour))
        if SHEETS[name].issue > 1:
            both = roofline(SHEETS[name], dual=True)[0]
            roofs.append(Roof(name, both, gb_s, "dual issue", colour))
        if "fp32" in MATRIX_PEAKS.get(name, {}):
            roofs.append(Roof(name, MATRIX_PEAKS[name]["fp32"], gb_s, "matrix", colour))
    display(draw_rooflines(roofs, "fp32 roofs by your function. Orange: AMD, blue: Intel, grey: "
                           "Apple, green: NVIDIA. Dots: the ridges.", span=(4, 256)))

# %% [markdown] id="l01b-2task" vklab={"role": "text", "id": "01b-2"}
# ### Exercise 2 · What do the printed values mean?
# The ridge of the RTX 4090 lies farthest to the right: that is the answer. The pages print the values below in columns named "FP32 TFLOPS", "Memory BW" and "Compute Units". Compute them with `roofline` and `MATRIX_PEAKS`. A sheet prints the full bandwidth, not a share of it; on the chips for data centres fp64 is as fast as fp32 or half as fast, on cards for players far slower. What is each value? The check asks for all six at once; grading counts each row.
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
# * `twice`: twice that. A kernel needs matrix units for it, or two multiply-adds of a lane in a clock;
# * `swapped`: the value belongs to fp64, and the fp32 value stands beside it;
# * `one die`: the value of one of two dies;
# * `other unit`: the number is right, and counts something else.

# %% id="l01b-2try"
print(SHEETS["MI210"], MATRIX_PEAKS["MI210"], sep="\n")

# %% id="l01b-2" vklab={"role": "exercise", "id": "01b-2", "points": 3, "lines": 3}
# A dictionary: meaning = {"A": ..., "B": ..., ...}
meaning = ...
### BEGIN SOLUTION
meaning = [[right]]
### END SOLUTION

# %% id="l01b-2c" vklab={"role": "check", "id": "01b-2"}
check("01b-2", meaning)

# %% id="l01b-2h"
# hint("01b-2")

# %% [markdown] id="l01b-2after"
# The MI250X deserves a second look. Its two dies share a package and a price, but not a memory: programs see **two GPUs of 64 GB** (guide of the computer Frontier). Its 3,277 GB/s are the sum of two times 1,638 GB/s. Both numbers stand on the same page, for the same card, without an explanation. Intel's Max 1550 has two *stacks* with 64 cores each. (One more factor of two: vendors also print peaks for *sparse* matrices, with half of the values zero. `MATRIX_PEAKS` has dense ones.)

# %% [markdown] id="l01b-4text"
# ## 4 · Speeds above the roof
# A language model reads and writes **tokens**, pieces of text with a number each. A model with 6.7 billion **parameters** (weights) does about 2 operations with each parameter for each token. One run can handle many tokens of a prompt at once, and reads each weight once. When it *generates* text, each token needs a run of its own. So a prompt of 512 tokens costs 512 times the operations of one token, and the same bytes.
#
# *Quantised* weights have fewer than 16 bits. In the format Q4_K_M a parameter takes about 5 bits (lab 14): 4.2 GB for 6.7 billion.
#
# ### Exercise 3 · The fastest possible time
# No program is faster than its operations at the peak, nor than its bytes at the bandwidth. Here we want a bound, so take the full bandwidth. (The peak belongs to the clock of the sheet; some boards run above it.)

# %% id="l01b-3" vklab={"role": "exercise", "id": "01b-3", "points": 3, "lines": 4}
def fastest_ms(billions, tokens, gigabytes, tflops, gb_s, users=1):
    """Return (milliseconds, limit) of one run of a language model, at best.

    billions: 10^9 parameters, with 2 operations each for a token.  tokens: those of one user.
    gigabytes: all weights, read once in a run for all users together.  users: how many prompts of
    this length the run handles.
    TODO     limit is "memory" if the bytes take longer than the operations, else "arithmetic".
    Example  fastest_ms(8, 100, 5, 20, 500) -> (80.0, "arithmetic")            (roughly 4 lines)
    """
    ### BEGIN SOLUTION
    arithmetic = 2 * billions * tokens * users / tflops
    memory = 1000 * gigabytes / gb_s
    return max(arithmetic, memory), "memory" if memory > arithmetic else "arithmetic"
    ### END SOLUTION


# %% id="l01b-3d" vklab={"role": "demo"}
with attempt("01b-3"):
    for tokens in (1, 64, 512):
        ms, limit = fastest_ms(6.7, tokens, 4.2, 2.6, 68)
        print(f"Apple M1, {tokens:3} tokens in one run: {ms:6.1f} ms, limit {limit}")

# %% id="l01b-3c" vklab={"role": "check", "id": "01b-3"}
check("01b-3", fastest_ms)

# %% id="l01b-3h"
# hint("01b-3")

# %% [markdown] id="l01b-p2-text"
# **Your guess first.** One page prints times for a prompt of 512 tokens and this model: 45 ms on an M2 Ultra (27.2 TFLOP/s), 15 ms on an A100 (312 TFLOP/s with fp16 matrix units, 624 TOP/s with int8), and 35 ms on a Max 1550. On an early Max 1550 somebody measured 263 TFLOP/s in fp16. Which of these times are impossible? True or False.

# %% id="l01b-p2"
predict("01b-p2", m2_ultra=..., a100_fp16=..., a100_int8=..., max_1550=...)

# %% id="l01b-claims" vklab={"role": "demo"}
CLAIMS = [("M2 Ultra, fp32", 45, 27.2, 819), ("A100, fp16", 15, 312, 2039),
          ("A100, int8", 15, 624, 2039), ("RTX 4090, fp16", 12, 330.3, 1008),
          ("RTX 4090, int8", 12, 660.6, 1008), ("MI250X, two dies, fp16", 18, 383, 3277),
          ("MI250X, one die, fp16", 18, 191.5, 1638), ("Max 1550, measured", 35, 263, 3277)]
with attempt("01b-3"):
    for name, claimed, tflops, gb_s in CLAIMS:
        ms, _ = fastest_ms(6.7, 512, 4.2, tflops, gb_s)
        word = "impossible" if claimed < ms else f"{100 * ms / claimed:.0f} % of the peak"
        print(f"{name:22} claimed {claimed} ms, at best {ms:5.1f} ms: {word}")

# %% [markdown] id="l01b-4after"
# The time for the M2 Ultra is 5.6 times too short. The A100 and the RTX 4090 cannot do it with fp16, only with numbers of 8 bits or fewer; with int8 at 73 and 87 % of the peak. The MI250X would need every operation of *both* dies. So do not repeat these times.
#
# A measured value beside them: llama.cpp read 2,143 tokens of a prompt in a second on an M1 Ultra (3.21 billion parameters, Q4_K_M; [report of February 2026](https://github.com/geerlingguy/ai-benchmarks/issues/48)). For 512 tokens that is 239 ms. The best possible time is 157 ms: 66 % of the peak, which is believable.

# %% id="l01b-measured" vklab={"role": "demo"} tags=["hide-input"]
with attempt("01b-1"):
    tflops, gb_s, _ = roofline(SHEETS["M2 Ultra"])
    other = Roof("M1 Ultra", roofline(SHEETS["M1 Ultra"])[0], gb_s, colour="orange")
    display(draw_rooflines(
        [Roof("M2 Ultra", tflops, gb_s), other],
        "x: 512 tokens in one run. Claimed: 6.7 billion parameters on an M2 Ultra; measured: 3.21 "
        "billion on an M1 Ultra.",
        [("claimed", 1633, 152.5), ("measured", 1633, 13.8)], (0.25, 4096)))

# %% [markdown] id="l01b-5text" vklab={"id": "01b-4"}
# ## 5 · The least watts (extra)
# A club wants to run several models day and night. Each model needs memory (GB), and bandwidth (GB/s): its gigabytes times the tokens that it must generate in a second. Models on one board share both. A model is not split, and runs where its backend runs (lab 01): on some boards only. A board may be bought several times. The club pays for power, and the vendors publish the power of a board. Apple publishes none for a GPU alone, and two cards of the table are really two devices. This shop has the rest. (Prices and sockets do not count here; MI300X and A100 are modules for servers.)

# %% id="l01b-shop" vklab={"id": "01b-4"}
SHOP = {name: (sheet.watts, sheet.memory_gb, int(sheet.bus_bits * sheet.gbit_per_pin / 8))
        for name, sheet in SHEETS.items() if sheet.watts and sheet.dies == 1}
for name, (watts, memory_gb, gb_s) in SHOP.items():
    print(f"{name:12} {watts} W, {memory_gb:3} GB, {gb_s} GB/s")

# %% [markdown] id="l01b-5greedy" vklab={"id": "01b-4"}
# Six models: `code` is written in CUDA, `read` needs ROCm, `chat` uses HIP and so runs on both, the others use SYCL and run on all. (Vulkan would not do: AMD's present MI cards have no driver for it.) The obvious way takes one model after the other. If a board that is bought has room, the model goes there. If not, buy the board with the least watts that can hold it:

# %% id="l01b-greedy-picture" vklab={"id": "01b-4"} tags=["hide-input"]
FEW = {name: SHOP[name] for name in ("Arc A770", "RX 7900 XTX", "MI210", "RTX 4090", "A100")}
ALL, AMD, NVIDIA = tuple(FEW), ("RX 7900 XTX", "MI210"), ("RTX 4090", "A100")
MODELS = {"chat": (20, 400, AMD + NVIDIA), "code": (28, 425, NVIDIA), "speech": (32, 525, ALL),
          "draw": (31, 225, ALL), "read": (5, 775, AMD), "search": (14, 650, ALL)}
draw_boards(FEW, MODELS, [("MI210", ["chat", "speech"]), ("A100", ["code", "draw", "search"]),
                          ("MI210", ["read"])],
            "One model after the other: three boards. The upper bar of each board is its memory in "
            "GB, the lower one its bandwidth in GB/s.")

# %% [markdown] id="l01b-5task" vklab={"id": "01b-4"}
# ### Exercise 4 · Buy the boards (scored, extra)
# Find boards with fewer watts, for any shop and any models. Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra.
#
# One point is for *valid* answers. The others count watts, one point for each list of models: the best of several obvious answers (one model after the other in some order, joining pairs of boards) earns nothing, the least possible watts earn the point, and an answer in between earns its share. There are at most seven models, so you may try many choices.

# %% id="l01b-4" vklab={"role": "exercise", "id": "01b-4", "points": 5, "lines": 17}
def least_watts(boards, models):
    """Return the boards to buy as a list of (board, [models on it]), with the least watts.

    boards: {name: (watts, GB, GB/s)}; each may be bought any number of times.
    models: {name: (GB, GB/s, names of the boards that it runs on)}; each fits on one of them.
    TODO     each model stands on one board that it runs on. On each board, the GB of its models
             together fit into its GB, and their GB/s into its GB/s.
    Approach one board for each model is valid: the one with the least watts that holds it. Which
             models can then share a board?
    Limit    a check calls your function eight times, and waits 30 seconds for all.
    Example  least_watts({"A": (9, 8, 8), "B": (5, 4, 9)}, {"x": (3, 2, ("A", "B"))})
             -> [("B", ["x"])]
    (roughly 17 lines)
    """
    ### BEGIN SOLUTION
    def serve(left):
        if not left:
            return 0, []
        plans = []
        first, *others = left
        for count in range(len(left)):
            for more in combinations(others, count):
                group = [first, *more]
                gb, gb_s = (sum(models[name][i] for name in group) for i in (0, 1))
                watts, rest = serve([name for name in left if name not in group])
                for board, (power, has_gb, has_gb_s) in boards.items():
                    suits = all(board in models[name][2] for name in group)
                    if suits and gb <= has_gb and gb_s <= has_gb_s:
                        plans.append((power + watts, [(board, group), *rest]))
        return min(plans, key=lambda plan: plan[0])

    return serve(list(models))[1]
    ### END SOLUTION


# %% id="l01b-4d" vklab={"role": "demo", "id": "01b-4"}
with attempt("01b-4"):
    display(draw_boards(FEW, MODELS, least_watts(FEW, MODELS),
                        "Your boards. Orange: too much for the board, or one that does not suit."))

# %% id="l01b-4c" vklab={"role": "check", "id": "01b-4"}
check("01b-4", least_watts)

# %% id="l01b-4h" vklab={"id": "01b-4"}
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
# | what is the peak? | units × lanes × 2 × starts × clock × dies | a matrix peak in a vector column |
# | what is the bandwidth? | bits of the bus / 8 × rate | the package's for one die |
# | which limit counts? | intensity left or right of the ridge | buying TFLOP/s for an addition |
# | is a speed possible? | operations / peak, bytes / bandwidth | repeating a printed time |
# | which boards? | groups of models, both limits | one model after the other |
#
# **Next**: [lab 02](02_devices.ipynb) asks your own machine for its devices. Labs 08 and 18 put your kernels and their measured times on a roofline.
#
# **References**
# * S. Williams, A. Waterman, D. Patterson: [Roofline](https://doi.org/10.1145/1498765.1498785), 2009.
# * AMD's figures: AnandTech on the [MI210](https://www.anandtech.com/show/17326/amd-releases-instinct-mi210-accelerator-cdna-2-on-a-pcie-card), March 2022; [Frontier User Guide](https://docs.olcf.ornl.gov/systems/frontier_user_guide.html) on the MI250X; [packed fp32](https://gitlab.com/gromacs/gromacs/-/merge_requests/3838) on the MI250.
# * [Max 1550](https://glennklockwood.com/garden/processors/pvc), with measured values; [A100](https://glennklockwood.com/garden/processors/A100). The source of each sheet stands in `SHEETS[name].source`.
