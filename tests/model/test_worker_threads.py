"""Worker threads: owners take turns, and blocked work makes no other owner wait."""

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest

from holdfast.model.worker_threads import WorkerThreads

pytestmark = pytest.mark.anyio


async def test_result_and_exception_reach_the_caller() -> None:
    workers = WorkerThreads("test", threads=2)
    assert await workers.run(lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        await workers.run(lambda: 1 // 0)


async def test_context_variables_are_inherited() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("caller")
    assert await WorkerThreads("test", threads=1).run(variable.get) == "caller"


async def test_blocked_owner_does_not_delay_another() -> None:
    workers = WorkerThreads("test", threads=4, per_owner=2)
    release = threading.Event()
    blocked = [asyncio.create_task(workers.run(release.wait, owner="a")) for _ in range(20)]
    try:
        assert await asyncio.wait_for(workers.run(lambda: "done", owner="b"), 30) == "done"
        assert not any(task.done() for task in blocked)
    finally:
        release.set()
    assert await asyncio.gather(*blocked) == [True] * 20


async def test_second_call_needs_no_thread_of_a_blocked_first() -> None:
    workers = WorkerThreads("test", threads=2)
    release = threading.Event()
    await workers.run(lambda: None)  # one thread is idle now
    blocked = asyncio.create_task(workers.run(release.wait))
    try:
        assert await asyncio.wait_for(asyncio.create_task(workers.run(lambda: "done")), 30) == "done"
    finally:
        release.set()
    await blocked


async def test_owner_at_its_limit_gets_no_more_threads() -> None:
    workers = WorkerThreads("limited", threads=50, per_owner=2)
    release = threading.Event()
    blocked = [asyncio.create_task(workers.run(release.wait, owner="a")) for _ in range(20)]
    await asyncio.sleep(0)
    try:
        assert sum(thread.name == "holdfast-limited" for thread in threading.enumerate()) <= 2
    finally:
        release.set()
    assert await asyncio.gather(*blocked) == [True] * 20


async def test_without_a_limit_per_owner_the_other_owner_waits() -> None:
    workers = WorkerThreads("test", threads=4)
    release, all_in_use = threading.Event(), threading.Barrier(5)

    def block() -> None:
        if not release.is_set():
            all_in_use.wait(30)
            release.wait()

    blocked = [asyncio.create_task(workers.run(block, owner="a")) for _ in range(20)]
    try:
        await WorkerThreads("other", threads=1).run(all_in_use.wait, 30)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(workers.run(lambda: "done", owner="b"), 0.3)
    finally:
        release.set()
    await asyncio.gather(*blocked)


async def test_cancelled_call_counts_until_it_returns() -> None:
    workers = WorkerThreads("test", threads=2, per_owner=1)
    started, release = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait()

    task = asyncio.create_task(workers.run(block, owner="a"))
    await WorkerThreads("other", threads=1).run(started.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    second = asyncio.create_task(workers.run(lambda: "second", owner="a"))
    await asyncio.sleep(0.1)
    assert not second.done()
    release.set()
    assert await second == "second"


async def test_thousands_of_calls_of_many_owners_all_return() -> None:
    workers = WorkerThreads("test", threads=4, per_owner=2)
    calls = [workers.run(abs, number, owner=str(number % 7)) for number in range(2000)]
    assert await asyncio.gather(*calls) == [*range(2000)]


def test_process_ends_while_a_thread_is_blocked() -> None:
    code = (
        "import asyncio, threading\n"
        "from holdfast.model.worker_threads import WorkerThreads\n"
        "async def main():\n"
        "    task = asyncio.create_task(WorkerThreads('x', threads=1).run(threading.Event().wait))\n"
        "    await asyncio.sleep(0.1)\n"
        "    task.cancel()\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


FORKING = """
import asyncio, os
from holdfast.model.worker_threads import WorkerThreads

workers = WorkerThreads("test", threads=1)
asyncio.run(workers.run(int))
child = os.fork()
if not child:
    asyncio.run(asyncio.wait_for(workers.run(int), 30))
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_process_starts_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)

    assert done.stdout == "7\n"
