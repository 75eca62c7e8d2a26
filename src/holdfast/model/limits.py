"""Limits of JSON-RPC connections, and of the JSON documents that arrive over them."""

from dataclasses import dataclass, field

from msgspec import Struct

from holdfast.model.settings_section import SettingsSection


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Limits(SettingsSection):
    """What a peer may send. A message over a limit is answered with an error."""

    line_bytes: int = field(
        default=16 * 1024 * 1024,
        metadata={
            "help": "The maximum size of a message from a peer, in bytes. A larger message is refused and discarded.",
            "min": 1024,
            "max": 2**30,
        },
    )
    depth: int = field(
        default=128,
        metadata={"help": "The maximum nesting depth of JSON that Holdfast decodes.", "min": 8, "max": 512},
    )
    digits: int = field(
        default=100,
        metadata={
            "help": "The maximum number of digits of a number that Holdfast decodes.",
            "min": 16,
            "max": 4300,
        },
    )
    values: int = field(
        default=100_000,
        metadata={
            "help": "The maximum number of values in JSON that Holdfast decodes, such as the arguments or the result of a call. Values that are only passed on do not count.",
            "min": 1000,
            "max": 10_000_000,
        },
    )
    in_flight: int = field(
        default=1024,
        metadata={
            "help": "The maximum number of unanswered requests on one connection, in each direction."
            " Further requests from a peer are refused with `BUSY`.",
            "min": 1,
            "max": 65536,
        },
    )


DEFAULT_LIMITS = Limits()


class SizeLimit(Struct, frozen=True, kw_only=True):
    """The size up to which a JSON document is handled normally. A larger one is shortened, refused, or read in a thread.

    The number of bytes alone does not say how much work a document is: a megabyte may be one text, or 300,000 empty lists.
    """

    bytes: int
    values: int


ON_LOOP_LIMIT = SizeLimit(bytes=1024 * 1024, values=1000)
"""Arguments, results and prompts up to this size are masked on the event loop; larger ones in a thread. If a session has many
secrets, the limit is lower: `SessionMasks.loop_limit`."""
STORED_LIMIT = SizeLimit(bytes=2 * 1024 * 1024, values=20_000)
"""Arguments and results up to this size are stored whole. One writer serves every session, so larger ones are shortened."""
SMALL_DOCUMENT_BYTES = 500
"""A document up to this size is not compared with any `SizeLimit`: counting its values would take longer than handling it."""
META_LIMIT = SizeLimit(bytes=64 * 1024, values=1000)
"""The `_meta` of a request from a client. It is decoded on the event loop, and may be kept while the request waits."""
NEGOTIATION_LIMIT = SizeLimit(bytes=256 * 1024, values=10_000)
"""What a server may send about itself when its era is negotiated."""
