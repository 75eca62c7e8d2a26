"""Which protections this machine cannot give, as sentences for its operator."""

import os
import sys

from holdfast.model.process import Quota
from holdfast.sandbox.bwrap.cgroups import plan_cgroups


def missing_protections() -> tuple[str, ...]:
    """Every protection that is weaker here than it could be; empty if there is none."""
    if sys.platform != "linux":
        return (
            "Servers run in process groups: a server that leaves its group outlives its session.",
            "Servers outlive a host that is killed (SIGKILL): no process here can adopt and end them.",
            "This system has no sandbox of its own: confined servers need a container engine.",
        )
    as_root = os.geteuid() == 0
    limits = {name for group in plan_cgroups(Quota(), processes=as_root) for name in group.limits}
    missing: list[str] = []
    if "memory.max" not in limits:
        missing.append(
            "Holdfast cannot create a memory control group: a confined server's memory is limited per process,"
            " and the kernel ends it first when memory runs out."
        )
    if as_root and "pids.max" not in limits:
        missing.append(
            "Holdfast cannot create a pids control group: confined servers in folders owned by root can start"
            " any number of processes."
        )
    if not hasattr(os, "pidfd_open"):
        missing.append(
            "This Python has no os.pidfd_open: supervisors notice the host's death by its sockets alone."
        )
    return tuple(missing)
