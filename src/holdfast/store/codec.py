"""Encode events as a kind and a JSON object that later versions can still decode."""

from typing import Any, get_args

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    kind.__name__: msgspec.json.Decoder(kind) for kind in get_args(Event)
}


def encode_event(event: Event) -> tuple[str, bytes]:
    """The event's kind, and its fields as JSON."""
    try:
        return type(event).__name__, _encoder.encode(event)
    except (UnicodeEncodeError, OverflowError, TypeError, RecursionError) as error:
        raise HoldfastError(
            codes.UNSTORABLE, f"The event {type(event).__name__} cannot be encoded: {error}."
        ) from None


def decode_event(kind: str, body: bytes) -> Event:
    """The event with this kind and these fields."""
    decoder = _decoders.get(kind)
    if decoder is None:
        raise HoldfastError(
            codes.EVENT_TOO_NEW,
            f"An event of the kind {str(kind)[:80]!r} was written by a newer version of Holdfast.",
        )
    try:
        event: Event = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise HoldfastError(
            codes.STORE_CORRUPT, f"An event of the kind {kind} is damaged: {error}."
        ) from None
    return event
