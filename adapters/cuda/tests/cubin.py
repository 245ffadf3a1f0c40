"""Reads what kernels use out of NVIDIA's machine code (ELF): registers, shared memory, stack, declared threads.

The numbers come from the records of the sections ``.nv.info`` and from the size of ``.nv.shared.KERNEL``; NVIDIA does
not document them, so the tests compare them with what its assembler reports (``--ptxas-options=-v``).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Report", "Usage", "read_log", "read_usage"]

_REGISTERS, _STACK, _MAX_THREADS = 0x2F, 0x12, 0x05
"""Records: (symbol, registers of a thread), (symbol, stack bytes of a thread), (x, y, z) of __launch_bounds__."""
_BY_SIZE = 4
"""The kind of record whose second half-word counts the bytes behind it; others hold their value there."""
_RESERVED = ".nv.shared.reserved."
_RESERVED_BYTES = 1024
"""Shared memory that code for sm_90 and newer leaves to the system, and counts in its section."""
_MAGIC = b"\x7fELF\x02\x01"


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kernel uses. ``registers`` and ``stack`` (bytes) per thread, ``shared`` (bytes) per block; ``threads``:
    the most that it may be launched with, by __launch_bounds__ (0: not declared)."""

    registers: int
    shared: int
    stack: int
    threads: int


@dataclass(frozen=True, slots=True)
class Report:
    """What the assembler says of one kernel: registers, shared memory, stack, and bytes that it stores and loads
    because registers did not suffice."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    offset: int
    size: int
    link: int


def read_usage(binary: bytes) -> dict[str, Usage]:
    """Each kernel of ``binary`` by name. Raises ValueError for what is no 64-bit little-endian ELF file."""
    if not binary.startswith(_MAGIC):
        raise ValueError("this is no machine code: a 64-bit little-endian ELF file was expected")
    sections = {section.name: section for section in _sections(binary)}
    names = _symbols(binary, sections)
    by_symbol: dict[int, dict[int, int]] = {_REGISTERS: {}, _STACK: {}}
    for kind, data in _records(binary, sections[".nv.info"]):
        if kind in by_symbol:
            symbol, value = struct.unpack("<II", data)
            by_symbol[kind][symbol] = value
    reserved = _RESERVED_BYTES if any(name.startswith(_RESERVED) for name in sections) else 0
    found = {}
    for symbol, registers in by_symbol[_REGISTERS].items():
        name = names[symbol]
        if f".nv.info.{name}" not in sections:
            continue  # a function that kernels call
        declared = dict(_records(binary, sections[f".nv.info.{name}"])).get(_MAX_THREADS, b"")
        x, y, z = struct.unpack("<III", declared) if declared else (0, 0, 0)
        shared = sections.get(f".nv.shared.{name}")
        used = 0 if shared is None else shared.size - reserved
        found[name] = Usage(registers, used, by_symbol[_STACK].get(symbol, 0), x * y * z)
    return found


def _sections(binary: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    each, count, names_at = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", binary, table + each * number) for number in range(count)]
    strings = headers[names_at][4]
    return [_Section(_string(binary, strings + h[0]), h[4], h[5], h[6]) for h in headers]


def _string(binary: bytes, at: int) -> str:
    return binary[at : binary.index(b"\0", at)].decode()


def _symbols(binary: bytes, sections: dict[str, _Section]) -> list[str]:
    table, strings = sections[".symtab"], sections[".strtab"]
    places = range(table.offset, table.offset + table.size, 24)
    return [_string(binary, strings.offset + struct.unpack_from("<I", binary, at)[0]) for at in places]


def _records(binary: bytes, section: _Section) -> Iterator[tuple[int, bytes]]:
    """(kind, content) of each record of a ``.nv.info`` section."""
    at, end = section.offset, section.offset + section.size
    while at < end:
        form, kind, value = struct.unpack_from("<BBH", binary, at)
        at += 4
        if form == _BY_SIZE:
            yield kind, binary[at : at + value]
            at += value
        else:
            yield kind, struct.pack("<H", value)


_KERNEL = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_QUIET = re.compile(r"ptxas\s+(info\s*:|\.)")


def read_log(log: str) -> tuple[dict[str, Report], str]:
    """What the assembler's verbose log says of each kernel by name, and the lines that are not of its reports."""
    reports: dict[str, Report] = {}
    rest: list[str] = []
    name, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if not _QUIET.match(line):
            rest.append(line)
        elif found := _KERNEL.search(line):
            name = found[1]
        elif found := _FRAME.search(line):
            frame = (int(found[1]), int(found[2]), int(found[3]))
        elif found := _USED.search(line):
            shared = _SHARED.search(line)
            reports[name] = Report(int(found[1]), int(shared[1]) if shared else 0, *frame)
    return reports, "\n".join(rest).strip()
