"""Limits of an HTTP server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one `HttpApp`."""

    body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 20.0
    """How long a client may take to send its whole body."""
    in_flight: int = 1024
    """HTTP requests at the same time, of all clients."""
    sessions: int = 1024
    """Open sessions of handshake-era clients."""
    idle_seconds: float = 3600.0
    """A session that is not used for this long is ended."""
    keepalive_seconds: float = 15.0
    """A silent stream gets a comment at this interval, so that proxies do not close it."""


DEFAULT_HTTP_LIMITS = HttpLimits()
