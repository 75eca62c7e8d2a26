"""Read a request's body: only so much of it, and only for so long."""

import asyncio

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.headers import Headers
from holdfast.wire.http.reply import Receive
from holdfast.wire.http.terms import Terms


class Gone(Exception):
    """The client hung up before it had said all."""


async def read_body(receive: Receive, headers: Headers, terms: Terms) -> bytes:
    """The whole body; one that is too large or too slow is refused as soon as that shows."""
    length = headers.get("content-length", "")
    if length.isdigit() and (len(length) > 18 or int(length) > terms.body_bytes):
        raise _too_large(terms)
    try:
        async with asyncio.timeout(terms.body_seconds):
            return await _all(receive, terms)
    except TimeoutError:
        raise HoldfastError(
            codes.TIMEOUT, f"The body was not there within {terms.body_seconds:g} s."
        ) from None


async def gone(receive: Receive) -> None:
    """Wait until the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _all(receive: Receive, terms: Terms) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > terms.body_bytes:
            raise _too_large(terms)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(terms: Terms) -> HoldfastError:
    return HoldfastError(codes.TOO_LARGE, f"The body is larger than {terms.body_bytes} bytes.")
