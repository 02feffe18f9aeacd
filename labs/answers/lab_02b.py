"""Answers to try the checks of lab 02b with: wrong ones, and a second right one for each."""

from itertools import combinations

from vklab_course.author.answers import alternative, equivalent, wrong

# ------------------------------------------------------------------------------------------- 02b-1


@wrong("02b-1", says="Vulkan 1.3.128; Needs(api_version=(1, 10)): expected 'version', got ''")
def compares_text(device, needs):
    if ".".join(map(str, device.api_version)) < ".".join(map(str, needs.api_version)):
        return "version"
    return step_by_step(device, type(needs)((0, 0), *list(vars(needs).values())[1:]))


def _older(answer):
    """Return an answer to 02b-1 that decides with `answer` whether a version is too old."""
    def first_missing(device, needs):
        if answer(device.api_version, needs.api_version):
            return "version"
        return step_by_step(device, type(needs)((0, 0), *list(vars(needs).values())[1:]))

    return first_missing


too_old = wrong("02b-1", says="version and queue (1)\n      on a device with Vulkan")
too_old(_older(lambda has, wanted: has[:2] != wanted))
too_old(_older(lambda has, wanted: has[1] < wanted[1]))
too_old(_older(lambda has, wanted: has[0] + has[1] / 10 < wanted[0] + wanted[1] / 10))
too_old(_older(lambda has, wanted: has[0] < wanted[0] or has[1] < wanted[1]))


@wrong("02b-1", says="Needs(at_most={'minStorageBufferOffsetAlignment': 64}): expected '', got")
def wants_every_limit_large(device, needs):
    limits = {**needs.at_least, **{name: value + 1 for name, value in needs.at_most.items()}}
    kind = type(needs)
    return step_by_step(device, kind(needs.api_version, needs.queue, needs.features, limits, {},
                                     needs.heap_mib))  # fmt: skip


@wrong("02b-1", says="40000 (host) MiB; Needs(heap_mib=7591): expected 'heap', got ''")
def adds_heaps_up(device, needs):
    code = step_by_step(device, needs)
    return "" if code == "heap" and device.memory_bytes >= needs.heap_mib << 20 else code


@wrong("02b-1", says="expected 'heap', got ''")
def rounds_the_heap(device, needs):
    code = step_by_step(device, needs)
    rounded = max(round(heap.size_bytes / 2**20) for heap in device.heaps if heap.device_local)
    return "" if code == "heap" and rounded >= needs.heap_mib else code


@wrong("02b-1", says="expected 'version', got 'queue:compute'")
def asks_for_the_queue_first(device, needs):
    has = any(needs.queue in family.flags for family in device.queue_families)
    return step_by_step(device, needs) if has else f"queue:{needs.queue}"


@wrong("02b-1", says="expected 'limit:maxPushConstantsSize', got 'limit:max")
def names_the_last_limit(device, needs):
    kind, limits = type(needs), dict(reversed(needs.at_least.items()))
    return step_by_step(device, kind(needs.api_version, needs.queue, needs.features, limits,
                                     needs.at_most, needs.heap_mib))  # fmt: skip


@wrong("02b-1", says="expected 'queue:compute', got 'feature:nothing'")
def looks_at_features_first(device, needs):
    for name in needs.features:
        if name not in device.features and device.api_version[:2] >= needs.api_version:
            return f"feature:{name}"
    return step_by_step(device, needs)


@wrong("02b-1", says="expected '', got None (is a return missing?)")
def forgets_the_empty_text(device, needs):
    return step_by_step(device, needs) or None


@alternative("02b-1")
def step_by_step(device, needs):
    heaps = [heap.size_bytes / 2**20 for heap in device.heaps if heap.device_local] or [0]
    flags = set().union(*(family.flags for family in device.queue_families))
    steps = [("version", tuple(device.api_version[:2]) >= tuple(needs.api_version)),
             (f"queue:{needs.queue}", needs.queue in flags)]  # fmt: skip
    steps += [(f"feature:{name}", name in device.features) for name in needs.features]
    steps += [(f"limit:{n}", device.limits[n] >= value) for n, value in needs.at_least.items()]
    steps += [(f"limit:{n}", device.limits[n] <= value) for n, value in needs.at_most.items()]
    steps.append(("heap", max(heaps) >= needs.heap_mib))
    return next((code for code, met in steps if not met), "")


equivalent("02b-1", "if device.api_version < needs.api_version:",
           "if device.api_version <= needs.api_version:",
           because="three numbers are never equal to two")  # fmt: skip

# ------------------------------------------------------------------------------------------- 02b-2


def _cost(devices, placed):
    return sum(devices[name][0] for name in set(placed.values()))


def _by_order(devices, programs, order):
    """Place each program on a rented device with room, else on the cheapest that fits."""
    left, placed = {}, {}
    for name in order:
        size, able = programs[name]
        fits = [d for d in able if left.get(d, devices[d][1]) >= size]
        if not fits:
            return None
        best = min(fits, key=lambda d: (d not in left, devices[d][0]))
        left[best] = left.get(best, devices[best][1]) - size
        placed[name] = best
    return placed


@wrong("02b-2", says="the obvious answer needs")
def largest_first(devices, programs):
    orders = (sorted(programs, key=lambda n: -programs[n][0]), list(programs))
    found = [p for p in (_by_order(devices, programs, order) for order in orders) if p]
    return min(found, key=lambda placed: _cost(devices, placed))


@wrong("02b-2", says="the picture's lists: 132 cents an hour; no answer needs less than 102")
def sets_by_price_largest_first(devices, programs):
    order = sorted(programs, key=lambda n: -programs[n][0])
    sets = [s for count in range(1, len(devices) + 1) for s in combinations(devices, count)]
    for some in sorted(sets, key=lambda s: sum(devices[d][0] for d in s)):
        only = {n: (programs[n][0], [d for d in programs[n][1] if d in some]) for n in programs}
        placed = _by_order(devices, only, order)
        if placed:
            return placed
    return largest_first(devices, programs)


@wrong("02b-2", says="your programs on it need")
def forgets_the_room(devices, programs):
    return {name: min(able, key=lambda d: devices[d][0]) for name, (_, able) in programs.items()}


@wrong("02b-2", says="does not run on")
def forgets_what_suits(devices, programs):
    return dict.fromkeys(programs, max(devices, key=lambda d: devices[d][1]))


@wrong("02b-2", says="the programs that have a device")
def leaves_one_out(devices, programs):
    return dict(list(by_branches(devices, programs).items())[1:])


@wrong("02b-2", says="expected a dictionary from program to device, got ['")
def gives_a_list(devices, programs):
    return list(by_branches(devices, programs).values())


@alternative("02b-2")
def by_branches(devices, programs):
    best = [float("inf"), None]

    def place(number, left, placed, cost):
        if cost >= best[0]:
            return
        if number == len(programs):
            best[:] = cost, placed
            return
        name, (size, able) = list(programs.items())[number]
        for device in able:
            room = left.get(device, devices[device][1])
            if size <= room:
                more = 0 if device in left else devices[device][0]
                place(number + 1, left | {device: room - size}, placed | {name: device},
                      cost + more)  # fmt: skip

    place(0, {}, {}, 0)
    return best[1]


equivalent("02b-2", "return None", "return", because="a bare return gives None")
equivalent("02b-2", "if room.get(name, 0) >= size:", "if room.get(name, -1) >= size:",
           because="every program needs memory")  # fmt: skip

# ------------------------------------------------------------------------------------------ 02b-3

NAME = "maxComputeWorkGroupInvocations"


def _sizes(most=lambda devices, device: device.limit(NAME),
           new=lambda version, oldest: list(version) >= [int(n) for n in oldest.split(".")],
           least=min):  # fmt: skip
    """Return an answer from a limit, a comparison of versions, and how two sizes are combined."""
    def mended_sizes(devices, wanted, oldest):
        return [least(wanted, most(devices, device)) if new(device.api_version, oldest) else 0
                for device in devices]  # fmt: skip

    return mended_sizes


alternative("02b-3")(_sizes())
own = wrong("02b-3", says="no  each device has its own limit")
own(_sizes(lambda devices, device: devices[0].limit(NAME)))
own(_sizes(lambda devices, device: devices[-1].limit(NAME)))
own(_sizes(lambda devices, device: min(each.limit(NAME) for each in devices)))
own(_sizes(lambda devices, device: max(each.limit(NAME) for each in devices)))
own(_sizes(least=lambda wanted, most: most))
version = wrong("02b-3", says="no  versions are compared as numbers")
version(_sizes(new=lambda version, oldest: ".".join(map(str, version)) >= oldest))
version(_sizes(new=lambda version, oldest: version[1] >= int(oldest.split(".")[1])))
version(_sizes(new=lambda version, oldest: list(version) > [int(n) for n in oldest.split(".")]))
version(_sizes(new=lambda version, oldest: int("{:01}{:03}{:03}".format(*version))
               >= int("{:01}{:03}{:03}".format(*map(int, f"{oldest}.0".split("."))))))
version(_sizes(new=lambda version, oldest: version[:2] >= tuple(map(int, oldest.split(".")))[:2]))
version(_sizes(new=lambda version, oldest: float(f"{version[0]}.{version[1]}")
               >= float(".".join(oldest.split(".")[:2]))))  # fmt: skip
version(_sizes(new=lambda version, oldest: True))
