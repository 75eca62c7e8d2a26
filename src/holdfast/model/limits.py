"""How much a peer may ask of us."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what is read: past each of them the answer is an error, never a crash."""

    line_bytes: int = 16 * 1024 * 1024
    depth: int = 128
    digits: int = 4300
    values: int = 100_000
    in_flight: int = 1024


DEFAULT = Limits()
