"""What this machine cannot give, in sentences for its operator."""

import os
import sys

from holdfast.model.launch import Quota
from holdfast.sandbox import cgroup


def lacks() -> tuple[str, ...]:
    """Every protection that is weaker here than it could be; empty where all is there."""
    if sys.platform != "linux":
        return (
            "Servers run in process groups: one that leaves its group outlives its session.",
            "Servers outlive a host that is killed (SIGKILL): nothing here can adopt and end them.",
            "There is no sandbox of the system's own: confined servers need a container engine.",
        )
    as_root = os.geteuid() == 0
    limits = {name for group in cgroup.groups(Quota(), processes=as_root) for name in group.limits}
    found: list[str] = []
    if "memory.max" not in limits:
        found.append(
            "There is no memory control group for us: a confined server's memory is limited process by process,"
            " and the kernel ends it first when memory runs out."
        )
    if as_root and "pids.max" not in limits:
        found.append(
            "There is no pids control group for us: confined servers in folders of root's can make any number of processes."
        )
    if not hasattr(os, "pidfd_open"):
        found.append("This Python cannot watch a process: a host's death is seen by its sockets alone.")
    return tuple(found)
