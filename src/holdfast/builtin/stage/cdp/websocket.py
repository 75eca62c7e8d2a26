"""The DevTools protocol over a WebSocket, to a browser or an Electron app that Holdfast has not started."""

import asyncio
import http.client
import json
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from holdfast.builtin.stage.cdp.connection import MAX_MESSAGE_BYTES, Connection
from holdfast.model.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_CONNECT_SECONDS = 5.0
_MAX_ANSWER_BYTES = 64 * 1024
_THREADS = WorkerThreads("stage-attach", threads=2)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NOT_LOCAL = "it must be an address on this machine, such as 127.0.0.1:9222"


class NotAnEndpointError(Exception):
    """There is no DevTools endpoint at an address; the message says why."""


class MissingLibraryError(Exception):
    """The package `websockets` is not installed."""


class WebSocketTransport:
    """Sends and receives messages in two tasks of its own."""

    def __init__(self, connection: Connection, socket: "ClientConnection") -> None:
        self._connection = connection
        self._socket = socket
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._write())]

    @classmethod
    async def open(cls, connection: Connection, url: str) -> "WebSocketTransport":
        """Connect to the browser with this `ws:` address. Raise NotAnEndpointError if the answer is not that of a WebSocket."""
        try:
            from websockets.asyncio.client import connect
            from websockets.exceptions import WebSocketException
        except ImportError:
            raise MissingLibraryError from None
        try:
            socket = await connect(
                url, max_size=MAX_MESSAGE_BYTES, compression=None, open_timeout=_CONNECT_SECONDS, proxy=None
            )
        except WebSocketException as error:
            raise NotAnEndpointError(f"no browser answers there ({error})") from None
        transport = cls(connection, socket)
        connection.open(transport)
        return transport

    def send(self, message: bytes) -> None:
        self._outgoing.put_nowait(message)

    def close(self) -> None:
        self._outgoing.put_nowait(None)

    async def _write(self) -> None:
        while (message := await self._outgoing.get()) is not None:
            await self._socket.send(message, text=True)
        await self._socket.close()

    async def _receive(self) -> None:
        try:
            async for message in self._socket:
                self._connection.receive(message.encode() if isinstance(message, str) else message)
        finally:
            self._connection.lost()


async def find_endpoint(address: str) -> str:
    """Return the `ws:` address of the browser that answers at `address`, such as `127.0.0.1:9222`, or an http or ws address."""
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        host, port = url.hostname, url.port
    except ValueError:
        raise NotAnEndpointError(_NOT_LOCAL) from None
    if url.scheme not in ("http", "ws") or host not in LOOPBACK or port is None:
        raise NotAnEndpointError(_NOT_LOCAL)
    if url.scheme == "ws" and url.path not in ("", "/"):
        return address
    return await _THREADS.run(_read_endpoint, host, port)


def _read_endpoint(host: str, port: int) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
    try:
        connection.request("GET", "/json/version", headers={"Host": f"{host}:{port}"})
        answer = connection.getresponse().read(_MAX_ANSWER_BYTES)
        described: Any = json.loads(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotAnEndpointError(f"no browser answers there ({error})") from None
    finally:
        connection.close()
    address = (
        cast("dict[str, Any]", described).get("webSocketDebuggerUrl") if isinstance(described, dict) else None
    )
    if not isinstance(address, str) or not _is_local_websocket(address):
        raise NotAnEndpointError("what answers there is not a browser")
    return address


def _is_local_websocket(address: str) -> bool:
    try:
        url = urlsplit(address)
    except ValueError:
        return False
    return url.scheme == "ws" and url.hostname in LOOPBACK
