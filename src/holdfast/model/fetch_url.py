"""Fetch a small document over HTTP, in a thread. The size of the answer and the whole time are limited."""

import http.client
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


class FetchError(Exception):
    """The document could not be fetched. The text says why."""


class Deadline:
    """The time by which all fetches that share it must have ended.

    The timeout of a socket applies to each read, so a server that sends a byte now and then would never exceed it. At the deadline,
    the connections are shut down, and whatever is read or written on them ends. Resolving a name is not interrupted.
    """

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []

    @property
    def seconds_left(self) -> float:
        return self._ends_at - time.monotonic()

    @contextmanager
    def enforced(self) -> Generator[None]:
        """Shut down the connections that are opened in the block, if the deadline passes before the block ends."""
        timer = threading.Timer(max(0.0, self.seconds_left), self._shut_down)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                for connection in self._connections:
                    connection.close()
                self._connections.clear()

    def connect(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Connect to the first address of a host that accepts."""
        host, port = address
        failure: OSError | None = None
        for family, kind, protocol, _name, where in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
            if self.seconds_left <= 0:
                break
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(self.seconds_left)
                connection.connect(where)
                self._watch(connection)
            except OSError as error:
                connection.close()
                failure = error
            else:
                return connection
        raise failure or TimeoutError("the time is over")

    def _watch(self, connection: socket.socket) -> None:
        # A descriptor of its own: TLS moves the descriptor of `connection` to another object.
        own = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._connections.append(own)

    def _shut_down(self) -> None:
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the other side has closed it


def fetch_url(url: str, *, deadline: Deadline, max_bytes: int, use_proxies: bool = True) -> bytes:
    """The body of the answer to GET. Redirects are not followed. Raise `FetchError` if there is none within the limits."""
    proxies = () if use_proxies else (urllib.request.ProxyHandler({}),)
    opener = urllib.request.build_opener(_NoRedirects, _Http(deadline), _Https(deadline), *proxies)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    chunks: list[bytes] = []
    size = 0
    try:
        with deadline.enforced(), opener.open(request, timeout=max(0.001, deadline.seconds_left)) as answer:
            while chunk := answer.read1(65536):
                size += len(chunk)
                if size > max_bytes:
                    raise FetchError("the answer is too large")
                chunks.append(chunk)
    except urllib.error.HTTPError as error:
        error.close()
        raise FetchError(f"status {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(_why(error, deadline)) from None
    if deadline.seconds_left <= 0:  # the end of the answer may be missing
        raise FetchError("it took too long")
    return b"".join(chunks)


def _why(error: Exception, deadline: Deadline) -> str:
    return "it took too long" if deadline.seconds_left <= 0 else type(error).__name__


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead to an address that the caller would refuse."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_connection_maker(http.client.HTTPConnection, self._deadline), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_connection_maker(http.client.HTTPSConnection, self._deadline), req)


def _connection_maker(kind: type[http.client.HTTPConnection], deadline: Deadline) -> Callable[..., Any]:
    def make(*args: Any, **options: Any) -> http.client.HTTPConnection:
        connection = kind(*args, **options)
        connection._create_connection = deadline.connect  # pyright: ignore[reportAttributeAccessIssue]
        return connection

    return make
