"""Notifications that wait for a client to read them."""

import asyncio
import logging
from collections import deque
from typing import Any

from holdfast.gateway.session_memory import SessionMemory
from holdfast.wire.mcp.server import Notify
from holdfast.wire.messages import Raw, encode

log = logging.getLogger(__name__)

MAX_QUEUED = 1024
MAX_QUEUED_BYTES = 1024 * 1024


class NotificationQueue:
    """Sends notifications in order, one at a time. If a client reads too slowly, the oldest ones are dropped.

    A notification without content, such as `list_changed`, is not queued twice.
    """

    def __init__(self, send: Notify) -> None:
        self.send = send
        """Sends one notification."""
        self.memory: SessionMemory | None = None
        """Counts the bytes in the queue."""
        self.dropped = 0
        """How many notifications were dropped."""
        self._queue: deque[tuple[str, Raw]] = deque()
        self._bytes = 0
        self._without_content: set[str] = set()
        """The methods of the notifications in the queue that have no params."""
        self._sending: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def size(self) -> int:
        """How many bytes of params are queued."""
        return self._bytes

    def add(self, method: str, params: Any) -> None:
        """Queue a notification. Never blocks."""
        raw = params if type(params) is Raw else Raw(encode(params))
        is_empty = len(raw) == len(b"{}")
        if is_empty and method in self._without_content:
            return
        while self._queue and (len(self._queue) >= MAX_QUEUED or self._bytes + len(raw) > MAX_QUEUED_BYTES):
            self._drop_oldest()
        while self.memory is not None and not self.memory.try_add(len(raw)):
            if not self._queue:
                self._count_drop()
                return
            self._drop_oldest()
        if is_empty:
            self._without_content.add(method)
        self._queue.append((method, raw))
        self._bytes += len(raw)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    async def wait_until_sent(self) -> None:
        """Wait until the queue is empty."""
        if self._sending is not None:
            await self._sending

    def close(self) -> None:
        """Drop everything."""
        if self._sending is not None:
            self._sending.cancel()
        while self._queue:
            self._release(self._take_oldest()[1])

    async def _send_all(self) -> None:
        try:
            while self._queue:
                method, raw = self._take_oldest()
                try:
                    await self.send(method, raw)
                finally:
                    self._release(raw)
        finally:
            self._sending = None

    def _take_oldest(self) -> tuple[str, Raw]:
        method, raw = self._queue.popleft()
        if len(raw) == len(b"{}"):
            self._without_content.discard(method)
        return method, raw

    def _drop_oldest(self) -> None:
        self._release(self._take_oldest()[1])
        self._count_drop()

    def _count_drop(self) -> None:
        if not self.dropped:
            log.info("a client reads too slowly: notifications for it are dropped")
        self.dropped += 1

    def _release(self, raw: Raw) -> None:
        self._bytes -= len(raw)
        if self.memory is not None:
            self.memory.remove(len(raw))
