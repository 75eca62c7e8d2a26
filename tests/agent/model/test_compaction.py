"""Conversations that get long: their beginning is summarized for the model."""

from pathlib import Path

import pytest

from holdfast.events import HistoryCompacted, StopReason
from holdfast.testing.scripted_model import Call, Fail, ModelRequest, Step, answer
from tests.agent.model.sessions import conversation

pytestmark = pytest.mark.anyio


@pytest.mark.promise("AGT-09")
async def test_a_long_conversation_is_summarized_for_the_model_with_calls_and_results_together(
    tmp_path: Path,
):
    def respond(request: ModelRequest) -> Step:
        if "Summarize the conversation" in request.prompt:
            return answer("They looked at files.")
        if request.tool_results or "Turn" not in request.prompt:
            return answer("Done.", input_tokens=900)
        return answer(Call("files__list", {"path": "."}), input_tokens=800)

    async with conversation(tmp_path, respond, model={"context_tokens": 1000}) as talk:
        for number in range(4):
            await talk.session.prompt(f"Turn {number}")
        compacted = [event for event in await talk.events() if isinstance(event, HistoryCompacted)]
        kept = len(await talk.events())
        talk.session.agent._history = None  # type: ignore[attr-defined]
        await talk.session.prompt("Turn 4")

    last = talk.endpoint.requests[-1].messages
    calls = [call_id for message in last for call_id, _ in message.calls]
    assert len(compacted) >= 1
    assert kept > 30
    assert 'author="Holdfast: a summary' in last[0].text
    assert "Turn 0" not in str(last)
    assert [message.call_id for message in last if message.role == "tool"] == calls


@pytest.mark.promise("AGT-09")
async def test_a_conversation_that_is_too_long_is_summarized_and_the_prompt_is_answered(tmp_path: Path):
    is_full = False

    def respond(request: ModelRequest) -> Step:
        said = str([message.text for message in request.messages])
        if is_full and ("Turn 0" in said or ("Turn 1" in said and "Turn 2" in said)):
            return Fail(status=400, message="This model's maximum context length is 1000 tokens.")
        if "Summarize the conversation" in request.prompt:
            return answer("They took turns.")
        return answer("Done.")

    async with conversation(tmp_path, respond) as talk:
        for number in range(3):
            await talk.session.prompt(f"Turn {number}")
        is_full = True
        result = await talk.session.prompt("And now?")
        replies, events = await talk.replies(), await talk.events()
        talk.session.agent._history = None  # type: ignore[attr-defined]
        await talk.session.prompt("Again")

    assert (result.reason, replies) == (StopReason.END_TURN, "Done." * 4)
    assert [event.summary for event in events if isinstance(event, HistoryCompacted)] == ["They took turns."]
    for request, count in ((talk.endpoint.requests[-2], 2), (talk.endpoint.requests[-1], 4)):
        assert "They took turns." in request.messages[0].text
        assert len(request.messages) == count
