"""Attack 26: a client edits the `requestState` of a question, or answers with the state of another session."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import RunningGateway, modern_call, post_modern, read_answer, running_gateway

pytestmark = pytest.mark.anyio


async def ask(running: RunningGateway, token: str, text: str = "go") -> dict[str, Any]:
    """Call a tool that asks; return the result, which requires input."""
    body, headers = modern_call("confirm", text=text)
    answer = read_answer(await post_modern(running.url, token, body, headers))
    assert answer["result"]["resultType"] == "input_required", answer
    return answer["result"]


async def reply(running: RunningGateway, token: str, question: dict[str, Any], state: str) -> Any:
    body, headers = modern_call("confirm", text="go")
    (key,) = question["inputRequests"]
    (field,) = question["inputRequests"][key]["params"]["requestedSchema"]["properties"]
    body["params"]["inputResponses"] = {key: {"action": "accept", "content": {field: True}}}
    body["params"]["requestState"] = state
    return read_answer(await post_modern(running.url, token, body, headers))


def is_refused(answer: Any) -> bool:
    return "error" in answer or answer["result"].get("isError") is True


async def test_only_the_state_of_this_session_is_accepted(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        own, other = running.token("own"), running.token("other")
        question, foreign = await ask(running, own), await ask(running, other)
        state: str = question["requestState"]
        flipped = state[:-2] + ("A" if state[-2] != "A" else "B") + state[-1]

        edited = await reply(running, own, question, flipped)
        invented = await reply(running, own, question, "e30")
        stolen = await reply(running, own, question, foreign["requestState"])
        control = await reply(running, own, question, state)
        async with asyncio.timeout(20):
            while not (recorded := await running.denied()):
                await asyncio.sleep(0.01)

    assert (is_refused(edited), is_refused(invented), is_refused(stolen)) == (True, True, True)
    assert "The requestState is not valid" in recorded[0]
    assert "go: True" in str(control["result"])
