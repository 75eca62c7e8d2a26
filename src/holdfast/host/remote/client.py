"""Attach to a session that another process has open, through that process's socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.host.describe_session import SessionDescription
from holdfast.host.remote import messages
from holdfast.host.remote.sockets import connect_socket
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import Door, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ModeChanged, StopReason, TrustLowered
from holdfast.model.json import JsonObject
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.trust import Trust
from holdfast.session.turns import TurnResult
from holdfast.store.lease import session_held
from holdfast.store.types import Lease, StoredEvent
from holdfast.wire.messages import EMPTY_OBJECT, Notification, PeerError, Raw, Request
from holdfast.wire.peer import Peer
from holdfast.wire.socket import SocketTransport

CONNECT_SECONDS = 5.0
"""How long the owner of a session may take to answer."""
_CHANGE_SECONDS = 30.0
"""How long the session's owner may take to change or describe the session. A change ends when this process has handled its event."""

OnEvents = Callable[[Sequence[StoredEvent]], Awaitable[None]]
"""Called with the session's next events, in order. Later events arrive after it has returned."""


class RemoteSession:
    """A session of another process, as seen by a process that is attached to it."""

    def __init__(self, peer: Peer, handler: "_Handler", attached: messages.AttachResult) -> None:
        self._peer = peer
        self._handler = handler
        self.last_seq = attached.last_seq
        """The number of the session's last event when this process attached to it."""
        self.max_mode = Mode(attached.max_mode)
        """The highest mode that this process can choose."""
        self._described = attached.description
        self.answered_prompts: list[str] = []
        """The texts of this process's prompts that were answered, with the session's secrets masked. Long ones are left out."""

    @property
    def description(self) -> SessionDescription:
        """The description that was received last, with the current mode and trust."""
        changes = self._handler.changes.items()
        later = {name: value for name, (seq, value) in changes if seq > self.last_seq}
        return msgspec.structs.replace(self._described, **later)

    @property
    def ended(self) -> asyncio.Event:
        """Set when the session or its process has ended."""
        return self._peer.ended

    @property
    def end_reason(self) -> str:
        """Why no more events arrive; known once `ended` is set."""
        return self._handler.end_reason

    @property
    def is_session_closed(self) -> bool:
        """Whether the session was closed. False if its process has ended without closing it; known once `ended` is set."""
        return self._handler.is_session_closed

    async def wait_handled(self, seq: int) -> None:
        """Wait until `on_events` has handled every event up to this number, or the connection has ended."""
        ended = asyncio.create_task(self._peer.ended.wait())
        try:
            while self._handler.last_seq < seq and not ended.done():
                self._handler.handled.clear()
                handled = asyncio.create_task(self._handler.handled.wait())
                await asyncio.wait([handled, ended], return_when=asyncio.FIRST_COMPLETED)
                handled.cancel()
        finally:
            ended.cancel()

    async def prompt(self, blocks: Sequence[JsonObject], *, is_cancelled: bool = False) -> TurnResult:
        """Run one turn. Returns when `on_events` has handled all of its events."""
        params = messages.PromptParams(blocks=tuple(blocks), is_cancelled=is_cancelled)
        raw = await self._request(messages.PROMPT, params)
        result = msgspec.json.decode(raw, type=messages.PromptResult)
        if result.masked:
            self.answered_prompts.append(result.masked)
        return TurnResult(
            reason=StopReason(result.stop_reason),
            last_seq=result.last_seq,
            code=result.code,
            message=result.message,
        )

    async def cancel(self) -> None:
        """Cancel the running turn, and the waiting prompts of this process. If the owner does not answer, leave the session."""
        try:
            await self._request(messages.CANCEL, timeout=CONNECT_SECONDS)
        except HoldfastError as error:
            if error.code is not codes.TIMEOUT:
                raise
            self._handler.end_reason = (
                f"The session is open in {self._handler.owner}, which does not answer. It may be suspended."
            )
            await self._peer.close()

    async def change_mode(self, mode: Mode) -> None:
        """Use another mode from now on. Returns when `on_events` has handled the change."""
        await self._request(messages.SET_MODE, messages.ModeParams(mode=mode), timeout=_CHANGE_SECONDS)

    async def lower_trust(self) -> None:
        """Make the session sandboxed, permanently. Returns when `on_events` has handled the change."""
        await self._request(messages.LOWER_TRUST, timeout=_CHANGE_SECONDS)

    async def describe(self, *, wait_seconds: float = 0.0) -> SessionDescription:
        """Ask for the session's current description, after waiting for its servers for at most this long."""
        params = messages.DescribeParams(wait_seconds=wait_seconds)
        raw = await self._request(messages.DESCRIBE, params, timeout=wait_seconds + _CHANGE_SECONDS)
        self._described = msgspec.json.decode(raw, type=SessionDescription)
        self._handler.changes.clear()
        return self._described

    async def _request(self, method: str, params: Any = EMPTY_OBJECT, *, timeout: float | None = None) -> Raw:
        try:
            return await self._peer.request(method, params, timeout=timeout)
        except HoldfastError as error:
            decoded = messages.from_wire_error(error) if isinstance(error, PeerError) else error
            if decoded.code is codes.CONNECTION_CLOSED:
                decoded = HoldfastError(decoded.code, self.end_reason)
            if decoded.code is codes.TIMEOUT:
                decoded = HoldfastError(
                    decoded.code, f"The session is open in {self._handler.owner}, which does not answer."
                )
            raise decoded from None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """What a process asks for when it attaches to a session."""

    door: DoorKind
    after: int | None = 0
    """The number after which the events begin; None for new events only."""
    may_answer: bool = True
    """Whether this process may answer the session's questions."""
    trust: Trust | None = None
    """The highest trust that the session may have; None for any."""
    roots: tuple[str, ...] = ()
    """The folders that the session must have."""


AS_CHAT = AttachRequest(door=DoorKind.CHAT)


@asynccontextmanager
async def attach_to_owner(
    data_dir: Path,
    lease: Lease,
    *,
    door: Door,
    on_events: OnEvents,
    request: AttachRequest = AS_CHAT,
) -> AsyncIterator[RemoteSession]:
    """Attach to the session of this lease until the block ends.

    Raises SESSION_HELD if its owner does not answer, UNKNOWN_SESSION if the owner has just closed it, and the owner's error
    if the session is not as requested.
    """
    handler = _Handler(door, on_events, lease)
    peer = Peer(on_request=handler.handle, on_notification=handler.on_notification, limits=messages.LIMITS)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = connect_socket(data_dir, lease.holder_id)
            await asyncio.get_running_loop().create_unix_connection(
                lambda: SocketTransport(peer), sock=connection
            )
            capabilities = door.capabilities
            params = messages.AttachParams(
                version=messages.PROTOCOL_VERSION,
                session_id=lease.session_id,
                door=request.door,
                after=request.after,
                may_answer=request.may_answer,
                permission=capabilities.permission,
                elicitation=capabilities.elicitation,
                elicitation_url=capabilities.elicitation_url,
                trust=request.trust,
                roots=request.roots,
            )
            raw = await peer.request(messages.ATTACH, params)
    except (OSError, TimeoutError):
        await peer.close()
        raise session_held(lease) from None
    except PeerError as error:
        await peer.close()
        raise messages.from_wire_error(error) from None
    except HoldfastError as error:
        await peer.close()
        if error.code in (codes.CONNECTION_CLOSED, codes.TIMEOUT):
            raise session_held(lease) from None
        raise
    except BaseException:
        await peer.close()
        raise
    try:
        yield RemoteSession(peer, handler, msgspec.json.decode(raw, type=messages.AttachResult))
    finally:
        await peer.close()


class _Handler:
    """Answers the requests of the session's owner: passes events to `on_events`, and questions to the door."""

    def __init__(self, door: Door, on_events: OnEvents, lease: Lease) -> None:
        self._door = door
        self._on_events = on_events
        self.owner = lease.owner
        self.end_reason = f"The session was open in {lease.owner}, which has ended."
        self.is_session_closed = False
        self.last_seq = 0
        """The number of the last event that `on_events` has handled."""
        self.changes: dict[str, tuple[int, str]] = {}
        """The fields of the session's description that events have changed: the number of the event, and the value."""
        self.handled = asyncio.Event()
        """Set each time `on_events` has handled more events."""

    def on_notification(self, notification: Notification) -> None:
        if notification.method == messages.END:
            end = messages.decode_params(notification, messages.EndParams)
            self.end_reason, self.is_session_closed = end.reason, end.is_session_closed

    def _note_changes(self, events: Sequence[StoredEvent]) -> None:
        for stored in events:
            match stored.event:
                case ModeChanged(mode=mode):
                    self.changes["mode"] = (stored.seq, mode)
                case TrustLowered(trust_level=trust):
                    self.changes["trust"] = (stored.seq, trust)
                case _:
                    pass

    async def handle(self, request: Request) -> Any:
        try:
            return await self._answer(request)
        except HoldfastError as error:
            raise messages.to_wire_error(error) from error

    async def _answer(self, request: Request) -> Any:
        """Handle the session's events, or ask the user a question."""
        match request.method:
            case messages.EVENTS:
                params = messages.decode_params(request, messages.EventsParams)
                events = [messages.decode_stored(event) for event in params.events]
                self._note_changes(events)
                await self._on_events(events)
                self.last_seq = params.events[-1].seq if params.events else self.last_seq
                self.handled.set()
                return {}
            case messages.REQUEST_PERMISSION:
                params = messages.decode_params(request, messages.PermissionParams)
                call = ToolCall(
                    call_id=params.call_id,
                    server=params.server,
                    tool=params.tool,
                    arguments=bytes(params.arguments),
                )
                question = PermissionQuestion(
                    call=call,
                    title=params.title,
                    can_remember=params.can_remember,
                    remembers_arguments=params.remembers_arguments,
                    always_scope=params.always_scope,
                    change=params.change,
                )
                decision = await self._door.request_permission(question)
                return messages.PermissionResult(decision=decision)
            case messages.ELICIT:
                return await self._door.elicit(messages.decode_params(request, dict[str, Any]))
            case method:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r}.")
