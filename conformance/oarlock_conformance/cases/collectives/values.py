"""Cases of values: every collective x dtype x number of ranks, in place and not, empty, at an offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import oarlock as ol
from oarlock import distributed, dtypes
from oarlock.dtypes import DType
from oarlock.runtime import Device, DeviceArray, from_numpy, to_numpy
from oarlock.runtime.communication import ProcessGroup
from oarlock_conformance.bench import expect, expect_equal
from oarlock_conformance.cases.collectives.party import Guarded, Party, Values
from oarlock_conformance.cases.collectives.reference import check_reduced, kinds_of, values_of
from oarlock_conformance.cases.collectives.register import collective_case

_DTYPES = (
    dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.bfloat16,
    dtypes.float32, dtypes.float64,
)  # fmt: skip
_WORLDS = (1, 2, 3, 4)
_QUICK, _FULL = (0, 1, 1001), (0, 1, 2, 7, 8, 63, 1000, 4097, 100_003)

Check = Callable[[ProcessGroup, DType, int], bytes]
"""Returns what must be the same on every rank."""


def _sizes(party: Party) -> Sequence[int]:
    return _QUICK if party.options.quick else _FULL


def _all_reduce(group: ProcessGroup, dtype: DType, count: int) -> bytes:
    bits = b""
    operands = [values_of(dtype, count, rank) for rank in range(group.world_size)]
    for kind in kinds_of(dtype, count):
        what = f"all_reduce({kind}) of {count} {dtype} on {group.world_size} ranks"
        src, dst = Guarded(group.device, operands[group.rank], 1), Guarded(group.device, np.zeros_like(operands[0]))
        out = group.all_reduce(src.array, dst.array, kind)  # type: ignore[arg-type]
        expect(out is dst.array, f"{what}: dst is not what was returned")
        src.check(operands[group.rank], f"{what}: the operand afterwards")
        apart = dst.numpy(what)
        check_reduced(apart, operands, dtype, kind, what)
        group.all_reduce(src.array, src.array, kind)  # type: ignore[arg-type]
        src.check(apart, f"{what}: in place, compared with the result apart")
        bits += apart.tobytes()
    return bits


def _all_gather(group: ProcessGroup, dtype: DType, count: int) -> bytes:
    what = f"all_gather of {count} {dtype} on {group.world_size} ranks"
    operands = [values_of(dtype, count, rank) for rank in range(group.world_size)]
    src, dst = Guarded(group.device, operands[group.rank], 1), Guarded(group.device, np.zeros_like(np.stack(operands)))
    group.all_gather(src.array, dst.array)
    src.check(operands[group.rank], f"{what}: the operand afterwards")
    dst.check(np.stack(operands), what)
    new = group.all_gather(src.array)
    expect(new.shape == (group.world_size, count), f"{what}: the result's shape is {new.shape}")
    expect_equal(to_numpy(new), np.stack(operands), f"{what}: into a new array")
    return b""


def _reduce_scatter(group: ProcessGroup, dtype: DType, count: int) -> bytes:
    world = group.world_size
    operands = [values_of(dtype, world * count * 2, rank).reshape(world * count, 2) for rank in range(world)]
    mine = slice(group.rank * count, (group.rank + 1) * count)
    for kind in kinds_of(dtype, count):
        what = f"reduce_scatter({kind}) of {world} x ({count}, 2) {dtype}"
        src, dst = (
            Guarded(group.device, operands[group.rank], 1),
            Guarded(group.device, np.zeros_like(operands[0][:count])),
        )
        group.reduce_scatter(src.array, dst.array, kind)  # type: ignore[arg-type]
        src.check(operands[group.rank], f"{what}: the operand afterwards")
        check_reduced(dst.numpy(what), [each[mine] for each in operands], dtype, kind, what)
    return b""


def _all_to_all(group: ProcessGroup, dtype: DType, count: int) -> bytes:
    world = group.world_size
    what = f"all_to_all of {world} x {count} {dtype}"
    operands = [values_of(dtype, world * count, rank) for rank in range(world)]
    wanted = np.concatenate([each.reshape(world, count)[group.rank] for each in operands])
    src, dst = Guarded(group.device, operands[group.rank], 1), Guarded(group.device, np.zeros_like(wanted))
    group.all_to_all(src.array, dst.array)
    src.check(operands[group.rank], f"{what}: the operand afterwards")
    dst.check(wanted, what)
    group.all_to_all(src.array, src.array)
    src.check(wanted, f"{what}: in place")
    return b""


def _broadcast(group: ProcessGroup, dtype: DType, count: int) -> bytes:
    for root in range(group.world_size):
        what = f"broadcast of {count} {dtype} from rank {root} of {group.world_size}"
        array = Guarded(group.device, values_of(dtype, count, group.rank), root)
        group.broadcast(array.array, root)
        array.check(values_of(dtype, count, root), what)
    return b""


def _send_recv(group: ProcessGroup, dtype: DType, count: int) -> bytes:
    """Every pair of ranks, both ways."""
    for low in range(group.world_size):
        for high in range(low + 1, group.world_size):
            for source, target in ((low, high), (high, low)):
                what = f"send of {count} {dtype} from rank {source} to {target} of {group.world_size}"
                array = Guarded(group.device, values_of(dtype, count, group.rank), 1)
                if group.rank == source:
                    group.send(array.array, target)
                elif group.rank == target:
                    group.recv(array.array, source)
                wanted = source if group.rank == target else group.rank
                array.check(values_of(dtype, count, wanted), what)
    return b""


def _unstored(dtype: DType) -> Callable[[Device], str]:
    return lambda device: "" if device.target.stores(dtype) else f"the device does not store {dtype}"


def _check(party: Party, check: Check, dtype: DType, world: int) -> None:
    found = party.ranks(world, lambda group: [check(group, dtype, count) for count in _sizes(party)], dtype)
    for rank, bits in enumerate(found):
        expect(bits == found[0], f"rank {rank} of {world} has other bits than rank 0")


_OPERATIONS: dict[str, tuple[Check, str]] = {
    "reductions.all_reduce": (
        _all_reduce,
        "combines the ranks' arrays, for every kind, in place and not, with one result",
    ),
    "reductions.reduce_scatter": (_reduce_scatter, "combines, for every kind, and gives each rank its part"),
    "moves.all_gather": (_all_gather, "gives every rank the arrays of all, in the order of ranks"),
    "moves.all_to_all": (_all_to_all, "gives rank r the r-th part of every rank, in place and not"),
    "moves.broadcast": (_broadcast, "gives every rank the values of any root"),
    "moves.send_recv": (_send_recv, "moves an array between any two ranks, both ways"),
}
for _name, (_function, _text) in _OPERATIONS.items():
    for _dtype in _DTYPES:
        for _world in _WORLDS[1:] if _function is _send_recv else _WORLDS:
            collective_case(
                f"{_name}/{_dtype}-x{_world}",
                f"{_name.partition('.')[2]} of {_dtype} on {_world} rank{'s' * (_world > 1)} {_text}",
                unsupported=_unstored(_dtype),
                arguments=(_function, _dtype, _world),
            )(_check)


def _no_float(device: Device) -> str:
    return "" if any(device.target.stores(dtype) for dtype in dtypes.ALL if dtype.is_float) else "no float is stored"


@collective_case("reductions.all_reduce/nan", "NaN wins in max and min, on whichever rank it is", unsupported=_no_float)
def nan(party: Party) -> None:
    def work(group: ProcessGroup, dtype: DType) -> None:
        values = np.array([1.0, np.nan, np.inf, -np.inf, np.nan, -0.0], dtype.numpy)
        mine = values if group.rank == 1 else np.array([2.0, 3.0, np.nan, 5.0, -np.inf, 1.0], dtype.numpy)
        for kind, rest in (("max", [2.0, 5.0, 1.0]), ("min", [1.0, -np.inf, 0.0])):
            found = group.all_reduce(from_numpy(mine, group.device), kind=kind).numpy()  # type: ignore[arg-type]
            what = f"{kind} of {dtype} with NaN"
            expect(bool(np.isnan(np.asarray(found[[1, 2, 4]], np.float64)).all()), f"{what}: got {found}")
            expect(found[[0, 3, 5]].astype(np.float64).tolist() == rest, f"{what}: got {found}, expected {rest}")

    for dtype in dtypes.ALL:
        if dtype.is_float and party.device.target.stores(dtype):
            party.ranks(2, lambda group, dtype=dtype: work(group, dtype), dtype)  # type: ignore[misc]


@collective_case("reductions.all_reduce/repeated", "the same operands give the same bits on every rank, 20 times")
def repeated(party: Party) -> None:
    def work(group: ProcessGroup) -> list[bytes]:
        mine: Values = np.random.default_rng(group.rank).standard_normal(1003).astype(np.float32)
        array: DeviceArray = from_numpy(mine, group.device)
        return [group.all_reduce(array).numpy().tobytes() for _ in range(20)]

    for world in (2, 3):
        found = party.ranks(world, work, dtypes.float32)
        different = len({bits for bits_of_rank in found for bits in bits_of_rank})
        expect(different == 1, f"20 sums of the same float32 on {world} ranks have {different} different results")


@collective_case("reductions.all_reduce/strided", "an operand may be a view: transposed, with steps, reversed")
def strided(party: Party) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)

    def work(group: ProcessGroup) -> None:
        x = ol.asarray(base * np.float32(group.rank + 1), device=group.device)
        total = distributed.all_reduce(x.T[::2, ::-1], group).numpy()
        expect_equal(total, np.ascontiguousarray(base.T[::2, ::-1]) * np.float32(3), "all_reduce of a view")
        expect_equal(x.numpy(), base * np.float32(group.rank + 1), "the tensor behind the view")

    party.ranks(2, work, dtypes.float32)


@collective_case("moves.barrier/order", "no rank passes a barrier before every rank has come to it, 20 times")
def barrier(party: Party) -> None:
    for world in (2, 4):
        come = [0] * world

        def work(group: ProcessGroup, come: list[int] = come) -> None:
            for number in range(1, 21):
                come[group.rank] = number
                group.barrier()
                expect(min(come) >= number, f"rank {group.rank} passed barrier {number}, and the ranks were at {come}")

        party.ranks(world, work)
