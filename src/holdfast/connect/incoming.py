"""What comes back by HTTP: bodies and streams of events, within bounds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast.model import codes
from holdfast.model.limits import Limits
from holdfast.wire.frame import Malformed, Message, parse
from holdfast.wire.http.events import Event, EventReader
from holdfast.wire.http.exchange import Reply
from holdfast.wire.lines import Overlong

_OFF_LOOP = 1024 * 1024  # a message longer than this is read in a thread
_RETRY_SECONDS = (0.1, 1.0, 30.0)  # at least, by default, at most
_ID_LENGTH = 1024


@dataclass(slots=True)
class Place:
    """How far a stream was read, and when to come back for more."""

    event_id: str = ""
    retry_seconds: float = _RETRY_SECONDS[1]


async def read_message(text: bytes, limits: Limits) -> Message:
    """What a text says, read as strictly as a line of a pipe."""
    if len(text) > limits.line_bytes:
        message = parse(Overlong(len(text), text[:1024], text[-256:]), limits)
    elif len(text) > _OFF_LOOP:
        message = await asyncio.to_thread(parse, text, limits)
    else:
        message = parse(text, limits)
    return Malformed(codes.PARSE_ERROR, "It is empty.") if message is None else message


async def events(reply: Reply, place: Place, limits: Limits) -> AsyncIterator[Event]:
    """The events of a stream; one that does not end is an error."""
    reader = EventReader(limits.line_bytes)
    while part := await reply.part():
        for event in reader.feed(part):
            if event.id and len(event.id) <= _ID_LENGTH and event.id.isascii() and event.id.isprintable():
                place.event_id = event.id
            if event.retry_ms is not None:
                place.retry_seconds = min(max(event.retry_ms / 1000, _RETRY_SECONDS[0]), _RETRY_SECONDS[2])
            if event.data:
                yield event


async def messages(reply: Reply, place: Place, limits: Limits) -> AsyncIterator[Message]:
    """What the events of a stream say."""
    async for event in events(reply, place, limits):
        if event.name == "message":
            yield await read_message(event.data, limits)
