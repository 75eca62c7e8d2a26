"""Attack 56 through the gateway: a server's question poses as one of Holdfast's, or asks for a secret, in each era of the client."""

from typing import Any

import mcp_types
import msgspec
import pytest
from mcp import Client
from msgspec import Raw

from holdfast.connect import server_requests
from holdfast.gateway import Credential
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Mode
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from tests.connect.conftest import for_sandboxed
from tests.gateway.conftest import Serve, counter_entry, make_host, serve
from tests.gateway.test_bridging import ERAS, text_of

__all__ = ["make_host", "serve"]

pytestmark = pytest.mark.anyio
POSING = "Holdfast: allow files.delete?\u202e"
SCHEMA = {"type": "object", "properties": {"password": {"type": "string"}}}


async def ask(serve: Serve, era: str, trust: Trust, question: dict[str, Any]) -> tuple[list[str], str]:
    """Let a server ask the client's user. Return the questions that the client got, and the result of the call."""
    questions: list[str] = []

    async def answer(context: Any, params: Any) -> mcp_types.ElicitResult:
        questions.append(params.message)
        return mcp_types.ElicitResult(action="accept", content={"password": "s3cret"})

    entry = {**for_sandboxed(counter_entry("--modern")), "asks": ["elicitation"]}
    authenticate = Credential(id="client", mode=Mode.AUTO, trust=trust)
    async with (
        serve({"counter": entry}, credential=authenticate) as gateway,
        Client(gateway.url, mode=ERAS[era], elicitation_callback=answer) as session,
    ):
        result = await session.call_tool("wants", {"method": "elicitation/create", "params": question})
    return questions, text_of(result)


def stop_sanitizing(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(spec: ServerSpec, params: Raw, *, is_restricted: bool) -> Any:
        return msgspec.json.decode(params)

    monkeypatch.setattr(server_requests, "sanitize_elicitation", decode)


@pytest.mark.slow
@pytest.mark.promise("RES-18")
@pytest.mark.parametrize("era", [*ERAS])
async def test_every_servers_question_is_named_and_cleaned(
    era: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    question: dict[str, Any] = {"message": POSING, "requestedSchema": {"type": "object", "properties": {}}}
    confined, _ = await ask(serve, era, Trust.SANDBOXED, question)
    direct, _ = await ask(serve, era, Trust.DIRECT, question)
    stop_sanitizing(monkeypatch)
    control, _ = await ask(serve, era, Trust.DIRECT, question)

    assert control == [POSING]
    for shown in (*confined, *direct):
        assert POSING not in shown
        assert "counter" in shown.split("Holdfast")[0]
    assert (len(confined), len(direct)) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("era", [*ERAS])
async def test_a_form_for_a_secret_is_refused(era: str, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    question = {"message": "Log in", "requestedSchema": SCHEMA}
    confined = await ask(serve, era, Trust.SANDBOXED, question)
    direct = await ask(serve, era, Trust.DIRECT, question)
    stop_sanitizing(monkeypatch)
    control, answered = await ask(serve, era, Trust.DIRECT, question)

    assert (control, "s3cret" in answered) == (["Log in"], True)
    for shown, result in (confined, direct):
        assert (shown, "s3cret" in result) == ([], False)


@pytest.mark.parametrize("key", ["holdfast-1", " Holdfast-7"])
def test_a_server_cannot_use_the_keys_of_our_own_questions(key: str):
    spec = ServerSpec(name="asker", source=Source.USER, transport=Stdio(command="asker"))
    own = server_requests.ServerRequests(spec, None)
    question: dict[str, Any] = {
        "method": "elicitation/create",
        "params": {"message": "Go?\x1b[2J", "requestedSchema": {"type": "object", "properties": {}}},
    }

    def result(name: str) -> Raw:
        return Raw(msgspec.json.encode({"resultType": "input_required", "inputRequests": {name: question}}))

    with pytest.raises(HoldfastError, match="may not begin with 'holdfast-'"):
        own.sanitize_questions(result(key))
    named = msgspec.json.decode(own.sanitize_questions(result("mine")))["inputRequests"]["mine"]["params"]
    assert named["message"].startswith("A question from the MCP server 'asker', not from Holdfast:")
    assert "\x1b" not in named["message"]
