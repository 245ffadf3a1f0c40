"""From an array program to kernels: passes, fusion, lowering, legalisation, in one place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from oarlock.abi import KernelSignature
from oarlock.codegen.expand import Claim, expand
from oarlock.codegen.fuse import fuse
from oarlock.codegen.groups import Group
from oarlock.codegen.kernel import signature_of
from oarlock.codegen.legalise import legalise
from oarlock.codegen.lower.call import KernelCall, LibraryCall
from oarlock.codegen.lower.group import lower_group
from oarlock.codegen.render import renderer
from oarlock.codegen.schedule import Choice
from oarlock.config import config
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import Context, Operation
from oarlock.ir.passes import Pass, PassManager
from oarlock.ops import array_context
from oarlock.target import Target
from oarlock.transforms import standard_passes

__all__ = ["Lowered", "lower", "prepare", "render", "signature"]


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A program as launches: the prepared function, its groups, and what runs."""

    function: Operation
    groups: tuple[Group, ...]
    calls: tuple[KernelCall | LibraryCall, ...]


def prepare(
    function: Operation,
    target: Target | None = None,
    passes: Sequence[Pass] | None = None,
    context: Context | None = None,
    level: int = 2,
) -> Operation:
    """A copy of an array function, after ``passes`` (None: the standard ones) up to ``level`` that apply to ``target``.

    Primitives only. A pass that fails leaves a file in the cache that shows it again (``ir.reproducer``).
    """
    manager = PassManager(
        context or array_context(),
        standard_passes() if passes is None else passes,
        verify_each=config.verify,
        level=level,
        target=target,
        reproducers=config.cache_dir / "reproducers",
    )
    return manager.run_on_copy(function)


def lower(
    function: Operation,
    target: Target,
    claim: Claim = lambda op: None,
    choice: Choice | None = None,
    fixed: Collection[int] = (),
) -> Lowered:
    """Fuse and lower a prepared function, which is changed, for ``target``.

    ``claim`` gives the adapter's own kernel for an operation, or None; ``choice`` schedules that measuring has shown
    (None: all as the rules say). ``fixed``: the positions of arguments that are the same in every run.
    """
    claimed = expand(function, target, claim, choice, fixed)
    groups = fuse(function, target, claimed)
    calls = [call for group in groups for call in lower_group(group, target, choice)]
    return Lowered(function, tuple(groups), tuple(calls))


def signature(call: KernelCall, target: Target) -> KernelSignature:
    """The ABI of a call's kernel."""
    return signature_of(call.function, target)


def render(functions: Sequence[Operation], target: Target) -> str:
    """One source text with ``functions`` (kernels as lowered).

    Raises UnsupportedError for what the target cannot compute, store or hold in local memory.
    """
    legal = [legalise(f, target) for f in functions]
    for function in legal:
        _check_local_memory(function, target)
    return renderer(target.language).render(legal, target)


def _check_local_memory(function: Operation, target: Target) -> None:
    most = target.limits.local_memory
    used = sum(_local_bytes(op) for op in function.regions[0].block.ops if op.name == "kernel.local")
    if used > most:
        raise UnsupportedError(
            f"kernel {function.attributes['name']} uses {used} bytes of local memory; target {target.language}/"
            f"{target.arch} has {most} (Limits.local_memory): use smaller tiles"
        )


def _local_bytes(op: Operation) -> int:
    dtype, size = op.attributes["dtype"], op.attributes["size"]
    assert isinstance(dtype, DType) and isinstance(size, int)  # the verifier has seen to it
    return dtype.itemsize * size
