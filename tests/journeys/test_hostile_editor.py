"""What a broken or hostile editor can send, and what it learns."""

import asyncio
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.editor import Editor, Refused, editor, tools, tools_in
from tests.journeys.test_going_on import AGENT

pytestmark = pytest.mark.anyio

MALFORMED = [
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"}",
    b"[]",
    b"[{}]",
    b"1",
    b'"x"',
    b"null",
    b"NaN",
    b"{}",
    b'{"jsonrpc":"2.0"}',
    b'{"jsonrpc":"2.0","id":{},"method":"session/new"}',
    b'{"jsonrpc":"2.0","id":null,"method":1}',
    b'{"jsonrpc":"2.0","method":"session/cancel","params":1}',
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"a","sessionId":"b"}}',
    b'{"jsonrpc":"2.0","method":"session/update","params":{"a":' + b"9" * 5000 + b"}}",
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"\\ud800"}}',
    b'{"jsonrpc":"2.0","method":"x","params":' + b"[" * 900 + b"]" * 900 + b"}",
    b"[" * 200_000,
    b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    b'{"jsonrpc":"2.0","method":"session/cancel"} trailing',
    b'{"x":"' + b"x" * (17 * 1024 * 1024) + b'"}',
]
IGNORED = [
    b"",
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{}}',
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"sess_0123456789abcdef"}}',
    b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"never asked"}}',
    b'{"jsonrpc":"2.0","method":"some/news","params":{"a":1}}',
    b'{"jsonrpc":"2.0","id":77777,"result":{"nobody":"asked"}}',
]


UNREAD = [
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":5}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"' + b"y" * 200 + b'"}}',
]


@pytest.mark.promise("ACP-11", "ACP-14")
async def test_an_editor_that_does_not_read_the_log_is_served_and_left_all_the_same(home: Path, cwd: Path):
    unread, written = os.pipe()
    async with editor(home, log=written) as zed:
        os.close(written)
        session = await zed.new(cwd)
        for line in UNREAD:
            zed.raw((line + b"\n") * 1000)
            await zed.stdin.drain()

        assert await zed.prompt(session, "/help") == "end_turn"
        zed.process.terminate()
        assert await zed.gone() == 0
    os.close(unread)


@pytest.mark.promise("ACP-11")
async def test_every_malformed_line_is_refused_in_the_middle_of_a_turn_and_the_turn_goes_on(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        turn = zed.begin_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 2}}')
        await zed.until(lambda zed: "in_progress" in dict(zed.called(session)).values())
        for line in [*IGNORED, *MALFORMED]:
            zed.raw(line + b"\n")
            await zed.stdin.drain()
        await zed.until(lambda zed: len(zed.broken) == len(MALFORMED))

        assert (await turn)["stopReason"] == "end_turn"
        assert {error["code"] for error in zed.broken} == {-32700, -32600}
        assert await zed.prompt(session, '/call tools.echo {"text": "fine"}') == "end_turn"


@pytest.mark.usefixtures("bwrap")
@pytest.mark.promise("ACP-11")
async def test_meta_overrides_nothing_and_grants_nothing(home: Path, cwd: Path):
    meta: Any = {
        "cwd": "/etc",
        "sessionId": "sess_0",
        "trust": "direct",
        "trust_level": "direct",
        "dev.holdfast/session": {"trust_level": "direct", "session_id": "sess_0", "workspace_id": "w"},
        "mcpServers": [],
    }
    async with editor(home, "--trust", "sandboxed") as zed:
        session = await zed.new(cwd, tools_in(cwd), _meta=meta)
        await zed.ask(
            "session/prompt",
            {"sessionId": session, "prompt": [{"type": "text", "text": "/call tools.whoami"}], "_meta": meta},
        )
        (listed,) = (await zed.ask("session/list", {"_meta": meta}))["sessions"]

        assert (listed["sessionId"], listed["cwd"]) == (session, str(cwd))
        who = zed.updates(session, "tool_call_update")[-1]["rawOutput"]
        assert (who["session"], who["trust"], who["cwd"]) == (session, "sandboxed", str(cwd))


@pytest.mark.promise("ACP-11")
async def test_unknown_methods_and_wrong_shapes_are_refused_with_their_numbers(home: Path, cwd: Path):
    codes: list[int] = []
    async with editor(home) as zed:
        session = await zed.new(cwd)
        wrong: list[tuple[str, Any]] = [
            ("session/fork", {"sessionId": session}),
            ("_ours/own", {}),
            ("session/prompt", {"sessionId": session}),
            ("session/prompt", {"sessionId": 5, "prompt": []}),
            ("session/prompt", {"sessionId": session, "prompt": {}}),
            ("session/new", []),
            ("session/new", {"cwd": str(cwd), "mcpServers": {}}),
            ("session/set_mode", {"sessionId": session}),
        ]
        for method, params in wrong:
            with pytest.raises(Refused) as refused:
                await zed.ask(method, params, checked=False)
            codes.append(refused.value.code)

    assert codes == [-32601, -32601, *[-32602] * 6]


@pytest.mark.promise("ACP-12")
async def test_an_unforeseen_exception_is_told_blandly_and_logged_whole(home: Path, cwd: Path):
    async with editor(home, command=AGENT) as zed:
        session = await zed.new(cwd)
        reason = await zed.prompt(session, "crash")
        heard = json.dumps(zed.heard)
        await zed.prompt(session, "/help")

    assert reason == "end_turn"
    assert "Something went wrong inside Holdfast" in heard
    assert ("the secret of the house" in heard, "RuntimeError" in heard) == (False, False)
    assert "the secret of the house" in (home / "log").read_text()


async def test_secrets_are_not_shown_in_calls_and_not_where_permission_is_asked(home: Path, cwd: Path):
    async with editor(home, environ={"MY_API_KEY": "canary-4711"}) as zed:
        session = await zed.new(cwd, tools(), tools("two", SOME_TOKEN="canary-0815"))
        await zed.prompt(session, '/call tools.echo {"text": "canary-4711 canary-0815"}')
        await zed.prompt(session, '/call tools.count {"password": "canary-1234", "x": "canary-0815"}')

        told = json.dumps([zed.heard, zed.asked])
        assert "canary" not in told
        assert told.count("[masked]") >= 4


@pytest.mark.promise("ACP-09")
async def test_a_call_too_long_to_be_asked_about_is_refused_and_nobody_has_decided_it(home: Path, cwd: Path):
    async with editor(home, environ={"HOLDFAST_WIRE_LINE_BYTES": "100000"}) as zed:
        session = await zed.new(cwd, tools())
        long = "x" * (100_000 - 230)
        await zed.prompt(session, f'/call tools.count {{"text": "{long}"}}')

        assert (zed.asked, "too long to be shown" in zed.said(session)) == ([], True)
    with closing(sqlite3.connect(home / "data" / "holdfast.db")) as db:
        records = [json.loads(body) for (body,) in db.execute("SELECT body FROM audit")]
    assert [(found["kind"], found["outcome"]) for found in records] == [("call", "refused")]


@pytest.mark.promise("ACP-02")
async def test_a_session_that_was_taken_back_while_it_opened_is_not_kept(home: Path, cwd: Path):
    async with editor(home) as zed:
        await zed.ask("session/list", {})
        for _ in range(5):
            opening = zed.begin("session/new", {"cwd": str(cwd), "mcpServers": [tools()]})
            zed.notify("$/cancel_request", {"requestId": zed._next})
            with pytest.raises(Refused):
                await opening
        await zed.new(cwd)

        assert len((await zed.ask("session/list", {}))["sessions"]) == 1


async def test_an_update_too_long_for_a_line_is_told_without_its_payload(home: Path, cwd: Path):
    async with editor(home, environ={"HOLDFAST_WIRE_LINE_BYTES": "100000"}) as zed:
        session = await zed.new(cwd, tools())
        long = "x" * (100_000 - 230)  # fits into the prompt, and not into what is told of the call
        assert await zed.prompt(session, f'/call tools.echo {{"text": "{long}"}}') == "end_turn"
        assert await zed.prompt(session, '/call tools.echo {"text": "fine"}') == "end_turn"

        (call, _) = zed.updates(session, "tool_call")
        assert ("rawInput" in call, call["title"]) == (False, "tools.echo")
        assert "tools.echo:\nfine" in zed.said(session)


@pytest.mark.usefixtures("bwrap")
async def test_two_sessions_at_once_with_their_own_servers_trust_and_folder_never_mix(home: Path, cwd: Path):
    other = cwd.parent / "other"
    other.mkdir()
    async with editor(home) as zed, editor(home, "--trust", "sandboxed") as vim:
        one, two = await zed.new(cwd, tools("a")), await zed.new(other, tools("b"))
        three = await vim.new(other, tools_in(other, "b"))

        async def use(who: Editor, session: str, server: str) -> None:
            for _ in range(5):
                await who.prompt(session, f"/call {server}.whoami")

        await asyncio.gather(use(zed, one, "a"), use(zed, two, "b"), use(vim, three, "b"))
        await zed.prompt(one, "/call b.whoami")
        seen = {
            session: {
                (step["rawOutput"]["session"], step["rawOutput"]["trust"], step["rawOutput"]["cwd"])
                for step in client.updates(session, "tool_call_update")
                if "rawOutput" in step
            }
            for client, session in ((zed, one), (zed, two), (vim, three))
        }

        assert seen[one] == {(one, "direct", str(cwd))}
        assert seen[two] == {(two, "direct", str(other))}
        assert seen[three] == {(three, "sandboxed", str(other))}
        assert "There is no tool 'b.whoami'" in zed.said(one)


async def test_fifty_sessions_on_one_connection(home: Path, cwd: Path):
    async with editor(home) as zed:
        sessions = await asyncio.gather(*(zed.new(cwd) for _ in range(50)))
        await asyncio.gather(*(zed.prompt(session, f"/why {session}") for session in sessions))

        assert all(f"There is no server {session!r}" in zed.said(session) for session in sessions)
        assert len({zed.said(session) for session in sessions}) == 50
