"""A keeper for every test that asks for one; the sandbox is tried out once per worker."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.sandbox.bwrap import Bwrap
from holdfast.sandbox.keeper import Keeper

BWRAP = Bwrap()


@pytest.fixture
async def keeper() -> AsyncIterator[Keeper]:
    """A keeper that can confine."""
    if sys.platform != "linux":
        pytest.skip("needs Linux")
    async with Keeper(BWRAP) as keeper:
        yield keeper


@pytest.fixture(scope="session")
def bwrap() -> Bwrap:
    """The sandbox, where it works."""
    found = asyncio.run(BWRAP.check())
    if not found.works:
        pytest.skip(found.reason)
    return BWRAP


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for a confined server, with a secret beside it."""
    folder = tmp_path.resolve() / "root"
    folder.mkdir()
    (folder.parent / "secret").write_text("out of reach")
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
