# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Measuring"
#     minutes: 85
#     before: ["00", "12"]
#     know: ["lists", "dictionaries", "sets", "`math.comb`"]
# ---

# %% [markdown] id="l18-title"
# # Lab 18 · Measuring
# **What one number is worth** · 85 minutes, 4 exercises, the last one extra
#
# A colleague replaces a runtime because the new one is five times faster. A month later the bills are the same. The benchmark had stopped its clock before the device had done anything. Nobody had lied, and no number looked wrong. In this lab you find such faults from the samples alone.
#
# **Afterwards you can**
# * say where a clock must stop, and what the time before and after it means;
# * give a median with an interval, from the samples and without a formula for noise;
# * audit the record of a benchmark, and name what is wrong with it;
# * separate the cost of a submission from that of a node, and refuse a line that is none;
# * extra: spend a budget of time where it makes a slope most certain.
#
# **Before this lab**: labs 00 and 12 (submission, fence, replay, timestamps, least squares). You need lists, dictionaries, sets and `math.comb`. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/runtime/observe/profile.py`.

# %% id="l18-setup" tags=["hide-input"]
from itertools import combinations
from math import comb, gcd, sqrt
from statistics import median

import numpy as np
from IPython.display import display

import vklab
from vklab_course import attempt, banner, check, data, hint, predict, show
from vklab_labs.lab_18 import chains, designs, noise
from vklab_labs.lab_18 import measuring_pictures as figures
from vklab_labs.lab_18.records import EXAMPLE

# %% id="l18-banner"
banner()

# %% id="l18-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l18-1t"
# ## 1 · One run, three times
# The host gives work to a *queue*, and the *device* takes it from there. The call that submits returns at once. So it matters where the clock stops:

# %% id="l18-1d" tags=["hide-input"]
figures.draw_clocks()

# %% [markdown] id="l18-1r"
# *A* measures the submission only. *B* needs the device's own clock (timestamps, lab 12). *C* is the time of a caller. None of them is wrong, but they must not be compared with each other.
#
# Run the same thing again, and the time differs. Other work of the machine can only lengthen a run, so times have a **tail** on one side. Which *one* number should stand for them? Suppose that 19 of 20 runs take 100 us, and one takes six times as long. By how many percent is the mean above 100 us, and by how many the median (the middle of the sorted times)?

# %% id="l18-p1"
predict("18-p1", mean_percent=..., median_percent=...)

# %% id="l18-1p" tags=["hide-input"]
figures.draw_distribution()

# %% [markdown] id="l18-1n"
# These times come from a model that we state, so that its true median is known: 100 us, a little more by half a normal number (5 percent), and 8 of 100 runs take 3 to 9 times as long. The times of all exercises are drawn or recorded. Your own stand beside them, and are never marked.

# %% [markdown] id="l18-2t"
# ## 2 · The median, with an interval
# A median from 30 runs is another one tomorrow. An **interval** says within which bounds the true median lies, with a stated chance. Sort the samples: the k-th smallest is an **order statistic**. Each sample lies below the true median with chance 1/2, as a coin falls. The k-th smallest and the k-th largest enclose the median if at least k samples lie below it and at least k above. Of the 2^n ways in which n coins fall, C(n, k) + C(n, k + 1) + ... + C(n, n - k) are such. No bell curve is needed, and no tail can move it far.
#
# ### Exercise 1 · An interval of the median
# All numbers are whole, so compare whole numbers: 100 times the sum with `percent` times 2^n.

# %% id="l18-e1" vklab={"role": "exercise", "id": "18-1", "points": 4, "lines": 6}
def median_interval(samples, percent):
    """Return (k-th smallest, k-th largest sample) for the largest k that is sure enough, or None.

    samples: 1 to 120 whole ns, in any order, some of them equal. percent: whole.
    TODO     the largest k from 1 to n // 2 with
             100 * (C(n, k) + ... + C(n, n - k)) >= percent * 2**n; None if there is no such k.
             Equal samples count as many as they are.
    Approach comb(n, i) is C(n, i). The sum falls as k grows.
    Example  median_interval([13, 11, 12, 15, 14, 16], 95) -> (11, 16)   (62 of 64 ways)
             median_interval([13, 11, 12, 15, 14], 95) -> None           (30 of 32)
             (roughly 6 lines)
    """
    ### BEGIN SOLUTION
    ordered, n, found = sorted(samples), len(samples), None
    for k in range(1, n // 2 + 1):
        ways = sum(comb(n, i) for i in range(k, n - k + 1))
        if 100 * ways >= percent * 2**n:
            found = ordered[k - 1], ordered[n - k]
    return found
    ### END SOLUTION


# %% id="l18-e1d" vklab={"role": "demo"}
with attempt("18-1"):
    drawn = noise.draw_times(np.random.default_rng(5), 40)
    display(figures.draw_interval(drawn, median_interval(drawn, 95)))

# %% id="l18-e1c" vklab={"role": "check", "id": "18-1"}
check("18-1", median_interval)

# %% id="l18-e1h"
# hint("18-1")

# %% [markdown] id="l18-meant"
# ### The interval that everybody prints
# `mean ± 1.96 s / √n` (s: the standard deviation) is made for a mean, and for times without a tail. The next cell draws 600 benchmarks for each number of runs. It counts in how many percent an interval of 95 percent encloses the model's *median*, the run that a user meets typically. With five runs you get no interval at all; `median_interval` says so.

# %% id="l18-mean"
for runs in (6, 10, 30, 100):
    print(f"{runs:3} runs: mean ± 1.96 s/√n {noise.holds(noise.mean_interval, runs)} %", end="")
    with attempt("18-1"):
        mine = noise.holds(lambda samples: median_interval(samples, 95), runs)
        print(f", your interval {mine} %", end="")
    print()

# %% [markdown] id="l18-meanr" vklab={"says": ["100 runs: mean ± 1.96 s/√n 7 %"]}
# With more data the usual interval is *less* often right about the median: it narrows around the mean, which the slow runs have moved. A small interval is no proof of a good measurement.
#
# ### Two clocks on your machine
# `session.time` runs a model and reads two clocks: the host's (place *C*, copies included) and the device's (place *B*). On a CPU driver, both are the same processor.

# %% id="l18-two" tags=["nbval-ignore-output"]
ten = {"image": np.load(data("digits.npz"))["images"][:10]}
with vklab.load(data("digits_cnn.onnx")) as session:
    timing = session.time(ten, repeats=60)
for words, samples in (("host", timing.host_ns), ("device", timing.device_ns)):
    print(f"{words:6} median {median(samples) / 1e3:.1f} us", end="")
    with attempt("18-1"):
        low, high = median_interval([round(ns) for ns in samples], 95)
        print(f", 95 % from {low / 1e3:.1f} to {high / 1e3:.1f} us", end="")
    print()
show("vklab.runtime.observe.profile.time_runs")

# %% [markdown] id="l18-profilert"
# A timestamp says *how long*, not *why*. Profilers show why: [Nsight Systems](https://developer.nvidia.com/nsight-systems) (NVIDIA) and [RGP](https://gpuopen.com/rgp/) (AMD) draw host and queues in time. [RenderDoc](https://renderdoc.org/) shows the bytes after each command. Apple's Instruments sees the Metal work that MoltenVK makes of Vulkan, and [PIX](https://devblogs.microsoft.com/pix/) sees Direct3D 12 only. Lab 06 says which of them sees Vulkan compute. Measure without a profiler first: it changes the times.

# %% [markdown] id="l18-3t" vklab={"id": "18-2"}
# ## 3 · Audit a record
# A record compares two **runners** that should do the same work. Seven faults are common. You can see all of them in the record:
#
# * `fastest_only`: the number that is reported is the least counted time, in place of the median. `first_runs_counted`: it is another number, often because the first runs, the **warm-up**, are in it. Caches fill and pipelines are made in them.
# * `coarse_clock`: [[ten]] times the clock's step is above the median. The step is the greatest common divisor of *all* times of a runner.
# * A time below the **floor** cannot be: the floor is the time that the device needs at least, the larger of operations and bytes over its roofs (lab 01b). There are two reasons. `not_waited`: the clock stopped at A. `cached`: nothing was computed, an old result came back. From single runs you cannot tell them apart. So the record has a **series**: as many more runs, with one wait for the device at their end. If the series takes the floor a run or more, the work was done. Below a coarse clock's step nobody can tell, so neither counts there.
# * `unequal_work`: operations or bytes of the two differ. `one_after_the_other`: all runs of one begin before all of the other, so the machine may have changed in between.
#
# ### Exercise 2 · Name the faults
# None, one or two of the seven are there. Slow first runs that are left out are no fault, and neither is a late outlier or a runner that really is slow.

# %% id="l18-e2" vklab={"role": "exercise", "id": "18-2", "points": 6, "lines": 18}
TEN = [[ten]]


def audit(record):
    """Return the set of names of the faults in a record.

    record: {"runners": [two], "flops_per_s", "bytes_per_s": the device's roofs, "warm_up": how
    many first runs of each runner do not count}. A runner: {"begins", "times": whole ns of each
    run, in order, warm-up included; "reported": ns; "flops", "bytes" of a run; "series": (runs,
    ns of all of them)}. An odd number of times counts.
    TODO     fastest_only: reported is the least counted time, and the median is another.
             first_runs_counted: reported is neither of the two.
             coarse_clock: TEN * gcd of all times > median of those that count. Otherwise, with a
             median below the floor: not_waited if series ns >= runs * floor, else cached.
             unequal_work, one_after_the_other: as above.
    Example  audit(EXAMPLE) -> {"fastest_only", "not_waited"}        (roughly 18 lines)
    """
    ### BEGIN SOLUTION
    found = set()
    for runner in record["runners"]:
        counted = runner["times"][record["warm_up"] :]
        middle = median(counted)
        if runner["reported"] != middle:
            least = runner["reported"] == min(counted)
            found.add("fastest_only" if least else "first_runs_counted")
        of_flops = runner["flops"] / record["flops_per_s"]
        floor = max(of_flops, runner["bytes"] / record["bytes_per_s"]) * 1e9
        runs, together = runner["series"]
        if TEN * gcd(*runner["times"]) > middle:
            found.add("coarse_clock")
        elif middle < floor:
            found.add("not_waited" if together >= runs * floor else "cached")
    one, other = record["runners"]
    if one["flops"] != other["flops"] or one["bytes"] != other["bytes"]:
        found.add("unequal_work")
    starts, more = one["begins"], other["begins"]
    if max(starts) < min(more) or max(more) < min(starts):
        found.add("one_after_the_other")
    return found
    ### END SOLUTION


# %% id="l18-e2d" vklab={"role": "demo"}
with attempt("18-2"):
    display(figures.draw_audit(EXAMPLE, audit(EXAMPLE)))

# %% id="l18-e2c" vklab={"role": "check", "id": "18-2"}
check("18-2", audit)

# %% id="l18-e2h"
# hint("18-2")

# %% [markdown] id="l18-bugt"
# ### What would break this?
# The next benchmark has a warm-up, repeats its runs and waits for the device. Its author is proud: a network for digits takes no longer than one addition. Look at its source, then at the times. The **replay** of a recorded command buffer (lab 12) would be a fair run; is this one?

# %% id="l18-bug" tags=["nbval-ignore-output"]
show("vklab_labs.lab_18.chains.waited_us")
one = {"x": np.zeros(1, np.float32)}
for words, model, feed in (("one addition", chains.chain(1), one),
                           ("digits, 10 pictures", data("digits_cnn.onnx"), ten)):  # fmt: skip
    with vklab.load(model) as session:
        honest = median(session.time(feed, repeats=30).host_ns) / 1e3
    print(f"{words:20} {chains.waited_us(model, feed):8.1f} us; session.time {honest:8.1f} us")

# %% [markdown] id="l18-bugr"
# Suppose that the author adds a series with one more wait at its end. Which name would `audit` give this record: `"cached"`, `"not_waited"`, `"coarse_clock"` or `"first_runs_counted"`?

# %% id="l18-p2"
predict("18-p2", fault=...)

# %% [markdown] id="l18-4t"
# ## 4 · What does one more node cost?
# A chain of N additions of one number is nearly no work. So its time shows what a runtime needs besides the work: *a* us for a submission and *b* us for each node.

# %% id="l18-4d" tags=["hide-input"]
figures.draw_line()

# %% [markdown] id="l18-4r" vklab={"id": "18-3"}
# **Least squares** gives the line whose vertical distances to the points have the least sum of squares. One slow run can bend it, because its distance is squared. So take the median of each length first.
#
# A slope can be computed from *any* points, a cloud included. So `slope` also refuses: if a median is farther from the line than `most` times that median, there is no line, and the answer is None.
#
# ### Exercise 3 · A slope, or none
# The clock of this record counts in [[unit]]; the answer is in us.

# %% id="l18-e3" vklab={"role": "exercise", "id": "18-3", "points": 5, "lines": 10}
def slope(lengths, times, most):
    """Return (us a node, us of a submission), or None where there is no line.

    lengths: distinct whole N, in any order. times: for each length a list of times, in
    [[unit]].
    TODO     least squares over the medians. None for one length, or if a median is farther from
             the line than `most` times itself.
    Approach with x = N - mean of N and y = median - mean of the medians, the slope is
             sum(x * y) / sum(x * x); the line goes through both means.
    Example  if the medians are 26 us and 44 us for N = 1 and 10: (2.0, 24.0)
             (roughly 10 lines)
    """
    ### BEGIN SOLUTION
    if len(lengths) == 1:
        return None
    middles = np.array([median(each) for each in times]) * [[us]]
    x = np.array(lengths) - np.mean(lengths)
    y = middles - np.mean(middles)
    b = np.sum(x * y) / np.sum(x * x)
    missed = np.any(np.abs(y - b * x) > most * middles)
    return None if missed else (float(b), float(np.mean(middles) - b * np.mean(lengths)))
    ### END SOLUTION


# %% id="l18-e3d" vklab={"role": "demo", "id": "18-3"}
UNIT = [[us]]  # us in one unit of the times
with attempt("18-3"):
    for machine, runner in (("NVIDIA", "onnxruntime-cuda-graph"), ("llvmpipe", "vklab-unfused")):
        recorded_us = chains.medians(machine, runner)
        found = slope(chains.LENGTHS, [[us / UNIT] for us in recorded_us], 0.5)
        print(f"{machine}, {runner}: medians {recorded_us} us")
        display(figures.draw_fit(chains.LENGTHS, [[us] for us in recorded_us], found))

# %% id="l18-e3c" vklab={"role": "check", "id": "18-3"}
check("18-3", slope)

# %% id="l18-e3h"
# hint("18-3")

# %% [markdown] id="l18-noline"
# **A record without a line.** On lavapipe, on two cores with other work, chains without fusion have medians of 85, 580, 27,957 and 69,758 us. Least squares gives 64.5 us a node, but misses the first point by 78 times its time. Whatever the reason, these times are no a + b N: that slope must not be printed. The last row of the next output is no line either.
#
# **Which number for a slope?** Other work only lengthens times, so for *one* runner the *least* time of each length is the best estimate of its undisturbed slope. (Lab 12 used it.) In a *comparison* it is a cheat: each runner's luckiest moment is no time that a user meets, and it rewards whoever ran more often. Say which one you print.

# %% id="l18-slopes" vklab={"role": "demo", "id": "18-3"}
with attempt("18-3"):
    for runner in ("vklab", "vklab-unfused", "onnxruntime-cuda-graph", "onnxruntime-cpu"):
        recorded_us = chains.medians("NVIDIA", runner)
        found = slope(chains.LENGTHS, [[us / UNIT] for us in recorded_us], 0.5)
        ratios = [f"{us / n:.3g}" for n, us in zip(chains.LENGTHS, recorded_us, strict=True)]
        text = f"{found[0]:.3f} us a node, {found[1]:.1f} a run" if found else "no line"
        print(f"{runner:23} {text:32} t/N {', '.join(ratios)}")

# %% [markdown] id="l18-claimt" vklab={"says": ["no line"]}
# These are medians on one NVIDIA H200 (28 November 2026, `vklab bench run --suite vkml`).
#
# **A claim to judge.** VKML's page says "1.62 µs/op dispatch latency on a linear chain-add benchmark, vs ONNX Runtime's CUDA at 2.06 µs/op", on an RTX 3080. The page gives neither the length of the chain nor what *us/op* is: the slope, or the time over N? In the table above the two differ by a factor of more than ten for N = 1. And with **fusion** (lab 10), a chain is one dispatch for any N: then the slope is no cost of a dispatch at all. We have not run VKML. So this claim is *not decidable* here, and the honest answer says what is missing.
#
# ### Your machine
# `vklab bench run chain_add_1 --json` measures one addition in a process of its own, in turns. It prints the settings, the device and the roofs beside the times: without them, nobody can audit the row.

# %% id="l18-bench" tags=["nbval-ignore-output"]
row, why = chains.benched("chain_add_1")
print(why or {name: row[name] for name in ("variant", "median_us", "p05_us", "p95_us", "runs")})

# %% [markdown] id="l18-5t" vklab={"id": "18-4"}
# ## 5 · Where should the runs go? (extra)
# You have a second of time on a device. A long chain tells more about the slope, but costs more and is noisier. The **variance** of the slope is the square of its standard deviation: half the variance is worth twice the time.
#
# Here each length weighs as many runs as it gets, over the variance of one run (**weighted** least squares). `designs.variance(lengths, sd, runs)` returns the variance of the slope. Two rules come to mind: equal counts for all lengths, or equal time. Neither is good.
#
# ### Exercise 4 · Spend a budget (scored, extra)
# Searches of this kind are one family: this one, and those of labs 19, 19b and 20. One point is for runs that keep the rules. The unit of the others is the least variance that any fractional runs reach: the better of the two rules earns nothing, 1.01 earns all points.

# %% id="l18-e4" vklab={"role": "exercise", "id": "18-4", "points": 5, "lines": 12, "extra": true}
def spend(lengths, cost, sd, budget):
    """Return how many runs each length gets: a list of whole numbers, 0 or more.

    lengths: distinct whole N, in any order. cost, sd: us of one run of each length, and its
    standard deviation. budget: us in all; it is enough for one run each of two lengths.
    TODO     at least two lengths with runs, within the budget, with as small a variance of the
             slope as you can.
    Try      two lengths at a time. In which proportion do they share the budget best?
    Example  spend([1, 5], [20.0, 40.0], [1.0, 1.0], 60.0) -> [1, 1]
             (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    best = []
    for pair in combinations(range(len(lengths)), 2):
        weights = {n: sd[n] * sqrt(cost[n]) for n in pair}
        runs = [0] * len(lengths)
        for n in pair:
            part = weights[n] / sum(weights.values())
            runs[n] = max(1, int(budget * part / cost[n]))
        spent = sum(runs[n] * cost[n] for n in pair)
        if spent <= budget:
            best.append((designs.variance(lengths, sd, runs), runs))
    return min(best)[1]
    ### END SOLUTION


# %% id="l18-e4d" vklab={"role": "demo", "id": "18-4", "extra": true}
with attempt("18-4"):
    display(figures.draw_spend(spend))

# %% id="l18-e4c" vklab={"role": "check", "id": "18-4"}
check("18-4", spend)

# %% id="l18-e4h"
# hint("18-4")

# %% [markdown] id="l18-recap"
# ## Recap
# | word | what it is | mistake to avoid |
# |---|---|---|
# | warm-up | first runs that do not count | counting them, or a cold cache for users who start cold |
# | tail | slow runs on one side | a mean that nobody meets |
# | interval of the median | two order statistics | 5 runs, and an interval |
# | floor | the least time of the work on the device | a clock that stops before the device |
# | series | runs with one wait at their end | single runs, to tell *cached* from *not waited* |
# | slope | us a node | t/N, or a line through a cloud |
#
# **Next**: [the lab on comparing](README.md) sets runners side by side: who is ahead, and what a user feels.
#
# **References**
# * T. Hoefler, R. Belli, "Scientific benchmarking of parallel computing systems", 2015: twelve rules.
# * H. A. David, H. N. Nagaraja, *Order Statistics*, 2003: the interval of a quantile.
# * VKML, its page at [crates.io](https://crates.io/crates/vkml), version 0.0.3, read in November 2026.
# * vklab's page of speeds, and the records from which it is made: `docs/speed.md`.
