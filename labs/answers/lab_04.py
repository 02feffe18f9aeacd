"""Answers to try lab 04's checks with: kernels in Slang and GLSL, right and wrong."""

import math

from vklab.course.answers import alternative, wrong
from vklab.shader import toolchain

LIMIT, ROW = 65535, 32768


@wrong("04-1", says="on 1000, 64: expected (16, 1, 1), got (15, 1, 1)")
def rounds_down(count, size=64):
    return (count // size, 1, 1)


@wrong("04-1", says="on 1024, 64: expected (16, 1, 1), got (17, 1, 1)")
def one_too_many(count, size=64):
    return (count // size + 1, 1, 1)


@wrong("04-1", says="(that is 65536 workgroups of 64): expected (32768, 2, 1), got (65536, 1, 1)")
def one_row_for_all(count, size=64):
    return (-(-count // size), 1, 1)


@wrong("04-1", says="(that is 65535 workgroups of 64): expected (65535, 1, 1), got (32768, 2, 1)")
def second_row_too_early(count, size=64):
    groups = -(-count // size)
    return (groups, 1, 1) if groups <= ROW else (ROW, -(-groups // ROW), 1)


@wrong("04-1", says="expected (16, 1, 1), got None (is a return missing?)")
def forgets_to_return(count, size=64):
    print(-(-count // size))


@wrong("04-1", says="three ints in a tuple, please")
def one_number(count, size=64):
    return -(-count // size)


@wrong("04-1", says="np.ceil makes floats")
def floats(count, size=64):
    return (float(math.ceil(count / size)), 1, 1)


@alternative("04-1")
def by_ceil(count, size=64):
    groups = math.ceil(count / size)
    rows = 1 if groups < LIMIT + 1 else (groups + ROW - 1) // ROW
    return [groups if rows == 1 else ROW, rows, 1]


# ------------------------------------------------------------------------------------- kernels

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
MATRIX = (MAP.replace("count;", "rows, columns;").replace("numthreads(64, 1", "numthreads(8, 8"))



def also_in_glsl(identifier):
    """Register a right answer in GLSL, where there is a compiler for it."""
    return alternative(identifier) if toolchain.find_toolchain("glsl") else str


GLSL_MAP = """
#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Params { uint count; };
"""

wrong("04-2", says="on count=1: y was written behind its end, at byte 4, 8, 12")(
    MAP + "float p = max(x[id.x], 0.0); y[id.x] = p * p; }"
)
wrong("04-2", says="pushed, and never used by the kernel: count")(
    MAP + "float p = max(x[id.x], 0.0); y[id.x] = p * p; }"
)
wrong("04-2", says="y was written behind its end, at byte 4; is there a guard, and is the index")(
    MAP + "if (id.x <= params.count) { float p = max(x[id.x], 0.0); y[id.x] = p * p; } }"
)
wrong("04-2", says="(-1 means: nobody wrote it)")(
    MAP + "if (id.x < params.count - 1) { float p = max(x[id.x], 0.0); y[id.x] = p * p; } }"
)
wrong("04-2", says="on count=64: 32 of 64 elements differ")(
    MAP + "if (id.x < params.count) y[id.x] = x[id.x] * x[id.x]; }"
)
wrong("04-2", says="undefined identifier 'coutn'")(
    MAP + "if (id.x < params.coutn || id.x < coutn) y[id.x] = x[id.x]; }"
)
# A driver that ends the loop by itself leaves wrong numbers, others a process that is stopped.
wrong("04-2", says="incorrect")(MAP + "while (params.count > 0) y[0] = 0.5 * y[0] + id.x; }")
alternative("04-2")(
    MAP.replace("uint3 id : SV_DispatchThreadID", "uint3 g : SV_GroupID, uint lane : SV_GroupIndex")
    + """uint i = 64 * g.x + lane;
    if (i >= params.count) return;
    y[i] = x[i] > 0.0 ? pow(x[i], 2.0) : 0.0; }"""
)
also_in_glsl("04-2")(
    GLSL_MAP + """
void main() {
    uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= count) return;
    y[i] = x[i] > 0.0 ? x[i] * x[i] : 0.0;
}
"""
)

ADD = "y[id.x] = params.scale * a[id.x] + b[id.x]; }"
wrong("04-3", says="y was written behind its end")(ZIP + ADD)
wrong("04-3", says="64 of 64 elements differ")(
    ZIP + "if (id.x < params.count) y[id.x] = params.scale * (a[id.x] + 2 * b[id.x]); }"
)
wrong("04-3", says="on count=67, scale=-0.5")(
    ZIP + "if (id.x < params.count && params.scale > 0) " + ADD
)
wrong("04-3", says="takes push constants ['count', 'factor'], the dispatch supplies")(
    ZIP.replace("scale", "factor") + "if (id.x < params.count) " + ADD.replace("scale", "factor")
)
alternative("04-3")(
    ZIP.replace("uint count; float scale;", "float scale; uint count;")
    + "if (id.x >= params.count) return; y[id.x] = mad(a[id.x], params.scale, b[id.x]); }"
)

wrong("04-4", says="on 37 rows, 53 columns: y was written behind its end")(
    MATRIX + "y[id.x * params.rows + id.y] = x[id.y * params.columns + id.x]; }"
)
wrong("04-4", says="on 37 rows, 53 columns")(
    MATRIX + """uint e = id.y * params.columns + id.x;
    if (e < params.rows * params.columns) y[id.x * params.rows + id.y] = x[e]; }"""
)
wrong("04-4", says="elements differ; element 1: expected")(
    MATRIX + """if (id.y < params.rows && id.x < params.columns)
        y[id.y * params.columns + id.x] = x[id.y * params.columns + id.x]; }"""
)
wrong("04-4", says="on 37 rows, 53 columns")(
    MATRIX + """if (id.y < params.rows && id.x < params.columns)
        y[id.x * params.columns + id.y] = x[id.y * params.columns + id.x]; }"""
)
wrong("04-4", says="nobody wrote it")(
    MATRIX + """if (id.x < params.rows && id.x < params.columns && id.y < params.rows)
        y[id.x * params.rows + id.y] = x[id.y * params.columns + id.x]; }"""
)
alternative("04-4")(
    MATRIX + """if (any(id.xy >= uint2(params.columns, params.rows))) return;
    float moved = x[id.x + id.y * params.columns];
    y[id.y + id.x * params.rows] = moved; }"""
)
also_in_glsl("04-4")(
    GLSL_MAP.replace("local_size_x = 64", "local_size_x = 8, local_size_y = 8").replace(
        "uint count", "uint rows; uint columns"
    )
    + """
void main() {
    uvec2 at = gl_GlobalInvocationID.xy;
    if (any(greaterThanEqual(at, uvec2(columns, rows)))) return;
    y[at.x * rows + at.y] = x[at.y * columns + at.x];
}
"""
)

FOUR = MAP + "uint first = 4 * id.x; for (uint k = 0; k < 4; ++k) { uint i = first + k; "
wrong("04-5", says="on count=257: y was written behind its end, at byte 1028")(
    FOUR + "if (first < params.count) y[i] = 0.5 * x[i]; } }"
)
wrong("04-5", says="on count=257: 1 of 257 elements differ; element 256")(
    FOUR + "if (first + 3 < params.count) y[i] = 0.5 * x[i]; } }"
)
wrong("04-5", says="nobody wrote it")(
    FOUR + "if (k < params.count % 4) y[i] = 0.5 * x[i]; } }"
)
wrong("04-5", says="on count=256: 256 of 256 elements differ")(
    FOUR + "if (i < params.count) y[i] = 2.0 * x[i]; } }"
)
alternative("04-5")(
    MAP + """uint last = min(4 * id.x + 4, params.count);
    for (uint i = 4 * id.x; i < last; ++i) y[i] = x[i] / 2.0; }"""
)
also_in_glsl("04-5")(
    GLSL_MAP + """
void main() {
    uint end = min(4 * gl_GlobalInvocationID.x + 4, count);
    for (uint i = 4 * gl_GlobalInvocationID.x; i < end; ++i)
        y[i] = x[i] / 2.0;
}
"""
)
