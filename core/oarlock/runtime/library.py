"""Library kernels of an adapter in place of generated ones: asking for them, and running them in stream order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from oarlock.codegen.values import shape_of
from oarlock.errors import DeviceError
from oarlock.hal import OperatorCall, OperatorKernel, Operators
from oarlock.ir import Operation
from oarlock.ops import tensor
from oarlock.runtime.device import Device
from oarlock.runtime.memory import Buffer
from oarlock.runtime.stream import Stream, check_stream

__all__ = ["claims_of", "run_operator"]


def claims_of(device: Device) -> Callable[[Operation], OperatorKernel | None]:
    """A function that gives the adapter's kernel for an operation, or None."""
    if "operators" not in device.info.capabilities:
        return lambda op: None
    operators = cast("Operators", device.driver)

    def claim(op: Operation) -> OperatorKernel | None:
        call = OperatorCall(
            op.name.removeprefix("array."),
            tuple((tensor(v).dtype, shape_of(v)) for v in op.operands),
            tuple((tensor(v).dtype, shape_of(v)) for v in op.results),
            dict(op.attributes),
        )
        with device.using("match"):
            found = operators.match(call, device.target)
            if found is not None and not (callable(getattr(found, "run", None)) and callable(found.workspace)):
                raise DeviceError(
                    f"match of {call.name} returned a {type(found).__name__} without run and workspace; expected an "
                    f"oarlock.hal.OperatorKernel, or None: see match in docs/contract.md"
                )
            return found

    return claim


def run_operator(
    device: Device,
    kernel: OperatorKernel,
    buffers: Sequence[tuple[Buffer, int]],
    label: str,
    stream: Stream | None = None,
) -> None:
    """Run ``kernel`` on (buffer, byte offset) of operands, results and workspace."""
    lane = check_stream(device, stream)
    with device.using(label, lane):
        allocations = [buffer.allocation if buffer.nbytes else device.null(i) for i, (buffer, _) in enumerate(buffers)]
        for allocation in allocations:
            allocation.use(lane)
        lane.ticket += 1
        kernel.run(lane.handle, [(a.handle, offset) for a, (_, offset) in zip(allocations, buffers, strict=True)])
