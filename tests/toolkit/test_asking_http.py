"""Handlers that ask their client over HTTP in the handshake era: a request on the stream, an answer by POST."""

import asyncio
from typing import Any

import pytest

from holdfast.toolkit import Call, Toolbox
from holdfast.toolkit.authentication import AnonymousAuthenticator
from holdfast.wire.http import HttpApp
from tests.toolkit.http_memory_client import HttpMemoryClient, wait_for
from tests.wire.test_http import RecordedResponse

pytestmark = [pytest.mark.anyio, pytest.mark.promise("KIT-24")]
CAPABILITIES: dict[str, Any] = {"elicitation": {}}


def make_app() -> HttpApp:
    box = Toolbox("asking")

    @box.tool()
    async def ask(call: Call) -> str:
        """Ask."""
        return await call.ask("Which?", str)

    return HttpApp(box.server(AnonymousAuthenticator()))


def answer_to(request_id: Any, text: str) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "result": {"action": "accept", "content": {"value": text}},
    }


async def start_call(client: HttpMemoryClient, session: str) -> tuple[Any, RecordedResponse, Any]:
    """Call the tool; return the running request, its response, and the question."""
    response = RecordedResponse()
    message = client.message("tools/call", {"name": "ask", "arguments": {}})
    task = asyncio.ensure_future(client.start(message, session, response))
    (question,) = await wait_for(response, lambda events: len(events) == 1)
    return task, response, question


async def test_question_is_answered_by_a_post():
    client = HttpMemoryClient(make_app())
    session = await client.open_session(CAPABILITIES)
    task, response, question = await start_call(client, session)

    posted = await client.send(answer_to(question["id"], "this"), session)
    await task

    assert (question["method"], posted.status) == ("elicitation/create", 202)
    assert response.events[-1]["result"]["structuredContent"]["result"] == "this"


async def test_client_may_refuse_with_an_error():
    client = HttpMemoryClient(make_app())
    session = await client.open_session(CAPABILITIES)
    task, response, question = await start_call(client, session)

    refusal = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "not now"}}
    await client.send(refusal, session)
    await task

    failed = response.events[-1]["result"]["structuredContent"]
    assert (failed["code"], "not now" in failed["error"]) == ("PEER_ERROR", True)


async def test_answer_of_another_session_is_ignored():
    client = HttpMemoryClient(make_app())
    session, other = await client.open_session(CAPABILITIES), await client.open_session(CAPABILITIES)
    task, response, question = await start_call(client, session)

    statuses = [
        (await client.send(answer_to(question["id"], "forged"), stranger)).status
        for stranger in (other, "unknown", "")
    ]
    await client.send(answer_to(question["id"], "mine"), session)
    await task

    assert statuses == [202, 404, 202]
    assert response.events[-1]["result"]["structuredContent"]["result"] == "mine"


async def test_question_fails_when_the_session_ends():
    app = make_app()
    client = HttpMemoryClient(app)
    session = await client.open_session(CAPABILITIES)
    task, response, _ = await start_call(client, session)

    app.sessions.end(app.sessions.find(session, ""))
    await task

    assert len(response.events) == 1  # the call was cancelled and has no result


async def test_client_that_accepts_no_stream_gets_a_clear_code():
    client = HttpMemoryClient(make_app(), {"accept": "application/json"})
    session = await client.open_session(CAPABILITIES)

    assert (await client.call("ask", session))["code"] == "MISSING_CAPABILITY"
