"""Broken and hostile editors: what they can send, and what they learn."""

import asyncio
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.editor import Editor, RpcError, confined_tools_server, editor, tools_server
from tests.journeys.test_load_and_resume import AGENT

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
    b'{"jsonrpc":"2.0","id":77777,"result":{"not":"requested"}}',
]


LOGGED = [
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":5}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"' + b"y" * 200 + b'"}}',
]


@pytest.mark.promise("ACP-11", "ACP-14")
async def test_editor_that_does_not_read_the_log_is_served_until_the_end(home: Path, cwd: Path):
    unread, written = os.pipe()
    async with editor(home, log=written) as zed:
        os.close(written)
        session = await zed.new(cwd)
        for line in LOGGED:
            zed.write((line + b"\n") * 1000)
            await zed.stdin.drain()

        assert await zed.prompt(session, "/help") == "end_turn"
        zed.process.terminate()
        assert await zed.wait_ended() == 0
    os.close(unread)


@pytest.mark.promise("ACP-11")
async def test_malformed_lines_during_a_turn_are_refused_and_the_turn_goes_on(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 2}}')
        await zed.wait_until(lambda zed: "in_progress" in dict(zed.call_statuses(session)).values())
        for line in [*IGNORED, *MALFORMED]:
            zed.write(line + b"\n")
            await zed.stdin.drain()
        await zed.wait_until(lambda zed: len(zed.parse_errors) == len(MALFORMED))

        assert (await turn)["stopReason"] == "end_turn"
        assert {error["code"] for error in zed.parse_errors} == {-32700, -32600}
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
        session = await zed.new(cwd, confined_tools_server(cwd), _meta=meta)
        await zed.request(
            "session/prompt",
            {"sessionId": session, "prompt": [{"type": "text", "text": "/call tools.whoami"}], "_meta": meta},
        )
        (listed,) = (await zed.request("session/list", {"_meta": meta}))["sessions"]

        assert (listed["sessionId"], listed["cwd"]) == (session, str(cwd))
        who = zed.updates(session, "tool_call_update")[-1]["rawOutput"]
        assert (who["session"], who["trust"], who["cwd"]) == (session, "sandboxed", str(cwd))


@pytest.mark.promise("ACP-11")
async def test_unknown_methods_and_malformed_parameters_are_refused_with_their_codes(home: Path, cwd: Path):
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
            with pytest.raises(RpcError) as refused:
                await zed.request(method, params, checked=False)
            codes.append(refused.value.code)

    assert codes == [-32601, -32601, *[-32602] * 6]


@pytest.mark.promise("ACP-12")
async def test_unexpected_exception_is_logged_and_not_shown_to_the_editor(home: Path, cwd: Path):
    async with editor(home, command=AGENT) as zed:
        session = await zed.new(cwd)
        reason = await zed.prompt(session, "crash")
        received = json.dumps(zed.received)
        await zed.prompt(session, "/help")

    assert reason == "end_turn"
    assert "An unexpected error ended this turn" in received
    assert ("an internal secret" in received, "RuntimeError" in received) == (False, False)
    assert "an internal secret" in (home / "log").read_text()


async def test_secrets_are_masked_in_calls_and_known_ones_also_in_permission_requests(home: Path, cwd: Path):
    async with editor(home, environ={"MY_API_KEY": "canary-4711"}) as zed:
        session = await zed.new(cwd, tools_server(), tools_server("two", SOME_TOKEN="canary-0815"))
        await zed.prompt(session, '/call tools.echo {"text": "canary-4711 canary-0815"}')
        await zed.prompt(session, '/call tools.count {"password": "canary-1234", "x": "canary-0815"}')

        updates, questions = json.dumps(zed.received), json.dumps(zed.agent_requests)
        assert ("canary" in updates, updates.count("[masked]") >= 4) == (False, True)
        # A question shows what will be sent, but for the secrets of the user and the environment.
        assert ("canary-4711" in questions, "canary-1234" in questions) == (False, True)


@pytest.mark.promise("ACP-09")
async def test_call_too_long_to_ask_about_is_refused_without_a_decision(home: Path, cwd: Path):
    async with editor(home, environ={"HOLDFAST_WIRE_LINE_BYTES": "100000"}) as zed:
        session = await zed.new(cwd, tools_server())
        long = "x" * (100_000 - 230)
        await zed.prompt(session, f'/call tools.count {{"text": "{long}"}}')

        assert (zed.agent_requests, "too long to be shown" in zed.reply_text(session)) == ([], True)
    with closing(sqlite3.connect(home / "data" / "holdfast.db")) as db:
        records = [json.loads(body) for (body,) in db.execute("SELECT body FROM audit")]
    assert [(found["kind"], found["outcome"]) for found in records] == [("call", "refused")]


@pytest.mark.promise("ACP-02")
async def test_session_whose_opening_was_cancelled_is_not_stored(home: Path, cwd: Path):
    async with editor(home) as zed:
        await zed.request("session/list", {})
        for _ in range(5):
            opening = zed.start_request("session/new", {"cwd": str(cwd), "mcpServers": [tools_server()]})
            zed.notify("$/cancel_request", {"requestId": zed._next})
            with pytest.raises(RpcError):
                await opening
        await zed.new(cwd)

        assert len((await zed.request("session/list", {}))["sessions"]) == 1


async def test_update_too_long_for_a_line_is_sent_without_its_payload(home: Path, cwd: Path):
    async with editor(home, environ={"HOLDFAST_WIRE_LINE_BYTES": "100000"}) as zed:
        session = await zed.new(cwd, tools_server())
        long = "x" * (100_000 - 230)  # fits into the prompt, but not into the update about the call
        assert await zed.prompt(session, f'/call tools.echo {{"text": "{long}"}}') == "end_turn"
        assert await zed.prompt(session, '/call tools.echo {"text": "fine"}') == "end_turn"

        (call, _) = zed.updates(session, "tool_call")
        assert ("rawInput" in call, call["title"]) == (False, "tools.echo")
        assert "tools.echo:\nfine" in zed.reply_text(session)


@pytest.mark.slow
@pytest.mark.usefixtures("bwrap")
async def test_concurrent_sessions_keep_their_servers_trust_and_folders_apart(home: Path, cwd: Path):
    other = cwd.parent / "other"
    other.mkdir()
    async with editor(home) as zed, editor(home, "--trust", "sandboxed") as vim:
        one, two = await zed.new(cwd, tools_server("a")), await zed.new(other, tools_server("b"))
        three = await vim.new(other, confined_tools_server(other, "b"))

        async def use(client: Editor, session: str, server: str) -> None:
            for _ in range(5):
                await client.prompt(session, f"/call {server}.whoami")

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
        assert "There is no tool 'b.whoami'" in zed.reply_text(one)


@pytest.mark.slow
async def test_fifty_sessions_on_one_connection(home: Path, cwd: Path):
    async with editor(home) as zed:
        sessions = await asyncio.gather(*(zed.new(cwd) for _ in range(50)))
        await asyncio.gather(*(zed.prompt(session, f"/why {session}") for session in sessions))

        assert all(f"There is no server {session!r}" in zed.reply_text(session) for session in sessions)
        assert len({zed.reply_text(session) for session in sessions}) == 50
