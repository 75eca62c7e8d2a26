"""Limits of an HTTP server."""

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one `HttpApp`. Those per caller apply if the service can tell callers apart."""

    body_bytes: int = 4 * _MIB
    body_seconds: float = 20.0
    """How long a client may take to send its whole body."""
    refused_body_seconds: float = 1.0
    """How long the body of a refused request is read and discarded, so that the client can read the answer."""
    body_memory: int = 128 * _MIB
    """The total size of the bodies in memory: those that are being read, and those whose requests are being answered."""
    body_memory_per_caller: int = 32 * _MIB
    in_flight: int = 1024
    """Requests from all clients that are being answered at the same time."""
    in_flight_per_caller: int = 256
    sessions: int = 10_000
    """Open sessions of handshake-era clients."""
    sessions_per_caller: int = 64
    session_bytes: int = 4096
    """How much a client may report about itself in `initialize`, encoded as JSON."""
    idle_seconds: float = 3600.0
    """A session that is not used for this long is ended."""
    unused_seconds: float = 60.0
    """A session that is never used after `initialize` is ended after this time, or earlier if there are too many sessions."""
    keepalive_seconds: float = 15.0
    """A silent stream gets a comment at this interval, so that proxies do not close it."""


DEFAULT_HTTP_LIMITS = HttpLimits()
