"""Limits of a JSON-RPC connection."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a peer may send. A message over a limit is answered with an error."""

    line_bytes: int = field(
        default=16 * 1024 * 1024,
        metadata={
            "help": "The maximum size of a message from a peer, in bytes. A larger one is discarded and refused.",
            "min": 1024,
            "max": 2**30,
        },
    )
    depth: int = field(
        default=128,
        metadata={"help": "The maximum nesting depth of JSON that Holdfast decodes.", "min": 8, "max": 512},
    )
    digits: int = field(
        default=4300,  # Python itself refuses to parse more
        metadata={
            "help": "The maximum number of digits of a number that Holdfast decodes.",
            "min": 16,
            "max": 4300,
        },
    )
    values: int = field(
        default=100_000,
        metadata={
            "help": "The maximum number of values in JSON that Holdfast decodes. Values that are only passed on do not count.",
            "min": 1000,
            "max": 10_000_000,
        },
    )
    in_flight: int = field(
        default=1024,
        metadata={
            "help": "The maximum number of unanswered requests on one connection, in each direction.",
            "min": 1,
            "max": 65536,
        },
    )


DEFAULT_LIMITS = Limits()
