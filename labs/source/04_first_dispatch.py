# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "First dispatch", minutes: 90}
# ---

# %% [markdown] id="l04-title"
# # Lab 04 · First dispatch
# **Write, compile, bind, dispatch, read back** · 90 minutes, 7 exercises
#
# A GPU adds a thousand numbers with one instruction of yours. Around that one instruction stand seven steps and some
# twenty objects. In this lab you make every one of them by hand, once. Then you let vklab make them, and you spend the rest of
# your time where it belongs: on the kernel.
#
# **Afterwards you can**
# * carry out the seven steps from an empty process to a result, and say what each object is for;
# * write map, zip and two-dimensional kernels in Slang, and read the same kernel in GLSL;
# * compute how many workgroups to dispatch, also when one row of them is not enough;
# * guard a kernel, trace which invocation touches which element, and count reads and writes;
# * find a write out of bounds from the words that it leaves behind.
#
# **Before this lab**: lab 00; lab 02 helps with step 1, lab 03 with step 5. You need NumPy arrays and enough C to read
# `if (i < n) y[i] = a[i];`.
#
# **Files it opens**: `shaders/labs/vector_add.comp`, `shaders/labs/vector_add.slang`, `shaders/lib/index.slang`,
# `vklab/shader/reflection.py`, `vklab/vulkan/command.py`, `vklab/vulkan/pipeline.py`, `vklab/course/children/kernel_child.py`.

# %% id="l04-setup"
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import vulkan as vk
from IPython.display import display
from onnx import TensorProto, helper

import vklab
from vklab.course import Run, attempt, banner, check, hint, run_kernel, show
from vklab.course.figures.dispatch import ObjectStack, draw
from vklab.course.figures.trace import READ, clone, trace
from vklab.runtime import open_devices
from vklab.shader import compiler, reflection, source, toolchain

# %% id="l04-banner"
banner()

# %% [markdown] id="l04-1"
# ## 1 · One addition, a thousand times
# In NumPy: `y = a + b`. On a GPU you write down what **one invocation** does with **one element**, and ask for enough
# invocations. This is the whole kernel, in GLSL:

# %% id="l04-comp"
show("labs/vector_add.comp")

# %% [markdown] id="l04-1p"
# Read it from below:
# * `i` is the number of this invocation, over the whole dispatch: `gl_GlobalInvocationID.x`.
# * Invocations come in **workgroups**, here of 64 (`local_size_x`). You dispatch workgroups; you cannot dispatch one
#   invocation.
# * `a`, `b` and `y` live in **buffers**, found by their `binding` numbers.
# * `count` is a **push constant**: a few bytes that travel with the dispatch.
#
# **Predict first.** There are 1000 elements. How many workgroups do you need? How many invocations run? How many have
# nothing to do? Write three numbers down: step 6 asks for the first.

# %% [markdown] id="l04-2"
# ## 2 · The seven steps
# Here is all that you are about to make. One row is one step; dashed boxes do not exist yet. Each step then shows its own row.
#
# Two of the steps have an exercise in them: there the driver takes a number from *you*, and nobody between you and the driver
# notices a wrong one.
#
# `objects` is a stack: it records each object that you create, together with the command that destroys it. That is why you may run a step again.

# %% id="l04-empty"
objects = ObjectStack()
objects.picture()

# %% [markdown] id="l04-s1"
# ### Step 1: instance and device
# The **instance** connects this process to the Vulkan loader. It lists **physical devices**: what is in the machine. From
# one of them you make a logical **device**, your own connection to it, with one **queue** that takes work. A queue belongs
# to a **queue family**; yours must have the compute bit.
#
# Everything that you create with `vkCreate...` you destroy with `vkDestroy...`. `objects.keep` records both together.

# %% id="l04-s1c" tags=["nbval-ignore-output"]
objects.step(1)

# macOS runs Vulkan on Metal: such drivers are listed only if you ask for them, by these two names.
offered = {e.extensionName for e in vk.vkEnumerateInstanceExtensionProperties(None)}
portable = list({"VK_KHR_portability_enumeration"} & offered)
application = vk.VkApplicationInfo(pApplicationName="lab 04",
                                   apiVersion=vk.VK_MAKE_VERSION(1, 3, 0))
instance_info = vk.VkInstanceCreateInfo(pApplicationInfo=application,
                                        flags=1 if portable else 0,
                                        ppEnabledExtensionNames=portable)
instance = vk.vkCreateInstance(instance_info, None)
objects.keep("instance", instance, vk.vkDestroyInstance)

number = open_devices.select().index  # the device of the banner
physical = objects.keep("physical device", vk.vkEnumeratePhysicalDevices(instance)[number])

families = vk.vkGetPhysicalDeviceQueueFamilyProperties(physical)
family = next(i for i, f in enumerate(families) if f.queueFlags & vk.VK_QUEUE_COMPUTE_BIT)
offered = {e.extensionName for e in vk.vkEnumerateDeviceExtensionProperties(physical, None)}
queue_info = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, pQueuePriorities=[1.0])
device_info = vk.VkDeviceCreateInfo(
    pQueueCreateInfos=[queue_info],
    ppEnabledExtensionNames=list({"VK_KHR_portability_subset"} & offered))
device = vk.vkCreateDevice(physical, device_info, None)
objects.keep("device", device, vk.vkDestroyDevice)

queue = objects.keep("queue", vk.vkGetDeviceQueue(device, family, 0))
objects.picture()

# %% [markdown] id="l04-s1r"
# The queue was not created: it came with the device, and goes with it. The same is true of physical devices.
#
# One trap of these bindings is already in the cell. A structure that you pass *inside another* must have a name of its own, as
# `application` and `queue_info` have: the bindings copy the outer structure but do not keep alive what it points to. An
# object without a name may be gone before the call reads it.

# %% [markdown] id="l04-s2"
# ### Step 2: compile
# Vulkan does not read GLSL. It takes **SPIR-V**: a list of 32-bit words, the same for every vendor. A compiler
# (`glslc` or `glslangValidator`) makes it, here as a separate program, before any GPU is involved.
#
# `needs`: a GLSL compiler. Where none is installed, the cell takes the Slang version of the kernel and says so.

# %% id="l04-s2c" tags=["nbval-ignore-output"]
objects.step(2)

found = toolchain.find_toolchain("glsl")
kernel_file = "labs/vector_add.comp"
if found is None:
    print("no GLSL compiler here: the Slang version is compiled in its place.")
    print("To have one:", toolchain.REPAIRS["glsl"])
    found, kernel_file = toolchain.require_toolchain("slang"), "labs/vector_add.slang"

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

# %% [markdown] id="l04-s3"
# ### Step 3: shader module
# A **shader module** hands the words to the driver. `codeSize` is in **bytes**, although `pCode` points to words.

# %% id="l04-s3c" tags=["nbval-ignore-output"]
objects.step(3)

module_info = vk.VkShaderModuleCreateInfo(codeSize=len(spirv), pCode=spirv)
module = vk.vkCreateShaderModule(device, module_info, None)
objects.keep("shader module", module, vk.vkDestroyShaderModule, device)
objects.picture()

# %% [markdown] id="l04-s4"
# ### Step 4: pipeline
# The module says what to compute. The **descriptor set layout** says what it computes *on*: one slot for each buffer. The
# **pipeline layout** adds the push constants, as a range of bytes. From module and layout the driver builds the **compute pipeline**: now,
# not earlier, your kernel becomes machine code of this device.
#
# **Predict:** the kernel uses three buffers. What happens if the layout has two slots? Answer before you open this:
#
# <details><summary>What happens?</summary>
#
# Nothing in the *types* stops you, and what the kernel then does is undefined: zeros, somebody else's memory, a crash of this process. The
# validation layer would tell you; lab 06 turns it on. Here the check stands in its place: step 4 takes your answer only when it is correct.
# </details>
#
# ### Exercise 04-1: what the kernel takes
# Look at `vector_add.comp` once more (section 1), and describe it in Vulkan's own structures.

# %% id="l04-e1" vklab={"role": "exercise", "id": "04-1", "points": 3, "lines": 4}
STORAGE, COMPUTE = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, vk.VK_SHADER_STAGE_COMPUTE_BIT


def kernel_interface(buffers, members):
    """Return the descriptor slots of a kernel and its push-constant range, as plain numbers.

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


# %% id="l04-e1c" vklab={"role": "check", "id": "04-1"}
check("04-1", kernel_interface)

# %% [markdown] id="l04-e1s"
# Stuck? Each call of `hint` gives one more hint.

# %% id="l04-e1h" tags=["nbval-ignore-output"]
hint("04-1")

# %% id="l04-s4c" tags=["nbval-ignore-output"]
with attempt("04-1"):
    interface = objects.checked("04-1", kernel_interface)
    slots, (first_byte, push_bytes) = interface({"a": 0, "b": 1, "y": 2}, ("uint",))
    objects.step(4)

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

# %% [markdown] id="l04-s5"
# ### Step 5: buffers
# A **buffer** has a size and a use, and no memory. You ask what memory it needs, allocate that, and **bind** the two. Here the
# memory is *host-visible* and *coherent*: the CPU may write into it through a mapped address, with no extra command. Lab 03
# says when that is a bad choice.
#
# A **descriptor set** then fills the slots of your layout with the buffers. `binding = 0` in the kernel and
# `dstBinding=0` here are the whole connection between `a` in GLSL and `a` in NumPy.
#
# Two traps: `VK_WHOLE_SIZE` overflows in these bindings, so sizes are written out; and the list `infos` must stay alive until
# `vkUpdateDescriptorSets` returns.

# %% id="l04-s5c" tags=["nbval-ignore-output"]
with attempt("04-1"):
    objects.step(5)

    a = np.arange(1000, dtype=np.float32)
    b = np.full(1000, 0.5, np.float32)

    types = vk.vkGetPhysicalDeviceMemoryProperties(physical)
    wanted = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
    buffers, mapped = [], []
    for _ in range(3):
        buffer_info = vk.VkBufferCreateInfo(size=a.nbytes,
                                            usage=vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT)
        buffer = vk.vkCreateBuffer(device, buffer_info, None)
        objects.keep("buffers", buffer, vk.vkDestroyBuffer, device)

        needs = vk.vkGetBufferMemoryRequirements(device, buffer)
        kind = next(i for i in range(types.memoryTypeCount)
                    if needs.memoryTypeBits >> i & 1
                    and types.memoryTypes[i].propertyFlags & wanted == wanted)
        memory_info = vk.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=kind)
        memory = vk.vkAllocateMemory(device, memory_info, None)
        objects.keep("memory", memory, vk.vkFreeMemory, device)
        vk.vkBindBufferMemory(device, buffer, memory, 0)
        buffers.append(buffer)
        mapped.append(vk.vkMapMemory(device, memory, 0, a.nbytes, 0))
    mapped[0][:] = a.tobytes()
    mapped[1][:] = b.tobytes()

    room = vk.VkDescriptorPoolSize(type=STORAGE, descriptorCount=3)
    pool_info = vk.VkDescriptorPoolCreateInfo(maxSets=1, pPoolSizes=[room])
    pool = vk.vkCreateDescriptorPool(device, pool_info, None)
    # The set goes with its pool.
    objects.keep("descriptor set", pool, vk.vkDestroyDescriptorPool, device)
    set_info = vk.VkDescriptorSetAllocateInfo(descriptorPool=pool, pSetLayouts=[set_layout])
    descriptor_set = vk.vkAllocateDescriptorSets(device, set_info)[0]
    infos = [vk.VkDescriptorBufferInfo(buffer=x, offset=0, range=a.nbytes) for x in buffers]
    writes = [vk.VkWriteDescriptorSet(dstSet=descriptor_set, dstBinding=n, descriptorCount=1,
                                      descriptorType=STORAGE, pBufferInfo=infos[n])
              for n in range(3)]
    vk.vkUpdateDescriptorSets(device, 3, writes, 0, None)
    display(objects.picture())

# %% [markdown] id="l04-s6"
# ### Step 6: record
# A **command buffer** is a list of what the device shall do later. Recording runs nothing. Five commands go in: which
# pipeline, which buffers, which push constants, how many workgroups, and a **barrier**.
#
# The barrier makes the kernel's writes visible to the host. A fence tells you that the work is *done*; the spec says
# that this alone does not make its results visible to the CPU. On many machines you would get away without it.
#
# ### Exercise 04-2: the numbers in it
# Two of the five commands take numbers from you: `vkCmdPushConstants` copies bytes into the command buffer, `vkCmdDispatch` takes
# the workgroups along x, y and z. You wrote the workgroups for 1000 elements down in section 1; write the rule now.

# %% id="l04-e2" vklab={"role": "exercise", "id": "04-2", "points": 2, "lines": 2}
def push_and_workgroups(count):
    """Return what step 6 records for `count` elements: the pushed bytes, and workgroups (x, y, z).

    TODO     the bytes of the kernel's struct; and how many workgroups of 64 cover `count`.
    Approach struct.pack("<I", 7) makes the four bytes of the uint 7. Each started workgroup counts.
    Example  push_and_workgroups(65) -> (bytes([65, 0, 0, 0]), (2, 1, 1))
                                                                             (roughly 2 lines)
    """
    ### BEGIN SOLUTION
    groups = (count + 63) // 64
    return struct.pack("<I", count), (groups, 1, 1)
    ### END SOLUTION


# %% id="l04-e2c" vklab={"role": "check", "id": "04-2"}
check("04-2", push_and_workgroups)

# %% id="l04-e2h" tags=["nbval-ignore-output"]
hint("04-2")

# %% id="l04-s6c" tags=["nbval-ignore-output"]
with attempt("04-2"):
    pushed, groups = objects.checked("04-2", push_and_workgroups)(1000)
    objects.step(6)

    command_pool_info = vk.VkCommandPoolCreateInfo(queueFamilyIndex=family)
    command_pool = vk.vkCreateCommandPool(device, command_pool_info, None)
    objects.keep("command pool", command_pool, vk.vkDestroyCommandPool, device)
    commands_info = vk.VkCommandBufferAllocateInfo(
        commandPool=command_pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1)
    commands = objects.keep("command buffer", vk.vkAllocateCommandBuffers(device, commands_info)[0])

    visible = vk.VkMemoryBarrier(srcAccessMask=vk.VK_ACCESS_SHADER_WRITE_BIT,
                                 dstAccessMask=vk.VK_ACCESS_HOST_READ_BIT)
    BIND_POINT = vk.VK_PIPELINE_BIND_POINT_COMPUTE

    vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo())
    vk.vkCmdBindPipeline(commands, BIND_POINT, pipeline)
    vk.vkCmdBindDescriptorSets(commands, BIND_POINT, layout, 0, 1, [descriptor_set], 0, None)
    vk.vkCmdPushConstants(commands, layout, COMPUTE, 0, len(pushed),
                          vk.ffi.from_buffer(pushed))
    vk.vkCmdDispatch(commands, *groups)
    vk.vkCmdPipelineBarrier(commands, vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                            vk.VK_PIPELINE_STAGE_HOST_BIT, 0, 1, [visible], 0, None, 0, None)
    vk.vkEndCommandBuffer(commands)
    display(objects.picture())

# %% [markdown] id="l04-s7"
# ### Step 7: submit and wait
# Now it runs. `vkQueueSubmit` returns at once; the **fence** is signalled when the work is done. Every wait has a limit, here ten
# seconds: a notebook that waits for ever teaches nothing.

# %% id="l04-s7c" tags=["nbval-ignore-output"]
with attempt("04-2"):
    objects.step(7)

    fence = vk.vkCreateFence(device, vk.VkFenceCreateInfo(), None)
    objects.keep("fence", fence, vk.vkDestroyFence, device)
    submit_info = vk.VkSubmitInfo(pCommandBuffers=[commands])
    vk.vkQueueSubmit(queue, 1, [submit_info], fence)
    vk.vkWaitForFences(device, 1, [fence], True, 10 * 10**9)

    y = np.frombuffer(mapped[2], np.float32).copy()  # a copy: the memory is freed soon
    print("y == a + b:", np.array_equal(y, a + b))
    display(objects.picture())

# %% [markdown] id="l04-s7r"
# <details><summary>Your three numbers of section 1</summary>
#
# **16** workgroups (15 cover 960 elements, 16 cover 1024), **1024** invocations, **24** with nothing to do. These 24 are why the kernel asks `if (i < count)`.
# </details>
#
# ### And back
# Objects go in reverse order: nothing may be destroyed while something made from it lives. After this cell the steps can
# be run again from 1.

# %% id="l04-end" tags=["nbval-ignore-output"]
print(objects.end(), "objects gone, the last made first")

# %% [markdown] id="l04-3"
# ## 3 · Who touches what?
# The tracer of this lab runs a *clone* of a kernel. In the clone each `y[i]` reads `y[vklab_touch(..., i)]`: the function writes
# the invocation's number and the element into a log, and returns the element. The log is filled on your device, by the
# invocations themselves. It has room for 40000 touches; beyond that, picture and counts say *log full*.

# %% id="l04-twin"
print(clone("if (i < count) y[i] = a[i] + b[i];", ("a", "b", "y")).splitlines()[-1])

# %% [markdown] id="l04-3p"
# (The number in each call says which buffer, and read or write.)
#
# With 100 elements and two workgroups of 64, **predict**: how many invocations are idle? How many reads of `a` are there,
# how many writes of `y`?

# %% id="l04-trace"
ADD = show("labs/vector_add.slang").text
x = np.arange(100, dtype=np.float32)
add_traced = trace(ADD, {"a": x, "b": x, "y": np.zeros_like(x)}, (2,), {"count": 100})
draw(add_traced)

# %% id="l04-counts"
print(add_traced)

# %% [markdown] id="l04-countsr"
# Reads and writes are what this lab counts, in place of time. A count is the same on every machine; a time on a CPU that plays
# a GPU says little about a GPU. `vector_add` moves three numbers for one addition: whatever the device, it will wait for
# memory, not for arithmetic. Lab 08 makes that precise.

# %% [markdown] id="l04-4"
# ## 4 · The same kernel in Slang
# The runtime's own kernels are written in Slang, and so are yours from here on. (GLSL is accepted in every exercise; see the note
# in exercise 04-4.)

# %% id="l04-slang"
show("labs/vector_add.slang")

# %% [markdown] id="l04-4t"
# | idea | GLSL | Slang |
# |---|---|---|
# | workgroup size | `layout(local_size_x = 64) in;` | `[numthreads(64, 1, 1)]` |
# | number of this invocation | `gl_GlobalInvocationID` | a parameter with `: SV_DispatchThreadID` |
# | number of its workgroup | `gl_WorkGroupID` | `: SV_GroupID` |
# | number inside the workgroup | `gl_LocalInvocationIndex` | `: SV_GroupIndex` |
# | buffer that is read | `layout(binding = 0) readonly buffer A { float a[]; };` | `StructuredBuffer<float> a;` |
# | buffer that is written | `layout(binding = 2) buffer Y { float y[]; };` | `RWStructuredBuffer<float> y;` |
# | binding number | written down | the order of declaration |
# | push constants | `layout(push_constant) uniform Params {...};` | `[vk::push_constant] ConstantBuffer<Params> params;` |
#
# Both become SPIR-V, and SPIR-V still knows the names. vklab reads them back from the words. This is **reflection**, and it is
# how a dispatch can say `{"count": 1000}` where Vulkan wants four bytes at an offset.

# %% id="l04-reflect" tags=["nbval-ignore-output"]
for name in ("labs/vector_add.comp", "labs/vector_add.slang"):
    if toolchain.find_toolchain("glsl" if name.endswith(".comp") else "slang") is None:
        print(name, "needs a compiler that is not installed")
        continue
    facts = compiler.compile_variant(name).reflection
    print(name)
    for buffer_name, slot in facts.bindings.items():
        access = "written" if slot.writable else "read only"
        print(f"  binding {slot.number}: {buffer_name}, {access}")
    for member, place in facts.push.items():
        print(f"  push constant {member}: offset {place.offset}, {facts.push_bytes} bytes in all")

# %% id="l04-reflect-show"
show(reflection._bindings)

# %% [markdown] id="l04-reflectr"
# GLSL gives a *block* a name (`A`) and the array in it another (`a`); Slang has one name. Apart from that the two modules ask for the
# same things, so the seven steps above run either of them.

# %% [markdown] id="l04-5"
# ## 5 · The same in five lines
# `run_kernel` does the seven steps in a process of its own: a kernel that loops for ever, or takes the driver down, ends there
# and not in your notebook.

# %% id="l04-five"
a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)
run = Run({"a": a, "b": b, "y": np.zeros_like(a)}, workgroups=(16,), push={"count": a.size})
done = run_kernel(source.find("labs/vector_add.slang").read_text("utf-8"), run)[0]
print(done.status, np.array_equal(done.buffers["y"], a + b))

# %% [markdown] id="l04-five-where"
# Nothing is hidden. This is the function that does your steps 6 and 7; each method carries one command.

# %% id="l04-five-show"
show("vklab.course.children.kernel_child._submit")

# %% [markdown] id="l04-five-module"
# And this one does step 3. It keeps the words in `code` until the call has returned: your trap of step 1, met once for all
# kernels.

# %% id="l04-five-pipeline"
show("vklab.vulkan.pipeline.ComputePipeline._make_module")

# %% [markdown] id="l04-five-map"
# | step | in vklab |
# |---|---|
# | 1 instance and device | `vklab/vulkan/instance.py` `Instance`, `vklab/vulkan/device.py` `Device` |
# | 2 compile | `vklab/shader/compiler.py` `compile_variant` |
# | 3 module, 4 pipeline | `vklab/vulkan/pipeline.py` `ComputePipeline`: the module lives only while the pipeline is built |
# | 5 buffers | `vklab/vulkan/memory.py` `Buffer`, `vklab/vulkan/descriptors.py` `DescriptorPool` |
# | 6 record | `vklab/vulkan/command.py` `CommandBuffer` |
# | 7 submit and wait | `vklab/vulkan/command.py` `Submission`, `vklab/vulkan/sync.py` `Fence` |
#
# One floor up, the kernel itself is chosen for you: an ONNX model with a single `Add` node.
#
# **Predict:** vklab's kernel has workgroups of 256 invocations. How many of them for 1000 elements?

# %% id="l04-onnx"
tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in "aby"]
node = helper.make_node("Add", ["a", "b"], ["y"])
graph = helper.make_graph([node], "add", inputs=tensors[:2], outputs=tensors[2:])
a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)
with vklab.load(helper.make_model(graph)) as session:
    right = np.array_equal(session.run({"a": a, "b": b})["y"], a + b)
    print(f"y == a + b: {right}\n{session.plan.dispatches[0]}")

# %% [markdown] id="l04-6"
# ## 6 · How many workgroups?
# You dispatch workgroups, so you divide: elements by workgroup size, **rounded up**. Rounding down loses the last elements.
#
# There is a second rule. Vulkan promises 65535 workgroups along x (`maxComputeWorkGroupCount`), and many devices offer
# not one more. With 64 invocations each that is 4,194,240 elements: not much. A longer grid continues along y, row by row, and the kernel
# puts the pieces together again:

# %% id="l04-index"
show("lib/index.slang")

# %% [markdown] id="l04-e3t"
# ### Exercise 04-3: the grid
# Keep one row as long as the device's promise allows. Beyond it use rows of exactly `ROW` workgroups, because
# `linear_group` multiplies y by `GRID_WIDTH` = 32768. (The runtime's own rule starts the second row earlier; yours follows the text
# below.)


# %% id="l04-e3" vklab={"role": "exercise", "id": "04-3", "points": 4, "lines": 4}
LIMIT, ROW = [[limit]], [[row]]


def workgroups(count, size=64):
    """Return the workgroups (x, y, z) that cover `count` elements, `size` in each workgroup.

    All three are ints; np.ceil returns floats.

    TODO     up to LIMIT workgroups: one row, (n, 1, 1). More: rows of ROW, (ROW, rows, 1), and as
             few rows as cover them all.
    Approach divide and round up; if that is too many for one row, divide and round up again.
    Example  workgroups(1000) -> (16, 1, 1)    workgroups((LIMIT + 1) * 64) -> (ROW, rows, 1)
                                                                             (roughly 4 lines)
    """
    ### BEGIN SOLUTION
    groups = -(-count // size)
    if groups <= LIMIT:
        return (groups, 1, 1)
    return (ROW, -(-groups // ROW), 1)
    ### END SOLUTION


# %% [markdown] id="l04-e3p"
# First in use: 4.2 million elements, more than one row holds. The kernel adds each element's number, counted from 1, to the element: where two workgroups overlap, it is added twice.

# %% id="l04-e3d" vklab={"id": "04-3"}
NUMBER = """
RWStructuredBuffer<uint> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
    uint i = (group.x + [[row]] * group.y) * 64 + lane;
    if (i < params.count) InterlockedAdd(y[i], i + 1);
}
"""
with attempt("04-3"):
    many = 4_200_000
    run = Run({"y": np.zeros(many, np.uint32)}, workgroups(many), {"count": many})
    done = run_kernel(NUMBER, run)[0]
    if done.status != "ran":
        raise RuntimeError(f"{done.status}: {done.message}")
    once = np.array_equal(done.buffers["y"], np.arange(1, many + 1))
    print(f"{workgroups(many)}: every element has its number, and no workgroup repeats one: {once}")

# %% id="l04-e3c" vklab={"role": "check", "id": "04-3"}
check("04-3", workgroups)

# %% id="l04-e3h" tags=["nbval-ignore-output"]
hint("04-3")

# %% [markdown] id="l04-7"
# ## 7 · The guard
# **Predict, then run.** Below is `vector_add` without its guard, on 100 elements with two workgroups. `y` has 400 bytes. What
# do invocations 100 to 127 do?

# %% id="l04-unguarded"
UNGUARDED = """
StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> y;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    y[id.x] = a[id.x] + b[id.x];
}
"""
x = np.arange(100, dtype=np.float32)
done = run_kernel(UNGUARDED, Run({"a": x, "b": x, "y": np.zeros_like(x)}, (2,)))[0]
print(f"{done.status} | the 100 elements are right: {np.array_equal(done.buffers['y'], x + x)}\n"
      f"bytes outside of y that changed, the first eight words: {done.out_of_bounds.get('y')}")

# %% id="l04-unguarded-draw" tags=["nbval-ignore-output"]
x = np.arange(100, dtype=np.float32)
draw(trace(UNGUARDED, {"a": x, "b": x, "y": np.zeros_like(x)}, (2,), {}))

# %% [markdown] id="l04-guard-words"
# The result is **right**, and the kernel is broken. 28 invocations wrote behind `y`, over whatever lies there: another tensor,
# perhaps. No error, no crash; the wrong number turns up later, somewhere else.
#
# How did we see it? `run_kernel` lays **guard words** before and behind each buffer: 4096 bytes of a pattern that hardly any kernel
# produces. Afterwards it looks whether the pattern is still there. Byte 400 is the first byte behind 100 floats. (A driver may
# offer to check ranges itself, `robustBufferAccess`. It stops the damage and hides the bug.)
#
# Guard words reach 4096 bytes. A write farther off, such as `y[-1]` (as a `uint` that is element 4294967295), misses them, and many drivers drop
# it. The tracer does not look at memory: it notes the element that your kernel *asks for*, however far away. The checks below use both, and
# hold reading outside for as wrong as writing: what lies there is not yours.

# %% id="l04-guard-show"
show("vklab.course.children.kernel_child._guarded")

# %% [markdown] id="l04-e4t" vklab={"id": "04-4"}
# ### Exercise 04-4: map
# **Map**: each element of `y` depends on one element of `x`. Yours is the *squared ReLU*: `max(x, [[low]])` times itself.
#
# The check uses sizes that are no multiple of 64, and once a workgroup that has no work at all.
#
# *GLSL instead?* Replace the whole text. It starts with `#version 450`; name the blocks `X` and `Y` and their arrays `x` and
# `y`, as `vector_add.comp` does.

# %% id="l04-e4" vklab={"role": "exercise", "id": "04-4", "points": 4, "lines": 5}
SQUARED_RELU = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     y[i] = max(x[i], [[low]]) squared, for each i below params.count; touch nothing else.
    // Approach the number of this invocation is id.x; guard it, then one element in, one out.
    // Example  x = [3, -4, 5] gives y = [9, [[low]] * [[low]], 25]            (roughly 5 lines)
    // ### BEGIN SOLUTION
    uint i = id.x;
    if (i < params.count) {
        float positive = max(x[i], [[low]]);
        y[i] = positive * positive;
    }
    // ### END SOLUTION
}
"""

# %% id="l04-e4d" tags=["nbval-ignore-output"]
with attempt("04-4"):
    x = np.linspace(-3, 3, 100, dtype=np.float32)
    traced = trace(SQUARED_RELU, {"x": x, "y": np.zeros_like(x)}, (2,), {"count": 100})
    display(draw(traced))
    print(traced)

# %% id="l04-e4c" vklab={"role": "check", "id": "04-4"}
check("04-4", SQUARED_RELU)

# %% id="l04-e4h" tags=["nbval-ignore-output"]
hint("04-4")

# %% [markdown] id="l04-8"
# ## 8 · When a kernel does not end well
# Kernels of beginners, and of experts, do not compile or do not stop. Both end in an answer with a message, never in a dead
# notebook. The third is a quieter surprise. **Predict** the status of each of these before you run them.

# %% id="l04-bad" tags=["nbval-ignore-output"]
HEAD = """RWStructuredBuffer<float> y;
[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
"""
MISSPELT = HEAD + "    y[id.x] = coutn; }"
ENDLESS = HEAD + "    while (y[id.x] > -1.0) y[id.x] = 0.5 * y[id.x]; }"
UNUSED = "StructuredBuffer<float> x;\n" + HEAD + "    y[id.x] = 2.0; }"
for text in (MISSPELT, ENDLESS, UNUSED):
    arrays = {name: np.ones(64, np.float32) for name in "xy" if f"<float> {name}" in text}
    done = run_kernel(text, Run(arrays), seconds=2)[0]
    print(done.status, "|", done.message.splitlines()[0] if done.message else "no message")

# %% [markdown] id="l04-badr"
# The second loop never ends: halving a positive number never makes it smaller than -1. If yours says `ran`, your driver has
# stopped the loop for you: lavapipe of Mesa 22.3 ends all loops of an invocation after 65535 turns and says nothing
# (`vklab/plan/limits.py` keeps the runtime clear of that). In an exercise such a loop shows up as wrong values. A GPU goes on until its driver steps in; `run_kernel` stops its process after the time limit and says `timeout`.
#
# The third kernel declares `x` and never reads it. The compiler leaves such a buffer out of the SPIR-V, and there is nothing left to bind; the same happens to push constants. A verdict that says *x is never used* tells you that your kernel does not look at its input.

# %% [markdown] id="l04-e5t"
# ## 9 · Push constants
# A push constant is part of the command buffer, not of a buffer in memory: 128 bytes are promised on every device. The host
# writes bytes, the kernel reads a struct; nobody checks that the two agree. Here is what vklab does for the dispatch of this
# section, by the names and offsets that reflection found:

# %% id="l04-push"
data = bytearray(8)
struct.pack_into("<I", data, 0, 1000)  # uint count, at offset 0
struct.pack_into("<f", data, 4, 0.5)  # float scale, at offset 4
floats = [f"{value:.3g}" for value in struct.unpack("<2f", data)]
print(f"{data.hex(' ', 4)}\nread as two floats: {floats}")

# %% [markdown] id="l04-push-r"
# The second line is what a kernel sees that has `float` where the host wrote `uint`: 1000 becomes a number next to nothing. No
# error anywhere.
#
# ### Exercise 04-5: zip
# **Zip**: each element of `y` depends on the elements of two inputs at the same place. Yours: `y = scale * a + b`. This time you
# also write the struct: the host pushes `count` (a `uint`) and `scale` (a `float`). The check reads names and types back from your SPIR-V.

# %% id="l04-e5" vklab={"role": "exercise", "id": "04-5", "points": 4, "lines": 5}
SCALED_SUM = """
StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> y;

struct Params {
    // TODO     two members: what the host pushes, by its names                 (2 lines)
    // ### BEGIN SOLUTION
    uint count;
    float scale;
    // ### END SOLUTION
};
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     y[i] = scale * a[i] + b[i], guarded
    // Example  a = [1, 2], b = [10, 20], scale = 3 gives y = [13, 26]          (roughly 3 lines)
    // ### BEGIN SOLUTION
    uint i = id.x;
    if (i < params.count)
        y[i] = params.scale * a[i] + b[i];
    // ### END SOLUTION
}
"""

# %% id="l04-e5d" tags=["nbval-ignore-output"]
with attempt("04-5"):
    x = np.arange(70, dtype=np.float32)
    arrays = {"a": x, "b": 10 * x, "y": np.zeros_like(x)}
    traced = trace(SCALED_SUM, arrays, (2,), {"count": 70, "scale": 3.0})
    display(draw(traced))
    print(traced)

# %% id="l04-e5c" vklab={"role": "check", "id": "04-5"}
check("04-5", SCALED_SUM)

# %% id="l04-e5h" tags=["nbval-ignore-output"]
hint("04-5")

# %% [markdown] id="l04-4te"
# ## 10 · Two dimensions
# A matrix in a buffer is one row after the other: the element in row *r*, column *c* of a matrix with `columns` columns has the
# number `r * columns + c`. The grid may have two dimensions, too. With `[numthreads(8, 8, 1)]`, `id.x` counts along a row and
# `id.y` counts rows.
#
# **Predict:** a matrix of 37 rows and 53 columns. How many workgroups of 8 x 8 along x, along y? How many invocations are
# idle? The next cell checks your arithmetic.

# %% id="l04-grid2"
rows, columns = 37, 53
across, down = -(-columns // 8), -(-rows // 8)
idle = across * down * 64 - rows * columns
print(f"{across} x {down} workgroups, {across * down * 64} invocations, {idle} idle")

# %% [markdown] id="l04-e6t"
# ### Exercise 04-6: transpose, 37 x 53
# `y` is `x` with rows and columns exchanged: 53 rows of 37. Reading along a row of `x` means writing down a column of `y`; the two
# element numbers have different strides. That is where this kernel goes wrong, if it does. The picture shows which workgroup
# filled which part of `y`.

# %% id="l04-e6" vklab={"role": "exercise", "id": "04-6", "points": 4, "lines": 4}
TRANSPOSE = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns; };   // of x
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    // TODO     the element in row r, column c of x goes to row c, column r of y.
    // Approach c = id.x, r = id.y; guard both; one read, one write.
    // Example  rows = 2, columns = 3: x = [1, 2, 3, 4, 5, 6] gives y = [1, 4, 2, 5, 3, 6]
    //                                                                         (roughly 4 lines)
    // ### BEGIN SOLUTION
    uint c = id.x;
    uint r = id.y;
    if (r < params.rows && c < params.columns)
        y[c * params.rows + r] = x[r * params.columns + c];
    // ### END SOLUTION
}
"""

# %% id="l04-e6d" tags=["nbval-ignore-output"]
with attempt("04-6"):
    x = np.arange(37 * 53, dtype=np.float32)
    arrays = {"x": x, "y": np.zeros_like(x)}
    traced = trace(TRANSPOSE, arrays, (7, 5), {"rows": 37, "columns": 53})
    display(draw(traced, shape=(53, 37)))
    print(traced)

# %% id="l04-e6c" vklab={"role": "check", "id": "04-6"}
check("04-6", TRANSPOSE)

# %% id="l04-e6h" tags=["nbval-ignore-output"]
hint("04-6")

# %% [markdown] id="l04-count2"
# Each element is read once and written once: 1961 and 1961, as few as there can be. But look at *where* neighbours go. This cell takes
# invocations that stand side by side in your first row and asks how far apart the elements are that they touch.

# %% id="l04-strides" tags=["nbval-ignore-output"]
with attempt("04-6"):
    x = np.arange(37 * 53, dtype=np.float32)
    push = {"rows": 37, "columns": 53}
    traced = trace(TRANSPOSE, {"x": x, "y": np.zeros_like(x)}, (7, 5), push)
    for what, touches in (("read x", traced.of("x", READ)), ("write y", traced.of("y"))):
        first = touches[touches[:, 1] == 0]
        first = first[np.argsort(first[:, 0])]
        print(f"neighbours {what} at a distance of {sorted(set(np.diff(first[:, 2]).tolist()))}")

# %% [markdown] id="l04-strides-r"
# Reads lie side by side, writes 37 elements apart. Memory moves in lines of many bytes, so the writes touch far more lines than
# the reads. The cure needs shared memory: lab 07.

# %% [markdown] id="l04-5t"
# ## 11 · A guard in the wrong place
# An invocation may handle more than one element: fewer invocations, each with more to do. In this kernel each handles
# four. Somebody tested it with 1000 elements, and it passed. **Predict** what happens with 1003.

# %% id="l04-halves"
PASSED_ONCE = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    uint first = 4 * id.x;
    if (first < params.count)
        for (uint k = 0; k < 4; ++k)
            y[first + k] = 0.5 * x[first + k];
}
"""
lines = []
for count in (1000, 1003):
    x = np.arange(count, dtype=np.float32)
    done = run_kernel(PASSED_ONCE, Run({"x": x, "y": np.zeros_like(x)}, (4,), {"count": count}))[0]
    right, outside = np.array_equal(done.buffers["y"], x / 2), done.out_of_bounds.get("y", "none")
    lines.append(f"count={count}: {done.status}, y is right: {right}, bytes outside: {outside}")
print("\n".join(lines))

# %% [markdown] id="l04-e7t" vklab={"id": "04-7"}
# One float too many, at byte 4012 of a buffer of 4012 bytes. The guard is there. It asks the right question about the wrong
# element.
#
# ### Exercise 04-7: repair it
# Give [[each]] elements to each invocation. Move the question to where the element is.

# %% id="l04-e7" vklab={"role": "exercise", "id": "04-7", "points": 4, "lines": 3}
HALVES = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    uint first = [[each]] * id.x;
    for (uint k = 0; k < [[each]]; ++k) {
        // TODO     y[i] = 0.5 * x[i] for the element i of this turn, if there is such an element
        // Example  count = [[each]] + 1: invocation 1 has one element, not [[each]]  (roughly 3 lines)
        // ### BEGIN SOLUTION
        uint i = first + k;
        if (i < params.count)
            y[i] = 0.5 * x[i];
        // ### END SOLUTION
    }
}
"""

# %% id="l04-e7d" tags=["nbval-ignore-output"]
with attempt("04-7"):
    x = np.arange(103, dtype=np.float32)
    traced = trace(HALVES, {"x": x, "y": np.zeros_like(x)}, (1,), {"count": 103})
    display(draw(traced))
    print(traced)

# %% id="l04-e7c" vklab={"role": "check", "id": "04-7"}
check("04-7", HALVES)

# %% id="l04-e7h" tags=["nbval-ignore-output"]
hint("04-7")

# %% [markdown] id="l04-break"
# ## 12 · What would break this?
# The kernel below is `vector_add`, with its guard, unchanged. The function around it has **one wrong line**. The sum is right and the
# guard words say that something is not. Find the line before you open the answer.

# %% id="l04-planted"
def add_on_device(a, b):
    """Add two arrays on the device; return the sum and the bytes written outside of it."""
    kernel = source.find("labs/vector_add.slang").read_text("utf-8")
    y = np.zeros_like(a)
    groups = -(-a.size // 64)
    push = {"count": a.nbytes}
    done = run_kernel(kernel, Run({"a": a, "b": b, "y": y}, (groups,), push))[0]
    return done.buffers["y"], done.out_of_bounds


x = np.arange(1000, dtype=np.float32)
total, outside = add_on_device(x, x)
print(f"the sum is right: {np.array_equal(total, x + x)}\nbytes outside: {outside}")

# %% [markdown] id="l04-planted-r"
# <details><summary>Which line?</summary>
#
# `push = {"count": a.nbytes}`: the kernel counts elements, the host counted bytes. With 4000 for `count` the guard lets all 1024
# invocations pass. A guard is only as good as the number it compares with: it must be `a.size`. Names with units (`count`,
# `size_bytes`) make such a line look wrong at once.
# </details>
#
# Three more faults, in your own step cells. What would you see, and where would you look?
#
# <details><summary>Step 6 without the barrier</summary>
#
# On many machines: nothing, the sum is right. The spec says that waiting for a fence does not by itself make the kernel's writes
# visible to the host; it asks for a memory barrier with host reads in its second scope. A device with its own caches may show
# old bytes, sometimes. A test cannot find this. Reading can, and so can a habit: whoever maps, writes the barrier.
# </details>
#
# <details><summary>Step 4 with size=4 for a struct of 8 bytes</summary>
#
# The kernel reads four bytes that nobody pushed. The spec calls this undefined: zero on one device, an old value on another. The
# validation layer reports it when the pipeline is made. vklab never writes the size by hand; it takes `push_bytes` from
# reflection.
# </details>
#
# <details><summary>Step 6 with 15 workgroups</summary>
#
# Elements 960 to 999 keep what the memory held before. On fresh memory that is often zero, and `a + b` is zero there only if you test
# with zeros. The checks of this lab fill `y` with -1 first, so that an element that nobody wrote says so.
# </details>

# %% [markdown] id="l04-recap"
# ## Recap
# | word | what it is | made in |
# |---|---|---|
# | instance, physical device, device, queue | the way to one GPU | step 1 |
# | SPIR-V, shader module | the kernel, for any vendor; the same words, held by the driver | steps 2, 3 |
# | descriptor set layout, pipeline layout, pipeline | what the kernel takes; its machine code | step 4 |
# | buffer, memory, descriptor set | where the numbers are; which buffer is which binding | step 5 |
# | command buffer | bind, push, dispatch, barrier: written down, not yet run | step 6 |
# | fence | the device says: done | step 7 |
# | workgroups | elements divided by workgroup size, rounded up; beyond 65535 along y | 04-2, 04-3 |
# | guard | an invocation asks whether *its* element exists | 04-4 to 04-7 |
#
# **Next**: lab 05 takes step 4 apart (layouts from reflection, specialization constants, the pipeline cache), lab 06 steps 6 and 7
# (barriers, the validation layer), lab 07 what happens inside one workgroup.
#
# **To read**
# * Vulkan specification, chapters *Synchronization and Cache Control* (fences; host access types), *Pipelines*, *Resource
#   Descriptors*, *Dispatching Commands*, *Limits*: <https://docs.vulkan.org/spec/latest/index.html>
# * ONNX operators `Add` and `Transpose`: <https://onnx.ai/onnx/operators/>
# * Slang user guide, *Targeting SPIR-V*: <https://docs.shader-slang.org>
# * S. Rush, *GPU Puzzles*, which draws a kernel before it judges it: <https://github.com/srush/GPU-Puzzles>
