# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Choosing devices: what each one offers, and which one does the work"
#     minutes: 60
#     before: ["02"]
#     know: ["recursion"]
# ---

# %% [markdown] id="l02b-title"
# # Lab 02b · Choosing devices
# **Which device should do the work, and why not another one?** · 60 minutes, 3 exercises, the second one extra
#
# A program that computes with 16-bit numbers stops on a laptop with "error -8". Its author never saw that error: the author has another laptop. In this lab you ask what a device offers, name the first thing that it lacks, and choose devices.
#
# **Afterwards you can**
# * read the heaps, limits and features of a device;
# * name the first requirement that a device does not meet;
# * find two mistakes that only show on other people's machines, and mend them.
#
# **Before this lab**: lab 02, and for the extra exercise a function that calls itself (recursion). Four words of lab 02 are needed: an *instance* connects a program to the loader; a *physical device* is a GPU, or a processor in the role of one; a *handle* is a pointer that you give to Vulkan's calls; a *queue family* is a group of queues that do the same jobs. The [glossary](GLOSSARY.md) has all words.
#
# **Files it opens**: `vklab/vulkan/physical_device.py`, `vklab/runtime/open_devices.py`.

# %% id="l02b-setup" tags=["hide-input"]
import numpy as np
import vulkan as vk
from IPython.display import HTML
from onnx import TensorProto, helper  # to make a small model in section 5

import vklab
from vklab.base import draw
from vklab.vulkan.instance import Instance
from vklab_course import attempt, banner, check, hint, predict, show
from vklab_labs.lab_02 import devices as figures
from vklab_labs.lab_02 import objects
from vklab_labs.shared.machines import Needs, machine

connection = Instance()  # step 1 of lab 02 in one line; the last cell of the lab closes it
handles = connection.physical_devices()  # step 2

# %% id="l02b-banner"
banner()

# %% id="l02b-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l02b-memory-text"
# ## 1 · What a device offers
# **Memory.** A *heap* is a pool of memory with a size. A *memory type* is a way to allocate from one heap. Its flags say what you get. `device_local`: close to the device, `host_visible`: the processor can read and write it directly, `host_coherent`: what one side writes, the other sees without an extra call, `host_cached`: fast to read back.

# %% id="l02b-memory-picture" tags=["hide-input"]
objects.draw_memory()

# %% id="l02b-memory" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run the setup cell first"
FLAGS = ("DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED")
rows = []
for number, handle in enumerate(handles):
    memory = vk.vkGetPhysicalDeviceMemoryProperties(handle)
    for index in range(memory.memoryTypeCount):
        kind = memory.memoryTypes[index]
        heap = memory.memoryHeaps[kind.heapIndex]
        local = "device-local" if heap.flags & vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT else "host"
        names = [name.lower() for name in FLAGS
                 if kind.propertyFlags & getattr(vk, f"VK_MEMORY_PROPERTY_{name}_BIT")]
        rows.append((number, f"{kind.heapIndex}: {heap.size >> 20} MiB, {local}", index,
                     " ".join(names)))
HTML(draw.table_html("Heaps and memory types", ("device", "heap", "type", "flags"), rows))

# %% [markdown] id="l02b-limits-text"
# **Limits.** A device has more than a hundred limits. These shape nearly every kernel. A kernel runs many times at once: each run is an *invocation*, and a *workgroup* is a group of them that share memory. A larger `max...` is better; of an alignment the smaller value is better. The last column is what every device of Vulkan 1.3 must offer.
#
# | limit | means | every device |
# |---|---|---|
# | `maxComputeWorkGroupInvocations` | invocations in one workgroup, at most | 128 |
# | `maxComputeSharedMemorySize` | bytes of shared memory that a workgroup may declare | 16384 |
# | `maxStorageBufferRange` | bytes of a buffer that one binding may cover | 2^27, 128 MiB |
# | `maxPushConstantsSize` | bytes of the small numbers that come with the order to run a kernel | 128 |
# | `minStorageBufferOffsetAlignment` | a binding starts at a multiple of this | 256 or less |
#
# (Here a *binding* is a place where a kernel reads or writes a buffer.) **Features** are abilities that a device may lack, such as `shaderFloat16`: arithmetic with 16-bit floating-point numbers, *fp16* for short.

# %% id="l02b-limits" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run the setup cell first"
LIMITS = ("maxComputeWorkGroupInvocations", "maxComputeSharedMemorySize", "maxStorageBufferRange",
          "maxPushConstantsSize", "minStorageBufferOffsetAlignment")
kept = [vk.vkGetPhysicalDeviceProperties(handle) for handle in handles]  # .limits points into them
rows = [(name, *(getattr(properties.limits, name) for properties in kept)) for name in LIMITS]
HTML(draw.table_html("Limits", ("limit", *(f"device {n}" for n in range(len(handles)))), rows))

# %% [markdown] id="l02b-2text"
# ## 2 · Why a device is refused
# A program that stops with "error -8" helps nobody. vklab tests a device once, in a fixed order, and names what the first failed test misses. (`refusal`, below, has the first three tests of the picture.) The order matters: a user with an old driver should hear about the driver, not about one of the features that it lacks.

# %% id="l02b-questions-picture" tags=["hide-input"]
objects.draw_questions()

# %% id="l02b-refusal-show"
show(vklab.vulkan.physical_device.refusal)

# %% [markdown] id="l02b-e1-text"
# ### Exercise 1 · Say what is missing first
# Your program has requirements of its own. They are kept in a `Needs`:

# %% id="l02b-needs-show"
show(Needs)

# %% [markdown] id="l02b-e1-more"
# Two facts about memory matter here. An ordinary buffer lies in *one* heap, so a device with heaps of 256 and 16112 MiB has no room for 16200 MiB. And one binding covers at most `maxStorageBufferRange` bytes, so a kernel that reads a buffer of 200 MiB through one binding needs that limit, too: `Needs(at_least={"maxStorageBufferRange": 200 << 20}, heap_mib=200)`. To try your function, `machine("phone")` gives the devices of a made-up phone.

# %% id="l02b-e1" vklab={"role": "exercise", "id": "02b-1", "points": 4, "lines": 14}
def first_missing(device, needs):
    """Return the code of the first requirement that the device does not meet, or "".

    device: a DeviceInfo; needs: a Needs. In this order:
    TODO     "version"        its API version is older than needs.api_version (major, minor)
             "queue:compute"  no queue family has the flag needs.queue; the code ends in that flag
             "feature:NAME"   the first of needs.features that it lacks
             "limit:NAME"     the first limit of needs.at_least that is smaller, then the first
                              of needs.at_most that is larger
             "heap"           its largest device-local heap is smaller than needs.heap_mib MiB
    Approach one `if` or `for` for each line above, and return at once.
    Example  first_missing(machine("phone")[0], Needs(features=("shaderFloat16",)))
             -> "feature:shaderFloat16"
    Reads    device.api_version (three numbers), .queue_families, .features (a set of names),
             .limit("maxPushConstantsSize"), .heaps (each has .size_bytes and .device_local)
    Length   roughly 14 lines
    """
    ### BEGIN SOLUTION
    if device.api_version < needs.api_version:
        return "version"
    if not any(needs.queue in family.flags for family in device.queue_families):
        return f"queue:{needs.queue}"
    for name in needs.features:
        if name not in device.features:
            return f"feature:{name}"
    for name, value in needs.at_least.items():
        if device.limit(name) < value:
            return f"limit:{name}"
    for name, value in needs.at_most.items():
        if device.limit(name) > value:
            return f"limit:{name}"
    largest = max(heap.size_bytes for heap in device.heaps if heap.device_local)
    return "heap" if largest < needs.heap_mib * 2**20 else ""
    ### END SOLUTION


# %% [markdown] id="l02b-e1-park-text"
# One machine is not enough to test a decision. So here are nine devices of four made-up machines, and yours. They have traits of real devices: a heap split in two, an old driver, two equal cards, a device that only decodes video.

# %% id="l02b-e1-picture" vklab={"role": "demo"} tags=["nbval-ignore-output"]
park = [info for name in ("laptop", "server", "phone", "workstation") for info in machine(name)]
with attempt("02b-1"):
    needs = Needs(features=("shaderFloat16",), at_least={"maxComputeSharedMemorySize": 40000},
                  heap_mib=8000)
    display(figures.draw_capabilities(
        [*park, *vklab.devices()], lambda info: first_missing(info, needs),
        "Dark is much or yes, light is little or no. Needed: Vulkan 1.3, compute, fp16, 40000 "
        "bytes of shared memory, a heap of 8000 MiB. Below the video decoder: this machine."))

# %% id="l02b-e1-check" vklab={"role": "check", "id": "02b-1"}
check("02b-1", first_missing)

# %% id="l02b-e1-hint"
# hint("02b-1")

# %% [markdown] id="l02b-chain-text"
# ### Where new questions come from
# Vulkan 1.0 had no question about fp16. Its structures cannot grow. So Vulkan 1.1 added base structures whose names end in 2: each has a pointer `pNext`, and holds the old structure. Newer questions are structures that you hang onto a base through `pNext`.

# %% id="l02b-chain-picture" tags=["hide-input"]
objects.draw_chain()

# %% [markdown] id="l02b-chain-more"
# The cell asks two such questions. A **subgroup** is a part of a workgroup that the device handles together; its invocations can exchange values without memory. It has 32 invocations on NVIDIA and Apple, 32 or 64 on AMD, 8 to 32 on Intel, 8 on lavapipe with AVX2. For a feature, being listed is not enough: a program must also *enable* it when it opens the device. (To enable one that the device lacks gives error -8.)

# %% id="l02b-chain" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run the setup cell first"
rows = []
for handle in handles:
    subgroup = vk.VkPhysicalDeviceSubgroupProperties()
    base = vk.VkPhysicalDeviceProperties2(pNext=subgroup)  # both are held by variables
    vk.vkGetPhysicalDeviceProperties2(handle, base)
    modern = vk.VkPhysicalDeviceVulkan12Features()
    features = vk.VkPhysicalDeviceFeatures2(pNext=modern)
    vk.vkGetPhysicalDeviceFeatures2(handle, features)
    name = vk.ffi.string(base.properties.deviceName).decode()  # here it is a C array
    rows.append((name, subgroup.subgroupSize, bool(modern.shaderFloat16), bool(modern.shaderInt8)))
HTML(draw.table_html("Through pNext", ("device", "subgroup", "fp16", "int8"), rows))

# %% [markdown] id="l02b-extensions-text"
# A vendor publishes an *extension* under its own prefix, such as `NV` or `ARM`. Later a common one may follow, `EXT` or `KHR`, and a later version of Vulkan may take that into its core. So a program may have to look for one ability under several names. One at its beginning is [VK_ARM_data_graph](https://docs.vulkan.org/refpages/latest/refpages/source/VK_ARM_data_graph.html) (2025): a driver runs a whole graph of tensor operations as one pipeline.

# %% id="l02b-extensions-picture" tags=["hide-input"]
objects.draw_extensions()

# %% [markdown] id="l02b-3text"
# ## 3 · Choosing devices
# When you name no device, vklab takes the one that is *probably* the fastest: discrete before integrated before virtual before other before CPU, then the larger memory, then the larger workgroups. That is a guess from type and size; nothing is measured. `VKLAB_DEVICE` or `vklab.load(model, device=...)` overrides it. The next cell shows the function. Look at the last number of its tuple, `-info.index`: between two equal cards the choice follows the order in which the loader lists them, and lab 02 warned you about that order.

# %% id="l02b-speed-show"
show("vklab.runtime.open_devices._speed")

# %% [markdown] id="l02b-rent-text" vklab={"id": "02b-2"}
# With several programs the question changes. A company rents devices by the hour. Programs that share a device share its largest heap. The obvious way is to go through the programs, and to put each on a device that is rented already and has room, else to rent the cheapest that fits. (It may end with a program for which no device is left.)

# %% id="l02b-rent-picture" vklab={"id": "02b-2"} tags=["hide-input"]
ALL = ("A", "B", "C")
RENT = {"A": (50, 10000), "B": (52, 10000), "C": (30, 4000)}
WORK = {"p": (2000, ALL), "q": (2000, ALL), "r": (2000, ALL), "s": (3000, ALL), "t": (5000, ALL),
        "u": (2000, ALL), "v": (4000, ALL)}
obvious = {"p": "C", "q": "C", "r": "A", "s": "A", "t": "A", "u": "B", "v": "B"}
figures.draw_rented(RENT, WORK, obvious,
                    "The programs from p to v, each where it fits: three devices are rented.")

# %% [markdown] id="l02b-e2-text" vklab={"id": "02b-2"}
# ### Exercise 2 · Rent the devices (scored, extra)
# Two devices are enough for these seven programs. Find a cheaper choice than the obvious one, for any list of devices and programs. `sets_by_price` is given: it lists every set of devices, the cheapest first. Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra.
#
# One point is for *valid* choices, on small lists. The others count cents, one point each for the picture and three random lists: the obvious answer earns nothing, the cheapest possible choice earns the point, and a choice in between earns its share. The obvious answer is the cheapest of three: the rule above in the given order, the same rule with the largest program first, and one device for all.
#
# Rules of thumb find few of the cheap sets and earn little. Trying out earns more, and its limit is time: five devices and ten programs have 5^10, nearly ten million placements.

# %% id="l02b-e2" vklab={"role": "exercise", "id": "02b-2", "points": 5, "lines": 12}
from itertools import combinations


def sets_by_price(devices):
    """Return all sets of device names, the cheapest set first."""
    sets = [some for count in range(len(devices)) for some in combinations(devices, count + 1)]
    return sorted(sets, key=lambda some: sum(devices[name][0] for name in some))


def rent_devices(devices, programs):
    """Return a device for each program, so that the rented devices cost as little as possible.

    devices: {name: (cents an hour, MiB of its largest heap)}.
    programs: {name: (MiB, names of the devices that it runs on)}.
    TODO     return {program: device}. Each program is on a device that it runs on, and the
             programs on one device fit into its MiB together. A device that is used costs its
             price once; a device without a program costs nothing.
    Limits   at most five devices and ten programs. All lists of a check together take at most
             10 seconds; after that, the list in work and those behind it earn nothing.
    Approach go through sets_by_price(devices): is there room for all programs on that set?
    Example  rent_devices({"A": (7, 900), "B": (2, 500)}, {"p": (400, ("A", "B"))}) -> {"p": "B"}
    (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    def place(left, room):
        if not left:
            return {}
        size, runs_on = programs[left[0]]
        for name in runs_on:
            if room.get(name, 0) >= size:
                rest = place(left[1:], {**room, name: room[name] - size})
                if rest is not None:
                    return {left[0]: name, **rest}
        return None

    for names in sets_by_price(devices):
        found = place(list(programs), {name: devices[name][1] for name in names})
        if found is not None:
            return found
    ### END SOLUTION


# %% id="l02b-e2-picture" vklab={"role": "demo", "id": "02b-2"}
with attempt("02b-2"):
    display(figures.draw_rented(RENT, WORK, rent_devices(RENT, WORK),
                                "Your choice. With !: too much for the heap, or the wrong device."))

# %% id="l02b-e2-check" vklab={"role": "check", "id": "02b-2"}
check("02b-2", rent_devices)

# %% id="l02b-e2-hint" vklab={"id": "02b-2"}
# hint("02b-2")

# %% [markdown] id="l02b-4text"
# ## 4 · What would break this?
# **Bug 1.** The next function passed every test on its author's laptop. On a machine with a second GPU, kernels failed to be created.

# %% id="l02b-bug"
def workgroup_sizes(devices, wanted):
    """Return the invocations a workgroup for each device: as many as wanted, if it allows them."""
    most = devices[0].limit("maxComputeWorkGroupInvocations")
    return [min(wanted, most) for device in devices]


laptop, phone = machine("laptop"), machine("phone")
machines = {"laptop": laptop, "phone_first": phone + laptop, "laptop_first": laptop + phone}

# %% [markdown] id="l02b-bug-question"
# **Your guess first:** each device of the laptop allows 1024 invocations, the phone 256. `wanted` is 1024. In which of the three `machines` does each device get as many as it allows? Write True or False.

# %% id="l02b-p1"
predict("02b-p1", laptop=..., phone_first=..., laptop_first=...)

# %% id="l02b-bug-run"
for title, together in machines.items():
    allowed = [device.limit("maxComputeWorkGroupInvocations") for device in together]
    print(f"{title:13} as many as it allows: {workgroup_sizes(together, 1024) == allowed}")

# %% [markdown] id="l02b-version-text"
# **Bug 2.** A program wants Vulkan 1.2 or newer. It was written when 1.3 was new, and says `version >= "1.2"`. Version 1.10.0 is newer than 1.3.224. Which of these three comparisons are True?
#
# * packed: `VK_MAKE_VERSION(1, 10, 0) > VK_MAKE_VERSION(1, 3, 224)`
# * tuples: `(1, 10, 0) > (1, 3, 224)`
# * text: `"1.10.0" > "1.3.224"`

# %% id="l02b-p2"
predict("02b-p2", packed=..., tuples=..., text=...)

# %% [markdown] id="l02b-e3-text"
# ### Exercise 3 · Mend both
# The function below has both bugs. The two lines are given as comments. Mend them: write the two lines anew, in place of the line that raises.

# %% id="l02b-e3" vklab={"role": "exercise", "id": "02b-3", "points": 2, "lines": 2}
def mended_sizes(devices, wanted, oldest):
    """Return the invocations a workgroup for each device: as many as wanted, if it allows them.

    A device whose Vulkan is older than `oldest` gets 0.
    devices: DeviceInfo values, with .limit(name) and .api_version, three numbers.
    oldest: a text such as "1.2", "1.10" or "1.3.128".
    Example  for a device with Vulkan 1.10.0 and 256 invocations, wanted=1024, oldest="1.2": [256]
    """
    sizes = []
    for device in devices:
        # most = devices[0].limit("maxComputeWorkGroupInvocations")
        # new_enough = ".".join(map(str, device.api_version)) >= oldest
        ### BEGIN SOLUTION
        most = device.limit("maxComputeWorkGroupInvocations")
        new_enough = device.api_version >= tuple(int(number) for number in oldest.split("."))
        ### END SOLUTION
        sizes.append(min(wanted, most) if new_enough else 0)
    return sizes


# %% id="l02b-e3-try" vklab={"role": "demo"}
with attempt("02b-3"):
    print("the phone first: ", mended_sizes(phone + laptop, 1024, "1.2"))
    print("the laptop first:", mended_sizes(laptop + phone, 1024, "1.2"))

# %% id="l02b-e3-check" vklab={"role": "check", "id": "02b-3"}
check("02b-3", mended_sizes)

# %% id="l02b-e3-hint"
# hint("02b-3")

# %% [markdown] id="l02b-5text"
# ## 5 · A test dispatch on your choice
# A device that is listed is not yet a device that works. The last proof is to run something. The cell takes the first device that vklab and your `first_missing` accept. vklab opens it, compiles a kernel, adds two vectors of three numbers, and reads the sums back. The numbers are exact in binary, so the sums must be right to the last bit.

# %% id="l02b-dispatch" vklab={"role": "demo"}
def three_sums():
    """Return a model that adds two vectors of three numbers."""
    left, right, total = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3])
                          for name in ("left", "right", "total"))
    node = helper.make_node("Add", ["left", "right"], ["total"])
    graph = helper.make_graph([node], "three", [left, right], [total])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


with attempt("02b-1"):
    able = [info for info in vklab.devices()
            if not info.refusal and first_missing(info, Needs(heap_mib=16)) == ""]
    assert able, "no device meets your needs"
    with vklab.load(three_sums(), device=able[0].index) as session:
        total = session.run(np.float32([1.5, -2, 0.25]), np.float32([0.5, 3, -1]))["total"]
        print("ran on the device you chose:", session.devices[0].uuid == able[0].uuid)
        print("2, 1 and -0.75 to the last bit:", total.tolist() == [2.0, 1.0, -0.75])

# %% [markdown] id="l02b-cleanup-text"
# **Clean up.** The instance is closed last. Using a handle of a closed instance may end your kernel, so the cell empties `handles` first. To ask again, start at the setup cell.

# %% id="l02b-cleanup"
handles = []
connection.close()

# %% [markdown] id="l02b-recap"
# ## Recap
# | question | Vulkan's call | in vklab | mistake to avoid |
# |---|---|---|---|
# | how much memory? | `...MemoryProperties` | `.heaps`, `.memory_types` | adding up heaps |
# | how large may it be? | `VkPhysicalDeviceLimits` | `.limit("max...")` | device 0's limit for all |
# | what can it do? | `pNext` chains | `.features`, `.subgroup_size` | listed is not yet enabled |
# | is it new enough? | `apiVersion` | `.api_version` | comparing text |
# | may we use it? | your rules | `.refusal`, `device=...` | a message without a cause |
#
# **Next**: [lab 03](03_memory.ipynb) divides the memory of a device into buffers. The [glossary](GLOSSARY.md) has the words of all labs.
#
# **References**: the Vulkan specification on [Limits](https://docs.vulkan.org/spec/latest/chapters/limits.html), [Features](https://docs.vulkan.org/spec/latest/chapters/features.html), [Memory](https://docs.vulkan.org/spec/latest/chapters/memory.html), and *Version Numbers* in [Extending Vulkan](https://docs.vulkan.org/spec/latest/chapters/extensions.html).
