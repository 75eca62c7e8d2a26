"""Attack 57: another program of this machine opens connections to the port of a login, until the host can open no more files."""

import asyncio
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.connect.http import login
from tests.connect.http.test_login import Browser, ProtectedServer, protected

__all__ = ["protected"]

pytestmark = pytest.mark.anyio

MANY = 100


class CrowdedBrowser(Browser):
    """Logs in while another program has many connections to the port, and counts those that are open afterwards."""

    left = 0

    async def _go(self, url: str) -> None:
        port = urlsplit(parse_qs(urlsplit(url).query)["redirect_uri"][0]).port
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MANY)]
        # A connection of its own follows the page: when it is answered, all earlier ones were accepted.
        await super()._go(url)
        self.left = sum([not await is_closed(reader) for reader, _ in crowd])
        for _, writer in crowd:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    await asyncio.sleep(0)
    return reader.at_eof() or reader.exception() is not None


async def connections_left(folder: Path, protected: ProtectedServer) -> int:
    folder.mkdir()
    browser = CrowdedBrowser()
    result = await login.log_in(protected.spec, folder=folder, on_login_page=browser.open, seconds=20)
    assert result.was_required
    await asyncio.gather(*browser._tasks)  # pyright: ignore[reportPrivateUsage]
    return browser.left


async def test_the_oldest_connections_make_room(
    tmp_path: Path, protected: ProtectedServer, monkeypatch: pytest.MonkeyPatch
):
    found = await connections_left(tmp_path / "found", protected)
    monkeypatch.setattr(login, "_MAX_CONNECTIONS", 10 * MANY)
    control = await connections_left(tmp_path / "control", protected)

    assert found <= 16
    assert control == MANY
