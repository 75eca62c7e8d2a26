"""What comes back by HTTP: bodies and streams of events, within bounds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2

from holdfast.model import codes
from holdfast.model.limits import Limits
from holdfast.wire.frame import Malformed, Message, parse
from holdfast.wire.lines import Overlong

_OFF_LOOP = 1024 * 1024  # a message longer than this is read in a thread
_RETRY_SECONDS = (0.1, 1.0, 30.0)  # at least, by default, at most
_ID_LENGTH = 1024


@dataclass(slots=True)
class Place:
    """How far a stream was read, and when to come back for more."""

    event_id: str = ""
    retry_seconds: float = _RETRY_SECONDS[1]


async def read_body(response: httpx2.Response) -> bytes:
    """The whole body; its size is bounded by the way it came (`egress`)."""
    return await response.aread()


async def read_message(text: bytes, limits: Limits) -> Message:
    """What a text says, read as strictly as a line of a pipe."""
    if len(text) > limits.line_bytes:
        message = parse(Overlong(len(text), text[:1024], text[-256:]), limits)
    elif len(text) > _OFF_LOOP:
        message = await asyncio.to_thread(parse, text, limits)
    else:
        message = parse(text, limits)
    return Malformed(codes.PARSE_ERROR, "It is empty.") if message is None else message


async def events(response: httpx2.Response, place: Place, limits: Limits) -> AsyncIterator[bytes]:
    """The messages of a stream; an event that does not end is an error."""
    async for event in httpx2.EventSource(response, max_event_size=limits.line_bytes):
        if event.id and len(event.id) <= _ID_LENGTH and event.id.isascii() and event.id.isprintable():
            place.event_id = event.id
        if event.retry is not None:
            place.retry_seconds = min(max(event.retry / 1000, _RETRY_SECONDS[0]), _RETRY_SECONDS[2])
        if event.event == "message" and event.data:
            yield event.data.encode()
