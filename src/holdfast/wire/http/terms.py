"""How much, and for how long, an HTTP client may ask."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Bounds of one application; times are in seconds."""

    body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 20.0
    """A client that has not sent its whole body by then is let go."""
    in_flight: int = 1024
    sessions: int = 1024
    """Clients of the handshake era that have not said goodbye."""
    idle_seconds: float = 3600.0
    """A session that nobody used for so long is over."""
    quiet_seconds: float = 15.0
    """A stream that says nothing for so long gets a comment, lest something in between take it for dead."""
    outbox: int = 256
    """Messages that wait for a client which is slow to read its stream."""


USUAL = Terms()
