"""The scripted endpoint, as the clients of OpenAI and Anthropic see it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from holdfast.testing.scripted_model import (
    Answer,
    Call,
    Endless,
    Fail,
    ModelRequest,
    Redirect,
    ScriptedModel,
    Step,
    Text,
    Think,
    WireFormat,
    answer,
)

if TYPE_CHECKING:  # Importing them takes a second or more, in each process that collects the tests.
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

pytestmark = pytest.mark.anyio
ANSWER = answer(Think("Both, then.", signature="c2ln"), "Reading.", Call("read", {"path": "a"}), Call("read"))
HELLO = [{"role": "user", "content": "Hello"}]


def openai_client(endpoint: ScriptedModel) -> "AsyncOpenAI":
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=endpoint.base_url, api_key="none", max_retries=0)


def anthropic_client(endpoint: ScriptedModel) -> "AsyncAnthropic":
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=endpoint.address, api_key="none", max_retries=0)


async def test_openai_s_client_reads_a_streamed_chat_completion():
    async with ScriptedModel([ANSWER]) as endpoint, openai_client(endpoint) as client:
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hello"}], stream=True
            )
        ]

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert "".join(delta.content or "" for delta in deltas) == "Reading."
    assert [(call.id, call.function and call.function.name) for call in calls if call.id] == [
        ("call_1", "read"),
        ("call_2", "read"),
    ]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 120


@pytest.mark.slow
async def test_openai_s_client_reads_a_streamed_response():
    async with (
        ScriptedModel([ANSWER]) as endpoint,
        openai_client(endpoint) as client,
        client.responses.stream(model="m", input="Hello") as stream,
    ):
        response = await stream.get_final_response()

    assert response.output_text == "Reading."
    assert [item.type for item in response.output] == ["reasoning", "message", *["function_call"] * 2]


@pytest.mark.slow
async def test_anthropic_s_client_reads_a_streamed_message():
    async with (
        ScriptedModel([ANSWER]) as endpoint,
        anthropic_client(endpoint) as client,
        client.messages.stream(
            model="m", max_tokens=10, messages=[{"role": "user", "content": "Hello"}]
        ) as stream,
    ):
        message = await stream.get_final_message()

    thinking, text, first, second = message.content
    assert thinking.type == "thinking"
    assert (thinking.thinking, thinking.signature) == ("Both, then.", "c2ln")
    assert text.type == "text"
    assert (first.type, second.type) == ("tool_use", "tool_use")
    assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 20)


async def test_a_request_without_a_stream_gets_one_document():
    endpoint = ScriptedModel([ANSWER, ANSWER, ANSWER])
    async with endpoint, openai_client(endpoint) as openai, anthropic_client(endpoint) as anthropic:
        chat = await openai.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hello"}]
        )
        response = await openai.responses.create(model="m", input="Hello")
        message = await anthropic.messages.create(
            model="m", max_tokens=10, messages=[{"role": "user", "content": "Hello"}]
        )

    assert chat.choices[0].message.content == response.output_text == "Reading."
    assert len(chat.choices[0].message.tool_calls or ()) == 2
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [request.format for request in endpoint.requests] == [*WireFormat]
    assert [request.prompt for request in endpoint.requests] == ["Hello"] * 3


async def test_an_answer_that_stopped_early_is_incomplete_with_and_without_a_stream():
    cut = Answer(parts=(Text("Rea"),), stop="length")
    async with ScriptedModel([cut, cut]) as endpoint, aiohttp.ClientSession() as client:
        bodies = [
            await (
                await client.post(f"{endpoint.base_url}/responses", json={"input": "Hello", "stream": stream})
            ).text()
            for stream in (False, True)
        ]

    document = json.loads(bodies[0])
    *_, last = (line for line in bodies[1].splitlines() if line.startswith("data: "))
    streamed = json.loads(last.removeprefix("data: "))["response"]
    assert [(one["status"], one["incomplete_details"]) for one in (document, streamed)] == [
        ("incomplete", {"reason": "max_output_tokens"})
    ] * 2


async def test_a_function_answers_each_request_by_what_it_says():
    def answer_request(request: ModelRequest) -> Step:
        return answer(f"{request.instructions}: {request.prompt}; {request.tool_results}")

    async with ScriptedModel(answer_request) as endpoint, openai_client(endpoint) as client:
        chat = await client.chat.completions.create(
            model="m",
            messages=[
                {"role": "system", "content": "Be brief"},
                {"role": "user", "content": "Read a"},
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "its text"},
            ],
        )

    assert chat.choices[0].message.content == "Be brief: Read a; {'c1': 'its text'}"


async def test_errors_redirects_and_the_end_of_a_script_are_answers_too():
    script = [Fail(status=429, retry_after=2), Redirect(location="http://169.254.169.254/")]
    async with ScriptedModel(script) as endpoint, aiohttp.ClientSession() as client:
        statuses: list[tuple[int, str | None]] = []
        for header in ("retry-after", "location", "none"):
            url = f"{endpoint.base_url}/chat/completions"
            async with client.post(url, json={"messages": HELLO}, allow_redirects=False) as response:
                statuses.append((response.status, response.headers.get(header)))

    assert statuses == [(429, "2"), (307, "http://169.254.169.254/"), (400, None)]


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_a_stream_is_cut_after_an_event_or_never_ends(path: str):
    script = [Answer(parts=(Text("some words", chunk=2),), cut_after=3), Endless(what="calls"), Endless()]
    async with ScriptedModel(script) as endpoint, aiohttp.ClientSession() as client:
        url, body = f"{endpoint.base_url}/{path}", {"stream": True}
        with pytest.raises(aiohttp.ClientPayloadError):
            async with client.post(url, json=body) as response:
                await response.read()
        assert endpoint.events_sent == 3
        for _ in range(2):
            async with client.post(url, json=body) as response:
                await response.content.readexactly(1 << 20)


def test_a_taken_port_is_an_error_in_a_thread_too():
    with ScriptedModel([]) as endpoint:
        port = int(endpoint.address.rpartition(":")[2])

        with pytest.raises(OSError, match="address already in use"), ScriptedModel([], port=port):
            pass


def test_the_endpoint_runs_in_a_thread_and_as_a_command(tmp_path: Path):
    from openai import APIStatusError, OpenAI

    with ScriptedModel([Fail(status=401, message="no")]) as endpoint, pytest.raises(APIStatusError):
        OpenAI(base_url=endpoint.base_url, api_key="none").responses.create(model="m")

    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"type": "answer", "parts": [{"type": "text", "text": "Hi"}]}]))
    command = [sys.executable, "-m", "holdfast.testing.scripted_model", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base_url = process.stdout.readline().strip()
            response = OpenAI(base_url=base_url, api_key="none").responses.create(model="m", input="Hello")
        finally:
            process.terminate()

    assert response.output_text == "Hi"
