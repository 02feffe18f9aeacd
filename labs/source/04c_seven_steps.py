# %% [markdown] id="l04c-steps"
# ## 7 · The seven steps
# *A good place for a pause: the second sitting starts here.* Until now `run_kernel` did everything around your kernel. Now you do it, with the calls of Vulkan itself. One row of the picture is one step; dashed boxes do not exist yet.
#
# `objects` is a stack: it records each object that you create, together with the call that destroys it. Run a step again, and the stack first destroys what that step and later ones created.

# %% id="l04c-empty"
objects = ObjectStack()
objects.picture()

# %% [markdown] id="l04c-s1"
# ### Step 1: instance and device
# The **instance** connects this process to Vulkan. It lists **physical devices**: what is in the machine. From one of them you create a logical **device**, your own connection to it, with one **queue** that takes work. Queues come in **families**; yours must be able to compute.

# %% id="l04c-s1c" tags=["nbval-ignore-output"]
objects.step(1)

# On macOS Vulkan runs on Metal; such drivers are listed only if the program names two extensions.
offered = {e.extensionName for e in vk.vkEnumerateInstanceExtensionProperties(None)}
portable = list({"VK_KHR_portability_enumeration"} & offered)  # on macOS
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
offered = {e.extensionName for e in vk.vkEnumerateDeviceExtensionProperties(physical, None)}
priorities = [1.0]
queue_info = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, pQueuePriorities=priorities)
subset = list({"VK_KHR_portability_subset"} & offered)  # the second
device_info = vk.VkDeviceCreateInfo(pQueueCreateInfos=[queue_info], ppEnabledExtensionNames=subset)
device = vk.vkCreateDevice(physical, device_info, None)
objects.keep("device", device, vk.vkDestroyDevice)

queue = objects.keep("queue", vk.vkGetDeviceQueue(device, family, 0))
objects.picture()

# %% [markdown] id="l04c-s1r"
# You create neither the physical device nor the queue: the one belongs to the instance, the other to the device. One trap of these Python bindings: a structure inside another must have a name of its own, as `application` and `queue_info` have. The bindings do not keep it alive, and an object without a name may be gone before the call reads it.
#
# ### Step 2: compile
# Vulkan reads neither GLSL nor Slang. It takes **SPIR-V**, a list of 32-bit words that is the same for every vendor; the driver turns it into the machine code of the device.

# %% id="l04c-s2d" tags=["hide-input"]
draw_graph([{"GLSL": "blue", "Slang": "blue"}, {"SPIR-V": "orange"}, {"machine code": "green"}],
           [("GLSL", "SPIR-V", "glslc"), ("Slang", "SPIR-V", "slangc"),
            ("SPIR-V", "machine code", "the driver")],
           alt="GLSL and Slang are compiled to SPIR-V; the driver compiles that to machine code.",
           caption="Two compilers: a program on any computer, and a part of the driver.")

# %% id="l04c-comp"
show("labs/vector_add.comp")

# %% [markdown] id="l04c-s2t"
# This is `vector_add` in GLSL. It writes down the `binding` number of each buffer; Slang numbers buffers in the order of declaration. The next cell compiles it, or the Slang version where no compiler for GLSL is installed.

# %% id="l04c-s2c" tags=["nbval-ignore-output"]
objects.step(2)

found, kernel_file = toolchain.find_toolchain("glsl"), "labs/vector_add.comp"
if found is None:
    print("no GLSL compiler here. To have one:", toolchain.REPAIRS["glsl"])
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
# A **descriptor** tells the device where one buffer is. The **descriptor set layout** has a slot for each descriptor that the kernel needs. The **pipeline layout** adds the push constants, as a range of bytes. From module and layout the driver builds the **compute pipeline**. Most drivers make the machine code now; some wait until the first dispatch.

# %% id="l04c-s4d" tags=["hide-input"]
slots = Diagram(640, 126)
for n, name in enumerate("aby"):
    slots.box((20, 6 + 40 * n, 130, 32), f"kernel: {name}", "blue")
    slots.box((250, 6 + 40 * n, 130, 32), f"slot: binding {n}", "orange")
    slots.box((480, 6 + 40 * n, 140, 32), f"buffer of {name}", "green")
    slots.arrow((150, 22 + 40 * n), (248, 22 + 40 * n))
    slots.arrow((380, 22 + 40 * n), (478, 22 + 40 * n))
slots.picture("Each name in the kernel leads to a slot with a binding number, and on to a buffer.",
              "Step 4 makes the slots, step 5 the buffers and the right-hand arrows.")

# %% [markdown] id="l04c-s4p"
# First predict: the kernel uses three buffers. A layout with two slots is passed to the calls of this step: `"an error"` or `"no error"`?

# %% id="l04c-p1"
predict("04c-p1", calls=...)

# %% [markdown] id="l04c-e1t"
# ### Exercise 1 · What the kernel takes
# Describe the interface of a kernel in the numbers of Vulkan's structures. No driver checks this answer, so step 4 waits until `check` calls it correct.

# %% id="l04c-e1" vklab={"role": "exercise", "id": "04c-1", "points": 3, "lines": 4}
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


# %% id="l04c-e1c" vklab={"role": "check", "id": "04c-1"}
check("04c-1", kernel_interface)

# %% id="l04c-e1h" tags=["nbval-ignore-output"]
# hint("04c-1")

# %% id="l04c-s4c" tags=["nbval-ignore-output"]
with attempt("04c-1"):
    interface = objects.checked("04c-1", kernel_interface)
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

# %% [markdown] id="l04c-s5"
# ### Step 5: buffers
# A **buffer** has a size and a use, and no memory. For each buffer: ask what memory it needs, allocate that, and **bind** the two. The memory here is *host-visible* (the CPU may map it and write into it) and *coherent* (with no extra command). Then a **descriptor set** fills the slots of step 4: `dstBinding=0` here and `binding = 0` in the kernel are all that connects the two `a`.

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

    room = vk.VkDescriptorPoolSize(type=STORAGE, descriptorCount=3)
    pool_info = vk.VkDescriptorPoolCreateInfo(maxSets=1, pPoolSizes=[room])
    pool = vk.vkCreateDescriptorPool(device, pool_info, None)
    # The set is part of its pool, and is destroyed with it.
    objects.keep("descriptor set", pool, vk.vkDestroyDescriptorPool, device)
    set_info = vk.VkDescriptorSetAllocateInfo(descriptorPool=pool, pSetLayouts=[set_layout])
    descriptor_set = vk.vkAllocateDescriptorSets(device, set_info)[0]
    infos = [vk.VkDescriptorBufferInfo(buffer=x, offset=0, range=a.nbytes) for x in buffers]
    writes = [vk.VkWriteDescriptorSet(dstSet=descriptor_set, dstBinding=n, descriptorCount=1,
                                      descriptorType=STORAGE, pBufferInfo=infos[n])
              for n in range(3)]
    vk.vkUpdateDescriptorSets(device, 3, writes, 0, None)
    display(objects.picture())

# %% [markdown] id="l04c-s6"
# ### Steps 6 and 7: record, submit, wait
# A **command buffer** is a list of commands for later. Recording runs nothing. Five commands go in: which pipeline, which buffers, which push constants, how many workgroups, and a barrier. `vkQueueSubmit` hands the list to the device and returns at once. A **fence** is an object that the device signals when the work is done; the host waits for it, here for ten seconds at most.

# %% id="l04c-s6d" tags=["hide-input"]
host = [("step 6: record", 0, 3, "blue"), ("submit", 3, 4, "orange"),
        ("wait for the fence", 4, 8.4, "grey"), ("read y", 8.4, 10, "blue")]
gpu = [("read a, b; write y", 4.6, 7.4, "green"), ("barrier", 7.4, 8.4, "pink")]
draw_timeline({"host": host, "device": gpu},
              [("host", 3.8, "device", 4.8), ("device", 8.3, "host", 8.5)],
              alt="The host records, submits, waits; the device runs the kernel and the barrier.",
              caption="Nothing runs before the submission; the host reads y after the barrier.")

# %% [markdown] id="l04c-s6b"
# Why a **barrier**, if the host waits anyway? The fence says that the work is *done*. The specification says that this alone does not make the kernel's writes *visible* to the CPU; the barrier does. In the other direction nothing is needed: `vkQueueSubmit` makes everything that the host wrote before visible to the device.

# %% id="l04c-s6c" tags=["nbval-ignore-output"]
with attempt("04-3"):
    groups = objects.checked("04-3", workgroups)(1000)
    objects.step(6)

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
with attempt("04-3"):
    objects.step(7)

    fence = vk.vkCreateFence(device, vk.VkFenceCreateInfo(), None)
    objects.keep("fence", fence, vk.vkDestroyFence, device)
    submit_info = vk.VkSubmitInfo(pCommandBuffers=[commands])
    vk.vkQueueSubmit(queue, 1, [submit_info], fence)
    vk.vkWaitForFences(device, 1, [fence], True, 10 * 10**9)  # nanoseconds

    y = np.frombuffer(mapped[2], np.float32).copy()  # a copy: the memory is freed soon
    print("y == a + b:", np.array_equal(y, a + b))
    display(objects.picture())

# %% [markdown] id="l04c-s7r"
# Objects are destroyed in reverse order: what was created from the device goes before the device. (Some may go earlier: a shader module is not needed once its pipeline exists.) After the next cell the steps can be run again from 1.

# %% id="l04c-end" tags=["nbval-ignore-output"]
print(objects.end(), "destroy calls, the object made last first")

# %% [markdown] id="l04c-where"
# Nothing in vklab is hidden from you. This is the function of `run_kernel` that does steps 6 and 7; each method carries one command. It has one command more than yours, a barrier from host to shader, which `vkQueueSubmit` makes unnecessary. The other steps are in `vklab/vulkan/`: `instance.py` and `device.py` (1), `pipeline.py` (3, 4), `memory.py` and `descriptors.py` (5); step 2 is in `vklab/shader/compiler.py`.

# %% id="l04c-where-s"
show("vklab.course.children.kernel_child._submit")

# %% id="l04c-lines" tags=["nbval-ignore-output"]
cells = {int(step[1]): text for text in In if (step := re.search(r"objects\.step\((\d)\)", text))}
skipped = ("#", "objects.", "display(", "print(", "with attempt", "a, b =", "y =")
lines = [line for text in cells.values() for line in map(str.strip, text.splitlines())
         if line and not line.startswith(skipped)]
calls = re.findall(r"vk\.(vk[A-Z]\w+)\(", "\n".join(lines))
print(f"{len(cells)} steps: {len(lines)} lines of Python, {len(calls)} calls that create or do")
print("CUDA: cudaMalloc 3, cudaMemcpy 3, the launch, cudaFree 3: about 10 lines and 10 calls")

# %% [markdown] id="l04c-lines-r"
# The order of magnitude is a factor of ten, not a hundred. In C, where each field of a structure takes a line, expect two or three times as many lines. And they are paid once: a second kernel repeats steps 2 to 4, a second dispatch only steps 6 and 7.
#
# ## 9 · What would break this?
# The kernel below is `vector_add`, with its guard, unchanged. The function around it has **one wrong line**. The sum is right, and the guard words say that something is not. Find the line before you open the answer.

# %% id="l04c-planted"
def add_on_device(a, b):
    """Add two arrays on the device; return the sum and the bytes written outside of it."""
    y = np.zeros_like(a)
    groups = -(-a.size // 64)
    push = {"count": a.nbytes}
    done = run_kernel(ADD, Run({"a": a, "b": b, "y": y}, (groups,), push))[0]
    return done.buffers["y"], done.out_of_bounds


x = np.arange(1000, dtype=np.float32)
total, outside = add_on_device(x, x)
print(f"the sum is right: {np.array_equal(total, x + x)}\nbytes outside: {outside}")

# %% [markdown] id="l04c-planted-r"
# <details><summary>Which line?</summary>
#
# `push = {"count": a.nbytes}`: the kernel counts elements, the host counted bytes. With 4000 for `count` the guard lets all 1024 invocations pass. It must be `a.size`. Names with units (`count`, `size_bytes`) make such a line look wrong at once.
# </details>
#
# Two more faults, this time in your step cells. What would you see, and where would you look?
#
# <details><summary>Step 6 without the barrier</summary>
#
# On many machines nothing: the sum is right. A device with its own caches may show old bytes, sometimes. A test cannot find this. Reading can, and so can a habit: whoever maps memory to read it writes the barrier.
# </details>
#
# <details><summary>Step 6 with 15 workgroups</summary>
#
# Elements 960 to 999 keep what the memory held before. In fresh memory that is often zero, which looks like a result. The checks of this lab fill `y` with -1 first, so that an element that nobody wrote shows.
# </details>

