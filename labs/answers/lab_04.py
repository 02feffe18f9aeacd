"""Answers to try lab 04's checks with: kernels in Slang and GLSL, right and wrong."""

import math
import struct

from vklab.course.author.answers import alternative, wrong
from vklab.shader import toolchain

LIMIT, ROW = 65535, 32768
STORAGE, UNIFORM = 7, 6


def slots_of(buffers):
    return [(number, STORAGE, 1) for number in buffers.values()]


def range_of(members):
    return (0, 4 * len(members)) if members else None


@wrong("04-1", says="expected [0, 1, 2], got [0, 1]  (a slot for each binding")
def two_slots(buffers, members):
    return slots_of(buffers)[:2], range_of(members)


@wrong("04-1", says="expected [3], got [0]  (a slot for each binding")
def numbers_them_itself(buffers, members):
    return [(n, STORAGE, 1) for n in range(len(buffers))], range_of(members)


@wrong("04-1", says="expected 7, got 6  (type of binding 0: which constant?)")
def uniform_buffer(buffers, members):
    return [(n, UNIFORM, 1) for n in buffers.values()], range_of(members)


@wrong("04-1", says="slots: expected a list of (binding, descriptor type, descriptor count)")
def one_slot_of_three(buffers, members):
    return (0, STORAGE, 3), range_of(members)


@wrong("04-1", says="expected 1, got 3  (buffers of binding 0)")
def count_of_all(buffers, members):
    return [(n, STORAGE, len(buffers)) for n in buffers.values()], range_of(members)


@wrong("04-1", says="expected (0, 4), got (0, 1)  (the first byte, and the bytes of the struct)")
def one_uint_not_four_bytes(buffers, members):
    return slots_of(buffers), (0, len(members)) if members else None


@wrong("04-1", says="expected (0, 4), got (0, 32)")
def bits(buffers, members):
    return slots_of(buffers), (0, 32 * len(members)) if members else None


@wrong("04-1", says="expected (0, 4), got (12, 4)")
def behind_the_buffers(buffers, members):
    return slots_of(buffers), (4 * len(buffers), 4 * len(members)) if members else None


@wrong("04-1", says="on one buffer at binding 3, no push constants: expected None, got (0, 0)")
def empty_range(buffers, members):
    return slots_of(buffers), (0, 4 * len(members))


@wrong("04-1", says="expected two things, (slots, push_range), got None (is a return missing?)")
def returns_nothing(buffers, members):
    slots_of(buffers), range_of(members)


@alternative("04-1")
def backwards(buffers, members):
    slots = tuple([number, STORAGE, 1] for number in sorted(buffers.values(), reverse=True))
    return slots, None if not len(members) else [0, sum(4 for _ in members)]


@wrong("04-2", says="on 1000: expected (16, 1, 1), got (15, 1, 1)")
def drops_the_rest(count):
    return struct.pack("<I", count), (count // 64, 1, 1)


@wrong("04-2", says="on 1024: expected (16, 1, 1), got (17, 1, 1)")
def always_one_more(count):
    return struct.pack("<I", count), (count // 64 + 1, 1, 1)


@wrong("04-2", says="expected [232, 3, 0, 0], got [0, 0, 122, 68]  (the bytes, one")
def a_float(count):
    return struct.pack("<f", count), (-(-count // 64), 1, 1)


@wrong("04-2", says="expected [232, 3, 0, 0], got [0, 0, 3, 232]")
def big_endian(count):
    return struct.pack(">I", count), (-(-count // 64), 1, 1)


@wrong("04-2", says="expected bytes, got 1000")
def not_bytes(count):
    return count, (-(-count // 64), 1, 1)


@wrong("04-2", says="three ints in a tuple, got 16")
def one_group_number(count):
    return struct.pack("<I", count), -(-count // 64)


@alternative("04-2")
def by_hand(count):
    return bytes(count >> shift & 0xFF for shift in (0, 8, 16, 24)), [-(-count // 64), 1, 1]


@wrong("04-3", says="on 1000, 64: expected (16, 1, 1), got (15, 1, 1)")
def rounds_down(count, size=64):
    return (count // size, 1, 1)


@wrong("04-3", says="on 1024, 64: expected (16, 1, 1), got (17, 1, 1)")
def one_too_many(count, size=64):
    return (count // size + 1, 1, 1)


@wrong("04-3", says="(that is 65536 workgroups of 64): expected (32768, 2, 1), got (65536, 1, 1)")
def one_row_for_all(count, size=64):
    return (-(-count // size), 1, 1)


@wrong("04-3", says="(that is 65535 workgroups of 64): expected (65535, 1, 1), got (32768, 2, 1)")
def second_row_too_early(count, size=64):
    groups = -(-count // size)
    return (groups, 1, 1) if groups <= ROW else (ROW, -(-groups // ROW), 1)


@wrong("04-3", says="expected (16, 1, 1): three ints in a tuple, got None")
def forgets_to_return(count, size=64):
    print(-(-count // size))


@wrong("04-3", says="expected (16, 1, 1): three ints in a tuple, got 16")
def one_number(count, size=64):
    return -(-count // size)


@wrong("04-3", says="expected ints, got the float 16.0 (np.ceil and / make floats)")
def floats(count, size=64):
    return (float(math.ceil(count / size)), 1, 1)


@wrong("04-3", says="on 1000, 64: expected ints, got the float 16.0")
def right_in_floats(count, size=64):
    groups = float(-(-count // size))
    return (groups, 1, 1) if groups <= LIMIT else (ROW, math.ceil(groups / ROW), 1)


@alternative("04-3")
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

wrong("04-4", says="on count=1: y was written behind its end, at byte 4, 8, 12")(
    MAP + "float p = max(x[id.x], 0.0); y[id.x] = p * p; }"
)
wrong("04-4", says="count is never used by the kernel; the dispatch supplies it")(
    MAP + "float p = max(x[id.x], 0.0); y[id.x] = p * p; }"
)
wrong("04-4", says="y was written behind its end, at byte 4; is there a guard, and is the index")(
    MAP + "if (id.x <= params.count) { float p = max(x[id.x], 0.0); y[id.x] = p * p; } }"
)
wrong("04-4", says="(-1 means: nobody wrote it)")(
    MAP + "if (id.x < params.count - 1) { float p = max(x[id.x], 0.0); y[id.x] = p * p; } }"
)
wrong("04-4", says="on count=64: 32 of 64 elements differ")(
    MAP + "if (id.x < params.count) y[id.x] = x[id.x] * x[id.x]; }"
)
wrong("04-4", says="undefined identifier 'coutn'")(
    MAP + "if (id.x < params.coutn || id.x < coutn) y[id.x] = x[id.x]; }"
)
# A driver that ends the loop by itself leaves wrong numbers, others a process that is stopped.
wrong("04-4", says="incorrect")(MAP + "while (params.count > 0) y[0] = 0.5 * y[0] + id.x; }")
wrong("04-4", says="on count=1: element -1 of y was written, which has 1 elements; is there a gu")(
    MAP + """if (id.x < params.count) { float p = max(x[id.x], 0.0); y[id.x] = p * p; }
    else y[-1] = 2.0; }"""
)
wrong("04-4", says="on count=1: element 1000001 of y was written")(
    MAP + """float p = id.x < params.count ? max(x[id.x], 0.0) : 0.0;
    y[id.x < params.count ? id.x : 1000000 + id.x] = p * p; }"""
)
wrong("04-4", says="element 1 of x was read, which has 1 elements; is there a guard")(
    MAP + "float p = max(x[id.x], 0.0); if (id.x < params.count) y[id.x] = p * p; }"
)
wrong("04-4", says="y was written behind its end, at byte 4")(
    MAP + "if (id.x < params.count) y[id.x] = max(x[id.x], 0.0) * x[id.x]; else y[id.x] += 1.0; }"
)
alternative("04-4")(
    MAP.replace("uint3 id : SV_DispatchThreadID", "uint3 g : SV_GroupID, uint lane : SV_GroupIndex")
    + """uint i = 64 * g.x + lane;
    if (i >= params.count) return;
    y[i] = x[i] > 0.0 ? pow(x[i], 2.0) : 0.0; }"""
)
also_in_glsl("04-4")(
    GLSL_MAP + """
void main() {
    uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= count) return;
    y[i] = x[i] > 0.0 ? x[i] * x[i] : 0.0;
}
"""
)

ADD = "y[id.x] = params.scale * a[id.x] + b[id.x]; }"
wrong("04-5", says="y was written behind its end")(ZIP + ADD)
wrong("04-5", says="64 of 64 elements differ")(
    ZIP + "if (id.x < params.count) y[id.x] = params.scale * (a[id.x] + 2 * b[id.x]); }"
)
wrong("04-5", says="on count=67, scale=-0.5")(
    ZIP + "if (id.x < params.count && params.scale > 0) " + ADD
)
wrong("04-5", says="takes push constants ['count', 'factor'], the dispatch supplies")(
    ZIP.replace("scale", "factor") + "if (id.x < params.count) " + ADD.replace("scale", "factor")
)
wrong("04-5", says="count is a float in your struct; the host pushes a uint")(
    ZIP.replace("uint count", "float count") + "if (id.x < params.count) " + ADD
)
wrong("04-5", says="push constant scale=")(
    ZIP.replace("float scale", "uint scale") + "if (id.x < params.count) " + ADD
)
wrong("04-5", says="a is never used by the kernel; the dispatch supplies it")(
    ZIP + "if (id.x < params.count) y[id.x] = params.scale * b[id.x] + b[id.x]; }"
)
wrong("04-5", says="a, b, y, count and scale are never used: this kernel reads nothing")(ZIP + "}")
alternative("04-5")(
    ZIP.replace("uint count; float scale;", "float scale; uint count;")
    + "if (id.x >= params.count) return; y[id.x] = mad(a[id.x], params.scale, b[id.x]); }"
)

wrong("04-6", says="on 37 rows, 53 columns: y was written behind its end")(
    MATRIX + "y[id.x * params.rows + id.y] = x[id.y * params.columns + id.x]; }"
)
wrong("04-6", says="on 37 rows, 53 columns")(
    MATRIX + """uint e = id.y * params.columns + id.x;
    if (e < params.rows * params.columns) y[id.x * params.rows + id.y] = x[e]; }"""
)
wrong("04-6", says="elements differ; element 1: expected")(
    MATRIX + """if (id.y < params.rows && id.x < params.columns)
        y[id.y * params.columns + id.x] = x[id.y * params.columns + id.x]; }"""
)
wrong("04-6", says="on 37 rows, 53 columns")(
    MATRIX + """if (id.y < params.rows && id.x < params.columns)
        y[id.x * params.columns + id.y] = x[id.y * params.columns + id.x]; }"""
)
wrong("04-6", says="nobody wrote it")(
    MATRIX + """if (id.x < params.rows && id.x < params.columns && id.y < params.rows)
        y[id.x * params.rows + id.y] = x[id.y * params.columns + id.x]; }"""
)
alternative("04-6")(
    MATRIX + """if (any(id.xy >= uint2(params.columns, params.rows))) return;
    float moved = x[id.x + id.y * params.columns];
    y[id.y + id.x * params.rows] = moved; }"""
)
also_in_glsl("04-6")(
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
wrong("04-7", says="on count=257: y was written behind its end, at byte 1028")(
    FOUR + "if (first < params.count) y[i] = 0.5 * x[i]; } }"
)
wrong("04-7", says="on count=257: 1 of 257 elements differ; element 256")(
    FOUR + "if (first + 3 < params.count) y[i] = 0.5 * x[i]; } }"
)
wrong("04-7", says="nobody wrote it")(
    FOUR + "if (k < params.count % 4) y[i] = 0.5 * x[i]; } }"
)
wrong("04-7", says="on count=256: 256 of 256 elements differ")(
    FOUR + "if (i < params.count) y[i] = 2.0 * x[i]; } }"
)
alternative("04-7")(
    MAP + """uint last = min(4 * id.x + 4, params.count);
    for (uint i = 4 * id.x; i < last; ++i) y[i] = x[i] / 2.0; }"""
)
also_in_glsl("04-7")(
    GLSL_MAP + """
void main() {
    uint end = min(4 * gl_GlobalInvocationID.x + 4, count);
    for (uint i = 4 * gl_GlobalInvocationID.x; i < end; ++i)
        y[i] = x[i] / 2.0;
}
"""
)
