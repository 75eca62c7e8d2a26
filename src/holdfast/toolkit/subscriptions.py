"""Who is told when a list or a resource changes.

A handshake-era client is told about the lists that it has asked for, and about the resources that it subscribed to. A modern
client opens a stream (`subscriptions/listen`) and names the lists and resources.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import McpRequest, Notify

log = logging.getLogger(__name__)

ListName: TypeAlias = Literal["tools", "prompts", "resources"]

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
MAX_SUBSCRIBERS = 4096
MAX_STREAMS = 512  # fewer than the requests that may be in flight
MAX_STREAMS_PER_CALLER = 16  # only if the server can tell its callers apart
MAX_URIS = 256  # resources that one client may subscribe to
MAX_LISTEN_BYTES = 64 * 1024  # the params are kept in memory as long as the stream is open

_LIST_FIELDS: dict[ListName, str] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


class Change(msgspec.Struct, frozen=True):
    """A list of the server has changed, or the content of a resource."""

    list_name: ListName | None = None
    uri: str = ""
    session_id: str = ""
    """Only this session is told; empty if all are."""

    def notification(self) -> tuple[str, JsonObject]:
        """The method and params of the notification."""
        if self.list_name is not None:
            return f"notifications/{self.list_name}/list_changed", {}
        return "notifications/resources/updated", {"uri": self.uri}


class Subscriber:
    """The lists and resources that one client subscribed to, and the changes to announce to it. Equal changes are announced once."""

    def __init__(self, session_id: str) -> None:
        self.lists: set[ListName] = set()
        self.uris: set[str] = set()
        self.changes: dict[Change, None] = {}
        self.wake = asyncio.Event()
        """Set when there are changes to announce, and when the server ends its streams."""
        self.flush_task: asyncio.Task[None] | None = None
        self._session_id = session_id

    def wants(self, change: Change) -> bool:
        if change.session_id and change.session_id != self._session_id:
            return False
        return change.list_name in self.lists if change.list_name is not None else change.uri in self.uris

    def add(self, change: Change) -> None:
        self.changes[change] = None
        self.wake.set()

    def take(self) -> list[Change]:
        """Remove and return the changes that the client has not been told of yet."""
        changes = list(self.changes)
        self.changes.clear()
        self.wake.clear()
        return changes


class Subscriptions:
    """The subscribers of one server."""

    def __init__(self, *, can_lists_change: bool = True) -> None:
        self.can_lists_change = can_lists_change
        """Whether the server announces changes of its lists."""
        self._by_connection: dict[str, tuple[Subscriber, Notify]] = {}
        self._streams: dict[Subscriber, str] = {}  # the owner of each stream
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._by_connection) + len(self._streams)

    def publish(self, change: Change) -> None:
        """Announce a change to every client that subscribed to it, without waiting. Can be called from any thread."""
        loop = self._loop
        if loop is None:
            return
        try:
            is_own_loop = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_own_loop = False
        if is_own_loop:
            self._publish(change)
        else:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._publish, change)

    def _publish(self, change: Change) -> None:
        for subscriber, push in self._by_connection.values():
            if subscriber.wants(change):
                subscriber.add(change)
                if subscriber.flush_task is None:
                    subscriber.flush_task = asyncio.ensure_future(self._flush(subscriber, push))
        for subscriber in self._streams:
            if subscriber.wants(change):
                subscriber.add(change)

    # Handshake era

    def add_list(self, request: McpRequest, session_id: str, name: ListName) -> None:
        """From now on, tell this client when the list changes. The client has just requested the list."""
        if (subscriber := self._find_or_add(request, session_id)) is not None:
            subscriber.lists.add(name)

    def add_uri(self, request: McpRequest, session_id: str, uri: str) -> None:
        """From now on, tell this client when the resource changes."""
        subscriber = self._find_or_add(request, session_id)
        if subscriber is None or (len(subscriber.uris) >= MAX_URIS and uri not in subscriber.uris):
            raise HoldfastError(codes.BUSY, "There are too many subscriptions.")
        subscriber.uris.add(uri)

    def remove_uri(self, connection: str, uri: str) -> None:
        if connection in self._by_connection:
            self._by_connection[connection][0].uris.discard(uri)

    def remove_connection(self, connection: str) -> None:
        """Forget a client that has disconnected."""
        self._by_connection.pop(connection, None)

    def _find_or_add(self, request: McpRequest, session_id: str) -> Subscriber | None:
        """The subscriber for the client that sent a request. None if the client gets no notifications, or if there are too many subscribers."""
        connection, push = request.connection, request.back_channel.push
        found = self._by_connection.get(connection)
        if found is not None:
            return found[0]
        if request.client.era is Era.MODERN or push is None or len(self._by_connection) >= MAX_SUBSCRIBERS:
            return None
        subscriber = Subscriber(session_id)
        self._loop = asyncio.get_running_loop()
        self._by_connection[connection] = (subscriber, push)
        return subscriber

    async def _flush(self, subscriber: Subscriber, push: Notify) -> None:
        try:
            while changes := subscriber.take():
                for change in changes:
                    await push(*change.notification())
        except HoldfastError as error:  # the client has disconnected
            log.debug("subscriber lost", extra={"reason": error.message})
            for connection, (other, _) in list(self._by_connection.items()):
                if other is subscriber:
                    del self._by_connection[connection]
        finally:
            subscriber.flush_task = None

    # Modern era

    async def listen(self, request: McpRequest, owner: str, wanted: Subscriber) -> JsonObject:
        """Announce changes to a modern client, until it cancels the request or the server ends.

        `owner` is the id of the caller's session or connection; empty if the server cannot tell its callers apart.
        """
        own = sum(other == owner for other in self._streams.values()) if owner else 0
        if self._is_closed or len(self._streams) >= MAX_STREAMS or own >= MAX_STREAMS_PER_CALLER:
            raise HoldfastError(codes.BUSY, "There are too many subscriptions.")
        meta: JsonObject = {SUBSCRIPTION_KEY: request.id}
        self._loop = asyncio.get_running_loop()
        self._streams[wanted] = owner
        try:
            await request.notify(
                "notifications/subscriptions/acknowledged",
                {"notifications": _describe(wanted.lists, wanted.uris), "_meta": meta},
            )
            while not self._is_closed:
                await wanted.wake.wait()
                for change in wanted.take():
                    method, params = change.notification()
                    await request.notify(method, {**params, "_meta": meta})
        finally:
            del self._streams[wanted]
        return {"_meta": meta}

    def close(self) -> None:
        """End the streams. Each client gets the result of its request."""
        self._is_closed = True
        for subscriber in self._streams:
            subscriber.wake.set()


class ListenParams(msgspec.Struct):
    """The params of `subscriptions/listen`."""

    notifications: dict[str, Any]

    @property
    def lists(self) -> set[ListName]:
        return {name for name, field in _LIST_FIELDS.items() if self.notifications.get(field) is True}

    @property
    def uris(self) -> list[str]:
        """The resources; raises BAD_ARGUMENT unless they are a list of at most `MAX_URIS`."""
        found: Any = self.notifications.get("resourceSubscriptions") or ()
        try:
            uris = msgspec.convert(found, list[str])
        except msgspec.ValidationError:
            uris = None
        if uris is None or len(uris) > MAX_URIS:
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"resourceSubscriptions must be a list of at most {MAX_URIS} URIs."
            )
        return uris


def _describe(lists: Iterable[ListName], uris: Iterable[str]) -> dict[str, Any]:
    """The lists and resources that were accepted, in the form of the request's `notifications`."""
    described: dict[str, Any] = {_LIST_FIELDS[name]: True for name in sorted(lists)}
    if kept := sorted(uris):
        described["resourceSubscriptions"] = kept
    return described
