# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Devices: what is in this machine, and which one to use", minutes: 120}
# ---

# %% [markdown] id="l02-title"
# # Lab 02 · Devices
# **What is in this machine, and which device should do the work?** · 120 minutes, 5 exercises; the last one, about 25 minutes, may wait for another day
#
# A laptop may have two GPUs and a software driver. A server has several equal cards. A phone may have one GPU, without fp16. The same program has to run on all of them, so it asks before it acts. In this lab you ask the questions, first with the raw bindings, then with vklab. Then you write the code that decides.
#
# **Afterwards you can**
# * find out why a GPU is missing, without any Vulkan binding;
# * list physical devices, and read versions, vendors, queue families, heaps, limits and features;
# * choose queue families, and name the first requirement that a device does not meet;
# * choose a cheap set of devices for several programs, and say how far from the best you are;
# * recognise two mistakes that only show on other people's machines.
#
# **Before this lab**: lab 00. You need dictionaries, `min(key=...)`, and `>>` and `&` on integers.
#
# **Files it opens**: `vklab/doctor/detect.py`, `vklab/vulkan/device.py`, `vklab/vulkan/physical_device.py`, `vklab/runtime/open_devices.py`.

# %% id="l02-setup"
import ctypes
import gc
import platform
import weakref
from pathlib import Path

import numpy as np
import vulkan as vk
from IPython.display import HTML
from onnx import TensorProto, helper

import vklab
from vklab import draw
from vklab.course import attempt, banner, check, hint, predict, show, swap
from vklab.course.figures import devices as figures
from vklab.course.figures import objects
from vklab.course.figures.machines import Needs, families, machine
from vklab.doctor import detect
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance

opened = []  # the instances that you make; the last cell of the lab closes them
instance, handles = None, []  # filled in by steps 1 and 2

# %% id="l02-banner"
banner()

# %% id="l02-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l02-1text"
# ## 1 · Is there a Vulkan here at all?
# A Vulkan program does not talk to a GPU. It calls the **loader**, a library of the system. The loader reads **manifests**, small JSON files. Each manifest names one **driver**, the vendor's library.

# %% id="l02-loader-picture" tags=["hide-input"]
objects.draw_loader()

# %% [markdown] id="l02-1table"
# | | loader | manifests | drivers, for example |
# |---|---|---|---|
# | Linux | `libvulkan.so.1` | `/usr/share/vulkan/icd.d`, `/etc/vulkan/icd.d` | `libGLX_nvidia.so.0`, `libvulkan_radeon.so` |
# | Windows | `vulkan-1.dll` | listed in the registry | `nvoglv64.dll`, `amdvlk64.dll` |
# | macOS | `libvulkan.1.dylib` | `vulkan/icd.d` below `/opt/homebrew/share` or `etc`, `/usr/local/share` or `etc`, `~/VulkanSDK/*/macOS/share` | `libMoltenVK.dylib`, which translates to Metal |
#
# These lines install the loader, drivers, and `vulkaninfo`, a tool that asks everything that this lab asks:
#
# | system | line |
# |---|---|
# | Debian, Ubuntu | `sudo apt install libvulkan1 mesa-vulkan-drivers vulkan-tools` |
# | Fedora | `sudo dnf install vulkan-loader mesa-vulkan-drivers vulkan-tools` |
# | macOS | `brew install vulkan-loader molten-vk vulkan-tools` |
# | Windows | the driver of the GPU's vendor brings everything |
#
# NVIDIA's driver for Linux brings its own manifest. Now ask your loader for its version. `ctypes` ships with Python and opens libraries; no binding is needed.

# %% id="l02-loader" tags=["nbval-ignore-output"]
LOADERS = {"Windows": "vulkan-1.dll", "Darwin": "libvulkan.1.dylib"}
packed = ctypes.c_uint32()
try:
    loader = ctypes.CDLL(LOADERS.get(platform.system(), "libvulkan.so.1"))
    loader.vkEnumerateInstanceVersion(ctypes.byref(packed))
    print("the loader answers", packed.value, "=", hex(packed.value))
except OSError as error:
    print("no loader under this name:", error)

# %% [markdown] id="l02-manifest-text"
# That number is a version, packed into bits. Exercise 2 reads it.
#
# The next cell lists the manifests of this machine, and whether the library of each is there. Two things may surprise you. A manifest may be fine while its driver reports no device: Mesa installs drivers for many GPUs, and a driver finds nothing if its GPU is not in the machine. And a removed driver often leaves its manifest behind, without the library.

# %% id="l02-manifests" tags=["nbval-ignore-output"]
for manifest in detect.find_manifests(platform.system()):
    print(f"{manifest.path.name:28} {Path(manifest.library).name:28} {manifest.problem or 'fine'}")

# %% [markdown] id="l02-e1-text" vklab={"role": "text", "id": "02-1"}
# ### Exercise 1 · Why is the GPU missing?
# Five people write to you. Each wants to use the GPU of a machine, and their program does not find it. This is what they see:
#
# | machine | what it shows |
# |---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
#
# Give the cause for each machine. The causes to choose from:
#
# * `no loader`, `no manifest`, `no library`: that station of the picture is not installed;
# * `no hardware`: the machine has no GPU;
# * `no permission`: this user may not open the GPU (on many Linux systems only the group `render` may);
# * `hidden`: a variable tells the loader to use other manifests only;
# * `not asked for`: the driver translates to another API, and is listed only to programs that ask for such drivers;
# * `too old`: the driver is found, and supports too old a version of Vulkan.

# %% id="l02-e1" vklab={"role": "exercise", "id": "02-1", "points": 3, "lines": 2}
# Write one cause for each machine: causes = {"A": "no loader", "B": ...}
causes = ...
### BEGIN SOLUTION
causes = [[right]]
### END SOLUTION

# %% id="l02-e1-check" vklab={"role": "check", "id": "02-1"}
check("02-1", causes)

# %% id="l02-e1-hint"
# hint("02-1")

# %% [markdown] id="l02-2text"
# ## 2 · Ask the devices, one call a cell
# The package `vulkan` is a thin layer over the C headers. The names are Vulkan's own, so every page of the specification applies.

# %% id="l02-walk-picture" tags=["hide-input"]
objects.draw_walk()

# %% [markdown] id="l02-instance-text"
# **Step 1, the instance.** An instance connects your program to the loader. You say which version of Vulkan you were written for. On macOS you also ask for drivers that translate (*portability* drivers), if the loader offers that extension.

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
print("an instance is open:", instance != vk.ffi.NULL)

# %% [markdown] id="l02-properties-text"
# **Step 2, the devices and their properties.** A handle is a pointer without information. The properties say more. The *type* is one of five: `discrete` has its own memory behind a bus, `integrated` shares the memory of the processor, `virtual` is a share of a GPU inside a virtual machine, `cpu` is your processor in the role of a GPU (lavapipe, SwiftShader), and `other`. A CPU device computes the right results, slowly. Thanks to it this course runs anywhere.
#
# `vendorID` is the PCI number of the company, `deviceID` its number for this model. Together they name the chip: drivers and bug reports use them, because names are changed by marketing.

# %% id="l02-properties" tags=["nbval-ignore-output"]
assert instance is not None, "there is no instance: run step 1 first"
TYPES = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
handles = list(vk.vkEnumeratePhysicalDevices(instance))
rows = []
for handle in handles:
    properties = vk.vkGetPhysicalDeviceProperties(handle)
    rows.append((properties.deviceName, TYPES[properties.deviceType], properties.apiVersion,
                 properties.driverVersion, hex(properties.vendorID), hex(properties.deviceID)))
headers = ("name", "type", "apiVersion", "driverVersion", "vendorID", "deviceID")
HTML(draw.table_html("As the driver says it", headers, rows))

# %% [markdown] id="l02-order-text"
# **Is every GPU of your machine in the table, also the integrated one?** Compare with the Device Manager, `lspci`, or "About This Mac". A machine's firmware may switch the integrated GPU off while a discrete one is present, and each GPU needs the driver of its own vendor.
#
# The specification promises no order. The loader sorts on Linux (since 1.3.204: by type, then by PCI address), and follows the system's preference on Windows. Device 0 becomes device 1 when somebody plugs a card in. A program that must find the same device again stores its `deviceUUID`, which stays the same over restarts and new drivers.

# %% [markdown] id="l02-bits-text"
# ### Versions are packed into bits
# `apiVersion` is four numbers in 32 bits. The variant is 0 for Vulkan and 1 for Vulkan SC, which is made for safety-critical systems such as cars and planes.

# %% id="l02-bits-picture" tags=["hide-input"]
LAYOUT = (("variant", 3), ("major", 7), ("minor", 10), ("patch", 12))
figures.draw_bits([("apiVersion", 4206881, LAYOUT, "version 1.3.289")],
                  "In decimal 4206881 says nothing. In bits it is version 1.3.289.")

# %% [markdown] id="l02-e2-text"
# ### Exercise 2 · Read the numbers
# `driverVersion` is packed as the vendor likes: the specification leaves it open. Most drivers use three fields of 10, 10 and 12 bits. NVIDIA uses four, of 10, 8, 8 and 6 bits. (Intel's driver for Windows has a third layout; leave it out.)
#
# `vendorID` is a PCI number where the company has one, and such numbers have 16 bits. Other vendors, such as Mesa for lavapipe, have a number of Khronos, `0x10000` or above.

# %% id="l02-e2" vklab={"role": "exercise", "id": "02-2", "points": 4, "lines": 8}
VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x13B5: "ARM", 0x5143: "Qualcomm", 0x8086: "Intel",
           0x10005: "Mesa"}


def identify(vendor_id, api_version, driver_version):
    """Return three texts: the vendor's name, the API version, the driver version.

    TODO     vendor: its name in VENDORS, or for an unknown number its hexadecimal digits, "0xab12".
             API version: "1.3.289"; with a variant that is not 0, "1.0.12 (variant 1)".
             driver version: NVIDIA (0x10DE) has four fields of 10, 8, 8 and 6 bits from the
             left, "580.159.4.0"; all others have 10, 10 and 12 bits, "25.0.7".
    Approach shift a field to the right end, then mask the rest away with &.
    Example  identify(0x8086, 0x403121, 0x6400007) -> ("Intel", "1.3.289", "25.0.7")
    (roughly 8 lines)
    """
    ### BEGIN SOLUTION
    vendor = VENDORS.get(vendor_id, hex(vendor_id))
    api = f"{api_version >> 22 & 0x7F}.{api_version >> 12 & 0x3FF}.{api_version & 0xFFF}"
    if api_version >> 29:
        api += f" (variant {api_version >> 29})"
    fields = ((12, 10), (0, 12))
    if vendor_id == 0x10DE:
        fields = ((14, 8), (6, 8), (0, 6))
    parts = [driver_version >> at & (1 << bits) - 1 for at, bits in fields]
    return vendor, api, ".".join(map(str, [driver_version >> 22, *parts]))
    ### END SOLUTION


# %% id="l02-e2-picture" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("02-2"):
    nvidia = 580 << 22 | 159 << 14 | 4 << 6
    rows = [("apiVersion", 4206881, LAYOUT, f"you: {identify(0x8086, 4206881, 0)[1]}"),
            ("driverVersion of NVIDIA", nvidia, (("1st", 10), ("2nd", 8), ("3rd", 8), ("4th", 6)),
             f"you: {identify(0x10DE, 0, nvidia)[2]}")]
    display(figures.draw_bits(rows, "Two packed numbers, and what your function reads in them."))
    print("your loader:", identify(0, packed.value, 0)[1])
    for handle in handles:
        raw = vk.vkGetPhysicalDeviceProperties(handle)
        print("a device:", *identify(raw.vendorID, raw.apiVersion, raw.driverVersion), sep="  ")

# %% id="l02-e2-check" vklab={"role": "check", "id": "02-2"}
check("02-2", identify)

# %% id="l02-e2-hint"
# hint("02-2")

# %% [markdown] id="l02-p1-text"
# **Your guess first.** Version 1.10.0 is newer than 1.3.224. Two cells below, three comparisons are printed. Which of them say so? Write True or False in place of each `...`. Your guess is recorded, not marked, and the explanation follows it.

# %% id="l02-p1"
predict("02-p1", packed=..., tuples=..., text=...)

# %% id="l02-compare"
print("packed:", vk.VK_MAKE_VERSION(1, 10, 0) > vk.VK_MAKE_VERSION(1, 3, 224))
print("tuples:", (1, 10, 0) > (1, 3, 224))
print("text:  ", "1.10.0" > "1.3.224")

# %% [markdown] id="l02-trap"
# ### Who keeps the memory alive?
# `create_info` in step 1 is a C structure that holds a *pointer* to `application`. C does not count references. If Python frees `application` too early, the driver reads whatever lies there.

# %% id="l02-pointers-picture" tags=["hide-input"]
objects.draw_pointers()

# %% [markdown] id="l02-p2-text"
# The next function builds these three structures and returns the first. A *weak* reference tells whether an object still exists, and does not keep it. **Your guess first:** when the function has returned, is the outer structure still there, and is the array of priorities?

# %% id="l02-p2"
predict("02-p2", structure=..., array=...)

# %% id="l02-trap-run"
def raw_device_info():
    priorities = vk.ffi.new("float[]", [1.0])
    queue = vk.VkDeviceQueueCreateInfo(queueCount=1, pQueuePriorities=priorities)
    return vk.VkDeviceCreateInfo(pQueueCreateInfos=[queue]), weakref.ref(priorities)


raw_info, still_there = raw_device_info()
gc.collect()
print("the structure is there:", raw_info.queueCreateInfoCount == 1)
print("the array is there:    ", still_there() is not None)

# %% [markdown] id="l02-trap-after"
# The cure: hold every C object in a Python variable until the call has returned, as step 1 does with `application`. vklab builds all structures with one function, `vklab.vulkan.api.struct`, which keeps whatever a structure points to.

# %% [markdown] id="l02-families-text"
# ### Queues
# **Step 3, queue families.** You never send work to a device; you send it to one of its *queues*. Queues come in families. All queues of a family can do the same jobs: `graphics`, `compute`, `transfer` (copies), video. A CPU device usually has one family for everything. A large GPU may have more: one for everything, one for compute alone, one that only copies. Work on different families *may* run at the same time; that is up to the device.

# %% id="l02-families-picture" tags=["hide-input"]
figures.draw_families({info.name: info.queue_families for info in machine("laptop")[:2]},
                      "The queue families of a made-up laptop with two GPUs.")

# %% id="l02-families" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run steps 1 and 2 first"
JOBS = {"graphics": vk.VK_QUEUE_GRAPHICS_BIT, "compute": vk.VK_QUEUE_COMPUTE_BIT,
        "transfer": vk.VK_QUEUE_TRANSFER_BIT}
rows = []
for number, handle in enumerate(handles):
    for index, family in enumerate(vk.vkGetPhysicalDeviceQueueFamilyProperties(handle)):
        jobs = " ".join(name for name, bit in JOBS.items() if family.queueFlags & bit)
        rows.append((number, index, family.queueCount, jobs, family.timestampValidBits))
headers = ("device", "family", "queues", "can do", "timestamp bits")
HTML(draw.table_html("Queue families of this machine", headers, rows))

# %% [markdown] id="l02-e3-text" vklab={"role": "text", "id": "02-3"}
# ### Exercise 3 · Pick the queue families
# You need two families: one to compute, one to copy beside it. Your program also measures long runs, so the compute family needs a clock. A queue's clock counts in `timestamp_valid_bits` bits: none (0), or 36 to 64. At one nanosecond a tick, a clock of [[bits]] bits starts again from zero after [[wraps]]. You need at least [[bits]] bits; a longer clock is no better.
#
# One rule of the specification is easy to miss. A family with graphics or compute can always copy, and *need not* say so. So never ask a compute family whether it has `transfer`.
#
# To try your function, make up families from words: `families("16gct", "2t", "8ct-36")`. The number is the number of queues. The letters are the flags: `g` graphics, `c` compute, `t` transfer, `s` sparse binding, `v` video decoding. `-36` stands for a clock of 36 bits, `-0` for no clock; without it the clock has 64 bits.

# %% id="l02-e3" vklab={"role": "exercise", "id": "02-3", "points": 4, "lines": 9}
def pick_queue_families(families):
    """Return the indices (compute, copies) of the families to use.

    families: tuple of QueueFamily, with .index, .queue_count, .flags (a set of words such as
    "compute", "video_decode") and .timestamp_valid_bits.
    TODO     compute: a family without graphics, if there is one. Among equals, one with a clock
             of at least [[bits]] bits. Among equals, the one with the most queues. Among
             equals, the lowest index. Raise LookupError if no family computes.
             copies: the first family that has transfer, and has neither graphics nor compute nor
             a flag that starts with "video". If there is none: the compute family again.
    Approach filter, then min(..., key=...) with a tuple as the key.
    Example  pick_queue_families(families("16gct", "2t", "8ct")) -> (2, 1)     (roughly 9 lines)
    """
    ### BEGIN SOLUTION
    computing = [family for family in families if "compute" in family.flags]
    if not computing:
        raise LookupError("no family computes")
    compute = min(computing, key=lambda family: (
        "graphics" in family.flags, family.timestamp_valid_bits < [[bits]], -family.queue_count))
    for family in families:
        busy = [flag for flag in family.flags if flag.startswith(("graphics", "compute", "video"))]
        if "transfer" in family.flags and not busy:
            return compute.index, family.index
    return compute.index, compute.index
    ### END SOLUTION


# %% id="l02-e3-picture" vklab={"role": "demo"}
with attempt("02-3"):
    cases = {info.name: info.queue_families for info in (*machine("laptop")[:2], *machine("phone"))}
    cases["Short clock"] = families("1gct", "8ct-36", "2c")
    display(figures.draw_families(cases, "Blue: your family for compute. Orange: your family for "
                                  "copies.", pick_queue_families))

# %% id="l02-e3-check" vklab={"role": "check", "id": "02-3"}
check("02-3", pick_queue_families)

# %% id="l02-e3-hint"
# hint("02-3")

# %% [markdown] id="l02-e3-swap-text"
# Now your function takes the place of the runtime's own, and the real `Device` opens every device of this machine with it. On a device with a single family every right answer is `(0, 0)`, so there this cell proves little: only the check above tells a good rule from a bad one.

# %% id="l02-e3-swap" vklab={"role": "demo"}
SEAM = "vklab.vulkan.device.choose_queue_families"
with attempt("02-3"), swap(SEAM, pick_queue_families), Instance() as connection:
    usable = [info for info in vklab.devices() if not info.refusal]
    for info in usable:
        with Device(connection, connection.physical_devices()[info.index], info) as device:
            opened_on = device.compute_queue.family.index
            assert opened_on == pick_queue_families(info.queue_families)[0]
    print("every usable device opens on your family:", len(usable) > 0)

# %% [markdown] id="l02-p3-text"
# **Your guess first:** which of your four rules does the runtime's own function have? Graphics, the clock, the number of queues, copies on a family of their own: write True or False for each, then read the function.

# %% id="l02-p3"
predict("02-p3", graphics=..., clock=..., queue_count=..., copies=...)

# %% id="l02-e3-show"
show("vklab.vulkan.device.choose_queue_families")

# %% [markdown] id="l02-memory-text"
# ### Memory, limits, features
# **Step 4, memory.** A *heap* is a pool of memory with a size. A *memory type* is a way to allocate from one heap. Its flags say what you get: `device_local` is close to the device, `host_visible` can be mapped by your program, `host_coherent` needs no flush after writing, `host_cached` is fast to read back.

# %% id="l02-memory-picture" tags=["hide-input"]
objects.draw_memory()

# %% id="l02-memory" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run steps 1 and 2 first"
FLAGS = ("DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED", "LAZILY_ALLOCATED")
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

# %% [markdown] id="l02-limits-text"
# **Step 5, limits.** A device has more than a hundred limits. These shape nearly every compute kernel. A larger `max...` is better; of an alignment the smaller value is better. The last column is what every device of Vulkan 1.3 must offer.
#
# | limit | means | every device |
# |---|---|---|
# | `maxComputeWorkGroupInvocations` | invocations in one workgroup, at most | 128 |
# | `maxComputeSharedMemorySize` | bytes of shared memory that a workgroup may declare | 16384 |
# | `maxStorageBufferRange` | bytes of a buffer that one binding may cover | 2^27, 128 MiB |
# | `maxPushConstantsSize` | bytes of the small numbers that go with a dispatch | 128 |
# | `minStorageBufferOffsetAlignment` | a binding starts at a multiple of this | 256 or less |

# %% id="l02-limits" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run steps 1 and 2 first"
LIMITS = ("maxComputeWorkGroupInvocations", "maxComputeSharedMemorySize", "maxStorageBufferRange",
          "maxPushConstantsSize", "minStorageBufferOffsetAlignment")
kept = [vk.vkGetPhysicalDeviceProperties(handle) for handle in handles]  # .limits points into them
rows = [(name, *(getattr(properties.limits, name) for properties in kept)) for name in LIMITS]
HTML(draw.table_html("Limits", ("limit", *(f"device {n}" for n in range(len(handles)))), rows))

# %% [markdown] id="l02-chain-text"
# **Step 6, what came after Vulkan 1.0.** Structures cannot grow, so newer questions are separate structures. You hang them onto the old one through `pNext`.

# %% id="l02-chain-picture" tags=["hide-input"]
objects.draw_chain()

# %% [markdown] id="l02-chain-more"
# The cell asks two such questions. A **subgroup** is a part of a workgroup that the device handles together; its invocations can exchange values without memory (lab 07). It has 32 invocations on NVIDIA and Apple, 32 or 64 on AMD, 8 to 32 on Intel, 8 on lavapipe with AVX2. A **feature** such as `shaderFloat16` is something that a device may lack. Being listed is not enough: a program must also *enable* the feature when it opens the device.

# %% id="l02-chain" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run steps 1 and 2 first"
rows = []
for handle in handles:
    subgroup = vk.VkPhysicalDeviceSubgroupProperties()
    base = vk.VkPhysicalDeviceProperties2(pNext=subgroup)  # this cell holds both
    vk.vkGetPhysicalDeviceProperties2(handle, base)
    modern = vk.VkPhysicalDeviceVulkan12Features()
    vk.vkGetPhysicalDeviceFeatures2(handle, vk.VkPhysicalDeviceFeatures2(pNext=modern))
    name = vk.ffi.string(base.properties.deviceName).decode()  # here it is a C array
    rows.append((name, subgroup.subgroupSize, bool(modern.shaderFloat16), bool(modern.shaderInt8)))
HTML(draw.table_html("Through pNext", ("device", "subgroup", "fp16", "int8"), rows))

# %% [markdown] id="l02-extensions-text"
# **Where new questions come from.** A vendor publishes an *extension* with its own prefix. If others want it, several vendors (`EXT`) or Khronos (`KHR`) publish a common one. A later version of Vulkan may take it into the core.

# %% id="l02-extensions-picture" tags=["hide-input"]
objects.draw_extensions()

# %% [markdown] id="l02-extensions-read"
# So a program may have to look for one ability under several names. An extension at its beginning: with [VK_ARM_data_graph](https://docs.vulkan.org/refpages/latest/refpages/source/VK_ARM_data_graph.html) (2025, Vulkan 1.4.319) a driver runs a whole graph of tensor operations as one pipeline. Few drivers have it. Read its first paragraph and ask: which work of vklab would the driver then do?

# %% [markdown] id="l02-3text"
# ## 3 · The same in one line
# vklab makes these calls once for each device and keeps the answers in a `DeviceInfo`: plain data without a handle. Does it agree with you?

# %% id="l02-device" tags=["nbval-ignore-output"]
vklab.devices()[0]

# %% id="l02-agree"
assert handles, "there are no handles: run steps 1 and 2 first"
infos = vklab.devices()
pairs = list(zip(infos, map(vk.vkGetPhysicalDeviceProperties, handles), strict=True))
print("the same names:  ", all(info.name == raw.deviceName for info, raw in pairs))
print("the same devices:", all(info.device_id == raw.deviceID for info, raw in pairs))
print("the same limits: ", all(i.limits[name] == getattr(r.limits, name)
                               for i, r in pairs for name in LIMITS))

# %% [markdown] id="l02-4text"
# ## 4 · Why a device is refused
# A program that stops with "error -8" helps nobody. vklab tests a device once, in a fixed order, and says what to do about the first thing that is missing. The order matters: a user with an old driver should hear about the driver, not about one of the features that it lacks.

# %% id="l02-questions-picture" tags=["hide-input"]
objects.draw_questions()

# %% id="l02-refusal-show"
show(vklab.vulkan.physical_device.refusal)

# %% [markdown] id="l02-e4-text"
# ### Exercise 4 · Say what is missing first
# Your program has requirements of its own. They are kept in a `Needs`:

# %% id="l02-needs-show"
show(Needs)

# %% [markdown] id="l02-e4-more"
# Two facts about memory matter here. An ordinary buffer lies in *one* heap, so a device with heaps of 256 and 16112 MiB has no room for 16200 MiB. (Only a *sparse* buffer may be spread over several.) And one binding covers at most `maxStorageBufferRange` bytes, so a kernel that reads a buffer of 200 MiB through one binding needs that limit, too: `Needs(at_least={"maxStorageBufferRange": 200 << 20}, heap_mib=200)`.

# %% id="l02-e4" vklab={"role": "exercise", "id": "02-4", "points": 4, "lines": 14}
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
    Example  first_missing(phone, Needs(features=("shaderFloat16",))) -> "feature:shaderFloat16"
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


# %% [markdown] id="l02-e4-park-text"
# One machine is not enough to test a decision. So here are nine devices of four made-up machines, and yours. They have traits of real devices: a heap split in two, an old driver, two equal cards, a device that only decodes video.

# %% id="l02-e4-picture" vklab={"role": "demo"} tags=["nbval-ignore-output"]
park = [info for name in ("laptop", "server", "phone", "workstation") for info in machine(name)]
with attempt("02-4"):
    needs = Needs(features=("shaderFloat16",), at_least={"maxComputeSharedMemorySize": 40000},
                  heap_mib=8000)
    display(figures.draw_capabilities(
        [*park, *vklab.devices()], lambda info: first_missing(info, needs),
        "Dark is much, light is little, within a column. Needed: Vulkan 1.3, compute, fp16, 40000 "
        "bytes of shared memory, a heap of 8000 MiB. Below the video decoder: this machine."))

# %% id="l02-e4-check" vklab={"role": "check", "id": "02-4"}
check("02-4", first_missing)

# %% id="l02-e4-hint"
# hint("02-4")

# %% [markdown] id="l02-5text"
# ## 5 · Choosing devices
# When you name no device, vklab takes the one that is *probably* the fastest: discrete before integrated before virtual before CPU, then the larger memory. That is a guess from type and size; nothing is measured. `VKLAB_DEVICE` or `vklab.load(model, device=...)` overrides it. Look at the last number of the key: between two equal cards the choice follows the order of enumeration, which section 2 warned you about.

# %% id="l02-speed-show"
show("vklab.runtime.open_devices._speed")

# %% [markdown] id="l02-rent-text"
# With several programs the question changes. A company rents devices by the hour. Programs that share a device share its largest heap. The obvious way is to go through the programs, and to put each on a device that is rented already and has room, else to rent the cheapest that fits:

# %% id="l02-rent-picture" tags=["hide-input"]
ALL = ("A", "B", "C")
RENT = {"A": (50, 10000), "B": (52, 10000), "C": (30, 4000)}
WORK = {"p": (5000, ALL), "q": (4000, ALL), "r": (4000, ALL), "s": (3000, ALL), "t": (2000, ALL),
        "u": (2000, ALL)}
figures.draw_rented(RENT, WORK, {"p": "A", "q": "A", "r": "C", "s": "B", "t": "B", "u": "B"},
                    "One program after the other, each where it fits: three devices are rented.")

# %% [markdown] id="l02-e5-text"
# ### Exercise 5 · Rent the devices (scored)
# Two devices are enough for these six programs. Find a cheaper choice than the obvious one, for any list of devices and programs.
# `sets_by_price` is given: it lists every set of devices, the cheapest first.
#
# One point is for *valid* choices. The others count cents, one point for each list of programs: the obvious answer earns nothing, the cheapest possible choice earns the point, and a choice in between earns its share. There are at most five devices and seven programs, so you may try out many choices. This is the open-ended exercise of the lab: a first cheaper choice takes a quarter of an hour, and the cheapest one may wait for another day.

# %% id="l02-e5" vklab={"role": "exercise", "id": "02-5", "points": 5, "lines": 12}
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


# %% id="l02-e5-picture" vklab={"role": "demo"}
with attempt("02-5"):
    display(figures.draw_rented(RENT, WORK, rent_devices(RENT, WORK),
                                "Your choice. Red: too much for the heap, or the wrong device."))

# %% id="l02-e5-check" vklab={"role": "check", "id": "02-5"}
check("02-5", rent_devices)

# %% id="l02-e5-hint"
# hint("02-5")

# %% [markdown] id="l02-6text"
# ## 6 · What would break this?
# **Bug hunt 1.** This function passed every test on its author's laptop. Then a user plugged in a second GPU, and kernels failed to be created. Read the function in the second cell below. For which machines is its result right? Write your guess, run both cells, and mend the function until every line says True.

# %% id="l02-p4"
predict("02-p4", laptop=..., phone_first=..., laptop_first=...)

# %% id="l02-bug"
def workgroup_sizes(devices, wanted):
    """Return the invocations a workgroup for each device: as many as wanted, if it allows them."""
    most = devices[0].limit("maxComputeWorkGroupInvocations")
    return [min(wanted, most) for device in devices]


laptop, phone = machine("laptop"), machine("phone")
for title, together in (("laptop", laptop), ("phone_first", phone + laptop),
                        ("laptop_first", laptop + phone)):
    sizes = workgroup_sizes(together, 1024)
    allowed = [device.limit("maxComputeWorkGroupInvocations") for device in together]
    print(f"{title:13} each device gets the best that it allows: {sizes == allowed}")

# %% [markdown] id="l02-version-text"
# **Bug hunt 2.** A program wants Vulkan 1.2 or newer. It was written in the days of 1.3. Which versions does it accept? Guess, run, then mend it.

# %% id="l02-p5"
predict("02-p5", v1_1_0=..., v1_3_289=..., v1_10_0=...)

# %% id="l02-version-bug"
def new_enough(version):
    return version >= "1.2"


for version in ("1.1.0", "1.3.289", "1.10.0"):
    print(f"{version:8} accepted: {new_enough(version)}")

# %% [markdown] id="l02-7text"
# ## 7 · A test dispatch on your choice
# A device that is listed is not yet a device that works. The last proof is to run something. Your `first_missing` picks a device; vklab opens it, compiles a kernel, adds three numbers and reads them back. The numbers are exact in binary, so the sum must be right to the last bit.

# %% id="l02-dispatch" vklab={"role": "demo"}
def three_sums():
    """Return a model that adds two vectors of three numbers."""
    left, right, total = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3])
                          for name in ("left", "right", "total"))
    node = helper.make_node("Add", ["left", "right"], ["total"])
    graph = helper.make_graph([node], "three", [left, right], [total])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


with attempt("02-4"):
    able = [info for info in vklab.devices() if first_missing(info, Needs(heap_mib=16)) == ""]
    with vklab.load(three_sums(), device=able[0].index) as session:
        total = session.run(np.float32([1.5, -2, 0.25]), np.float32([0.5, 3, -1]))["total"]
        print("ran on the device you chose:", session.devices[0].uuid == able[0].uuid)
        print("2, 1 and -0.75 to the last bit:", total.tolist() == [2.0, 1.0, -0.75])

# %% [markdown] id="l02-cleanup-text"
# **Clean up.** Destroy the instance last, after all objects that were made from it. Using a handle of a destroyed instance raises no error; it may end your kernel. So the cell forgets the handles first. To ask again, start at step 1.

# %% id="l02-cleanup"
handles, instance = [], None
while opened:
    vk.vkDestroyInstance(opened.pop(), None)
print("instances left open:", len(opened))

# %% [markdown] id="l02-recap"
# ## Recap
# | question | Vulkan's call | in vklab | mistake to avoid |
# |---|---|---|---|
# | is there a Vulkan? | loader, manifests, `vulkaninfo` | `vklab doctor` | "fine" manifests prove no GPU |
# | which devices? | `vkEnumeratePhysicalDevices` | `vklab.devices()` | trusting the order |
# | which version, whose? | `vkGetPhysicalDeviceProperties` | `.api_version`, `.vendor` | comparing text |
# | which queues? | `...QueueFamilyProperties` | `.queue_families` | asking compute for `transfer` |
# | how much memory? | `...MemoryProperties` | `.heaps`, `.memory_types` | adding up heaps |
# | how large may it be? | `VkPhysicalDeviceLimits` | `.limit("max...")` | device 0's limit for all |
# | what can it do? | `pNext` chains | `.features`, `.subgroup_size` | memory that nobody keeps |
# | may we use it? | your rules | `.refusal`, `select` | a message without a cause |
#
# **Next**: lab 03 takes the memory types apart; lab 04 turns the chosen device into a running kernel. To try more, run `vklab devices --json` in a terminal.
#
# **References**
# * Vulkan specification: [Devices and Queues](https://docs.vulkan.org/spec/latest/chapters/devsandqueues.html), [Limits](https://docs.vulkan.org/spec/latest/chapters/limits.html), [Features](https://docs.vulkan.org/spec/latest/chapters/features.html), and *Version Numbers* in [Extending Vulkan](https://docs.vulkan.org/spec/latest/chapters/extensions.html).
# * `LoaderDriverInterface.md` and `LoaderApplicationInterface.md` in the [loader's repository](https://github.com/KhronosGroup/Vulkan-Loader/tree/main/docs): where drivers are looked for, and the order of devices.
