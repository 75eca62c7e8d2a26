"""Makes streams that never end, in each of the formats."""

import itertools
from collections.abc import AsyncIterator, Iterator

from holdfast.testing.scripted_model.formats import stream
from holdfast.testing.scripted_model.request import WireFormat
from holdfast.testing.scripted_model.steps import Answer, Call, Endless, Part, Text, Think


async def endless(wire_format: WireFormat, step: Endless) -> AsyncIterator[bytes]:
    """Yield the beginning of an answer, and then events of one kind without end; for SSE comments, no beginning."""
    for event in _events(wire_format, step):
        yield event


def _events(wire_format: WireFormat, step: Endless) -> Iterator[bytes]:
    if step.what == "comments":
        yield from itertools.repeat(b": nothing\n\n")
    if step.what == "calls":
        yield from _calls(wire_format)
        return
    # The beginning of an answer, up to its first event with the text. That event is repeated.
    template = [*stream(wire_format, Answer(parts=(_part(step),)), "scripted", 1)]
    first = next(index for index, event in enumerate(template) if _filler(step) in event)
    yield from template[:first]
    yield from itertools.repeat(template[first])


def _part(step: Endless) -> Part:
    filler = _filler(step).decode()
    match step.what:
        case "think":
            return Think(filler, chunk=step.chunk)
        case "arguments":
            return Call("files__read", {"path": filler}, id="call_1", chunk=len(filler) + 64)
        case _:
            return Text(filler, chunk=step.chunk)


def _filler(step: Endless) -> bytes:
    return b"x" * step.chunk


def _calls(wire_format: WireFormat) -> Iterator[bytes]:
    """Yield events for new calls without end."""
    first, *events = stream(wire_format, Answer(parts=(Call("files__read", id="call_0"),)), "scripted", 1)
    about_call = [event for event in events if b'finish_reason":"' not in event and b"usage" not in event]
    yield first
    for number in itertools.count():
        for event in about_call:
            if event.startswith((b"data: [", b"event: message_", b"event: response.completed")):
                continue
            yield _renumber(wire_format, event, number)


def _renumber(wire_format: WireFormat, event: bytes, number: int) -> bytes:
    """Change an event about the call with the number 0 to one about the call with this number."""
    key = {
        WireFormat.CHAT: b'"tool_calls":[{"index":',
        WireFormat.RESPONSES: b'"output_index":',
        WireFormat.ANTHROPIC: b'"index":',
    }[wire_format]
    digits = str(number).encode()
    return (
        event.replace(key + b"0", key + digits)
        .replace(b"call_0", b"call_" + digits)
        .replace(b"fc_0", b"fc_" + digits)
    )
