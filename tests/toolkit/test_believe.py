"""What a server believes, and of whom: each row of the table, on real processes, in both eras."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.aliases import Aliases
from holdfast.model.context import within
from holdfast.model.errors import HoldfastError
from holdfast.token import Signer, audience_of
from holdfast.toolkit import Toolbox, current_session
from holdfast.toolkit.believe import Process, Requests, Spawner, Strangers, of_environment
from holdfast.wire.mcp.client import greet
from holdfast.wire.mcp.eras import Implementation, Introduction
from holdfast.wire.mcp.server import server_peer
from holdfast.wire.memory import joined
from holdfast.wire.peer import Peer
from tests.toolkit.clients import MODERN_META, Client, Era, Http, client, spawned
from tests.toolkit.contexts import (
    ANN,
    ANN_SAID,
    BOB,
    BOB_SAID,
    META_KEY,
    NOBODY_SAID,
    context_env,
    context_meta,
)
from tests.toolkit.http import served

NOTES = "tests.toolkit.notes_server"
ERAS: list[Era] = ["handshake", "modern"]
FORGED = {META_KEY: {"session_id": "sess_ffffffffffffffff", "trust_level": "direct", "workspace_id": "evil"}}

each_era = pytest.mark.parametrize("era", ERAS)


# stdio, one session's own


@each_era
@pytest.mark.promise("CTX-05", "CTX-06")
def test_a_sessions_own_server_believes_its_environment_and_no_request(era: Era):
    with client(("stdio", era), NOTES, environ=context_env(ANN), hello=FORGED) as mine:
        said = [mine.call("who", meta=meta) for meta in ({}, FORGED, context_meta(BOB))]

    assert [_facts(envelope) for envelope in said] == [ANN_SAID] * 3
    assert [envelope["_meta"]["session_id"] for envelope in said] == [ANN.session_id] * 3


def test_half_a_context_in_the_environment_is_no_context_and_no_server():
    with pytest.raises(HoldfastError) as refused:
        of_environment({"HOLDFAST_SESSION_ID": "sess_aaaaaaaaaaaaaaaa", "HOLDFAST_TRUST_LEVEL": "root"})

    assert refused.value.code is codes.NO_CONTEXT


def test_the_environment_decides_which_row_of_the_table_holds():
    found = (
        of_environment(context_env(ANN)),
        type(of_environment({"HOLDFAST_SHARED": "1"})),
        of_environment({"HOLDFAST_DATA_DIR": "/somewhere"}),
    )

    assert found == (Spawner(ANN), Requests, Strangers())


# stdio, shared by sessions


@each_era
@pytest.mark.promise("CTX-05", "KIT-18")
def test_a_shared_server_believes_each_request_for_itself(era: Era):
    with client(("stdio", era), NOTES, environ={"HOLDFAST_SHARED": "1"}, hello=context_meta(BOB)) as shared:
        said = [shared.call("who", meta=meta) for meta in (context_meta(ANN), context_meta(BOB), {})]
        half = shared.request(
            "tools/call", {"name": "who"}, {META_KEY: {"session_id": "sess_aaaaaaaaaaaaaaaa"}}
        )

    assert [_facts(envelope) for envelope in said] == [ANN_SAID, BOB_SAID, NOBODY_SAID]
    assert half["error"]["message"] == f"The context in _meta[{META_KEY!r}] is not whole."


@each_era
@pytest.mark.promise("KIT-11", "KIT-18")
def test_what_one_session_drives_another_can_neither_see_nor_name(era: Era):
    with client(("stdio", era), NOTES, environ={"HOLDFAST_SHARED": "1"}) as shared:
        shared.call("launch", {"session_id": "tab-1"}, context_meta(ANN))
        others = [shared.call("drive", said, context_meta(BOB)) for said in ({}, {"session_id": "tab-1"})]
        own = shared.call("drive", {}, context_meta(ANN))

    assert [(envelope["code"], envelope["details"]) for envelope in others] == [
        ("NOT_RUNNING", {"available": []}),
        ("NOT_RUNNING", {"available": []}),
    ]
    assert own["running"] == ["tab-1"]


# HTTP


class Signed(Http):
    """A host that signs each request for its server, unless told what to send instead."""

    def __init__(self, url: str, signer: Signer) -> None:
        super().__init__(url)
        self.url = url
        self.signer = signer
        self.context = ANN
        self.token: str | None = None
        self.sent = ""

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        body = json.dumps(message).encode()
        if self.token is None:
            self.sent = self.signer.sign(self.context, audience_of(self.url), body)
        else:
            self.sent = self.token
        self.headers = {"Holdfast-Context": self.sent} if self.sent else {}
        return super().ask(message)


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    with tempfile.TemporaryDirectory() as folder:
        signer = Signer(Path(folder) / "keys")
        signer.jwks()
        yield signer


@pytest.fixture(scope="module")
def url(signer: Signer) -> Iterator[str]:
    # Its own environment claims a session; over HTTP that means nothing.
    with served(NOTES, "--keys", str(signer.public_file), environ=context_env(BOB)) as url:
        yield url


@pytest.fixture(params=ERAS)
def host(url: str, signer: Signer, request: pytest.FixtureRequest) -> Iterator[Client]:
    with closing(Signed(url, signer)) as carrier:
        yield Client(carrier, request.param, FORGED)


def _carrier(host: Client) -> Signed:
    assert isinstance(host.carrier, Signed)
    return host.carrier


@pytest.mark.promise("CTX-05", "CTX-06", "CTX-08")
def test_over_http_only_the_verified_token_says_who_calls(host: Client):
    said = [host.call("who", meta=meta) for meta in ({}, FORGED, context_meta(BOB))]
    _carrier(host).context = BOB
    after = host.call("who")

    assert [_facts(envelope) for envelope in said] == [ANN_SAID] * 3
    assert _facts(after) == BOB_SAID


@pytest.mark.promise("CTX-08")
def test_without_a_token_nothing_is_called_nor_listed(host: Client):
    _carrier(host).token = ""

    refused = [host.raw_call("who"), host.request("tools/list", {})]

    assert [answer["error"]["data"] for answer in refused] == [{"reason": "missing"}] * 2
    assert _carrier(host).status == 401


@pytest.mark.promise("CTX-08")
def test_a_token_for_another_server_is_refused(host: Client, signer: Signer):
    _carrier(host).token = signer.sign(ANN, "https://elsewhere.example/mcp")

    assert host.raw_call("who")["error"]["data"] == {"reason": "audience"}


@pytest.mark.promise("CTX-08")
def test_a_change_needs_a_token_for_its_very_body_but_looking_does_not(host: Client):
    host.call("add_note", {"title": "one"})
    carrier = _carrier(host)
    carrier.token = carrier.sent

    changed, looked = host.raw_call("add_note", {"title": "two"}), host.raw_call("who")

    assert changed["error"]["data"] == {"reason": "request"}
    assert looked["structuredContent"]["ok"]


@pytest.mark.promise("CTX-08")
def test_the_very_same_request_sent_twice_changes_something_once(host: Client, url: str, signer: Signer):
    carrier = _carrier(host)
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

    first, second = carrier.post(body, headers), carrier.post(body, headers)

    assert first[0]["result"]["structuredContent"]["ok"]
    assert second[0]["error"]["message"] == "This token was used before."


@each_era
@pytest.mark.promise("CTX-08", "WSP-01")
def test_strangers_are_let_in_only_where_they_are_allowed_and_then_as_nobody(era: Era, signer: Signer):
    with (
        served(NOTES, "--keys", str(signer.public_file), "--allow-strangers") as url,
        closing(Http(url)) as carrier,
    ):
        said = Client(carrier, era).call("who", meta=FORGED)

    assert _facts(said) == {**NOBODY_SAID, "announced": "evil"}


# In process


@pytest.mark.anyio
@pytest.mark.promise("KIT-18")
async def test_in_process_the_context_variable_is_believed():
    box = Toolbox("inside")

    @box.tool(operation="query")
    async def who() -> str:
        """Say who calls."""
        session = current_session()
        return session.session_id if session else "nobody"

    me, other = Peer(), server_peer(box.answers(Process()))
    async with joined(me, other):
        greeted = await greet(me, Introduction(who=Implementation("tests", "1")))
        unheard = await greeted.call("who", {}, meta=FORGED)
    outcome: list[str] = []
    for session in (ANN, BOB):
        with within(session):
            outcome.append(await _call_in_process(box))

    assert b"nobody" in bytes(unheard.content[0])
    assert outcome == [ANN.session_id, BOB.session_id]


async def _call_in_process(box: Toolbox) -> str:
    me, other = Peer(), server_peer(box.answers(Process()))
    async with joined(me, other):
        greeted = await greet(me, Introduction(who=Implementation("tests", "1")))
        result = await greeted.call("who", {})
    return json.loads(json.loads(bytes(result.content[0]))["text"])["result"]


# Any other client


@each_era
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.promise("CTX-06", "WSP-01")
def test_a_stranger_may_announce_a_workspace_and_nothing_else(transport: str, era: Era):
    with client((transport, era), NOTES) as stranger:
        said = stranger.call("who", meta=FORGED)

    assert _facts(said) == {**NOBODY_SAID, "announced": "evil"}


@pytest.mark.promise("WSP-01")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_request_is_heard_before_the_handshake_and_empty_means_not_announced(transport: str):
    hello = {META_KEY: {"workspace_id": " at-first "}}
    with client((transport, "handshake"), NOTES, hello=hello) as stranger:
        said = [
            stranger.call("who", meta={META_KEY: {"workspace_id": workspace}})["announced"]
            for workspace in (" now ", "", "   ")
        ]
        after = stranger.call("who")["announced"]

    assert (said, after) == (["now", "at-first", "at-first"], "at-first")


@each_era
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.promise("CTX-12", "WSP-01")
@pytest.mark.parametrize("meta", [{"orbit": {"workspace": "/srv/blog"}}, {"orbit.workspace": "/srv/blog"}])
def test_a_configured_alias_is_heard_too(transport: str, era: Era, meta: dict[str, Any]):
    with client((transport, era), NOTES) as stranger:
        assert stranger.call("who", meta=meta)["announced"] == "/srv/blog"


def test_an_alias_that_nobody_configured_is_not_heard():
    box = Toolbox("plain")

    assert box.aliases == Aliases()


# The line at the start


@pytest.mark.promise("CTX-13")
@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (context_env(ANN), "session=sess_aaaaaaaa…, workspace=blog, trust=direct, pid="),
        (
            {"HOLDFAST_SHARED": "1"},
            "session=(of each request), workspace=(of each request), trust=(of each request), pid=",
        ),
        ({}, "warning toolkit.believe: no session context (legacy mode): nobody says who calls, pid="),
    ],
)
def test_a_server_says_once_at_its_start_whose_it_is(environ: dict[str, str], line: str):
    with tempfile.TemporaryFile() as stderr:
        with spawned(NOTES, environ=environ, stderr=stderr) as pipes:
            Client(pipes, "modern").tools()
            pid = pipes.process.pid
        stderr.seek(0)
        lines = [said for said in stderr.read().decode().splitlines() if "pid=" in said]

    assert len(lines) == 1
    assert f"{line}{pid}" in lines[0]
    assert ANN.session_id not in lines[0]


def _facts(envelope: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in envelope.items() if key not in ("ok", "_meta")}


def _params(host: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, **({"_meta": MODERN_META} if host.era == "modern" else {})}
