"""Answers to try the checks of lab 08 with: kernels in Slang, right and wrong, and others."""

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_08.rungs import kernel_text

# ------------------------------------------------------------------------------------------- 08-1


@alternative("08-1")
def tile_by_tile(rows, columns, depth, tile_rows, tile_columns):
    elements = 0
    for top in range(0, rows, tile_rows):
        for left in range(0, columns, tile_columns):
            elements += min(tile_rows, rows - top) * depth
            elements += min(tile_columns, columns - left) * depth
    return 4 * elements, rows * columns * depth / (2 * elements)


def _traffic(change):
    """Return an answer to 08-1 that `change(rows, columns, depth, high, wide)` gives elements."""
    return lambda m, n, k, high, wide: (4 * (moved := change(m, n, k, high, wide)),
                                        2 * m * n * k / (4 * moved))  # fmt: skip


for change, words in (
    (lambda m, n, k, high, wide: n // wide * m * k + m // high * n * k, "expected"),
    (lambda m, n, k, high, wide: -(-n // wide) * -(-m // high) * (high + wide) * k, "expected"),
    (lambda m, n, k, high, wide: -(-m // high) * m * k + -(-n // wide) * n * k, "expected"),
    (lambda m, n, k, high, wide: m * k + k * n, "expected 16777216, got 131072"),
    (lambda m, n, k, high, wide: 2 * m * n * k, "expected"),
    (lambda m, n, k, high, wide: -(-n // wide) * m * k + -(-m // high) * n * k + m * n, "expected"),
):
    wrong("08-1", says=words)(lambda m, n, k, high, wide, change=change: _traffic(
        lambda *sizes: max(change(*sizes), 1))(m, n, k, high, wide))  # fmt: skip
wrong("08-1", says="expected two numbers")(lambda *sizes: 4 * sum(sizes))
wrong("08-1", says="operations per byte")(lambda *sizes: (
    tile_by_tile(*sizes)[0], tile_by_tile(*sizes)[1] / 2))  # fmt: skip

# ------------------------------------------------------------------------------------------- 08-2

HEAD = """
StructuredBuffer<float> a;
StructuredBuffer<float> b;
RWStructuredBuffer<float> y;
struct Params { uint rows, columns, depth; };
[vk::push_constant] ConstantBuffer<Params> params;
"""
SHARED = HEAD + """
groupshared float a_tile[64], b_tile[64];
[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID, uint3 group : SV_GroupID, uint3 at : SV_GroupThreadID) {
    float sum = 0.0;
    for (uint first = 0; first < params.depth; first += 8) {
        uint k = first + at.x, other = group.x * 8 + at.y;
        a_tile[at.y * 8 + at.x] = id.y < params.rows && k < params.depth
            ? a[id.y * params.depth + k] : 0.0;
        b_tile[at.y * 8 + at.x] = other < params.columns && k < params.depth
            ? b[other * params.depth + k] : 0.0;
        GroupMemoryBarrierWithGroupSync(); // first
        for (uint i = 0; i < 8; ++i) sum += a_tile[at.y * 8 + i] * b_tile[at.x * 8 + i];
        GroupMemoryBarrierWithGroupSync(); // second
    }
    if (id.y < params.rows && id.x < params.columns) y[id.y * params.columns + id.x] = sum;
}
"""
BARRIER = "GroupMemoryBarrierWithGroupSync();"
STRIDED = """uint k = first + at.x, other = group.x * 8 + at.x, down = first + at.y;
        b_tile[at.x * 8 + at.y] = other < params.columns && down < params.depth
            ? b[other * params.depth + down] : 0.0;"""
OWN_ROW = """
[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.y >= params.rows || id.x >= params.columns) return;
    float sum = 0.0;
    for (uint k = 0; k < params.depth; ++k)
        sum += a[id.y * params.depth + k] * b[id.x * params.depth + k];
    y[id.y * params.columns + id.x] = sum;
}
"""


def changed(text, *pairs):
    """Return a text with replacements, each of which must apply."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


TO_END = "? b[other * params.depth + k] : 0.0;"
IN_A, ELEMENT = "id.y < params.rows && k < params.depth", "a[id.y * params.depth + k]"
FROM_A = f"a_tile[at.y * 8 + at.x] = {IN_A}\n            ? {ELEMENT} : 0.0;"
FROM_B = """b_tile[at.y * 8 + at.x] = other < params.columns && k < params.depth
            ? b[other * params.depth + k] : 0.0;"""
for text, words in (
    (HEAD + OWN_ROW, "loads 24 elements of a; 3 are its share"),
    (kernel_text("shared"), "elements differ"),
    (changed(SHARED, (f"{BARRIER} // first", "")), "no barrier between them"),
    (changed(SHARED, (f"{BARRIER} // second", "")), "no barrier between them"),
    (changed(SHARED, ("float sum = 0.0;", "float sum = 0.0;\n    if (id.y >= params.rows || "
                      "id.x >= params.columns) return;")), "rows=13, columns=21"),
    (changed(SHARED, ("id.y < params.rows && k < params.depth\n", "id.y < params.rows\n")),
     "rows=13, columns=21, depth=30"),
    (changed(SHARED, ("first < params.depth; first", "first + 8 <= params.depth; first")),
     "elements differ"),
    (changed(SHARED, ("other < params.columns && k", "k")), "rows=13, columns=21"),
    (changed(SHARED, ("float sum = 0.0;", "half sum = half(0.0);"), ("= sum;", "= float(sum);"),
             ("sum += a_tile", "sum += (half)(a_tile"), ("[at.x * 8 + i];", "[at.x * 8 + i]);")),
     "elements differ"),
    (changed(SHARED, ("for (uint i = 0; i < 8; ++i) sum", "for (uint i = 0; i < 8; ++i) if "
                      "(a_tile[at.y * 8 + i] != 0.0) sum")), "rows=13, columns=21, depth=30"),
    (changed(SHARED, ("groupshared float", "groupshared half"), ("? a[", "? (half)a["),
             ("? b[", "? (half)b["), ("sum += a_tile", "sum += (float)a_tile")), "elements differ"),
    (changed(SHARED, (FROM_A, f"if ({IN_A}) a_tile[at.y * 8 + at.x] = {ELEMENT};")), "nan"),
    (changed(SHARED, ("uint k = first + at.x, other = group.x * 8 + at.y;", STRIDED), (FROM_B, "")),
     "sectors in one load of b"),
    (changed(SHARED, ("b_tile[at.x * 8 + i]", "b_tile[i * 8 + at.x]")), "elements differ"),
    (changed(SHARED, ("if (id.y < params.rows && id.x < params.columns) y", "y")), "y"),
    (changed(SHARED, (FROM_B, """
        if (at.y == 0) for (uint r = 0; r < 8; ++r) { uint o = group.x * 8 + r;
            b_tile[r * 8 + at.x] = o < params.columns && k < params.depth
                ? b[o * params.depth + k] : 0.0; }""")), "are its share"),
):  # fmt: skip
    wrong("08-2", says=words)(text)
alternative("08-2")(HEAD + """
groupshared float tiles[2][8][9];
[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
    uint x = lane % 8, y_ = lane / 8;
    uint rows[2] = { group.y * 8 + y_, group.x * 8 + y_ };
    float sum = 0.0;
    for (uint step = 0; step < (params.depth + 7) / 8; ++step) {
        uint k = step * 8 + x;
        tiles[0][y_][x] = 0.0;
        tiles[1][x][y_] = 0.0;
        if (k < params.depth) {
            if (rows[0] < params.rows) tiles[0][y_][x] = a[rows[0] * params.depth + k];
            if (rows[1] < params.columns) tiles[1][x][y_] = b[rows[1] * params.depth + k];
        }
        GroupMemoryBarrierWithGroupSync();
        for (uint i = 0; i < 8; ++i) sum += tiles[0][y_][i] * tiles[1][i][x];
        GroupMemoryBarrierWithGroupSync();
    }
    uint column = group.x * 8 + x;
    if (rows[0] < params.rows && column < params.columns)
        y[rows[0] * params.columns + column] = sum;
}
""")

equivalent("08-2", "for (uint first = 0; first < params.depth; first += TILE) {",
           "for (uint first = 0; first <= params.depth; first += TILE) {",
           because="one step more, behind the end, adds only zeros")

# ------------------------------------------------------------------------------------------- 08-3

BLOCK = HEAD + """
[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    float sums[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    uint top = 4 * id.y, left = 2 * id.x;
    uint high = top < params.rows ? min(4, params.rows - top) : 0;
    uint wide = left < params.columns ? min(2, params.columns - left) : 0;
    for (uint k = 0; k < params.depth; ++k) {
        float row[4], column[2];
        for (uint r = 0; r < high; ++r) row[r] = a[k * params.rows + top + r];
        for (uint c = 0; c < wide; ++c) column[c] = b[k * params.columns + left + c];
        for (uint i = 0; i < 8; ++i)
            if (i / 2 < high && i % 2 < wide) sums[i] += row[i / 2] * column[i % 2];
    }
    for (uint i = 0; i < 8; ++i)
        if (i / 2 < high && i % 2 < wide)
            y[(top + i / 2) * params.columns + left + i % 2] = sums[i];
}
"""
alternative("08-3")(BLOCK)
AGAIN = """for (uint i = 0; i < 8; ++i)
            if (i / 2 < high && i % 2 < wide) sums[i] += a[k * params.rows + top + i / 2]
                * b[k * params.columns + left + i % 2];"""
FIRST = """for (uint r = 0; r < high; ++r) row[r] = a[k * params.rows + top + r];
        for (uint c = 0; c < wide; ++c) column[c] = b[k * params.columns + left + c];
        for (uint i = 0; i < 8; ++i)
            if (i / 2 < high && i % 2 < wide) sums[i] += row[i / 2] * column[i % 2];"""
ALONE = HEAD + """
[shader("compute")]
[numthreads(8, 8, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x + id.y > 0) return;
    for (uint i = 0; i < params.rows * params.columns; ++i) {
        float sum = 0.0;
        for (uint k = 0; k < params.depth; ++k) sum += a[k * params.rows + i / params.columns]
                                                       * b[k * params.columns + i % params.columns];
        y[i] = sum;
    }
}
"""
for text, words in (
    (changed(BLOCK, (FIRST, AGAIN)), "loads 88 elements of a; 44 are its share"),
    (changed(BLOCK, ("a[k * params.rows + top + r]", "a[(top + r) * params.depth + k]")),
     "elements differ"),
    (changed(BLOCK, ("b[k * params.columns + left + c]", "b[(left + c) * params.depth + k]")),
     "elements differ"),
    (changed(BLOCK, ("? min(4, params.rows - top) : 0", "? 4 : 0")), "rows=37, columns=19"),
    (changed(BLOCK, ("? min(2, params.columns - left) : 0", "? 2 : 0")), "rows=37, columns=19"),
    (changed(BLOCK, ("4 * id.y, left = 2 * id.x", "2 * id.y, left = 4 * id.x")), "y"),
    (changed(BLOCK, ("if (i / 2 < high", "if (row[i / 2] != 0.0 && i / 2 < high")), "expected nan"),
    (changed(BLOCK, ("k < params.depth; ++k", "k + 1 < params.depth; ++k")), "elements differ"),
    (changed(BLOCK, ("k < params.depth; ++k", "k < params.depth; k += 0")), "does not end"),
    (changed(BLOCK, ("left + i % 2] = sums[i]", "left + i % 2] += sums[i]")), "elements differ"),
    (changed(BLOCK, ("top + r];", "min(top, params.rows - 5) + r];")), "elements differ"),
    (ALONE, "one invocation did all the work"),
):
    wrong("08-3", says=words)(text)

BEHIND = "it touches what lies behind local arrays; the counters of the check do not see that"
for line in ("[unroll] for (uint r = 0; r < HIGH; ++r)",
             "[unroll] for (uint c = 0; c < WIDE; ++c) sums[r][c] += from_a[r] * from_b[c];"):
    equivalent("08-3", line, line.replace(" < ", " <= "), because=BEHIND)

# ------------------------------------------------------------------------------------------- 08-4

RIGHT = {"A": "shared", "B": "naive", "C": "buffered", "D": "coalesced", "E": "vectors",
         "F": "registers"}  # fmt: skip
alternative("08-4")(RIGHT)
wrong("08-4", says="not all right")({**RIGHT, "B": "coalesced", "D": "naive"})
wrong("08-4", says="not all right")({**RIGHT, "C": "vectors", "E": "buffered"})
wrong("08-4", says="choose one of 'naive'")({**RIGHT, "F": "register"})
wrong("08-4", says="'F' has no answer")({name: RIGHT[name] for name in "ABCDE"})
