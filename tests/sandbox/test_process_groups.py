"""Process groups, which replace supervisors on other platforms; tested on Linux, too."""

import signal
from collections.abc import AsyncIterator

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.keeper.process_groups import ProcessGroups
from tests.sandbox.support import (
    IGNORE_SIGTERM,
    PATH,
    SLEEP_FOREVER,
    Completed,
    python,
    read_line,
    run,
    started,
    wait_exit,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def groups_keeper() -> AsyncIterator[Keeper]:
    async with Keeper(starter=ProcessGroups()) as keeper:
        yield keeper


async def test_input_output_and_exit_code_are_passed_on(groups_keeper: Keeper) -> None:
    code = "import sys; print(sys.stdin.read().upper()); sys.exit(3)"

    assert await run(groups_keeper, python(code), b"hi") == Completed(code=3, out="HI\n", err="")


@pytest.mark.parametrize(("setup", "ended_by"), [("", signal.SIGTERM), (IGNORE_SIGTERM, signal.SIGKILL)])
async def test_server_gets_sigterm_and_then_sigkill(
    groups_keeper: Keeper, setup: str, ended_by: signal.Signals
) -> None:
    async with started(groups_keeper, python(setup + "print(flush=True)" + SLEEP_FOREVER)) as child:
        await read_line(child)

    assert await child.wait() == -ended_by


async def test_processes_in_the_group_end_with_the_server(groups_keeper: Keeper) -> None:
    code = "import os, signal\npid = os.fork()\nif pid == 0: signal.pause()\nprint(pid, flush=True)"

    child = await groups_keeper.spawn(python(code))
    pid = int(await read_line(child))
    await child.end(1)
    child.close()

    await wait_exit(pid)


async def test_closing_the_keeper_ends_running_servers() -> None:
    async with Keeper(starter=ProcessGroups()) as keeper:
        child = await keeper.spawn(python(IGNORE_SIGTERM + "print(flush=True)" + SLEEP_FOREVER))
        await read_line(child)
    child.close()

    assert await child.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("argv", "cwd", "message"),
    [
        (("no-such-program",), "/", "there is no such program"),
        (("/etc/passwd",), "/", "it may not be executed"),
        (("cat",), "/no/such", "it cannot change to its working directory '/no/such'"),
        (("c\0at",), "/", "a NUL character"),
    ],
)
async def test_failed_start_gives_the_reason(
    groups_keeper: Keeper, argv: tuple[str, ...], cwd: str, message: str
) -> None:
    with pytest.raises(HoldfastError, match=message) as caught:
        await groups_keeper.spawn(ProcessSpec(argv=argv, env=PATH, cwd=cwd))

    assert caught.value.code == codes.SPAWN_FAILED
