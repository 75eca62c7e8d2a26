"""The outcome of a call: `Ok` or `Failed`. Both are structs, which are made faster than dataclasses."""

from typing import TypeAlias

import msgspec

from holdfast.model.json import JsonObject


class CallStats(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call took, and the id of the caller's session, or of the driven session that the call used."""

    elapsed_ms: float = 0.0
    session_id: str = ""


class Ok(msgspec.Struct, frozen=True, kw_only=True):
    """The tool succeeded. The data is JSON text."""

    data: bytes = b"{}"
    stats: CallStats = CallStats()


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The tool failed, with a registered code and a message for the caller."""

    code: str
    message: str
    next_actions: tuple[str, ...] = ()
    details: JsonObject = {}
    stats: CallStats = CallStats()


Envelope: TypeAlias = Ok | Failed
