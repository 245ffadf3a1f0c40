"""The index of the contract: each of its statements with the cases that check it, or why none can.

A line is the beginning of a sentence of ``core/oarlock/hal`` and, behind the bar, patterns of case ids; ``level:NAME``
where a whole level checks it; ``test:PATH`` where tests of the core do; or ``none:`` and the reason.
"""

from __future__ import annotations

__all__ = ["STATEMENTS"]

STATEMENTS = """
adapter
  The adapter: finds devices | none: a heading
adapter.CONTRACT
  The version of the contract that this core speaks | discovery.adapter/contract discovery.neighbours/refused
adapter.Driver
  One open device. | none: a definition
  Handles it gives out are opaque | modes.witnessed/* devices.event/foreign devices.program/foreign failure.foreign/*
  Threads: the core calls a driver | threads.* modes.witnessed/*
  It never calls it after | sweep.driver/close life.fork/refused
  A call that waits for the device | event.wait/returns event.wait/held_* threads.use/eight
  Errors: a method raises the types | sweep.driver/*
  Any other exception becomes | sweep.driver/*
  DeviceLostError, from any method | sweep.lost/methods sweep.lost/reset
  Derive one class from this | none: advice on how to write it; test:core/tests/mistakes
adapter.Adapter
  What an adapter package offers | discovery.neighbours/* life.open/registered_again
  Making it must be cheap | none: which libraries are the vendor's cannot be seen from outside; discovery.count/fork
adapter.Adapter.contract
  The contract's version | discovery.adapter/contract
adapter.Adapter.version
  The adapter's own version | discovery.adapter/contract
adapter.Adapter.devices
  The devices there are, in a stable order | discovery.devices/stable devices.open/index
  May load the vendor's libraries. | discovery.count/fork
  An empty list: the stack works | discovery.neighbours/broken
  Raise DeviceError (or let the OSError | sweep.adapter/devices discovery.neighbours/broken
  Equal every time | discovery.devices/stable discovery.target/fingerprint
  Opens nothing that stays open. | discovery.count/fork life.open/clean
  Listings call it in a child process | discovery.count/fork
adapter.Adapter.open
  Open device ``index`` | devices.open/index sweep.driver/close
  Several devices are open at once | devices.threads/both life.open/again
  Raises DeviceNotFoundError for an index | discovery.open/absent sweep.adapter/open
  Not called in a forked child | life.fork/refused
adapter.Adapter.compile
  Compile ``source`` | program.* claims.language/renders
  The bytes are stored on disk | program.compile/other_process cache.*
  Needs no open device | program.compile/no_device
  Threads: called from several at once | program.compile/threads
  Raises CompileError with the log | program.compile/error program.compile/missing_entry
adapter.Adapter.cache_key
  What besides target and source | discovery.adapter/cache_key cache.miss/parts
  The same text every time | discovery.adapter/cache_key cache.hit/same
  Called often | none: how often is the core's affair; cheapness shows in the launches of a certificate's performance
communication
  * | level:collectives
communication.Collective
  * | level:collectives
communication.ReduceKind
  * | level:collectives
communication.Place
  * | level:collectives
communication.Communication
  * | level:collectives
device
  The device: what it is | none: a heading
device.DeviceInfo
  One device of an adapter. | discovery.info/identity
  ``capabilities`` names the optional | discovery.info/capabilities claims.undeclared/methods
  Capabilities: | claims.capability/* claims.undeclared/refused
device.DeviceInfo.name
  * | discovery.info/identity
device.DeviceInfo.vendor
  * | discovery.info/identity
device.DeviceInfo.driver
  * | discovery.info/identity
device.DeviceInfo.memory
  Bytes that allocations may take | claims.memory/total claims.capability/memory_info memory.allocate/too_big
device.DeviceInfo.target
  What kernels for it may assume. | claims.limits/* claims.dtypes/* claims.flush_to_zero/* claims.abilities/*
device.DeviceInfo.capabilities
  Words of the list above | discovery.info/capabilities
device.DeviceInfo.failure_scope
  What a failed command spoils | claims.failure_scope/kept failure.command/other_streams
device.DeviceInfo.is_accelerator
  False for the host itself | none: whether a device is the host is its vendor's word; nothing else tells
device.DeviceInfo.notes
  Short remarks | none: words for a person
device.DeviceDriver
  The device part of a driver. | none: a heading
device.DeviceDriver.close
  Give everything back | life.close/* life.open/clean memory.free/gives_back
  Called at most once | sweep.driver/close sweep.lost/reset
  Live handles die | life.close/orders life.exit/live_handles
  Work in flight is finished or dropped | life.close/busy life.close/host_memory
  Returns in seconds | life.close/busy life.exit/busy life.exit/*
device.MemoryInfo
  Capability | claims.capability/memory_info
device.MemoryInfo.memory_info
  (free, total) bytes | memory.info/plausible claims.capability/memory_info devices.memory/apart
device.Reset
  Capability | claims.capability/reset
device.Reset.reset
  Bring a lost device back | claims.capability/reset
  Called before ``close`` | sweep.lost/reset
memory
  Memory: allocation and copies | none: a heading
  Offsets and sizes are bytes. | memory.copy_in/offset memory.copy_out/offset memory.copy/offset
memory.Handle
  What a driver gives out | test:core/tests/mistakes
  Opaque to the core | modes.witnessed/* test:core/tests/mistakes
memory.MemoryDriver
  The memory part of a driver. | none: a heading
  The core checks bounds | memory.copy/bounds memory.allocate/zero modes.witnessed/*
memory.MemoryDriver.allocate
  ``nbytes`` > 0 of device memory | memory.allocate/sizes memory.allocate/random_sizes memory.allocate/alignment
  The core asks for multiples | modes.witnessed/*
  It owns the handle | modes.witnessed/* sweep.driver/allocate
  Raises OutOfMemoryError | memory.allocate/exhausted memory.allocate/too_big memory.allocate/evicts
memory.MemoryDriver.free
  Free what | memory.free/* program.load/apart plan.prepare/many modes.witnessed/*
  All work that uses it has ended. | modes.witnessed/* memory.free/in_flight program.free/in_flight
memory.MemoryDriver.copy_in
  Copy the contiguous bytes | memory.copy_in/offset memory.copy/order memory.copy_in/used_at_once
  ``src`` belongs to the caller | memory.copy_in/reusable
  ``src`` may be read-only | memory.copy_in/host_memory
  What is staged is bounded | memory.allocate/bounded
  A failure that shows later | failure.command/told
memory.MemoryDriver.copy_out
  Copy ``len(dst)`` bytes | memory.copy_out/offset memory.copy_out/after_kernel
  May return before the copy is done | memory.copy_out/after_kernel event.query/means_done
  Nothing outside ``dst`` | memory.copy_out/neighbours
memory.MemoryDriver.copy
  Copy within the device | memory.copy/offset memory.copy/order
  ``dst`` and ``src`` may be one allocation | memory.copy/overlap modes.witnessed/memory.copy-overlap
memory.Addressable
  Capability | claims.capability/address
memory.Addressable.address
  The address of an allocation's first byte | claims.capability/address memory.allocate/alignment
  With capability ``host_memory`` | claims.capability/host_memory memory.address/host
memory.Addressable.adopt
  A handle on foreign memory | memory.adopt/shared life.close/views
  Raises DeviceError where | none: which addresses a device cannot reach only its vendor knows
memory.Fill
  Capability | claims.capability/fill
memory.Fill.fill
  Set bytes | memory.fill/ranges claims.capability/fill launch.order/mixed
memory.PeerCopy
  Capability | claims.capability/peer_copy
memory.PeerCopy.copy_peer
  Copy from ``src`` | claims.capability/peer_copy memory.peer/*
  The core has synchronised | memory.peer/order memory.peer/reused
memory.Pinned
  Capability | claims.capability/pinned
memory.Pinned.allocate_pinned
  Writable page-locked | memory.pinned/copies claims.capability/pinned
operators
  Operators: library | none: a heading
operators.OperatorCall
  One operator to run | claims.capability/operators
operators.OperatorKernel
  A kernel for one call. | claims.capability/operators
  Operands and results are row-major | level:operators
  Kept by the plan | claims.capability/operators
operators.OperatorKernel.workspace
  Bytes of scratch memory | claims.capability/operators
operators.OperatorKernel.run
  Run on (handle, byte offset) | claims.capability/operators
  Returns at once | none: what an asynchronous kernel is held by cannot be told from outside; level:operators
  Fails as ``launch`` does. | none: no operator can be made to fail on every device
  Equal operands give equal bits. | level:operators
operators.Operators
  Capability | claims.capability/operators
operators.Operators.match
  A kernel for ``call`` | claims.capability/operators
  Asked when a plan is made | level:operators
  Submits nothing. | claims.capability/operators
program
  Programs: loading | none: a heading
program.Binding
  (allocation, base, extent) | claims.limits/binding_alignment launch.buffers/offsets modes.witnessed/launch.*
  What is left of an offset | launch.buffers/offsets launch.buffers/far_offset
  Extents are multiples | modes.witnessed/launch.buffers-offsets
  An empty operand binds | launch.buffers/empty
program.ProgramDriver
  The program part | none: a heading
program.ProgramDriver.load
  Load what ``compile`` made | program.compile/other_process program.load/several
  ``executable`` is not needed | program.load/apart
  The core owns the handle | program.load/many modes.witnessed/program.free-in_flight
  Kernels of two programs | program.load/same_names
  Raises CompileError | program.compile/error life.exit/after_error
program.ProgramDriver.launch
  Give one launch | launch.grid/* launch.block/* claims.limits/max_grid
  Returns at once | event.wait/held_* event.query/held
  ``buffers`` and ``scalars`` are in the order | launch.scalars/* launch.buffers/* modes.witnessed/launch.*
  The core keeps program and memory alive | program.free/in_flight memory.free/in_flight
  A failure that shows at once | sweep.driver/launch failure.command/refused
program.LaunchStep
  One launch of a plan. | plan.replay/steps
  A buffer is (slot, base, extent) | plan.replay/scalars
  ``strand`` says what need not wait | none: permission, not a duty
  A step of strand 0 comes after all before it. | plan.replay/strands
  Steps that follow one another with numbers from 1 on | plan.replay/strands
  Where the number falls | plan.replay/strands
program.CopyStep
  One copy of a plan | plan.replay/steps
program.Plans
  Capability | claims.capability/plans
program.Plans.prepare
  Keep a plan | plan.prepare/many plan.replay/steps
  The core owns the handle | plan.prepare/keeps_programs sweep.driver/prepare
program.Plans.replay
  Run the plan | plan.replay/steps plan.replay/order plan.replay/rebinds
  Returns at once | none: an adapter whose launches return at once replays by the same means; plan.replay/order
  Each (step, offset, bytes) | plan.replay/scalars
  May be called again | plan.prepare/keeps_programs plan.replay/rebinds
  Fails as ``launch`` does. | sweep.driver/replay
stream
  Streams: in-order lanes | launch.order/* stream.order/within
  Order across streams | event.wait/* claims.capability/streams
stream.StreamDriver
  The stream part | none: a heading
  Every driver has the one | stream.default/none
stream.StreamDriver.synchronize
  Wait until all work | stream.synchronize/done memory.copy_out/after_kernel
  Raises the first failure | failure.command/told claims.failure_scope/kept
  Raises DeviceTimeoutError | failure.synchronize/timeout
stream.Streams
  Capability | discovery.info/capabilities test:core/tests/mistakes
stream.Streams.create_stream
  A new stream | stream.create/distinct stream.current/driver
  Owned by the core | stream.create/many sweep.driver/create_stream
stream.Streams.destroy_stream
  Give a stream back | sweep.driver/destroy_stream stream.create/many
  The core has synchronised it | stream.drop/busy stream.close/busy event.record/outlives
stream.Streams.record
  An event that completes | event.query/means_done event.query/held event.wait/returns
  Owned by the core | event.record/bounded event.record/many
  What is given to the stream later | event.query/kept event.query/held
stream.Streams.wait
  Work given to ``stream`` from now on | event.wait/* event.wait/returns
  A failed command before | failure.command/waiters
stream.Streams.query
  Whether ``event`` is complete | event.query/*
  A failed command completes too. | failure.command/waiters
  True stays true. | event.query/kept event.query/after_synchronize
stream.Streams.destroy_event
  Give an event back | event.destroy/pending event.record/many
stream.ElapsedTime
  Capability | event.elapsed/*
stream.ElapsedTime.elapsed
  Seconds of device time | event.elapsed/unit event.elapsed/ratio event.elapsed/ordered event.elapsed/adjacent
stream.HostCallbacks
  Capability | claims.capability/host_callbacks
stream.HostCallbacks.call_host
  Call ``function`` | stream.call_host/order stream.call_host/held claims.capability/host_callbacks
  It may give work | stream.call_host/submits
  When it raises | failure.command/told
  (What users give | stream.call_host/raises
"""
