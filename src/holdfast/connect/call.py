"""Call one tool. Every failure becomes a result."""

import asyncio
import time
import unicodedata
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from holdfast.connect.catalog import CatalogTool
from holdfast.connect.explain_confined import explain_refused_hosts
from holdfast.connect.link import Link
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import OnProgress
from holdfast.connect.server_text import clean_server_text
from holdfast.model import codes
from holdfast.model.call import PREVIEW_KEY, ToolCall
from holdfast.model.context import context_meta
from holdfast.model.context_aliases import ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, Budget
from holdfast.model.server import Http, Lifetime, ServerSpec, Sse, Stdio
from holdfast.wire.frame import PeerError
from holdfast.wire.mcp.tools import CallResult
from holdfast.wire.strict_json import DECODE_ERRORS, decode_json, has_more_values, is_nested_within

STATE_LOST_KEY = "dev.holdfast/state_lost"
# The `_meta` keys that only the host may set: the context, the protocol's own keys, and the progress token.
_RESERVED_PREFIXES = ("dev.holdfast/", "io.modelcontextprotocol/")
_PROGRESS_TOKEN = "progresstoken"
_PREVIEW_META: JsonObject = {PREVIEW_KEY: True}
_MAX_TYPE_LENGTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStart:
    """The start of a content block."""

    type: str
    text: str
    size: int
    """The size of the whole text, in bytes as received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call as the agent sees it, and its outcome for programs."""

    result: CallResult
    outcome: Outcome
    code: str = ""
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the call completed without an error."""
        return self.outcome is Outcome.COMPLETED

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return "\n".join(str(part.get("text", "")) for part in self.content if part.get("type") == "text")

    @property
    def content(self) -> list[JsonObject]:
        """The content blocks."""
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

    def exceeds(self, budget: Budget) -> bool:
        """Whether the content and the structured content have more bytes or values than the budget."""
        size = self.size
        if size <= budget.values:
            return False
        structured = self.result.structured_content
        parts = (
            self.result.content if isinstance(structured, UnsetType) else [*self.result.content, structured]
        )
        return size > budget.bytes or has_more_values(b",".join(parts), budget.values)

    def first_blocks(self, count: int, length: int) -> "list[BlockStart]":
        """The first content blocks, and up to this many characters of each. The rest is not decoded."""
        return [_read_block_start(raw, length) for raw in self.result.content[:count]]

    def data_start(self, length: int) -> str:
        """The first characters of the structured content, as received."""
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
    """Call a tool over the scope's link. Every failure becomes a result, except cancellation by the caller.

    If the call has a `method`, send that request instead; its result is the structured content.
    """
    spec = tool.server
    link: Link | None = None
    stderr = ""
    remaining = timeout
    try:
        found = links.get_live_or_open(scope, spec)
        if found is None:
            began = time.monotonic()
            async with asyncio.timeout(timeout):
                found = await links.connect(scope, spec)
            remaining -= time.monotonic() - began
        link, connection = found
        view = connection.view
        refused_start = len(view.refused_hosts) if view is not None else 0
        stderr_start = connection.stderr.position if connection.stderr is not None else 0
        with link.use():
            try:
                meta = (
                    _PREVIEW_META
                    if tool_call.is_preview
                    else build_meta(scope, spec, links.aliases, tool_call.meta)
                )
                quota_key = scope.context.session_id if spec.lifetime is Lifetime.HOST else ""
                if tool_call.method:
                    params = msgspec.json.decode(tool_call.arguments, type=dict[str, Raw])
                    answer = await connection.request(
                        tool_call.method, params, meta=meta, timeout=remaining, quota_key=quota_key
                    )
                    result = CallResult(structured_content=answer)
                else:
                    result = await connection.call(
                        tool.definition.name,
                        Raw(tool_call.arguments),
                        meta=meta,
                        timeout=remaining,
                        on_progress=on_progress,
                        quota_key=quota_key,
                    )
            except HoldfastError:
                if connection.stderr is not None:
                    stderr = await connection.stderr.report_in_turn(stderr_start)
                raise
    except TimeoutError:
        tool_result = failed_result(_timeout_error(tool, timeout))
    except PeerError as error:
        reason = clean_server_text(spec, error.message)
        tool_result = failed_result(
            HoldfastError(
                codes.PEER_ERROR,
                f"The server answered {tool.name} with an error: {reason} ({error.rpc_code})",
            )
        )
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
        if result.is_error and view is not None and (refused := view.refused_hosts[refused_start:]):
            notice = _text_block(explain_refused_hosts(spec, refused))
            result = msgspec.structs.replace(result, content=[*result.content, notice])
        tool_result = ToolResult(
            result=result, outcome=Outcome.FAILED if result.is_error else Outcome.COMPLETED
        )
    return (
        _add_state_lost(tool_result, spec.name) if link is not None and link.pop_lost_state() else tool_result
    )


def _timeout_error(tool: CatalogTool, seconds: float) -> HoldfastError:
    return HoldfastError(codes.TIMEOUT, f"{tool.name} did not answer within {seconds:g} s.")


def build_meta(
    scope: Scope, server: ServerSpec, aliases: ContextAliases, meta: JsonObject | None = None
) -> JsonObject | None:
    """The `_meta` of a request. If sessions share the server, it contains the context of the session that sends it."""
    kept = {key: value for key, value in meta.items() if not _is_reserved(key, aliases)} if meta else None
    if server.lifetime is Lifetime.HOST:
        context = server.lower_context(scope.context)
        folder = context.cwd if isinstance(server.transport, Stdio) else ""
        return {**(kept or {}), **aliases.meta(context, folder), **context_meta(context)}
    return kept


def _is_reserved(key: str, aliases: ContextAliases) -> bool:
    """Whether only the host may set this key, or the key is a spelling that a server might take for such a key."""
    plain = unicodedata.normalize("NFKC", key).strip().casefold()
    return plain.startswith(_RESERVED_PREFIXES) or plain == _PROGRESS_TOKEN or plain in aliases.folded_keys


def failed_result(error: HoldfastError, stderr: str = "") -> ToolResult:
    """The result of a call that failed. `stderr` is what the session may see of the server's standard error."""
    message = f"{error.message}\n{stderr}" if stderr else error.message
    text = f"{error.code.name}: {message}"
    return ToolResult(
        result=CallResult(content=[_text_block(text)], is_error=True),
        outcome=Outcome.FAILED,
        code=error.code.name,
        message=message,
    )


def _add_state_lost(tool_result: ToolResult, server: str) -> ToolResult:
    """Add a notice that the server was restarted: in `_meta` for programs, and as a text block for models."""
    notice = f"{codes.STATE_LOST.name}: {server} was restarted. Its state from earlier calls is lost."
    result = msgspec.structs.replace(
        tool_result.result,
        content=[_text_block(notice), *tool_result.result.content],
        meta={**tool_result.result.meta, STATE_LOST_KEY: True},
    )
    return ToolResult(
        result=result, outcome=tool_result.outcome, code=tool_result.code, message=tool_result.message
    )


def _text_block(text: str) -> Raw:
    return Raw(msgspec.json.encode({"type": "text", "text": text}))


def _decode_or_text(raw: Raw) -> Json:
    """Decode JSON; return the text itself if it cannot be decoded (too deep, a huge number, invalid UTF-8)."""
    text = bytes(raw)
    try:
        if is_nested_within(text, DEFAULT_LIMITS.depth):
            return decode_json(text)
    except DECODE_ERRORS:
        pass
    return text.decode(errors="replace")


def _decode_block(raw: Raw) -> JsonObject:
    """Decode a content block. If it is not a JSON object, return it as a text block."""
    value = _decode_or_text(raw)
    if isinstance(value, dict):
        return value
    return {"type": "text", "text": value if isinstance(value, str) else bytes(raw).decode(errors="replace")}


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
    """The first characters of a JSON string. The rest is not decoded: that would block other threads, too."""
    head = bytes(memoryview(raw)[: 1 + 12 * length])  # a character has up to 12 bytes: a pair of escapes
    if not head.startswith(b'"'):
        return ""
    if len(head) == len(raw):
        return str(_decode_or_text(raw))[:length]
    # At the cut, part of a character, of an escape or of a pair of escapes may be left over.
    for cut in range(12):
        try:
            return msgspec.json.decode(head[: len(head) - cut] + b'"', type=str)[:length]
        except DECODE_ERRORS:
            pass
    return _first_bytes(raw, length)


def _first_bytes(raw: Raw, length: int) -> str:
    return bytes(memoryview(raw)[:length]).decode(errors="replace")
