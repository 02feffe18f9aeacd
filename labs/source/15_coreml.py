# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Core ML without a Mac"
#     minutes: 70
#     before: ["09"]
#     know: ["dictionaries", "`np.sort`"]
# ---

# %% [markdown] id="l15-title"
# # Lab 15 · Core ML without a Mac
# before 09

# %% id="l15-setup" tags=["hide-input"]
import functools
import itertools

import numpy as np
from IPython.display import display

from vklab_course import attempt, banner, check, data, hint, predict
from vklab_labs.lab_15 import packages, shapes

# %% id="l15-banner"
banner()

# %% id="l15-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% id="l15-e1" vklab={"role": "exercise", "id": "15-1", "points": 4, "lines": 9}
LEFT_OUT = ("const", "[[left_out]]")


def count_operators(program):
    """Return {type: count} of the operators of a program.

    TODO     all functions, and all blocks inside of operations; nothing that is in LEFT_OUT.
    Approach a function that counts one block, and calls itself for each block inside.
    Example  count_operators({"functions": {"main": {"operations": [
                 {"type": "const"}, {"type": "relu"},
                 {"type": "cond", "blocks": [{"operations": [{"type": "relu"}]}]}]}}})
             -> {"relu": 2, "cond": 1}                               (roughly 9 lines)
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


# %% id="l15-e1c" vklab={"role": "check", "id": "15-1"}
check("15-1", count_operators)

# %% id="l15-e2" vklab={"role": "exercise", "id": "15-2", "points": 4, "lines": 5}
def pooling_matrix(size, bins):
    """Return float32 [bins, size]: row i averages the elements of bin i.

    TODO     bin i has the elements floor(i size / bins) to ceil((i + 1) size / bins) - 1.
    Example  pooling_matrix(3, 2) -> [[0.5, 0.5, 0], [0, 0.5, 0.5]]   (roughly 5 lines)
    """
    ### BEGIN SOLUTION
    matrix = np.zeros((bins, size), np.float32)
    for row in range(bins):
        first, end = row * size // bins, -(-(row + 1) * size // bins)
        matrix[row, first:end] = 1 / (end - first)
    return matrix
    ### END SOLUTION


# %% id="l15-e2c" vklab={"role": "check", "id": "15-2"}
check("15-2", pooling_matrix)

# %% id="l15-e3" vklab={"role": "exercise", "id": "15-3", "points": 4, "lines": 2}
def can_flip(scores, error):
    """Return bool [rows]: may the class of a row change, if each score is off by `error` at most?

    scores: float32 [rows, classes], two classes or more. error: a float above 0.
    TODO     two scores move towards each other. A row exactly at the border is safe.
    Example  can_flip(np.array([[3, 1, 0], [3, 2.5, 0]], np.float32), 1.0) -> [False, True]
             (roughly 2 lines)
    """
    ### BEGIN SOLUTION
    ordered = np.sort(scores, axis=1)
    return ordered[:, -1] - ordered[:, -2] < 2 * error
    ### END SOLUTION


# %% id="l15-e3c" vklab={"role": "check", "id": "15-3"}
check("15-3", can_flip)

# %% id="l15-e4t" vklab={"id": "15-4"}
facts = packages.set_facts("[[set]]")
print(packages.clue_lines(facts))

# %% id="l15-e4" vklab={"role": "exercise", "id": "15-4", "points": 3, "lines": 3}
contents = ...  # {"P": (kind, target, precision, weights), "Q": ..., "R": ...}
### BEGIN SOLUTION
contents = [[right]]
### END SOLUTION

# %% id="l15-e4c" vklab={"role": "check", "id": "15-4"}
check("15-4", contents)

# %% id="l15-e5" vklab={"role": "exercise", "id": "15-5", "points": 5, "lines": 9}
def choose_shapes(sizes, most):
    """Return a sorted list of at most `most` lengths, with little padding.

    sizes: the lengths of the inputs. Each input is padded to the smallest length that holds it.
    TODO     the longest input must fit; add few elements. All cases together have 10 seconds.
    Example  choose_shapes([1, 2, 2, 9, 10], 2) -> [2, 10]
    """
    ### BEGIN SOLUTION
    lengths = sorted(set(sizes))
    # of the n shortest lengths: how many inputs have them, and how long they are together
    held = [0, *itertools.accumulate(sizes.count(each) for each in lengths)]
    added = [0, *itertools.accumulate(each * sizes.count(each) for each in lengths)]

    @functools.cache
    def least(end, count):
        if end == 0 or count == 0:
            return (0 if end == 0 else np.inf), ()
        top, found = lengths[end - 1], []
        for start in range(end):
            cost, below = least(start, count - 1)
            padded = top * (held[end] - held[start]) - (added[end] - added[start])
            found.append((cost + padded, (*below, top)))
        return min(found)

    return list(least(len(lengths), most)[1])
    ### END SOLUTION


# %% id="l15-e5c" vklab={"role": "check", "id": "15-5"}
check("15-5", choose_shapes)
