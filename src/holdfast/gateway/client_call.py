"""One request of a client while it is answered, and how messages about it reach the client."""

from contextvars import ContextVar
from typing import Any

from holdfast.gateway.notification_queue import NotificationQueue
from holdfast.gateway.session_memory import SessionMemory
from holdfast.model.json import Json, JsonObject
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import BackChannel, ClientInfo
from holdfast.wire.messages import Raw

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


class ClientCall:
    """A request of the client that is being answered. Notifications about it are sent before its result, in order."""

    def __init__(self, meta: JsonObject, client_info: ClientInfo, back_channel: BackChannel) -> None:
        self.meta = meta
        self.client_info = client_info
        self.server = ""
        """The server that the request was sent to; empty if it is not known yet."""
        self.is_done = False
        """Whether the request is answered. Then no more notifications are sent."""
        self._back_channel = back_channel
        self.size = 0
        """How many bytes the params of the request have."""
        self.memory: SessionMemory | None = None
        """Counts the bytes of the notifications that wait; set when the call begins."""
        self._notifications: NotificationQueue | None = None

    @property
    def progress_token(self) -> Json:
        """The client's own token for progress, or None."""
        return self.meta.get("progressToken")

    @property
    def log_level(self) -> Json:
        """The least severe level of log messages that a modern client wants for this request, or None."""
        return self.meta.get(LOG_LEVEL_KEY) if self.client_info.era is Era.MODERN else None

    @property
    def has_notifications(self) -> bool:
        """Whether there was a notification about this request."""
        return self._notifications is not None

    @property
    def notifications(self) -> NotificationQueue:
        """The notifications that the client has not read. Most requests have none."""
        if self._notifications is None:
            self._notifications = NotificationQueue(self._send)
            self._notifications.memory = self.memory
        return self._notifications

    def notify(self, method: str, params: Any) -> None:
        """Send the client a notification about this request, unless it is answered already. Never blocks."""
        if not self.is_done:
            self.notifications.add(method, params)

    async def ask(self, method: str, params: Raw, *, is_own: bool = True) -> Raw:
        """Send the client a request, and wait for its answer. `is_own`: whether Holdfast itself asks, not a server."""
        return await self._back_channel.ask(method, params)

    async def wait_until_sent(self) -> None:
        """Wait until all notifications are sent."""
        try:
            await self.notifications.wait_until_sent()
        finally:
            self.notifications.close()

    def redirect_to(self, newest: "ClientCall") -> None:
        """From now on, send messages about this request on `newest`: the client has sent the request again."""
        self.meta, self._back_channel = newest.meta, newest._back_channel

    async def _send(self, method: str, params: Any) -> None:
        await self._back_channel.notify(method, params)


current_call: ContextVar[ClientCall | None] = ContextVar("holdfast_client_call", default=None)
"""The request that the current task answers."""
