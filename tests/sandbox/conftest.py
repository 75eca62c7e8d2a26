"""Fixtures: a keeper, the sandbox (checked once per worker), and folders."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper

BWRAP = BwrapSandbox()


@pytest.fixture
async def keeper() -> AsyncIterator[Keeper]:
    """A keeper with a bubblewrap sandbox."""
    if sys.platform != "linux":
        pytest.skip("needs Linux")
    async with Keeper(BWRAP) as keeper:
        yield keeper


@pytest.fixture(scope="session")
def bwrap() -> BwrapSandbox:
    """The bubblewrap sandbox; skips the test if it does not work."""
    availability = asyncio.run(BWRAP.check())
    if not availability.works:
        pytest.skip(availability.reason)
    return BWRAP


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root for a confined server, with a secret file beside it."""
    folder = tmp_path.resolve() / "root"
    folder.mkdir()
    (folder.parent / "secret").write_text("out of reach")
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
