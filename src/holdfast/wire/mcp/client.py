"""An MCP client that detects the era of the server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, NEGOTIATION_LIMIT, Limits
from holdfast.model.visible_text import strip_invisible
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.mcp.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    SERVER_KEY,
    Era,
    Implementation,
    OwnInfo,
    request_meta,
)
from holdfast.wire.mcp.tools import CallResult, Tool, ToolPage
from holdfast.wire.messages import PeerError, Raw, encode
from holdfast.wire.parse_threads import run_in_parse_thread
from holdfast.wire.peer import Peer
from holdfast.wire.strict_json import (
    StrictJsonError,
    count_values,
    decode_strict,
    exceeds_limit,
    has_more_values,
    make_decoder,
)

T = TypeVar("T")


class _NextPage(msgspec.Struct, rename="camel"):
    """The part of a page that has the cursor of the next page."""

    next_cursor: str | None = None


_decode_cursor = msgspec.json.Decoder(_NextPage).decode
_decode_call_result = make_decoder(CallResult)

MAX_TOOLS_PER_SERVER = 2000
MAX_PAGES = 1000  # pages of one list
MAX_LIST_BYTES, MAX_LIST_VALUES = 4 * 1024 * 1024, 400_000  # in all pages of a list together
_THREAD_BYTES = 256 * 1024  # a larger result is decoded in a thread
_STRICT_THREAD_BYTES = 16 * 1024  # a larger page of tools is checked strictly in a thread
DISCOVER_TIMEOUT = 2.0
"""After this many seconds at most, `initialize` is also sent, because old servers may ignore `server/discover`."""
# In characters. Longer instructions are cut before they are cleaned, because cleaning a long text would block the event loop.
_MAX_INSTRUCTIONS = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server reported about itself, and its era."""

    era: Era
    version: str
    server: Implementation
    capabilities: JsonObject
    instructions: str
    """For the model: without invisible characters, which could hide words from a person who reads them, and cut if they are long."""


class RequestSender(Protocol):
    """Sends requests to a server: a `Peer`, or the client side of another transport."""

    async def request(
        self, method: str, params: Any, *, timeout: float | None = None, owner: str = ""
    ) -> Raw:
        """Send a request and wait for the result. If sessions share the connection, the owner is the session."""
        ...

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        ...


class Client:
    """A client of one connected server. It adds the `_meta` of the server's era to every request."""

    def __init__(
        self,
        peer: RequestSender,
        own_info: OwnInfo,
        server_info: ServerInfo,
        limits: Limits = DEFAULT_LIMITS,
        throttle: LoopThrottle | None = None,
    ) -> None:
        self.peer = peer
        self.throttle = throttle or LoopThrottle(f"client {id(self)}")
        """Limits how much of the event loop's time the server's lists take."""
        self.server_info = server_info
        self._own_info = own_info
        self._limits = limits
        self._plain_meta = Raw(encode(request_meta(own_info, server_info.era, server_info.version, {})))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        capabilities: JsonObject | None = None,
        timeout: float | None = None,
        owner: str = "",
    ) -> Raw:
        """Send a request and return the result undecoded. Raise TOO_LARGE if it has too many values.

        `capabilities` replaces the client's own in this request. Only the modern era sends them with each request.
        """
        params = {**(params or {}), "_meta": self._meta(meta, capabilities)}
        raw = await self.peer.request(method, params, timeout=timeout, owner=owner)
        max_values = self._limits.values
        # A value takes at least one byte, so the values of a short result need not be counted.
        if len(raw) > max_values and await self.run_in_thread_if_long(has_more_values, raw, max_values):
            raise HoldfastError(
                codes.TOO_LARGE,
                f"{self._server_label} sent a result of more than {max_values} values.",
            )
        return raw

    async def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any] | Raw,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> CallResult:
        """Call a tool. An error that the tool reports is returned as a result; an error response is raised."""
        params = {"name": tool, "arguments": arguments}
        return await self.decode_result(await self.request("tools/call", params, meta=meta, timeout=timeout))

    async def list_tools(
        self,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_tools: int = MAX_TOOLS_PER_SERVER,
    ) -> list[Tool]:
        """List all tools, page by page. Raise if there are too many, or if the pages do not end."""
        tools: list[Tool] = []
        # A list of at most `max_tools` tools needs no more pages than tools.
        async for raw in self.list_pages(
            "tools/list", "tool", meta=meta, timeout=timeout, max_pages=max_tools
        ):
            # A page is decoded strictly, which is slow: it is decoded in a thread even if a result of its size would not be.
            page = (
                await run_in_parse_thread(self.decode, raw, ToolPage, throttle=self.throttle)
                if len(raw) > _STRICT_THREAD_BYTES
                else self.decode(raw, ToolPage)
            )
            tools += page.tools
            if len(tools) > max_tools:
                raise self._list_error("tool", f"has more than {max_tools} tools")
        return tools

    async def list_pages(
        self,
        method: str,
        item_kind: str,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        owner: str = "",
        max_pages: int = MAX_PAGES,
    ) -> AsyncIterator[Raw]:
        """Request a list page by page. Raise if the pages together are too large, or if there are too many.

        `item_kind` names the list in error messages, such as `tool`.
        """
        seen: set[str] = set()
        cursor: str | None = None
        size = values = 0
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            raw = await self.request(method, params, meta=meta, timeout=timeout, owner=owner)
            size += len(raw)
            if size > MAX_LIST_BYTES:
                raise self._list_error(item_kind, f"has more than {MAX_LIST_BYTES} bytes")
            values += await self.run_in_thread_if_long(count_values, raw)
            if values > MAX_LIST_VALUES:
                raise self._list_error(item_kind, f"has more than {MAX_LIST_VALUES} values")
            yield raw
            cursor = await self._next_cursor(raw)
            if cursor is None:
                return
            if cursor in seen:
                raise self._list_error(item_kind, "repeats a page")
            if len(seen) > max_pages:  # a server can send empty pages without end
                raise self._list_error(item_kind, f"has more than {max_pages} pages")
            seen.add(cursor)

    async def _next_cursor(self, page: Raw) -> str | None:
        try:
            return (await self.run_in_thread_if_long(_decode_cursor, page)).next_cursor
        except msgspec.MsgspecError as error:
            raise self._bad_answer(error) from None

    def _list_error(self, item_kind: str, problem: str) -> HoldfastError:
        return HoldfastError(
            codes.BAD_ANSWER, f"{self._server_label} sent a {item_kind} list that {problem}."
        )

    async def run_in_thread_if_long(self, function: Callable[..., T], raw: Raw, *args: Any) -> T:
        """Return `function(raw, *args)`. If the server's result `raw` is long, call the function in a thread."""
        if len(raw) > _THREAD_BYTES:
            return await run_in_parse_thread(function, raw, *args, throttle=self.throttle)
        return function(raw, *args)

    async def decode_result(self, raw: Raw) -> CallResult:
        """Decode a tool's result. The content is not checked strictly, because it is only passed on."""
        try:
            if len(raw) > _THREAD_BYTES:
                return await self.run_in_thread_if_long(_decode_call_result, raw)
            return _decode_call_result(raw)
        except msgspec.ValidationError as error:
            raise self._bad_answer(error) from None

    def decode(self, raw: Raw, kind: type[T]) -> T:
        """Decode a result strictly; raise BAD_ANSWER if it is invalid."""
        try:
            return decode_strict(raw, kind, self._limits)
        except StrictJsonError as error:
            raise self._bad_answer(error) from None

    def _bad_answer(self, why: Exception) -> HoldfastError:
        return HoldfastError(codes.BAD_ANSWER, f"{self._server_label} sent an invalid answer: {why}.")

    @property
    def _server_label(self) -> str:
        name = self.server_info.server.name
        return repr(name[:80]) if name else "The server"

    def _meta(
        self, extra: Mapping[str, Any] | None, capabilities: JsonObject | None = None
    ) -> dict[str, Any] | Raw:
        if not extra and capabilities is None:
            return self._plain_meta
        info = self.server_info
        return request_meta(self._own_info, info.era, info.version, extra or {}, capabilities)


async def negotiate(
    peer: Peer,
    own_info: OwnInfo,
    *,
    era: Era | None = None,
    only_this_era: bool = False,
    timeout: float = 30.0,
    limits: Limits = DEFAULT_LIMITS,
) -> Client:
    """Detect the server's era, and exchange what client and server report about themselves.

    If `era` is given, it is tried first. With `only_this_era`, the other era is not tried.
    """
    try:
        async with asyncio.timeout(timeout):
            if only_this_era:
                begin = _initialize if era is Era.HANDSHAKE else _discover
                server_info = await begin(peer, own_info)
            elif era is Era.HANDSHAKE:
                server_info = await _initialize_or_discover(peer, own_info)
            else:
                server_info = await _discover_or_initialize(peer, own_info)
    except TimeoutError:
        raise HoldfastError(
            codes.TIMEOUT, f"The server did not complete the MCP negotiation within {timeout:g} s."
        ) from None
    return Client(peer, own_info, server_info, limits, peer.throttle)


async def _initialize_or_discover(peer: Peer, own_info: OwnInfo) -> ServerInfo:
    try:
        return await _initialize(peer, own_info)
    except PeerError as refusal:
        if refusal.rpc_code not in (codes.UNSUPPORTED_VERSION.rpc_code, codes.METHOD_NOT_FOUND.rpc_code):
            raise
    return await _discover(peer, own_info)


async def _discover_or_initialize(peer: Peer, own_info: OwnInfo) -> ServerInfo:
    discovery = asyncio.create_task(_discover(peer, own_info))
    tasks = [discovery]
    try:
        await asyncio.wait(tasks, timeout=DISCOVER_TIMEOUT)
        if discovery.done() and not isinstance(discovery.exception(), HoldfastError):
            return discovery.result()
        # The server may be too old for `server/discover`, or still starting. Use the request that succeeds first.
        tasks.append(asyncio.create_task(_initialize(peer, own_info)))
        return await _first_success(tasks)
    finally:
        running = [task for task in tasks if task.cancel()]
        if running:
            await asyncio.wait(running)


async def _first_success(tasks: list[asyncio.Task[T]]) -> T:
    waiting = set(tasks)
    while True:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.exception() is None:
                return task.result()
        if not waiting:
            return tasks[-1].result()  # all have failed: raise the error of the last task


class _DiscoverResult(msgspec.Struct, rename="camel"):
    supported_versions: list[str]
    capabilities: dict[str, Json] = {}
    instructions: str | None = None
    meta: dict[str, Raw] = msgspec.field(default_factory=dict[str, Raw], name="_meta")


async def _discover(peer: Peer, own_info: OwnInfo) -> ServerInfo:
    version = MODERN_VERSIONS[-1]
    raw = await peer.request("server/discover", {"_meta": request_meta(own_info, Era.MODERN, version, {})})
    result = _decode_answer(raw, _DiscoverResult)
    if version not in result.supported_versions:
        raise HoldfastError(
            codes.UNSUPPORTED_VERSION,
            f"The server speaks MCP {', '.join(result.supported_versions)[:200] or '(none)'}, not {version}.",
        )
    return ServerInfo(
        era=Era.MODERN,
        version=version,
        server=_decode_answer(result.meta[SERVER_KEY], Implementation)
        if SERVER_KEY in result.meta
        else Implementation(),
        capabilities=result.capabilities,
        instructions=strip_invisible((result.instructions or "")[:_MAX_INSTRUCTIONS]),
    )


class _InitializeResult(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Json] = {}
    server_info: Implementation = Implementation()
    instructions: str | None = None


async def _initialize(peer: Peer, own_info: OwnInfo) -> ServerInfo:
    offer = {
        "protocolVersion": HANDSHAKE_VERSIONS[-1],
        "capabilities": own_info.capabilities,
        "clientInfo": own_info.implementation,
        **({"_meta": own_info.meta} if own_info.meta else {}),
    }
    result = _decode_answer(await peer.request("initialize", offer), _InitializeResult)
    if result.protocol_version not in HANDSHAKE_VERSIONS:
        raise HoldfastError(
            codes.UNSUPPORTED_VERSION,
            f"The server speaks MCP {result.protocol_version[:40]!r}, which Holdfast does not support.",
        )
    await peer.notify("notifications/initialized")
    return ServerInfo(
        era=Era.HANDSHAKE,
        version=result.protocol_version,
        server=result.server_info,
        capabilities=result.capabilities,
        instructions=strip_invisible((result.instructions or "")[:_MAX_INSTRUCTIONS]),
    )


def _decode_answer(raw: Raw, kind: type[T]) -> T:
    if exceeds_limit(raw, NEGOTIATION_LIMIT):
        raise HoldfastError(
            codes.BAD_ANSWER,
            f"The server's answer in the MCP negotiation has more than {NEGOTIATION_LIMIT.bytes} bytes or {NEGOTIATION_LIMIT.values} values.",
        )
    try:
        return decode_strict(raw, kind, DEFAULT_LIMITS)
    except StrictJsonError as error:
        raise HoldfastError(
            codes.BAD_ANSWER, f"The server's answer in the MCP negotiation is invalid: {error}."
        ) from None
