"""Answers to try the checks of lab 05 with: wrong ones, and a second right one for each."""

from vklab.shader import toolchain
from vklab_course.author.answers import alternative, equivalent, taught, wrong


def merged(kernels):
    return sorted({n: kind for bindings, _ in kernels for n, kind in bindings.items()}.items())


@alternative("05-1")
def by_pairs(kernels, most_push):
    pairs = {pair for bindings, _ in kernels for pair in bindings.items()}
    if len({number for number, _ in pairs}) < len(pairs) or any(n > most_push for _, n in kernels):
        return None
    return [list(pair) for pair in sorted(pairs)], sorted(size for _, size in kernels)[-1]


for answer, says in (
    (lambda k, m: (merged(k), max(s for _, s in k)), "expected None (two types at one binding"),
    (lambda k, m: by_pairs(k, m - 1), "(4, 'uniform')], 128), got None"),
    (lambda k, m: (r := by_pairs(k, m)) and (r[0], m), "got 128  (bytes that every kernel's block"),
    (lambda k, m: (r := by_pairs(k, m)) and (r[0][::-1], r[1]), "sorted by the binding"),
):  # fmt: skip
    wrong("05-1", says=says)(answer)


def up(number, step):
    return (number + step - 1) // step * step


def struct(members, rules, vector=(1, 2, 4, 4), three=3, tail=True, one_is_array=True, gap=True,
           least=1):  # fmt: skip
    """Return the layout; each keyword is a mistake when it is changed."""
    result, byte, aligns = {}, 0, [1]
    for name, width, components, count in members:
        aligns.append(max(least, width * (1 if rules == "scalar" else vector[components - 1])))
        size = width * (three if components == 3 and rules == "std430" else components)
        if count is not None and (one_is_array or count > 1):
            size = (up(size, aligns[-1]) if gap else size) * count
        byte = up(byte, aligns[-1])
        result[name], byte = byte, byte + size
    return result, up(byte, max(aligns)) if tail else byte


@alternative("05-2")
def by_keywords(members, rules):
    return struct(members, rules)


for mistake, says in (
    ({"vector": (1, 2, 3, 4)}, "expected {'mass': 12, 'position': 0, 'speed': 16}, got"),
    ({"three": 4}, "expected {'mass': 12, 'position': 0, 'speed': 16}, got {'mass': 16"),
    ({"tail": False}, "expected 32, got 28  (the bytes from one struct to the next)"),
    ({"one_is_array": False}, "expected {'b': 16, 'w': 0}, got {'b': 12, 'w': 0}"),
    ({"least": 4}, "expected {'b': 8, 'g': 4, 'h': 0, 'i': 2}, got {'b': 12, 'g': 8"),
    ({"gap": False}, "expected {'b': 80, 'w': 0}, got {'b': 60, 'w': 0}"),
):
    wrong("05-2", says=says)(lambda members, rules, mistake=mistake: struct(
        members, rules, **mistake))  # fmt: skip
wrong("05-2", says="expected {'count': 0, 'gain': 28, 'low': 16}, got {'count': 0, 'gain': 16")(
    lambda members, rules: struct(members, "scalar"))
wrong("05-2", says="expected two things, (offsets, size), got {")(lambda m, r: struct(m, r)[0])

HEAD = """StructuredBuffer<float> x; StructuredBuffer<float> bias; RWStructuredBuffer<float> y;
struct Params { uint count; }; [vk::push_constant] ConstantBuffer<Params> params;
[vk::constant_id(0)] const uint CHANNELS = 8; [vk::constant_id(1)] const bool HAS_BIAS = true;
[vk::constant_id(2)] const uint WORKGROUP = 64;
[shader("compute")] [numthreads(WORKGROUP, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) { uint i = id.x; """
RIGHT = HEAD + """if (i >= params.count) return; float v = x[i];
    if (HAS_BIAS) v += bias[i - i / CHANNELS * CHANNELS]; y[i] = v > 0.0 ? v : 0.0; }"""
alternative("05-3")(RIGHT)
if toolchain.find_toolchain("glsl"):
    alternative("05-3")("""#version 450
layout(constant_id = 0) const uint CHANNELS = 8; layout(constant_id = 1) const bool HAS_BIAS = true;
layout(constant_id = 2) const uint WORKGROUP = 64;
layout(local_size_x = 64, local_size_x_id = 2) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer BIAS { float bias[]; };
layout(binding = 2) buffer Y { float y[]; }; layout(push_constant) uniform Params { uint count; };
void main() { uint i = gl_GlobalInvocationID.x; if (i >= count) return;
    y[i] = HAS_BIAS ? max(x[i] + bias[i % CHANNELS], 0.0) : max(x[i], 0.0); }""")
for old, new, says in (
    ("CHANNELS = 8", "CHANNELS = 9", "the default constants"),
    ("WORKGROUP = 64", "WORKGROUP = 65", "expected 64, got 65  (invocations in a workgroup)"),
    ("numthreads(WORKGROUP", "numthreads(64", "has specialization constants"),
    ("if (HAS_BIAS) v += bias", "float b = HAS_BIAS ? 1.0 : 0.0; v += b * bias",
     "the bias was loaded"),
    ("if (i >= params.count) return;", "", "is there a guard"),
    ("uint i = id.x; if (i >= params.count) return;",
     "for (uint i = 0; id.x == 0 && i < params.count; ++i) {", "one invocation did all"),
):  # fmt: skip
    assert old in RIGHT
    wrong("05-3", says=says)(RIGHT.replace(old, new) + (" }" if "for (" in new else ""))

HITS = dict(zip("HGFEDCBA", (
    "memory, made", "disk, made", "compiler, reused", "disk, made", "compiler, made",
    "memory, reused", "memory, made", "compiler, made"), strict=True))  # fmt: skip
alternative("05-4")(HITS)
wrong("05-4", says="not all right")({**HITS, "H": "memory, reused"})
wrong("05-4", says="'D': got 'compiler'; choose one of")({**HITS, "D": "compiler"})


def run_of(dispatches, done, pipeline):
    run = []
    while ready := [n for n, (p, before) in dispatches.items() if p == pipeline
                    and n not in (*done, *run) and all(b in (*done, *run) for b in before)]:
        run += ready
    return run


@alternative("05-5")
def by_memory(dispatches):
    best = {}

    def rest(done):
        if len(done) == len(dispatches):
            return 0, []
        if done not in best:
            runs = [run_of(dispatches, done, p) for p in {p for p, _ in dispatches.values()}]
            found = [(rest(done | {*run}), run) for run in runs if run]
            (binds, later), run = min(found)
            best[done] = binds + 1, run + later
        return best[done]

    return rest(frozenset())[1]


def greedy(dispatches, rate=len):
    order = []
    while len(order) < len(dispatches):
        order += max((run_of(dispatches, order, p) for p, _ in dispatches.values()), key=rate)
    return order


wrong("05-5", says="8 binds; no answer needs fewer than 5, the obvious answer needs 7")(greedy)
wrong("05-5", says="7 binds; no answer needs fewer than 5")(
    lambda d: greedy(d, lambda run: (len(run) > 0, -list(d).index(run[0]) if run else 0)))
wrong("05-5", says="every dispatch once")(lambda d: greedy(d)[:-1])
wrong("05-5", says="d4 reads what d1 writes, and comes before")(lambda d: sorted(d, key=d.get))

for key, old, new, because in (
    ("05-1", "return None", "return", "a bare return returns None"),
    ("05-2", "places, free, largest = ({}, 0, 1)", "places, free, largest = ({}, 0, 0)",
     "every alignment is larger than both"),
    ("05-2", "largest = max(largest, align)", "largest = max(align, largest)", "max is symmetric"),
    ("05-3", "[vk::constant_id(2)] const uint WORKGROUP = 64;",
     "[vk::constant_id(3)] const uint WORKGROUP = 64;", "the text leaves the ids open"),
    ("05-5", "pipelines = sorted({pipeline for pipeline, _ in dispatches.values()})",
     "pipelines = list({pipeline for pipeline, _ in dispatches.values()})",
     "another order among orders with equally few binds"),
):
    equivalent(key, old, new, because=because)

taught("-(-free // largest) * largest", because="lab 03 rounds up so, for other numbers")
