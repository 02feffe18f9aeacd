# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Memory: heaps, types, staging and sub-allocation"
#     minutes: 75
#     before: ["00", "02"]
#     know: ["sets", "`sorted(key=...)`", "`//` and `%` on integers"]
# ---

# %% [markdown] id="l03-title"
# # Lab 03 · Memory
# **Which memory does a buffer get, and what does it cost to move bytes there?** · 75 minutes, 4 exercises, the last one extra
#
# A GPU with 8 GB may offer only 173 MiB of the memory that you want. A buffer may overwrite its neighbour, and no call fails. A result may be right on your machine and out of date on another. Vulkan leaves all three to the program.
#
# **Afterwards you can**
# * read a table of heaps and memory types, and rank the types that may hold a buffer;
# * choose between a staging buffer and a mapping, and estimate what a transfer takes at the least;
# * say when a flush or an invalidate is needed, in Vulkan's words and in Metal's;
# * divide one allocation into aligned buffers, and explain fragmentation.
#
# **Before this lab**: labs 00 and 02. You need sets, `sorted(key=...)`, and `//` and `%` on integers. The lab opens `vklab/vulkan/memory.py`. New words are in the [glossary](GLOSSARY.md).

# %% id="l03-setup" tags=["hide-input"]
import json

import numpy as np
from IPython.display import display

from vklab.runtime.open_devices import select
from vklab_course import attempt, banner, check, data, hint, predict, show
from vklab_labs.lab_03 import heaps as figures
from vklab_labs.lab_03 import paths
from vklab_labs.lab_03.swapped_memory import run_on_ranges
from vklab_labs.shared import copies
from vklab_labs.shared.machines import memory_table, recorded_table

MIB = 1 << 20
mine = select()  # the device that vklab uses
RECORD = json.loads(data("recorded/copies_h200.json").read_text())

# %% id="l03-banner"
banner()

# %% id="l03-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l03-1text"
# ## 1 · Heaps and types
# The **host** is the processor with its memory. A **heap** is a pool of memory that the device can use. **Device-local** memory is fast for the device; on a card it lies beside the GPU. The host can reach a heap only if it can **map** it: then the bytes have an address in your program. A card is connected by **PCIe**, a bus far slower than the memory at both of its ends.
#
# The host sees a card's memory through a *window*, often of 256 MB. **ReBAR** (resizable BAR) makes the window as large as the memory, if the firmware allows it. With **UMA** (unified memory architecture) host and GPU share one memory, without a bus.

# %% id="l03-reach" tags=["hide-input"]
paths.draw_reach()

# %% [markdown] id="l03-types-text"
# You allocate from a **memory type**: a heap, and flags that say what you get.
#
# | flag | short | means |
# |---|---|---|
# | `device_local` | local | fast for the device |
# | `host_visible` | visible | the host can map it |
# | `host_coherent` | coherent | writes of one side reach the other without a call (section 3) |
# | `host_cached` | cached | the host reads it fast, through its cache |
# | `lazily_allocated` | lazy | for images that exist only inside of the GPU; buffers cannot use it |
#
# Here are three tables as drivers reported them, and your device. The line across a bar is the heap's **budget**: what your program may use.

# %% id="l03-heaps" tags=["nbval-ignore-output"]
TABLES = {"AMD card of 8 GB, window of 256 MB": memory_table("radeon"),
          "Apple M1 with MoltenVK (UMA)": memory_table("m1"),
          "NVIDIA H200 (ReBAR)": recorded_table(RECORD)}
figures.draw_heaps({**TABLES, f"here: {mine.name[:40]}": (mine.heaps, mine.memory_types)},
                   "Blue: device-local. Orange: the host's. Boxes: types of the heap on the left. "
                   "Black: budget. Each machine has its own scale; small heaps are drawn too wide.")

# %% [markdown] id="l03-software-text"
# **Is your device a CPU?** Then it has one heap, and one type with all flags but lazy: every choice is right. So the exercises use recorded tables.
#
# On the AMD card, which type should hold the weights that only kernels read, an input that NumPy writes before every run, and a result that NumPy reads after it? Write three indices.

# %% id="l03-p1"
predict("03-p1", weights=..., input=..., result=...)

# %% [markdown] id="l03-choose-text"
# The runtime asks for memory by *required* and *preferred* flags, which are bits of an integer here. This function decides:

# %% id="l03-choose-show"
show("vklab.vulkan.memory.choose_memory_type")

# %% [markdown] id="l03-e1-text" vklab={"role": "text", "id": "03-1"}
# ### Exercise 1 · All types that will do, the best first
# `choose_memory_type` returns one type, and knows nothing of budgets. Your function returns *all* types that can hold the buffer now, the best first. Its flags are sets of names.
#
# A budget is an estimate, and it changes while other programs run. So use at most [[percent]] % of it. The **room** of a heap is [[percent]] % of its budget, rounded down to whole bytes, less what is used already. A bit mask says which types suit the buffer at all: bit *i* is 1 if type *i* does. The driver gives it with `vkGetBufferMemoryRequirements`.

# %% id="l03-e1" vklab={"role": "exercise", "id": "03-1", "points": 4, "lines": 7}
def rank_memory_types(heaps, memory_types, type_bits, size_bytes, required, preferred):
    """Return the indices of all memory types that can hold a buffer, the best first.

    heaps: tuple of MemoryHeap, with .budget_bytes and .usage_bytes.
    memory_types: tuple of MemoryType, with .heap (the index of its heap) and .flags (a set).
    type_bits: bit mask of the types that suit the buffer.  size_bytes: the buffer's size.
    required, preferred: sets of flags, such as {"host_visible"}.

    TODO      keep a type if its bit is 1, if it has every required flag, and if its heap has room
              for size_bytes: [[percent]] % of the budget, rounded down to bytes, less the usage.
              Order: more preferred flags first; among equals the heap with more room; among
              equals the lower index. If no type is left, return [].
    Approach  a list comprehension that filters, then sorted with a tuple as the key.
    Example   on the AMD card, with 64 MiB, required {"host_visible"}, preferred {"device_local"}
              and type_bits 0b1111 -> [2, 1, 3]; with 400 MiB -> [1, 3]
    Length    roughly 7 lines
    """
    ### BEGIN SOLUTION
    room = [heap.budget_bytes * [[percent]] // 100 - heap.usage_bytes for heap in heaps]
    able = [index for index, kind in enumerate(memory_types)
            if type_bits >> index & 1 and required <= kind.flags
            and room[kind.heap] >= size_bytes]
    return sorted(able, key=lambda index: (
        -len(preferred & memory_types[index].flags), -room[memory_types[index].heap]))
    ### END SOLUTION


# %% id="l03-e1-picture" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("03-1"):
    needs = 64 * MIB, {"host_visible"}, {"device_local"}
    ranked = {name: rank_memory_types(heaps, types, 2 ** len(types) - 1, *needs)
              for name, (heaps, types) in TABLES.items()}
    display(figures.draw_heaps(TABLES, "An input of 64 MiB: host-visible, if possible device-local."
                               " Green: your first choice. Light blue: your others.", ranked))

# %% id="l03-e1-check" vklab={"role": "check", "id": "03-1"}
check("03-1", rank_memory_types)

# %% id="l03-e1-hint"
# hint("03-1")

# %% [markdown] id="l03-budget-text"
# The runtime's own limit is 95 % of the budget: `VKLAB_MEMORY_LIMIT`. The driver tells the budget through the extension `VK_EXT_memory_budget`; without it vklab takes the size of the heap. **No number is a promise**: another program may allocate before you do. So a program has to expect `VK_ERROR_OUT_OF_DEVICE_MEMORY`, and to try its next type: your list says which. Some drivers, those of Windows among them, may move memory to the host instead: everything becomes slow.

# %% [markdown] id="l03-2text"
# ## 2 · Staging or mapping
# A **staging buffer** is host-visible memory from which the device copies. It works on every device. With a **mapping** of device-local memory the host writes directly, and each byte is moved once, not twice. But there must be such a type.

# %% id="l03-paths" tags=["hide-input"]
paths.draw_paths()

# %% [markdown] id="l03-links-text"
# ### What a link can carry
# A link of PCIe has 1 to 16 lanes. Versions 3.0 to 5.0 send 130 bits for 128 bits of data. In version 4.0 a lane sends 16 billion bits a second: 16 · 128 / 130 / 8 = 1.97 GB of data, in each direction.
#
# | link | GB a second, at most | found |
# |---|---|---|
# | PCIe 3.0, 4.0, 5.0 with 16 lanes | 15.8, 31.5, 63.0 | cards in a desktop or server |
# | PCIe 4.0 with 4 lanes | 7.9 | an **NVMe** SSD; an eGPU over OCuLink |
# | Thunderbolt 3 and 4: 32 Gbit a second for PCIe, as 4 lanes of 3.0 | 3.9 | an **eGPU**, a card in a box beside a laptop |
# | Thunderbolt 5: 64 Gbit a second for PCIe, as 4 lanes of 4.0 | 7.9 | the same |
#
# Packets have headers, so measured speeds are lower.
#
# Weights of 32 GB are read from an NVMe SSD (PCIe 4.0, 4 lanes) to a card. Both links work at the same time. How many seconds at the least, rounded? `desktop`: the card has 16 lanes of PCIe 4.0. `laptop`: it is an eGPU on Thunderbolt 4.

# %% id="l03-p3"
predict("03-p3", desktop=..., laptop=...)

# %% [markdown] id="l03-curve-text"
# ### Measure it
# The next cell moves 4 KiB to 16 MiB on your device (medians of five runs). `staging` and `mapped` are the two paths of the picture. `readback` copies on the device into cached host memory, and reads there. `mapped read` reads through the mapping, 4 MiB at most. `host` copies from array to array, without any device.
#
# **On a CPU device this says nothing about a GPU**: there is no bus. The right half of the picture is a record (medians of nine) on an H200 with ReBAR, behind PCIe 5.0 with 16 lanes.

# %% id="l03-curve" tags=["nbval-ignore-output"]
speeds = copies.measure(mine.index, [4096 << shift for shift in range(0, 13, 2)], repeats=5)
print("record:", ", ".join(RECORD[key] for key in ("driver", "date", "made_by")))
paths.draw_copies({mine.name.partition(" (")[0]: speeds, RECORD["device"]:
                   RECORD["bytes_a_second"]},
                  "How fast bytes move, by path and by size. Both axes are logarithmic.")

# %% [markdown] id="l03-curve-after"
# In the record:
#
# * **4 KiB: 0.19 GB a second by staging, 3.5 through the mapping.** A submission and its fence take about 20 microseconds, however few bytes are copied.
# * **16 MiB: 10 by staging, 17 through the mapping.** The link could carry 63. Staging takes 1.6 ms; copying 16 MiB from array to array, without any link, 1.2 ms. The limit is the one thread of the processor that writes every byte.
# * **Reading through the mapping: 0.03 to 0.06.** That memory is not cached, so each read goes over the bus and back. From 64 KiB on, `readback` is 80 to 310 times as fast.
#
# Staging is the better way if no type is both device-local and host-visible, if the window is too small, or if the processor has other work.

# %% [markdown] id="l03-3text"
# ## 3 · Who sees what, and when
# The processor writes to its cache first, and the bytes reach the memory later. If a memory type is **coherent**, host and device see each other's writes all the same. If it is not, two calls are needed:
#
# * **flush**, `vkFlushMappedMemoryRanges`: after the host has written, before the submission. Its writes leave the cache;
# * **invalidate**, `vkInvalidateMappedMemoryRanges`: after the fence, before the host reads. Old bytes leave the cache.
#
# Neither call waits for the device: barriers and fences do that. Kernels among themselves need neither. Memory that is not host-visible cannot be flushed: its bytes go through a staging buffer and a copy.
#
# A cache works in **atoms** of `nonCoherentAtomSize` bytes, a limit of the device: a power of two, at most 256. A range to flush begins at a multiple of it; its size is a multiple, too, unless it ends with the memory. What happens if two buffers share an atom?

# %% id="l03-atoms" tags=["hide-input"]
paths.draw_atoms()

# %% [markdown] id="l03-sim-text"
# Some phones have memory that is not coherent; CPU drivers and most drivers for desktops have none. So here is a model with atoms of 64 bytes: `host` is the memory as the processor sees it, `device` as kernels see it. A flush and an invalidate copy whole atoms.

# %% id="l03-sim"
host, device = np.zeros((2, 256), np.uint8)
host[:100] = 1  # the host writes buffer x, bytes 0 to 99
print("the kernel sees x before a flush:", device[:100].all())
device[100:198] = 2  # meanwhile, a kernel writes buffer y, from byte 100 on
device[0:128] = host[0:128]  # flush: atoms 0 and 1, which hold the 100 bytes
host[64:256] = device[64:256]  # invalidate: atoms 1 to 3, which hold y
print("the kernel sees x after it:      ", device[:100].all())
print("the host sees all of y:          ", (host[100:198] == 2).all())

# %% [markdown] id="l03-sim-after"
# The flush was needed, and it destroyed 28 bytes of `y`. No call failed. The cure is to place buffers so that no two share an atom: exercise 3.
#
# ### The same in Metal
# In Metal a program chooses one of four *storage modes*. MoltenVK, which translates Vulkan to Metal, lists them as types 0 to 3 of the M1 above.
#
# | Metal's mode | who reaches the bytes | flags that MoltenVK lists |
# |---|---|---|
# | private | the GPU alone | `device_local` |
# | shared | both, the same bytes; the default on Apple silicon | `device_local`, `host_visible`, `host_coherent`, `host_cached` |
# | managed | both, each side may keep its own copy; made for Macs with a separate GPU | `device_local`, `host_visible`, `host_cached` |
# | memoryless | the GPU, inside of one render pass; for textures only | `device_local`, `lazily_allocated` |
#
# In managed mode `didModifyRange` is the flush, and `synchronizeResource` brings results back.

# %% [markdown] id="l03-e2-text" vklab={"role": "text", "id": "03-2"}
# ### Exercise 2 · What has to be called?
# Barriers and fences are in place. What else does the program need, between the write and the read?
#
# | buffer | what happens | flags of its memory type |
# |---|---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
#
# The answers to choose from: `nothing`, `flush`, `invalidate`, and `copy` (the host cannot reach the memory: a staging buffer and a copy). The check asks for all five at once; grading counts each buffer.

# %% id="l03-e2" vklab={"role": "exercise", "id": "03-2", "points": 3, "lines": 1}
# Write one word for each buffer: calls = {"A": "nothing", "B": ...}
calls = ...
### BEGIN SOLUTION
calls = [[right]]
### END SOLUTION

# %% id="l03-e2-check" vklab={"role": "check", "id": "03-2"}
check("03-2", calls)

# %% id="l03-e2-hint"
# hint("03-2")

# %% [markdown] id="l03-4text"
# ## 4 · Many buffers, one allocation
# A model may have a thousand buffers. A device need not allow more than 4096 allocations (`maxMemoryAllocationCount`), and each call is slow. So a program allocates a few large **blocks**, and divides them: **sub-allocation**, in C++ often by the library [VMA](https://gpuopen.com/vulkan-memory-allocator/).

# %% id="l03-block" tags=["hide-input"]
paths.draw_block()

# %% [markdown] id="l03-e3-text" vklab={"role": "text", "id": "03-3"}
# Buffers come and go, and leave gaps. **Fragmentation** means that many bytes are free, but in pieces that are too small. The runtime takes the first free range in which a buffer fits (*first fit*). So a small buffer may split a large range that a large buffer needs later.
#
# ### Exercise 3 · A range for a buffer
# Write *best fit*: take the smallest free range in which the buffer fits. Let no two buffers share an atom of [[atom]] bytes: a buffer begins at a multiple of [[atom]], *and* of its own alignment, and its size is rounded up to a multiple of [[atom]]. All these are powers of two. A free range may begin and end anywhere; the bytes before an aligned offset stay free.

# %% id="l03-e3" vklab={"role": "exercise", "id": "03-3", "points": 4, "lines": 11}
def sub_allocate(free, size_bytes, alignment):
    """Take a range for a buffer; return its offset, and the ranges that are still free.

    free: list of (offset, bytes), sorted by offset.  size_bytes: 1 or more.
    alignment: a power of two.

    TODO      return (offset, ranges). The offset is the first multiple of `alignment` and of
              [[atom]] in the smallest free range in which the buffer fits with whole atoms. Of
              ranges of equal size take the first. ranges: what is free now, sorted by offset, no
              range empty. If the buffer fits nowhere, raise MemoryError.
    Approach  for each free range: where would the buffer begin, and does it end inside? Choose
              one of those that fit. Replace it by what is left before and after the buffer.
    Example   sub_allocate([(100, 4096), (8192, 1024)], 100, 512)
              -> (8192, [(100, 4096), ([[after]], [[left]])])
    Length    roughly 11 lines
    """
    ### BEGIN SOLUTION
    step, length = max(alignment, [[atom]]), size_bytes + -size_bytes % [[atom]]
    fitting = []
    for offset, there in free:
        start = offset + -offset % step
        if start + length <= offset + there:
            fitting.append((there, offset, start))
    if not fitting:
        raise MemoryError("no free range is large enough")
    there, offset, start = min(fitting)
    pieces = [(offset, start - offset), (start + length, offset + there - start - length)]
    rest = [each for each in free if each != (offset, there)]
    return start, sorted(rest + [piece for piece in pieces if piece[1] > 0])
    ### END SOLUTION


# %% id="l03-e3-picture" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("03-3"):
    display(figures.draw_story(sub_allocate, "A block of 8192 bytes. Buffers a to e come, a and c "
                               "go, then x, y and z come. Red: two buffers share bytes."))

# %% id="l03-e3-check" vklab={"role": "check", "id": "03-3"}
check("03-3", sub_allocate)

# %% id="l03-e3-hint"
# hint("03-3")

# %% [markdown] id="l03-e3-swap-text"
# Best fit is not always better: it leaves small remainders, and first fit is faster. Now give the runtime your function. `vkBindBufferMemory` returns `VK_SUCCESS` for a wrong offset, and a later kernel overwrites something, or kills the process. So each offset is tested before the driver sees it.

# %% id="l03-e3-swap" vklab={"role": "demo", "id": "03-3"}
with attempt("03-3"):
    print(run_on_ranges(sub_allocate, mine.index))

# %% [markdown] id="l03-threads-text"
# ### Two threads at the same time
# Several threads may call `vkAllocateMemory`. But the list of free ranges is *ours*: finding a range and taking it are two steps. Two threads ask for one buffer each, and the system stops both between the steps. How many *different* offsets come back, without and with a lock around both steps?

# %% id="l03-p4"
predict("03-p4", without_lock=..., with_lock=...)

# %% [markdown] id="l03-5text" vklab={"id": "03-4"}
# ## 5 · Which buffer lies in which heap? (extra)
# A card without ReBAR has three places for a buffer, and none is best for all. What counts here is the number of MiB that cross the bus in one run. A buffer has a size, a number of MiB that the host writes in a run, and a number of MiB that kernels read. (Results are left out: they belong in cached memory of the host.)
#
# | heap | who crosses the bus | MiB a run |
# |---|---|---|
# | `device` | the copy from the staging buffer. This program always copies the whole buffer | the size; 0 if the host never writes |
# | `window` | the host, through the mapping; only what it writes | what the host writes |
# | `host` | the kernels: each read goes over the bus | what kernels read |
#
# Here are seven buffers. `a` and `c` are weights, read three times a run. `e` is an input. The others are tables of which the host changes a part.

# %% id="l03-place-picture" vklab={"id": "03-4"}
# Each buffer: (MiB, MiB that the host writes, MiB that kernels read). Each heap: (budget, used).
BUFFERS = {"a": (144, 0, 432), "b": (96, 48, 96), "c": (112, 0, 336), "d": (128, 16, 128),
           "e": (64, 64, 128), "f": (64, 32, 192), "g": (144, 72, 288)}
HEAPS = {"device": (340, 20), "window": (240, 36), "host": (8000, 500)}
GIVEN_ORDER = {"a": "device", "b": "window", "c": "device", "d": "host", "e": "window",
               "f": "host", "g": "host"}
figures.draw_placed(BUFFERS, HEAPS, GIVEN_ORDER, "An obvious placement: one buffer after another, "
                    "each in the cheapest heap that still has room. Each row has its own scale.")

# %% [markdown] id="l03-e4-text" vklab={"id": "03-4"}
# ### Exercise 4 · Few bytes over the bus (scored, extra)
# Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra. Here the room of a heap is 95 % of its budget, less what is used. The **obvious** answer takes one buffer after the other, and puts each into its cheapest heap with room. The best of three orders counts: as given, largest first, smallest first. That many bytes earn nothing, the **fewest** bytes of any placement earn all points, and between the two you get a share.

# %% id="l03-e4" vklab={"role": "exercise", "id": "03-4", "points": 5, "lines": 12}
def place_buffers(buffers, heaps):
    """Return a heap for each buffer, so that few bytes cross the bus in a run.

    buffers: {name: (MiB, MiB that the host writes, MiB that kernels read)}.
    heaps: {"device": (budget, used), "window": ..., "host": ...} in MiB.
    TODO      return {name: "device", "window" or "host"}. The buffers of a heap fit into its room
              together: budget * 95 // 100 - used. All buffers fit into "host". There are at most
              12 buffers; a check has 10 seconds for 7 lists: trying every placement takes
              nearly all of them, or more.
    Approach  first make it valid: everything in "host". Then each buffer in its cheapest heap with
              room. Then improve: would another order help, or a decision taken back?
    Example   place_buffers({"a": (10, 0, 20)}, {"device": (100, 5), "window": (40, 8),
              "host": (1000, 50)}) -> {"a": "device"}; "window" costs 0 as well and is right, too
    Length    1 line to be valid, roughly 12 for the fewest bytes
    """
    ### BEGIN SOLUTION
    room = {heap: budget * 95 // 100 - used for heap, (budget, used) in heaps.items()}
    best = {(0, 0): (0, {})}  # MiB used of device and window -> the cheapest placement so far
    for name, (size, written, read) in buffers.items():
        longer = {}
        for (device, window), (cost, placed) in best.items():
            for used, heap, more in (
                ((device, window), "host", read), ((device, window + size), "window", written),
                ((device + size, window), "device", size * bool(written)),
            ):
                fits = used[0] <= room["device"] and used[1] <= room["window"]
                if fits and (used not in longer or cost + more < longer[used][0]):
                    longer[used] = (cost + more, {**placed, name: heap})
        best = longer
    return min(best.values(), key=lambda found: found[0])[1]
    ### END SOLUTION


# %% id="l03-e4-picture" vklab={"role": "demo", "id": "03-4"}
with attempt("03-4"):
    display(figures.draw_placed(BUFFERS, HEAPS, place_buffers(BUFFERS, HEAPS),
                                "Your placement. Red: more than the heap's room."))

# %% id="l03-e4-check" vklab={"role": "check", "id": "03-4"}
check("03-4", place_buffers)

# %% id="l03-e4-hint" vklab={"id": "03-4"}
# hint("03-4")

# %% [markdown] id="l03-6text"
# ## 6 · What would break this?
# This function computes the range to flush after the host has written `size` bytes at `offset`. It passed every test of its author, whose device has atoms of one byte. For which of the three sizes of atoms below is it wrong, and why? Mend it until every line says True. The last line tests that a range does not go beyond the memory of 4000 bytes. It may *end* there, at any size.

# %% id="l03-flush-bug"
def range_to_flush(offset, size, atom, memory_bytes):
    """Return (start, size) of the atoms that hold the bytes from offset to offset + size."""
    start = offset // atom * atom
    whole_atoms = (size + atom - 1) // atom
    return start, whole_atoms * atom


def is_right(offset, size, atom):
    """Tell whether the range holds all the written bytes, and no atom without any of them."""
    start, length = range_to_flush(offset, size, atom, 4000)
    return (start <= offset < start + atom
            and offset + size <= start + length < offset + size + atom)


for atom in (1, 64, 256):
    print(f"atoms of {atom:3}:", is_right(100, 40, atom) and is_right(200, 100, atom))
start, size = range_to_flush(3990, 10, 64, 4000)
print("the last bytes, and inside:", 3990 - 64 < start <= 3990 and start + size == 4000)

# %% [markdown] id="l03-recap"
# ## Recap
# | question | Vulkan's word | mistake to avoid |
# |---|---|---|
# | where may it lie? | memory type, `memoryTypeBits` | the first type that is host-visible |
# | is there room? | `VK_EXT_memory_budget` | size for budget; adding heaps up |
# | how do bytes get there? | `vkCmdCopyBuffer` or `vkMapMemory` | reading memory that is not cached |
# | who sees them? | coherent; flush, invalidate | ranges that end too early; shared atoms |
# | where in the block? | offset, alignment | a wrong offset: binding returns `VK_SUCCESS` |
#
# **To read: bytes that never come back to the host.** Apache Arrow is a format for tables in memory. Its [C Device data interface](https://arrow.apache.org/docs/format/CDeviceDataInterface.html) adds to each array the type of its device, the device's number, and an event to wait for. So one library hands a table to another, and it stays on the GPU.
#
# **Next** (with the [glossary](GLOSSARY.md) at hand): [lab 04c](04c_seven_steps.ipynb) makes such buffers with Vulkan's own calls, and runs a kernel on them.
#
# **References**
# * Vulkan: [Memory Allocation](https://docs.vulkan.org/spec/latest/chapters/memory.html). Apple: storage modes [for Apple GPUs](https://developer.apple.com/documentation/metal/choosing-a-resource-storage-mode-for-apple-gpus), [for Intel and AMD GPUs](https://developer.apple.com/documentation/metal/choosing-a-resource-storage-mode-for-intel-and-amd-gpus).
# * The recorded tables: an AMD card's [heaps](https://github.com/nowrep/obs-vkcapture/issues/6) and [types](https://github.com/KhronosGroup/Vulkan-ValidationLayers/issues/5908), [an M1](https://github.com/KhronosGroup/MoltenVK/issues/2292).
# * First fit and best fit: D. Knuth, *The Art of Computer Programming*, volume 1, section 2.5.
