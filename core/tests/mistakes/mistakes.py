"""The list of mistakes: what a new author slips in, how it shows, and what the message must say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MISTAKES", "Mistake", "Trigger"]

Trigger = Literal["load", "doctor", "open", "kernel", "streams", "use", "certify"]
"""load: the adapter is asked for; doctor: ``oarlock doctor`` names it; open: a device is opened; kernel: a kernel runs;
streams: an event is waited for; use: one line in ``use``; certify: one case runs."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """``changes`` are texts of the adapter and what stands there instead, in turn. ``says``: the method or hook, what
    was expected, and the next step, each as the message has it; the adapter's name is looked for as well."""

    name: str
    trigger: Trigger
    changes: tuple[str, ...]
    method: str
    expected: str
    step: str
    use: str = ""
    case: str = ""
    entries: int = 1


_HOOK = "@hookimpl\ndef oarlock_adapter() -> AcmeAdapter:\n    return AcmeAdapter()"
_DEVICES = 'return [DeviceInfo("Acme 1", "acme", "acme driver 4.2", 1 << 30, target, frozenset())]'
_SYNC = "def synchronize(self, stream: Any, timeout_s: float) -> None:\n        return None"
_STREAMS = """def synchronize(self, stream: Any, timeout_s: float) -> None:
        return None

    def create_stream(self) -> Any:
        return object()

    def destroy_stream(self, stream: Any) -> None:
        return None

    def record(self, stream: Any) -> Any:
        return object()

    def wait(self, stream: Any, event: Any) -> None:
        return None

    def query(self, event: Any) -> bool:
        return True

    def destroy_event(self, event: Any) -> None:
        return None"""
_CAPABLE = ("frozenset())]", 'frozenset({"streams"}))]')
_TARGET = "storage=(("
_LAUNCH = "kernel = program.kernels.get(entry)"
_DRIVER = "        return AcmeDriver()"
_OUT = "dst[:] = memoryview(src)[src_offset : src_offset + dst.nbytes]"
_COMPUTE = 'compute=frozenset({"bool", "int32", "uint32", "float32"}), '
_FILL = """    def fill(self, stream: Any, dst: Any, dst_offset: int, nbytes: int, byte: int) -> None:
        return None

"""
_COMPILE = "return compile_source(target, source, entries)"
_LOGLESS = """from oarlock.errors import CompileError
        try:
            return compile_source(target, source, entries)
        except CompileError:
            raise CompileError("it does not compile") from None"""
_CONTRACT = "docs/contract.md"

MISTAKES: tuple[Mistake, ...] = (
    # --- the package and its hook
    Mistake("hook_missing", "load", (_HOOK, ""), "oarlock_adapter", "no hook", "define it and mark it"),
    Mistake(
        "hook_misspelt", "load", ("def oarlock_adapter(", "def oarlock_adaptor("), "oarlock_adaptor", "unknown hook",
        "did you mean oarlock_adapter?",
    ),
    Mistake(
        "hook_unmarked", "load", ("@hookimpl\ndef", "def"), "oarlock_adapter", "not marked with @hookimpl",
        "from oarlock.plugin import hookimpl",
    ),
    Mistake(
        "hook_returns_class", "load", ("return AcmeAdapter()", "return AcmeAdapter"), "oarlock_adapter",
        "the class AcmeAdapter, which is no object", "return AcmeAdapter()",
    ),
    Mistake(
        "hook_returns_none", "load", ("    return AcmeAdapter()", "    AcmeAdapter()"), "oarlock_adapter",
        "returned None; expected", "return it",
    ),
    Mistake(
        "hook_returns_driver", "load", ("return AcmeAdapter()", "return AcmeDriver()"), "oarlock_adapter",
        "no oarlock.hal.Adapter", "derives from it",
    ),
    Mistake(
        "adapter_method_missing", "load", ("def compile(", "def compiles("), "compile(target, source, entries)",
        "abstract", "define compile",
    ),
    Mistake(
        "adapter_init_raises", "load", ('version = "0.3"', 'version = "0.3"\n\n    def __init__(self) -> None:\n'
        '        raise OSError("libacme.so.4: cannot open")\n'), "could not be loaded", "libacme.so.4: cannot open",
        "oarlock doctor",
    ),
    Mistake(
        "contract_of_the_future", "load", ("contract = (1, 0)", "contract = (2, 0)"), "written for contract 2.0",
        "speaks 1.0", "install a newer Oarlock",
    ),
    Mistake(
        "contract_as_a_number", "load", ("contract = (1, 0)", "contract = 1.0"), "contract is 1.0", "(major, minor)",
        "write contract = (1, 0)",
    ),
    Mistake("two_plugins_of_a_name", "load", (), "is claimed by", "0.1", "uninstall all but one", entries=2),
    Mistake(
        "open_without_index", "load", ("def open(self, index: int)", "def open(self)"), "open(index)",
        "cannot take the 1 arguments of the contract", "change its parameters",
    ),
    Mistake(
        "compile_is_async", "load", ("def compile(", "async def compile("), "compile(target, source, entries)",
        "compile is async", "write `def`",
    ),
    # --- what devices() tells
    Mistake(
        "devices_raises", "doctor", (_DEVICES, 'raise OSError("libacme.so.4: cannot open shared object file")'),
        "not available", "libacme.so.4: cannot open shared object file", "raised from",
    ),
    Mistake(
        "devices_returns_one", "open", (_DEVICES, _DEVICES.replace("return [", "return ").replace("())]", "())")),
        "devices() returned DeviceInfo", "expected a list of oarlock.hal.DeviceInfo", "return []",
    ),
    Mistake(
        "devices_returns_none", "open", (_DEVICES, "pass"), "devices() returned nothing", "expected a list", "return []"
    ),
    Mistake(
        "devices_returns_names", "doctor", (_DEVICES, 'return ["Acme 1"]'), "devices() gives", "expected an oarlock.hal"
        ".DeviceInfo", "make one for each device",
    ),
    Mistake(
        "limit_impossible", "open", ("max_buffers=16", "max_buffers=0"), "Limits.max_buffers 0",
        "expected a whole number, at least 1", "correct Limits.max_buffers",
    ),
    Mistake(
        "limit_of_two_dimensions", "open", ("max_buffers=16", "max_grid=(65535, 65535)"), "Limits.max_grid",
        "expected three whole numbers", "correct it",
    ),
    Mistake(
        "alignment_odd", "open", ("max_buffers=16", "binding_alignment=48"), "Limits.binding_alignment 48",
        "expected a power of two", "correct Limits.binding_alignment",
    ),
    Mistake(
        "memory_as_text", "open", ("1 << 30, target", '"1 GiB", target'), "memory '1 GiB'", "a number of bytes",
        "correct DeviceInfo.memory",
    ),
    Mistake(
        "dtype_misspelt", "open", (_TARGET, 'compute=frozenset({"bool", "int32", "uint32", "float32", "fp64"}), ' +
        _TARGET), "'fp64' in Target.compute", "expected dtype names", "did you mean",
    ),
    Mistake(
        "dtype_missing", "open", (_TARGET, 'compute=frozenset({"int32", "float32"}), ' + _TARGET), "does not compute",
        "uint32; expected these at least", "add them to compute",
    ),
    Mistake(
        "dtype_misdeclared", "certify", (_TARGET, _COMPUTE.replace("bool", "int8") + _TARGET, _COMPILE,
        'return compile_source(target, source.replace("int8_t", "int16_t"), entries)'), "devices()", "int8",
        "Look at", case="claims.dtypes/compute",
    ),
    Mistake(
        "language_unknown", "certify", ('LANGUAGE = "c99"', 'LANGUAGE = "acme_c"'), "devices()",
        "language 'acme_c'; there are c99", "oarlock.codegen.render.register", case="claims.language/renders",
    ),
    Mistake(
        "capabilities_as_a_list", "open", ("frozenset())]", '["fill"])]'), "capabilities ['fill'] (list)",
        "expected a frozenset of words", "write capabilities=frozenset",
    ),
    Mistake(
        "capability_misspelt", "open", ("frozenset())]", 'frozenset({"stream"}))]'), "unknown capability stream",
        "the device declares", "did you mean streams?",
    ),
    Mistake(
        "capability_without_its_methods", "open", ("frozenset())]", 'frozenset({"plans"}))]'), "no prepare, replay",
        "the device declares capability plans", "or leave plans out of DeviceInfo.capabilities",
    ),
    Mistake(
        "streams_in_part", "open", (_SYNC, _STREAMS.replace("def destroy_event", "def drop_event"), *_CAPABLE),
        "no destroy_event", "expected create_stream, destroy_stream", "define them, or leave streams out",
    ),
    # --- opening
    Mistake(
        "open_returns_none", "open", (_DRIVER, "        AcmeDriver()"), "open(0) returned nothing",
        "expected an oarlock.hal.Driver", "return an object of a class that derives from it",
    ),
    Mistake(
        "open_returns_class", "open", (_DRIVER, "        return AcmeDriver"), "open(0) returned the class AcmeDriver",
        "expected an object", "return AcmeDriver(...)",
    ),
    Mistake(
        "driver_method_missing", "open", ("    def copy(self", "    def copy_within(self"),
        "copy(stream, dst, dst_offset, src, src_offset, nbytes)", "abstract", "define copy",
    ),
    Mistake(
        "driver_init_raises", "open", ("self.programs: list[Any] = []", "raise RuntimeError('board 7 is not powered')"),
        "open failed", "RuntimeError: board 7 is not powered", "an adapter raises DeviceError",
    ),
    Mistake(
        "driver_method_too_short", "open", ("src: Any, src_offset: int) -> None", "src: Any) -> None"),
        "copy_out(stream, dst, src)", "cannot take the 4 arguments of the contract", "change its parameters",
    ),
    # --- the first kernel
    Mistake(
        "allocate_returns_none", "kernel", ("return bytearray(nbytes)", "bytearray(nbytes)"),
        "allocate returned nothing (None)", "expected a handle", "return the object by which the driver knows",
    ),
    Mistake(
        "allocate_returns_bytes", "kernel", ("return bytearray(nbytes)", "return bytes(nbytes)"),
        "allocate returned bytes", "expected a handle", "return the object by which the driver knows",
    ),
    Mistake(
        "load_returns_none", "kernel", ("        return library\n", "\n"), "load returned nothing (None)",
        "expected a handle", "return the object by which the driver knows",
    ),
    Mistake(
        "load_returns_the_bytes", "kernel", ("        return library\n", "        return executable\n"),
        "load returned bytes, which is content", "expected a handle", "return the object by which the driver knows",
    ),
    Mistake(
        "compile_returns_text", "kernel", (_COMPILE, "return source"),
        "compile returned str", "expected bytes", "return text.encode()",
    ),
    Mistake(
        "compile_returns_none", "kernel", (_COMPILE, "pass"),
        "compile returned NoneType", "expected bytes", "return bytes(...)",
    ),
    Mistake(
        "compile_error", "kernel", (_COMPILE,
        'return compile_source(target, source.replace("int32_t", "int33_t"), entries)'),
        "compile", "the compiler refused the source", "int33_t",
    ),
    Mistake(
        "launch_raises_foreign", "kernel", (_LAUNCH, 'kernel = program["increment"]'), "launch of increment failed",
        "TypeError", "an adapter raises DeviceError",
    ),
    Mistake(
        "launch_returns_a_status", "kernel", (_LAUNCH, "return 700\n        " + _LAUNCH), "launch returned 700",
        "expected nothing (None)", "raise LaunchError",
    ),
    Mistake(
        "launch_not_written", "kernel", (_LAUNCH, "raise NotImplementedError"), "launch of increment",
        "NotImplementedError", "write the method",
    ),
    Mistake(
        "handle_of_another_kind", "kernel", ("for memory, base, _ in buffers", "for memory, base in buffers"),
        "launch of increment failed", "too many values to unpack", "an adapter raises DeviceError",
    ),
    Mistake(
        "synchronize_returns_false", "kernel", (_SYNC, _SYNC.replace("return None", "return False")),
        "synchronize returned False", "expected nothing (None)", "raise DeviceTimeoutError",
    ),
    Mistake(
        "free_raises_for_a_handle", "use", ("if handle in self.programs:\n            self.programs.remove(handle)",
        "self.programs.remove(handle)"), "free failed", "list.remove(x): x not in list",
        "an adapter raises DeviceError", use="device.allocate(64).free(); device.trim()",
    ),
    Mistake(
        "event_without_an_answer", "streams", (_SYNC, _STREAMS.replace("return True", "return None"), *_CAPABLE),
        "query returned None", "expected True or False", _CONTRACT,
    ),
    Mistake(
        "record_returns_none", "streams", (_SYNC, _STREAMS.replace(
        "def record(self, stream: Any) -> Any:\n        return object()",
        "def record(self, stream: Any) -> Any:\n        return None"), *_CAPABLE), "record returned nothing (None)",
        "expected a handle", "return the object by which the driver knows",
    ),
    # --- what only a certification can see
    Mistake(
        "copy_out_untouched", "certify", (_OUT, "return None"), "copy_out(stream, dst, src, src_offset)", "expected",
        "Look at", case="memory.copy_out/offset",
    ),
    Mistake(
        "copy_out_ignores_offset", "certify", (_OUT, "dst[:] = memoryview(src)[: dst.nbytes]"),
        "copy_out(src_offset=1, 1 bytes)", "expected", "Look at copy_out(stream, dst, src, src_offset)",
        case="memory.copy_out/offset",
    ),
    Mistake(
        "copy_in_keeps_no_offset", "certify", ("memoryview(dst)[dst_offset : dst_offset + src.nbytes] = src",
        "memoryview(dst)[: src.nbytes] = src"), "copy_in(dst_offset=1, 1 bytes)", "expected",
        "Look at copy_in(stream, dst, dst_offset, src)", case="memory.copy_in/offset",
    ),
    Mistake(
        "grid_counted_in_threads", "certify", ("corner(*grid))", "corner(max(1, grid[0] // 2), *grid[1:]))"),
        "launch(stream, program, entry, grid, block, buffers, scalars)", "marks of the blocks of grid", "Look at",
        case="launch.grid/row",
    ),
    Mistake(
        "scalars_forgotten", "certify", ("scalars, corner(0, 0, 0)", "bytes(len(scalars)), corner(0, 0, 0)"),
        "launch(stream, program, entry", "expected", "Look at", case="launch.scalars/kept",
    ),
    Mistake(
        "synchronize_returns_at_once", "certify", (
            "self.programs: list[Any] = []",
            "self.programs: list[Any] = []\n        from concurrent.futures import ThreadPoolExecutor\n"
            "        self.pool = ThreadPoolExecutor(1)",
            "kernel((ctypes.c_void_p",
            "self.pool.submit(lambda *given, kept=(buffers, program): kernel(*given), (ctypes.c_void_p",
        ), "synchronize(stream, timeout_s)", "expected", "Look at", case="stream.synchronize/done",
    ),
    Mistake(
        "capability_claimed", "certify", ("frozenset())]", 'frozenset({"fill"}))]',
        "    def copy(self", _FILL + "    def copy(self"), "fill(stream, dst, dst_offset, nbytes, byte)", "expected",
        "Look at", case="memory.fill/ranges",
    ),
    Mistake(
        "log_forgotten", "certify", (_COMPILE, _LOGLESS),
        "compile(target, source, entries)", "empty log", "Look at", case="program.compile/error",
    ),
)  # fmt: skip
