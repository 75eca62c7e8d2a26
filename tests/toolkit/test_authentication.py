"""How each kind of server authenticates its requests, with real processes, in both eras."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.context import use_context
from holdfast.model.context_aliases import ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.token import Signer, audience_of
from holdfast.toolkit import Toolbox, current_session
from holdfast.toolkit.authentication import (
    AnonymousAuthenticator,
    ContextVarAuthenticator,
    EnvironmentAuthenticator,
    MetaAuthenticator,
    authenticator_from_env,
)
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.mcp.client import negotiate
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.mcp.server import server_peer
from holdfast.wire.peer import Peer
from tests.toolkit.clients import MODERN_META, Client, Era, PlainHttpTransport, connect_client, spawn_server
from tests.toolkit.contexts import (
    ANN,
    ANN_FACTS,
    ANONYMOUS_FACTS,
    BOB,
    BOB_FACTS,
    META_KEY,
    context_env,
    context_meta,
)
from tests.toolkit.server_process import run_http_server

NOTES = "tests.toolkit.notes_server"
ERAS: list[Era] = ["handshake", "modern"]
FORGED = {META_KEY: {"session_id": "sess_ffffffffffffffff", "trust_level": "direct", "workspace_id": "evil"}}

each_era = pytest.mark.parametrize("era", ERAS)


# stdio, started for one session


@each_era
@pytest.mark.promise("CTX-05", "CTX-06")
def test_server_of_one_session_takes_the_identity_from_its_environment_and_refuses_another_context(era: Era):
    announced = {META_KEY: {"workspace_id": "evil"}}
    with connect_client(("stdio", era), NOTES, environ=context_env(ANN), initialize_meta=FORGED) as mine:
        envelopes = [mine.call("who", meta=meta) for meta in ({}, context_meta(ANN), announced)]
        refused = [mine.request("tools/call", {"name": "who"}, meta) for meta in (FORGED, context_meta(BOB))]

    assert [_facts(envelope) for envelope in envelopes] == [ANN_FACTS] * 3
    assert [envelope["_meta"]["session_id"] for envelope in envelopes] == [ANN.session_id] * 3
    assert {answer["error"]["message"].partition(".")[0] for answer in refused} == {
        "The session in this server's environment is not the one that sent the request"
    }


def test_incomplete_context_in_the_environment_raises():
    with pytest.raises(HoldfastError) as refused:
        authenticator_from_env(
            {"HOLDFAST_SESSION_ID": "sess_aaaaaaaaaaaaaaaa", "HOLDFAST_TRUST_LEVEL": "root"}
        )

    assert refused.value.code is codes.NO_CONTEXT


def test_environment_decides_the_authenticator():
    found = (
        authenticator_from_env(context_env(ANN)),
        type(authenticator_from_env({"HOLDFAST_SHARED": "1"})),
        authenticator_from_env({"HOLDFAST_DATA_DIR": "/somewhere"}),
    )

    assert found == (EnvironmentAuthenticator(ANN), MetaAuthenticator, AnonymousAuthenticator())


# stdio, shared by sessions


@each_era
@pytest.mark.promise("CTX-05", "KIT-18")
def test_shared_server_takes_the_identity_from_each_request(era: Era):
    with connect_client(
        ("stdio", era), NOTES, environ={"HOLDFAST_SHARED": "1"}, initialize_meta=context_meta(BOB)
    ) as shared:
        envelopes = [shared.call("who", meta=meta) for meta in (context_meta(ANN), context_meta(BOB), {})]
        half = shared.request(
            "tools/call", {"name": "who"}, {META_KEY: {"session_id": "sess_aaaaaaaaaaaaaaaa"}}
        )

    assert [_facts(envelope) for envelope in envelopes] == [ANN_FACTS, BOB_FACTS, ANONYMOUS_FACTS]
    assert half["error"]["message"] == f"The context in _meta[{META_KEY!r}] is incomplete."


@each_era
@pytest.mark.promise("KIT-11", "KIT-18")
def test_sessions_cannot_see_or_use_each_others_driven_sessions(era: Era):
    with connect_client(("stdio", era), NOTES, environ={"HOLDFAST_SHARED": "1"}) as shared:
        shared.call("launch", {"session_id": "tab-1"}, context_meta(ANN))
        others = [
            shared.call("drive", arguments, context_meta(BOB)) for arguments in ({}, {"session_id": "tab-1"})
        ]
        own = shared.call("drive", {}, context_meta(ANN))

    assert [(envelope["code"], envelope["details"]) for envelope in others] == [
        ("NOT_RUNNING", {"available": []}),
        ("NOT_RUNNING", {"available": []}),
    ]
    assert others[1]["_meta"]["session_id"] == "tab-1", "the id that the request named"
    assert own["running"] == ["tab-1"]


# HTTP


class SigningTransport(PlainHttpTransport):
    """Signs each request like a host, or sends the token in `token` if it is set."""

    def __init__(self, url: str, signer: Signer) -> None:
        super().__init__(url)
        self.url = url
        self.signer = signer
        self.context = ANN
        self.token: str | None = None
        self.sent = ""

    def request(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        body = json.dumps(message).encode()
        if self.token is None:
            self.sent = self.signer.sign(self.context, audience_of(self.url), body)
        else:
            self.sent = self.token
        self.headers = {"Holdfast-Context": self.sent} if self.sent else {}
        return super().request(message)


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    with tempfile.TemporaryDirectory() as folder:
        signer = Signer(Path(folder) / "keys")
        signer.jwks()
        yield signer


@pytest.fixture(scope="module")
def url(signer: Signer) -> Iterator[str]:
    # The environment contains a session, which must be ignored over HTTP.
    with run_http_server(NOTES, "--keys", str(signer.public_file), environ=context_env(BOB)) as url:
        yield url


@pytest.fixture(params=ERAS)
def host(url: str, signer: Signer, request: pytest.FixtureRequest) -> Iterator[Client]:
    with closing(SigningTransport(url, signer)) as transport:
        yield Client(transport, request.param, FORGED)


def _transport(host: Client) -> SigningTransport:
    assert isinstance(host.transport, SigningTransport)
    return host.transport


@pytest.mark.promise("CTX-05", "CTX-06", "CTX-08")
def test_over_http_the_identity_comes_only_from_the_token(host: Client):
    envelopes = [host.call("who", meta=meta) for meta in ({}, FORGED, context_meta(BOB))]
    transport = _transport(host)
    transport.context, transport.session_id = BOB, ""
    after = Client(transport, host.era).call("who")

    assert [_facts(envelope) for envelope in envelopes] == [ANN_FACTS] * 3
    assert _facts(after) == BOB_FACTS


@pytest.mark.promise("CTX-08")
def test_request_without_a_token_is_refused(host: Client):
    _transport(host).token = ""

    refused = [host.raw_call("who"), host.request("tools/list", {})]

    assert [answer["error"]["data"] for answer in refused] == [{"reason": "missing"}] * 2
    assert _transport(host).status == 401


@pytest.mark.promise("CTX-08")
def test_token_for_another_server_is_refused(host: Client, signer: Signer):
    _transport(host).token = signer.sign(ANN, "https://elsewhere.example/mcp")

    assert host.raw_call("who")["error"]["data"] == {"reason": "audience"}


@pytest.mark.promise("CTX-08")
def test_mutating_call_needs_a_token_for_its_body_and_a_query_does_not(host: Client):
    host.call("add_note", {"title": "one"})
    transport = _transport(host)
    transport.token = transport.sent

    changed, looked = host.raw_call("add_note", {"title": "two"}), host.raw_call("who")

    assert changed["error"]["data"] == {"reason": "request"}
    assert looked["structuredContent"]["ok"]


@pytest.mark.promise("CTX-08")
def test_replayed_mutating_request_is_refused(host: Client, url: str, signer: Signer):
    transport = _transport(host)
    host.call("add_note", {"title": "one"})
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 50,
            "method": "tools/call",
            "params": _params(host, "add_note", {"title": "x"}),
        }
    ).encode()
    headers = {
        "Holdfast-Context": signer.sign(ANN, audience_of(url), body),
        **(
            {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add_note"}
            if host.era == "modern"
            else {}
        ),
    }

    first, second = transport.post(body, headers), transport.post(body, headers)

    assert first[0]["result"]["structuredContent"]["ok"]
    assert second[0]["error"]["message"] == "This token was used before."


@each_era
@pytest.mark.promise("CTX-08", "WSP-01")
def test_allow_anonymous_accepts_callers_without_a_token(era: Era, signer: Signer):
    with (
        run_http_server(NOTES, "--keys", str(signer.public_file), "--allow-anonymous") as url,
        closing(PlainHttpTransport(url)) as transport,
    ):
        envelope = Client(transport, era).call("who", meta=FORGED)

    assert _facts(envelope) == {**ANONYMOUS_FACTS, "announced": "evil"}


# In process


@pytest.mark.anyio
@pytest.mark.promise("KIT-18")
async def test_in_process_the_identity_comes_from_the_context_variable():
    box = Toolbox("inside")

    @box.tool(operation="query")
    async def who() -> str:
        """Return the id of the caller's session."""
        session = current_session()
        return session.session_id if session else "anonymous"

    me, other = Peer(), server_peer(box.server(ContextVarAuthenticator()))
    async with connect_memory(me, other):
        client = await negotiate(me, OwnInfo(implementation=Implementation("tests", "1")))
        without_context = await client.call_tool("who", {}, meta=FORGED)
    session_ids: list[str] = []
    for session in (ANN, BOB):
        with use_context(session):
            session_ids.append(await _call_in_process(box))

    assert b"anonymous" in bytes(without_context.content[0])
    assert session_ids == [ANN.session_id, BOB.session_id]


async def _call_in_process(box: Toolbox) -> str:
    me, other = Peer(), server_peer(box.server(ContextVarAuthenticator()))
    async with connect_memory(me, other):
        client = await negotiate(me, OwnInfo(implementation=Implementation("tests", "1")))
        result = await client.call_tool("who", {})
    return json.loads(json.loads(bytes(result.content[0]))["text"])["result"]


# Any other client


@each_era
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.promise("CTX-06", "WSP-01")
def test_anonymous_caller_can_announce_a_workspace_and_nothing_else(transport: str, era: Era):
    with connect_client((transport, era), NOTES) as anonymous:
        envelope = anonymous.call("who", meta=FORGED)

    assert _facts(envelope) == {**ANONYMOUS_FACTS, "announced": "evil"}


@pytest.mark.promise("WSP-01")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_workspace_announced_in_a_request_overrides_the_handshake(transport: str):
    initialize_meta = {META_KEY: {"workspace_id": " at-first "}}
    with connect_client((transport, "handshake"), NOTES, initialize_meta=initialize_meta) as anonymous:
        announced = [
            anonymous.call("who", meta={META_KEY: {"workspace_id": workspace}})["announced"]
            for workspace in (" now ", "", "   ")
        ]
        after = anonymous.call("who")["announced"]

    assert (announced, after) == (["now", "at-first", "at-first"], "at-first")


@each_era
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.promise("CTX-12", "WSP-01")
@pytest.mark.parametrize("meta", [{"orbit": {"workspace": "/srv/blog"}}, {"orbit.workspace": "/srv/blog"}])
def test_configured_alias_announces_a_workspace(transport: str, era: Era, meta: dict[str, Any]):
    with connect_client((transport, era), NOTES) as anonymous:
        assert anonymous.call("who", meta=meta)["announced"] == "/srv/blog"


def test_there_are_no_aliases_by_default():
    box = Toolbox("plain")

    assert box.aliases == ContextAliases()


# The log line at the start


@pytest.mark.promise("CTX-13")
@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (context_env(ANN), "session=sess_aaaaaaaa…, workspace=blog, trust=direct, pid="),
        (
            {"HOLDFAST_SHARED": "1"},
            "session=(per request), workspace=(per request), trust=(per request), pid=",
        ),
        (
            {},
            (
                "warning toolkit.authentication: no session context (legacy mode): this server was not started"
                " by Holdfast and has no --keys, so its callers are anonymous, pid="
            ),
        ),
    ],
)
def test_server_logs_the_source_of_the_identity_once_at_start(environ: dict[str, str], line: str):
    with tempfile.TemporaryFile() as stderr:
        with spawn_server(NOTES, environ=environ, stderr=stderr) as pipes:
            Client(pipes, "modern").tools()
            pid = pipes.process.pid
        stderr.seek(0)
        lines = [text for text in stderr.read().decode().splitlines() if "pid=" in text]

    assert len(lines) == 1
    assert f"{line}{pid}" in lines[0]
    assert ANN.session_id not in lines[0]


def _facts(envelope: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in envelope.items() if key not in ("ok", "_meta")}


def _params(host: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, **({"_meta": MODERN_META} if host.era == "modern" else {})}
