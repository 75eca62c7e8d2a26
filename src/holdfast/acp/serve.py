"""Serves one editor on standard input and output until it disconnects."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.acp.initialize import INITIALIZE, Initialization
from holdfast.acp.messages import SessionIdParams
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.trust import Trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.settings import Settings
from holdfast.wire.incoming_requests import ACP_CANCEL
from holdfast.wire.messages import Notification, PeerError, Request
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_stdio

if TYPE_CHECKING:
    from holdfast.acp.methods import SessionMethods
    from holdfast.agent.agent import Agent

_GRACE_SECONDS = 2.0
"""After the editor disconnects: how long turns may continue, and then how long their last updates may take."""
# How often threads hand over the GIL. With the default of 5 ms, the store's thread mostly waits for the GIL.
_SWITCH_SECONDS = 0.0002
_ACP_FIELD_NAMES = {"session_id": "sessionId"}
_ACP_HINTS = {
    codes.BAD_ARGUMENT: "Correct the params that the message names, and send the request again.",
    codes.CONNECTION_CLOSED: "If the message names a cause, correct it. Then send the request again.",
}
"""The hints of these codes for editors. Their general hints are about tool calls."""
_MAX_ID_LENGTH = 256


class SessionDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line sets for every session."""

    trust: Trust | None = None
    workspace: str = ""
    user_id: str | None = None
    model: str = ""


def _do_nothing() -> None:
    pass


async def serve(
    settings: Settings,
    defaults: SessionDefaults,
    make_agent: "Callable[[], Agent] | None" = None,
    *,
    on_end: Callable[[], None] = _do_nothing,
) -> None:
    """Serve the editor until the end of input, SIGTERM, SIGINT or SIGHUP. Without `make_agent`, a `ModelAgent` answers.

    `on_end` is called when the connection begins to close.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, SIGHUP stays ignored
            loop.add_signal_handler(number, signalled.set)
    async with AsyncExitStack() as stack:
        connection = _EditorConnection(settings, defaults, make_agent, stack)
        connection.peer = Peer(
            on_request=connection.handle,
            on_notification=connection.on_notification,
            cancel_method=ACP_CANCEL,
            limits=settings.wire,
            answers_malformed=True,
        )
        async with connect_stdio(connection.peer, grace=_GRACE_SECONDS):
            signal_task = asyncio.create_task(signalled.wait())
            await _wait_unless_signalled(connection.peer.ended.wait(), signal_task)
            on_end()
            # Answer the requests that arrived before the editor disconnected, unless a signal arrives.
            await _wait_unless_signalled(connection.peer.wait_idle(), signal_task, timeout=_GRACE_SECONDS)
            stopping = asyncio.create_task(connection.stop())
            await asyncio.wait([stopping], timeout=_GRACE_SECONDS)
            signal_task.cancel()
        await stopping


async def _wait_unless_signalled(
    condition: Coroutine[Any, Any, Any], signal_task: asyncio.Task[Any], timeout: float | None = None
) -> None:
    waiting = asyncio.create_task(condition)
    await asyncio.wait((waiting, signal_task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


class _EditorConnection:
    """The connection to the editor. It answers `initialize` at once, and loads everything else in the background."""

    def __init__(
        self,
        settings: Settings,
        defaults: SessionDefaults,
        make_agent: "Callable[[], Agent] | None",
        stack: AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._defaults = defaults
        self._make_agent = make_agent
        self._stack = stack
        self._initialization = Initialization()
        self._loading: asyncio.Task[SessionMethods] | None = None
        self._methods: SessionMethods | None = None
        self.peer: Peer

    async def handle(self, request: Request) -> Any:
        try:
            return await self._answer(request)
        except PeerError:  # the editor's own error has ACP's field names already
            raise
        except HoldfastError as error:
            raise editor_error(error, request) from error

    async def _answer(self, request: Request) -> Any:
        if request.method == INITIALIZE:
            response = self._initialization.respond(request)
            self._start_loading()
            return response
        client_params = self._initialization.require_initialized()
        methods = await asyncio.shield(self._start_loading())
        return await methods.handle(request, client_params)

    def _start_loading(self) -> "asyncio.Task[SessionMethods]":
        loading = self._loading
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loading = asyncio.create_task(self._open_host())
        return loading

    def on_notification(self, notification: Notification) -> None:
        """Handle a notification after the requests that arrived before it, even if these wait until the methods are loaded."""
        if self._methods is not None:
            self._methods.on_notification(notification)
        else:
            asyncio.get_running_loop().call_soon(self._notify_later, notification)

    def _notify_later(self, notification: Notification) -> None:
        # The requests that arrived earlier already wait for the loading task, so their callbacks run first.
        def notify(_: object) -> None:
            if self._methods is not None:
                self._methods.on_notification(notification)

        if self._loading is not None:
            self._loading.add_done_callback(notify)

    async def stop(self) -> None:
        """Stop every session."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
        if self._methods is not None:
            await self._methods.stop()

    async def _open_host(self) -> "SessionMethods":
        session_methods, host_class = await WorkerThreads("import", threads=1).run(_import_classes)
        agent = self._make_agent() if self._make_agent is not None else None
        host = await self._stack.enter_async_context(host_class(settings=self._settings, agent=agent))
        self._methods = session_methods(host, self._defaults, self.peer)
        return self._methods


def _import_classes() -> "tuple[type[SessionMethods], Any]":
    """Import the classes that take a while to load. `initialize` does not need them."""
    from holdfast.acp.methods import SessionMethods
    from holdfast.host.host import Host

    return SessionMethods, Host


def editor_error(error: HoldfastError, request: Request) -> HoldfastError:
    """Return the error with ACP's field names, a hint, and the id of the requested session."""
    details = {_ACP_FIELD_NAMES.get(key, key): value for key, value in error.details.items()}
    hint = _ACP_HINTS.get(error.code, error.hint)
    return HoldfastError(
        error.code, error.message, **{"hint": hint, **_requested_session(request), **details}
    )


def _requested_session(request: Request) -> JsonObject:
    with suppress(msgspec.MsgspecError):
        return {
            "sessionId": msgspec.json.decode(request.params, type=SessionIdParams).session_id[:_MAX_ID_LENGTH]
        }
    return {}
