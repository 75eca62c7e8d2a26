"""What a tool gave back, as clients read it: one shape for every tool, as text and as structure."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from holdfast.model import codes
from holdfast.model.envelope import Envelope, Failed, Meta, Ok
from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.codes import Codes
from holdfast.toolkit.content import Content
from holdfast.wire.frame import Raw

_OURS = frozenset({"ok", "_meta"})
_encode = msgspec.json.Encoder().encode


def data_of(returned: object) -> JsonObject:
    """What a handler returned, as the members of an object; our own members are not for it to set."""
    plain: object = returned
    if not (type(returned) is dict and _is_plain(cast("dict[object, object]", returned))):
        plain = msgspec.to_builtins(returned, str_keys=True, enc_hook=_foreign)
    match plain:
        case None:
            return {}
        case dict():
            found = cast("JsonObject", plain)
            return {key: found[key] for key in found if key not in _OURS} if _OURS & found.keys() else found
        case list():
            return {"items": cast("list[Json]", plain)}
        case _:
            return {"result": cast("Json", plain)}


def wire_result(envelope: Envelope, registry: Codes, content: Iterable[Content] = ()) -> Raw:
    """The result of `tools/call`: the envelope as text and as structured content, then the content blocks."""
    structured = wire_envelope(envelope, registry)
    text = b'{"type":"text","text":%b}' % _encode(structured.decode())
    blocks = b",".join((text, *(_encode(block.block()) for block in content)))
    ending = b',"isError":true}' if isinstance(envelope, Failed) else b"}"
    return Raw(b'{"content":[%b],"structuredContent":%b%b' % (blocks, structured, ending))


def wire_envelope(envelope: Envelope, registry: Codes) -> bytes:
    """The envelope as JSON."""
    if isinstance(envelope, Ok):
        body, ok = _encode(envelope.data), b"true"
    else:
        body, ok = _encode(_failure(envelope, registry)), b"false"
    comma = b"," if len(body) > 2 else b""
    return b'%b%b"ok":%b,"_meta":%b}' % (body[:-1], comma, ok, _meta(envelope.meta, len(body)))


def _meta(meta: Meta, size: int) -> bytes:
    # A token is about four characters of JSON: near enough to decide whether to ask for less.
    return b'{"elapsed_ms":%b,"estimated_tokens":%d,"session_id":%b}' % (
        _encode(meta.elapsed_ms),
        meta.estimated_tokens or (size + 3) // 4,
        _encode(meta.session_id),
    )


def _failure(failed: Failed, registry: Codes) -> Mapping[str, Any]:
    code = registry.find(failed.code) or codes.INTERNAL_ERROR
    said: dict[str, Any] = {
        "code": code.name,
        "error": failed.message,
        "hint": code.hint,
        "retryable": code.retryable,
        "http": code.http,
    }
    if failed.next_actions:
        said["next_actions"] = failed.next_actions
    if failed.details:
        said["details"] = failed.details
    return said


def _is_plain(members: dict[object, object]) -> bool:
    """Whether a dict is JSON already, one level deep: the most common thing that handlers return."""
    return all(
        type(key) is str and type(value) in (str, int, bool, float, type(None))
        for key, value in members.items()
    )


def _foreign(value: object) -> object:
    """What msgspec does not know: models of pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} cannot be turned into JSON")
    return dump(mode="json")
