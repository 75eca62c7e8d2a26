"""The JSON-RPC messages: parse them from lines, and encode them as lines."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.lines import Line, OversizedLine
from holdfast.wire.message_memory import LONG_LINE_BYTES
from holdfast.wire.strict_json import (
    DECODE_ERRORS,
    StrictJsonError,
    check_json,
    check_utf8,
    count_members,
    describe_decode_error,
)

Raw = msgspec.Raw
Id: TypeAlias = int | str

MAX_ID_BYTES = 512  # limited, because every answer repeats the id
EMPTY_OBJECT = Raw(b"{}")


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
    """A response with an error. If the id is None, the remote peer could not parse one of our lines."""

    id: Id | None
    error: ErrorBody


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A line that is not a valid message: the code and reason for an error response, and the id if one was found."""

    code: Code
    reason: str
    id: Id | None = None
    may_be_response: bool = False
    """Whether an id was found and no method."""
    has_result_or_error: bool = False
    """Whether a result or an error was found and no method. The id, if there is one, is then the id of a request that we sent."""
    excerpt: str = ""
    """The beginning of a line that is not JSON, for a log: probably something that the server printed."""


class PeerError(HoldfastError):
    """An error response from the remote peer. If a handler raises it, the same error is sent as the handler's answer."""

    has_own_words = False

    def __init__(self, rpc_code: int, message: str, data: Any = None) -> None:
        super().__init__(codes.PEER_ERROR, message)
        self.rpc_code = rpc_code
        self.data = data


Message: TypeAlias = Request | Notification | Response | ErrorResponse | Malformed


class _RawMessage(msgspec.Struct, omit_defaults=True, gc=False):
    """The members of a message, before they are checked."""

    jsonrpc: Raw = Raw()
    id: Raw = Raw()
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


_decode_raw_message = msgspec.json.Decoder(_RawMessage).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_error = msgspec.json.Decoder(ErrorBody).decode
_encode = msgspec.json.Encoder().encode
_BREAKS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
_VERSION = Raw(b'"2.0"')
_NULL = Raw(b"null")
_INVALID_ID = f'"id" must be an integer or a string of at most {MAX_ID_BYTES} bytes.'
_MAX_EXCERPT = 200  # bytes
_MAX_BYTES_WITHOUT_PAYLOAD = 64 * 1024  # checked if a message must be searched for duplicate keys


def parse_line(line: Line, limits: Limits) -> Message | None:
    """Parse a line; None for a blank line.

    The params of requests and notifications are checked strictly. Results, and the data of errors, are checked when they
    are decoded, because some are passed on without being decoded.
    """
    if isinstance(line, OversizedLine):
        reason = (
            f"The line has {line.size} bytes; the maximum is {limits.line_bytes}."
            if line.size > limits.line_bytes
            else f"Other long lines use the memory that a line of {line.size} bytes needs. Send it again later."
        )
        return _malformed(codes.TOO_LARGE, reason, line.head, line.tail)
    try:
        check_utf8(line)
        raw = _decode_raw_message(line)
        # If the re-encoded message is as long as the line, the decoder dropped nothing: there are only known members, each once.
        if _encoded_length(raw, len(line)) != len(line) and (problem := _find_member_problem(line, raw)):
            return _malformed(codes.INVALID_REQUEST, problem, line)
    except msgspec.ValidationError:
        return _describe_wrong_type(line)
    except DECODE_ERRORS as error:
        if not line.strip():
            return None
        reason = f"The line is not JSON: {describe_decode_error(error)}."
        start = bytes(line[:_MAX_EXCERPT]).decode(errors="replace").strip()
        excerpt = "" if start.startswith("{") else start  # a damaged message may be private
        return msgspec.structs.replace(_malformed(codes.PARSE_ERROR, reason, line), excerpt=excerpt)
    return _check_message(raw, limits)


def _encoded_length(raw: _RawMessage, line_length: int) -> int:
    """The length of the message without whitespace between its members. A long message is not encoded to find its length."""
    if line_length <= LONG_LINE_BYTES:
        return len(_encode(raw))
    members = {
        "jsonrpc": raw.jsonrpc,
        "id": raw.id,
        "params": raw.params,
        "result": raw.result,
        "error": raw.error,
    }
    lengths = [len(name) + len(value) for name, value in members.items() if value]
    if raw.method is not None:
        lengths.append(len("method") + len(_encode(raw.method)))
    # A member has two quotation marks, a colon, and a comma or the closing bracket.
    return 1 + sum(lengths) + 4 * len(lengths)


def _find_member_problem(line: bytes | bytearray, raw: _RawMessage) -> str | None:
    """What is wrong with the members of a message: a key is repeated, or there is too much to check. None if nothing is."""
    if len(line) - _payload_length(raw) > _MAX_BYTES_WITHOUT_PAYLOAD:
        return f'The message has over {_MAX_BYTES_WITHOUT_PAYLOAD} bytes besides its "params", "result" or "error".'
    members = _decode_members(line)
    # Duplicate keys inside the values do not matter here. Both counts include them.
    if len(members) + sum(map(count_members, members.values())) != count_members(bytes(line)):
        return "The message has a duplicate key."
    return None


def _payload_length(raw: _RawMessage) -> int:
    return max(len(raw.params), len(raw.result), len(raw.error))


def _check_message(raw: _RawMessage, limits: Limits) -> Message:
    request_id = _read_id(raw.id)
    params, result, error = raw.params, raw.result, raw.error
    if raw.jsonrpc != _VERSION:
        return _invalid('"jsonrpc" must be "2.0".', raw, request_id)
    if raw.method is None:
        return _parse_response(raw, request_id)
    if result or error:
        return _invalid('A message must have exactly one of "method", "result" and "error".', raw, request_id)
    if not params:
        params = EMPTY_OBJECT
    elif params != EMPTY_OBJECT:
        if memoryview(params)[0] not in b"{[":
            return _invalid('"params" must be an object or an array.', raw, request_id)
        try:
            check_json(params, limits)
        except StrictJsonError as error:
            return _invalid(f"The params are invalid: {error}.", raw, request_id)
    if not raw.id:
        return Notification(raw.method, params)
    if request_id is None:
        return _invalid(_INVALID_ID, raw, None)
    return Request(request_id, raw.method, params)


def _parse_response(raw: _RawMessage, request_id: Id | None) -> Message:
    if bool(raw.result) == bool(raw.error):
        return _invalid('A message must have exactly one of "method", "result" and "error".', raw, request_id)
    if raw.error:
        try:
            body = _decode_error(raw.error)
        except DECODE_ERRORS:
            return _invalid('"error" must have an integer "code" and a "message".', raw, request_id)
        if request_id is None and raw.id and raw.id != _NULL:
            return _invalid(_INVALID_ID, raw, None)
        return ErrorResponse(request_id, body)
    if request_id is None:
        return _invalid(_INVALID_ID, raw, None)
    return Response(request_id, raw.result)


def _read_id(raw: Raw) -> Id | None:
    """The id, decoded; None if there is none, or if it is not valid."""
    if not raw:
        return None
    text = bytes(raw)
    if text.isdigit() and len(text) < 19:  # most ids; every such number fits into 64 bits
        return int(text)
    if len(text) > MAX_ID_BYTES:
        return None
    try:
        return msgspec.json.decode(text, type=Id) if _is_string_or_integer(text) else None
    except DECODE_ERRORS:
        return None


def _is_string_or_integer(text: bytes) -> bool:
    # A number of 64 bits has at most 19 digits. A longer one is not used as an id.
    return text[:1] == b'"' or (text.lstrip(b"-").isdigit() and len(text) < 20)


def _invalid(reason: str, raw: _RawMessage, request_id: Id | None) -> Malformed:
    return Malformed(
        codes.INVALID_REQUEST,
        reason,
        request_id,
        may_be_response=raw.method is None and bool(raw.id),
        has_result_or_error=raw.method is None and bool(raw.result or raw.error),
    )


def _describe_wrong_type(line: bytes | bytearray) -> Malformed:
    """Describe a line with valid JSON of the wrong type: a batch, a bare value, or a method that is not a string."""
    first = line.lstrip()[:1]
    if first == b"[":
        return Malformed(codes.INVALID_REQUEST, "Batches are not supported: send one object per line.")
    if first != b"{":
        return Malformed(codes.INVALID_REQUEST, "A message must be an object.")
    return _malformed(codes.INVALID_REQUEST, '"method" must be a string.', line)


# Members with a scalar value, at the start and the end of a line. They contain the id even if the rest of the line cannot
# be parsed.
_SCALAR = rb'(?:"[^"\\]*"|-?[0-9]+|true|false|null)'
_AT_HEAD = re.compile(rb'\s*\{\s*(?:"\w+"\s*:\s*%s\s*,\s*)*(?:"\w+"\s*:\s*%s\s*\})?' % (_SCALAR, _SCALAR))
_AT_TAIL = re.compile(rb'(?:,\s*"\w+"\s*:\s*%s\s*)+\}\s*$' % _SCALAR)
_RESULT_OR_ERROR = re.compile(rb'"(?:result|error)"\s*:')
_MEMBER = re.compile(rb'"(\w+)"\s*:\s*(%s)' % _SCALAR)


def _malformed(code: Code, reason: str, head: bytes | bytearray, tail: bytes | None = None) -> Malformed:
    """Describe a line that cannot be parsed. Its id is looked for in `head` and `tail`, its first and last bytes.

    Without a `tail`, `head` is the whole line.
    """
    members = _find_members(bytes(head[:1024]), bytes((head if tail is None else tail)[-256:]))
    request_id = _read_id(Raw(members[b"id"])) if b"id" in members else None
    may_be_response = request_id is not None and b"method" not in members
    return Malformed(
        code,
        reason,
        request_id,
        may_be_response=may_be_response,
        has_result_or_error=may_be_response and _RESULT_OR_ERROR.search(head[:1024]) is not None,
    )


def _find_members(head: bytes, tail: bytes) -> dict[bytes, bytes]:
    """The members with scalar values at the start and the end of a line, undecoded."""
    members: dict[bytes, bytes] = {}
    if at_head := _AT_HEAD.match(head):
        members.update(_MEMBER.findall(at_head[0]))
    if at_tail := _AT_TAIL.search(tail):
        members.update(_MEMBER.findall(at_tail[0]))
    return members


def encode(value: Any) -> bytes:
    """Encode a value as JSON. A `Raw` is already encoded."""
    return bytes(value) if type(value) is Raw else _encode(value)


def request_line(request_id: Id, method: str, params: Any) -> bytes:
    """Encode a request."""
    return _as_one_line(
        b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}\n'
        % (_encode(request_id), _encode(method), encode(params))
    )


def notification_line(method: str, params: Any) -> bytes:
    """Encode a notification."""
    return _as_one_line(b'{"jsonrpc":"2.0","method":%b,"params":%b}\n' % (_encode(method), encode(params)))


def notification_lines(method: str, params: Iterable[Any]) -> Iterator[bytes]:
    """Encode notifications that have the same method."""
    start = b'{"jsonrpc":"2.0","method":%b,"params":' % _encode(method)
    for one_params in params:
        yield _as_one_line(b"%b%b}\n" % (start, _encode(one_params)))


def result_line(request_id: Id, result: Any) -> bytes:
    """Encode a response with a result."""
    return _as_one_line(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (_encode(request_id), encode(result)))


def error_line(request_id: Id | None, code: int, message: str, data: Any = None) -> bytes:
    """Encode a response with an error."""
    # The message may contain a file name that is not valid Unicode.
    body: dict[str, Any] = {"code": code, "message": message.encode(errors="replace").decode()}
    if data is not None:
        body["data"] = data
    return _as_one_line(b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (_encode(request_id), _encode(body)))


def _as_one_line(line: bytes) -> bytes:
    """The line, with spaces in place of the line breaks in it.

    A sender may put line breaks between the values of a `Raw`. For the reader, what follows a line break, or a CR for some readers,
    would be another message, such as a call that nobody permitted.
    """
    if line.index(b"\n") == len(line) - 1 and b"\r" not in line:
        return line
    return line[:-1].translate(_BREAKS_TO_SPACES) + b"\n"


def check_size(line: bytes, limits: Limits) -> bytes:
    """Return the line; raise TOO_LARGE if it is over the limit."""
    if len(line) > limits.line_bytes:
        raise HoldfastError(
            codes.TOO_LARGE, f"The message has {len(line)} bytes; the maximum is {limits.line_bytes}."
        )
    return line
