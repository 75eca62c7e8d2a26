"""Serves one editor on standard input and output until it disconnects."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.acp.initialize import INITIALIZE, Initialization
from holdfast.acp.messages import SessionIdParams
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.trust import Trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.settings import Settings
from holdfast.wire.frame import Notification, Request
from holdfast.wire.peer import ACP_CANCEL, Peer, PeerError
from holdfast.wire.pipe import connect_stdio

if TYPE_CHECKING:
    from holdfast.acp.methods import SessionMethods
    from holdfast.agent.agent import Agent

_GRACE_SECONDS = 2.0
"""How long turns may go on after the editor has disconnected, and how long the output then stays open for their end."""
# The store's thread needs the interpreter lock for a moment between its statements. With the default switch interval of 5 ms
# it mostly waits for the lock instead of working in parallel: 90,000 durable updates/s, against 115,000 with this interval.
_SWITCH_SECONDS = 0.0002
_ACP_FIELD_NAMES = {"session_id": "sessionId"}
_MAX_ID_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDefaults:
    """The defaults of every session: the trust and the workspace from the command line."""

    trust: Trust | None = None
    workspace: str = ""


async def serve(
    settings: Settings, defaults: SessionDefaults, agent: "Callable[[], Agent] | None" = None
) -> None:
    """Serve the editor until the end of input, SIGTERM, SIGINT or SIGHUP.

    When this returns, every MCP server is closed and every event is on disk.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, SIGHUP stays ignored
            loop.add_signal_handler(number, signalled.set)
    async with AsyncExitStack() as stack:
        connection = _EditorConnection(settings, defaults, agent, stack)
        connection.peer = Peer(
            on_request=connection.handle,
            on_notification=connection.on_notification,
            cancel_method=ACP_CANCEL,
            limits=settings.wire,
            answers_malformed=True,
        )
        async with connect_stdio(connection.peer, grace=_GRACE_SECONDS):
            signal_task = asyncio.create_task(signalled.wait())
            await _wait_first(asyncio.create_task(connection.peer.ended.wait()), signal_task)
            # Requests from before the disconnect are still answered, unless a signal arrives.
            await _wait_first(asyncio.create_task(connection.idle()), signal_task, timeout=_GRACE_SECONDS)
            stopping = asyncio.create_task(connection.stop())
            await asyncio.wait([stopping], timeout=_GRACE_SECONDS)
            signal_task.cancel()
        await stopping


async def _wait_first(*tasks: asyncio.Task[Any], timeout: float | None = None) -> None:
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    tasks[0].cancel()


class _EditorConnection:
    """The connection to the editor. Answers `initialize` at once, and loads everything else in the background."""

    def __init__(
        self,
        settings: Settings,
        defaults: SessionDefaults,
        agent: "Callable[[], Agent] | None",
        stack: AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._defaults = defaults
        self._agent = agent
        self._stack = stack
        self._initialization = Initialization()
        self._loading: asyncio.Task[SessionMethods] | None = None
        self._methods: SessionMethods | None = None
        self.peer: Peer

    async def handle(self, request: Request) -> Any:
        """Answer one request."""
        try:
            return await self._answer(request)
        except PeerError:  # an error response of the editor
            raise
        except HoldfastError as error:
            raise editor_error(error, request) from error

    async def _answer(self, request: Request) -> Any:
        if request.method == INITIALIZE:
            response = self._initialization.respond(request)
            self._start_loading()
            return response
        client = self._initialization.check(request)
        methods = await asyncio.shield(self._start_loading())
        return await methods.handle(request, client)

    def _start_loading(self) -> "asyncio.Task[SessionMethods]":
        """Start loading the session methods unless that has begun. If it failed (on a full disk, say), try again."""
        loading = self._loading
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loading = asyncio.create_task(self._load_methods())
        return loading

    def on_notification(self, notification: Notification) -> None:
        """Handle a notification. While the methods are loading, it waits, after the requests that came before it."""
        if self._methods is not None:
            self._methods.on_notification(notification)
        else:
            asyncio.get_running_loop().call_soon(self._notify_later, notification)

    def _notify_later(self, notification: Notification) -> None:
        # By now the earlier requests wait for the same task, and their callbacks run first.
        def notify(_: object) -> None:
            if self._methods is not None:
                self._methods.on_notification(notification)

        if self._loading is not None:
            self._loading.add_done_callback(notify)

    async def idle(self) -> None:
        """Wait until every request is answered."""
        await self.peer.wait_idle()

    async def stop(self) -> None:
        """Cancel every turn. The end of each is stored and sent."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
        if self._methods is not None:
            await self._methods.stop()

    async def _load_methods(self) -> "SessionMethods":
        """Open the host; the stack closes it."""
        session_methods, host_class = await WorkerThreads("import", threads=1).run(_import_classes)
        host = await self._stack.enter_async_context(host_class(settings=self._settings))
        self._methods = session_methods(host, (self._agent or _manual_agent)(), self._defaults, self.peer)
        return self._methods


def _import_classes() -> "tuple[type[SessionMethods], Any]":
    """Import the classes that `initialize` does not need: they take a while to load."""
    from holdfast.acp.methods import SessionMethods
    from holdfast.host.host import Host

    return SessionMethods, Host


def _manual_agent() -> "Agent":
    from holdfast.agent.manual import ManualAgent

    return ManualAgent()


def editor_error(error: HoldfastError, request: Request) -> HoldfastError:
    """The error with ACP's field names, a hint, and the session that the request named."""
    details = {_ACP_FIELD_NAMES.get(key, key): value for key, value in error.details.items()}
    return HoldfastError(
        error.code, error.message, **{"hint": error.code.hint, **_requested_session(request), **details}
    )


def _requested_session(request: Request) -> JsonObject:
    with suppress(msgspec.MsgspecError):
        return {
            "sessionId": msgspec.json.decode(request.params, type=SessionIdParams).session_id[:_MAX_ID_LENGTH]
        }
    return {}
