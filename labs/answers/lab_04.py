"""Answers that try lab 04's checks: kernels in Slang and GLSL, and grids, right and wrong."""

import math

from vklab.shader import toolchain
from vklab_course.author.answers import alternative, wrong
from vklab_course.author.kernel_texts import glsl_head, slang_head

# -------------------------------------------------------------------------------------- kernels
MAP, ZIP = slang_head("x"), slang_head("a", "b", pushed="uint count; float scale;")

# Every value right, by another share of the work; {} is the work on element i, E elements each.
NOT_ITS_SHARE = {
    "if (id.x == 0) for (uint i = 0; i < params.count; ++i) {}": "one invocation did all the work",
    "for (uint i = 0; i < params.count; ++i) {}": "was written by 64 invocations",
    "uint i = min(id.x, params.count - 1); {}": "y was written behind its end",
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
            "at byte 4; bytes count from its start, so byte 4 belongs to element 1; is",
        "if (id.x < params.count - 1) { float p = max(x[id.x], 0.0); y[id.x] = p * p; }":
            "on count=0 (behind its end each array has",
        "if (id.x < params.count) y[id.x] = x[id.x] * x[id.x];": "31 of 64 elements differ",
        "if (id.x < params.coutn || id.x < coutn) y[id.x] = x[id.x];": "identifier 'coutn'",
        "uint i = id.x; if (i < params.count) { float p = max(x[i], 0.0); y[i] = p * p; } "
        "else y[-1] = 2.0;": "element -1 of y was written",
        "uint i = id.x; float p = i < params.count ? max(x[i], 0.0) : 0.0; "
        "y[i < params.count ? i : 1000000 + i] = p * p;": "element 1000001 of y was written",
        "float p = max(x[id.x], 0.0); if (id.x < params.count) y[id.x] = p * p;":
            "element 1 of x was read",
        "uint i = gl_GlobalInvocationID.x; y[i] = x[i];": "this looks like GLSL",
        "if (id.x < params.count) y[id.x] = max(x[id.x], 0.0) ** 2;": "`**` is Python; write x * x",
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
}  # fmt: skip
# Every value right, by what nobody asked for: a race, the old content of y, writes to x.
SQUARE = "if (id.x < params.count) { float p = max(x[id.x], 0.0); y[id.x] = p * p; } }"
wrong("04-1", says="elements differ")(MAP + SQUARE.replace("max(x[id.x], 0.0)",
                                                      "clamp(x[id.x], 0.0, 5.0)"))  # fmt: skip
wrong("04-1", says="expected 0, got 1e-06")(
    MAP + SQUARE.replace("(x[id.x], 0.0)", "(x[id.x], 0.001)"))
wrong("04-1", says="was read: a result depends on the inputs alone")(
    MAP + SQUARE.replace("= p * p", "= max(y[id.x], p * p)"))
wrong("04-1", says="was written, and x is an input")(
    MAP.replace("StructuredBuffer<float> x", "RWStructuredBuffer<float> x")
    + SQUARE.replace("y[id.x]", "x[id.x] = p; y[id.x]"))
wrong("04-1", says="the push constants say that y ends with")(
    MAP + "uint length, stride; x.GetDimensions(length, stride);"
    + SQUARE.replace("params.count", "length"))
wrong("04-1", says="read 4 different elements of x, allowed are at most 1")(
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
SHARED = MAP.replace("[shader", "groupshared float s[64], t[64];\n[shader")
SYNC = " GroupMemoryBarrierWithGroupSync(); "
wrong("04-1", says="used shared arrays 130 times: its own share needs 5")(
    SHARED + "uint i = id.x, at = i % 64; if (i < params.count) s[at] = x[i];" + SYNC
    + "if (at == 0) for (uint k = 0; k < 64; ++k) { float p = max(s[k], 0.0); t[k] = p * p; }"
    + SYNC + "if (i < params.count) y[i] = t[at]; }")
wrong("04-1", says="did not come to barrier 1, where")(
    SHARED + "if (id.x >= params.count) return; s[id.x % 64] = x[id.x];" + SYNC
    + SQUARE.replace("x[id.x]", "s[id.x % 64]"))
wrong("04-1", says="has 1024 invocations; the host")(MAP.replace("(64", "(1024") + SQUARE)
wrong("04-1", says="on count=0")(MAP + SQUARE.replace("< params.count", "<= params.count - 1"))
for key, (head, bodies) in WRONG.items():
    for body, says in bodies.items():
        wrong(key, says=says)(head + body + " }")

ADD = "if (id.x < params.count) y[id.x] = params.scale * a[id.x] + b[id.x]; }"
wrong("04-2", says="takes push constants ['count', 'factor'], the dispatch supplies")(
    ZIP.replace("scale", "factor") + ADD.replace("scale", "factor"))
wrong("04-2", says="count is a float in your struct; the host pushes a uint")(
    ZIP.replace("uint count", "float count") + ADD)
wrong("04-2", says="count is an int in your struct")(ZIP.replace("uint count", "int count") + ADD)
wrong("04-2", says="scale is an integer in your struct, the host pushes 1.0")(
    ZIP.replace("float scale", "uint scale") + ADD)
wrong("04-2", says="count begins at byte 4 of your struct; the host pushes it at byte 0")(
    ZIP.replace("uint count; float scale;", "float scale; uint count;") + ADD)
alternative("04-1")(
    MAP.replace("uint3 id : SV_DispatchThreadID", "uint3 g : SV_GroupID, uint lane : SV_GroupIndex")
    + "uint i = 64 * g.x + lane; if (i >= params.count) return; y[i] = pow(max(x[i], 0), 2); }")
alternative("04-2")(
    ZIP + "if (id.x >= params.count) return; y[id.x] = mad(a[id.x], params.scale, b[id.x]); }")
if toolchain.find_toolchain("glsl"):
    alternative("04-1")(glsl_head() + """uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x
        + gl_LocalInvocationID.x;
    if (i < count) y[i] = x[i] > 0.0 ? x[i] * x[i] : 0.0; }""")

# ------------------------------------------------------------------------------------ functions
LIMIT, ROW = 65535, 32768


def up(count, size):
    return -(-count // size)


def second_row_too_early(count, size=64):
    groups = up(count, size)
    return (groups, 1, 1) if groups <= ROW else (ROW, up(groups, ROW), 1)


for answer, says in (
    (lambda count, size=64: (count // size, 1, 1), "workgroups(1000, 64)\n"),
    (lambda count, size=64: (count // size + 1, 1, 1), "workgroups(1024, 64)\n"),
    (lambda count, size=64: (up(count, size), 1, 1), "expected (32768, 2, 1), got (65536, 1, 1)"),
    (lambda count, size=64: (max(up(count, size), 1), 1, 1), "workgroups(0, 64)\n"),
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
