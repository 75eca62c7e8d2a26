"""The limitations of this machine: protections that are missing or weaker on it."""

import os
import sys

from holdfast.model.quota import Quota
from holdfast.sandbox.bwrap.cgroups import plan_cgroups


def list_limitations() -> tuple[str, ...]:
    """One sentence for each limitation, for the user."""
    if sys.platform != "linux":
        return (
            "Servers run in process groups: a server that leaves its group outlives its session.",
            "Servers outlive a host that is killed (SIGKILL): this platform has no child subreapers.",
            "Bubblewrap needs Linux: on this platform, confined servers need a container engine.",
        )
    as_root = os.geteuid() == 0
    limits = {name for group in plan_cgroups(Quota(), limit_processes=as_root) for name in group.limits}
    limitations: list[str] = []
    if limits.isdisjoint(("memory.max", "memory.limit_in_bytes")):
        limitations.append(
            "Holdfast cannot create a memory control group: a confined server's memory is limited per process,"
            " and the server is the OOM killer's first choice."
        )
    if as_root and "pids.max" not in limits:
        limitations.append(
            "Holdfast cannot create a pids control group, so servers in folders owned by root are refused:"
            " nothing would limit the number of their processes."
        )
    if not hasattr(os, "pidfd_open"):
        limitations.append(
            "This Python has no os.pidfd_open: if the host dies, its servers may run on until every process that the host forked has ended."
        )
    return tuple(limitations)
