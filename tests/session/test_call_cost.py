"""What a call costs the host: no task of its own, one masking, two commits, shared with other calls."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.masking.events import mask_event
from holdfast.model import codes
from holdfast.model.event import Event, ToolCalled, ToolEnded, ToolStarted
from holdfast.model.permission import Mode
from holdfast.session.session import Session
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.database import Database, connect
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.store.sessions import raises_code

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@asynccontextmanager
async def durable_session(
    make_host: HostFactory, folder: Path, statements: list[str]
) -> AsyncIterator[Session]:
    """A session of a host on disk, whose statements are recorded."""

    class RecordingConnection:
        def __init__(self, db: Database) -> None:
            self._db, self.close = db, db.close

        @property
        def in_transaction(self) -> bool:
            return self._db.in_transaction

        def execute(self, sql: str, parameters: Any = (), /) -> Any:
            statements.append(sql.partition(" (")[0])
            return self._db.execute(sql, parameters)

    async with (
        SqliteStore(folder / "holdfast.db", connect=lambda path: RecordingConnection(connect(path))) as store,
        Host(settings=make_host({}).settings, servers={"c": counter_entry()}, store=store) as host,
        host.session(cwd=folder) as session,
    ):
        await session.call("c.count")
        statements.clear()
        yield session


@contextmanager
def tasks_counted() -> Iterator[list[str]]:
    """The names of the functions for which a task is made in this block."""
    loop, made = asyncio.get_running_loop(), list[str]()

    def make_task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        made.append(work.__qualname__)
        return asyncio.Task(work, loop=loop, **more)

    loop.set_task_factory(make_task)
    try:
        yield made
    finally:
        loop.set_task_factory(None)


async def test_call_makes_no_task(make_host: HostFactory, tmp_path: Path) -> None:
    async with durable_session(make_host, tmp_path, []) as session:
        with tasks_counted() as tasks:
            result = await session.call("c.count")

    assert (result.text, tasks) == ("2", [])


async def test_call_masks_each_of_its_events_once(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[type[Event]] = []

    def count(event: Event, *more: Any) -> Event:
        masked.append(type(event))
        return mask_event(event, *more)

    async with durable_session(make_host, tmp_path, []) as session:
        for module in ("holdfast.session.record", "holdfast.session.call_record", "holdfast.store.appender"):
            monkeypatch.setattr(f"{module}.mask_event", count)
        await session.call("c.count")
        monkeypatch.undo()

    assert masked == [ToolCalled, ToolEnded]


async def test_call_takes_two_commits_that_read_nothing(make_host: HostFactory, tmp_path: Path) -> None:
    statements: list[str] = []
    async with durable_session(make_host, tmp_path, statements) as session:
        await session.call("c.count")
        of_the_call = [*statements]

    begin, end = ["BEGIN IMMEDIATE", "PRAGMA data_version"], ["COMMIT"]
    event, audit = "INSERT INTO events", "INSERT INTO audit"
    assert of_the_call == [*begin, event, event, *end, *begin, event, audit, *end]


async def test_calls_at_once_share_commits(make_host: HostFactory, tmp_path: Path) -> None:
    statements: list[str] = []
    async with durable_session(make_host, tmp_path, statements) as session:
        await asyncio.gather(*(session.call("c.count") for _ in range(100)))
        commits = statements.count("COMMIT")
        kinds = [
            type(stored.event) async for stored in session.record._store.events(session.context.session_id)
        ]  # pyright: ignore[reportPrivateUsage]

    assert [kinds.count(kind) for kind in (ToolCalled, ToolStarted, ToolEnded)] == [101, 101, 101]
    assert commits <= 100  # 200 if each call made its own


async def test_task_continues_after_its_session_was_closed_during_a_call(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with make_host({"c": counter_entry("--shared", lifetime="host")}) as host:
        session = await host.open(OpenOptions(cwd=tmp_path, mode=Mode.AUTO))
        await session.wait_ready_and_store()
        running = asyncio.Event()

        async def call_and_continue() -> tuple[str, int]:
            result = await session.call("c.linger", on_progress=lambda _: running.set())
            await asyncio.sleep(0)  # raises if the task is still being cancelled
            with raises_code(codes.SCOPE_CLOSED):
                await session.call("c.count")
            task = asyncio.current_task()
            assert task is not None
            return result.code, task.cancelling()

        caller = asyncio.create_task(call_and_continue())
        await running.wait()
        await session.close()

        assert await caller == ("SCOPE_CLOSED", 0)


async def test_caller_that_is_cancelled_while_its_session_is_closed_is_cancelled(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with make_host({"c": counter_entry("--shared", lifetime="host")}) as host:
        session = await host.open(OpenOptions(cwd=tmp_path, mode=Mode.AUTO))
        await session.wait_ready_and_store()
        running = asyncio.Event()
        caller = asyncio.create_task(session.call("c.linger", on_progress=lambda _: running.set()))
        await running.wait()
        cancel_all = session._calls.cancel_all  # pyright: ignore[reportPrivateUsage]

        async def cancel_caller_too() -> None:
            caller.cancel()
            await cancel_all()

        session._calls.cancel_all = cancel_caller_too  # pyright: ignore[reportPrivateUsage]
        await session.close()

        assert (await asyncio.gather(caller, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        ended = [stored.event async for stored in host.store.events(session.context.session_id)]
        assert [type(event) for event in ended if isinstance(event, ToolEnded)] == [ToolEnded]
