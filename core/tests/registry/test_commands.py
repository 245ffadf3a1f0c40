"""``oarlock``, ``oarlock devices`` and ``oarlock doctor``, with reports that are given."""

from __future__ import annotations

import json

import pytest

from oarlock import cli
from oarlock.cli import devices, doctor
from oarlock.errors import DeviceError
from oarlock.registry.failures import Failure
from oarlock.registry.report import AdapterReport, DeviceReport
from oarlock.registry.versions import CORE_VERSION

DEVICE = DeviceReport(
    "acme_npu:0", "Acme 9", "acme", "acme driver 4", 2 * 2**30, "c99", "9", ("float32",), (), True, ("no float64",)
)
REPORTS = (
    AdapterReport("acme_npu", "oarlock-acme-npu", "0.3", "oarlock_acme_npu", "1.0", "ready", (DEVICE,), None),
    AdapterReport(
        "cuda", "oarlock", "0.1.0", "oarlock_cuda", "1.0", "not available", (),
        Failure("OSError", "libcuda.so.1: cannot open", "/x/driver.py:12", "Traceback ..."),
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def given(monkeypatch):
    monkeypatch.setattr(devices, "adapter_reports", lambda: REPORTS)
    monkeypatch.setattr(doctor, "adapter_reports", lambda: REPORTS)
    monkeypatch.setattr(doctor, "adapter_report", {report.name: report for report in REPORTS}.__getitem__)
    monkeypatch.setattr(doctor, "adapter_names", lambda: ("acme_npu", "cuda"))


def test_devices_lists_devices_and_causes(capsys):
    assert cli.main(["devices"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "  acme_npu:0   Acme 9, acme   2 GiB   ready   (no float64)",
        "  cuda         not available: OSError: libcuda.so.1: cannot open; raised from /x/driver.py:12",
    ]


def test_devices_as_json(capsys):
    assert cli.main(["devices", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [adapter["name"] for adapter in content["adapters"]] == ["acme_npu", "cuda"]
    assert content["adapters"][0]["devices"][0]["id"] == "acme_npu:0"


def test_doctor_has_one_line_per_adapter(capsys):
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for part in ("oarlock-acme-npu 0.3", "contract 1.0", "acme driver 4", "1 device", "ready"):
        assert part in lines[1]
    for part in ("oarlock 0.1.0", "0 devices", "libcuda.so.1: cannot open; raised from /x/driver.py:12"):
        assert part in lines[2]


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_doctor_of_one_adapter_shows_the_traceback(capsys, name):
    assert cli.main(["doctor", name]) == 0
    out = capsys.readouterr().out
    assert "Traceback ..." in out
    assert "acme" not in out


def test_doctor_as_json(capsys):
    assert cli.main(["doctor", "cuda", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["oarlock"], content["contract"]) == (CORE_VERSION, "1.0")
    assert content["adapters"][0]["failure"]["kind"] == "OSError"


def test_doctor_of_an_unknown_name_is_one_clear_line_and_status_2(capsys):
    assert cli.main(["doctor", "cude"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    expected = 'oarlock doctor: no adapter "cude" is installed; did you mean "cuda"? Installed: acme_npu, cuda\n'
    assert captured.err == expected


def test_errors_are_one_line_and_status_2(capsys, monkeypatch):
    def fail(arguments):
        raise DeviceError("acme_npu:0: on fire")

    monkeypatch.setattr(devices, "run", fail)
    assert cli.main(["devices"]) == 2
    assert capsys.readouterr().err == "oarlock: acme_npu:0: on fire\n"


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["--version"], 0), (["nonsense"], 2), (["-x"], 2)])
def test_top_level_options(capsys, arguments, status):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == status


def test_no_arguments_prints_help(capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert "devices" in out
    assert "doctor" in out
