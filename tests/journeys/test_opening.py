"""How a connection begins and a session opens."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.connect.web import sdk_server, serving
from tests.journeys.editor import IMPATIENT, Refused, editor, tools

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-13")]


@pytest.mark.promise("ACP-01")
async def test_initialize_agrees_on_version_1_and_advertises_exactly_what_works(home: Path):
    async with editor(home, introduced=False) as zed:
        answer = await zed.ask("initialize", {"protocolVersion": 7})

        assert answer["protocolVersion"] == 1
        assert answer["authMethods"] == []
        assert answer["agentCapabilities"] == {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {
                "resume": {},
                "close": {},
                "list": {},
                "delete": {},
                "additionalDirectories": {},
            },
        }


@pytest.mark.promise("ACP-01")
async def test_sessions_come_after_the_introduction(home: Path, cwd: Path):
    async with editor(home, introduced=False) as zed:
        with pytest.raises(Refused) as refused:
            await zed.new(cwd)

        assert (refused.value.code, refused.value.message) == (-32600, "Send initialize first.")
        assert refused.value.data["hint"].startswith("Introduce yourself by initialize")


@pytest.mark.promise("ACP-02")
async def test_a_session_works_in_its_folder_wherever_the_process_was_started(home: Path, cwd: Path):
    async with editor(home) as zed:
        one, other = await zed.new(cwd, tools()), await zed.new(cwd, tools())
        await zed.prompt(one, "/call tools.whoami")

        (ended,) = (step for step in zed.updates(one, "tool_call_update") if step["status"] == "completed")
        assert (ended["rawOutput"]["cwd"], ended["rawOutput"]["session"]) == (str(cwd), one)
        assert one != other


@pytest.mark.promise("ACP-02")
async def test_a_session_needs_an_absolute_folder_that_is_there(home: Path):
    async with editor(home) as zed:
        for wrong in [
            "",
            "project",
            "~/x",
            "./x",
            "/no/such/folder",
            "/etc/passwd",
            "/" + "x" * 5000,
            5,
            None,
        ]:
            with pytest.raises(Refused) as refused:
                await zed.ask("session/new", {"cwd": wrong, "mcpServers": []}, checked=False)

            assert (wrong, refused.value.code) == (wrong, -32602)


@pytest.mark.promise("ACP-03")
async def test_additional_directories_are_granted_as_asked_or_refused_by_name(home: Path, cwd: Path):
    beside = cwd.parent / "beside"
    beside.mkdir()
    async with editor(home) as zed:
        refusals: list[int] = []
        for wrong in ["beside", "", 5, None, "/no/such/folder", str(home / "data")]:
            params = {"cwd": str(cwd), "mcpServers": [], "additionalDirectories": [str(beside), wrong]}
            with pytest.raises(Refused) as refused:
                await zed.ask("session/new", params, checked=False)
            refusals.append(refused.value.code)
            assert "additionalDirectories[1]" in refused.value.message
        session = await zed.new(cwd, additionalDirectories=[str(beside)])
        (listed,) = (await zed.ask("session/list", {}))["sessions"]
        await zed.ask("session/close", {"sessionId": session})
        await zed.resume(session, cwd)
        (later,) = (await zed.ask("session/list", {}))["sessions"]

    assert refusals == [-32602] * 6
    assert listed["additionalDirectories"] == [str(beside)]
    assert later["additionalDirectories"] == []  # stored roots are never restored by themselves


@pytest.mark.promise("ACP-03")
async def test_what_is_holdfasts_own_is_granted_to_no_session_by_any_name(home: Path, cwd: Path):
    link = cwd / "link"
    async with editor(home) as zed:
        await zed.new(cwd)  # now there is a data folder
        link.symlink_to(home / "data")
        messages: list[str] = []
        for own in (home / "data", home / "data" / "workspaces", link):
            own.mkdir(exist_ok=True)
            for params in ({"cwd": str(own)}, {"cwd": str(cwd), "additionalDirectories": [str(own)]}):
                with pytest.raises(Refused) as refused:
                    await zed.ask("session/new", {"mcpServers": [], **params})
                assert refused.value.code == -32602
                messages.append(refused.value.message)
        session = await zed.new(home, additionalDirectories=["/"])
        await zed.prompt(session, '/call files.write {"path": "data/holdfast.db-anchor", "text": ""}')
        await zed.prompt(session, '/call files.list {"path": "."}')

        assert messages[:2] == [
            f"cwd: {str(home / 'data')!r} is Holdfast's own and cannot be granted. Name another folder.",
            f"additionalDirectories[0]: {str(home / 'data')!r} is Holdfast's own and cannot be granted. Name another folder.",
        ]
        assert "DENIED: 'data/holdfast.db-anchor' is Holdfast's own" in zed.said(session)
        assert '"name": "data"' in zed.said(session)


@pytest.mark.promise("ACP-07")
async def test_a_broken_server_degrades_the_session_and_each_is_told_by_itself(home: Path, cwd: Path):
    broken: list[Any] = [
        5,
        {"command": "x"},
        {"name": "nothing"},
        {"name": "gone", "command": "/no/such/program", "args": [], "env": []},
    ]
    async with editor(home) as zed:
        params: Any = {"cwd": str(cwd), "mcpServers": [*broken, tools()]}
        session = (await zed.ask("session/new", params, checked=False))["sessionId"]
        reason = await zed.prompt(session, '/call tools.echo {"text": "still here"}')

        said = zed.said(session)
        assert reason == "end_turn"
        assert [name in said for name in ("mcpServers[0]", "mcpServers[1]", "nothing", "gone")] == [True] * 4
        assert "still here" in said


@pytest.mark.promise("ACP-07")
async def test_stdio_http_and_sse_servers_of_the_request_are_connected(home: Path, cwd: Path):
    async with serving(sdk_server().streamable_http_app()) as web, serving(sdk_server().sse_app()) as old:
        reachable = {"HOLDFAST_SERVERS_REACHABLE": "127.0.0.1"}
        async with editor(home, environ=reachable) as zed:
            session = await zed.new(
                cwd,
                tools(),
                {"type": "http", "name": "web", "url": f"{web}/mcp", "headers": []},
                {"type": "sse", "name": "old", "url": f"{old}/sse", "headers": []},
            )
            await zed.ask("session/set_mode", {"sessionId": session, "modeId": "auto"})
            await zed.prompt(session, "/call tools.count\n/call web.count\n/call old.count")

            assert [f"{name}.count:\n1" in zed.said(session) for name in ("tools", "web", "old")] == [
                True
            ] * 3


@pytest.mark.promise("ACP-07")
async def test_an_editor_that_takes_notices_hears_of_refusals_beside_the_conversation(home: Path, cwd: Path):
    async with editor(home, capabilities={"session": {"notices": {}}}) as zed:
        params = {"cwd": str(cwd), "mcpServers": [5]}
        session = (await zed.ask("session/new", params, checked=False))["sessionId"]
        notice = (await zed.until(lambda zed: zed.updates(session, "notice")))[0]
        await zed.prompt(session, "/help")

        assert notice["severity"] == "warning"
        assert notice["title"].startswith("mcpServers[0]: ")
        assert "mcpServers[0]" not in zed.said(session)


async def test_a_session_opens_at_once_however_slow_its_servers_and_the_first_prompt_says_who_is_missing(
    home: Path, cwd: Path
):
    async with editor(home, environ=IMPATIENT) as zed:
        await zed.ask("session/list", {})  # what every session needs is loaded
        began = time.monotonic()
        session = await zed.new(cwd, tools("mute", "--mute"), tools("slow", "--slow"))
        opened = time.monotonic() - began
        await zed.prompt(session, '/call slow.echo {"text": "up by now"}')

        assert opened < 2
        assert "Still starting: mute." in zed.said(session)
        assert "up by now" in zed.said(session)


async def test_what_can_be_typed_is_told_after_the_answer(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        commands = await zed.until(lambda zed: zed.updates(session, "available_commands_update"))

        names = [command["name"] for command in commands[0]["availableCommands"]]
        assert names == ["tools", "call", "servers", "why", "help"]


@pytest.mark.promise("ACP-17")
async def test_an_agent_that_needs_no_authentication_says_so(home: Path):
    async with editor(home) as zed:
        with pytest.raises(Refused) as unknown:
            await zed.ask("authenticate", {"methodId": "x"})
        with pytest.raises(Refused) as logout:
            await zed.ask("logout", {})

        assert (unknown.value.code, logout.value.code) == (-32602, -32601)
        assert unknown.value.data["hint"] == "Go on without: send session/new."
