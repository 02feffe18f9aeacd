"""Every test that asks for `device` runs once on each usable Vulkan device, plain and validated."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.runs import shards
from support.runs.handles import left
from vklab.errors import SetupError
from vklab.runtime import open_devices, upload
from vklab.runtime.io_binding import IOBinding
from vklab.runtime.many import device_copies
from vklab.types import DeviceInfo
from vklab.vulkan import api, instance
from vklab.vulkan.memory import Buffer

HERE = Path(__file__).resolve().parent
# Files whose tests run under the validation layer in the quick tier too.
# By default every sixth second run is made, with --all every one.
VALIDATED_STEP = 6
VALIDATED_IN_QUICK = {"test_session.py", "test_vulkan_objects.py"}


@functools.cache
def usable_devices() -> tuple[tuple[DeviceInfo, ...], str]:
    """Return the devices that can be used and, if there is none, the reason."""
    try:
        found = tuple(info for info in open_devices.devices() if not info.refusal)
    except SetupError as error:
        return (), str(error)
    return found, "" if found else "no Vulkan device can be used"


@functools.cache
def has_validation() -> bool:
    """Tell whether the Khronos validation layer is installed."""
    return api.lib is not None and instance.VALIDATION_LAYER in instance.layers()


def short_name(info: DeviceInfo) -> str:
    """Return the first word of a device's name, as part of a test id."""
    return re.sub(r"\W+", "-", info.name.split(" (")[0].strip()).lower()


def is_validated(item: pytest.Item) -> bool:
    """Tell whether a test runs under the validation layer; where its id says so may differ."""
    chosen = getattr(item, "callspec", None)
    return chosen is not None and chosen.params.get("device") == "validated"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `device_index` by the devices of this machine."""
    if "device_index" in metafunc.fixturenames:
        found, reason = usable_devices()
        shards.DEVICE_NAMES.update(map(short_name, found))
        params = [pytest.param(info.index, id=short_name(info)) for info in found]
        none = [pytest.param(None, id="no-device", marks=pytest.mark.skip(reason=reason))]
        metafunc.parametrize("device_index", params or none, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here as needing a device, and what is not for --quick.

    These are the operators' own tests (a sample of every operator's suite cases stays, in
    test_onnx_cases) and, in most files, the second run under the validation layer.
    """
    is_here = functools.cache(lambda path: HERE in path.parents)
    is_operator = functools.cache(lambda path: path.match("gpu/test_op_*.py"))
    for item in items:
        if is_here(item.path):
            item.add_marker(pytest.mark.gpu)
            if is_operator(item.path) or (
                item.path.name not in VALIDATED_IN_QUICK and is_validated(item)
            ):
                item.add_marker(pytest.mark.full)
    again = [
        item
        for item in items
        if is_here(item.path)
        and is_validated(item)
        and item.path.name not in VALIDATED_IN_QUICK
        and item.get_closest_marker("slow") is None
    ]
    for number, item in enumerate(again):
        if number % VALIDATED_STEP:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def close_devices() -> Iterator[None]:
    """Close all devices at the end; whatever is still alive then has leaked."""
    yield
    open_devices.close_all()
    assert api.live_handles() == {}


@pytest.fixture(params=["plain", "validated"])
def device(
    request: pytest.FixtureRequest, device_index: int, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Return a device's index, once without and once with the validation layer.

    Under validation every message is an error that `Session.run` raises.
    """
    if request.param == "validated":
        if not has_validation():
            pytest.skip("the validation layer is not installed")
        monkeypatch.setenv("VKLAB_VALIDATE", "1")
    return device_index


@pytest.fixture
def opened(device: int) -> Iterator[open_devices.OpenDevice]:
    """Return an open device, and fail if validation messages or live handles are left behind."""
    found = open_devices.open_device(device)
    before = left(found)
    yield found
    assert left(found) == before
    if found.device.instance.validate:
        found.device.instance.raise_messages()


@pytest.fixture
def copies(monkeypatch):
    """Return a list that notes every copy between host and device memory."""
    noted: list[str] = []

    def note(owner, name):
        real = getattr(owner, name)

        def noting(*given, **named):
            noted.append(name)
            return real(*given, **named)

        monkeypatch.setattr(owner, name, noting)

    note(IOBinding, "copy_in")
    note(IOBinding, "copy_out")
    note(upload, "upload")
    note(device_copies, "download")
    return noted


@pytest.fixture
def unmapped(monkeypatch):
    """Hide device memory from the host, as a GPU without resizable BAR does."""
    real_init, real_mapped = Buffer.__init__, Buffer.mapped.fget

    def init(buffer, allocator, size_bytes, kind="device"):
        buffer.is_hidden = kind == "device"
        real_init(buffer, allocator, size_bytes, kind)

    def mapped(buffer):
        return None if buffer.is_hidden else real_mapped(buffer)

    monkeypatch.setattr(Buffer, "__init__", init)
    monkeypatch.setattr(Buffer, "mapped", property(mapped))
