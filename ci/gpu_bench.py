"""Times kernels of Oarlock on a CUDA device beside PyTorch's and the device's measured limits.

    python gpu_bench.py --output PREFIX [--device cuda:0] [--small]      writes PREFIX.json and PREFIX.md

Times are of one call with its operands in place, waited for after many, the least of several samples. Limits are what
a copy within the device moves. Where the device has a library for products, the generated kernel is timed beside it.
Results are written after each row: what is there when the time is over stays.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.errors import OarlockError
from oarlock.runtime import Device, open_device
from oarlock_conformance.cases.performance.measure import Running

Array = npt.NDArray[Any]
_SAMPLE_S, _SAMPLES = 0.1, 7


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel: the operator with its attributes, the shapes of its operands, and what it moves and computes."""

    name: str
    operator: str
    dtype: dtypes.DType
    shapes: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any]
    torch: Callable[..., Any]
    flops: float = 0.0


def rows(small: bool) -> list[Row]:
    """The table; ``small``: shapes for trying the script out."""
    n, side, line = (64, 64, 256) if small else (4096, 4096, 4096)
    f32, f16 = dtypes.float32, dtypes.float16
    square, product = (side, side), ((side, side), (side, side))
    flops = 2.0 * side**3
    image = (2, 8, 16, 16) if small else (32, 64, 56, 56)
    taps = (8, 8, 3, 3) if small else (64, 64, 3, 3)
    convolution = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    work = 2.0 * image[0] * image[2] * image[3] * taps[0] * taps[1] * 9
    return [
        Row("add", "add", f32, (square, square), {}, lambda t, x, y: x + y),
        Row("gelu", "gelu", f32, (square,), {}, lambda t, x: t.nn.functional.gelu(x)),
        Row("sum of rows", "reduce_sum", f32, ((n, line),), {"axes": (1,), "keepdims": False}, lambda t, x: x.sum(1)),
        Row("softmax", "softmax", f32, ((n, line),), {"axis": 1}, lambda t, x: t.softmax(x, 1)),
        Row("product", "matmul", f32, product, {}, lambda t, x, y: x @ y, flops),
        Row("product, float16", "matmul", f16, product, {}, lambda t, x, y: x @ y, flops),
        Row(
            "convolution", "convolution", f32, (image, taps), convolution,
            lambda t, x, w: t.nn.functional.conv2d(x, w, padding=1), work,
        ),
    ]  # fmt: skip


def least(submit: Callable[[], object], wait: Callable[[], object]) -> float:
    """Seconds of one call: the least of several samples of as many calls as take a tenth of a second."""
    submit()
    wait()
    start = time.perf_counter()
    submit()
    wait()
    count = max(1, min(1000, int(_SAMPLE_S / max(1e-6, time.perf_counter() - start))))
    found = []
    for _ in range(_SAMPLES):
        start = time.perf_counter()
        for _ in range(count):
            submit()
        wait()
        found.append((time.perf_counter() - start) / count)
    return min(found)


def bandwidth(device: Device, nbytes: int) -> float:
    """Bytes a second that a copy within the device reads and writes together."""
    one, other = device.allocate(nbytes), device.allocate(nbytes)
    seconds = least(lambda: device.copy(other, 0, one, 0, nbytes), device.synchronize)
    return 2 * nbytes / seconds


def torch_here() -> Any:
    """PyTorch, where it is installed and sees a GPU; else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def measure(row: Row, device: Device, torch: Any) -> dict[str, Any]:
    """One row of the table; an error of Oarlock's is told in its place."""
    random = np.random.default_rng(0)
    operands = [random.standard_normal(shape, np.float32).astype(row.dtype.numpy) for shape in row.shapes]
    found: dict[str, Any] = {"name": row.name, "shapes": row.shapes, "flops": row.flops}
    try:
        running = Running.of(device, row.operator, operands, **row.attributes)
        found["oarlock_s"] = least(running.submit, device.synchronize)
        if row.operator == "matmul" and "operators" in device.info.capabilities:
            with patch.object(device.driver, "match", lambda call, target: None):
                generated = Running.of(device, row.operator, operands, **row.attributes)
            found["generated_s"] = least(generated.submit, device.synchronize)
        (result,) = running.plan.run(running.operands)
        found["bytes"] = sum(x.nbytes for x in operands) + result.nbytes
        got = result.numpy()
    except OarlockError as error:
        return {**found, "error": f"{type(error).__name__}: {error}"}
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        held = [torch.from_numpy(x).cuda() for x in operands]
        found["torch_s"] = least(lambda: row.torch(torch, *held), torch.cuda.synchronize)
        wanted = row.torch(torch, *held).float().cpu().numpy()
        scale = max(1.0, float(np.abs(wanted).max()))
        found["difference"] = float(np.abs(got.astype(np.float32) - wanted).max()) / scale
    return found


def page(device: Device, limit: float, found: Sequence[dict[str, Any]], torch: Any) -> str:
    """The table for people."""
    beside = f"PyTorch {torch.__version__}" if torch is not None else "PyTorch is not installed here, or sees no GPU"
    lines = [
        f"{device.info.name}, {device.info.driver}; {beside}. A copy within the device reads and writes "
        f"{limit / 1e9:,.0f} GB/s.",
        "",
        "| kernel | Oarlock, us | generated, us | PyTorch, us | of the copy's rate | GFLOP/s | unlike PyTorch's by |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        if "error" in row:
            lines.append(f"| {row['name']} | {row['error'][:120]} | | | | | |")
            continue
        seconds, other = row["oarlock_s"], row.get("torch_s")
        times = seconds, row.get("generated_s"), other
        cells = [row["name"], *(f"{each * 1e6:,.0f}" if each else "-" for each in times)]
        cells.append(f"{row['bytes'] / seconds / limit:.0%}")
        cells.append(f"{row['flops'] / seconds / 1e9:,.0f}" if row["flops"] else "-")
        cells.append(f"{row['difference']:.1e}" if other else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command; exit status 1 where a row of Oarlock gave an error."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="PREFIX")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--small", action="store_true", help="small shapes, to try the script out")
    asked = parser.parse_args()
    device, torch = open_device(asked.device), torch_here()
    limit = bandwidth(device, 1 << (20 if asked.small else 28))
    found: list[dict[str, Any]] = []
    for row in rows(asked.small):
        found.append(measure(row, device, torch))
        record = {"device": device.info.name, "driver": device.info.driver, "copy_bytes_s": limit, "rows": found}
        asked.output.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
        asked.output.with_suffix(".md").write_text(page(device, limit, found, torch))
    print(page(device, limit, found, torch))
    return 1 if any("error" in row for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
