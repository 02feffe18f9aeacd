"""Answers to try the checks of lab 14b with: wrong ones, and a second right one for each."""

import numpy as np

from vklab_course.author.answers import alternative, wrong
from vklab_labs.lab_14 import formats_mixes

# ------------------------------------------------------------------------------------------ 14b-1


def _reader(high=True, mask=63, packed=False, pairs=False, swapped=False, sign=-1,
            dtype=np.float32, first=0):  # fmt: skip
    """Return an answer to 14b-1 in which one decision may be wrong."""
    def value_at(row, index):
        here = np.asarray(row[144 * (index // 256) * (first + 1) % len(row) :])[:144]
        group, place = index % 256 // 32, index % 32
        d, dmin = np.frombuffer(here[:4].tobytes(), "<f2").astype(dtype)
        packs, codes = here[4:16].tolist(), here[16:].tolist()
        if packed:
            whole = int.from_bytes(here[4:16].tobytes(), "little")
            s, m = whole >> 6 * group & 63, whole >> 48 + 6 * group & 63
        elif group < 4:
            s, m = packs[group] & mask, packs[group + 4] & mask
        else:
            s, m = packs[group + 4] % 16, packs[group + 4] // 16
            if high:
                s, m = s + packs[group - 4] // 64 * 16, m + packs[group] // 64 * 16
        if pairs:
            code = codes[index % 256 // 2] >> 4 * (index % 2) & 15
        elif swapped:
            code = codes[index % 128] >> 4 * (index % 256 // 128) & 15
        else:
            code = codes[index % 256 // 64 * 32 + place] >> 4 * (group % 2) & 15
        return d * dtype(s) * dtype(code) + sign * dmin * dtype(m)

    return value_at


alternative("14b-1")(_reader())
for decision in (
    {"high": False}, {"mask": 255}, {"packed": True}, {"pairs": True}, {"swapped": True},
    {"sign": 1}, {"first": 1},
):  # fmt: skip
    wrong("14b-1", says="expected")(_reader(**decision))
wrong("14b-1", says="all bits must be equal")(_reader(dtype=np.float16))
wrong("14b-1", says="expected a float32")(lambda row, index: [0.0])

# ------------------------------------------------------------------------------------------ 14b-2

HEAD = """
StructuredBuffer<uint> w;
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint rows, blocks; };
[vk::push_constant] ConstantBuffer<Params> params;
groupshared uint head[4];
groupshared float sums[32];

float value(uint block, uint i) {
    uint group = i / 32, shift = 8 * (group % 4);
    uint first = w[block + 1 + 0] >> shift, least = w[block + 2] >> shift;
    uint last = w[block + 3] >> shift, s = first & 63, m = least & 63;
    if (group >= 4) { s = last & 15 | first >> 2 & 48; m = last >> 4 & 15 | least >> 2 & 48; }
    uint code = w[block + 4 + i / 64 * 8 + i % 32 / 4] >> 8 * (i % 4) + 4 * (group % 2) & 15;
    return f16tof32(w[block]) * float(s * code) - f16tof32(w[block] >> 16) * float(m);
}
[shader("compute")]
[numthreads(32, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
    uint row = group.x;
"""
GUARD = "    if (row >= params.rows) return;\n"
BARRIER = "GroupMemoryBarrierWithGroupSync();"
TREE = f"""
    sums[lane] = sum;
    {BARRIER} // written
    for (uint width = 16; width > 0; width /= 2) {{
        if (lane < width) sums[lane] += sums[lane + width];
        {BARRIER}
    }}
    if (lane == 0) y[row] = sums[0];
}}
"""
EACH = """    float sum = 0.0;
    for (uint block = 0; block < params.blocks; ++block)
        for (uint i = lane; i < 256; i += 32)
            sum += value(36 * (row * params.blocks + block), i) * x[256 * block + i];
"""
# A word of codes for each lane: every lane loads the head itself.
WORD = """    float sum = 0.0;
    for (uint block = 0; block < params.blocks; ++block) {
        uint first = 36 * (row * params.blocks + block), pair = lane / 8;
        uint four[4] = { w[first], w[first + 1], w[first + 2], w[first + 3] };
        uint codes = w[first + 4 + lane], at = 256 * block + 64 * pair + 4 * (lane % 8);
        for (uint part = 0; part < 2; ++part) {
            uint g = 2 * pair + part, shift = 8 * (g % 4);
            uint s = four[1] >> shift & 63, m = four[2] >> shift & 63;
            if (g >= 4) {
                s = four[3] >> shift & 15 | (four[1] >> shift + 6 & 3) << 4;
                m = four[3] >> shift + 4 & 15 | (four[2] >> shift + 6 & 3) << 4;
            }
            for (uint i = 0; i < 4; ++i) {
                uint code = codes >> 8 * i + 4 * part & 15;
                sum += (f16tof32(four[0]) * float(s * code)
                        - f16tof32(four[0] >> 16) * float(m)) * x[at + 32 * part + i];
            }
        }
    }
"""
SHARED = WORD.replace(
    "uint four[4] = { w[first], w[first + 1], w[first + 2], w[first + 3] };",
    f"""if (lane < 4) head[lane] = w[first + lane];
        {BARRIER} // head
        uint four[4] = {{ head[0], head[1], head[2], head[3] }};
        {BARRIER} // used""",
)


def changed(text, *pairs):
    """Return a text with replacements, each of which must apply."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


RIGHT = HEAD + GUARD + SHARED + TREE
ONE_LANE = EACH.replace("uint i = lane; i < 256; i += 32", "uint i = 0; i < 256; ++i")
alternative("14b-2")(RIGHT)
for text, words in (
    (HEAD + GUARD + EACH + "    if (lane == 0) y[row] = sum;\n}\n", "elements differ"),
    (changed(RIGHT, ("at = 256 * block +", "at =")), "rows=3, blocks=2"),
    (changed(RIGHT, ("36 * (row * params.blocks + block)", "36 * block")), "rows=3, blocks=2"),
    (HEAD + SHARED + TREE.replace("if (lane == 0)", "if (lane == 0 && row < params.rows)"),
     "is there a guard"),
    (HEAD + GUARD + "    if (lane > 0) return;\n" + ONE_LANE + "    y[row] = sum;\n}\n",
     "do all lanes have a share?"),
    (HEAD + GUARD + EACH.replace("uint block = 0; block < params.blocks; ++block",
                                 "uint block = lane; block < params.blocks; block += 32")
     .replace("uint i = lane; i < 256; i += 32", "uint i = 0; i < 256; ++i") + TREE,
     "do all lanes have a share?"),
    (changed(RIGHT, ("if (lane == 0) y", "y")), "was written"),
    (HEAD + GUARD + EACH + TREE, "no answer needs fewer than 292"),
    (HEAD + GUARD + WORD + TREE, "416 loads for a block of a row"),
    (changed(RIGHT, (f"{BARRIER} // head", "")), "no barrier between them"),
    (changed(RIGHT, (f"{BARRIER} // used", "")), "elements differ"),
    (changed(RIGHT, (f"{BARRIER} // written", "")), "elements differ"),
    (changed(RIGHT, ("uint width = 16", "uint width = 8")), "elements differ"),
    (changed(RIGHT, ("[numthreads(32, 1, 1)]", "[numthreads(64, 1, 1)]")), "is there a guard"),
):
    wrong("14b-2", says=words)(text)

# ------------------------------------------------------------------------------------------ 14b-3


def _fitter(page=16, scales=lambda n, size: size / n, heads="kv_heads", weights_only=False,
            unit=1, up=lambda tokens, page: -(-tokens // page) * page, table=False,
            down=lambda tokens, page: tokens // page * page, cache_read=True, both=2,
            refuse=True, pages_read=False, least=0):  # fmt: skip
    """Return an answer to 14b-3 in which one decision may be wrong."""
    def fits(matrices, formats, kv, memory, bandwidth):
        if refuse and any(wide % formats[kind][0] for _, wide, kind, _ in matrices):
            raise ValueError("no whole blocks")
        sizes = [wide * scales(*formats[kind]) for _, wide, kind, _ in matrices]
        stored = sum(size * row[0] for size, row in zip(sizes, matrices, strict=True))
        read = sum(size * row[0 if table else 3] for size, row in zip(sizes, matrices, strict=True))
        token = both * kv["layers"] * kv[heads] * kv["head_size"] * kv["element_bytes"]
        cache = 0 if weights_only else up(kv["context"], page) * token
        left = max(memory * unit - stored, least)
        tokens = down(int(left // token), page)
        cached = up(kv["context"], page) if pages_read else kv["context"]
        seconds = (read + cache_read * cached * token) / bandwidth
        return int(stored + cache), tokens, seconds

    return fits


alternative("14b-3")(_fitter())
for decision in (
    {"weights_only": True}, {"unit": 2**30 / 1e9}, {"scales": lambda n, size: size // (n / 8) / 8},
    {"heads": "heads"}, {"up": lambda tokens, page: tokens}, {"up": lambda t, page: t // page * page},
    {"down": lambda tokens, page: tokens}, {"table": True}, {"cache_read": False}, {"both": 1},
    {"page": 32}, {"page": 1}, {"pages_read": True}, {"least": -(2**60)},
):  # fmt: skip
    wrong("14b-3", says="expected")(_fitter(**decision))
wrong("14b-3", says="expected ValueError to be raised")(_fitter(refuse=False))
wrong("14b-3", says="expected (bytes, tokens, least_seconds)")(lambda *facts: 0)

# ------------------------------------------------------------------------------------------ 14b-4


def _comparer(width=2.0, percent=None, error=None, verdict=None):
    """Return an answer to 14b-4 in which one decision may be wrong."""
    def compare_perplexity(reference, quantised, allowed_percent):
        n, ratio = len(reference), np.exp(np.mean(quantised) - np.mean(reference))
        change = percent(reference, quantised) if percent else 100 * ratio - 100
        spread = np.sqrt(np.var(quantised - reference) * n / (n - 1))
        e = error(reference, quantised, ratio) if error else 100 * ratio * spread / n**0.5
        if verdict:
            return change, e, verdict(change, e, allowed_percent)
        if change + width * e <= allowed_percent:
            return change, e, "within"
        return change, e, ("too few tokens", "above")[bool(change - width * e > allowed_percent)]

    return compare_perplexity


def _unpaired(a, b, ratio):
    return 100 * ratio * np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))


alternative("14b-4")(_comparer())
for decision in (
    {"error": _unpaired},
    {"percent": lambda a, b: 100 * (np.exp(b).mean() / np.exp(a).mean() - 1)},
    {"percent": lambda a, b: np.exp(b.mean()) - np.exp(a.mean())},
    {"percent": lambda a, b: 100 * (b.mean() / a.mean() - 1)},
    {"width": 1}, {"width": 0}, {"width": 1.6}, {"width": 3},
    {"error": lambda a, b, ratio: 100 * ratio * (b - a).std(ddof=1)},
    {"error": lambda a, b, ratio: 100 * ratio * (b - a).std() / len(a) ** 0.5},
    {"error": lambda a, b, ratio: 100 * (b - a).std(ddof=1) / len(a) ** 0.5},
    {"verdict": lambda change, e, allowed: "within" if change <= allowed else "above"},
    {"verdict": lambda change, e, allowed: "above" if change - 2 * e > allowed else "within"},
):  # fmt: skip
    wrong("14b-4", says="expected")(_comparer(**decision))
wrong("14b-4", says="expected (percent, error, verdict)")(lambda *facts: "within")

# ------------------------------------------------------------------------------------------ 14b-5


def _or_raise(mix):
    """Return an answer to 14b-5 that raises where nothing fits, and else a mix of a rule."""
    def choose_formats(matrices, budget):
        if sum(min(size for size, _ in options.values()) for options in matrices) > budget:
            raise ValueError("nothing fits")
        return mix(matrices, budget)

    return choose_formats


def by_byte(matrices, budget):
    return formats_mixes.by_gain(matrices, budget, lambda gain, more: gain / max(more, 1))


@alternative("14b-5")
def by_divergence(matrices, budget):
    """Backwards: the least divergence for the bytes that are left, over the whole table."""
    known = {budget: (0, ())}
    for options in matrices[::-1]:
        further = {}
        for left, (apart, names) in known.items():
            for name, (size, more) in options.items():
                mix = apart + more, (name, *names)
                if left >= size and mix < further.get(left - size, (float("inf"),)):
                    further[left - size] = mix
        best, known = float("inf"), {}
        for left in sorted(further, reverse=True):
            if further[left][0] < best:
                known[left], best = further[left], further[left][0]
    if not known:
        raise ValueError("nothing fits")
    return list(min(known.values())[1])


for words, rule in (
    ("the obvious answer needs", formats_mixes.best_single),
    ("the obvious answer needs", lambda matrices, budget: formats_mixes.by_gain(
        matrices, budget, lambda gain, more: gain)),
    ("the obvious answer needs", by_byte),
    ("the obvious answer needs", lambda matrices, budget: formats_mixes.exchanged(
        matrices, budget, by_byte(matrices, budget))),
    ("bytes; the budget is", lambda matrices, budget: ["Q8_0"] * len(matrices)),
    ("has no format", lambda matrices, budget: ["F64"] * len(matrices)),
    ("expected a list of", lambda matrices, budget: []),
):  # fmt: skip
    wrong("14b-5", says=words)(_or_raise(rule))
wrong("14b-5", says="expected ValueError to be raised")(
    lambda matrices, budget: formats_mixes.best_mix(matrices, budget) or [])
