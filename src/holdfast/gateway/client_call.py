"""One request of a client while it is answered, and how messages about it reach the client."""

import itertools
from contextvars import ContextVar
from typing import Any

from holdfast.gateway.notification_queue import NotificationQueue
from holdfast.model.json import Json, JsonObject
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import BackChannel, ClientInfo
from holdfast.wire.messages import Raw

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
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
        self.size = 0
        """How many bytes the params have."""
        self.notifications = NotificationQueue(self._send)
        """The notifications that the client has not read."""

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
        if not self.is_done:
            self.notifications.add(method, params)

    async def ask(self, method: str, params: Raw, *, is_own: bool = True) -> Raw:
        """Send the client a request, and wait for its answer. `is_own`: whether Holdfast asks, and not a server."""
        return await self._back_channel.ask(method, params)

    async def finish(self) -> None:
        """Wait until all notifications are sent. Later ones are dropped: nothing may follow a result."""
        self.is_done = True
        try:
            await self.notifications.wait_until_sent()
        finally:
            self.notifications.close()

    def redirect_to(self, newest: "ClientCall") -> None:
        """From now on, send messages with the client's newest request: the client has sent the request again."""
        self.meta, self._back_channel = newest.meta, newest._back_channel

    async def _send(self, method: str, params: Any) -> None:
        await self._back_channel.notify(method, params)


current_call: ContextVar[ClientCall | None] = ContextVar("holdfast_client_call", default=None)
"""The request that the current task answers."""
