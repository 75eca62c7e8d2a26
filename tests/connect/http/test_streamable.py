"""Remote links through a host, with real servers on loopback."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from holdfast.connect.back_off import NO_BACK_OFF
from holdfast.host.data_folder import KEYS_FOLDER
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.context import META_KEY
from holdfast.model.json import JsonObject
from holdfast.session.session import Session
from holdfast.token import ReplayCache, Signer, Verifier, audience_of
from holdfast.wire.mcp.eras import Era
from tests.connect.conftest import HostFactory
from tests.connect.processes import count_descriptors, wait_until
from tests.connect.test_context import SESSIONS
from tests.connect.web import (
    ERAS,
    HEADER,
    ScriptedServer,
    connect_options,
    data_dir,
    free_port,
    handshake_response,
    hang_after_start,
    http_entry,
    open_session,
    sdk_server,
    serve,
    sse_entry,
)

pytestmark = pytest.mark.anyio


async def texts(session: Session, *names: str) -> list[str]:
    return [(await session.call(name)).text for name in names]


@pytest.mark.promise("LNK-01")
@pytest.mark.parametrize("answers", ["events", "json"])
async def test_stateful_http_server_keeps_its_state_within_a_session(
    make_host: HostFactory, folder: Path, answers: str
):
    app = sdk_server().streamable_http_app(json_response=answers == "json")
    async with (
        serve(app) as url,
        make_host({"web": http_entry(url)}, options=connect_options(Era.HANDSHAKE)) as host,
        host.session(cwd=folder) as one,
        host.session(cwd=folder) as other,
    ):
        counts = [
            *await texts(one, "web.count", "web.count"),
            *await texts(other, "web.count"),
            *await texts(one, "web.count"),
        ]

    assert counts == ["1", "2", "1", "3"]


@pytest.mark.promise("LNK-01")
async def test_sse_server_has_one_connection_within_a_session(make_host: HostFactory, folder: Path):
    app = sdk_server().sse_app()
    connections: list[str] = []

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("method") == "GET":
            connections.append(scope["path"])
        await app(scope, receive, send)

    async with (
        serve(counting) as url,
        open_session(make_host, folder, {"web": sse_entry(url)}, connect_options()) as session,
    ):
        assert await texts(session, "web.progress", "web.progress") == ["done", "done"]

    assert connections == ["/sse"]


@pytest.mark.promise("LNK-14")
async def test_era_of_a_remote_server_is_detected_and_remembered(make_host: HostFactory, folder: Path):
    modern, old = ScriptedServer(), sdk_server().sse_app()
    ours = connect_options()
    async with (
        serve(modern) as one,
        serve(old) as other,
        open_session(make_host, folder, {"modern": http_entry(one), "old": sse_entry(other)}, ours),
    ):
        pass

    found = {key.split()[0]: era for key, era in ours.eras.items()}
    assert (found["modern"], found["old"]) == (Era.MODERN, Era.HANDSHAKE)


@pytest.mark.promise("CTX-05")
@pytest.mark.parametrize("era", ERAS)
async def test_every_request_carries_the_context_in_its_meta(make_host: HostFactory, folder: Path, era: str):
    app = sdk_server().streamable_http_app()
    async with (
        serve(app) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options(ERAS[era])) as session,
    ):
        answer = await session.call("web.meta", meta={META_KEY: {"session_id": "forged"}})

    assert json.loads(answer.text)[META_KEY] == {
        "session_id": session.context.session_id,
        "workspace_id": "",
        "trust_level": "direct",
    }


@pytest.mark.promise("CTX-08")
@pytest.mark.promise("CTX-06")
async def test_every_http_request_is_signed_for_its_server_and_body_whatever_the_entry_has(
    make_host: HostFactory, folder: Path
):
    scripted = ScriptedServer()
    forged = {
        "Holdfast-Context": "forged",
        "HOLDFAST-CONTEXT": "forged",
        "X-Key": "mine",
        "Mcp-Method": "forged",
    }
    async with (
        serve(scripted) as url,
        open_session(
            make_host, folder, {"web": http_entry(url, headers=forged)}, connect_options()
        ) as session,
    ):
        await texts(session, "web.go", "web.go")

    verifier, seen = Verifier(Signer(data_dir(make_host) / KEYS_FOLDER).public_file), ReplayCache()
    claims = [
        verifier.verify(headers[HEADER], audience_of(f"{url}/mcp"), request=body)
        for _, headers, body in scripted.requests
    ]
    for claim in claims:
        seen.check(claim)
    assert {claim.context.session_id for claim in claims} == {session.context.session_id}
    assert {headers["x-key"] for _, headers, _ in scripted.requests} == {"mine"}
    assert [headers["mcp-method"] for headers, _ in scripted.calls()] == ["tools/call", "tools/call"]


@pytest.mark.promise("CTX-10")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("era", ERAS)
async def test_concurrent_sessions_are_never_mixed_up(make_host: HostFactory, folder: Path, era: str):
    crossed: list[JsonObject] = []

    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response | None:
        if message.get("method") == "tools/call":
            params = message["params"]
            token = request.headers[HEADER]
            claim = verifier.verify(token, audience_of(f"{url}/mcp"), request=scripted.requests[-1][2])
            session_ids = params["_meta"][META_KEY]["session_id"], claim.context.session_id
            if {*session_ids} != {params["arguments"]["me"]}:
                crossed.append(params)
        return handshake_response(message) if era == "handshake" else None

    async def work(session: Session) -> int:
        me = {"me": session.context.session_id}
        return sum([(await session.call("web.go", me)).ok for _ in range(SESSIONS)])

    scripted = ScriptedServer(answer)
    async with (
        serve(scripted) as url,
        make_host({"web": http_entry(url)}, options=connect_options(ERAS[era])) as host,
    ):
        sessions = await asyncio.gather(*(host.open(OpenOptions(cwd=folder)) for _ in range(SESSIONS)))
        await asyncio.gather(*(session.wait_ready() for session in sessions))
        verifier = Verifier(Signer(data_dir(make_host) / KEYS_FOLDER).public_file)
        answered = sum(await asyncio.gather(*map(work, sessions)))
        await asyncio.gather(*(session.close() for session in sessions))

    assert (len(scripted.calls()), answered, crossed) == (SESSIONS**2, SESSIONS**2, [])


async def test_call_has_these_headers_and_no_others(make_host: HostFactory, folder: Path):
    scripted = ScriptedServer()
    async with (
        serve(scripted) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options()) as session,
    ):
        await session.call("web.go")

    assert sorted(scripted.calls()[0][0]) == [
        *(
            "accept",
            "accept-encoding",
            "content-length",
            "content-type",
            "holdfast-context",
            "host",
        ),
        *("mcp-method", "mcp-name", "mcp-protocol-version", "user-agent"),
    ]
    assert sorted(json.loads(scripted.calls()[0][1])["params"]["_meta"]) == [
        "dev.holdfast/session",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/protocolVersion",
    ]


async def test_local_paths_are_not_sent_to_a_remote_server(make_host: HostFactory, folder: Path):
    scripted = ScriptedServer()
    async with (
        serve(scripted) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options()) as session,
    ):
        await session.call("web.go")

    assert [
        body for _, _, body in scripted.requests if str(folder).encode() in body or b'"roots"' in body
    ] == []


async def test_progress_of_a_call_is_received(make_host: HostFactory, folder: Path):
    heard: list[Any] = []
    app = sdk_server().streamable_http_app()
    async with (
        serve(app) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options()) as session,
    ):
        answer = await session.call("web.progress", on_progress=heard.append)

    assert (answer.text, [report["progress"] for report in heard]) == ("done", [1])


@pytest.mark.promise("LNK-17")
@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_again_when_the_server_says_that_they_changed(
    make_host: HostFactory, folder: Path, era: str
):
    app = sdk_server().streamable_http_app()
    async with (
        serve(app) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options(ERAS[era])) as session,
    ):
        await session.call("web.grow")
        await wait_until(lambda: bool(session.awaiting_approval.get("web")))

    assert [held.name for held in session.awaiting_approval.get("web", ())] == ["grown"]


@pytest.mark.promise("LNK-07")
@pytest.mark.parametrize("era", ERAS)
async def test_lost_state_is_reported_once_after_the_server_restarted(
    make_host: HostFactory, folder: Path, era: str
):
    port = free_port()
    options = connect_options(ERAS[era], back_off=NO_BACK_OFF)
    async with make_host({"web": http_entry(f"http://127.0.0.1:{port}")}, options=options) as host:
        async with serve(sdk_server().streamable_http_app(), port):
            session = await host.open(OpenOptions(cwd=folder))
            before = await session.call("web.count")
        down = await session.call("web.count")
        async with serve(sdk_server().streamable_http_app(), port):
            after = [await session.call("web.count") for _ in range(2)]
            await session.close()

    assert (before.text, down.code) == ("1", "CONNECTION_CLOSED")
    assert [answer.state_lost for answer in after] == [True, False]
    assert [answer.content[-1]["text"] for answer in after] == ["1", "2"]


@pytest.mark.promise("LNK-07")
async def test_server_that_dies_during_a_call_fails_that_call_and_is_connected_again(
    make_host: HostFactory, folder: Path
):
    port, dying = free_port(), ScriptedServer(hang_after_start)
    async with make_host({"web": http_entry(f"http://127.0.0.1:{port}")}, options=connect_options()) as host:
        async with serve(dying, port):
            session = await host.open(OpenOptions(cwd=folder))
            call = asyncio.create_task(session.call("web.go"))
            await dying.called.wait()
        dead = await call
        async with serve(ScriptedServer(), port):
            after = await session.call("web.go")
            await session.close()

    place = f"http://127.0.0.1:{port}/mcp"
    assert (dead.code, dead.message) == (
        "CONNECTION_CLOSED",
        f"'web' ended before it answered web.go. The call may have taken effect. The connection to {place} failed: its response ended too early.",
    )
    assert (after.ok, after.state_lost) == (True, True)


@pytest.mark.promise("LNK-09")
async def test_server_that_never_answers_is_left_out_after_the_deadline(make_host: HostFactory, folder: Path):
    async def hang(scripted: ScriptedServer, request: Any, message: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    async with serve(ScriptedServer(hang)) as url:
        servers = {"web": http_entry(url), "sse": sse_entry(url)}
        async with open_session(make_host, folder, servers, connect_options(connect_seconds=0.3)) as session:
            reasons = {
                refusal.server: refusal.reason for refusal in session.refusals if refusal.server in servers
            }

    assert reasons == {
        "web": "Could not connect to 'web': The server did not complete the MCP negotiation within 0.3 s.",
        "sse": "Could not connect to 'sse': The server did not say where to send messages within 0.3 s.",
    }


@pytest.mark.promise("LNK-04")
async def test_remote_links_can_be_closed_in_any_order_and_from_any_task(
    make_host: HostFactory, folder: Path
):
    app = sdk_server().streamable_http_app()
    async with (
        serve(app) as url,
        make_host({"web": http_entry(url)}, options=connect_options(Era.HANDSHAKE)) as host,
    ):
        sessions = await asyncio.gather(*(host.open(OpenOptions(cwd=folder)) for _ in range(4)))
        await asyncio.gather(*(session.wait_ready_and_store() for session in sessions))
        await asyncio.create_task(sessions[2].close())
        await sessions[0].close()
        left = await texts(sessions[1], "web.count", "web.count")
        await asyncio.gather(*(asyncio.create_task(sessions[n].close()) for n in (3, 1)))

    assert left == ["1", "2"]


@pytest.mark.slow
@pytest.mark.promise("LNK-04")
async def test_opening_and_closing_remote_links_leaks_nothing(make_host: HostFactory, folder: Path):
    app = Starlette(routes=[*sdk_server().sse_app().routes])
    stateful = sdk_server().streamable_http_app()
    async with serve(stateful) as url, serve(app) as other, serve(ScriptedServer(_answer_with_html)) as rude:
        servers = {
            "web": http_entry(url),
            "sse": sse_entry(other),
            "rude": http_entry(rude),
            "none": http_entry("http://127.0.0.1:9"),
        }
        async with make_host(servers, options=connect_options(Era.HANDSHAKE)) as host:
            await _sessions(host, folder, 3)
            before = count_descriptors(), len(asyncio.all_tasks())
            await _sessions(host, folder, int(os.environ.get("HOLDFAST_CYCLES", "20")))
            await wait_until(lambda: len(asyncio.all_tasks()) <= before[1])
            after = count_descriptors()

    assert after <= before[0] + 4  # a few idle connections stay open for a while


async def _sessions(host: Host, folder: Path, number: int) -> None:
    for _ in range(number):
        async with host.session(cwd=folder) as session:
            await session.call("web.count")


async def _answer_with_html(scripted: ScriptedServer, request: Any, message: dict[str, Any]) -> Any:
    return Response("<html>", media_type="text/html")
