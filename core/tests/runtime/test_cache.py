"""The cache of executables: exact, atomic, private, and a miss in every doubtful case."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import pytest

from oarlock.config import config
from oarlock.runtime import open_device
from oarlock.runtime.cache import DiskCache, cache_key


@pytest.fixture
def entry(make, fake):
    """A device, and the one file that compiling "source" left."""
    device = make()
    device.compile("source", [fake.signature("nothing")])
    return device, Path(next(path for path in (config.cache_dir / "executables").rglob("*") if path.is_file()))


def compiled(fake) -> int:
    return len(fake.COMPILED)


def test_second_compilation_comes_from_the_cache(entry, fake):
    device, _ = entry
    executable = device.compile("source", [fake.signature("nothing")])
    assert executable.payload == b"source"
    assert compiled(fake) == 1


def test_cache_survives_closing(entry, fake):
    entry[0].close()
    open_device("fake:0").compile("source", [fake.signature("nothing")])
    assert compiled(fake) == 1


def test_entry_and_folders_are_private(entry):
    _, path = entry
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("change", ["truncate", "flip", "empty", "magic"])
def test_corrupt_entry_is_compiled_again(entry, fake, change):
    device, path = entry
    content = bytearray(path.read_bytes())
    if change == "truncate":
        del content[-1]
    elif change == "flip":
        content[-1] ^= 1
    elif change == "empty":
        content.clear()
    else:
        content[0] ^= 1
    path.write_bytes(content)
    assert device.compile("source", [fake.signature("nothing")]).payload == b"source"
    assert compiled(fake) == 2
    device.compile("source", [fake.signature("nothing")])
    assert compiled(fake) == 2, "the bad entry was replaced"


@pytest.mark.parametrize("where", ["file", "folder", "top"])
def test_entry_that_others_may_write_is_a_miss(entry, fake, where):
    device, path = entry
    doubtful = {"file": path, "folder": path.parent, "top": path.parent.parent}[where]
    doubtful.chmod(doubtful.stat().st_mode | 0o020)
    device.compile("source", [fake.signature("nothing")])
    assert compiled(fake) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
def test_entry_of_another_user_is_a_miss(entry, fake, monkeypatch):
    device, _ = entry
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    device.compile("source", [fake.signature("nothing")])
    assert compiled(fake) == 2


def test_symbolic_link_in_place_of_an_entry_is_a_miss(entry, fake, tmp_path):
    device, path = entry
    moved = tmp_path / "moved"
    path.rename(moved)
    path.symlink_to(moved)
    device.compile("source", [fake.signature("nothing")])
    assert compiled(fake) == 2


def test_key_depends_on_everything(make, fake, monkeypatch):
    device = make()
    keys = {cache_key(device, "source", ["a"])}
    keys.add(cache_key(device, "source2", ["a"]))
    keys.add(cache_key(device, "source", ["a", "b"]))
    monkeypatch.setattr(type(device.adapter), "cache_key", lambda self, target: "driver 2")
    keys.add(cache_key(device, "source", ["a"]))
    monkeypatch.setattr(type(device.adapter), "version", "8")
    keys.add(cache_key(device, "source", ["a"]))
    device.target = device.target.with_limits(max_buffers=5)
    keys.add(cache_key(device, "source", ["a"]))
    monkeypatch.setattr("oarlock.runtime.cache.CORE_VERSION", "99")
    keys.add(cache_key(device, "source", ["a"]))
    assert len(keys) == 7


def test_cache_off_writes_nothing(make, fake, monkeypatch):
    monkeypatch.setattr(config, "cache", False)
    device = make()
    for _ in range(2):
        device.compile("source", [fake.signature("nothing")])
    assert compiled(fake) == 2
    assert not config.cache_dir.exists()


def test_unusable_folder_warns_once_and_compiles(make, fake, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(config, "cache_dir", blocked)
    monkeypatch.setattr(DiskCache, "_warned", False)
    device = make()
    with pytest.warns(RuntimeWarning, match="not cached.*OARLOCK_CACHE_DIR"):
        device.compile("source", [fake.signature("nothing")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device.compile("source", [fake.signature("nothing")])


def test_failed_compilation_is_not_cached(make, fake):
    device = make()
    for _ in range(2):
        with pytest.raises(Exception, match="refused"):
            device.compile("error", [fake.signature("nothing")])
    assert compiled(fake) == 2


def test_many_processes_at_once_write_and_read_whole_entries(child):
    code = """
import os, sys
from pathlib import Path
from oarlock.config import config
from oarlock.runtime.cache import DiskCache
cache = DiskCache(config.cache_dir / "executables")
payloads = {f"{key:02x}" + "0" * 62: bytes([key]) * 20000 for key in range(4)}
pids = []
for _ in range(32):
    pid = os.fork()
    if pid == 0:
        bad = 0
        for _ in range(3):
            for key, payload in payloads.items():
                cache.write(key, payload)
                bad += cache.read(key) != payload
        os._exit(min(bad, 100))
    pids.append(pid)
print(sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
print(sum(path.name.startswith(".new") for path in config.cache_dir.rglob("*")))
"""
    result = child(code)
    assert (result.stdout, result.stderr) == ("0\n0\n", "")
