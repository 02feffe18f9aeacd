"""Answers to try the checks of lab 02 with: wrong ones, and a second right one for each."""

from itertools import combinations

from vklab.course.author.answers import alternative, equivalent, wrong

RIGHT = {"E": "no hardware", "D": "no library", "C": "not asked for", "B": "no manifest",
         "A": "no permission"}  # fmt: skip
alternative("02-1")(RIGHT)
wrong("02-1", says="4 of 5 are right")({**RIGHT, "A": "no hardware"})
wrong("02-1", says="'A' has no answer")({})
wrong("02-1", says="'E': got 'no GPU'; choose one of 'hidden'")({**RIGHT, "E": "no GPU"})
wrong("02-1", says="expected a dictionary")(["no permission", "no manifest"])
wrong("02-1", says="0 of 5 are right")(dict.fromkeys("ABCDE", "hidden"))

# ------------------------------------------------------------------------------------------- 02-2

NAMES = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x13B5: "ARM", 0x5143: "Qualcomm", 0x8086: "Intel",
         0x10005: "Mesa"}  # fmt: skip


@wrong("02-2", says="expected '1.3.289', got '4.206.881'")
def reads_decimal(vendor_id, api_version, driver_version):
    text = f"{api_version:,}".replace(",", ".")
    return NAMES.get(vendor_id, f"PCI 0x{vendor_id:04x}"), text, str(driver_version)


@wrong("02-2", says="(variant 1)', got '1")
def forgets_the_variant(vendor_id, api_version, driver_version):
    vendor, api, driver = by_binary_text(vendor_id, api_version, driver_version)
    return vendor, f"{api_version >> 22}.{api_version >> 12 & 1023}.{api_version & 4095}", driver


@wrong("02-2", says="expected '580.159.4.0', got '580.636.256'  (NVIDIA packs 10, 8, 8 and 6")
def treats_nvidia_like_others(vendor_id, api_version, driver_version):
    vendor, api, _ = by_binary_text(vendor_id, api_version, driver_version)
    fields = driver_version >> 22, driver_version >> 12 & 1023, driver_version & 4095
    return vendor, api, ".".join(map(str, fields))


@wrong("02-2", says="the API version")
def packs_all_of_nvidia_alike(vendor_id, api_version, driver_version):
    vendor, api, driver = by_binary_text(vendor_id, api_version, driver_version)
    if vendor_id == 0x10DE:
        fields = api_version >> 22 & 127, api_version >> 14 & 255, api_version >> 6 & 255
        api = ".".join(map(str, fields))
    return vendor, api, driver


@wrong("02-2", says="expected '0x1234', got 'unknown'")
def gives_up_on_vendors(vendor_id, api_version, driver_version):
    return NAMES.get(vendor_id, "unknown"), *by_binary_text(vendor_id, api_version,
                                                             driver_version)[1:]  # fmt: skip


@wrong("02-2", says="expected three texts (vendor, api, driver), got 'Intel")
def gives_one_text(vendor_id, api_version, driver_version):
    return " ".join(by_binary_text(vendor_id, api_version, driver_version))


@wrong("02-2", says="expected three texts (vendor, api, driver), got ('Intel")
def gives_two_texts(vendor_id, api_version, driver_version):
    return by_binary_text(vendor_id, api_version, driver_version)[:2]


@wrong("02-2", says="expected '0xffff', got '0xFFFF'")
def writes_capitals(vendor_id, api_version, driver_version):
    vendor, *rest = by_binary_text(vendor_id, api_version, driver_version)
    return vendor.replace("ffff", "FFFF"), *rest


@alternative("02-2")
def by_binary_text(vendor_id, api_version, driver_version):
    def cut(number, *widths):
        bits, fields = format(number, "032b"), []
        for width in widths:
            fields.append(str(int(bits[:width], 2)))
            bits = bits[width:]
        return fields

    variant, *api = cut(api_version, 3, 7, 10, 12)
    driver = cut(driver_version, *((10, 8, 8, 6) if vendor_id == 0x10DE else (10, 10, 12)))
    vendor = NAMES.get(vendor_id)
    if vendor is None:
        vendor = f"{vendor_id:#x}"
    ending = "" if variant == "0" else f" (variant {variant})"
    return vendor, ".".join(api) + ending, ".".join(driver)


# ------------------------------------------------------------------------------------------- 02-3


@wrong("02-3", says="('16gct', '8ct'): family 0 has graphics, and another one computes without")
def takes_the_first(families):
    compute = next((f.index for f in families if "compute" in f.flags), None)
    if compute is None:
        raise LookupError("compute")
    return compute, next((f.index for f in families if f.flags == {"transfer"}), compute)


@wrong("02-3", says="('1gct', '4c')  (a family with compute copies, too, and need not say so)")
def asks_compute_for_transfer(families):
    return by_loops(tuple(f for f in families if {"compute", "transfer"} <= f.flags
                          or "compute" not in f.flags) or families)  # fmt: skip


@wrong("02-3", says="('1gct', '2gt'): no family only copies: expected your compute family")
def copies_on_graphics(families):
    compute = by_loops(families)[0]
    return compute, next((f.index for f in families if "transfer" in f.flags
                          and not f.flags & {"compute", "video_decode"}), compute)  # fmt: skip


@wrong("02-3", says="('16gcts', '2ts', '8cts', '1tv'): expected 1, got 2  (the index for copies)")
def never_copies_beside(families):
    return (by_loops(families)[0],) * 2


@wrong("02-3", says="('1gct', '8ct-0', '2ct'): expected 2, got 1  (the index of the compute")
def forgets_the_clock(families):
    computing = [f for f in families if "compute" in f.flags]
    if not computing:
        raise LookupError("compute")
    best = min(computing, key=lambda f: ("graphics" in f.flags, -f.queue_count))
    return best.index, by_loops(families)[1] if by_loops(families)[1] != by_loops(families)[
        0] else best.index  # fmt: skip


@wrong("02-3", says="families('2ct-40', '2ct'): expected 0, got 1")
def wants_a_longer_clock(families):
    computing = [f for f in families if "compute" in f.flags]
    if not computing:
        raise LookupError("compute")
    best = min(computing, key=lambda f: ("graphics" in f.flags, -f.timestamp_valid_bits,
                                         -f.queue_count))  # fmt: skip
    compute, copies = by_loops(families)
    return best.index, copies if copies != compute else best.index


@wrong("02-3", says="expected LookupError to be raised, got None")
def returns_nothing_instead(families):
    if not any("compute" in family.flags for family in families):
        return None
    return by_loops(families)


@alternative("02-3")
def by_loops(families):
    best = None
    for family in families:
        if "compute" not in family.flags:
            continue
        score = (0 if "graphics" in family.flags else 4) + 2 * (family.timestamp_valid_bits > 39)
        if best is None or (score, family.queue_count) > (best[0], best[1]):
            best = (score, family.queue_count, family.index)
    if best is None:
        raise LookupError("nothing here computes")
    forbidden = {"graphics", "compute", "video_decode", "video_encode"}
    copying = [f.index for f in families if "transfer" in f.flags and not f.flags & forbidden]
    return best[2], min(copying, default=best[2])


# ------------------------------------------------------------------------------------------- 02-4


@wrong("02-4", says="Vulkan 1.3.128; Needs(api_version=(1, 10)): expected 'version', got ''")
def compares_text(device, needs):
    if ".".join(map(str, device.api_version)) < ".".join(map(str, needs.api_version)):
        return "version"
    return step_by_step(device, type(needs)((0, 0), *list(vars(needs).values())[1:]))


def _older(answer):
    """Return an answer to 02-4 that decides with `answer` whether a version is too old."""
    def first_missing(device, needs):
        if answer(device.api_version, needs.api_version):
            return "version"
        return step_by_step(device, type(needs)((0, 0), *list(vars(needs).values())[1:]))

    return first_missing


too_old = wrong("02-4", says="version and queue (1)\n      on a device with Vulkan")
too_old(_older(lambda has, wanted: has[:2] != wanted))
too_old(_older(lambda has, wanted: has[1] < wanted[1]))
too_old(_older(lambda has, wanted: has[0] + has[1] / 10 < wanted[0] + wanted[1] / 10))
too_old(_older(lambda has, wanted: has[0] < wanted[0] or has[1] < wanted[1]))


@wrong("02-4", says="Needs(at_most={'minStorageBufferOffsetAlignment': 64}): expected '', got")
def wants_every_limit_large(device, needs):
    limits = {**needs.at_least, **{name: value + 1 for name, value in needs.at_most.items()}}
    kind = type(needs)
    return step_by_step(device, kind(needs.api_version, needs.queue, needs.features, limits, {},
                                     needs.heap_mib))  # fmt: skip


@wrong("02-4", says="700, 2048, 40000 (host) MiB; Needs(heap_mib=2049): expected 'heap', got ''")
def adds_heaps_up(device, needs):
    code = step_by_step(device, needs)
    return "" if code == "heap" and device.memory_bytes >= needs.heap_mib << 20 else code


@wrong("02-4", says="expected 'version', got 'queue:compute'")
def asks_for_the_queue_first(device, needs):
    has = any(needs.queue in family.flags for family in device.queue_families)
    return step_by_step(device, needs) if has else f"queue:{needs.queue}"


@wrong("02-4", says="expected 'limit:maxPushConstantsSize', got 'limit:max")
def names_the_last_limit(device, needs):
    kind, limits = type(needs), dict(reversed(needs.at_least.items()))
    return step_by_step(device, kind(needs.api_version, needs.queue, needs.features, limits,
                                     needs.at_most, needs.heap_mib))  # fmt: skip


@wrong("02-4", says="expected 'queue:compute', got 'feature:nothing'")
def looks_at_features_first(device, needs):
    for name in needs.features:
        if name not in device.features and device.api_version[:2] >= needs.api_version:
            return f"feature:{name}"
    return step_by_step(device, needs)


@wrong("02-4", says="expected '', got None (is a return missing?)")
def forgets_the_empty_text(device, needs):
    return step_by_step(device, needs) or None


@alternative("02-4")
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


equivalent("02-4", "if device.api_version < needs.api_version:",
           "if device.api_version <= needs.api_version:",
           because="three numbers are never equal to two")  # fmt: skip

# ------------------------------------------------------------------------------------------- 02-5


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


@wrong("02-5", says="the obvious answer needs")
def largest_first(devices, programs):
    orders = (sorted(programs, key=lambda n: -programs[n][0]), list(programs))
    found = [p for p in (_by_order(devices, programs, order) for order in orders) if p]
    return min(found, key=lambda placed: _cost(devices, placed))


@wrong("02-5", says="of the picture: 132 cents an hour; no answer needs less than 102")
def sets_by_price_largest_first(devices, programs):
    order = sorted(programs, key=lambda n: -programs[n][0])
    sets = [s for count in range(1, len(devices) + 1) for s in combinations(devices, count)]
    for some in sorted(sets, key=lambda s: sum(devices[d][0] for d in s)):
        only = {n: (programs[n][0], [d for d in programs[n][1] if d in some]) for n in programs}
        placed = _by_order(devices, only, order)
        if placed:
            return placed
    return largest_first(devices, programs)


@wrong("02-5", says="your programs on it need")
def forgets_the_room(devices, programs):
    return {name: min(able, key=lambda d: devices[d][0]) for name, (_, able) in programs.items()}


@wrong("02-5", says="does not run on")
def forgets_what_suits(devices, programs):
    return dict.fromkeys(programs, max(devices, key=lambda d: devices[d][1]))


@wrong("02-5", says="the programs that have a device")
def leaves_one_out(devices, programs):
    return dict(list(by_branches(devices, programs).items())[1:])


@wrong("02-5", says="expected a dictionary from program to device, got ['")
def gives_a_list(devices, programs):
    return list(by_branches(devices, programs).values())


@alternative("02-5")
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


equivalent("02-5", "return None", "return", because="a bare return gives None")
equivalent("02-5", "if room.get(name, 0) >= size:", "if room.get(name, -1) >= size:",
           because="every program needs memory")  # fmt: skip
