"""The envelope in the result's `_meta`: the content is only the data, so equal data gives equal content."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from holdfast.model.meta_keys import ENVELOPE_KEY
from holdfast.toolkit.content import CONTENT_TYPES, Reply, Text, has_content
from holdfast.toolkit.envelope import TRUE, ResultMembers, describe_failure, encode_stats
from holdfast.toolkit.errors import CodeRegistry
from holdfast.toolkit.json_values import encode_json
from holdfast.toolkit.outcome import CallStats, Failed
from holdfast.toolkit.return_type import UNDECLARED, ReturnType
from holdfast.wire.messages import Raw

_encode = msgspec.json.Encoder().encode


def encode_success(
    return_type: ReturnType, returned: object, stats: CallStats
) -> tuple[bytes, ResultMembers]:
    """The data of a successful call, and the result of `tools/call` that contains it."""
    if return_type.may_have_content and has_content(returned):
        blocks = [_encode_item(item) for item in returned]
        return b"null", _make_result(blocks, b'"ok":true,', stats)
    data, content = returned, ()
    if isinstance(returned, Reply):
        reply = cast("Reply[object]", returned)
        data, content = reply.data, tuple(reply.content)
    elif isinstance(returned, CONTENT_TYPES):
        data, content = None, (returned,)
    body = return_type.encode(data)
    blocks = [_encode(block.block()) for block in content]
    if body != b"null" and not any(isinstance(block, Text) for block in content):
        blocks.insert(0, _encode_text(body))
    result = _make_result(blocks, b'"ok":true,', stats)
    if return_type.wraps:
        result["structuredContent"] = Raw(b'{"result":%b}' % body)
    elif body[:1] == b"{":
        result["structuredContent"] = Raw(body)
    return body, result


def encode_failure(failed: Failed, registry: CodeRegistry) -> ResultMembers:
    """The result of `tools/call` for a call that failed: text with the code, the message, the details and the hint."""
    failure = describe_failure(failed, registry)
    block = _encode({"type": "text", "text": "\n".join(_failure_lines(failure))})
    members = b'"ok":false,%b,' % _encode(failure)[1:-1]
    return _make_result([block], members, failed.stats) | {"isError": TRUE}


def _make_result(blocks: list[bytes], members: bytes, stats: CallStats) -> ResultMembers:
    """`members` are the first members of the envelope, as JSON text that ends with a comma."""
    content = b"[%b]" % b",".join(blocks)
    envelope = b'{"%b":{%b%b}}' % (_KEY, members, encode_stats(stats, len(content)))
    return {"content": Raw(content), "_meta": Raw(envelope)}


_KEY = ENVELOPE_KEY.encode()


def _encode_item(item: object) -> bytes:
    """One item of a list with content blocks in it."""
    return _encode(item.block()) if isinstance(item, CONTENT_TYPES) else _encode_text(UNDECLARED.encode(item))


def _encode_text(body: bytes) -> bytes:
    """The text block for data: a string as it is, other data as JSON."""
    return b'{"type":"text","text":%b}' % (body if body[:1] == b'"' else _encode(body.decode()))


def _failure_lines(failure: dict[str, Any]) -> Iterator[str]:
    yield f"{failure['code']}: {failure['error']}"
    details = dict(failure.get("details", {}))
    issues = details.pop("issues", [])
    yield from (
        f"{issue['field'] or 'arguments'}: {issue['message']}"
        for issue in issues
        if str(issue["message"]) not in failure["error"]
    )
    if details:
        yield encode_json(details).decode()
    yield from failure.get("next_actions", ())
    if failure["hint"] not in failure.get("next_actions", ()):
        yield failure["hint"]
