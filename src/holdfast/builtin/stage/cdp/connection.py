"""A connection to a browser: it sends commands, and passes each event to the handler of its session.

Here, a session is a DevTools session, which belongs to a tab or to a part of a tab that has a process of its own.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol, TypeVar, cast

import msgspec

from holdfast.builtin.stage.cdp.protocol import EVENTS, Command

R = TypeVar("R")
OnEvent = Callable[[msgspec.Struct], None]

COMMAND_SECONDS = 10.0
MAX_MESSAGE_BYTES = 128 * 1024 * 1024

# The browser's error for commands that it handles itself, while a page in another process replaces the current page.
_BEING_REPLACED = "Not attached to an active page"
_REPLACING_SECONDS = 3.0
_REPLACING_PAUSE = 0.01

log = logging.getLogger(__name__)


class CdpError(Exception):
    """The browser answered a command with an error."""


class ConnectionLostError(Exception):
    """The connection to the browser is closed."""


class SessionLostError(ConnectionLostError):
    """The page of this session is closed, or its process has ended."""


class NoAnswerError(Exception):
    """The browser did not answer a command in time, or the page crashed before it did."""


class Transport(Protocol):
    """Sends whole messages to the browser."""

    def send(self, message: bytes) -> None: ...
    def close(self) -> None: ...


_EMPTY = msgspec.Raw(b"{}")


class _Error(msgspec.Struct):
    message: str = ""


class _Message(msgspec.Struct, rename="camel"):
    id: int | None = None
    method: str | None = None
    params: msgspec.Raw = _EMPTY
    result: msgspec.Raw = _EMPTY
    error: _Error | None = None
    session_id: str = ""


_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(_Message).decode


class Connection:
    """Sends commands to one browser, and receives its events. The transport calls `receive` and `lost`."""

    def __init__(self) -> None:
        self._transport: Transport | None = None
        self._next_id = 0
        self._waiting: dict[int, tuple[str, asyncio.Future[_Message]]] = {}
        self._handlers: dict[str, OnEvent] = {}
        self._decoders: dict[type, msgspec.json.Decoder[Any]] = {}
        self.closed = asyncio.Event()

    def open(self, transport: Transport) -> None:
        self._transport = transport

    def handle(self, session: str, handler: OnEvent) -> None:
        """Pass the events of a session to this handler. The browser's own session is the empty string."""
        self._handlers[session] = handler

    def forget(self, session: str) -> None:
        """Stop handling a session that has ended. Its unanswered commands fail."""
        self._handlers.pop(session, None)
        self.fail(session, SessionLostError("the page is gone"))

    def fail(self, session: str, error: Exception) -> None:
        """Raise this error in the callers that wait for answers in a session."""
        for owner, future in list(self._waiting.values()):
            if owner == session and not future.done():
                future.set_exception(error)

    async def send(
        self, command: Command[R], session: str = "", timeout: float | None = COMMAND_SECONDS
    ) -> R:
        """Send a command and wait for its result. Raise CdpError, ConnectionLostError or NoAnswerError."""
        try:
            async with asyncio.timeout(timeout):
                message = await self._send_to_page(command, session)
        except TimeoutError:
            raise NoAnswerError(f"{command.METHOD} was not answered within {timeout:g} s") from None
        if message.error is not None:
            raise CdpError(f"{command.METHOD}: {message.error.message[:500]}")
        return cast("R", self._decode(command.RESULT, message.result))

    async def _send_to_page(self, command: Command[Any], session: str) -> _Message:
        """Send a command, and repeat it while the page is being replaced."""
        message = await self._post(command, session)
        deadline = monotonic() + _REPLACING_SECONDS
        while (
            message.error is not None and message.error.message == _BEING_REPLACED and monotonic() < deadline
        ):
            await asyncio.sleep(_REPLACING_PAUSE)
            message = await self._post(command, session)
        return message

    def post(self, command: Command[Any], session: str = "") -> None:
        """Send a command and ignore its result. Does nothing once the connection is closed."""
        if not self.closed.is_set():
            self._post(command, session).add_done_callback(_ignore)

    def _post(self, command: Command[Any], session: str) -> "asyncio.Future[_Message]":
        if self._transport is None or self.closed.is_set():
            raise ConnectionLostError("the browser has ended")
        self._next_id += 1
        number = self._next_id
        message: dict[str, Any] = {"id": number, "method": command.METHOD, "params": command}
        if session:
            message["sessionId"] = session
        future: asyncio.Future[_Message] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        self._waiting[number] = (session, future)
        self._transport.send(_encode(message))
        return future

    def receive(self, data: bytes) -> None:
        try:
            message = _decode_message(data)
        except msgspec.DecodeError:
            message = _decode_message(_without_lone_surrogates(data))
        if message.id is not None:
            waiting = self._waiting.get(message.id)
            if waiting is not None and not waiting[1].done():
                waiting[1].set_result(message)
            return
        event_type = EVENTS.get(message.method or "")
        handler = self._handlers.get(message.session_id)
        if event_type is None or handler is None:
            return
        try:
            handler(self._decode(event_type, message.params))
        except Exception:
            log.exception("event not handled", extra={"event_name": message.method})

    def lost(self) -> None:
        """Fail every command that waits for its answer, because the transport is closed."""
        self.closed.set()
        for _, future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(ConnectionLostError("the browser has ended"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self.lost()

    def _decode(self, kind: type, data: msgspec.Raw) -> Any:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        return decoder.decode(data)


def _ignore(future: "asyncio.Future[_Message]") -> None:
    if not future.cancelled():
        future.exception()


def _without_lone_surrogates(data: bytes) -> bytes:
    """Return the same JSON with lone surrogates replaced: pages can put them into texts, but UTF-8 cannot encode them."""
    text = json.dumps(json.loads(data.decode(errors="replace")), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
