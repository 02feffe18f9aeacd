# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Start here", minutes: 60}
# ---

# %% [markdown] id="l00-title"
# # Lab 00 · Start here
#
# A network reads ten handwritten digits on the device of this machine, and you find out which
# device that is. On the way you meet the few words that every later lab is built from.
#
# **Time:** 60 minutes. **You need:** Python and a little NumPy; no GPU, nothing about Vulkan.
#
# **Afterwards you can**
#
# * name the device in use, and say what its results and its times are worth;
# * read a doctor report, and put its repairs in order;
# * work with `banner`, `show`, `check`, `hint` and `swap`;
# * count what a model gets right, and what it takes for what;
# * find your way through the folders.
#
# **Files it opens:** `vklab/doctor/report.py`, `vklab/plan/memory.py`.
#
# **How you got here:** `python3 -m vklab lab` made a Python environment, looked for a Vulkan driver,
# put a copy of every lab into the folder `work/`, and opened JupyterLab. The same command brings you
# back tomorrow; what you write in `work/` stays.
#
# Run the cells from the top, one after the other: **Shift + Enter**. The first cell imports what
# the lab needs; after a restart of the kernel, run it again.

# %% id="l00-setup" vklab={"define": true}
import numpy as np
from IPython.display import display

import vklab
from vklab import doctor, settings
from vklab.course import attempt, banner, check, data, hint, show, swap
from vklab.course.checks import lab_00_pictures as pictures

with np.load(data("digits.npz")) as digits:
    held_out = digits["held_out"]  # the pictures that the network was not trained on
    images, labels = digits["images"][held_out], digits["labels"][held_out]
ten = [np.flatnonzero(labels == digit)[0] for digit in range(10)]  # one of each digit

# %% [markdown] id="l00-device"
# ## 1. Which device is it?
#
# The next cell stands at the top of every lab. It names the device that this lab uses.

# %% id="l00-banner"
banner()

# %% [markdown] id="l00-cpu"
# Look at the first word in the last brackets: the type of the device.
#
# * **discrete** or **integrated**: a GPU, on a card of its own or on the processor's chip.
# * **virtual**: a GPU that this machine shares with others.
# * **cpu**: no GPU at all. A program plays one on your processor. Mesa's *lavapipe* and Google's
#   *SwiftShader* are such programs. (The device of lavapipe calls itself *llvmpipe*, after the part
#   of Mesa that does the computing: two names, one driver.)
#
# A CPU device is no cause for worry. It takes the same commands, runs the same kernels and gives
# results that are as right as those of a GPU. One thing it cannot do: **its times say nothing
# about the speed of a GPU.** Every lab works on it. Wherever a lab measures time, it reminds you.
#
# **Predict first:** how many Vulkan devices does this machine have? Many laptops have two.

# %% id="l00-devices" tags=["nbval-ignore-output"]
vklab.devices()

# %% [markdown] id="l00-choose"
# vklab takes the fastest device that it can use. You may choose another one: by its index or by a
# part of its name, in the environment variable `VKLAB_DEVICE` or as `vklab.load(model, device=1)`.
# Lab 02 opens this table and asks where each of its columns comes from.

# %% [markdown] id="l00-digits"
# ## 2. Ten digits
#
# `digits.npz` holds small pictures of handwritten digits. `digits_cnn.onnx` is a network that was
# trained to read them, with 359 pictures kept aside. We take ten of those 359, one of each digit.
#
# **Predict first:** how many of the ten does it read right?

# %% id="l00-ten" tags=["nbval-ignore-output"]
with vklab.load(data("digits_cnn.onnx")) as session:
    logits = session.run({"image": images[ten]})["logits"]

pictures.draw_digits(images[ten], logits.argmax(axis=1), labels[ten],
                     caption="What the network says to ten pictures that it has never seen.")

# %% [markdown] id="l00-lines"
# The 5 is read as a 9. Look at it closely before you smile at the network; in section 5 it stands
# among all that is read wrong. Two lines did the work:
#
# * `vklab.load` read the model, planned it for this device and returned a **session**. A session
#   holds memory of the device; the `with` block gives it back.
# * `session.run` copied ten pictures in, let the device run, and copied ten rows of ten numbers
#   out. These numbers are called *logits*: the larger, the more the network believes in that
#   digit. `argmax` picks the largest.
#
# Are the numbers right? That can be asked. `session.check` runs the same model a second time with
# ONNX Runtime on the processor and compares every number. Both add the same terms in different
# orders, so the last decimals differ; lab 17 says how much is too much.

# %% id="l00-agrees"
with vklab.load(data("digits_cnn.onnx")) as session:
    comparison = session.check({"image": images})
print(len(images), "pictures, agrees with ONNX Runtime:", comparison.passed)

# %% [markdown] id="l00-verbs"
# ## 3. Five words for every lab
#
# | word | what it does |
# |---|---|
# | `banner()` | names the device in use |
# | `show(thing)` | shows the real source of a function, a class or a kernel |
# | `check("00-1", answer)` | looks at your answer and says what it expected |
# | `hint("00-1")` | gives the next hint; each call says a little more |
# | `swap(path, mine)` | lets the runtime use your function instead of its own (section 6) |
#
# Two helpers stand in many cells, and you never have to write them: `data("digits.npz")` is the path
# of a file in `data/`, and `with attempt("00-1"):` runs what needs your answer to exercise 00-1. If
# there is none yet, or it fails, a note says so and the notebook goes on.
#
# You have met `banner`. Now `check` and `hint`, on a small task: a camera does not deliver what our
# network takes.
#
# | | type | range | shape |
# |---|---|---|---|
# | the camera gives | `uint8` | 0 to 255 | [pictures, 28, 28] |
# | the network takes | `float32` | 0 to 1 | [pictures, 1, 28, 28] |
#
# The 1 in the shape is the number of channels: grey has one, colour would have three.
#
# Here is somebody's first try. **Predict first:** which of the three differences does it take care
# of?

# %% id="l00-try"
def first_try(pixels):
    return pixels / 255


check("00-1", first_try)

# %% [markdown] id="l00-verdict"
# A verdict has a **status** and one line per **part**. Each part that failed says on which input,
# what was expected and what came. There are four statuses: *correct*, *incorrect*, *not attempted*
# (the stub is still there) and *skipped* (this device lacks something the exercise needs; that
# costs nothing).
#
# You may check as often as you like. Hints are free as well. This is the first of three:

# %% id="l00-hint"
hint("00-1", 1)

# %% [markdown] id="l00-1t"
# ### Exercise 1 · From the camera to the network
#
# An exercise starts as a *stub*: a function that raises `NotImplementedError`. Run the stub and
# the two cells below it once as they are, and see what *not attempted* looks like. Then replace
# the line with `raise` by your own.

# %% id="l00-1" vklab={"role": "exercise", "id": "00-1", "points": 3, "lines": 1}
def to_input(pixels):
    """Return camera pictures as the network takes them.

    pixels: uint8 [pictures, 28, 28], 0 is black and 255 is white.
    Returns float32 [pictures, 1, 28, 28], 0 is black and 1 is white.

    TODO      change the type, the range and the shape.
    Approach  begin with first_try, mend one difference at a time, and check after each.
    Example   a picture, every pixel 51 -> shape (1, 1, 28, 28), every number 0.2
    Length    roughly 1 line
    """
    ### BEGIN SOLUTION
    return (pixels.astype(np.float32) / 255)[:, np.newaxis]
    ### END SOLUTION


# %% id="l00-1d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
camera = np.rint(images[ten, 0] * 255).astype(np.uint8)  # the ten digits, as a camera gives them

with attempt("00-1"), vklab.load(data("digits_cnn.onnx")) as session:
    mine = to_input(camera)
    said = session.run({"image": mine})["logits"].argmax(axis=1)
    display(pictures.draw_digits(mine, said, labels[ten], caption="What your function made of "
                                 "the camera's pictures, and what the network reads in them."))

# %% id="l00-1c" vklab={"role": "check", "id": "00-1"}
check("00-1", to_input)

# %% [markdown] id="l00-doctor"
# ## 4. A visit to the doctor
#
# When something does not work, ask the doctor. It looks at the machine in the order in which it is
# built up, from Python to a kernel that adds three numbers on every device. Drivers can crash, so
# it touches them in a separate process.
#
# **Predict first:** is everything here that this course needs? Is there anything that you would
# have to install?

# %% id="l00-examine" tags=["nbval-ignore-output"]
pictures.readable(doctor.examine())  # readable: short paths, nothing else is changed

# %% [markdown] id="l00-marks"
# The first column has one of three marks.
#
# | mark | means | the line under *to repair* |
# |---|---|---|
# | **ok** | it works | is empty |
# | **note** | it works, something optional is missing | would add it |
# | **FAILED** | it does not work | would mend it |
#
# One more distinction: a check may be **not essential**, a broken driver beside one that works,
# say. It fails, and vklab works all the same. Here is the class that holds one line of the report.
# Find the property that decides the mark.

# %% id="l00-show"
show(doctor.Check)

# %% [markdown] id="l00-broken"
# ### A machine in need
#
# This report is made up. It has the faults that a bare Linux machine often has, all at once.
#
# **Predict first:** read it as a patient person would. How many *different* lines must be typed
# before anything runs? Which lines could wait?

# %% id="l00-brokenshow"
pictures.BROKEN_MACHINE

# %% [markdown] id="l00-2t"
# **Two** lines: the loader, without which nothing else can be found (three checks name this same
# cure), and a driver. Two others could wait: the GLSL compiler is not essential, and the note in the
# second row is no reason to begin with the validation layer. A good list of repairs says each line
# once, and the urgent ones first.
#
# ### Exercise 2 · Repair a report

# %% id="l00-2" vklab={"role": "exercise", "id": "00-2", "points": 4, "lines": 5}
def repair_list(report):
    """Return the lines that repair a machine, the most urgent first.

    report: a doctor.Report. report.checks is a tuple of doctor.Check in the order of the report;
    a check has .ok, .essential and .repair ("" where there is nothing to type).
    Returns a list or tuple of str: first the repairs of what failed and is essential, then of what
    failed and is not, then of notes (ok, but with a repair). Inside each group in the report's
    order. A line that is needed several times is listed once, where it comes first.

    TODO      collect the checks group by group, take their repairs, drop doubles and "".
    Approach  three rounds over report.checks, or one sort by urgency (sorted keeps ties in order).
    Example   A fails (essential) with "x", B is a note with "y", C fails with "x" -> ["x", "y"]
    Length    roughly 5 lines
    """
    ### BEGIN SOLUTION
    urgent = [one.repair for one in report.checks if not one.ok and one.essential]
    soon = [one.repair for one in report.checks if not one.ok and not one.essential]
    someday = [one.repair for one in report.checks if one.ok]
    return [line for line in dict.fromkeys(urgent + soon + someday) if line]
    ### END SOLUTION


# %% [markdown] id="l00-2p"
# The picture connects every check of the made-up machine with its place in *your* list.

# %% id="l00-2d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("00-2"):
    mine = repair_list(pictures.BROKEN_MACHINE)
    display(pictures.draw_repairs(pictures.BROKEN_MACHINE, mine))

# %% id="l00-2c" vklab={"role": "check", "id": "00-2"}
check("00-2", repair_list)

# %% [markdown] id="l00-2r"
# And your own machine? This is your function on the real report. An empty list is the best answer
# there is.

# %% id="l00-2real" tags=["nbval-ignore-output"]
with attempt("00-2"):
    mine = repair_list(pictures.readable(doctor.examine()))
    print("your list is empty" if len(mine) == 0 else mine)

# %% [markdown] id="l00-confusion"
# ## 5. What does it get wrong?
#
# Ten pictures are an anecdote. Here are all 359.

# %% id="l00-all"
with vklab.load(data("digits_cnn.onnx")) as session:
    logits = session.run({"image": images})["logits"]
right = logits.argmax(axis=1) == labels
print(f"{right.sum()} of {len(labels)} right, {100 * right.mean():.0f} %")

# %% [markdown] id="l00-3t"
# One number hides *which* digits are taken for *which*. A **confusion matrix** shows it. Row =
# what is true, column = what the network said. A picture of a 5 that is read as a 9 adds one to
# row 5, column 9. Whatever is right lands on the diagonal.
#
# **Predict first:** which digit will the network miss most often? And if it takes some 3 for a 5,
# does it also take some 5 for a 3?
#
# ### Exercise 3 · The confusion matrix

# %% id="l00-3" vklab={"role": "exercise", "id": "00-3", "points": 3, "lines": 4}
def confusion(labels, logits):
    """Return how often each true class was predicted as each class.

    labels: int64 [pictures], the true classes.  logits: float32 [pictures, classes].
    Returns counts [classes, classes], row = true class, column = predicted class: an array or a
    list of lists. Whole numbers; 2.0 will do for 2.

    TODO      find the predicted class of every picture; count the pairs (true, predicted).
    Approach  the prediction is the position of the largest logit of each row. Then start from
              zeros and add one for every picture.
    Example   labels [0, 2, 2], predicted [0, 1, 1], 3 classes -> [[1,0,0], [0,0,0], [0,2,0]]
    Length    roughly 4 lines
    """
    ### BEGIN SOLUTION
    table = np.zeros((logits.shape[1], logits.shape[1]), dtype=np.int64)
    for truth, row in zip(labels, logits, strict=True):
        table[truth, row.argmax()] += 1
    return table
    ### END SOLUTION


# %% id="l00-3d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("00-3"), vklab.load(data("digits_cnn.onnx")) as session:
    mine = confusion(labels, session.run({"image": images})["logits"])
    display(pictures.draw_confusion(mine, caption="Your count: blue is right, orange is wrong."))

# %% id="l00-3c" vklab={"role": "check", "id": "00-3"}
check("00-3", confusion)

# %% [markdown] id="l00-wrongt"
# The 3 is missed most often: once each it is taken for a 5, an 8 and a 9. No two digits are taken
# for each other both ways. With five mistakes in all, that may be chance: ten times as many pictures
# could tell.
#
# Look at the mistakes themselves before you blame the network. The 5 of section 2 is one of them.
# Would you have read them right?

# %% id="l00-wrong" tags=["nbval-ignore-output"]
with vklab.load(data("digits_cnn.onnx")) as session:
    said = session.run({"image": images})["logits"].argmax(axis=1)
missed = np.flatnonzero(said != labels)
pictures.draw_digits(images[missed], said[missed], labels[missed],
                     caption="Every picture that was read wrong: what was said, what is true.")

# %% [markdown] id="l00-where"
# ## 6. Where things are
#
# From a file to an answer, a model walks through six rooms. Two words first: a **kernel** is a small
# program that the device runs many times at once, and a **dispatch** is one order to run one. The
# numbers in the picture are those of a session that reads ten digits on your device.
#
# **Predict first:** the network has ten nodes, its layers and what stands between them. How many
# dispatches will that be?

# %% id="l00-path" tags=["nbval-ignore-output"]
with vklab.load(data("digits_cnn.onnx")) as session:
    read = session.run({"image": images[ten]})["logits"]
    display(pictures.draw_path(session, read))

# %% [markdown] id="l00-folders"
# One less: the node `Flatten` only gives the same numbers another shape, and nothing is computed for
# it. There are fewer kernels than dispatches, as both convolutions run the same one with other
# weights.
#
# | folder | what you find there |
# |---|---|
# | `work/` | **your copies of the labs; write here.** Nothing overwrites them |
# | `labs/` | the labs as they were given to you; leave them as they are |
# | `vklab/` | the runtime and the course: the rooms above, and `doctor/`, `course/` |
# | `shaders/` | the kernels: `ops/` of the runtime, `labs/` of the course |
# | `data/` | digits, models, and the scripts that made them |
# | `tests/` | how we know that all this works |
#
# There is no second, simpler runtime for teaching. Whatever `show` prints is what runs. So a lab
# can do more than talk about a function of the runtime: it can put another one in its place.
#
# ### swap
#
# While the network runs, each layer's result needs a place in the device's memory. A function
# decides where: `vklab.plan.memory.assign_offsets`. First we only listen at its door. The `with`
# block puts our function in its place; at the end of the block the real one is back, whatever
# happened inside.

# %% id="l00-spy" tags=["nbval-ignore-output"]
heard = []
real = vklab.plan.memory.assign_offsets


def listen(lifetimes, aliasing=True):
    heard.extend(lifetimes)
    return real(lifetimes, aliasing)


listening = swap("vklab.plan.memory.assign_offsets", listen)
with listening, vklab.load(data("digits_cnn.onnx")) as session:
    session.run({"image": images[ten]})

for life in heard:
    print(f"{life.name:10} {life.size_bytes:8,} bytes, alive from step {life.first} to {life.last}")

# %% [markdown] id="l00-lifet"
# Each line is a `Lifetime`, one value with its bytes and its time:

# %% id="l00-showlife"
show(vklab.plan.memory.Lifetime)

# %% [markdown] id="l00-lifetimes"
# So this is what the runtime asks: *these values, each of so many bytes, each alive from the step
# that writes it to the last step that reads it; where do they go?*
#
# Look at the steps. The first value is dead long before the last one is written. Both may have the
# same bytes, one after the other. The real function makes use of that; lab 11 is about how well.
#
# ### Exercise 4 · Every value for itself
#
# You write the simplest placement there is. It wastes memory on purpose: no value ever shares a
# byte with another. Then the whole runtime runs on your function. One rule is Vulkan's: an offset
# must be a multiple of what the device asks for. No device may ask for more than 256.

# %% id="l00-4" vklab={"role": "exercise", "id": "00-4", "points": 4, "lines": 5}
def one_after_the_other(lifetimes, aliasing=True):
    """Return an offset for every value, and the bytes that all of them take together.

    lifetimes: a sequence of Lifetime with .name, .size_bytes, .first and .last.
    aliasing: the runtime passes it; you may ignore it.
    Returns (offsets, total): a dict from name to offset in bytes, and a number of bytes. Every
    offset is a multiple of 256, no two values share a byte, and the total is the sum of all sizes,
    each rounded up to a multiple of 256. An empty sequence gives ({}, 0).

    TODO      give every value the first free bytes; count on; return both.
    Approach  keep the first free byte in a variable; vklab.plan.memory.round_up(300) is 512.
    Example   a of 100 bytes, b of 300 bytes -> ({"a": 0, "b": 256}, 768)
    Length    roughly 5 lines
    """
    ### BEGIN SOLUTION
    offsets, free = {}, 0
    for life in lifetimes:
        offsets[life.name] = free
        free += vklab.plan.memory.round_up(life.size_bytes)
    return offsets, free
    ### END SOLUTION


# %% id="l00-4d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
def plan_ten():
    """Return the memory plan for ten digits; nothing is run."""
    with vklab.load(data("digits_cnn.onnx")) as session:
        bound = vklab.graph.shapes.bind(session.graph, {"batch": 10})
        inputs = {info.name: info for info in bound.inputs}
        return vklab.plan.plan.make_plan(session.graph, inputs, [session.device]).memory


with attempt("00-4"):
    theirs = plan_ten()
    mine = one_after_the_other(theirs.lifetimes)
    display(pictures.draw_placements(theirs, mine, caption="The same values, placed by the runtime "
                                     "and by you. Dashed: the total, which the device must give."))

# %% id="l00-4c" vklab={"role": "check", "id": "00-4"}
check("00-4", one_after_the_other)

# %% [markdown] id="l00-4r"
# The plan is data; until now nothing has run on it. Now let the real runtime work in the memory that
# you laid out. You cannot break anything: the runtime looks at every placement before the device
# does, and refuses one in which values that are needed at the same time share bytes.
#
# **Predict first:** will the network read the digits differently?

# %% id="l00-4run"
with attempt("00-4"):
    with vklab.load(data("digits_cnn.onnx")) as session:
        before = session.run({"image": images})["logits"]
    mine = swap("vklab.plan.memory.assign_offsets", one_after_the_other)
    with mine, vklab.load(data("digits_cnn.onnx")) as session:
        after = session.run({"image": images})["logits"]
    print("the same logits, to the last bit:", np.array_equal(before, after))

# %% [markdown] id="l00-4s"
# Where a value lies does not change what it is. The runtime has this placement too, as a switch:
# `VKLAB_DISABLE_ALIASING=1`. Every optimisation of the runtime has such a switch, so that you can
# always ask what it is worth. `python3 -m vklab settings` lists them.

# %% [markdown] id="l00-break"
# ## 7. What would break this?
#
# First three mistakes that the runtime refuses. Each message says what the model wants and what it
# was given; often it says what to type. **Read the last line of an error first.**

# %% id="l00-refused"
one = images[:1]
for feed in ({"image": one.astype(np.float64)}, {"image": one[:, 0]}, {"picture": one}):
    with vklab.load(data("digits_cnn.onnx")) as session:
        try:
            session.run(feed)
        except vklab.ModelError as error:
            print(f"ModelError: {error}\n")

# %% [markdown] id="l00-nodevice"
# A device that does not exist is refused, too. `settings(DEVICE=...)` does in a `with` block what
# the environment variable `VKLAB_DEVICE` does for a whole process.

# %% id="l00-nodevicerun" tags=["nbval-ignore-output"]
with settings.settings(DEVICE="a device that is not here"):
    try:
        vklab.load(data("digits_cnn.onnx"))
    except vklab.SetupError as error:
        print(f"SetupError: {error}")

# %% [markdown] id="l00-silentt"
# Now three mistakes that nobody refuses: names, types and shapes are all right, only the *meaning*
# of the numbers is not.
#
# **Predict first:** order them by the harm they do. With ten digits, guessing gets 10 %.

# %% id="l00-silent"
mistakes = {
    "as it should be": images,
    "0 to 255, not 0 to 1": images * 255,
    "rows and columns exchanged": np.ascontiguousarray(images.swapaxes(2, 3)),
    "black on white": 1 - images,
}
with vklab.load(data("digits_cnn.onnx")) as session:
    for name, given in mistakes.items():
        said = session.run({"image": given})["logits"].argmax(axis=1)
        share = 100 * np.mean(said == labels)
        print(f"{name:28} {share:3.0f} % right, {len(np.unique(said)):2} different answers")

# %% [markdown] id="l00-silents"
# The first mistake is the mean one. A network of convolutions, ReLU and maxima mostly passes a
# factor through to its logits, and a factor does not change which of them is the largest. Only the
# biases, which are not multiplied, are drowned. So it loses a few digits and looks nearly fine. An
# accuracy that is *a little* too low can be a bug.
#
# With rows and columns exchanged, no picture looks like those that the network has learned, and all
# of them look most like a 4. The logits still differ from picture to picture, only the largest is
# always that of the 4. 36 of the 359 pictures are a 4, so that is 10 %. One answer for everything is
# as good as guessing.
#
# Black on white is *worse* than guessing. Who guesses has no opinion and is right one time in ten;
# this network has one, and it is wrong. It says 9 to two pictures of three, but only to 10 of the 36
# that are a 9. A share far below that of guessing says: something is seen, and misread.
#
# ### A bug to find
#
# Somebody wrote two functions. Both look right. Together they are not.
#
# **Your turn:** what is wrong, and in which line? Use the empty cell below the next one to print
# `photos.min()`, `photos.max()` and the same for `inputs`. There is no check here; the answer is
# folded below.

# %% id="l00-bug"
def read_photos():
    pixels = np.rint(images[:, 0] * 255).astype(np.uint8)
    return pixels / np.float32(255)


def prepare(photos):
    return photos.astype(np.float32)[:, None] / 255


photos = read_photos()
inputs = prepare(photos)
with vklab.load(data("digits_cnn.onnx")) as session:
    logits = session.run({"image": inputs})["logits"]
said = logits.argmax(axis=1)
print(f"{100 * np.mean(said == labels):.0f} % right; it says {np.unique(said).tolist()}")

# %% id="l00-bugprint"
# Print here what you want to know.

# %% [markdown] id="l00-buga"
# <details><summary><b>The answer</b> (click to unfold)</summary>
#
# `read_photos` divides by 255, and `prepare` divides again: the brightest pixel is 1/255. The
# pictures are nearly black. What remains are the biases, and they are the same for every picture:
# so is the answer. In your confusion matrix that is a single full *column*. Try
# `pictures.draw_confusion(confusion(labels, logits), "?")`.
#
# A single column says only that one answer always wins: pictures with rows and columns exchanged
# give one, too. What tells the two apart is whether the logits move at all. Here
# `logits.std(axis=0).max()` is about 0.01, so the network hardly sees its input; with rows and
# columns exchanged it is about 4.
#
# Either function alone is fine. Nobody had written down which range the numbers between them have.
# That is why the docstrings of the exercises always say it.
# </details>

# %% [markdown] id="l00-help"
# ## 8. When you are stuck
#
# 1. **Read the message**, its last line first. It names the input, what was expected and what
#    came.
# 2. **`hint("00-3")`** gives one hint more on every call; the last names the means.
# 3. **`show(...)`** the function that you are about to replace.
# 4. **Interrupt**: a cell that never ends (its mark stays `[*]`) is stopped by *Kernel › Interrupt
#    Kernel*.
# 5. **Restart**: *Kernel › Restart Kernel*, then run the setup cell and the cells of your section.
#    Cells that ran in another order leave old names behind.
# 6. **`python3 -m vklab doctor`** in a terminal is the report of section 4. If you ask somebody
#    for help, send its text along.
#
# ## Your readiness card
#
# The last picture is drawn from this machine and from your answers. Run it again whenever something
# has changed. For all labs together, `python3 -m vklab course progress` reads your saved notebooks
# and lists what is solved.

# %% id="l00-card" tags=["nbval-ignore-output"]
names = ("to_input", "repair_list", "confusion", "one_after_the_other")
verdicts = [check(f"00-{n}", globals().get(name, ...)) for n, name in enumerate(names, 1)]
report = pictures.readable(doctor.examine())
todo = ["see exercise 2"] if verdicts[1].status != "correct" else repair_list(report)

with vklab.load(data("digits_cnn.onnx")) as session:
    display(pictures.draw_card(report, session.device, verdicts, todo))

# %% [markdown] id="l00-recap"
# ## What you take along
#
# | | |
# |---|---|
# | **The device** | `banner()` names it; a CPU computes right and says nothing about GPU speed |
# | **The doctor** | ok, note, FAILED; essential or not; the line that repairs it |
# | **A session** | `with vklab.load(model) as session:`, then `session.run({...})` |
# | **The truth** | `session.check({...})` compares with ONNX Runtime on the processor |
# | **A verdict** | parts with points: on which input, what was expected, what came |
# | **swap** | the real runtime on your function, for one `with` block |
# | **Silent mistakes** | names, types and shapes are checked; ranges and meanings are yours |
#
# **Next:** lab 02 opens the list of devices and asks each what it can do. Lab 04 writes a kernel
# and sends it to the device in seven steps.
#
# **To read on**
#
# * The Vulkan specification on [device types][types], CPU among them.
# * The rule behind the 256 bytes: `minStorageBufferOffsetAlignment` under [required
#   limits][limits].
# * What the layers of the network compute: ONNX on [Conv][conv], [MaxPool][pool] and [Gemm][gemm].
# * The digits: E. Alpaydin and C. Kaynak (1998), *Optical Recognition of Handwritten Digits*,
#   [doi:10.24432/C50P49][digits], CC BY 4.0; `data/README.md` says what was changed.
#
# [types]: https://registry.khronos.org/vulkan/specs/latest/man/html/VkPhysicalDeviceType.html
# [limits]: https://docs.vulkan.org/spec/latest/chapters/limits.html
# [conv]: https://onnx.ai/onnx/operators/onnx__Conv.html
# [pool]: https://onnx.ai/onnx/operators/onnx__MaxPool.html
# [gemm]: https://onnx.ai/onnx/operators/onnx__Gemm.html
# [digits]: https://doi.org/10.24432/C50P49
