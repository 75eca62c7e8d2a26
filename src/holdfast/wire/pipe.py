"""A peer over a pair of pipes: a child's, or this process's own standard input and output."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any

from holdfast.wire.peer import Peer

_FLUSH_SECONDS = 2.0
_CHUNK = 256 * 1024


@asynccontextmanager
async def over_pipes(
    peer: Peer, source: IO[Any], target: IO[Any], *, grace: float = 0.0
) -> AsyncIterator[Peer]:
    """Join the peer to two open files, which are closed at the end; handlers then get the grace to finish."""
    loop = asyncio.get_running_loop()
    pipe = _Pipe(peer)
    writer, _ = await loop.connect_write_pipe(lambda: _Writer(pipe), target)
    try:
        pipe.writer = writer
        peer.connected(pipe)
        pipe.reader, _ = await loop.connect_read_pipe(lambda: _Reader(peer), source)
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
async def over_stdio(peer: Peer, *, grace: float = 5.0) -> AsyncIterator[Peer]:
    """Join the peer to this process's standard input and output, which nobody else can touch meanwhile.

    A stray `print` goes to standard error, and a child started by a handler reads nothing.
    """
    source, target = _take_stdio()
    sides = _Copiers()
    async with over_pipes(peer, sides.readable(source), sides.writable(target), grace=grace) as joined:
        yield joined
    await asyncio.to_thread(sides.join)


def _take_stdio() -> tuple[IO[bytes], IO[bytes]]:
    sys.stdout.flush()
    source, target = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, target


class _Pipe:
    """The sink of `over_pipes`. Lines of one turn of the loop leave in one write."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self.gone = asyncio.Event()
        self.reader: asyncio.ReadTransport | None = None
        self.writer: asyncio.WriteTransport | None = None

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def pause_reading(self) -> None:
        if self.reader is not None and not self.reader.is_closing():
            self.reader.pause_reading()

    def resume_reading(self) -> None:
        if self.reader is not None and not self.reader.is_closing():
            self.reader.resume_reading()

    async def close(self) -> None:
        self._flush()
        if self.reader is not None:
            self.reader.close()
        if self.writer is not None:
            self.writer.close()
            try:
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self.gone.wait()
            except TimeoutError:
                pass
            finally:
                if not self.gone.is_set():
                    self.writer.abort()

    def lost(self) -> None:
        self.gone.set()
        self._waiting.clear()
        self._peer.lost()

    def pause_writing(self) -> None:
        self._peer.pause_writing()

    def resume_writing(self) -> None:
        self._peer.resume_writing()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and self.writer is not None and not self.gone.is_set():
            self.writer.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


class _Reader(asyncio.Protocol):
    def __init__(self, peer: Peer) -> None:
        self.data_received = peer.received
        self._peer = peer

    def eof_received(self) -> None:
        self._peer.input_ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.input_ended()


class _Writer(asyncio.BaseProtocol):
    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    def pause_writing(self) -> None:
        self._pipe.pause_writing()

    def resume_writing(self) -> None:
        self._pipe.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipe.lost()


class _Copiers:
    """Threads that stand between a pipe and what the event loop cannot watch: a plain file, a device."""

    def __init__(self) -> None:
        self._writers: list[threading.Thread] = []

    def readable(self, source: IO[bytes]) -> IO[bytes]:
        if _watchable(source):
            return source
        read_end, write_end = os.pipe()
        threading.Thread(
            target=_copy, args=(source, os.fdopen(write_end, "wb", buffering=0)), daemon=True
        ).start()
        return os.fdopen(read_end, "rb", buffering=0)

    def writable(self, target: IO[bytes]) -> IO[bytes]:
        if _watchable(target):
            return target
        read_end, write_end = os.pipe()
        thread = threading.Thread(
            target=_copy, args=(os.fdopen(read_end, "rb", buffering=0), target), daemon=True
        )
        thread.start()
        self._writers.append(thread)
        return os.fdopen(write_end, "wb", buffering=0)

    def join(self) -> None:
        for thread in self._writers:
            thread.join(_FLUSH_SECONDS)


def _watchable(file: IO[bytes]) -> bool:
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    with source, target:
        try:
            while data := source.read(_CHUNK):
                target.write(data)
        except OSError:
            pass  # the other end is gone: nothing is left to copy for
