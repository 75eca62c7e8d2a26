"""A sink that keeps what a peer writes, line by line, and a tap to watch."""

import asyncio
import json
from typing import Any


class Tape:
    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.closed = False
        self._grown = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written += data
        self._grown.set()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    async def close(self) -> None:
        self.closed = True

    @property
    def messages(self) -> list[Any]:
        return [json.loads(line) for line in self.written.splitlines()]

    async def wait_for(self, count: int) -> list[Any]:
        """The messages written so far, once there are this many."""
        async with asyncio.timeout(10):
            while len(messages := self.messages) < count:
                self._grown.clear()
                await self._grown.wait()
        return messages
