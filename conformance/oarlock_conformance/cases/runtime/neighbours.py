"""Cases on the device beside other plugins, good and broken: it is found, it works, and the others' causes are told."""

from __future__ import annotations

import tempfile
from pathlib import Path

from oarlock_conformance.bench import Bench, expect
from oarlock_conformance.registry import runtime_case

_GOOD = """
from oarlock.hal import Adapter, DeviceInfo
from oarlock.plugin import hookimpl
from oarlock.target import Target

class Neighbour(Adapter):
    contract = (1, 0)
    version = "0.3"
    def devices(self):
        return [DeviceInfo("Neighbour", "acme", "driver 4.2", 2**30, Target("c99"))]
    def open(self, index):
        raise NotImplementedError
    def compile(self, target, source, entries):
        return b""

@hookimpl
def oarlock_adapter():
    return Neighbour()
"""


def _listing(statement: str) -> str:
    return _GOOD.replace("return [DeviceInfo", f"{statement}\n        return [DeviceInfo")


_MODULES = {
    "good": _GOOD,
    "no_library": _listing("import ctypes; ctypes.CDLL('libacme_absent.so.4')"),
    "no_symbol": "import ctypes\nctypes.CDLL(None).acme_no_such_symbol\n" + _GOOD,
    "raising": "raise RuntimeError('firmware 7 is too old')\n",
    "no_device": _GOOD.replace("return [DeviceInfo", "return [][:0] and [DeviceInfo"),
    "misspelt": _GOOD.replace("def oarlock_adapter", "def oarlock_adaptor"),
    "older": _GOOD.replace("(1, 0)", "(0, 9)"),
    "newer_minor": _GOOD.replace("(1, 0)", "(1, 99)"),
    "newer_major": _GOOD.replace("(1, 0)", "(2, 0)"),
    "crashing": _listing("import os; os.abort()"),
}
_WORDS = {
    "good": ('"Neighbour"',),
    "no_library": ('"stage": "devices"', "libacme_absent.so.4"),
    "no_symbol": ('"stage": "load"', "acme_no_such_symbol"),
    "raising": ('"stage": "load"', "firmware 7 is too old"),
    "no_device": ('"devices": []',),
    "misspelt": ('"stage": "load"', "oarlock_adaptor", "oarlock_adapter"),
    "older": ('"stage": "load"', "0.9", "1.0"),
    "newer_minor": ('"stage": "load"', "1.99", "1.0"),
    "newer_major": ('"stage": "load"', "2.0", "1.0"),
    "crashing": ('"stage": "devices"', "signal"),
    "twin": ('"stage": "load"', "left-twin 1.0", "right-twin 2.0"),
}
"""What is told of each neighbour."""

_CODE = """
    import json, os
    folder, wanted = {folder!r}, {wanted!r}
    sys.path.insert(0, folder)
    from oarlock.registry import probe
    from oarlock.runtime import open_device
    device = open_device(DEVICE)  # with every neighbour installed
    said = {{}}
    for name, words in wanted.items():
        full = "oarlock_test_" + name  # one that may crash is looked at in a process of its own, as a report is
        text = json.dumps(probe.run(full, 60.0) if name == "crashing" else probe.look(full))
        missing = [word for word in words if word not in text]
        if missing:
            said[name] = f"does not say {{missing[0]!r}}: {{text}}"
    from oarlock_conformance.bench import Bench
    from oarlock_conformance.case import Options
    Bench(DEVICE, Options()).works()
    print(json.dumps(said))
"""


def _install(folder: Path) -> None:
    for name, text in _MODULES.items():
        _distribution(folder, f"test-{name}", "0.3", f"oarlock_test_{name}", text)
    _distribution(folder, "left-twin", "1.0", "oarlock_test_twin", _GOOD, "left_twin")
    _distribution(folder, "right-twin", "2.0", "oarlock_test_twin", _GOOD, "right_twin")


def _distribution(folder: Path, project: str, version: str, name: str, text: str, module: str = "") -> None:
    info = folder / f"{project.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[oarlock.adapters]\n{name} = {module or name}\n")
    (folder / f"{module or name}.py").write_text(text)


def _beside(bench: Bench, *names: str) -> None:
    with tempfile.TemporaryDirectory(prefix="oarlock-neighbours-") as folder:
        _install(Path(folder))
        wanted = {name: _WORDS[name] for name in names}
        done = bench.child(_CODE.format(folder=folder, wanted=wanted), 120.0)
    expect(done.returncode == 0, f"beside broken plugins the device does not work: {done.stderr.strip()[-600:]}")
    said = done.stdout.strip()
    expect(said == "{}", f"the report on a plugin {said}")


@runtime_case(
    "discovery.neighbours/broken",
    "beside plugins that are broken the device works, and the report on each tells its real cause",
)
def broken(bench: Bench) -> None:
    names = ("no_library", "no_symbol", "raising", "misspelt", "no_device", "good")
    _beside(bench, *names, *(() if bench.options.quick else ("crashing",)))


@runtime_case(
    "discovery.neighbours/refused",
    "plugins of another contract, or two of one name, are refused naming both; the device works",
)
def refused(bench: Bench) -> None:
    _beside(bench, "older", "newer_major", "newer_minor", "twin")


@runtime_case(
    "discovery.count/fork",
    "counting devices starts no driver here: a child that is forked afterwards may open one",
)
def count_fork(bench: Bench) -> None:
    code = """
        import os
        from oarlock.registry import adapter_report
        from oarlock.runtime import open_device
        report = adapter_report(DEVICE.partition(":")[0])
        assert report.devices, report.cause
        child = os.fork()
        if child == 0:
            from oarlock_conformance.bench import Bench
            from oarlock_conformance.case import Options
            Bench(DEVICE, Options()).works()
            os._exit(5)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
    """
    bench.clean_child(code, "5")


@runtime_case(
    "life.process/unlike",
    "a process without the suite, whose adapter is imported first, gets the same results",
)
def unlike(bench: Bench) -> None:
    """What looks for a test runner finds none here; and an adapter may be imported first."""
    code = """
        from importlib.metadata import distributions
        adapter, _, index = DEVICE.partition(":")
        points = [p for d in distributions() for p in d.entry_points if p.group == "oarlock.adapters"]
        next(p for p in points if p.name == adapter).load()
        import numpy as np
        import oarlock as ol
        from oarlock.runtime import open_device
        device = open_device(DEVICE)
        random = np.random.default_rng(11)
        bad = []
        for count in (1, 63, 257, 1000, 4099):
            x, y = (random.integers(-1000, 1000, count, dtype=np.int32) for _ in range(2))
            a, b = ol.asarray(x, device=DEVICE), ol.asarray(y, device=DEVICE)
            if not np.array_equal(np.asarray((a * b + a)), x * y + x):
                bad.append(f"{count} elements of a * b + a")
        data = random.integers(0, 256, 999, dtype=np.uint8)
        buffer, other = device.allocate(999), device.allocate(999)
        device.copy_in(buffer, 0, data)
        device.copy(other, 0, buffer, 0, 999)
        for offset, nbytes in ((0, 999), (3, 13), (500, 499), (998, 1)):
            host = np.zeros(nbytes, np.uint8)
            device.copy_out(host, other, offset)
            device.synchronize()
            if not np.array_equal(host, data[offset : offset + nbytes]):
                bad.append(f"a copy of {nbytes} bytes at {offset}")
        device.fill(buffer, 5, 9, 7)
        data[5:14] = 7
        host = np.zeros(999, np.uint8)
        device.copy_out(host, buffer, 0)
        device.synchronize()
        if not np.array_equal(host, data):
            bad.append("a fill")
        assert not any("conformance" in name or name == "pytest" for name in sys.modules)
        print("; ".join(bad) or "right")
    """
    bench.clean_child(code, "right")
