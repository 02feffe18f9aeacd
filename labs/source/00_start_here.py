# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Start here"
#     minutes: 60
#     know: ["Python", "NumPy"]
# ---

# %% [markdown] id="l00-title"
# # Lab 00 · Start here
#
# You change a program for a GPU and see what it draws. Then a network reads ten handwritten digits on the same device.
#
# **Time:** about 60 minutes, without what is marked *extra*. **You need:** Python and a little NumPy; no GPU, and nothing about Vulkan.
#
# **Afterwards you can**
#
# * change a kernel, and say what invocations and workgroups are;
# * name the device in use, and say whether you can trust its results and its times;
# * read a doctor report, and put its repairs in order;
# * work with `predict`, `show`, `check` and `hint`;
# * find a bug that raises no error.
#
# **It opens** `vklab/apps/doctor/report.py`. The [glossary](GLOSSARY.md) explains new words.
#
# `vklab lab` copied all labs into the folder `work/`: **write there.** The same command brings you back tomorrow, and overwrites nothing. Run the cells from top to bottom: **Shift + Enter** runs one and goes to the next.

# %% [markdown] id="l00-draw"
# ## 1 · Three lines draw a picture
#
# A **kernel** is a small program that a device runs many times at once. Each of these runs is an **invocation**. Below are three lines of a kernel in **Slang**, a language that looks like C. Each of the picture's 64,000 pixels gets one invocation. It finds its position in `x`, from 0 (left) to 1 (right), and in `y`, from 0 (top) to 1 (bottom). Your lines set `red`, `green` and `blue`, from 0 to 1. Run the cell. The first picture takes some seconds.

# %% id="l00-draw1" tags=["nbval-ignore-output"]
from vklab_course import predict
from vklab_labs.lab_00.painting import paint

paint("""
red = x;
green = y;
blue = 0.5;
""")

# %% [markdown] id="l00-rings"
# Change a line **in the cell above**, and run it again: `blue = x * y;`, for example. Nothing can break: an error names your line, and a kernel that never ends is stopped.
#
# The next kernel draws rings: `far` is the distance from the middle. First make the rings wider, by one number. Then put `+ 6 * atan2(y - 0.5, x - 0.5)` behind `60 * far`.

# %% id="l00-draw2" tags=["nbval-ignore-output"]
paint("""
float far = distance(float2(1.6 * x, y), float2(0.8, 0.5));
red = 0.5 + 0.5 * sin(60 * far);
blue = y;
""")

# %% [markdown] id="l00-groups"
# A device gets invocations in **workgroups** of equal size: here 8 × 8 invocations, for 8 × 8 pixels. `id.x` is the number of the pixel from the left, `id.y` from the top. Both are whole numbers, so `id.x / 8` drops the rest. `% 2` is 0 for even numbers, and 1 for odd ones. So `(id.x / 8 + id.y / 8) % 2` is one number in a whole workgroup, and the other in its neighbours.
#
# The picture is 320 pixels wide. How many workgroups lie side by side? Write a number in place of the dots, then run the cell. A prediction is recorded, never marked.

# %% id="l00-p6"
predict("00-p6", workgroups=...)

# %% id="l00-draw3" tags=["nbval-ignore-output"]
paint("""
red = (id.x / 8 + id.y / 8) % 2;
green = x;
blue = y;
""")

# %% id="l00-setup" tags=["hide-input"] vklab={"define": true}
import numpy as np

import vklab
from vklab.apps import doctor
from vklab_course import attempt, banner, check, data, hint, predict, show, swap
from vklab_labs.lab_00 import batches, digits, runtime
from vklab_labs.lab_00 import doctor as report_figures

images, labels = digits.held_out()  # pictures that the network was not trained on
ten = [np.flatnonzero(labels == digit)[0] for digit in range(10)]  # one of each digit
MODEL = data("digits_cnn.onnx")

# %% id="l00-own" vklab={"role": "own"}
# This cell is yours: put your own imports and helper functions here. When you hand in a lab,
# your answers and this cell are collected. Other new cells are not.

# %% [markdown] id="l00-device"
# ## 2 · Which device is it?
#
# **Vulkan** is a standard for programs that use a GPU. Your notebook calls the **loader**, a library of the system. It reads **driver manifests**: small JSON files, each of which names the library of one **driver**. A driver knows one family of devices. A **layer** sees the calls on their way: the *validation layer* reports those that break a rule.
#
# Below the picture, `banner()` names your device.

# %% id="l00-layers" tags=["hide-input", "nbval-ignore-output"]
report_figures.draw_layers()

# %% id="l00-banner"
banner()

# %% [markdown] id="l00-cpu"
# The **last** brackets begin with the type of the device.
#
# * **discrete**: a GPU apart from the processor. **integrated**: a GPU on the processor's chip. **virtual**: a GPU of a virtual machine.
# * **cpu**: no GPU. The driver runs kernels on your processor. Mesa's *lavapipe* is such a driver, and it calls its device *llvmpipe*.
#
# A CPU device is good enough for this course. It takes the same commands as a GPU, and its results are as correct. But **its times say nothing about the speed of a GPU.**
#
# A laptop has an integrated and a discrete GPU. A driver for each is installed, and lavapipe. How many Vulkan devices does it list?

# %% id="l00-p1"
predict("00-p1", devices=...)

# %% id="l00-devices" tags=["nbval-ignore-output"]
vklab.devices()  # the devices of this machine

# %% [markdown] id="l00-choose"
# vklab chooses the device that is probably the fastest, and a CPU only if there is nothing else. The environment variable `VKLAB_DEVICE` names another one.
#
# ## 3 · Your first function
#
# | word | what it does |
# |---|---|
# | `show(thing)` | shows the real source of a function, a class or a kernel |
# | `check("00-1", answer)` | looks at your answer and says what it expected |
# | `hint("00-1")` | gives the next hint; each call says a little more |
# | `swap(path, mine)` | lets the **runtime** (the part of vklab that runs networks) call your function |
# | `use("00-4")` | returns, in a later lab, your own correct answer from `work/mine/`, or the runtime's own function |
#
# A verdict of `check` has one line for each **part**. A part that failed says on which input, what was expected, and what came. Check as often as you like. Hints are free.
#
# Two rules hold for every function that you write. It leaves its arguments as they are: change a copy. It returns what its text asks for: a tuple may stand for a list, a NumPy number for a number, 1 for `True`, but no generator for a list.
#
# If a mark stays `[*]`, its cell does not end: choose *Kernel › Interrupt Kernel*. (This *kernel* is the notebook's Python process.)

# %% [markdown] id="l00-1t" vklab={"id": "00-1"}
# ### Exercise 1 · From the camera to the network
#
# | | type | range | shape |
# |---|---|---|---|
# | the camera gives [[bits]] bits | `[[type]]` | 0 to [[white]] | [pictures, 28, 28] |
# | the network takes | `float32` | 0 to 1 | [pictures, 1, 28, 28] |
#
# The 1 in the shape is the number of channels. A grey picture has one channel; yours above had three.
#
# Below is a first try. Type, range, shape: which of the three will be right?

# %% id="l00-try" vklab={"id": "00-1"}
def first_try(pixels):
    return pixels / [[white]]

check("00-1", first_try)

# %% [markdown] id="l00-stub"
# Now write your own. An exercise starts as a *stub*: a function that raises `NotImplementedError`. Replace the line that begins with `raise`.

# %% id="l00-1" vklab={"role": "exercise", "id": "00-1", "points": 3, "lines": 1}
def to_input(pixels):
    """Return camera pictures as the network takes them.

    pixels: [[type]] [pictures, 28, 28], 0 is black and [[white]] is white.
    Returns float32 [pictures, 1, 28, 28], 0 is black and 1 is white.

    TODO      change the type, the range and the shape (roughly 1 line).
    Approach  begin with first_try, repair one difference at a time, and check after each.
    Example   a picture, every pixel [[third]] -> shape (1, 1, 28, 28), every number 0.333...
    """
    ### BEGIN SOLUTION
    return (pixels.astype(np.float32) / [[white]])[:, np.newaxis]
    ### END SOLUTION


# %% id="l00-1d" vklab={"role": "demo", "id": "00-1"} tags=["nbval-ignore-output"]
camera = np.rint(images[ten[:3], 0] * [[white]]).astype("[[type]]")  # as a camera gives them
with attempt("00-1", seconds=120):  # the first run of a network compiles kernels
    mine = to_input(camera)
    display(digits.draw_digits(mine, digits.logits_of(mine).argmax(axis=1), labels[ten[:3]],
                               "Above each picture: what the network reads in it."))

# %% id="l00-1c" vklab={"role": "check", "id": "00-1"}
check("00-1", to_input)

# %% id="l00-1h"
# hint("00-1")   # remove the first # and run the cell: each run gives one hint more

# %% [markdown] id="l00-doctor"
# ## 4 · A visit to the doctor
#
# When something does not work, ask the doctor. It checks the machine, from Python up to a kernel on every device. One missing loader shows up in several checks, because nothing behind it can be reached.

# %% id="l00-examine" tags=["nbval-ignore-output"]
machine = report_figures.readable(doctor.examine())  # readable: paths are shortened
machine

# %% [markdown] id="l00-marks"
# **ok**: it works. **note**: it works, and something optional is missing. **FAILED**: it does not work, and the line at *to repair* mends it. Where a check is **not essential**, vklab works all the same. The class below is one line of the report. Find what decides the mark.

# %% id="l00-show"
show(doctor.Check)

# %% [markdown] id="l00-broken"
# ### Exercise 2 · Repair a report
#
# The next report is made up. How many *different* repairs does it name for checks that failed and are essential?

# %% id="l00-brokenshow" tags=["nbval-ignore-output"]
report_figures.BROKEN_MACHINE

# %% id="l00-p2"
predict("00-p2", lines=...)

# %% id="l00-2" vklab={"role": "exercise", "id": "00-2", "points": 4, "lines": 5}
def repair_list(report):
    """Return the lines that repair a machine, the most urgent first.

    report: a doctor.Report. report.checks is a tuple of doctor.Check in the order of the report.
    A check has .ok, .essential and .repair ("" where there is nothing to type).
    Returns a list of str in three groups: first the repairs of checks that failed and are
    essential; then of checks that failed and are not; then of notes (ok, with a repair). Each group
    is in the report's order. A line that is needed several times is listed once, where it is first.

    TODO      collect the checks by group, take their repairs, drop doubles and "" (5 to 10 lines).
    Approach  three loops over report.checks, or one sort (sorted keeps equal items in order).
    Example   a failed essential check repaired by "driver", a note repaired by "layers", and a
              failed essential check repaired by "driver" -> ["driver", "layers"]
    """
    ### BEGIN SOLUTION
    urgent = [one.repair for one in report.checks if not one.ok and one.essential]
    soon = [one.repair for one in report.checks if not one.ok and not one.essential]
    someday = [one.repair for one in report.checks if one.ok]
    return [line for line in dict.fromkeys(urgent + soon + someday) if line]
    ### END SOLUTION


# %% id="l00-2d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("00-2"):
    mine = repair_list(report_figures.BROKEN_MACHINE)
    display(report_figures.draw_repairs(report_figures.BROKEN_MACHINE, mine))

# %% id="l00-2c" vklab={"role": "check", "id": "00-2"}
check("00-2", repair_list)

# %% id="l00-2h"
# hint("00-2")

# %% [markdown] id="l00-digits"
# ## 5 · Ten digits
#
# `digits_cnn.onnx` is a network that reads digits. 359 pictures were kept aside when it was trained. We take one of each digit.

# %% id="l00-session" tags=["hide-input", "nbval-ignore-output"]
runtime.draw_session()

# %% id="l00-p3"
predict("00-p3", right=...)  # how many of the ten does the network read right?

# %% id="l00-ten" tags=["nbval-ignore-output"]
with vklab.load(MODEL) as session:
    logits = session.run({"image": images[ten]})["logits"]
digits.draw_digits(images[ten], logits.argmax(axis=1), labels[ten], "What the network says about "
                   "ten new pictures, enlarged from 8 × 8 pixels.")

# %% [markdown] id="l00-lines"
# Two lines did the work.
#
# * `vklab.load` read the model, planned it for this device, and returned a **session**. It owns memory of the device, which the `with` block gives back.
# * `session.run` copied ten pictures to the device, ran kernels, and copied ten rows of ten **logits** back. The larger a logit, the more the network favours its digit.
#
# Are the numbers right? `session.check` runs the model in another program, **ONNX Runtime**, and compares every number.

# %% id="l00-agrees"
with vklab.load(MODEL) as session:
    comparison = session.check({"image": images})
print(len(images), "pictures, agrees with ONNX Runtime:", comparison.passed)

# %% [markdown] id="l00-batches" vklab={"id": "00-3"}
# ### How many pictures at a time? (extra)
#
# The pictures of one run are a **batch**. Many accelerators can run a network only for batch sizes that were prepared beforehand. If the sizes are 16 and 32, then 17 pictures need a run of 32 or two runs of 16. Both have 15 empty **rows** (places of pictures), which are computed like all others. Each run has a price, too: your program sends commands, and waits until they are done.

# %% id="l00-batchpicture" vklab={"id": "00-3"} tags=["hide-input", "nbval-ignore-output"]
batches.draw_batches(17, {"one run of 32": [32], "two runs of 16": [16, 16]}, 6,
                     "Two choices for 17 pictures. Blue: pictures. Orange: empty rows. Above both: "
                     "the batch size. Grey: the price of a run, here that of 6 rows.")

# %% [markdown] id="l00-3t" vklab={"id": "00-3"}
# ### Exercise 3 · A cheap choice of batches (scored, extra)
#
# An **extra** exercise is not in the 60 minutes, and nothing later needs it. In this one many answers are valid, and some are better. A run with batch size `b` costs `b + run`: its rows, and a price that is measured in rows. There are three obvious choices:
#
# * *only*: one size for all runs;
# * *largest first*: the largest size that is not larger than the rest, and at the end the smallest size;
# * *one for the rest*: the largest size, then one run for all that is left.
#
# A valid answer earns 1 point. The other 4 depend on its cost: none at the cheapest of these, all at the least that exists, a share between.

# %% id="l00-3" vklab={"role": "exercise", "id": "00-3", "points": 5, "lines": 5}
def choose_batches(pictures, sizes, run):
    """Return the batch sizes of runs that read all pictures, at a low cost.

    pictures: number of pictures, up to 400.  sizes: list of the prepared batch sizes.
    run: the price of a run. A run with batch size b costs b + run.
    Returns a list of sizes, repeated as needed, in any order. Their sum is at least `pictures`,
    and no run can be left out. No pictures need no run: []. The check asks for 15 lists and gives
    all of them 20 seconds together.

    TODO      find a valid list (1 line), or the one with the least cost (roughly 5 lines).
    Approach  first make it valid with one size; then try to do better than the picture shows.
    Example   choose_batches(17, [16, 32], 6) -> [32]            cost 38; [16, 16] costs 44
    """
    ### BEGIN SOLUTION
    best = [[]]  # the best list for 0, 1, 2, ... pictures
    for left in range(1, pictures + 1):
        tries = [[size, *best[max(left - size, 0)]] for size in sizes]
        best.append(min(tries, key=lambda runs: sum(runs) + run * len(runs)))
    return best[pictures]
    ### END SOLUTION


# %% id="l00-3d" vklab={"role": "demo", "id": "00-3"} tags=["nbval-ignore-output"]
with attempt("00-3"):
    sizes = [16, 32, 40]
    choices = batches.obvious_choices(100, sizes) | {"you": choose_batches(100, sizes, 6)}
    display(batches.draw_batches(100, choices, 6, f"100 pictures in batches of {sizes}.", sizes))

# %% id="l00-3c" vklab={"role": "check", "id": "00-3"}
check("00-3", choose_batches)

# %% id="l00-3h" vklab={"id": "00-3"}
# hint("00-3")

# %% [markdown] id="l00-where" vklab={"id": "00-4"}
# ## 6 · Inside the runtime (extra)
#
# On its way from a file to an answer, a model passes through six folders of `vklab/`. It is a list of **nodes**, the steps of its computation. Our network has ten: Conv, Relu, MaxPool, Conv, Relu, MaxPool, Flatten, Gemm, Relu, Gemm. Conv looks for small patterns, MaxPool keeps the largest number of each field of 2 × 2, and Gemm multiplies by a matrix. Each of these needs one **dispatch**: an order to run a kernel. Flatten changes the shape and no number, so nothing is computed. Relu turns negative numbers into 0; the kernel of the node before it does that, before it stores the number. One kernel for several nodes is called a **fused** kernel. How many dispatches does one run need?

# %% id="l00-p4" vklab={"id": "00-4"}
predict("00-p4", dispatches=...)

# %% id="l00-path" vklab={"id": "00-4"} tags=["nbval-ignore-output"]
with vklab.load(MODEL) as session:
    read = session.run({"image": images[ten]})["logits"]
    display(runtime.draw_path(session, read))

# %% [markdown] id="l00-folders" vklab={"id": "00-4"}
# ### swap
#
# The course has no second, simpler runtime: what `show` prints is what runs. So a lab can put your function into it. While a network runs, the result of each dispatch needs a place in the device's memory, and `vklab.plan.memory.assign_offsets` decides where. `swap` puts another function in its place, for one `with` block.

# %% id="l00-spy" vklab={"id": "00-4"} tags=["nbval-ignore-output"]
# First we only listen: print what is asked, and pass the question on to the real function.
real = vklab.plan.memory.assign_offsets


def listen(lifetimes, aliasing=True):
    for life in lifetimes:
        print(f"{life.name:10} {life.size_bytes:8,} bytes, steps {life.first} to {life.last}")
    return real(lifetimes, aliasing)


with swap("vklab.plan.memory.assign_offsets", listen):
    digits.logits_of(images[ten])

# %% [markdown] id="l00-lifetimes" vklab={"id": "00-4"}
# Each line is a `Lifetime`: the size of one value in bytes, the step (the number of the dispatch) that writes it, and the last step that reads it. A fused result has the name of its last node: `relu1` is the result of Conv and Relu. It is no longer needed when `relu2` is written. Both may use the same bytes, one after the other, and the real function makes use of that. (Five lines for six dispatches: the logits have a buffer of their own.)
#
# ### Exercise 4 · No shared bytes (extra)
#
# Write the simplest placement. It wastes memory on purpose: no value ever shares a byte with another. An offset must be a multiple of what the device asks for, and Vulkan allows no device to ask for more than 256.

# %% id="l00-4" vklab={"role": "exercise", "id": "00-4", "points": 4, "lines": 5}
def one_after_the_other(lifetimes, aliasing=True):
    """Return an offset for every value, and the bytes that all of them take together.

    lifetimes: a sequence of Lifetime with .name, .size_bytes, .first and .last.
    aliasing: the runtime passes it; you may ignore it.
    Returns (offsets, total): a dict from name to offset in bytes, and a number of bytes. Every
    offset is a multiple of 256, no two values share a byte, and the total is the sum of all sizes,
    each rounded up to a multiple of 256. An empty sequence gives ({}, 0).

    TODO      give every value the first free bytes; count on; return both (roughly 5 lines).
    Approach  keep the first free byte in a variable.
    Example   a of 100 bytes, b of 300 bytes -> ({"a": 0, "b": 256}, 768)
    """
    ### BEGIN SOLUTION
    offsets, free = {}, 0
    for life in lifetimes:
        offsets[life.name] = free
        free += vklab.plan.memory.round_up(life.size_bytes)
    return offsets, free
    ### END SOLUTION


# %% id="l00-4d" vklab={"role": "demo", "id": "00-4"} tags=["nbval-ignore-output"]
with attempt("00-4"), vklab.load(MODEL) as session:
    session.run({"image": images[ten]})
    theirs = session.plan.memory
    display(runtime.draw_placements(theirs, one_after_the_other(theirs.lifetimes),
                                    "The same values, placed by the runtime and by you. relu3 is "
                                    "small: it is a line at the steps 4 and 5."))

# %% id="l00-4c" vklab={"role": "check", "id": "00-4"}
check("00-4", one_after_the_other)

# %% id="l00-4h" vklab={"id": "00-4"}
# hint("00-4")

# %% [markdown] id="l00-4r" vklab={"id": "00-4"}
# Nothing has run on your placement yet. Now the real runtime works in the memory that you laid out. You cannot break anything: the runtime refuses a placement in which values that are needed at the same time share bytes. Will the logits be the same, to the last bit?

# %% id="l00-p5" vklab={"id": "00-4"}
predict("00-p5", same=...)  # True or False

# %% id="l00-4run" vklab={"id": "00-4"}
from vklab_labs.shared.offsets import verified  # looks at the offsets before a device does

with attempt("00-4"):
    before = digits.logits_of(images[ten])
    with swap("vklab.plan.memory.assign_offsets", verified(one_after_the_other)):
        after = digits.logits_of(images[ten])
    print("the same logits, to the last bit:", np.array_equal(before, after))

# %% [markdown] id="l00-4s" vklab={"id": "00-4"}
# The runtime can do this without your function, too: `VKLAB_DISABLE_ALIASING=1`. Most of its optimisations have such a switch, so that you can measure what they are worth; `vklab settings`, in a terminal, lists them.

# %% [markdown] id="l00-break"
# ## 7 · What would break this?
#
# The runtime refuses some mistakes. **Read the last line of an error first.**

# %% id="l00-refused" tags=["nbval-ignore-output"]
try:
    digits.logits_of(images[:1, 0])  # without the axis of channels
except vklab.ModelError as error:
    print(f"ModelError: {error}")

# %% [markdown] id="l00-silent"
# Other mistakes pass: names, types and shapes are right, but the *meaning* of the numbers is wrong. Each list below has **one line too many**. Without it the network reads 99 % of the photos right. They are `uint8`, white on black.
#
# The cell prints three symptoms. With ten digits, guessing gets 10 % right. *Spread* says how much the logits differ between pictures; a healthy network has about 8 here.

# %% id="l00-pipelines" vklab={"define": true}
photos = np.rint(images[:, 0] * 255).astype(np.uint8)  # uint8 [pictures, 28, 28]
preparations = {
    "A": ["x = photos[:, None]", "x = x / np.float32(255)", "x = x - x.mean()",
          "x = x.astype(np.float32)"],
    "B": ["x = photos.reshape(-1, 1, 28, 28)", "x = x / np.float32(255)", "x = x.clip(0, 1)",
          "x = x / 255"],
    "C": ["photos = photos.swapaxes(1, 2)", "x = photos[:, None]", "x = x.astype(np.float32)",
          "x = x / 255"],
    "D": ["x = photos.astype(np.float32)", "x = 255 - x", "x = abs(x) / 255", "x = x[:, None]"],
}

# %% id="l00-symptoms"
for name, lines in preparations.items():
    print(f"{name}: {digits.symptoms(lines)}")

# %% [markdown] id="l00-5t"
# ### Exercise 5 · A line too many
#
# Which line must go? Lines count from 1. The check asks for all four at once; grading counts each list. You may experiment: `digits.symptoms([...])` takes any list of lines.

# %% id="l00-5" vklab={"role": "exercise", "id": "00-5", "points": 3, "lines": 1}
line_too_many = ...  # {"A": number, "B": number, "C": number, "D": number}
### BEGIN SOLUTION
line_too_many = {"A": 3, "B": 4, "C": 1, "D": 2}
### END SOLUTION

# %% id="l00-5c" vklab={"role": "check", "id": "00-5"}
check("00-5", line_too_many)

# %% id="l00-5h"
# hint("00-5")

# %% [markdown] id="l00-5r"
# Three symptoms to remember:
#
# * **A little too low.** A few per cent less can be a bug.
# * **One answer for everything.** Look at the spread. Near 0, the network hardly sees its input.
# * **Worse than guessing.** The network misreads what it sees.
#
# Write down what numbers mean between two steps, as the docstrings of the exercises do.
#
# ## 8 · When you are stuck
#
# Read the last line of the message. Ask for a hint. Then *Kernel › Restart Kernel*, and run the setup cell, your own cell, and the cells of your section. If you ask somebody, send what `vklab doctor` prints in a terminal.
#
# ## Your readiness card
#
# Save your notebooks. `vklab course submit 00` then makes the file to hand in. Marks come from other cases of the same kind as those of `check`.

# %% id="l00-card" tags=["nbval-ignore-output"]
with vklab.load(MODEL) as session:
    display(report_figures.draw_card(session.device, machine, globals()))

# %% [markdown] id="l00-recap"
# ## What you take along
#
# | | |
# |---|---|
# | **A kernel** | a small program; one invocation for each pixel, in workgroups |
# | **The device** | a CPU device computes right, and its times say nothing about GPUs |
# | **A session** | `with vklab.load(model) as session:`, then `session.run({...})` |
# | **Silent mistakes** | names, types and shapes are checked; ranges and meanings are not |
#
# **Next:** [lab 04](04_first_dispatch.ipynb) writes whole kernels, with the frame around your three lines. On the path *machine learning*: [lab 09](09_onnx_graphs.ipynb), what is in the file of a network.
#
# To read on: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md). The digits are by E. Alpaydin and C. Kaynak (1998), [UCI](https://doi.org/10.24432/C50P49), CC BY 4.0.
