# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Devices: what is in this machine, and how to tell it"
#     minutes: 80
#     before: ["00"]
#     know: ["dictionaries", "`min(key=...)`", "`>>` and `&` on integers"]
# ---

# %% [markdown] id="l02-title"
# # Lab 02 · Devices
# **What is in this machine, and how can a program tell?** · 80 minutes, 4 exercises, one of them extra
#
# A laptop may have two GPUs and a software driver. A server has several equal cards. A phone may have one GPU, without fp16. The same program has to run on all of them, so it asks before it acts. In this lab you ask the questions, first with the raw bindings, then with vklab. Lab 02b uses the answers to choose a device.
#
# **Afterwards you can**
# * find out why a GPU is missing, without any Vulkan binding;
# * list physical devices, read their types, vendors and versions, and choose queue families;
# * say why the number of a device is no name for it, and find a short name;
# * recognise a mistake with memory that only shows on other people's machines.
#
# **Before this lab**: lab 00. You need dictionaries, `min(key=...)`, and `>>` and `&` on integers.
#
# **Files it opens**: `vklab/vulkan/device.py`, after exercise 3.

# %% id="l02-setup" tags=["hide-input"]
import ctypes  # opens a library of the system
import gc  # Python's garbage collector
import platform  # names the system: Linux, Windows, Darwin (macOS)
import weakref  # references that keep nothing alive
from pathlib import Path

import vulkan as vk
from IPython.display import HTML

import vklab
from vklab.apps.doctor import detect
from vklab.base import draw
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance
from vklab_course import attempt, banner, check, hint, predict, show, swap
from vklab_labs.lab_02 import devices as figures
from vklab_labs.lab_02 import objects
from vklab_labs.shared.machines import families, machine, ten_devices

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
# * Debian, Ubuntu: `sudo apt install libvulkan1 mesa-vulkan-drivers vulkan-tools`
# * Fedora: `sudo dnf install vulkan-loader mesa-vulkan-drivers vulkan-tools`
# * macOS: `brew install vulkan-loader molten-vk vulkan-tools`
# * Windows: the driver of the GPU's vendor brings everything. On Linux, NVIDIA's driver brings its own manifest.
#
# Now ask your loader for its version. `ctypes` is a module of Python that opens libraries, so no binding is needed. (**Bindings** are a package that makes the functions of a C library callable.)

# %% id="l02-loader" tags=["nbval-ignore-output"]
LOADERS = {"Windows": "vulkan-1.dll", "Darwin": "libvulkan.1.dylib"}
packed = ctypes.c_uint32()
try:
    loader = ctypes.CDLL(LOADERS.get(platform.system(), "libvulkan.so.1"))
    loader.vkEnumerateInstanceVersion(ctypes.byref(packed))  # it writes to this address
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
# Five people write to you. Each wants to use the GPU of a machine, and their program does not find it. This is what they see. (`lspci` lists the PCI devices of a Linux machine, `ldconfig -p` the libraries that it knows.)
#
# | machine | what it shows |
# |---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
#
# Give the cause for each machine. The check asks for all five at once; grading counts each machine. The causes to choose from:
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
    enabledExtensionCount=len(wanted), ppEnabledExtensionNames=wanted)
instance = vk.vkCreateInstance(create_info, None)
opened.append(instance)
print("an instance is open:", instance != vk.ffi.NULL)  # NULL is C's "no object"

# %% [markdown] id="l02-properties-text"
# **Step 2, the devices and their properties.** A handle is a pointer, and you cannot read what it points to. So ask for the properties. The *type* is one of five: `discrete` has its own memory behind a bus, `integrated` shares the memory of the processor, `virtual` is a share of a GPU inside a virtual machine, `cpu` is your processor in the role of a GPU (lavapipe, SwiftShader), and `other`. A CPU device computes the right results, slowly. Thanks to it this course runs anywhere.
#
# `vendorID` is the PCI number of the company. A company without one, such as Mesa (lavapipe), gets a number from Khronos, `0x10000` or above. `deviceID` is the company's number for this model. Drivers and bug reports use both, because marketing changes names.

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

# %% [markdown] id="l02-bits-text"
# **Is the integrated GPU of your machine missing?** The Device Manager, `lspci`, or "About This Mac" list what is built in. The firmware may switch the integrated GPU off while a discrete one is present, and each GPU needs the driver of its own vendor.
#
# ### Versions are packed into bits
# `apiVersion` is four numbers in 32 bits. The variant is 0 for Vulkan and 1 for Vulkan SC, which is made for safety-critical systems such as cars and planes.

# %% id="l02-bits-picture" tags=["hide-input"]
LAYOUT = (("variant", 3), ("major", 7), ("minor", 10), ("patch", 12))
figures.draw_bits([("apiVersion", 4206881, LAYOUT, "version 1.3.289")],
                  "In decimal 4206881 says nothing. In bits it is version 1.3.289.")

# %% [markdown] id="l02-e2-text"
# ### Exercise 2 · Read the numbers
# `driverVersion` is packed as the vendor likes: the specification leaves it open. Most drivers use three fields of 10, 10 and 12 bits. NVIDIA uses four, of 10, 8, 8 and 6 bits. (Intel's driver for Windows has a third layout; leave it out.) lavapipe's `driverVersion` is just 1, so it reads as 0.0.1; Mesa's own version stands in another text. And the loader and a device may show different versions of Vulkan, because each one says which version it knows itself.

# %% id="l02-e2" vklab={"role": "exercise", "id": "02-2", "points": 4, "lines": 8}
VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x13B5: "ARM", 0x5143: "Qualcomm", 0x8086: "Intel",
           0x10005: "Mesa"}


def identify(vendor_id, api_version, driver_version):
    """Return three texts: the vendor's name, the API version, the driver version.

    TODO     vendor: its name in VENDORS, or an unknown number as `hex` writes it, "0xab".
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
    fields = (("1st", 10), ("2nd", 8), ("3rd", 8), ("4th", 6))
    display(figures.draw_bits([("driverVersion of NVIDIA", nvidia, fields,
                                f"you: {identify(0x10DE, 0, nvidia)[2]}")],
                              "A packed number, and what your function reads in it."))
    print("your loader:", identify(0, packed.value, 0)[1])
    for handle in handles:
        raw = vk.vkGetPhysicalDeviceProperties(handle)
        print("a device:", *identify(raw.vendorID, raw.apiVersion, raw.driverVersion), sep="  ")

# %% id="l02-e2-check" vklab={"role": "check", "id": "02-2"}
check("02-2", identify)

# %% id="l02-e2-hint"
# hint("02-2")

# %% [markdown] id="l02-trap"
# ### What would break this?
# `create_info` in step 1 is a C structure that holds a *pointer* to `application`: the address of its first byte. The picture shows a longer chain: structure A points to structure B, and B points to C, an array of priorities.

# %% id="l02-pointers-picture" tags=["hide-input"]
objects.draw_pointers()

# %% [markdown] id="l02-trap-question"
# A function below builds this chain. It returns A itself, and a *weak* reference to C. A weak reference tells whether an object still exists, and does not keep it. Then `gc.collect()` runs Python's garbage collector. **Your guess first:** when the function has returned, is A still there? Is C? Write True or False.

# %% id="l02-p1"
predict("02-p1", A=..., C=...)

# %% id="l02-trap-run"
def chain():
    c = vk.ffi.new("float[]", [1.0])  # a C array of one number
    b = vk.VkDeviceQueueCreateInfo(queueCount=1, pQueuePriorities=c)
    return vk.VkDeviceCreateInfo(pQueueCreateInfos=[b]), weakref.ref(c)


a, weak = chain()
gc.collect()
print("A is there:", a.queueCreateInfoCount == 1)
print("C is there:", weak() is not None)

# %% [markdown] id="l02-trap-after"
# If C is gone, the driver reads whatever lies there now. On your machine that may be the old value; on another one the program crashes. The cure: hold every C object in a Python variable until the call has returned, as step 1 does with `application`. (These bindings do hold what a structure points to directly. From a *list* of structures, such as `[b]`, they copy the bytes, and the copies hold nothing.) vklab builds all structures with one function, `vklab.vulkan.api.struct`, which keeps whatever a structure points to.

# %% [markdown] id="l02-families-text"
# ### Queues
# **Step 3, queue families.** You never send work to a device; you send it to one of its *queues*. Queues come in families. All queues of a family can do the same jobs: `graphics`, `compute`, `transfer` (copies), video. A CPU device usually has one family for everything. A large GPU may have more: one for everything, one for compute alone, one that only copies. Work on different families *may* run at the same time; that is up to the device. A family may also have a clock, a counter of some *timestamp bits*.

# %% id="l02-families-picture" tags=["hide-input"]
figures.draw_families({info.name: info.queue_families for info in machine("laptop")[:2]},
                      "The queue families of a made-up laptop with two GPUs.")

# %% id="l02-families" tags=["nbval-ignore-output"]
assert handles, "there are no handles: run steps 1 and 2 first"
JOBS = {"graphics": vk.VK_QUEUE_GRAPHICS_BIT, "compute": vk.VK_QUEUE_COMPUTE_BIT,
        "transfer": vk.VK_QUEUE_TRANSFER_BIT, "video": vk.VK_QUEUE_VIDEO_DECODE_BIT_KHR}
rows = []
for number, handle in enumerate(handles):
    for index, family in enumerate(vk.vkGetPhysicalDeviceQueueFamilyProperties(handle)):
        jobs = " ".join(name for name, bit in JOBS.items() if family.queueFlags & bit)
        rows.append((number, index, family.queueCount, jobs, family.timestampValidBits))
headers = ("device", "family", "queues", "can do", "timestamp bits")
HTML(draw.table_html("Queue families of this machine", headers, rows))

# %% [markdown] id="l02-e3-text" vklab={"role": "text", "id": "02-3"}
# ### Exercise 3 · Pick the queue families
# You need two families: one to compute, one to copy beside it. Your program also measures long runs. The clock of a family has `timestamp_valid_bits` bits: none (0), or 36 to 64. At one nanosecond a tick, a clock of [[bits]] bits starts again from zero after [[wraps]]. Prefer at least [[bits]] bits. A longer clock is no better. A shorter one will do where no family has more; then its bits do not count.
#
# One rule of the specification is easy to miss. A family with graphics or compute can always copy, and *need not* say so. So never ask a compute family whether it has `transfer`.
#
# To try your function, make up families from words: `families("16gct", "2t", "8ct-36")`. First comes the number of queues. The letters behind it are the flags: `g` graphics, `c` compute, `t` transfer, `s` sparse binding, `v` video decoding. `-36` stands for a clock of 36 bits, `-0` for no clock; without it the clock has 64 bits.

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
                                  "copies. Blue with both words: one family does both.",
                                  pick_queue_families))

# %% id="l02-e3-check" vklab={"role": "check", "id": "02-3"}
check("02-3", pick_queue_families)

# %% id="l02-e3-hint"
# hint("02-3")

# %% [markdown] id="l02-e3-swap-text"
# vklab has such a function, too. Now yours takes its place, and vklab opens every device of this machine with it. (A device with a single family proves little: every right answer is `(0, 0)`.) Then read vklab's own function. It has no rule for clocks and numbers of queues, because vklab uses one queue of each family and measures no long runs.

# %% id="l02-e3-swap" vklab={"role": "demo"}
OWN = "vklab.vulkan.device.choose_queue_families"
with attempt("02-3"), swap(OWN, pick_queue_families), Instance() as connection:
    usable = [info for info in vklab.devices() if not info.refusal]
    for info in usable:
        with Device(connection, connection.physical_devices()[info.index], info) as device:
            assert device.compute_queue.family.index == pick_queue_families(info.queue_families)[0]
    print("every usable device opens on your family:", len(usable) > 0)

# %% id="l02-e3-show"
show("vklab.vulkan.device.choose_queue_families")

# %% [markdown] id="l02-3text"
# ## 3 · The same in one line
# Three questions of the picture are open: limits, memory and features. Lab 02b asks them. vklab makes all these calls once for each device and keeps the answers in a `DeviceInfo`: plain data without a handle.

# %% id="l02-device" tags=["nbval-ignore-output"]
infos = vklab.devices()
infos[0]

# %% [markdown] id="l02-4text"
# ## 4 · Which device was it?
# A user writes: "it fails on device 1". Which device is that? The specification promises no order. On Linux the loader sorts (since 1.3.204: by type, then by PCI address). On Windows it follows the preference of the system. Device 0 becomes device 1 when somebody plugs a card in.
#
# `vendorID` and `deviceID` name the model, so two equal cards share both. A program that must find the same card again stores its `deviceUUID`: 16 bytes that stay the same over restarts and new drivers. (The specification promises this. Lavapipe breaks the promise: version 22.3.6 gives the text `mesa22.3.6`.)
#
# Often fewer bytes are enough. A bug report only has to tell the devices of one company apart. Below (extra) are ten made-up devices with ten fields. No two devices are equal in all fields.

# %% id="l02-park" vklab={"id": "02-4"}
SIZES, VALUES = ten_devices()
rows = [(name, SIZES[name], *VALUES[name]) for name in SIZES]
HTML(draw.table_html("Ten devices: the fields, and of the UUID only the beginning",
                     ("field", "bytes", *map(str, range(10))), rows))

# %% id="l02-apart-picture" vklab={"id": "02-4"} tags=["hide-input"]
figures.draw_apart(SIZES, VALUES, ["vendorID", "deviceID"], "Pairs of devices. Vendor and model "
                   "take 8 bytes, and several pairs still look the same.")

# %% [markdown] id="l02-e4-text" vklab={"id": "02-4"}
# ### Exercise 4 · Tell them apart (scored, extra)
# Find the fields that tell every device from every other one, in the fewest bytes, for any list of devices. Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra.
#
# One point is for lists that tell all devices apart. The others count bytes, one point for each of three drawn lists of devices. (A check always draws the same three; the grader draws others.) The obvious answer earns nothing. It is the best of five: all fields; the UUID alone; or one field after the other until all devices differ, always the cheapest field, the one that tells most new pairs apart, or the one that tells most new pairs apart for each byte. The fewest possible bytes earn the point, and an answer in between earns its share.

# %% id="l02-e4" vklab={"role": "exercise", "id": "02-4", "points": 4, "lines": 6}
from itertools import combinations  # combinations("abc", 2) yields ab, ac and bc, as tuples


def tell_apart(sizes, values):
    """Return the names of the fields that tell all devices apart in the fewest bytes.

    sizes: {field: bytes}; values: {field: [value of device 0, value of device 1, ...]}.
    TODO     return a list of names. Any two devices differ in at least one of these fields. The
             bytes of the fields together are as few as possible. No field occurs twice.
    Limits   at most ten fields; all lists of a check together take at most 10 seconds.
    Approach for a list of names: make the row of each device, and count the different rows.
    Example  tell_apart({"type": 1, "name": 9}, {"type": [2, 2], "name": ["a", "b"]}) -> ["name"]
    (roughly 6 lines)
    """
    ### BEGIN SOLUTION
    lists = [names for count in range(len(sizes) + 1) for names in combinations(sizes, count)]
    for names in sorted(lists, key=lambda names: sum(sizes[name] for name in names)):
        rows = list(zip(*(values[name] for name in names), strict=True))
        if rows and len(set(rows)) == len(rows):
            return list(names)
    ### END SOLUTION


# %% id="l02-e4-picture" vklab={"role": "demo", "id": "02-4"}
with attempt("02-4"):
    display(figures.draw_apart(SIZES, VALUES, tell_apart(SIZES, VALUES),
                               "Your fields, and the pairs that they tell apart."))

# %% id="l02-e4-check" vklab={"role": "check", "id": "02-4"}
check("02-4", tell_apart)

# %% id="l02-e4-hint" vklab={"id": "02-4"}
# hint("02-4")

# %% [markdown] id="l02-cleanup-text"
# **Clean up.** Destroy the instance last, after all objects that were made from it. Using a handle of a destroyed instance raises no error; it may end your kernel. So the cell empties `handles` first. To ask again, start at step 1.

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
# | which version, whose? | `vkGetPhysicalDeviceProperties` | `.api_version`, `.vendor` | one packing for all vendors |
# | which queues? | `...QueueFamilyProperties` | `.queue_families` | asking compute for `transfer` |
# | what does a call read? | pointers in structures | `vulkan.api.struct` | memory that nobody keeps |
# | the same device again? | `deviceUUID` | `.uuid` | storing its number |
#
# **Next**: [lab 02b](02b_choosing_devices.ipynb) asks for limits, memory and features, and chooses devices. To try more, run `vklab devices --json` in a terminal. The [glossary](GLOSSARY.md) has the words of all labs.
#
# **References**
# * Vulkan specification: [Devices and Queues](https://docs.vulkan.org/spec/latest/chapters/devsandqueues.html), and *Version Numbers* in [Extending Vulkan](https://docs.vulkan.org/spec/latest/chapters/extensions.html).
# * `LoaderDriverInterface.md` and `LoaderApplicationInterface.md` in the [loader's repository](https://github.com/KhronosGroup/Vulkan-Loader/tree/main/docs): where drivers are looked for, and the order of devices.
