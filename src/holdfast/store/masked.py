"""An event without the secrets that its session knows of."""

from dataclasses import replace

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
)
from holdfast.model.json import Json, JsonObject
from holdfast.model.mask import Mask
from holdfast.model.typed import all_typed


def masked(event: Event, mask: Mask) -> Event:
    """The event as it may be written down.

    Known secrets are hidden wherever they stand. What stands under a telling name is hidden in the
    arguments of a call only, typed ones included: what people and servers said is kept as they said it.
    """
    match event:
        case ToolCalled(arguments=arguments, title=title):
            return replace(event, arguments=_object(mask.json(arguments)), title=mask.text(title))
        case Prompted(blocks=blocks):
            return replace(event, blocks=_typed(blocks, mask))
        case _ if not mask.secrets:
            return event
        case Replied(text=text) | Thought(text=text):
            return replace(event, text=mask.text(text))
        case Planned(entries=entries):
            return replace(event, entries=_objects(entries, mask))
        case ToolEnded(content=content, structured=structured):
            return replace(event, content=_objects(content, mask), structured=mask.values(structured))
        case ServersResolved(refusals=refusals):
            hidden = tuple(replace(refusal, reason=mask.line(refusal.reason)) for refusal in refusals)
            return replace(event, refusals=hidden)
        case SessionClosed(reason=reason):
            return replace(event, reason=mask.line(reason))
        case Titled(title=title):
            return replace(event, title=mask.text(title))
        case TurnEnded(usage=usage):
            return replace(event, usage=_object(mask.values(usage)))
        case SessionOpened() | TrustLowered() | ModeChanged() | ToolStarted() | PermissionDecided():
            return event


def _typed(blocks: tuple[JsonObject, ...], mask: Mask) -> tuple[JsonObject, ...]:
    texts = {place: text for place, block in enumerate(blocks) if isinstance(text := block.get("text"), str)}
    told = dict(zip(texts, all_typed(texts.values(), mask), strict=True))
    return _objects(
        tuple(
            {**block, "text": told[place]} if place in told else block for place, block in enumerate(blocks)
        ),
        mask,
    )


def _objects(values: tuple[JsonObject, ...], mask: Mask) -> tuple[JsonObject, ...]:
    return tuple(_object(mask.values(value)) for value in values)


def _object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError("Masking an object gives an object.")
    return value
