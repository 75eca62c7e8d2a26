"""The kernel's limits for one confined server, by their names for `prlimit`."""

import resource

from holdfast.model.descriptor_limit import descriptor_limit
from holdfast.model.process import Quota

_OF_THE_USER = {"sigpending": 1024, "msgqueue": 0, "memlock": 64 * 1024}
"""The kernel counts these per user. Each server gets a small part of the user's: signals that wait (each timer needs one),
bytes in message queues, bytes of locked memory."""
_PASSED_AT_ONCE = 253  # how many descriptors the kernel passes in one message
_MIN_DESCRIPTORS = 64


def server_limits(quota: Quota) -> dict[str, int]:
    """The limits of a server with this quota. None exceeds the hard limit of this process: the kernel would refuse that.

    Memory is limited as data, not as address space: Node and WebAssembly reserve far more than they use.

    A server can pass descriptors to itself and never receive them. The kernel counts those per user, and compares the
    sum with the limit of each process that passes one. So a server's limit is lower than the host's.
    """
    highest = max(_MIN_DESCRIPTORS, descriptor_limit() - _PASSED_AT_ONCE)
    wanted = {
        "data": quota.memory_bytes,
        "fsize": quota.file_bytes,
        "nofile": min(quota.descriptors, highest),
        "core": 0,
        **_OF_THE_USER,
    }
    return {name: min(value, _hard_limit(name, value)) for name, value in wanted.items()}


def _hard_limit(name: str, default: int) -> int:
    number: int | None = getattr(resource, f"RLIMIT_{name.upper()}", None)
    if number is None:  # this platform does not have it
        return default
    _, hard = resource.getrlimit(number)
    return default if hard == resource.RLIM_INFINITY else hard
