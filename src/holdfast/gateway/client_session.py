"""One client's session: the Holdfast session that was opened for it, and the client as the servers of that session see it."""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.gateway.capabilities import capabilities_for_servers
from holdfast.gateway.client_call import ClientCall, current_call
from holdfast.gateway.credential import Credential
from holdfast.gateway.log_levels import LogLevels, is_at_least, with_server_name
from holdfast.gateway.logins import Logins
from holdfast.gateway.notification_queue import NotificationQueue
from holdfast.gateway.options import GatewayOptions, SessionSummary, why_not_opened
from holdfast.gateway.own_meta import without_own_meta
from holdfast.gateway.parked_calls import ParkedCalls
from holdfast.gateway.permission_door import PermissionDoor, how_to_answer, how_to_stop_asking
from holdfast.gateway.resource_watches import ResourceWatches
from holdfast.gateway.session_memory import SessionMemory
from holdfast.gateway.subscriptions import Subscriptions
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.allowlist import Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.light_event import LightEvent
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.server import ServerSpec
from holdfast.resolve.select import Restriction
from holdfast.session.session import Session
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS, CallerQuota
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import BackChannel, ClientInfo
from holdfast.wire.messages import Id, Notification, Raw

log = logging.getLogger(__name__)

_READY_SECONDS = 20.0  # how long the first answer waits for servers that start slowly


class ClientSession:
    """The session of one handshake-era client, or of the modern clients that share a credential or a handle.

    The requests and notifications of its servers go to the client.
    """

    def __init__(
        self,
        host: Host,
        credential: Credential,
        options: GatewayOptions,
        client_info: ClientInfo,
        key: str,
        memory: SessionMemory | None = None,
    ) -> None:
        """`memory` counts the bytes that this session takes, in the quota of its credential; by default, in a quota of its own."""
        self.key = key
        """The `Mcp-Session-Id`, the handle, or an internal key. It is valid for this credential only."""
        self.credential = credential
        self.client_info = client_info
        self.era = client_info.era
        self.options = options
        self.last_used = time.monotonic()
        self.is_used = False
        """Whether the client has sent a request other than `initialize` and `ping`."""
        self.running: dict[Id, Callable[[], None]] = {}
        """The requests in flight of a handshake-era client, each with the function that cancels it."""
        self.memory = memory or _own_memory(options)
        """Counts the bytes that the session takes."""
        self.parked = ParkedCalls(self.refuse, self.memory)
        self.subscriptions = Subscriptions(self.refuse)
        self.watches = ResourceWatches(self.subscriptions, self.memory)
        self.log_levels = LogLevels(client_info.era)
        self.back_channel: BackChannel | None = None
        """How to reach a handshake-era client outside of its requests."""
        self.announced_lists: frozenset[str] = frozenset()
        """The lists whose changes the client was told to expect."""
        self.on_list_changed: Callable[[str], None] = lambda _: None
        """Called with the name of a list, `prompts` or `resources`, that a server has changed."""
        self.open_streams = 0
        """How many streams the client has open."""
        self.ended = LightEvent()
        self.logins = Logins(host, credential)
        self._host = host
        self._session: Session | None = None
        self._opening: asyncio.Task[Session] | None = None
        self._calls: dict[ClientCall, None] = {}
        """The requests in flight, the newest last."""
        self._pushed = NotificationQueue(self._send_push)
        self._pushed.memory = self.memory

    # The Holdfast session

    async def session(self) -> Session:
        """The Holdfast session. It is opened by the first request."""
        if self._session is not None:
            return self._session
        if self.ended.is_set():
            raise HoldfastError(codes.SCOPE_CLOSED, "The session has ended.")
        if self._opening is None:
            # In a context of its own: the links to the servers must not belong to the request that opens them.
            self._opening = asyncio.create_task(self._open(), context=contextvars.Context())
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled() and self.ended.is_set():
                raise HoldfastError(codes.SCOPE_CLOSED, "The session has ended.") from None
            raise
        finally:
            if opening.done() and self._session is None:
                self._opening = None  # opening failed: the next request tries again

    @property
    def is_busy(self) -> bool:
        """Whether the session is in use, so that it does not expire."""
        return bool(self.running or self._calls or self.open_streams or self.parked)

    @property
    def is_lost(self) -> bool:
        """Whether something other than the gateway closed the Holdfast session, such as an operator."""
        return self._session is not None and self._session.is_closing and not self.ended.is_set()

    def touch(self) -> None:
        """Restart the idle time."""
        self.last_used = time.monotonic()

    def describe(self, ended: str = "") -> SessionSummary:
        """The session as an operator sees it. `ended`: why it has ended; empty if it is open."""
        session, client = self._session, self.client_info.implementation
        return SessionSummary(
            session_id=session.context.session_id if session is not None else "",
            credential=self.credential,
            era=self.client_info.era,
            client=f"{client.name} {client.version}".strip()[:120],
            servers=session.available if session is not None else (),
            ended=ended,
        )

    async def close(self, reason: str) -> None:
        """End the session, with its own servers, its streams and its waiting requests."""
        if self.ended.is_set():
            return
        self.ended.set()
        self.subscriptions.close()
        self.watches.close()
        self.parked.close()
        self._pushed.close()
        self.memory.close()
        for cancel in list(self.running.values()):
            cancel()
        opening = self._opening
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
        summary = self.describe(reason)
        if self._session is not None:
            await self._session.close(reason)
        self.options.on_change(summary)

    async def _open(self) -> Session:
        """Open the Holdfast session, with what the credential allows."""
        credential, options = self.credential, self.options
        session = await self._host.open(
            OpenOptions(
                cwd=self._folder(),
                workspace=credential.workspace,
                trust=credential.trust,
                mode=credential.mode or Mode.ASK,
                user_id=credential.user_id,
                quota_owner=credential.id,
                restrictions=(
                    Restriction(
                        imposed_by="the client's token",
                        servers=Allowlist(credential.servers),
                        patterns=credential.tools,
                        is_stored=True,
                    ),
                ),
                builtins=options.builtins,
                opened_by=DoorKind.GATEWAY,
                keep=options.keep,
                door=PermissionDoor(),
                relay=self,
            )
        )
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await session.wait_ready_and_store()
        except TimeoutError:
            log.info("some servers are still starting", extra={"servers": ", ".join(session.starting)})
        except BaseException as error:
            await session.close(why_not_opened(error))
            raise
        self._session = session
        session.permission.how_to_answer = how_to_answer(session.context.session_id)
        session.permission.how_to_stop_asking = how_to_stop_asking(credential)
        session.on_tools_listed(self._on_tools_listed)
        self.options.on_change(self.describe())
        return session

    def _folder(self) -> str:
        if self.credential.cwd:
            return self.credential.cwd
        workspace = self._host.registry.find(self.credential.workspace) if self.credential.workspace else None
        return workspace.path if workspace is not None else str(self.options.cwd or Path.cwd())

    # Requests in flight

    def refuse(self, error: HoldfastError) -> HoldfastError:
        """Report that a request is refused because of a limit or a state that is not valid. Return the error, to be raised."""
        self.options.on_refusal(error, self.credential)
        return error

    def begin_call(self, call: ClientCall) -> None:
        """Count a request as in flight. A session with such a request is busy, so it does not expire."""
        call.memory = self.memory
        self._calls[call] = None
        self.is_used = True

    def end_call(self, call: ClientCall) -> None:
        """Count a request as answered."""
        self._calls.pop(call, None)
        self.touch()

    def _newest_call(self, server: str) -> ClientCall | None:
        """The newest request in flight that was sent to this server, or else the newest of all."""
        newest: ClientCall | None = None
        for call in reversed(self._calls):
            if call.server == server:
                return call
            newest = newest or call
        return newest

    def _call_to_ask_on(self, server: str) -> ClientCall | None:
        """The newest request in flight that was sent to this server, or else the newest one that waits for servers to start.

        A request to another server is not used: a question would interrupt it.
        """
        waiting: ClientCall | None = None
        for call in reversed(self._calls):
            if call.server == server:
                return call
            if not call.server:
                waiting = waiting or call
        return waiting

    # The client, as the session's servers see it

    @property
    def capabilities(self) -> JsonObject:
        return capabilities_for_servers(self.client_info.capabilities)

    @property
    def is_limited_to_folder(self) -> bool:
        return bool(self.credential.cwd or self.credential.workspace)

    async def ask(self, server: ServerSpec, method: str, params: Raw) -> Raw:
        """Send a server's request on the stream of the call that it belongs to, or else outside of calls."""
        if not self.memory.try_add(len(params)):
            raise HoldfastError(
                codes.BUSY, "The memory for requests to this client is used up. Ask again later."
            )
        try:
            return await self._ask(server, method, params)
        finally:
            self.memory.remove(len(params))

    async def _ask(self, server: ServerSpec, method: str, params: Raw) -> Raw:
        call = current_call.get()
        if call is None or call.is_done:
            call = self._call_to_ask_on(server.name)
        if call is not None:
            return await call.ask(method, params, is_own=False)
        if self.back_channel is None:
            raise HoldfastError(
                codes.UNSUPPORTED_BY_CLIENT, f"The client has no request in flight that {method} belongs to."
            )
        return await self.back_channel.ask(method, params)

    def notify(self, server: ServerSpec, notification: Notification) -> None:
        """Pass on a server's notification, if it is of a kind that this client gets."""
        cleaned = without_own_meta(notification.params)
        if cleaned is None:
            return
        notification = msgspec.structs.replace(notification, params=cleaned)
        match notification.method:
            case "notifications/message":
                self._log(server.name, notification)
            case "notifications/subscriptions/acknowledged":
                self.subscriptions.set_acknowledged(server.name)
            case "notifications/resources/updated":
                if self.era is Era.MODERN:
                    self.subscriptions.resource_updated(notification.params)
                else:
                    self._push(notification.method, notification.params)
            case "notifications/prompts/list_changed" | "notifications/resources/list_changed":
                name = notification.method.split("/")[1]
                self.on_list_changed(name)
                self._list_changed(name)
            case "notifications/elicitation/complete":
                self._push(notification.method, notification.params)
            case _:
                # Progress reaches the client through `on_progress`. If notifications were passed on as they are, a server could
                # report progress for another server's call, or cancel another server's questions.
                log.debug("notification of a server dropped", extra={"server": server.name})

    def _log(self, server: str, notification: Notification) -> None:
        """Send a server's log message to the client, if the client wants messages of its level."""
        if self._session is not None and len(self._session.servers) > 1:
            # A server chooses the name of its logger: it must not pose as another server.
            notification = msgspec.structs.replace(
                notification, params=with_server_name(notification.params, server)
            )
        call = self._newest_call(server)
        if self.era is Era.HANDSHAKE:
            if call is not None:
                call.notify(notification.method, notification.params)
            else:
                self._push(notification.method, notification.params)
        elif call is not None and is_at_least(notification.params, call.log_level):
            call.notify(notification.method, notification.params)

    def servers_changed(self) -> None:
        """Tell the client that every list in `announced_lists` may have changed, because the session's servers have changed."""
        for name in self.announced_lists:
            self._list_changed(name)

    def _on_tools_listed(self) -> None:
        self.log_levels.forget_sent()
        self._list_changed("tools")

    def _list_changed(self, name: str) -> None:
        if self.era is Era.MODERN:
            self.subscriptions.list_changed(name)
        else:
            self._push(f"notifications/{name}/list_changed", Raw(b"{}"))

    def _push(self, method: str, params: Raw) -> None:
        """Send a handshake-era client a notification outside of its requests."""
        channel = self.back_channel
        if channel is not None and channel.push is not None and not self.ended.is_set():
            self._pushed.add(method, params)

    async def _send_push(self, method: str, params: Raw) -> None:
        if self.back_channel is None or self.back_channel.push is None:
            return
        try:
            await self.back_channel.push(method, params)
        except Exception as error:
            log.debug("notification not delivered", extra={"reason": str(error)})


def _own_memory(options: GatewayOptions) -> SessionMemory:
    limits = options.http_limits or DEFAULT_HTTP_LIMITS
    share = limits.kept_memory_per_caller
    return SessionMemory(CallerQuota(total=share, share=share), "")
