"""What the adapter says where something is missing: pycuda, the driver, a new enough one, a device."""

from __future__ import annotations

import builtins
import ctypes.util
import sys
from collections.abc import Callable
from typing import Any

import pytest

from oarlock.errors import DeviceError
from oarlock_cuda import CudaAdapter

Python = Callable[..., Any]
_DOCTOR = ("-c", "import sys; from oarlock.cli import main; sys.argv = ['oarlock', 'doctor', 'cuda']; main()")


@pytest.fixture
def doctor(python: Python) -> Callable[..., str]:
    """Gives the line of ``oarlock doctor cuda``."""

    def line(variables: dict[str, str], **settings: str) -> str:
        done = python(variables, *_DOCTOR, **settings)
        assert done.stderr == ""
        return next(line for line in done.stdout.splitlines() if line.strip().startswith("cuda"))

    return line


def test_importing_and_making_the_adapter_loads_no_pycuda(simulated: dict[str, str], python: Python) -> None:
    code = "import sys, oarlock_cuda as o; o.oarlock_adapter(); print('pycuda' in sys.modules)"
    done = python(simulated, "-c", code)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_without_pycuda_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "oarlock_cuda.device", raising=False)
    monkeypatch.setitem(sys.modules, "pycuda", None)
    with pytest.raises(DeviceError, match=r"pycuda cannot be loaded .*pip install oarlock\[cuda\]"):
        CudaAdapter().devices()


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        (
            "libcuda.so.1: cannot open shared object file: No such file or directory",
            r"NVIDIA's driver is missing \(libcuda.so.1: .*install it, version 525 or newer",
        ),
        (
            "_driver.so: undefined symbol: cuCtxCreate_v4",
            r"driver is older than the CUDA that pycuda was built with \(.*_v4\): update the driver, or build",
        ),
    ],
)
def test_loaders_errors_are_told_apart(loader: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[..., Any] = builtins.__import__

    def load(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("pycuda"):
            raise ImportError(loader)
        return original(name, *arguments, **options)

    for name in [name for name in sys.modules if name.startswith(("oarlock_cuda.", "pycuda"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", load)
    with pytest.raises(DeviceError, match=says):
        CudaAdapter().devices()


def test_doctor_without_a_driver(simulated: dict[str, str], doctor: Callable[..., str]) -> None:
    if ctypes.util.find_library("cuda"):
        pytest.skip("UNAVAILABLE: this machine has NVIDIA's driver")
    line = doctor({"PYTHONPATH": simulated["PYTHONPATH"], "LD_LIBRARY_PATH": ""})
    assert "NVIDIA's driver is missing (libcuda.so.1: cannot open shared object file" in line
    assert "install it, version 525 or newer" in line


def test_doctor_with_a_driver_that_is_too_old(simulated: dict[str, str], doctor: Callable[..., str]) -> None:
    line = doctor(simulated, VERSION="12040")
    assert "NVIDIA's driver is too old: it runs CUDA 12, and NVRTC 13.900 compiles for CUDA 13" in line
    assert "update the driver, or install an older compiler: pip install nvidia-cuda-nvrtc-cu12" in line


def test_doctor_with_an_older_compiler_for_an_older_driver(
    simulated: dict[str, str], doctor: Callable[..., str]
) -> None:
    assert "2 devices" in doctor(simulated, VERSION="12040", NVRTC="12")


def test_doctor_without_a_device(simulated: dict[str, str], doctor: Callable[..., str]) -> None:
    assert "its driver works and finds no device" in doctor(simulated, DEVICES="0")


def test_device_that_is_older_than_the_compiler_is_refused_by_name(simulated: dict[str, str], python: Python) -> None:
    code = "from oarlock_cuda import CudaAdapter as A; A().compile(A().devices()[0].target, '', [])"
    done = python(simulated, "-c", code, ARCH="61")
    assert "NVRTC 13.900 compiles for sm_75 and newer, and the device is sm_61: install an older one" in done.stderr
