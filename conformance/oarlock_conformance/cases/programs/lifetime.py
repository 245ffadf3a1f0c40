"""Cases on the life of programs: a device closed and opened again under them, processes that end with them alive."""

from __future__ import annotations

import numpy as np

import oarlock as ol
from oarlock.errors import OarlockError
from oarlock.runtime import to_numpy
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.programs.register import Stage, chain, chained, expect_array, program_case

_HELD = """
    import numpy as np
    import oarlock as ol
    from oarlock.runtime import open_device
    x = ol.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), device=DEVICE)
    y = ol.matmul(x, ol.matrix_transpose(x))
    shown = float(np.asarray(y).sum())
    pending = ol.sum(y * 2, axis=1)
    """


@program_case(
    "life.reopen/programs",
    "after a device was closed and opened, new programs run; old ones and their arrays are refused",
)
def reopen(stage: Stage) -> None:
    x, y = stage.whole(6, 8), stage.whole(8, 5)
    plan = stage.plan([x, y], chain)
    held = stage.put(x, y)
    array = ol.asarray(x, device=stage.device)
    ol.synchronize(stage.device)
    stage.device.close()
    for what, use in (
        ("a program of the closed device", lambda: plan.run(held)),
        ("an array of the closed device", lambda: to_numpy(held[0])),
        ("recorded work on the closed device", lambda: np.asarray(array + 1)),
    ):
        try:
            use()
        except OarlockError:
            continue
        except Exception as error:
            raise Failure(
                f"{what}: expected an error of oarlock.errors, got {type(error).__name__}: {error}"
            ) from error
        raise Failure(f"{what} could be used")
    for got, want in zip(stage.run(stage.plan([x, y], chain), x, y), chained(x, y), strict=True):
        expect_array("a program on the device opened again", got, want)


@program_case("life.exit/held", "a process may end with arrays, programs and pending work alive: status 0, and silent")
def held(stage: Stage) -> None:
    stage.bench.clean_child(_HELD + "print(int(shown))", "1134")


@program_case(
    "life.exit/raised", "a process that ends in an exception while arrays are alive says that, and nothing else"
)
def raised(stage: Stage) -> None:
    done = stage.bench.child(_HELD + "raise SystemExit(3)")
    if done.returncode != 3 or done.stderr.strip():
        raise Failure(f"exit status {done.returncode}, expected 3; it printed {done.stderr.strip()[-400:]!r}")


@program_case("life.exit/thread", "a process may end while another thread waits for a program's result")
def thread(stage: Stage) -> None:
    code = """
    import threading
    def work():
        global result
        result = np.asarray(pending)
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    print(int(result.sum()))
    """
    stage.bench.clean_child(_HELD + code, "2268")
