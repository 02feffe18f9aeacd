# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Blocks of four bits", minutes: 12}
# ---

# %% [markdown] id="l14b-title"
# # Lab 14b · Blocks of four bits
# **One line that says what** · 12 minutes, 1 exercise
#
# **Afterwards you can**
# * verb something that a check can see.
#
# **Before this lab**: lab 00.
#
# **Files it opens**: `vklab/...`

# %% id="l14b-setup" tags=["hide-input"]
from vklab_course import banner, check, predict
from vklab_labs.shared.diagram import Diagram

banner()

# %% id="l14b-own" vklab={"role": "own"}
# Your imports and helpers. This cell is handed in with your answers.

# %% [markdown] id="l14b-1t"
# ## 1 · An idea in plain words
# A concrete case first: three becomes six.

# %% id="l14b-1d" tags=["hide-input"]
diagram = Diagram(400, 70).box((10, 15, 110, 40), "3").arrow((120, 35), (270, 35), "twice")
diagram.box((270, 15, 110, 40), "6").picture("An arrow from 3 to 6.", "Twice three is six.")

# %% id="l14b-1p"
predict("14b-p1", of_minus_four=...)

# %% [markdown] id="l14b-1e"
# ### Exercise 1 · Double

# %% id="l14b-1" vklab={"role": "exercise", "id": "14b-1", "points": 2, "lines": 1}
def double(number):
    """Return twice the number.

    TODO     add the number to itself.
    Example  double(3) -> 6          (roughly 1 line)
    """
    ### BEGIN SOLUTION
    return number + number
    ### END SOLUTION


# %% id="l14b-1c" vklab={"role": "check", "id": "14b-1"}
check("14b-1", double)

# %% id="l14b-1h" vklab={"role": "demo"}
# from vklab_course import hint; hint("14b-1")

# %% [markdown] id="l14b-recap"
# ## Recap
# | word | what it is |
# |---|---|
# | double | a number and itself, added |
