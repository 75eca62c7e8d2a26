"""One link: a connection to a server, and the task that opens, holds and closes it."""

import asyncio
import logging
import math
import time
from contextlib import AbstractAsyncContextManager
from enum import StrEnum

from holdfast.connect.back_off import BackOff
from holdfast.connect.connection import Connection
from holdfast.connect.script_files import ScriptFiles
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.light_event import LightEvent
from holdfast.model.server import ServerSpec
from holdfast.model.visible_text import to_line

log = logging.getLogger(__name__)

# Holdfast refused to connect, or a login is missing: such an error does not delay later calls.
_NOT_SERVER_FAILURES = (
    codes.LOGIN_NEEDED,
    codes.NO_SANDBOX,
    codes.NOT_APPROVED,
    codes.NOT_GRANTED,
    codes.NOT_REACHABLE,
)
_DEFAULT_BACK_OFF = BackOff()


class LinkState(StrEnum):
    """The state of a link."""

    CONNECTING = "connecting"
    LIVE = "live"
    DEAD = "dead"
    """Connecting failed, the server ended, or the link was idle for too long."""
    CLOSED = "closed"
    """The host closed the link."""


# Read once, because reading an enum member is slow in Python 3.11.
_LIVE = LinkState.LIVE


class Link:
    """A link to one server. Its own task opens, holds and closes the connection, so that any other task may use or close it."""

    def __init__(
        self,
        spec: ServerSpec,
        opener: AbstractAsyncContextManager[Connection],
        *,
        replaces: "Link | None" = None,
        lost_state: bool = False,
        idle_seconds: float | None = None,
        back_off: BackOff = _DEFAULT_BACK_OFF,
    ) -> None:
        self.spec = spec
        self.state = LinkState.CONNECTING
        self.was_live = False
        """Whether the link was ever connected."""
        self.scripts = ScriptFiles()
        """The scripts in the server's command, as they were when the link was opened."""
        self.changed_file = ""
        """The changed script that made this link replace another one; else empty."""
        self._back_off = back_off
        self._failures_before = replaces.failures if replaces is not None and replaces.spec == spec else 0
        """How many times in a row the server had failed before this link was opened."""
        self._live_since = 0.0
        self._ended_at: float | None = None
        self._was_idle = False
        """Whether the link has ended because it was idle for too long."""
        self._is_delay_logged = False
        self._stderr_report = ""
        self._stderr_start = 0
        """The position in standard error when the server had started. What it wrote before is about its start, which succeeded."""
        self._lost_state = lost_state or (replaces is not None and replaces.replacement_loses_state)
        """Whether the state of earlier calls is lost, and no call has reported that yet."""
        self._idle_seconds = idle_seconds
        self._use_count = 0
        self.all_uses = Uses()
        """The uses of all links of the same pool."""
        self._in_use = _InUse(self)
        self._last_used = time.monotonic()
        self._closing = LightEvent()
        self._is_closing = False  # the same as `_closing.is_set()`, without a function call
        self._connection: Connection | None = None
        """The connection, once the link was live."""
        self._ready: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        """Has the connection once the link is live, or the error if connecting failed."""
        self._ready.add_done_callback(_retrieve_exception)
        self._task = asyncio.create_task(self._run(opener), name=f"link to {spec.name}")
        self._task.add_done_callback(self._on_task_done)

    @property
    def is_usable(self) -> bool:
        """Whether the link is connecting or live, is not being closed, and its server has not ended."""
        if self._is_closing:
            return False
        if self.state is _LIVE:
            connection = self._connection
            return connection is not None and not connection.ended.is_set()
        return self.state is LinkState.CONNECTING

    @property
    def replacement_loses_state(self) -> bool:
        """Whether a link that replaces this one starts without the state of earlier calls."""
        return self.was_live or self._lost_state

    @property
    def is_outdated(self) -> bool:
        """Whether a script in the server's command was changed since the link was opened, and no call is running."""
        return bool(self.scripts.stamps) and not self._use_count and bool(self.scripts.first_changed())

    @property
    def failures(self) -> int:
        """How many times in a row the server has failed, including this link; 0 if this link has not failed."""
        if self.is_usable or self._closing.is_set() or self._was_idle:
            return 0
        error = self._connect_error
        if error is not None and error.code in _NOT_SERVER_FAILURES:
            return 0
        uptime = self._note_end() - self._live_since if self.was_live else 0.0
        return 1 if self._back_off.has_recovered(uptime, self._failures_before) else self._failures_before + 1

    def restart_error(self) -> HoldfastError | None:
        """The error if it is too early to start the server again; else None."""
        failures = self.failures
        delay = self._back_off.delay(failures)
        seconds = self._note_end() + delay - self._back_off.clock() if delay else 0.0
        if seconds <= 0:
            return None
        if not self._is_delay_logged:
            self._is_delay_logged = True
            extra = {"server": self.spec.name, "failures": failures, "seconds": delay}
            log.warning("%s keeps failing, restart delayed", self.spec.name, extra=extra)
        return HoldfastError(
            codes.RESTART_DELAYED,
            f"{self.spec.name!r} is not running: it failed {failures} times in a row. "
            f"The first call after {_format_seconds(seconds)} s starts it again. {self._describe_last_failure()}",
            retry_after=seconds,
        )

    async def wait_for_connection(self) -> Connection:
        """Wait until the link is live. Raise if connecting fails."""
        return await asyncio.shield(self._ready)

    def find_live_connection(self) -> Connection | None:
        """The connection, if the link is live, is not being closed, and its server has not ended; else None."""
        connection = self._connection
        if connection is None or self._is_closing or self.state is not _LIVE or connection.ended.is_set():
            return None
        return connection

    def touch(self) -> None:
        """Restart the idle time."""
        self._last_used = time.monotonic()

    def use(self) -> "_InUse":
        """A context manager. Inside its block, the link does not count as idle."""
        return self._in_use

    def begin_use(self) -> None:
        """Count a use of the link. See `use`."""
        self._use_count += 1
        self.all_uses.count += 1

    def end_use(self) -> None:
        self._use_count -= 1
        self.all_uses.count -= 1
        self._last_used = time.monotonic()

    def pop_lost_state(self) -> bool:
        """Whether the server has lost the state of earlier calls. True only once."""
        lost, self._lost_state = self._lost_state, False
        return lost

    async def close(self) -> None:
        """Close the connection and wait until it is closed. Errors are logged, not raised."""
        if not self._closing.is_set():
            self._is_closing = True
            self._closing.set()
            if self.state is LinkState.CONNECTING:
                self._task.cancel()  # only in the first call: a second cancel would interrupt the cleanup
        await asyncio.wait([self._task])

    async def _run(self, opener: AbstractAsyncContextManager[Connection]) -> None:
        """Open the connection, hold it until the link is closed or idle or the server ends, and close it."""
        try:
            async with opener as connection:
                self._connection = connection
                self.state, self.was_live = LinkState.LIVE, True
                self._live_since = self._back_off.clock()
                if connection.stderr is not None:
                    self._stderr_start = connection.stderr.position
                self.touch()
                self._ready.set_result(connection)
                await self._wait_until_finished(connection)
        except asyncio.CancelledError:
            self._fail(
                HoldfastError(
                    codes.CONNECTION_CLOSED, f"{self.spec.name!r} was closed while it was connecting."
                )
            )
        except HoldfastError as error:
            self._fail(error)
        except Exception:
            log.exception("link crashed: %s", self.spec.name, extra={"server": self.spec.name})
            self._fail(
                HoldfastError(codes.INTERNAL_ERROR, f"The link to {self.spec.name!r} failed unexpectedly.")
            )

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not self._ready.done():  # the task was cancelled before it started to run
            self._fail(
                HoldfastError(
                    codes.CONNECTION_CLOSED, f"{self.spec.name!r} was closed before it was connected."
                )
            )

    def _fail(self, error: HoldfastError) -> None:
        self.state = LinkState.CLOSED if self._closing.is_set() else LinkState.DEAD
        self._note_end()
        if not self._ready.done():
            self._ready.set_exception(error)
        elif not self._closing.is_set():
            extra = {"server": self.spec.name, "reason": error.message}
            log.warning("link failed: %s: %s", self.spec.name, to_line(error.message), extra=extra)

    async def _wait_until_finished(self, connection: Connection) -> None:
        """Wait until the link is closed, its server has ended, or it was idle for too long."""
        # Futures take less memory than tasks, and there may be hundreds of idle links.
        ended, closing = connection.ended.when_set(), self._closing.when_set()
        try:
            while True:
                seconds_left = self._idle_seconds_left()
                done, _ = await asyncio.wait(
                    (ended, closing), timeout=seconds_left, return_when=asyncio.FIRST_COMPLETED
                )
                if done or self._idle_seconds_left() == 0:
                    self.state = LinkState.CLOSED if self._closing.is_set() else LinkState.DEAD
                    self._was_idle = not done
                    self._note_end()
                    return
        finally:
            connection.ended.forget(ended)
            self._closing.forget(closing)

    @property
    def _connect_error(self) -> HoldfastError | None:
        error = self._ready.exception() if self._ready.done() else None
        return error if isinstance(error, HoldfastError) else None

    def _note_end(self) -> float:
        """When the server ended. The first call records the time."""
        if self._ended_at is None:
            self._ended_at = self._back_off.clock()
        return self._ended_at

    def _describe_last_failure(self) -> str:
        """Why the server failed last: the error, or what it wrote to standard error after it had started."""
        error = self._connect_error
        if error is not None:
            return f"The last failure: {error.message}"
        stderr = self._ready.result().stderr
        # At the end of the stream, the server has written everything.
        if not self._stderr_report and stderr is not None and stderr.closed.is_set():
            self._stderr_report = stderr.report_since(self._stderr_start)
        return self._stderr_report or "It ended without a message."

    def _idle_seconds_left(self) -> float | None:
        if self._idle_seconds is None:
            return None
        unused = 0.0 if self._use_count else time.monotonic() - self._last_used
        return max(0.0, self._idle_seconds - unused)


class Uses:
    """How many uses of several links are in progress."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class _InUse:
    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    def __enter__(self) -> None:
        self._link.begin_use()

    def __exit__(self, *exception: object) -> None:
        self._link.end_use()


def _format_seconds(seconds: float) -> str:
    """Rounded up: to tenths below 10 s, else to whole seconds."""
    return f"{math.ceil(seconds * 10) / 10:g}" if seconds < 10 else f"{math.ceil(seconds)}"


def _retrieve_exception(ready: asyncio.Future[Connection]) -> None:
    """Keep asyncio from warning about an exception that no task has retrieved."""
    if not ready.cancelled():
        ready.exception()
