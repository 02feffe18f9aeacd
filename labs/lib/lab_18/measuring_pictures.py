"""Pictures of measuring: clocks, a distribution, an interval, an audit, a line, a design.

Visited by lab 18.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vklab_course.picture import Picture, picture
from vklab_labs.lab_18 import designs
from vklab_labs.lab_18.noise import draw_times, mean_interval
from vklab_labs.shared.diagram import COLOURS, Diagram

__all__ = ["draw_audit", "draw_clocks", "draw_distribution", "draw_fit", "draw_interval",
           "draw_line", "draw_spend"]  # fmt: skip


def draw_clocks() -> Picture:
    """Draw one run on host, queue and device, with three places where a clock may stop."""
    page = Diagram(700, 232)
    for row, name in enumerate(("host", "queue", "device")):
        page.note((6, 43 + 48 * row), name, bold=True)
    page.box((70, 24, 90, 32), "copy inputs", "blue").box((160, 24, 60, 32), "submit", "blue")
    page.box((220, 24, 300, 32), "wait (or do other work)", "grey", dashed=True)
    page.box((520, 24, 100, 32), "copy outputs", "blue")
    page.box((220, 72, 70, 32), "queued", "grey")
    page.box((290, 120, 200, 32), "kernels", "orange")
    page.arrow((220, 56), (228, 72)).arrow((290, 104), (294, 120)).arrow((490, 120), (520, 57))
    for x, words in ((220, "A"), (490, "B"), (620, "C")):
        page.line((x, 14), (x, 172)).note((x, 187), words, anchor="middle", bold=True)
    page.note((70, 187), "start", anchor="middle").line((70, 14), (70, 172))
    page.note(
        (6, 208),
        "A: submitted, nothing has been waited for.   B: the device has ended "
        "(its own timestamps).\nC: the outputs are here: what a caller feels.",
    )
    return page.picture(
        "Three lanes. The host copies inputs, submits, waits and copies outputs. The queue holds "
        "the work for a moment, then the device runs kernels. A clock may stop at A, after the "
        "submission; at B, when the device has ended; at C, when the outputs are copied.",
        "One run, time to the right. The same run has three times, by where the clock stops.",
    )


def _axes(width: float = 7.0, height: float = 3.0, columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def draw_distribution() -> Picture:
    """Draw times of the model of noise as a histogram, with median, mean and tail."""
    times = np.array(draw_times(np.random.default_rng(3), 2_000)) / 1e3
    figure, (axes,) = _axes()
    axes.hist(times, bins=np.arange(95, 1_000, 8).tolist(), color=COLOURS["sky"])
    middle, mean, late = float(np.median(times)), float(times.mean()), np.percentile(times, 95)
    for at, name, colour, line in (
        (middle, "median", "blue", "-"), (mean, "mean", "red", "--"),
        (float(late), "95th percentile", "green", ":"),
    ):  # fmt: skip
        axes.axvline(at, color=COLOURS[colour], linestyle=line, label=f"{name} {at:.0f} us")
    axes.set(xlabel="time of a run, us", ylabel="runs", yscale="log", xlim=(90, 1_000))
    axes.annotate("the tail", (620, 12), color="#222")
    axes.legend()
    return picture(
        figure,
        f"Most of 2,000 times lie near 104 us; a thin tail reaches 1,000 us. The median is "
        f"{middle:.0f}, the mean {mean:.0f}, the 95th percentile {late:.0f} us.",
        "2,000 runs drawn from the model. The vertical axis is logarithmic.",
    )


def _whole(samples: Sequence[float], least: int) -> list[float]:
    values = [float(value) for value in samples]
    if len(values) < least or not all(0 < value < np.inf for value in values):
        raise ValueError(f"expected {least} positive times or more")
    return values


def draw_interval(samples: Sequence[float], found: Any, percent: int = 95) -> Picture:
    """Draw the share of samples up to each time, with an interval of the median and of the mean.

    Args:
        samples: times in ns.
        found: the interval of the median, (low, high), or None.
        percent: the chance that it was asked for.
    """
    times = np.sort(_whole(samples, 2)) / 1e3
    of_mean = mean_interval(times.tolist()) or (0.0, 0.0)
    figure, (axes,) = _axes()
    axes.step(times, np.arange(1, len(times) + 1) / len(times), where="post", color="#222")
    if found is not None:
        low, high = (float(each) / 1e3 for each in found)
        axes.axvspan(low, high, color=COLOURS["blue"], alpha=0.3,
                     label=f"median, {low:.1f} to {high:.1f} us")  # fmt: skip
        told = f"{low:.1f} to {high:.1f}"
    else:
        told = "none"
    axes.axvspan(*of_mean, color=COLOURS["orange"], alpha=0.25, hatch="//",
                 label=f"mean, {of_mean[0]:.1f} to {of_mean[1]:.1f} us")  # fmt: skip
    axes.axhline(0.5, color=COLOURS["grey"], linestyle=":")
    axes.set(xlabel="time of a run, us", ylabel="share of runs up to it", ylim=(0, 1.02))
    if times[-1] > 2.5 * times[0]:
        axes.set_xscale("log")
    axes.legend(loc="lower right")
    return picture(
        figure,
        f"Steps from 0 to 1 over {len(times)} times. {percent} % interval of the median: {told} "
        f"us; of the mean: {of_mean[0]:.1f} to {of_mean[1]:.1f} us.",
        f"ECDF (empirical distribution) of {len(times)} times: the share of runs up to each time. "
        f"Blue: your {percent} % interval of the median. Hatched: mean and 1.96 s / root n.",
    )


def draw_audit(record: Mapping[str, Any], names: Any) -> Picture:
    """Draw both runners of a record: each run, the floor, the median and the reported number.

    Args:
        record: as `audit` takes it.
        names: the faults that the student's answer finds.
    """
    figure, panels = _axes(7.4, 3.1, 2)
    told = []
    for number, (axes, runner) in enumerate(zip(panels, record["runners"], strict=True)):
        times = np.array(_whole(runner["times"], 1)) / 1e3
        begins = (np.array(runner["begins"]) - min(map(min, _begins(record)))) / 1e6
        first = record["warm_up"]
        axes.plot(begins[:first], times[:first], "x", color=COLOURS["grey"], label="warm-up")
        axes.plot(begins[first:], times[first:], "o", color=COLOURS["blue"], label="counted")
        floor = 1e6 * max(runner["flops"] / record["flops_per_s"],
                          runner["bytes"] / record["bytes_per_s"])  # fmt: skip
        count, together = runner["series"]
        marks = (
            (floor, "floor", "red", "-"),
            (runner["reported"] / 1e3, "reported", "orange", "--"),
            (together / count / 1e3, "series / runs", "green", ":"),
        )
        for at, name, colour, line in marks:
            axes.axhline(at, color=COLOURS[colour], linestyle=line, label=name)
        axes.set(title=f"runner {number}", xlabel="begin, ms", yscale="log")
        told.append(
            f"runner {number}: median {median(times[first:]):.1f} us, "
            + ", ".join(f"{name} {at:.1f} us" for at, name, _, _ in marks)
        )
    panels[0].set_ylabel("time, us")
    panels[1].legend(fontsize=7)
    found = ", ".join(sorted(str(name) for name in names)) or "none"
    return picture(figure, "; ".join(told), f"One record. Your faults: {found}.")


def _begins(record: Mapping[str, Any]) -> list[Any]:
    return [runner["begins"] for runner in record["runners"]]


def draw_line() -> Picture:
    """Draw the line a + b N: a submission, and b for each node."""
    figure, (axes,) = _axes(6.4, 2.8)
    nodes = np.array([0, 20, 40, 60, 80, 100])
    axes.plot(nodes, 24 + 2.5 * nodes, "o-", color=COLOURS["blue"], label="a + b N")
    axes.axhline(24, color=COLOURS["grey"], linestyle=":")
    axes.plot([40, 60, 60], [124, 124, 174], color=COLOURS["red"], linestyle="--")
    axes.annotate("b for each node", (61, 140))
    axes.annotate("a: the submission, with its wait", (20, 32))
    axes.set(xlabel="N, nodes of the chain", ylabel="time of a run, us", ylim=(0, 300))
    return picture(
        figure,
        "A straight line of a run's time over the nodes of a chain. It meets the vertical axis at "
        "a = 24 us, and rises by b = 2.5 us a node.",
        "a + b N, with a = 24 us and b = 2.5 us. The time over N is b only for a very long chain.",
    )


def draw_fit(lengths: Sequence[int], times: Sequence[Sequence[float]], found: Any) -> Picture:
    """Draw medians and the line through them, and how far each median is from it.

    Args:
        lengths: N of each chain.
        times: times in us, a list for each length.
        found: (us a node, us of a submission), or None.
    """
    nodes = np.array(lengths, float)
    middles = np.array([median(_whole(each, 1)) for each in times])
    figure, (left, right) = _axes(7.4, 3.0, 2)
    left.plot(nodes, middles, "o", color=COLOURS["blue"], label="medians")
    told, misses = "no line", np.zeros(0)
    if found is not None:
        steep, start = (float(each) for each in found)
        grid = np.geomspace(nodes.min(), nodes.max(), 60)
        left.plot(grid, start + steep * grid, "--", color=COLOURS["red"], label="your line")
        misses = 100 * (middles - start - steep * nodes) / middles
        right.stem(np.arange(len(nodes)), misses)
        right.set_xticks(np.arange(len(nodes)), [f"{n:g}" for n in nodes])
        told = f"{start:.4g} us and {steep:.4g} us a node"
    else:
        right.set(xticks=[], yticks=[])
        right.annotate("no line", (0.5, 0.5), xycoords="axes fraction", ha="center")
    left.set(xscale="log", yscale="log", xlabel="N", ylabel="time, us")
    left.legend(fontsize=8)
    right.set(xlabel="N", ylabel="residual, % of the median")
    missed = ", ".join(f"{miss:.1f} %" for miss in misses)
    return picture(
        figure,
        f"Medians {', '.join(f'{m:.4g}' for m in middles)} us for N = "
        f"{', '.join(f'{n:g}' for n in nodes)}. {told}. Residuals: {missed or 'none'}.",
        f"Left: medians and line, on logarithmic axes. Right: residuals. Your answer: {told}.",
    )


def draw_spend(spend: Callable[..., Any], design: tuple[Any, ...] = designs.EXAMPLE) -> Picture:
    """Draw the variance of the slope against the budget, for a student's rule and two simple ones.

    Args:
        spend: the student's function.
        design: lengths, costs, deviations, and a budget.
    """
    lengths, cost, sd, budget = design
    budgets = [budget * share for share in (0.1, 0.2, 0.5, 1, 2, 5)]
    rules: dict[str, Callable[[float], Any]] = {
        "equal counts": lambda most: [int(most / sum(cost))] * len(cost),
        "equal time": lambda most: [int(most / len(cost) / us) for us in cost],
        "yours": lambda most: spend(list(lengths), list(cost), list(sd), most),
    }
    figure, (axes,) = _axes(6.4, 3.0)
    told = []
    for (name, rule), style in zip(rules.items(), ("s:", "^--", "o-"), strict=True):
        values = []
        for most in budgets:
            runs = rule(most)
            if flaw := designs.flaw(lengths, cost, most, runs):
                raise ValueError(flaw)
            values.append(designs.variance(lengths, sd, runs))
        colour = {"equal counts": "orange", "equal time": "sky", "yours": "blue"}[name]
        axes.plot([b / 1e3 for b in budgets], values, style, color=COLOURS[colour], label=name)
        told.append(f"{name}: {values[0]:.3g} to {values[-1]:.3g}")
    axes.set(xscale="log", yscale="log", xlabel="budget, ms", ylabel="variance of the slope, us²")
    axes.legend()
    return picture(
        figure,
        f"Variance of the slope for budgets of {budgets[0] / 1e3:g} to {budgets[-1] / 1e3:g} ms. "
        + "; ".join(told),
        "Variance against the budget, on logarithmic axes. Lower is better; every rule falls as "
        "one over the budget.",
    )
