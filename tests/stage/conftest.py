"""A web site and a browser that all these tests share. Each test has a stage of its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.builtin.stage.find_browser import find_browser
from tests.stage.client import Client, run_tools
from tests.stage.site import Site, run_site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_browser() is None:
        reason = "There is no Chromium. Install your system's package 'chromium'."
        for item in items:
            if "tests/stage" in str(item.path) and "browser" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="package")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    with run_site() as running:
        yield running


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session")


@pytest.fixture(scope="package")
async def browser(folder: Path) -> AsyncIterator[Client]:
    """The tools. A stage that stays open keeps the browser running between tests."""
    async with run_tools(folder) as client:
        await client.call("open")
        yield client


@pytest.fixture
async def client(browser: Client, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Client]:
    yield browser
    logged = (record.getMessage() for record in caplog.get_records("call"))
    undeclared = [text for text in logged if text.startswith("undeclared code")]
    assert undeclared == [], "every tool names the codes that it fails with"
    open_stages = (await browser.call("stages"))["stages"]
    for stage in open_stages[1:]:
        await browser.call("close", stage=stage["stage"])
