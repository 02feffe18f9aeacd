"""Answers to try the checks of lab 08b with: wrong ones, and a second right one for each."""

import math

import numpy as np

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_08.strips import bytes_loaded

# ------------------------------------------------------------------------------------------- 08b-1

NAMES = ("subgroups", "workgroups", "registers", "shared memory")


def _occupancy(wave=lambda n: math.ceil(n / 32), step=lambda n: math.ceil(n / 256) * 256,
               first=True, limits=4, by="subgroups", granted=math.floor, once=False):
    """Return an answer to 08b-1 in which one decision may be wrong."""
    def occupancy(unit, kernel):
        waves = wave(kernel["invocations"])
        registers = 32 * kernel["registers"]
        taken = step(waves * registers) if once else waves * step(registers)
        needs = (waves, 1, taken, kernel["shared_bytes"])
        has = (unit["subgroups"], unit["workgroups"], unit["registers"], unit["shared_bytes"])
        room = [granted(have / need) if need else 10**6
                for have, need in zip(has, needs, strict=True)][:limits]
        least = min(room)
        at = room.index(least) if first else len(room) - 1 - room[::-1].index(least)
        return least, least * waves / unit[by], NAMES[at]

    return occupancy


alternative("08b-1")(_occupancy())
for words, decision in (
    ("workgroups", {"wave": lambda n: n / 32}),
    ("workgroups", {"wave": lambda n: n // 32}),
    ("workgroups", {"step": lambda n: n}),
    ("workgroups", {"once": True}),
    ("workgroups", {"step": lambda n: n // 256 * 256}),
    ("workgroups", {"granted": math.ceil}),
    ("workgroups", {"granted": round}),
    ("expected '", {"first": False}),
    ("workgroups", {"limits": 3}),
    ("workgroups", {"limits": 1}),
    ("expected", {"by": "workgroups"}),
):
    wrong("08b-1", says=words)(_occupancy(**decision))
for renamed in (("registers", "workgroups"), ("shared memory", "shared")):
    wrong("08b-1", says="expected '")(lambda unit, kernel, renamed=renamed: (
        *(found := _occupancy()(unit, kernel))[:2], found[2].replace(*renamed)))
wrong("08b-1", says="workgroups")(lambda unit, kernel: _occupancy()(unit, {
    **kernel, "shared_bytes": kernel["shared_bytes"] // 1024 * 1024}))
wrong("08b-1", says="expected (workgroups, share, limit)")(lambda unit, kernel: 4)

# ------------------------------------------------------------------------------------------- 08b-2


def _chooser(scopes=("subgroup",), kinds_of=slice(3, 7), waste=None, ties=True, wasted=True):
    """Return an answer to 08b-2 in which one decision may be wrong."""
    def choose_shape(table, sizes, kinds):
        best = None
        for index, row in enumerate(table):
            shape, wanted = row[:3], (None,) * 3 + (kinds[0],) * 2 + (kinds[1],) * 2
            if row[kinds_of] != wanted[kinds_of] or row[7] not in scopes:
                continue
            counts = [math.ceil(n / side) for n, side in zip(sizes, shape, strict=True)]
            padded = math.prod(counts) * math.prod(shape)
            cost = (padded if waste is None else waste(sizes, shape, padded))
            key = (cost, math.prod(counts) if ties else 0)
            if best is None or key < best[0]:
                best = (key, index, padded - math.prod(sizes) if wasted else padded)
        return best and best[1:]

    return choose_shape


alternative("08b-2")(_chooser())
for words, decision in (
    ("another scope", {"scopes": ("subgroup", "workgroup")}),
    ("another scope", {"scopes": ("subgroup", "device")}),
    ("another scope", {"kinds_of": slice(3, 5)}),
    ("another scope", {"kinds_of": slice(3, 7, 3)}),
    ("another scope", {"kinds_of": slice(4, 7)}),
    ("another scope", {"kinds_of": slice(3, 6)}),
    ("does not waste least", {"waste": lambda sizes, shape, padded: sum(
        -n % s for n, s in zip(sizes, shape, strict=True))}),
    ("of equal waste", {"ties": False, "waste": lambda sizes, shape, padded: (
        padded, -shape[0] * shape[1])}),
    ("does not waste least", {"waste": lambda sizes, shape, padded: -math.prod(shape)}),
    ("does not waste least", {"waste": lambda sizes, shape, padded: math.prod(shape)}),
    ("does not waste least", {"waste": lambda sizes, shape, padded: -math.prod(
        -(-n // s) for n, s in zip(sizes, shape, strict=True))}),
    ("does not waste least", {"waste": lambda sizes, shape, padded: sum(
        -n % s for n, s in zip(sizes[:2], shape[:2], strict=True))}),
    ("of equal waste", {"ties": False, "waste": lambda sizes, shape, padded: (
        padded, math.prod(shape))}),
    ("expected 12160, got 101376  (wasted multiply-adds)", {"wasted": False}),
):
    wrong("08b-2", says=words)(_chooser(**decision))
wrong("08b-2", says="expected None")(lambda *args: _chooser()(*args) or (0, 0))

# ------------------------------------------------------------------------------------------- 08b-3


def _near(x, bits):
    """Round by a large number that pushes the low bits out: float64 has enough of them."""
    wide = x.astype(np.float64)
    shift = wide * (2.0 ** (52 - bits) + 1)
    return shift - (shift - wide)  # Dekker's split, to bits + 1 digits


def _bits(x, bits, add):
    words, gone = x.view(np.uint32).astype(np.uint64), 23 - bits
    return ((words + add(words, gone)) >> np.uint64(gone) << np.uint64(gone)).astype(
        np.uint32).view(np.float32)


alternative("08b-3")(lambda x, bits: _near(x, bits).astype(np.float32))
for words, keep in (
    ("differ", lambda x, bits: x),
    ("differ", lambda x, bits: _bits(x, bits, lambda words, gone: np.uint64(0))),
    ("differ", lambda x, bits: _bits(x, bits, lambda words, gone: np.uint64(1 << gone - 1))),
    ("differ", lambda x, bits: _near(x, bits - 1)),
    ("differ", lambda x, bits: _near(x, bits + 1)),
    ("differ", lambda x, bits: np.round(x * 2**bits) / 2**bits),
    ("differ", lambda x, bits: x.astype(np.float16)),
    ("differ", lambda x, bits: x.astype(np.float16) if bits == 10 else _near(x, bits)),
    ("differ", lambda x, bits: _near(x, {10: 10, 7: 7}.get(bits, 4))),
):
    wrong("08b-3", says=words)(lambda x, bits, keep=keep: keep(x, bits).astype(np.float32))

# ------------------------------------------------------------------------------------------- 08b-4

RIGHT = {"memory_ms": 1.3424, "fp32_ms": 0.01712, "batch": 79}
alternative("08b-4")(RIGHT)
wrong("08b-4", says="batch: 78 is not it")({**RIGHT, "batch": 78})
wrong("08b-4", says="expected a whole number batch")({**RIGHT, "batch": 79.02})
wrong("08b-4", says="memory_ms: 1.28")({**RIGHT, "memory_ms": 973 / 760})
wrong("08b-4", says="fp32_ms: 0.00856")({**RIGHT, "fp32_ms": 0.00856})
wrong("08b-4", says="fp32_ms: 0.0684")({**RIGHT, "fp32_ms": 0.0684})
wrong("08b-4", says="expected a dictionary with memory_ms")({"memory_ms": 1.34})
wrong("08b-4", says="expected a number memory_ms")(dict.fromkeys(RIGHT, "1.34"))

# ------------------------------------------------------------------------------------------- 08b-5


@alternative("08b-5")
def bands_of_bytes(tiles, a, b, cache):
    """Cut one operand into bands of at most so many bytes, for each number of bytes."""
    found, wanted = [], set(tiles)
    for turned in (False, True):
        across, along = (a, b) if turned else (b, a)
        for sizes in ([1] * len(across), across):  # as they come, or smallest first
            order = sorted(range(len(across)), key=lambda n: across[n] if sizes is across else n)
            steps = sorted(range(len(along)), key=lambda n: along[n] if sizes is across else n)
            for units in ([1] * len(across), across):
                for most in range(1, max(cache, len(across)) + 1):
                    bands, used = [[]], 0
                    for strip in order:
                        if bands[-1] and used + units[strip] > most:
                            bands, used = [*bands, []], 0
                        bands[-1].append(strip)
                        used += units[strip]
                    path = []
                    for number, band in enumerate(bands):
                        for line in steps[::-1] if number % 2 else steps:
                            path += [(place, line) if turned else (line, place)
                                     for place in band]
                    found.append([tile for tile in path if tile in wanted])
    return min(found, key=lambda path: bytes_loaded(path, a, b, cache))


def _sorted(key):
    return lambda tiles, a, b, cache: sorted(tiles, key=key)


wrong("08b-5", says="the obvious answer needs 17")(lambda tiles, *rest: tiles)
wrong("08b-5", says="bytes loaded; no answer needs less than 13")(
    _sorted(lambda t: (t[0], t[1] if t[0] % 2 == 0 else -t[1])))
wrong("08b-5", says="bytes loaded; no answer needs less than")(
    _sorted(lambda t: (t[0] // 3, t[1] // 3, t)))
wrong("08b-5", says="bytes loaded; no answer needs less than")(_sorted(lambda t: (t[1] // 4, t)))


@wrong("08b-5", says="bytes loaded; no answer needs less than")
def what_is_cheapest_now(tiles, a, b, cache):
    left, order, recent = sorted(tiles), [], []
    while left:
        tile = min(left, key=lambda t: a[t[0]] * (("a", t[0]) not in recent)
                   + b[t[1]] * (("b", t[1]) not in recent))
        left.remove(tile)
        order.append(tile)
        for strip in (("a", tile[0]), ("b", tile[1])):
            recent = [*(other for other in recent if other != strip), strip]
            while sum((a if kind == "a" else b)[n] for kind, n in recent) > cache:
                recent.pop(0)
    return order


wrong("08b-5", says="each tile once")(lambda tiles, a, b, cache: [
    (i, j) for i in range(len(a)) for j in range(len(b))])
wrong("08b-5", says="each tile once")(lambda tiles, a, b, cache: tiles[:1] * len(tiles))
wrong("08b-5", says="each tile once")(lambda tiles, a, b, cache: tiles[:-1])
wrong("08b-5", says="expected a list of tiles")(lambda tiles, a, b, cache: [i for i, _ in tiles])

for line, other, because in (
    ("for wide in range(1, 21)]", "for wide in range(1, 22)]", "no grid has more than 20 strips"),
    ("for wide in range(1, 21)]", "for wide in range(1, 20)]", "a band of 20 holds the whole grid"),
    ("for wide in range(1, 21)]", "for wide in range(1, 21 - 1)]", "the same"),
):
    line, other = (f"orders = [in_bands(turn, wide, by_size) for turn in (1, -1) "
                   f"for by_size in (False, True) {end}" for end in (line, other))
    equivalent("08b-5", line, other, because=because)
equivalent("08b-1", "registers = -(-32 * kernel['registers'] // 256) * 256 * subgroups",
           "registers = -(-32 * kernel['registers'] // 257) * 256 * subgroups",
           because="an invocation has at most 255 registers, and both divisions round up alike")
