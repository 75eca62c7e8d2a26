"""Holdfast without async, for scripts and notebooks: `from holdfast.sync import Host`.

The event loop runs in a thread of its own, so this also works in a notebook, which has an event loop already.
"""

import asyncio
import atexit
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Self, TypeVar, Unpack

from holdfast.agent.agent import Agent
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.host import host as async_host
from holdfast.host.open_options import SessionOptions
from holdfast.host.server_config import ServerConfigs
from holdfast.model import codes
from holdfast.model.check_loop import OwnProcess, forked_error
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError, advise_about_names
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Refusal, SessionWarning
from holdfast.session import session as async_session
from holdfast.session.callbacks import ProgressCallback
from holdfast.session.turns import TurnResult
from holdfast.settings import Settings
from holdfast.store.store import Store
from holdfast.wire.call_arguments import Arguments

if TYPE_CHECKING:
    from holdfast.tracing import TracerProvider

T = TypeVar("T")


def _advise(other: type, advice: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """A decorator for the class that replaces the async class `other`. A name that only `other` has gets an error that says what to use."""

    def add(kind: type[T]) -> type[T]:
        async_names = [name for name in dir(other) if not name.startswith("_") and hasattr(other, name)]
        only_async = [name for name in async_names if not hasattr(kind, name)]
        default_advice = dict.fromkeys(only_async, "async with holdfast.Host(…), which has it")
        return advise_about_names({**default_advice, **advice})(kind)

    return add


@_advise(
    async_host.Host,
    {
        "run": "host.session(…), or async with holdfast.Host(…), which has it",
        "call": 'session.call("server.tool", {…}), where session is what host.session(…) returns',
    },
)
class Host:
    """Owns sessions. Use it in a `with` block; or call `open` in one cell of a notebook, and `close` in another.

    Every method may be called from any thread. If the host is still open when the application exits, it is closed then.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        servers: ServerConfigs | None = None,
        store: Store | None = None,
        agent: Agent | None = None,
        tracer_provider: "TracerProvider | None" = None,
        **unknown: Never,
    ) -> None:
        """Takes the options of the async `holdfast.Host`, and checks them."""
        self._host = async_host.Host(
            settings=settings,
            servers=servers,
            store=store,
            agent=agent,
            tracer_provider=tracer_provider,
            **unknown,
        )
        self._loop = _LoopThread()
        self._context_task: _ContextTask[async_host.Host] | None = None
        self._sessions: set[Session] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<sync {self._host!r}>"

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker finds these mistakes by itself

        def __aenter__(self) -> NoReturn:
            raise TypeError("This Host is not async. Write: with Host(…) as host:")

        def __aexit__(self, *error: object) -> None:
            """Never called. Python looks it up before it calls `__aenter__`."""

    def open(self) -> Self:
        """Open the host, unless it is open."""
        if self._context_task is None:
            try:
                self._context_task = self._loop.run(_open_in_task(lambda: self._host))
            except BaseException:
                self._loop.stop()
                raise
            atexit.register(self.close)
        return self

    def close(self) -> None:
        """Close all sessions, then the host, even if closing a session fails or is interrupted. If the host is closed, do nothing."""
        task, self._context_task = self._context_task, None
        if task is None:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        if self._loop.was_opened_before_fork:
            return  # the process that opened the host closes it
        # The callbacks run in reverse order, and all of them even if one fails or is interrupted (Ctrl-C).
        with ExitStack() as closing:
            closing.callback(self._loop.stop)
            closing.callback(lambda: self._loop.run(task.close()))
            for session in self._sessions:
                closing.callback(session.close)

    def session(self, **options: Unpack[SessionOptions]) -> "Session":
        """Open a session: its servers are available when this returns. Close it with `close`, or use it in a `with` block."""
        self._check_open()
        task = self._loop.run(_open_in_task(lambda: self._host.session(**options)))
        return Session(task, self._loop, self._sessions)

    def reopen(self, session_id: str, **options: Unpack[SessionOptions]) -> "Session":
        """Resume a stored session, with the options of `holdfast.Host.reopen`."""
        self._check_open()
        task = self._loop.run(_open_in_task(lambda: self._host.reopen(session_id, **options)))
        return Session(task, self._loop, self._sessions)

    def tools(self) -> tuple[CatalogTool, ...]:
        """The tools that a session in the current folder would have."""
        self._check_open()
        return self._loop.run(self._host.tools())

    def prune(self, older_than: timedelta) -> int:
        """Delete the stored sessions that were not used for this long; return how many."""
        self._check_open()
        return self._loop.run(self._host.prune(older_than))

    def _check_open(self) -> None:
        if self._context_task is None:
            raise HoldfastError(
                codes.HOST_NOT_OPEN,
                "The host is closed. Make another one."
                if self._is_closed
                else "The host is not open. Use it in `with Host(…) as host:`, or call open().",
            )


@_advise(
    async_session.Session,
    {name: advice.removeprefix("await ") for name, advice in async_session.OTHER_NAMES.items()}
    | {"events": "session = host.session(on_event=…)"},
)
class Session:
    """An open session, with the most used methods of `holdfast.Session`, without `await`."""

    def __init__(
        self, task: "_ContextTask[async_session.Session]", loop: "_LoopThread", sessions: "set[Session]"
    ) -> None:
        """`sessions` are the open sessions of the host. This one is added, and removed when it is closed."""
        self._context_task = task
        self._loop = loop
        self._session = task.value
        self._is_closed = False
        self._sessions = sessions
        sessions.add(self)

    def __repr__(self) -> str:
        return f"<sync {self._session!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def context(self) -> SessionContext:
        """The session's id, trust, workspace and folders."""
        return self._session.context

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every server that the session did not get, and why."""
        return self._session.refusals

    @property
    def warnings(self) -> tuple[SessionWarning, ...]:
        """Warnings about the servers that were not refused, and about their tools."""
        return self._session.warnings

    @property
    def not_started(self) -> tuple[str, ...]:
        """The lazy servers that nothing has needed yet."""
        return self._session.not_started

    def call(
        self,
        name: str,
        arguments: Arguments | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: JsonObject | None = None,
    ) -> ToolResult:
        """Call `server.tool`. If you interrupt it (Ctrl-C, or the stop button of a notebook), the call is cancelled."""
        self._check_open()
        call = self._session.call(name, arguments, timeout=timeout, on_progress=on_progress, meta=meta)
        return self._loop.run(call)

    def tools(self) -> tuple[CatalogTool, ...]:
        """Every tool that the session may call."""
        self._check_open()
        return self._loop.run(self._session.tools())

    def prompt(self, text: str | Sequence[JsonObject]) -> TurnResult:
        """Let the agent answer a prompt."""
        self._check_open()
        return self._loop.run(self._session.prompt(text))

    def list_resources(self, server: str) -> list[dict[str, Any]]:
        """The resources that a server lists."""
        self._check_open()
        return self._loop.run(self._session.list_resources(server))

    def read_resource(self, server: str, uri: str) -> dict[str, Any]:
        """Read a resource of a server."""
        self._check_open()
        return self._loop.run(self._session.read_resource(server, uri))

    def list_prompts(self, server: str) -> list[dict[str, Any]]:
        """The prompts that a server lists."""
        self._check_open()
        return self._loop.run(self._session.list_prompts(server))

    def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Get one of a server's prompts, filled in with the arguments."""
        self._check_open()
        return self._loop.run(self._session.get_prompt(server, name, arguments))

    def _check_open(self) -> None:
        if self._is_closed:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")

    def close(self) -> None:
        """Close the session and its servers. If the session is closed, do nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._sessions.discard(self)
            if not self._loop.was_opened_before_fork:
                self._loop.run(self._context_task.close())


class _ContextTask(Generic[T]):
    """A task that enters a context manager and leaves it. Both must happen in the same task."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self.value: T
        self._closing = asyncio.Event()
        self._entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(opener))

    async def wait_entered(self) -> Self:
        try:
            await asyncio.shield(self._entered)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        return self

    async def close(self) -> None:
        self._closing.set()
        await self._task

    async def _run(self, opener: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        try:
            async with opener() as self.value:
                self._entered.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if self._entered.done():
                raise
            self._entered.set_exception(error)


async def _open_in_task(opener: Callable[[], AbstractAsyncContextManager[T]]) -> _ContextTask[T]:
    return await _ContextTask(opener).wait_entered()


class _LoopThread:
    """An event loop in a thread, started by the first call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process: OwnProcess | None = None
        self._start_lock = threading.Lock()

    @property
    def was_opened_before_fork(self) -> bool:
        """Whether this process was forked from the one that started the thread. The thread does not run here."""
        return self._process is not None and self._process.was_opened_before_fork

    def run(self, work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        """Run a coroutine in the loop and wait for it. If the caller is interrupted, the coroutine is cancelled."""
        if self.was_opened_before_fork:
            if isinstance(work, Coroutine):
                work.close()
            raise forked_error("host")
        if threading.current_thread() is self._thread:
            if isinstance(work, Coroutine):
                work.close()
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "holdfast.sync cannot be used on its own event loop. Use `await` with holdfast.Host there.",
            )

        async def wait() -> T:
            return await work

        future = asyncio.run_coroutine_threadsafe(wait(), self._start())
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._start_lock:
            if self._loop is None:
                self._process = OwnProcess()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="holdfast-sync", daemon=True
                )
                self._thread.start()
            return self._loop
