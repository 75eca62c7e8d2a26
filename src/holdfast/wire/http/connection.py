"""The connection of an HTTP request, if the HTTP server passes it to the ASGI application."""

from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.wire.loop_throttle import LoopThrottle

CONNECTION_EXTENSION = "holdfast.connection"
"""The ASGI extension with the `Connection` of a request."""


class Connection(Protocol):
    """The connection of a request. The server and the application both enforce limits on it."""

    throttle: LoopThrottle
    """Limits the time to parse what arrives on this connection. Once the caller is known, the application replaces it by the caller's throttle."""

    def request_received(self) -> None:
        """Note that the application has received a whole request of a known caller.

        Until then, the server may close the connection to make room for a new one.
        """
        ...

    def request_refused(self, *, is_chunked: bool) -> None:
        """Note that the application refuses a request before its body is read."""
        ...


def connection_of(scope: Mapping[str, Any]) -> Connection | None:
    """The connection of a request; None if the server does not pass it."""
    return scope.get("extensions", {}).get(CONNECTION_EXTENSION)


def report_refusal(scope: Mapping[str, Any]) -> None:
    """Tell the connection of a request that the request is refused before its body is read."""
    if (connection := connection_of(scope)) is not None:
        is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        connection.request_refused(is_chunked=is_chunked)
