"""Discovery with real distributions that are thrown away: good ones, and each kind of broken one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

GOOD = """
from oarlock.plugin import hookimpl
from oarlock.hal import Adapter, DeviceInfo
from oarlock.target import Target

class Npu(Adapter):
    contract = (1, 0)
    version = "0.3"
    count = 2
    def devices(self):
        return [DeviceInfo("Npu", "acme", "npu driver 4.2", 2**30, Target("c99"))] * self.count
    def open(self, index):
        raise NotImplementedError
    def compile(self, target, source, entries):
        return b""

@hookimpl
def oarlock_adapter():
    return Npu()
"""


def in_devices(statement: str) -> str:
    return GOOD.replace("return [DeviceInfo", f"{statement}\n        return [DeviceInfo")


MODULES: dict[str, str] = {
    "good_npu": "import oarlock  # the core at the top of an adapter\n" + GOOD,
    "missing_library": "from {package}.device import LIBRARY\n" + GOOD,
    "late_library": in_devices("import ctypes; ctypes.CDLL('libacme.so.4')"),
    "undefined_symbol": "import ctypes\nSYMBOL = ctypes.CDLL(None).acme_no_such_symbol\n" + GOOD,
    "raising_import": """
try:
    {{}}["firmware"]
except KeyError as error:
    raise RuntimeError("initialisation failed") from error
""",
    "exiting_import": "import sys\nsys.exit('no licence')\n",
    "syntax_error": "def broken(:\n",
    "raising_hook": GOOD.replace("return Npu()", "raise ValueError('bad board revision 7')"),
    "newer_minor": GOOD.replace("(1, 0)", "(1, 9)"),
    "newer_major": GOOD.replace("(1, 0)", "(2, 1)"),
    "older_major": GOOD.replace("(1, 0)", "(0, 7)"),
    "odd_contract": GOOD.replace("(1, 0)", "'one'"),
    "misspelt_hook": GOOD.replace("def oarlock_adapter", "def oarlock_adaptor"),
    "unmarked_hook": GOOD.replace("@hookimpl", ""),
    "no_hook": "",
    "none_hook": GOOD.replace("return Npu()", "return None"),
    "no_adapter": GOOD.replace("return Npu()", "return 42"),
    "incomplete": GOOD.replace("def compile", "def compiles"),
    "no_devices": GOOD.replace("count = 2", "count = 0"),
    "crashing": in_devices("print('about to crash', flush=True); import os; os.abort()"),
    "printing": in_devices("print('banner of a chatty driver', flush=True)"),
    "hanging": in_devices("import time; time.sleep(60)"),
}


def distribute(
    site: Path, project: str, entries: dict[str, str], modules: dict[str, str], version: str = "0.3"
) -> None:
    """Write a distribution ``project`` with adapter entries and modules, as an installer would."""
    info = site / f"{project.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
    lines = "\n".join(f"{name} = {value}" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[oarlock.adapters]\n{lines}\n")
    for package, text in modules.items():
        (site / package).mkdir()
        (site / package / "__init__.py").write_text(text)
        (site / package / "device.py").write_text("import ctypes\n\nLIBRARY = ctypes.CDLL('libacme.so.4')\n")


def run(code: str, *sites: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, sites), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name, text in MODULES.items():
        package = f"oarlock_{name}"
        distribute(
            folder, f"oarlock-{name.replace('_', '-')}", {name: package}, {package: text.format(package=package)}
        )
    distribute(folder, "oarlock-nowhere", {"nowhere": "oarlock_not_there"}, {})
    distribute(folder, "left-npu", {"twin": "left_npu"}, {"left_npu": GOOD}, "1.0")
    distribute(folder, "right-npu", {"twin": "right_npu"}, {"right_npu": GOOD}, "2.0")
    return folder


NAMES = [*MODULES, "nowhere", "twin"]
PROBED = [
    "missing_library", "late_library", "newer_major", "misspelt_hook", "no_devices", "crashing", "hanging", "twin",
    "good_npu", "printing",
]  # fmt: skip


@pytest.fixture(scope="module")
def loaded(site: Path) -> dict[str, Any]:
    """What ``get_adapter`` does with each name, all in one process: [kind of error or "ok", text]."""
    code = f"""
        import json
        from oarlock import registry
        result = {{}}
        for name in {NAMES!r}:
            for attempt in range(2):
                try:
                    adapter = registry.get_adapter(name)
                    outcome = ["ok", adapter.version]
                except Exception as error:
                    outcome = [type(error).__name__, str(error)]
                assert result.setdefault(name, outcome) == outcome
        print(json.dumps({{"names": registry.adapter_names(), "result": result}}))
    """
    done = run(code, site)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def reported(site: Path) -> dict[str, Any]:
    """The report on some names, as ``oarlock doctor --json`` has it."""
    code = f"""
        import json
        from oarlock import registry
        from oarlock.registry import report
        reports = registry.adapter_reports({[name for name in PROBED if name != "hanging"]!r})
        report.PROBE_TIMEOUT_S = 3.0
        reports += registry.adapter_reports(["hanging"])
        print(json.dumps({{item.name: item.to_json() for item in reports}}))
    """
    done = run(code, site)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_all_installed_adapters_are_found_without_loading_any(loaded):
    assert set(NAMES) <= set(loaded["names"])
    assert loaded["names"] == sorted(loaded["names"])


@pytest.mark.parametrize("name", ["good_npu", "late_library", "no_devices", "crashing", "printing", "hanging"])
def test_adapters_that_load_are_given(loaded, name):
    assert loaded["result"][name] == ["ok", "0.3"]


@pytest.mark.parametrize(
    ("name", "kind", "texts"),
    [
        ("missing_library", "PluginError", ["oarlock-missing-library 0.3", "OSError: libacme.so.4", "device.py:3"]),
        ("undefined_symbol", "PluginError", ["AttributeError", "acme_no_such_symbol", "__init__.py:2"]),
        ("raising_import", "PluginError", ["KeyError: 'firmware'", "initialisation failed", "__init__.py:3"]),
        ("exiting_import", "PluginError", ["SystemExit: no licence", "__init__.py:2"]),
        ("syntax_error", "PluginError", ["SyntaxError", "__init__.py:1"]),
        ("raising_hook", "PluginError", ["ValueError: bad board revision 7", "__init__.py:19"]),
        ("nowhere", "PluginError", ["ModuleNotFoundError: No module named 'oarlock_not_there'"]),
        ("newer_minor", "ContractVersionError", ["contract 1.9", "speaks 1.0", "newer Oarlock"]),
        ("newer_major", "ContractVersionError", ["contract 2.1", "speaks 1.0", "newer Oarlock"]),
        ("older_major", "ContractVersionError", ["contract 0.7", "speaks 1.0", "newer older_major"]),
        ("odd_contract", "PluginError", ["its contract is 'one'", "contract = (1, 0)"]),
        ("misspelt_hook", "PluginError", ["unknown hook oarlock_adaptor; did you mean oarlock_adapter?"]),
        ("unmarked_hook", "PluginError", ["oarlock_adapter", "not marked with @hookimpl"]),
        ("no_hook", "PluginError", ["oarlock_no_hook has no hook oarlock_adapter"]),
        ("none_hook", "PluginError", ["returned None"]),
        ("no_adapter", "PluginError", ["returned int, which is no oarlock.hal.Adapter"]),
        ("incomplete", "PluginError", ["TypeError", "compile"]),
        ("twin", "DuplicatePluginError", ["left-npu 1.0 (left_npu)", "right-npu 2.0 (right_npu)", "uninstall"]),
    ],
)
def test_broken_adapters_are_refused_with_their_real_cause(loaded, name, kind, texts):
    assert loaded["result"][name][0] == kind
    for text in texts:
        assert text in loaded["result"][name][1]
    assert name in loaded["result"][name][1]


@pytest.mark.parametrize(
    ("name", "state", "texts"),
    [
        ("missing_library", "broken", ["OSError: libacme.so.4: cannot open shared object file", "device.py:3"]),
        ("late_library", "not available", ["OSError: libacme.so.4", "__init__.py:11"]),
        ("newer_major", "broken", ["contract 2.1", "1.0"]),
        ("misspelt_hook", "broken", ["did you mean oarlock_adapter?"]),
        ("no_devices", "no devices", ["finds no device"]),
        ("crashing", "not available", ["ended the process: signal 6"]),
        ("hanging", "not available", ["took longer than 3 s and was stopped"]),
        ("twin", "duplicate", ["left-npu 1.0", "right-npu 2.0"]),
        ("good_npu", "ready", []),
        ("printing", "ready", []),
    ],
)
def test_reports_state_and_cause(reported, name, state, texts):
    report = reported[name]
    assert report["state"] == state
    for text in texts:
        assert text in report["cause"]
    assert bool(report["cause"]) == (state != "ready")


def test_report_of_a_good_adapter_has_everything(reported):
    report = reported["good_npu"]
    facts = [report[key] for key in ("distribution", "version", "module", "contract", "driver")]
    assert facts == ["oarlock-good-npu", "0.3", "oarlock_good_npu", "1.0", "npu driver 4.2"]
    assert [device["id"] for device in report["devices"]] == ["good_npu:0", "good_npu:1"]
    assert report["devices"][0]["memory"] == 2**30


def test_every_broken_adapter_left_the_good_one_alone(reported):
    assert sum(report["state"] == "ready" for report in reported.values()) == 2


def test_distribution_seen_twice_counts_once(site, tmp_path):
    """The same folder twice on the path, and an older copy of the distribution further down."""
    distribute(tmp_path, "oarlock-good-npu", {"good_npu": "oarlock_good_npu"}, {"oarlock_good_npu": ""}, "0.1")
    code = """
        from oarlock import registry
        from oarlock.registry.loading import owners
        owned = [entry.version for entry in owners("oarlock.adapters", "good_npu")]
        print(registry.get_adapter("good_npu").version, owned)
    """
    done = run(code, site, site, tmp_path)
    assert done.stdout == "0.3 ['0.3']\n", done.stderr


def test_unreadable_metadata_does_not_hide_the_others(site, tmp_path):
    broken = tmp_path / "broken-1.dist-info"
    broken.mkdir()
    (broken / "entry_points.txt").write_bytes(b"\xff\xfe[oarlock.adapters]\n")
    nameless = tmp_path / "nameless-1.dist-info"
    nameless.mkdir()
    (nameless / "entry_points.txt").write_text("[oarlock.adapters]\nx = y\n")
    code = "from oarlock import registry; print(registry.get_adapter('good_npu').version)"
    done = run(code, tmp_path, site)
    assert done.stdout == "0.3\n", done.stderr


def test_failed_plugin_can_be_tried_again_after_forget(tmp_path):
    site = tmp_path / "site"
    package = "oarlock_flaky"
    distribute(site, "oarlock-flaky", {"flaky": package}, {package: "1 / 0"})
    code = f"""
        import pathlib
        from oarlock import registry
        for attempt in range(2):
            try:
                print(registry.get_adapter("flaky").version)
            except Exception as error:
                print(type(error).__name__)
            pathlib.Path({str(site / package / "__init__.py")!r}).write_text({GOOD!r})
            registry.forget()
    """
    done = run(code, site)
    assert done.stdout == "PluginError\n0.3\n", done.stderr


def test_unknown_adapter_suggests_the_near_one(site):
    code = """
        from oarlock import registry
        try:
            registry.get_adapter("god_npu")
        except Exception as error:
            print(error)
    """
    text = run(code, site).stdout
    assert text.startswith('no adapter "god_npu" is installed; did you mean good_npu? Installed: ')


def test_loading_one_adapter_imports_no_other(site):
    code = """
        import sys
        from oarlock import registry
        registry.get_adapter("good_npu")
        print(sorted(name for name in sys.modules if name.startswith("oarlock_")))
    """
    done = run(code, site)
    assert done.stdout == "['oarlock_good_npu']\n", done.stderr


def test_adapter_imported_before_the_core_works(site):
    code = """
        import oarlock_good_npu
        from oarlock import registry
        print(registry.get_adapter("good_npu").version)
    """
    assert run(code, site).stdout == "0.3\n"


def test_plugin_module_imports_neither_numpy_nor_the_compiler():
    code = "import sys, oarlock.plugin; print('numpy' in sys.modules, 'oarlock.ir' in sys.modules)"
    assert run(code).stdout == "False False\n"
