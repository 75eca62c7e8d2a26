"""Conversations that go on with another provider, or in another format of the same one. `conversation` checks every request."""

from pathlib import Path

import pytest

from holdfast import JsonObject
from holdfast.events import HistoryCompacted, StopReason
from holdfast.testing.scripted_model import Answer, Call, ModelRequest, Step, Text, Think, answer
from tests.agent.model.sessions import PREFIXES, conversation

pytestmark = pytest.mark.anyio

LIST: JsonObject = {"path": "."}


@pytest.mark.promise("AGT-04")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_reasoning_that_nothing_follows_is_not_sent_again(tmp_path: Path, prefix: str):
    thought = Think("Hm.", signature="c2ln")
    script = [
        answer(thought),
        Answer(parts=(thought, Call("files__list", LIST)), stop="length"),
        answer(thought, Text("Well."), thought),
        answer("Done."),
    ]
    async with conversation(tmp_path, script, prefix) as talk:
        reasons = [(await talk.session.prompt(f"Prompt {number}")).reason for number in range(4)]
        last = talk.endpoint.requests[-1].messages

    assert reasons == [StopReason.END_TURN, StopReason.MAX_TOKENS, StopReason.END_TURN, StopReason.END_TURN]
    assert [message.text for message in last if message.role != "thinking"] == [
        "Prompt 0",
        "Prompt 1",
        "Prompt 2",
        "Well.",
        "Prompt 3",
    ]


@pytest.mark.promise("AGT-11")
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("following", PREFIXES)
async def test_a_conversation_with_calls_goes_on_in_another_format(
    tmp_path: Path, prefix: str, following: str
):
    """Local models write ids such as `functions.list:0`, use them again in the next answer, and invent names with dots."""
    is_local = prefix != "anthropic"
    ids = ("functions.list:0", "call_1") if is_local else ("", "")
    calls = (Call("files.list", LIST, id=ids[0]), Call("files__list", LIST, id=ids[1]))
    thought = Think("First this.", signature="c2ln")
    script = [answer(thought, *calls), answer(thought, *calls), answer("One."), answer("Two.")]
    async with conversation(tmp_path, script, prefix) as talk:
        await talk.session.prompt("First")
        await talk.session.prompt(f"/model {following}:other")
        await talk.session.prompt("Second")
        last = talk.endpoint.requests[-1].messages

    made = [call for message in last for call in message.calls]
    assert [name for _, name in made] == ["files_list", "files__list"] * 2
    assert [message.text for message in last if message.role == "user"] == ["First", "Second"]


@pytest.mark.promise("AGT-09")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_conversation_with_parallel_calls_is_summarized_without_new_calls(
    tmp_path: Path, prefix: str
):
    def respond(request: ModelRequest) -> Step:
        if "Summarize the conversation" in request.prompt:
            # A call, although this request allows none.
            return answer("They listed files.", Call("files__list", LIST))
        if request.tool_results:
            return answer("Done.", input_tokens=900)
        return answer(Call("files__list", LIST), Call("files__list", LIST), input_tokens=800)

    async with conversation(tmp_path, respond, prefix, model={"context_tokens": 1000}) as talk:
        for number in range(4):
            await talk.session.prompt(f"Turn {number}")
        compacted = [event for event in await talk.events() if isinstance(event, HistoryCompacted)]
        summaries = [request for request in talk.endpoint.requests if "Summarize" in request.prompt]

    assert [event.summary for event in compacted] == ["They listed files."] * 2
    assert {str(request.body.get("tool_choice", "none")) for request in summaries} <= {
        "none",
        "{'type': 'none'}",
    }
