"""Answers to try the checks of lab 09b with: wrong ones, and a second right one for each."""

import numpy as np

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_09.growing_plans import FACTS
from vklab_labs.lab_09.live_bytes import live_bytes
from vklab_labs.shared.grouping import ready


def _part(fold=True, shape_known=True, data_stops=True, stop_all=False, list_late=False,
          strongest=True, needs_value=True, both=True, other_lacks=True, table=None, last=False):
    """Return an answer to 09b-1 in which one decision may be wrong."""
    def first_part(nodes, given, constants, facts):
        level = dict.fromkeys(given, 1) | dict.fromkeys(constants, 2)
        planned, missing, open_sizes, stopped = [], {}, set(), False
        for name, operator, reads, makes in nodes:
            kind, number = (table or facts).get(operator, ("", 0))
            lacks = {v: "shape" for v in reads if not level[v]}
            if needs_value and kind == "value" and level[reads[-1 if last else number]] < 2 and (
                    other_lacks or not lacks):
                lacks[reads[-1 if last else number]] = "value"
            if lacks or (stop_all and stopped):
                stopped = True
                level.update(dict.fromkeys(makes, 0))
                for v, what in lacks.items():
                    if (level[v] or v in open_sizes or list_late) and not (
                            strongest and missing.get(v) == "value"):  # fmt: skip
                        missing[v] = what
                continue
            planned.append(name)
            level.update(dict.fromkeys(makes, 0))
            makes = makes if both else makes[:1]
            if (fold and all(level[v] == 2 for v in reads)) or (shape_known and kind == "shape"):
                level.update(dict.fromkeys(makes, 2))
            elif kind == "data" and data_stops:
                level.update(dict.fromkeys(makes, 0))
                open_sizes.update(makes)
            else:
                level.update(dict.fromkeys(makes, 1))
        return planned, missing

    return first_part


alternative("09b-1")(_part())
for words, decision in (
    ("can be planned, and is not in your list", {"fold": False}),
    ("can be planned, and is not in your list", {"shape_known": False}),
    ("cannot be planned here", {"data_stops": False}),
    ("can be planned, and is not in your list", {"stop_all": True}),
    ("expected {'to': 'value'}", {"list_late": True}),
    ("'value'", {"strongest": False}),
    ("cannot be planned here", {"needs_value": False}),
    ("can be planned, and is not in your list", {"both": False}),
    ("'value'}, got", {"other_lacks": False}),
    ("ByFirst(", {"table": FACTS}), ("ByFirst(c,x)", {"last": True}),
):
    wrong("09b-1", says=words)(_part(**decision))
wrong("09b-1", says="expected (a list of names, a dictionary)")(
    lambda nodes, given, constants, facts: [node[0] for node in nodes])
wrong("09b-1", says="keep the order")(lambda *given: (_part()(*given)[0][::-1], _part()(*given)[1]))


def rows(array, step=4):
    return (len(array) + step - 1) // step


def right_key(array):
    return rows(array), array.shape[1:], str(array.dtype)


def _counter(key=right_key, asks=True, tree=True, first=False, contents=np.ndarray.tobytes,
             most=1000, joined=False):  # fmt: skip
    """Return an answer to 09b-2 in which one decision may be wrong."""
    def new_plans(requests, needs):
        caches, counts = {}, []  # prefix of keys -> keys, the oldest first
        for request in requests:
            prefix, count = (), 0
            for number, stage in enumerate(request):
                mine = tuple(map(key, [*stage.values()][: 1 if first else None]))
                asked = [contents(stage[name]) for name in needs[number] if asks]
                mine += (b"".join(asked),) if joined else tuple(asked)
                keys = caches.setdefault(prefix if tree else number, [])
                count += mine not in keys
                keys[:] = [*(key for key in keys if key != mine), mine][-most:]
                prefix = (*prefix, mine)
            counts.append(count)
        return counts

    return new_plans


alternative("09b-2")(_counter())
for words, decision in (
    ("on equal shapes, other numbers", {"key": lambda a: (rows(a), a.tobytes(), str(a.dtype))}),
    ("on other shapes", {"key": lambda a: (rows(a), a.ndim, str(a.dtype))}),
    ("on other dtypes", {"key": lambda a: (rows(a), a.shape[1:])}),
    ("to int64[1] = [12]", {"key": lambda a: (a.shape, str(a.dtype))}),
    ("on other shapes", {"key": lambda a: (len(a) // 4, a.shape[1:], str(a.dtype))}),
    ("on to is needed", {"asks": False}),
    ("then where int64[2, 5])", {"tree": False}),
    ("on equal bytes, other dtypes", {"first": True}),
    ("on x is needed", {"contents": lambda array: tuple(array.ravel().tolist())}),
    ("on to is needed", {"contents": lambda array: array.flat[0]}),
    ("on other shapes", {"key": lambda a: (rows(a), a.shape[-1], str(a.dtype))}),
    ("150 shapes, then two of them again", {"most": 128}),
    ("to and k are needed", {"joined": True}), ("and is long", {"contents": str}),
):
    wrong("09b-2", says=words)(_counter(**decision))
wrong("09b-2", says="one number for each request")(lambda requests, needs: [1])


def _pair(*requests):
    return [{"x": np.zeros(shape, np.float32), "to": np.array(to)} for shape, to in requests]


alternative("09b-3")(_pair(((3, 4), [3, 4]), ((3, 4), [4, 3])))
for words, one, other in (
    ("both requests need the same plan", ((3, 4), [12]), ((3, 4), [12])),
    ("the shorter keys differ", ((3, 4), [12]), ((3, 4), [2, 6])),
    ("Reshape of 12 elements to [7] is not", ((3, 4), [7]), ((3, 4), [7])),
    ("x must be a float32 matrix", ((0, 4), [3, 4]), ((3, 4), [4, 3])),
):
    wrong("09b-3", says=words)(_pair(one, other))
wrong("09b-3", says="expected two dictionaries")([((3, 4), [3, 4]), ((3, 4), [4, 3])])


@alternative("09b-4")
def layer_by_layer(work):
    """Keep for each set of done nodes the best way to it."""
    reached = {frozenset(): (0, ())}
    last = {name: [n for n in work if name in work[n][1]] for name in work}
    for _ in work:
        further = {}
        for done, (peak, order) in reached.items():
            kept = sum(work[n][0] for n in done if any(m not in done for m in last[n]))
            for n in ready(work, done):
                way = max(peak, kept + work[n][0]), (*order, n)
                further[done | {n}] = min(way, further.get(done | {n}, way))
        reached = further
    return list(reached[frozenset(work)][1])


def _greedy(key):
    def small_peak_order(work):
        order = []
        while len(order) < len(work):
            order.append(min(ready(work, order), key=lambda n: key(work, order, n)))
        return min(order, list(work), key=lambda each: max(live_bytes(work, each)))

    return small_peak_order


for words, answer in (
    ("the obvious answer needs", list),
    ("no answer needs less than", _greedy(lambda work, order, n: work[n][0])),
    ("no answer needs less than", _greedy(lambda work, order, n: -len(work[n][1]))),
    ("before", lambda work: [*work][::-1]),
    ("nodes are missing, such as", lambda work: [*work][:-1]),
    ("for the second time", lambda work: [*work, *work]),
    ("which is no node of this graph", lambda work: [*work, "n999"]),
    ("expected a list of names", set),
):
    wrong("09b-4", says=words)(answer)

for number in ("1", "-1"):
    equivalent("09b-1", "kind, number = facts.get(operator, ('', 0))",
               f"kind, number = facts.get(operator, ('', {number}))",
               because="only the kind 'value' uses the number")
    equivalent("09b-4", "heap, seen = ([(0, ())], set())",
               f"heap, seen = ([({number}, ())], set())", because="peaks are larger than a byte")
equivalent("09b-4", "heappush(heap, (max(peak, kept + work[name][0]), (*order, name)))",
           "heappush(heap, (max(kept + work[name][0], peak), (*order, name)))", because="a maximum")
equivalent("09b-2", "for stage, asked in zip(request, needs, strict=True):",
           "for stage, asked in zip(request, needs, strict=False):", because="equal lengths")
equivalent("09b-2", "key = (*((-(-len(array) // STEP), array.shape[1:], array.dtype) for array in "
           "stage.values()), *(stage[name].tobytes() for name in asked))",
           "key = (*((-len(array) // STEP, array.shape[1:], array.dtype) for array in "
           "stage.values()), *(stage[name].tobytes() for name in asked))",
           because="the negative of a number tells as much as the number")
