# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Measuring", minutes: 12}
# ---

# %% [markdown] id="l18-title"
# # Lab 18 · Measuring
# **One line that says what** · 12 minutes, 1 exercise
#
# **Afterwards you can**
# * verb something that a check can see.
#
# **Before this lab**: lab 00.
#
# **Files it opens**: `vklab/...`

# %% id="l18-setup" tags=["hide-input"]
from vklab_course import banner, check, predict
from vklab_labs.shared.diagram import Diagram

banner()

# %% id="l18-own" vklab={"role": "own"}
# Your imports and helpers. This cell is handed in with your answers.

# %% [markdown] id="l18-1t"
# ## 1 · An idea in plain words
# A concrete case first: three becomes six.

# %% id="l18-1d" tags=["hide-input"]
diagram = Diagram(400, 70).box((10, 15, 110, 40), "3").arrow((120, 35), (270, 35), "twice")
diagram.box((270, 15, 110, 40), "6").picture("An arrow from 3 to 6.", "Twice three is six.")

# %% id="l18-1p"
predict("18-p1", of_minus_four=...)

# %% [markdown] id="l18-1e"
# ### Exercise 1 · Double

# %% id="l18-1" vklab={"role": "exercise", "id": "18-1", "points": 2, "lines": 1}
def double(number):
    """Return twice the number.

    TODO     add the number to itself.
    Example  double(3) -> 6          (roughly 1 line)
    """
    ### BEGIN SOLUTION
    return number + number
    ### END SOLUTION


# %% id="l18-1c" vklab={"role": "check", "id": "18-1"}
check("18-1", double)

# %% id="l18-1h" vklab={"role": "demo"}
# from vklab_course import hint; hint("18-1")

# %% [markdown] id="l18-recap"
# ## Recap
# | word | what it is |
# |---|---|
# | double | a number and itself, added |
