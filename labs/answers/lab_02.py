"""Answers to try the checks of lab 02 with: wrong ones, and a second right one for each."""

from itertools import combinations

from vklab_course.author.answers import alternative, equivalent, wrong

RIGHT = {"E": "no hardware", "D": "no library", "C": "not asked for", "B": "no manifest",
         "A": "no permission"}  # fmt: skip
alternative("02-1")(RIGHT)
wrong("02-1", says="not all right")({**RIGHT, "A": "no hardware"})
wrong("02-1", says="'A' has no answer")({})
wrong("02-1", says="'E': got 'no GPU'; choose one of 'hidden'")({**RIGHT, "E": "no GPU"})
wrong("02-1", says="expected a dictionary")(["no permission", "no manifest"])
wrong("02-1", says="not all right")(dict.fromkeys("ABCDE", "hidden"))

# ------------------------------------------------------------------------------------------- 02-2

NAMES = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x13B5: "ARM", 0x5143: "Qualcomm", 0x8086: "Intel",
         0x10005: "Mesa"}  # fmt: skip


@alternative("02-2")
def by_division(vendor_id, api_version, driver_version):
    def cut(number, *widths):
        fields = []
        for width in reversed(widths):
            number, field = divmod(number, 2**width)
            fields.insert(0, str(field))
        return fields

    variant, *api = cut(api_version, 3, 7, 10, 12)
    driver = cut(driver_version, *((10, 8, 8, 6) if vendor_id == 0x10DE else (10, 10, 12)))
    ending = "" if variant == "0" else f" (variant {variant})"
    return NAMES.get(vendor_id, f"{vendor_id:#x}"), ".".join(api) + ending, ".".join(driver)


def _texts(place, other):
    """Return the right answer with another text, a function of the numbers and the right one."""
    def identify(*numbers):
        texts = list(by_division(*numbers))
        texts[place] = other(*numbers, texts[place])
        return tuple(texts)

    return identify


def _joined(number, *shifts_and_masks):
    return ".".join(str(number >> shift & mask) for shift, mask in shifts_and_masks)


OTHERS, LIKE_NVIDIA = ((22, 1023), (12, 1023), (0, 4095)), ((22, 127), (14, 255), (6, 255))
for place, says, other in (
    (1, "expected '1.3.289', got '4.206.881'", lambda v, a, d, right: f"{a:,}".replace(",", ".")),
    (1, "(variant 1)', got '1", lambda v, a, d, right: _joined(a, *OTHERS)),
    (1, "the API version",
     lambda v, a, d, right: _joined(a, *LIKE_NVIDIA) if v == 0x10DE else right),
    (2, "expected '580.159.4.0', got '580.636.256'  (NVIDIA packs 10, 8, 8 and 6",
     lambda v, a, d, right: _joined(d, *OTHERS)),
    (0, "expected '0x1234', got 'unknown'", lambda v, a, d, right: NAMES.get(v, "unknown")),
    (0, "expected '0xffff', got '0xFFFF'", lambda v, a, d, right: right.replace("ffff", "FFFF")),
):  # fmt: skip
    wrong("02-2", says=says)(_texts(place, other))
for got, answer in (("'Intel", lambda *numbers: " ".join(by_division(*numbers))),
                    ("('Intel", lambda *numbers: by_division(*numbers)[:2])):  # fmt: skip
    wrong("02-2", says=f"expected three texts (vendor, api, driver), got {got}")(answer)

# ------------------------------------------------------------------------------------------- 02-3


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


def _compute(key):
    """Return an answer that takes the compute family with the least `key`."""
    def pick_queue_families(families):
        right = by_loops(families)
        best = min((f for f in families if "compute" in f.flags), key=key).index
        return best, right[1] if right[1] != right[0] else best

    return pick_queue_families


def _copies(suits):
    """Return an answer that copies on the first family that `suits`."""
    def pick_queue_families(families):
        compute = by_loops(families)[0]
        return compute, next((f.index for f in families if suits(f.flags)), compute)

    return pick_queue_families


wrong("02-3", says="('16gct', '8ct'): family 0 has graphics, and another one computes without")(
    _compute(lambda f: f.index))  # fmt: skip
wrong("02-3", says="('1gct', '8ct-0', '2ct'): expected 2, got 1  (the index of the compute")(
    _compute(lambda f: ("graphics" in f.flags, -f.queue_count)))  # fmt: skip
wrong("02-3", says="families('2ct-40', '2ct'): expected 0, got 1")(
    _compute(lambda f: ("graphics" in f.flags, -f.timestamp_valid_bits, -f.queue_count)))
wrong("02-3", says="('2gct', '4gct'): expected 1, got 0  (the index of the compute family)")(
    _compute(lambda f: ("graphics" in f.flags, f.timestamp_valid_bits < 40,
                        "graphics" not in f.flags and -f.queue_count)))  # fmt: skip
wrong("02-3", says="('1ct-39', '2ct-36', '4ct-0'): expected 2, got 0  (the index of the compute")(
    _compute(lambda f: ("graphics" in f.flags, -min(f.timestamp_valid_bits, 40), -f.queue_count)))
wrong("02-3", says="('1gct', '2gt'): no family only copies: expected your compute family")(
    _copies(lambda flags: "transfer" in flags and not flags & {"compute", "video_decode"}))
wrong("02-3", says="('16gcts', '2ts', '8cts', '1tv'): expected 1, got 2  (the index for copies)")(
    _copies(lambda flags: False))  # fmt: skip
wrong("02-3", says="('1gct', '4c')  (a family with compute copies, too, and need not say so)")(
    lambda families: by_loops([f for f in families if {"compute", "transfer"} <= f.flags
                               or "compute" not in f.flags] or families))  # fmt: skip
wrong("02-3", says="expected LookupError to be raised, got None")(
    lambda families: by_loops(families) if "compute" in str(families) else None)  # fmt: skip

# ------------------------------------------------------------------------------------------- 02-4


def _different(values, names):
    return len(set(zip(*(values[name] for name in names), strict=True)))


def _adding(order):
    """Return an answer that adds the field with the least `order` until all devices differ."""
    def tell_apart(sizes, values):
        chosen = []
        while _different(values, chosen) < _different(values, sizes):
            chosen.append(min(sizes.keys() - chosen, key=lambda name: (
                order(sizes[name], _different(values, [*chosen, name])), name)))  # fmt: skip
        return chosen

    return tell_apart


obvious = wrong("02-4", says="no answer needs less than")
obvious(lambda sizes, values: list(sizes))
obvious(_adding(lambda size, rows: size))
obvious(_adding(lambda size, rows: -rows))
obvious(_adding(lambda size, rows: -rows / size))


@obvious
def leaves_out_the_largest(sizes, values):
    left = sorted(sizes, key=lambda name: -sizes[name])
    for name in list(left):
        fewer = [other for other in left if other != name]
        left = fewer if _different(values, fewer) == _different(values, sizes) else left
    return left


wrong("02-4", says="there is no field ['deviceUUID']")(lambda sizes, values: ["deviceUUID"])
wrong("02-4", says="devices 0 and 1 are the same in all of ['type']")(
    lambda sizes, values: [min(sizes, key=sizes.get)])  # fmt: skip
wrong("02-4", says="devices 0 and 1 are the same in all of []")(lambda sizes, values: [])
wrong("02-4", says="a field occurs twice in")(lambda sizes, values: [*sizes, *sizes])
wrong("02-4", says="expected a list of names of fields, got")(lambda sizes, values: "deviceID")


def _joining(between, most=10):
    """Return an answer that joins the texts of a row, and tries lists of so many fields."""
    def tell_apart(sizes, values):
        def different(names):
            return len({between.join(map(str, row)) for row in zip(*(values[n] for n in names))})

        count, lists = len(next(iter(values.values()))), (
            names for some in range(most + 1) for names in combinations(sizes, some))
        return min((names for names in lists if different(names) == count),
                   key=lambda names: sum(map(sizes.get, names)))

    return tell_apart


wrong("02-4", says="raised ValueError")(_joining(""))
wrong("02-4", says="'b,c'")(_joining(","))
wrong("02-4", says="'f5'")(_joining("|", most=5))


@alternative("02-4")
def by_pairs(sizes, values):
    count = len(next(iter(values.values())))
    left = {0: (0, [])}  # pairs told apart, as bits -> bytes and fields
    for name, column in values.items():
        told = sum(1 << n for n, (a, b) in enumerate(combinations(column, 2)) if a != b)
        for seen, (size, names) in list(left.items()):
            new = size + sizes[name], [*names, name]
            left[seen | told] = min(new, left.get(seen | told, new))
    return left[2 ** (count * (count - 1) // 2) - 1][1]


ROWS = "rows = list(zip(*(values[name] for name in names), strict={}))".format
LISTS = ("lists = [names for count in range(len(sizes) + {}) for names in "
         "combinations(sizes, count)]")  # fmt: skip
equivalent("02-4", ROWS(True), ROWS(False), because="all columns are equally long")
equivalent("02-4", LISTS.format(1), LISTS.format(2), because="there are no longer lists")
