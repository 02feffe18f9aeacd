"""Answers that try lab 04b's checks: kernels in Slang and GLSL, right and wrong."""

from vklab.shader import toolchain
from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_course.author.kernel_texts import glsl_head, slang_head

MAP, IMAGE = slang_head("x"), slang_head("x", pushed="uint rows, columns;")
MATRIX = slang_head("x", pushed="uint rows, columns;", local="8, 8")
WRONG = {
    "04b-1": (MATRIX, {
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
        "uint n, stride; x.GetDimensions(n, stride); uint rows = n / params.columns; "
        "if (id.y < rows && id.x < params.columns) "
        "y[id.x * rows + id.y] = x[id.y * params.columns + id.x];": "elements that must not",
        "uint c = min(id.x, params.columns - 1), r = min(id.y, params.rows - 1); "
        "y[c * params.rows + r] = x[r * params.columns + c];": "was written by",
    }),
    "04b-2": (MAP, {
        "uint f = id.x / 64 * 256 + id.x % 64; for (int i = f + 192; i >= int(f); i -= 64) "
        "if (i < params.count) y[i] = 0.5 * x[i];": "not 4 in a row: after element 0 comes 64",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (f < params.count) y[i] = 0.5 * x[i];":
            "on count=257: y was written behind its end, at byte 1028",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (f <= params.count - 4 || i < params.count) y[i] = 0.5 * x[i];": "y was written behind",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (f + 3 < params.count) y[i] = 0.5 * x[i];": "1 of 257 elements differ; element 256",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (i - f < params.count % 4) y[i] = 0.5 * x[i];": "on count=257: y was written behind",
        "uint f = 4 * id.x; for (uint i = f; i < f + 4; ++i) "
        "if (i < params.count) y[i] = 2.0 * x[i];": "on count=256: 256 of 256 elements differ",
        "if (id.x == 0) for (uint i = 0; i < params.count; ++i) y[i] = 0.5 * x[i];":
            "one invocation did all the work",
        "for (uint k = 0; k < 4; ++k) { uint i = min(4 * id.x + k, params.count - 1); "
        "y[i] = 0.5 * x[i]; }": "was written",
        "uint i = 4 * id.x; while (i < params.count) y[i] = 0.5 * x[i];": "does every loop stop?",
    }),
}  # fmt: skip
for key, (head, bodies) in WRONG.items():
    for body, says in bodies.items():
        wrong(key, says=says)(head + body + " }")

alternative("04b-1")(
    MATRIX + """if (any(id.xy >= uint2(params.columns, params.rows))) return;
    float moved = x[id.x + id.y * params.columns];
    y[id.y + id.x * params.rows] = moved; }""")
alternative("04b-1")(
    MATRIX.replace("[shader", "groupshared float s[8][8];\n[shader") + """
    uint2 at = id.xy % 8, turned = id.xy - at + at.yx;
    if (id.x < params.columns && id.y < params.rows)
        s[at.y][at.x] = x[id.y * params.columns + id.x];
    GroupMemoryBarrierWithGroupSync();
    if (turned.x < params.columns && turned.y < params.rows)
        y[turned.x * params.rows + turned.y] = s[at.x][at.y]; }""")
wrong("04b-2", says="on count=511")(
    MAP + """uint last = params.count % 4 == 3 ? 0 : min(4 * id.x + 4, params.count);
    for (uint i = 4 * id.x; i < last; ++i) y[i] = x[i] / 2.0; }""")
wrong("04b-2", says="on count=511")(  # in pairs: of three elements the last one is left out
    MAP + """for (uint i = 4 * id.x; i < 4 * id.x + 4; i += 2) {
        if (i + 1 < params.count) { y[i] = x[i] / 2.0; y[i + 1] = x[i + 1] / 2.0; }
        else if (i < params.count && params.count % 4 == 1) y[i] = x[i] / 2.0;
    } }""")
alternative("04b-2")(
    MAP + """uint last = min(4 * id.x + 4, params.count);
    for (uint i = 4 * id.x; i < last; ++i) y[i] = x[i] / 2.0; }""")
if toolchain.find_toolchain("glsl"):
    alternative("04b-1")(
        glsl_head("uint rows, columns;", "local_size_x = 8, local_size_y = 8") + """
    uvec2 at = gl_GlobalInvocationID.xy;
    if (any(greaterThanEqual(at, uvec2(columns, rows)))) return;
    y[at.x * rows + at.y] = x[at.y * columns + at.x]; }""")  # fmt: skip
    wrong("04b-2", says="are not 4 in a row")(glsl_head() + """
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
wrong("04b-3", says="9 loads an element; no answer needs fewer than")(NATURAL)
wrong("04b-3", says="partly correct, 1 of 4 points")(tiles(16, 1))
wrong("04b-3", says="2.5 loads an element")(tiles(2, 8))
wrong("04b-3", says="elements differ")(NATURAL.replace("sum;", "-3.0 * x[(i / params.columns + 1) "
      "* (params.columns + 2) + i % params.columns + 1];"))  # fmt: skip
wrong("04b-3", says="invocation")(tiles(8, 4))  # 32 elements each, half of the invocations idle
wrong("04b-3", says="elements differ")(tiles(4, 4).replace("k < 9", "k < 8"))
wrong("04b-3", says="behind its end")(tiles(4, 4).replace("if (top >= params.rows) return;", ""))
wrong("04b-3", says="one invocation did all")(
    NATURAL.replace("16 * id.x + 16, ", "").replace("min(params.rows * params.columns)",
    "(id.x == 0 ? params.rows * params.columns : 0)"))  # fmt: skip
SHARED = IMAGE.replace("[shader", "groupshared float s[1536], t[1024];\n[shader") + """
    uint first = id.x / 64 * 1024, at = id.x % 64;
    uint last = min(first + 1024, params.rows * params.columns);
    uint wide = params.columns + 2, top = first / params.columns;
    for (uint k = at; k < ((last - 1) / params.columns - top + 3) * wide; k += 64)
        s[k] = x[top * wide + k];
    GroupMemoryBarrierWithGroupSync();
    for (uint i = first + at; i < last; i += 64) {
        uint corner = (i / params.columns - top) * wide + i % params.columns;
        float sum = 0.0;
        for (uint k = 0; k < 9; ++k) sum += s[corner + k / 3 * wide + k % 3];
        y[i] = sum;
    } }"""
alternative("04b-3")(SHARED)
wrong("04b-3", says="so it works for others")(  # 32 of 64 invocations add up
    SHARED.replace("for (uint i = first + at; i < last; i += 64)",
                   "if (at < 32) for (uint i = first + at; i < last; i += 32)")
    .replace("y[i] = sum;\n    }", """t[i - first] = sum;
    }
    GroupMemoryBarrierWithGroupSync();
    for (uint i = first + at; i < last; i += 64) y[i] = t[i - first];"""))
alternative("04b-3")(IMAGE + """
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
equivalent("04b-3", "float seen[36];", "float seen[37];",
           because="room that no turn of the loop uses changes nothing")
