"""Read and check the head of an HTTP request, and wait for its client to disconnect."""

import operator
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS, VERSION_KEY

Headers: TypeAlias = Mapping[str, str]
AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]

MAX_HEADERS = 512
_METHODS = ("DELETE", "GET", "POST")
_strip = operator.methodcaller("strip", " \t")
_LIST_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "cache-control", "cookie", "via"})


class BadHeadError(HoldfastError):
    """The head of a request is not acceptable. `status` is the HTTP status of the answer."""

    def __init__(self, status: int, message: str, *, allow: str = "", closes: bool = False) -> None:
        super().__init__(codes.BAD_HTTP, message)
        self.status = status
        self.allow = allow
        """The methods that are allowed instead."""
        self.closes = closes
        """Whether the connection must be closed after the answer: the bytes after the head may not be a new request."""


class ClientDisconnectedError(Exception):
    """The client disconnected before it had sent its whole body."""


def read_headers(raw: Collection[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name. Repeated list headers are joined; other repeated headers are refused."""
    if len(raw) > MAX_HEADERS:
        raise BadHeadError(431, f"The request has {len(raw)} headers; the maximum is {MAX_HEADERS}.")
    if not raw:
        return {}
    # Decoding all names in one call, and all values in another, is faster than decoding them one by one.
    names, values = zip(*raw, strict=True)
    names = b"\n".join(names).decode("latin-1").lower().split("\n")
    values = b"\n".join(values).decode("latin-1").split("\n")
    if "upgrade" in names and any(
        b"upgrade" in value.lower() for name, value in raw if name.lower() == b"connection"
    ):
        # Some HTTP servers read the body of such a request as the next request.
        raise BadHeadError(
            400,
            "This server does not support protocol upgrades. Send the request without the header Upgrade (in Java: with HttpClient.Version.HTTP_1_1).",
            closes=True,
        )
    headers = dict(zip(names, map(_strip, values), strict=False))
    # The lengths differ if a name is repeated, or if a name or a value has a newline.
    return headers if len(headers) == len(names) == len(values) == len(raw) else _join_repeated(raw)


def _join_repeated(raw: Collection[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by lower-case name, if some names are repeated."""
    headers: dict[str, str] = {}
    for name_bytes, value_bytes in raw:
        name, value = name_bytes.decode("latin-1").lower(), value_bytes.decode("latin-1").strip(" \t")
        if name not in headers:
            headers[name] = value
        elif name in _LIST_HEADERS or name.startswith("x-forwarded"):
            headers[name] += f", {value}"
        else:
            # A proxy might use one of the values, and this server another.
            raise HoldfastError(
                codes.HEADER_MISMATCH, f"The header {name[:80]!r} appears twice. Send it once."
            )
    return headers


def check_method(method: str, headers: Headers) -> None:
    """Raise unless MCP uses this HTTP method, and the headers have the media types that the method requires."""
    if method not in _METHODS:
        raise BadHeadError(
            405, "Use POST, GET or DELETE.", allow=", ".join(_METHODS), closes=method == "CONNECT"
        )
    if method == "POST":
        content_type = headers.get("content-type", "")
        if (
            content_type != "application/json"
            and content_type.partition(";")[0].strip().lower() != "application/json"
        ):
            raise BadHeadError(415, "The body must be application/json.")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise BadHeadError(415, "Send the body without Content-Encoding.")
        if not accepts(headers, "application/json"):
            raise BadHeadError(406, "Accept must allow application/json.")
    elif headers.get("mcp-protocol-version") in MODERN_VERSIONS:
        raise BadHeadError(405, f"This version of MCP has no {method}. Use POST.", allow="POST")
    elif method == "GET" and not accepts(headers, "text/event-stream"):
        raise BadHeadError(406, "Accept must allow text/event-stream.")


def is_modern(meta: JsonObject, headers: Headers) -> bool:
    """Whether a request belongs to the modern era, according to its `_meta` or its version header."""
    version = headers.get("mcp-protocol-version")
    return VERSION_KEY in meta or (version is not None and version not in HANDSHAKE_VERSIONS)


def accepts(headers: Headers, media_type: str) -> bool:
    """Whether the client accepts this media type; without an `Accept` header it accepts any."""
    accept = headers.get("accept")
    return accept is None or _accepts(accept, media_type)


@lru_cache(256)
def _accepts(accept: str, media_type: str) -> bool:
    accepted = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return not accepted.isdisjoint({media_type, f"{media_type.partition('/')[0]}/*", "*/*"})


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
