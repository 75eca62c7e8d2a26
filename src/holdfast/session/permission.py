"""Whether a call may run: read-only tools may, the rest is asked for, as the session's mode says."""

from enum import StrEnum

import msgspec
from msgspec import UnsetType

from holdfast.connect.catalog import Offer
from holdfast.model.server import Source


class Mode(StrEnum):
    """How permission is asked: `ask` for what may change something, `auto` never, `read-only` refuses instead."""

    ASK = "ask"
    AUTO = "auto"
    READ_ONLY = "read-only"


class Due(StrEnum):
    """What is due before a call."""

    NOTHING = "nothing"
    ASKING = "asking"
    REFUSAL = "refusal"


class _Annotations(msgspec.Struct, rename="camel"):
    read_only_hint: bool = False


def due(offer: Offer, mode: Mode) -> Due:
    """What a call of this tool takes. The hint counts: the definition it stands in was approved."""
    if mode is Mode.AUTO or reads_only(offer):
        return Due.NOTHING
    return Due.ASKING if mode is Mode.ASK else Due.REFUSAL


def reads_only(offer: Offer) -> bool:
    """Whether a tool says that it changes nothing."""
    annotations = offer.tool.annotations
    if isinstance(annotations, UnsetType):
        return False
    try:
        return msgspec.json.decode(annotations, type=_Annotations).read_only_hint
    except msgspec.ValidationError:
        return False


def kind_of(offer: Offer) -> str:
    """What kind of thing a tool does, in an editor's words: it says so itself, or it reads, or nobody knows."""
    meta = offer.tool.meta
    if not isinstance(meta, UnsetType) and offer.server.source is Source.BUILTIN:
        try:
            return msgspec.json.decode(meta, type=_Meta).kind
        except msgspec.ValidationError:
            return "other"
    return "read" if reads_only(offer) else "other"


class _Meta(msgspec.Struct):
    kind: str = msgspec.field(default="other", name="dev.holdfast/kind")
