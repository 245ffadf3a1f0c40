"""Recording: calls go to a per-thread tape, and run together when a value is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from oarlock.config import config
from oarlock.errors import DeviceError
from oarlock.ir import Attribute
from oarlock.program.backend import Data, Place, backend
from oarlock.program.calls import MEMO_LIMIT, Call, Kind, Number, infer, scalar_call
from oarlock.program.cut import History, Segment, period_cuts
from oarlock.program.fast import ready, start
from oarlock.program.plans import Entry, Runner, build, counters, first_numbers
from oarlock.program.sites import Failure, Site, call_site

if TYPE_CHECKING:
    from oarlock.dtypes import DType
    from oarlock.program.tensor import Tensor

__all__ = [
    "Recorded", "Tape", "apart", "apply", "apply_at", "apply_many", "concrete", "eager_mode", "flush_thread",
    "limits", "pending", "record", "scalar", "thread_state",
]  # fmt: skip

PLAN_LIMIT = 1024
"""Plans kept per device; the older half is dropped when there are more."""


class limits:
    """When a tape runs although nobody looks at a value."""

    operators: ClassVar[int] = 4096
    """Operators on one tape."""
    held_bytes: ClassVar[int] = 1 << 30
    """Bytes of the inputs and results of one tape."""
    views: ClassVar[int] = 32
    """Views of views in eager mode."""


class Recorded:
    """The state of a tensor: its kind and place, and its data, or where on a tape it will come from."""

    __slots__ = ("__weakref__", "_data", "_failure", "_kind", "_number", "_place", "_tape")

    _kind: Kind
    _place: Place
    _data: Data
    """None while pending, and after a failure."""
    _tape: Tape | None
    """The tape that it is pending on."""
    _number: int
    _failure: Failure | None

    def __init_subclass__(cls) -> None:
        """The one subclass there is, Tensor, is the class of what recording returns."""
        global _public
        _public = cls
        start(cls)

    def _settle(self) -> Data:
        """The data, running the tape first when it is pending; raises what made the program fail."""
        tape = self._tape
        if tape is not None:
            tape.flush()
        if self._failure is not None:
            raise self._failure.again()
        return self._data

    def _become(self, other: Recorded) -> None:
        """Take over the value of ``other``: the new version of an array that was assigned to."""
        tape = other._tape
        if tape is None:
            self._finish(other._data, other._failure)
        else:
            with tape.lock:
                self._data, self._failure = other._data, other._failure
                self._number, self._tape = other._number, other._tape
                if self._tape is not None:
                    self._tape.results[self._number] = ref(self)
        self._kind, self._place = other._kind, other._place

    def _finish(self, data: Data, failure: Failure | None) -> None:
        self._data = data
        self._failure = failure
        self._tape = None


new_lock = type(threading.RLock())  # threading.RLock itself is a function around it
_NOTHING: Mapping[str, Attribute] = {}
_public: type[Recorded] = Recorded
_new = object.__new__


class Tape:
    """What one thread recorded for one device since it last ran.

    ``entries`` are (call, operand numbers ...); values are numbered in their order. ``results[n]`` is a weak
    reference to the tensor of value n (None for an input), so what died is not computed for its own sake.
    """

    __slots__ = (
        "closed", "count", "entries", "held", "leaf_numbers", "limit", "lock", "payloads", "place", "results", "sites",
        "thread",
    )  # fmt: skip

    def __init__(self, place: Place, thread: ThreadState) -> None:
        self.place = place
        self.thread = thread
        self.lock = new_lock()
        self.closed = False
        self.entries: list[Entry] = []
        self.sites: list[Site] = []
        self.results: list[ref[Recorded] | None] = []
        self.payloads: list[Data] = []
        self.leaf_numbers: dict[int, int] = {}
        self.count = 0
        self.held = 0
        self.limit = 1 if thread.eager or config.eager else limits.operators

    def leaf(self, kind: Kind, data: Data) -> int:
        """The number of an input, which is entered once."""
        number = self.leaf_numbers.get(id(data))
        if number is None:
            number = self.leaf_numbers[id(data)] = len(self.results)
            self.entries.append((scalar_call(kind.dtype) if type(data) is Number else kind.leaf,))
            self.sites.append(None)
            self.results.append(None)
            self.payloads.append(data)
            self.held += kind.nbytes
        return number

    def view(self, operand: Recorded | Number) -> int:
        """The number of a view of eager mode, which is entered with what it looks at."""
        tape = operand._tape
        if tape is None:
            return self.leaf(operand._kind, operand._settle())
        with tape.lock:
            if tape.closed:
                return self.view(operand)
            numbers: list[int] = []
            payloads = iter(tape.payloads)
            for entry, site in zip(tape.entries, tape.sites, strict=True):
                call = entry[0]
                if call.role != "operator":
                    numbers.append(self.leaf(call.results[0], next(payloads)))
                    continue
                self.entries.append((call, *[numbers[number] for number in entry[1:]]))
                self.sites.append(site)
                numbers.append(len(self.results))
                self.results.append(None)
                self.count += 1
            return numbers[operand._number]

    def waiting(self) -> dict[int, Recorded]:
        """The living tensors that wait for this tape, by number."""
        found: dict[int, Recorded] = {}
        for number, reference in enumerate(self.results):
            if reference is not None:
                tensor = reference()
                if tensor is not None and tensor._tape is self and tensor._number == number:
                    found[number] = tensor
        return found

    def flush(self) -> Exception | None:
        """Run all of it. A failure is left in the results, which raise it when they are used, and returned."""
        if ready.flush is not None:
            done: Any = ready.flush(self)
            if done is not NotImplemented:
                return done  # type: ignore[no-any-return]
        failure: Exception | None = None
        with self.lock:
            if self.closed:
                return None
            self.thread.drop(self)
            waiting = self.waiting()
            if waiting:
                try:
                    data = _execute(self.place, self.entries, self.sites, self.payloads, list(waiting))
                except Exception as error:
                    failure = self.failed(waiting, error)
                else:
                    for tensor, value in zip(waiting.values(), data, strict=True):
                        tensor._finish(value, None)
            self.close()
        return failure

    def overflow(self) -> None:
        """Run what a limit demands: whole turns of a loop, each as one program, or all of it where nothing repeats."""
        with self.lock:
            if self.limit == 1 and self.entries[-1][0].is_view and self.count < limits.views:
                self.thread.drop(self)  # it waits here alone, and goes with whoever reads it
                return
            cuts = period_cuts(self.entries, self.sites) if self.limit > 1 else []
            if not cuts:
                self.flush()
                return
            self.thread.drop(self)
            waiting = self.waiting()
            history = History(self.entries, self.sites, self.payloads)
            try:
                for start, stop in zip([0, *cuts], cuts, strict=False):
                    self._run_turn(history, range(start, stop), waiting)
            except Exception as error:
                self._fail(waiting, error)
            else:
                self._keep(history, range(cuts[-1], len(self.entries)), waiting)
            self.close()

    def _run_turn(self, history: History, span: range, waiting: dict[int, Recorded]) -> None:
        """Run one part of the tape, for what is waiting for it and what later parts use."""
        segment = Segment(history, span)
        wanted = sorted(n for n in {*waiting, *history.used_from(span.stop)} if segment.contains(n))
        outputs = [n for n in wanted if n in waiting or history.values[n] is None]
        numbers = [segment.number(n) for n in outputs]
        data = _execute(self.place, segment.entries, segment.sites, segment.payloads, numbers)
        for number, value in zip(outputs, data, strict=True):
            history.values[number] = value
            tensor = waiting.pop(number, None)
            if tensor is not None:
                tensor._finish(value, None)

    def _keep(self, history: History, span: range, waiting: dict[int, Recorded]) -> None:
        """Move the last part, which has not run, to a new tape of the thread."""
        segment = Segment(history, span)
        numbers = {segment.number(number): tensor for number, tensor in waiting.items()}
        tape = Tape(self.place, self.thread)
        tape.entries, tape.sites, tape.payloads = segment.entries, segment.sites, segment.payloads
        tape.results = [None] * len(segment.numbers)
        tape.count = sum(entry[0].role == "operator" for entry in segment.entries)
        tape.held = sum(entry[0].nbytes for entry in segment.entries)
        inputs = [i for i, entry in enumerate(tape.entries) if entry[0].role != "operator"]
        first = first_numbers(tape.entries)
        tape.leaf_numbers = {id(payload): first[i] for i, payload in zip(inputs, tape.payloads, strict=True)}
        for number, tensor in numbers.items():
            tape.results[number] = ref(tensor)
            tensor._number, tensor._tape = number, tape
        self.thread.tapes[self.place] = tape

    def failed(self, waiting: dict[int, Recorded], error: Exception) -> Exception:
        """Leave ``error`` in what waits, and be closed; gives what the first result raises from now on."""
        self._fail(waiting, error)
        self.close()
        return next(iter(waiting.values()))._failure.again()  # type: ignore[union-attr]

    def _fail(self, waiting: dict[int, Recorded], error: Exception) -> None:
        owners = [index for index, entry in enumerate(self.entries) for _ in range(entry[0].count)]
        for number, tensor in waiting.items():
            tensor._finish(None, Failure(error, self.sites[owners[number]]))

    def close(self) -> None:
        """Nothing can be recorded here any more, and nothing is held."""
        self.closed = True
        self.entries, self.sites, self.results, self.payloads = [], [], [], []
        self.leaf_numbers = {}


def _execute(
    place: Place, entries: Sequence[Entry], sites: Sequence[Site], payloads: Sequence[Any], outputs: Sequence[int]
) -> list[Data]:
    """Run the program that computes the values numbered ``outputs``, building it when its structure is new."""
    key = (tuple(entries), tuple(outputs))
    runner = place.plans.get(key)
    if runner is None:
        runner = _prepared(place, entries, sites, outputs, key)
    counters.flushed += 1
    counters.outputs += len(outputs)
    data = [payloads[position] for position in runner.leaves]
    return runner.run([given.value if type(given) is Number else given for given in data])


def _prepared(
    place: Place, entries: Sequence[Entry], sites: Sequence[Site], outputs: Sequence[int], key: tuple[Any, ...]
) -> Runner:
    """A structure seen for the first time, which is remembered under ``key``."""
    plan = build(entries, outputs, sites)
    runner = Runner(plan.function, plan.leaves, backend().compiled(plan.function, place.device))
    if len(place.plans) >= PLAN_LIMIT:
        for old in list(place.plans)[: PLAN_LIMIT // 2]:
            place.plans.pop(old, None)
    place.plans[key] = runner
    return runner


class ThreadState:
    """The tapes of one thread, by place, and how many ``eager_mode`` blocks and traces of ``ol.jit`` it is in."""

    __slots__ = ("eager", "tapes", "tracing")

    def __init__(self) -> None:
        self.tapes: dict[Place, Tape] = {}
        self.eager = 0
        self.tracing = 0

    def tape(self, place: Place) -> Tape:
        """The open tape for ``place``."""
        tape = self.tapes.get(place)
        if tape is None or tape.closed:
            tape = self.tapes[place] = Tape(place, self)
        return tape

    def drop(self, tape: Tape) -> None:
        """Let the next operator begin a new tape."""
        if self.tapes.get(tape.place) is tape:
            del self.tapes[tape.place]


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = ThreadState()


local = _Local()


def record(
    place: Place, name: str, operands: Sequence[Recorded | Number], attributes: Mapping[str, Attribute] = _NOTHING
) -> Any:
    """Record one operator: its tensor, or a tuple of them when it has several results."""
    state = local.state
    if ready.record is not None:
        found = ready.record(state, place, name, operands, attributes)
        if found is not NotImplemented:
            return found
    tape = state.tapes.get(place) or state.tape(place)
    key: tuple[Any, ...] = (name, *attributes.items()) if attributes else (name,)
    for operand in operands:
        if operand._place is not place:
            raise apart(name, place, operand._place)
        if operand._data is None and operand._tape is not tape and not _is_view(operand, tape):
            operand._settle()
        key += (operand._kind,)
    call = place.calls.get(key)
    if call is None:
        call = _inferred(place, name, operands, attributes, key)
    with tape.lock:
        if tape.closed:
            state.drop(tape)
            return record(place, name, operands, attributes)
        results = tape.results
        entry: tuple[Any, ...] = (call,)
        for operand in operands:
            data = operand._data
            if data is not None:
                entry += (tape.leaf_numbers.get(id(data)) or tape.leaf(operand._kind, data),)
            else:
                entry += (operand._number if operand._tape is tape else tape.view(operand),)
        tape.entries.append(entry)
        tape.sites.append(call_site(3))
        kinds = call.results
        made: Any
        if len(kinds) == 1:
            made = _new(_public)
            made._kind = kinds[0]
            made._place = place
            made._data = made._failure = None
            made._tape = tape
            made._number = len(results)
            results.append(ref(made))
        else:
            made = tuple([pending(kind, place, tape) for kind in kinds])
        tape.count += 1
        tape.held += call.nbytes
        if tape.count >= tape.limit or tape.held >= limits.held_bytes:
            tape.overflow()
        return made


def _is_view(operand: Recorded | Number, tape: Tape) -> bool:
    """Whether ``operand``, which is pending, is a view that an operator of eager mode reads in place."""
    return tape.limit == 1 and operand._tape is not None and operand._tape.limit == 1


def apart(name: str, place: Place, other: Place) -> DeviceError:
    if place.name == other.name:
        return DeviceError(
            f"{name}: one operand was made before {place.name} was closed and opened again: make it anew"
        )
    return DeviceError(f"{name}: operands are on {place.name} and {other.name}: move one with x.to({place.name!r})")


def _inferred(
    place: Place,
    name: str,
    operands: Sequence[Recorded | Number],
    attributes: Mapping[str, Attribute],
    key: tuple[Any, ...],
) -> Call:
    """A call seen for the first time, which is remembered under ``key``."""
    call = infer(place, name, [operand._kind for operand in operands], dict(attributes))
    if len(place.calls) >= MEMO_LIMIT:
        place.calls.clear()
    place.calls[key] = call
    return call


def pending(kind: Kind, place: Place, tape: Tape) -> Any:
    """A tensor that will be the next value of ``tape``."""
    made = _new(_public)
    made._kind = kind
    made._place = place
    made._data = made._failure = None
    made._tape = tape
    made._number = len(tape.results)
    tape.results.append(ref(made))
    return made


def apply(name: str, *operands: Tensor, **attributes: Attribute) -> Tensor:
    """Record operator ``name``, which has one result, on ``operands`` (at least one, all on one device).

    Raises ShapeError or DTypeError when they do not fit, DeviceError when they are on several devices.
    """
    return record(operands[0]._place, name, operands, attributes)  # type: ignore[no-any-return]


def apply_many(name: str, *operands: Tensor, **attributes: Attribute) -> tuple[Tensor, ...]:
    """As ``apply``, for an operator with several results."""
    return record(operands[0]._place, name, operands, attributes)  # type: ignore[no-any-return]


def apply_at(place: Place, name: str, *operands: Tensor, **attributes: Attribute) -> Tensor:
    """As ``apply``, on ``place``: for operators that may have no operands."""
    return record(place, name, operands, attributes)  # type: ignore[no-any-return]


def scalar(place: Place, dtype: DType, value: float | int) -> Tensor:
    """A 0-d tensor of a run-time scalar: programs that use it do not depend on ``value`` (which ``dtype`` holds)."""
    kind = scalar_call(dtype).results[0]
    return concrete(kind, place, Number(kind, place, value))


def concrete(kind: Kind, place: Place, data: Data) -> Tensor:
    """A tensor whose data is there already."""
    made = _new(_public)
    made._kind = kind
    made._place = place
    made._number = -1
    made._data = data
    made._failure = made._tape = None
    return made  # type: ignore[return-value]


def thread_state() -> ThreadState:
    """The state of the calling thread."""
    return local.state


def flush_thread() -> Exception | None:
    """Run what this thread has recorded, on every device; returns the first failure."""
    first: Exception | None = None
    tapes = local.state.tapes
    if not tapes:
        return None
    for tape in list(tapes.values()):
        failure = tape.flush()
        first = first or failure
    return first


@contextmanager
def eager_mode() -> Iterator[None]:
    """Run each operator of this thread at once, unfused, inside the ``with``: for debugging.

    What only looks at an array in another way (a transpose, a reshape, a slice, a broadcast) is read in place by the
    operator that takes it, as a view is; it is made when its own value is asked for.
    """
    flush_thread()
    state = local.state
    state.eager += 1
    try:
        yield
    finally:
        state.eager -= 1
        flush_thread()
