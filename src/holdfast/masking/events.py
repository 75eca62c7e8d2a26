"""Mask secrets in events, including the messages and thoughts of an agent, which arrive in pieces."""

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace

from holdfast.masking.mask import Mask
from holdfast.masking.prompts import mask_prompts
from holdfast.masking.stream_mask import StreamMask
from holdfast.model.event import (
    Event,
    ModeChanged,
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

ENDS_OF_MESSAGES = (Prompted, Replied, Thought, ToolCalled, TurnEnded, SessionClosed)
"""Before such an event, the delayed text of messages is appended."""


def mask_event(event: Event, mask: Mask) -> Event:
    """The event with its secrets masked.

    Known secrets are masked in all texts. Other values are masked only if they are under a sensitive name in the
    arguments of a call, or in a command that the user typed.
    """
    match event:
        case ToolCalled(arguments=arguments):
            named, masked = _mask_names(event, mask), _as_object(mask.mask_all_in_json(arguments))
            return named if masked == arguments else replace(named, arguments=masked)
        case Prompted(blocks=blocks):
            return replace(event, blocks=_mask_prompt(blocks, mask))
        case ServersResolved(servers=servers, refusals=refusals):
            masked = tuple(
                replace(refusal, server=mask.mask_known(refusal.server), reason=mask.mask_all(refusal.reason))
                for refusal in refusals
            )
            return replace(event, servers=tuple(map(mask.mask_known, servers)), refusals=masked)
        case SessionClosed(reason=reason):
            return replace(event, reason=mask.mask_all(reason))
        case _ if not mask.size:
            return event
        case Replied(text=text) | Thought(text=text):
            return replace(event, text=mask.mask_known(text))
        case Planned(entries=entries):
            # A copy, because the agent may go on to change its entries.
            return replace(event, entries=_mask_objects(deepcopy(entries), mask))
        case ToolEnded(content=content, structured=structured):
            blocks, data = _mask_blocks(content, mask), mask.mask_known_in_json(structured)
            is_same = blocks is content and data is structured
            return event if is_same else replace(event, content=blocks, structured=data)
        case Titled(title=title):
            return replace(event, title=mask.mask_known(title))
        case TurnEnded(usage=usage):
            return replace(event, usage=_as_object(mask.mask_known_in_json(usage)))
        case UnknownEvent(body=body):
            return replace(event, body=_mask_unknown(body, mask))
        case SessionOpened() | TrustLowered() | ModeChanged() | ToolStarted() | PermissionDecided():
            return event


class MessageMasker:
    """Masks the pieces of one session's messages and thoughts as streams."""

    def __init__(self, mask: Mask) -> None:
        self._streams: dict[type[Replied | Thought], StreamMask] = {}
        self._mask = mask
        self._last: dict[type[Replied | Thought], Replied | Thought] = {}

    def use(self, mask: Mask) -> None:
        """Mask the pieces with this mask from now on."""
        self._mask = mask
        for stream in self._streams.values():
            stream.use(mask)

    @property
    def has_pending(self) -> bool:
        """Whether the end of a piece is delayed."""
        return bool(self._last)

    def feed(self, piece: Replied | Thought) -> Iterator[Replied | Thought]:
        """The events to append now."""
        if not self._mask.size:
            yield piece
            return
        kind = type(piece)
        stream = self._streams.get(kind)
        if stream is None:
            stream = self._streams[kind] = StreamMask(self._mask)
        last = self._last.pop(kind, None)
        if last is not None and last.message_id != piece.message_id and (pending := stream.flush()):
            yield replace(last, text=pending)
        if text := stream.feed(piece.text):
            yield piece if text == piece.text else replace(piece, text=text)
        if stream.pending:
            self._last[kind] = piece

    def flush(self) -> Iterator[Replied | Thought]:
        """The events with the delayed text, at the end of a message."""
        while self._last:
            kind, last = self._last.popitem()
            if pending := self._streams[kind].flush():
                yield replace(last, text=pending)


def _mask_unknown(body: bytes, mask: Mask) -> bytes:
    """The fields of an unknown event. Without secrets, they stay exactly as they are."""
    try:
        value: Json = json.loads(body)
    except ValueError:
        return mask.mask_known(body.decode("utf-8", "replace")).encode()
    masked = mask.mask_known_in_json(value)
    return body if masked == value else json.dumps(masked).encode()


def _mask_names(event: ToolCalled, mask: Mask) -> ToolCalled:
    if not mask.size or not mask.find(f"{event.server}\n{event.tool}\n{event.title}"):
        return event
    return replace(
        event,
        server=mask.mask_known(event.server),
        tool=mask.mask_known(event.tool),
        title=mask.mask_known(event.title),
    )


def _mask_prompt(blocks: tuple[JsonObject, ...], mask: Mask) -> tuple[JsonObject, ...]:
    return _mask_blocks(_with_texts(blocks, mask_prompts(_texts(blocks), mask)), mask)


def _mask_blocks(blocks: tuple[JsonObject, ...], mask: Mask) -> tuple[JsonObject, ...]:
    """Mask content blocks. A secret may be spread over the texts of several."""
    if not mask.size:
        return blocks
    texts = _texts(blocks)
    masked = mask.mask_known_in_texts(texts)
    return _mask_objects(blocks if masked == texts else _with_texts(blocks, masked), mask)


def _texts(blocks: tuple[JsonObject, ...]) -> list[str]:
    return [text for block in blocks if isinstance(text := block.get("text"), str)]


def _with_texts(blocks: tuple[JsonObject, ...], texts: Iterable[str]) -> tuple[JsonObject, ...]:
    """The blocks, with their texts replaced by these, in order. Blocks without a text stay as they are."""
    following = iter(texts)
    return tuple(
        {**block, "text": next(following)} if isinstance(block.get("text"), str) else block
        for block in blocks
    )


def _mask_objects(values: tuple[JsonObject, ...], mask: Mask) -> tuple[JsonObject, ...]:
    """Mask each object. Returns the same tuple if there is nothing to mask."""
    masked = tuple(_as_object(mask.mask_known_in_json(value)) for value in values)
    return values if all(new is old for new, old in zip(masked, values, strict=True)) else masked


def _as_object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError("Masking must not change the type of a value.")
    return value
