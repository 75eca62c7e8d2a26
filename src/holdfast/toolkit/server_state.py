"""What a running server keeps between calls: the state of its lifespan, and values that are given to handlers."""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.model import codes
from holdfast.model.context import SessionContext, use_context
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.call import Call
from holdfast.toolkit.check_options import check_parameter_count
from holdfast.toolkit.failures import is_task_cancelled
from holdfast.toolkit.given import GivenParameter, Provider, ProviderKind
from holdfast.toolkit.guards import needs_session
from holdfast.toolkit.threads import run_in_thread

if TYPE_CHECKING:
    from holdfast.toolkit.toolbox import Toolbox

log = logging.getLogger(__name__)

LifespanFunction: TypeAlias = Callable[["Toolbox"], AbstractAsyncContextManager[Any] | AsyncIterator[Any]]
MakeValue: TypeAlias = Callable[[AsyncExitStack], Awaitable[Any]]
"""Makes a value, and registers with the stack what closes it."""

CLOSE_SECONDS = 5.0  # how long the values of the process, or of one session, may take to close
MAX_SESSIONS = 1024  # if more sessions have values, those of the least recently used session are closed
IDLE_SECONDS = 3600.0  # how long a session may make no call before its values are closed


@dataclass(frozen=True, slots=True, eq=False)
class Lifespan:
    """The function that a box runs from before its first call until its server ends."""

    function: LifespanFunction
    box: "Toolbox"

    def open(self) -> AbstractAsyncContextManager[Any]:
        """A context manager for one run."""
        opened = self.function(self.box)
        if isinstance(opened, AbstractAsyncContextManager):
            return opened
        raise HoldfastError(
            codes.BAD_TOOL,
            f"The lifespan of {self.box.name!r} returned a {type(opened).__name__}. Write an async generator "
            "function, or a function that returns an async context manager.",
        )


def read_lifespan(function: LifespanFunction, box: "Toolbox") -> Lifespan:
    """The lifespan of a box. An async generator function need not be decorated with `asynccontextmanager`."""
    check_parameter_count(function, 1, "A lifespan must take one parameter, the box: async def lifespan(box)")
    if inspect.isasyncgenfunction(function):
        return Lifespan(asynccontextmanager(function), box)
    return Lifespan(function, box)


class KeptValues:
    """Values that are made once and kept. One task makes and closes all of them, because anyio's cancel scopes require that."""

    def __init__(self, context: Context) -> None:
        self._values: dict[Hashable, asyncio.Future[Any]] = {}
        self._to_make: asyncio.Queue[tuple[MakeValue, asyncio.Future[Any]] | None] = asyncio.Queue()
        """The values to make. None ends the task."""
        self._task: asyncio.Task[None] | None = None
        self._is_making = False
        self._context = context

    async def get(self, key: Hashable, make: MakeValue) -> Any:
        """The value with this key, which is made for the first caller. If it cannot be made, the next caller tries again."""
        future = self._values.get(key)
        if future is not None and future.done() and not future.cancelled() and future.exception() is None:
            return future.result()
        if future is None or future.done():
            future = self._values[key] = asyncio.get_running_loop().create_future()
            self._to_make.put_nowait((make, future))
            if self._task is None:
                self._task = asyncio.create_task(self._make_and_close_values(), context=self._context.copy())
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Close all values, the last one first. If a value is still being made, its provider is cancelled."""
        task, self._task = self._task, None
        if task is None:
            return
        if self._is_making:
            task.cancel()
        self._to_make.put_nowait(None)
        await asyncio.wait([task], timeout=CLOSE_SECONDS)
        if not task.done():
            log.error("values did not close in time", extra={"seconds": CLOSE_SECONDS})
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_SECONDS)
        for future in self._values.values():
            future.cancel()

    async def _make_and_close_values(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                while (wanted := await self._to_make.get()) is not None:
                    make, future = wanted
                    self._is_making = True
                    try:
                        value = await make(stack)
                    except (Exception, asyncio.CancelledError) as error:
                        if is_task_cancelled():
                            raise
                        _fail(future, error)
                    else:
                        if not future.done():
                            future.set_result(value)
                    finally:
                        self._is_making = False
        except Exception:
            log.exception("a value could not be closed")


class _SessionValues(KeptValues):
    """The values of one session."""

    def __init__(self, context: Context, session: SessionContext | None) -> None:
        super().__init__(context)
        self.session = session
        self.running_calls = 0
        """How many calls use the values now."""
        self.is_unused = asyncio.Event()
        """Set while no call uses the values."""
        self.is_unused.set()
        self.last_used = time.monotonic()

    def call_started(self) -> None:
        self.running_calls += 1
        self.is_unused.clear()

    def call_ended(self) -> None:
        self.running_calls -= 1
        self.last_used = time.monotonic()
        if not self.running_calls:
            self.is_unused.set()

    async def close_when_unused(self) -> None:
        """Close the values after the calls that use them have ended, or after `CLOSE_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.is_unused.wait()
        await self.close()


class ServerState:
    """The lifespans and kept values of one running server."""

    def __init__(self) -> None:
        self._process: KeptValues | None = None
        self._sessions: dict[str, _SessionValues] = {}  # by owner; the most recently used is last
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._idle_timer: asyncio.TimerHandle | None = None
        # Kept values belong to no call, so they are made with the context variables of the server.
        self._context = copy_context()

    async def start(self, lifespan: Lifespan) -> Any:
        """Return what the lifespan yields. The lifespan is started for the first caller."""

        async def enter(stack: AsyncExitStack) -> Any:
            return await stack.enter_async_context(lifespan.open())

        return await self._process_values().get(lifespan, enter)

    async def provide(
        self, parameters: Iterable[GivenParameter], call: Call, stack: AsyncExitStack
    ) -> dict[str, Any]:
        """The values of given parameters, by name. A value that is kept for one call only is closed with `stack`."""
        made: dict[Hashable, Any] = {}
        return {
            parameter.name: await self._value_of(parameter.provider, call, stack, made)
            for parameter in parameters
        }

    def end_session(self, owner: str) -> None:
        """Close the values of a session that has ended."""
        values = self._sessions.pop(owner, None)
        if values is not None:
            self._close_later(values)

    async def close(self) -> None:
        """Close the values of all sessions, then those of the process, then the lifespans."""
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for owner in list(self._sessions):
            self.end_session(owner)
        if self._closing:
            await asyncio.wait(list(self._closing))
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    def _check_is_open(self) -> None:
        if self._is_closed:
            raise HoldfastError(codes.CONNECTION_CLOSED, "The server is being stopped.")

    def _process_values(self) -> KeptValues:
        self._check_is_open()
        if self._process is None:
            self._process = KeptValues(self._context)
        return self._process

    async def _value_of(
        self, provider: Provider, call: Call, stack: AsyncExitStack, made: dict[Hashable, Any]
    ) -> Any:
        if provider.key in made:
            return made[provider.key]
        if provider.needs_session:
            needs_session(call)
        arguments: dict[str, Any] = {
            parameter.name: await self._value_of(parameter.provider, call, stack, made)
            for parameter in provider.given
        }
        if provider.call:
            arguments[provider.call] = call
        if provider.session:
            arguments[provider.session] = call.session

        async def make(closing: AsyncExitStack) -> Any:
            return await _make(provider, arguments, closing)

        match provider.per:
            case "call":
                value = await make(stack)
            case "session":
                value = await self._session_values(call, stack).get(
                    provider.key, _in_session(call.session, make)
                )
            case "process":
                value = await self._process_values().get(provider.key, make)
        made[provider.key] = value
        return value

    def _session_values(self, call: Call, stack: AsyncExitStack) -> _SessionValues:
        """The values of the caller's session. They are not closed to make room while this call runs."""
        self._check_is_open()
        owner = call.owner
        if owner in self._sessions and self._sessions[owner].session != call.session:
            # A session that has become sandboxed must not get the values that were made while it was direct.
            self.end_session(owner)
        values = self._sessions.pop(owner, None) or _SessionValues(self._context, call.session)
        self._sessions[owner] = values
        values.call_started()
        stack.callback(values.call_ended)
        self._close_unused()
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._on_idle_timer)
        return values

    def _on_idle_timer(self) -> None:
        self._idle_timer = None
        self._close_unused()
        if self._sessions:
            oldest = min(values.last_used for values in self._sessions.values())
            delay = max(oldest + IDLE_SECONDS - time.monotonic(), IDLE_SECONDS / 60)
            self._idle_timer = asyncio.get_running_loop().call_later(delay, self._on_idle_timer)

    def _close_unused(self) -> None:
        """Close the values of sessions that have not been used for a long time, and of the least recently used ones if there are too many."""
        now = time.monotonic()
        surplus = len(self._sessions) - MAX_SESSIONS
        for owner, values in list(self._sessions.items()):
            if now - values.last_used < IDLE_SECONDS and surplus <= 0:
                break  # the following sessions were used later
            if not values.running_calls:
                self.end_session(owner)
                surplus -= 1

    def _close_later(self, values: _SessionValues) -> None:
        task = asyncio.ensure_future(values.close_when_unused())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _in_session(session: SessionContext | None, make: MakeValue) -> MakeValue:
    """The function, with `session` as the current session while it runs."""
    if session is None:
        return make

    async def make_in_session(stack: AsyncExitStack) -> Any:
        with use_context(session):
            return await make(stack)

    return make_in_session


async def _make(provider: Provider, arguments: dict[str, Any], stack: AsyncExitStack) -> Any:
    """Call a provider, and let the stack clean up after it. Providers that are not async run in a thread."""
    match provider.kind:
        case ProviderKind.COROUTINE:
            return await provider.make(**arguments)
        case ProviderKind.ASYNC_CONTEXT:
            return await stack.enter_async_context(provider.make(**arguments))
        case ProviderKind.FUNCTION:
            return await run_in_thread(provider.make, arguments)
        case ProviderKind.CONTEXT:
            return await stack.enter_async_context(_in_threads(provider, arguments))


@asynccontextmanager
async def _in_threads(provider: Provider, arguments: dict[str, Any]) -> AsyncIterator[Any]:
    """Enter and exit the blocking context manager of a provider in threads."""
    context = provider.make(**arguments)
    value = await run_in_thread(context.__enter__, {})
    try:
        yield value
    except BaseException as error:
        if not await run_in_thread(_exit, {"context": context, "error": error}):
            raise
    else:
        await run_in_thread(_exit, {"context": context, "error": None})


def _exit(context: Any, error: BaseException | None) -> bool:
    return bool(
        context.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
    )


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Let the callers who wait for the value get this error."""
    if not future.done():
        # A future cannot carry a StopIteration, and a CancelledError would look as if the caller were cancelled.
        if not isinstance(error, Exception) or isinstance(error, StopIteration):
            error = RuntimeError(f"a provider raised {type(error).__name__}")
        future.set_exception(error)
        future.exception()  # asyncio logs no error if all callers were cancelled
