"""One line is one JSON-RPC message: what a line says, and how a message is written."""

import re
from typing import Any, TypeAlias

import msgspec

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.limits import Limits
from holdfast.wire.lines import Line, Overlong
from holdfast.wire.strict import DECODE_ERRORS, Unreadable, check, members, why

Raw = msgspec.Raw
Id: TypeAlias = int | str

ID_BYTES = 512  # an id is echoed, so it is bounded
EMPTY = Raw(b"{}")


class Request(msgspec.Struct, frozen=True, gc=False):
    """The peer wants an answer."""

    id: Id
    method: str
    params: Raw


class Notification(msgspec.Struct, frozen=True, gc=False):
    """The peer tells something."""

    method: str
    params: Raw


class Response(msgspec.Struct, frozen=True, gc=False):
    """The peer answers."""

    id: Id
    result: Raw


class ErrorBody(msgspec.Struct, frozen=True, gc=False):
    """Why a request was not answered with a result."""

    code: int
    message: str = ""
    data: Raw = Raw()


class ErrorResponse(msgspec.Struct, frozen=True, gc=False):
    """The peer refuses; without an id it could not read a line of ours."""

    id: Id | None
    error: ErrorBody


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A line that is no message: what to answer, and to whom as far as one can tell."""

    code: Code
    reason: str
    id: Id | None = None
    is_answer: bool = False
    """Whether it may be an answer: it has a number, and no method that could be seen."""
    has_outcome: bool = False
    """Whether it surely is one: it has a result or an error."""


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
_SKELETON = 64 * 1024


def parse(line: Line, limits: Limits) -> Message | None:
    """What a line says; None for a blank one.

    Requests and notifications are read by us, so their params are checked strictly. Results are
    passed on: they are well-formed, and whoever reads one checks it then.
    """
    if isinstance(line, Overlong):
        reason = f"The line has {line.size} bytes; {limits.line_bytes} is the most."
        return _malformed(codes.TOO_LARGE, reason, line.head, line.tail)
    try:
        if not line.isascii():
            line.decode()
        envelope = _decode_envelope(line)
        out = _encode(envelope)
        # Equal length proves it: nothing but these members, each of them once.
        if len(out) != len(line) and _repeats_a_member(line, envelope):
            return _malformed(codes.INVALID_REQUEST, "The same key stands twice in the message.", line)
    except msgspec.ValidationError:
        return _not_a_message(line)
    except DECODE_ERRORS as error:
        if not line.strip():
            return None
        return _malformed(codes.PARSE_ERROR, f"The line is not JSON: {why(error)}.", line)
    return _message(envelope, limits)


def _repeats_a_member(line: bytes, envelope: _Envelope) -> bool:
    if len(line) > _SKELETON:
        # What is passed on stays unread: look at the message without its payload.
        payload = max(envelope.params, envelope.result, envelope.error, key=len)
        line = line.replace(bytes(payload), b"0", 1)
        if len(line) > _SKELETON:
            return True
    return members(_encode(_decode_members(line))) != members(line)


def _message(envelope: _Envelope, limits: Limits) -> Message:
    identity = _read_id(envelope.id)
    params, result, error = envelope.params, envelope.result, envelope.error
    if envelope.jsonrpc != _VERSION:
        return _invalid('"jsonrpc" must be "2.0".', envelope, identity)
    if envelope.method is None:
        return _answer(envelope, identity)
    if result or error:
        return _invalid("A message has a method, or a result, or an error: one of them.", envelope, identity)
    if not params:
        params = EMPTY
    elif params != EMPTY:
        if memoryview(params)[0] not in b"{[":
            return _invalid('"params" must be an object or an array.', envelope, identity)
        try:
            check(params, limits)
        except Unreadable as unreadable:
            return _invalid(f"The params cannot be read: {unreadable}.", envelope, identity)
    if not envelope.id:
        return Notification(envelope.method, params)
    if identity is None:
        return _invalid('"id" must be a string or an integer.', envelope, None)
    return Request(identity, envelope.method, params)


def _answer(envelope: _Envelope, identity: Id | None) -> Message:
    if bool(envelope.result) == bool(envelope.error):
        return _invalid("A message has a method, or a result, or an error: one of them.", envelope, identity)
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
    if len(text) > ID_BYTES:
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
        is_answer=envelope.method is None and bool(envelope.id),
        has_outcome=envelope.method is None and bool(envelope.result or envelope.error),
    )


def _not_a_message(line: bytes) -> Malformed:
    # Well-formed so far, but not the shape: a batch, a bare value, a method that is not text.
    first = line.lstrip()[:1]
    if first == b"[":
        return Malformed(codes.INVALID_REQUEST, "Batches are not supported: send one object per line.")
    if first != b"{":
        return Malformed(codes.INVALID_REQUEST, "A message is an object.")
    return _malformed(codes.INVALID_REQUEST, '"method" must be a string.', line)


# The scalar members at the two ends of a line. They name the caller even where the middle is unreadable.
_SCALAR = rb'(?:"[^"\\]*"|-?[0-9]+|true|false|null)'
_AT_HEAD = re.compile(rb'\s*\{\s*(?:"\w+"\s*:\s*%s\s*,\s*)*(?:"\w+"\s*:\s*%s\s*\})?' % (_SCALAR, _SCALAR))
_AT_TAIL = re.compile(rb'(?:,\s*"\w+"\s*:\s*%s\s*)+\}\s*$' % _SCALAR)
_OUTCOME = re.compile(rb'"(?:result|error)"\s*:')
_MEMBER = re.compile(rb'"(\w+)"\s*:\s*(%s)' % _SCALAR)


def _malformed(code: Code, reason: str, head: bytes, tail: bytes | None = None) -> Malformed:
    """A malformed line, with the id it seems to have."""
    seen = _glimpse(head[:1024], (head if tail is None else tail)[-256:])
    identity = _read_id(Raw(seen[b"id"])) if b"id" in seen else None
    is_answer = identity is not None and b"method" not in seen
    return Malformed(
        code,
        reason,
        identity,
        is_answer=is_answer,
        has_outcome=is_answer and _OUTCOME.search(head[:1024]) is not None,
    )


def _glimpse(head: bytes, tail: bytes) -> dict[bytes, bytes]:
    seen: dict[bytes, bytes] = {}
    if at_head := _AT_HEAD.match(head):
        seen.update(_MEMBER.findall(at_head[0]))
    if at_tail := _AT_TAIL.search(tail):
        seen.update(_MEMBER.findall(at_tail[0]))
    return seen


def encode(value: Any) -> bytes:
    """Any encodable value, or a `Raw` as it is."""
    return bytes(value) if type(value) is Raw else _encode(value)


def request_line(identity: Id, method: str, params: Any) -> bytes:
    """A request as a line."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}\n' % (
        _encode(identity),
        _encode(method),
        encode(params),
    )


def notification_line(method: str, params: Any) -> bytes:
    """A notification as a line."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}\n' % (_encode(method), encode(params))


def result_line(identity: Id, result: Any) -> bytes:
    """An answer as a line."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (_encode(identity), encode(result))


def error_line(identity: Id | None, code: int, message: str, data: Any = None) -> bytes:
    """A refusal as a line."""
    # A message may name a file, and a file's name may be no text.
    body: dict[str, Any] = {"code": code, "message": message.encode(errors="replace").decode()}
    if data is not None:
        body["data"] = data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (_encode(identity), _encode(body))
