"""Reads the code and message of a failed tool call from the toolkit's envelope."""

import re

import msgspec
from msgspec import UnsetType

from holdfast.model.meta_keys import ENVELOPE_KEY
from holdfast.wire.mcp.tools import CallResult
from holdfast.wire.strict_json import DECODE_ERRORS

_CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_MAX_CODE_LENGTH = 64
_MAX_MESSAGE_LENGTH = 2000
_MAX_BYTES = 64 * 1024  # a longer envelope is ignored, because it is decoded on the event loop


class _Envelope(msgspec.Struct):
    ok: bool = True
    code: str = ""
    error: str = ""


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def read_failure(result: CallResult) -> tuple[str, str]:
    """The code and the message in the envelope of a failed result. Both are empty if there is no valid envelope."""
    try:
        envelope = _find_envelope(result)
    except DECODE_ERRORS:
        return "", ""
    code = envelope.code
    if envelope.ok or len(code) > _MAX_CODE_LENGTH or not _CODE.fullmatch(code):
        return "", ""
    return code, envelope.error[:_MAX_MESSAGE_LENGTH]


def _find_envelope(result: CallResult) -> _Envelope:
    in_meta = result.meta.get(ENVELOPE_KEY)
    if isinstance(in_meta, dict):
        return msgspec.convert(in_meta, _Envelope)
    structured = result.structured_content
    if isinstance(structured, UnsetType) or len(structured) > _MAX_BYTES:
        return _Envelope()
    return _decode_envelope(structured)
