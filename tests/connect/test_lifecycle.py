"""Connections, calls and sessions end completely, and without effect on others, no matter how they end."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.connect.back_off import NO_BACK_OFF
from holdfast.connect.connection import Connect, Connection, ConnectOptions
from holdfast.connect.scope import Scope
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import ServerSpec
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from holdfast.wire.messages import Raw
from tests.connect.conftest import HostFactory, counter_entry
from tests.connect.processes import is_alive, kill, server_pids, wait_until

pytestmark = pytest.mark.anyio


async def pid_of(session: Session) -> int:
    return (await session.call("c.whoami")).data["pid"]


@pytest.mark.promise("LNK-07")
async def test_server_killed_in_mid_call_fails_running_calls_and_restarts_without_state(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        pid = await pid_of(session)
        await session.call("c.count")
        in_flight = [asyncio.create_task(session.call("c.sleep", {"seconds": 60})) for _ in range(3)]
        await session.call("c.count")  # the calls before it have arrived
        kill(pid)
        failed = await asyncio.gather(*in_flight)
        after = await asyncio.gather(*(session.call("c.count") for _ in range(3)))

    assert [(answer.code, answer.message) for answer in failed] == [
        ("CONNECTION_CLOSED", "'c' ended before it answered c.sleep. The call may have taken effect.")
    ] * 3
    assert (
        sorted(answer.text[-1] for answer in after),
        [answer.state_lost for answer in after].count(True),
    ) == (
        ["1", "2", "3"],
        1,
    )


@pytest.mark.promise("LNK-07")
async def test_lost_state_is_reported_even_if_the_first_reconnect_fails(
    make_host: HostFactory, tmp_path: Path
):
    broken = tmp_path / "broken"
    entry = {
        "command": "sh",
        "args": [
            "-c",
            f'[ -e {broken} ] && exit 1; exec "$@"',
            "sh",
            counter_entry()["command"],
            *counter_entry()["args"],
        ],
        "env": counter_entry()["env"],
    }
    options = ConnectOptions(end_seconds=0.5, back_off=NO_BACK_OFF)
    async with make_host({"c": entry}, options=options) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.count")
        broken.touch()
        await session.call("c.die")
        failed = await session.call("c.count")
        broken.unlink()
        after, again = await session.call("c.count"), await session.call("c.count")

    assert [(answer.ok, answer.state_lost) for answer in (failed, after, again)] == [
        (False, False),
        (True, True),
        (True, False),
    ]


@pytest.mark.promise("LNK-07")
async def test_server_gets_the_context_again_after_a_reconnect(make_host: HostFactory, tmp_path: Path):
    entry = counter_entry("--handshake", cwd=".")
    async with make_host({"c": entry}) as host, host.session(cwd=tmp_path) as session:
        before = (await session.call("c.whoami")).data
        await session.call("c.die")
        after = (await session.call("c.whoami")).data

    assert before.pop("pid") != after.pop("pid")
    assert before == after


@pytest.mark.promise("LNK-07")
async def test_connect_right_after_a_server_died_gives_a_new_connection(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        spec = session.server("c")
        _, connection = await host.links.connect(session.scope, spec)
        with pytest.raises(HoldfastError):
            await connection.call("die", Raw(b"{}"))
        _, other = await host.links.connect(session.scope, spec)

        assert (other is connection, other.ended.is_set()) == (False, False)


@pytest.mark.promise("LNK-06")
@pytest.mark.promise("LNK-04")
async def test_session_cancelled_while_connecting_leaves_no_process(make_host: HostFactory, tmp_path: Path):
    async def run(host: Host) -> None:
        async with host.session(cwd=tmp_path):
            raise AssertionError("a server that never answers is never connected")

    async with make_host({"c": counter_entry("--mute"), "d": counter_entry()}) as host:
        task = asyncio.create_task(run(host))
        await wait_until(lambda: len(server_pids()) == 2)
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        await wait_until(lambda: server_pids() == set())


@pytest.mark.promise("LNK-04")
async def test_cancelling_one_waiting_call_does_not_end_the_connection(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry("--slow")}) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        waiting, impatient = (asyncio.create_task(session.call("c.count")) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()

        assert (await waiting).text == "1"
        assert impatient.cancelled()
        await session.close()


async def test_cancelled_call_is_cancelled_in_the_server(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        begun = asyncio.Event()
        call = asyncio.create_task(session.call("c.linger", on_progress=lambda report: begun.set()))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        cancelled = (await session.call("c.cancelled")).text

    assert (call.cancelled(), cancelled) == (True, "linger")


async def test_timed_out_call_is_cancelled_in_the_server(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.linger", timeout=0.1)
        cancelled = (await session.call("c.cancelled")).text

    assert cancelled == "linger"


@pytest.mark.promise("LNK-04")
@pytest.mark.parametrize("order", [*itertools.permutations("abc"), "aab", "abcabc", "cba" * 2, "bca" * 3])
async def test_sessions_can_be_opened_and_closed_by_any_task_in_any_order(
    make_host: HostFactory, tmp_path: Path, order: str
):
    async with make_host({"c": counter_entry()}) as host:
        sessions = dict(
            zip(
                "abc",
                await asyncio.gather(*(_open_in_other_task(host, tmp_path) for _ in "abc")),
                strict=True,
            )
        )
        pids = {name: await pid_of(session) for name, session in sessions.items()}

        for name in order:
            await asyncio.create_task(sessions[name].close())
            assert not is_alive(pids[name])
        left = [name for name in "abc" if name not in order]
        assert [is_alive(pids[name]) for name in left] == [True for _ in left]
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0


async def _open_in_other_task(host: Host, folder: Path) -> Session:
    return await asyncio.create_task(host.open(OpenOptions(cwd=folder)))


@pytest.mark.promise("LNK-06")
async def test_failing_close_does_not_stop_the_others(
    make_host: HostFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    servers = {name: counter_entry() for name in ("c", "crash", "stuck")}
    async with make_host(servers) as host:
        host.links._connect = _fail_on_close(host.links._connect)
        async with host.session(cwd=tmp_path) as session:
            pid = await pid_of(session)
            assert session.refusals == ()

        assert (is_alive(pid), server_pids(), session.scope.is_closed) == (False, set(), True)
    assert [record.getMessage() for record in caplog.records] == ["link crashed: crash"]


def _fail_on_close(connect: Connect) -> Connect:
    @asynccontextmanager
    async def opened(spec: ServerSpec, scope: Scope | None) -> AsyncIterator[Connection]:
        async with connect(spec, scope) as connection:
            try:
                yield connection
            finally:
                if spec.name == "crash":
                    raise RuntimeError("close failed")
                if spec.name == "stuck":
                    raise HoldfastError(codes.CONNECTION_CLOSED, "close failed")

    return opened


@pytest.mark.promise("LNK-06")
async def test_servers_are_closed_even_if_the_store_fails(make_host: HostFactory, tmp_path: Path):
    pids: list[int] = []

    async def store_failing() -> None:
        async with make_host({"c": counter_entry()}) as host:
            for _ in range(3):
                pids.append(await pid_of(await host.open(OpenOptions(cwd=tmp_path))))
            await host.store.close()

    with pytest.raises(HoldfastError, match="closed"):
        await store_failing()

    assert ([is_alive(pid) for pid in pids], server_pids()) == ([False] * 3, set())


@pytest.mark.promise("LNK-06")
async def test_link_closed_several_times_while_connecting_leaves_no_process(
    make_host: HostFactory, tmp_path: Path
):
    options = ConnectOptions(end_seconds=0.3)
    async with make_host({"c": counter_entry("--mute")}, options=options) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        await wait_until(lambda: len(server_pids()) == 1)
        link = host.links.get_or_open(session.scope, session.server("c"))
        await asyncio.gather(link.close(), link.close(), link.close())

        await wait_until(lambda: server_pids() == set())
        await session.close()


@pytest.mark.promise("LNK-02")
@pytest.mark.promise("LNK-04")
async def test_closing_a_session_closes_the_servers_of_its_runs(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({"c": counter_entry(lifetime="run")}) as host,
        host.session(cwd=tmp_path) as session,
        host.run(),
    ):
        pid = (await host.call("c.whoami")).data["pid"]
        await session.close()

        assert (is_alive(pid), server_pids()) == (False, set())


@pytest.mark.promise("LNK-08")
async def test_shared_server_is_shared_only_by_sessions_with_the_same_spec(
    make_host: HostFactory, tmp_path: Path
):
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    async with make_host({"c": counter_entry("--shared", lifetime="host")}) as host:
        slug = host.registry.add(other_folder, trust=Trust.DIRECT).slug
        with (tmp_path / "data" / "workspaces" / f"{slug}.toml").open("a") as file:
            file.write('[env.c]\nCOLOUR = "red"\n')
        async with host.session(cwd=tmp_path) as one, host.session(cwd=other_folder) as other:
            answers = [await session.call("c.count") for session in (one, other, one, other)]

    assert [(answer.text, answer.state_lost) for answer in answers] == [
        ("1", False),
        ("1", False),
        ("2", False),
        ("2", False),
    ]


@pytest.mark.promise("LNK-04")
@pytest.mark.promise("LNK-11")
@pytest.mark.parametrize("what", ["a session", "a run"])
async def test_task_cancelled_repeatedly_while_closing_leaks_nothing(
    make_host: HostFactory, tmp_path: Path, what: str
):
    async with make_host({"c": counter_entry()}) as host:
        await host.tools(cwd=tmp_path)  # waits until the host has started
        before = len(asyncio.all_tasks())
        pids: list[int] = []

        async def work() -> None:
            async with host.session(cwd=tmp_path) if what == "a session" else host.run() as session:
                pids.append((await session.call("c.whoami")).data["pid"])
                await asyncio.sleep(600)

        task = asyncio.create_task(work())
        while not pids:
            await asyncio.sleep(0.01)
        for _ in range(50):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])

        assert (task.cancelled(), is_alive(pids[0]), len(asyncio.all_tasks())) == (True, False, before)


@pytest.mark.promise("STO-04")
@pytest.mark.parametrize("steps", range(12))
async def test_cancelled_reopen_releases_the_session(make_host: HostFactory, tmp_path: Path, steps: int):
    async with make_host({}, durable=True) as host, make_host({}, durable=True) as other:
        async with host.session(cwd=tmp_path) as session:
            session_id = str(session.context.session_id)
        task = asyncio.create_task(host.reopen(session_id, OpenOptions(cwd=tmp_path)))
        for _ in range(steps):
            await asyncio.sleep(0.0003)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().close()

        await (await other.reopen(session_id, OpenOptions(cwd=tmp_path))).close()


async def test_isolated_run_cannot_start_in_a_closed_session(make_host: HostFactory, tmp_path: Path):
    over = asyncio.Event()

    async def late(host: Host) -> None:
        await over.wait()
        async with host.run(isolate=True):
            pass

    async with make_host({"c": counter_entry()}) as host:
        async with host.session(cwd=tmp_path):
            task = asyncio.create_task(late(host))
        over.set()

        with pytest.raises(HoldfastError) as refused:
            await task

    assert refused.value.code is codes.SCOPE_CLOSED


async def test_cancelled_host_leaks_nothing(make_host: HostFactory, tmp_path: Path):
    async def serve() -> None:
        async with (
            make_host({"c": counter_entry(), "s": counter_entry("--stubborn")}) as host,
            host.session(cwd=tmp_path),
        ):
            opened.set()
            await asyncio.Event().wait()

    opened = asyncio.Event()
    before = len(os.listdir("/proc/self/fd"))
    task = asyncio.create_task(serve())
    await opened.wait()
    task.cancel()
    await asyncio.wait([task])

    assert (task.cancelled(), server_pids()) == (True, set())
    await wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)
