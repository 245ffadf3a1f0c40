"""Processes: exit with live handles, fork, finalisation; each in a child process with a deadline."""

from __future__ import annotations

import os

import pytest

LIVE = """
import oarlock_fake as fake
fake.configure(threads=True, devices=2, capabilities=frozenset({"plans"}))
from oarlock.runtime import open_device, from_numpy
import numpy
device = open_device("fake:0")
program = fake.load(device, fake.signature("nothing"))
stream = device.create_stream()
event = stream.record()
buffer = device.allocate(100)
array = from_numpy(numpy.ones(4, numpy.float32), device)
"""

AT_CLOSE = """
import atexit
original = fake.FakeDriver.close
def close(self):
    print("closed", fake.LIVE.index(self))
    original(self)
fake.FakeDriver.close = close
"""


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", 0), ("import sys; sys.exit(3)", 3), ("device.close()", 0), ("device.close(); device.close()", 0)],
)
def test_exit_with_live_handles_is_silent_and_clean(child, ending, status):
    result = child(LIVE + "keep = [device, program, stream, event, buffer, array]\n" + ending)
    assert (result.returncode, result.stderr, result.stdout) == (status, "", "")


def test_exit_closes_devices_in_reverse_order(child):
    result = child(LIVE + AT_CLOSE + 'other = open_device("fake:1")')
    assert (result.returncode, result.stdout.split("\n"), result.stderr) == (0, ["closed 1", "closed 0", ""], "")


def test_exit_closes_devices_after_an_exception(child):
    result = child(LIVE + AT_CLOSE + "raise ValueError('mine')")
    assert (result.returncode, result.stdout) == (1, "closed 0\n")
    assert result.stderr.rstrip().endswith("ValueError: mine")


def test_exit_after_a_program_failed_to_compile_is_clean(child):
    code = """
try:
    device.compile("error", [fake.signature("nothing")])
except Exception as error:
    kept = error
"""
    result = child(LIVE + code)
    assert (result.returncode, result.stderr) == (0, "")


def test_exit_from_a_cycle_and_from_module_globals_is_clean(child):
    code = """
class Node: pass
node = Node(); node.self = node; node.buffer = buffer; node.stream = stream
import builtins; builtins.kept = buffer
"""
    result = child(LIVE + code)
    assert (result.returncode, result.stderr) == (0, "")


def test_exit_while_a_thread_hangs_in_the_driver_is_quick(child):
    code = """
import threading, time
fake.LIVE[0].block["copy_in"] = threading.Event()
thread = threading.Thread(target=lambda: device.copy_in(buffer, 0, b"x"), daemon=True)
thread.start()
time.sleep(0.5)
print(device.usable)
"""
    result = child(LIVE + code, timeout_s=30, OARLOCK_WATCHDOG_S="0.2")
    assert (result.returncode, result.stdout) == (0, "False\n")


FORK = """
import os, sys
def in_child(function):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            function()
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
def refused(function):
    try:
        function()
    except Exception as error:
        print(type(error).__name__)
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@needs_fork
def test_every_use_in_a_forked_child_is_refused_quickly(child):
    code = """
def uses():
    refused(lambda: device.allocate(4))
    refused(lambda: device.copy_in(buffer, 0, b"x"))
    refused(lambda: device.launch(program, "nothing", (1, 1, 1), []))
    refused(lambda: device.synchronize())
    refused(lambda: stream.record())
    refused(lambda: event.query())
    refused(lambda: open_device("fake:0"))
    refused(lambda: open_device("fake:1"))
    buffer.free()
    device.close()
in_child(uses)
device.copy_in(buffer, 0, b"still fine here")
device.synchronize()
print("parent", device.stats().buffers)
"""
    result = child(LIVE + FORK + code, timeout_s=30)
    assert result.stdout.split() == ["ForkedProcessError"] * 8 + ["parent", "2"], result.stderr
    assert (result.returncode, result.stderr) == (0, "")


@needs_fork
def test_fork_while_other_threads_use_the_device(child):
    code = """
import threading
stop = False
def busy():
    while not stop:
        device.copy_in(buffer, 0, bytes(100))
        device.default_stream.synchronize()
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(5):
    in_child(lambda: refused(lambda: device.allocate(4)))
stop = True
for thread in threads: thread.join()
"""
    result = child(LIVE + FORK + code, timeout_s=60)
    assert result.stdout.split() == ["ForkedProcessError"] * 5, result.stderr
    assert result.returncode == 0


@needs_fork
def test_child_forked_before_any_device_was_opened_works(child):
    code = """
import oarlock_fake as fake
from oarlock import registry
from oarlock.runtime import open_device, device_names
print("fake:0" in device_names())   # counting does not initialise
def use():
    device = open_device("fake:0")
    device.copy_in(device.allocate(4), 0, b"abcd")
    device.synchronize()
    print("worked")
in_child(use)
"""
    result = child(FORK + code)
    assert (result.stdout.split(), result.stderr) == (["True", "worked"], "")


@needs_fork
def test_forked_child_exits_cleanly_through_the_interpreter(child):
    code = """
pid = os.fork()
if pid == 0:
    sys.exit(0)
print(os.waitpid(pid, 0)[1], device.usable)
"""
    result = child(LIVE + AT_CLOSE + FORK + code, timeout_s=30)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0 True\nclosed 0\n", "")


def test_importing_the_runtime_starts_nothing(child):
    code = """
import sys, threading
import oarlock.runtime
print(threading.active_count(), "llvmlite" in sys.modules, "pyopencl" in sys.modules)
"""
    result = child(code)
    assert (result.stdout, result.stderr) == ("1 False False\n", "")
