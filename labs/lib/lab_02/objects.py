"""Concept diagrams of Vulkan's objects: loader, devices, structures, extensions and memory."""

from __future__ import annotations

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = [
    "draw_chain", "draw_extensions", "draw_loader", "draw_memory", "draw_pointers",
    "draw_questions", "draw_walk",
]  # fmt: skip


def draw_loader() -> Picture:
    """Draw the stations between a program and a GPU, with what may be missing at each."""
    diagram = Diagram(720, 170)
    stations = (
        ("your program", "grey", "asks for Vulkan"),
        ("loader", "blue", "installed?"),
        ("manifests", "orange", "any? hidden by\na variable?"),
        ("driver", "green", "its library there?\nnew enough?"),
        ("GPU", "pink", "built in?\nmay you open it?"),
    )
    for place, (name, colour, question) in enumerate(stations):
        x = 10 + 144 * place
        diagram.box((x, 30, 106, 44), name, colour, bold=True)
        diagram.note((x + 53, 98), question, anchor="middle")
        if place:
            diagram.arrow((x - 38, 52), (x - 2, 52))
    for place, file in enumerate(("libvulkan.so.1", "icd.d/*.json", "libGLX_nvidia.so.0"), 1):
        diagram.note((63 + 144 * place, 20), file, anchor="middle", size=11)
    diagram.box((442, 132, 250, 28), "lavapipe: a driver that needs no GPU", "green")
    diagram.arrow((398, 76), (446, 130))
    return diagram.picture(
        "Your program calls the loader, the loader reads manifests, each manifest names a driver, "
        "the driver opens a GPU. Below each station is a question: installed, any manifest, "
        "library there, GPU built in and open to you. lavapipe is a driver that needs no GPU.",
        "From your program to a GPU. Each station may be the one that is missing.",
    )


def draw_walk() -> Picture:
    """Draw an instance, its physical devices, and the questions to one of them."""
    diagram = Diagram(720, 200)
    diagram.box((10, 78, 110, 44), "instance", "blue", bold=True)
    for number, y in enumerate((30, 78, 126)):
        diagram.box((190, y, 130, 44), f"physical device {number}", "orange")
        diagram.arrow((122, 100), (188, y + 22))
    questions = (
        "properties: name, type, ids, versions",
        "limits: how large, how many",
        "queue families: which jobs",
        "memory: heaps and types",
        "features: may I use it?",
    )
    for number, question in enumerate(questions):
        diagram.box((430, 6 + 38 * number, 270, 30), question, "green")
        diagram.arrow((322, 52), (428, 21 + 38 * number))
    return diagram.picture(
        "An instance leads to three physical devices. Each answers five questions: properties, "
        "limits, queue families, memory, features.",
        "An instance lists physical devices; each of them answers the same five questions.",
    )


def draw_pointers() -> Picture:
    """Draw a chain of three C objects."""
    diagram = Diagram(720, 68)
    diagram.box((10, 10, 180, 48), "A\nVkDeviceCreateInfo", "blue")
    diagram.box((270, 10, 190, 48), "B\nVkDeviceQueueCreateInfo", "orange")
    diagram.box((540, 10, 170, 48), "C\nfloat[1]: priorities", "green")
    diagram.arrow((192, 34), (268, 34), "pointer")
    diagram.arrow((462, 34), (538, 34), "pointer")
    return diagram.picture(
        "A, VkDeviceCreateInfo, points to B, VkDeviceQueueCreateInfo, which points to C, an array "
        "of priorities.",
        "Three C objects and two pointers.",
    )


def draw_chain() -> Picture:
    """Draw a chain of structures through pNext."""
    diagram = Diagram(720, 100)
    links = ("VkPhysicalDeviceProperties2", "...SubgroupProperties", "...DriverProperties")
    since = ("base", "since 1.1", "since 1.2")
    for place, (name, version) in enumerate(zip(links, since, strict=True)):
        diagram.box((10 + 230 * place, 30, 180, 44), name, "blue" if not place else "orange")
        diagram.note((100 + 230 * place, 20), version, anchor="middle")
        diagram.arrow((192 + 230 * place, 52), (238 + 230 * place, 52), "pNext")
    diagram.note((702, 57), "0")
    diagram.note((10, 92), "You build the chain. The driver fills every link that it knows.")
    return diagram.picture(
        "VkPhysicalDeviceProperties2 points through pNext to subgroup properties, these to driver "
        "properties, and these to nothing.",
        "New questions are new links of the chain.",
    )


def draw_extensions() -> Picture:
    """Draw the stations of an extension, from one vendor to the core of Vulkan."""
    diagram = Diagram(720, 150)
    rows = (
        (
            ("VK_NV_cooperative_matrix\n2019", "one vendor"),
            ("VK_KHR_cooperative_matrix\n2023", "Khronos: all vendors"),
            ("not yet", "core"),
        ),
        (("", ""), ("VK_KHR_timeline_semaphore\n2019", ""), ("Vulkan 1.2\n2020", "")),
    )
    for row, stations in enumerate(rows):
        for place, (name, title) in enumerate(stations):
            x, y = 10 + 245 * place, 30 + 62 * row
            diagram.note((x + 105, 18), title, anchor="middle", bold=True)
            if name:
                diagram.box(
                    (x, y, 210, 44),
                    name,
                    ("pink", "orange", "blue")[place],
                    dashed=name == "not yet",
                )
            if place and stations[place - 1][0]:
                diagram.arrow((x - 33, y + 22), (x - 2, y + 22))
    return diagram.picture(
        "VK_NV_cooperative_matrix of 2019 became VK_KHR_cooperative_matrix in 2023, which is not "
        "in the core. VK_KHR_timeline_semaphore of 2019 became part of Vulkan 1.2 in 2020.",
        "The life of an extension: one vendor, then all vendors, then the core of Vulkan.",
    )


def draw_memory() -> Picture:
    """Draw the heaps of a discrete and of an integrated GPU."""
    diagram = Diagram(720, 190)
    diagram.note((180, 16), "discrete GPU", anchor="middle", bold=True)
    diagram.box((10, 28, 130, 40), "CPU", "grey")
    diagram.box((220, 28, 130, 40), "GPU", "pink")
    diagram.box((10, 104, 130, 60), "heap: host\n32 GiB", "orange")
    diagram.box((220, 104, 130, 60), "heap: device-local\n16 GiB", "blue")
    diagram.arrow((75, 70), (75, 102), both=True)
    diagram.arrow((285, 70), (285, 102), both=True)
    diagram.arrow((142, 134), (218, 134), "PCIe bus", both=True)
    diagram.note((560, 16), "integrated GPU", anchor="middle", bold=True)
    diagram.box((430, 28, 110, 40), "CPU", "grey")
    diagram.box((580, 28, 110, 40), "GPU", "pink")
    diagram.box(
        (430, 104, 260, 60), "often one heap: device-local,\nand the CPU reaches it, too", "blue"
    )
    diagram.arrow((485, 70), (485, 102), both=True)
    diagram.arrow((635, 70), (635, 102), both=True)
    return diagram.picture(
        "A discrete GPU has a device-local heap of its own; the host's heap lies behind the PCIe "
        "bus. An integrated GPU often has one device-local heap that the CPU reaches, too.",
        "Where heaps lie. The GPU of the left half reaches the host's heap only over the bus.",
    )


def draw_questions() -> Picture:
    """Draw the order in which requirements are tested, and the code that each may give."""
    diagram = Diagram(720, 120)
    codes = (
        ("version?", '"version"'),
        ("queue?", '"queue:..."'),
        ("features?", '"feature:..."'),
        ("limits?", '"limit:..."'),
        ("heap?", '"heap"'),
        ("usable", '""'),
    )
    for place, (question, code) in enumerate(codes):
        x = 10 + 120 * place
        last = place == len(codes) - 1
        diagram.box((x, 18, 92, 36), question, "green" if last else "blue", bold=True)
        diagram.arrow((x + 46, 56), (x + 46, 86))
        diagram.note((x + 52, 74), "" if last else "no")
        diagram.note((x + 46, 104), code, anchor="middle")
        if place:
            diagram.arrow((x - 26, 36), (x - 2, 36))
    return diagram.picture(
        "Five questions in a row: version, queue, features, limits, heap. The first that is "
        "answered with no gives its code; after the last one the code is empty.",
        "The first question that is answered with no ends the test.",
    )
