"""Answers to try the checks of lab 03 with: wrong ones, and a second right one for each."""

from dataclasses import replace
from itertools import product

from vklab.course.author.answers import alternative, equivalent, wrong

# ------------------------------------------------------------------------------------------- 03-1


@alternative("03-1")
def by_insertion(heaps, memory_types, type_bits, size_bytes, required, preferred):
    ranked = []
    for index, kind in enumerate(memory_types):
        heap = heaps[kind.heap]
        room = heap.budget_bytes - heap.usage_bytes - -(-heap.budget_bytes * 5 // 100)
        if not type_bits & 2**index or not kind.flags.issuperset(required) or size_bytes > room:
            continue
        score = (sum(flag in kind.flags for flag in preferred), room)
        place = sum(score <= other for other, _ in ranked)
        ranked.insert(place, (score, index))
    return [index for _, index in ranked]


def _wrong_ranks(says):
    return wrong("03-1", says=says)


@_wrong_ranks("the mask forbids it")
def ignores_the_mask(heaps, memory_types, type_bits, size_bytes, required, preferred):
    return by_insertion(heaps, memory_types, -1, size_bytes, required, preferred)


@_wrong_ranks("it lacks ['host_coherent', 'host_visible']")
def takes_any_flag(heaps, memory_types, type_bits, size_bytes, required, preferred):
    return by_insertion(heaps, memory_types, type_bits, size_bytes, set(), preferred | required)


@_wrong_ranks("its heap has no room")
def trusts_the_whole_budget(heaps, memory_types, type_bits, size_bytes, required, preferred):
    more = tuple(replace(heap, budget_bytes=-(-heap.budget_bytes * 100 // 95)) for heap in heaps)
    return by_insertion(more, memory_types, type_bits, size_bytes, required, preferred)


@_wrong_ranks("its heap has no room")
def forgets_what_is_used(heaps, memory_types, type_bits, size_bytes, required, preferred):
    more = tuple(replace(heap, usage_bytes=0) for heap in heaps)
    return by_insertion(more, memory_types, type_bits, size_bytes, required, preferred)


@_wrong_ranks("a heap without room drops out")
def takes_the_margin_of_what_is_left(
    heaps, memory_types, type_bits, size_bytes, required, preferred
):
    less = tuple(replace(heap, budget_bytes=heap.budget_bytes - heap.usage_bytes, usage_bytes=0)
                 for heap in heaps)  # fmt: skip
    return by_insertion(less, memory_types, type_bits, size_bytes, required, preferred)


@_wrong_ranks("its heap has no room")
def reads_the_size_of_the_heap(heaps, memory_types, type_bits, size_bytes, required, preferred):
    more = tuple(replace(heap, budget_bytes=heap.size_bytes) for heap in heaps)
    return by_insertion(more, memory_types, type_bits, size_bytes, required, preferred)


@_wrong_ranks("preferred flags first, then room, then the lower index")
def keeps_the_drivers_order(heaps, memory_types, type_bits, size_bytes, required, preferred):
    return sorted(by_insertion(heaps, memory_types, type_bits, size_bytes, required, preferred))


@_wrong_ranks("preferred flags first, then room, then the lower index")
def counts_all_flags(heaps, memory_types, type_bits, size_bytes, required, preferred):
    able = by_insertion(heaps, memory_types, type_bits, size_bytes, required, set())
    return sorted(able, key=lambda n: -len(memory_types[n].flags))


@_wrong_ranks("preferred flags first, then room, then the lower index")
def wants_every_preferred_flag(heaps, memory_types, type_bits, size_bytes, required, preferred):
    able = by_insertion(heaps, memory_types, type_bits, size_bytes, required, set())
    return sorted(able, key=lambda n: not preferred <= memory_types[n].flags)


@_wrong_ranks("expected a list of indices, got 2")
def gives_the_best_only(heaps, memory_types, type_bits, size_bytes, required, preferred):
    return by_insertion(heaps, memory_types, type_bits, size_bytes, required, preferred)[0]


# ------------------------------------------------------------------------------------------- 03-2

CALLS = {"E": "invalidate", "D": "nothing", "C": "copy", "B": "nothing", "A": "flush"}
alternative("03-2")(CALLS)
wrong("03-2", says="4 of 5 are right")({**CALLS, "D": "invalidate"})
wrong("03-2", says="3 of 5 are right")({**CALLS, "A": "invalidate", "E": "flush"})
wrong("03-2", says="2 of 5 are right")(dict.fromkeys("ABCDE", "nothing"))
wrong("03-2", says="'C' has no answer")({key: call for key, call in CALLS.items() if key != "C"})
wrong("03-2", says="choose one of 'nothing', 'flush'")({**CALLS, "A": "barrier"})

# ------------------------------------------------------------------------------------------- 03-3


@alternative("03-3")
def by_steps(free, size_bytes, alignment):
    length = (size_bytes + 63) & ~63
    best = None
    for number, (offset, there) in enumerate(free):
        start = (offset + 63) & ~63
        while start % alignment:
            start += 64
        if start + length <= offset + there and (best is None or there < free[best[0]][1]):
            best = number, start
    if best is None:
        raise MemoryError
    number, start = best
    offset, there = free[number]
    cut = [(offset, start - offset)] if start > offset else []
    if start + length < offset + there:
        cut.append((start + length, offset + there - (start + length)))
    return start, list(free[:number]) + cut + list(free[number + 1 :])


def _wrong_range(says):
    return wrong("03-3", says=says)


@_wrong_range("the smallest free range that fits; the first of equals")
def takes_the_first(free, size_bytes, alignment):
    for number in range(len(free)):
        try:
            start, rest = by_steps([free[number]], size_bytes, alignment)
        except MemoryError:
            continue
        return start, sorted([*free[:number], *rest, *free[number + 1 :]])
    raise MemoryError


@_wrong_range("the smallest free range that fits; the first of equals")
def takes_the_largest(free, size_bytes, alignment):
    start, rest = by_steps([max(free, key=lambda each: each[1])], size_bytes, alignment)
    return start, sorted([*rest, *(each for each in free if each[0] + each[1] <= start
                                   or each[0] > start)])  # fmt: skip


@_wrong_range("the smallest free range that fits; the first of equals")
def takes_the_last_of_equals(free, size_bytes, alignment):
    for there in sorted({each[1] for each in free}):
        for each in reversed([one for one in free if one[1] == there]):
            try:
                start, rest = by_steps([each], size_bytes, alignment)
            except MemoryError:
                continue
            return start, sorted([*rest, *(one for one in free if one != each)])
    raise MemoryError


@_wrong_range("is no multiple of the alignment")
def forgets_the_alignment(free, size_bytes, alignment):
    return by_steps(free, size_bytes, 1)


@_wrong_range("the bytes that are no longer free")
def forgets_whole_atoms(free, size_bytes, alignment):
    start, rest = by_steps(free, size_bytes, alignment)
    end = start + -(-size_bytes // 64) * 64
    tail = [(start + size_bytes, end - start - size_bytes)] if size_bytes % 64 else []
    return start, sorted(rest + tail)


@_wrong_range("what is left is listed")
def loses_the_piece_before(free, size_bytes, alignment):
    start, rest = by_steps(free, size_bytes, alignment)
    return start, [each for each in rest if each[0] + each[1] != start]


@_wrong_range("what is left is listed")
def keeps_empty_ranges(free, size_bytes, alignment):
    start, rest = by_steps(free, size_bytes, alignment)
    if not any(each[0] + each[1] == start for each in rest):
        rest = sorted([*rest, (start, 0)])
    return start, rest


@_wrong_range("expected MemoryError to be raised, got None")
def returns_nothing(free, size_bytes, alignment):
    try:
        return by_steps(free, size_bytes, alignment)
    except MemoryError:
        return None


@_wrong_range("nothing fits: MemoryError")
def counts_the_bytes_before(free, size_bytes, alignment):
    if not any(there >= size_bytes for _, there in free):
        raise MemoryError
    return by_steps([*free, (1 << 20, 1 << 20)], size_bytes, alignment)


@_wrong_range("is no multiple of the atom, 64")
def forgets_that_atoms_begin_somewhere(free, size_bytes, alignment):
    length = size_bytes + -size_bytes % 64
    able = [(there, offset) for offset, there in free
            if -offset % alignment + length <= there]  # fmt: skip
    if not able:
        raise MemoryError
    there, offset = min(able)
    start = offset + -offset % alignment
    pieces = [(offset, start - offset), (start + length, offset + there - start - length)]
    rest = [each for each in free if each[0] != offset]
    return start, sorted(rest + [piece for piece in pieces if piece[1]])


@_wrong_range("the smallest free range that fits; the first of equals")
def takes_the_smallest_behind_the_alignment(free, size_bytes, alignment):
    step = max(alignment, 64)
    order = sorted(free, key=lambda each: (each[1] - -each[0] % step, each[0]))
    for each in order:
        try:
            start, rest = by_steps([each], size_bytes, alignment)
        except MemoryError:
            continue
        return start, sorted([*rest, *(one for one in free if one != each)])
    raise MemoryError


@_wrong_range("expected (offset, free ranges), got 0")
def gives_the_offset_only(free, size_bytes, alignment):
    return by_steps(free, size_bytes, alignment)[0]


# ------------------------------------------------------------------------------------------- 03-4


def _cost(buffer, heap):
    size, written, read = buffer
    return {"device": size * (written > 0), "window": written, "host": read}[heap]


def _room(heaps):
    return {name: budget * 95 // 100 - used for name, (budget, used) in heaps.items()}


@alternative("03-4")
def by_branches(buffers, heaps):
    names = sorted(buffers, key=lambda name: -buffers[name][0])
    costs = {name: {heap: _cost(buffers[name], heap) for heap in heaps} for name in names}
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

    place(0, _room(heaps), 0, {})
    return best[1]


def _greedy(buffers, heaps, key):
    left, placed = _room(heaps), {}
    for name in sorted(buffers, key=key):
        size = buffers[name][0]
        placed[name] = min((heap for heap in heaps if left[heap] >= size),
                           key=lambda heap, name=name: _cost(buffers[name], heap))  # fmt: skip
        left[placed[name]] -= size
    return placed


@wrong("03-4", says="on the picture's list: 688 MiB over the bus a run; no answer needs less than")
def most_saved_first(buffers, heaps):
    return _greedy(buffers, heaps, lambda name: min(_cost(buffers[name], heap) for heap in heaps)
                   - _cost(buffers[name], "host"))  # fmt: skip


@wrong("03-4", says="all points are given from 432 on")
def largest_first(buffers, heaps):
    return _greedy(buffers, heaps, lambda name: -buffers[name][0])


@wrong("03-4", says="MiB over the bus a run; no answer needs less than")
def everything_in_host_memory(buffers, heaps):
    return dict.fromkeys(buffers, "host")


@wrong("03-4", says="MiB over the bus a run; no answer needs less than")
def moves_one_at_a_time(buffers, heaps):
    """Improve a greedy answer as long as moving one buffer helps."""
    placed, room = most_saved_first(buffers, heaps), _room(heaps)
    for _ in range(50):
        for name, heap in product(buffers, heaps):
            load = sum(buffers[other][0] for other in buffers
                       if placed[other] == heap and other != name)  # fmt: skip
            if (load + buffers[name][0] <= room[heap]
                    and _cost(buffers[name], heap) < _cost(buffers[name], placed[name])):
                placed[name] = heap
    return placed


@wrong("03-4", says="your buffers there need")
def forgets_the_room(buffers, heaps):
    return {name: min(heaps, key=lambda heap, name=name: _cost(buffers[name], heap))
            for name in buffers}  # fmt: skip


@wrong("03-4", says="device: 95 % of 1000 MiB less 50 are 900 MiB, your buffers there need 905")
def trusts_the_budget(buffers, heaps):
    more = {name: (-(-budget * 100 // 95), used) for name, (budget, used) in heaps.items()}
    return by_branches(buffers, more)


@wrong("03-4", says="the buffers that have a heap")
def leaves_one_out(buffers, heaps):
    return dict(list(by_branches(buffers, heaps).items())[1:])


@wrong("03-4", says="there is no heap 'vram'")
def invents_a_heap(buffers, heaps):
    return dict.fromkeys(buffers, "vram")


@wrong("03-4", says="expected a dictionary from buffer to heap, got ['")
def gives_a_list(buffers, heaps):
    return list(by_branches(buffers, heaps).values())


equivalent("03-3", "step, length = (max(alignment, 64), size_bytes + -size_bytes % 64)",
           "step, length = (max(64, alignment), size_bytes + -size_bytes % 64)",
           because="max does not care about order")  # fmt: skip
for other in ("(1, {})", "(-1, {})"):
    equivalent("03-4", "best = {(0, 0): (0, {})}", f"best = {{(0, 0): {other}}}",
               because="all placements cost one more, or one less")  # fmt: skip
LINE = "if fits and (used not in longer or cost + more {} longer[used][0]):"
equivalent("03-4", LINE.format("<"), LINE.format("<="), because="of equal costs either will do")
