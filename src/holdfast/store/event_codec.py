"""Encodes an event as its kind and a JSON object, and decodes it."""

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import KINDS, Event, UnknownEvent
from holdfast.wire.strict_json import make_decoder

_encoder = msgspec.json.Encoder()
_decoders = {kind: make_decoder(event_type) for kind, event_type in KINDS.items()}
_kinds: dict[type[Event], str] = {event_type: kind for kind, event_type in KINDS.items()}
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_event(event: Event) -> tuple[str, bytes]:
    """Encode an event as its kind, and its fields as JSON."""
    kind = _kinds.get(type(event))
    if kind is None:
        assert isinstance(event, UnknownEvent)
        return _encode_unknown(event)
    try:
        return kind, _encoder.encode(event)
    except (UnicodeEncodeError, OverflowError, TypeError, RecursionError) as error:
        raise HoldfastError(codes.UNSTORABLE, f"The event {kind} cannot be encoded: {error}.") from None


def decode_event(kind: str, body: bytes) -> Event:
    """Decode an event. A kind that this version does not know becomes an `UnknownEvent`."""
    decode = _decoders.get(kind)
    if decode is None:
        return UnknownEvent(kind=kind, body=body)
    try:
        event: Event = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise HoldfastError(
            codes.STORE_CORRUPT, f"An event of the kind {kind} is damaged: {error}."
        ) from None
    return event


def is_json_object(body: bytes) -> bool:
    """Whether the body of an event is a JSON object."""
    try:
        _object.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _encode_unknown(event: UnknownEvent) -> tuple[str, bytes]:
    if event.kind in _decoders or not is_json_object(event.body):
        raise HoldfastError(
            codes.UNSTORABLE,
            f"The event {event.kind[:80]!r} cannot be stored as unknown: "
            + ("its kind is known." if event.kind in _decoders else "its body is not a JSON object."),
        )
    return event.kind, event.body
