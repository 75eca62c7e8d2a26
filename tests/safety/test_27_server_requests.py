"""Attack 27: a confined server requests sampling, elicitation or the session's roots."""

from pathlib import Path

import pytest

from holdfast.host.open_options import OpenOptions
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory, counter_entry, folder, for_sandboxed, make_host

__all__ = ["folder", "make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

ASKED = {
    "roots": ("roots", "roots/list"),
    "sampling": ("sample", "sampling/createMessage"),
    "elicitation": ("elicit", "elicitation/create"),
}


class AnswersEverything:
    """A door that answers every request and records it."""

    capabilities = DoorCapabilities(permission=True, elicitation=True, sampling=True)

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.questions: list[str] = []

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        return Decision.ALLOW_ONCE

    async def elicit(self, params: JsonObject) -> JsonObject:
        self.requests.append("elicitation")
        self.questions.append(str(params["message"]))
        return {"action": "accept", "content": {"password": "granted"}}

    async def sample(self, params: JsonObject) -> JsonObject:
        self.requests.append("sampling")
        return {"role": "assistant", "content": {"type": "text", "text": "granted"}, "model": "m"}

    async def read_text(self, path: str) -> str:
        raise NotImplementedError

    async def write_text(self, path: str, text: str) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("how", ["by request", "by input request"])
async def test_confined_server_is_refused_even_if_the_door_would_answer(
    make_host: HostFactory, folder: Path, what: str, how: str
):
    door = AnswersEverything()
    answer = await _call_asking_tool(make_host, folder, door, (what, how), trust=Trust.SANDBOXED)

    assert (f"This server may not use {ASKED[what][1]} in this session" in answer, door.requests) == (
        True,
        [],
    )
    assert ("granted" in answer, str(folder) in answer) == (False, False)


@pytest.mark.parametrize("what", ASKED)
async def test_confined_server_is_answered_if_the_hosts_config_allows_it(
    make_host: HostFactory, folder: Path, what: str
):
    answer = await _call_asking_tool(
        make_host, folder, AnswersEverything(), (what, "by request"), trust=Trust.SANDBOXED, asks=[what]
    )

    assert (folder.as_uri() if what == "roots" else "granted") in answer


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("how", ["by request", "by input request"])
async def test_control_unconfined_server_is_answered(
    make_host: HostFactory, folder: Path, what: str, how: str
):
    answer = await _call_asking_tool(make_host, folder, AnswersEverything(), (what, how), trust=Trust.DIRECT)

    assert (folder.as_uri() if what == "roots" else "granted") in answer


@pytest.mark.promise("RES-14", "RES-18")
@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("how", ["by request", "by input request"])
async def test_confined_server_of_a_direct_session_may_only_ask_the_user_and_the_question_names_it(
    make_host: HostFactory, folder: Path, what: str, how: str
):
    door = AnswersEverything()
    answer = await _call_asking_tool(make_host, folder, door, (what, how), trust=Trust.DIRECT, confined=True)

    if what == "elicitation":
        assert "granted" in answer
        assert "A question from the confined MCP server 'c', not from Holdfast:" in door.questions[0]
    else:
        assert (f"This server may not use {ASKED[what][1]} in this session" in answer, door.requests) == (
            True,
            [],
        )


async def test_a_question_that_no_door_can_show_names_the_command_that_opens_this_session(
    make_host: HostFactory, folder: Path
):
    class ShowsNoQuestions(AnswersEverything):
        capabilities = DoorCapabilities(permission=True)

    async with make_host({"c": counter_entry()}) as host:
        session = await host.open(OpenOptions(cwd=folder, door=ShowsNoQuestions(), opened_by="chat"))
        answer = await session.call("c.wants", {"method": "elicitation/create"})
        await session.close()

    command = f"holdfast chat --resume {session.context.session_id}"
    assert f"To open the session in a terminal: {command}" in answer.text


async def _call_asking_tool(
    make_host: HostFactory,
    folder: Path,
    door: AnswersEverything,
    request: tuple[str, str],
    *,
    trust: Trust,
    asks: str | list[str] = "none",
    confined: bool = False,
) -> str:
    what, how = request
    tool, method = ASKED[what]
    entry = for_sandboxed(counter_entry(*(("--handshake",) if how == "by request" else ()), asks=asks))
    entry["confined"] = confined
    async with make_host({"c": entry}) as host:
        session = await host.open(OpenOptions(cwd=folder, trust=trust, door=door))
        if how == "by request":
            answer = await session.call(f"c.{tool}")
        else:
            answer = await session.call("c.wants", {"method": method})
        await session.close()
    return answer.text
