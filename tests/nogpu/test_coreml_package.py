"""Core ML packages on disk: exact errors for damage of every kind, and random damage."""

from __future__ import annotations

import importlib.util
import json
import random
import struct
import subprocess
import sys

import numpy as np
import pytest

from support.models import coreml_fields, coreml_written
from support.runs import tiers
from vklab.apps.compare.coreml import package, program
from vklab.base.names import internal
from vklab.errors import ModelError, UnsupportedOperatorError, UnusedWarning

INTERNAL = internal("y", "scratch0")
DATA = "Data/com.apple.CoreML"


@pytest.fixture
def written(tmp_path):
    """Return a small program and the path of its package."""
    made = coreml_written.small_program()
    return made, made.save(tmp_path)


def item(content):
    """Return a manifest's only item."""
    return content["itemInfoEntries"][coreml_written.IDENTIFIER]


def edit_manifest(path, change):
    """Change a package's manifest in place."""
    manifest = path / "Manifest.json"
    content = json.loads(manifest.read_text())
    change(content)
    manifest.write_text(json.dumps(content))


def test_values_keep_their_names(written):
    graph = program.import_package(written[1])
    assert [str(node) for node in graph.nodes] == ["y: y = Gemm(x, weight, bias)", "z: z = Relu(y)"]
    assert graph.outputs == ("z",) and [str(info) for info in graph.inputs] == ["x: float32[2,5]"]
    weight = graph.initializers["weight"].constant
    expected = np.random.default_rng(0).standard_normal((3, 5), np.float32)
    np.testing.assert_array_equal(weight, expected)


def test_a_missing_package_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no Core ML model"):
        program.import_package(tmp_path / "none.mlpackage")


@pytest.mark.parametrize(("change", "words"), [
    (lambda c: c.pop("itemInfoEntries"), "lacks itemInfoEntries"),
    (lambda c: c.update(rootModelIdentifier="ABC"), "'ABC' is no item"),
    (lambda c: item(c).pop("path"), "is no item with a path"),
    (lambda c: item(c).update(path="no.mlmodel"), "'no.mlmodel' is missing"),
    (lambda c: item(c).update(path="../../x"), "leaves the package"),
    (lambda c: item(c).update(path="a\0b"), "NUL byte"),
    (lambda c: item(c).update(path="\ud800"), "no file name"),
])  # fmt: skip
def test_damaged_manifests(written, change, words):
    edit_manifest(written[1], change)
    with pytest.raises(ModelError, match=words):
        package.open_package(written[1])


def test_a_manifest_that_is_no_json(written):
    (written[1] / "Manifest.json").write_bytes(b"{\xff")
    with pytest.raises(ModelError, match="is no JSON"):
        package.open_package(written[1])
    (written[1] / "Manifest.json").unlink()
    with pytest.raises(ModelError, match="has no Manifest.json"):
        package.open_package(written[1])


def test_a_truncated_model(written):
    file = written[1] / DATA / "model.mlmodel"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(ModelError, match="no Core ML model, or one that is cut off"):
        package.open_package(written[1])
    file.write_bytes(b"")
    with pytest.raises(ModelError, match="has no specification version"):
        package.open_package(written[1])


@pytest.mark.parametrize(("at", "value", "words"), [
    (0, struct.pack("<I", 9000), "counts 9000 arrays"),
    (4, struct.pack("<I", 1), "format version 1; 2 is supported"),
    (64, b"\0\0\0\0", "begins with 0x00000000, not 0xdeadbeef"),
    (68, struct.pack("<I", 1), "holds fp16, the program declares fp32"),
    (68, struct.pack("<I", 99), "holds unknown type 99"),
    (72, struct.pack("<Q", 56), r"holds 56 bytes with 0 bits of padding; fp32\[3, 5\] needs 480"),
    (72, struct.pack("<Q", 1 << 60), "must begin at a multiple of 64"),
    (80, struct.pack("<Q", 129), "points to bytes 129 to 189"),
    (80, struct.pack("<Q", 1 << 63), "must begin at a multiple of 64"),
])  # fmt: skip
def test_damaged_weight_files(written, at, value, words):
    file = written[1] / DATA / "weights" / "weight.bin"
    data = bytearray(file.read_bytes())
    data[at : at + len(value)] = value
    file.write_bytes(data)
    with pytest.raises(ModelError, match=words):
        program.import_package(written[1])


def test_weight_files_that_are_missing_or_short(written):
    file = written[1] / DATA / "weights" / "weight.bin"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ModelError, match=r"'weights/weight.bin' has 20 bytes"):
        program.import_package(written[1])
    file.unlink()
    with pytest.raises(ModelError, match="'weights/weight.bin' is missing in the package"):
        program.import_package(written[1])


@pytest.mark.parametrize(("name", "offset", "words"), [
    ("@model_path/weights/weight.bin", 65, "record at byte 65: a record begins at a multiple"),
    ("@model_path/weights/weight.bin", 1 << 40, "before the end, byte"),
    ("@model_path/weights/weight.bin", 0, "after the header"),
    ("@model_path/../../../Manifest.json", 64, "leaves the package"),
    ("/etc/hostname", 64, "leaves the package"),
])  # fmt: skip
def test_wrong_places_of_weights(written, name, offset, words, tmp_path):
    made = written[0]
    value = made.block.operations[0].attributes["val"].blobFileValue
    value.fileName, value.offset = name, offset
    with pytest.raises(ModelError, match=words):
        program.import_package(made.save(tmp_path))


def test_a_single_file_has_no_weights_beside_it(written):
    with pytest.raises(ModelError, match="is a single file, but its weights are in"):
        program.import_package(written[1] / DATA / "model.mlmodel")


def damaged(change):
    """Return a small program, changed."""
    made = coreml_written.small_program()
    change(made)
    return made


def _operation(made, number=-1):
    return made.block.operations[number]


@pytest.mark.parametrize(("change", "words"), [
    (lambda m: setattr(_operation(m), "type", "cumsum"),
     r"operation 'z' \(cumsum\): vklab has no MIL operator 'cumsum'; .*OPERATORS lists the \d+"),
    (lambda m: setattr(_operation(m).inputs["x"].arguments[0], "name", "q"),
     r"operation 'z' \(relu\) reads 'q', which nothing before it makes"),
    (lambda m: _operation(m).inputs.pop("x"), r"operation 'z' \(relu\) lacks its input 'x'"),
    (lambda m: _operation(m).inputs["k"].arguments.add(name="y"),
     r"has an input 'k'; vklab knows x"),
    (lambda m: _operation(m).inputs["x"].arguments.add(name="y"), "input 'x' has 2 values, not 1"),
    (lambda m: _operation(m).inputs["x"].arguments[0].Clear(), "is bound to nothing"),
    (lambda m: setattr(_operation(m).outputs[0].type.tensorType, "dataType", 10),
     r"declares z: float16\[2,3\], but its inputs give z: float32\[2,3\]"),
    (lambda m: setattr(_operation(m).outputs[0].type.tensorType, "dataType", 77), "data type 77"),
    (lambda m: setattr(_operation(m).outputs[0].type.tensorType, "rank", 9), "rank 9 and 2"),
    (lambda m: setattr(_operation(m).outputs[0], "name", "y"), "value 'y' is already defined"),
    (lambda m: setattr(_operation(m).outputs[0], "name", ""), "has no name"),
    (lambda m: (m.block.ClearField("outputs"), m.outputs(INTERNAL),
                setattr(_operation(m).outputs[0], "name", INTERNAL)),
     f"the name '{INTERNAL}' has the character"),
    (lambda m: _operation(m).outputs.pop(), r"operation 3 \(relu\) has no outputs"),
    (lambda m: _operation(m).blocks.add(), "control flow"),
    (lambda m: _operation(m, 0).attributes.pop("val"), r"'weight' \(const\) has no value"),
    (lambda m: m.outputs("nothing"), "output 'nothing' is made by no operation"),
    (lambda m: m.block.ClearField("outputs"), "has 0 inputs and 0 outputs; the function has the"),
    (lambda m: setattr(m.function, "opset", "CoreML99"), "no block for its opset 'CoreML99'"),
    (lambda m: setattr(m.model.description, "defaultFunctionName", "f"), "has no function 'f'"),
    (lambda m: m.model.ClearField("mlProgram"), "is a model of type unknown"),
    (lambda m: m.model.treeEnsembleRegressor.SetInParent(), "type treeEnsembleRegressor"),
    (lambda m: m.function.inputs[0].type.stateType.SetInParent(), "a state; vklab reads"),
])  # fmt: skip
def test_damaged_programs(change, words, tmp_path):
    with pytest.raises((ModelError, UnsupportedOperatorError), match=words):
        program.import_package(damaged(change).save(tmp_path))


def test_an_attribute_must_be_constant(tmp_path):
    made = coreml_written.small_program()
    made.input("axis", "int32", ())
    made.operation("softmax", "s", "float32", (2, 3), {"x": "z", "axis": "axis"})
    made.outputs("s")
    with pytest.raises(UnsupportedOperatorError, match="is 'axis', which is no constant"):
        program.import_package(made.save(tmp_path))


def test_immediate_values_of_the_wrong_length(tmp_path):
    made = coreml_written.small_program()
    made.const("c", np.ones(3, np.float32))
    value = _operation(made).attributes["val"]
    value.immediateValue.tensor.floats.values.append(1)
    with pytest.raises(ModelError, match=r"fp32\[3\] has 3 elements, the program holds 4"):
        program.import_package(made.save(tmp_path))


def test_packed_integers():
    for bits in (1, 2, 3, 4, 6):
        numbers = np.arange(11) * 5 % (1 << bits)
        every = "".join(format(n, f"0{bits}b")[::-1] for n in numbers)
        data = np.packbits(np.array([int(c) for c in every]), bitorder="little")
        np.testing.assert_array_equal(package.unpack(data, bits, 11), numbers)
    np.testing.assert_array_equal(package.unpack(np.uint8([0xF8]), 4, 2, is_signed=True), [-8, -1])


def test_parts_of_a_program_that_nothing_reads_are_named_or_refused(tmp_path):
    made = coreml_written.small_program()
    made.model.mlProgram.docString = "known"
    coreml_written.value_of(made.block.operations[-1].attributes["name"], "z")
    coreml_written.value_of(made.block.operations[-1].attributes["slope"], np.float32(3))
    with pytest.warns(UnusedWarning, match=r"nothing reads the fields relu\.slope; results may"):
        program.import_package(made.save(tmp_path, "a.mlpackage"))
    made = coreml_written.small_program()
    made.block.inputs.add(name="w")
    with pytest.raises(ModelError, match="has 1 inputs and 1 outputs; the function has the inputs"):
        program.import_package(made.save(tmp_path, "b.mlpackage"))
    made = coreml_written.small_program()
    made.function.inputs[0].type.tensorType.dimensions[0].unknown.variadic = True
    with pytest.raises(UnsupportedOperatorError, match="'x' has any number of axes"):
        program.import_package(made.save(tmp_path, "c.mlpackage"))


@pytest.mark.filterwarnings("ignore::vklab.errors.UnusedWarning")
def test_random_damage_gives_errors_of_ours(tmp_path):
    """Flip, cut and insert bytes of all three files: an import succeeds or raises ModelError."""
    made = coreml_written.small_program()
    made.operation("reshape", "r", "float32", (3, 2), {"x": "z", "shape": np.int32([3, 2])})
    made.operation(
        "slice_by_index",
        "s",
        "float32",
        (2,),
        {
            "x": "r",
            "begin": np.int32([0, 1]),
            "end": np.int32([2, 0]),
            "squeeze_mask": np.array([False, True]),
        },
    )
    made.outputs("s")
    path = made.save(tmp_path)
    files = [
        path / DATA / "model.mlmodel",
        path / DATA / "weights/weight.bin",
        path / "Manifest.json",
    ]
    originals = [file.read_bytes() for file in files]
    outcomes = set()
    for seed in range(tiers.examples(1200) // 2):
        chance = random.Random(seed)
        number = chance.choice([0, 0, 0, 1, 2])
        data = bytearray(originals[number])
        for _ in range(chance.choice([1, 1, 2, 5])):
            at = chance.randrange(len(data))
            how = chance.choice(["flip", "flip", "set", "cut", "insert"])
            if how == "flip":
                data[at] ^= 1 << chance.randrange(8)
            elif how == "set":
                data[at] = chance.choice([0, 1, 0x7F, 0xFF])
            elif how == "cut":
                del data[at : at + chance.randrange(1, 9)]
            else:
                data[at:at] = chance.randbytes(chance.randrange(1, 5))
        files[number].write_bytes(data)
        try:
            program.import_package(path)
            outcomes.add("imported")
        except ModelError as error:
            assert str(error)
            outcomes.add("refused")
        files[number].write_bytes(originals[number])
    assert outcomes == {"imported", "refused"}


@pytest.mark.slow
def test_an_import_needs_neither_coremltools_nor_torch(written):
    code = (
        "import sys; sys.modules['coremltools'] = sys.modules['torch'] = None; "
        "from vklab.apps.compare.coreml import program; "
        "print(program.import_package(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(written[1])], capture_output=True, text=True, check=True
    )
    assert done.stdout == "graph 'written': 2 nodes (1 Gemm, 1 Relu)\n"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("coremltools") is None, reason="needs coremltools")
def test_the_table_of_fields_is_that_of_coremltools():
    assert coreml_fields.differences() == []
