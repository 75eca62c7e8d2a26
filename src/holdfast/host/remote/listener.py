"""Lets other processes of the same user attach to a host's live sessions."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from holdfast.host.describe_session import SessionDescription, describe_session
from holdfast.host.join import check_join, lower_mode_for
from holdfast.host.remote import messages
from holdfast.host.remote.sockets import open_listening_socket, peer_uid, remove_socket
from holdfast.masking.mask import Mask
from holdfast.masking.prompts import mask_prompt
from holdfast.model import codes
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import Json, JsonObject
from holdfast.model.permission import DoorKind, require_mode
from holdfast.model.trust import Trust, parse_trust
from holdfast.session.attachment import Attachment
from holdfast.session.session import Session
from holdfast.session.subscription import Subscription
from holdfast.store.types import StoredEvent
from holdfast.wire.messages import PeerError, Raw, Request
from holdfast.wire.peer import Peer
from holdfast.wire.socket import SocketTransport

log = logging.getLogger(__name__)

_MAX_CLIENTS = 64
_ATTACH_SECONDS = 5.0
"""How soon a process that connects must attach to a session. Otherwise it is disconnected, so that another one can connect."""
_END_SECONDS = 1.0
"""How long the last messages to a client may take if it does not read."""


class SessionListener:
    """Listens on a socket of its own. Each connection is attached to one session."""

    def __init__(self, data_dir: Path, name: str, find: Callable[[str], Session | None]) -> None:
        self._data_dir = data_dir
        self._name = name
        self._find = find
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
        client = _Client(self._find, self._clients.discard)
        self._clients.add(client)
        return _CheckedConnection(client.peer, is_full=len(self._clients) > _MAX_CLIENTS)


class _CheckedConnection(SocketTransport):
    """The protocol of an accepted connection. Closes the connection at once if it comes from another user, or if there are too many."""

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
            # uvloop's transports are not subclasses of WriteTransport.
            cast("asyncio.WriteTransport", transport).abort()
        super().connection_made(transport)


class _Client:
    """A connected process, which attaches to one of the host's sessions."""

    def __init__(self, find: Callable[[str], Session | None], on_close: "Callable[[_Client], None]") -> None:
        self._find = find
        self._attached: _Attached | None = None
        self._sending: asyncio.Task[None] | None = None
        self._turns: set[asyncio.Task[messages.PromptResult]] = set()
        self._unstarted: list[_UnstartedPrompt] = []
        self.peer = Peer(on_request=self._handle, limits=messages.LIMITS)
        self._closing = asyncio.create_task(self._close_at_end(on_close))
        self._attach_timer = asyncio.get_running_loop().call_later(_ATTACH_SECONDS, self.peer.ended.set)

    async def close(self) -> None:
        """End the connection. If its session is closed, the last events are sent first."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=_END_SECONDS)
        await self.peer.close()
        await asyncio.wait([self._closing])

    async def _close_at_end(self, on_close: "Callable[[_Client], None]") -> None:
        """Wait until the connection ends, then detach the door. If no other door may answer and the opener has left, close the session."""
        try:
            await self.peer.ended.wait()
        finally:
            self._attach_timer.cancel()
            attached = self._attached
            # Whether no door is left that may answer.
            is_last = attached is not None and not attached.attachment.detach()
            if self._sending is not None:
                self._sending.cancel()
                await asyncio.wait([self._sending])
            await self.peer.close()
            on_close(self)
            if attached is not None and is_last and attached.session.opener_has_left:
                await attached.session.close()

    async def _handle(self, request: Request) -> Any:
        try:
            return await self._answer(request)
        except HoldfastError as error:
            raise messages.to_wire_error(error) from error

    async def _answer(self, request: Request) -> Any:
        if request.method == messages.ATTACH:
            return await self._attach(messages.decode_params(request, messages.AttachParams))
        attached = self._attached
        if attached is None:
            raise HoldfastError(codes.BAD_ARGUMENT, "Send attach first.")
        if not attached.attachment.may_answer and request.method != messages.DESCRIBE:
            raise HoldfastError(codes.NOT_GRANTED, "This process only watches the session.")
        match request.method:
            case messages.PROMPT:
                return await self._prompt(attached, messages.decode_params(request, messages.PromptParams))
            case messages.CANCEL:
                for prompt in self._unstarted:
                    prompt.is_cancelled = True
                attached.attachment.cancel()
                return {}
            case messages.SET_MODE:
                mode = messages.decode_params(request, messages.ModeParams).mode
                await attached.session.permission.change_mode(require_mode(mode), attached.kind)
                await attached.wait_handled()
                return {}
            case messages.LOWER_TRUST:
                await attached.session.lower_trust()
                await attached.wait_handled()
                return {}
            case messages.DESCRIBE:
                params = messages.decode_params(request, messages.DescribeParams)
                return await _describe(attached.session, params.wait_seconds)
            case method:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r}.")

    async def _attach(self, params: messages.AttachParams) -> messages.AttachResult:
        """Attach to a session, and start to send its events."""
        if params.version != messages.PROTOCOL_VERSION:
            raise HoldfastError(
                codes.SESSION_HELD,
                "The session's owner runs another version of Holdfast. Use the same version in both.",
            )
        if self._attached is not None:
            raise HoldfastError(codes.BAD_ARGUMENT, "This connection is already attached to a session.")
        session = self._find(params.session_id)
        if session is None:
            raise HoldfastError(
                codes.UNKNOWN_SESSION, f"The session {params.session_id[:80]!r} is not open here."
            )
        kind, rules = _parse_kind(params.door), session.permission.rules
        trust = Trust.DIRECT if params.trust is None else parse_trust(params.trust)
        check_join(session, trust=trust, roots=params.roots)
        door = _SocketDoor(self.peer, params)
        attachment = session.attach(door, may_answer=params.may_answer, kind=kind)
        self._attach_timer.cancel()
        last_seq = session.record.events.last
        subscription = attachment.subscribe(last_seq if params.after is None else min(params.after, last_seq))
        self._attached = _Attached(session, kind, attachment, subscription)
        if params.may_answer:
            await lower_mode_for(session, kind, rules)
        self._sending = asyncio.create_task(self._send_events(subscription))
        return messages.AttachResult(
            version=messages.PROTOCOL_VERSION,
            last_seq=last_seq,
            max_mode=rules.max_mode_of(kind),
            description=describe_session(session),
        )

    async def _prompt(self, attached: "_Attached", params: messages.PromptParams) -> messages.PromptResult:
        prompt = _UnstartedPrompt(is_cancelled=params.is_cancelled)
        self._unstarted.append(prompt)
        # The turn goes on if the client leaves.
        turn = asyncio.create_task(self._run_turn(attached, params, prompt))
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)
        return await asyncio.shield(turn)

    async def _run_turn(
        self, attached: "_Attached", params: messages.PromptParams, prompt: "_UnstartedPrompt"
    ) -> messages.PromptResult:
        self._unstarted.remove(prompt)
        result = await attached.attachment.prompt(params.blocks, is_cancelled=prompt.is_cancelled)
        await attached.subscription.wait_handled(result.last_seq)
        return messages.PromptResult(
            stop_reason=result.reason,
            last_seq=result.last_seq,
            masked=_mask_text(params.blocks, attached.session.record.mask),
            code=result.code,
            message=result.message,
        )

    async def _send_events(self, subscription: Subscription) -> None:
        """Send every event. The client answers each request when it has handled the events, so a slow client sets the pace."""
        try:
            while batch := await subscription.next_batch():
                for events in _split(batch):
                    await self.peer.request(messages.EVENTS, messages.EventsParams(events=events))
            end = messages.EndParams(reason="The session was closed.", is_session_closed=True)
        except HoldfastError as error:
            log.warning("events are no longer sent", extra={"reason": error.message})
            end = messages.EndParams(reason=error.message)
        except Exception:
            log.exception("events are no longer sent")
            end = messages.EndParams(reason="Internal error in Holdfast; see its log.")
        finally:
            subscription.close()  # so that nothing waits for this client to handle events
        if not self.peer.ended.is_set():
            with suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self.peer.notify(messages.END, end)
        # The session is closed, or the client is gone.
        asyncio.get_running_loop().call_soon(self.peer.ended.set)


@dataclass(frozen=True, slots=True)
class _Attached:
    """What a client is attached to."""

    session: Session
    kind: DoorKind
    attachment: Attachment
    subscription: Subscription

    async def wait_handled(self) -> None:
        """Wait until the client has handled every event that is stored now."""
        await self.subscription.wait_handled(self.session.record.events.last)


@dataclass(slots=True, eq=False)
class _UnstartedPrompt:
    """A prompt that has arrived and is not in the session's queue yet. A `cancel` also cancels such a prompt."""

    is_cancelled: bool


async def _describe(session: Session, wait_seconds: float) -> SessionDescription:
    """Describe the session, after waiting for its servers for at most this long."""
    if wait_seconds > 0 and session.starting:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await session.wait_ready()
    return describe_session(session)


def _mask_text(blocks: Sequence[JsonObject], mask: Mask) -> str:
    """The text of a prompt with the secrets masked; empty if it is long."""
    text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    return mask_prompt(text, mask) if len(text) <= messages.MAX_MASKED_LENGTH else ""


def _parse_kind(text: str) -> DoorKind:
    try:
        return DoorKind(text)
    except ValueError:
        raise HoldfastError(codes.BAD_ARGUMENT, f"There is no kind of door {text[:40]!r}.") from None


def _split(batch: Sequence[StoredEvent]) -> list[tuple[messages.WireEvent, ...]]:
    """Encode a batch, and split it into batches that fit into one message."""
    finished: list[tuple[messages.WireEvent, ...]] = []
    current: list[messages.WireEvent] = []
    size = 0
    for event in map(messages.encode_stored, batch):
        size += len(event.body)
        if current and size > messages.MAX_BATCH_BYTES:
            finished.append(tuple(current))
            current, size = [], len(event.body)
        current.append(event)
    return [*finished, tuple(current)]


class _SocketDoor:
    """The attached process as a door: it asks its user."""

    def __init__(self, peer: Peer, params: messages.AttachParams) -> None:
        self._peer = peer
        self._capabilities = DoorCapabilities(
            permission=params.permission,
            elicitation=params.elicitation,
            elicitation_url=params.elicitation_url,
            name="an attached terminal or editor",
        )

    @property
    def capabilities(self) -> DoorCapabilities:
        return self._capabilities

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        params = messages.PermissionParams(
            call_id=question.call.call_id,
            server=question.call.server,
            tool=question.call.tool,
            arguments=Raw(question.call.arguments),
            title=question.title,
            can_remember=question.can_remember,
            remembers_arguments=question.remembers_arguments,
            always_scope=question.always_scope,
            change=question.change,
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
            raise messages.from_wire_error(error, unknown=codes.CONNECTION_CLOSED) from None

    async def sample(self, params: JsonObject) -> JsonObject:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "An attached process has no model for sampling.")

    async def read_text(self, path: str) -> str:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "An attached process cannot read or write files.")

    async def write_text(self, path: str, text: str) -> None:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "An attached process cannot read or write files.")
