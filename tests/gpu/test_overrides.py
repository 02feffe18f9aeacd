"""Initializers that are inputs too: a run may override them, as in ONNX Runtime."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import onnx
import pytest

import vklab
from support.graphs.overridable import OVERRIDES, feeds, network, reference, require_close
from support.graphs.small_models import model, random_array, value
from support.runs.two_drivers import both
from vklab import settings
from vklab.apps import cli
from vklab.errors import ModelError

pytestmark = pytest.mark.full
NODE = onnx.helper.make_node


@pytest.mark.parametrize(("ir_version", "opset"), [(3, 8), (8, 17)])
def test_runs_agree_with_onnx_runtime(ir_version, opset, device):
    proto = network(ir_version, opset)
    run = reference(proto)
    with vklab.load(proto, device) as session:
        assert [info.name for info in session.inputs] == ["x"]
        assert sorted(info.name for info in session.defaults) == sorted(run.names)
        for batch in (4, 2):
            for fed in feeds(batch):
                require_close(session.run(fed), run(fed))
        chosen = next(iter(feeds()))
        for fed in ({**chosen, "w": OVERRIDES["w"]}, {**chosen, "flag": OVERRIDES["flag"]}):
            assert session.check(fed).passed and session.check(fed, nodes=True).passed
            require_close(session.reference(fed), run(fed))
            with settings.settings(CHECK="outputs"):
                session.run(fed)


def test_a_run_without_overrides_keeps_its_constants_and_its_plan(device):
    fed = next(iter(feeds()))
    with vklab.load(network(), device) as session:
        session.run(fed)
        before, entry = session.plan, next(session.roots[0].path())
        folded = {node.name for chunk in before.chunks for node in chunk.graph.nodes}
        assert "fold" not in folded and all(c.is_on_device for c in before.chunks)
        session.run({**fed, "v": OVERRIDES["scale"]})
        assert session.plan.chunks != before.chunks
        sources = [chunk.source or chunk.graph for chunk in session.plan.chunks]
        assert "fold" in {node.name for graph in sources for node in graph.nodes}
        assert not session.host_reasons
        session.run(fed)
        assert next(session.roots[0].path()) is entry and session.plan.chunks == before.chunks
        session.run({**fed, "v": OVERRIDES["scale"]})
        assert len(session.roots[0].entries) == 2  # each was planned once


def test_two_initializers_of_one_shape_are_two_overrides(device):
    nodes = [NODE("Sub", ["x", "a"], ["d"], "sub"), NODE("Mul", ["d", "b"], ["y"], "mul")]
    inputs = [value("x", ("n",)), value("a", (3,)), value("b", (3,))]
    constants = {"a": random_array((3,)), "b": random_array((3,), 1)}
    x, other = random_array((3,), 2), random_array((3,), 3)
    with vklab.load(model(nodes, inputs, ["y"], constants), device) as session:
        for _ in range(2):
            for given in ({"a": other}, {"b": other}, {}, {"b": other, "a": x}):
                a, b = ({**constants, **given}[name] for name in "ab")
                np.testing.assert_allclose(
                    session.run({"x": x, **given})["y"], (x - a) * b, rtol=1e-6
                )


def test_overrides_are_checked_as_inputs_are(device):
    proto = network()
    x = random_array((4, 5))
    with vklab.load(proto, device) as session:
        for given, says in (
            ({"w": OVERRIDES["w"].astype(float)}, r"input w: float32\[5,6\] is given as float64"),
            ({"w": OVERRIDES["w"].T}, r"input w: float32\[5,6\] is given with shape \(6, 5\)"),
            ({"o": x}, r"inputs \['o'\] are not known; the model has x: float32\[batch,5\]$"),
            (
                {"fixed": x},
                r"\['fixed'\] are not known; .*; to override \['fixed'\], load an ONNX "
                "file that lists them as inputs",
            ),
        ):
            with pytest.raises(ModelError, match=says):
                session.run({"x": x, **given})
        with pytest.raises(ModelError, match=r"inputs \['x'\] are missing"):
            session.run({"w": OVERRIDES["w"]})


def test_frames_profiles_and_traces_take_overrides(device):
    proto = network()
    run, every = reference(proto), list(feeds())
    with vklab.load(proto, device) as session:
        for fed, found in zip(every, session.map(iter(every), in_flight=3), strict=True):
            require_close(found, run(fed))
        require_close(session.submit(every[1]).result(), run(every[1]))
        require_close(asyncio.run(session.run_async(every[2])), run(every[2]))
        assert "matmul" in str(session.profile(every[1], repeats=1))
        assert session.time(every[1], repeats=2).host_ns and session.trace(every[1]).spans
        require_close(session.run(every[1]), run(every[1]))


def test_overrides_under_upper_bounds_and_in_half_precision(device):
    proto = network()
    run = reference(proto)
    with vklab.load(proto, device, upper_bounds={"batch": 8}) as session:
        for batch in (4, 8, 2):
            for fed in feeds(batch):
                require_close(session.run(fed), run(fed))
        with pytest.raises(ModelError, match="above its upper bound"):
            session.run({"x": random_array((9, 5)), "w": OVERRIDES["w"]})
    fed = {"x": random_array((4, 5)), "w": OVERRIDES["w"]}
    with vklab.load(proto, device, dtype="float16") as session:
        expected = run(fed)["y"]
        np.testing.assert_allclose(session.run(fed)["y"], expected, rtol=2e-2, atol=2e-2)


def test_a_compiled_model_says_to_load_the_onnx_file(device_index, tmp_path, capsys):
    proto = network()
    onnx.save(proto, tmp_path / "net.onnx")
    target = tmp_path / "net.vklab"
    arguments = (
        "compile",
        str(tmp_path / "net.onnx"),
        "-o",
        str(target),
        "--dim=batch=4",
        f"--device={device_index}",
    )
    assert cli.main([*arguments]) == 0
    fed = next(iter(feeds()))
    with vklab.load(target, device_index) as session:
        require_close(session.run(fed), reference(proto)(fed))
        assert session.defaults == ()
        with pytest.raises(ModelError, match=r"to override \['w'\], load an ONNX file that lists"):
            session.run({**fed, "w": OVERRIDES["w"]})


def test_the_command_line_overrides_what_input_names(device_index, tmp_path, capsys):
    proto = network()
    onnx.save(proto, tmp_path / "net.onnx")
    fed = {"x": random_array((4, 5)), "w": OVERRIDES["w"]}
    np.savez(tmp_path / "fed.npz", **fed)
    command = ("run", str(tmp_path / "net.onnx"), f"--device={device_index}")
    given = (f"--input={tmp_path / 'fed.npz'}", "--check", "--output", str(tmp_path), "--repeat=1")
    assert cli.main([*command, *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["check"]["passed"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), reference(proto)(fed)["y"], rtol=1e-5)
    np.save(tmp_path / "fixed.npy", fed["w"])
    assert cli.main([*command, f"--input=fixed={tmp_path / 'fixed.npy'}"]) == 2
    assert "the model has x, w, b" in " ".join(capsys.readouterr().err.split())


@pytest.mark.full
def test_split_models_and_replicas_take_overrides():
    both("""
import vklab
from support.graphs.overridable import *
from support.runs.split_models import BOTH
proto = network()
run = reference(proto)
place = {"matmul": BOTH[0], "add": BOTH[1], "shift": BOTH[1]}
bounds = {"batch": 4}
for options in ({"place": place}, {"replicate": True}, {"place": place, "upper_bounds": bounds}):
    with vklab.load(proto, devices=BOTH, **options) as session:
        every = [*feeds()]
        for fed in every[:7]:
            require_close(session.run(fed), run(fed))
            assert session.check(fed).passed
        for fed, found in zip(every, session.map(iter(every), in_flight=2), strict=True):
            require_close(found, run(fed))
""")
