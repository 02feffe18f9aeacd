// vector_add: y[i] = a[i] + b[i]                                        the first kernel of the course
// one invocation per element; the last workgroup may be only partly full, hence the guard.
#version 450

layout(local_size_x = 64) in;

layout(set = 0, binding = 0) readonly buffer A { float a[]; };
layout(set = 0, binding = 1) readonly buffer B { float b[]; };
layout(set = 0, binding = 2) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Params { uint count; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < count) y[i] = a[i] + b[i];
}
