"""The user who is asked sees all that the server would get. If no user can be asked, the refusal says what to do."""

from pathlib import Path

import aiohttp
import pytest

from holdfast.model.permission import Mode
from holdfast.wire.mcp.eras import CAPABILITIES_KEY
from tests.gateway.conftest import RawClient, Serve, counter_entry
from tests.gateway.running import Client, running_gateway

pytestmark = pytest.mark.anyio


async def test_invisible_characters_of_the_arguments_are_shown_as_escapes(
    serve: Serve, http: aiohttp.ClientSession
):
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "pay") + "\u200b\u202e"
    params = {"name": "count", "arguments": {"note": f"hi{hidden}"}}
    async with serve({"counter": counter_entry()}, mode=Mode.ASK) as gateway:
        client = RawClient(http, gateway.url)
        async with client.post_modern(
            "tools/call", params, **{CAPABILITIES_KEY: {"elicitation": {}}}
        ) as response:
            answer = await response.json()
    message = answer["result"]["inputRequests"]["holdfast-1"]["params"]["message"]

    assert "\\udb40\\udc70\\udb40\\udc61\\udb40\\udc79\\u200b\\u202e" in message
    assert not set(hidden) & set(message)


@pytest.mark.promise("SES-05")
async def test_arguments_are_checked_before_a_question_and_otherwise_by_the_server(tmp_path: Path):
    answers: dict[Mode, str] = {}
    async with running_gateway(tmp_path) as gateway:
        for mode in (Mode.ASK, Mode.AUTO):
            async with Client(gateway.url, gateway.token(mode, mode=mode)) as client:
                answers[mode] = str(await client.call("repeat", text=3))

    assert {
        mode: "repeat was not called: its arguments do not fit" in said for mode, said in answers.items()
    } == {
        Mode.ASK: True,
        Mode.AUTO: False,
    }
    assert "BAD_ARGUMENT" in answers[Mode.AUTO]  # from the server


async def test_the_status_can_be_called_if_nothing_is_missing(serve: Serve, http: aiohttp.ClientSession):
    async with serve({"counter": counter_entry()}) as gateway:
        client = RawClient(http, gateway.url)
        async with client.post_modern("tools/list", {}) as response:
            listed = (await response.json())["result"]["tools"]
        async with client.post_modern("tools/call", {"name": "holdfast__status"}) as response:
            status = (await response.json())["result"]["content"][0]["text"]

    assert "holdfast__status" not in [tool["name"] for tool in listed]
    assert status.endswith("Server counter: available.\nNo server was refused, and no tool awaits approval.")


async def test_a_refusal_advises_the_mode_auto_only_if_that_mode_would_not_ask(tmp_path: Path):
    environ = {"HOLDFAST_PERMISSION_ASK": "counter.who"}
    async with running_gateway(tmp_path, environ) as gateway:
        async with Client(gateway.url, gateway.token("ci", mode=Mode.ASK)) as client:
            because_of_the_mode = (await client.call("add"))["content"][0]["text"]
            because_of_a_rule = (await client.call("who"))["content"][0]["text"]
        (session,) = gateway.gateway.app.open_sessions()
        token_id = gateway.tokens.list()[0].id
    answer = f"To be asked in a terminal, a person can run `holdfast sessions attach {session.session_id}`; then call the tool again."

    assert because_of_the_mode.endswith(
        f"{answer} To stop these questions, the operator can give the client a token with the same limits and the mode auto: "
        f"holdfast tokens create ci --like {token_id} --mode auto"
    )
    assert because_of_a_rule.endswith(answer)
