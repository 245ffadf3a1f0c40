"""Products through cuBLAS, with a simulated one: what is claimed, in which layouts, in which order, and what is said.

cuBLAS itself has never run here. The simulated one refuses products that would be rounded to fewer bits, and those
without scratch of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Child = Callable[..., Any]
Python = Callable[..., Any]
EVERY = Path(__file__).parent / "every_product"
_DEVICE = """
    import numpy as np, ml_dtypes
    import oarlock as ol
    from oarlock import dtypes
    from oarlock.hal import OperatorCall
    from oarlock.runtime import open_device
    device = open_device("cuda:0")
    def call(x, y, batch=((), ()), contract=((1,), (0,)), dtype="float32", result="float32"):
        letters = iter("abcdefghijk")
        names = [{}, {}]
        for pair in (*zip(*batch), *zip(*contract)):
            letter = next(letters)
            for side in (0, 1):
                names[side][pair[side]] = letter
        free = [[a for a in range(len(s)) if a not in names[k]] for k, s in enumerate((x, y))]
        for side in (0, 1):
            names[side].update({a: next(letters) for a in free[side]})
        left, right = ("".join(names[k][a] for a in range(len(s))) for k, s in enumerate((x, y)))
        out = "".join([left[a] for a in (*batch[0], *free[0])] + [right[a] for a in free[1]])
        sizes = {**dict(zip(left, x)), **dict(zip(right, y))}
        shape = tuple(sizes[letter] for letter in out)
        kind, made = (getattr(dtypes, name) for name in (dtype, result))
        attributes = {"batch": batch, "contract": contract, "dtype": made}
        operands, results = ((kind, x), (kind, y)), ((made, shape),)
        return OperatorCall("dot_general", operands, results, attributes), f"{left},{right}->{out}"
"""
LAYOUTS = {
    "plain": "(70, 90), (90, 80)",
    "right transposed": "(70, 90), (80, 90), contract=((1,), (1,))",
    "left transposed": "(90, 70), (90, 80), contract=((0,), (0,))",
    "both transposed": "(90, 70), (80, 90), contract=((0,), (1,))",
    "batches": "(3, 70, 90), (3, 90, 80), ((0,), (0,)), ((2,), (1,))",
    "batches of batches": "(3, 2, 70, 90), (3, 2, 90, 80), ((0, 1), (0, 1)), ((3,), (2,))",
    "batches within rows": "(70, 3, 90), (80, 3, 90), ((1,), (1,)), ((2,), (2,))",
    "many rows": "(5, 20, 90), (90, 4, 20), contract=((2,), (0,))",
    "many terms": "(70, 9, 10), (9, 10, 80), contract=((1, 2), (0, 1))",
    "axes of one": "(1, 70, 90, 1), (90, 1, 80), ((0,), (1,)), ((2,), (0,))",
}
REFUSED = {
    "few rows": "(63, 90), (90, 80)",
    "few terms": "(70, 63), (63, 80)",
    "no matrices": "(0, 70, 90), (0, 90, 80), ((0,), (0,)), ((2,), (1,))",
    "terms in another order": "(70, 9, 10), (10, 9, 80), contract=((1, 2), (1, 0))",
    "innermost batch": "(70, 90, 3), (90, 80, 3), ((2,), (2,)), ((1,), (0,))",
    "double precision": "(70, 90), (90, 80), dtype='float64', result='float64'",
    "integers": "(70, 90), (90, 80), dtype='int32', result='int32'",
    "rounded result": "(70, 90), (90, 80), dtype='float32', result='float16'",
}


def told(done: Any) -> str:
    """What a child printed; it must have ended well and silently."""
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return str(done.stdout).strip()


@pytest.mark.parametrize("types", ["float32 float32", "float16 float16", "bfloat16 float32"])
def test_product_in_each_layout_is_claimed_and_right(child: Child, types: str) -> None:
    dtype, result = types.split()
    bound = {"float32": 2e-6, "float16": 2**-10, "bfloat16": 2**-8}[dtype if result != "float32" else "float32"]
    code = f"""{_DEVICE}
    for arguments in {list(LAYOUTS.values())}:
        asked, pattern = eval(f"call({{arguments}}, dtype='{dtype}', result='{result}')")
        kernel = device.driver.match(asked, device.target)
        rng, kind, made = np.random.default_rng(0), np.dtype("{dtype}"), np.dtype("{result}")
        x, y = (rng.random(shape).astype(kind) for _, shape in asked.operands)
        wanted = np.einsum(pattern, x.astype("d"), y.astype("d"))
        held = [device.allocate(n) for n in (x.nbytes, y.nbytes, wanted.size * made.itemsize, kernel.workspace())]
        for buffer, data in zip(held, (x, y)):
            device.copy_in(buffer, 0, memoryview(data.reshape(-1).view(np.uint8)))
        kernel.run(None, [(buffer.allocation.handle, 0) for buffer in held])
        got = np.zeros(wanted.shape, made)
        device.copy_out(memoryview(got.reshape(-1).view(np.uint8)), held[2], 0)
        device.synchronize()
        wrong = abs(got.astype("d") - wanted).max() / wanted.max()
        if wrong > {bound}:
            print(arguments, wrong)
    print("done")
    """
    assert told(child(code)) == "done"


def test_what_is_small_or_of_another_kind_is_left_to_generated_kernels(child: Child) -> None:
    code = f"""{_DEVICE}
    for name, arguments in {REFUSED}.items():
        if device.driver.match(eval(f"call({{arguments}})")[0], device.target) is not None:
            print(name)
    print(bool(device.driver.cublas_handle), device.driver.match(call((64, 64), (64, 64))[0], device.target) is None)
    """
    assert told(child(code)) == "False False"


def test_product_among_generated_kernels_runs_in_order(child: Child) -> None:
    code = f"""{_DEVICE}
    rng = np.random.default_rng(0)
    x, y = rng.random((80, 90), "f"), rng.random((90, 70), "f")
    run = lambda x, y: ol.maximum(ol.matmul(ol.exp(x), y * 2), 5.0) + 1
    left, right = ol.asarray(x, device="cuda:0"), ol.asarray(y, device="cuda:0")
    for _ in range(5):
        got = np.asarray(run(left, right))
    wanted = np.maximum(np.exp(x.astype("d")) @ (y.astype("d") * 2), 5.0) + 1
    print(abs(got - wanted).max() / wanted.max() < 2e-6, "cuBLAS" in device.driver.latest)
    """
    assert told(child(code)) == "True True"


def test_run_does_not_wait_and_keeps_to_its_stream(child: Child) -> None:
    code = f"""{_DEVICE}
    import time
    from rig import Rig
    rig = Rig()
    kernel = rig.driver.match(call((128, 128), (128, 128))[0], rig.info.target)
    x, out = rig.put(np.zeros((128, 128))), rig.put(np.zeros((128, 128)))
    scratch, stream = rig.driver.allocate(kernel.workspace()), rig.driver.create_stream()
    slow = rig.kernel("volatile float *v = x0; for (int k = 0; k < 100000000; ++k) v[0] = 1; x0[1] = 2;")
    rig.driver.synchronize(None, 10)
    begin = time.perf_counter()
    rig.launch(slow, (1, 1, 1), (1, 1, 1), [x], stream=stream)
    kernel.run(stream, [(each, 0) for each in (x, x, out, scratch)])
    gave = time.perf_counter() - begin
    early = rig.driver.query(rig.driver.record(stream))
    print(early, rig.get(out, 2, stream).tolist(), gave < (time.perf_counter() - begin) / 2)
    """
    assert told(child(code)) == "False [1.0, 2.0] True"


def test_failure_of_cublas_is_told_in_its_words(child: Child) -> None:
    code = f"""{_DEVICE}
    kernel = device.driver.match(call((64, 64), (64, 64))[0], device.target)
    from dataclasses import replace
    wrong = replace(kernel, left=replace(kernel.left, leading=3))
    x = device.allocate(64 * 64 * 4).allocation.handle
    scratch = device.allocate(kernel.workspace()).allocation.handle
    try:
        wrong.run(None, [(each, 0) for each in (x, x, x, scratch)])
    except Exception as error:
        print(type(error).__name__, error)
    """
    text = told(child(code))
    assert text.startswith("LaunchError product by cuBLAS: cublasGemmStridedBatchedEx: an unsupported value")


def test_cublas_that_cannot_start_is_an_error(child: Child) -> None:
    code = f"""{_DEVICE}
    try:
        device.driver.match(call((64, 64), (64, 64))[0], device.target)
    except Exception as error:
        print(type(error).__name__, error)
    """
    assert told(child(code, CUBLAS="0")) == "DeviceError cuBLAS: cublasCreate_v2: the library was not initialized"


def test_closing_gives_back_what_cublas_holds(child: Child) -> None:
    code = f"""{_DEVICE}
    from rig import Rig
    rig = Rig(1)
    rig.driver.match(call((64, 64), (64, 64))[0], rig.info.target)
    given = []
    library, plain = rig.driver.cublas, rig.driver.cublas.call
    library.call = lambda name, *rest: given.append(name) or plain(name, *rest)
    rig.close()
    print(given)
    """
    assert told(child(code)) == "['cublasDestroy_v2']"


def doctor(python: Python, variables: dict[str, str], **settings: str) -> str:
    """The first device's line."""
    code = "import sys; from oarlock.cli import main; sys.argv = ['oarlock', 'doctor', 'cuda']; main()"
    done = python(variables, "-c", code, **settings)
    assert done.stderr == ""
    return next(line for line in done.stdout.splitlines() if line.strip().startswith("cuda:0"))


def test_doctor_says_which_cublas_multiplies(simulated: dict[str, str], python: Python) -> None:
    assert "large products by cuBLAS 13.9" in doctor(python, simulated)


def test_doctor_says_that_the_driver_is_too_old_for_cublas(simulated: dict[str, str], python: Python) -> None:
    line = doctor(python, simulated, CUBLAS="14")
    assert "all products are generated: cuBLAS 14.9 needs a driver for CUDA 14, update it" in line


def test_without_cublas_products_are_generated_and_doctor_says_so(
    simulated: dict[str, str], python: Python, tmp_path: Path
) -> None:
    made = Path(simulated["LD_LIBRARY_PATH"]).parent
    for part in ("lib", "site"):
        (tmp_path / part).mkdir()
        for each in (made / part).iterdir():
            if "cublas" not in each.name:
                (tmp_path / part / each.name).symlink_to(each)
    without = {"LD_LIBRARY_PATH": str(tmp_path / "lib"), "PYTHONPATH": str(tmp_path / "site")}
    line = doctor(python, without)
    assert "no cuBLAS, all products are generated: libcublas cannot be loaded (libcublas.so.13: cannot open" in line
    assert "pip install nvidia-cublas" in line
    code = """
import numpy as np, oarlock as ol
from oarlock.runtime import open_device
x = ol.asarray(np.ones((70, 80), "f"), device="cuda:0")
print(np.asarray(ol.matmul(x, ol.matrix_transpose(x))).max())
device = open_device("cuda:0")
print("cuBLAS" in device.driver.latest, "operators" in device.info.capabilities)
"""
    assert told(python(without, "-c", code)).splitlines() == ["80.0", "False False"]


@pytest.mark.proof
@pytest.mark.parametrize("pattern", ["dot_general/float16/*", "dot_general/float32/*", "named*", "random*", "fused.*"])
def test_operators_conform_where_cublas_takes_every_product(
    simulated: dict[str, str], python: Python, tmp_path: Path, pattern: str
) -> None:
    every = {**simulated, "PYTHONPATH": f"{EVERY}:{simulated['PYTHONPATH']}"}
    setting = () if pattern.startswith("dot_general") else ("--quick",)
    command = "import sys; from oarlock.cli import main; sys.exit(main())", "certify", "cuda:0", *setting
    options = "--level", "operators", "--only", pattern, "--report", str(tmp_path)
    done = python(every, "-c", *command, *options, timeout_s=900)
    assert done.returncode == 0, done.stdout + done.stderr
