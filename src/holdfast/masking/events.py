"""Mask secrets in events. An agent's messages and thoughts arrive in pieces; a secret may be split between two."""

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace

from msgspec import structs

from holdfast.masking.mask import Mask, mask_by_name, searchable_json, texts_in
from holdfast.masking.prompts import mask_prompts
from holdfast.masking.stream_mask import StreamMask
from holdfast.model.event import (
    Event,
    HistoryCompacted,
    MessageReceived,
    MessageSent,
    ModeChanged,
    ModelResponded,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TrustLowered,
    TurnEnded,
    UnknownEvent,
)
from holdfast.model.json import Json, JsonObject

ENDS_OF_MESSAGES = (
    Prompted,
    MessageReceived,
    Replied,
    Thought,
    ModelResponded,
    ToolCalled,
    TurnEnded,
    SessionClosed,
)
"""Each of these events ends the message before it: the text that `MessageMasker` delayed must be stored before the event. This does not
hold for a `Replied` or a `Thought` that is itself a piece for the `MessageMasker`."""


def mask_event(event: Event, mask: Mask, raw: bytes | None = None) -> Event:  # noqa: PLR0912 - a case for each kind of event
    """Mask the secrets in an event.

    `raw` is the JSON text of a call's arguments, or of its result's content and structured content: searching it is faster than
    searching the decoded values.

    Known secrets are masked in all texts but the folders of a session. Likely secrets are masked in the arguments of calls, in `/call` commands
    that the user typed, and in the reasons of refusals and of the session's end.
    """
    match event:
        case ToolCalled():
            return _mask_tool_called(event, raw, mask)
        case ToolEnded():
            return _mask_tool_ended(event, raw, mask)
        case Prompted(blocks=blocks):
            return replace(event, blocks=_mask_prompt(blocks, mask))
        case ServersResolved(servers=servers, refusals=refusals, server_seconds=seconds):
            masked = tuple(
                replace(refusal, server=mask.mask_known(refusal.server), reason=mask.mask_all(refusal.reason))
                for refusal in refusals
            )
            return replace(
                event,
                servers=tuple(map(mask.mask_known, servers)),
                refusals=masked,
                server_seconds={mask.mask_known(name): value for name, value in seconds.items()},
            )
        case SessionClosed(reason=reason):
            return replace(event, reason=mask.mask_all(reason))
        case ModelResponded(message=message, calls=calls):
            masked = _as_object(mask.mask_known_in_json(_mask_call_arguments(message, mask)))
            # The endpoint of the model chooses the ids of its calls, so these may contain a secret, too.
            ids = {mask.mask_known(model_id): call_id for model_id, call_id in calls.items()}
            return event if masked is message and ids == calls else replace(event, message=masked, calls=ids)
        case _ if mask.is_empty:
            return event
        case Replied(text=text) | Thought(text=text) | MessageSent(text=text) | MessageReceived(text=text):
            return replace(event, text=mask.mask_known(text))
        case Planned(entries=entries):
            # A copy, because the agent may change its entries later.
            return replace(event, entries=_mask_objects(deepcopy(entries), mask))
        case Titled(title=title):
            return replace(event, title=mask.mask_known(title))
        case HistoryCompacted(summary=summary):
            return replace(event, summary=mask.mask_known(summary))
        case TurnEnded(usage=usage):
            return replace(event, usage=_as_object(mask.mask_known_in_json(usage)))
        case UnknownEvent(body=body):
            return replace(event, body=_mask_unknown_body(body, mask))
        case SessionOpened() | TrustLowered() | ModeChanged() | ToolStarted() | PermissionDecided():
            return event


class MessageMasker:
    """Masks the messages and thoughts of one agent, piece by piece.

    The end of a piece is delayed while a known secret may begin there. When a piece of the other kind arrives, a very short delayed
    end is returned before it, so that messages and thoughts keep their order. A longer end stays delayed, because the agent could
    send a secret in a message that is interrupted by thoughts.
    """

    def __init__(self, mask: Mask) -> None:
        self._streams: dict[type[Replied | Thought], StreamMask] = {}
        self._mask = mask
        self._delayed: dict[type[Replied | Thought], Replied | Thought] = {}
        """The last piece of each kind, if its end is delayed."""

    def set_mask(self, mask: Mask) -> None:
        self._mask = mask
        for stream in self._streams.values():
            stream.set_mask(mask)

    @property
    def has_delayed(self) -> bool:
        """Whether some text is delayed."""
        return bool(self._delayed)

    def feed(self, piece: Replied | Thought) -> Iterator[Replied | Thought]:
        """Mask a piece, and return the events to store now: the piece without a delayed end, after earlier delayed text."""
        if self._mask.is_empty:
            yield piece
            return
        kind = type(piece)
        stream = self._streams.get(kind)
        if stream is None:
            stream = self._streams[kind] = StreamMask(self._mask)
        delayed = self._delayed.pop(kind, None)
        for other in [*self._delayed] if self._delayed else ():
            if self._streams[other].is_short:
                yield replace(self._delayed.pop(other), text=self._streams[other].flush())
        if delayed is not None and delayed.message_id != piece.message_id and (text := stream.flush()):
            yield replace(delayed, text=text)
        if text := stream.feed(piece.text):
            yield piece if text == piece.text else replace(piece, text=text)
        if stream.delayed:
            self._delayed[kind] = piece

    def flush(self) -> Iterator[Replied | Thought]:
        """End the current message and the current thought, and return the delayed text as events."""
        while self._delayed:
            kind = next(iter(self._delayed))  # the one that began first
            delayed = self._delayed.pop(kind)
            if text := self._streams[kind].flush():
                yield replace(delayed, text=text)


def _mask_unknown_body(body: bytes, mask: Mask) -> bytes:
    """Mask the fields of an unknown event. The bytes stay the same if there is no secret."""
    try:
        value: Json = json.loads(body)
    except ValueError:
        return mask.mask_known(body.decode("utf-8", "replace")).encode()
    masked = mask.mask_known_in_json(value)
    return body if masked == value else json.dumps(masked).encode()


def _mask_tool_called(event: ToolCalled, raw: bytes | None, mask: Mask) -> ToolCalled:
    arguments = event.arguments
    text = None if raw is None else searchable_json(raw)
    texts = (
        texts_in(event.server, event.tool, event.title, arguments)
        if text is None
        else f"{event.server}\n{event.tool}\n{event.title}\n{text}"
    )
    if not mask.contains(texts):
        masked = _as_object(mask_by_name(arguments))
        return event if masked == arguments else structs.replace(event, arguments=masked)
    return structs.replace(
        _mask_tool_name(event, mask), arguments=_as_object(mask.mask_all_in_json(arguments))
    )


def _mask_tool_name(event: ToolCalled, mask: Mask) -> ToolCalled:
    return structs.replace(
        event,
        server=mask.mask_known(event.server),
        tool=mask.mask_known(event.tool),
        title=mask.mask_known(event.title),
    )


def _mask_tool_ended(event: ToolEnded, raw: bytes | None, mask: Mask) -> ToolEnded:
    content, structured = event.content, event.structured
    texts = None if raw is None or len(content) > 1 else searchable_json(raw)
    if texts is None:
        texts = texts_in(*content, structured)
        if len(content) > 1:  # a secret may be spread over the texts of several blocks
            texts = "\n".join((texts, "".join(_texts(content))))
    if not mask.contains(texts):
        return event
    return structs.replace(
        event, content=_mask_blocks(content, mask), structured=mask.mask_known_in_json(structured)
    )


def _mask_prompt(blocks: tuple[JsonObject, ...], mask: Mask) -> tuple[JsonObject, ...]:
    return _mask_blocks(_with_texts(blocks, mask_prompts(_texts(blocks), mask)), mask)


def _mask_blocks(blocks: tuple[JsonObject, ...], mask: Mask) -> tuple[JsonObject, ...]:
    """Mask content blocks. A secret may be spread over the texts of several blocks."""
    texts = _texts(blocks)
    masked = mask.mask_known_in_texts(texts)
    return _mask_objects(blocks if masked == texts else _with_texts(blocks, masked), mask)


def _texts(blocks: tuple[JsonObject, ...]) -> list[str]:
    return [text for block in blocks if isinstance(text := block.get("text"), str)]


def _with_texts(blocks: tuple[JsonObject, ...], texts: Iterable[str]) -> tuple[JsonObject, ...]:
    """Replace the texts of the blocks, in order. Blocks without a text stay as they are."""
    new_texts = iter(texts)
    return tuple(
        {**block, "text": next(new_texts)} if isinstance(block.get("text"), str) else block
        for block in blocks
    )


def _mask_objects(values: tuple[JsonObject, ...], mask: Mask) -> tuple[JsonObject, ...]:
    """Mask each object. Returns the same tuple if there is nothing to mask."""
    masked = tuple(_as_object(mask.mask_known_in_json(value)) for value in values)
    return values if all(new is old for new, old in zip(masked, values, strict=True)) else masked


def _mask_call_arguments(message: JsonObject, mask: Mask) -> JsonObject:
    """Mask the arguments of the tool calls in a model's message, in the same way as those of `ToolCalled`."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        return message
    masked: list[Json] = [
        {**part, "args": mask.mask_all_in_json(part["args"])}
        if isinstance(part, dict) and part.get("part_kind") == "tool-call" and "args" in part
        else part
        for part in parts
    ]
    return message if masked == parts else {**message, "parts": masked}


def _as_object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError("Masking must not change the type of a value.")
    return value
