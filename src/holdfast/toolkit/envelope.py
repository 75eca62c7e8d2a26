"""Encode the envelope of a call for clients: one shape for every tool, as text and as structured content."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from holdfast.model import codes
from holdfast.model.call import CallStats, Envelope, Failed, Ok
from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.content import Content
from holdfast.toolkit.errors import CodeRegistry
from holdfast.wire.frame import Raw

_RESERVED_MEMBERS = frozenset({"ok", "_meta"})
_encode = msgspec.json.Encoder().encode


def to_data(returned: object) -> JsonObject:
    """Convert what a handler returned to a JSON object without the reserved members."""
    plain: object = returned
    if not (type(returned) is dict and _is_plain(cast("dict[object, object]", returned))):
        plain = msgspec.to_builtins(returned, str_keys=True, enc_hook=_dump_model)
    match plain:
        case None:
            return {}
        case dict():
            members = cast("JsonObject", plain)
            if not _RESERVED_MEMBERS & members.keys():
                return members
            return {name: members[name] for name in members if name not in _RESERVED_MEMBERS}
        case list():
            return {"items": cast("list[Json]", plain)}
        case _:
            return {"result": cast("Json", plain)}


def encode_result(envelope: Envelope, registry: CodeRegistry, content: Iterable[Content] = ()) -> Raw:
    """The result of `tools/call`: the envelope as text and as structured content, then the content blocks."""
    structured = encode_envelope(envelope, registry)
    text = b'{"type":"text","text":%b}' % _encode(structured.decode())
    blocks = b",".join((text, *(_encode(block.block()) for block in content)))
    ending = b',"isError":true}' if isinstance(envelope, Failed) else b"}"
    return Raw(b'{"content":[%b],"structuredContent":%b%b' % (blocks, structured, ending))


def encode_envelope(envelope: Envelope, registry: CodeRegistry) -> bytes:
    """The envelope as JSON."""
    if isinstance(envelope, Ok):
        body, ok = _encode(envelope.data), b"true"
    else:
        body, ok = _encode(_describe_failure(envelope, registry)), b"false"
    comma = b"," if len(body) > 2 else b""  # no comma after an empty object
    return b'%b%b"ok":%b,"_meta":%b}' % (body[:-1], comma, ok, _encode_meta(envelope.stats, len(body)))


def _encode_meta(stats: CallStats, size: int) -> bytes:
    # One token is about four characters of JSON. A client may use the estimate to decide whether to ask for less.
    return b'{"elapsed_ms":%b,"estimated_tokens":%d,"session_id":%b}' % (
        _encode(stats.elapsed_ms),
        (size + 3) // 4,
        _encode(stats.session_id),
    )


def _describe_failure(failed: Failed, registry: CodeRegistry) -> Mapping[str, Any]:
    code = registry.find(failed.code) or codes.INTERNAL_ERROR
    failure: dict[str, Any] = {
        "code": code.name,
        "error": failed.message,
        "hint": code.hint,
        "retryable": code.retryable,
        "http": code.http_status,
    }
    if failed.next_actions:
        failure["next_actions"] = failed.next_actions
    if failed.details:
        failure["details"] = failed.details
    return failure


def _is_plain(members: dict[object, object]) -> bool:
    """Whether a dict is already flat JSON, as most results are, and needs no conversion."""
    return all(
        type(key) is str and type(value) in (str, int, bool, float, type(None))
        for key, value in members.items()
    )


def _dump_model(value: object) -> object:
    """Convert a pydantic model, which msgspec does not support."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} cannot be turned into JSON")
    return dump(mode="json")
