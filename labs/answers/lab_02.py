"""Answers to try the checks of lab 02 with: wrong ones, and a second right one for each."""

import json
import os
from pathlib import Path

from vklab.course.author.answers import alternative, equivalent, wrong

# ------------------------------------------------------------------------------------------- 02-1


def _manifests(folder):
    return sorted(Path(folder, "vulkan/icd.d").glob("*.json"))


@wrong("02-1", says="raised JSONDecodeError")
def trusts_every_file(folders):
    return [(path.name, json.loads(path.read_text())["ICD"]["library_path"])
            for folder in folders for path in _manifests(folder)]  # fmt: skip


@wrong("02-1", says="library_path ../lib/libone.so: expected a full path, got '../lib/libone.so'")
def leaves_relative_paths(folders):
    found = []
    for folder in folders:
        for path in _manifests(folder):
            try:
                found.append((path.name, json.loads(path.read_text())["ICD"]["library_path"]))
            except (ValueError, KeyError, TypeError):
                pass
    return found


@wrong("02-1", says="expected the path to usr/vulkan/lib/libone.so: it starts from the folder of")
def starts_from_here(folders):
    return [(n, os.path.abspath(x) if "/" in x else x) for n, x in leaves_relative_paths(folders)]


@wrong("02-1", says="expected ['libalpha.so', '/lib/libzeta.so'], got")
def makes_every_name_a_path(folders):
    found = []
    for folder in folders:
        here = Path(folder, "vulkan/icd.d")
        for name, library in leaves_relative_paths([folder]):
            found.append((name, os.path.normpath(here / library)))
    return found


@wrong("02-1", says="expected a list of (file name, library) pairs, got a dict")
def forgets_equal_names(folders):
    return dict(by_rules(folders))


@wrong("02-1", says="got ['alpha.json', 'alpha.json', 'beta.json', 'delta.json'")
def sorts_everything(folders):
    return sorted(by_rules(folders))


@alternative("02-1")
def by_rules(folders):
    found = []
    for place in (Path(folder) / "vulkan" / "icd.d" for folder in folders):
        if not place.is_dir():
            continue
        for name in sorted(os.listdir(place)):
            if not name.endswith(".json"):
                continue
            try:
                content = json.loads((place / name).read_text())
            except ValueError:
                continue
            icd = content.get("ICD") if isinstance(content, dict) else None
            library = icd.get("library_path") if isinstance(icd, dict) else None
            if library and "/" in library and not os.path.isabs(library):
                library = os.path.abspath(os.path.join(place, library))
            if library:
                found.append((name, library))
    return found


# ------------------------------------------------------------------------------------------- 02-2

NAMES = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x13B5: "ARM", 0x5143: "Qualcomm", 0x8086: "Intel",
         0x10005: "Mesa"}  # fmt: skip


@wrong("02-2", says="expected '1.3.289', got '4.206.881'")
def reads_decimal(vendor_id, api_version, driver_version):
    text = f"{api_version:,}".replace(",", ".")
    return NAMES.get(vendor_id, f"PCI 0x{vendor_id:04x}"), text, str(driver_version)


@wrong("02-2", says="expected '1.0.12 (variant 1)', got '129.0.12'")
def forgets_the_variant(vendor_id, api_version, driver_version):
    vendor, api, driver = by_binary_text(vendor_id, api_version, driver_version)
    return vendor, f"{api_version >> 22}.{api_version >> 12 & 1023}.{api_version & 4095}", driver


@wrong("02-2", says="expected '580.159.4.0', got '580.636.256'  (NVIDIA packs 10, 8, 8, 6 bits)")
def treats_nvidia_like_others(vendor_id, api_version, driver_version):
    vendor, api, _ = by_binary_text(vendor_id, api_version, driver_version)
    fields = driver_version >> 22, driver_version >> 12 & 1023, driver_version & 4095
    return vendor, api, ".".join(map(str, fields))


@wrong("02-2", says="expected 'PCI 0x1234', got 'unknown'")
def gives_up_on_vendors(vendor_id, api_version, driver_version):
    return NAMES.get(vendor_id, "unknown"), *by_binary_text(vendor_id, api_version,
                                                             driver_version)[1:]  # fmt: skip


@wrong("02-2", says="expected three texts (vendor, api, driver), got a str")
def gives_one_text(vendor_id, api_version, driver_version):
    return " ".join(by_binary_text(vendor_id, api_version, driver_version))


@wrong("02-2", says="expected three texts (vendor, api, driver), got 2 items")
def gives_two_texts(vendor_id, api_version, driver_version):
    return by_binary_text(vendor_id, api_version, driver_version)[:2]


@wrong("02-2", says="expected 'PCI 0xffff', got 'PCI 0xFFFF'")
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
        vendor = ("Khronos " if vendor_id > 0xFFFF else "PCI ") + f"{vendor_id:#06x}"
    ending = "" if variant == "0" else f" (variant {variant})"
    return vendor, ".".join(api) + ending, ".".join(driver)


# ------------------------------------------------------------------------------------------- 02-3


@wrong("02-3", says="on families 16gct 8ct: expected (1, 1), got (0, 0)")
def takes_the_first(families):
    compute = next((f.index for f in families if "compute" in f.flags), None)
    if compute is None:
        raise LookupError("compute")
    return compute, next((f.index for f in families if f.flags == {"transfer"}), compute)


@wrong("02-3", says="on families 1gct 4c (a family with compute may hide transfer): expected")
def asks_compute_for_transfer(families):
    return by_loops(tuple(f for f in families if {"compute", "transfer"} <= f.flags
                          or "compute" not in f.flags) or families)  # fmt: skip


@wrong("02-3", says="on families 1gct 2gt: expected (0, 0), got (0, 1)")
def copies_on_graphics(families):
    compute = by_loops(families)[0]
    return compute, next((f.index for f in families if "transfer" in f.flags
                          and not f.flags & {"compute", "video_decode"}), compute)  # fmt: skip


@wrong("02-3", says="on families 16gcts 2ts 8cts 1tv: expected (2, 1), got (2, 2)")
def never_copies_beside(families):
    return (by_loops(families)[0],) * 2


@wrong("02-3", says="on families 1gct 8ct- 2ct: expected (2, 2), got (1, 1)")
def forgets_the_clock(families):
    computing = [f for f in families if "compute" in f.flags]
    if not computing:
        raise LookupError("compute")
    best = min(computing, key=lambda f: ("graphics" in f.flags, -f.queue_count))
    return best.index, by_loops(families)[1] if by_loops(families)[1] != by_loops(families)[
        0] else best.index  # fmt: skip


@wrong("02-3", says="clocks of 64, 36 and 64 bits: expected (1, 1), got (2, 2)")
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
        score = (0 if "graphics" in family.flags else 4) + (2 if family.timestamp_valid_bits else 0)
        if best is None or (score, family.queue_count) > (best[0], best[1]):
            best = (score, family.queue_count, family.index)
    if best is None:
        raise LookupError("nothing here computes")
    forbidden = {"graphics", "compute", "video_decode", "video_encode"}
    copying = [f.index for f in families if "transfer" in f.flags and not f.flags & forbidden]
    return best[2], min(copying, default=best[2])


# ------------------------------------------------------------------------------------------- 02-4


@wrong("02-4", says="on 'Phone', Needs(api_version=(1, 10)): expected 'version', got ''")
def compares_text(device, needs):
    if ".".join(map(str, device.api_version)) < ".".join(map(str, needs.api_version)):
        return "version"
    return step_by_step(device, type(needs)((0, 0), *list(vars(needs).values())[1:]))


@wrong("02-4", says="Needs(at_most={'minStorageBufferOffsetAlignment': 64}): expected '', got")
def wants_every_limit_large(device, needs):
    limits = {**needs.at_least, **{name: value + 1 for name, value in needs.at_most.items()}}
    kind = type(needs)
    return step_by_step(device, kind(needs.api_version, needs.queue, needs.features, limits, {},
                                     needs.heap_mib))  # fmt: skip


@wrong("02-4", says="on 'Workstation', Needs(heap_mib=16200): expected 'heap', got ''")
def adds_heaps_up(device, needs):
    code = step_by_step(device, needs)
    return "" if code == "heap" and device.memory_bytes >= needs.heap_mib << 20 else code


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


def _room(device):
    return max([h.size_bytes for h in device.heaps if h.device_local] or [0])


@wrong("02-5", says="on all machines, heap_mib=1, subgroup_at_least=1: expected")
def leaves_ties_to_the_order(devices, heap_mib, subgroup_at_least=1):
    fitting = by_repeated_choice(devices, heap_mib, subgroup_at_least)
    there = [d for d in devices if any(d.uuid == f.uuid for f in fitting)]
    return sorted(there, key=lambda d: (d.is_cpu, _room(d)))


@wrong("02-5", says="on the workstation, heap_mib=16113, subgroup_at_least=1: expected [], got")
def adds_heaps_together(devices, heap_mib, subgroup_at_least=1):
    fitting = [d for d in devices if not d.refusal and d.subgroup_size >= subgroup_at_least
               and d.memory_bytes >= heap_mib << 20]  # fmt: skip
    return sorted(fitting, key=lambda d: (d.is_cpu, _room(d), d.uuid))


@wrong("02-5", says="got ['Server card d5', 'Server card f4', 'Server old driver 66'")
def takes_refused_devices(devices, heap_mib, subgroup_at_least=1):
    fitting = [d for d in devices
               if d.subgroup_size >= subgroup_at_least and _room(d) >= heap_mib << 20]  # fmt: skip
    return sorted(fitting, key=lambda d: (d.is_cpu, _room(d), d.uuid))


@wrong("02-5", says="on laptop and workstation, heap_mib=8000, subgroup_at_least=1: expected")
def treats_a_cpu_like_others(devices, heap_mib, subgroup_at_least=1):
    found = by_repeated_choice(devices, heap_mib, subgroup_at_least)
    return sorted(found, key=lambda d: (_room(d), d.uuid))


@wrong("02-5", says="heap_mib=100, subgroup_at_least=8: expected")
def largest_first(devices, heap_mib, subgroup_at_least=1):
    found = by_repeated_choice(devices, heap_mib, subgroup_at_least)
    return sorted(found, key=lambda d: (d.is_cpu, -_room(d), d.uuid))


@wrong("02-5", says="expected a list of devices, best first, got a DeviceInfo")
def returns_the_best_only(devices, heap_mib, subgroup_at_least=1):
    return by_repeated_choice(devices, heap_mib, subgroup_at_least)[0]


@wrong("02-5", says="on the laptop, heap_mib=64, subgroup_at_least=9: expected")
def ignores_subgroups(devices, heap_mib, subgroup_at_least=1):
    return by_repeated_choice(devices, heap_mib, 1)


@alternative("02-5")
def by_repeated_choice(devices, heap_mib, subgroup_at_least=1):
    left = [d for d in devices if d.refusal == "" and _room(d) // 2**20 >= heap_mib]
    left = [d for d in left if not d.subgroup_size < subgroup_at_least]
    ranked = []
    for gpus in (True, False):
        group = [d for d in left if (d.type != "cpu") is gpus]
        while group:
            best = min(group, key=lambda d: f"{_room(d):020d} {d.uuid}")
            ranked.append(best)
            group.remove(best)
    return ranked
