"""A connected server, whatever it is connected by."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import msgspec

from holdfast.connect.hearing import Hearing, Progress
from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import ServerSpec
from holdfast.wire.frame import Raw
from holdfast.wire.mcp.client import Client, Greeting
from holdfast.wire.mcp.tools import CallResult, Tool

EXTENSION = "dev.holdfast/session"
_ROUNDS = 10
_STATE_ONLY_SECONDS = 0.1


class Connection:
    """What a link holds: ask it anything, until it has ended."""

    def __init__(
        self,
        client: Client,
        *,
        ended: asyncio.Event,
        hearing: Hearing,
        last_words: Callable[[], str],
    ) -> None:
        self._client = client
        self._hearing = hearing
        self.ended = ended
        """Set when the server is gone."""
        self.last_words = last_words
        """The end of what the server wrote to its standard error, fit to be shown."""

    @property
    def greeting(self) -> Greeting:
        """Who the server said it is."""
        return self._client.greeting

    async def tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Every tool on offer."""
        return await self._client.tools(timeout=timeout) if "tools" in self.greeting.capabilities else []

    async def call(
        self,
        tool: str,
        arguments: Raw,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> CallResult:
        """Call a tool; what it wants to know meanwhile is answered as the session allows."""
        if progress is not None:
            with self._hearing.listening(progress) as token:
                meta = {**(meta or {}), "progressToken": token}
                return await self.call(tool, arguments, meta=meta, timeout=timeout)
        params = {"name": tool, "arguments": arguments}
        raw = await self._client.request("tools/call", params, meta=meta, timeout=timeout)
        result = self._client.read_result(raw)
        if result.result_type != "input_required":
            return result

        def again(more: Mapping[str, Any]) -> Awaitable[Raw]:
            return self._client.request("tools/call", {**params, **more}, meta=meta)

        async with asyncio.timeout(timeout):  # what it wants to know meanwhile takes its time, too
            return self._client.read_result(await self._told(raw, again))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Raw:
        """Ask anything; while the server wants to know more first, it is told and asked again."""

        def ask(more: Mapping[str, Any]) -> Awaitable[Raw]:
            return self._client.request(method, {**(params or {}), **more}, meta=meta, timeout=timeout)

        return await self._told(await ask({}), ask)

    async def _told(self, raw: Raw, again: Callable[[Mapping[str, Any]], Awaitable[Raw]]) -> Raw:
        """Answer what a server wants to know, and ask again with that, until it has no more questions."""
        for _ in range(_ROUNDS):
            try:
                interim = _decode_interim(raw)
            except msgspec.ValidationError:
                return raw
            if interim.result_type != "input_required":
                return raw
            more: dict[str, Any] = {"requestState": interim.request_state} if interim.request_state else {}
            if interim.input_requests:
                more["inputResponses"] = {
                    key: await self._hearing.asks.answer(wanted.method, wanted.params)
                    for key, wanted in interim.input_requests.items()
                }
            else:
                await asyncio.sleep(_STATE_ONLY_SECONDS)
            raw = await again(more)
        raise HoldfastError(
            codes.BAD_ANSWER, f"{self.greeting.server.name[:80]!r} keeps asking and never answers."
        )


class _Wanted(msgspec.Struct):
    method: str
    params: Raw = Raw(b"{}")


class _Interim(msgspec.Struct, rename="camel"):
    result_type: str = "complete"
    input_requests: dict[str, _Wanted] = {}
    request_state: Raw = Raw()


_decode_interim = msgspec.json.Decoder(_Interim).decode

Connect: TypeAlias = Callable[[ServerSpec, Scope | None], AbstractAsyncContextManager[Connection]]
"""Opens a connection for a scope, or for nobody in particular (a shared server, a look at its tools)."""


def reads_context(greeting: Greeting) -> bool:
    """Whether a server declares that it learns from each request who is calling."""
    extensions = greeting.capabilities.get("extensions")
    return isinstance(extensions, dict) and EXTENSION in extensions
