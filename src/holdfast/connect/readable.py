"""A piece of a server's answer, for whoever reads it: the agent, the store, the audit."""

import msgspec

from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT
from holdfast.wire.frame import Raw
from holdfast.wire.strict import DECODE_ERRORS, nested_within


def readable(raw: Raw) -> Json:
    """The piece as JSON; what cannot be read (too deep, an endless number, half a character) as the text it came in."""
    text = bytes(raw)
    try:
        if nested_within(text, DEFAULT.depth):
            value: Json = msgspec.json.decode(text)
            return value
    except DECODE_ERRORS:
        pass
    return text.decode(errors="replace")


def block(raw: Raw) -> JsonObject:
    """The piece as a block of content; what is none becomes a block of text."""
    value = readable(raw)
    if isinstance(value, dict):
        return value
    return {"type": "text", "text": value if isinstance(value, str) else bytes(raw).decode(errors="replace")}
