"""Heads of kernels for files of answers: what stands before the lines that an answer is about."""

from __future__ import annotations

__all__ = ["glsl_head", "slang_head"]


def slang_head(*inputs: str, pushed: str = "uint count;", local: str = "64, 1") -> str:
    """Return a kernel in Slang from its buffers to the opening brace of `main(uint3 id)`.

    Args:
        *inputs: names of the buffers of floats that are read; `y` is written.
        pushed: the struct of push constants, `params`.
        local: the size of a workgroup along x and y.
    """
    buffers = "".join(f"StructuredBuffer<float> {name};\n" for name in inputs)
    return f"""{buffers}RWStructuredBuffer<float> y;
struct Params {{ {pushed} }};
[vk::push_constant] ConstantBuffer<Params> params;

[shader("compute")]
[numthreads({local}, 1)]
void main(uint3 id : SV_DispatchThreadID) {{
"""


def glsl_head(pushed: str = "uint count;", local: str = "local_size_x = 64") -> str:
    """Return a kernel in GLSL that reads `x` and writes `y`, to the opening brace of `main()`.

    Args:
        pushed: the block of push constants, without a name.
        local: the size of a workgroup, as a layout.
    """
    return f"""
#version 450
layout({local}) in;
layout(set = 0, binding = 0) readonly buffer X {{ float x[]; }};
layout(set = 0, binding = 1) buffer Y {{ float y[]; }};
layout(push_constant) uniform Params {{ {pushed} }};
void main() {{
"""
