"""Answers as endpoints send them now and then: legal but rare, or cut off, or with an error in the middle."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx2
import msgspec
import pytest

from holdfast.agent.model.config import ModelLimits
from holdfast.agent.model.retries import retry_delay
from holdfast.events import StopReason, ToolCalled
from holdfast.model.json import JsonObject
from holdfast.testing.scripted_model import Answer, Call, ModelRequest, RawAnswer, Step, Text, answer
from holdfast.testing.scripted_model.formats import stream
from holdfast.testing.scripted_model.request import WireFormat
from tests.agent.model.sessions import PREFIXES, conversation

pytestmark = pytest.mark.anyio

FORMATS: dict[str, WireFormat] = dict(
    zip(PREFIXES, (WireFormat.CHAT, WireFormat.RESPONSES, WireFormat.ANTHROPIC), strict=True)
)
BODY = "the endpoint's own words"


def event(data: JsonObject) -> bytes:
    name = str(data.get("type", ""))
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {msgspec.json.encode(data).decode()}\n\n".encode()


def chat(*deltas: JsonObject, finish: str | None = None) -> bytes:
    head: JsonObject = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices: list[JsonObject] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    if finish is not None:
        choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    return b"".join(event({**head, "choices": [choice]}) for choice in choices) + b"data: [DONE]\n\n"


def piece(index: int, call_id: str | None, name: str | None, arguments: str | None) -> JsonObject:
    call: JsonObject = {"index": index, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [{**call, "id": call_id, "type": "function"} if call_id is not None else call]}


def first_then_done(body: bytes) -> "list[Step]":
    return [RawAnswer(body=body), answer("Done.")]


@pytest.mark.promise("AGT-05")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_an_answer_that_ends_without_a_reason_is_cut_off_even_if_the_connection_is_closed_properly(
    tmp_path: Path, prefix: str
):
    parts = (Text("I delete", chunk=100), Call("files__write", {"path": "a", "text": "b"}, id="call_1"))
    whole = [*stream(FORMATS[prefix], Answer(parts=parts), "m", 1)]
    is_last = {
        "openai-chat": b"finish_reason",
        "openai": b"response.completed",
        "anthropic": b"message_delta",
    }
    end = max(
        index
        for index, each in enumerate(whole)
        if is_last[prefix] in each and b'"finish_reason":null' not in each
    )
    async with conversation(tmp_path, first_then_done(b"".join(whole[:end])), prefix) as talk:
        result = await talk.session.prompt("Go")
        await talk.session.prompt("Again")
        calls = [each for each in await talk.events() if isinstance(each, ToolCalled)]

    assert (result.ok, calls) == (False, [])
    assert "ended the connection in the middle of its answer" in result.message
    assert "I delete […]" in str(talk.endpoint.requests[-1].messages), "the model knows what the user saw"


ERRORS: dict[str, tuple[JsonObject, str]] = {
    "openai-chat": ({"error": {"message": BODY, "type": "server_error", "code": 502}}, "HTTP 5"),
    "openai": ({"type": "error", "code": "server_error", "message": BODY, "param": None}, "HTTP 500"),
    "anthropic": ({"type": "error", "error": {"type": "overloaded_error", "message": BODY}}, "HTTP 529"),
}


@pytest.mark.promise("AGT-06", "AGT-08")
@pytest.mark.parametrize("events", [0, 5], ids=["at once", "in the middle"])
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_an_error_within_a_stream_is_the_endpoint_s_failure_and_not_a_wrong_setting(
    tmp_path: Path, prefix: str, events: int
):
    error, status = ERRORS[prefix]
    begun = [*stream(FORMATS[prefix], Answer(parts=(Text("Hello", chunk=1),)), "m", 1)][:events]
    body = b"".join([*begun, event(error)])
    async with conversation(tmp_path, first_then_done(body), prefix) as talk:
        result = await talk.session.prompt("Go")
        again = await talk.session.prompt("Again")
        stored = str(await talk.events())

    assert result.message.startswith(f"127.0.0.1 failed ({status}")
    assert BODY not in stored
    assert again.ok


RESPONSES = [*stream(WireFormat.RESPONSES, Answer(), "m", 1)]
REFUSALS = {
    "openai-chat": chat({"refusal": "I cannot "}, {"refusal": "do that."}, finish="stop"),
    "openai": b"".join(
        [
            RESPONSES[0],
            event(
                {
                    "type": "response.refusal.done",
                    "output_index": 0,
                    "item_id": "m",
                    "content_index": 0,
                    "refusal": "I cannot do that.",
                    "sequence_number": 1,
                }
            ),
            RESPONSES[-1],
        ]
    ),
    "anthropic": b"".join(stream(WireFormat.ANTHROPIC, Answer(stop="refusal"), "m", 1)),
}


@pytest.mark.promise("AGT-11")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_refusal_is_shown(tmp_path: Path, prefix: str):
    async with conversation(tmp_path, first_then_done(REFUSALS[prefix]), prefix) as talk:
        result = await talk.session.prompt("Go")
        said = await talk.replies()
        again = await talk.session.prompt("Again")

    assert (result.reason, again.ok) == (StopReason.REFUSAL, True)
    assert "refused to answer" in said if prefix == "anthropic" else said == "I cannot do that."


LIST = '{"path":"."}'
CALLS: dict[str, list[JsonObject]] = {
    "the same index": [piece(0, "a", "files__list", LIST), piece(0, "b", "files__list", LIST)],
    "the same id": [piece(0, "a", "files__list", LIST), piece(1, "a", "files__list", LIST)],
    "the same index, in pieces": [
        piece(0, "a", "files__list", ""),
        piece(0, None, None, LIST),
        piece(0, "b", "files__list", '{"path"'),
        piece(0, None, None, ':"."}'),
    ],
    "id and name in each piece": [
        piece(0, "a", "files__list", ""),
        piece(0, "a", "files__list", '{"path"'),
        piece(0, "a", "files__list", ':"."}'),
        piece(1, "b", "files__list", '{"path":"\\u00'),
        piece(1, "b", "files__list", '2e"}'),
    ],
    "the name in pieces": [
        piece(0, "a", "files__", ""),
        piece(0, None, "list", LIST),
        piece(1, "b", "files__list", LIST),
    ],
    "no index": [
        {"tool_calls": [{"id": each, "type": "function", "function": {"name": "files__list", "arguments": LIST}}]}
        for each in "ab"
    ],
}  # fmt: skip


@pytest.mark.promise("AGT-11")
@pytest.mark.parametrize("how", CALLS)
async def test_two_calls_are_two_calls_however_their_pieces_are_numbered(tmp_path: Path, how: str):
    async with conversation(tmp_path, first_then_done(chat(*CALLS[how], finish="tool_calls"))) as talk:
        await talk.session.prompt("Go")
        made = [(each.tool, each.arguments) for each in await talk.events() if isinstance(each, ToolCalled)]

    assert made == [("list", {"path": "."})] * 2
    assert len(talk.endpoint.requests[-1].tool_results) == 2


@pytest.mark.promise("AGT-11")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_call_without_arguments_is_made_and_an_event_that_nobody_knows_is_ignored(
    tmp_path: Path, prefix: str
):
    def respond(request: ModelRequest) -> Step:
        if request.tool_results:
            return answer("Done.")
        call = Answer(parts=(Call("files__list", {}, id="call_1"),))
        events = [each.replace(b'"{}"', b'""') for each in stream(FORMATS[prefix], call, "m", 1)]
        unknown = {"openai-chat": b": waiting\n\n", "openai": event({"type": "response.new", "x": 1})}
        noise = unknown.get(prefix, event({"type": "ping"}) + event({"type": "new"}))
        return RawAnswer(body=b"\xef\xbb\xbf" + noise.join([b"", *events]))

    async with conversation(tmp_path, respond, prefix) as talk:
        result = await talk.session.prompt("Go")
        made = [each.arguments for each in await talk.events() if isinstance(each, ToolCalled)]

    assert (result.text, made) == ("Done.", [{}])


async def test_a_kind_of_delta_that_the_library_does_not_know_is_no_error_of_holdfast(tmp_path: Path):
    events = [*stream(WireFormat.ANTHROPIC, Answer(parts=(Text("Hi"),)), "m", 1)]
    new = event({"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}})
    body = b"".join([*events[:2], new, *events[2:]])
    async with conversation(tmp_path, first_then_done(body), "anthropic") as talk:
        result = await talk.session.prompt("Go")
        again = await talk.session.prompt("Again")

    assert "Internal error" not in result.text + result.message
    assert again.text == "Done."


@pytest.mark.promise("AGT-05")
@pytest.mark.parametrize(
    ("after", "least", "most"),
    [
        ("2", 2, 2),
        ("soon", 0, 1),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", 0, 1),
        *((5, 3, 5), (-100, 0, 0)),
        *((100_000, None, None), ("inf", None, None)),
    ],
)
def test_the_pause_before_a_retry_can_be_seconds_or_a_date(
    after: str | int, least: float | None, most: float | None
):
    date = after if isinstance(after, str) else format_datetime(datetime.now(UTC) + timedelta(seconds=after))
    response = httpx2.Response(529, headers={"retry-after": date})

    delay = retry_delay(response, 1, ModelLimits())

    assert delay is None if least is None or most is None else delay is not None and least <= delay <= most
