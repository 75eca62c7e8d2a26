"""An event that is queued for a commit, and the callers that wait until it is durable."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.model.event import Event, Origin
from holdfast.store.types import AppendResult

if TYPE_CHECKING:
    from holdfast.store.appender import Appender
    from holdfast.store.store import Tx

OnAppend = Callable[["Tx"], object]
"""Called in the transaction that appends the event."""


class PendingEvent:
    """A queued event. It is settled when it is durable or has failed."""

    __slots__ = (
        "_appended",
        "_appender",
        "_waiters",
        "error",
        "event",
        "key",
        "on_append",
        "origin",
        "size",
    )

    def __init__(
        self,
        appender: "Appender",
        event: Event,
        key: str | None,
        on_append: OnAppend | None,
        origin: Origin,
        size: int,
    ) -> None:
        self.event = event
        self.key = key
        self.on_append = on_append
        self.origin = origin
        self.size = size
        self._appender = appender
        self._appended: AppendResult | None = None
        self.error: BaseException | None = None
        """Why the event could not be stored."""
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def result(self) -> AppendResult | None:
        """None until the event is durable."""
        return self._appended

    @property
    def is_durable(self) -> bool:
        return self._appended is not None

    @property
    def is_new(self) -> bool:
        """Whether the event is durable, and was not stored before under the same key."""
        return self._appended is not None and self._appended.is_new

    @property
    def has_failed(self) -> bool:
        return self.error is not None

    @property
    def is_settled(self) -> bool:
        return self._appended is not None or self.error is not None

    async def wait_durable(self) -> int:
        """Wait until the event is durable, and return its number. Raise if it failed."""
        if self._appended is None:
            # Do not wait for more events to commit together: this caller adds none until the event is durable.
            if self.error is None and (committed := self._commit()) is not None:
                await committed
            if self._appended is None:
                raise self.error or AssertionError("A settled event has a number or an error.")
        return self._appended.seq

    async def wait_settled(self) -> bool:
        """Wait until the event is durable or has failed, and return whether it is durable."""
        if not self.is_settled and (committed := self._commit()) is not None:
            await committed
        return self._appended is not None

    async def wait_settled_despite_cancellation(self) -> bool:
        """Like `wait_settled`, but if the caller is cancelled, wait until the event is settled before raising."""
        cancelled: asyncio.CancelledError | None = None
        while self._appended is None and self.error is None:
            committed = self._commit()
            try:
                if committed is not None:
                    await committed
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return self._appended is not None

    def set_durable(self, result: AppendResult) -> None:
        self._appended = result
        if self._waiters is not None:
            self._wake()

    def set_failed(self, error: BaseException) -> None:
        self.error = error
        if self._waiters is not None:
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None

    def _commit(self) -> "asyncio.Future[None] | None":
        """Begin the commit. Return a future for its end, or None if the event is settled already."""
        appender = self._appender
        if appender.commits_at_once:
            appender.commit_now()
            if self._appended is not None or self.error is not None:
                return None
        # Each caller has its own future, so that the cancellation of one does not affect the others. The future is made before the commit
        # begins: the writer thread needs the GIL, so any further work of this thread would delay the commit.
        waiter: asyncio.Future[None] = appender.loop.create_future()
        if self._waiters is None:
            self._waiters = [waiter]
        else:
            self._waiters.append(waiter)
        appender.commit_now()
        return waiter


def settle_future(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    """Set the result or the error of a future, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
