"""Lets other processes of the same user attach to a host's live sessions."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from holdfast.host.describe_session import describe_session
from holdfast.host.remote import messages
from holdfast.host.remote.sockets import open_listening_socket, peer_uid, remove_socket
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import DoorCapabilities
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import Limits
from holdfast.model.permission import DoorKind, Mode
from holdfast.session.attachment import Attachment
from holdfast.session.session import Session
from holdfast.session.subscription import Subscription
from holdfast.store.types import StoredEvent
from holdfast.wire.frame import PeerError, Raw, Request
from holdfast.wire.peer import Peer
from holdfast.wire.socket import SocketTransport

log = logging.getLogger(__name__)

_MAX_CLIENTS = 64


class SessionListener:
    """Listens on a socket of its own. Each connection is attached to one session."""

    def __init__(
        self, data_dir: Path, name: str, find: Callable[[str], Session | None], *, limits: Limits
    ) -> None:
        self._data_dir = data_dir
        self._name = name
        self._find = find
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._clients: set[_Client] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            listening = open_listening_socket(self._data_dir, self._name)
        except (OSError, HoldfastError) as error:
            log.warning("other processes cannot attach to sessions", extra={"reason": str(error)})
            return self
        self._server = await loop.create_unix_server(self._accept, sock=listening)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            remove_socket(self._data_dir, self._name)
        await asyncio.gather(*(client.close() for client in [*self._clients]))

    def _accept(self) -> asyncio.Protocol:
        client = _Client(self._find, self._limits, self._clients.discard)
        self._clients.add(client)
        return _CheckedTransport(client.peer, is_full=len(self._clients) > _MAX_CLIENTS)


class _CheckedTransport(SocketTransport):
    """Closes the connection at once if it comes from another user, or if there are too many."""

    def __init__(self, peer: Peer, *, is_full: bool) -> None:
        super().__init__(peer)
        self._is_full = is_full

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection: socket.socket = transport.get_extra_info("socket")
        uid = peer_uid(connection)
        if self._is_full or uid != os.geteuid():
            log.warning(
                "connection to the session socket refused", extra={"uid": uid, "too_many": self._is_full}
            )
            assert isinstance(transport, asyncio.WriteTransport)
            transport.abort()
        super().connection_made(transport)


class _Client:
    """A process that is attached, or will be, to one of the host's sessions."""

    def __init__(
        self,
        find: Callable[[str], Session | None],
        limits: Limits,
        on_close: "Callable[[_Client], None]",
    ) -> None:
        self._find = find
        self._session: Session | None = None
        self._attachment: Attachment | None = None
        self._subscription: Subscription | None = None
        self._sending: asyncio.Task[None] | None = None
        self._has_no_more_events = asyncio.Event()
        self._turns: set[asyncio.Task[messages.PromptResult]] = set()
        self.peer = Peer(on_request=self._handle, limits=limits)
        self._closing = asyncio.create_task(self._close_at_end(on_close))

    async def close(self) -> None:
        """End the connection."""
        await self.peer.close()
        await asyncio.wait([self._closing])

    async def _close_at_end(self, on_close: "Callable[[_Client], None]") -> None:
        waiting = [asyncio.create_task(event.wait()) for event in (self.peer.ended, self._has_no_more_events)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            if self._attachment is not None:
                self._attachment.detach()
            if self._sending is not None:
                self._sending.cancel()
                await asyncio.wait([self._sending])
            await self.peer.close()
            on_close(self)

    async def _handle(self, request: Request) -> Any:
        if request.method == messages.ATTACH:
            return self._attach(messages.decode_params(request, messages.AttachParams))
        session, attachment = self._session, self._attachment
        if session is None or attachment is None:
            raise HoldfastError(codes.BAD_ARGUMENT, "Send attach first.")
        match request.method:
            case messages.PROMPT:
                params = messages.decode_params(request, messages.PromptParams)
                # The turn goes on if the client leaves.
                turn = asyncio.create_task(self._prompt(attachment, params.blocks))
                self._turns.add(turn)
                turn.add_done_callback(self._turns.discard)
                return await asyncio.shield(turn)
            case messages.CANCEL:
                attachment.cancel()
                return {}
            case messages.SET_MODE:
                mode = messages.decode_params(request, messages.ModeParams).mode
                await session.permission.change_mode(_parse_mode(mode), DoorKind.CHAT)
                return {}
            case messages.DESCRIBE:
                return describe_session(session)
            case method:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r}.")

    def _attach(self, params: messages.AttachParams) -> messages.AttachResult:
        if params.version != messages.PROTOCOL_VERSION:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "The session's owner runs another version of Holdfast. Use the same version in both.",
            )
        if self._attachment is not None:
            raise HoldfastError(codes.BAD_ARGUMENT, "This connection is attached to a session already.")
        session = self._find(params.session_id)
        if session is None:
            raise HoldfastError(
                codes.UNKNOWN_SESSION, f"The session {params.session_id[:80]!r} is not open here."
            )
        door = _SocketDoor(self.peer, permission=params.permission, elicitation=params.elicitation)
        self._session = session
        self._attachment = session.attach(door, may_answer=params.may_answer)
        self._subscription = self._attachment.subscribe(params.after)
        self._sending = asyncio.create_task(self._send_events(self._subscription))
        return messages.AttachResult(
            version=messages.PROTOCOL_VERSION,
            last_seq=session.record.events.last,
            description=describe_session(session),
        )

    async def _prompt(self, attachment: Attachment, blocks: Sequence[JsonObject]) -> messages.PromptResult:
        result = await attachment.prompt(blocks)
        if self._subscription is not None:
            await self._subscription.wait_handled(result.last_seq)
        return messages.PromptResult(stop_reason=result.reason, last_seq=result.last_seq)

    async def _send_events(self, subscription: Subscription) -> None:
        """Send every event. Each request is answered when the client has handled it, so a slow client sets the pace."""
        try:
            while batch := await subscription.next_batch():
                for events in _split(batch):
                    await self.peer.request(messages.EVENTS, messages.EventsParams(events=events))
        except HoldfastError as error:
            log.debug("events no longer sent", extra={"reason": error.message})
        self._closing.get_loop().call_soon(
            self.peer.ended.set
        )  # the session is closed, or the client is gone


def _split(batch: Sequence[StoredEvent]) -> list[tuple[messages.WireEvent, ...]]:
    """Encode a batch, in parts that fit into one message."""
    parts: list[tuple[messages.WireEvent, ...]] = []
    part: list[messages.WireEvent] = []
    size = 0
    for event in map(messages.encode_stored, batch):
        size += len(event.body)
        if part and size > messages.MAX_BATCH_BYTES:
            parts.append(tuple(part))
            part, size = [], len(event.body)
        part.append(event)
    return [*parts, tuple(part)]


def _parse_mode(text: str) -> Mode:
    try:
        return Mode(text)
    except ValueError:
        raise HoldfastError(codes.BAD_ARGUMENT, f"There is no mode {text[:40]!r}.") from None


class _SocketDoor:
    """The attached process as a door: it asks its user."""

    def __init__(self, peer: Peer, *, permission: bool, elicitation: bool) -> None:
        self._peer = peer
        self._capabilities = DoorCapabilities(permission=permission, elicitation=elicitation)

    @property
    def capabilities(self) -> DoorCapabilities:
        return self._capabilities

    async def request_permission(self, call: ToolCall, title: str) -> Decision:
        params = messages.PermissionParams(
            call_id=call.call_id,
            server=call.server,
            tool=call.tool,
            arguments=Raw(call.arguments),
            title=title,
        )
        raw = await self._request(messages.REQUEST_PERMISSION, params)
        try:
            return Decision(msgspec.json.decode(raw, type=messages.PermissionResult).decision)
        except (msgspec.ValidationError, ValueError):
            return Decision.REJECT

    async def elicit(self, params: JsonObject) -> JsonObject:
        raw = await self._request(messages.ELICIT, params)
        try:
            return msgspec.json.decode(raw, type=dict[str, Json])
        except msgspec.ValidationError:
            return {"action": "cancel"}

    async def _request(self, method: str, params: Any) -> Raw:
        try:
            return await self._peer.request(method, params)
        except PeerError as error:
            raise HoldfastError(
                codes.CONNECTION_CLOSED, f"The attached process failed: {error.message}"
            ) from None

    async def sample(self, params: JsonObject) -> JsonObject:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "An attached process has no model for sampling.")

    async def read_text(self, path: str) -> str:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "An attached process does not open files.")

    async def write_text(self, path: str, text: str) -> None:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "An attached process does not open files.")
