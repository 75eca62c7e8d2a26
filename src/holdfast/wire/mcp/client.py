"""Speak to an MCP server in the era it turns out to live in."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT, Limits
from holdfast.wire.frame import Raw, encode
from holdfast.wire.mcp.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    SERVER_KEY,
    Era,
    Implementation,
    Introduction,
    request_meta,
)
from holdfast.wire.mcp.tools import CallResult, Tool, ToolPage
from holdfast.wire.peer import Peer, PeerError
from holdfast.wire.strict import Unreadable, read

T = TypeVar("T")

_decode_call_result = msgspec.json.Decoder(CallResult).decode

MOST_TOOLS, MOST_LISTED = 2000, 4 * 1024 * 1024  # how many a server may have, and their bytes in all
_OFF_LOOP = 256 * 1024  # a page longer than this is read in a thread
PATIENCE = 2.0  # how long an old server that ignores `server/discover` is waited for, once


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a server said first: its era is worth remembering for the next time."""

    era: Era
    version: str
    server: Implementation
    capabilities: JsonObject
    instructions: str


class Asker(Protocol):
    """Whatever brings a request to a server and its answer back: a peer, or another transport."""

    async def request(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        """Ask and wait for the answer."""
        ...


class Client:
    """A greeted server: every request carries what its era and our introduction ask for."""

    def __init__(self, peer: Asker, me: Introduction, greeting: Greeting, limits: Limits = DEFAULT) -> None:
        self.peer = peer
        self.greeting = greeting
        self._me = me
        self._limits = limits
        self._plain_meta = Raw(encode(request_meta(me, greeting.era, greeting.version, {})))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Raw:
        """Ask anything; the result comes back as it is."""
        return await self.peer.request(method, {**(params or {}), "_meta": self._meta(meta)}, timeout=timeout)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | Raw,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> CallResult:
        """Call a tool. What it reports as an error is a result; a refusal to call raises."""
        params = {"name": tool, "arguments": arguments, "_meta": self._meta(meta)}
        return self.read_result(await self.peer.request("tools/call", params, timeout=timeout))

    async def tools(self, *, timeout: float | None = None, most: int = MOST_TOOLS) -> list[Tool]:
        """Every tool on offer, page by page; a list that does not end, or is longer than one may be, is refused."""
        tools: list[Tool] = []
        cursors: set[str] = set()
        cursor: str | None = None
        size = 0
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            raw = await self.request("tools/list", params, timeout=timeout)
            size += len(raw)
            if size <= MOST_LISTED:
                page = await self._read_page(raw)
                tools += page.tools
                cursor = page.next_cursor
            if size > MOST_LISTED or len(tools) > most or cursor in cursors or len(cursors) > most:
                raise HoldfastError(
                    codes.BAD_ANSWER,
                    f"{self._server} lists its tools without end: {most} of them and {MOST_LISTED} bytes are the most.",
                )
            if cursor is None:
                return tools
            cursors.add(cursor)

    async def _read_page(self, raw: Raw) -> ToolPage:
        if len(raw) > _OFF_LOOP:
            return await asyncio.to_thread(self.read, raw, ToolPage)
        return self.read(raw, ToolPage)

    def read_result(self, raw: Raw) -> CallResult:
        """Read a tool's result; it is passed on, so not read strictly."""
        try:
            return _decode_call_result(raw)
        except msgspec.ValidationError as error:
            raise self._unreadable(error) from None

    def read(self, raw: Raw, kind: type[T]) -> T:
        """Read a result strictly; what cannot be read is the server's fault, and named so."""
        try:
            return read(raw, kind, self._limits)
        except Unreadable as error:
            raise self._unreadable(error) from None

    def _unreadable(self, why: Exception) -> HoldfastError:
        return HoldfastError(codes.BAD_ANSWER, f"{self._server} gave an answer that cannot be read: {why}.")

    @property
    def _server(self) -> str:
        name = self.greeting.server.name
        return repr(name[:80]) if name else "The server"

    def _meta(self, extra: Mapping[str, Any] | None) -> dict[str, Any] | Raw:
        if not extra:
            return self._plain_meta
        return request_meta(self._me, self.greeting.era, self.greeting.version, extra)


async def greet(
    peer: Peer, me: Introduction, *, era: Era | None = None, timeout: float = 30.0, limits: Limits = DEFAULT
) -> Client:
    """Find out which era the server speaks, and start. A remembered era is tried first, never trusted."""
    try:
        async with asyncio.timeout(timeout):
            if era is Era.HANDSHAKE:
                greeting = await _shake_hands_or_discover(peer, me)
            else:
                greeting = await _discover_or_shake_hands(peer, me)
    except TimeoutError:
        raise HoldfastError(
            codes.TIMEOUT, f"The server did not introduce itself within {timeout:g} s."
        ) from None
    return Client(peer, me, greeting, limits)


async def _shake_hands_or_discover(peer: Peer, me: Introduction) -> Greeting:
    try:
        return await _shake_hands(peer, me)
    except PeerError as refusal:
        if refusal.rpc not in (codes.UNSUPPORTED_VERSION.rpc, codes.METHOD_NOT_FOUND.rpc):
            raise
    return await _discover(peer, me)


async def _discover_or_shake_hands(peer: Peer, me: Introduction) -> Greeting:
    discovery = asyncio.create_task(_discover(peer, me))
    tasks = [discovery]
    try:
        await asyncio.wait(tasks, timeout=PATIENCE)
        if not discovery.done() or isinstance(discovery.exception(), HoldfastError):
            # Refused, or silent: too old to know the method, or still starting. Whichever is answered is right.
            tasks.append(asyncio.create_task(_shake_hands(peer, me)))
        return await _first_success(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _first_success(tasks: list[asyncio.Task[T]]) -> T:
    waiting = set(tasks)
    while True:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.exception() is None:
                return task.result()
        if not waiting:
            return tasks[-1].result()  # raises why


class _Discovered(msgspec.Struct, rename="camel"):
    supported_versions: list[str]
    capabilities: dict[str, Json] = {}
    instructions: str | None = None
    meta: dict[str, Raw] = msgspec.field(default_factory=dict[str, Raw], name="_meta")


async def _discover(peer: Peer, me: Introduction) -> Greeting:
    version = MODERN_VERSIONS[-1]
    raw = await peer.request("server/discover", {"_meta": request_meta(me, Era.MODERN, version, {})})
    found = _read_greeting(raw, _Discovered)
    if version not in found.supported_versions:
        raise HoldfastError(
            codes.UNSUPPORTED_VERSION,
            f"The server speaks MCP {', '.join(found.supported_versions)[:200] or '(none)'}, not {version}.",
        )
    return Greeting(
        era=Era.MODERN,
        version=version,
        server=_read_greeting(found.meta[SERVER_KEY], Implementation)
        if SERVER_KEY in found.meta
        else Implementation(),
        capabilities=found.capabilities,
        instructions=found.instructions or "",
    )


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Json] = {}
    server_info: Implementation = Implementation()
    instructions: str | None = None


async def _shake_hands(peer: Peer, me: Introduction) -> Greeting:
    offer = {
        "protocolVersion": HANDSHAKE_VERSIONS[-1],
        "capabilities": me.capabilities,
        "clientInfo": me.who,
        **({"_meta": me.meta} if me.meta else {}),
    }
    found = _read_greeting(await peer.request("initialize", offer), _Initialized)
    if found.protocol_version not in HANDSHAKE_VERSIONS:
        raise HoldfastError(
            codes.UNSUPPORTED_VERSION,
            f"The server speaks MCP {found.protocol_version[:40]!r}, which we do not know.",
        )
    await peer.notify("notifications/initialized")
    return Greeting(
        era=Era.HANDSHAKE,
        version=found.protocol_version,
        server=found.server_info,
        capabilities=found.capabilities,
        instructions=found.instructions or "",
    )


def _read_greeting(raw: Raw, kind: type[T]) -> T:
    try:
        return read(raw, kind, DEFAULT)
    except Unreadable as error:
        raise HoldfastError(codes.BAD_ANSWER, f"The server's introduction cannot be read: {error}.") from None
