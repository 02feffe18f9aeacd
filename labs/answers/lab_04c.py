"""Answers that try lab 04c's checks: interfaces of kernels, and descriptor sets for several."""

from vklab_course.author.answers import alternative, wrong

# ----------------------------------------------------------------------------------- interfaces
STORAGE, UNIFORM = 7, 6


def slots_of(buffers):
    return [(number, STORAGE, 1) for number in buffers.values()]


def range_of(members):
    return (0, 4 * len(members)) if members else None


for answer, says in (
    (lambda b, m: (slots_of(b)[:2], range_of(m)), "expected [0, 1, 2], got [0, 1]  (a slot for"),
    (lambda b, m: ([(n, STORAGE, 1) for n in range(len(b))], range_of(m)), "expected [3], got [0]"),
    (lambda b, m: ([(n, UNIFORM, 1) for n in b.values()], range_of(m)),
     "expected 7, got 6  (binding 0 is a UNIFORM_BUFFER in your slot"),
    (lambda b, m: ((0, STORAGE, 3), range_of(m)), "slots: expected a list of (binding, descriptor"),
    (lambda b, m: ([(n, STORAGE, len(b)) for n in b.values()], range_of(m)),
     "expected 1, got 3  (buffers of binding 0)"),
    (lambda b, m: (slots_of(b), (0, len(m)) if m else None), "expected (0, 4), got (0, 1)"),
    (lambda b, m: (slots_of(b), (0, 32 * len(m)) if m else None), "expected (0, 4), got (0, 32)"),
    (lambda b, m: (slots_of(b), (4 * len(b), 4 * len(m)) if m else None), "got (12, 4)"),
    (lambda b, m: (slots_of(b), (0, 4 * len(m))), "no push constants: expected None, got (0, 0)"),
    (lambda b, m: (slots_of(b), (0, 4.0 * len(m)) if m else None), "range has ints, got the fl"),
    (lambda b, m: ([(n, 7.0, 1) for n in b.values()], range_of(m)), "a slot has ints, got the fl"),
    (lambda b, m: None, "expected two things, (slots, push_range), got None (is a return"),
):  # fmt: skip
    wrong("04c-1", says=says)(answer)


@alternative("04c-1")
def backwards(buffers, members):
    slots = tuple([number, STORAGE, 1] for number in sorted(buffers.values(), reverse=True))
    return slots, None if not len(members) else [0, sum(4 for _ in members)]


# ------------------------------------------------------------------------------ descriptor sets
def all_buffers(kernels, names):
    return {buffer for name in names for buffer in kernels[name]}


def first_fit(kernels, limit):
    sets = []
    for name in kernels:
        for one in sets:
            if len(all_buffers(kernels, [*one, name])) <= limit:
                one.append(name)
                break
        else:
            sets.append([name])
    return sets


def most_shared(kernels, limit):
    """Go through the kernels, the largest first, and put each where it adds fewest buffers."""
    sets = []
    for name in sorted(kernels, key=lambda name: -len(kernels[name])):
        room = [one for one in sets if len(all_buffers(kernels, [*one, name])) <= limit]
        if room:
            mine = set(kernels[name])
            min(room, key=lambda one: len(mine - all_buffers(kernels, one))).append(name)
        else:
            sets.append([name])
    return sets


for answer, says in (
    (lambda kernels, limit: [[name] for name in kernels], "picture: 20 descriptors; no answer"),
    (first_fit, "the eight kernels of the picture: 19 descriptors; no answer needs fewer than 15"),
    (most_shared, "the eight kernels of the picture: 16 descriptors; no answer needs fewer than"),
    (lambda kernels, limit: [list(kernels)], "limit=3: the set of ['scale', 'add'] has 4 buffers, "
                                             "b, t, x, y; the limit is 3"),
    (lambda kernels, limit: most_shared(kernels, limit)[1:], "expected ['add', 'scale'], got []"),
    (lambda kernels, limit: [*first_fit(kernels, limit), *[list(kernels)[:1]] * 2],
     "(the kernels of all lists; each is in one of them)"),
    (lambda kernels, limit: [sorted(all_buffers(kernels, one))
                             for one in first_fit(kernels, limit)], "got ['b', 't', 'x', 'y']"),
    (lambda kernels, limit: {name: 0 for name in kernels}, "expected a list of lists with names"),
    (lambda kernels, limit: print(first_fit(kernels, limit)), "None (is a return missing?)"),
    (lambda kernels, limit: by_choices(kernels, 4), "no answer needs fewer than"),
):  # fmt: skip
    wrong("04c-2", says=says)(answer)


@alternative("04c-2")
def by_choices(kernels, limit):
    """The cheapest sets of every choice of kernels, from small choices to all of them."""
    names = list(kernels)
    best = {0: (0, [])}
    for some in range(1, 1 << len(names)):
        first = some & -some
        for one in range(first, some + 1):
            if one & some != one or not one & first:
                continue
            members = [name for n, name in enumerate(names) if one >> n & 1]
            size = len(all_buffers(kernels, members))
            cost, sets = best[some ^ one]
            if size <= limit and (some not in best or cost + size < best[some][0]):
                best[some] = (cost + size, [*sets, members])
    return best[(1 << len(names)) - 1][1]
