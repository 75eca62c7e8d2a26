"""Attach to a session that another process has open, through that process's socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.host.describe_session import Description
from holdfast.host.remote import messages
from holdfast.host.remote.sockets import connect_socket
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.session.turns import TurnResult
from holdfast.store.lease import session_held
from holdfast.store.types import Lease, StoredEvent
from holdfast.wire.frame import Request
from holdfast.wire.peer import Peer
from holdfast.wire.socket import SocketTransport

_CONNECT_SECONDS = 5.0

OnEvents = Callable[[Sequence[StoredEvent]], Awaitable[None]]
"""Gets the session's events, in order. The next ones arrive after it has returned."""


class RemoteSession:
    """A session of another process, as seen by a process that is attached to it."""

    def __init__(self, peer: Peer, handler: "_Handler", attached: messages.AttachResult) -> None:
        self._peer = peer
        self._handler = handler
        self.last_seq = attached.last_seq
        """The number of the session's last event when this process attached to it."""
        self.description = attached.description

    @property
    def closed(self) -> asyncio.Event:
        """Set when the session or its process has ended."""
        return self._peer.ended

    async def wait_shown(self, seq: int) -> None:
        """Wait until `on_events` has handled every event up to this number, or the connection has ended."""
        ended = asyncio.create_task(self._peer.ended.wait())
        try:
            while self._handler.last_seq < seq and not ended.done():
                self._handler.changed.clear()
                changed = asyncio.create_task(self._handler.changed.wait())
                await asyncio.wait([changed, ended], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            ended.cancel()

    async def prompt(self, blocks: Sequence[JsonObject]) -> TurnResult:
        """Run one turn. Returns when `on_events` has handled all of its events."""
        params = messages.PromptParams(blocks=tuple(blocks))
        raw = await self._peer.request(messages.PROMPT, params)
        result = msgspec.json.decode(raw, type=messages.PromptResult)
        return TurnResult(reason=StopReason(result.stop_reason), last_seq=result.last_seq)

    async def cancel(self) -> None:
        """Cancel the running turn, and the prompts of this process that wait."""
        await self._peer.request(messages.CANCEL)

    async def change_mode(self, mode: Mode) -> None:
        """Use another mode from now on."""
        await self._peer.request(messages.SET_MODE, messages.ModeParams(mode=mode))

    async def describe(self) -> Description:
        """Ask for the session's current description."""
        self.description = msgspec.json.decode(await self._peer.request(messages.DESCRIBE), type=Description)
        return self.description


@asynccontextmanager
async def attach_to_owner(
    data_dir: Path,
    lease: Lease,
    *,
    door: Door,
    on_events: OnEvents,
    after: int = 0,
    may_answer: bool = True,
) -> AsyncIterator[RemoteSession]:
    """Attach to the session of this lease, for the length of the block. Raises SESSION_HELD if its owner does not answer."""
    handler = _Handler(door, on_events)
    peer = Peer(on_request=handler.handle)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            connection = connect_socket(data_dir, lease.holder)
            await asyncio.get_running_loop().create_unix_connection(
                lambda: SocketTransport(peer), sock=connection
            )
            capabilities = door.capabilities
            params = messages.AttachParams(
                version=messages.PROTOCOL_VERSION,
                session_id=lease.session_id,
                after=after,
                may_answer=may_answer,
                permission=capabilities.permission,
                elicitation=capabilities.elicitation,
            )
            raw = await peer.request(messages.ATTACH, params)
    except (OSError, TimeoutError):
        await peer.close()
        raise session_held(lease) from None
    except HoldfastError as error:
        await peer.close()
        if error.code in (codes.CONNECTION_CLOSED, codes.TIMEOUT):
            raise session_held(lease) from None
        raise
    try:
        yield RemoteSession(peer, handler, msgspec.json.decode(raw, type=messages.AttachResult))
    finally:
        await peer.close()


class _Handler:
    """Answers the host's requests: shows events, and asks the user."""

    def __init__(self, door: Door, on_events: OnEvents) -> None:
        self._door = door
        self._on_events = on_events
        self.last_seq = 0
        """The number of the last event that `on_events` has handled."""
        self.changed = asyncio.Event()
        """Set when it has handled more."""

    async def handle(self, request: Request) -> Any:
        match request.method:
            case messages.EVENTS:
                params = messages.decode_params(request, messages.EventsParams)
                await self._on_events([messages.decode_stored(event) for event in params.events])
                self.last_seq = params.events[-1].seq if params.events else self.last_seq
                self.changed.set()
                return {}
            case messages.REQUEST_PERMISSION:
                params = messages.decode_params(request, messages.PermissionParams)
                call = ToolCall(
                    call_id=params.call_id,
                    server=params.server,
                    tool=params.tool,
                    arguments=bytes(params.arguments),
                )
                decision = await self._door.request_permission(call, params.title)
                return messages.PermissionResult(decision=decision)
            case messages.ELICIT:
                return await self._door.elicit(messages.decode_params(request, dict[str, Any]))
            case method:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r}.")
