"""Look up host names in separate threads.

A name server that never answers blocks its thread for up to a minute, because the system's resolver cannot be
cancelled. So each owner, such as a session or a sandbox, has a few threads, and at most one for each name.

Answers are not cached: the caller checks the addresses of each answer and connects to one of those.
"""

import asyncio
import socket
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.model.worker_threads import WorkerThreads

_THREADS, _THREADS_PER_OWNER = 256, 4
LOOK_UP_SECONDS = 15.0
"""How long a look-up may take before it fails."""


class NameResolver:
    """Looks up host names. Owners do not wait for each other's look-ups."""

    def __init__(self, *, seconds: float = LOOK_UP_SECONDS) -> None:
        self._seconds = seconds
        self._threads = WorkerThreads("name look-up", threads=_THREADS, per_owner=_THREADS_PER_OWNER)
        self._look_ups: dict[_Key, _LookUp] = {}

    async def look_up(self, host: str, *, owner: str) -> list[str]:
        """The addresses of a host, best first. Raise `OSError` if it has none, or if the answer takes too long."""
        key = asyncio.get_running_loop(), owner, host
        look_up = self._look_ups.get(key)
        if look_up is None:
            look_up = self._look_ups[key] = _LookUp(host)
            look_up.task = asyncio.create_task(self._threads.run(look_up.run, owner=owner))
            look_up.task.add_done_callback(lambda _: self._forget(key, look_up))
        look_up.waiting += 1
        try:
            done, _ = await asyncio.wait([look_up.task], timeout=self._seconds)
        finally:
            look_up.waiting -= 1
            if not look_up.waiting and not look_up.has_begun:
                # No caller waits for this look-up, so it must not delay others in the queue.
                self._forget(key, look_up)
                look_up.task.cancel()
        if not done:
            raise OSError(f"its name server did not answer within {self._seconds:g} s")
        return look_up.task.result()

    def _forget(self, key: "_Key", look_up: "_LookUp") -> None:
        if self._look_ups.get(key) is look_up:
            del self._look_ups[key]
        if look_up.task.done() and not look_up.task.cancelled():
            look_up.task.exception()  # otherwise asyncio reports an error that no caller retrieved


_Key: TypeAlias = tuple[asyncio.AbstractEventLoop, str, str]


@dataclass(slots=True, eq=False)
class _LookUp:
    """One look-up of an owner, and how many callers wait for it."""

    host: str
    has_begun: bool = False
    waiting: int = 0
    task: "asyncio.Task[list[str]]" = field(init=False)

    def run(self) -> list[str]:
        self.has_begun = True
        try:
            answers = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise OSError("it is not a valid host name") from None
        return [*dict.fromkeys(str(address[0]) for *_, address in answers)]


RESOLVER = NameResolver()
"""The resolver of this process."""
