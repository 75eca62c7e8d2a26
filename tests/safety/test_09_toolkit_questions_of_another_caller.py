"""Attack 9 at a toolkit server that asks its clients: answer, resume or overhear the call of another caller."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.context import SessionContext
from holdfast.token import Signer, Verifier, audience_of
from holdfast.toolkit import Call, Toolbox, direct_only
from holdfast.toolkit.authentication import TokenAuthenticator
from holdfast.toolkit.round_trips import Target
from holdfast.wire.http import HttpApp
from holdfast.wire.http.sessions import HttpSession, HttpSessions
from tests.toolkit.contexts import ANN, BOB
from tests.toolkit.http_memory_client import HttpMemoryClient, wait_for
from tests.toolkit.memory_client import MemoryClient, connect
from tests.wire.test_http import RecordedResponse

pytestmark = pytest.mark.anyio
URL = "http://localhost:8000/mcp"
YES = {"action": "accept", "content": {"value": True}}


def dangerous() -> Toolbox:
    box = Toolbox("dangerous")

    @box.tool()
    async def delete_all(call: Call) -> str:
        """Delete everything, if the user agrees."""
        return "deleted" if await call.ask("Delete everything?", bool) else "kept"

    return box


async def resume_for_another(client: MemoryClient) -> Any:
    """Ann's call asks; Bob has got hold of its state and answers."""
    params: dict[str, Any] = {"name": "delete_all", "arguments": {}}
    asked = await client.request("tools/call", params, session=ANN)
    (key,) = asked["inputRequests"]
    answers = {"requestState": asked["requestState"], "inputResponses": {key: YES}}
    return await client.request("tools/call", {**params, **answers}, session=BOB)


@pytest.mark.promise("KIT-24")
async def test_no_other_caller_answers_for_the_user():
    async with connect(dangerous(), "modern", answer=lambda method, params: None) as client:
        with pytest.raises(Exception, match="No call of 'delete_all' waits for this requestState"):
            await resume_for_another(client)


async def test_control_without_the_check_another_caller_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Target, "is_same", lambda self, other: True)  # pyright: ignore
    async with connect(dangerous(), "modern", answer=lambda method, params: None) as client:
        answered = await resume_for_another(client)

    assert answered["structuredContent"]["result"] == "deleted"


@pytest.fixture
def signer() -> Iterator[Signer]:
    with tempfile.TemporaryDirectory() as folder:
        signer = Signer(Path(folder) / "keys")
        signer.jwks()
        yield signer


class SigningClient(HttpMemoryClient):
    """Signs each request for one session."""

    def __init__(self, app: HttpApp, signer: Signer, context: SessionContext) -> None:
        super().__init__(app)
        self._signer = signer
        self._context = context

    def start(self, message: dict[str, Any], session: str, response: RecordedResponse) -> Any:
        body = json.dumps(message).encode()
        self._headers = {"holdfast-context": self._signer.sign(self._context, audience_of(URL), body)}
        return super().start(message, session, response)


async def answer_for_another(signer: Signer) -> tuple[int, str]:
    """Over HTTP, Bob posts an answer into Ann's MCP session. Return his status, and what Ann's call did."""
    app = HttpApp(dangerous().server(TokenAuthenticator(Verifier(signer.jwks()), audience_of(URL))))
    ann, bob = SigningClient(app, signer, ANN), SigningClient(app, signer, BOB)
    session, response = await ann.open_session({"elicitation": {}}), RecordedResponse()
    message = ann.message("tools/call", {"name": "delete_all", "arguments": {}})
    call = asyncio.ensure_future(ann.start(message, session, response))
    (question,) = await wait_for(response, lambda events: len(events) == 1)
    posted = await bob.send({"jsonrpc": "2.0", "id": question["id"], "result": YES}, session)
    no = {"action": "accept", "content": {"value": False}}
    await ann.send({"jsonrpc": "2.0", "id": question["id"], "result": no}, session)
    await call
    return posted.status, response.events[-1]["result"]["structuredContent"]["result"]


@pytest.mark.promise("KIT-24")
async def test_no_other_caller_posts_the_answer(signer: Signer):
    assert await answer_for_another(signer) == (404, "kept")


async def test_control_without_owners_of_mcp_sessions_another_caller_posts_the_answer(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
):
    find = HttpSessions.find

    def find_any(self: HttpSessions, session_id: str | None, owner: str) -> HttpSession:
        return find(self, session_id, ANN.session_id)

    monkeypatch.setattr(HttpSessions, "find", find_any)

    assert await answer_for_another(signer) == (202, "deleted")


def secrets(*, guarded: bool) -> Toolbox:
    box = Toolbox("secrets")

    @box.resource("secret://{name}", guards=[direct_only] if guarded else [])
    async def secret(name: str) -> str:
        return f"the value of {name}"

    @box.completion("secret://{name}", "name")
    async def names() -> list[str]:
        return ["launch-code"]

    return box


async def spy(box: Toolbox) -> dict[str, Any]:
    """What a sandboxed caller finds out about a resource in each way."""
    completing = {
        "ref": {"type": "ref/resource", "uri": "secret://{name}"},
        "argument": {"name": "name", "value": ""},
    }
    found: dict[str, Any] = {}
    async with connect(box, "modern") as client:
        for what, method, params in (
            ("read", "resources/read", {"uri": "secret://launch-code"}),
            ("completed", "completion/complete", completing),
        ):
            try:
                found[what] = await client.request(method, params, session=BOB)
            except Exception as error:
                found[what] = str(error)
        wanted = {"notifications": {"resourceSubscriptions": ["secret://launch-code"]}}
        listening = asyncio.ensure_future(client.request("subscriptions/listen", wanted, session=BOB))
        async with asyncio.timeout(20):
            while not client.notifications:
                await asyncio.sleep(0)
        listening.cancel()
        found["subscribed"] = client.notifications[0][1]["notifications"]
    return found


@pytest.mark.promise("KIT-23")
async def test_guard_hides_a_resource_from_reading_completing_and_subscribing():
    found = await spy(secrets(guarded=True))

    assert found["read"] == found["completed"]
    assert "launch-code" not in str(found)
    assert found["subscribed"] == {}


async def test_control_without_the_guard_everything_is_found():
    found = await spy(secrets(guarded=False))

    assert found["read"]["contents"][0]["text"] == "the value of launch-code"
    assert found["completed"]["completion"]["values"] == ["launch-code"]
    assert found["subscribed"] == {"resourceSubscriptions": ["secret://launch-code"]}
