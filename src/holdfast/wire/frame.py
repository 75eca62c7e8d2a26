"""Parse and encode JSON-RPC messages, one per line."""

import re
from typing import Any, TypeAlias

import msgspec

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.limits import Limits
from holdfast.wire.lines import Line, OversizedLine
from holdfast.wire.strict_json import (
    DECODE_ERRORS,
    StrictJsonError,
    check_json,
    count_members,
    describe_decode_error,
)

Raw = msgspec.Raw
Id: TypeAlias = int | str

MAX_ID_BYTES = 512  # an id is sent back, so its length is limited
EMPTY_PARAMS = Raw(b"{}")


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request, which expects a response."""

    id: Id
    method: str
    params: Raw


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A notification, which expects no response."""

    method: str
    params: Raw


class Response(msgspec.Struct, frozen=True, gc=False):
    """A response with a result."""

    id: Id
    result: Raw


class ErrorBody(msgspec.Struct, frozen=True, gc=False):
    """The error of an error response."""

    code: int
    message: str = ""
    data: Raw = Raw()


class ErrorResponse(msgspec.Struct, frozen=True, gc=False):
    """A response with an error. Without an id, the sender could not parse a line of ours."""

    id: Id | None
    error: ErrorBody


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A line that is not a valid message: the error to answer with, and the id if one was found."""

    code: Code
    reason: str
    id: Id | None = None
    is_response: bool = False
    """Whether it may be a response: it has an id, and no method was found."""
    has_result_or_error: bool = False
    """Whether it has a result or an error, so it is certainly a response."""


Message: TypeAlias = Request | Notification | Response | ErrorResponse | Malformed


class _Envelope(msgspec.Struct, omit_defaults=True, gc=False):
    jsonrpc: Raw = Raw()
    id: Raw = Raw()
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_error = msgspec.json.Decoder(ErrorBody).decode
_encode = msgspec.json.Encoder().encode
_VERSION = Raw(b'"2.0"')
_NULL = Raw(b"null")
_MAX_FRAME_BYTES = 64 * 1024  # the largest message without its payload


def parse_line(line: Line, limits: Limits) -> Message | None:
    """Parse a line; None for a blank line.

    The params of requests and notifications are checked strictly. Results are not: they may only be passed on, and
    are checked when they are decoded.
    """
    if isinstance(line, OversizedLine):
        reason = f"The line has {line.size} bytes; the maximum is {limits.line_bytes}."
        return _malformed(codes.TOO_LARGE, reason, line.head, line.tail)
    try:
        if not line.isascii():
            line.decode()
        envelope = _decode_envelope(line)
        out = _encode(envelope)
        # Equal length proves that the message has only these members, each once.
        if len(out) != len(line) and _repeats_a_member(line, envelope):
            return _malformed(codes.INVALID_REQUEST, "The message has a duplicate key.", line)
    except msgspec.ValidationError:
        return _not_a_message(line)
    except DECODE_ERRORS as error:
        if not line.strip():
            return None
        return _malformed(codes.PARSE_ERROR, f"The line is not JSON: {describe_decode_error(error)}.", line)
    return _message(envelope, limits)


def _repeats_a_member(line: bytes, envelope: _Envelope) -> bool:
    if len(line) > _MAX_FRAME_BYTES:
        # The payload may only be passed on, so check the message without it.
        payload = max(envelope.params, envelope.result, envelope.error, key=len)
        line = line.replace(bytes(payload), b"0", 1)
        if len(line) > _MAX_FRAME_BYTES:
            return True
    return count_members(_encode(_decode_members(line))) != count_members(line)


def _message(envelope: _Envelope, limits: Limits) -> Message:
    identity = _read_id(envelope.id)
    params, result, error = envelope.params, envelope.result, envelope.error
    if envelope.jsonrpc != _VERSION:
        return _invalid('"jsonrpc" must be "2.0".', envelope, identity)
    if envelope.method is None:
        return _answer(envelope, identity)
    if result or error:
        return _invalid(
            'A message must have exactly one of "method", "result" and "error".', envelope, identity
        )
    if not params:
        params = EMPTY_PARAMS
    elif params != EMPTY_PARAMS:
        if memoryview(params)[0] not in b"{[":
            return _invalid('"params" must be an object or an array.', envelope, identity)
        try:
            check_json(params, limits)
        except StrictJsonError as error:
            return _invalid(f"The params are invalid: {error}.", envelope, identity)
    if not envelope.id:
        return Notification(envelope.method, params)
    if identity is None:
        return _invalid('"id" must be a string or an integer.', envelope, None)
    return Request(identity, envelope.method, params)


def _answer(envelope: _Envelope, identity: Id | None) -> Message:
    if bool(envelope.result) == bool(envelope.error):
        return _invalid(
            'A message must have exactly one of "method", "result" and "error".', envelope, identity
        )
    if envelope.error:
        try:
            body = _decode_error(envelope.error)
        except DECODE_ERRORS:
            return _invalid('"error" must have an integer "code" and a "message".', envelope, identity)
        if identity is None and envelope.id and envelope.id != _NULL:
            return _invalid('"id" must be a string or an integer.', envelope, None)
        return ErrorResponse(identity, body)
    if identity is None:
        return _invalid('"id" must be a string or an integer.', envelope, None)
    return Response(identity, envelope.result)


def _read_id(raw: Raw) -> Id | None:
    if not raw:
        return None
    text = bytes(raw)
    if text.isdigit() and len(text) < 19:
        return int(text)
    if len(text) > MAX_ID_BYTES:
        return None
    try:
        return (
            msgspec.json.decode(text, type=Id) if text[:1] in b'"-0123456789' and _is_plain_id(text) else None
        )
    except DECODE_ERRORS:
        return None


def _is_plain_id(text: bytes) -> bool:
    return text[:1] == b'"' or (text.lstrip(b"-").isdigit() and len(text) < 20)


def _invalid(reason: str, envelope: _Envelope, identity: Id | None) -> Malformed:
    return Malformed(
        codes.INVALID_REQUEST,
        reason,
        identity,
        is_response=envelope.method is None and bool(envelope.id),
        has_result_or_error=envelope.method is None and bool(envelope.result or envelope.error),
    )


def _not_a_message(line: bytes) -> Malformed:
    # Valid JSON of the wrong type: a batch, a bare value, or a method that is not a string.
    first = line.lstrip()[:1]
    if first == b"[":
        return Malformed(codes.INVALID_REQUEST, "Batches are not supported: send one object per line.")
    if first != b"{":
        return Malformed(codes.INVALID_REQUEST, "A message must be an object.")
    return _malformed(codes.INVALID_REQUEST, '"method" must be a string.', line)


# The scalar members at the start and the end of a line: they give the id even if the rest cannot be parsed.
_SCALAR = rb'(?:"[^"\\]*"|-?[0-9]+|true|false|null)'
_AT_HEAD = re.compile(rb'\s*\{\s*(?:"\w+"\s*:\s*%s\s*,\s*)*(?:"\w+"\s*:\s*%s\s*\})?' % (_SCALAR, _SCALAR))
_AT_TAIL = re.compile(rb'(?:,\s*"\w+"\s*:\s*%s\s*)+\}\s*$' % _SCALAR)
_RESULT_OR_ERROR = re.compile(rb'"(?:result|error)"\s*:')
_MEMBER = re.compile(rb'"(\w+)"\s*:\s*(%s)' % _SCALAR)


def _malformed(code: Code, reason: str, head: bytes, tail: bytes | None = None) -> Malformed:
    """A malformed line, with the id that it seems to have."""
    seen = _find_members(head[:1024], (head if tail is None else tail)[-256:])
    identity = _read_id(Raw(seen[b"id"])) if b"id" in seen else None
    is_answer = identity is not None and b"method" not in seen
    return Malformed(
        code,
        reason,
        identity,
        is_response=is_answer,
        has_result_or_error=is_answer and _RESULT_OR_ERROR.search(head[:1024]) is not None,
    )


def _find_members(head: bytes, tail: bytes) -> dict[bytes, bytes]:
    seen: dict[bytes, bytes] = {}
    if at_head := _AT_HEAD.match(head):
        seen.update(_MEMBER.findall(at_head[0]))
    if at_tail := _AT_TAIL.search(tail):
        seen.update(_MEMBER.findall(at_tail[0]))
    return seen


def encode(value: Any) -> bytes:
    """Encode a value; a `Raw` is returned unchanged."""
    return bytes(value) if type(value) is Raw else _encode(value)


def request_line(identity: Id, method: str, params: Any) -> bytes:
    """Encode a request."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}\n' % (
        _encode(identity),
        _encode(method),
        encode(params),
    )


def notification_line(method: str, params: Any) -> bytes:
    """Encode a notification."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}\n' % (_encode(method), encode(params))


def result_line(identity: Id, result: Any) -> bytes:
    """Encode a response."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (_encode(identity), encode(result))


def error_line(identity: Id | None, code: int, message: str, data: Any = None) -> bytes:
    """Encode an error response."""
    # The message may contain a file name that is not valid Unicode.
    body: dict[str, Any] = {"code": code, "message": message.encode(errors="replace").decode()}
    if data is not None:
        body["data"] = data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (_encode(identity), _encode(body))
