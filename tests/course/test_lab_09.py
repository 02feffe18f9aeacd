"""Lab 09: its claims about files, the checker, mapping, shapes and orders hold here."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import vklab
from support.course.scored import drawn_cases
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph import onnx_file, onnx_import
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.data import data
from vklab_course.definition.exercise import find
from vklab_course.places import PROJECT
from vklab_labs.lab_09 import dims, node_order, onnx_files
from vklab_labs.lab_09.onnx_bytes import HEAD
from vklab_labs.shared import swapped

LAB = find_lab("09", PROJECT / "labs")
drawn = drawn_cases("09-3", seconds=1.0)


def checks():
    """Return the module of the lab's definitions."""
    return sys.modules[type(find("09-1")).__module__]


def ordered(nodes, given, key):
    """Return the order that takes, of the ready nodes, the one with the smallest key."""
    left, known, order = {node[0]: node for node in nodes}, {*given, ""}, []
    while left:
        ready = [node for node in left.values() if known.issuperset(node[2])]
        name, *_, outputs = min(ready, key=key)
        del left[name]
        known |= {*outputs}
        order.append(name)
    return order


def test_the_checker_accepts_what_the_lab_says():
    plain = {words: onnx_files.verdict(model) for words, model in onnx_files.faults().items()}
    full = {words: onnx_files.verdict(model, True) for words, model in onnx_files.faults().items()}
    assert [*plain.values()] == ["refused"] * 4 + ["accepted"] * 4
    assert [*full.values()] == ["refused"] * 6 + ["accepted"] * 2


def test_vklab_sorts_one_of_the_faults_and_refuses_the_others():
    accepted = []
    for words, model in onnx_files.faults().items():
        try:
            with vklab.load(model) as session:
                session.run(
                    {
                        info.name: np.ones(
                            [dim if isinstance(dim, int) else 2 for dim in info.shape], info.dtype
                        )
                        for info in session.inputs
                    }
                )
            accepted.append(words)
        except (ModelError, UnsupportedOperatorError):
            pass
    assert accepted == ["a is read first"]


def test_only_large_raw_weights_are_mapped_and_follow_the_file(tmp_path):
    path = onnx_files.three_weights(tmp_path)
    one, two = (onnx_import.load_graph(path).initializers for _ in range(2))
    shared = {name: np.shares_memory(one[name].constant, two[name].constant) for name in one}
    assert shared == {"large": True, "small": False, "typed": False}
    file, offset, length, dtype, shape = trials.answer_of(LAB, "09-2")(tmp_path, "large")
    assert (file, length, dtype, shape) == ("model.onnx", 1 << 21, "float32", (512, 1024))
    with path.open("r+b") as changed:
        changed.seek(offset)
        changed.write(np.float32(-7).tobytes())
    assert one["large"].constant[0, 0] == -7


def test_places_of_the_solution_hold_the_array(tmp_path):
    locate = trials.answer_of(LAB, "09-2")
    random = np.random.default_rng(0)
    model = onnx.load(data("digits_cnn.onnx"))
    onnx.save(
        model,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=int(random.integers(100, 1000)),
    )
    graph = onnx_import.load_graph(tmp_path / "model.onnx")
    files = set()
    for name, info in graph.initializers.items():
        file, offset, length, dtype, shape = locate(tmp_path, name)
        files.add(file)
        content = (tmp_path / file).read_bytes()[offset : offset + length]
        assert np.array_equal(np.frombuffer(content, dtype).reshape(shape), info.constant)
    assert files == {"model.onnx", "weights.bin"}


def test_an_open_size_keeps_the_window_of_the_example():
    promised = onnx_files.open_image(data("mini_classifier.onnx"))
    assert onnx_files.verdict(promised, full_check=True) == "accepted"
    with vklab.load(promised) as session:
        rows = [
            session.run({"image": np.zeros((1, 3, size, size), np.float32)})["logits"].shape
            for size in (32, 64)
        ]
    assert rows == [(1, 10), (4, 10)]


@pytest.mark.full
def test_pytorch_keeps_the_window_of_the_example_behind_an_open_height():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from vklab.apps.compare.models import exporting

    sizes = {axis: torch.export.Dim(name) for axis, name in ((0, "N"), (2, "H"), (3, "W"))}
    with exporting.quiet():
        model = torch.onnx.export(
            exporting.build_module(),
            (torch.zeros(2, 3, 32, 32),),
            dynamo=True,
            dynamic_shapes=(sizes,),
            input_names=["image"],
            output_names=["logits"],
            opset_version=18,
            verbose=False,
        ).model_proto
    pool = next(node for node in model.graph.node if node.op_type == "AveragePool")
    about = {each.name: helper.get_attribute_value(each) for each in pool.attribute}
    assert about["kernel_shape"] == [8, 8]
    names = [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert names == ["N", "", "H", "W"]


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_rules_with_n_give_the_shapes_of_onnx_for_every_batch(batch):
    rule = dims.complete(trials.answer_of(LAB, "09-4"))
    model = onnx_files.open_batch(data("mini_classifier.onnx"))
    nodes, shapes = onnx_files.plain_graph(model)
    found, problem = dims.infer_graph(nodes, shapes, rule)
    assert not problem
    del model.graph.value_info[:]
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        real = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        sizes = [dims.elements([size]) for size in found[value.name]]
        assert real == [factor * batch**power for factor, power in sizes]


def test_the_models_of_the_planted_bug_fail_where_the_definition_says():
    find("09-5")
    rule, module = dims.complete(trials.answer_of(LAB, "09-4")), checks()
    for row, verdict in zip(module.ROWS, module.VERDICTS, strict=True):
        filters, size, pads, window, step, target, height = row
        conv = {"kernel_shape": [size] * 2, "strides": [1, 1], "pads": [pads] * 4}
        pool = {"kernel_shape": [window] * 2, "strides": [step] * 2, "pads": [0] * 4}
        nodes = [
            ("Conv", "Conv", ["x", "w"], ["a"], conv),
            ("MaxPool", "MaxPool", ["a"], ["b"], pool),
            ("Reshape", "Reshape", ["b"], ["c"], {"target": target, "allowzero": 0}),
            ("Gemm", "Gemm", ["c", "v"], ["y"], {}),
        ]
        given = {"x": ["N", 3, 32, 32], "w": [filters, 3, size, size], "v": [height, 10]}
        found, problem = dims.infer_graph(nodes, given, rule)
        right = "right" if found.get("y") == ["N", 10] else "output"
        assert (problem.split(" ")[0] or right) == verdict
        text = (
            f"g (float[N,3,32,32] x, float[{filters},3,{size},{size}] w, float[{height},10] v) "
            f"=> (float[N,10] y) <int64[{len(target)}] t = {{{', '.join(map(str, target))}}}> "
            f"{{ a = Conv <pads = {[pads] * 4}> (x, w) "
            f"b = MaxPool <kernel_shape = {[window] * 2}, strides = {[step] * 2}> (a) "
            "c = Reshape(b, t) y = Gemm(c, v) }"
        )
        assert onnx_files.verdict(onnx.parser.parse_model(HEAD + text)) == "accepted"


def test_no_valid_order_of_another_rule_is_accepted(drawn):
    exercise, _, cases = drawn
    windows = [case for case in cases if case.part == "order"]
    assert sum(len(case.args[0]) > 20 for case in windows) == 3
    keys = {
        "by name": lambda n: n[0],
        "Gemm first": lambda n: (n[1] != "Gemm", n[0]),
        "most inputs first": lambda n: (-len(n[2]), n[0]),
        "as given": lambda n: 0,
    }
    for words, key in keys.items():
        same = [ordered(*case.args, key) == case.expected[1] for case in windows]
        print(words, same)
        assert not all(same)


def test_the_guard_stops_orders_that_a_driver_must_not_see():
    for answer in (
        lambda nodes, given: ("order", [node[0] for node in nodes][::-1]),
        lambda nodes, given: ("order", []),
        lambda nodes, given: None,
        lambda nodes, given: ("cycle", [nodes[0][0]]),
    ):
        rows, problem = swapped.run_swapped(
            "vklab.graph.onnx_import.topological_order",
            node_order.asking(answer),
            planned=(),
            models=("digits_cnn.onnx",),
        )
        assert not rows and "AssertionError" in problem


def test_attributes_read_by_hand_are_those_of_protobuf():
    kind = type(find("09-1"))
    for number, params in enumerate(kind.variants):
        about = onnx.AttributeProto.FromString(bytes.fromhex(params["message"]))
        assert about.type == onnx.AttributeProto.INT
        right = [(1, 2, about.name.encode()), (3, 0, about.i), (20, 0, about.type)]
        assert kind(number).expected(None) == right


def test_the_walker_agrees_with_protobuf_on_a_whole_file():
    file = data("mini_classifier.onnx").read_bytes()
    whole = onnx_file.fields(file, 0, len(file))
    graph = next(each for each in whole if each[0] == onnx_file.GRAPH)
    names = [tensor.name for tensor in onnx.load_from_string(file).graph.initializer]
    found = [
        TensorProto.FromString(file[first:last]).name
        for number, _, first, last in onnx_file.fields(file, *graph[2:])
        if number == onnx_file.INITIALIZER
    ]
    assert found == names


def test_a_location_outside_of_the_folder_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "w.bin").write_bytes(b"1234")
    (tmp_path / "in" / "w.bin").write_bytes(b"12")
    assert onnx_files.bytes_in(tmp_path / "in", "w.bin") == 2
    for location in ("../w.bin", "sub/../../w.bin", str(tmp_path / "w.bin"), "v.bin", "."):
        with pytest.raises(ValueError, match="no file"):
            onnx_files.bytes_in(tmp_path / "in", location)
