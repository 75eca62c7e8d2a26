"""How many files this process may have open, and how many the processes that it starts may."""

import resource

_WANTED = 65_536
"""Enough for a thousand servers.

It is not higher, because some programs try to close every descriptor up to the limit. It is far above the limit of a
confined server with all of its processes: see `sandbox/rlimits.py`.
"""
_raised_from: list[int] = []  # empty if the limit was not raised


def raise_descriptor_limit() -> None:
    """Raise this process's own (soft) limit as far as the hard limit allows. Call it once, when a command starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS has another, lower limit
        return
    _raised_from.append(soft)


def descriptor_limit() -> int:
    """How many files this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED if soft == resource.RLIM_INFINITY else soft


def limit_for_servers() -> int:
    """The limit before it was raised. Servers get it: `select` of some programs fails with descriptors above 1023."""
    return _raised_from[0] if _raised_from else descriptor_limit()
