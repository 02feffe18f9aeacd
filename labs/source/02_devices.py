# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Devices: what is in this machine, and which one to use", minutes: 90}
# ---

# %% [markdown] id="l02-title"
# # Lab 02 · Devices
# **What is in this machine, and which one should do the work?** · 90 minutes, 5 exercises
#
# One binary, a thousand machines: the laptop beside you has two GPUs and a software driver, a
# server has several cards, a phone has one GPU without fp16. A Vulkan program asks before it acts. In
# this lab you ask every question that matters, first with the raw bindings, then with vklab, and
# then you write the code that decides.
#
# **Afterwards you can**
# * find Vulkan on a machine without any binding: loader, driver manifests, tools;
# * enumerate physical devices from `vkCreateInstance` on, one call a step;
# * read packed versions, vendor ids, queue families, heaps, memory types, limits, subgroups and
#   features;
# * choose queue families, and choose a device for a job, with ties broken the same way every time;
# * explain why a device is refused, and recognise two mistakes that only show on other people's
#   machines.
#
# **Before this lab**: lab 00. You need dictionaries, `sorted(key=...)`, and `>>` and `&` on
# integers.
#
# **Files it opens**: `vklab/doctor/detect.py`, `vklab/vulkan/api.py`, `vklab/vulkan/device.py`,
# `vklab/vulkan/physical_device.py`, `vklab/runtime/open_devices.py`.

# %% id="l02-setup"
import ctypes
import gc
import json
import os
import platform
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path

import numpy as np
import vulkan as vk
from IPython.display import HTML
from onnx import TensorProto, helper

import vklab
from vklab import draw
from vklab.course import attempt, banner, check, hint, picture, show, swap
from vklab.course.checks import lab_02_pictures as pictures
from vklab.course.figures.machines import Needs, families, machine
from vklab.doctor import detect
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance

opened = []  # the instances of your walk; the last cell of the lab closes them
instance, handles = None, []  # what steps 1 and 2 fill in

# %% id="l02-banner"
banner()

# %% [markdown] id="l02-1text"
# ## 1 · Is there a Vulkan here at all?
# A Vulkan program meets three things, in this order:
#
# | | what it is | Linux | Windows | macOS |
# |---|---|---|---|---|
# | **loader** | the library you call | `libvulkan.so.1` | `vulkan-1.dll` | `libvulkan.1.dylib` |
# | **manifest** | JSON that names a driver | `icd.d/*.json` | `*.json` | `icd.d/*.json` |
# | **driver** | the vendor's library | `libvulkan_*.so` | a `.dll` | `libMoltenVK.dylib` |
#
# On Windows the manifests are listed in the registry. The loader opens the drivers; your program
# never does.
#
# So a missing GPU has three causes, and each can be seen without any binding. `ctypes` ships with
# Python and opens libraries; that is enough to ask the loader for its version.
#
# **Predict first:** the loader answers with one 32-bit number. Will you be able to read a version
# off it?

# %% id="l02-loader" tags=["nbval-ignore-output"]
LOADERS = {"Windows": "vulkan-1.dll", "Darwin": "libvulkan.1.dylib"}
packed = ctypes.c_uint32()
try:
    loader = ctypes.CDLL(LOADERS.get(platform.system(), "libvulkan.so.1"))
    loader.vkEnumerateInstanceVersion(ctypes.byref(packed))
    print("the loader answers", packed.value, "=", hex(packed.value))
except OSError as error:
    print("no loader under this name:", error)

# %% [markdown] id="l02-tools-text"
# The number is *packed*: after exercise 2 your own function reads it. Two tools of the system know more.
# `ldconfig -p` lists the shared libraries that Linux finds by name. `vulkaninfo` is a program of
# the Vulkan SDK that asks everything this lab asks. Neither needs Python, so they are the first aid
# on a strange machine.

# %% id="l02-tools" tags=["nbval-ignore-output"]
ldconfig = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
if ldconfig:
    done = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, timeout=20)
    print(*sorted({line.split()[0] for line in done.stdout.splitlines() if "vulkan" in line}))
if shutil.which("vulkaninfo"):
    done = subprocess.run(["vulkaninfo", "--summary"], capture_output=True, text=True, timeout=60)
    print(*[line for line in done.stdout.splitlines() if "deviceName" in line], sep="\n")
else:
    print("vulkaninfo is not installed here; nothing in this lab needs it")

# %% [markdown] id="l02-manifest-text"
# On Linux the loader walks a list of folders and reads each `*.json` in their `vulkan/icd.d`. (ICD,
# *installable client driver*, is the old word for a driver.) Here is what vklab's doctor finds on
# this machine, and whether the library that a manifest names is really there. A manifest without
# its library is a common leftover of a removed driver.

# %% id="l02-manifests" tags=["nbval-ignore-output"]
for manifest in detect.find_manifests(platform.system()):
    print(f"{manifest.path.name:28} {Path(manifest.library).name:28} {manifest.problem or 'fine'}")

# %% [markdown] id="l02-e1-text"
# ### Exercise 1 · Find the drivers
# You are on a machine where nothing is installed but Python. Below is a small tree of files, made
# up so that everyone has the same. Three kinds of library path occur in real manifests, and the
# loader's documentation gives each a rule:
#
# * a **full path**, `/lib/libzeta.so`: take it as it is;
# * a **relative path**, with a slash in it, `../lib/libone.so`: it starts from *the folder of the
#   manifest*;
# * a **bare name**, `libbeta.so.1`: the system searches for it, so leave it as it is.

# %% id="l02-tree"
TREE = {
    "etc/vulkan/icd.d/amber.json": {"ICD": {"library_path": "libamber.so.1"}},
    "etc/vulkan/icd.d/list.json": ["ICD"],
    "etc/vulkan/icd.d/notes.txt": "not a manifest",
    "etc/vulkan/icd.d/old.json": "{ half a file",
    "etc/vulkan/implicit_layer.d/overlay.json": {"layer": {"library_path": "liboverlay.so"}},
    "usr/vulkan/icd.d/birch.json": {"ICD": {"library_path": "/lib/libbirch.so"}},
    "usr/vulkan/icd.d/cedar.json": {"ICD": {"library_path": "../lib/libcedar.so"}},
    "usr/vulkan/icd.d/layer.json": {"layer": {"library_path": "liblayer.so"}},
}


def plant(tree):
    """Write the files of TREE below a folder."""
    for name, content in TREE.items():
        path = Path(tree, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


# %% id="l02-e1" vklab={"role": "exercise", "id": "02-1", "points": 4, "lines": 10}
def find_drivers(folders):
    """Return the drivers that manifests name, as a list of (file name, library) pairs.

    folders: paths as text, in the loader's order; look at `*.json` in `vulkan/icd.d` of each.
    TODO     walk the folders in order, the files of one folder by name. Skip what is no driver
             manifest: broken JSON, JSON without ["ICD"]["library_path"] (it may be a list), and
             missing folders. A relative library with a "/" starts from the manifest's own
             folder, and no ".." is left in it; the two other kinds stay as they are.
    Approach Path.glob finds files, json.loads reads one, except skips, os.path.normpath tidies.
    Example  [("birch.json", "/lib/libbirch.so"), ("elm.json", "libelm.so")]  (roughly 10 lines)
    """
    ### BEGIN SOLUTION
    found = []
    for folder in folders:
        for path in sorted(Path(folder, "vulkan", "icd.d").glob("*.json")):
            try:
                library = json.loads(path.read_text("utf-8"))["ICD"]["library_path"]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if "/" in library:
                library = os.path.normpath(path.parent / library)
            found.append((path.name, library))
    return found
    ### END SOLUTION


# %% id="l02-e1-picture" vklab={"role": "demo"}
with attempt("02-1"), tempfile.TemporaryDirectory() as tree:
    plant(tree)
    pairs = find_drivers([str(Path(tree, part)) for part in ("etc", "gone", "usr")])
    inside = [(name, library.replace(str(Path(tree)), "TREE")) for name, library in pairs]
    display(picture(
        pictures.draw_drivers(TREE, inside),
        alt="The eight files of the made-up tree, each with the library that your function found, "
            "or the word skipped.",
        caption="What your function makes of each file. TREE stands for the temporary folder.",
    ))

# %% id="l02-e1-check" vklab={"role": "check", "id": "02-1"}
check("02-1", find_drivers)

# %% id="l02-e1-hint"
hint("02-1")

# %% [markdown] id="l02-manifest-show-text"
# Compare with the doctor's way of reading one manifest. It answers one question more than you had
# to: is the library there?

# %% id="l02-manifest-show"
show(detect.read_manifest)

# %% [markdown] id="l02-2text"
# ## 2 · The walk, one call a cell
# Now through the raw bindings. The package `vulkan` is a thin layer over the C headers: the names
# are Vulkan's own, so every page of the specification applies.
#
# ```
# vkCreateInstance                         your program is connected to the loader
#   vkEnumeratePhysicalDevices             handles: one per device, nothing known yet
#     vkGetPhysicalDeviceProperties        name, type, versions, limits
#     vkGetPhysicalDeviceQueueFamilyProperties
#     vkGetPhysicalDeviceMemoryProperties
#     vkGetPhysicalDeviceProperties2       more properties, chained through pNext
#     vkGetPhysicalDeviceFeatures2         features, chained through pNext
# ```
#
# **Step 1, the instance.** You say who you are and which version of Vulkan you were written for.
# The bindings have only the constant `VK_API_VERSION_1_0`; every other version is made with
# `VK_MAKE_VERSION`. On macOS the driver translates to Metal and is listed only to programs that ask
# for portability drivers, so we ask where the loader knows the word.

# %% id="l02-instance"
available = [item.extensionName for item in vk.vkEnumerateInstanceExtensionProperties(None)]
wanted = sorted({"VK_KHR_portability_enumeration"} & set(available))

version = vk.VK_MAKE_VERSION(1, 3, 0)
application = vk.VkApplicationInfo(pApplicationName="lab 02", apiVersion=version)
create_info = vk.VkInstanceCreateInfo(
    flags=vk.VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR if wanted else 0,
    pApplicationInfo=application,
    enabledExtensionCount=len(wanted),
    ppEnabledExtensionNames=wanted,
)
instance = vk.vkCreateInstance(create_info, None)
opened.append(instance)
print("VK_API_VERSION_1_3 is in the bindings:", hasattr(vk, "VK_API_VERSION_1_3"))
print("an instance is open:", instance != vk.ffi.NULL)

# %% [markdown] id="l02-trap1"
# ### A trap before we go on: who keeps the memory alive?
# `create_info` is not a Python object. It is a C structure that holds a *pointer* to `application`.
# C does not count references. If Python frees `application` first, the pointer leads nowhere, and
# the driver reads whatever lies there. The bindings protect you one level deep, and no deeper: **a
# list of structures is copied, and what the originals pointed to is forgotten.**
#
# The next function builds the structures that open a device. The innermost array is the priority of
# one queue. We keep a *weak* reference, which tells whether the array still exists without keeping
# it.
#
# **Predict:** is the array still there when the function has returned?

# %% id="l02-trap1-run"
def raw_device_info():
    priorities = vk.ffi.new("float[]", [1.0])
    queue = vk.VkDeviceQueueCreateInfo(queueCount=1, pQueuePriorities=priorities)
    return vk.VkDeviceCreateInfo(pQueueCreateInfos=[queue]), weakref.ref(priorities)


raw_info, still_there = raw_device_info()
gc.collect()
print("the structure is there:     ", raw_info.queueCreateInfoCount == 1)
print("what it points to is there: ", still_there() is not None)

# %% [markdown] id="l02-trap1-after"
# Passing `raw_info` to `vkCreateDevice` now would read freed memory. It may work for months. The
# cure is to hold every C object in a Python variable until the call has returned, as the instance
# cell above does with `application`. vklab does it once, for all structures, in one place:

# %% id="l02-trap1-show"
show(vklab.vulkan.api.struct)

# %% [markdown] id="l02-handles-text"
# **Step 2, the handles.** In C this takes two calls: the first asks how many there are, the second
# fills an array. The bindings do both. What comes back is an array of pointers, and no information
# at all.
#
# The order is the loader's. Its documentation says that no order is promised. Number 0 today may be
# number 1 tomorrow, when a dock is unplugged or a driver is updated. Keep this in mind until
# exercise 5.

# %% id="l02-handles" tags=["nbval-ignore-output"]
assert instance is not None, "there is no instance: run step 1 first"
handles = list(vk.vkEnumeratePhysicalDevices(instance))
print(len(handles), "physical device(s)")

# %% [markdown] id="l02-properties-text"
# **Step 3, properties.** One structure a device, with the name, the type, two versions and two ids.
#
# The *type* is one of five numbers. `discrete` has its own memory, behind a bus. `integrated`
# shares the memory of the processor. `virtual` is a share of a GPU inside a virtual machine. `cpu`
# is your processor playing a GPU; lavapipe and SwiftShader are such drivers. A CPU device gives
# right results, slowly, and it is why this course runs anywhere.

# %% id="l02-properties" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run step 1 and step 2 first"
TYPES = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
rows = []
for handle in handles:
    properties = vk.vkGetPhysicalDeviceProperties(handle)
    rows.append((properties.deviceName, TYPES[properties.deviceType], properties.apiVersion,
                 properties.driverVersion, hex(properties.vendorID)))
headers = ("name", "type", "apiVersion", "driverVersion", "vendorID")
HTML(draw.table_html("As the driver says it", headers, rows))

# %% [markdown] id="l02-e2-text"
# ### Exercise 2 · Read the numbers
# `apiVersion` is four numbers in 32 bits. From the left: **variant** (3 bits, 0 for Vulkan, 1 for
# Vulkan SC), **major** (7), **minor** (10), **patch** (12).
#
# **Predict:** what does each line of the next cell print?

# %% id="l02-compare"
print(vk.VK_MAKE_VERSION(1, 3, 224))
print("packed:", vk.VK_MAKE_VERSION(1, 10, 0) > vk.VK_MAKE_VERSION(1, 3, 224))
print("tuples:", (1, 10) > (1, 3))
print("text:  ", "1.10" > "1.3")

# %% [markdown] id="l02-e2-more"
# Two habits come from this layout:
#
# * read it in bits, never in decimal: `4206816` is not "4.206.816", it is 1.3.224;
# * compare two packed numbers directly, or as tuples, but never as text.
#
# `driverVersion` is the vendor's own business: the specification leaves its packing open. Most
# drivers use the layout above. NVIDIA packs four numbers into 10, 8, 8 and 6 bits, so that
# 580.159.4.0 fits. (Intel's driver for Windows has a third layout; we leave it out.)
#
# `vendorID` is the PCI id of the company where it has one, which takes 16 bits. Drivers without a
# PCI id, such as Mesa's lavapipe, get a number from Khronos instead, and those start at 0x10000.

# %% id="l02-e2" vklab={"role": "exercise", "id": "02-2", "points": 4, "lines": 12}
VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x13B5: "ARM", 0x5143: "Qualcomm", 0x8086: "Intel",
           0x10005: "Mesa"}


def identify(vendor_id, api_version, driver_version):
    """Return three texts: the vendor's name, the API version, the driver version.

    TODO     vendor: its name in VENDORS; an unknown id below 0x10000 is "PCI 0x00ab", lower
             case and four digits at least; from there on "Khronos 0x1000f".
             API version: "1.3.289"; with a variant that is not 0, "1.0.12 (variant 1)".
             driver version: NVIDIA (0x10DE) has four fields of 10, 8, 8 and 6 bits from the
             left, "580.159.4.0"; all others are read as 10, 10 and 12 bits, "25.0.7".
    Approach shift a field to the right end, mask the rest away: packed >> 12 & 0x3FF, the minor.
    Example  identify(0x8086, 4206881, 104857607) -> ("Intel", "1.3.289", "25.0.7")
    (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    kind = "PCI" if vendor_id < 0x10000 else "Khronos"
    vendor = VENDORS.get(vendor_id, f"{kind} 0x{vendor_id:04x}")
    api = f"{api_version >> 22 & 0x7F}.{api_version >> 12 & 0x3FF}.{api_version & 0xFFF}"
    if api_version >> 29:
        api += f" (variant {api_version >> 29})"
    fields = ((12, 10), (0, 12))
    if vendor_id == 0x10DE:
        fields = ((14, 8), (6, 8), (0, 6))
    parts = [driver_version >> at & (1 << bits) - 1 for at, bits in fields]
    return vendor, api, ".".join(map(str, [driver_version >> 22, *parts]))
    ### END SOLUTION


# %% id="l02-e2-picture" vklab={"role": "demo"}
with attempt("02-2"):
    driver = 580 << 22 | 159 << 14 | 4 << 6
    layout = (("variant", 3), ("major", 7), ("minor", 10), ("patch", 12))
    numbers = [("apiVersion", 4206881, layout, identify(0x8086, 4206881, 0)[1]),
               ("driverVersion of Intel", 104857607, (("major", 10), *layout[2:]),
                identify(0x8086, 0, 104857607)[2]),
               ("driverVersion of NVIDIA", driver,
                (("1st", 10), ("2nd", 8), ("3rd", 8), ("4th", 6)), identify(0x10DE, 0, driver)[2])]
    display(picture(
        pictures.draw_bits(numbers),
        alt="Three 32-bit numbers as coloured fields of bits, each with the text that your "
            "function reads in it.",
        caption="Three packed numbers, each cut in its own way. At the right: what your function "
                "reads.",
    ))

# %% id="l02-e2-check" vklab={"role": "check", "id": "02-2"}
check("02-2", identify)

# %% id="l02-e2-hint"
hint("02-2")

# %% [markdown] id="l02-e2-here-text"
# Now your function reads what this machine said in section 1 and in step 3.

# %% id="l02-e2-here" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("02-2"):
    print("the loader:", identify(0, packed.value, 0)[1])
    for handle in handles:
        raw = vk.vkGetPhysicalDeviceProperties(handle)
        read = identify(raw.vendorID, raw.apiVersion, raw.driverVersion)
        print("a device:", raw.deviceName, *read, sep="  ")

# %% [markdown] id="l02-families-text"
# **Step 4, queue families.** You never send work to a device; you send it to one of its *queues*.
# Queues come in families. All queues of a family can do the same: `graphics`, `compute`, `transfer`
# (copies), and more. A CPU device has one family that does it all. A large GPU may have one for
# everything, one for compute alone, and one that only copies, and these run at the same time.

# %% id="l02-families" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run step 1 and step 2 first"
JOBS = {"graphics": vk.VK_QUEUE_GRAPHICS_BIT, "compute": vk.VK_QUEUE_COMPUTE_BIT,
        "transfer": vk.VK_QUEUE_TRANSFER_BIT}
rows = []
for number, handle in enumerate(handles):
    for index, family in enumerate(vk.vkGetPhysicalDeviceQueueFamilyProperties(handle)):
        jobs = " ".join(name for name, bit in JOBS.items() if family.queueFlags & bit)
        rows.append((number, index, family.queueCount, jobs, family.timestampValidBits))
headers = ("device", "family", "queues", "can do", "timestamp bits")
HTML(draw.table_html("Queue families", headers, rows))

# %% [markdown] id="l02-e3-text"
# ### Exercise 3 · Pick the queue families
# vklab opens two queues: one to compute, one to copy beside it. The runtime has its own rule. Yours
# is a little different, because your program measures: it wants timestamps.
#
# One line of the specification matters here: a family with graphics or compute can always copy, and
# *reporting* the transfer flag for it is optional. So never ask a compute family whether it has
# `transfer`.
#
# `families("16gcts", "2t-")` makes up families for you to try: 16 queues with graphics, compute,
# transfer and sparse binding; 2 queues that only copy, without timestamps.

# %% id="l02-e3" vklab={"role": "exercise", "id": "02-3", "points": 4, "lines": 10}
def pick_queue_families(families):
    """Return the indices (compute, copies) of the families to use.

    families: tuple of QueueFamily in the order of .index, with .queue_count, .flags (a set of words
    such as "compute", "video_decode") and .timestamp_valid_bits (0: its queues have no clock).
    TODO     compute: leave the desktop's graphics alone where you can. Of what is left, any clock
             is better than none, and only then do more queues win; equals keep their order.
             LookupError if none computes.
             copies: the first family with transfer and without graphics, compute, and any flag
             that starts with "video"; if there is none, the compute family's index again.
    Approach filter, then min(..., key=...): which key says "this first, then that"?
    Example  pick_queue_families(families("16gct", "2t", "8ct")) -> (2, 1)    (roughly 10 lines)
    """
    ### BEGIN SOLUTION
    computing = [family for family in families if "compute" in family.flags]
    if not computing:
        raise LookupError("no family computes")
    compute = min(computing, key=lambda family: (
        "graphics" in family.flags, not family.timestamp_valid_bits, -family.queue_count))
    for family in families:
        busy = [flag for flag in family.flags if flag.startswith(("graphics", "compute", "video"))]
        if "transfer" in family.flags and not busy:
            return compute.index, family.index
    return compute.index, compute.index
    ### END SOLUTION


# %% id="l02-e3-picture" vklab={"role": "demo"}
with attempt("02-3"):
    cases = {device.name: device.queue_families
             for device in machine("laptop") + machine("workstation") if not device.refusal}
    cases["Phone"] = machine("phone")[0].queue_families
    cases["One without a clock"] = families("1gct", "8ct-", "2c")
    picked = {name: (found, pick_queue_families(found)) for name, found in cases.items()}
    display(picture(
        pictures.draw_families(picked),
        alt="Queue families of six made-up devices as boxes; the one you chose to compute is blue, "
            "the one to copy orange.",
        caption="Blue: your queue family for compute. Orange: a family of its own for copies. "
                "Grey: not used. Red: an index that the device does not have. 'sparse' is short "
                "for sparse binding.",
    ))

# %% id="l02-e3-check" vklab={"role": "check", "id": "02-3"}
check("02-3", pick_queue_families)

# %% id="l02-e3-hint"
hint("02-3")

# %% [markdown] id="l02-e3-swap-text"
# Your function takes the place of the runtime's own now, and the real `Device` opens every device
# of this machine with it. A wrong index would be a crash or an error of the driver.

# %% id="l02-e3-swap" vklab={"role": "demo"}
with attempt("02-3"), swap("vklab.vulkan.device.choose_queue_families", pick_queue_families):
    with Instance() as connection:
        usable = [info for info in vklab.devices() if not info.refusal]
        for info in usable:
            with Device(connection, connection.physical_devices()[info.index], info) as device:
                yours = pick_queue_families(info.queue_families)
                assert device.compute_queue.family.index == yours[0]
    print("every usable device opens on your families:", len(usable) > 0)

# %% [markdown] id="l02-e3-show-text"
# And this is the function whose place you took. **Which of your rules does it not know?**

# %% id="l02-e3-show"
show("vklab.vulkan.device.choose_queue_families")

# %% [markdown] id="l02-memory-text"
# **Step 5, memory.** A *heap* is a pool of memory with a size. A *memory type* is a way to allocate
# from a heap, with flags that say what you get:
#
# | flag | what it means for you |
# |---|---|
# | `device_local` | close to the device: kernels read and write it fast |
# | `host_visible` | your program can map it and write into it |
# | `host_coherent` | no flush is needed after writing |
# | `host_cached` | fast to read back from |
#
# A discrete GPU has a heap of its own and sees host memory as another. Where CPU and GPU share the
# memory, one device-local heap is all there is, and some of its memory types are host-visible, too.
# "How much GPU memory?" has two answers, the sum of the device-local heaps and the largest of them;
# exercise 5 shows which one matters to a buffer. Lab 03 is about the types.

# %% id="l02-memory" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run step 1 and step 2 first"
LOCAL_HEAP = vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
FLAGS = ("DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED", "LAZILY_ALLOCATED")
rows = []
for number, handle in enumerate(handles):
    memory = vk.vkGetPhysicalDeviceMemoryProperties(handle)
    for index in range(memory.memoryTypeCount):
        kind = memory.memoryTypes[index]
        heap = memory.memoryHeaps[kind.heapIndex]
        where = "device-local" if heap.flags & LOCAL_HEAP else "host"
        pool = f"{kind.heapIndex}: {heap.size >> 20} MiB, {where}"
        names = [name.lower() for name in FLAGS
                 if kind.propertyFlags & getattr(vk, f"VK_MEMORY_PROPERTY_{name}_BIT")]
        rows.append((number, pool, index, " ".join(names)))
HTML(draw.table_html("Heaps and memory types", ("device", "heap", "type", "flags"), rows))

# %% [markdown] id="l02-limits-text"
# **Step 6, limits.** More than a hundred numbers that you may not exceed. Six of them shape nearly
# every compute kernel. Those that start with `max` grow with better devices. Those that start with
# `min...Alignment` shrink: an alignment of 16 is easier to live with than one of 256. The
# specification's section *Required Limits* says what every device must offer.
#
# The trap from above is here as well. `limits` is not a copy: it is a view into the properties. An
# early draft of this lab wrote `vkGetPhysicalDeviceProperties(handle).limits`, let the properties
# go, and printed a table of zeros. No error, no warning. So the cell keeps the properties in a
# list.

# %% id="l02-limits" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run step 1 and step 2 first"
LIMITS = ("maxComputeWorkGroupInvocations", "maxComputeWorkGroupSize", "maxComputeSharedMemorySize",
          "maxStorageBufferRange", "maxPushConstantsSize", "minStorageBufferOffsetAlignment")
kept = [vk.vkGetPhysicalDeviceProperties(handle) for handle in handles]  # what limits views
rows = []
for name in LIMITS:
    values = [getattr(properties.limits, name) for properties in kept]
    rows.append((name, *(list(v) if isinstance(v, vk.ffi.CData) else v for v in values)))
HTML(draw.table_html("Limits", ("limit", *(f"device {n}" for n in range(len(handles)))), rows))

# %% [markdown] id="l02-chain-text"
# **Step 7, the chain.** Vulkan grew after its first version, and structures cannot grow. So newer
# questions are separate structures, hung onto the old ones through `pNext`. You build the chain,
# the driver fills in every link that it knows.
#
# A **subgroup** is the group of invocations that run in step: 32 on NVIDIA hardware, 32 or 64 on
# AMD's, 8 on lavapipe with AVX2. Its *operations* let them exchange values without memory; lab 07
# lives on them. A **feature** such as `shaderFloat16` is a capability that a device may lack; a
# kernel that uses it may only be created where it is present.
#
# Another trap sits in this cell. `vkGetPhysicalDeviceProperties` gave the name as a Python string.
# Through the chain it comes as a C array of 256 characters, and `ffi.string` has to read it.

# %% id="l02-chain" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run step 1 and step 2 first"
rows = []
for handle in handles:
    subgroup = vk.VkPhysicalDeviceSubgroupProperties()
    two = vk.VkPhysicalDeviceProperties2(pNext=subgroup)  # both stay alive: this cell holds them
    vk.vkGetPhysicalDeviceProperties2(handle, two)
    modern = vk.VkPhysicalDeviceVulkan12Features()
    known = two.properties.apiVersion >= vk.VK_MAKE_VERSION(1, 2, 0)  # the structure is of 1.2
    features = vk.VkPhysicalDeviceFeatures2(pNext=modern if known else None)
    vk.vkGetPhysicalDeviceFeatures2(handle, features)
    name = vk.ffi.string(two.properties.deviceName).decode()
    bits = subgroup.supportedOperations
    operations = sorted(vklab.vulkan.api.flag_names(bits, "VK_SUBGROUP_FEATURE_"))
    rows.append((name, subgroup.subgroupSize, " ".join(operations), bool(modern.shaderFloat16),
                 bool(modern.shaderInt8), bool(features.features.shaderInt64)))
headers = ("device", "subgroup", "operations", "fp16", "int8", "int64")
HTML(draw.table_html("Through pNext", headers, rows))

# %% [markdown] id="l02-3text"
# ## 3 · The same in one line
# You have seen every call. vklab makes them once a device and keeps the answers in a `DeviceInfo`:
# plain data, no handle, safe to pass around.

# %% id="l02-devices" tags=["nbval-ignore-output"]
vklab.devices()

# %% id="l02-device" tags=["nbval-ignore-output"]
vklab.devices()[0]

# %% [markdown] id="l02-agree-text"
# **Predict:** does your walk agree with it? The cell compares how many devices there are, then
# their names, vendor ids and one of their limits.

# %% id="l02-agree"
assert handles, "there are no handles: run step 1 and step 2 first"
infos = vklab.devices()
print("as many devices:     ", len(infos) == len(handles))
pairs = list(zip(infos, map(vk.vkGetPhysicalDeviceProperties, handles), strict=False))
print("the same names:      ", all(info.name == raw.deviceName for info, raw in pairs))
print("the same vendor ids: ", all(info.vendor_id == raw.vendorID for info, raw in pairs))
limit = "maxStorageBufferRange"
print("the same limits:     ", all(i.limits[limit] == getattr(r.limits, limit) for i, r in pairs))

# %% id="l02-describe-show"
show(vklab.vulkan.physical_device.describe)

# %% [markdown] id="l02-4text"
# ## 4 · Why a device is refused
# Not every device can run vklab. A refusal is decided once, in one pure function, and it says what
# to do about it. Read it: three questions, in an order that puts the most helpful answer first.
# Whoever has an old driver is told about the driver, not about one of the features that it lacks.

# %% id="l02-refusal-show"
show(vklab.vulkan.physical_device.refusal)

# %% [markdown] id="l02-made-up-text"
# One machine is not enough to test a decision. So here are four made-up ones, with nine devices. These
# are `DeviceInfo` values like the real ones, with traits that real devices have: heaps that are split in two, a
# driver from years ago, two equal cards, a device that only decodes video.

# %% id="l02-made-up"
MACHINES = ("laptop", "server", "phone", "workstation")
rows = [(name, device.name, device.type, f"{device.api_version[0]}.{device.api_version[1]}",
         ", ".join(f"{heap.size_bytes >> 20}" for heap in device.heaps if heap.device_local),
         device.subgroup_size, device.refusal or "no")
        for name in MACHINES for device in machine(name)]
headers = ("machine", "name", "type", "Vulkan", "local heaps, MiB", "subgroup", "refused")
HTML(draw.table_html("Made-up devices", headers, rows))

# %% [markdown] id="l02-e4-text"
# ### Exercise 4 · Say what is missing first
# Your program has requirements of its own, kept in a `Needs`. For a log file, or for a test, a
# short code is better than a sentence: it can be compared. Return the code of the first requirement
# that a device does not meet.

# %% id="l02-needs-show"
show(Needs)

# %% id="l02-e4" vklab={"role": "exercise", "id": "02-4", "points": 4, "lines": 15}
def first_missing(device, needs):
    """Return the code of the first requirement that the device does not meet, or "".

    device: a DeviceInfo; needs: a Needs. In this order:
    TODO     "version"        its API version is below needs.api_version (major, minor)
             "queue:compute"  no queue family has the flag needs.queue; the code ends in that flag
             "feature:NAME"   the first of needs.features that it lacks
             "limit:NAME"     the first limit of needs.at_least that is smaller, then the first
                              of needs.at_most that is larger
             "heap"           its largest device-local heap is below needs.heap_mib MiB
    Approach one `if` or `for` a line above, and return at once.
    Example  the phone, Needs(features=("shaderFloat16",)) -> "feature:shaderFloat16"
    (roughly 15 lines; device.limit("maxPushConstantsSize") reads a limit)
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


# %% id="l02-e4-picture" vklab={"role": "demo"}
with attempt("02-4"):
    needs = Needs(features=("shaderFloat16",), at_least={"maxComputeWorkGroupInvocations": 512},
                  at_most={"minStorageBufferOffsetAlignment": 64}, heap_mib=8000)
    names = ("laptop", "server", "phone", "workstation")
    park = [device for name in names for device in machine(name)]
    display(picture(
        pictures.draw_missing(park, needs, first_missing),
        alt="A row a device, a column a requirement: met as your function says, the first one "
            "missing, or not looked at.",
        caption="How far each device gets. ✗ is the code that you returned; empty fields were "
                "not looked at. A red ? is an answer that is no code.",
    ))

# %% id="l02-e4-check" vklab={"role": "check", "id": "02-4"}
check("02-4", first_missing)

# %% id="l02-e4-hint"
hint("02-4")

# %% [markdown] id="l02-5text"
# ## 5 · Choosing
# When you do not name a device, vklab takes the fastest: discrete before integrated before virtual,
# a CPU last, and the larger memory among equals. `VKLAB_DEVICE`, or `vklab.load(model,
# device=...)`, overrides it. Here is the place, and the key by which it compares:

# %% id="l02-select-show"
show("vklab.runtime.open_devices.select")

# %% id="l02-speed-show"
show("vklab.runtime.open_devices._speed")

# %% [markdown] id="l02-e5-text"
# ### Exercise 5 · Rank the devices for a job
# On a shared machine "the fastest" is rude: a digit classifier of 2 MiB would sit on the 80 GiB
# card that somebody else needs. Your policy is the polite one, **the smallest device that fits**.
# Two details decide whether it is right:
#
# * **One buffer lies in one heap.** A device with heaps of 256 and 16112 MiB has no room for a
#   buffer of 16200 MiB, although the sum is larger.
# * **A tie must not depend on the order of enumeration.** The two server cards are equal. The
#   `uuid` of a device stays the same over reboots and processes, as the specification demands, so
#   it breaks the tie. Pictures and messages write its first two characters behind a name: `Server
#   card d5` and `Server card f4` are the equal pair.
#
# **Predict:** three jobs wait. *Digits* needs 64 MiB; *chat* 6000 MiB and subgroups of at least 16;
# *batch* 20000 MiB. Which of the made-up devices gets each?

# %% id="l02-e5" vklab={"role": "exercise", "id": "02-5", "points": 5, "lines": 7}
def rank_devices(devices, heap_mib, subgroup_at_least=1):
    """Return the devices that fit a job, as a list, the best first.

    TODO     leave out: those with a refusal; those whose largest device-local heap has less than
             heap_mib MiB; those whose subgroup_size is below subgroup_at_least.
             order: polite, as above; software (device.is_cpu) is only taken where nothing else
             fits; and the order of enumeration must not show.
    Approach a small function for the largest heap, a filter, then sorted(..., key=...).
    Example  the laptop, heap_mib=8000 -> [Laptop discrete, Laptop software]      (roughly 7 lines)
    """
    ### BEGIN SOLUTION
    def room(device):
        return max(heap.size_bytes for heap in device.heaps if heap.device_local)

    able = [device for device in devices if not device.refusal]
    wide = [device for device in able if device.subgroup_size >= subgroup_at_least]
    fitting = [device for device in wide if room(device) >= heap_mib * 2**20]
    return sorted(fitting, key=lambda device: (device.is_cpu, room(device), device.uuid))
    ### END SOLUTION


# %% id="l02-e5-heat" vklab={"role": "demo"}
jobs = {"digits": (64, 1), "chat": (6000, 16), "batch": (20000, 1)}
here = tuple(vklab.devices())
names = ("laptop", "server", "phone", "workstation")
park = [*(device for name in names for device in machine(name)), *here]
with attempt("02-5"):
    ranks = {job: rank_devices(park, *needs) for job, needs in jobs.items()}
    display(picture(
        pictures.draw_ranks(park, here, ranks),
        alt="Heat map: a row a device, a column a capability, brighter is more; at the right your "
            "ranks for three jobs.",
        caption="Bright is much, dark is little, within a column. At the right your ranks: 1 in "
                "orange gets the job. ✗ marks a refused device; 'here' is this machine.",
    ))

# %% id="l02-e5-bars" vklab={"role": "demo"}
here = tuple(vklab.devices())
names = ("laptop", "server", "phone", "workstation")
park = [*(device for name in names for device in machine(name)), *here]
with attempt("02-5"):
    display(picture(
        pictures.draw_heaps(park, here, 6000, rank_devices(park, 6000, 16)),
        alt="A bar for every heap of every device; your first choice for the chat job is orange, "
            "others that fit are light blue.",
        caption="The chat job needs one local heap that reaches the dashed line at 6000 MiB, and "
                "subgroups of 16. Orange is the device you chose.",
    ))

# %% id="l02-e5-check" vklab={"role": "check", "id": "02-5"}
check("02-5", rank_devices)

# %% id="l02-e5-hint"
hint("02-5")

# %% [markdown] id="l02-6text"
# ## 6 · What would break this
# This function passed every test on its author's laptop. Then a user plugged in a second GPU, and
# kernels failed to be created. The bug has shipped in real programs. **Find it before you run the
# cell, then mend it: every line must say True.**

# %% id="l02-bug"
def workgroup_sizes(devices, wanted):
    """Return the invocations a workgroup for each device: as many as wanted, if it allows them."""
    most = devices[0].limit("maxComputeWorkGroupInvocations")
    return [min(wanted, most) for device in devices]


for title, together in (("the laptop alone", machine("laptop")),
                        ("phone, then laptop", machine("phone") + machine("laptop")),
                        ("laptop, then phone", machine("laptop") + machine("phone"))):
    sizes = workgroup_sizes(together, 1024)
    allowed = [device.limit("maxComputeWorkGroupInvocations") for device in together]
    print(f"{title:20} the best that each allows: {sizes == allowed}")

# %% [markdown] id="l02-bug-answer"
# <details><summary>The answer</summary>
#
# `devices[0]` is asked once, and its limit is used for all. With the laptop first, the phone is
# told to run 1024 invocations and allows 256. With the phone first nothing fails, and the laptop's
# GPUs run at a quarter of their width without a word. The second kind is the worse one: no error,
# only slowness. Ask each device for itself: `[min(wanted,
# device.limit("maxComputeWorkGroupInvocations")) for device in devices]`.
#
# In vklab a limit always belongs to the device that a kernel is planned for; no plan is shared
# between devices.
# </details>

# %% [markdown] id="l02-version-text"
# The second mistake is quieter. A program wants Vulkan 1.2 or newer and was written in the days of
# 1.3. **Which devices will it turn away in the years to come, and why?**

# %% id="l02-version-bug"
def new_enough(version):
    return version >= "1.2"


for version in ("1.1.0", "1.3.289", "1.4.312", "1.10.0"):
    print(f"{version:8} accepted: {new_enough(version)}")

# %% [markdown] id="l02-version-answer"
# <details><summary>The answer</summary>
#
# Text is compared character by character, and "1" comes before "2", so 1.10 counts as older than
# 1.2. Keep versions packed, or as tuples of integers, and turn them into text only to print them.
# </details>

# %% [markdown] id="l02-7text"
# ## 7 · A test dispatch on your choice
# A device that is listed is not yet a device that works. The last proof is to run something on it.
# Your own ranking picks the device for a job of 16 MiB; vklab opens it, compiles a kernel, adds
# three numbers and reads them back. The numbers are exact in binary, so the sum must be right to
# the last bit.

# %% id="l02-dispatch" vklab={"role": "demo"}
def three_sums():
    """Return a model that adds two vectors of three numbers."""
    left, right, total = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3])
                          for name in ("left", "right", "total"))
    node = helper.make_node("Add", ["left", "right"], ["total"])
    graph = helper.make_graph([node], "three", [left, right], [total])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


with attempt("02-5"):
    chosen = rank_devices(vklab.devices(), heap_mib=16)[0]
    with vklab.load(three_sums(), device=chosen.index) as session:
        left, right = np.float32([1.5, -2, 0.25]), np.float32([0.5, 3, -1])
        total = session.run(left, right)["total"]
        print("ran on the device you chose:", session.devices[0].uuid == chosen.uuid)
        print("2, 1 and -0.75 to the last bit:", total.tolist() == [2.0, 1.0, -0.75])

# %% [markdown] id="l02-cleanup-text"
# **Clean up.** Who creates an instance destroys it, after everything that came from it. Using a
# handle of a destroyed instance does not raise an error; it may end your kernel. So the cell
# forgets the handles first. To walk again, start at step 1.

# %% id="l02-cleanup"
handles, instance = [], None
while opened:
    vk.vkDestroyInstance(opened.pop(), None)
print("instances left open by the walk:", len(opened))

# %% [markdown] id="l02-recap"
# ## Recap
# | question | asked with | in vklab | trap |
# |---|---|---|---|
# | is there a Vulkan? | `ctypes`, manifests, `vulkaninfo` | `vklab doctor` | relative library paths |
# | which devices? | `vkEnumeratePhysicalDevices` | `vklab.devices()` | the order is not promised |
# | which version, whose? | `VkPhysicalDeviceProperties` | `.api_version`, `.vendor` | packed bits, text comparison |
# | which queues? | `...QueueFamilyProperties` | `.queue_families` | the transfer flag is optional |
# | how much memory? | `...MemoryProperties` | `.heaps`, `.memory_types` | a buffer lies in one heap |
# | how large may it be? | `VkPhysicalDeviceLimits` | `.limit("max...")` | device 0's used for all |
# | what can it do? | `pNext` chains | `.features`, `.subgroup_size` | memory nobody keeps alive |
# | may we use it? | your policy | `.refusal`, `select` | ties that follow the order |
#
# **Next**: lab 03 takes the memory types apart; lab 04 turns the chosen device into a running
# kernel, step by step. To try more: run `vklab devices --json` in a terminal, or, where
# there is more than one device, set `VKLAB_DEVICE=1` before Jupyter starts and read the banner.
#
# **References**
# * Vulkan specification, chapters [Devices and
#   Queues](https://docs.vulkan.org/spec/latest/chapters/devsandqueues.html),
#   [Limits](https://docs.vulkan.org/spec/latest/chapters/limits.html) and
#   [Features](https://docs.vulkan.org/spec/latest/chapters/features.html); *Version Numbers* in
#   [Extending Vulkan](https://docs.vulkan.org/spec/latest/chapters/extensions.html).
# * Vulkan-Loader, `docs/LoaderDriverInterface.md` in [its
#   repository](https://github.com/KhronosGroup/Vulkan-Loader/tree/main/docs): where drivers are
#   looked for, the manifest's fields, the order of devices.
# * `deviceUUID`: `VkPhysicalDeviceIDProperties` in the specification's [reference
#   pages](https://docs.vulkan.org/refpages/latest/refpages/index.html).
