"""One request of a client while it is answered, and how messages about it reach the client."""

import asyncio
import itertools
from collections import deque
from contextvars import ContextVar
from typing import Any

from holdfast.model.json import Json, JsonObject
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import BackChannel, ClientInfo
from holdfast.wire.messages import Raw

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
_MAX_QUEUED = 1024  # notifications that a slow client has not read; the oldest are dropped
_numbers = itertools.count(1)


class ClientCall:
    """A request of the client that is being answered. Notifications about it are sent before its result, in order."""

    def __init__(self, meta: JsonObject, client_info: ClientInfo, back_channel: BackChannel) -> None:
        self.number = next(_numbers)
        self.meta = meta
        self.client_info = client_info
        self.server = ""
        """The server that the request was sent to; empty if it is not known yet."""
        self.is_done = False
        self._back_channel = back_channel
        self._queue: deque[tuple[str, Any]] = deque(maxlen=_MAX_QUEUED)
        self._flushing: asyncio.Task[None] | None = None

    @property
    def progress_token(self) -> Json:
        """The client's own token for progress, or None."""
        return self.meta.get("progressToken")

    @property
    def log_level(self) -> Json:
        """The least severe level of log messages that a modern client wants for this request, or None."""
        return self.meta.get(LOG_LEVEL_KEY) if self.client_info.era is Era.MODERN else None

    def notify(self, method: str, params: Any) -> None:
        """Send the client a notification about this request, unless it is answered already. Never blocks."""
        if self.is_done:
            return
        self._queue.append((method, params))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())

    async def ask(self, method: str, params: Raw) -> Raw:
        """Send the client a request, and wait for its answer."""
        return await self._back_channel.ask(method, params)

    async def finish(self) -> None:
        """Wait until all notifications are sent. Later ones are dropped: nothing may follow a result."""
        self.is_done = True
        if self._flushing is not None:
            await self._flushing

    def redirect_to(self, newest: "ClientCall") -> None:
        """From now on, send messages with the client's newest request: the client has sent the request again."""
        self.meta, self._back_channel = newest.meta, newest._back_channel

    async def _flush(self) -> None:
        try:
            while self._queue:
                await self._back_channel.notify(*self._queue.popleft())
        finally:
            self._flushing = None


current_call: ContextVar[ClientCall | None] = ContextVar("holdfast_client_call", default=None)
"""The request that the current task answers."""
