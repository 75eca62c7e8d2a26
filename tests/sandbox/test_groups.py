"""Process groups, for machines without wardens: tried here too, so that they work there."""

import signal
from collections.abc import AsyncIterator

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Launch
from holdfast.sandbox.groups import Groups
from holdfast.sandbox.keeper import Keeper
from tests.sandbox.support import PATH, STAY, STUBBORN, Done, gone, line, python, run, started

pytestmark = pytest.mark.anyio


@pytest.fixture
async def plain() -> AsyncIterator[Keeper]:
    async with Keeper(holds=Groups()) as keeper:
        yield keeper


async def test_words_go_both_ways_and_the_exit_code_comes_back(plain: Keeper) -> None:
    code = "import sys; print(sys.stdin.read().upper()); sys.exit(3)"

    assert await run(plain, python(code), b"hi") == Done(code=3, out="HI\n", err="")


async def test_one_that_stays_is_asked_and_one_that_does_not_listen_is_made_to_go(plain: Keeper) -> None:
    ends: list[int] = []

    for code in ("print(flush=True)" + STAY, STUBBORN + "print(flush=True)" + STAY):
        async with started(plain, python(code)) as child:
            await line(child)
        ends.append(await child.wait())

    assert ends == [-signal.SIGTERM, -signal.SIGKILL]


async def test_what_a_server_started_in_its_group_goes_with_it(plain: Keeper) -> None:
    code = "import os, signal\npid = os.fork()\nif pid == 0: signal.pause()\nprint(pid, flush=True)"

    child = await plain.spawn(python(code))
    pid = int(await line(child))
    await child.end(1)
    child.close()

    await gone(pid)


async def test_closing_ends_what_is_left() -> None:
    async with Keeper(holds=Groups()) as keeper:
        child = await keeper.spawn(python(STUBBORN + "print(flush=True)" + STAY))
        await line(child)
    child.close()

    assert await child.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("argv", "cwd", "message"),
    [
        (("no-such-program",), "/", "there is no such program"),
        (("/etc/passwd",), "/", "it may not be executed"),
        (("cat",), "/no/such", "its working folder '/no/such' cannot be entered"),
        (("c\0at",), "/", "a NUL character"),
    ],
)
async def test_what_cannot_be_started_is_told(
    plain: Keeper, argv: tuple[str, ...], cwd: str, message: str
) -> None:
    with pytest.raises(HoldfastError, match=message) as caught:
        await plain.spawn(Launch(argv=argv, env=PATH, cwd=cwd))

    assert caught.value.code == codes.SPAWN_FAILED
