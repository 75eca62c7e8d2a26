"""The HTTP server of the scripted endpoint."""

import asyncio
import inspect
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Self, TypeAlias, cast

import msgspec

from holdfast.model.json import JsonObject
from holdfast.testing.scripted_model.endless import endless
from holdfast.testing.scripted_model.formats import document, number_calls, stream
from holdfast.testing.scripted_model.request import FORMATS_BY_PATH, ModelRequest
from holdfast.testing.scripted_model.steps import (
    Answer,
    Endless,
    Fail,
    Hang,
    LongLine,
    RawAnswer,
    Redirect,
    SlowBytes,
    Step,
)

Script: TypeAlias = Sequence[Step] | Callable[[ModelRequest], Step | Awaitable[Step]]
"""A step for each request, in order, or a function that returns the step for a request."""
_SCRIPT_ENDED = Fail(status=400, message="The script has no more steps.")
_SCRIPT_FAILED = Fail(status=400, message="The script failed.")
log = logging.getLogger(__name__)
_PIECE = b"a" * (1 << 20)
_MAX_HEAD = 64 * 1024


class ScriptedModel:
    """Answers model requests from a script, on loopback. Use it with `async with`, or with `with` to run it in a thread of its own.

    A list of steps is used once, in order; a request after the last step fails. A function is called for each request.
    """

    def __init__(self, script: Script, *, models: Sequence[str] = ("scripted",), port: int = 0) -> None:
        self.requests: list[ModelRequest] = []
        """The requests so far."""
        self.events_sent = 0
        """How many events of streams were sent."""
        self.held = 0
        """How many answers were held so far: they reached their `hold_after`, or were a `Hang`."""
        self.abandoned = 0
        """How many held answers the client has abandoned, by closing the connection."""
        self._waiting: list[asyncio.Future[None]] = []
        _check_script(script)
        self._script = script
        self._models = models
        self._port = port
        self._steps = 0
        self._calls = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def address(self) -> str:
        """The URL that Anthropic's and Ollama's clients expect."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """The URL that OpenAI's clients expect."""
        return f"{self.address}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=_MAX_HEAD)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        while connections := set(self._connections):
            for connection in connections:
                connection.cancel()
            await asyncio.wait(connections)
            await asyncio.sleep(0)  # a connection that was being accepted is now in the set
        await self._server.wait_closed()

    def __enter__(self) -> Self:
        started, stop = Future[None](), asyncio.Event()

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            try:
                await self.__aenter__()
            except OSError as error:  # the port is taken
                started.set_exception(error)
                return
            started.set_result(None)
            await stop.wait()
            await self.__aexit__()

        self._stop = stop
        self._thread = threading.Thread(
            target=lambda: asyncio.run(serve()), name="scripted model", daemon=True
        )
        self._thread.start()
        started.result()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(connection)

        def close(_: object) -> None:
            self._connections.discard(connection)
            writer.transport.abort()

        connection.add_done_callback(close)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client may close the connection, or the endpoint may be closed.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._serve_request(reader, writer):
                pass
            writer.close()
            await writer.wait_closed()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. Return whether the connection can be used again."""
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        raw = await _read_body(reader, headers)
        connection = _Connection(reader, writer)
        if method == "GET":
            await connection.send_json(200, self._list_models(path))
            return True
        wire_format = next((name for end, name in FORMATS_BY_PATH.items() if path.endswith(end)), None)
        if wire_format is None:
            await connection.send_json(404, {"error": {"message": f"There is nothing at {path}."}})
            return True
        request = ModelRequest(format=wire_format, path=path, headers=headers, raw=raw)
        self.requests.append(request)
        return await self._answer(request, await self._next_step(request), connection)

    def _list_models(self, path: str) -> JsonObject:
        if path.startswith("/api/"):  # Ollama's own list
            return {"models": [{"name": name, "model": name} for name in self._models]}
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in self._models]}

    async def _next_step(self, request: ModelRequest) -> Step:
        if callable(self._script):
            try:
                step = self._script(request)
                step = await step if inspect.isawaitable(step) else step
                _check_step("What the script's function returns", step)
            except Exception:
                # The test's author finds the reason in the log: many clients do not show an endpoint's error message.
                log.exception("the script of the model failed")
                return _SCRIPT_FAILED
            return step
        self._steps += 1
        if self._steps <= len(self._script):
            return self._script[self._steps - 1]
        log.warning("the script of the model has no more steps: it has %d", len(self._script))
        return _SCRIPT_ENDED

    async def _answer(self, request: ModelRequest, step: Step, connection: "_Connection") -> bool:
        match step:
            case Answer():
                return await self._send_answer(request, step, connection)
            case Fail():
                await connection.wait(step.delay)
                error: JsonObject = {"type": "scripted_error", "message": step.message}
                more = {} if step.retry_after is None else {"retry-after": f"{step.retry_after:g}"}
                await connection.send_json(step.status, {"type": "error", "error": error}, more)
                return True
            case Redirect():
                await connection.send(step.status, b"", {"location": step.location})
                return True
            case RawAnswer():
                headers = {"content-type": step.content_type, **step.headers}
                await connection.send(step.status, step.body, headers)
                return True
            case Hang():
                await self._hold(connection)
            case Endless():
                await self._send_stream(endless(request.format, step), connection, pause=step.pause)
            case LongLine():
                await connection.start_stream()
                await connection.send_chunk(b"data: ")
                for _ in range(0, step.size, len(_PIECE)):
                    await connection.send_chunk(_PIECE)
                await connection.send_chunk(b"\n\n")
                await connection.end_stream()
                return True
            case SlowBytes():
                await connection.start_stream()
                for byte in itertools.cycle(b"data: {}\n\n: slow\n\n"):
                    await connection.send_chunk(bytes([byte]))
                    await connection.wait(step.pause)
        return False

    async def _send_answer(self, request: ModelRequest, step: Answer, connection: "_Connection") -> bool:
        answer, number = number_calls(step, self._calls), len(self.requests)
        await connection.wait(step.delay)
        if not request.is_streamed:
            await connection.send_json(200, document(request.format, answer, request.model, number))
            return True
        events = enumerate(stream(request.format, answer, request.model, number))

        async def limited() -> AsyncIterator[bytes]:
            for index, event in events:
                if index == step.cut_after:
                    connection.cut()
                    return
                if index == step.hold_after:
                    await self._hold(connection)
                    return
                yield event

        await self._send_stream(limited(), connection, pause=step.pause)
        if connection.is_cut:
            return False
        await connection.end_stream()
        return True

    async def _hold(self, connection: "_Connection") -> None:
        self.held += 1
        self._notify()
        await connection.wait_for_end()
        self.abandoned += 1
        self._notify()

    async def wait_held(self, number: int) -> None:
        """Wait until this many answers were held. Use it only with `async with`, in the same event loop."""
        await self._wait_until(lambda: self.held >= number)

    async def wait_abandoned(self, number: int) -> None:
        """Wait until clients have abandoned this many held answers. Use it only with `async with`, in the same event loop."""
        await self._wait_until(lambda: self.abandoned >= number)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            changed = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)

    async def _send_stream(
        self, events: AsyncIterator[bytes], connection: "_Connection", *, pause: float
    ) -> None:
        await connection.start_stream()
        async for event in events:
            await connection.send_chunk(event)
            self.events_sent += 1
            await connection.wait(pause)


class _Connection:
    """The server's side of one HTTP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_cut = False

    async def send_json(self, status: int, body: JsonObject, headers: dict[str, str] | None = None) -> None:
        kind = {"content-type": "application/json"}
        await self.send(status, msgspec.json.encode(body), {**kind, **(headers or {})})

    async def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._send_head(status, {**headers, "content-length": str(len(body))})
        self._writer.write(body)
        await self._writer.drain()

    async def start_stream(self) -> None:
        self._send_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        await self._writer.drain()

    async def send_chunk(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()
        if self._reader.at_eof():
            raise ConnectionResetError

    async def end_stream(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def wait(self, seconds: float) -> None:
        if seconds:
            await asyncio.sleep(seconds)

    async def wait_for_end(self) -> None:
        """Wait until the client closes the connection."""
        while await self._reader.read(1024):
            pass
        self.is_cut = True

    def cut(self) -> None:
        """End the connection in the middle of the stream."""
        self._writer.transport.abort()
        self.is_cut = True

    def _send_head(self, status: int, headers: dict[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode("latin-1"))


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    chunks: list[bytes] = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(chunks)


def _check_script(script: object) -> None:
    """Raise unless this is a list of steps, or a function."""
    if callable(script):
        return
    if isinstance(script, str) or not isinstance(script, Sequence):
        raise TypeError(
            f"A script must be a list of steps or a function, not a value of the type {type(script).__name__}."
        )
    for index, step in enumerate(cast("Sequence[object]", script)):
        _check_step(f"Step {index} of the script", step)


def _check_step(what: str, step: object) -> None:
    if not isinstance(step, Step):
        raise TypeError(
            f"{what} must be a step such as answer(…) or Fail(…), not a value of the type {type(step).__name__}."
        )
