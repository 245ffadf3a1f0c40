"""The one place where recorded programs meet devices: opening them, moving data, running functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from oarlock.config import config
from oarlock.dtypes import DType
from oarlock.errors import DeviceError, UnsupportedError
from oarlock.target import Target

if TYPE_CHECKING:
    from oarlock import runtime
    from oarlock.ir import Operation
    from oarlock.ir.extents import Extents
    from oarlock.program.calls import Call
    from oarlock.program.plans import Runner

__all__ = [
    "Backend", "Compiled", "Data", "DeviceLike", "Place", "Template", "backend", "default_device", "place",
    "use_backend",
]  # fmt: skip

Data: TypeAlias = Any
"""Contiguous data on a device, as the backend gave it; opaque to recording."""
Compiled: TypeAlias = "Callable[[Sequence[Data | int | float]], list[Data]]"
Template: TypeAlias = "Callable[[Mapping[str, int], Mapping[int, int | float]], Compiled | None]"
NO_DATA: Mapping[int, Data | int | float] = {}


class DeviceLike(Protocol):
    """What recording needs to know of a device."""

    @property
    def name(self) -> str:
        """``adapter:index``."""
        ...

    @property
    def target(self) -> Target: ...


class Backend(Protocol):
    """What runs recorded programs."""

    def open(self, name: str) -> DeviceLike:
        """The device called ``name``; raises DeviceNotFoundError naming what there is."""
        ...

    def device_names(self) -> Sequence[str]:
        """Every device that can be opened."""
        ...

    def open_devices(self) -> Sequence[DeviceLike]:
        """The devices that are open."""
        ...

    def put(self, device: DeviceLike, array: npt.NDArray[Any]) -> Data:
        """A copy of the contiguous ``array`` on ``device``; ``array`` may be reused on return."""
        ...

    def get(self, data: Data) -> npt.NDArray[Any]:
        """A fresh, writable copy of ``data`` on the host."""
        ...

    def host_view(self, data: Data) -> npt.NDArray[Any] | None:
        """The memory of ``data`` itself, read-only, once its work is done; None where the host cannot read it."""
        ...

    def move(self, data: Data, device: DeviceLike) -> Data:
        """A copy of ``data`` on another device."""
        ...

    def compiled(
        self, function: Operation, device: DeviceLike, fixed: Mapping[int, Data | int | float] = NO_DATA
    ) -> Compiled:
        """``function``, which does not change any more, made ready: a call with its arguments gives its results.

        ``fixed`` are arguments, by position, that are the same in every call: they are left out there.
        """
        ...

    def template(
        self, function: Operation, device: DeviceLike, fixed: Mapping[int, Data | int | float], extents: Extents
    ) -> Template:
        """As ``compiled``, for a function whose sizes stand for others too.

        Called with sizes by name, and with fixed run-time scalars that belong to them by the argument's position, it
        gives what is called then, or None where other sizes would have become another program.
        """
        ...

    def synchronize(self, device: DeviceLike) -> None:
        """Wait for all work of ``device``; raises the first failure."""
        ...


class RuntimeBackend:
    """The devices of ``oarlock.runtime``, loaded on first use."""

    def __init__(self) -> None:
        self._opened: Callable[[str], DeviceLike] | None = None
        """``runtime.open_device``, once it is loaded."""

    def open(self, name: str) -> DeviceLike:
        if self._opened is None:
            from oarlock import runtime

            import_module("oarlock.runtime.plan")  # the compiler, so that the first call does not wait for it
            self._opened = runtime.open_device
        return self._opened(name)

    def device_names(self) -> Sequence[str]:
        from oarlock import runtime

        return runtime.device_names()

    def open_devices(self) -> Sequence[DeviceLike]:
        from oarlock import runtime

        return runtime.open_devices()

    def put(self, device: DeviceLike, array: npt.NDArray[Any]) -> Data:
        from oarlock import runtime

        return runtime.from_numpy(array, cast("runtime.Device", device))

    def get(self, data: Data) -> npt.NDArray[Any]:
        from oarlock import runtime

        return runtime.to_numpy(data)

    def host_view(self, data: Data) -> npt.NDArray[Any] | None:
        array = cast("runtime.DeviceArray", data)
        if "host_memory" not in array.device.info.capabilities or array.storage != array.dtype or not array.nbytes:
            return None
        array.device.synchronize()
        block = (ctypes.c_ubyte * array.nbytes).from_address(array.buffer.address + array.offset_bytes)
        block.owner = array  # type: ignore[attr-defined]  # the memory is not reused while the view lives
        view: npt.NDArray[Any] = np.frombuffer(memoryview(block), array.dtype.numpy).reshape(array.shape)
        view.setflags(write=False)
        return view

    def move(self, data: Data, device: DeviceLike) -> Data:
        from oarlock import runtime

        return runtime.transfer(data, cast("runtime.Device", device))

    def compiled(
        self, function: Operation, device: DeviceLike, fixed: Mapping[int, Data | int | float] = NO_DATA
    ) -> Compiled:
        from oarlock.runtime.plan import Plan

        return Plan(function, cast("runtime.Device", device), fixed=fixed).run

    def template(
        self, function: Operation, device: DeviceLike, fixed: Mapping[int, Data | int | float], extents: Extents
    ) -> Template:
        from oarlock.runtime.plan import Plan

        plan = Plan(function, cast("runtime.Device", device), fixed=fixed, extents=extents)

        def at(sizes: Mapping[str, int], numbers: Mapping[int, int | float]) -> Compiled | None:
            found = plan.at(sizes, numbers)
            return None if found is None else found.run

        return at

    def synchronize(self, device: DeviceLike) -> None:
        device.synchronize()  # type: ignore[attr-defined]  # a call of cast takes as long as the rest of this


class Place:
    """A device as recording sees it: with the inferences and plans made for it."""

    __slots__ = ("calls", "device", "name", "plans", "target", "varying")

    def __init__(self, device: DeviceLike) -> None:
        self.device = device
        self.name = device.name
        self.target = device.target
        self.calls: dict[Any, Call] = {}
        """Memoised inference: (operator, attributes, operand kinds) -> call."""
        self.plans: dict[Any, Runner] = {}
        """Structure of a tape -> what runs it."""
        self.varying: dict[Any, tuple[int | None, ...]] = {}
        """Starts of slices seen so far by pattern, None where they varied (see ``indexing``)."""

    def stores(self, dtype: DType) -> bool:
        return self.target.stores(dtype)

    def check_stores(self, dtype: DType, what: str) -> None:
        """Raise UnsupportedError, naming the nearest dtype there is, when tensors cannot be of ``dtype`` here."""
        if self.target.stores(dtype):
            return
        from oarlock import dtypes

        same = [d for d in dtypes.ALL if d.kind == dtype.kind and self.target.stores(d)]
        nearest = min(same, key=lambda d: abs(d.bits - dtype.bits), default=None)
        hint = f" Nearest it does: {nearest}; convert with x.astype(ol.{nearest})," if nearest else " Convert the data,"
        raise UnsupportedError(
            f"{self.name} does not store {dtype} ({what}).{hint} or choose a device that stores {dtype}"
        )

    @property
    def default_int(self) -> DType:
        """int64, or int32 where the device has no int64."""
        from oarlock import dtypes

        return dtypes.int64 if self.target.stores(dtypes.int64) else dtypes.int32

    @property
    def default_uint(self) -> DType:
        from oarlock import dtypes

        return dtypes.uint64 if self.target.stores(dtypes.uint64) else dtypes.uint32

    def __repr__(self) -> str:
        return f"Place({self.name!r})"


_active: Backend = RuntimeBackend()
places: dict[str, Place] = {}
"""By the device's name, in full and as it was given; replaced when the device was opened again."""
_default: ContextVar[str | None] = ContextVar("oarlock_default_device", default=None)


def backend() -> Backend:
    """The backend in use."""
    return _active


@contextmanager
def use_backend(other: Backend) -> Iterator[Backend]:
    """Run recorded programs through ``other`` inside the ``with``: tests compare with the interpreter this way.

    For the whole process, not just this thread. Tensors made outside must not be used inside, and the reverse.
    """
    global _active
    before, places_before = _active, dict(places)
    _active = other
    places.clear()
    try:
        yield other
    finally:
        _active = before
        places.clear()
        places.update(places_before)


@contextmanager
def default_device(device: Any) -> Iterator[None]:
    """Make ``device`` (a name or a device) the default of this context, in place of ``config.device``."""
    token = _default.set(place(device).name)
    try:
        yield
    finally:
        _default.reset(token)


def place(device: Any = None) -> Place:
    """The place of ``device``: a name such as ``"cpu:0"``, a device object, or None for the default device."""
    if device is None:
        device = _default.get() or config.device
    name = device
    if isinstance(device, str):
        device = _active.open(device)
    elif not hasattr(device, "target") or not hasattr(device, "name"):
        raise DeviceError(f"{device!r} is no device: give a name such as 'cpu:0', or what ol.device(name) returned")
    found = places.get(device.name)
    if found is None or found.device is not device:
        found = places[device.name] = Place(device)
    if name is not device and places.get(name) is not found:
        places[name] = found
    return found
