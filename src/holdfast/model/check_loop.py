"""Checks that code runs in the process and in the event loop in which a host or a session was opened."""

import asyncio
import os

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_forks = [0]
"""One number: how many forks there were between the process that the user started and this one."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class OwnProcess:
    """The process in which a host or a session was opened."""

    __slots__ = ("_forks",)

    def __init__(self) -> None:
        self._forks = _forks[0]

    @property
    def was_opened_before_fork(self) -> bool:
        """Whether this process was forked after the host or session was opened. A fork has none of the threads that a host needs."""
        return self._forks != _forks[0]


class OwnLoop(OwnProcess):
    """The process and the event loop in which a host or a session was opened."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        super().__init__()
        self._loop = running_loop()

    def check(self, what: str) -> None:
        """Raise if this code runs in another process or event loop. `what` is "host" or "session", for the message."""
        if self._forks != _forks[0]:
            raise forked_error(what)
        try:  # `running_loop` and `was_opened_before_fork` are not called, because every tool call comes here
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        own = self._loop
        if own is None or running is own:
            return
        if own.is_closed():
            advice = "That loop has ended: use asyncio.run(…) once, for all that uses the host."
        else:
            advice = "From this one, use asyncio.run_coroutine_threadsafe(…, loop) with that loop."
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The {what} was opened in another event loop, and can only be used in that one. {advice} "
            "Code without `await` can use holdfast.sync from any thread.",
        )


def forked_error(what: str) -> HoldfastError:
    """The error of a host or a session that is used in a process that was forked after it was opened."""
    return HoldfastError(
        codes.BAD_ARGUMENT,
        f"The {what} was opened in the process that this one was forked from, and can only be used there. "
        "Open a host in this process.",
    )


def _count_fork() -> None:
    _forks[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)
