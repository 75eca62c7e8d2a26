"""Initializing a connection and opening sessions."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.connect.web import sdk_server, serve
from tests.journeys.editor import SHORT_WAIT, RpcError, editor, tools_server

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-13")]


@pytest.mark.promise("ACP-01")
async def test_initialize_answers_with_version_1_and_the_capabilities(home: Path):
    async with editor(home, initialize=False) as zed:
        answer = await zed.request("initialize", {"protocolVersion": 7})

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
async def test_session_before_initialize_is_refused(home: Path, cwd: Path):
    async with editor(home, initialize=False) as zed:
        with pytest.raises(RpcError) as refused:
            await zed.new(cwd)

        assert (refused.value.code, refused.value.message) == (-32600, "Send initialize first.")
        assert refused.value.data["hint"].startswith("Send initialize before")


async def test_session_for_one_user_is_not_listed_for_others_and_cannot_be_opened_by_them(
    home: Path, cwd: Path
):
    async with editor(home, "--user", "ann") as zed:
        session = await zed.new(cwd)
        own = await zed.request("session/list", {})
        await zed.request("session/close", {"sessionId": session})
    async with editor(home, "--user", "bob") as vim:
        others = await vim.request("session/list", {})
        with pytest.raises(RpcError) as refused:
            await vim.request("session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": []})

    assert [found["sessionId"] for found in own["sessions"]] == [session]
    assert others["sessions"] == []
    assert "There is no session" in refused.value.message


@pytest.mark.promise("ACP-02")
async def test_session_works_in_its_own_folder(home: Path, cwd: Path):
    async with editor(home) as zed:
        one, other = await zed.new(cwd, tools_server()), await zed.new(cwd, tools_server())
        await zed.prompt(one, "/call tools.whoami")

        (ended,) = (step for step in zed.updates(one, "tool_call_update") if step["status"] == "completed")
        assert (ended["rawOutput"]["cwd"], ended["rawOutput"]["session"]) == (str(cwd), one)
        assert one != other


@pytest.mark.promise("ACP-02")
async def test_session_needs_an_absolute_existing_folder(home: Path):
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
            with pytest.raises(RpcError) as refused:
                await zed.request("session/new", {"cwd": wrong, "mcpServers": []}, checked=False)

            assert (wrong, refused.value.code) == (wrong, -32602)


@pytest.mark.promise("ACP-03")
async def test_additional_directories_are_granted_or_refused_by_name(home: Path, cwd: Path):
    extra = cwd.parent / "extra"
    extra.mkdir()
    async with editor(home) as zed:
        refusals: list[int] = []
        for wrong in ["extra", "", 5, None, "/no/such/folder", str(home / "data")]:
            params = {"cwd": str(cwd), "mcpServers": [], "additionalDirectories": [str(extra), wrong]}
            with pytest.raises(RpcError) as refused:
                await zed.request("session/new", params, checked=False)
            refusals.append(refused.value.code)
            assert "additionalDirectories[1]" in refused.value.message
        session = await zed.new(cwd, additionalDirectories=[str(extra)])
        (listed,) = (await zed.request("session/list", {}))["sessions"]
        await zed.request("session/close", {"sessionId": session})
        await zed.resume(session, cwd)
        (later,) = (await zed.request("session/list", {}))["sessions"]

    assert refusals == [-32602] * 6
    assert listed["additionalDirectories"] == [str(extra)]
    assert later["additionalDirectories"] == []  # stored roots are not restored


@pytest.mark.promise("ACP-03")
async def test_holdfasts_own_folders_are_granted_to_no_session(home: Path, cwd: Path):
    link = cwd / "link"
    async with editor(home) as zed:
        await zed.new(cwd)  # creates the data folder
        link.symlink_to(home / "data")
        messages: list[str] = []
        for own in (home / "data", home / "data" / "workspaces", link):
            own.mkdir(exist_ok=True)
            for params in ({"cwd": str(own)}, {"cwd": str(cwd), "additionalDirectories": [str(own)]}):
                with pytest.raises(RpcError) as refused:
                    await zed.request("session/new", {"mcpServers": [], **params})
                assert refused.value.code == -32602
                messages.append(refused.value.message)
        session = await zed.new(home, additionalDirectories=["/"])
        await zed.prompt(session, '/call files.write {"path": "data/holdfast.db-anchor", "text": ""}')
        await zed.prompt(session, '/call files.list {"path": "."}')

        assert messages[:2] == [
            f"cwd: {str(home / 'data')!r} is one of Holdfast's own folders. Use another folder.",
            f"additionalDirectories[0]: {str(home / 'data')!r} is one of Holdfast's own folders. Use another folder.",
        ]
        assert "DENIED: 'data/holdfast.db-anchor' belongs to Holdfast" in zed.reply_text(session)
        assert "\ndata/\n" in zed.reply_text(session)


@pytest.mark.promise("ACP-07")
async def test_each_broken_server_is_reported_and_the_session_works_without_it(home: Path, cwd: Path):
    broken: list[Any] = [
        5,
        {"command": "x"},
        {"name": "nothing"},
        {"name": "gone", "command": "/no/such/program", "args": [], "env": []},
    ]
    async with editor(home) as zed:
        params: Any = {"cwd": str(cwd), "mcpServers": [*broken, tools_server()]}
        session = (await zed.request("session/new", params, checked=False))["sessionId"]
        reason = await zed.prompt(session, '/call tools.echo {"text": "still here"}')

        said = zed.reply_text(session)
        assert reason == "end_turn"
        assert [name in said for name in ("mcpServers[0]", "mcpServers[1]", "nothing", "gone")] == [True] * 4
        assert "still here" in said


@pytest.mark.promise("ACP-07")
async def test_stdio_http_and_sse_servers_of_the_request_are_connected(home: Path, cwd: Path):
    async with serve(sdk_server().streamable_http_app()) as web, serve(sdk_server().sse_app()) as old:
        local: list[Any] = [
            {"type": "http", "name": "web", "url": f"{web}/mcp", "headers": []},
            {"type": "sse", "name": "old", "url": f"{old}/sse", "headers": []},
        ]
        async with editor(home) as zed, editor(home, "--trust", "sandboxed") as vim:
            session = await zed.new(cwd, tools_server(), *local)
            await zed.request("session/set_mode", {"sessionId": session, "modeId": "auto"})
            await zed.prompt(session, "/call tools.count\n/call web.count\n/call old.count")

            assert [f"{name}.count:\n1" in zed.reply_text(session) for name in ("tools", "web", "old")] == [
                True
            ] * 3

            sandboxed = await vim.new(cwd, *local)
            await vim.prompt(sandboxed, "/servers")
            assert vim.reply_text(sandboxed).count("it is a loopback address") == 2, vim.reply_text(sandboxed)


@pytest.mark.promise("CTX-04")
async def test_editor_of_a_direct_session_sets_variables_that_decide_which_code_runs(home: Path, cwd: Path):
    path = f"{cwd}{os.pathsep}{os.environ['PATH']}"
    own = {"GIT_SSH_COMMAND": "ssh -4", "UV_INDEX_URL": "https://a.example", "NPM_CONFIG_CACHE": "/cache"}
    call = f"/call tools.whoami {json.dumps({'variables': ['PATH', *own]})}"
    async with editor(home) as zed, editor(home, "--trust", "sandboxed") as vim:
        claimed = {"HOLDFAST_TRUST_LEVEL": "sandboxed", "HOLDFAST_SESSION_ID": "sess_0"}
        loader = tools_server("loader", LD_PRELOAD="/evil.so")
        direct = await zed.new(cwd, tools_server(PATH=path, **own, **claimed), loader)
        await zed.prompt(direct, f"/servers\n{call}")
        who = zed.updates(direct, "tool_call_update")[-1]["rawOutput"]
        sandboxed = await vim.new(cwd, tools_server(PATH=path, **own))
        await vim.prompt(sandboxed, "/servers")

    assert {name: who[name] for name in ("PATH", *own)} == {"PATH": path, **own}
    assert (who["session"], who["trust"]) == (direct, "direct")
    assert "loader: env: LD_PRELOAD may not come from" in zed.reply_text(direct)
    assert "PATH may not come from the client's request in a sandboxed session" in vim.reply_text(sandboxed)


@pytest.mark.promise("ACP-07")
async def test_editor_that_supports_notices_gets_refusals_as_notices(home: Path, cwd: Path):
    async with editor(home, capabilities={"session": {"notices": {}}}) as zed:
        params = {"cwd": str(cwd), "mcpServers": [5]}
        session = (await zed.request("session/new", params, checked=False))["sessionId"]
        notice = (await zed.wait_until(lambda zed: zed.updates(session, "notice")))[0]
        await zed.prompt(session, "/help")

        assert notice["severity"] == "warning"
        assert notice["title"].startswith("mcpServers[0]: ")
        assert "mcpServers[0]" not in zed.reply_text(session)


async def test_session_opens_without_waiting_for_servers_and_the_first_prompt_names_the_missing_ones(
    home: Path, cwd: Path
):
    async with editor(home, environ=SHORT_WAIT) as zed:
        await zed.request("session/list", {})  # waits until the process has loaded everything
        session = await zed.new(cwd, tools_server("mute", "--mute"), tools_server("slow", "--slow"))
        await zed.prompt(session, '/call slow.echo {"text": "available by now"}')

        assert "Still starting: mute" in zed.reply_text(session)  # on a busy machine, the slow one as well
        assert "available by now" in zed.reply_text(session)


async def test_commands_are_sent_after_the_session_is_opened(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        commands = await zed.wait_until(lambda zed: zed.updates(session, "available_commands_update"))

        names = [command["name"] for command in commands[0]["availableCommands"]]
        assert {"tools", "call", "servers", "why", "model", "usage", "resources", "logs", "help"} <= {*names}


@pytest.mark.promise("ACP-17")
async def test_authentication_is_refused_with_a_hint(home: Path):
    async with editor(home) as zed:
        with pytest.raises(RpcError) as unknown:
            await zed.request("authenticate", {"methodId": "x"})
        with pytest.raises(RpcError) as logout:
            await zed.request("logout", {})

        assert (unknown.value.code, logout.value.code) == (-32602, -32601)
        assert unknown.value.data["hint"] == "Send session/new without authenticating."
