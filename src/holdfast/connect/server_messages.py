"""The messages that a server sends on its own: requests, progress, and changes of its tools."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from holdfast.connect.server_requests import ServerRequests
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.client import Client
from holdfast.wire.mcp.eras import Era
from holdfast.wire.messages import Notification, Request
from holdfast.wire.strict_json import decode_json

log = logging.getLogger(__name__)

_RESUBSCRIBE_SECONDS = 1.0
_MAX_PROGRESS_BYTES = 16 * 1024  # decoded on the event loop; longer progress notifications are ignored

OnProgress: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Called with the params of each progress notification."""


class ServerMessages:
    """Passes requests and tool changes to `ServerRequests`, progress to its call, and the rest to the gateway's client."""

    def __init__(self, server_requests: ServerRequests) -> None:
        self.server_requests = server_requests
        self._tokens = itertools.count(1)
        self._listeners: dict[int, OnProgress] = {}

    async def answer(self, request: Request) -> Any:
        return await self.server_requests.answer(request.method, request.params)

    def receive(self, notification: Notification) -> None:
        """Handle a notification of the server."""
        match notification.method:
            case "notifications/progress":
                if not self._listeners or len(notification.params) > _MAX_PROGRESS_BYTES:
                    return
                params = decode_json(notification.params)
                if isinstance(params, dict):
                    self.report_progress(cast(Mapping[str, Any], params))
            case "notifications/tools/list_changed":
                self.server_requests.on_tools_changed()
            case _:
                requests = self.server_requests
                if requests.relay is not None:
                    requests.relay.notify(requests.spec, notification)

    @contextmanager
    def listen_for_progress(self, on_progress: OnProgress) -> Iterator[int]:
        """Call `on_progress` for every progress notification that has the yielded token."""
        token = next(self._tokens)
        self._listeners[token] = on_progress
        try:
            yield token
        finally:
            del self._listeners[token]

    def report_progress(self, params: Mapping[str, Any]) -> None:
        """Pass progress to the listener for its token, if there is one."""
        token = params.get("progressToken")
        listener = self._listeners.get(token) if isinstance(token, int) else None
        if listener is not None:
            listener(params)


_LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


def wanted_changes(client: Client, server_requests: ServerRequests) -> dict[str, bool]:
    """The list changes to subscribe to, as `subscriptions/listen` expects them. In the handshake era, no subscription is needed.

    Changes of prompts and resources are only for the session's gateway client.
    """
    if client.server_info.era is not Era.MODERN:
        return {}
    lists = _LISTS if server_requests.relay is not None else ("tools",)
    capabilities = client.server_info.capabilities
    return {_LISTS[name]: True for name in lists if _announces_changes(capabilities, name)}


async def subscribe_to_changes(
    client: Client, server_requests: ServerRequests, wanted: Mapping[str, bool]
) -> None:
    """Subscribe to list changes. When the server ends the subscription, subscribe again; on an error, stop."""
    while True:
        try:
            await client.request("subscriptions/listen", {"notifications": wanted})
        except HoldfastError as error:
            log.debug("subscription ended", extra={"reason": error.message})
            return
        await asyncio.sleep(_RESUBSCRIBE_SECONDS)
        server_requests.on_tools_changed()  # in case the tools changed during the pause


class ChangeSubscription:
    """Subscribes to list changes for the length of a block, if the server requires a subscription."""

    __slots__ = ("_client", "_server_requests", "_task")

    def __init__(self, client: Client, server_requests: ServerRequests) -> None:
        self._client = client
        self._server_requests = server_requests
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if wanted := wanted_changes(self._client, self._server_requests):
            subscription = subscribe_to_changes(self._client, self._server_requests, wanted)
            self._task = asyncio.create_task(subscription)

    async def __aexit__(self, *exception: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _announces_changes(capabilities: JsonObject, name: str) -> bool:
    capability = capabilities.get(name)
    return isinstance(capability, dict) and capability.get("listChanged") is True
