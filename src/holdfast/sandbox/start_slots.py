"""Limits how many confined servers are being started at a time, so that starts do not use up the descriptors of the host."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from holdfast.model.descriptor_limit import descriptor_limit

_DESCRIPTORS_EACH = 120
"""What one start takes until it is done. Most are files that are being mounted."""


class StartSlots:
    """All starts together use at most a third of the descriptors of this process.

    An owner, which is the folder of a session, gets another start only while more of them are free than it uses.
    """

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._waiting: list[asyncio.Future[None]] = []

    @contextlib.asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """Wait until this owner may start another server, and count the start until the block ends."""
        while self._running[owner] >= self._free():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._running[owner] += 1
        try:
            yield
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                with contextlib.suppress(RuntimeError):  # its event loop is closed
                    turn.get_loop().call_soon_threadsafe(_resolve, turn)

    def _free(self) -> int:
        return max(2, descriptor_limit() // 3 // _DESCRIPTORS_EACH) - self._running.total()


def _resolve(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
