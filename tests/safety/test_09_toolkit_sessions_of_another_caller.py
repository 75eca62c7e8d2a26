"""Attack 9 at a toolkit server over HTTP: use or end the MCP session, or the driven session, of another caller."""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.context import SessionContext
from holdfast.token import Signer, Verifier, audience_of
from holdfast.toolkit import Call, DrivenSessions, Toolbox
from holdfast.toolkit.authentication import AnonymousAuthenticator, TokenAuthenticator
from holdfast.wire.http import HttpApp
from tests.safety.test_46_crowding_an_http_server import NOTES
from tests.toolkit.clients import Client, PlainHttpTransport
from tests.toolkit.contexts import ANN, BOB
from tests.toolkit.server_process import run_http_server
from tests.toolkit.test_authentication import SigningTransport
from tests.wire.test_http import Client as AsgiClient
from tests.wire.test_http import Echo, handshake_message, open_session
from tests.wire.test_http import call as call_message
from tests.wire.test_http import modern as modern_message

CANCEL = handshake_message("notifications/cancelled", {"requestId": 7}, None)
SET_LEVEL = handshake_message("logging/setLevel", {"level": "debug"})
LIST = handshake_message("tools/list")


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    with tempfile.TemporaryDirectory() as folder:
        signer = Signer(Path(folder) / "keys")
        signer.jwks()
        yield signer


@pytest.fixture(scope="module")
def url(signer: Signer) -> Iterator[str]:
    with run_http_server(NOTES, "--keys", str(signer.public_file)) as url:
        yield url


@contextmanager
def ann(url: str, signer: Signer) -> Iterator[Client]:
    with closing(SigningTransport(url, signer)) as transport:
        yield Client(transport, "handshake")


def send(
    url: str, method: str, body: bytes, session: str, token: str, headers: Mapping[str, str] | None = None
) -> int:
    """Send a request in an MCP session with a token, if any; return its status."""
    with closing(PlainHttpTransport(url)) as transport:
        connection = transport.connection
        accept = "text/event-stream" if method == "GET" else "application/json, text/event-stream"
        proof = {"Holdfast-Context": token} if token else {}
        connection.request(
            method,
            "/mcp",
            body,
            {
                "Content-Type": "application/json",
                "Accept": accept,
                "Mcp-Session-Id": session,
                **proof,
                **(headers or {}),
            },
        )
        return connection.getresponse().status


REQUESTS: list[tuple[str, bytes, dict[str, str]]] = [
    ("POST", LIST, {}),
    ("POST", SET_LEVEL, {}),
    ("POST", CANCEL, {}),
    ("GET", b"", {}),
    ("GET", b"", {"Last-Event-ID": "1"}),
    ("DELETE", b"", {}),
]


@pytest.mark.promise("KIT-18")
def test_mcp_session_belongs_to_the_caller_that_opened_it(url: str, signer: Signer):
    with ann(url, signer) as client:
        session = _session_id(client)
        without, of_bob, unknown = (
            [
                send(url, method, body, name, _sign(signer, url, context, body), more)
                for method, body, more in REQUESTS
            ]
            for name, context in ((session, None), (session, BOB), ("0" * 32, BOB))
        )
        still_there = client.call("who")["session"]
        ended = send(url, "DELETE", b"", session, _sign(signer, url, ANN, b""))

    assert (without, of_bob, unknown) == ([401] * 6, [404] * 6, [404] * 6)
    assert (still_there, ended) == (ANN.session_id, 204)


@pytest.mark.promise("CTX-08")
def test_intercepted_token_neither_ends_a_session_nor_cancels_a_request(url: str, signer: Signer):
    with ann(url, signer) as client:
        session = _session_id(client)
        client.call("who")
        transport = client.transport
        assert isinstance(transport, SigningTransport)
        of_a_call = transport.sent
        of_a_stream = signer.sign(ANN, audience_of(url))
        statuses = [send(url, "GET", b"", session, of_a_stream)]
        statuses += [send(url, "DELETE", b"", session, token) for token in (of_a_call, of_a_stream)]
        statuses += [send(url, "POST", CANCEL, session, of_a_call)]
        still_there = client.call("who")["session"]

    assert (statuses, still_there) == ([200, 401, 409, 401], ANN.session_id)


@pytest.mark.anyio
async def test_control_where_sessions_have_no_owner_anyone_ends_them():
    client = AsgiClient(HttpApp(Echo()))
    session = await open_session(client)

    ended = await client.send("DELETE", b"", {"mcp-session-id": session["mcp-session-id"]})

    assert ended.status == 204


def _sign(signer: Signer, url: str, context: SessionContext | None, body: bytes) -> str:
    return signer.sign(context, audience_of(url), body or None) if context is not None else ""


def _session_id(client: Client) -> str:
    assert isinstance(client.transport, SigningTransport)
    return client.transport.session_id


# Driven sessions, at a server without keys


@pytest.mark.promise("KIT-11", "KIT-18")
def test_anonymous_callers_never_share_a_driven_session():
    with run_http_server(NOTES) as url:
        transports = [PlainHttpTransport(url) for _ in range(4)]
        first, second = (Client(transport, "handshake") for transport in transports[:2])
        modern, other_modern = (Client(transport, "modern") for transport in transports[2:])
        first.call("launch", {"session_id": "tab-1"})
        seen = [other.call("drive", {"session_id": "tab-1"}) for other in (second, modern, other_modern)]
        launched = modern.call("launch", {"session_id": "tab-2"})
        own = first.call("drive")["running"]
        for transport in transports:
            transport.close()

    assert [envelope["code"] for envelope in (*seen, launched)] == [
        "NOT_RUNNING",
        "NO_CONTEXT",
        "NO_CONTEXT",
        "NO_CONTEXT",
    ]
    assert "Start it with --keys" in launched["error"]
    assert own == ["tab-1"]


def browsers() -> tuple[Toolbox, DrivenSessions[str], list[str]]:
    box, disposed = Toolbox("browsers"), list[str]()
    driven: DrivenSessions[str] = box.dispose_at_end(DrivenSessions(disposed.append))

    @box.tool()
    async def launch() -> None:
        """Start a driven session."""
        driven.add("tab-1", "browser")

    @box.tool(operation="query")
    async def drive() -> str:
        """Use it."""
        return driven.get("tab-1")

    return box, driven, disposed


@pytest.mark.anyio
@pytest.mark.promise("KIT-11")
async def test_callers_without_a_token_do_not_share_one_beside_callers_with_tokens(signer: Signer):
    box, _, _ = browsers()
    url, anonymous = "http://localhost:8000/mcp", AnonymousAuthenticator()
    tokens = TokenAuthenticator(Verifier(signer.jwks()), audience_of(url), anonymous=anonymous)
    client = AsgiClient(HttpApp(box.server(tokens)))

    async def call(tool: str, context: SessionContext | None) -> str:
        body, headers = modern_message(tool)
        proof = {"holdfast-context": _sign(signer, url, context, body)}
        answer = await client.send("POST", body, {**headers, **proof})
        return json.loads(answer.body)["result"]["structuredContent"].get("code", "OK")

    calls = [("launch", ANN), ("drive", None), ("launch", None), ("drive", BOB), ("drive", ANN)]

    assert [await call(*one) for one in calls] == ["OK", "NO_CONTEXT", "NO_CONTEXT", "NOT_RUNNING", "OK"]


@pytest.mark.anyio
async def test_driven_sessions_end_with_the_mcp_session_that_they_belong_to():
    box, driven, disposed = browsers()
    client = AsgiClient(HttpApp(box.server(AnonymousAuthenticator())))
    first, second = await open_session(client), await open_session(client)
    for session in (first, second):
        await client.send("POST", call_message("launch"), session)

    await client.send("DELETE", b"", first)
    async with asyncio.timeout(20):
        while not disposed:
            await asyncio.sleep(0)

    assert (disposed, len(driven)) == (["browser"], 1)


@pytest.mark.anyio
async def test_control_with_one_owner_for_all_a_stranger_drives_the_session(monkeypatch: pytest.MonkeyPatch):
    def owner(call: Call) -> str:
        session: SessionContext | None = call.session
        return session.session_id if session is not None else call.mcp_session_id

    monkeypatch.setattr(Call, "owner", property(owner))
    box, _, _ = browsers()
    one, other = (AsgiClient(HttpApp(box.server(AnonymousAuthenticator()))) for _ in range(2))

    await one.send("POST", *modern_message("launch"))
    stolen = await other.send("POST", *modern_message("drive"))

    assert json.loads(stolen.body)["result"]["structuredContent"]["result"] == "browser"


def test_ten_thousand_callers_do_not_slow_down_a_look_up():
    """The time of a look-up is compared with the time that a search through all owners takes."""
    import time

    from holdfast.toolkit.call import bind_call

    driven: DrivenSessions[Any] = DrivenSessions(lambda _: None)
    for number in range(10_000):
        with bind_call(Call(tool="launch", connection=f"c{number}")):
            driven.add("tab", number)
    with bind_call(Call(tool="drive", connection="c9999")):
        began = time.perf_counter()
        found = [driven.get("tab") for _ in range(100)]
        looked_up = time.perf_counter() - began
        owners = [f"c{number}" for number in range(10_000)]
        began = time.perf_counter()
        for _ in range(100):
            assert [owner for owner in owners if owner == "c9999"]
        searched = time.perf_counter() - began

    assert found == [9999] * 100
    assert looked_up < searched
