"""`async with` blocks of sessions that another task ends, that overlap, or that belong to another event loop."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, Host, PermissionQuestion, ServerConfigs, Session
from holdfast import sync as sync_holdfast
from holdfast.store.memory import MemoryStore
from holdfast.testing import host_of
from holdfast.toolkit import Toolbox

pytestmark = pytest.mark.anyio


def counter() -> Toolbox:
    box, total = Toolbox("counter"), [0]

    @box.tool()
    def add() -> int:  # pyright: ignore[reportUnusedFunction]
        """Add one."""
        total[0] += 1
        return total[0]

    return box


async def add(host: Host) -> int | str:
    """Add one in the current session, or return the code of the error."""
    try:
        return (await host.call("counter.add")).data["result"]
    except HoldfastError as error:
        return error.code.name


async def in_new_task(work: Any) -> None:
    """Run this in a task with an empty context, as the event loop closes a generator that was not run to its end."""
    await asyncio.get_running_loop().create_task(work, context=Context())


BLOCKS: list[Callable[[Host], Any]] = [lambda host: host.session(), lambda host: host.run()]


@pytest.mark.parametrize("block", BLOCKS, ids=["session", "run"])
async def test_a_generator_with_a_session_can_be_left_early_and_be_closed_by_another_task(
    block: Callable[[Host], Any],
):
    async with host_of(counter=counter) as host:

        async def totals() -> AsyncIterator[tuple[Session, int]]:
            async with block(host) as session:
                while True:
                    yield session, (await session.call("counter.add")).data["result"]

        generator = totals()
        session, total = await anext(generator)
        await in_new_task(generator.aclose())  # type: ignore[attr-defined]

        assert (total, session.is_closing, await add(host)) == (1, True, "NO_CONTEXT")
        async with host.run():
            assert await add(host) == 1


async def test_a_task_that_was_started_in_a_block_that_another_task_ended_gets_an_error():
    async with host_of(counter=counter) as host:
        block, ended = host.session(), asyncio.Event()

        async def later() -> int | str:
            await ended.wait()
            return await add(host)

        await block.__aenter__()
        task = asyncio.create_task(later())
        await in_new_task(block.__aexit__(None, None, None))
        ended.set()

        assert (await task, await add(host)) == ("SCOPE_CLOSED", "NO_CONTEXT")


async def test_blocks_that_overlap_leave_nothing_behind():
    async with host_of(counter=counter) as host:
        first, second = host.session(), host.session()
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        in_second = await add(host)
        await second.__aexit__(None, None, None)

        assert (in_second, await add(host)) == (1, "NO_CONTEXT")


async def test_a_session_that_several_callers_reopened_is_closed_when_the_last_block_ends():
    async with host_of(counter=counter) as host:
        async with host.session() as session:
            session_id = session.context.session_id
        left: list[asyncio.Event] = [asyncio.Event() for _ in range(3)]
        entered, is_closed = asyncio.Barrier(3), list[bool]()

        async def request(number: int) -> list[int | str]:
            async with host.reopen(session_id) as session:
                await entered.wait()
                await left[number].wait()
                totals = [(await session.call("counter.add")).data["result"], await add(host)]
            is_closed.append(session.is_closing)
            left[number - 1].set()
            return totals

        left[1].set()  # the order is 1, 0, 2
        totals = await asyncio.gather(*map(request, range(3)))

        assert totals == [[3, 4], [1, 2], [5, 6]]
        assert is_closed == [False, False, True]
        assert host.find_live(session_id) is None


async def test_reopening_a_session_that_a_block_has_open_does_not_end_it_and_its_function_is_not_asked_later():
    asked: list[str] = []

    def say(name: str) -> Callable[[PermissionQuestion], bool]:
        def ask(question: PermissionQuestion) -> bool:
            asked.append(name)
            return True

        return ask

    async with host_of(counter=counter) as host, host.session(permission="ask", ask=say("outer")) as session:
        async with await host.reopen(session.context.session_id, ask=say("inner")) as same:
            assert same is session
        asked.clear()
        result = await session.call("counter.add")

    assert (result.ok, asked) == (True, ["outer"])


async def test_a_closed_session_is_closed_for_every_caller():
    async with host_of(counter=counter) as host, AsyncExitStack() as stack:
        async with host.session() as session:
            session_id = session.context.session_id
        for _ in range(2):
            session = await stack.enter_async_context(host.reopen(session_id))
        await session.close()

        assert (host.find_live(session_id), await add(host)) == (None, "SCOPE_CLOSED")


async def test_another_event_loop_gets_an_error_that_says_what_to_do():
    def elsewhere(work: Callable[[], Any]) -> str:
        async def use() -> str:
            with pytest.raises(HoldfastError) as raised:
                await work()
            return raised.value.message.partition(",")[0]

        return asyncio.run(use())

    async with host_of(counter=counter) as host, host.session() as session:
        uses: list[Callable[[], Any]] = [
            lambda: host.session().__aenter__(),
            lambda: host.__aexit__(None, None, None),
            lambda: host.reopen(session.context.session_id),
            lambda: session.call("counter.add"),
            session.tools,
            lambda: session.prompt("/tools"),
            session.close,
        ]
        said = [await asyncio.to_thread(elsewhere, use) for use in uses]
        still_works = (await session.call("counter.add")).ok

    assert said == [
        *["The host was opened in another event loop"] * 3,
        *["The session was opened in another event loop"] * 4,
    ]
    assert still_works


FORKED = """
import asyncio, os, sys
from holdfast import HoldfastError, Host, sync
from holdfast.store.memory import MemoryStore
from holdfast.toolkit import Toolbox

box = Toolbox("box")

@box.tool()
def ping() -> str:
    "Answer."
    return "pong"

def in_fork(*uses):
    child = os.fork()
    if child == 0:
        for use in uses:
            try:
                use()
            except HoldfastError as error:
                print(error.message.partition(",")[0], flush=True)
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

def make(kind):
    return kind(store=MemoryStore(), servers={"box": box})

host = make(sync.Host).open()
session = host.session(only_these=False)
in_fork(lambda: session.call("box.ping"), host.session, session.close, host.close)
in_fork()  # the child exits with an open host
print(session.call("box.ping").ok, flush=True)
host.close()

async def main():
    async with make(Host) as host, host.session() as session:
        child = os.fork()
        if child == 0:
            for use in (lambda: session.call("box.ping"), lambda: host.session().__aenter__()):
                try:
                    await use()
                except HoldfastError as error:
                    print(error.message.partition(",")[0], flush=True)
            os._exit(7)  # else asyncio would close descriptors that the parent's event loop polls
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        print((await session.call("box.ping")).ok, flush=True)

asyncio.run(main())
"""


def test_a_forked_process_is_told_that_it_cannot_use_the_host_and_closes_nothing(tmp_path: Path):
    (tmp_path / "config.toml").touch()
    environ = {
        **os.environ,
        "HOLDFAST_CONFIG": str(tmp_path / "config.toml"),
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
    }

    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    was = "was opened in the process that this one was forked from"
    by_sync = [f"The host {was}"] * 2 + ["7", "7", "True"]
    by_async = [f"The session {was}", f"The host {was}", "7", "True"]
    assert done.stdout.splitlines() == [*by_sync, *by_async], done.stderr


def test_a_sync_session_that_the_application_forgot_is_closed_with_the_host(monkeypatch: pytest.MonkeyPatch):
    unraisable, happened = list[Any](), list[str]()
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    @asynccontextmanager
    async def lifespan(box: Toolbox) -> AsyncIterator[None]:
        happened.append("begin")
        yield
        happened.append("end")

    servers: ServerConfigs = {"box": lambda: Toolbox("box", lifespan=lifespan)}
    host = sync_holdfast.Host(store=MemoryStore()).open()
    host.session(servers=servers, only_these=True)
    gc.collect()
    after_session = [*happened]
    host.close()
    gc.collect()

    assert (after_session, happened, unraisable) == (["begin"], ["begin", "end"], [])
