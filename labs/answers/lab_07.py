"""Answers to try the checks of lab 07 with: wrong ones, and a second right one for each."""

from vklab.shader import toolchain
from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_course.author.kernel_texts import glsl_head

HEAD = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;
groupshared float low[64], high[64];
[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID, uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
"""
WAIT = "GroupMemoryBarrierWithGroupSync();"
START = """low[lane] = 3.4e38; high[lane] = -3.4e38;
    if (id.x < params.count) low[lane] = high[lane] = x[id.x];"""
STEP = """if (lane < step) {
    low[lane] = min(low[lane], low[lane + step]);
    high[lane] = max(high[lane], high[lane + step]); }"""
END = "if (lane == 0) y[group.x] = high[0] - low[0];"


def tree(start=START, loop="for (uint step = 32; step > 0; step /= 2)", before=WAIT, step=STEP,
         after="", end=END):  # fmt: skip
    """Return a tree of which one line may be wrong."""
    return HEAD + f"{start}\n{loop} {{ {before}\n{step}\n{after} }}\n{end}\n}}"


alternative("07-1")(HEAD.replace("float low[64], high[64]", "float2 part[64]") + """
    uint i = min(id.x, params.count - 1);
    float2 mine = float2(x[i], -x[i]);
    part[lane] = mine;
    for (uint far = 1; far < 64; far *= 2) {
        GroupMemoryBarrierWithGroupSync();
        if (lane % (2 * far) == 0) part[lane] = mine = max(mine, part[lane + far]);
    }
    if (lane == 0) y[group.x] = mine.x + mine.y; }""")
if toolchain.find_toolchain("glsl"):
    shared = glsl_head().replace("void main", "shared float a[64], b[64]; void main")
    alternative("07-1")(shared + """
    uint n = gl_LocalInvocationIndex, i = gl_GlobalInvocationID.x;
    a[n] = i < count ? x[i] : 3e38;
    b[n] = i < count ? x[i] : -3e38;
    barrier();
    for (uint far = 32; far > 0; far >>= 1) {
        if (n < far) { a[n] = min(a[n], a[n + far]); b[n] = max(b[n], b[n + far]); }
        barrier();
    }
    if (n == 0) y[gl_WorkGroupID.x] = b[0] - a[0]; }""")  # fmt: skip
for words, lines in (
    ("elements differ", {"start": START.replace("3.4e38", "0.0")}),
    ("elements differ", {"start": START.replace("3.4e38", "1000.0")}),
    ("all elements above 2e38", {"start": START.replace("3.4e38", "1e38")}),
    ("element 3: expected 0, got", {"start": START.replace(
        "low[lane] = 3.4e38", "low[lane] = 0.0")}),
    ("which has 238 elements", {"start": "low[lane] = high[lane] = x[id.x];"}),
    ("which another invocation of its workgroup", {"before": ""}),
    ("which another invocation of its workgroup", {"before": f"if (step > 4) {WAIT}"}),
    ("which another invocation of its workgroup", {"before": f"if (step < 32) {WAIT}"}),
    ("invocations 32 to 63 did not come to barrier 2", {"before": f"if (lane < 2 * step) {WAIT}"}),
    ("of workgroup 3, invocations 43 to 63 did not come to barrier 1", {
        "start": "if (id.x >= params.count) return; low[lane] = high[lane] = x[id.x];"}),
    ("elements differ", {"loop": "for (uint step = 16; step > 0; step /= 2)"}),
    ("elements differ", {"loop": "for (uint step = 32; step > 1; step /= 2)"}),
    ("outside of the shared array", {"step": STEP.replace("lane < step", "lane <= step")}),
    ("with no barrier between", {"step": STEP.replace("lane + step", "lane + 1")}),
    ("elements differ", {"step": STEP.replace("max", "min")}),
    ("elements differ", {"end": END.replace("high[0] - low[0]", "high[0]")}),
    ("y was written behind its end", {"end": "y[id.x] = high[0] - low[0];"}),
    ("a tree of 64 values has 6 steps", {"loop": "", "step": """if (lane == 0)
        for (uint i = 1; i < 64; ++i) {
            low[0] = min(low[0], low[i]); high[0] = max(high[0], high[i]); }"""}),
    ("a workgroup made", {"step": STEP.replace("if (lane < step)", "if (lane + step < 64)")}),
    ("allowed are at most 2; the others", {
        "start": "float a = 3.4e38, b = -3.4e38;", "loop": "", "before": "", "step": """
        for (uint i = group.x * 64; i < min(params.count, group.x * 64 + 64); ++i) {
            a = min(a, x[i]); b = max(b, x[i]); }""", "end": "if (lane == 0) y[group.x] = b - a;"}),
    ("nothing was written to y", {"loop": "for (uint step = 32; step >= 0; step /= 2)"}),
    ("with no barrier between them", {"before": "DeviceMemoryBarrierWithGroupSync();"}),
    ("come to different barriers", {"before": f"if (lane < 32) {{ {WAIT} }} else {{ {WAIT} }}"}),
    ("different elements of x, allowed are at most 1", {
        "loop": "for (uint step = 16; step > 0; step /= 2)", "start": """
        uint i = group.x * 64 + lane; float a = 3.4e38, b = -3.4e38;
        if (lane < 32 && i < params.count) a = b = x[i];
        if (lane < 32 && i + 32 < params.count) {
            float v = x[i + 32]; a = min(a, v); b = max(b, v); }
        low[lane] = a; high[lane] = b;"""}),
    ("has subgroup operations", {"start": START + "low[lane] = WaveActiveMin(low[lane]);"}),
):  # fmt: skip
    wrong("07-1", says=words)(tree(**lines))

equivalent("07-1", "for (uint step = 64 / 2; step > 0; step /= 2) {",
           "for (uint step = 65 / 2; step > 0; step /= 2) {", because="both halves are 32")

# ------------------------------------------------------------------------------------------- 07-2

RIGHT = {"F": "not promised at any width", "E": "at every width", "D": "not promised at any width",
         "C": "at width 32 only", "B": "at every width", "A": "at width 64 or more only"}
alternative("07-2")(RIGHT)
wrong("07-2", says="not all right")({**RIGHT, "D": "at width 32 only"})
wrong("07-2", says="not all right")({**RIGHT, "A": "at width 32 only"})
wrong("07-2", says="choose one of 'at every width'")({**RIGHT, "B": "always"})

# ------------------------------------------------------------------------------------------- 07-3


@alternative("07-3")
def one_lane_at_a_time(turns, width):
    slowest = {}
    for number, made in enumerate(turns):
        slowest[number // width] = max(made, slowest.get(number // width, 0))
    return sum(turns), sum(slowest.values()) * width


def _paid(cost):
    """Return an answer to 07-3 from the cost of one subgroup."""
    return lambda turns, width: (sum(turns), sum(
        cost(turns[first : first + width], width) for first in range(0, len(turns), width)))


for words, cost in (
    ("expected (6, 12)", lambda some, width: max(some)),
    ("expected", lambda some, width: len(some) * max(some)),
    ("expected", lambda some, width: sum(some)),
    ("expected", lambda some, width: width * min(some)),
    ("expected", lambda some, width: width * (sum(some) / len(some))),
    ("expected", lambda some, width: width * max(some) if len(some) == width else 0),
):
    wrong("07-3", says=words)(_paid(cost))
wrong("07-3", says="expected")(lambda turns, width: (sum(turns), len(turns) * max(turns)))
wrong("07-3", says="expected")(lambda turns, width: one_lane_at_a_time(turns, width)[1])
wrong("07-3", says="expected (0, 0)")(
    lambda turns, width: one_lane_at_a_time(turns or [1], width))  # fmt: skip

# ------------------------------------------------------------------------------------------- 07-4

JOIN = """float largest = max(a.x, b.x);
    return float2(largest, a.y * exp(a.x - largest) + b.y * exp(b.x - largest));"""
PASS = "for (uint c = lane; c < n; c += 64) mine = join(mine, float2(x[first + c], 1));"
FIRST = "part[lane] = mine; GroupMemoryBarrierWithGroupSync();"


def softmax(join=JOIN, pass_=PASS, tree=FIRST, write="exp(x[first + c] - part[0].x) / part[0].y",
            start="-3e38"):  # fmt: skip
    """Return a softmax of which one step may be wrong."""
    return f"""
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Params {{ uint columns; }};
[vk::push_constant] ConstantBuffer<Params> params;
groupshared float2 part[64];
float2 join(float2 a, float2 b) {{ {join} }}
[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {{
    uint n = params.columns, first = group.x * n;
    float2 mine = float2({start}, 0);
    {pass_}
    {tree}
    for (uint step = 32; step > 0; step /= 2) {{
        if (lane < step) part[lane] = join(part[lane], part[lane + step]);
        GroupMemoryBarrierWithGroupSync();
    }}
    for (uint c = lane; c < n; c += 64) y[first + c] = {write};
}}"""


alternative("07-4")(softmax("if (a.x < b.x) { float2 t = a; a = b; b = t; } "
                            "return float2(a.x, a.y + b.y * exp(b.x - a.x));",
                            """for (uint c = lane; c < n; c += 64) {
        float v = x[first + c];
        if (v > mine.x) { mine.y *= exp(mine.x - v); mine.x = v; }
        mine.y += exp(v - mine.x); }"""))
for words, lines in (
    ("NaN", {"join": "return float2(0, a.y + b.y);",
             "pass_": PASS.replace("join(mine, float2(x[first + c], 1))",
                                   "float2(0, mine.y + exp(x[first + c]))")}),
    ("elements differ", {"join": JOIN.replace("a.y * exp(a.x - largest)", "a.y")}),
    ("elements differ", {"join": "return float2(max(a.x, b.x), a.y + b.y);"}),
    ("NaN", {"start": "-20000"}),
    ("NaN", {"start": "-1e30"}),
    ("if all 64 share both passes", {"pass_": "if (lane == 0) for (uint c = 0; c < n; ++c) "
                                     "mine = join(mine, float2(x[first + c], 1));"}),
    ("elements differ", {"join": f"if (abs(a.x - b.x) > 7) return a.x > b.x ? a : b; {JOIN}"}),
    ("elements differ", {"join": "return float2(a.x, a.y + b.y * exp(b.x - a.x));"}),
    ("elements differ", {"join": JOIN.replace("max(", "min(")}),
    ("elements differ", {"join": JOIN.replace("exp(a.x - largest)", "exp(largest - a.x)")}),
    ("elements differ", {"pass_": PASS.replace("c = lane", "c = lane + 64")}),
    ("elements differ", {"pass_": PASS.replace("c += 64", "c += 32")}),
    ("elements differ", {"pass_": PASS.replace(", 1)", ", x[first + c])")}),
    ("was loaded 65 times", {"pass_": "for (uint c = 0; c < n; ++c) "
                             "mine = join(mine, float2(x[first + c], lane == 0 ? 1 : 0));"}),
    ("was loaded 3 times, asked were 2 at most", {"pass_": """
        for (uint c = lane; c < n; c += 64) mine.x = max(mine.x, x[first + c]);
        for (uint c = lane; c < n; c += 64) mine.y += exp(x[first + c] - mine.x);"""}),
    ("elements differ", {"write": "exp(x[first + c]) / part[0].y"}),
    ("elements differ", {"pass_": PASS.replace("c < n", "c < n - 1")}),
    ("was read, which has", {"pass_": PASS.replace("c < n", "c < n + 64")}),
    ("which another invocation of its workgroup", {"tree": "part[lane] = mine;"}),
):  # fmt: skip
    wrong("07-4", says=words)(softmax(**lines))
