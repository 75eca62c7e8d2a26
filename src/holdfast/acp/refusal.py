"""An error as an editor is told of it: by the protocol's own names, with what to do and which session it is about."""

from contextlib import suppress

import msgspec

from holdfast.acp.shapes import Named
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.frame import Request

_NAMES = {"session_id": "sessionId"}
_LONGEST_ID = 256


def refusal(error: HoldfastError, request: Request) -> HoldfastError:
    """The same error, for an editor that asked this."""
    named = {_NAMES.get(key, key): value for key, value in error.details.items()}
    return HoldfastError(error.code, error.message, **{"hint": error.code.hint, **_about(request), **named})


def _about(request: Request) -> JsonObject:
    with suppress(msgspec.MsgspecError):
        return {"sessionId": msgspec.json.decode(request.params, type=Named).session_id[:_LONGEST_ID]}
    return {}
