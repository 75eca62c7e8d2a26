"""The resource limits (rlimits) of a confined server's processes."""

import resource

from holdfast.model.descriptor_limit import descriptor_limit
from holdfast.model.quota import Quota

_LIMITS_PER_USER = {"sigpending": 1024, "msgqueue": 0, "memlock": 64 * 1024}
"""The kernel counts these per user, so each server gets only a small part: waiting signals (each timer needs one), bytes
in message queues, bytes of locked memory."""
_PRIORITIES = {"nice": 0, "rtprio": 0}
"""Some systems let users raise the priority of their programs (for audio). With a realtime priority, a server could keep all
other programs from running."""
_MAX_PASSED_AT_ONCE = 253  # SCM_MAX_FD: how many descriptors the kernel passes in one message
_MIN_DESCRIPTORS = 64  # so that a server can still start if the host's own limit is low


def rlimits(quota: Quota) -> dict[str, int]:
    """The limits of a server with this quota, by their names for `prlimit`. None exceeds the hard limit of this process.

    Memory is limited as data, not as address space: Node and WebAssembly reserve far more than they use.

    A server's `nofile` is lower than the host's, so that the server cannot stop the host from passing descriptors. It could try
    that by sending descriptors to itself through a socket, without receiving them: the kernel counts the descriptors in flight of
    all processes of a user, and lets a process send one only if the count is below that process's own `nofile`.
    """
    highest = max(_MIN_DESCRIPTORS, descriptor_limit() - _MAX_PASSED_AT_ONCE)
    wanted = {
        "data": quota.memory_bytes,
        "fsize": quota.file_bytes,
        "nofile": min(quota.descriptors, highest),
        "core": 0,
        **_LIMITS_PER_USER,
        **_PRIORITIES,
    }
    return {name: min(value, _hard_limit(name, value)) for name, value in wanted.items()}


def _hard_limit(name: str, default: int) -> int:
    number: int | None = getattr(resource, f"RLIMIT_{name.upper()}", None)
    if number is None:  # this platform does not have it
        return default
    _, hard = resource.getrlimit(number)
    return default if hard == resource.RLIM_INFINITY else hard
