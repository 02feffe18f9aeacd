"""Answers that try lab 04's checks: kernels in Slang and GLSL, and functions, right and wrong."""

import math

from vklab.course.author.answers import alternative, equivalent, wrong
from vklab.shader import toolchain

# -------------------------------------------------------------------------------------- kernels
PARAMS = """
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;
"""
LINE = """
[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
"""
MAP = "StructuredBuffer<float> x;\nRWStructuredBuffer<float> y;" + PARAMS + LINE
ZIP = ("StructuredBuffer<float> a;\nStructuredBuffer<float> b;\nRWStructuredBuffer<float> y;"
       + PARAMS.replace("count;", "count; float scale;") + LINE)  # fmt: skip
IMAGE = MAP.replace("count;", "rows, columns;")
MATRIX = IMAGE.replace("numthreads(64, 1", "numthreads(8, 8")
GLSL = """
#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Params { uint count; };
void main() {
"""
HAS_GLSL = toolchain.find_toolchain("glsl") is not None

# Every value right, by another share of the work; {} is the work on element i, E elements each.
NOT_ITS_SHARE = {
    "if (id.x == 0) for (uint i = 0; i < params.count; ++i) {}": "one invocation did all the work",
    "for (uint i = 0; i < params.count; ++i) {}": "was written by 64 invocations",
    "uint i = min(id.x, params.count - 1); {}": "was written by",
    "for (uint i = id.x; i < min(id.x + 2, params.count); ++i) {}": "was written by 2 invocations",
    "if (id.x % 64 == 0) for (uint i = id.x; i < min(id.x + 64, params.count); ++i) {}":
        "invocation",
    "uint i = id.x; while (i < params.count) {}": "does every loop stop?",
}
WORK = {"04-1": (MAP, "{ float p = max(x[i], 0.0); y[i] = p * p; }"),
        "04-2": (ZIP, "{ y[i] = params.scale * a[i] + b[i]; }")}  # fmt: skip
for key, (head, work) in WORK.items():
    for share, says in NOT_ITS_SHARE.items():
        wrong(key, says=says)(head + share.format(work) + " }")
WRONG = {
    "04-1": (MAP, {
        "float p = max(x[id.x], 0.0); y[id.x] = p * p;":
            "on count=1: y was written behind its end, at byte 4, 8, 12",
        "if (id.x <= params.count) { float p = max(x[id.x], 0.0); y[id.x] = p * p; }":
            "y was written behind its end, at byte 4; is there a guard, and is the index",
        "if (id.x < params.count - 1) { float p = max(x[id.x], 0.0); y[id.x] = p * p; }":
            "(-1 means: nobody wrote it.)",
        "if (id.x < params.count) y[id.x] = x[id.x] * x[id.x];": "32 of 64 elements differ",
        "if (id.x < params.coutn || id.x < coutn) y[id.x] = x[id.x];": "identifier 'coutn'",
        "uint i = id.x; if (i < params.count) { float p = max(x[i], 0.0); y[i] = p * p; } "
        "else y[-1] = 2.0;": "element -1 of y was written",
        "uint i = id.x; float p = i < params.count ? max(x[i], 0.0) : 0.0; "
        "y[i < params.count ? i : 1000000 + i] = p * p;": "element 1000001 of y was written",
        "float p = max(x[id.x], 0.0); if (id.x < params.count) y[id.x] = p * p;":
            "element 1 of x was read",
        "uint i = gl_GlobalInvocationID.x; y[i] = x[i];": "this looks like GLSL",
    }),
    "04-2": (ZIP, {
        "y[id.x] = params.scale * a[id.x] + b[id.x];": "y was written behind its end",
        "if (id.x < params.count) y[id.x] = params.scale * (a[id.x] + 2 * b[id.x]);":
            "64 of 64 elements differ",
        "if (id.x < params.count && params.scale > 0) y[id.x] = params.scale * a[id.x] + b[id.x];":
            "on count=67, scale=-0.5",
        "if (id.x < params.count) y[id.x] = params.scale * b[id.x] + b[id.x];":
            "a is never used by the kernel",
        "": "a, b, y, count and scale are never used",
    }),
    "04-4": (MATRIX, {
        "y[id.x * params.rows + id.y] = x[id.y * params.columns + id.x];":
            "on 37 rows, 53 columns: y was written behind its end",
        "uint e = id.y * params.columns + id.x; if (e < params.rows * params.columns) "
        "y[id.x * params.rows + id.y] = x[e];": "on 37 rows, 53 columns",
        "if (id.y < params.rows && id.x < params.columns) "
        "y[id.y * params.columns + id.x] = x[id.y * params.columns + id.x];":
            "elements differ; element 0, 1: expected",
        "if (id.x < params.rows && id.x < params.columns && id.y < params.rows) "
        "y[id.x * params.rows + id.y] = x[id.y * params.columns + id.x];": "nobody wrote it",
        "if (id.y < params.rows && id.x == 0) for (uint c = 0; c < params.columns; ++c) "
        "y[c * params.rows + id.y] = x[id.y * params.columns + c];": "invocation",
        "if (all(id == 0)) for (uint i = 0; i < params.rows * params.columns; ++i) "
        "y[i % params.columns * params.rows + i / params.columns] = x[i];": "one invocation did",
        "uint c = min(id.x, params.columns - 1), r = min(id.y, params.rows - 1); "
        "y[c * params.rows + r] = x[r * params.columns + c];": "was written by",
    }),
    "04-5": (MAP, {
        "uint f = id.x / 64 * 256 + id.x % 64; for (int i = f + 192; i >= int(f); i -= 64) "
        "if (i < params.count) y[i] = 0.5 * x[i];": "not 4 in a row: after element 0 comes 64",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (f < params.count) y[i] = 0.5 * x[i];":
            "on count=257: y was written behind its end, at byte 1028",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (f + 3 < params.count) y[i] = 0.5 * x[i];": "1 of 257 elements differ; element 256",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (i - f < params.count % 4) y[i] = 0.5 * x[i];": "nobody wrote it",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (i < params.count) y[i] = 2.0 * x[i];": "on count=256: 256 of 256 elements differ",
        "if (id.x == 0) for (uint i = 0; i < params.count; ++i) y[i] = 0.5 * x[i];":
            "one invocation did all the work",
        "for (uint k = 0; k < 4; ++k) { uint i = min(4 * id.x + k, params.count - 1); "
        "y[i] = 0.5 * x[i]; }": "was written",
        "uint i = 4 * id.x; while (i < params.count) y[i] = 0.5 * x[i];": "does every loop stop?",
        "uint f = id.x / 64 * 256 + id.x % 64; for (uint i = f; i < f + 256; i += 64) "
        "if (i < params.count) y[i] = 0.5 * x[i];": "are not 4 in a row",
    }),
}  # fmt: skip
# Every value right, by what nobody asked for: a race, the old content of y, writes to x.
SQUARE = "if (id.x < params.count) { float p = max(x[id.x], 0.0); y[id.x] = p * p; } }"
wrong("04-1", says="was read: a result depends on the inputs alone")(
    MAP + SQUARE.replace("= p * p", "= max(y[id.x], p * p)"))
wrong("04-1", says="was written, and x is an input")(
    MAP.replace("StructuredBuffer<float> x", "RWStructuredBuffer<float> x")
    + SQUARE.replace("y[id.x]", "x[id.x] = p; y[id.x]"))
wrong("04-1", says="the push constants say that y ends with")(
    MAP + "uint length, stride; x.GetDimensions(length, stride);"
    + SQUARE.replace("params.count", "length"))
wrong("04-1", says="read 4 different elements of x, asked were at most 1")(
    MAP.replace("[shader", "groupshared float s[64];\n[shader")
    + "uint at = id.x % 64; if (at % 4 == 0) for (uint k = 0; k < 4; ++k) "
    "if (id.x + k < params.count) s[at + k] = x[id.x + k]; GroupMemoryBarrierWithGroupSync();"
    + SQUARE.replace("x[id.x]", "s[at]"))
wrong("04-1", says="turns of loops: its own share needs")(
    MAP + "for (uint k = 0; k < params.count; ++k) if (k == id.x) {" + SQUARE + "}")
wrong("04-1", says="with no barrier between them")(
    MAP.replace("[shader", "groupshared float s[64];\n[shader")
    + "uint n = id.x ^ 1, at = id.x % 64; if (n < params.count) s[at ^ 1] = x[n]; "
    + SQUARE.replace("x[id.x]", "s[at]"))
for key, (head, bodies) in WRONG.items():
    for body, says in bodies.items():
        wrong(key, says=says)(head + body + " }")

ADD = "if (id.x < params.count) y[id.x] = params.scale * a[id.x] + b[id.x]; }"
wrong("04-2", says="takes push constants ['count', 'factor'], the dispatch supplies")(
    ZIP.replace("scale", "factor") + ADD.replace("scale", "factor"))
wrong("04-2", says="count is a float in your struct; the host pushes a uint")(
    ZIP.replace("uint count", "float count") + ADD)
wrong("04-2", says="count is a int in your struct")(ZIP.replace("uint count", "int count") + ADD)
wrong("04-2", says="scale is an integer in your struct, the host pushes 1.0")(
    ZIP.replace("float scale", "uint scale") + ADD)
alternative("04-1")(
    MAP.replace("uint3 id : SV_DispatchThreadID", "uint3 g : SV_GroupID, uint lane : SV_GroupIndex")
    + "uint i = 64 * g.x + lane; if (i >= params.count) return; y[i] = pow(max(x[i], 0), 2); }")
alternative("04-2")(
    ZIP.replace("uint count; float scale;", "float scale; uint count;")
    + "if (id.x >= params.count) return; y[id.x] = mad(a[id.x], params.scale, b[id.x]); }")
alternative("04-4")(
    MATRIX + """if (any(id.xy >= uint2(params.columns, params.rows))) return;
    float moved = x[id.x + id.y * params.columns];
    y[id.y + id.x * params.rows] = moved; }""")
alternative("04-5")(
    MAP + """uint last = min(4 * id.x + 4, params.count);
    for (uint i = 4 * id.x; i < last; ++i) y[i] = x[i] / 2.0; }""")
if HAS_GLSL:
    alternative("04-1")(GLSL + """uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x
        + gl_LocalInvocationID.x;
    if (i < count) y[i] = x[i] > 0.0 ? x[i] * x[i] : 0.0; }""")
    alternative("04-4")(GLSL.replace("64", "8, local_size_y = 8").replace("count", "rows, columns")
                        + """uvec2 at = gl_GlobalInvocationID.xy;
    if (any(greaterThanEqual(at, uvec2(columns, rows)))) return;
    y[at.x * rows + at.y] = x[at.y * columns + at.x]; }""")  # fmt: skip
    wrong("04-5", says="are not 4 in a row")(GLSL + """
    for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * 64)
        y[i] = x[i] / 2.0; }""")


def tiles(wide, high):
    """Return a box sum with a tile of this shape, which an invocation loads once."""
    return IMAGE + f"""
    uint across = params.columns / {wide};
    uint top = id.x / across * {high}, left = id.x % across * {wide};
    if (top >= params.rows) return;
    float seen[{(wide + 2) * (high + 2)}];
    for (uint k = 0; k < {(wide + 2) * (high + 2)}; ++k)
        seen[k] = x[(top + k / {wide + 2}) * (params.columns + 2) + left + k % {wide + 2}];
    for (uint n = 0; n < {wide * high}; ++n) {{
        float sum = 0.0;
        for (uint k = 0; k < 9; ++k)
            sum += seen[(n / {wide} + k / 3) * {wide + 2} + n % {wide} + k % 3];
        y[(top + n / {wide}) * params.columns + left + n % {wide}] = sum;
    }} }}"""


NATURAL = IMAGE + """
    for (uint i = 16 * id.x; i < min(16 * id.x + 16, params.rows * params.columns); ++i) {
        float sum = 0.0;
        for (uint k = 0; k < 9; ++k) sum += x[(i / params.columns + k / 3) * (params.columns + 2)
                                              + i % params.columns + k % 3];
        y[i] = sum;
    } }"""
wrong("04-6", says="9 loads an element; no answer needs less than")(NATURAL)
wrong("04-6", says="3.38 loads an element")(tiles(16, 1))
wrong("04-6", says="2.5 loads an element")(tiles(2, 8))
wrong("04-6", says="elements differ")(NATURAL.replace("sum;", "-3.0 * x[(i / params.columns + 1) "
      "* (params.columns + 2) + i % params.columns + 1];"))  # fmt: skip
wrong("04-6", says="invocation")(tiles(8, 4))  # 32 elements each, half of the invocations idle
wrong("04-6", says="elements differ")(tiles(4, 4).replace("k < 9", "k < 8"))
wrong("04-6", says="behind its end")(tiles(4, 4).replace("if (top >= params.rows) return;", ""))
wrong("04-6", says="one invocation did all")(
    NATURAL.replace("16 * id.x + 16, ", "").replace("min(params.rows * params.columns)",
    "(id.x == 0 ? params.rows * params.columns : 0)"))  # fmt: skip
alternative("04-6")(IMAGE + """
    uint top = id.x / (params.columns / 4) * 4, left = id.x % (params.columns / 4) * 4;
    if (top >= params.rows) return;
    float three[6][4];
    for (uint r = 0; r < 6; ++r) {
        uint at = (top + r) * (params.columns + 2) + left;
        float before = x[at], here = x[at + 1];
        for (uint c = 0; c < 4; ++c) {
            float next = x[at + c + 2];
            three[r][c] = before + here + next;
            before = here;
            here = next;
        }
    }
    for (uint r = 0; r < 4; ++r)
        for (uint c = 0; c < 4; ++c)
            y[(top + r) * params.columns + left + c] = three[r][c] + three[r + 1][c]
                                                       + three[r + 2][c];
    }""")

# ------------------------------------------------------------------------------------ functions
LIMIT, ROW = 65535, 32768


def up(count, size):
    return -(-count // size)


def second_row_too_early(count, size=64):
    groups = up(count, size)
    return (groups, 1, 1) if groups <= ROW else (ROW, up(groups, ROW), 1)


for answer, says in (
    (lambda count, size=64: (count // size, 1, 1), "on 1000, 64: expected (16, 1, 1), got (15, 1"),
    (lambda count, size=64: (count // size + 1, 1, 1), "on 1024, 64: expected (16, 1, 1), got (17"),
    (lambda count, size=64: (up(count, size), 1, 1), "expected (32768, 2, 1), got (65536, 1, 1)"),
    (lambda count, size=64: (max(up(count, size), 1), 1, 1), "on 0, 64: expected (0, 1, 1), got"),
    (second_row_too_early, "(that is 65535 workgroups of 64): expected (65535, 1, 1), got (32768"),
    (lambda count, size=64: print(up(count, size)), "three ints in a tuple, got None"),
    (lambda count, size=64: up(count, size), "expected (16, 1, 1): three ints in a tuple, got 16"),
    (lambda count, size=64: (float(up(count, size)), 1, 1), "expected ints, got the float 16.0"),
):  # fmt: skip
    wrong("04-3", says=says)(answer)


@alternative("04-3")
def by_ceil(count, size=64):
    groups = math.ceil(count / size)
    rows = 1 if groups < LIMIT + 1 else (groups + ROW - 1) // ROW
    return [groups if rows == 1 else ROW, rows, 1]


STORAGE, UNIFORM = 7, 6


def slots_of(buffers):
    return [(number, STORAGE, 1) for number in buffers.values()]


def range_of(members):
    return (0, 4 * len(members)) if members else None


for answer, says in (
    (lambda b, m: (slots_of(b)[:2], range_of(m)), "expected [0, 1, 2], got [0, 1]  (a slot for"),
    (lambda b, m: ([(n, STORAGE, 1) for n in range(len(b))], range_of(m)), "expected [3], got [0]"),
    (lambda b, m: ([(n, UNIFORM, 1) for n in b.values()], range_of(m)),
     "expected 7, got 6  (binding 0 is a UNIFORM_BUFFER in your slot"),
    (lambda b, m: ((0, STORAGE, 3), range_of(m)), "slots: expected a list of (binding, descriptor"),
    (lambda b, m: ([(n, STORAGE, len(b)) for n in b.values()], range_of(m)),
     "expected 1, got 3  (buffers of binding 0)"),
    (lambda b, m: (slots_of(b), (0, len(m)) if m else None), "expected (0, 4), got (0, 1)"),
    (lambda b, m: (slots_of(b), (0, 32 * len(m)) if m else None), "expected (0, 4), got (0, 32)"),
    (lambda b, m: (slots_of(b), (4 * len(b), 4 * len(m)) if m else None), "got (12, 4)"),
    (lambda b, m: (slots_of(b), (0, 4 * len(m))), "no push constants: expected None, got (0, 0)"),
    (lambda b, m: None, "expected two things, (slots, push_range), got None (is a return"),
):  # fmt: skip
    wrong("04-7", says=says)(answer)


@alternative("04-7")
def backwards(buffers, members):
    slots = tuple([number, STORAGE, 1] for number in sorted(buffers.values(), reverse=True))
    return slots, None if not len(members) else [0, sum(4 for _ in members)]

equivalent("04-6", "float seen[36];", "float seen[37];",
           because="room that no turn of the loop uses changes nothing")
