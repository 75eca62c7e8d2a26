"""Read the bodies of requests, within limits on size, time and total memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.limits import CallerQuota, HttpLimits
from holdfast.wire.http.request import ClientDisconnectedError, Headers, Receive


@dataclass(slots=True, eq=False)
class _UnfinishedBody:
    """A body that has not arrived completely."""

    owner: str
    deadline: asyncio.Timeout
    parts: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    is_dropped: bool = False


class Bodies:
    """The bodies in memory: those that are being read, and those whose requests are being answered.

    When they need too much memory, the oldest unfinished body is dropped. If a caller's own share is used up, only bodies
    from this caller are dropped.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self.memory = CallerQuota(total=limits.body_memory, share=limits.body_memory_per_caller)
        self._unfinished: dict[_UnfinishedBody, None] = {}  # oldest first

    @asynccontextmanager
    async def read(self, receive: Receive, headers: Headers, owner: str) -> AsyncIterator[bytes]:
        """Read the whole body. It counts as in memory until the block ends."""
        length = headers.get("content-length", "")
        if length.isdigit() and (len(length) > 18 or int(length) > self._limits.body_bytes):
            raise self._too_large()
        body = await self._read(receive, owner)
        try:
            yield body
        finally:
            self.memory.release(owner, len(body))

    async def _read(self, receive: Receive, owner: str) -> bytes:
        deadline = asyncio.timeout(self._limits.body_seconds)
        unfinished = _UnfinishedBody(owner, deadline)
        self._unfinished[unfinished] = None
        try:
            async with deadline:
                await self._read_parts(receive, unfinished)
            parts = unfinished.parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            unfinished.size = 0  # `read` releases it
            return body
        except TimeoutError:
            if unfinished.is_dropped:
                raise _out_of_memory() from None
            raise HoldfastError(
                codes.TIMEOUT, f"The body did not arrive within {self._limits.body_seconds:g} s."
            ) from None
        finally:
            self._unfinished.pop(unfinished, None)
            self.memory.release(owner, unfinished.size)

    async def _read_parts(self, receive: Receive, unfinished: _UnfinishedBody) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError
            if unfinished.is_dropped:
                raise _out_of_memory()
            part: bytes = message.get("body", b"")
            if unfinished.size + len(part) > self._limits.body_bytes:
                raise self._too_large()
            self._reserve_memory(unfinished, len(part))
            unfinished.size += len(part)
            unfinished.parts.append(part)
            if not message.get("more_body"):
                return

    def _reserve_memory(self, unfinished: _UnfinishedBody, amount: int) -> None:
        """Count the memory for the next part of a body. Drop other bodies if necessary."""
        while not self.memory.try_acquire(unfinished.owner, amount):
            own_only = self.memory.would_exceed_share(unfinished.owner, amount)
            oldest = next(
                (
                    other
                    for other in self._unfinished
                    if other.size and (not own_only or other.owner == unfinished.owner)
                ),
                None,
            )
            if oldest is None or oldest is unfinished:
                raise _out_of_memory()
            self._drop(oldest)

    def _drop(self, unfinished: _UnfinishedBody) -> None:
        self.memory.release(unfinished.owner, unfinished.size)
        unfinished.size, unfinished.is_dropped = 0, True
        unfinished.parts.clear()
        del self._unfinished[unfinished]
        unfinished.deadline.reschedule(asyncio.get_running_loop().time())

    def _too_large(self) -> HoldfastError:
        return HoldfastError(codes.TOO_LARGE, f"The body is larger than {self._limits.body_bytes} bytes.")


async def discard_body(receive: Receive, limits: HttpLimits) -> None:
    """Read and discard the body of a refused request: many clients read the answer only after they have sent the body."""
    size = 0
    try:
        async with asyncio.timeout(min(limits.refused_body_seconds, limits.body_seconds)):
            while size <= limits.body_bytes:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        pass


def _out_of_memory() -> HoldfastError:
    return HoldfastError(
        codes.BUSY,
        "The memory for the bodies of requests is used up. Send the request again later, or send fewer requests at once.",
    )
