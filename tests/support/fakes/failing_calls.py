"""Vulkan calls of a split run that are made to fail, each once and in each way that it can."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import vklab
from support.runs.split_models import differs
from support.runs.waits import LIMIT_S, until
from vklab.errors import DeviceLostError, TimeoutError, VulkanError
from vklab.vulkan.device import Device

__all__ = ["FailingCalls"]

NAMES = ("vkResetFences", "vkQueueSubmit", "vkWaitForFences")
LOST = -4
CODES = (LOST, -2, -1, 2)  # lost, out of the device's memory, out of the host's, time is up


class FailingCalls:
    """The device calls of a run, counted inside the block; one of them may be told to fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.others: set[str] = set()
        self._failing: dict[int, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> FailingCalls:
        """Stand between vklab and the drivers."""
        self._real = real = Device.command

        def command(device: Device, name: str) -> Callable[..., Any]:
            return self._counted(name, real(device, name))

        Device.command = command  # type: ignore[method-assign]
        return self

    def __exit__(self, *ignored: object) -> None:
        """Step aside."""
        Device.command = self._real  # type: ignore[method-assign]

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if name not in NAMES:
                self.others.add(name)
                return real(*arguments)
            with self._lock:
                number = len(self.calls)
                self.calls.append(name)
            if number not in self._failing:
                return real(*arguments)
            if name == "vkWaitForFences" and self._failing[number] == LOST:
                real(*arguments)  # nothing runs on a device that is lost
            return self._failing[number]

        return call

    def _count(self, run: Callable[[], Any]) -> int:
        """Return how many calls `run` makes; it must make no others than those of NAMES."""
        self.calls.clear()
        self.others.clear()
        run()
        assert not self.others, self.others
        return len(self.calls)

    def every(
        self, load: Callable[[], vklab.Session], fed: Mapping[str, np.ndarray], step: int = 1
    ) -> int:
        """Fail each call of a run of `load()` with each code: a clear error, and it goes on.

        Args:
            load: makes the session.
            fed: inputs of its runs.
            step: with 4, a quarter of the calls fail: those of each name in each stage by turns.

        Returns:
            How many calls a run makes.
        """
        session = load()
        one = session.run(fed)
        count = self._count(lambda: session.run(fed))
        for number in range(0, count, step):
            for code in CODES:
                # A wait that lasts to its limit would end this process by the limit of its own.
                with vklab.settings.settings(TIMEOUT=10 * LIMIT_S):
                    lost = self._fails(session, fed, number, code)
                if lost:
                    _refuses(session, fed)
                    session.close()
                    session = load()
                assert differs(one, _again(session, fed)) < 1e-6
        session.close()
        return count

    def _fails(
        self, session: vklab.Session, fed: Mapping[str, np.ndarray], number: int, code: int
    ) -> bool:
        """Run with this call failing; return whether the device is lost."""
        self.calls.clear()
        self._failing[number] = code
        try:
            session.run(fed)
        except VulkanError as error:
            # Threads take turns: the call of this number is not the same one in each run.
            assert self.calls[number] in str(error) and "; in chunk " in str(error), error
            assert isinstance(error, DeviceLostError) == (code == LOST), error
            return code == LOST
        finally:
            self._failing.clear()
        raise AssertionError(f"the failure {code} of call {number} is lost")


def _refuses(session: vklab.Session, fed: Mapping[str, np.ndarray]) -> None:
    try:
        session.run(fed)
    except DeviceLostError as error:
        assert "close this session and load again" in str(error)
    else:
        raise AssertionError("a lost device is used")


def _again(session: vklab.Session, fed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run once the work of the failed run is over."""
    made: list[dict[str, np.ndarray]] = []

    def is_over() -> bool:
        try:
            made.append(session.run(fed))
        except TimeoutError as error:
            assert "still works on an earlier run" in str(error)
        return bool(made)

    until(is_over, "an earlier run does not end")
    return made[0]
