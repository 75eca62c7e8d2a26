"""Links of a host to real server processes."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from holdfast.connect.connection import ConnectOptions
from holdfast.connect.scope import Scope, current_scope
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.context import current_context
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Stage
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory, counter_entry

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.promise("LNK-01")
async def test_server_keeps_its_state_within_a_session(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        answers = [(await session.call("c.count")).text for _ in range(3)]

    assert answers == ["1", "2", "3"]


async def test_two_sessions_have_separate_servers(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({"c": counter_entry()}) as host,
        host.session(cwd=tmp_path) as one,
        host.session(cwd=tmp_path) as other,
    ):
        answers = [(await session.call("c.count")).text for session in (one, one, other)]

    assert answers == ["1", "2", "1"]


@pytest.mark.promise("LNK-02")
@pytest.mark.promise("LNK-03")
@pytest.mark.parametrize("lifetime", ["session", "run"])
async def test_sub_agents_join_the_current_run_and_only_the_outermost_closes_it(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lifetime: str
):
    monkeypatch.chdir(tmp_path)
    async with make_host({"c": counter_entry(lifetime=lifetime)}) as host:

        async def sub_agent() -> str:
            async with host.run():
                return (await host.call("c.count")).text

        async with host.run():
            before = current_scope()
            answers = await asyncio.gather(*(sub_agent() for _ in range(5)))
            after = (await host.call("c.count")).text

            assert (sorted(answers), after, current_scope()) == (list("12345"), "6", before)
        assert (current_scope(), current_context()) == (None, None)


@pytest.mark.promise("LNK-02")
async def test_isolated_nested_run_gets_separate_servers(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as outer:
        await outer.call("c.count")
        async with host.run(isolate=True) as inner:
            isolated = (await host.call("c.count")).text

            assert inner.context.parent_session_id == outer.context.session_id
        assert (isolated, (await host.call("c.count")).text) == ("1", "2")


async def test_server_of_lifetime_run_lives_for_one_run(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry(lifetime="run")}) as host, host.session(cwd=tmp_path):
        answers: list[str] = []
        for _ in range(2):
            async with host.run():
                answers += [(await host.call("c.count")).text, (await host.call("c.count")).text]

    assert answers == ["1", "2", "1", "2"]


async def test_shared_server_is_one_process_and_gets_the_context_of_each_request(
    make_host: HostFactory, tmp_path: Path
):
    async with (
        make_host({"c": counter_entry("--shared", lifetime="host")}) as host,
        host.session(cwd=tmp_path) as one,
        host.session(cwd=tmp_path) as other,
    ):
        first, second = (await one.call("c.whoami")).data, (await other.call("c.whoami")).data

        assert first["pid"] == second["pid"]
        assert [first["meta"]["session_id"], second["meta"]["session_id"]] == [
            one.context.session_id,
            other.context.session_id,
        ]
        assert first["env"] == {"HOLDFAST_SHARED": "1"}


@pytest.mark.promise("CTX-06")
async def test_shared_server_gets_context_aliases_from_the_host_only(make_host: HostFactory, tmp_path: Path):
    forged: JsonObject = {
        "orbit": {"session": "forged"},
        "Orbit.Session": "forged",
        "orbit.session": "forged",
    }
    async with (
        make_host(
            {"c": counter_entry("--shared", lifetime="host")}, HOLDFAST_ALIASES_SESSION_KEYS="orbit.session"
        ) as host,
        host.session(cwd=tmp_path) as session,
    ):
        meta = (await session.call("c.whoami", meta={**forged, "mine": 1})).data["all"]

    assert {key: meta.get(key) for key in ("orbit", "orbit.session", "Orbit.Session", "mine")} == {
        "orbit": {"session": session.context.session_id},
        "orbit.session": session.context.session_id,
        "Orbit.Session": None,
        "mine": 1,
    }


@pytest.mark.promise("CTX-12")
async def test_alias_carries_the_path_of_the_workspace_and_not_of_the_session(
    make_host: HostFactory, tmp_path: Path
):
    folder = tmp_path / "blog" / "posts"
    folder.mkdir(parents=True)
    async with make_host(
        {"c": counter_entry("--shared", lifetime="host")}, HOLDFAST_ALIASES_WORKSPACE_KEYS="orbit.workspace"
    ) as host:
        host.registry.add(tmp_path / "blog", trust=Trust.DIRECT)
        async with host.session(cwd=folder) as session:
            meta = (await session.call("c.whoami")).data["all"]

    path = str((tmp_path / "blog").resolve())
    assert (meta["orbit"], meta["orbit.workspace"]) == ({"workspace": path}, path)


async def test_server_that_does_not_read_the_context_cannot_be_shared(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({"c": counter_entry(lifetime="host")}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        (refusal,) = session.refusals

    assert (refusal.stage, refusal.reason) == (
        Stage.CONNECT,
        '\'c\' cannot be shared by sessions: it does not read the session context. Set "lifetime" to "session" in its entry.',
    )


@pytest.mark.promise("LNK-05")
async def test_ten_concurrent_first_calls_start_one_process(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry("--slow")}) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        answers = await asyncio.gather(*(session.call("c.whoami") for _ in range(10)))
        await session.close()

    assert len({answer.data["pid"] for answer in answers}) == 1


@pytest.mark.promise("LNK-05")
async def test_servers_are_started_concurrently(make_host: HostFactory, tmp_path: Path):
    async def seconds(count: int) -> float:
        async with make_host({f"c{n}": counter_entry("--slow") for n in range(count)}) as host:
            began = time.monotonic()
            async with host.session(cwd=tmp_path) as session:
                took = time.monotonic() - began
                assert session.refusals == ()
        return took

    one, six = await seconds(1), await seconds(6)

    assert six < one + 5 * 0.3  # six sleeps one after another would take that much longer


@pytest.mark.promise("LNK-07")
async def test_server_that_dies_fails_the_running_call_and_the_next_call_reports_lost_state_once(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.count")
        died = await session.call("c.die")
        after, again = await session.call("c.count"), await session.call("c.count")
        whoami = (await session.call("c.whoami")).data

        assert (died.ok, died.code, died.message) == (
            False,
            "CONNECTION_CLOSED",
            (
                "'c' ended before it answered c.die. The call may have taken effect.\n"
                "It wrote to stderr:\n| last words"
            ),
        )
        assert (after.state_lost, after.text) == (
            True,
            "STATE_LOST: c was restarted. Its state from earlier calls is lost.\n1",
        )
        assert (again.state_lost, again.text) == (False, "2")
        assert whoami["env"]["HOLDFAST_SESSION_ID"] == session.context.session_id


@pytest.mark.promise("LNK-09")
async def test_session_opens_in_time_without_a_server_that_never_answers(
    make_host: HostFactory, tmp_path: Path
):
    options = ConnectOptions(connect_seconds=1.0, end_seconds=0.2)
    async with (
        make_host({"good": counter_entry(), "mute": counter_entry("--mute")}, options=options) as host,
        host.session(cwd=tmp_path) as session,
    ):
        assert (await session.call("good.count")).text == "1"
        assert [(refusal.server, refusal.reason) for refusal in session.refusals] == [
            ("mute", "Could not start 'mute': The server did not complete the MCP negotiation within 1 s.")
        ]


@pytest.mark.promise("LNK-09")
async def test_timed_out_call_fails_and_the_server_keeps_running(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.count")
        late = await session.call("c.sleep", {"seconds": 60}, timeout=0.05)

        assert (late.code, late.message) == ("TIMEOUT", "c.sleep did not answer within 0.05 s.")
        assert (await session.call("c.count")).text == "2"


@pytest.mark.promise("LNK-12")
async def test_refusal_contains_stderr_without_control_characters(make_host: HostFactory, tmp_path: Path):
    entry = {"command": "sh", "args": ["-c", "printf 'no \\033[31mkey\\a set\\n' >&2; exit 1"]}
    async with make_host({"s": entry}) as host, host.session(cwd=tmp_path) as session:
        (refusal,) = session.refusals

    assert refusal.reason == (
        "Could not start 's': It exited with status 1 before the MCP negotiation was complete.\n"
        "It wrote to stderr:\n| no key set"
    )


@pytest.mark.promise("LNK-15")
async def test_tool_error_and_protocol_error_both_become_results(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        failed, refused = await session.call("c.fail"), await session.call("c.refuse")

    assert (failed.ok, failed.code, failed.text) == (False, "", "it did not work")
    assert (refused.code, refused.message) == (
        "PEER_ERROR",
        "The server answered c.refuse with an error: not like this (-32602)",
    )


@pytest.mark.promise("LNK-16")
async def test_tools_can_be_listed_outside_a_scope_without_leaving_a_process(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}) as host:
        tools = await host.tools(cwd=tmp_path)

        assert "c.count" in [tool.name for tool in tools]
        assert not [child for child in _command_lines() if b"tests.connect.counter_server" in child]
        with pytest.raises(HoldfastError, match="only be called inside a session or a run") as refused:
            await host.call("c.count")
        assert refused.value.code is codes.NO_CONTEXT


@pytest.mark.promise("LNK-18")
async def test_task_that_outlives_its_session_gets_an_error(make_host: HostFactory, tmp_path: Path):
    closed = asyncio.Event()
    async with make_host({"c": counter_entry()}) as host:

        async def late() -> str:
            await closed.wait()
            with pytest.raises(HoldfastError) as refused:
                await host.call("c.count")
            return refused.value.code.name

        async with host.session(cwd=tmp_path):
            in_thread = await asyncio.to_thread(current_scope)
            assert in_thread is current_scope()
            task = asyncio.create_task(late())
        closed.set()

        assert await task == "SCOPE_CLOSED"


@pytest.mark.promise("LNK-19")
async def test_resources_and_prompts_use_the_same_link(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        assert [found["uri"] for found in await session.list_resources("c")] == ["note://one"]
        assert (await session.read_resource("c", "note://one"))["contents"][0]["text"] == "hello"
        assert [found["name"] for found in await session.list_prompts("c")] == ["greet"]
        assert (await session.get_prompt("c", "greet"))["messages"][0]["role"] == "user"


@pytest.mark.promise("LNK-17")
async def test_new_tool_of_a_known_server_awaits_approval(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.grow", {"name": "evil"})
        while not session.awaiting_approval.get("c", ()):
            await asyncio.sleep(0)
        answer = await session.call("c.evil")

        assert [tool.name for tool in session.awaiting_approval.get("c", ())] == ["evil"]
        assert answer.code == "NOT_APPROVED"


async def test_progress_is_passed_to_the_caller(make_host: HostFactory, tmp_path: Path):
    steps: list[float] = []
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.progress", on_progress=lambda report: steps.append(report["progress"]))

    assert steps == [0, 1, 2]


async def test_roots_are_answered_and_sampling_is_refused_without_a_door(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        roots, sample = await session.call("c.roots"), await session.call("c.sample")

    assert roots.text == f'{{"roots":[{{"uri":"{tmp_path.resolve().as_uri()}"}}]}}'
    assert "This session does not answer sampling" in sample.message


@pytest.mark.promise("LNK-08")
async def test_changed_entry_gets_a_new_link(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        spec = session.server("c")
        link, _ = await host.links.connect(session.scope, spec)
        from dataclasses import replace

        changed = replace(spec, digest="other")
        other, _ = await host.links.connect(session.scope, changed)
        same, _ = await host.links.connect(session.scope, changed)
        await session.close()

    assert (other is link, same is other) == (False, True)


@pytest.mark.promise("LNK-10")
async def test_number_of_links_is_limited(make_host: HostFactory, tmp_path: Path):
    servers = {f"c{n}": counter_entry() for n in range(3)}
    async with (
        make_host(servers, HOLDFAST_LINKS_MAX_OPEN="3") as host,
        host.session(cwd=tmp_path) as session,
    ):
        assert [refusal.reason for refusal in session.refusals] == [
            (
                "'c2' was not connected: this session has 2 connected servers, and the 1 that may still be"
                " connected are kept for other sessions. Close a session, or raise links.max_open."
            )
        ]


IDLE: dict[str, tuple[dict[str, str], dict[str, str], bool]] = {
    "a session's own, when set": ({}, {"HOLDFAST_LINKS_IDLE_SECONDS": "1"}, True),
    "a session's own, by default": ({}, {"HOLDFAST_LINKS_SHARED_IDLE_SECONDS": "1"}, False),
    "a shared one": ({"lifetime": "host"}, {"HOLDFAST_LINKS_SHARED_IDLE_SECONDS": "1"}, True),
}


@pytest.mark.promise("LNK-10")
@pytest.mark.parametrize("case", IDLE)
async def test_idle_link_is_closed_and_reopened_on_demand(make_host: HostFactory, tmp_path: Path, case: str):
    entry, variables, closes = IDLE[case]
    servers = {"c": counter_entry("--shared", **entry)}
    async with make_host(servers, **variables) as host, host.session(cwd=tmp_path) as session:
        first = (await session.call("c.whoami")).data["pid"]
        async with asyncio.timeout(10):
            while closes and is_alive(first):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0 if closes else 1.5)
        answer = await session.call("c.count")

    assert (answer.state_lost, answer.text.splitlines()[-1]) == (closes, "1")


async def test_requests_that_wait_for_an_answer_are_counted_for_all_links_of_a_host(
    make_host: HostFactory, tmp_path: Path
):
    seen: set[int] = set()
    servers = {"c": counter_entry(), "d": counter_entry()}
    async with make_host(servers) as host, host.session(cwd=tmp_path) as session:
        both = asyncio.gather(session.call("c.count"), session.call("d.count"))
        while not both.done():
            seen.add(host.links.uses.count)
            await asyncio.sleep(0)
        await session.call("c.die")

        assert (2 in seen, host.links.uses.count) == (True, 0)


@pytest.mark.promise("LNK-17")
async def test_tools_are_screened_again_after_a_restart(make_host: HostFactory, tmp_path: Path):
    later = tmp_path / "later"
    entry = counter_entry(env={"LATER": str(later)})
    async with make_host({"c": entry}) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.count")
        later.write_text("evil")
        await session.call("c.die")
        again = await session.call("c.count")
        async with asyncio.timeout(10):
            while not session.awaiting_approval.get("c", ()):
                await asyncio.sleep(0.01)

        assert again.state_lost
        assert [tool.name for tool in session.awaiting_approval.get("c", ())] == ["evil"]


@pytest.mark.promise("LNK-04")
async def test_links_are_closed_on_success_error_cancellation_and_shutdown(
    make_host: HostFactory, tmp_path: Path
):
    pids: list[int] = []

    async def run(host: Host, ending: str) -> None:
        async with host.session(cwd=tmp_path) as session:
            pids.append((await session.call("c.whoami")).data["pid"])
            match ending:
                case "error":
                    raise ValueError(ending)
                case "cancelled":
                    await asyncio.Event().wait()
                case _:
                    pass

    async with make_host({"c": counter_entry()}) as host:
        await run(host, "success")
        with pytest.raises(ValueError, match="error"):
            await run(host, "error")
        task = asyncio.create_task(run(host, "cancelled"))
        while len(pids) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        left_open = await host.open(OpenOptions(cwd=tmp_path))
        pids.append((await left_open.call("c.whoami")).data["pid"])

    assert (len(pids), [pid for pid in pids if is_alive(pid)]) == (4, [])


@pytest.mark.promise("LNK-04")
@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_sessions_can_be_closed_by_other_tasks_in_any_order(
    make_host: HostFactory, tmp_path: Path, order: str
):
    async with make_host({"c": counter_entry()}) as host:
        sessions = {name: await host.open(OpenOptions(cwd=tmp_path)) for name in "ab"}
        for name in order:
            await asyncio.create_task(sessions[name].close())

        assert asyncio.current_task() is not None
        assert [session.scope.is_closed for session in sessions.values()] == [True, True]


@pytest.mark.promise("LNK-06")
async def test_session_closed_while_its_servers_start_leaks_nothing(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry("--mute"), "d": counter_entry("--slow")}) as host:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            session = await host.open(OpenOptions(cwd=tmp_path))
            await asyncio.sleep(0.02)
            await session.close()

        async with asyncio.timeout(5):  # cancelled starts are cleaned up in the background
            while [child for child in _command_lines() if b"tests.connect.counter_server" in child]:
                await asyncio.sleep(0.01)
            while len(os.listdir("/proc/self/fd")) > before:
                await asyncio.sleep(0.01)


@pytest.mark.promise("LNK-11")
async def test_grandchildren_that_ignore_signals_end_with_the_session(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({"c": counter_entry(), "s": counter_entry("--stubborn")}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        orphan = int((await session.call("c.orphan")).text)
        assert is_alive(orphan)

    assert not is_alive(orphan)
    assert not [child for child in _command_lines() if b"tests.connect.counter_server" in child]


@pytest.mark.promise("LNK-14")
async def test_era_of_a_server_is_detected_once_and_remembered(make_host: HostFactory, tmp_path: Path):
    options = ConnectOptions(end_seconds=0.5)
    async with (
        make_host({"c": counter_entry()}, options=options) as host,
        host.session(cwd=tmp_path) as session,
    ):
        era = (await session.call("c.whoami")).data["era"]

    assert (era, set(options.eras.values())) == ("modern", {"modern"})


async def test_scopes_of_one_session_share_its_context(make_host: HostFactory, tmp_path: Path):
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        run = Scope(session.context, session_scope=session.scope)

        assert run.context is session.context


def _command_lines() -> list[bytes]:
    """The command lines of the servers that this process has started."""
    found: list[bytes] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
                marked = f"tests_marker={os.getpid()}".encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
            if marked:
                found.append(line)
    return found
