"""Programs: LLVM text becomes object code (for any process), object code becomes addresses, addresses are run."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from oarlock.errors import CompileError, DeviceError, LaunchError
from oarlock.hal import Binding, CopyStep, Handle, KernelSignature, LaunchStep, ProgramDriver
from oarlock.hal.host import HostLaunch, HostPlan, replay_plan, run_grid
from oarlock.target import Target

__all__ = ["CpuProgram", "LoadedProgram", "compile_llvm", "llvm"]


@functools.cache
def llvm() -> Any:
    """llvmlite's binding, initialised; raises DeviceError where it is not installed."""
    try:
        import llvmlite.binding as binding
    except (ImportError, OSError) as error:
        raise DeviceError(f"llvmlite cannot be loaded ({error}); install it: pip install 'oarlock[cpu]'") from error
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def compile_llvm(target: Target, source: str, entries: Sequence[str]) -> bytes:
    """Object code of the LLVM module ``source``, optimised for ``target``; raises CompileError."""
    binding = llvm()
    features = ",".join(flag for flag in target.flags if "=" not in flag)  # the others are the renderer's
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=target.arch, features=features, opt=3, reloc="pic", codemodel="small"
    )
    # Closed by hand, in this order: the cycle of an exception and its frames would free the context first.
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(contextlib.closing(binding.context.create_context()))
        try:
            module = stack.enter_context(binding.parse_assembly(source, context))
            module.triple = machine.triple
            module.data_layout = str(machine.target_data)
            module.verify()
        except RuntimeError as error:
            raise CompileError(f"LLVM refused {', '.join(entries)}: {error}", str(error), source) from error
        defined = {function.name for function in module.functions if not function.is_declaration}
        if not defined.issuperset(entries):
            raise CompileError(f"the source does not define {', '.join(set(entries) - defined)}", "", source)
        _optimise(binding, module, machine)
        _check_calls(binding, module, source)
        return bytes(machine.emit_object(module))


def _optimise(binding: Any, module: Any, machine: Any) -> None:
    # level 3 takes twice the time, and no kernel that was measured gained by it
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = True
    # interleaving costs half of the compile time, and out-of-order cores gain little by it
    options.loop_unrolling, options.loop_interleaving = True, False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _check_calls(binding: Any, module: Any, source: str) -> None:
    """Raise CompileError for a call of a function that neither LLVM nor the host's C library has."""
    for function in module.functions:
        name = function.name
        if function.is_declaration and not name.startswith("llvm.") and binding.address_of_symbol(name) is None:
            raise CompileError(f"the source calls @{name}, which the host does not have", "", source)


class LoadedProgram:
    """Linked object code: the addresses of its kernels, valid until ``release``."""

    __slots__ = ("_tracker", "addresses")

    def __init__(self, tracker: Any, entries: Sequence[str]) -> None:
        self._tracker = tracker
        self.addresses: dict[str, int] = {entry: tracker[entry] for entry in entries}

    def release(self) -> None:
        """Unload the code."""
        self.addresses.clear()
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None


class CpuProgram(ProgramDriver):
    """Loading, launching and plans."""

    def __init__(self) -> None:
        super().__init__()
        self._jit: Any = None
        self._numbers = itertools.count()
        self._programs: set[LoadedProgram] = set()

    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        binding = llvm()
        if self._jit is None:
            self._jit = binding.create_lljit_compiler(suppress_errors=True)
        library = binding.JITLibraryBuilder().add_object_img(executable).add_current_process()
        names = [signature.name for signature in signatures]
        for name in names:
            library.export_symbol(name)
        try:
            program = LoadedProgram(library.link(self._jit, f"program{next(self._numbers)}"), names)
        except RuntimeError as error:
            raise CompileError(
                f"the object code of {', '.join(names)} cannot be linked: {error}", str(error)
            ) from error
        self._programs.add(program)
        return program

    def launch(
        self,
        stream: Handle | None,
        program: Handle,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        buffers: Sequence[Binding],
        scalars: bytes,
    ) -> None:
        run_grid(_entry(program, entry), grid, [handle.address + base for handle, base, _ in buffers], scalars)

    def prepare(self, steps: Sequence[LaunchStep | CopyStep]) -> Handle:
        """Keep a plan (capability ``plans``)."""
        return HostPlan([step if isinstance(step, CopyStep) else _host_launch(step) for step in steps])

    replay = staticmethod(replay_plan)
    """Run a plan on bindings (capability ``plans``)."""

    def close_programs(self) -> None:
        """Unload every program, then the linker that holds them."""
        for program in self._programs:
            program.release()
        self._programs.clear()
        if self._jit is not None:
            self._jit.close()
            self._jit = None


def _entry(program: LoadedProgram, entry: str) -> int:
    try:
        return program.addresses[entry]
    except KeyError:
        raise LaunchError(f"kernel {entry} is not loaded; the program has {', '.join(program.addresses)}") from None


def _host_launch(step: LaunchStep) -> HostLaunch:
    buffers = tuple((slot, base) for slot, base, _ in step.buffers)
    return HostLaunch(_entry(step.program, step.entry), step.grid, buffers, step.scalars, step.strand)
