"""Connect a peer to a pair of pipes: the pipes of a child process, or standard input and output."""

import asyncio
import io
import os
import select
import stat
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any, cast

from holdfast.model.light_event import LightEvent
from holdfast.model.loop_pipes import connect_read_pipe, connect_write_pipe
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.peer import Peer

_FLUSH_SECONDS = 2.0  # how long closing waits until everything is written
_FLUSH_BYTES = 64 * 1024  # with more buffered bytes, they are written at once
_CHUNK_BYTES = 256 * 1024  # how much a copying thread reads at once
# poll() always reports that a pipe was hung up. For a socket, this event must be requested; only Linux has it.
_HANG_UP_EVENTS = getattr(select, "POLLRDHUP", 0)


@asynccontextmanager
async def connect_pipes(
    peer: Peer, source: IO[Any], target: IO[Any], *, grace: float = 0.0
) -> AsyncIterator[Peer]:
    """Connect the peer to two open files. On exit, handlers get `grace` seconds to finish; then the files are closed."""
    pipe = _PipeTransport(peer)
    writer, _ = await connect_write_pipe(lambda: _Writer(pipe), target)
    try:
        pipe.writer = writer
        peer.connection_made(pipe)
        pipe.reader, _ = await connect_read_pipe(lambda: _Reader(peer), source)
    except BaseException:
        writer.abort()
        raise
    try:
        yield peer
    finally:
        try:
            await peer.close(grace=grace)
        finally:
            await pipe.close()


@asynccontextmanager
async def connect_stdio(
    peer: Peer, *, grace: float = 5.0, stdio: tuple[IO[bytes], IO[bytes]] | None = None
) -> AsyncIterator[Peer]:
    """Connect the peer to standard input and output, or to the files that `take_stdio` returned before.

    Other code can no longer use standard input and output: `print` writes to standard error, and child processes get an empty
    standard input.
    """
    source, target = stdio or take_stdio()
    copiers = _Copiers()
    async with connect_pipes(
        peer, copiers.watchable_source(source), copiers.watchable_target(target), grace=grace
    ) as connected:
        yield connected
    await WorkerThreads("flush", threads=1).run(copiers.join)


def take_stdio() -> tuple[IO[bytes], IO[bytes]]:
    """Move standard input and output to new descriptors. Other code then uses /dev/null and standard error instead."""
    source, target = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)
    os.dup2(2, 1)
    sys.stdout.flush()  # what was printed before, at the import of a module for example, goes to standard error too
    stdout: object = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        # Otherwise printed lines would reach standard error only when the buffer is full.
        cast("io.TextIOWrapper[Any]", stdout).reconfigure(line_buffering=True)
    return source, target


class _PipeTransport:
    """The transport of `connect_pipes`. In each iteration of the event loop, the first line is sent at once, and the following lines in one write."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._buffer: list[bytes] = []
        self._size = 0
        self._is_flush_scheduled = False
        self.closed = LightEvent()
        self.reader: asyncio.ReadTransport | None = None
        self.writer: asyncio.WriteTransport | None = None

    def write(self, data: bytes) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)
            if self.writer is not None and not self.closed.is_set():
                self.writer.write(data)
                return
        self._buffer.append(data)
        self._size += len(data)
        if self._size > _FLUSH_BYTES:
            self._write_buffered()  # now, so that the writer can pause the peer before its next line

    def pause_reading(self) -> None:
        if self.reader is not None and not self.reader.is_closing():
            self.reader.pause_reading()

    def resume_reading(self) -> None:
        if self.reader is not None and not self.reader.is_closing():
            self.reader.resume_reading()

    def has_hung_up(self) -> bool:
        if self.reader is None or self.reader.is_closing():
            return True
        poll = select.poll()
        poll.register(self.reader.get_extra_info("pipe").fileno(), _HANG_UP_EVENTS)
        return bool(poll.poll(0))

    async def close(self) -> None:
        self._flush()
        if self.reader is not None:
            self.reader.close()
        if self.writer is not None:
            self.writer.close()
            try:
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self.closed.wait()
            except TimeoutError:
                pass
            finally:
                if not self.closed.is_set():
                    self.writer.abort()

    def connection_lost(self) -> None:
        self.closed.set()
        self._buffer.clear()
        self._peer.connection_lost()

    def pause_writing(self) -> None:
        self._peer.pause_writing()

    def resume_writing(self) -> None:
        self._peer.resume_writing()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if self._buffer:
            self._write_buffered()

    def _write_buffered(self) -> None:
        buffered, self._buffer = self._buffer, []
        self._size = 0
        if self.writer is not None and not self.closed.is_set():
            self.writer.write(buffered[0] if len(buffered) == 1 else b"".join(buffered))


class _Reader(asyncio.Protocol):
    def __init__(self, peer: Peer) -> None:
        self.data_received = peer.data_received
        self._peer = peer

    def eof_received(self) -> None:
        self._peer.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.eof_received()


class _Writer(asyncio.BaseProtocol):
    def __init__(self, pipe: _PipeTransport) -> None:
        self._pipe = pipe

    def pause_writing(self) -> None:
        self._pipe.pause_writing()

    def resume_writing(self) -> None:
        self._pipe.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipe.connection_lost()


class _Copiers:
    """Gives the event loop pipes in place of files that it cannot watch, such as plain files and devices. Threads copy the data."""

    def __init__(self) -> None:
        self._target_threads: list[threading.Thread] = []

    def watchable_source(self, source: IO[bytes]) -> IO[bytes]:
        """The source itself if the event loop can watch it, else a pipe that a thread fills from it."""
        if _is_watchable(source):
            return source
        read_end, write_end = os.pipe()
        threading.Thread(
            target=_copy, args=(source, os.fdopen(write_end, "wb", buffering=0)), daemon=True
        ).start()
        return os.fdopen(read_end, "rb", buffering=0)

    def watchable_target(self, target: IO[bytes]) -> IO[bytes]:
        """The target itself if the event loop can watch it, else a pipe that a thread empties into it."""
        if _is_watchable(target):
            return target
        read_end, write_end = os.pipe()
        thread = threading.Thread(
            target=_copy, args=(os.fdopen(read_end, "rb", buffering=0), target), daemon=True
        )
        thread.start()
        self._target_threads.append(thread)
        return os.fdopen(write_end, "wb", buffering=0)

    def join(self) -> None:
        """Wait until everything has been copied to the targets, for a limited time."""
        for thread in self._target_threads:
            thread.join(_FLUSH_SECONDS)


def _is_watchable(file: IO[bytes]) -> bool:
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    with source, target:
        try:
            while data := source.read(_CHUNK_BYTES):
                target.write(data)
        except OSError:
            pass  # the other end has closed its file
