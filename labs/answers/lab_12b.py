"""Answers to try the checks of lab 12b with: wrong ones, and a second right one for each."""

from vklab_course.author.answers import alternative, wrong
from vklab_labs.lab_12 import races

# ------------------------------------------------------------------------------------------- 12b-1


@alternative("12b-1")
def by_search(jobs):
    """Try all traces, the short ones first."""
    seen, todo = set(), [(races.Queues(jobs), [])]
    for machine, trace in todo:
        for event, after, early in races.following(machine):
            if early:
                return [*trace, event]
            if races.state_key(after) not in seen:
                seen.add(races.state_key(after))
                todo.append((after, [*trace, event]))
    return []


def _pair(same=True, reread=True, begin=True, key=len, one=True):
    """Return an answer to 12b-1 that leaves one read running, in which a decision may be wrong."""
    def overtaking(jobs):
        needs, found = {}, []
        for name, (device, reads) in jobs.items():
            needs[name] = {n for read in reads for n in (read, *needs[read])}
            running = [read for read in reads if (jobs[read][0] == device or not same) and not (
                reread and any(read in jobs[other][1] for other in needs[name]))]
            trace = [(kind, n) for n in jobs if n in needs[name]
                     for kind in ("submit", "begin", "end")
                     if (kind != "end" or n not in running[: 1 if one else None])
                     and (kind != "begin" or n not in running or begin)]
            if running:
                found.append([*trace, ("submit", name), ("begin", name)])
        return min(found, key=key, default=[])

    return overtaking


wrong("12b-1", says="events; no answer needs fewer than")(_pair())
wrong("12b-1", says="events; no answer needs fewer than")(_pair(key=lambda trace: 0))
for rule in (lambda trace: len({name for _, name in trace}),
             lambda trace: sum(kind == "end" for kind, _ in trace) - len(trace) / 3):  # fmt: skip
    wrong("12b-1", says="events; no answer needs fewer than")(_pair(key=rule, one=False))
wrong("12b-1", says="cannot happen")(_pair(same=False))
wrong("12b-1", says="cannot happen: b reads a, which has not ended")(
    lambda jobs: [(kind, n) for kind in ("submit", "begin") for n in jobs])
wrong("12b-1", says="cannot happen")(_pair(reread=False))
wrong("12b-1", says="is before b in the queue, and has not begun")(_pair(begin=False))
wrong("12b-1", says="got [], and a trace can fail here")(lambda jobs: [])
wrong("12b-1", says="no chunk in it begins before a chunk that it reads has ended")(
    lambda jobs: [(kind, n) for n in jobs for kind in ("submit", "begin", "end")])
wrong("12b-1", says="expected [], got a trace of")(
    lambda jobs: by_search(jobs) or [(kind, n) for n in jobs for kind in ("submit", "begin")][:1])
wrong("12b-1", says="expected a list of events")(lambda jobs: ["submit a", "begin a"])
wrong("12b-1", says="did that before")(lambda jobs: by_search(jobs)[:1] * 2)


@wrong("12b-1", says="did not end in time")
def waits_for_ever(jobs):
    while jobs:
        pass
    return []


# ------------------------------------------------------------------------------------------- 12b-2

C, D, X, Y = "c", "d", "x", "y"
alternative("12b-2")([
    ("start", 1, C), ("write", 1, C), ("count", 1, C, D), ("start", 0, D), ("write", 0, D),
    ("count", 0, D, X), ("count", 1, C, X), ("start", 1, X)])
ONE = [("start", 0, C), ("write", 0, C), ("count", 0, C, D), ("count", 0, C, X)]
TWO = [("start", 1, D), ("write", 1, D), ("count", 1, D, X)]
wrong("12b-2", says="views of threads 0 and 1 are {c} and {c, d}")([*ONE, *TWO, ("start", 1, X)])
wrong("12b-2", says="no start in it reads stale bytes")([*ONE, *TWO, ("start", 0, X)])
wrong("12b-2", says="cannot happen: x is not ready")([*ONE, ("start", 0, X)])
wrong("12b-2", says="thread 0 has not finished c")([*ONE[:3], ("start", 0, D)])
wrong("12b-2", says="event 0, ('write', 0, 'c'), cannot happen")(ONE[1:])
wrong("12b-2", says="c is not written yet")([ONE[0], ONE[2]])
wrong("12b-2", says="'y' does not read c")([*ONE[:2], ("count", 0, C, Y)])
wrong("12b-2", says="10 events; 8 are enough")([
    *ONE[:3], *TWO, ONE[3], ("start", 0, X), ("write", 0, X), ("count", 0, X, Y)])
wrong("12b-2", says="expected a list of events")("start 0 c")

# ------------------------------------------------------------------------------------------- 12b-3

RIGHT = {"A": "lock-free", "B": "none of them", "C": "release and acquire", "D": "Miri verified",
         "E": "none of them"}  # fmt: skip
alternative("12b-3")(dict(reversed(RIGHT.items())))
wrong("12b-3", says="not all right")({**RIGHT, "B": "Miri verified"})
wrong("12b-3", says="not all right")({**RIGHT, "E": "lock-free", "C": "atomic counter"})

# ------------------------------------------------------------------------------------------- 12b-4


def _steps(**options):
    """Return an answer to 12b-4 that looks at all reads again; one of its rules may be missing."""
    def rule(name):
        return options.get(name, True)

    def above(jobs, name):
        return {*jobs[name][1]}.union(*(above(jobs, read) for read in jobs[name][1]))

    def step(jobs, state, event):
        left, flying, failed = dict(state["left"]), {*state["in_flight"]}, {*state["failed"]}
        kind, name = event
        if name and name not in flying and rule("twice") and (rule("waits") or not left[name]):
            return state
        down, is_bad = [], kind == "failed" and rule("fails") and (rule("many") or not failed)
        if kind != "go":
            flying -= {name} if kind == "ended" or rule("tells") else set()
            is_bad |= rule("spreads") and bool(failed & {*jobs[name][1]})
            failed |= {name} if is_bad else set()
        if kind != "go" and (not is_bad or not rule("fails")):
            down = [n for n, (device, reads) in jobs.items() if name in reads and (
                device != jobs[name][0] or not rule("device") or rule("again") is None)]
        if kind != "go" and not rule("any"):
            down = down[:1]
        ready = [n for n, (_, reads) in jobs.items() if kind == "go" and not reads]
        for other in down:
            left[other] -= 1
            ready += [other] * (left[other] == 0 if rule("zero") else True)
        for job in ready if rule("goes on") or not failed else []:
            reads = {*jobs[job][1]} if rule("direct") else above(jobs, job)
            if not failed & reads or not rule("asks"):
                flying.add(job)
                for other, (device, reads) in jobs.items():
                    if job in reads and device == jobs[job][0] and rule("device"):
                        left[other] -= 1
                        ready += [other] * (left[other] == 0)
        return {"left": left, "in_flight": list(flying), "failed": list(failed)}

    return step


alternative("12b-4")(_steps())
wrong("12b-4", says="left: who was counted here, and who twice?")(_steps(any=False))
wrong("12b-4", says="may start now, and is not in flight")(_steps(device=False))
wrong("12b-4", says="must not start: 1 of its reads is not counted yet")(_steps(zero=False))
wrong("12b-4", says="is still in flight: its caller waits for ever")(_steps(tells=False))
wrong("12b-4", says="which is in `failed`")(_steps(asks=False))
wrong("12b-4", says="d may start now, and is not in flight")(_steps(direct=False))
wrong("12b-4", says="failed: which results are worthless?")(_steps(spreads=False))
wrong("12b-4", says="which results are worthless?")(_steps(fails=False))
wrong("12b-4", says="go; then ended b: c is in flight, and must not start")(_steps(twice=False))
wrong("12b-4", says="go; then ended b: c is in flight, and must not start")(_steps(waits=False))
wrong("12b-4", says="then failed c: expected ['b', 'c'], got ['b']")(_steps(many=False))
wrong("12b-4", says="may start now, and is not in flight")(_steps(**{"goes on": False}))
wrong("12b-4", says="is started twice")(lambda jobs, state, event: {
    **_steps()(jobs, state, event), "in_flight": _steps()(jobs, state, event)["in_flight"] * 2})
wrong("12b-4", says="is lost: it was in flight")(lambda jobs, state, event: {
    **_steps()(jobs, state, event), "in_flight": [
        n for n in _steps()(jobs, state, event)["in_flight"] if n not in state["in_flight"]]})
wrong("12b-4", says="expected a dict with left, in_flight and failed")(
    lambda jobs, state, event: (state["left"], state["in_flight"]))


@wrong("12b-4", says="your function changed its argument state")
def changes_the_old_state(jobs, state, event):
    state.update(_steps()(jobs, state, event))
    return state
