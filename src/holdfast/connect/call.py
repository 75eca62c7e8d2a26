"""Calls a tool over a link. Every failure becomes a `ToolResult`."""

import asyncio
import base64
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from msgspec import Raw, UnsetType, structs

from holdfast.connect.catalog import CatalogTool
from holdfast.connect.connection import Connection, ForwardOptions
from holdfast.connect.explain_confined import explain_call, explain_refused_hosts
from holdfast.connect.link import Link
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import OnProgress
from holdfast.connect.server_text import clean_server_text
from holdfast.connect.tool_failure import read_failure
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import context_meta
from holdfast.model.context_aliases import ContextAliases
from holdfast.model.errors import HoldfastError, advise_about_names
from holdfast.model.event import Outcome
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, SizeLimit
from holdfast.model.meta_keys import CALL_KEY, PREVIEW_KEY
from holdfast.model.normal_form import fold_key
from holdfast.model.server import Http, InProcess, Lifetime, ServerSpec, Sse, Stdio
from holdfast.model.visible_text import quote_line
from holdfast.sandbox.view import RefusedHost, SandboxView
from holdfast.wire.mcp.tools import CallResult
from holdfast.wire.messages import PeerError
from holdfast.wire.strict_json import DECODE_ERRORS, decode_json, has_more_values, is_nested_within

STATE_LOST_KEY = "dev.holdfast/state_lost"
# The `_meta` keys that only the host may set: the context, the protocol's own keys, and the progress token.
_RESERVED_PREFIXES = ("dev.holdfast/", "io.modelcontextprotocol/")
_CLIENT_KEYS = frozenset({"io.modelcontextprotocol/logLevel", "io.modelcontextprotocol/related-task"})
"""Keys with the protocol's prefix that a client may set."""
_PROGRESS_TOKEN = "progresstoken"
_PREVIEW_META: JsonObject = {PREVIEW_KEY: True}
_MAX_TYPE_LENGTH = 40
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_MAX_PATH = 200
_REPR_LENGTH = 200
_OTHER_NAMES = {
    "is_error": "not result.ok",
    "isError": "not result.ok",
    "structured_content": "result.data",
    "structuredContent": "result.data",
}
"""What to write instead of names of the MCP SDK."""
# Words of the MCP SDK's two error messages for a server that asks its client in the modern era.
_NO_BACK_CHANNEL = re.compile("back-channel|server-initiated requests is unavailable")
_ERA_HELP = (
    "A server that is written with the MCP SDK can ask its client only in the handshake era. "
    'To use that era with this server, write "era": "handshake" in its entry.'
)
# How many characters and blocks of a failure are searched for paths and hosts.
_MAX_EXPLAINED, _MAX_EXPLAINED_BLOCKS = 4000, 4
# Read once, because reading an enum member is slow in Python 3.11.
_HOST = Lifetime.HOST
_FAILED = Outcome.FAILED
_COMPLETED = Outcome.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStart:
    """The start of a content block."""

    type: str
    text: str
    """The first characters of the block's text."""
    size: int
    """The size of the whole text as received, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultImage:
    """An image in a result."""

    data: bytes = field(repr=False)
    mime_type: str


@advise_about_names(_OTHER_NAMES)
class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call: its content, and whether and why it failed."""

    result: CallResult
    outcome: Outcome
    code: str = ""
    """Why the call failed: a code of Holdfast or of the tool; empty if it did not fail, or if its tool gave no code."""
    message: str = ""
    raw: Raw | None = None
    """Only if the call is from a client of the gateway: the whole result as the server sent it, with Holdfast's notices added."""
    error: PeerError | None = None
    """The server's error response, if it sent one."""

    def __repr__(self) -> str:
        first = " ".join(" ".join(block.text.split()) for block in self.first_blocks(3, _REPR_LENGTH))
        text = first if len(first) <= _REPR_LENGTH else f"{first[:_REPR_LENGTH]}…"
        code = f" {self.code}" if self.code else ""
        return f"<ToolResult {self.outcome.value}{code}: {text!r}>"

    def raise_for_error(self) -> Self:
        """The result itself if the call succeeded. Otherwise raise an error with its code and message."""
        if self.ok:
            return self
        raise HoldfastError(self.code or codes.TOOL_FAILED, self.message or self.text)

    @property
    def images(self) -> list[ResultImage]:
        """The image blocks that can be decoded."""
        return [image for block in self.content if (image := _decode_image(block)) is not None]

    @property
    def ok(self) -> bool:
        """Whether the call completed without an error."""
        return self.outcome is _COMPLETED

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return "\n".join(str(part.get("text", "")) for part in self.content if part.get("type") == "text")

    @property
    def content(self) -> list[JsonObject]:
        return [_decode_block(raw) for raw in self.result.content]

    @property
    def data(self) -> Any:
        """The structured content, or None."""
        structured = self.result.structured_content
        return None if isinstance(structured, UnsetType) else _decode_or_text(structured)

    @property
    def size(self) -> int:
        """The size of the content and the structured content, in bytes as received."""
        structured = self.result.structured_content
        return sum(map(len, self.result.content)) + (
            0 if isinstance(structured, UnsetType) else len(structured)
        )

    @property
    def raw_content(self) -> bytes:
        """The content blocks and the structured content as received, with commas between them."""
        structured = self.result.structured_content
        content = self.result.content
        return b",".join(content if isinstance(structured, UnsetType) else [*content, structured])

    def exceeds(self, limit: SizeLimit) -> bool:
        """Whether the content and the structured content have more bytes or values than the limit."""
        size = self.size
        if size <= limit.values:  # each value has at least one byte
            return False
        return size > limit.bytes or has_more_values(self.raw_content, limit.values)

    def first_blocks(self, count: int, length: int) -> "list[BlockStart]":
        """The first content blocks, with up to this many characters of each. The rest is not decoded."""
        return [_read_block_start(raw, length) for raw in self.result.content[:count]]

    def start_of_data(self, length: int) -> str:
        """The first `length` bytes of the structured content as received, decoded."""
        structured = self.result.structured_content
        return "" if isinstance(structured, UnsetType) else _first_bytes(structured, length)

    @property
    def state_lost(self) -> bool:
        """Whether the server was restarted before this call and so lost its state."""
        return STATE_LOST_KEY in self.result.meta


async def call(
    links: LinkPool,
    scope: Scope,
    tool: CatalogTool,
    tool_call: ToolCall,
    *,
    timeout: float,
    on_progress: OnProgress | None = None,
) -> ToolResult:
    """Call a tool over the scope's link. Every failure becomes a result, except a cancellation by the caller.

    If the call has a `method`, such as `resources/read`, that request is sent instead, and its result becomes the structured
    content. `timeout` is in seconds and includes the time to connect.
    """
    spec = tool.server
    link: Link | None = None
    stderr = ""
    raw: Raw | None = None
    remaining = timeout
    try:
        connected = links.connect_nowait(scope, spec)
        if connected is None:
            began = time.monotonic()
            async with asyncio.timeout(timeout):
                connected = await links.connect(scope, spec)
            remaining -= time.monotonic() - began
        link, connection = connected
        view = connection.view
        refused_start = len(view.refused_hosts) if view is not None else 0
        stderr_start = connection.stderr.position if connection.stderr is not None else 0
        with link.use():
            try:
                meta = _call_meta(scope, spec, links.aliases, tool_call)
                quota_owner = scope.quota_owner if spec.lifetime is _HOST else ""
                if tool_call.forwarding is None and not tool_call.method:
                    result = await connection.call(
                        tool.definition.name,
                        Raw(tool_call.arguments),
                        meta=meta,
                        timeout=remaining,
                        on_progress=on_progress,
                        quota_owner=quota_owner,
                    )
                else:
                    options: ForwardOptions = {"meta": meta, "timeout": remaining, "on_progress": on_progress}
                    raw, result = await _send(connection, tool, tool_call, options, quota_owner)
            except HoldfastError:
                stderr = await _report_stderr(connection, stderr_start)
                raise
    except TimeoutError:
        tool_result = failed_result(_timeout_error(tool, timeout))
    except PeerError as error:
        tool_result = _peer_error_result(tool, error)
    except HoldfastError as error:
        if error.code is codes.TIMEOUT and link is not None:
            error = _timeout_error(tool, timeout)
        if error.code is codes.CONNECTION_CLOSED and link is not None and link.was_live:
            why = f" {error.message}" if isinstance(spec.transport, Http | Sse) else ""
            error = HoldfastError(
                codes.CONNECTION_CLOSED,
                f"{spec.name!r} ended before it answered {tool.name}. The call may have taken effect.{why}",
            )
        tool_result = failed_result(error, stderr)
    else:
        if result.is_error:
            refused = view.refused_hosts[refused_start:] if view is not None else ()
            stderr_reader = connection.stderr if view is not None else None
            written = stderr_reader.text_since(stderr_start) if stderr_reader is not None else ""
            tool_result = await _read_error_result(spec, result, raw, view, refused, written)
        else:
            tool_result = ToolResult(result=result, outcome=_COMPLETED, raw=raw)
    return (
        _add_state_lost(tool_result, spec.name, link)
        if link is not None and link.pop_lost_state()
        else tool_result
    )


async def _report_stderr(connection: Connection, start: int) -> str:
    """What the session may see of what the server wrote to standard error after this position."""
    reader = connection.stderr
    return "" if reader is None else await reader.report_since_throttled(start)


async def _read_error_result(
    spec: ServerSpec,
    result: CallResult,
    raw: Raw | None,
    view: SandboxView | None,
    refused: Sequence[RefusedHost],
    written: str,
) -> ToolResult:
    """The result of a call whose tool reported an error, with an explanation added if Holdfast has one.

    `view`, `refused` and `written` are for a confined server: what it can see, which hosts the sandbox refused during the call,
    and what the server wrote to standard error during the call.
    """
    why = _ERA_HELP if _NO_BACK_CHANNEL.search(_text_of(result)) else ""
    if view is not None and not why:
        why = await _explain_failure(spec, view, refused, result, written)
    if why:
        result = structs.replace(result, content=[*result.content, _text_block(why)])
        raw = raw and _replace_content(raw, result)
    code, message = read_failure(result)
    return ToolResult(result=result, outcome=_FAILED, code=code, message=message, raw=raw)


def _text_of(result: CallResult) -> str:
    blocks = result.content[:_MAX_EXPLAINED_BLOCKS]
    return "\n".join(_read_block_start(raw, _MAX_EXPLAINED).text for raw in blocks)


async def _explain_failure(
    spec: ServerSpec, view: SandboxView, refused: Sequence[RefusedHost], result: CallResult, written: str
) -> str:
    """How the sandbox may have caused the failure of a call; empty if nothing was found."""
    text = f"{written}\n{_text_of(result)}"
    try:
        return await run_with_file_timeout(explain_call, spec, view, refused, text, path=spec.origin)
    except HoldfastError:  # the file system did not answer in time
        return explain_refused_hosts(spec, refused)


async def _send(
    connection: Connection,
    tool: CatalogTool,
    tool_call: ToolCall,
    options: ForwardOptions,
    quota_owner: str,
) -> tuple[Raw | None, CallResult]:
    """Send a forwarded call, or a request other than `tools/call`.

    Return the result as the server sent it, if the call is forwarded, and the decoded result.
    """
    if tool_call.forwarding is not None:
        options["capabilities"] = tool_call.forwarding.capabilities
        method, params = tool_call.method or "tools/call", _forwarded_params(tool, tool_call)
        raw = await connection.forward(method, params, quota_owner=quota_owner, **options)
        return raw, await connection.decode_forwarded(raw, is_call=not tool_call.method)
    params = msgspec.json.decode(tool_call.arguments, type=dict[str, Raw])
    answer = await connection.request(
        tool_call.method,
        params,
        meta=options.get("meta"),
        timeout=options.get("timeout"),
        quota_owner=quota_owner,
    )
    return None, CallResult(structured_content=answer)


def _forwarded_params(tool: CatalogTool, tool_call: ToolCall) -> dict[str, Any]:
    assert tool_call.forwarding is not None
    if tool_call.method:
        params = msgspec.json.decode(tool_call.arguments, type=dict[str, Raw])
        return {**tool_call.forwarding.params, **params}
    return {
        **tool_call.forwarding.params,
        "name": tool.definition.name,
        "arguments": Raw(tool_call.arguments),
    }


def _replace_content(raw: Raw, result: CallResult) -> Raw:
    """The result as the server sent it, but with the content and the `_meta` of `result`."""
    members: dict[str, Any] = {**_decode_members(raw), "content": result.content, "_meta": result.meta}
    return Raw(msgspec.json.encode(members))


def _peer_error_result(tool: CatalogTool, error: PeerError) -> ToolResult:
    reason = clean_server_text(tool.server, error.message)
    message = f"The server answered {tool.name} with an error: {reason} ({error.rpc_code})"
    if _NO_BACK_CHANNEL.search(reason):
        message += f" {_ERA_HELP}"
    return structs.replace(failed_result(HoldfastError(codes.PEER_ERROR, message)), error=error)


def _timeout_error(tool: CatalogTool, seconds: float) -> HoldfastError:
    return HoldfastError(codes.TIMEOUT, f"{tool.name} did not answer within {seconds:g} s.")


def build_meta(
    scope: Scope, server: ServerSpec, aliases: ContextAliases, meta: JsonObject | None = None
) -> JsonObject | None:
    """The `_meta` of a request. For a server that sessions share, it contains the context of the calling session."""
    kept = {key: value for key, value in meta.items() if not _is_reserved(key, aliases)} if meta else None
    if server.lifetime is _HOST:
        context = server.context_for_server(scope.context)
        folder = context.workspace_path if isinstance(server.transport, Stdio) else ""
        return {**(kept or {}), **aliases.meta(context, folder), **context_meta(context)}
    return kept


def _call_meta(
    scope: Scope, server: ServerSpec, aliases: ContextAliases, tool_call: ToolCall
) -> JsonObject | None:
    if tool_call.is_preview:
        return _PREVIEW_META
    meta = build_meta(scope, server, aliases, tool_call.meta)
    if isinstance(server.transport, InProcess):
        return {**(meta or {}), CALL_KEY: _describe_call(tool_call)}
    return meta


def _describe_call(tool_call: ToolCall) -> JsonObject:
    """What a server in the host's process learns about a call. Built-in servers read it as `CallFacts`."""
    return {
        "call_id": tool_call.call_id,
        "agent": tool_call.origin.agent,
        "is_confirmed": tool_call.is_confirmed,
    }


def _is_reserved(key: str, aliases: ContextAliases) -> bool:
    """Whether only the host may set this key. Other spellings that a server might accept also count."""
    if key in _CLIENT_KEYS:
        return False
    plain = fold_key(key)
    return plain.startswith(_RESERVED_PREFIXES) or plain == _PROGRESS_TOKEN or plain in aliases.folded_keys


def failed_result(error: HoldfastError, stderr: str = "") -> ToolResult:
    """The result of a failed call. `stderr` is what the session may see of the server's standard error."""
    message = f"{error.message}\n{stderr}" if stderr else error.message
    text = f"{error.code.name}: {message}"
    return ToolResult(
        result=CallResult(content=[_text_block(text)], is_error=True),
        outcome=Outcome.FAILED,
        code=error.code.name,
        message=message,
    )


def _add_state_lost(tool_result: ToolResult, server: str, link: Link) -> ToolResult:
    """Add a notice that the server was restarted: in `_meta` for programs, and as a text block for models."""
    changed = link.changed_file
    why = f", because {quote_line(changed, _MAX_PATH)} was changed" if changed else ""
    notice = f"{codes.STATE_LOST.name}: {server} was restarted{why}. Its state from earlier calls is lost."
    result = structs.replace(
        tool_result.result,
        content=[_text_block(notice), *tool_result.result.content],
        meta={**tool_result.result.meta, STATE_LOST_KEY: True},
    )
    raw = tool_result.raw and _replace_content(tool_result.raw, result)
    return structs.replace(tool_result, result=result, raw=raw)


def _text_block(text: str) -> Raw:
    return Raw(msgspec.json.encode({"type": "text", "text": text}))


def _decode_or_text(raw: Raw) -> Json:
    """Decode JSON, or return the text itself if it cannot be decoded (too deep, a huge number, invalid UTF-8)."""
    text = bytes(raw)
    try:
        if is_nested_within(text, DEFAULT_LIMITS.depth):
            return decode_json(text)
    except DECODE_ERRORS:
        pass
    return text.decode(errors="replace")


def _decode_block(raw: Raw) -> JsonObject:
    value = _decode_or_text(raw)
    if isinstance(value, dict):
        return value
    return {"type": "text", "text": value if isinstance(value, str) else bytes(raw).decode(errors="replace")}


def _decode_image(block: JsonObject) -> ResultImage | None:
    data, mime_type = block.get("data"), block.get("mimeType")
    if block.get("type") != "image" or not isinstance(data, str):
        return None
    try:
        decoded = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    return ResultImage(data=decoded, mime_type=mime_type if isinstance(mime_type, str) else "")


class _BlockFields(msgspec.Struct):
    type: Raw = Raw()
    text: Raw = Raw()


_decode_fields = msgspec.json.Decoder(_BlockFields).decode


def _read_block_start(raw: Raw, length: int) -> BlockStart:
    try:
        block = _decode_fields(raw)
    except DECODE_ERRORS:  # not a JSON object
        return BlockStart(type="text", text=_first_bytes(raw, length), size=len(raw))
    return BlockStart(
        type=_start_of_string(block.type, _MAX_TYPE_LENGTH),
        text=_start_of_string(block.text, length),
        size=max(0, len(block.text) - 2),  # without its quotes
    )


def _start_of_string(raw: Raw, length: int) -> str:
    """The first characters of a JSON string. The rest is not decoded, because that would block all threads."""
    # A character has up to 12 bytes: two `\u` escapes, for a surrogate pair.
    head = bytes(memoryview(raw)[: 1 + 12 * length])
    if not head.startswith(b'"'):
        return ""
    if len(head) == len(raw):
        return str(_decode_or_text(raw))[:length]
    # The cut may have left a part of a character or of its escapes. Shorten the text until it can be decoded.
    for cut in range(12):
        try:
            return msgspec.json.decode(head[: len(head) - cut] + b'"', type=str)[:length]
        except DECODE_ERRORS:
            pass
    return _first_bytes(raw, length)


def _first_bytes(raw: Raw, length: int) -> str:
    return bytes(memoryview(raw)[:length]).decode(errors="replace")
