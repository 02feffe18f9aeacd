"""Answers to try the checks of lab 13b with: wrong ones, and a second right one for each."""

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_13.parallelism import even_parts


def _chooser(fd=lambda a, b: a["uuid"] == b["uuid"], group=lambda a, b: a["group"] is not None
             and a["group"] == b["group"], dma=lambda a, b: ("dma_export" in a["offers"]
             and "dma_import" in b["offers"]), pick=min, middle=lambda out, there: there,
             same=lambda out, there: out == there, none=("nothing", 0),
             ring=lambda a, b: not (a["direct"] or b["direct"])):  # fmt: skip
    """Return an answer to 13b-1 in which one decision may be wrong."""
    def choose_path(source, target, elements):
        if not elements and none:
            return none
        out, there = elements * source["element_bytes"], elements * target["element_bytes"]
        copies = (not source["direct"]) * out + (not target["direct"]) * there
        both = {*source["offers"]} & {*target["offers"]}
        rows = {
            "opaque fd": (0, "opaque_fd" in both and fd(source, target)),
            "device group": (there, group(source, target)),
            "dma-buf": (there, dma(source, target)),
            "shared host": (copies, "host_import" in both and not ring(source, target)),
            "ring": (copies, "host_import" in both and ring(source, target)),
        }
        able = {name: size for name, (size, works) in rows.items() if works and same(out, there)}
        able["host copy"] = copies + middle(out, there)
        name = pick(able, key=able.get)
        return name, able[name]

    return choose_path


alternative("13b-1")(_chooser())
for words, decision in (
    ("expected 'host copy', got 'opaque fd'", {"fd": lambda a, b: True}),
    ("got 'device group'", {"group": lambda a, b: a["group"] == b["group"]}),
    ("expected 'host copy', got 'dma-buf'", {"dma": lambda a, b: "dma_import" in a["offers"]}),
    ("expected 'host copy', got 'dma-buf'", {"dma": lambda a, b: "dma_export" in a["offers"]}),
    ("expected 'opaque fd', got 'host copy'", {"pick": max}),
    ("expected 'shared host', got 'dma-buf'", {"pick": lambda able, key: next(iter(able))}),
    ("bytes copied by the path 'host copy'", {"middle": lambda out, there: 0}),
    ("bytes copied by the path 'host copy'", {"middle": lambda out, there: out}),
    ("expected 'host copy', got", {"same": lambda out, there: True}),
    ("expected 'nothing', got", {"none": ()}),
    ("expected 'shared host', got 'ring'", {"ring": lambda a, b: True}),
    ("expected 'dma-buf', got 'shared host'",
     {"pick": lambda able, key: min(reversed(able), key=key)}),
):
    wrong("13b-1", says=words)(_chooser(**decision))
wrong("13b-1", says="expected (path, bytes)")(lambda *facts: "host copy")


def _sharder(size=4, split=even_parts, order=lambda a, b: (a, b), reduce=lambda p: 2 * (p - 1),
             gather=lambda r, c: r * (c - 1), refuse=True):  # fmt: skip
    """Return an answer to 13b-2 in which one decision may be wrong."""
    def shard_matmul(m, k, n, rows, columns):
        if refuse and min(rows, columns) <= 0:
            raise ValueError("no devices")
        below, across = split(k, rows), split(n, columns)
        shards = [order(below[d // columns], across[d % columns]) for d in range(rows * columns)]
        return shards, reduce(rows) * m * n * size, gather(rows, columns) * m * n * size

    return shard_matmul


def _rounded_up(count, parts):
    size = -(-count // parts)
    return [(min(count, size * n), min(count, size * n + size)) for n in range(parts)]


def _rounded_down(count, parts):
    size = count // parts
    return [(size * n, size * n + size) for n in range(parts)]


alternative("13b-2")(_sharder())
for words, decision in (
    ("the shard of device", {"split": _rounded_up}),
    ("the shard of device", {"split": _rounded_down}),
    ("the shard of device", {"order": lambda a, b: (b, a)}),
    ("bytes of the all-reduces", {"reduce": lambda p: p - 1}),
    ("bytes of the all-reduces", {"reduce": lambda p: 2 * p}),
    ("bytes of the all-gathers", {"gather": lambda r, c: c - 1}),
    ("bytes of the all-gathers", {"gather": lambda r, c: 2 * r * (c - 1)}),
    ("bytes of the all-reduces", {"size": 2}),
    ("raised ZeroDivisionError", {"refuse": False}),
):
    wrong("13b-2", says=words)(_sharder(**decision))
wrong("13b-2", says="expected (shards, all-reduce bytes")(lambda *shape: [])


@alternative("13b-3")
def each_part_goes_to_its_owner(devices, elements):
    parts, steps = even_parts(elements, devices), []
    for adds in (True, False):  # to the owner of each part, then from the owner to all
        for far in range(1, devices):
            steps.append([(d, (d + far) % devices, *parts[(d + far) % devices if adds else d], adds)
                          for d in range(devices)])
    return steps


def _through_device_0(devices, elements):
    there = [[(d, 0, 0, elements, True)] for d in range(1, devices)]
    return there + [[(0, d, 0, elements, False)] for d in range(1, devices)]


def _ring(steps=lambda p: 2 * (p - 1), part=lambda d, step: d - step,
          adds=lambda step, p: step < p - 1, split=even_parts):  # fmt: skip
    """Return an answer to 13b-3 in which one decision may be wrong."""
    return lambda devices, elements: [
        [(d, (d + 1) % devices, *split(elements, devices)[part(d, step) % devices],
          adds(step, devices)) for d in range(devices)] for step in range(steps(devices))]


for words, decision in (
    ("holds the number of device", {"steps": lambda p: p - 1}),
    ("times, expected once", {"adds": lambda step, p: True}),
    ("holds the number of device", {"adds": lambda step, p: step < p}),
    ("holds the number of device", {"part": lambda d, step: d}),
    ("holds the number of device", {"part": lambda d, step: d + step}),
    ("holds the number of device", {"split": _rounded_down}),
    ("elements; a ring needs", {"steps": lambda p: 2 * p - 1}),
):
    wrong("13b-3", says=words)(_ring(**decision))
wrong("13b-3", says="elements; a ring needs")(_through_device_0)
wrong("13b-3", says="element 0 of device 1 holds the number of")(lambda devices, elements: [
    [(d, 0, 0, elements, True) for d in range(1, devices)]])
wrong("13b-3", says="expected a list of steps")(lambda devices, elements: [devices])
wrong("13b-3", says="expected (source, target, first, end, adds)")(lambda p, e: [[(0, 1, 0, e)]])
wrong("13b-3", says="devices are two of 0 to")(lambda p, e: [[(0, p, 0, e, True)]])
wrong("13b-3", says="elements are 0 to")(lambda p, e: [[(0, 1 % p, 0, e + 1, True)]])

equivalent("13b-3", "first, end = parts[(device - step) % devices]",
           "first, end = parts[(step - device) % devices]",
           because="it gives the parts other numbers, and each still goes round the ring")

alternative("13b-4")(("b2", 19))
wrong("13b-4", says="reads what was written before")(("in2", 19))
wrong("13b-4", says="reads what was written before")(("b1", 19))
wrong("13b-4", says="16 is not when b2 may begin")(("b2", 16))
wrong("13b-4", says="expected (event, time)")("b2")

RIGHT = {"F": "no such command", "E": "its own notes", "D": "its link", "C": "at most",
         "B": "holds", "A": "its script"}  # fmt: skip
alternative("13b-5")(RIGHT)
wrong("13b-5", says="not all right")({**RIGHT, "C": "holds"})
