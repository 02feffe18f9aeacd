"""Kernels of students for the tests of the counters, and how these tests run them."""

from __future__ import annotations

import numpy as np

from vklab_course import Run
from vklab_course.counting.observe import observe_kernel

SLANG_HEAD = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Push { uint count; }
[[vk::push_constant]] Push push;
"""
MAIN = """
[shader("compute")] [numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID, uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
"""
GLSL_HEAD = """#version 450
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 0) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint count; };
"""


def slang(body: str, before: str = "") -> str:
    """Return a kernel on x and y in Slang."""
    return SLANG_HEAD + before + MAIN + body + "\n}\n"


def glsl(body: str, before: str = "") -> str:
    """Return a kernel on X and Y in GLSL."""
    return GLSL_HEAD + before + "void main() { uint i = gl_GlobalInvocationID.x;\n" + body + "\n}\n"


TRANSPOSE = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Push { uint rows, columns; }
[[vk::push_constant]] Push push;
[shader("compute")] [numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x < push.columns && id.y < push.rows)
        y[id.x * push.rows + id.y] = x[id.y * push.columns + id.x];
}
"""
FOUR = slang("""
    for (uint k = 0; k < 4; ++k) { uint i = 4 * id.x + k; if (i < push.count) y[i] = 2 * x[i]; }
""")
FOUR_VECTORS = """#version 450
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 0) readonly buffer X { vec4 x[]; };
layout(std430, set = 0, binding = 1) buffer Y { vec4 y[]; };
layout(push_constant) uniform Push { uint count; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (4 * i < count) y[i] = 2.0 * x[i];
}
"""
SUM = glsl(
    """
    uint lane = gl_LocalInvocationID.x;
    part[lane] = i < count ? x[i] : 0.0;
    BARRIER
    for (uint step = 32; step > 0; step /= 2) {
        if (lane < step) part[lane] += part[lane + step];
        barrier();
    }
    if (lane == 0) y[gl_WorkGroupID.x] = part[0];
""",
    "shared float part[64];\n",
)
REDUCTION = SUM.replace("BARRIER", "barrier();")
SLANG_REDUCTION = slang(
    """
    part[lane] = id.x < push.count ? x[id.x] : 0;
    GroupMemoryBarrierWithGroupSync();
    for (uint step = 32; step > 0; step /= 2) {
        if (lane < step) part[lane] += part[lane + step];
        GroupMemoryBarrierWithGroupSync();
    }
    if (lane == 0) y[group.x] = part[0];
""",
    "groupshared float part[64];\n",
)
# Right in the driver's order: the first half of a workgroup writes before the second half reads.
RACE = slang(
    """
    part[lane] = id.x < push.count ? x[id.x] : 0;
    if (id.x < push.count) y[id.x] = lane >= 32 ? part[lane - 32] : x[id.x];
""",
    "groupshared float part[64];\n",
)
HISTOGRAM = """
StructuredBuffer<uint> values;
RWStructuredBuffer<uint> bins;
groupshared uint mine[16];
[shader("compute")] [numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID, uint lane : SV_GroupIndex) {
    if (lane < 16) mine[lane] = 0;
    GroupMemoryBarrierWithGroupSync();
    InterlockedAdd(mine[values[id.x]], 1u);
    GroupMemoryBarrierWithGroupSync();
    if (lane < 16) InterlockedAdd(bins[lane], mine[lane]);
}
"""
PRODUCT_HEAD = """
StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> c;
struct Push { uint n; }
[[vk::push_constant]] Push push;
"""
NAIVE = (
    PRODUCT_HEAD
    + """
[shader("compute")] [numthreads(16, 16, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    float sum = 0;
    for (uint k = 0; k < push.n; ++k) sum += a[id.y * push.n + k] * b[k * push.n + id.x];
    c[id.y * push.n + id.x] = sum;
}
"""
)
TILED = (
    PRODUCT_HEAD
    + """
groupshared float ta[16][16], tb[16][16];
[shader("compute")] [numthreads(16, 16, 1)]
void main(uint3 id : SV_DispatchThreadID, uint3 l : SV_GroupThreadID) {
    float sum = 0;
    for (uint t = 0; t < push.n; t += 16) {
        ta[l.y][l.x] = a[id.y * push.n + t + l.x];
        tb[l.y][l.x] = b[(t + l.y) * push.n + id.x];
        GroupMemoryBarrierWithGroupSync();
        for (uint k = 0; k < 16; ++k) sum += ta[l.y][k] * tb[k][l.x];
        GroupMemoryBarrierWithGroupSync();
    }
    c[id.y * push.n + id.x] = sum;
}
"""
)
# Each workgroup makes 64 x 64 results, each invocation 4 x 4 of them.
REGISTERS = (
    PRODUCT_HEAD
    + """
groupshared float ta[64][16], tb[16][64];
[shader("compute")] [numthreads(16, 16, 1)]
void main(uint3 l : SV_GroupThreadID, uint3 g : SV_GroupID, uint lane : SV_GroupIndex) {
    float sum[4][4];
    for (uint r = 0; r < 4; ++r) for (uint s = 0; s < 4; ++s) sum[r][s] = 0;
    for (uint t = 0; t < push.n; t += 16) {
        for (uint e = lane; e < 1024; e += 256) {
            ta[e / 16][e % 16] = a[(64 * g.y + e / 16) * push.n + t + e % 16];
            tb[e / 64][e % 64] = b[(t + e / 64) * push.n + 64 * g.x + e % 64];
        }
        GroupMemoryBarrierWithGroupSync();
        for (uint k = 0; k < 16; ++k)
            for (uint r = 0; r < 4; ++r)
                for (uint s = 0; s < 4; ++s)
                    sum[r][s] += ta[4 * l.y + r][k] * tb[k][4 * l.x + s];
        GroupMemoryBarrierWithGroupSync();
    }
    for (uint r = 0; r < 4; ++r)
        for (uint s = 0; s < 4; ++s)
            c[(64 * g.y + 4 * l.y + r) * push.n + 64 * g.x + 4 * l.x + s] = sum[r][s];
}
"""
)
# The fifth of four numbers is the first of the next element.
INNER = (
    GLSL_HEAD.replace("float y[]", "Four y[]").replace(
        "layout(std430", "struct Four { float v[4]; };\nlayout(std430", 1
    )
    + "void main() { uint i = gl_GlobalInvocationID.x; if (i < 25) y[i].v[i / 4] = x[i] + count; }"
)
MAP = slang("if (id.x < push.count) y[id.x] = 2 * x[id.x];")
GLSL_MAP = glsl("if (i < count) y[i] = 2.0 * x[i];")
BY_GROUPS = slang("uint i = 64 * group.x + lane; if (i < push.count) y[i] = 2 * x[i];")
# The id passes through functions, and an early return leaves main before its end.
CALLS = glsl(
    "if (i >= count) return; put(i, 2.0 * get(i));",
    """
float get(uint i) { return x[i]; }
void put(uint i, float value) { y[i] = value; }
""",
)

COUNT = 1000
X = np.arange(1, COUNT + 1, dtype=np.float32)


def run_of(text, groups=(16,), x=X, y=None, **push):
    names = ("X", "Y") if "#version" in text else ("x", "y")
    y = np.zeros_like(x) if y is None else y
    return Run(dict(zip(names, (x, y), strict=True)), groups, push or {"count": len(x)})


def look(text, run=None, **options):
    """Return one observed run of a kernel, and the name of its buffer of results."""
    run = run or run_of(text)
    (observed,) = observe_kernel(text, run, seconds=20, **options)
    return observed, list(run.buffers)[-1]
