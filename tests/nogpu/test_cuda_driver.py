"""CUDA's driver through ctypes: layouts of structures as in cuda.h, and errors without CUDA."""

from __future__ import annotations

import ctypes
import sys

import pytest

from vklab.errors import SetupError, VklabError
from vklab.runtime.cuda import driver

# Sizes and offsets that a C compiler prints for cuda.h of CUDA 12.9, on x86-64 and AArch64.
LAYOUTS = {
    driver.MemoryDesc: (104, {"type": 0, "handle": 8, "size": 24, "flags": 32}),
    driver.BufferDesc: (88, {"offset": 0, "size": 8, "flags": 16}),
    driver.SemaphoreDesc: (96, {"type": 0, "handle": 8, "flags": 24}),
    driver.SemaphoreParams: (144, {"value": 0, "flags": 72}),
}


@pytest.mark.parametrize("structure", LAYOUTS, ids=lambda each: each.__name__)
def test_layouts_are_those_of_cuda_h(structure):
    size, offsets = LAYOUTS[structure]
    assert ctypes.sizeof(structure) == size
    assert {name: getattr(structure, name).offset for name in offsets} == offsets


def test_a_missing_driver_is_named():
    with pytest.raises(SetupError, match=r"CUDA's driver cannot be opened \(libabsent\.so\.9"):
        driver.load_driver("libabsent.so.9")


def test_a_library_without_the_functions_is_named():
    name = "libc.so.6" if sys.platform == "linux" else pytest.skip("needs a C library by name")
    with pytest.raises(SetupError, match=r"(?s)libc\.so\.6 has no cuInit, .*update NVIDIA"):
        driver.load_driver(name)


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SetupError, match="needs Linux"):
        driver.load_driver("nvcuda.dll")


def test_a_failing_call_names_the_result():
    made = driver.Driver.__new__(driver.Driver)
    text = ctypes.create_string_buffer(b"CUDA_ERROR_INVALID_VALUE")

    def name(result, out):
        out._obj.value = ctypes.addressof(text)
        return 0

    made.functions = {"cuInit": lambda flags: 1, "cuGetErrorName": name}
    with pytest.raises(VklabError, match=r"cuInit failed with CUDA_ERROR_INVALID_VALUE \(1\)"):
        made.call("cuInit", 0)
