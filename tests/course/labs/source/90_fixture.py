# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "A lab for the tests", minutes: 30}
# ---

# %% [markdown] id="l90-title"
# # A lab for the tests
# 30 minutes.
#
# It has one exercise of each kind, so that every gate can be tried on it.

# %% id="l90-setup" tags=["hide-input"]
import numpy as np

import vklab
from vklab_course import Run, attempt, banner, check, run_kernel, show, swap

# %% id="l90-banner"
banner()

# %% id="l90-show"
show(vklab.plan.memory.round_up)

# %% id="l90-own" vklab={"role": "own"}
# Your imports and helpers.

# %% [markdown] id="l90-1t"
# ## Rounding up
# A buffer's size grows to the next multiple of the alignment.


# %% id="l90-1" vklab={"role": "exercise", "id": "90-1", "points": 4, "lines": 3}
def round_up(count, multiple=[[usual]]):
    """Return the smallest multiple that is not below `count`.

    TODO     divide, rounding up; multiply again. Raise ValueError if `multiple` is not positive.
    Example  round_up(257, 256) -> 512          (roughly 3 lines)
    """
    ### BEGIN SOLUTION
    if multiple < 1:
        raise ValueError(f"multiple={multiple} is not positive")
    return (count + multiple - 1) // multiple * multiple
    ### END SOLUTION


# %% id="l90-1d" vklab={"role": "demo"}
with attempt("90-1"), swap("vklab.plan.memory.round_up", round_up):
    print([vklab.plan.memory.round_up(size, 64) for size in (1, 64, 65)])

# %% id="l90-1c" vklab={"role": "check", "id": "90-1"}
check("90-1", round_up)

# %% [markdown] id="l90-2t"
# ## A kernel
# Every element of `y` becomes `factor` times the element of `x`.

# %% id="l90-2" vklab={"role": "exercise", "id": "90-2", "points": 3, "lines": 2}
SCALE = """
#version 450
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 0) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint count; float factor; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    // ### BEGIN SOLUTION
    if (i < count)
        y[i] = factor * x[i];
    // ### END SOLUTION
}
"""

# %% id="l90-2d" vklab={"role": "demo"}
with attempt("90-2"):
    x = np.arange(5, dtype=np.float32)
    push = {"count": 5, "factor": 3.0}
    done = run_kernel(SCALE, Run({"X": x, "Y": np.zeros_like(x)}, (1,), push))
    print(done[0].status, done[0].out_of_bounds)

# %% id="l90-2c" vklab={"role": "check", "id": "90-2"}
check("90-2", SCALE)

# %% [markdown] id="l90-3t"
# ## A value
# How many workgroups of 64 cover 1000 elements?

# %% id="l90-3" vklab={"role": "exercise", "id": "90-3", "points": 1, "lines": 1}
workgroups = ...
### BEGIN SOLUTION
workgroups = 16
### END SOLUTION

# %% id="l90-3c" vklab={"role": "check", "id": "90-3"}
check("90-3", workgroups)

# %% id="l90-hint"
# hint("90-1")
