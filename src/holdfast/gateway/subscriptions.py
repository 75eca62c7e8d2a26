"""The streams on which a modern client gets notifications outside of its other requests (`subscriptions/listen`)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.gateway.client_call import ClientCall
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.light_event import LightEvent
from holdfast.wire.messages import Id, Raw
from holdfast.wire.strict_json import DECODE_ERRORS, make_decoder

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
MAX_STREAMS_PER_SESSION = 16
MAX_URIS_PER_STREAM = 256
MAX_PARAMS_BYTES = 64 * 1024
_FIELDS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


class ListenParams(msgspec.Struct):
    """The params of `subscriptions/listen`."""

    notifications: dict[str, Json]

    @property
    def lists(self) -> frozenset[str]:
        """The lists whose changes the client wants: `tools`, `prompts` or `resources`."""
        return frozenset(name for name, field in _FIELDS.items() if self.notifications.get(field) is True)

    @property
    def uris(self) -> tuple[str, ...]:
        """The resources to subscribe to."""
        uris = self.notifications.get("resourceSubscriptions") or []
        if (
            not isinstance(uris, list)
            or len(uris) > MAX_URIS_PER_STREAM
            or not all(isinstance(uri, str) for uri in uris)
        ):
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"resourceSubscriptions must be a list of at most {MAX_URIS_PER_STREAM} URIs.",
            )
        return tuple(str(uri) for uri in uris)


class SubscriptionStream:
    """One open stream: which notifications the client asked for, and the request on which they are sent."""

    def __init__(
        self, request_id: Id, call: ClientCall, lists: frozenset[str], uris: tuple[str, ...]
    ) -> None:
        self.lists = lists
        self.uris = frozenset(uris)
        self._call = call
        self._meta = {SUBSCRIPTION_KEY: request_id}

    @property
    def result(self) -> dict[str, Any]:
        """The result when the stream ends."""
        return {"_meta": self._meta}

    def acknowledge(self) -> None:
        """Tell the client which notifications it will get."""
        accepted: dict[str, Any] = {_FIELDS[name]: True for name in sorted(self.lists)}
        if self.uris:
            accepted["resourceSubscriptions"] = sorted(self.uris)
        self.notify("notifications/subscriptions/acknowledged", {"notifications": accepted})

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on this stream."""
        self._call.notify(method, {**params, "_meta": self._meta})


class Subscriptions:
    """The streams of one session."""

    def __init__(self, refuse: Callable[[HoldfastError], HoldfastError]) -> None:
        self._refuse = refuse
        self._streams: set[SubscriptionStream] = set()
        self._acknowledged: dict[str, asyncio.Event] = {}
        """The events to set when a server acknowledges a subscription, by server."""
        self.closed = LightEvent()

    def open(self, stream: SubscriptionStream) -> None:
        """Add a stream. Raise BUSY if there are too many."""
        if len(self._streams) >= MAX_STREAMS_PER_SESSION:
            raise self._refuse(
                HoldfastError(
                    codes.BUSY,
                    f"This session already has {MAX_STREAMS_PER_SESSION} streams. Close one first.",
                )
            )
        self._streams.add(stream)

    def remove(self, stream: SubscriptionStream) -> None:
        self._streams.discard(stream)

    def close(self) -> None:
        """End all streams."""
        self.closed.set()

    def expect(self, server: str) -> asyncio.Event:
        """The event that is set when this server acknowledges the next subscription."""
        return self._acknowledged.setdefault(server, LightEvent())

    def set_acknowledged(self, server: str) -> None:
        """Set the event that `expect` returned, because the server has acknowledged a subscription."""
        event = self._acknowledged.pop(server, None)
        if event is not None:
            event.set()

    def list_changed(self, name: str) -> None:
        """Tell the client that a list has changed, on each stream that includes it."""
        for stream in self._streams:
            if name in stream.lists:
                stream.notify(f"notifications/{name}/list_changed", {})

    def resource_updated(self, params: Raw) -> None:
        """Pass a server's notification about a resource on, on each stream that includes the resource."""
        try:
            members = _decode_members(params)
            uri = msgspec.json.decode(members["uri"], type=str)
        except (KeyError, *DECODE_ERRORS):
            return
        members.pop("_meta", None)
        for stream in self._streams:
            if uri in stream.uris:
                stream.notify("notifications/resources/updated", members)


_decode_members = make_decoder(dict[str, Raw])
