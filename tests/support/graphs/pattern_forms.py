"""Patterns as exporters write them, and what looks like one and is not; see `written`."""

from __future__ import annotations

# Each: (the operators that are left of it; the model).
Forms = dict[str, tuple[str, str]]

_MEAN = "m = ReduceMean(x, axes=(-1,)); d = Sub(x, m)"
_SQUARES = f"{_MEAN}; s = ReduceMean(Pow(d, 2.0), axes=(-1,))"

LAYER_NORM: Forms = {
    "torch": ("LayerNormalization", f"{_SQUARES}; n = Div(d, Sqrt(Add(s, 1e-5)));"
              "y = Add(Mul(n, w), b)"),
    "bert": ("LayerNormalization", f"{_MEAN}; s = ReduceMean(Mul(d, d), axes=(2,));"
             "y = Add(b, Mul(w, Div(Sub(x, m), Sqrt(Add(1e-12, s)))))"),
    "tensorflow": ("LayerNormalization", f"{_SQUARES}; f = Mul(Reciprocal(Sqrt(Add(s, 1e-3))), w);"
                   "y = Add(Mul(x, f), Sub(b, Mul(m, f)))"),
    "tensorflow, no scale": ("LayerNormalization", f"{_SQUARES}; f = Reciprocal(Sqrt(Add(s, .1)));"
                             "y = Add(Mul(x, f), Sub(b, Mul(m, f)))"),
    "no bias": ("LayerNormalization", f"{_SQUARES}; y = Mul(Div(d, Sqrt(Add(s, 0.1))), w)"),
    "neither": ("LayerNormalization", f"{_SQUARES}; y = Mul(d, Pow(Add(s, 0.1), -0.5))"),
    "power of half": ("LayerNormalization", f"{_SQUARES}; y = Div(d, Pow(Add(s, 0.1), 0.5))"),
    "two axes": ("LayerNormalization", "m = ReduceMean(x, axes=(1, 2)); d = Sub(x, m);"
                 "y = Div(d, Sqrt(Add(ReduceMean(Mul(d, d), axes=(-2, -1)), 0.1)))"),
}  # fmt: skip
NOT_LAYER_NORM: Forms = {
    "another axis": ("ReduceMean Sub Mul ReduceMean Add Sqrt Div",
                     "m = ReduceMean(x, axes=(1,)); d = Sub(x, m);"
                     "y = Div(d, Sqrt(Add(ReduceMean(Mul(d, d), axes=(1,)), 0.1)))"),
    "two different axes": ("ReduceMean Sub RMSNormalization",
                           "m = ReduceMean(x, axes=(2,)); d = Sub(x, m);"
                           "y = Div(d, Sqrt(Add(ReduceMean(Mul(d, d), axes=(1, 2)), 0.1)))"),
    "epsilon is an input": ("ReduceMean Sub Pow ReduceMean Add Sqrt Div",
                            f"{_SQUARES}; y = Div(d, Sqrt(Add(s, e)))"),
    "a cube": ("ReduceMean Sub Pow ReduceMean Add Sqrt Div",
               f"{_MEAN}; s = ReduceMean(Pow(d, 3.0), axes=(-1,)); y = Div(d, Sqrt(Add(s, 9.0)))"),
    "two inputs": ("ReduceMean Sub Pow ReduceMean Add Sqrt Div",
                   f"{_SQUARES}; y = Div(z, Sqrt(Add(s, 0.1)))"),
    "another reader": ("ReduceMean Sub Pow ReduceMean Add Sqrt Div Add",
                       f"{_SQUARES}; y = Add(s, Div(d, Sqrt(Add(s, 0.1))))"),
    "another reader of the distance": ("ReduceMean Sub RMSNormalization Add",
                                       f"{_SQUARES}; y = Add(d, Div(d, Sqrt(Add(s, 0.1))))"),
}  # fmt: skip

_POWER = "s = Add(ReduceMean(Pow(x, 2.0), axes=(-1,)), 1e-6)"
RMS_NORM: Forms = {
    "torch": ("RMSNormalization", f"{_POWER}; y = Mul(w, Mul(x, Div(1.0, Sqrt(s))))"),
    "reciprocal": ("RMSNormalization", f"{_POWER}; y = Mul(Mul(x, Reciprocal(Sqrt(s))), w)"),
    "root": ("RMSNormalization", "y = Div(x, Sqrt(Add(ReduceMean(Mul(x, x), axes=(-1,)), 1e-6)))"),
    "power": ("RMSNormalization", f"{_POWER}; y = Mul(Mul(x, Pow(s, -0.5)), w)"),
    "a large weight stays": ("RMSNormalization Mul", f"{_POWER}; y = Mul(z, Div(x, Sqrt(s)))"),
}  # fmt: skip
NOT_RMS_NORM: Forms = {
    "another axis": ("Pow ReduceMean Add Sqrt Div",
                     "y = Div(x, Sqrt(Add(ReduceMean(Pow(x, 2.0), axes=(1,)), 1e-6)))"),
    "a sum": ("Pow ReduceL1 Add Sqrt Div",
              "y = Div(x, Sqrt(Add(ReduceL1(Pow(x, 2.0), axes=(-1,)), 1e-6)))"),
    "epsilon is an input": ("Mul ReduceMean Add Mul Sqrt Div",
                            "s = Add(ReduceMean(Mul(x, x), axes=(-1,)), Mul(e, e));"
                            "y = Div(x, Sqrt(s))"),
}  # fmt: skip

_ERF = "s = Add(Erf(Div(x, 1.4142135)), 1.0)"
_TANH = "Tanh(Mul(0.7978846, Add(x, Mul(0.044715, Pow(x, 3.0)))))"
GELU: Forms = {
    "torch": ("Gelu", f"{_ERF}; y = Mul(Mul(x, s), 0.5)"),
    "half first": ("Gelu", f"{_ERF}; y = Mul(Mul(0.5, x), s)"),
    "half inside": ("Gelu", f"{_ERF}; y = Mul(x, Mul(s, 0.5))"),
    "divided": ("Gelu", f"{_ERF}; y = Div(Mul(s, x), 2.0)"),
    "multiplied": ("Gelu", "y = Mul(Mul(x, 0.5), Add(1.0, Erf(Mul(x, 0.70710677))))"),
    "tanh": ("Gelu", f"y = Mul(Mul(x, 0.5), Add({_TANH}, 1.0))"),
    "tanh by products": ("Gelu", "t = Mul(0.7978846, Add(x, Mul(Mul(Mul(0.044715, x), x), x)));"
                         "y = Mul(0.5, Mul(x, Add(1.0, Tanh(t))))"),
    "tanh in Horner's form": ("Gelu", "t = Mul(Mul(0.7978846, x), Add(1.0, Mul(0.044715,"
                              "Mul(x, x)))); y = Mul(Mul(0.5, x), Add(1.0, Tanh(t)))"),
}  # fmt: skip
NOT_GELU: Forms = {
    "0.49": ("Div Erf Add Mul Mul", f"{_ERF}; y = Mul(Mul(x, s), 0.49)"),
    "another root": ("Div Erf Add Mul Mul",
                     "y = Mul(Mul(x, Add(Erf(Div(x, 1.41)), 1.0)), 0.5)"),
    "two inputs": ("Div Erf Add Mul Mul", f"{_ERF}; y = Mul(Mul(z, s), 0.5)"),
    "another reader": ("Div Erf Add Mul Mul Add", f"{_ERF}; y = Add(s, Mul(Mul(x, s), 0.5))"),
    "another factor of the cube": ("Mul Pow Mul Add Mul Tanh Add Mul", "y = Mul(Mul(x, 0.5), Add("
                                   f"{_TANH.replace('0.044715', '0.0447')}, 1.0))"),
    "QuickGelu": ("Mul Sigmoid Mul", "y = Mul(x, Sigmoid(Mul(x, 1.702)))"),
}  # fmt: skip

_SCORES = "s = Mul(MatMul(q, Transpose(k, perm=(0, 1, 3, 2))), 0.577)"
ATTENTION: Forms = {
    "no mask": ("Attention", f"{_SCORES}; y = MatMul(Softmax(s, axis=-1), v)"),
    "no scale": ("Attention", "s = MatMul(q, Transpose(k, perm=(0, 1, 3, 2)));"
                 "y = MatMul(Softmax(s, axis=3), v)"),
    "divided, mask": ("Attention", "s = Div(MatMul(q, Transpose(k, perm=(0, 1, 3, 2))), 1.73);"
                      "y = MatMul(Softmax(Add(s, m)), v)"),
    "both scaled": ("Attention", "s = MatMul(Mul(q, 0.76), Mul(Transpose(k, perm=(0, 1, 3, 2)),"
                    "0.76)); y = MatMul(Softmax(Add(m, s)), v)"),
    "guarded": ("Where Attention", f"{_SCORES}; p = Softmax(Add(s, Where(o, 0.0, -1e999)));"
                "y = MatMul(Where(IsNaN(p), 0.0, p), v)"),
    "chosen": ("Attention", f"{_SCORES}; y = MatMul(Softmax(Where(o, s, -10000.0)), v)"),
    "closed": ("Not Attention", f"{_SCORES}; y = MatMul(Softmax(Where(o, -3.4e38, s)), v)"),
    "heads from rows": ("Reshape Transpose Reshape Transpose Reshape Transpose Attention Transpose "
                        "Reshape", "q4 = Transpose(Reshape(f, (2, 5, 4, 3)), perm=(0, 2, 1, 3));"
                        "k4 = Transpose(Reshape(n, (2, 7, 4, 3)), perm=(0, 2, 3, 1));"
                        "v4 = Transpose(Reshape(n1, (2, 7, 4, 3)), perm=(0, 2, 1, 3));"
                        "p = Softmax(Add(Mul(MatMul(q4, k4), 0.5), m), axis=-1);"
                        "y = Reshape(Transpose(MatMul(p, v4), perm=(0, 2, 1, 3)), (2, 5, 12))"),
    "turned flat": ("Attention", "t = Transpose(Reshape(k, (8, 7, 3)), perm=(0, 2, 1));"
                    "y = MatMul(Softmax(MatMul(q, Mul(Reshape(t, (2, 4, 3, 7)), 0.5))), v)"),
    "joined before": ("Reshape Mul Reshape Attention", "j = Mul(Reshape(k, (8, 7, 3)), 1.5);"
                      "y = MatMul(Softmax(MatMul(q, Reshape(Transpose(j, perm=(0, 2, 1)),"
                      "(2, 4, 3, 7)))), v)"),
    "rows before heads": ("Reshape Mul Transpose Reshape Attention",
                          "j = Mul(Reshape(k, (7, 8, 3)), 1.5); y = MatMul(Softmax(MatMul(q,"
                          "Reshape(Transpose(j, perm=(1, 2, 0)), (2, 4, 3, 7)))), v)"),
    "grouped": ("Attention", "k4 = Reshape(Expand(Unsqueeze(g, (2,)), (2, 2, 2, 7, 3)),"
                "(2, 4, 7, 3)); v4 = Reshape(Expand(Unsqueeze(h, (2,)), (2, 2, 2, 7, 6)),"
                "(2, 4, 7, 6));"
                "y = MatMul(Softmax(MatMul(q, Transpose(k4, perm=(0, 1, 3, 2)))), v4)"),
}  # fmt: skip
NOT_ATTENTION: Forms = {
    "another axis": ("Transpose MatMul Mul Softmax MatMul",
                     f"{_SCORES}; y = MatMul(Softmax(s, axis=2), v)"),
    "another reader": ("Transpose MatMul Mul Softmax MatMul ReduceMax Mul",
                       f"{_SCORES}; y = Mul(MatMul(Softmax(s), v), ReduceMax(s))"),
    "the scale is an input": ("Transpose MatMul Mul Softmax MatMul",
                              "s = Mul(MatMul(q, Transpose(k, perm=(0, 1, 3, 2))), e);"
                              "y = MatMul(Softmax(s), v)"),
    "keys as they are": ("Reshape MatMul Softmax MatMul", "y = MatMul(Softmax(MatMul(k, Reshape(k1,"
                         "(2, 4, 3, 7)))), v)"),
    "a mask for more batches": ("Slice Slice Slice Transpose MatMul Add Softmax MatMul",
                                "c = Slice(q, (0,), (1,), (0,));"
                                "j = Slice(k, (0,), (1,), (0,));"
                                "s = MatMul(c, Transpose(j, perm=(0, 1, 3, 2)));"
                                "y = MatMul(Softmax(Add(s, m)), Slice(v, (0,), (1,), (0,)))"),
}  # fmt: skip
_HALVES = "Concat(Neg(Slice(q8, (4,), (99,), (3,), (1,))), Slice(q8, (0,), (4,), (-1,)), axis=-1)"
_HEADS = "q8 = Reshape(x, (2, 1, 5, 8)); c = Reshape(z, (2, 1, 5, 8));i = Reshape(z1, (2, 1, 5, 8))"
ROTARY: Forms = {
    "torch": (
        "Reshape Reshape Reshape RotaryEmbedding",
        f"{_HEADS}; y = Add(Mul(q8, c), Mul({_HALVES}, i))",
    ),
    "the other way": (
        "Reshape Reshape Reshape RotaryEmbedding",
        f"{_HEADS}; y = Add(Mul(i, {_HALVES}), Mul(c, q8))",
    ),
}
_UNTURNED = "Reshape Reshape Reshape Slice Slice Neg Concat Mul Mul Add"
NOT_ROTARY: Forms = {
    "halves in order": (_UNTURNED, f"{_HEADS}; y = Add(Mul(q8, c), Mul(Concat(Neg(Slice(q8, (0,),"
                        "(4,), (3,))), Slice(q8, (4,), (8,), (3,)), axis=-1), i))"),
    "another axis": (_UNTURNED, f"{_HEADS}; y = Add(Mul(q8, c), Mul(Concat(Neg(Slice(q8, (3,),"
                     "(5,), (2,))), Slice(q8, (0,), (3,), (2,)), axis=2), i))"),
    "two inputs": (_UNTURNED, f"{_HEADS}; y = Add(Mul(c, i), Mul({_HALVES}, i))"),
}  # fmt: skip
# The passes that search patterns: what each must find, and what only looks alike.
PATTERNS = {
    "fuse_layer_norm": (LAYER_NORM, NOT_LAYER_NORM), "fuse_rms_norm": (RMS_NORM, NOT_RMS_NORM),
    "fuse_gelu": (GELU, NOT_GELU), "fuse_attention": (ATTENTION, NOT_ATTENTION),
    "fuse_rotary": (ROTARY, NOT_ROTARY),
}  # fmt: skip
FORMS = {name: forms for name, (forms, _) in PATTERNS.items()}
NOT_FORMS = {name: forms for name, (_, forms) in PATTERNS.items()}
