"""Answers to try the fixture lab's checks with."""

import math

from vklab_course.author.answers import alternative, wrong


@wrong("90-1", says="expected 0, got 64")
def always_one_more(count, multiple=256):
    return (count // multiple + 1) * multiple


@wrong("90-1", says="expected 0, got None (is a return missing?)")
def forgets_to_return(count, multiple=256):
    print(-(-count // multiple) * multiple)


@wrong("90-1", says="expected 64, got 0")
def rounds_down(count, multiple=256):
    return count // multiple * multiple


@wrong("90-1", says="on multiple=0: raised ZeroDivisionError")
def divides_by_zero(count, multiple=256):
    return -(-count // multiple) * multiple


@alternative("90-1")
def by_ceil(count, multiple=256):
    if multiple <= 0:
        raise ValueError("multiple")
    return math.ceil(count / multiple) * multiple


HEAD = """
#version 450
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 0) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint count; float factor; };
"""
wrong("90-2", says="on count=64: Y was written behind its end")(
    HEAD + "void main() { uint i = gl_GlobalInvocationID.x; y[i] = factor * x[i]; }"
)
wrong("90-2", says="64 of 64 elements differ")(
    HEAD + "void main() { uint i = gl_GlobalInvocationID.x; if (i < count) y[i] = 1.0 + x[i]; }"
)
wrong("90-2", says="kernel.comp:7: 'nix' : undeclared identifier")(
    HEAD + "void main() { nix = 1; }"
)
alternative("90-2")(
    HEAD + """
void main() {
    if (gl_GlobalInvocationID.x >= count) return;
    y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x] * factor;
}
"""
)
wrong("90-3", says="expected 16, got 15")(15)
wrong("90-3", says="expected 16, got 15.625")(1000 / 64)
alternative("90-3")(-(-1000 // 64))
