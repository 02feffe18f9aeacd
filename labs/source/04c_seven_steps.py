# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Seven steps"
#     minutes: 70
#     before: ["04"]
# ---

# %% [markdown] id="l04c-title"
# # Lab 04c · Seven steps
# **From an empty process to a result, with Vulkan's own calls** · 70 minutes, 2 exercises, the last one extra
#
# In lab 04 `run_kernel` did everything around your kernel. Here nothing is hidden: seven steps, and 16 kinds of objects. You run each step, and write what describes the kernel. Then one of these objects, the descriptor set, is shared by several kernels.
#
# **Afterwards you can**
# * name the seven steps, and say what each object is for;
# * describe the interface of a kernel in the numbers of Vulkan's structures;
# * say why a host that has waited for a fence still needs a barrier;
# * count what a second kernel costs, and say when kernels can share a descriptor set.
#
# **Before this lab**: lab 04. Step 1 says what it needs of lab 02. At hand: the [glossary](GLOSSARY.md), and [Slang on one page](SLANG.md).
#
# **Files it opens**: `shaders/labs/vector_add.comp`.

# %% id="l04c-setup" tags=["hide-input"]
import re
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import vulkan as vk
from IPython.display import display

from vklab.runtime import open_devices
from vklab.shader import source, toolchain
from vklab_course import attempt, banner, check, hint, predict, show
from vklab_labs.lab_04.descriptors import draw_sets
from vklab_labs.lab_04.steps import ObjectStack
from vklab_labs.shared import compilers
from vklab_labs.shared.diagram import Diagram
from vklab_labs.shared.lanes import draw_graph, draw_timeline

# %% id="l04c-banner"
banner()

# %% id="l04c-own" vklab={"role": "own", "id": "l04c-own"}
# Your own helpers and imports, if you need any: this cell is handed in with your answers.

# %% [markdown] id="l04c-takes"
# ## 1 · What a kernel takes
# This is `vector_add` in GLSL. Three of its `layout` lines give each buffer a number, its **binding**, in set 0 (a program may bind several sets; ours has one); Slang numbers buffers in the order of declaration. The line with `push_constant` describes the push constants.

# %% id="l04c-comp"
show("labs/vector_add.comp")

# %% [markdown] id="l04c-slots"
# The kernel names no buffer of your program. A **descriptor** tells the device where one buffer is, and the **descriptor set layout** has a slot for each descriptor that the kernel needs, with the same binding number.

# %% id="l04c-slots-d" tags=["hide-input"]
slots = Diagram(640, 126)
for n, name in enumerate("aby"):
    slots.box((20, 6 + 40 * n, 130, 32), f"kernel: {name}", "blue")
    slots.box((250, 6 + 40 * n, 130, 32), f"slot: binding {n}", "orange")
    slots.box((480, 6 + 40 * n, 140, 32), f"buffer of {name}", "green")
    slots.arrow((150, 22 + 40 * n), (248, 22 + 40 * n))
    slots.arrow((380, 22 + 40 * n), (478, 22 + 40 * n))
slots.picture("Each name in the kernel leads to a slot with a binding number, and on to a buffer.",
              "The layout makes the slots; a descriptor set fills each of them with a buffer.")

# %% [markdown] id="l04c-slots-p"
# First predict: the kernel uses three buffers. A program makes a layout with two slots, and from it a pipeline with this kernel. This breaks a rule of Vulkan. Can you count on `"an error"` from one of Vulkan's calls, or must you expect `"no error"`?

# %% id="l04c-p1"
predict("04c-p1", calls=...)

# %% [markdown] id="l04c-e1t"
# ### Exercise 1 · What the kernel takes
# Describe the interface of a kernel in the numbers of Vulkan's structures. Vulkan does not ask a driver to check it, so step 4 below tests your answer first: with a wrong one it does not go on.

# %% id="l04c-e1" vklab={"role": "exercise", "id": "04c-1", "points": 3, "lines": 4}
STORAGE = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER


def kernel_interface(buffers, members):
    """Return the descriptor slots of a kernel and its push-constant range, as plain ints.

    buffers: binding number by name, {"a": 0, "b": 1, "y": 2} for vector_add; each is one storage
    buffer. members: types in the struct of push constants, ("uint",) for vector_add.

    TODO     a list of (binding, descriptor type, descriptor count), one for each buffer; and the
             range (first byte, bytes) that covers the struct, or None for a struct without members.
    Approach every member (uint, int or float) takes four bytes.
    Example  kernel_interface({"y": 7}, ("uint", "float")) -> ([(7, STORAGE, 1)], (0, 8))
                                                                             (roughly 3 lines)
    """
    ### BEGIN SOLUTION
    slots = [(binding, STORAGE, 1) for binding in buffers.values()]
    return slots, (0, 4 * len(members)) if members else None
    ### END SOLUTION


# %% id="l04c-e1c" vklab={"role": "check", "id": "04c-1"}
check("04c-1", kernel_interface)

# %% id="l04c-e1h" tags=["nbval-ignore-output"]
# hint("04c-1")

# %% [markdown] id="l04c-steps"
# ## 2 · The seven steps
# One row of the picture is one step; dashed boxes do not exist yet.
#
# `objects` is a stack: it records each object that you create, together with the call that destroys it. Run a step again, and the stack first destroys what that step and later ones created.

# %% id="l04c-empty"
objects = ObjectStack()
objects.picture()

# %% [markdown] id="l04c-s1"
# ### Step 1: instance and device
# The **instance** connects this process to Vulkan. It lists **physical devices**: what the drivers of this machine offer, GPUs or the processor. From one of them you create a logical **device**, your own connection to it, with one **queue** that takes work. Queues come in **families**; yours must be able to compute.

# %% id="l04c-s1c" tags=["nbval-ignore-output"]
objects.step(1)

# On macOS the driver MoltenVK runs Vulkan on Metal. It is no complete Vulkan driver, and the loader
# lists such drivers only if the instance names this extension and sets flag 1.
offered = {e.extensionName for e in vk.vkEnumerateInstanceExtensionProperties(None)}
portable = list({"VK_KHR_portability_enumeration"} & offered)
application = vk.VkApplicationInfo(apiVersion=vk.VK_MAKE_VERSION(1, 3, 0))
instance_info = vk.VkInstanceCreateInfo(pApplicationInfo=application,
                                        flags=1 if portable else 0,
                                        ppEnabledExtensionNames=portable)
instance = vk.vkCreateInstance(instance_info, None)
objects.keep("instance", instance, vk.vkDestroyInstance)

number = open_devices.select().index  # the device of the banner
physical = objects.keep("physical device", vk.vkEnumeratePhysicalDevices(instance)[number])

families = vk.vkGetPhysicalDeviceQueueFamilyProperties(physical)
family = next(i for i, f in enumerate(families) if f.queueFlags & vk.VK_QUEUE_COMPUTE_BIT)
has = {e.extensionName for e in vk.vkEnumerateDeviceExtensionProperties(physical, None)}
priorities = [1.0]
queue_info = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, pQueuePriorities=priorities)
subset = list({"VK_KHR_portability_subset"} & has)  # a device that offers this must enable it
# Compilers for Vulkan 1.3 may store the size of a workgroup in a way that needs this feature.
features = vk.VkPhysicalDeviceVulkan13Features(maintenance4=True)
device_info = vk.VkDeviceCreateInfo(pNext=features, pQueueCreateInfos=[queue_info],
                                    ppEnabledExtensionNames=subset)
device = vk.vkCreateDevice(physical, device_info, None)
objects.keep("device", device, vk.vkDestroyDevice)

queue = objects.keep("queue", vk.vkGetDeviceQueue(device, family, 0))
objects.picture()

# %% [markdown] id="l04c-s1r"
# You create neither the physical device nor the queue: the one belongs to the instance, the other to the device. One trap of these Python bindings: a structure in a list must have a name of its own, as `queue_info` has. The bindings copy it into an array, but do not keep alive what it points to, here the priorities. Without a name these may be gone before the call reads them.
#
# ### Step 2: compile
# Vulkan reads neither GLSL nor Slang. It takes **SPIR-V**, a list of 32-bit words that is the same for every vendor; the driver turns it into the machine code of the device.

# %% id="l04c-s2d" tags=["hide-input"]
draw_graph([{"GLSL": "blue", "Slang": "blue"}, {"SPIR-V": "orange"}, {"machine code": "green"}],
           [("GLSL", "SPIR-V", ""), ("Slang", "SPIR-V", ""),
            ("SPIR-V", "machine code", "the driver")],
           alt="GLSL and Slang are compiled to SPIR-V; the driver compiles that to machine code.",
           caption="Two stages: a compiler (glslc, glslangValidator; slangc), then the driver.")

# %% [markdown] id="l04c-s2t"
# The next cell compiles `vector_add.comp`, or the Slang version where no compiler for GLSL is installed.

# %% id="l04c-s2c" tags=["nbval-ignore-output"]
objects.step(2)

found, kernel_file = toolchain.find_toolchain("glsl"), "labs/vector_add.comp"
if found is None:
    print("no GLSL compiler here. To have one:", toolchain.REPAIRS["glsl"])
    found, kernel_file = compilers.required("slang"), "labs/vector_add.slang"

with tempfile.TemporaryDirectory() as folder:
    output = Path(folder) / "vector_add.spv"
    command = found.command(source.find(kernel_file), output, (), ())
    print("$", " ".join(Path(word).name for word in command))
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    spirv = output.read_bytes()

words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
print(f"{len(words)} words; the first is {words[0]:#010x}, SPIR-V's magic number")
objects.keep("SPIR-V", spirv)
objects.picture()

# %% [markdown] id="l04c-s3"
# ### Step 3: shader module
# A **shader module** hands the words to the driver. `codeSize` is in *bytes*, although `pCode` points to words.

# %% id="l04c-s3c" tags=["nbval-ignore-output"]
objects.step(3)

module_info = vk.VkShaderModuleCreateInfo(codeSize=len(spirv), pCode=spirv)
module = vk.vkCreateShaderModule(device, module_info, None)
objects.keep("shader module", module, vk.vkDestroyShaderModule, device)
objects.picture()

# %% [markdown] id="l04c-s4"
# ### Step 4: pipeline
# The slots of your exercise become a **descriptor set layout**. The **pipeline layout** adds the push constants, as a range of bytes. From module and layout the driver builds the **compute pipeline**. Most drivers make the machine code now; some wait until the first dispatch.

# %% id="l04c-s4c" tags=["nbval-ignore-output"]
with attempt("04c-1"):
    interface = objects.checked("04c-1", kernel_interface)
    slots, (first_byte, push_bytes) = interface({"a": 0, "b": 1, "y": 2}, ("uint",))
    objects.step(4)
    COMPUTE = vk.VK_SHADER_STAGE_COMPUTE_BIT

    bindings = [vk.VkDescriptorSetLayoutBinding(binding=number, descriptorType=kind,
                                                descriptorCount=count, stageFlags=COMPUTE)
                for number, kind, count in slots]
    push_range = vk.VkPushConstantRange(stageFlags=COMPUTE, offset=first_byte, size=push_bytes)
    set_layout_info = vk.VkDescriptorSetLayoutCreateInfo(pBindings=bindings)
    set_layout = vk.vkCreateDescriptorSetLayout(device, set_layout_info, None)
    objects.keep("set layout", set_layout, vk.vkDestroyDescriptorSetLayout, device)

    layout_info = vk.VkPipelineLayoutCreateInfo(pSetLayouts=[set_layout],
                                                pPushConstantRanges=[push_range])
    layout = vk.vkCreatePipelineLayout(device, layout_info, None)
    objects.keep("pipeline layout", layout, vk.vkDestroyPipelineLayout, device)

    stage = vk.VkPipelineShaderStageCreateInfo(stage=COMPUTE, module=module, pName="main")
    pipeline_info = vk.VkComputePipelineCreateInfo(stage=stage, layout=layout)
    pipeline = vk.vkCreateComputePipelines(device, None, 1, [pipeline_info], None)[0]
    objects.keep("pipeline", pipeline, vk.vkDestroyPipeline, device)
    display(objects.picture())

# %% [markdown] id="l04c-s5"
# ### Step 5: buffers
# A **buffer** has a size and a use, and no memory. For each buffer: ask what memory it needs, allocate that, and **bind** the two. The memory here is *host-visible* (the CPU may map it and write into it) and *coherent* (no `flush` is needed after a write of the host, and no `invalidate` before a read; lab 03). To *map* memory is to get a pointer to it. Then a **descriptor set** fills the slots of step 4: `dstBinding=n`, with `n` = 0, and `binding = 0` in the kernel are all that connects the two `a`. The set comes from a **descriptor pool**.

# %% id="l04c-s5c" tags=["nbval-ignore-output"]
with attempt("04c-1"):
    objects.step(5)
    a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)

    types = vk.vkGetPhysicalDeviceMemoryProperties(physical)
    wanted = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
    buffers, mapped = [], []
    for _ in range(3):
        buffer_info = vk.VkBufferCreateInfo(size=a.nbytes,
                                            usage=vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT)
        buffer = vk.vkCreateBuffer(device, buffer_info, None)
        objects.keep("buffers", buffer, vk.vkDestroyBuffer, device)

        needed = vk.vkGetBufferMemoryRequirements(device, buffer)
        kind = next(i for i in range(types.memoryTypeCount)
                    if needed.memoryTypeBits >> i & 1
                    and types.memoryTypes[i].propertyFlags & wanted == wanted)
        memory_info = vk.VkMemoryAllocateInfo(allocationSize=needed.size, memoryTypeIndex=kind)
        memory = vk.vkAllocateMemory(device, memory_info, None)
        objects.keep("memory", memory, vk.vkFreeMemory, device)
        vk.vkBindBufferMemory(device, buffer, memory, 0)
        buffers.append(buffer)
        mapped.append(vk.vkMapMemory(device, memory, 0, a.nbytes, 0))
    mapped[0][:] = a.tobytes()
    mapped[1][:] = b.tobytes()
    mapped[2][:] = np.full_like(a, -1).tobytes()  # -1 where nobody writes y

    room = vk.VkDescriptorPoolSize(type=STORAGE, descriptorCount=3)
    pool_info = vk.VkDescriptorPoolCreateInfo(maxSets=1, pPoolSizes=[room])
    pool = vk.vkCreateDescriptorPool(device, pool_info, None)
    objects.keep("descriptor pool", pool, vk.vkDestroyDescriptorPool, device)
    set_info = vk.VkDescriptorSetAllocateInfo(descriptorPool=pool, pSetLayouts=[set_layout])
    descriptor_set = vk.vkAllocateDescriptorSets(device, set_info)[0]
    objects.keep("descriptor set", descriptor_set)
    infos = [vk.VkDescriptorBufferInfo(buffer=x, offset=0, range=a.nbytes) for x in buffers]
    writes = [vk.VkWriteDescriptorSet(dstSet=descriptor_set, dstBinding=n, descriptorCount=1,
                                      descriptorType=STORAGE, pBufferInfo=infos[n])
              for n in range(3)]
    vk.vkUpdateDescriptorSets(device, 3, writes, 0, None)
    display(objects.picture())

# %% [markdown] id="l04c-s6"
# ### Steps 6 and 7: record, submit, wait
# A **command buffer** is a list of commands for later; it comes from a **command pool**. Recording runs nothing. Five commands go in: which pipeline, which buffers, which push constants, how many workgroups, and a barrier. `vkQueueSubmit` hands the list to the device and returns without waiting for the work. A **fence** is an object that the device signals when the work is done; the host waits for it, here for ten seconds at most.

# %% id="l04c-s6d" tags=["hide-input"]
host = [("step 6: record", 0, 3, "blue"), ("submit", 3, 4, "orange"),
        ("wait for the fence", 4, 8.4, "grey"), ("read y", 8.4, 10, "blue")]
gpu = [("read a, b; write y", 4.6, 7.4, "green"), ("barrier", 7.4, 8.4, "pink")]
draw_timeline({"host": host, "device": gpu},
              [("host", 3.8, "device", 4.8), ("device", 8.3, "host", 8.5)],
              alt="The host records, submits, waits; the device runs the kernel and the barrier.",
              caption="Nothing runs before the submission. The arrow to the host is the fence: "
                      "kernel and barrier are done.")

# %% [markdown] id="l04c-s6b"
# Why a **barrier**, if the host waits anyway? The fence says that the work is *done*. The specification says that this alone does not make the kernel's writes *visible* to the CPU; the barrier does. In the other direction coherent memory needs nothing: `vkQueueSubmit` makes everything that the host wrote before visible to the device.

# %% id="l04c-s6c" tags=["nbval-ignore-output"]
with attempt("04c-1"):
    objects.step(6)
    groups = (-(-1000 // 64), 1, 1)  # rounded up: 16 workgroups of 64

    command_pool_info = vk.VkCommandPoolCreateInfo(queueFamilyIndex=family)
    command_pool = vk.vkCreateCommandPool(device, command_pool_info, None)
    objects.keep("command pool", command_pool, vk.vkDestroyCommandPool, device)
    commands_info = vk.VkCommandBufferAllocateInfo(
        commandPool=command_pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1)
    commands = objects.keep("command buffer", vk.vkAllocateCommandBuffers(device, commands_info)[0])

    visible = vk.VkMemoryBarrier(srcAccessMask=vk.VK_ACCESS_SHADER_WRITE_BIT,
                                 dstAccessMask=vk.VK_ACCESS_HOST_READ_BIT)
    BIND_POINT, pushed = vk.VK_PIPELINE_BIND_POINT_COMPUTE, struct.pack("<I", 1000)

    vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo())
    vk.vkCmdBindPipeline(commands, BIND_POINT, pipeline)
    vk.vkCmdBindDescriptorSets(commands, BIND_POINT, layout, 0, 1, [descriptor_set], 0, None)
    vk.vkCmdPushConstants(commands, layout, COMPUTE, 0, len(pushed),
                          vk.ffi.from_buffer(pushed))  # a C pointer to Python's bytes
    vk.vkCmdDispatch(commands, *groups)
    vk.vkCmdPipelineBarrier(commands, vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                            vk.VK_PIPELINE_STAGE_HOST_BIT, 0, 1, [visible], 0, None, 0, None)
    vk.vkEndCommandBuffer(commands)
    display(objects.picture())

# %% id="l04c-s7c" tags=["nbval-ignore-output"]
with attempt("04c-1"):
    objects.step(7)

    fence = vk.vkCreateFence(device, vk.VkFenceCreateInfo(), None)
    objects.keep("fence", fence, vk.vkDestroyFence, device)
    submit_info = vk.VkSubmitInfo(pCommandBuffers=[commands])
    vk.vkQueueSubmit(queue, 1, [submit_info], fence)
    vk.vkWaitForFences(device, 1, [fence], True, 10 * 10**9)  # nanoseconds

    y = np.frombuffer(mapped[2], np.float32).copy()  # a copy: the memory is freed soon
    print(f"y == a + b: {np.array_equal(y, a + b)}; never written: {(y == -1).sum()}")
    display(objects.picture())

# %% [markdown] id="l04c-s7r"
# Objects are destroyed in reverse order: what was created from the device goes before the device. (Some may go earlier: a shader module is not needed once its pipeline exists.) Five of the 16 kinds need no call: SPIR-V is only bytes in Python; physical device, queue, descriptor set and command buffer go with the object that they come from. The other 11 kinds make 15 calls, because there are three buffers and three pieces of memory. After the next cell the steps can be run again from 1.

# %% id="l04c-end" tags=["nbval-ignore-output"]
print(objects.end(), "destroy calls, the object made last first")

# %% [markdown] id="l04c-where"
# vklab makes the same calls: steps 6 and 7 in `_submit` of `labs/engine/vklab_course/children/kernel_child.py`, the others in `vklab/vulkan/`: `instance.py` and `device.py` (1), `pipeline.py` (3, 4), `memory.py` and `descriptors.py` (5); step 2 in `vklab/shader/compiler.py`.
#
# Next predict: a second kernel, `y = a * b`, in a file of its own, has the same bindings and push constants, and works on the same three buffers. Which objects does it need? Write `"a new one"` or `"the same"`.

# %% id="l04c-p2"
predict("04c-p2", shader_module=..., pipeline=...,
        descriptor_set=..., memory=...)

# %% [markdown] id="l04c-count"
# ### Is it 100 times more code?
# A course on the web says that Vulkan takes "~1000 lines of boilerplate" for its first program, and "100x more code than CUDA" to add two arrays. Count them. The lines below include what vklab's course adds, such as the search for a compiler. The line on CUDA is a fixed text: it leaves compiling out, and counts each call once:

# %% id="l04c-lines" tags=["nbval-ignore-output"]
cells = {int(step[1]): text for text in In if (step := re.search(r"objects\.step\((\d)\)", text))}
skipped = ("#", "objects.", "display(", "print(", "with attempt", "a, b =", "y =")
lines = [line for text in cells.values() for line in map(str.strip, text.splitlines())
         if line and not line.startswith(skipped)]
calls = re.findall(r"vk\.(vk[A-Z]\w+)\(", "\n".join(lines))
print(f"{len(cells)} steps: {len(lines)} lines of Python, {len(calls)} calls of Vulkan in the text")
print("CUDA: cudaMalloc 3, cudaMemcpy 3, the launch, cudaFree 3: about 10 lines and 10 calls")

# %% [markdown] id="l04c-lines-r"
# Counted in lines, this is about ten times as much as CUDA; in C, where each field of a structure takes a line, 20 to 30 times. Of the 32 calls in the text, five stand in a loop over three buffers, so 42 calls are made, and 15 more destroy the objects: 57, where CUDA makes 10. And most of it is needed once: a second kernel needs its own shader module and pipeline, and for other buffers its own descriptor set. Another dispatch repeats steps 6 and 7, and the same dispatch once more only step 7.
#
# ## 3 · One descriptor set for several kernels
# A program runs several kernels on the same buffers. The seven steps gave one kernel one set with three descriptors. A set may serve several kernels, because a layout may have slots that a kernel does not use; the kernels only have to agree on the binding numbers, and all their pipelines are made with the layout of that set. Fewer descriptors mean less work for the host.

# %% id="l04c-sets-d" tags=["hide-input"]
sharing = Diagram(700, 226)
for left, title in ((0, "a set for each kernel: 2 + 3 = 5 descriptors"),
                    (380, "one set for both: 4 descriptors")):
    sharing.note((left + 8, 16), title, bold=True)
    for top, words in ((30, "scale: x, t"), (132, "add: t, b, y")):
        sharing.box((left + 8, top, 110, 84), words, "blue")
for n, name in enumerate(("x", "t")):
    sharing.box((190, 44 + 30 * n, 100, 26), f"{n}: {name}", "orange")
for n, name in enumerate(("t", "b", "y")):
    sharing.box((190, 130 + 30 * n, 100, 26), f"{n}: {name}", "orange")
sharing.box((572, 54, 116, 132), "", "grey", filled=False)
for n, name in enumerate("xtby"):
    sharing.box((580, 62 + 30 * n, 100, 26), f"{n}: {name}", "orange")
sharing.arrow((118, 72), (188, 72)).arrow((118, 174), (188, 174))
sharing.arrow((498, 72), (570, 100)).arrow((498, 174), (570, 142))
sharing.picture("Two kernels, each with a set of its own, and the same kernels with one set.",
                "scale writes t from x, add writes y from t and b. "
                "Orange: descriptors, with their bindings.")

# %% [markdown] id="l04c-e2t" vklab={"id": "04c-2"}
# There is a limit: `maxPerStageDescriptorStorageBuffers` says how many storage buffers the layout of a compute pipeline may have, whether its kernel uses them or not. Vulkan promises 4. (Most GPUs allow many more. The *Roadmap* milestones, lists of what newer devices should offer, have 30 for 2022 and 200 for 2026. A program that must run everywhere has 4.)
#
# ### Exercise 2 · Fewest descriptors (scored, extra)
# Put the kernels of a program on descriptor sets, so that all sets together have as few descriptors as possible. Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra. Each kernel uses one set, and that set has all of its buffers.
#
# The obvious way takes the kernels in the given order and puts each into the first set that still has room. Here it is for eight kernels of an attention layer, a part of language models, sorted by name. (A ninth, `p = e / z`, is left out.)

# %% id="l04c-e2p" vklab={"id": "04c-2"} tags=["hide-input"]
ATTENTION = {"add": ("x", "y"), "exp": ("s", "m", "e"), "largest": ("s", "m"), "mask": ("s", "c"),
             "mix": ("p", "v", "o"), "project": ("o", "w", "y"), "scores": ("q", "k", "s"),
             "sum": ("e", "z")}
draw_sets(ATTENTION, [["add", "largest"], ["exp", "mask"], ["mix"], ["project"],
                      ["scores"], ["sum"]], 4, "First fit: each kernel in the first set with room.")

# %% [markdown] id="l04c-e2s" vklab={"id": "04c-2"}
# `add` and `largest` share nothing, so their set is full and of little use to others. 15 descriptors are enough for these eight kernels.
#
# One point is for *valid* answers. The others count descriptors, one point for each program: first fit earns nothing, the fewest possible earn the point, and an answer in between earns its share. The programs are the picture's and three random ones, of at most nine kernels, so you may try many answers.

# %% id="l04c-e2" vklab={"role": "exercise", "id": "04c-2", "points": 5, "lines": 12}
def share_sets(kernels, limit):
    """Return lists of kernel names, a list for each descriptor set, with few descriptors in all.

    kernels: {name: names of its buffers}; limit: most buffers of one set. All programs of the
    check together have 10 seconds.

    TODO     put each kernel into one list. The set of a list has every buffer of its kernels once,
             and at most `limit` buffers.
    Approach for each kernel: which of the lists so far have room? Or is a new list better?
    Example  share_sets({"scale": ("x", "t"), "add": ("t", "b", "y")}, 4) -> [["scale", "add"]]
             and with limit 3 -> [["scale"], ["add"]]                       (roughly 12 lines)
    """
    ### BEGIN SOLUTION
    def best(left, sets):
        if not left:
            return sum(len(buffers) for buffers, _ in sets), [names for _, names in sets]
        name, new = left[0], set(kernels[left[0]])
        found = [best(left[1:], [*sets, (new, [name])])]
        for n, (buffers, names) in enumerate(sets):
            if len(buffers | new) <= limit:
                grown = (buffers | new, [*names, name])
                found.append(best(left[1:], [*sets[:n], grown, *sets[n + 1:]]))
        return min(found)

    return best(list(kernels), [])[1]
    ### END SOLUTION


# %% id="l04c-e2d" vklab={"role": "demo", "id": "04c-2"}
with attempt("04c-2"):
    display(draw_sets(ATTENTION, share_sets(ATTENTION, 4), 4, "Your sets."))

# %% id="l04c-e2c" vklab={"role": "check", "id": "04c-2"}
check("04c-2", share_sets)

# %% id="l04c-e2h" vklab={"id": "04c-2"} tags=["nbval-ignore-output"]
# hint("04c-2")

# %% [markdown] id="l04c-e2r"
# A program that writes its sets once saves these writes once. A program that changes its buffers for every input saves them every time. vklab goes another way: where the device can, it *pushes* descriptors into the command buffer and needs no sets (`vklab/vulkan/descriptors.py`).

# %% [markdown] id="l04c-break"
# ## 4 · What would break this?
# Make these two changes in step 6, one after the other, and run the steps again from 1. What do you expect, and what do you see?
#
# <details><summary>Step 6 without the barrier</summary>
#
# On many machines nothing changes: the sum is right. A device with its own caches may show old bytes, sometimes. So a test that passes proves nothing here. Reading the code helps, and so does a habit: whoever maps memory to read it writes the barrier.
# </details>
#
# <details><summary>Step 6 with 15 workgroups</summary>
#
# 40 elements of `y`, 960 to 999, are still -1, because step 5 wrote -1 first; the checks of these labs do the same. Without that line they would keep what the memory held before: zeros in fresh memory, which look like a result, or even the right numbers of an earlier run.
# </details>

# %% [markdown] id="l04c-recap"
# ## Recap
# | word | what it is | where |
# |---|---|---|
# | instance, physical device, device, queue | the way to one GPU | step 1 |
# | SPIR-V, shader module | the kernel, for any vendor; the same words, held by the driver | steps 2, 3 |
# | descriptor set layout, pipeline layout, pipeline | what the kernel takes; the kernel, ready to run | 04c-1, step 4 |
# | buffer, memory, descriptor set | where the numbers are; which buffer is which binding | step 5 |
# | command buffer, barrier, fence | the list of commands; makes writes visible; says that all is done | steps 6, 7 |
# | shared descriptor set | one set with the buffers of several kernels, up to a limit | 04c-2 |
#
# All words are in the [glossary](GLOSSARY.md), the language is in [Slang on one page](SLANG.md).
#
# **Next**: [lab 05](05_pipelines.ipynb), pipelines, layouts from reflection and specialization constants. Then come barriers and the validation layers (06), and what happens inside one workgroup (07).
#
# **To read**
# * Vulkan specification, chapters *Synchronization and Cache Control* (fences, host access types, host write ordering), *Pipelines*, *Descriptor Sets* (pipeline layout compatibility; older editions: *Resource Descriptors*), *Limits*: <https://docs.vulkan.org/spec/latest/index.html>
# * Vulkan specification, appendix *Roadmap Milestones*: <https://docs.vulkan.org/spec/latest/appendices/roadmap.html>
