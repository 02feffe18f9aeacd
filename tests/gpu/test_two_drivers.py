"""lavapipe and SwiftShader in one process: two drivers, two devices, one answer."""

from __future__ import annotations

import pytest

from support.runs.child import run
from support.runs.two_drivers import both

IMPORTS = """
import numpy as np, vklab
from support.graphs.small_models import DATA, random_array, relu
names = [info.name for info in vklab.devices()]
llvmpipe = next(i for i, name in enumerate(names) if "llvmpipe" in name)
swiftshader = next(i for i, name in enumerate(names) if "SwiftShader" in name)
images = np.load(DATA / "digits.npz")["images"]
"""


def test_two_devices_are_listed_and_found_by_name():
    said = both(
        IMPORTS
        + """
assert len(names) == 2 and not any(info.refusal for info in vklab.devices())
with vklab.load(relu((1, 3)), "swiftshader") as one, vklab.load(relu((1, 3)), "LLVM") as other:
    assert one.device.index == swiftshader and other.device.index == llvmpipe
with vklab.load(relu((1, 3))) as session:
    print("default:", session.device.name)
"""
    )
    assert "default: llvmpipe" in said  # the faster compiler of the two


@pytest.mark.full
@pytest.mark.parametrize("validate", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_both_agree_on_digits_at_once(validate):
    both(
        IMPORTS
        + """
model = DATA / "digits_cnn.onnx"
with vklab.load(model, llvmpipe) as one, vklab.load(model, swiftshader) as other:
    for start in (0, 100, 1700):
        part = images[start : start + 50]
        first, second = one.run(part)["logits"], other.run(part)["logits"]
        assert abs(first - second).max() <= 1e-4, abs(first - second).max()
        assert other.check({"image": part}).passed and one.check({"image": part}).passed
""",
        VKLAB_VALIDATE=validate,
    )


@pytest.mark.full
def test_a_device_without_float16_rounds_to_it_and_saves_nothing():
    both(
        IMPORTS
        + """
weights, part = [], images[:20]
for dtype in (None, "float16"):
    with vklab.load(DATA / "digits_cnn.onnx", swiftshader, dtype=dtype) as session:
        assert session.check({"image": part}).passed and not session.host_reasons
        weights.append((session.plan.summary()["weights_bytes"], session.run(part)["logits"]))
(before, wide), (after, narrow) = weights
error = abs(narrow - wide).max() / abs(wide).max()
assert before == after and 1e-5 < error < 1e-2, (before, after, error)
"""
    )


@pytest.mark.slow
def test_threads_use_both_at_once():
    both(
        IMPORTS
        + """
import threading
wrong = []
def work(device):
    with vklab.load(DATA / "digits_cnn.onnx", device) as session:
        first = session.run(images[:20])["logits"]
        for _ in range(20):
            if not np.array_equal(session.run(images[:20])["logits"], first):
                wrong.append(device)
threads = [threading.Thread(target=work, args=(i,)) for i in (llvmpipe, swiftshader) * 2]
for thread in threads: thread.start()
for thread in threads: thread.join(240)
assert not wrong and not any(thread.is_alive() for thread in threads)
"""
    )


# conv_few takes SwiftShader half a minute.
@pytest.mark.full
@pytest.mark.parametrize("name", [
    "mlp", *(pytest.param(name, marks=pytest.mark.slow)
             for name in ("mini_classifier", "mnist12", "conv_few")),
])  # fmt: skip
def test_the_small_device_runs_every_model(name):
    both(
        IMPORTS
        + f"""
from vklab.apps.compare.models import graphs
path = DATA / "{name}.onnx"
model = path if path.exists() else graphs.build("{name}").SerializeToString()
with vklab.load(model, swiftshader) as session:
    (info,) = session.inputs
    x = random_array([d if isinstance(d, int) else 1 for d in info.shape])
    comparison = session.check({{info.name: x}})
    assert comparison.passed and comparison.max_abs_error <= 1e-4, comparison
    session.profile(x, repeats=1)
    session.profile(x, repeats=1)
    assert session.plan.summary()["host_nodes"] == []
"""
    )


# SwiftShader takes long to compile pipelines: a quarter of the operators runs by default.
@pytest.mark.full
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_every_operator_runs_on_the_small_device(step):
    said = both(
        """
import sys
from support.models import suite_cases
from vklab.apps import conformance
chosen = suite_cases.case_of_each_operator()[:: int(sys.argv[1])]
report = conformance.run(chosen, "SwiftShader")
bad = {c.name: o for c, o in report.outcomes.items() if o.status in ("wrong", "error")}
assert not bad, bad
print(report.counts()["pass"])
""",
        step,
    )
    assert int(said) > 130 // step


def test_nothing_is_left_of_two_devices():
    both(
        IMPORTS
        + """
from vklab.runtime import open_devices
from vklab.vulkan import api
kept = [vklab.load(relu((1, 3)), i) for i in (llvmpipe, swiftshader)]
open_devices.close_all()
assert api.live_handles() == {}, api.live_handles()
"""
    )


def test_no_driver_is_a_set_up_error():
    nothing = {"VK_DRIVER_FILES": "/no/such.json", "VK_ICD_FILENAMES": "/no/such.json"}
    done = run(
        """
import vklab
from support.graphs.small_models import relu
for use in (vklab.devices, lambda: vklab.load(relu((1, 3)))):
    try:
        use()
    except vklab.SetupError as error:
        print(error)
""",
        **nothing,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no Vulkan driver answers the loader") == 2
    assert done.stdout.count("to repair: ") == 2
