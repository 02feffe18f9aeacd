"""Answers to try the checks of lab 03 with: wrong ones, and a second right one for each."""

from dataclasses import replace
from functools import lru_cache

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_03 import placing

# ------------------------------------------------------------------------------------------- 03-1


def _rank(mask=lambda bits: bits, heap=lambda heap: heap, flags=lambda need, like: (need, like),
          by=lambda heap, room: room, order=lambda ranked, types, like: ranked):  # fmt: skip
    """Return an answer to 03-1 that changes what it is given, or its result."""

    def rank_memory_types(heaps, memory_types, type_bits, size_bytes, required, preferred):
        need, like = flags(required, preferred)
        ranked = []
        for index, kind in enumerate(memory_types):
            changed = heap(heaps[kind.heap])
            room = changed.budget_bytes - -(-changed.budget_bytes // 20) - changed.usage_bytes
            if mask(type_bits) & 2**index and kind.flags.issuperset(need) and size_bytes <= room:
                score = (sum(flag in kind.flags for flag in like), by(changed, room))
                ranked.insert(sum(score <= other for other, _ in ranked), (score, index))
        return order([index for _, index in ranked], memory_types, preferred)

    return rank_memory_types


alternative("03-1")(_rank())
no_room, order = "its heap has no room", "preferred flags first, then room, then the lower index"
wrong("03-1", says="the mask forbids it")(_rank(mask=lambda bits: -1))
wrong("03-1", says="it lacks ['host_coherent', 'host_visible']")(
    _rank(flags=lambda need, like: (set(), need | like)))  # fmt: skip
wrong("03-1", says="expected a list of indices, got 2")(
    _rank(order=lambda ranked, types, like: ranked[0]))  # fmt: skip
for says, change in (
    (no_room, lambda heap: replace(heap, usage_bytes=0)),
    (no_room, lambda heap: replace(heap, budget_bytes=heap.size_bytes)),
    ("a heap without room drops out", lambda heap: replace(
        heap, budget_bytes=heap.budget_bytes - heap.usage_bytes, usage_bytes=0)),
):  # fmt: skip
    wrong("03-1", says=says)(_rank(heap=change))
for change in (
    lambda ranked, types, like: sorted(ranked),
    lambda ranked, types, like: sorted(ranked, key=lambda n: -len(types[n].flags)),
    lambda ranked, types, like: sorted(sorted(ranked), key=lambda n: not like <= types[n].flags),
):
    wrong("03-1", says=order)(_rank(order=change))

wrong("03-1", says=order)(_rank(by=lambda heap, room: heap.budget_bytes - heap.usage_bytes))

# ------------------------------------------------------------------------------------------- 03-2

CALLS = {"E": "invalidate", "D": "nothing", "C": "copy", "B": "nothing", "A": "flush"}
alternative("03-2")(CALLS)
wrong("03-2", says="not all right")({**CALLS, "D": "invalidate"})
wrong("03-2", says="not all right")({**CALLS, "A": "invalidate", "E": "flush"})

# ------------------------------------------------------------------------------------------- 03-3


def _take(atom=64, length=lambda size: (size + 63) & ~63, fits=lambda size, length: length,
          key=lambda offset, there, start: there, result=lambda start, rest: (start, rest)):
    """Return an answer to 03-3 that changes one of its rules."""

    def sub_allocate(free, size_bytes, alignment):
        able = []
        for offset, there in free:
            start = -(-offset // atom) * atom
            while start % alignment:
                start += atom
            end = start + length(size_bytes)
            if start + fits(size_bytes, end - start) <= offset + there:
                able.append((key(offset, there, start), offset, there, start, end))
        if not able:
            raise MemoryError
        _, offset, there, start, end = min(able)
        pieces = [(offset, start - offset), (end, offset + there - end)]
        kept = [each for each in free if each != (offset, there)]
        return result(start, sorted(kept + [each for each in pieces if each[1] > 0]))

    return sub_allocate


alternative("03-3")(_take())
smallest = "the smallest free range that fits; the first of equals"
for key in (lambda offset, there, start: offset, lambda offset, there, start: (there, -offset),
            lambda offset, there, start: there - start + offset):  # fmt: skip
    wrong("03-3", says=smallest)(_take(key=key))
wrong("03-3", says="is no multiple of the alignment")(
    lambda free, size_bytes, alignment: _take()(free, size_bytes, 1))  # fmt: skip
wrong("03-3", says="sub_allocate([(5, 128)], 128, 1)\n      expected MemoryError")(_take(atom=1))
for length in (lambda size: size, lambda size: size + 64):
    wrong("03-3", says="the bytes that are no longer free")(_take(length=length))
for fits in (lambda size, length: size, lambda size, length: 0):
    wrong("03-3", says="the offset is aligned, and atoms are whole")(_take(fits=fits))
for change in (lambda rest, start: [each for each in rest if sum(each) != start],
               lambda rest, start: sorted([*rest, (start, 0)]),
               lambda rest, start: rest[::-1]):  # fmt: skip
    wrong("03-3", says="what is left is listed")(
        _take(result=lambda start, rest, change=change: (start, change(rest, start))))
wrong("03-3", says="expected (offset, free ranges), got 0")(
    _take(result=lambda start, rest: start))  # fmt: skip
equivalent("03-3", "step, length = (max(alignment, 64), size_bytes + -size_bytes % 64)",
           "step, length = (max(64, alignment), size_bytes + -size_bytes % 64)",
           because="max does not care about order")  # fmt: skip

# ------------------------------------------------------------------------------------------- 03-4


@alternative("03-4")
def by_recursion(buffers, heaps):
    names, room = list(buffers), placing.rooms(heaps)

    @lru_cache(None)
    def cheapest(at, device, window):
        if at == len(names):
            return 0, ()
        buffer, found = buffers[names[at]], []
        for heap, left in (("host", (device, window)), ("device", (device - buffer[0], window)),
                           ("window", (device, window - buffer[0]))):  # fmt: skip
            if min(left) >= 0:
                cost, rest = cheapest(at + 1, *left)
                found.append((cost + placing.moved(buffer, heap), (heap, *rest)))
        return min(found)

    return dict(zip(names, cheapest(0, room["device"], room["window"])[1], strict=True))


def _greedy(key, rooms=placing.rooms):
    """Return an answer to 03-4 that goes through the buffers once, in the order of a key."""

    def place_buffers(buffers, heaps):
        left, placed = rooms(heaps), {}
        for name in sorted(buffers, key=lambda each: key(buffers[each])):
            able = [heap for heap in heaps if left[heap] >= buffers[name][0]]
            placed[name] = min(able, key=lambda heap, name=name: placing.moved(buffers[name], heap))
            left[placed[name]] -= buffers[name][0]
        return placed

    return place_buffers


def _lost(buffer):
    return min(placing.moved(buffer, heap) for heap in placing.HEAPS) - buffer[2]


scored = ("on the picture's list: {} MiB over the bus a run; no answer needs less than 528, "
          "the obvious answer needs 720")  # fmt: skip
wrong("03-4", says=scored.format(720))(_greedy(lambda buffer: 0))
wrong("03-4", says=scored.format(616))(_greedy(_lost))
wrong("03-4", says=scored.format(608))(_greedy(lambda buffer: _lost(buffer) / buffer[0]))
wrong("03-4", says=scored.format(1600))(lambda buffers, heaps: dict.fromkeys(buffers, "host"))
wrong("03-4", says="95 % of 208 MiB less 100 are 97 MiB, your buffers there need 98")(_greedy(
    lambda buffer: 0, rooms=lambda heaps: {name: budget - used for name, (budget, used)
                                           in heaps.items()}))  # fmt: skip
wrong("03-4", says="expected a heap for each of ['a'")(
    lambda buffers, heaps: dict(list(by_recursion(buffers, heaps).items())[1:]))  # fmt: skip
wrong("03-4", says="no heap 'vram'")(lambda buffers, heaps: dict.fromkeys(buffers, "vram"))
wrong("03-4", says="expected a dictionary from buffer to heap, got ['")(
    lambda buffers, heaps: list(by_recursion(buffers, heaps).values()))  # fmt: skip
for other in ("(1, {})", "(-1, {})"):
    equivalent("03-4", "best = {(0, 0): (0, {})}", f"best = {{(0, 0): {other}}}",
               because="all placements cost one more, or one less")  # fmt: skip
LINE = "if fits and (used not in longer or cost + more {} longer[used][0]):"
equivalent("03-4", LINE.format("<"), LINE.format("<="), because="of equal costs either will do")
