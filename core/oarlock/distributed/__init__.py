"""Collectives on tensors: groups of ranks, each on a device of its own, in threads or in processes.

``import oarlock.distributed as dist``, or ``ol.distributed``. A group comes from ``local_groups`` (ranks are threads of
this process) or ``join_group`` (ranks are processes). Every rank makes the same calls in the same order; what differs
is told on every rank before data moves. Tensors are values: each function gives a new one.
"""

from oarlock.distributed.tensors import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    join_group,
    local_groups,
    recv,
    reduce_scatter,
    send,
)
from oarlock.runtime.communication import Kind, ProcessGroup

__all__ = [
    "Kind", "ProcessGroup", "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "join_group",
    "local_groups", "recv", "reduce_scatter", "send",
]  # fmt: skip
