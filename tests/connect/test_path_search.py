"""A missing program is reported as missing, even if a folder of the PATH cannot be searched."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper


@pytest.fixture
def closed_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.anyio
@pytest.mark.skipif(os.geteuid() == 0, reason="root can search every folder; a plain user runs this test")
async def test_a_missing_program_is_not_reported_as_one_that_may_not_be_executed(
    tmp_path: Path, closed_folder: Path
):
    spec = ProcessSpec(
        argv=("no-such-program",), env={"PATH": f"{closed_folder}:/usr/bin"}, cwd=str(tmp_path)
    )

    async with Keeper() as keeper:
        with pytest.raises(HoldfastError) as caught:
            await keeper.spawn(spec)

    assert caught.value.message == (
        "Could not start 'no-such-program': there is no such program. Install it, or correct the server's command. "
        f"These folders of the PATH could not be searched: {str(closed_folder)!r}."
    )
