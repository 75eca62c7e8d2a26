"""Attack 64: while the gateway answers a request, its client sends a next head without an end on the same connection."""

import asyncio
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from holdfast.toolkit import http_server
from holdfast.toolkit.http_server import HEAD_BYTES, MAX_HEAD_LINES, BoundedConnection
from tests.gateway.running import Client, running_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08")]

HEADERS = {
    "many short lines": b"a: b\r\n" * 20 * MAX_HEAD_LINES,
    "one long value": b"a: " + b"b" * 20 * HEAD_BYTES + b"\r\n",
}


class Observed(BoundedConnection):
    """A connection that tells how much of the next head was parsed while a request was running."""

    parsed: ClassVar[int]
    ended: ClassVar[asyncio.Event]
    """Set when all was parsed, or when the connection is lost."""
    total: ClassVar[int]

    def _parse_piece(self, piece: bytes) -> None:
        if self._running:
            Observed.parsed += len(piece)
        self._parse_part_of_head(piece)
        if Observed.parsed >= Observed.total:
            Observed.ended.set()

    def _parse_part_of_head(self, piece: bytes) -> None:
        super()._parse_piece(piece)

    def abort(self) -> None:
        super().abort()
        Observed.ended.set()


class Unlimited(Observed):
    """A connection that limits a head only if no request is running."""

    def _parse_part_of_head(self, piece: bytes) -> None:
        if self._running:
            self._protocol.data_received(piece)
        else:
            super()._parse_part_of_head(piece)


async def parsed_behind_a_stream(folder: Path, headers: bytes) -> int:
    """How many bytes of these headers the gateway parses, if they follow a request that it is answering."""
    folder.mkdir()
    Observed.parsed, Observed.total, Observed.ended = 0, len(headers), asyncio.Event()
    async with running_gateway(folder) as running:
        token, url = running.token(), urlsplit(running.url)
        async with Client(running.url, token) as client:
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
            common = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
            stream = f"Mcp-Session-Id: {client.session_id}\r\nAccept: text/event-stream\r\n\r\n"
            writer.write(f"GET /mcp HTTP/1.1\r\n{common}{stream}".encode())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"GET /mcp HTTP/1.1\r\n{common}".encode() + headers)
            await asyncio.wait_for(Observed.ended.wait(), 60)
            writer.close()
    return Observed.parsed


@pytest.mark.parametrize("kind", HEADERS)
async def test_the_connection_is_closed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "BoundedConnection", Observed)
    found = await parsed_behind_a_stream(tmp_path / "found", HEADERS[kind])
    monkeypatch.setattr(http_server, "BoundedConnection", Unlimited)
    control = await parsed_behind_a_stream(tmp_path / "control", HEADERS[kind])

    assert found <= HEAD_BYTES + 4 * 4096
    assert control >= len(HEADERS[kind])
