"""A turn: what is asked, what is told, what is permitted, and how it is cancelled."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.editor import Editor, Refused, chooses, editor, tools, tools_in, words

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-13")]


def calls(zed: Editor, session: str) -> list[list[str]]:
    """The statuses that each call went through."""
    steps: dict[str, list[str]] = {}
    for call, status in zed.called(session):
        steps.setdefault(call, []).append(status)
    return list(steps.values())


def permissions(zed: Editor) -> int:
    return sum(method == "session/request_permission" for method, _ in zed.asked)


@pytest.mark.promise("ACP-08", "ACP-09")
async def test_calls_are_told_step_by_step_and_what_may_change_something_is_asked_for(home: Path, cwd: Path):
    file = cwd / "note"
    write = f'/call tools.write {{"path": "{file}", "text": "hi"}}'
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        read = await zed.prompt(session, '/call tools.echo {"text": "hi"}'), permissions(zed)
        once = await zed.prompt(session, write), permissions(zed), file.read_text()
        again = await zed.prompt(session, write), permissions(zed)
        file.unlink()
        zed.answers["session/request_permission"] = chooses("reject")
        rejected = await zed.prompt(session, write), permissions(zed), file.exists()
        zed.answers["session/request_permission"] = lambda _: {"outcome": {"outcome": "cancelled"}}
        cancelled = await zed.prompt(session, write), permissions(zed), file.exists()
        zed.answers["session/request_permission"] = chooses("allow_always")
        always = [(await zed.prompt(session, write), permissions(zed)) for _ in range(2)]
        other = await zed.new(cwd, tools())
        await zed.prompt(other, write)

        assert read == ("end_turn", 0)
        assert once == ("end_turn", 1, "hi")
        assert again == ("end_turn", 2)
        assert rejected == ("end_turn", 3, False)
        assert cancelled == ("end_turn", 4, False)
        assert always == [("end_turn", 5), ("end_turn", 5)]
        assert permissions(zed) == 6  # always means: in that session
        done, not_done = ["pending", "in_progress", "completed"], ["pending", "failed"]
        assert calls(zed, session) == [done, done, done, not_done, not_done, done, done]
        call = zed.updates(session, "tool_call")[1]
        assert (call["title"], call["kind"], call["rawInput"], call["locations"]) == (
            "tools.write",
            "other",
            {"path": str(file), "text": "hi"},
            [{"path": str(file)}],
        )


@pytest.mark.promise("ACP-09", "ACP-17")
async def test_modes_decide_whether_to_ask_are_told_and_outlive_the_process(home: Path, cwd: Path):
    file = cwd / "note"
    write = f'/call tools.write {{"path": "{file}", "text": "hi"}}'
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        await zed.ask("session/set_mode", {"sessionId": session, "modeId": "read-only"})
        await zed.prompt(session, write)
        refused = file.exists(), permissions(zed)
        option = {"sessionId": session, "configId": "mode", "value": "auto"}
        answer = await zed.ask("session/set_config_option", option)
        await zed.prompt(session, write)
        allowed = file.exists(), permissions(zed)
        told = [update["currentModeId"] for update in zed.updates(session, "current_mode_update")]
        options = [
            update["configOptions"][0]["currentValue"]
            for update in zed.updates(session, "config_option_update")
        ]
        for wrong in ({"configId": "colour", "value": "red"}, {"configId": "mode", "value": "yolo"}):
            with pytest.raises(Refused) as no:
                await zed.ask("session/set_config_option", {"sessionId": session, **wrong})
            assert no.value.code == -32602
        with pytest.raises(Refused) as no:
            await zed.ask("session/set_mode", {"sessionId": session, "modeId": "yolo"})
        assert no.value.code == -32602
    async with editor(home) as zed:
        loaded = await zed.load(session, cwd, tools())
        await zed.ask("session/close", {"sessionId": session})
        resumed = await zed.resume(session, cwd, tools())

    assert refused == (False, 0)
    assert allowed == (True, 0)
    assert answer["configOptions"][0]["currentValue"] == "auto"
    assert (told, options) == (["read-only", "auto"], ["read-only", "auto"])
    assert loaded["modes"]["currentModeId"] == resumed["modes"]["currentModeId"] == "auto"


@pytest.mark.usefixtures("bwrap")
@pytest.mark.promise("ACP-17", "RES-04")
async def test_an_editor_lowers_a_sessions_trust_for_good(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_in(cwd))
        await zed.prompt(session, "/call tools.whoami")
        option = {"sessionId": session, "configId": "trust", "value": "sandboxed"}
        answer = await zed.ask("session/set_config_option", option)
        codes: list[int] = []
        for raised in ("direct", "all of it"):
            with pytest.raises(Refused) as no:
                await zed.ask("session/set_config_option", {**option, "value": raised})
            codes.append(no.value.code)
        await zed.prompt(session, "/call tools.whoami")
        who = [
            step["rawOutput"]["trust"]
            for step in zed.updates(session, "tool_call_update")
            if "rawOutput" in step
        ]
        await zed.ask("session/close", {"sessionId": session})
        loaded = await zed.load(session, cwd)

    assert [found["configOptions"][1]["currentValue"] for found in (answer, loaded)] == ["sandboxed"] * 2
    assert codes == [-32602, -32602]
    assert who == ["direct", "sandboxed"]


@pytest.mark.promise("ACP-08")
async def test_cancel_ends_the_turn_after_its_last_update_and_stops_the_calls_in_flight(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        one, two = cwd / "one", cwd / "two"
        lines = "\n".join(f'/call tools.wait {{"started": "{file}"}}' for file in (one, two))
        turn = zed.begin_prompt(session, lines)
        queued = [zed.begin_prompt(session, "/help") for _ in range(3)]
        await zed.until(lambda zed: [status for _, status in zed.called(session)].count("in_progress") == 2)
        await _there(one, two)
        zed.notify("session/cancel", {"sessionId": session})
        reasons = [(await asked)["stopReason"] for asked in (turn, *queued)]
        heard = len(zed.heard)
        await _there(one.with_suffix(".cancelled"), two.with_suffix(".cancelled"))
        after = await zed.prompt(session, '/call tools.echo {"text": "go on"}')

        assert reasons == ["cancelled"] * 4
        assert calls(zed, session)[:2] == [["pending", "in_progress", "failed"]] * 2
        assert all(told == session for told, _ in zed.heard[:heard])
        assert (after, "go on" in zed.said(session)) == ("end_turn", True)


@pytest.mark.promise("ACP-08")
async def test_a_cancel_right_behind_its_prompt_ends_it_and_so_it_does_for_those_that_wait(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, "/tools")
        reasons: list[str] = []
        for at in range(5):
            started = cwd / f"{at}"
            turn = zed.begin_prompt(session, f'/call tools.wait {{"started": "{started}", "seconds": 3}}')
            queued = [zed.begin_prompt(session, f"queued {at}.{place}") for place in range(3)]
            zed.notify("session/cancel", {"sessionId": session})
            reasons += [(await asked)["stopReason"] for asked in (turn, *queued)]
        await zed.ask("session/close", {"sessionId": session})
        await zed.load(session, cwd)
        said = [update["content"]["text"] for update in zed.updates(session, "user_message_chunk")]

    assert reasons == ["cancelled"] * 20
    assert [text for text in said if text.startswith("queued")] == [
        f"queued {at}.{place}" for at in range(5) for place in range(3)
    ]
    assert len(said) == 21


@pytest.mark.promise("ACP-08")
async def test_a_cancel_of_a_prompt_that_waits_for_its_session_to_be_loaded_is_not_lost(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        for _ in range(30):
            await zed.prompt(session, "/help")
        await zed.ask("session/close", {"sessionId": session})
        heard = len(zed.heard)
        loaded = zed.begin("session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools()]})
        await zed.until(lambda zed: len(zed.heard) > heard)
        turn = zed.begin_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 3}}')
        zed.notify("session/cancel", {"sessionId": session})
        await loaded

        assert (await turn)["stopReason"] == "cancelled"


@pytest.mark.promise("ACP-08")
async def test_a_cancel_while_a_person_is_asked_or_servers_start_ends_the_turn_all_the_same(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        zed.silent.add("session/request_permission")
        asked, starting = await zed.new(cwd, tools()), await zed.new(cwd, tools("mute", "--mute"))
        asking = zed.begin_prompt(asked, "/call tools.count")
        waiting = zed.begin_prompt(starting, "/tools")
        await zed.until(lambda zed: zed.asked)
        zed.notify("session/cancel", {"sessionId": asked})
        zed.notify("session/cancel", {"sessionId": starting})

        assert [(await asking)["stopReason"], (await waiting)["stopReason"]] == ["cancelled", "cancelled"]
        assert calls(zed, asked) == [["pending", "failed"]]


@pytest.mark.promise("ACP-08")
async def test_a_prompt_that_is_taken_back_is_answered_once_its_turn_is_over(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        turn = zed.begin_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}"}}')
        await _there(cwd / "one")
        zed.notify("$/cancel_request", {"requestId": zed._next})
        with pytest.raises(Refused) as refused:
            await turn

        assert refused.value.code == -32800
        assert calls(zed, session) == [["pending", "in_progress", "failed"]]


async def test_a_prompt_that_comes_during_another_waits_for_it(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, "/tools")
        first = zed.begin_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 0.3}}')
        second = zed.begin_prompt(session, '/call tools.echo {"text": "second"}')
        await asyncio.gather(first, second)

        assert calls(zed, session) == [["pending", "in_progress", "completed"]] * 2
        statuses = [status for _, status in zed.called(session)]
        assert statuses == ["pending", "in_progress", "completed"] * 2


@pytest.mark.promise("ACP-16")
async def test_prompts_of_every_kind_are_kept_as_they_came_and_other_kinds_are_refused_by_name(
    home: Path, cwd: Path
):
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
        await zed.ask("session/prompt", {"sessionId": session, "prompt": blocks})
        for wrong in (
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "hologram"},
            {"type": "text"},
            {"type": "resource", "resource": {"uri": "file:///r"}},
            {"type": "text", "text": "x", "annotations": 5},
            {},
        ):
            with pytest.raises(Refused) as no:
                await zed.ask("session/prompt", {"sessionId": session, "prompt": [wrong]}, checked=False)
            assert no.value.code == -32602
            refused.append(no.value.message)
        echoed = zed.updates(session, "user_message_chunk")
        await zed.ask("session/close", {"sessionId": session})
        await zed.load(session, cwd)
        replayed = [update["content"] for update in zed.updates(session, "user_message_chunk")]

    assert echoed == []
    assert replayed == blocks
    assert ("'audio'" in refused[0], "'hologram'" in refused[1]) == (True, True)


async def test_what_a_tool_gives_is_shown_in_the_protocols_own_blocks(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, "/call tools.picture")

        content = zed.updates(session, "tool_call_update")[-1]["content"]
        assert [block["content"]["type"] for block in content] == [
            "text", "image", "resource_link", "resource", "text", "text",
        ]  # fmt: skip


async def test_a_server_asks_the_person_through_the_editor(home: Path, cwd: Path):
    async with editor(home, capabilities={"elicitation": {"form": {}}}) as zed:
        zed.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"name": "Ada"}}
        session = await zed.new(cwd, tools("tools", "--handshake"))
        await zed.prompt(session, "/call tools.ask")

        (question,) = [params for method, params in zed.asked if method == "elicitation/create"]
        assert (question["sessionId"], question["mode"], question["message"]) == (
            session,
            "form",
            "Who are you?",
        )
        assert '{"action":"accept","content":{"name":"Ada"}}' in zed.said(session)


@pytest.mark.promise("ACP-10")
async def test_sessions_are_listed_by_folder_and_page_closed_and_deleted(home: Path, cwd: Path):
    other = cwd.parent / "other"
    other.mkdir()
    async with editor(home) as zed:
        sessions = [await zed.new(cwd) for _ in range(51)]
        elsewhere = await zed.new(other)
        await zed.prompt(elsewhere, "Where are we?")
        page = await zed.ask("session/list", {"cwd": str(cwd)})
        rest = await zed.ask("session/list", {"cwd": str(cwd), "cursor": page["nextCursor"]})
        (there,) = (await zed.ask("session/list", {"cwd": str(other)}))["sessions"]
        with pytest.raises(Refused) as bad:
            await zed.ask("session/list", {"cursor": "nonsense"})
        for _ in range(2):
            await zed.ask("session/delete", {"sessionId": elsewhere})
        with pytest.raises(Refused) as gone:
            await zed.prompt(elsewhere, "Hello?")
        with pytest.raises(Refused) as unknown:
            await zed.load(elsewhere, other)
        left = (await zed.ask("session/list", {"cwd": str(other)}))["sessions"]

    found = [listed["sessionId"] for listed in [*page["sessions"], *rest["sessions"]]]
    assert sorted(found) == sorted(sessions)
    assert (len(page["sessions"]), "nextCursor" in rest) == (50, False)
    assert (there["sessionId"], there["title"], there["cwd"]) == (elsewhere, "Where are we?", str(other))
    assert (bad.value.code, gone.value.code, unknown.value.code, left) == (-32602, -32002, -32002, [])


@pytest.mark.promise("ACP-10")
async def test_sessions_that_are_not_there_are_deleted_as_often_as_asked_and_tried_out_only_so_often(
    home: Path, cwd: Path
):
    unknown = [f"sess_{at:032x}" for at in range(30)]
    async with editor(home) as zed:
        deleted = [await zed.ask("session/delete", {"sessionId": session}) for session in unknown]
        refused: list[Refused] = []
        for session in unknown:
            with pytest.raises(Refused) as no:
                await zed.load(session, cwd)
            refused.append(no.value)

    assert deleted == [{}] * len(unknown)
    assert (refused[0].code, refused[-1].code) == (-32002, -32004)
    assert refused[-1].data == {"sessionId": unknown[-1], "hint": "Wait a few seconds, then ask again."}


@pytest.mark.promise("ACP-10")
async def test_closing_a_session_cancels_its_turn_and_frees_its_servers_and_leaves_the_others(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        one, other = await zed.new(cwd, tools()), await zed.new(cwd, tools())
        turn = zed.begin_prompt(one, f'/call tools.wait {{"started": "{cwd / "one"}"}}')
        await zed.prompt(other, '/call tools.echo {"text": "before"}')
        await _there(cwd / "one")
        server = int((cwd / "one").read_text())
        await zed.ask("session/close", {"sessionId": one})
        alive = Path(f"/proc/{server}").exists()
        reason = (await turn)["stopReason"]
        await zed.ask("session/close", {"sessionId": one})  # closed already
        with pytest.raises(Refused) as closed:
            await zed.ask("session/prompt", words(one, "Hello?"))
        await zed.prompt(other, '/call tools.echo {"text": "after"}')

        assert (reason, alive) == ("cancelled", False)
        assert (closed.value.code, "load or resume" in closed.value.message) == (-32602, True)
        assert ["before" in zed.said(other), "after" in zed.said(other)] == [True, True]


async def _there(*files: Path) -> None:
    async with asyncio.timeout(20):
        while not all(file.exists() and (file.suffix or file.read_text()) for file in files):
            await asyncio.sleep(0.01)
