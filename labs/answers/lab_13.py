"""Answers to try the checks of lab 13 with: wrong ones, and a second right one for each."""

from functools import cache

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_13 import placing_rules as rules
from vklab_labs.lab_13 import schedules


def _fewest(able=lambda d, able: d in able, over=lambda used, cap: used > cap, price=1):
    """Return an answer to 13-1, by recursion, in which one decision may be wrong."""
    def few_changes(nodes, caps):
        sums = [sum(n[1] for n in nodes[:k]) for k in range(len(nodes) + 1)]

        @cache
        def rest(k, last, used):
            found = [] if k < len(nodes) else [(0, ())]
            for d in (0, 1) if k < len(nodes) else ():
                first = used + nodes[k][1] * (d == 0)
                full = over(first, caps[0]) or over(sums[k + 1] - first, caps[1])
                after = None if full or not able(d, nodes[k][2]) else rest(k + 1, d, first)
                if after:
                    found.append((after[0] + price * (last != d), (d, *after[1])))
            return min(found, default=None)

        return rest(0, -1, 0) and list(rest(0, -1, 0)[1])

    return few_changes


alternative("13-1")(_fewest())
equivalent("13-1", "further[key] = min(further.get(key, more), more)",
           "further[key] = min(more, further.get(key, more))", because="no two are equal")
equivalent("13-4", "if in_order and (not found or end < min(found)[0]):",
           "if in_order and (not found or end <= min(found)[0]):", because="equally long is kept")
for words, decision in (
    ("which cannot run it", {"able": lambda d, able: True}),
    ("there is a placement that fits, got None", {"over": lambda used, cap: used >= cap}),
    ("and has room for", {"over": lambda used, cap: False}),
    ("changes device", {"price": 0}),
):
    wrong("13-1", says=words)(_fewest(**decision))
wrong("13-1", says="changes device 2 times")(rules.first_fit_rows)


@wrong("13-1", says="changes device 4 times; 3 are enough")
def keeps_the_emptiest(nodes, caps):
    reached, total = {(None, 0): (0, ())}, 0  # (last device, changes): size on device 0, placed
    for _, size, able in nodes:
        further, total = {}, total + size
        for (last, count), (used, placed) in reached.items():
            for device in able:
                more = used + size * (device == 0), (*placed, device)
                key = device, count + (last not in (None, device))
                if more[0] <= caps[0] and total - more[0] <= caps[1]:
                    further[key] = min(further.get(key, more), more)
        reached = further
    found = min(((key[1], best[1]) for key, best in reached.items()), default=None)
    return found and list(found[1])


@wrong("13-1", says="on 40 nodes that fill both devices")
def keeps_800_with_few_changes(nodes, caps):
    reached, total = {(None, 0): (0, ())}, 0
    for _, size, able in nodes:
        further, total = {}, total + size
        for (last, used), (count, placed) in reached.items():
            for device in able:
                key, more = (device, used + size * (device == 0)), count + (device != last)
                if key[1] <= caps[0] and total - key[1] <= caps[1]:
                    new = more, (*placed, device)
                    further[key] = min(further.get(key, new), new)
        reached = dict(sorted(further.items(), key=lambda entry: entry[1][0])[:800])
    return list(min(reached.values())[1]) if reached else None


wrong("13-1", says="there are devices 0 to 1")(lambda nodes, caps: [2] * len(nodes))


PRICE = 4  # of the default variant


def _flow(times, moves, price=4, undo=True):
    """Return an answer to 13-3 that searches deep ways first, and may not undo a flow."""
    room = rules.network(times, moves, price)
    while True:
        ways, stack = {"source": ()}, ["source"]
        while stack:
            here = stack.pop()
            for there in room[here]:
                if room[here][there] and there not in ways:
                    ways[there] = (*ways[here], (here, there))
                    stack.append(there)
        if "sink" not in ways:
            return {name: int(name not in ways) for name in times}
        least = min(room[a][b] for a, b in ways["sink"])
        for a, b in ways["sink"]:
            room[a][b] -= least
            room[b][a] += least * undo


def _improved(times, moves, price=4):
    best = {n: int(a is None or (b is not None and b < a)) for n, (a, b) in times.items()}
    for name in list(times) * 3:
        best = min(best, {**best, name: 1 - best[name]},
                   key=lambda placed: rules.total(times, moves, price, placed))
    return best


def _in_pairs(times, moves, price=4):
    best = _improved(times, moves, price)
    for names in [*moves, *((name,) for name in times)] * 3:
        other = {**best, **{name: 1 - best[name] for name in names}}
        best = min(best, other, key=lambda placed: rules.total(times, moves, price, placed))
    return best


alternative("13-3")(_flow)
for words, answer in (
    ("the least is", _improved), ("on 6 nodes: the sum of this placement is", _in_pairs),
    ("the least is", lambda times, moves: _improved(times, {}, 0)),
    ("the least is", lambda times, moves: _flow(times, moves, 0)),
    ("the least is", lambda times, moves: _flow(times, moves, undo=False)),
    ("this placement is 63; the least is 62", lambda times, moves: dict.fromkeys(times, 0)),
    ("has no device", lambda times, moves: {}),
    ("there are 0 and 1", lambda times, moves: dict.fromkeys(times, 2)),
    ("the int 0 or 1, not 'sink' (str)", lambda times, moves: dict.fromkeys(times, "sink")),
):
    wrong("13-3", says=words)(answer)


@alternative("13-4")
def longer_and_longer_limits(work, caps):
    tail = {}
    for name in reversed(work):
        tail[name] = min(ms for ms in work[name][0] if ms is not None) + max(
            [tail[n] for n in tail if name in work[n][3]], default=0)

    def within(limit, plan, failed):
        made = schedules.schedule(work, plan)
        if len(plan) == len(work) or frozenset(made.items()) in failed:
            return plan if len(plan) == len(work) else None
        failed.add(frozenset(made.items()))
        for name, device, _, end in schedules.next_steps(work, caps, plan):
            if end + tail[name] - min(ms for ms in work[name][0] if ms is not None) <= limit:
                found = within(limit, [*plan, (name, device)], failed)
                if found:
                    return found

    return next(found for limit in range(999) if (found := within(limit, [], set())))


for words, answer in (
    ("the obvious answer needs", rules.first_fit),
    ("no answer needs less than 22", lambda work, caps: rules.earliest_end(
        work, caps, rules.ranks(work))),
    ("and has room for", lambda work, caps: rules.earliest_end(
        work, [99] * 3, rules.ranks(work))),
    ("which is not listed before it", lambda work, caps: [(name, 2) for name in reversed(work)]),
    ("is missing", lambda work, caps: [(name, 2) for name in list(work)[1:] if not work[name][3]]),
    ("is listed twice", lambda work, caps: [(name, 2) for name in [*work, *work]]),
    ("cannot run", lambda work, caps: [(name, n % 4) for n, name in enumerate(work)]),
    ("expected a list of (name, device)", lambda work, caps: list(work)),
):
    wrong("13-4", says=words)(answer)

BEYOND, KEPT = "beyond a limit", "kept away for nothing"
alternative("13-2")({"P": "right", "Q": BEYOND, "S": BEYOND, "T": "right", "R": KEPT})
wrong("13-2", says="not all right")({**dict.fromkeys("PRT", "right"), "Q": BEYOND, "S": BEYOND})
