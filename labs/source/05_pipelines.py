# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Pipelines"
#     minutes: 90
#     before: ["04"]
#     know: ["dictionaries", "sets"]
# ---

# %% [markdown] id="l05-title"
# # Lab 05 · Pipelines
# **What a kernel takes, what is fixed when, and what is kept** · 90 minutes, 5 exercises, the last one extra
#
# A **pipeline** is a kernel that the driver has compiled for one device, together with a description of what the kernel takes. Making one costs milliseconds to seconds, so a program makes each pipeline once and keeps it. If the key under which it is kept forgets one number, the program runs a wrong kernel, and no call fails.
#
# **Afterwards you can**
# * find one layout for several kernels, or say why there is none;
# * compute the offsets of a struct by two sets of rules, and check them against SPIR-V;
# * choose between a define, a specialization constant and a push constant;
# * predict which request a cache answers;
# * say why the order of dispatches decides how often the pipeline changes.
#
# **Before this lab**: lab 04. You need dictionaries, sets and `-(-a // b)`, which divides and rounds up. At hand: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md).
#
# **Files it opens**: `vklab/shader/stock.py`, `vklab/runtime/kernels.py`, `vklab/runtime/program.py`.

# %% id="l05-setup" tags=["hide-input"] vklab={"define": true}
import json
import tempfile
from pathlib import Path

import numpy as np
from IPython.display import HTML

import vklab_labs.lab_05.creation as creation
import vklab_labs.lab_05.interfaces as interfaces
from vklab import settings
from vklab.base import draw
from vklab.runtime import open_devices
from vklab.shader import compiler
from vklab_course import Run, attempt, banner, check, data, hint, predict, run_kernel, show, swap
from vklab_course.children.kernel_answers import named
from vklab_labs.lab_05 import pipelines as figures
from vklab_labs.lab_05.ordering import EXAMPLE
from vklab_labs.shared.listings import draw_listings

# %% id="l05-banner"
banner()

# %% id="l05-own" vklab={"role": "own"}
# Your own imports and helper functions.

# %% [markdown] id="l05-1"
# ## 1 · What a kernel takes
# A kernel names its buffers by numbers, the **bindings**. A **descriptor** is an entry that says which buffer a number means; descriptors come in **sets**. *Before* it compiles the kernel, the driver must know which numbers a set has, and of which type each one is. That is the **descriptor set layout**. Together with the size of the push constants it is the **pipeline layout**.

# %% id="l05-binding" tags=["hide-input"]
figures.draw_binding()

# %% [markdown] id="l05-1r"
# **Reflection** reads this layout back from SPIR-V. Here are four kernels of the runtime. All their buffers are *storage buffers*: large, and writable if the kernel asks for it. Vulkan has other types, for example *uniform buffers*: small, read only, and on some devices read through a cache of their own.

# %% id="l05-reflect"
INTERFACES = {}
for kernel, defines in creation.KERNELS.values():
    facts = compiler.compile_variant(kernel, tuple(sorted(defines.items()))).reflection
    numbers = {name: binding.number for name, binding in facts.bindings.items()}
    print(f"{kernel}: {numbers}, {facts.push_bytes} bytes of push constants")
    INTERFACES[kernel] = dict.fromkeys(numbers.values(), "storage"), facts.push_bytes

# %% [markdown] id="l05-e1t"
# ### Exercise 1 · One layout for several kernels
# A **slot** is one number of a layout, with its type. One layout can serve several kernels: it may have more slots than a kernel uses, and a longer range than its push constants. The buffers then stay bound when the pipeline changes. Three rules:
#
# * a binding number that several kernels use has the same type in all of them;
# * there is one range of push constants for all: as long as the longest push-constant block, and no longer;
# * the device accepts at most `most_push` bytes. Vulkan 1.3 promises 128, Vulkan 1.4 promises 256.

# %% id="l05-e1" vklab={"role": "exercise", "id": "05-1", "points": 3, "lines": 7}
def common_layout(kernels, most_push):
    """Return (slots, push_bytes) of the smallest layout for all kernels, or None.

    kernels: a list of (bindings, push_bytes); bindings is {number: "storage" or "uniform"}.

    TODO     slots: a list of (number, type), sorted by the number. None if two kernels want
             different types at one number, or if a push-constant block is longer than most_push.
    Approach collect all slots in a dictionary; look for a contradiction before you add one.
    Example  common_layout([({0: "storage"}, 4), ({2: "uniform"}, 12)], 128)
             -> ([(0, "storage"), (2, "uniform")], 12)                      (roughly 7 lines)
    """
    ### BEGIN SOLUTION
    slots = {}
    for bindings, _ in kernels:
        for number, kind in bindings.items():
            if slots.setdefault(number, kind) != kind:
                return None
    push_bytes = max(size for _, size in kernels)
    return (sorted(slots.items()), push_bytes) if push_bytes <= most_push else None
    ### END SOLUTION


# %% id="l05-e1d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("05-1"):
    layout = common_layout(list(INTERFACES.values()), 128)
    display(figures.draw_common_layout(INTERFACES, layout, "Your layout for the four kernels."))

# %% id="l05-e1c" vklab={"role": "check", "id": "05-1"}
check("05-1", common_layout)

# %% id="l05-e1h"
# hint("05-1")

# %% [markdown] id="l05-2"
# ## 2 · Where a number lies
# Host and kernel share bytes, and nothing else. Each member of a struct in a buffer or in push constants has a fixed place, its **offset**, which the host must use, too. It is a multiple of the member's **alignment**, by one of two sets of rules:
#
# | member | bytes | alignment by `std430` | alignment by `scalar` |
# |---|---|---|---|
# | `float`, `uint` | 4 | 4 | 4 |
# | `float2` | 8 | 8 | 4 |
# | `float3` | 12 | **16** | 4 |
# | `float4` | 16 | 16 | 4 |
# | `half3` (2 bytes a component) | 6 | 8 | 2 |
# | array of `float3` | 16 (`std430`) or 12 (`scalar`) an element | 16 | 4 |
#
# `std430` is the default of Slang and GLSL for storage buffers and push constants. `scalar` must be asked for, and needs the device feature `scalarBlockLayout`, which every device with Vulkan 1.4 has. Uniform buffers follow a third set, `std140`, and the HLSL compiler `dxc` has a default of its own.

# %% id="l05-offsets-d" tags=["hide-input"]
figures.draw_two_rules()

# %% [markdown] id="l05-p1t"
# `gain` fills the room behind `low`: a `float3` has 12 bytes, although it is aligned like a `float4`. **Your guess first:** swap the members to `float3 low; uint count; float gain;`, by `std430`. Where is `gain`? In an array of such structs, how many bytes lie from one struct to the next? (The next struct begins at a multiple of the largest alignment of its members.)

# %% id="l05-p1"
predict("05-p1", gain=..., struct=...)

# %% [markdown] id="l05-e2t"
# ### Exercise 2 · Offsets
# A member is a tuple `(name, width, components, count)`: bytes of one component, number of components, and elements of an array, or `None` if the member is no array. An array of one element is an array, too.

# %% id="l05-e2" vklab={"role": "exercise", "id": "05-2", "points": 4, "lines": 10}
def offsets(members, rules):
    """Return ({name: offset}, bytes from one struct to the next in an array of structs).

    members: a list of (name, width, components, count); rules: "std430" or "scalar".

    TODO     by std430, one component is aligned to its width, two to twice, three and four to four
             times the width; by scalar, all to the width. An element of an array is rounded up to
             the alignment; the struct is rounded up to the largest alignment of its members.
    Approach walk through the members; keep the first free byte and the largest alignment.
    Example  offsets([("low", 4, 3, None), ("gain", 4, 1, None)], "std430")
             -> ({"low": 0, "gain": 12}, 16)                               (roughly 10 lines)
    """
    ### BEGIN SOLUTION
    places, free, largest = {}, 0, 1
    for name, width, components, count in members:
        align = width if rules == "scalar" else width * (1, 2, 4, 4)[components - 1]
        size = width * components
        if count is not None:
            size = -(-size // align) * align * count
        places[name] = -(-free // align) * align
        free = places[name] + size
        largest = max(largest, align)
    return places, -(-free // largest) * largest
    ### END SOLUTION


# %% id="l05-e2d" vklab={"role": "demo"}
LIGHT = [("position", 4, 3, None), ("power", 4, 1, None), ("colour", 2, 3, None),
         ("points", 4, 3, 1), ("weights", 4, 1, 3)]
with attempt("05-2"):  # your offsets, and those that SPIR-V holds for the same struct in Slang
    blocks = {rules: offsets(LIGHT, rules) for rules in ("std430", "scalar")}
    compiled = interfaces.reflected_blocks(LIGHT)
    for rules, mine in blocks.items():
        print(f"{rules}: you and the compiler agree: {tuple(mine) == compiled[rules]}")
    display(figures.draw_blocks(blocks, LIGHT))

# %% id="l05-e2c" vklab={"role": "check", "id": "05-2"}
check("05-2", offsets)

# %% id="l05-e2h"
# hint("05-2")

# %% [markdown] id="l05-3" vklab={"extra": true}
# ## 3 · Three routes to SPIR-V (optional)
# No later section needs this one. GLSL is the language of OpenGL; lab 04 compiled it for Vulkan. HLSL is the language of Direct3D; Slang began as an extension of it, so `slangc` reads most HLSL. The marked lines become the layout.

# %% id="l05-three" vklab={"extra": true} tags=["hide-input"]
draw_listings({name.upper(): text for name, text in interfaces.vector_adds().items()},
              ["StructuredBuffer", "binding", "push_constant"], "vector_add in three languages.")

# %% id="l05-routes" vklab={"extra": true} tags=["nbval-ignore-output"]
HTML(interfaces.routes_table())

# %% [markdown] id="l05-routes-r"
# The texts and the words of SPIR-V differ, and the layout is the same.
#
# ## 4 · Numbers that are fixed early
# There are three moments to supply a number from the host.

# %% id="l05-special-d" tags=["hide-input"]
figures.draw_specialized()

# %% [markdown] id="l05-4t"
# * A **define** changes the text: every value needs a compilation of its own.
# * A **specialization constant** has a number and a default value in SPIR-V. The host may replace the value when it makes the pipeline. The driver then compiles with a known number: it can unroll a loop, and drop a branch that is never taken. The size of a workgroup can be one, too.
# * A **push constant** is recorded before a dispatch, and neither compiler knows its value.
#
# In Slang a constant is declared so: `[vk::constant_id(0)] const uint TILE_M = 128;`. It is the first of eight in `matmul_tiled`, a kernel of the runtime. One SPIR-V module serves all tile sizes; each size needs a pipeline of its own. If the tile were a define, each size would need a module as well.

# %% [markdown] id="l05-e3t" vklab={"id": "05-3"}
# ### Exercise 3 · Specialise a kernel
# Many layers end with a bias and a ReLU: `y[i] = max(x[i] + bias[c], 0)`. From element to element, the channel `c` is 0, 1 ... `CHANNELS` - 1, then 0 again. `count` is the number of elements; the arrays may be longer. Some layers have no bias. Write *one* kernel for all of them, with three specialization constants:
#
# | name | type | default |
# |---|---|---|
# | `CHANNELS` | `uint` | [[channels]] |
# | `HAS_BIAS` | `bool` | `true` |
# | `WORKGROUP` | `uint` | [[group]] |
#
# Give each an id of its own. (The runtime finds constants by their names, as it finds buffers.) Without `HAS_BIAS` the kernel must not load from `bias`; the check counts loads. (`bias` stays in the layout, so the host must bind a buffer there all the same.)
#
# *GLSL instead?* Start with `#version 450`, and name the blocks `X`, `BIAS` and `Y`. A constant is `layout(constant_id = 0) const uint CHANNELS = ...;`. `WORKGROUP` needs two lines with one id: such a constant, because the runtime looks for its name, and `layout(local_size_x = [[group]], local_size_x_id = 2) in;`.

# %% id="l05-e3" vklab={"role": "exercise", "id": "05-3", "points": 5, "lines": 9}
BIAS_RELU = """
StructuredBuffer<float> x;
StructuredBuffer<float> bias;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;
// TODO     three specialization constants, by the table above                  (3 lines)
// ### BEGIN SOLUTION
[vk::constant_id(0)] const uint CHANNELS = [[channels]];
[vk::constant_id(1)] const bool HAS_BIAS = true;
[vk::constant_id(2)] const uint WORKGROUP = [[group]];
// ### END SOLUTION

[shader("compute")]
[numthreads(WORKGROUP, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     y[i] = max(x[i] + bias of the channel of i, 0); without HAS_BIAS, max(x[i], 0)
    // Example  CHANNELS = 2, x = [1, 1, 1], bias = [5, -5] gives y = [6, 0, 6]
    //                                                                         (roughly 6 lines)
    // ### BEGIN SOLUTION
    uint i = id.x;
    if (i < params.count) {
        float v = x[i];
        if (HAS_BIAS)
            v += bias[i % CHANNELS];
        y[i] = max(v, 0.0);
    }
    // ### END SOLUTION
}
"""

# %% id="l05-e3d" tags=["nbval-ignore-output"]
with attempt("05-3"):
    x, bias = np.arange(-4, 6, dtype=np.float32), np.arange(5, dtype=np.float32)
    arrays = named(BIAS_RELU, {"x": x, "bias": bias, "y": np.zeros(10, np.float32)})
    special = [{"CHANNELS": 5}, {"CHANNELS": 2, "WORKGROUP": 16}, {"HAS_BIAS": False}]
    runs = [Run(arrays, (1,), {"count": 10}, constants) for constants in special]
    print("x =", x.tolist(), " bias =", bias.tolist())
    for constants, done in zip(special, run_kernel(BIAS_RELU, runs), strict=True):
        if not done.buffers:
            raise RuntimeError(done.message)
        print(constants, "y =", list(done.buffers.values())[-1].tolist())

# %% id="l05-e3c" vklab={"role": "check", "id": "05-3"}
check("05-3", BIAS_RELU)

# %% id="l05-e3h"
# hint("05-3")

# %% [markdown] id="l05-5"
# ## 5 · Two caches
# A compiler makes SPIR-V of a text, and the driver makes code for the device of it. The runtime keeps both results. A **key** says when two requests may share one.

# %% id="l05-cache-d" tags=["hide-input"]
figures.draw_caches()

# %% [markdown] id="l05-cache-t"
# The first key is a digest of the text, the target (SPIR-V) and the defines, in any order. The runtime adds the version of the compiler to it.

# %% id="l05-key"
show("vklab.shader.stock.key")

# %% [markdown] id="l05-cache-r"
# The key of a pipeline, `made_key`, is a digest of the *SPIR-V words*, and the specialization constants that the request names, in any order. A request may leave a constant out; the driver then takes the default value.

# %% id="l05-made"
show("vklab.runtime.kernels.Kernels._make", at="made_key =", lines=4)

# %% [markdown] id="l05-p2t"
# Two requests differ in one thing only. Do they share a pipeline? Write True or False: they differ in the push constants; in the number of workgroups; one names a constant with its default value, and the other leaves it out; one text has a comment more (the words of SPIR-V stay the same).

# %% id="l05-p2"
predict("05-p2", push=..., workgroups=..., default_named=..., comment=...)

# %% [markdown] id="l05-e4t"
# ### Exercise 4 · Predict the hits
# A program makes the eight requests below, in this order, with the kernel `scale`. Between start 1 and start 2 the program ends and is started again. The folder on disk is empty at first, and everything that is compiled goes into it. The text `scale // tidy` is `scale` with a comment more; its words are the same. For each request, write where the SPIR-V comes from (`memory`, `disk` or `compiler`), and whether the pipeline is `made` or `reused`: for example `"disk, made"`. The check asks for all eight at once; grading counts each request.

# %% id="l05-scale" tags=["hide-input"]
draw_listings({"scale": interfaces.SCALE}, ["GROUP", "R *"],
              "R and S are defines, GROUP is a specialization constant, count a push constant.")

# %% id="l05-requests" vklab={"id": "05-4", "define": true}
STARTS = interfaces.requests_of("""
[[trace]]
""")
HTML(interfaces.requests_table(STARTS))

# %% id="l05-e4" vklab={"role": "exercise", "id": "05-4", "points": 4, "lines": 2}
# Write one answer for each request: hits = {"A": "compiler, made", "B": ...}
hits = ...
### BEGIN SOLUTION
hits = [[right]]
### END SOLUTION

# %% id="l05-e4c" vklab={"role": "check", "id": "05-4"}
check("05-4", hits)

# %% id="l05-e4h"
# hint("05-4")

# %% [markdown] id="l05-e4r"
# Now the runtime itself, after your prediction is right. The milliseconds are what compilation at run time costs: a hit in memory, a hit on disk, a process of the compiler; then the work of the driver. (The installed package vklab ships SPIR-V for the kernels that it knows.)

# %% id="l05-e4d" vklab={"id": "05-4"} tags=["nbval-ignore-output"]
with attempt("05-4", seconds=120):
    if check("05-4", hits).status != "correct":
        raise NotImplementedError("the check must accept your prediction first")
    rows = [(name, said, f"{spirv_ms:,.1f}", f"{pipeline_ms:,.1f}")
            for name, (said, spirv_ms, pipeline_ms) in interfaces.answer_requests(STARTS).items()]
    display(HTML(draw.table_html("The runtime", (
        "request", "answer", "SPIR-V, ms", "pipeline, ms"), rows)))

# %% [markdown] id="l05-swap"
# The next cell swaps in a key that forgets the defines, and compiles one text with `R=2` and with `R=3`. The second request gets the SPIR-V of the first: a wrong kernel, and no error.

# %% id="l05-swap-d"
with tempfile.TemporaryDirectory() as folder, settings.settings(DISABLE_CACHE=True), swap(
        "vklab.shader.stock.key", lambda text, defines, target: f"forgetful {len(text)}"):
    path = Path(folder) / "scale.slang"
    path.write_text(interfaces.SCALE, encoding="utf-8")
    two, three = (compiler.compile_variant(str(path), (("R", value), ("S", "1"))).spirv
                  for value in "23")
print("R=2 and R=3 are the same SPIR-V:", two == three)

# %% [markdown] id="l05-6"
# ## 6 · Cold and warm
# A driver may compile when the pipeline is *created*, or later, when it is *dispatched for the first time*. It may keep its results in files of its own, and in a **`VkPipelineCache`**, an object whose bytes the program can save and load.
#
# The next cell measures three kernels, each time in a fresh process: while both caches are empty (*cold*), with the driver's own files, and with a `VkPipelineCache` from an earlier process. Where is the time?

# %% id="l05-creation" tags=["nbval-ignore-output"]
with tempfile.TemporaryDirectory() as folder:
    creation.compile_kernels(Path(folder))
    info = open_devices.select()
    measured = {f"yours: {info.name}": creation.measure(Path(folder), info.index, processes=1)}
record = json.loads(data("recorded/pipelines_h200.json").read_text("utf-8"))
measured[f"recorded: {record['device']}"] = record["time_ns"]
print(f"recorded on {record['date']}, driver {record['driver']}; {record['made_by']}")
figures.draw_creation(measured, "Milliseconds; each equal step to the right is a factor of ten. "
                      "Yours is one process, so single numbers jump; the record is a median.")

# %% [markdown] id="l05-creation-r"
# On the recorded GPU, NVIDIA's driver compiles **at creation**: 6 to 35 ms without a cache, below 2 ms with either kind of cache. lavapipe, the driver for processors, translates the kernel at creation and compiles it **at the first dispatch**. Its own files save most of that. Into a `VkPipelineCache` it puts nothing (Mesa 22.3: only a header of 32 bytes).
#
# So a program that measures only `vkCreateComputePipelines` sees, on lavapipe, a small part of the cost, and one that makes its pipelines during its first run measures a compiler there, on every driver.
#
# A `VkPipelineCache` is valid for one driver on one device. Damaged bytes may crash the driver. So the runtime writes driver and device into the file's name, and a checksum into the file.
#
# ## 7 · Few pipeline changes
# Before a dispatch, its pipeline is **bound** by the command `vkCmdBindPipeline`, and stays bound until the next bind. The runtime leaves the command out where the pipeline is the same as before:

# %% id="l05-record"
show("vklab.runtime.program.Program._record_dispatch", at="if kernel is not bound", lines=2)

# %% [markdown] id="l05-7t"
# So the *order* of the dispatches decides how many binds there are. A dispatch that reads what another one writes must come later; everything else is free. (What a bind costs depends on the driver. On lavapipe we measured no difference between 2,000 small dispatches with and without binds.)


# %% id="l05-order-d" vklab={"id": "05-5"} tags=["hide-input"]
figures.draw_example()

# %% [markdown] id="l05-e5t" vklab={"id": "05-5"}
# ### Exercise 5 · An order with few binds (scored, extra)
# Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra. An arrow in the picture says that a dispatch must come later.
#
# The obvious rule is *longest run first*: bind the pipeline that can do the most dispatches now, do them all, and ask again. Of equal runs it takes the pipeline that comes first in the list. For these eight dispatches it needs 8 binds, one more than the order in which they are given; 5 are enough. Another rule, *lowest number first*, binds the pipeline of the first dispatch that is ready: 7.
#
# One point is for *valid* orders. Four points count binds, one for each list of dispatches. The better of the two rules earns nothing. The fewest possible binds earn the point, and an order in between earns a share of it. There are at most 24 dispatches of 6 pipelines, and your function has 30 seconds for all lists together.

# %% id="l05-e5" vklab={"role": "exercise", "id": "05-5", "points": 5, "lines": 9}
def finish(dispatches, done, pipeline):
    """Return the dispatches that one bind of a pipeline can do, in a valid order."""
    run, more = [], True
    while more:
        more = [name for name, (other, earlier) in dispatches.items() if other == pipeline
                and name not in done and name not in run and {*done, *run}.issuperset(earlier)]
        run += more
    return run


def few_binds(dispatches):
    """Return the names of all dispatches in an order with few binds.

    dispatches: {name: (pipeline, names of the dispatches that must come earlier)}. It may name a
        dispatch before one that must come earlier. 30 seconds for all lists of the check.

    TODO     a list with every name once, each after all of its earlier ones.
    Approach `finish` above says what one bind can do: doing all of it is never worse than stopping
             early. Which pipeline is next? First a rule; then compare several orders.
    Example  few_binds({"a": ("conv", ()), "b": ("relu", ()), "c": ("conv", ("a",))})
             -> ["a", "c", "b"]: 2 binds, and not 3                         (roughly 9 lines)
    """
    ### BEGIN SOLUTION
    pipelines = sorted({pipeline for pipeline, _ in dispatches.values()})
    orders = {frozenset(): []}
    while frozenset(dispatches) not in orders:
        longer = {}
        for done, order in orders.items():
            for pipeline in pipelines:
                run = finish(dispatches, done, pipeline)
                longer[done.union(run)] = order + run
        orders = longer
    return orders[frozenset(dispatches)]
    ### END SOLUTION


# %% id="l05-e5d" vklab={"role": "demo", "id": "05-5"} tags=["nbval-ignore-output"]
with attempt("05-5"):
    orders = {"as given": list(EXAMPLE), "yours": few_binds(EXAMPLE)}
    display(figures.draw_order(EXAMPLE, orders, "A thick mark is a bind."))

# %% id="l05-e5c" vklab={"role": "check", "id": "05-5"}
check("05-5", few_binds)

# %% id="l05-e5h" vklab={"id": "05-5"}
# hint("05-5")

# %% [markdown] id="l05-e5r"
# A **down-set** is a set of dispatches with everything that its members wait for. What an order has done so far is always a down-set, and only that set matters for the rest: a search over down-sets is exact, and much smaller than one over orders. (The order also decides barriers, lab 06, and the memory that is live, lab 11.)
#
# ## 8 · What would break this?
# The kernel below copies the power of each light into an array. The function around it packs the lights with NumPy. **One line is wrong.** **Your guess first:** which lights does the kernel read correctly? Count from 0, write True or False.

# %% id="l05-planted"
LIGHTS = """
struct Light { float3 position; float power; float3 colour; };
RWStructuredBuffer<Light> lights;
RWStructuredBuffer<float> powers;

[shader("compute")] [numthreads(4, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) { powers[id.x] = lights[id.x].power; }
"""


def read_powers(power):
    """Return the power of each of four lights, as the kernel reads it."""
    light = np.dtype([("position", "3f4"), ("power", "f4"), ("colour", "3f4")])
    lights = np.zeros(len(power), light)
    lights["power"] = power
    # 16 bytes more, so that the kernel reads inside of the buffer.
    buffers = {"lights": np.append(lights.view(np.float32), np.zeros(4, np.float32)),
               "powers": np.zeros(4, np.float32)}
    return run_kernel(LIGHTS, Run(buffers))[0].buffers["powers"].tolist()


# %% id="l05-p3"
predict("05-p3", light_0=..., light_1=..., light_2=..., light_3=...)

# %% id="l05-planted-run"
print(read_powers([1.0, 2.0, 3.0, 4.0]))

# %% [markdown] id="l05-planted-r"
# <details><summary>Which line?</summary>
#
# `light = np.dtype(...)`: NumPy packs without gaps, 28 bytes a light. By std430 the struct is aligned to 16, so the kernel finds the next light 32 bytes later. The dtype needs four more bytes at its end, `("gap", "f4")`. A test with one light cannot find this.
# </details>
#
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | descriptor set layout, pipeline layout | slots by number and type; with the range of push constants | 05-1 |
# | reflection | reading layouts, offsets and constants back from SPIR-V | sections 1 to 3 |
# | std430, scalar | two sets of rules for offsets; in std430 a `float3` has 12 bytes and is aligned to 16 | 05-2 |
# | define, specialization constant, push constant | fixed in the text, in the pipeline, in the dispatch | 05-3 |
# | key | says when two requests share a result; too short, and a result is wrong | 05-4 |
# | `VkPipelineCache` | what a driver has compiled, as bytes of the program | section 6 |
# | bind, down-set | one pipeline change; a set with all that its members wait for | section 7 |
#
# **Next**: [lab 06](06_synchronization.ipynb), barriers, semaphores and the validation layers.
#
# **To read**
# * Vulkan specification, chapters *Pipelines* (specialization constants, pipeline cache), *Resource Descriptors* (pipeline layout compatibility), *Shader Interfaces* (offset and stride assignment): <https://docs.vulkan.org/spec/latest/index.html>
# * DirectX Shader Compiler, *SPIR-V code generation*: <https://github.com/microsoft/DirectXShaderCompiler/blob/main/docs/SPIR-V.rst>
