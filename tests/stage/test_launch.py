"""What is started for a browser, when, and with which priority."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.builtin.stage.find_browser import find_browser
from holdfast.builtin.stage.first_browser import FirstBrowser
from holdfast.builtin.stage.launch import BrowserProcess, prepare
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.sandbox.keeper.client import KeeperClient
from tests.stage.processes import Descendants, nice_value

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_browser() is None, reason="There is no Chromium."),
]


@pytest.fixture
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)  # a confined browser of root runs as nobody
        yield Path(folder) / "browsers"


@asynccontextmanager
async def prepared(options: LaunchOptions) -> AsyncIterator[BrowserProcess]:
    process = await prepare(options)
    try:
        yield process
    finally:
        await process.close()


def open_starter() -> KeeperClient:
    starter = KeeperClient()
    starter.open()
    return starter


def waiting(base: Path) -> list[int]:
    """The processes of a sandbox in which a shell waits."""
    return [pid for pid, command in running(base).items() if "read -r start" in command]


def browsers(base: Path) -> list[int]:
    return [pid for pid, command in running(base).items() if command.startswith(str(find_browser()))]


def running(base: Path) -> dict[int, str]:
    found = Descendants(os.getpid()).running()
    return {pid: command for pid, command in found.items() if str(base) in command}


async def test_only_the_browser_of_a_sandboxed_session_has_a_lower_priority(base: Path):
    own = nice_value(os.getpid())
    async with prepared(LaunchOptions(folder_base=base)):
        direct = max(map(nice_value, waiting(base)))
    async with prepared(LaunchOptions(folder_base=base, is_sandboxed=True, hosts=("*",))):
        sandboxed = max(map(nice_value, waiting(base)))

    assert (direct, sandboxed) == (own, min(own + 5, 19))


async def test_a_server_prepares_the_sandbox_of_its_first_browser_and_no_browser(base: Path):
    first = FirstBrowser(LaunchOptions(folder_base=base, early="sandbox"), starter := open_starter())
    keeper = Descendants(starter.pid or 0)
    before = len(browsers(base))
    first.begin()
    process = await first.launch()
    try:
        during = browsers(base)
        below_keeper = keeper.running()
    finally:
        await process.close()

    assert (before, waiting(base)) == (0, [])
    assert set(during) & set(below_keeper), "the process that was started before has started the browser"
    assert starter.pid is None


async def test_a_first_browser_that_no_call_needs_leaves_nothing(base: Path):
    for early in ("sandbox", "browser"):
        first = FirstBrowser(LaunchOptions(folder_base=base, early=early), starter := open_starter())
        keeper = Path(f"/proc/{starter.pid}")
        first.begin()
        await first.discard()
        await first.discard()
        assert (starter.pid, keeper.exists()) == (None, False)

    assert [*base.glob("*")] == []
    assert waiting(base) == browsers(base) == []


@pytest.mark.slow
async def test_a_first_browser_that_has_ended_in_the_meantime_is_replaced(base: Path):
    first = FirstBrowser(LaunchOptions(folder_base=base, early="sandbox"))
    first.begin()
    begun = first._starting
    assert begun is not None
    (await begun).connection.close()

    process = await first.launch()
    is_open = not process.connection.closed.is_set()
    await process.close()

    assert is_open
    assert [*base.glob("*")] == []
