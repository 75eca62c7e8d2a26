"""The DevTools protocol over two pipes (`--remote-debugging-pipe`): messages that end with a NUL byte."""

import asyncio
from io import FileIO
from typing import cast

from holdfast.builtin.stage.cdp.connection import MAX_MESSAGE_BYTES, Connection
from holdfast.model.loop_pipes import connect_read_pipe, connect_write_pipe


class PipeTransport(asyncio.Protocol):
    """Reads messages from one pipe, and writes messages to another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parts: list[bytes] = []
        self._size = 0
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None

    @classmethod
    async def open(cls, connection: Connection, reader: FileIO, writer: FileIO) -> "PipeTransport":
        """Connect to a browser that reads and writes the other ends of these pipes."""
        transport = cls(connection)
        writing, _ = await connect_write_pipe(lambda: _WriteEnd(transport), writer)
        transport._writing = writing
        await connect_read_pipe(lambda: transport, reader)
        connection.open(transport)
        return transport

    def send(self, message: bytes) -> None:
        self.write(message + b"\0")

    def write(self, data: bytes) -> None:
        """Write bytes that are not a message. Used before the browser starts: a shell reads the pipe until then."""
        assert self._writing is not None
        if not self._writing.is_closing():
            self._writing.write(data)

    def close(self) -> None:
        for transport in (self._writing, self._reading):
            if transport is not None:
                transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._reading = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        *whole, rest = data.split(b"\0")
        for part in whole:
            message = b"".join((*self._parts, part)) if self._parts else part
            self._parts, self._size = [], 0
            if message:
                self._connection.receive(message)
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > MAX_MESSAGE_BYTES:
                self.close()
                self._connection.lost()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()
        self._connection.lost()


class _WriteEnd(asyncio.Protocol):
    """Reports that the browser has closed the pipe that it reads from."""

    def __init__(self, transport: PipeTransport) -> None:
        self._transport = transport

    def pause_writing(self) -> None:
        """Do nothing. Commands are small, and each caller waits for its answer, so they do not accumulate."""

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport.connection_lost(exc)
