"""Read an HTTP request: its headers, and its body within limits of size and time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.limits import HttpLimits

Headers: TypeAlias = Mapping[str, str]
AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]

_LIST_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "cache-control", "cookie", "via"})


class ClientDisconnectedError(Exception):
    """The client disconnected before it had sent its whole body."""


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name. Repeated list headers are joined; other repeated headers are refused."""
    headers: dict[str, str] = {}
    for name_bytes, value_bytes in raw:
        name, value = name_bytes.decode("latin-1").lower(), value_bytes.decode("latin-1").strip(" \t")
        if name not in headers:
            headers[name] = value
        elif name in _LIST_HEADERS or name.startswith("x-forwarded"):
            headers[name] += f", {value}"
        else:
            # A proxy and this server might use different ones of the values.
            raise HoldfastError(codes.HEADER_MISMATCH, f"The header {name[:80]!r} appears twice.")
    return headers


def accepts(headers: Headers, media_type: str) -> bool:
    """Whether the client accepts this media type; without an `Accept` header it accepts any."""
    accept = headers.get("accept")
    return accept is None or _accepts(accept, media_type)


@lru_cache(256)
def _accepts(accept: str, media_type: str) -> bool:
    accepted = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return not accepted.isdisjoint({media_type, f"{media_type.partition('/')[0]}/*", "*/*"})


async def read_body(receive: Receive, headers: Headers, limits: HttpLimits) -> bytes:
    """Read the whole body; refuse one that is too large or too slow as soon as possible."""
    length = headers.get("content-length", "")
    if length.isdigit() and (len(length) > 18 or int(length) > limits.body_bytes):
        raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read_parts(receive, limits)
    except TimeoutError:
        raise HoldfastError(
            codes.TIMEOUT, f"The body did not arrive within {limits.body_seconds:g} s."
        ) from None


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_parts(receive: Receive, limits: HttpLimits) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limits.body_bytes:
            raise _too_large(limits)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limits: HttpLimits) -> HoldfastError:
    return HoldfastError(codes.TOO_LARGE, f"The body is larger than {limits.body_bytes} bytes.")
