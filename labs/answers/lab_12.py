"""Answers to try the checks of lab 12 with: wrong ones, and a second right one for each."""

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_12.chunking import fill, join_inputs, predecessors
from vklab_labs.lab_12.list_scheduling import by_critical_path, looking_ahead, one_device
from vklab_labs.lab_12.makespan import earliest, outlook, ready


def _cut(nodes, depth, devices=None):
    """Return the groups of a cut with at most `depth` chunks, or None."""
    if not nodes:
        return []
    done = {read for *_, reads in nodes for read in reads} - {name for name, _, _ in nodes}
    for device in devices or {device for _, device, _ in nodes} if depth else ():
        taken = fill(nodes, done, device)
        left = [node for node in nodes if node[0] not in taken]
        rest = _cut(left, depth - 1, devices) if taken else None
        if rest is not None:
            return [(device, taken), *rest]
    return None


def _linked(nodes, groups):
    place = {name: device for name, device, _ in nodes}
    reads = {name: read for name, _, read in nodes}
    return [(device, names, set(waits), {r for n in names for r in reads[n] if place[r] != device})
            for (device, names), waits in zip(groups, predecessors(nodes, groups), strict=True)]


@alternative("12-1")
def deeper_and_deeper(nodes, devices=None):
    names = {name for name, _, _ in nodes}
    if len(names) < len(nodes) or not names.issuperset(r for *_, reads in nodes for r in reads):
        raise ValueError
    found = (_cut(nodes, depth, devices) for depth in range(len(nodes) + 1))
    groups = next((groups for groups in found if groups is not None), None)
    if groups is None:
        raise ValueError
    return _linked(nodes, groups)


def _one_each(nodes):
    in_order = sorted(nodes, key=lambda node: len(_behind(nodes, node[0])))
    return _linked(nodes, [(device, [name]) for name, device, _ in in_order])


def _behind(nodes, name):
    reads = {n: r for n, _, r in nodes}
    return {name}.union(*(_behind(nodes, read) for read in reads[name]))


right = deeper_and_deeper
for words, answer in (
    ("4 chunks; 3 are enough", _one_each),
    ("which comes later", lambda nodes: _linked(nodes, join_inputs(nodes))),
    ("chunk 1 waits for [0]", lambda nodes: [(*c[:2], [], c[3]) for c in right(nodes)]),
    ("from other devices, each once", lambda nodes: [(*c[:3], []) for c in right(nodes)]),
    ("is in 0 chunks", lambda nodes: right(nodes)[:1]),
    ("expected ValueError to be raised", lambda nodes: right(nodes) if len(nodes) != 2 else []),
    ("build_chunks([('a', 7, ())", lambda nodes: right(nodes, range(3))),
    ("belongs to device", lambda nodes: [(7, *c[1:]) for c in right(nodes)]),
    ("expected a list of chunks", lambda nodes: [c[:2] for c in right(nodes)]),
):
    wrong("12-1", says=words)(answer)

BACK = [("a", 0, ()), ("b", 1, ("a",)), ("c", 2, ("b",)), ("d", 0, ("c", "a"))]
alternative("12-2")(BACK)
wrong("12-2", says="2 of the chunks")([*BACK[:2], ("d", 0, ("a", "b"))])
wrong("12-2", says="2 and 2 of the chunks")([
    *BACK[:2], ("d", 0, ("a", "b")), ("e", 2, ("b",)), ("f", 1, ("e",)), ("g", 2, ("e", "f"))])
wrong("12-2", says="wait in no circle")([*BACK[:3], ("d", 0, ("c",))])
wrong("12-2", says="which no earlier node writes")([("a", 0, ("a",))])

MS = {"one_ms": 7, "alone_ms": 140, "two_ms": 102, "three_ms": 102, "late_ms": 15}
alternative("12-3")({name: float(value) for name, value in MS.items()})
wrong("12-3", says="two_ms: not right yet")({**MS, "two_ms": 70})
wrong("12-3", says="three_ms and late_ms")({**MS, "three_ms": 70, "late_ms": 7})
wrong("12-3", says="expected a dictionary")({"one_ms": 7})


@alternative("12-4")
def branch_and_bound(tasks, able=lambda time: time is not None):
    look, seen, best = outlook(tasks), set(), [float("inf"), {}]

    def deeper(table):
        key, least = frozenset(table.items()), look(table)[0]
        if least < best[0] and key not in seen:
            seen.add(key)
            if len(table) == len(tasks):
                best[:] = least, table
            further = []
            for name in ready(tasks, table):
                for device, time in enumerate(tasks[name][0]):
                    if able(time):
                        start = earliest(tasks, table, name, device)
                        further.append({**table, name: (device, start, start + time)})
            for new in sorted(further, key=look):
                deeper(new)

    deeper({})
    return [[n for n, placed in best[1].items() if placed[0] == device] for device in (0, 1)]


for words, answer in (
    ("the obvious answer needs 14", one_device),
    ("11 units of time; no answer needs less than 8", by_critical_path),
    ("no answer needs less than", looking_ahead),
    ("deadlock: a", lambda tasks: [names[::-1] for names in by_critical_path(tasks)]),
    ("0 times in your lists", lambda tasks: [[], []]),
    ("cannot run on device", lambda tasks: [[*tasks], []]),
    ("0 times in your lists", lambda tasks: branch_and_bound(tasks, bool)),
    ("expected two lists of names", lambda tasks: [*tasks]),
):
    wrong("12-4", says=words)(answer)

equivalent("12-1", "if more and frozenset(done + more) not in seen:",
           "if more or frozenset(done + more) not in seen:", because="a longer cut comes later")
equivalent("12-1", "seen.add(frozenset(done + more))", "pass", because="slower, the same chunks")
