"""One live connection and the task that owns it."""

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


class State(StrEnum):
    """`dead` is gone by itself or unused for too long; `closed` was asked to go."""

    CONNECTING = "connecting"
    LIVE = "live"
    DEAD = "dead"
    CLOSED = "closed"


class Link:
    """Opened, held and closed by one task of its own, so that anybody may ask and anybody may close it."""

    def __init__(
        self,
        spec: ServerSpec,
        opening: AbstractAsyncContextManager[Connection],
        *,
        lost_state: bool = False,
        idle_seconds: float | None = None,
    ) -> None:
        self.spec = spec
        self.state = State.CONNECTING
        self.was_live = False
        self._lost_state = lost_state
        self._idle_seconds = idle_seconds
        self._in_use = 0
        self._use = _Use(self)
        self._last_used = time.monotonic()
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(_seen)
        self._task = asyncio.create_task(self._own(opening), name=f"link to {spec.name}")
        self._task.add_done_callback(self._over)

    @property
    def usable(self) -> bool:
        """Whether asking it makes sense: it is starting or stands, and its server is not gone at this very moment."""
        if self._closing.is_set():
            return False
        if self.state is State.LIVE:
            return not self._ready.result().ended.is_set()
        return self.state is State.CONNECTING

    @property
    def forgets(self) -> bool:
        """Whether a link that takes its place begins with an empty memory, and has to say so."""
        return self.was_live or self._lost_state

    async def connection(self) -> Connection:
        """The connection, once it stands; raises why it does not."""
        return await asyncio.shield(self._ready)

    @property
    def standing(self) -> Connection | None:
        """The connection, where it stands already."""
        return self._ready.result() if self.state is State.LIVE else None

    def touch(self) -> None:
        """Somebody is about to use it."""
        self._last_used = time.monotonic()

    def used(self) -> "_Use":
        """While somebody uses it, it is not idle."""
        return self._use

    def begin(self) -> None:
        """Somebody uses it."""
        self._in_use += 1

    def end(self) -> None:
        """And does not any more."""
        self._in_use -= 1
        self._last_used = time.monotonic()

    def take_lost_state(self) -> bool:
        """Whether what the server knew is gone; said once."""
        lost, self._lost_state = self._lost_state, False
        return lost

    async def close(self) -> None:
        """Let go of the server; returns when nothing is left of it. Never raises what the server did."""
        if not self._closing.is_set():
            self._closing.set()
            if self.state is State.CONNECTING:
                self._task.cancel()  # once: a second time would interrupt what the first has to clean up
        await asyncio.wait([self._task])

    async def _own(self, opening: AbstractAsyncContextManager[Connection]) -> None:
        try:
            async with opening as connection:
                self.state, self.was_live = State.LIVE, True
                self.touch()
                self._ready.set_result(connection)
                await self._until_over(connection)
        except asyncio.CancelledError:
            self._fail(
                HoldfastError(
                    codes.CONNECTION_CLOSED, f"{self.spec.name!r} was closed while it was starting."
                )
            )
        except HoldfastError as error:
            self._fail(error)
        except Exception:
            log.exception("link crashed", extra={"server": self.spec.name})
            self._fail(
                HoldfastError(codes.INTERNAL_ERROR, f"The link to {self.spec.name!r} failed unexpectedly.")
            )

    def _over(self, task: asyncio.Task[None]) -> None:
        if not self._ready.done():  # cancelled before its first step
            self._fail(
                HoldfastError(codes.CONNECTION_CLOSED, f"{self.spec.name!r} was closed before it started.")
            )

    def _fail(self, error: HoldfastError) -> None:
        self.state = State.CLOSED if self._closing.is_set() else State.DEAD
        if not self._ready.done():
            self._ready.set_exception(error)
        elif not self._closing.is_set():
            log.warning("link ended badly", extra={"server": self.spec.name, "reason": error.message})

    async def _until_over(self, connection: Connection) -> None:
        ended = asyncio.create_task(connection.ended.wait())
        closing = asyncio.create_task(self._closing.wait())
        try:
            while True:
                left = self._seconds_left()
                done, _ = await asyncio.wait(
                    (ended, closing), timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if done or self._seconds_left() == 0:
                    self.state = State.CLOSED if self._closing.is_set() else State.DEAD
                    return
        finally:
            ended.cancel()
            closing.cancel()

    def _seconds_left(self) -> float | None:
        if self._idle_seconds is None:
            return None
        unused = 0.0 if self._in_use else time.monotonic() - self._last_used
        return max(0.0, self._idle_seconds - unused)


class _Use:
    """A block in which a link is in use."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    def __enter__(self) -> None:
        self._link.begin()

    def __exit__(self, *exception: object) -> None:
        self._link.end()


def _seen(ready: asyncio.Future[Connection]) -> None:
    """A failure that nobody waited for is not a bug."""
    if not ready.cancelled():
        ready.exception()
