"""The limit of open files, for this process and for the servers that it starts."""

import resource

_WANTED = 65_536
"""Enough for a thousand servers.

A higher limit would slow down programs that close every descriptor up to the limit. A confined server with all of its
processes has a far lower limit: see `sandbox/rlimits.py`.
"""
_raised_from: list[int] = []  # empty if the limit was not raised


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit to `_WANTED`, or to the hard limit if that is lower. Call it once, when a command starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS has a lower limit of its own
        return
    _raised_from.append(soft)


def descriptor_limit() -> int:
    """How many files this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED if soft == resource.RLIM_INFINITY else soft


def limit_for_servers() -> int:
    """The limit before it was raised. Servers get this limit, because programs that use `select` fail with descriptors above 1023."""
    return _raised_from[0] if _raised_from else descriptor_limit()
