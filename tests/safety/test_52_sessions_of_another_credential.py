"""Attack 52: a client uses the session id, the handle or the workspace of another credential at the gateway."""

import asyncio
import secrets
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.host.data_folder import KEYS_FOLDER
from holdfast.model.context import CONTEXT_HEADER, SessionContext
from holdfast.model.ids import SessionId, new_session_id
from holdfast.model.trust import Trust
from holdfast.token import Signer
from tests.gateway.running import (
    HANDSHAKE,
    Client,
    RunningGateway,
    modern_call,
    post_modern,
    read_answer,
    running_gateway,
)

pytestmark = pytest.mark.anyio


async def use_session(running: RunningGateway, token: str, session_id: str, method: str) -> tuple[int, str]:
    headers = {
        "Authorization": f"Bearer {token}",
        "Mcp-Session-Id": session_id,
        "Mcp-Protocol-Version": HANDSHAKE,
        "Accept": "text/event-stream" if method == "GET" else "application/json, text/event-stream",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"} if method == "POST" else None
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.request(method, running.url, headers=headers, json=body)
    return answer.status_code, answer.text


async def wait_for_record(running: RunningGateway, text: str) -> None:
    while not any(text in record for record in await running.denied()):
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.promise("GW-02", "GW-09")
async def test_a_stolen_session_id_looks_like_one_that_does_not_exist(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        owner, thief = running.token("owner"), running.token("thief")
        async with Client(running.url, owner) as client:
            await client.call("add")
            stolen = [
                await use_session(running, thief, client.session_id, method)
                for method in ("POST", "GET", "DELETE")
            ]
            unknown = [
                await use_session(running, thief, "0" * 32, method) for method in ("POST", "GET", "DELETE")
            ]
            control = await use_session(running, owner, client.session_id, "POST")
            count = (await client.call("add"))["count"]
            await asyncio.wait_for(wait_for_record(running, "UNKNOWN_MCP_SESSION"), 20)

    assert stolen == unknown
    assert {status for status, _ in stolen} == {404}
    assert (control[0], count) == (200, 2)


@pytest.mark.slow
async def test_guessed_session_ids_find_nothing(tmp_path: Path):
    async with running_gateway(tmp_path) as running, Client(running.url, running.token("owner")) as client:
        thief = running.token("thief")
        near = [f"{client.session_id[:-1]}{digit:x}" for digit in range(16)]
        async with Client(running.url, thief) as other:
            statuses = {
                (await other.post("tools/list", headers={"Mcp-Session-Id": guess})).status_code
                for guess in (*(secrets.token_hex(16) for _ in range(200)), *near)
            }

    assert statuses == {404}


@pytest.mark.slow
@pytest.mark.promise("GW-03")
async def test_a_foreign_handle_looks_like_one_that_does_not_exist(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        owner, thief = running.token("owner"), running.token("thief")
        base = running.url.removesuffix("/mcp")
        issued = await post_modern(f"{base}/s", owner, {}, {})
        handle = issued.json()["handle"]
        body, headers = modern_call("add")

        async def use(token: str, path: str, **more: str) -> tuple[int, str]:
            answer = await post_modern(f"{base}{path}", token, body, {**headers, **more})
            return answer.status_code, answer.text

        foreign = [
            await use(thief, f"/s/{handle}/mcp"),
            await use(thief, "/mcp", **{"Holdfast-Session": handle}),
        ]
        unknown = [
            await use(thief, f"/s/{'a' * 32}/mcp"),
            await use(thief, "/mcp", **{"Holdfast-Session": "a" * 32}),
        ]
        own = [
            read_answer(await post_modern(f"{base}/s/{handle}/mcp", owner, body, headers)) for _ in range(2)
        ]
        default = read_answer(await post_modern(running.url, owner, body, headers))

    assert foreign == unknown
    assert {status for status, _ in foreign} == {404}
    counts = [answer["result"]["structuredContent"]["count"] for answer in (*own, default)]
    assert counts == [1, 2, 1]  # control: the owner's handle names a session of its own


@pytest.mark.slow
@pytest.mark.promise("GW-06")
async def test_no_meta_and_no_header_leads_out_of_the_tokens_scope(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        for name in ("own", "other"):
            (tmp_path / name).mkdir()
            running.host.registry.add(tmp_path / name, name, trust=Trust.DIRECT)
        token = running.token(workspace="own", trust=Trust.SANDBOXED, user_id="ann")
        victim = running.token(workspace="other")
        async with Client(running.url, victim) as client:
            theirs = await client.call("who")
        claims = {
            "session_id": theirs["session"],
            "workspace_id": "other",
            "trust_level": "direct",
            "user_id": "root",
        }
        meta: dict[str, Any] = {
            "dev.holdfast/context": claims,
            "dev.holdfast/session": claims,
            "workspace": "other",
            **{f"dev.holdfast/{key}": value for key, value in claims.items()},
            "example.org/kept": "yes",
        }
        forged = {
            "Holdfast-Context": "eyJhbGciOiJub25lIn0.e30.",
            "Holdfast-Workspace": "other",
            "X-Forwarded-User": "root",
            "X-Holdfast-Trust": "direct",
        }
        async with Client(running.url, token, forged) as client:
            answers = [
                read_answer(await client.post("tools/call", {"name": tool, "arguments": {}, "_meta": meta}))
                for tool in ("who", "given")
            ]
    who, given = (answer["result"]["structuredContent"] for answer in answers)

    assert who["session"] != theirs["session"]
    assert (who["workspace"], who["trust"], who["user"]) == ("own", "sandboxed", "ann")
    assert given["meta"]["example.org/kept"] == "yes"  # control: other keys of `_meta` pass
    assert (theirs["workspace"], theirs["trust"]) == ("other", "direct")  # control: that is what it claimed


async def test_headers_that_contradict_the_body_are_refused(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        token = running.token()
        body, headers = modern_call("add")
        lie = await post_modern(running.url, token, body, {**headers, "Mcp-Name": "repeat"})
        wrong_method = await post_modern(running.url, token, body, {**headers, "Mcp-Method": "tools/list"})
        control = await post_modern(running.url, token, body, headers)
        await asyncio.wait_for(wait_for_record(running, "HEADER_MISMATCH"), 20)

    assert (lie.status_code, wrong_method.status_code, control.status_code) == (400, 400, 200)
    assert read_answer(control)["result"]["structuredContent"]["count"] == 1  # the others did not count


@pytest.mark.slow
async def test_a_context_that_this_host_did_not_sign_tells_nothing_about_sessions(tmp_path: Path):
    async with running_gateway(tmp_path) as running, Client(running.url, running.token("owner")) as owner:
        await owner.call("add")
        (live,) = (session.session_id for session in running.gateway.app.open_sessions())
        own, forged = Signer(running.host.settings.data_dir / KEYS_FOLDER), Signer(tmp_path / "other-keys")
        token = running.token("curious")

        async def ask(signer: Signer, session_id: SessionId) -> tuple[int, str]:
            context = signer.sign(
                SessionContext(session_id=session_id, trust_level=Trust.DIRECT), running.url
            )
            body, headers = modern_call("add")
            answer = await post_modern(running.url, token, body, {**headers, CONTEXT_HEADER: context})
            return answer.status_code, str(read_answer(answer).get("error", ""))

        unknown = new_session_id()
        guesses = [await ask(forged, SessionId(live)), await ask(forged, unknown), await ask(own, unknown)]
        control = await ask(own, SessionId(live))

    assert guesses == [(200, "")] * 3
    assert "would open sessions without end" in control[1]
