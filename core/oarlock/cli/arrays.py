"""Arrays in files, for the commands: inputs from ``.npz``, random inputs, comparison with expected outputs."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oarlock.dtypes import DType
from oarlock.errors import ModelError

__all__ = [
    "Difference", "InputSpec", "Tolerance", "compare", "parse_shape", "random_input",
    "read_npz", "split_reference", "write_npz",
]  # fmt: skip

Array = npt.NDArray[Any]


class InputSpec(Protocol):
    """What a model says of an input; a dimension is a number, a name, or None."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def dims(self) -> tuple[int | str | None, ...] | None: ...


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element is within where |got - want| <= absolute + relative * |want|."""

    absolute: float
    relative: float


@dataclass(frozen=True, slots=True)
class Difference:
    """How an output compares: the largest absolute difference, and why it is outside the tolerance (empty: inside)."""

    output: str
    largest: float
    problem: str

    @property
    def within(self) -> bool:
        return not self.problem


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of an ``.npz`` file; raises ModelError when it cannot be read, or holds pickled objects."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ModelError(f"{path}: it holds one array without a name; save with numpy.savez(path, NAME=array)")
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{path}: cannot read arrays from it: {reason}") from error


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as ``.npz``, complete or not at all; raises ModelError where that fails."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, **dict(arrays))
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ModelError(f"{path}: cannot write it: {error.strerror}") from error


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``NAME=1,3,224,224`` as name and shape; raises ModelError for anything else."""
    name, equals, dims = text.rpartition("=")
    parts = [part.strip() for part in dims.split(",")] if dims.strip() else []
    if not equals or not name or not all(part.isascii() and part.isdigit() and len(part) <= 12 for part in parts):
        raise ModelError(f"--shape {text!r}: write NAME=1,3,224,224")
    return name, tuple(int(part) for part in parts)


def random_input(spec: InputSpec, shape: tuple[int, ...] | None, generator: np.random.Generator) -> Array:
    """Random values of the declared shape, or of ``shape``: normal floats, integers 0 and 1.

    Raises ModelError where a dimension is not known.
    """
    if shape is None:
        dims = None if spec.dims is None else [d for d in spec.dims if isinstance(d, int)]
        if spec.dims is None or dims is None or len(dims) != len(spec.dims):
            shown = "any shape" if spec.dims is None else f"shape [{', '.join(str(d or '?') for d in spec.dims)}]"
            example = ",".join(str(d) if isinstance(d, int) else "1" for d in spec.dims or (1,))
            raise ModelError(
                f"input {spec.name!r} has {shown}: give its values with --input, "
                f"or its shape with --shape {spec.name}={example}"
            )
        shape = tuple(dims)
    if int(np.prod(shape, dtype=object)) > 2**31 - 1:
        raise ModelError(f"input {spec.name!r} of shape {list(shape)} is too large")
    if spec.dtype.is_float:
        return generator.standard_normal(shape, np.float32).astype(spec.dtype.numpy)
    return generator.integers(0, 2, shape).astype(spec.dtype.numpy)


def compare(got: Mapping[str, Array], want: Mapping[str, Array], tolerance: Tolerance) -> list[Difference]:
    """The differences of all expected outputs; raises ModelError for an expected one that there is not."""
    unknown = [name for name in want if name not in got]
    if unknown:
        raise ModelError(f"no output {unknown[0]!r} to compare; the model gives {_listed(got)}")
    return [_difference(name, got[name], array, tolerance) for name, array in want.items()]


def _difference(name: str, got: Array, want: Array, tolerance: Tolerance) -> Difference:
    if got.shape != want.shape or got.dtype != want.dtype:
        problem = f"expected {want.dtype} {list(want.shape)}, got {got.dtype} {list(got.shape)}"
        return Difference(name, float("inf"), problem)
    if want.size == 0:
        return Difference(name, 0.0, "")
    exact = want.dtype.kind in "iu" and want.dtype.itemsize == 8
    left, right = (got, want) if exact else (got.astype(np.float64), want.astype(np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where(left > right, left - right, right - left).astype(np.float64)
        if not exact:
            gaps = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, gaps)
            gaps = np.where(np.isnan(gaps), np.inf, gaps)
        allowed = tolerance.absolute + tolerance.relative * np.abs(right.astype(np.float64))
        outside = gaps > np.where(np.isfinite(allowed), allowed, 0.0)
    largest = float(gaps.max())
    if not outside.any():
        return Difference(name, largest, "")
    worst = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
    place = ", ".join(map(str, worst))
    problem = (
        f"{int(outside.sum())} of {gaps.size} outside; largest at [{place}]: got {got[worst]}, expected {want[worst]}"
    )
    return Difference(name, largest, problem)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def split_reference(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs (``in::NAME``) and expected outputs (``out::NAME``, or any other name) of a reference file."""
    inputs = {name.removeprefix("in::"): array for name, array in arrays.items() if name.startswith("in::")}
    outputs = {name.removeprefix("out::"): array for name, array in arrays.items() if not name.startswith("in::")}
    return inputs, outputs
