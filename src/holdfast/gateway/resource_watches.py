"""A session's subscriptions to resources at its servers. Each lasts as long as a subscription of the client needs it."""

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Coroutine
from typing import Any

from holdfast.gateway.session_memory import SessionMemory
from holdfast.gateway.subscriptions import Subscriptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.visible_text import to_line
from holdfast.session.session import Session
from holdfast.wire.mcp.eras import Era

log = logging.getLogger(__name__)

_ACKNOWLEDGE_SECONDS = 10.0
_REQUEST_SECONDS = 60.0
MAX_WATCHED = 1024
# The URIs of all resources that a session watches: a modern server gets all of them again with each change.
MAX_WATCHED_BYTES = 1024 * 1024
_ENTRY_BYTES = 200  # roughly what an entry takes in memory besides its URI


class ResourceWatches:
    """Subscribes to resources at their servers, in each server's era."""

    def __init__(self, subscriptions: Subscriptions, memory: SessionMemory) -> None:
        """`memory` counts the bytes of the URIs."""
        self._subscriptions = subscriptions
        self._memory = memory
        self._bytes = 0
        self._counts: Counter[tuple[str, str]] = Counter()
        """How many subscriptions the client has, by server and URI."""
        self._listens: dict[str, asyncio.Task[None]] = {}
        """The request `subscriptions/listen` that is open at each modern server."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._adding: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by server
        self._changing = asyncio.Lock()
        """Held while the request in `_listens` is replaced."""

    def is_watched(self, server: str, uri: str) -> bool:
        """Whether the client has a subscription to the resource."""
        return (server, uri) in self._counts

    async def add(self, session: Session, server: str, era: Era, uri: str) -> None:
        """Subscribe to a resource for one subscription of the client.

        A server of the handshake era must answer within 60 s. A modern server gets 10 s to acknowledge the subscription; after
        that, the subscription counts as open.
        """
        # One at a time: if the server refuses the first of two equal subscriptions, the second must not count.
        async with self._adding[server]:
            if (server, uri) in self._counts:
                self._counts[server, uri] += 1
                return
            self._reserve_memory(uri)
            self._counts[server, uri] = 1
            try:
                if era is Era.HANDSHAKE:
                    await session.forward(
                        server, "resources/subscribe", {"uri": uri}, timeout=_REQUEST_SECONDS
                    )
                else:
                    await self._listen(session, server)
            except BaseException:
                self._forget(server, uri)
                raise

    def remove(self, session: Session, server: str, era: Era, uri: str) -> None:
        """Remove one subscription of the client. After the last one, unsubscribe at the server."""
        if not self._counts[server, uri]:
            return
        self._forget(server, uri)
        if (server, uri) in self._counts:
            return
        if era is Era.HANDSHAKE:
            self._start(self._unsubscribe(session, server, uri))
        else:
            self._start(self._listen(session, server))

    def _reserve_memory(self, uri: str) -> None:
        """Count the memory of a resource. Raise BUSY if there is too little."""
        size = len(uri) + _ENTRY_BYTES
        if (
            len(self._counts) >= MAX_WATCHED
            or self._bytes + size > MAX_WATCHED_BYTES
            or not self._memory.try_add(size)
        ):
            raise HoldfastError(
                codes.BUSY, "This session already watches too many resources. Unsubscribe from one first."
            )
        self._bytes += size

    def _forget(self, server: str, uri: str) -> None:
        """Subtract one subscription. If it was the last one, forget the resource."""
        self._counts[server, uri] -= 1
        if not self._counts[server, uri]:
            del self._counts[server, uri]
            self._bytes -= len(uri) + _ENTRY_BYTES
            self._memory.remove(len(uri) + _ENTRY_BYTES)

    def close(self) -> None:
        """Stop listening. The links to the session's own servers are closed with the session."""
        for task in [*self._listens.values(), *self._tasks]:
            task.cancel()

    async def _unsubscribe(self, session: Session, server: str, uri: str) -> None:
        with contextlib.suppress(HoldfastError):
            await session.forward(server, "resources/unsubscribe", {"uri": uri}, timeout=_REQUEST_SECONDS)

    async def _listen(self, session: Session, server: str) -> None:
        """Replace the subscription at a modern server: the new one is open before the old one is closed."""
        async with self._changing:
            uris = sorted(uri for watched_at, uri in self._counts if watched_at == server)
            old = self._listens.pop(server, None)
            if uris:
                acknowledged = self._subscriptions.expect(server)
                self._listens[server] = new = self._start(self._keep_listening(session, server, uris))
                waiting = asyncio.ensure_future(acknowledged.wait())
                await asyncio.wait(
                    [waiting, new], timeout=_ACKNOWLEDGE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
            if old is not None:
                old.cancel()

    async def _keep_listening(self, session: Session, server: str, uris: list[str]) -> None:
        try:
            wanted = {"notifications": {"resourceSubscriptions": uris}}
            await session.forward(server, "subscriptions/listen", wanted)
        except HoldfastError as error:
            log.warning(
                "subscription ended: %s", to_line(server), extra={"server": server, "reason": error.message}
            )

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
