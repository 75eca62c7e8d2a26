"""An `asyncio.Event` that takes little memory while no task waits for it."""

import asyncio
from typing import Literal


class LightEvent(asyncio.Event):
    """Like `asyncio.Event`, which takes over 700 bytes for its queue even if no task ever waits. A link has several events."""

    def __init__(self) -> None:  # that of the base class is not called: it creates the queue
        self._is_set = False
        self._waiting: list[asyncio.Future[None]] | None = None

    def __repr__(self) -> str:
        return f"<LightEvent {'set' if self._is_set else 'not set'}>"

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            waiting, self._waiting = self._waiting, None
            for future in waiting or ():
                if not future.done():
                    future.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> Literal[True]:
        if not self._is_set:
            future = self.when_set()
            try:
                await future
            except asyncio.CancelledError:
                self.forget(future)
                raise
        return True

    def when_set(self) -> "asyncio.Future[None]":
        """A future that is done when the event is set, for code that waits without a task. Pass it to `forget` if you stop waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_set:
            future.set_result(None)
        elif self._waiting is None:
            self._waiting = [future]
        else:
            self._waiting.append(future)
        return future

    def forget(self, future: "asyncio.Future[None]") -> None:
        """Remove a future that `when_set` has returned."""
        if self._waiting is not None and future in self._waiting:
            self._waiting.remove(future)
