"""A program that uses the typed package: what mypy --strict says of it is tested."""

from __future__ import annotations

__all__ = ["USER"]

# The flags of `mypy --strict`, for this file only: one run of mypy checks the package as well.
USER = """# mypy: disallow-any-generics, disallow-untyped-calls, disallow-untyped-defs
# mypy: disallow-incomplete-defs, check-untyped-defs, disallow-untyped-decorators
# mypy: disallow-subclassing-any, warn-unused-ignores, warn-return-any, no-implicit-reexport
# mypy: strict-equality, extra-checks
import logging
import numpy as np
from typing import assert_type
import vklab
from vklab.runtime.observe.compare import Comparison
from vklab.runtime.observe.host_nodes import HostNodes
from vklab.runtime.observe.profile import Profile, Timing
from vklab.base.trace import Trace
from vklab import (DeviceBinding, DeviceInfo, DeviceTensor, HostWarning, ModelError, Session,
                   TensorInfo, VklabError, load)

def classify(path: str, image: np.ndarray) -> int:
    with load(path, device="gpu", upper_bounds={"batch": 8}) as session:
        outputs: dict[str, np.ndarray] = session.run({"image": image})
        infos: tuple[TensorInfo, ...] = session.output_infos
        names: tuple[str, ...] = session.outputs
        device: DeviceInfo = session.device
        logging.info("%s %s %s %s", infos, names, device.name, session.host_nodes.total)
    return int(outputs[names[0]].argmax())

def generate(session: Session, first: np.ndarray) -> np.ndarray:
    bound: DeviceBinding
    with session.bind({"token": first}, state={"past": "present"}, in_place=["token"]) as bound:
        bound.inputs["token"][...] = first
        logits: DeviceTensor = bound.run({"token": first})["logits"]
        chosen: dict[str, np.ndarray] = session.run(first, outputs=["logits"])
        print(logits.dtype, logits.shape, bound.reason, bound.inputs["token"].origin, chosen)
        shared: np.ndarray = np.from_dlpack(logits)
        total: np.ndarray = logits.numpy() + np.asarray(bound.outputs["present"]) + shared
        return total


async def later(session: Session, first: np.ndarray) -> np.ndarray:
    frames: list[dict[str, np.ndarray]] = list(session.map([first, first], in_flight=2))
    queued: dict[str, np.ndarray] = session.submit(first).result(60)
    outputs: dict[str, np.ndarray] = await session.run_async({"token": first})
    reveal_type(session.map)
    expected: dict[str, np.ndarray] = session.reference(first)
    return np.stack([each["y"] for each in (outputs, queued, frames[0], expected)])

def look(session: Session, first: np.ndarray) -> str:
    assert_type(session.bind(first), DeviceBinding)
    assert_type(session.profile(first, repeats=2), Profile)
    assert_type(session.time(first), Timing)
    assert_type(session.trace(first, steps=False), Trace)
    assert_type(session.check(first, nodes=True), Comparison)
    assert_type(session.host_nodes, HostNodes)
    return session.check(first).picture() + f"{session.time(first).overhead_ns:.0f}"

def write(path: str) -> str:
    with vklab.llm.load(path, context=512) as model:
        assert_type(model, vklab.llm.LanguageModel)
        answer = model.generate("Once", options=vklab.llm.SamplingOptions(temperature=0.5))
        return "".join(answer) + answer.text

def spread(batches: list[np.ndarray]) -> None:
    assert_type(next(vklab.distributed.map("m.onnx", batches)), dict[str, np.ndarray])

def strictly(path: str) -> Session:
    with vklab.settings.settings(FALLBACK=False, THREADS=2, CACHE="cache", TIMEOUT=5.0):
        threads: str | int | float | bool = vklab.settings.get("THREADS")
        print(threads, [setting.help for setting in vklab.settings.SETTINGS.values()])
        return vklab.load(path)

def main(session: Session) -> None:
    try:
        defaults: tuple[TensorInfo, ...] = session.defaults
        reasons: dict[str, str] = session.host_reasons
        steps: int = session.step_count
        print(defaults, reasons, steps, strictly("m.onnx"))
        print(classify("m.onnx", np.zeros((1, 1, 28, 28), np.float32)), vklab.devices()[0].name)
    except (ModelError, VklabError, HostWarning) as error:
        print(error)
"""
