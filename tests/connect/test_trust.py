"""If the trust of a running session is lowered, the session can at once do only what the lower trust allows."""

import asyncio
from pathlib import Path

import pytest

from holdfast.audit.record import AuditKind, decode_record
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import TrustLowered
from holdfast.model.resolution import Stage
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory, counter_entry, for_sandboxed
from tests.connect.processes import is_alive, server_pids
from tests.sandbox.conftest import bwrap  # pyright: ignore[reportUnusedImport] # noqa: F401

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]


def both_servers() -> dict[str, object]:
    return {"c": for_sandboxed(counter_entry()), "direct": counter_entry()}


@pytest.mark.promise("RES-04")
@pytest.mark.promise("LNK-07")
async def test_next_call_goes_to_a_confined_server_and_reports_lost_state_once(
    make_host: HostFactory, folder: Path
):
    async with make_host(both_servers()) as host, host.session(cwd=folder) as session:
        before = (await session.call("c.whoami")).data
        await session.call("c.count")
        await session.lower_trust()
        after, again = await session.call("c.count"), await session.call("c.count")
        seen = (await session.call("c.whoami")).data

        assert [(answer.text[-1], answer.state_lost) for answer in (after, again)] == [
            ("1", True),
            ("2", False),
        ]
        assert (before["env"]["HOLDFAST_TRUST_LEVEL"], seen["env"]["HOLDFAST_TRUST_LEVEL"]) == (
            "direct",
            "sandboxed",
        )
        assert (seen["meta"]["trust_level"], is_alive(before["pid"])) == ("sandboxed", False)


@pytest.mark.promise("RES-04")
@pytest.mark.promise("RES-05")
async def test_servers_not_marked_for_sandboxed_use_are_closed(make_host: HostFactory, folder: Path):
    async with make_host(both_servers()) as host, host.session(cwd=folder) as session:
        pid = (await session.call("direct.whoami")).data["pid"]
        await session.lower_trust()
        answer = await session.call("direct.count")

        assert (answer.code, is_alive(pid)) == ("SERVER_REFUSED", False)
        assert [(refusal.server, refusal.stage) for refusal in session.refusals] == [("direct", Stage.ADMIT)]


@pytest.mark.promise("RES-04")
async def test_running_call_fails_and_the_servers_of_a_run_are_closed(make_host: HostFactory, folder: Path):
    servers = {"c": for_sandboxed(counter_entry(lifetime="run")), "direct": counter_entry()}
    async with make_host(servers) as host, host.session(cwd=folder) as session, host.run():
        pid = (await host.call("c.whoami")).data["pid"]
        call = asyncio.create_task(host.call("direct.sleep", {"seconds": 60}))
        await host.call("direct.count")
        await session.lower_trust()

        assert ((await call).code, is_alive(pid)) == ("CONNECTION_CLOSED", False)
        assert (await host.call("c.whoami")).data["env"]["HOLDFAST_TRUST_LEVEL"] == "sandboxed"


@pytest.mark.promise("RES-04")
async def test_spec_from_before_the_change_cannot_be_connected(make_host: HostFactory, folder: Path):
    async with make_host(both_servers()) as host, host.session(cwd=folder) as session:
        specs = [session.server(name) for name in ("c", "direct")]
        await session.lower_trust()

        for spec in specs:
            with pytest.raises(HoldfastError, match="the trust of the session was lowered") as refused:
                host.links.get_or_open(session.scope, spec)
            assert refused.value.code is codes.NOT_GRANTED


@pytest.mark.promise("AUD-01")
async def test_audit_records_the_trust_of_each_call(make_host: HostFactory, folder: Path):
    async with make_host(both_servers()) as host, host.session(cwd=folder) as session:
        await session.call("c.count")
        await session.lower_trust()
        await session.call("c.count")
        rows = await host.store.read(lambda tx: [*tx.audit_rows()])

    calls = [note for note in map(decode_record, (row.body for row in rows)) if note.kind is AuditKind.CALL]
    assert [note.trust_level for note in calls] == [Trust.DIRECT, Trust.SANDBOXED]


@pytest.mark.slow
@pytest.mark.promise("RES-04")
async def test_trust_can_be_lowered_at_any_moment_of_a_call(make_host: HostFactory, folder: Path):
    async with make_host(both_servers()) as host:
        for moment in range(12):
            session = await host.open(OpenOptions(cwd=folder))
            calls = [asyncio.create_task(session.call(f"{name}.whoami")) for name in ("c", "direct") * 2]
            for _ in range(moment**2):
                await asyncio.sleep(0)
            await session.lower_trust()
            late = await asyncio.gather(*(session.call("c.whoami") for _ in range(2)))
            await asyncio.gather(*calls)

            assert {answer.data["env"]["HOLDFAST_TRUST_LEVEL"] for answer in late} == {"sandboxed"}
            await session.close()
        assert server_pids() == set()


@pytest.mark.promise("RES-04")
async def test_trust_is_lowered_once_stored_and_never_raised(make_host: HostFactory, folder: Path):
    async with make_host(both_servers()) as host:
        async with host.session(cwd=folder) as session:
            await asyncio.gather(*(session.lower_trust() for _ in range(3)))
            async with host.run(isolate=True) as child:
                assert child.context.trust_level is Trust.SANDBOXED
        events = [kept.event async for kept in host.store.events(session.context.session_id)]
        again = await host.reopen(session.context.session_id, OpenOptions(cwd=folder, trust=Trust.DIRECT))
        await again.close()

    assert [event for event in events if isinstance(event, TrustLowered)] == [
        TrustLowered(trust_level=Trust.SANDBOXED)
    ]
    assert again.context.trust_level is Trust.SANDBOXED
