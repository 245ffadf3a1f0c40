"""How the adapter calls the driver, where one is easily wrong: contexts, graphs, page-locked memory, peers, closing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Child = Callable[..., Any]


def told(done: Any) -> str:
    """What a child printed; it must have ended well and silently."""
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return str(done.stdout).strip()


def test_context_of_the_caller_stays_current(child: Child) -> None:
    code = """
        from rig import *
        import pycuda.driver as cuda
        cuda.init()
        own = cuda.Device(1).retain_primary_context()
        own.push()
        rig = Rig(0)
        x = rig.put(np.ones(4))
        print(rig.get(x, 4).sum(), cuda.Context.get_current() == own)
        rig.close()
        print(cuda.Context.get_current() == own, cuda.Context.get_device() == cuda.Device(1))
        cuda.Context.pop()
        own.detach()
    """
    assert told(child(code)).splitlines() == ["4.0 True", "True True"]


def test_close_leaves_no_context_and_gives_everything_back(child: Child) -> None:
    code = """
        from rig import *
        import ctypes
        rig = Rig()
        rig.kernel("x0[0] = 1;")
        x, stream, event = rig.put(np.ones(1 << 20)), rig.driver.create_stream(), rig.driver.record(None)
        rig.close()
        current = ctypes.c_void_p(1)
        print(ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(current)), current.value)
        again = Rig()
        free, total = again.driver.memory_info()
        print(free == total)
    """
    assert told(child(code)).splitlines() == ["0 None", "True"]


def test_handles_may_be_given_back_from_any_thread(child: Child) -> None:
    code = """
        from rig import *
        import threading
        rig = Rig()
        stream = rig.driver.create_stream()
        event, x, (program, _) = rig.driver.record(stream), rig.put(np.ones(4)), rig.kernel("x0[0] = 1;")
        def work():
            rig.driver.destroy_event(event)
            rig.driver.destroy_stream(stream)
            rig.driver.free(x)
            rig.driver.free(program)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        del stream, event, x, program
        print(len(rig.driver.live))
    """
    assert told(child(code)) == "2"  # the default stream, and the one that plans are captured on


def test_plan_sees_new_buffers_and_scalars_however_many(child: Child) -> None:
    code = """
        from rig import *
        from oarlock.hal import CopyStep, LaunchStep
        rig = Rig()
        program, signature = rig.kernel("x1[threadIdx.x] = x0[threadIdx.x] + n0;", 2, 1)
        steps = [
            LaunchStep(program, "kernel", (1, 1, 1), (8, 1, 1), ((0, 0, 32), (1, 0, 32)), signature.pack([1])),
            CopyStep(2, 0, 1, 16, 16),
        ]
        plan = rig.driver.prepare(steps)
        right = []
        for number in range(12):
            x, y, z = rig.put(np.full(8, number)), rig.put(np.zeros(8)), rig.put(np.zeros(8))
            rig.driver.replay(None, plan, [x, y, z], [(0, 0, signature.pack([100 + number]))] if number % 2 else [])
            rig.driver.replay(None, plan, [x, y, z], [(0, 0, signature.pack([100 + number]))] if number % 2 else [])
            added = 100 + number if number % 2 else 1
            wanted = [number + added] * 4 + [0] * 4
            right.append(rig.get(z, 8).tolist() == wanted and rig.get(y, 8).tolist() == [number + added] * 8)
        print(all(right), len(rig.driver.get(plan).executables))
        rig.driver.free(plan)
        rig.close()
    """
    assert told(child(code)) == "True 4"


def test_replay_does_not_wait_for_the_device(child: Child) -> None:
    code = """
        from rig import *
        import time
        from oarlock.hal import LaunchStep
        rig = Rig()
        body = "volatile float *v = x0; for (int k = 0; k < 100000000; ++k) v[0] = v[0] + 1;"
        program, signature = rig.kernel(body)
        plan = rig.driver.prepare([LaunchStep(program, "kernel", (1, 1, 1), (1, 1, 1), ((0, 0, 4),), b"")])
        x = rig.put(np.zeros(4))
        rig.driver.synchronize(None, 5)
        begin = time.perf_counter()
        rig.driver.replay(None, plan, [x], [])
        gave = time.perf_counter() - begin
        event = rig.driver.record(None)
        early = rig.driver.query(event)
        rig.driver.synchronize(None, 60)
        print(early, rig.driver.query(event), gave < (time.perf_counter() - begin) / 2)
    """
    assert told(child(code)) == "False True True"


def test_pinned_memory_outlives_the_device_and_is_unlocked(child: Child) -> None:
    code = """
        from rig import *
        rig = Rig()
        view = rig.driver.allocate_pinned(5000)
        view[:] = bytes(range(250)) * 20
        x = rig.driver.allocate(5000)
        rig.driver.copy_in(None, x, 0, view)
        view[:] = bytes(5000)
        rig.driver.copy_out(None, view, x, 0)
        rig.driver.synchronize(None, 5)
        print(bytes(view) == bytes(range(250)) * 20, len(rig.driver.pinned))
        other = rig.driver.allocate_pinned(10)
        del other
        kept = rig.driver.allocate_pinned(10)
        print(len(rig.driver.pinned))
        rig.close()
        print(bytes(view) == bytes(range(250)) * 20)
    """
    assert told(child(code)).splitlines() == ["True 1", "2", "True"]


def test_peer_copy_names_both_contexts(child: Child) -> None:
    code = """
        from rig import *
        here, there = Rig(0), Rig(1)
        x, y = here.put(np.zeros(8)), there.put(np.arange(8))
        there.driver.synchronize(None, 5)
        here.driver.copy_peer(None, x, 4, there.driver, y, 8, 16)
        print(here.get(x, 8).tolist())
    """
    assert told(child(code)) == "[0.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 0.0]"


def test_hanging_device_is_left_alone_by_close_and_by_exit(child: Child) -> None:
    code = """
        from rig import *
        import time
        rig = Rig()
        x = rig.put(np.zeros(4))
        rig.launch(rig.kernel("volatile float *v = x0; while (v[0] == 0) ;"), (1, 1, 1), (1, 1, 1), [x])
        try:
            rig.driver.synchronize(None, 0.05)
        except Exception as error:
            print(type(error).__name__, error)
        begin = time.monotonic()
        rig.close()
        print(3 < time.monotonic() - begin < 10)
    """
    lines = told(child(code)).splitlines()
    assert lines == ["DeviceTimeoutError not done in 0.05 s; latest kernels: kernel", "True"]


def test_adopted_address_must_be_the_devices(child: Child) -> None:
    code = """
        from rig import *
        rig = Rig()
        x = rig.put(np.arange(8))
        adopted = rig.driver.adopt(rig.driver.address(x) + 8, 24, x)
        print(rig.get(adopted, 2).tolist())
        rig.driver.free(adopted)
        print(rig.get(x, 1).tolist())
        try:
            rig.driver.adopt(4096, 16, None)
        except Exception as error:
            print(type(error).__name__, error)
    """
    first, second, refused = told(child(code)).splitlines()
    assert (first, second) == ("[2.0, 3.0]", "[0.0]")
    assert refused.startswith("DeviceError 0x1000 is no memory of this device's")
