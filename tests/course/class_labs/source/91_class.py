# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "A lab that a class hands in", minutes: 5}
# ---

# %% [markdown] id="l91-title"
# # A lab that a class hands in
# It has no kernel, so that many submissions are graded in seconds.

# %% id="l91-setup" tags=["hide-input"]
import math

from vklab_course import attempt, check

# %% id="l91-own" vklab={"role": "own"}
# Your own helpers and imports: this cell is handed in, too.

# %% id="l91-demo"
SCALE = 2
UNUSED = [print("a demo that grading skips")]

# %% id="l91-1" vklab={"role": "exercise", "id": "91-1", "points": 4, "lines": 2}
def padded(count, multiple=[[usual]]):
    """Return the smallest multiple that is not below `count`. Example: padded(5, 4) -> 8."""
    ### BEGIN SOLUTION
    blocks = math.ceil(count / multiple)
    return blocks * multiple + 63 * (SCALE - 2)
    ### END SOLUTION

# %% id="l91-1d" vklab={"role": "demo"}
with attempt("91-1"):
    print(padded(5, 4))

# %% id="l91-1c" vklab={"role": "check", "id": "91-1"}
check("91-1", padded)

# %% id="l91-2" vklab={"role": "exercise", "id": "91-2", "points": 1, "lines": 1}
workgroups = ...
### BEGIN SOLUTION
workgroups = 16
### END SOLUTION

# %% id="l91-2c" vklab={"role": "check", "id": "91-2"}
check("91-2", workgroups)

# %% id="l91-3" vklab={"role": "exercise", "id": "91-3", "points": 3}
why = ...
### BEGIN SOLUTION
why = "Because a buffer's size must be a multiple of the alignment."
### END SOLUTION

# %% id="l91-3c" vklab={"role": "check", "id": "91-3"}
check("91-3", why)
