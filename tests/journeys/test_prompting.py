"""Turns: prompts, updates, permission, modes and cancellation."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.json import JsonObject
from tests.journeys.editor import (
    Editor,
    RpcError,
    always_choose,
    confined_tools_server,
    editor,
    prompt_params,
    tools_server,
)

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-13")]


def calls(zed: Editor, session: str) -> list[list[str]]:
    """The statuses of each call, in order."""
    steps: dict[str, list[str]] = {}
    for call, status in zed.call_statuses(session):
        steps.setdefault(call, []).append(status)
    return list(steps.values())


def permissions(zed: Editor) -> int:
    return sum(method == "session/request_permission" for method, _ in zed.agent_requests)


def write_command(file: Path) -> str:
    return f'/call tools.write {{"path": "{file}", "text": "hi"}}'


@pytest.mark.promise("ACP-08", "ACP-09")
async def test_each_step_of_a_call_is_sent_with_its_title_input_and_location(home: Path, cwd: Path):
    file = cwd / "note"
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        reason = await zed.prompt(session, write_command(file))

        (call,) = zed.updates(session, "tool_call")
        assert (reason, file.read_text()) == ("end_turn", "hi")
        assert calls(zed, session) == [["pending", "in_progress", "completed"]]
        assert (call["title"], call["kind"], call["rawInput"], call["locations"]) == (
            "tools.write",
            "other",
            {"path": str(file), "text": "hi"},
            [{"path": str(file)}],
        )


@pytest.mark.promise("ACP-09")
async def test_read_only_tool_runs_without_permission_unless_only_a_client_server_says_so(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        asked: list[tuple[str, int]] = []
        for command in ("/call files.list", '/call tools.echo {"text": "hi"}'):
            asked.append((await zed.prompt(session, command), permissions(zed)))

        assert asked == [("end_turn", 0), ("end_turn", 1)]
        assert calls(zed, session) == [["pending", "in_progress", "completed"]] * 2
        (question,) = [params for method, params in zed.agent_requests if "permission" in method]
        assert question["toolCall"]["title"] == "tools.echo (server with your rights, not confined)"


@pytest.mark.promise("ACP-09")
@pytest.mark.parametrize(
    ("outcome", "written"),
    [
        ({"outcome": "selected", "optionId": "allow_once"}, True),
        ({"outcome": "selected", "optionId": "reject"}, False),
        ({"outcome": "cancelled"}, False),
    ],
    ids=["allow_once", "reject", "cancelled"],
)
async def test_user_is_asked_about_each_call_that_may_change_something(
    home: Path, cwd: Path, outcome: JsonObject, written: bool
):
    file = cwd / "note"
    async with editor(home) as zed:
        zed.answers["session/request_permission"] = lambda _: {"outcome": outcome}
        session = await zed.new(cwd, tools_server())
        reasons = [await zed.prompt(session, write_command(file)) for _ in range(2)]

        statuses = ["pending", "in_progress", "completed"] if written else ["pending", "failed"]
        assert (reasons, permissions(zed), file.exists()) == (["end_turn"] * 2, 2, written)
        assert calls(zed, session) == [statuses] * 2


@pytest.mark.promise("ACP-09")
async def test_always_allow_applies_to_one_session(home: Path, cwd: Path):
    write = write_command(cwd / "note")
    async with editor(home) as zed:
        zed.answers["session/request_permission"] = always_choose("allow_always")
        session, other = await zed.new(cwd, tools_server()), await zed.new(cwd, tools_server())
        asked = [(await zed.prompt(session, write), permissions(zed)) for _ in range(2)]
        await zed.prompt(other, write)

        assert asked == [("end_turn", 1), ("end_turn", 1)]
        assert permissions(zed) == 2


@pytest.mark.promise("ACP-09", "ACP-17")
async def test_mode_decides_about_permission_and_is_sent_and_restored(home: Path, cwd: Path):
    file = cwd / "note"
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.request("session/set_mode", {"sessionId": session, "modeId": "read-only"})
        await zed.prompt(session, write_command(file))
        refused = file.exists(), permissions(zed)
        option = {"sessionId": session, "configId": "mode", "value": "auto"}
        answer = await zed.request("session/set_config_option", option)
        await zed.prompt(session, write_command(file))
        allowed = file.exists(), permissions(zed)
        modes = [update["currentModeId"] for update in zed.updates(session, "current_mode_update")]
        options = [
            update["configOptions"][0]["currentValue"]
            for update in zed.updates(session, "config_option_update")
        ]
    async with editor(home) as zed:
        loaded = await zed.load(session, cwd, tools_server())
        await zed.request("session/close", {"sessionId": session})
        resumed = await zed.resume(session, cwd, tools_server())

    assert refused == (False, 0)
    assert allowed == (True, 0)
    assert answer["configOptions"][0]["currentValue"] == "auto"
    assert (modes, options) == (["read-only", "auto"], ["read-only", "auto"])
    assert loaded["modes"]["currentModeId"] == resumed["modes"]["currentModeId"] == "auto"


@pytest.mark.promise("ACP-17")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/set_config_option", {"configId": "colour", "value": "red"}),
        ("session/set_config_option", {"configId": "mode", "value": "yolo"}),
        ("session/set_mode", {"modeId": "yolo"}),
    ],
)
async def test_unknown_option_or_mode_is_refused(home: Path, cwd: Path, method: str, params: Any):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        with pytest.raises(RpcError) as refused:
            await zed.request(method, {"sessionId": session, **params})

        assert refused.value.code == -32602


@pytest.mark.slow
@pytest.mark.usefixtures("bwrap")
@pytest.mark.promise("ACP-17", "RES-04")
async def test_trust_can_be_lowered_and_not_raised(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, confined_tools_server(cwd))
        await zed.prompt(session, "/call tools.whoami")
        option = {"sessionId": session, "configId": "trust", "value": "sandboxed"}
        answer = await zed.request("session/set_config_option", option)
        codes: list[int] = []
        for raised in ("direct", "all of it"):
            with pytest.raises(RpcError) as error:
                await zed.request("session/set_config_option", {**option, "value": raised})
            codes.append(error.value.code)
        await zed.prompt(session, "/call tools.whoami")
        who = [
            step["rawOutput"]["trust"]
            for step in zed.updates(session, "tool_call_update")
            if "rawOutput" in step
        ]
        await zed.request("session/close", {"sessionId": session})
        loaded = await zed.load(session, cwd)

    assert [found["configOptions"][1]["currentValue"] for found in (answer, loaded)] == ["sandboxed"] * 2
    assert codes == [-32602, -32602]
    assert who == ["direct", "sandboxed"]


@pytest.mark.promise("ACP-08")
async def test_cancel_ends_the_turn_after_its_last_update_and_stops_running_calls(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        one, two = cwd / "one", cwd / "two"
        lines = "\n".join(f'/call tools.wait {{"started": "{file}"}}' for file in (one, two))
        turn = zed.start_prompt(session, lines)
        queued = [zed.start_prompt(session, "/help") for _ in range(3)]
        await zed.wait_until(
            lambda zed: [status for _, status in zed.call_statuses(session)].count("in_progress") == 2
        )
        await _wait_for_files(one, two)
        zed.notify("session/cancel", {"sessionId": session})
        reasons = [(await request)["stopReason"] for request in (turn, *queued)]
        count = len(zed.received)
        await _wait_for_files(one.with_suffix(".cancelled"), two.with_suffix(".cancelled"))
        after = await zed.prompt(session, '/call tools.echo {"text": "go on"}')

        assert reasons == ["cancelled"] * 4
        assert calls(zed, session)[:2] == [["pending", "in_progress", "failed"]] * 2
        assert all(session_id == session for session_id, _ in zed.received[:count])
        assert (after, "go on" in zed.reply_text(session)) == ("end_turn", True)


@pytest.mark.promise("ACP-08")
async def test_cancel_right_after_prompts_cancels_all_of_them(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, "/tools")
        reasons: list[str] = []
        for round_number in range(5):
            started = cwd / f"{round_number}"
            turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{started}", "seconds": 3}}')
            queued = [zed.start_prompt(session, f"queued {round_number}.{index}") for index in range(3)]
            zed.notify("session/cancel", {"sessionId": session})
            reasons += [(await request)["stopReason"] for request in (turn, *queued)]
        await zed.request("session/close", {"sessionId": session})
        await zed.load(session, cwd)
        prompts = [update["content"]["text"] for update in zed.updates(session, "user_message_chunk")]

    assert reasons == ["cancelled"] * 20
    assert [text for text in prompts if text.startswith("queued")] == [
        f"queued {round_number}.{index}" for round_number in range(5) for index in range(3)
    ]
    assert len(prompts) == 21


@pytest.mark.promise("ACP-08")
async def test_cancel_of_a_prompt_that_waits_for_its_session_takes_effect(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        for _ in range(30):
            await zed.prompt(session, "/help")
        await zed.request("session/close", {"sessionId": session})
        count = len(zed.received)
        loaded = zed.start_request(
            "session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools_server()]}
        )
        await zed.wait_until(lambda zed: len(zed.received) > count)
        turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 3}}')
        zed.notify("session/cancel", {"sessionId": session})
        await loaded

        assert (await turn)["stopReason"] == "cancelled"


@pytest.mark.promise("ACP-08")
async def test_cancel_while_the_user_is_asked_or_servers_start_ends_the_turn(home: Path, cwd: Path):
    async with editor(home) as zed:
        zed.unanswered.add("session/request_permission")
        asked, starting = (
            await zed.new(cwd, tools_server()),
            await zed.new(cwd, tools_server("mute", "--mute")),
        )
        asking = zed.start_prompt(asked, "/call tools.count")
        waiting = zed.start_prompt(starting, "/tools")
        await zed.wait_until(lambda zed: zed.agent_requests)
        zed.notify("session/cancel", {"sessionId": asked})
        zed.notify("session/cancel", {"sessionId": starting})

        assert [(await asking)["stopReason"], (await waiting)["stopReason"]] == ["cancelled", "cancelled"]
        assert calls(zed, asked) == [["pending", "failed"]]


@pytest.mark.promise("ACP-08")
async def test_cancelled_prompt_request_is_answered_once_its_turn_has_ended(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}"}}')
        await _wait_for_files(cwd / "one")
        zed.notify("$/cancel_request", {"requestId": zed._next})
        with pytest.raises(RpcError) as refused:
            await turn

        assert refused.value.code == -32800
        assert calls(zed, session) == [["pending", "in_progress", "failed"]]


async def test_prompt_during_another_turn_waits(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, "/tools")
        first = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 0.3}}')
        second = zed.start_prompt(session, '/call tools.echo {"text": "second"}')
        await asyncio.gather(first, second)

        assert calls(zed, session) == [["pending", "in_progress", "completed"]] * 2
        statuses = [status for _, status in zed.call_statuses(session)]
        assert statuses == ["pending", "in_progress", "completed"] * 2


@pytest.mark.promise("ACP-16")
async def test_supported_blocks_are_stored_as_sent_and_others_are_refused_by_name(home: Path, cwd: Path):
    blocks: list[Any] = [
        {"type": "text", "text": "häß \U0001f41a", "annotations": {"priority": 0.5}},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource_link", "name": "n", "uri": "file:///n", "size": 3},
        {"type": "resource", "resource": {"uri": "file:///r", "text": "r", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
    ]
    refused: list[str] = []
    async with editor(home) as zed:
        session = await zed.new(cwd)
        await zed.request("session/prompt", {"sessionId": session, "prompt": blocks})
        for wrong in (
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "hologram"},
            {"type": "text"},
            {"type": "resource", "resource": {"uri": "file:///r"}},
            {"type": "text", "text": "x", "annotations": 5},
            {},
        ):
            with pytest.raises(RpcError) as error:
                await zed.request("session/prompt", {"sessionId": session, "prompt": [wrong]}, checked=False)
            assert error.value.code == -32602
            refused.append(error.value.message)
        echoed = zed.updates(session, "user_message_chunk")
        await zed.request("session/close", {"sessionId": session})
        await zed.load(session, cwd)
        replayed = [update["content"] for update in zed.updates(session, "user_message_chunk")]

    assert echoed == []
    assert replayed == blocks
    assert ("'audio'" in refused[0], "'hologram'" in refused[1]) == (True, True)


async def test_tool_content_is_sent_as_acp_blocks(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, "/call tools.picture")

        content = zed.updates(session, "tool_call_update")[-1]["content"]
        assert [block["content"]["type"] for block in content] == [
            "text", "image", "resource_link", "resource", "text", "text",
        ]  # fmt: skip


@pytest.mark.promise("RES-18")
async def test_server_asks_the_user_through_the_editor(home: Path, cwd: Path):
    async with editor(home, capabilities={"elicitation": {"form": {}}}) as zed:
        zed.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"name": "Ada"}}
        session = await zed.new(cwd, tools_server("tools", "--handshake"))
        await zed.prompt(session, "/call tools.ask")

        (question,) = [params for method, params in zed.agent_requests if method == "elicitation/create"]
        assert (question["sessionId"], question["mode"], question["message"]) == (
            session,
            "form",
            (
                "A question from the MCP server 'tools', not from Holdfast:\n| Who are you?\n"
                "Never enter a password, key or token in this form."
            ),
        )
        assert '{"action":"accept","content":{"name":"Ada"}}' in zed.reply_text(session)


@pytest.mark.slow
@pytest.mark.promise("ACP-10")
async def test_sessions_are_listed_by_folder_and_page_and_deleted(home: Path, cwd: Path):
    other = cwd.parent / "other"
    other.mkdir()
    async with editor(home) as zed:
        sessions = [await zed.new(cwd) for _ in range(51)]
        elsewhere = await zed.new(other)
        await zed.prompt(elsewhere, "Where are we?")
        page = await zed.request("session/list", {"cwd": str(cwd)})
        rest = await zed.request("session/list", {"cwd": str(cwd), "cursor": page["nextCursor"]})
        (there,) = (await zed.request("session/list", {"cwd": str(other)}))["sessions"]
        with pytest.raises(RpcError) as bad:
            await zed.request("session/list", {"cursor": "nonsense"})
        for _ in range(2):
            await zed.request("session/delete", {"sessionId": elsewhere})
        with pytest.raises(RpcError) as gone:
            await zed.prompt(elsewhere, "Hello?")
        with pytest.raises(RpcError) as unknown:
            await zed.load(elsewhere, other)
        left = (await zed.request("session/list", {"cwd": str(other)}))["sessions"]

    found = [listed["sessionId"] for listed in [*page["sessions"], *rest["sessions"]]]
    assert sorted(found) == sorted(sessions)
    assert (len(page["sessions"]), "nextCursor" in rest) == (50, False)
    assert (there["sessionId"], there["title"], there["cwd"]) == (elsewhere, "Where are we?", str(other))
    assert (bad.value.code, gone.value.code, unknown.value.code, left) == (-32602, -32002, -32002, [])


@pytest.mark.promise("ACP-10")
@pytest.mark.parametrize("method", ["session/delete", "session/load"])
async def test_unknown_sessions_can_be_deleted_and_loaded_only_so_often(home: Path, cwd: Path, method: str):
    unknown = [f"sess_{number:032x}" for number in range(30)]
    more: dict[str, Any] = {"cwd": str(cwd), "mcpServers": []} if "load" in method else {}
    answers: list[Any] = []
    async with editor(home) as zed:
        for session in unknown:
            try:
                answers.append(await zed.request(method, {"sessionId": session, **more}))
            except RpcError as error:
                answers.append(error)

    first, last = answers[0], answers[-1]
    assert (first if "delete" in method else first.code) == ({} if "delete" in method else -32002)
    assert last.code == -32004
    assert last.data == {"sessionId": unknown[-1], "hint": "Wait a few seconds, then try again."}


@pytest.mark.promise("ACP-10")
async def test_close_cancels_the_turn_and_stops_the_servers_of_that_session_only(home: Path, cwd: Path):
    async with editor(home) as zed:
        one, other = await zed.new(cwd, tools_server()), await zed.new(cwd, tools_server())
        turn = zed.start_prompt(one, f'/call tools.wait {{"started": "{cwd / "one"}"}}')
        await zed.prompt(other, '/call tools.echo {"text": "before"}')
        await _wait_for_files(cwd / "one")
        server = int((cwd / "one").read_text())
        await zed.request("session/close", {"sessionId": one})
        alive = Path(f"/proc/{server}").exists()
        reason = (await turn)["stopReason"]
        await zed.request("session/close", {"sessionId": one})  # closed already
        with pytest.raises(RpcError) as closed:
            await zed.request("session/prompt", prompt_params(one, "Hello?"))
        await zed.prompt(other, '/call tools.echo {"text": "after"}')

        assert (reason, alive) == ("cancelled", False)
        assert (closed.value.code, "Load or resume" in closed.value.message) == (-32602, True)
        assert ["before" in zed.reply_text(other), "after" in zed.reply_text(other)] == [True, True]


async def _wait_for_files(*files: Path) -> None:
    async with asyncio.timeout(20):
        while not all(file.exists() and (file.suffix or file.read_text()) for file in files):
            await asyncio.sleep(0.01)
