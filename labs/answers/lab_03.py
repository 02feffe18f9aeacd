"""Answers to try the checks of lab 03 with: wrong ones, and a second right one for each."""

from dataclasses import replace

from vklab.course.author.answers import alternative, equivalent, wrong
from vklab.course.labs import placing

# ------------------------------------------------------------------------------------------- 03-1


def _rank(mask=lambda bits: bits, heap=lambda heap: heap, flags=lambda need, like: (need, like),
          order=lambda ranked, types, like: ranked):  # fmt: skip
    """Return an answer to 03-1 that changes what it is given, or its result."""

    def rank_memory_types(heaps, memory_types, type_bits, size_bytes, required, preferred):
        need, like = flags(required, preferred)
        ranked = []
        for index, kind in enumerate(memory_types):
            changed = heap(heaps[kind.heap])
            room = changed.budget_bytes - -(-changed.budget_bytes // 20) - changed.usage_bytes
            if mask(type_bits) & 2**index and kind.flags.issuperset(need) and size_bytes <= room:
                score = (sum(flag in kind.flags for flag in like), room)
                ranked.insert(sum(score <= other for other, _ in ranked), (score, index))
        return order([index for _, index in ranked], memory_types, preferred)

    return rank_memory_types


alternative("03-1")(_rank())
wrong("03-1", says="the mask forbids it")(_rank(mask=lambda bits: -1))
wrong("03-1", says="it lacks ['host_coherent', 'host_visible']")(
    _rank(flags=lambda need, like: (set(), need | like)))  # fmt: skip
no_room, order = "its heap has no room", "preferred flags first, then room, then the lower index"
for says, change in (
    (no_room, lambda heap: replace(heap, budget_bytes=-(-heap.budget_bytes * 100 // 95))),
    (no_room, lambda heap: replace(heap, usage_bytes=0)),
    (no_room, lambda heap: replace(heap, budget_bytes=heap.size_bytes)),
    ("a heap without room drops out", lambda heap: replace(
        heap, budget_bytes=heap.budget_bytes - heap.usage_bytes, usage_bytes=0)),
):  # fmt: skip
    wrong("03-1", says=says)(_rank(heap=change))
for change in (
    lambda ranked, types, like: sorted(ranked),
    lambda ranked, types, like: sorted(sorted(ranked), key=lambda n: -len(types[n].flags & like)),
    lambda ranked, types, like: sorted(ranked, key=lambda n: -len(types[n].flags)),
    lambda ranked, types, like: sorted(sorted(ranked), key=lambda n: not like <= types[n].flags),
    lambda ranked, types, like: ranked[:1],
):
    wrong("03-1", says=order)(_rank(order=change))
wrong("03-1", says="expected a list of indices, got 2")(
    _rank(order=lambda ranked, types, like: ranked[0]))  # fmt: skip

# ------------------------------------------------------------------------------------------- 03-2

CALLS = {"E": "invalidate", "D": "nothing", "C": "copy", "B": "nothing", "A": "flush"}
alternative("03-2")(CALLS)
wrong("03-2", says="4 of 5 are right")({**CALLS, "D": "invalidate"})
wrong("03-2", says="3 of 5 are right")({**CALLS, "A": "invalidate", "E": "flush"})
wrong("03-2", says="2 of 5 are right")(dict.fromkeys("ABCDE", "nothing"))
wrong("03-2", says="'C' has no answer")({key: call for key, call in CALLS.items() if key != "C"})
wrong("03-2", says="choose one of 'nothing', 'flush'")({**CALLS, "A": "barrier"})

# ------------------------------------------------------------------------------------------- 03-3


def _take(atom=64, length=lambda size: (size + 63) & ~63, fits=lambda start, end, there: True,
          key=lambda offset, there, start: there, result=lambda start, rest: (start, rest)):
    """Return an answer to 03-3 that changes one of its rules."""

    def sub_allocate(free, size_bytes, alignment):
        able = []
        for offset, there in free:
            start = -(-offset // atom) * atom
            while start % alignment:
                start += atom
            end = start + length(size_bytes)
            if end <= offset + there or not fits(size_bytes, end, there):
                able.append((key(offset, there, start), offset, there, start, end))
        if not able:
            raise MemoryError
        _, offset, there, start, end = min(able)
        pieces = [(offset, start - offset), (end, offset + there - end)]
        kept = [each for each in free if each != (offset, there)]
        return result(start, sorted(kept + [each for each in pieces if each[1]]))

    return sub_allocate


def _or_nothing(free, size_bytes, alignment):
    try:
        return _take()(free, size_bytes, alignment)
    except MemoryError:
        return None


alternative("03-3")(_take())
smallest = "the smallest free range that fits; the first of equals"
for key in (lambda offset, there, start: offset, lambda offset, there, start: -there,
            lambda offset, there, start: (there, -offset),
            lambda offset, there, start: there - start + offset,
            lambda offset, there, start: start - offset):  # fmt: skip
    wrong("03-3", says=smallest)(_take(key=key))
wrong("03-3", says="is no multiple of the alignment")(
    lambda free, size_bytes, alignment: _take()(free, size_bytes, 1))  # fmt: skip
wrong("03-3", says="is no multiple of the atom, 64")(_take(atom=1))
wrong("03-3", says="the bytes that are no longer free")(_take(length=lambda size: size))
wrong("03-3", says="the bytes that are no longer free")(_take(length=lambda size: size // 64 * 64))
wrong("03-3", says="the bytes that are no longer free")(_take(length=lambda size: size + 64))
wrong("03-3", says="what is left is listed")(_take(
    result=lambda start, rest: (start, [each for each in rest if sum(each) != start])))  # fmt: skip
wrong("03-3", says="what is left is listed")(_take(
    result=lambda start, rest: (start, sorted([*rest, (start, 0)]))))  # fmt: skip
wrong("03-3", says="what is left is listed")(_take(
    result=lambda start, rest: (start, rest[::-1])))  # fmt: skip
wrong("03-3", says="nothing fits: MemoryError")(_take(fits=lambda size, end, there: size > there))
wrong("03-3", says="expected MemoryError to be raised, got None")(_or_nothing)
wrong("03-3", says="expected (offset, free ranges), got 0")(
    _take(result=lambda start, rest: start))  # fmt: skip
equivalent("03-3", "step, length = (max(alignment, 64), size_bytes + -size_bytes % 64)",
           "step, length = (max(64, alignment), size_bytes + -size_bytes % 64)",
           because="max does not care about order")  # fmt: skip

# ------------------------------------------------------------------------------------------- 03-4


@alternative("03-4")
def by_branches(buffers, heaps):
    names = sorted(buffers, key=lambda name: -buffers[name][0])
    costs = {name: {heap: placing.moved(buffers[name], heap) for heap in heaps} for name in names}
    ahead = [sum(min(costs[name].values()) for name in names[at:]) for at in range(len(names) + 1)]
    best = [sum(costs[name]["host"] for name in names) + 1, {}]

    def place(at, left, cost, placed):
        if cost + ahead[at] >= best[0]:
            return
        if at == len(names):
            best[:] = cost, placed
            return
        name = names[at]
        for heap in sorted(heaps, key=lambda each: costs[name][each]):
            if left[heap] >= buffers[name][0]:
                place(at + 1, {**left, heap: left[heap] - buffers[name][0]},
                      cost + costs[name][heap], {**placed, name: heap})  # fmt: skip

    place(0, placing.rooms(heaps), 0, {})
    return best[1]


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


def then_moves_one_at_a_time(buffers, heaps):
    placed, room = _greedy(lambda buffer: -buffer[0])(buffers, heaps), placing.rooms(heaps)
    for name in [*buffers] * 20:
        for heap in heaps:
            load = sum(buffers[other][0] for other in buffers if placed[other] == heap)
            if (placed[name] != heap and load + buffers[name][0] <= room[heap] and placing.moved(
                    buffers[name], heap) < placing.moved(buffers[name], placed[name])):
                placed[name] = heap
    return placed


scored = "on the picture's list: {} MiB over the bus a run; no answer needs less than 297"
wrong("03-4", says=scored.format(688))(_greedy(lambda buffer: min(
    placing.moved(buffer, heap) for heap in placing.HEAPS) - buffer[2]))  # fmt: skip
wrong("03-4", says=scored.format(720))(_greedy(lambda buffer: -buffer[0]))
wrong("03-4", says="all points are given from 432 on")(_greedy(lambda buffer: buffer[0]))
wrong("03-4", says=scored.format(1728))(lambda buffers, heaps: dict.fromkeys(buffers, "host"))
wrong("03-4", says="MiB over the bus a run; no answer needs")(then_moves_one_at_a_time)
wrong("03-4", says="your buffers there need")(
    _greedy(lambda buffer: 0, rooms=lambda heaps: dict.fromkeys(heaps, 10**6)))  # fmt: skip
wrong("03-4", says="95 % of 1000 MiB less 50 are 900 MiB, your buffers there need 905")(_greedy(
    lambda buffer: 0, rooms=lambda heaps: {name: budget - used for name, (budget, used)
                                           in heaps.items()}))  # fmt: skip
wrong("03-4", says="the buffers that have a heap")(
    lambda buffers, heaps: dict(list(by_branches(buffers, heaps).items())[1:]))  # fmt: skip
wrong("03-4", says="no heap 'vram'")(lambda buffers, heaps: dict.fromkeys(buffers, "vram"))
wrong("03-4", says="expected a dictionary from buffer to heap, got ['")(
    lambda buffers, heaps: list(by_branches(buffers, heaps).values()))  # fmt: skip
for other in ("(1, {})", "(-1, {})"):
    equivalent("03-4", "best = {(0, 0): (0, {})}", f"best = {{(0, 0): {other}}}",
               because="all placements cost one more, or one less")  # fmt: skip
LINE = "if fits and (used not in longer or cost + more {} longer[used][0]):"
equivalent("03-4", LINE.format("<"), LINE.format("<="), because="of equal costs either will do")
