"""One link: a connection to a server, and the task that opens it, holds it, and closes it after its idle time."""

import asyncio
import logging
import time
from contextlib import AbstractAsyncContextManager
from enum import StrEnum

from holdfast.connect.connection import Connection
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import ServerSpec

log = logging.getLogger(__name__)


class LinkState(StrEnum):
    """`dead`: connecting failed, the server ended, or the link was idle for too long. `closed`: the host closed it."""

    CONNECTING = "connecting"
    LIVE = "live"
    DEAD = "dead"
    CLOSED = "closed"


class Link:
    """A link to one server. Its own task opens, holds and closes the connection, so any other task may use or close it."""

    def __init__(
        self,
        spec: ServerSpec,
        opener: AbstractAsyncContextManager[Connection],
        *,
        lost_state: bool = False,
        idle_seconds: float | None = None,
    ) -> None:
        self.spec = spec
        self.state = LinkState.CONNECTING
        self.was_live = False
        self._lost_state = lost_state
        self._idle_seconds = idle_seconds
        self._use_count = 0
        self._usage = _Usage(self)
        self._last_used = time.monotonic()
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(_retrieve_exception)
        self._task = asyncio.create_task(self._run(opener), name=f"link to {spec.name}")
        self._task.add_done_callback(self._on_task_done)

    @property
    def is_usable(self) -> bool:
        """Whether the link is connecting or live, is not being closed, and its server has not ended."""
        if self._closing.is_set():
            return False
        if self.state is LinkState.LIVE:
            return not self._ready.result().ended.is_set()
        return self.state is LinkState.CONNECTING

    @property
    def replacement_loses_state(self) -> bool:
        """Whether a new link in place of this one starts without the state of earlier calls."""
        return self.was_live or self._lost_state

    async def connection(self) -> Connection:
        """Wait until the link is live. Raise the reason if connecting fails."""
        return await asyncio.shield(self._ready)

    @property
    def live_connection(self) -> Connection | None:
        """The connection if the link is live, else None."""
        return self._ready.result() if self.state is LinkState.LIVE else None

    def touch(self) -> None:
        """Restart the idle time."""
        self._last_used = time.monotonic()

    def use(self) -> "_Usage":
        """Return a context manager. Inside its block the link does not count as idle."""
        return self._usage

    def begin_use(self) -> None:
        self._use_count += 1

    def end_use(self) -> None:
        self._use_count -= 1
        self._last_used = time.monotonic()

    def pop_lost_state(self) -> bool:
        """Whether the server has lost its state since an earlier link. The next call returns False."""
        lost, self._lost_state = self._lost_state, False
        return lost

    async def close(self) -> None:
        """Close the connection and wait until it is closed. Errors are logged, not raised."""
        if not self._closing.is_set():
            self._closing.set()
            if self.state is LinkState.CONNECTING:
                self._task.cancel()  # only once: a second cancel would interrupt the cleanup
        await asyncio.wait([self._task])

    async def _run(self, opener: AbstractAsyncContextManager[Connection]) -> None:
        try:
            async with opener as connection:
                self.state, self.was_live = LinkState.LIVE, True
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
            log.exception("link crashed", extra={"server": self.spec.name})
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
        if not self._ready.done():
            self._ready.set_exception(error)
        elif not self._closing.is_set():
            log.warning("link failed", extra={"server": self.spec.name, "reason": error.message})

    async def _wait_until_finished(self, connection: Connection) -> None:
        ended = asyncio.create_task(connection.ended.wait())
        closing = asyncio.create_task(self._closing.wait())
        try:
            while True:
                left = self._idle_seconds_left()
                done, _ = await asyncio.wait(
                    (ended, closing), timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if done or self._idle_seconds_left() == 0:
                    self.state = LinkState.CLOSED if self._closing.is_set() else LinkState.DEAD
                    return
        finally:
            ended.cancel()
            closing.cancel()

    def _idle_seconds_left(self) -> float | None:
        if self._idle_seconds is None:
            return None
        unused = 0.0 if self._use_count else time.monotonic() - self._last_used
        return max(0.0, self._idle_seconds - unused)


class _Usage:
    """Marks a link as in use for the length of a block."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    def __enter__(self) -> None:
        self._link.begin_use()

    def __exit__(self, *exception: object) -> None:
        self._link.end_use()


def _retrieve_exception(ready: asyncio.Future[Connection]) -> None:
    """Keep asyncio from warning about an exception that no task has retrieved."""
    if not ready.cancelled():
        ready.exception()
