"""The envelope in the content, which is the default: `{…data, ok, _meta}`, as text and as structured content."""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.json import JsonObject
from holdfast.toolkit.content import CONTENT_TYPES, Content, Reply, has_content
from holdfast.toolkit.errors import CodeRegistry, ResultMismatchError
from holdfast.toolkit.outcome import CallStats, Failed
from holdfast.toolkit.return_type import RESERVED_MEMBERS, ReturnType
from holdfast.wire.messages import Raw

ResultMembers: TypeAlias = dict[str, Raw]
"""The members of a `tools/call` result, such as `content`, each encoded as JSON."""
TRUE = Raw(b"true")

_encode = msgspec.json.Encoder().encode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def encode_success(
    return_type: ReturnType, returned: object, stats: CallStats
) -> tuple[bytes, ResultMembers]:
    """The data of a successful call, and the result of `tools/call` that contains it."""
    data, content = _split_content(return_type, returned)
    body = data_as_object(return_type.encode(data), return_type)
    return body, _make_result(_add_envelope(body, b"true", stats), content)


def encode_failure(failed: Failed, registry: CodeRegistry) -> ResultMembers:
    """The result of `tools/call` for a call that failed."""
    body = _encode(describe_failure(failed, registry))
    return _make_result(_add_envelope(body, b"false", failed.stats)) | {"isError": TRUE}


def data_as_object(body: bytes, return_type: ReturnType) -> bytes:
    """The data as a JSON object that an envelope can be added to.

    A list becomes `{"items": …}`, null becomes `{}`, and any other value `{"result": …}`. A dict with a member `ok` or
    `_meta` is also put under `result`, so that nothing is overwritten.
    """
    match body[:1]:
        case b"{":
            return _wrap_if_reserved(body, return_type) if b'"ok"' in body or b'"_meta"' in body else body
        case b"[":
            return b'{"items":%b}' % body
        case b"n":
            return b"{}"
        case _:
            return b'{"result":%b}' % body


def describe_failure(failed: Failed, registry: CodeRegistry) -> dict[str, Any]:
    """The members of a failure: `code`, `error`, `hint` and the rest."""
    code = registry.find(failed.code) or codes.INTERNAL_ERROR
    hint, details = split_hint(failed, code)
    failure: dict[str, Any] = {
        "code": code.name,
        "error": failed.message,
        "hint": hint,
        "retryable": code.retryable,
        "http": code.http_status,
    }
    if failed.next_actions:
        failure["next_actions"] = failed.next_actions
    if details:
        failure["details"] = details
    return failure


def split_hint(failed: Failed, code: Code) -> tuple[str, JsonObject]:
    """The hint of a failure and its other details. A failure without a hint of its own has the hint of its code."""
    hint = failed.details.get("hint")
    if not isinstance(hint, str) or not hint:
        return code.hint, failed.details
    return hint, {name: value for name, value in failed.details.items() if name != "hint"}


def encode_stats(stats: CallStats, size: int) -> bytes:
    """The members of `_meta` as JSON, without the braces. `size` is the number of bytes of the data."""
    # One token is about four characters of JSON. A client may use the estimate to decide whether to ask for less.
    session_id = _encode(stats.session_id) if stats.session_id else b'""'
    return b'"elapsed_ms":%a,"estimated_tokens":%d,"session_id":%b' % (
        stats.elapsed_ms,
        (size + 3) // 4,
        session_id,
    )


def _add_envelope(body: bytes, ok: bytes, stats: CallStats) -> bytes:
    comma = b"," if len(body) > 2 else b""  # no comma after an empty object
    return b'%b%b"ok":%b,"_meta":{%b}}' % (body[:-1], comma, ok, encode_stats(stats, len(body)))


def _make_result(structured: bytes, content: Sequence[Content] = ()) -> ResultMembers:
    blocks = b'{"type":"text","text":%b}' % _encode(structured.decode())
    if content:
        blocks = b",".join((blocks, *(_encode(block.block()) for block in content)))
    return {"content": Raw(b"[%b]" % blocks), "structuredContent": Raw(structured)}


def _split_content(return_type: ReturnType, returned: object) -> tuple[object, Sequence[Content]]:
    """Split what a handler returned into its data and its content blocks."""
    if isinstance(returned, Reply):
        reply = cast("Reply[object]", returned)
        return reply.data, tuple(reply.content)
    if isinstance(returned, CONTENT_TYPES):
        return None, (returned,)
    if return_type.may_have_content and has_content(returned):
        content = [item for item in returned if isinstance(item, CONTENT_TYPES)]
        others = [item for item in returned if not isinstance(item, CONTENT_TYPES)]
        return (others if len(others) > 1 else others[0] if others else None), content
    return returned, ()


def _wrap_if_reserved(body: bytes, return_type: ReturnType) -> bytes:
    """Put an object under `result` if it has a member of the envelope. Declared members cannot be moved."""
    taken = RESERVED_MEMBERS & _decode_members(body).keys()
    if not taken:
        return body
    if return_type.has_fields:
        raise ResultMismatchError(
            f"The result has an undeclared member {min(taken)!r}, but the envelope adds a member with that name. "
            'Set envelope="meta" in the Toolbox.'
        )
    return b'{"result":%b}' % body
