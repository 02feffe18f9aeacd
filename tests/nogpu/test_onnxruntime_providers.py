"""The table of ONNX Runtime's providers: packages, reasons, install lines, and what ended."""

from __future__ import annotations

import types

import pytest

from vklab.apps.cli import parity
from vklab.apps.compare.onnxruntime import backend as backends
from vklab.apps.compare.onnxruntime import providers, sessions
from vklab.runtime import host

ROWS = {each.name: each for each in backends.every()}


def test_the_table_names_known_packages():
    for row in providers.PROVIDERS:
        assert row.packages
        for name in row.packages:
            package = providers.PACKAGES[name]
            assert {*package.systems} <= {*providers.ALL}
            assert (package.kind == "plugin") == bool(package.module)
    assert {*providers.ENDED} == {"onnxruntime-rocm", "onnxruntime-silicon", "torch-directml"}
    assert all(providers.PACKAGES[name].replaced_by for name in providers.ENDED)


@pytest.mark.parametrize("system", providers.ALL)
def test_every_absent_provider_has_a_reason_and_an_install_line(monkeypatch, system):
    monkeypatch.setattr(providers, "system", lambda: system)
    monkeypatch.setattr(sessions, "plugin_module", lambda row: "")
    for row in ROWS.values():
        answer = row.available()
        if row.provider.key == "cpu":
            assert answer
            continue
        assert row.provider.ep in answer.reason
        assert "pip install" in answer.install
        if system not in row.provider.systems:
            assert f"this is {system}" in answer.reason
            assert answer.install.startswith(f"on {row.provider.systems[0]}: ")


def test_a_full_build_goes_into_a_folder_of_its_own(tmp_path):
    assert providers.install_line("onnxruntime-openvino").startswith(
        "pip install --target PEERS/onnxruntime-openvino "
    )
    assert providers.install_line("onnxruntime-qnn") == "pip install onnxruntime-qnn"
    (tmp_path / "onnxruntime-openvino").mkdir()
    [row] = [each for each in backends.every(tmp_path) if each.provider.key == "openvino"]
    assert row.environment == tmp_path / "onnxruntime-openvino"
    assert row.available()


@pytest.mark.parametrize("installed", ["onnxruntime-directml", "onnxruntime-windowsml"])
def test_two_packages_carry_directml_and_the_installed_one_is_the_row(monkeypatch, installed):
    runtime = types.SimpleNamespace(get_available_providers=lambda: ["DmlExecutionProvider"])
    monkeypatch.setattr(providers, "system", lambda: "Windows")
    monkeypatch.setattr(host, "load_onnxruntime", lambda: runtime)
    monkeypatch.setattr(backends, "_is_installed", lambda name: name == installed)
    here = [
        each.provider.packages[0]
        for each in ROWS.values()
        if each.provider.ep == "DmlExecutionProvider" and each.available()
    ]
    assert {*here} == {installed}


def test_the_table_as_json_names_what_ended():
    answers = {name: row.available() for name, row in ROWS.items()}
    found = parity.provider_facts(answers)
    assert {row["provider"] for row in found["providers"]} == {
        each.ep for each in providers.PROVIDERS
    }
    assert all(row["replaced_by"] for row in found["ended"])
    assert [row["available"] for row in found["providers"]][0]
