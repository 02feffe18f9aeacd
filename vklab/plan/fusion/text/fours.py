"""Generate the epilogue of a kernel that stores four neighbours of a row at once (WIDE_Y=1).

What it reads for them arrives in one load each, and before the results do. `plan/tuning` decides
where that is possible. Visited by lab 10.
"""

from __future__ import annotations

from vklab.ops import dtypes
from vklab.ops.dtypes import ELEMENTS
from vklab.plan.fusion.text import codegen, rounding
from vklab.plan.fusion.text.generated import Function
from vklab.types import Dispatch, Pointwise, TensorInfo


def emit(dispatch: Dispatch) -> Dispatch:
    """Return a dispatch with its epilogue as Slang for four elements at once."""
    assert dispatch.epilogue is not None
    result, native = dispatch.writes[0][1], bool(rounding.kept(dispatch))
    return codegen.joined(dispatch, [_store_function(dispatch.epilogue, result, native)])


def _store_function(work: Pointwise, result: TensorInfo, native: bool) -> Function:
    code = Function(native=native)
    code.imports += ["lib.elementwise", "lib.numeric"]
    names, given, fields, loads = ["value"], [], [], []
    for operand in work.operands[1:]:
        name = f"x{len(code.reads)}"
        kind, binding = name.upper(), f"{name}_buffer"
        code.reads.append((binding, operand.info))
        code.defines |= dict(dtypes.type_defines(kind, operand.dtype)[:2])
        is_row = operand.view.strides[-1:] == (1,)
        at = codegen.offset(code, work, operand.view)
        code.buffers.append(
            f"StructuredBuffer<{f'vector<{kind}, 4>' if is_row else kind}> {binding};"
        )
        loads.append(
            f"    others.{name} = {binding}[({at}) / 4];"
            if is_row
            else f"    others.{name} = vector<{kind}, 4>({binding}[{at}]);"
        )
        fields.append(f"    vector<{kind}, 4> {name};")
        given.append(f"{kind}_LOAD(others.{name}[j])")
        names.append(name)
        if operand.view.is_dense(work.shape) and operand.info.dtype == result.dtype:
            code.in_place.append(binding)
    kinds = [ELEMENTS[operand.dtype].value for operand in work.operands]
    parameters = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, names, strict=True))
    own = native and rounding.stays_half(work, 0)
    names[0] = "own" if own else "value"
    body = codegen.steps(code, work, names, False, ["own"] if own else ())
    if own:
        body.insert(0, "    half own = half(value);")
    elif names[-1] != "value":  # a result that is only moved is rounded when it is stored
        body.insert(0, codegen.rounded(code, "value", "value", work.operands[0].dtype, False))
    storage, _, store = dtypes.type_defines("Y", result.dtype)
    place = codegen.offset(code, work, work.target) if work.target else "element"
    code.defines |= dict((storage, store))
    code.imports += codegen.integers(work)
    call = f"one_fused({', '.join(['values[j]', *given])})"
    code.lines += [
        "#define FETCH_FOURS(element) fetch_fused(element)",
        "#define STORE_FOURS(element, values, others) store_fused(element, values, others)",
        f"// store four: {codegen.titles(work)}",
        *code.buffers,
        *(["struct Others {", *fields, "};"] if fields else ["typealias Others = uint;"]),
        "Others fetch_fused(uint element) {",
        *(
            ["    Others others;", *code.indices, *loads, "    return others;"]
            if fields
            else ["    return 0;"]
        ),
        "}",
        f"{ELEMENTS[work.formulas[-1].dtype].value} one_fused({parameters}) {{",
        *body,
        f"    return {names[-1]};",
        "}",
        f"vector<Y, 4> store_fused(uint element, vector<{kinds[0]}, 4> values, Others others) {{",
        *code.indices,
        "    vector<Y, 4> four;",
        f"    [unroll] for (uint j = 0; j < 4; ++j) four[j] = Y(Y_STORE({call}));",
        f"    y_buffer[({place}) / 4] = four;",
        "    return four;",
        "}",
    ]
    return code
