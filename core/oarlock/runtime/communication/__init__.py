"""Groups of ranks and their collectives: on a vendor's engine where there is one, else composed."""

from oarlock.runtime.communication.group import ProcessGroup
from oarlock.runtime.communication.joining import join_group
from oarlock.runtime.communication.local import local_groups
from oarlock.runtime.communication.reduction import Kind

__all__ = ["Kind", "ProcessGroup", "join_group", "local_groups"]
