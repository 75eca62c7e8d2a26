"""Connect pipes to the event loop so that each descriptor is closed exactly once.

uvloop closes the descriptor of a pipe itself: one iteration after `close`, or at once if connecting is cancelled. A file object does not
notice that its descriptor was closed. If the file object is closed later, it closes whatever has the same number by then, such as a pipe
of another session.
"""

import asyncio
import os
from collections.abc import Callable
from typing import IO, Any, TypeVar

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)


async def connect_read_pipe(
    make_protocol: Callable[[], _Protocol], file: IO[Any]
) -> tuple[asyncio.ReadTransport, _Protocol]:
    """Let the event loop read from a pipe. `file` is closed: the transport gets a descriptor of its own."""
    loop = asyncio.get_running_loop()
    return await loop.connect_read_pipe(make_protocol, _LoopPipe.take(file, loop))


async def connect_write_pipe(
    make_protocol: Callable[[], _Protocol], file: IO[Any]
) -> tuple[asyncio.WriteTransport, _Protocol]:
    """Let the event loop write to a pipe. `file` is closed: the transport gets a descriptor of its own."""
    loop = asyncio.get_running_loop()
    return await loop.connect_write_pipe(make_protocol, _LoopPipe.take(file, loop))


class _LoopPipe:
    """What a transport gets in place of a file. Its descriptor is closed by uvloop, or by this object for a loop of asyncio."""

    def __init__(self, descriptor: int, *, loop_closes: bool) -> None:
        self._descriptor = descriptor
        self._is_open = not loop_closes

    @classmethod
    def take(cls, file: IO[Any], loop: asyncio.AbstractEventLoop) -> Any:
        """Copy the descriptor of a file, and close the file: a file object cannot give its own descriptor away."""
        descriptor = os.dup(file.fileno())
        file.close()
        return cls(descriptor, loop_closes=not isinstance(loop, asyncio.BaseEventLoop))

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._descriptor)
