"""Every exception that Oarlock raises on purpose.

OarlockError
├── ConfigError               a setting or environment variable has an unusable value
├── PluginError               a plugin could not be found, loaded or accepted
│   ├── ContractVersionError  it was written for another version of the contract
│   └── DuplicatePluginError  two distributions claim one name
├── DeviceError               something about a device
│   ├── DeviceNotFoundError   the named device does not exist
│   ├── OutOfMemoryError      an allocation was refused (also a MemoryError)
│   ├── LaunchError           a submitted command failed
│   ├── ForkedProcessError    a device opened before fork() is used in the child
│   ├── ClosedError           a closed device, stream or buffer is used
│   └── DeviceLostError       the device is gone until it is opened again
│       └── DeviceTimeoutError  a driver call passed its deadline
├── CommunicationError        a collective could not be carried out
│   ├── MismatchError         the ranks of a group made different calls (also a ValueError)
│   ├── RankLostError         a rank failed, left or died
│   └── RankTimeoutError      a rank did not come in time (also a TimeoutError)
├── CompileError              source was refused by a compiler, with its log
├── UnsupportedError          the target cannot do it, or it is not there yet (also a NotImplementedError)
├── ShapeError                shapes do not fit (also a ValueError)
├── DTypeError                data types do not fit (also a TypeError)
├── TraceError                a traced function did what only values allow (also a RuntimeError)
├── BoundsError               an offset or index outside its range (also an IndexError)
├── IRError                   the representation is broken
│   ├── VerifyError           an operation breaks a rule
│   └── ParseError            text or JSON is not valid IR
├── ModelError                a model file is broken or uses what is not supported
└── TuningError               the database of measured schedules cannot be used
"""

from __future__ import annotations

import re

__all__ = [
    "BoundsError", "ClosedError", "CommunicationError", "CompileError", "ConfigError", "ContractVersionError",
    "DTypeError", "DeviceError", "DeviceLostError", "DeviceNotFoundError", "DeviceTimeoutError",
    "DuplicatePluginError", "ForkedProcessError", "IRError", "LaunchError", "MismatchError", "ModelError",
    "OarlockError", "OutOfMemoryError", "ParseError", "PluginError", "RankLostError", "RankTimeoutError", "ShapeError",
    "TraceError", "TuningError", "UnsupportedError", "VerifyError",
]  # fmt: skip


class OarlockError(Exception):
    """The base of every exception raised on purpose."""


class ConfigError(OarlockError):
    """A setting or environment variable has an unusable value."""


class PluginError(OarlockError):
    """A plugin could not be found, loaded or accepted."""


class ContractVersionError(PluginError):
    """An adapter was written for a version of the contract that this core does not speak."""


class DuplicatePluginError(PluginError):
    """Two distributions claim one plugin name."""


class DeviceError(OarlockError):
    """Something about a device."""


class DeviceNotFoundError(DeviceError):
    """The named device does not exist; the message lists what does."""


class OutOfMemoryError(DeviceError, MemoryError):
    """An allocation was refused."""


class LaunchError(DeviceError):
    """A submitted command failed; the message names the kernel."""


class ForkedProcessError(DeviceError):
    """A device opened before fork() is used in the child."""


class ClosedError(DeviceError):
    """A closed device, stream or buffer is used."""


class DeviceLostError(DeviceError):
    """The device is gone until it is opened again."""


class DeviceTimeoutError(DeviceLostError):
    """A driver call passed its deadline."""


class CommunicationError(OarlockError):
    """A collective could not be carried out; every rank of the group is told."""


class MismatchError(CommunicationError, ValueError):
    """The ranks of a group made different calls; the message names both."""


class RankLostError(CommunicationError):
    """A rank of a group failed, left or died; the group cannot be used any more."""


class RankTimeoutError(CommunicationError, TimeoutError):
    """A rank did not make its call in time; the group cannot be used any more."""


class CompileError(OarlockError):
    """Source was refused by a compiler.

    ``log`` is the compiler's output, ``source`` the text it was given.
    """

    def __init__(self, message: str, log: str = "", source: str = "") -> None:
        super().__init__(message)
        self.log = log
        self.source = source

    @classmethod
    def from_log(cls, log: str, source: str) -> CompileError:
        """The refusal that ``log`` tells of, with the source lines that it names, as ``:LINE:COLUMN`` or ``(LINE)``."""
        lines = source.splitlines()
        named = {int(a or b) for a, b in re.findall(r":(\d+):\d+|\((\d+)\): ", log)}
        shown = [f"{number:5} | {lines[number - 1]}" for number in sorted(named) if 0 < number <= len(lines)]
        return cls("\n".join(["the compiler refused the source:", log.strip(), *shown]), log, source)


class UnsupportedError(OarlockError, NotImplementedError):
    """The target cannot do it, or Oarlock does not do it yet."""


class ShapeError(OarlockError, ValueError):
    """Shapes do not fit together."""


class DTypeError(OarlockError, TypeError):
    """Data types do not fit together."""


class TraceError(OarlockError, RuntimeError):
    """A function that ``ol.jit`` traces asked for a value, or one of its tensors was used outside."""


class BoundsError(OarlockError, IndexError):
    """An offset or index lies outside its range."""


class IRError(OarlockError):
    """The representation is broken."""


class VerifyError(IRError):
    """An operation breaks a rule of its definition."""


class ParseError(IRError):
    """Text or JSON is not valid IR."""


class ModelError(OarlockError):
    """A model file is broken, or uses what is not supported."""


class TuningError(OarlockError):
    """The database of measured schedules cannot be used; the message names the file."""
