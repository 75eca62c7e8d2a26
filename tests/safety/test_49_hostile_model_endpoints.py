"""Attack 49: a model's endpoint streams for ever, sends endless lines, redirects inward, or repeats the key in its errors."""

import asyncio
import os
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from holdfast.agent.model import transport
from holdfast.agent.model.answer_events import EventSplitter, pause_after_event
from holdfast.agent.model.clients import ModelClients
from holdfast.agent.model.config import ModelConfig, ModelLimits, make_config
from holdfast.agent.model.try_model import try_model
from holdfast.events import StopReason
from holdfast.model.errors import HoldfastError
from holdfast.settings import load
from holdfast.testing.scripted_model import (
    Endless,
    Fail,
    LongLine,
    RawAnswer,
    Redirect,
    ScriptedModel,
    SlowBytes,
    answer,
)
from tests.agent.model.sessions import conversation
from tests.commands import run_holdfast

if TYPE_CHECKING:  # Importing them takes a second or more, in each process that collects the tests.
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
KEY = "sk-canary-77aa01"
BODY = "the rest of the body, which no mask knows"


def unprotected(endpoint: ScriptedModel) -> "OpenAIChatModel":
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=endpoint.base_url, api_key=KEY))


def unprotected_client(endpoint: ScriptedModel) -> "AsyncOpenAI":
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY, max_retries=0)


async def count_characters(model: "OpenAIChatModel", *, up_to: int) -> int:
    """How many characters an unprotected client takes, up to this many."""
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest

    characters = 0
    async with (
        model.client,
        model_request_stream(model, [ModelRequest.user_text_prompt("Hello")]) as stream,
    ):
        async for _ in stream:
            characters = len(stream.get().text or "")
            if characters > up_to:
                break
    return characters


@pytest.mark.promise("AGT-07")
async def test_a_stream_without_end_is_ended(tmp_path: Path):
    async with conversation(tmp_path, [Endless(chunk=200_000)]) as talk:
        result = await talk.session.prompt("Hello")
        said = await talk.replies()
    async with ScriptedModel([Endless(chunk=200_000)]) as endpoint:
        taken = await count_characters(unprotected(endpoint), up_to=3 * MIB)

    assert (result.reason, len(said) < 1.5 * MIB) == (StopReason.MAX_TOKENS, True)
    assert taken > 3 * MIB


@pytest.mark.slow
@pytest.mark.promise("AGT-07")
async def test_an_answer_of_many_bytes_without_text_is_ended():
    async with ScriptedModel(lambda request: Endless(what="comments", chunk=1000)) as endpoint:
        config = ModelConfig(name="openai-chat:gpt-5", base_url=endpoint.base_url)
        small = replace(config, limits=ModelLimits(max_response_bytes=100_000, max_event_bytes=MIB))
        with pytest.raises(HoldfastError, match="it has more than 100000 bytes"):
            await try_model(small)
        sent = endpoint.events_sent

    assert ModelLimits().max_response_bytes == 64 * MIB
    assert sent >= 90, "the endpoint had sent about as much"


@pytest.mark.promise("AGT-07")
async def test_a_line_without_end_is_not_kept_in_memory(tmp_path: Path):
    async with conversation(tmp_path, [LongLine(size=1 << 30)]) as talk:
        result = await talk.session.prompt("Hello")
        said = await talk.replies()
    async with ScriptedModel([LongLine(size=32 * MIB)]) as endpoint, httpx2.AsyncClient(timeout=30) as client:
        lines = (
            await client.post(f"{endpoint.base_url}/chat/completions", json={"stream": True})
        ).text.split("\n")

    assert result.reason is StopReason.MAX_TOKENS
    assert "one event has more than 8388608 bytes" in said
    assert max(map(len, lines)) > 32 * MIB  # what a client without a limit has in memory


async def count_events(endpoint: ScriptedModel, *, up_to: int) -> int:
    """How many events without a word an unprotected client reads, up to this many."""
    read = 0
    async with unprotected_client(endpoint) as client:
        async for _ in await client.chat.completions.create(model="m", messages=[], stream=True):
            read += 1
            if read == up_to:
                break
    return read


@pytest.mark.promise("AGT-07")
async def test_a_byte_at_a_time_does_not_hold_a_turn(tmp_path: Path):
    async with conversation(tmp_path, [SlowBytes(pause=0.01)], model={"idle_seconds": 1}) as talk:
        result = await talk.session.prompt("Hello")
    async with ScriptedModel([SlowBytes(pause=0.01)]) as endpoint:
        read = await count_events(endpoint, up_to=10)

    assert (result.code, "The model made no progress for 1 s" in result.message) == ("MODEL_LIMIT", True)
    assert read == 10, "a client that counts bytes or empty events as progress reads on"


GARBAGE = {
    "an error event": b'data: {"error": {"message": "wrong key %b", "code": 500}}\n\n',
    "no JSON": b"data: {%b\n\n",
    "binary": b"data: \x00\xff\xfe%b\n\n",
    "a list": b'data: ["%b"]\n\n',
}


@pytest.mark.promise("AGT-06")
@pytest.mark.promise("AGT-08")
@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_is_one_sentence_that_repeats_nothing_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
):
    garbage = RawAnswer(body=GARBAGE[kind] % KEY.encode())
    async with conversation(tmp_path, [garbage, answer("Fine.")]) as talk:
        failed = await talk.session.prompt("Hello")
        await talk.session.prompt("And now?")
        told, said = str(await talk.events()), await talk.replies()
    logged = caplog.text
    async with ScriptedModel([garbage]) as endpoint:
        try:
            await count_characters(unprotected(endpoint), up_to=0)
        except Exception as error:
            reported = "".join(traceback.format_exception(error))
        else:
            reported = "nothing"

    assert (failed.code, said.endswith("Fine.")) == ("MODEL_UNAVAILABLE", True)
    reason = "failed (HTTP 500)." if kind == "an error event" else "sent an answer that cannot be read."
    assert f"127.0.0.1 {reason}" in said
    assert KEY not in told + logged
    if kind == "an error event":
        assert KEY in reported, "a program that reports such an error reports the key"
    else:
        assert reported != "nothing", "an error of some kind, which its caller must know"


USAGE = b'{"prompt_tokens":1,"completion_tokens":1,"total_tokens":"%b"}' % KEY.encode()
KEY_AS_COUNT = (
    b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"x"},'
    b'"finish_reason":"stop"}],"usage":%b}\n\ndata: [DONE]\n\n' % USAGE
)


@pytest.mark.slow
@pytest.mark.promise("AGT-06")
async def test_the_key_in_place_of_a_count_of_tokens_is_not_printed(tmp_path: Path):
    async with ScriptedModel([RawAnswer(body=KEY_AS_COUNT)]) as endpoint:
        env = {
            **os.environ,
            "HOME": str(tmp_path),
            "HOLDFAST_MODEL_NAME": "openai-chat:gpt-5",
            "HOLDFAST_MODEL_BASE_URL": endpoint.base_url,
            "HOLDFAST_MODEL_API_KEY_ENV": "CANARY",
            "CANARY": KEY,
        }
        chat = await asyncio.to_thread(run_holdfast, "chat", cwd=tmp_path, env=env, input="Hello\n")
        asked = len(endpoint.requests)

    assert (asked, "PydanticSerializationUnexpectedValue" in chat.stderr) == (1, True)
    assert KEY not in chat.stdout + chat.stderr


async def test_control_a_library_warns_of_such_a_count_and_repeats_it():
    async with ScriptedModel([RawAnswer(body=KEY_AS_COUNT)]) as endpoint:
        with pytest.warns(UserWarning, match=KEY):
            await count_characters(unprotected(endpoint), up_to=MIB)


CHUNK = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]}\n\n'
CHOICE = b'{"index":0,"delta":{"content":"x"}}'
COSTLY_EVENTS = {
    "more than 5": CHUNK % b",".join([CHOICE] * 3000),
    "values": CHUNK % (CHOICE + b'],"junk":[' + b",".join([b"[]"] * 20_000)),
    "levels deep": CHUNK % (CHOICE + b'],"junk":[' + b"[" * 2000 + b"]" * 2000),
    "digits": CHUNK % (CHOICE + b'],"junk":[' + b"9" * 5000),
    "lines": b"data: 1\n" * 2000 + b"\n",
}


@pytest.mark.promise("AGT-07")
@pytest.mark.parametrize("reason", COSTLY_EVENTS)
async def test_an_event_that_is_slow_to_decode_is_not_decoded(tmp_path: Path, reason: str):
    body = CHUNK % CHOICE + COSTLY_EVENTS[reason] + b"data: [DONE]\n\n"
    async with conversation(tmp_path, [RawAnswer(body=body)]) as talk:
        result = await talk.session.prompt("Hello")
        said = await talk.replies()

    assert result.reason is StopReason.MAX_TOKENS
    assert (said.startswith("x"), "The model's answer was cut off" in said, reason in said) == (True,) * 3


async def test_control_an_unprotected_client_decodes_such_events():
    script = [RawAnswer(body=COSTLY_EVENTS[kind]) for kind in ("more than 5", "levels deep")]
    async with (
        ScriptedModel(script) as endpoint,
        unprotected_client(endpoint) as client,
    ):
        many = await client.chat.completions.create(model="m", messages=[], stream=True)
        built = [len(chunk.choices) async for chunk in many]
        deep = await client.chat.completions.create(model="m", messages=[], stream=True)
        with pytest.raises(RecursionError):
            await anext(aiter(deep))

    assert built == [3000]


@pytest.mark.parametrize(
    "event",
    [
        b': "\ndata: ' + b"[],".join([b""] * 6000) + b"\n\n",  # a quote in a comment hides nothing
        b': "\xe2\x80\xa8data: ' + b"[],".join([b""] * 6000) + b"\n\n",  # nor before another line end
        b"data: [" + b'"a\\"",' * 6000 + b"1]\n\n",
        b"data: " + b"[" * 600 + b"\ndata: " + b"]" * 600 + b"\n\n",  # nested over two lines
        b"data: " + b"[" * 600 + b"\n\n",  # a decoder fails at the depth first
    ],
)
def test_no_form_of_an_event_hides_its_values(event: bytes):
    with pytest.raises(HoldfastError, match="The model's answer was cut off"):
        pause_after_event(event, ModelLimits(), 0)


def test_long_texts_and_repeated_definitions_are_within_the_limits():
    text = b'data: {"delta":"' + b"[1,{2," * 100_000 + b'"}\n\n'
    echo = b"data: [" + b"{}," * 5000 + b"1]\n\n"

    assert pause_after_event(text, ModelLimits(), 0) == 0.0
    assert pause_after_event(echo, ModelLimits(), 300_000) == 0.0  # the request was as long
    assert (
        pause_after_event(b"data: [" + b"1," * 4000 + b"1]\n\n", ModelLimits(), 0) > 0.1
    )  # others work after it


def test_an_event_is_passed_on_only_when_it_is_complete():
    splitter = EventSplitter(ModelLimits())
    parts = [splitter.add(bytes([byte])) for byte in b"data: 1\r\n\r\ndata: 2\n\ndata: 3\n\r\nda"]

    assert [event for part in parts for event in part] == [b"data: 1\r\n\r\n", b"data: 2\n\n"]
    assert splitter.take_rest() == [b"data: 3\n\r\nda"]


@pytest.mark.promise("AGT-06")
@pytest.mark.parametrize("status", [301, 307, 308])
async def test_a_redirect_carries_neither_the_key_nor_the_conversation_elsewhere(tmp_path: Path, status: int):
    async with ScriptedModel([answer("Caught."), answer("Caught.")]) as elsewhere:
        away = Redirect(location=f"{elsewhere.base_url}/chat/completions", status=status)
        async with conversation(tmp_path, [away]) as talk:
            await talk.session.prompt("Hello")
            said = await talk.replies()
        caught = len(elsewhere.requests)
        async with (
            ScriptedModel([away]) as endpoint,
            unprotected_client(endpoint) as client,
        ):
            if status != 301:  # becomes a GET
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hello"}]
                )

    assert (caught, "redirects to another address, which is not followed" in said) == (0, True)
    assert len(elsewhere.requests) == (0 if status == 301 else 1)


METADATA_HOSTS = (
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "2852039166",
    "0xa9.0376.43518",
    "169.254.169.254.",
    "metadata.google.internal",
)


def is_no_metadata_address(host: str) -> bool:
    """The control: every host passes the check."""
    return not host


@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_an_address_where_clouds_keep_credentials_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(transport, "_is_metadata_address", is_no_metadata_address)
    monkeypatch.setenv("NO_PROXY", "")
    said: list[str] = []
    async with ScriptedModel(lambda request: answer("Caught.")) as proxy:
        monkeypatch.setenv(
            "HTTP_PROXY", proxy.address
        )  # what passes the check goes there, and not to a cloud
        for host in METADATA_HOSTS:
            config = ModelConfig(name="openai-chat:gpt-5", base_url=f"http://{host}/v1")
            try:
                said.append(await try_model(config))
            except HoldfastError as error:
                said.append(error.message.partition(" is the ")[2])
        asked = len(proxy.requests)

    refusal = "metadata service of a cloud, not a model's endpoint. Correct model.base_url."
    assert said == [refusal if is_protected else "Caught."] * len(METADATA_HOSTS)
    assert asked == (0 if is_protected else len(METADATA_HOSTS))


@pytest.mark.promise("AGT-08")
async def test_a_key_that_an_error_repeats_is_told_to_no_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    from pydantic_ai.exceptions import ModelHTTPError

    monkeypatch.setenv("MY_KEY", KEY)
    failure = Fail(status=401, message=f"wrong key {KEY}, {BODY}")
    async with conversation(tmp_path, [failure], model={"api_key_env": "MY_KEY"}) as talk:
        await talk.session.prompt("Hello")
        told = str(await talk.events())
    async with ScriptedModel([failure]) as endpoint:
        with pytest.raises(ModelHTTPError) as caught:
            await count_characters(unprotected(endpoint), up_to=0)

    assert [words for words in (KEY, BODY) if words in told + caplog.text] == []
    assert [words for words in (KEY, BODY) if words not in str(caught.value)] == []


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["openai-chat", "openai", "anthropic"])
async def test_an_own_endpoint_gets_its_own_key_and_no_header_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
):
    monkeypatch.setenv("MY_KEY", "of-my-endpoint")
    forged = f"Authorization: Bearer {KEY}\nX-Api-Key: {KEY}\nX-More: {KEY}\nUser-Agent: {KEY}"
    for name in ("ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, forged)
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, KEY)
    async with conversation(tmp_path, [answer("Hi.")], prefix, model={"api_key_env": "MY_KEY"}) as talk:
        await talk.session.prompt("Hello")
        sent = str(talk.endpoint.requests[0].headers)
    async with ScriptedModel([answer("Hi.")]) as endpoint:
        await count_characters(unprotected(endpoint), up_to=0)
        unprotected_headers = str(endpoint.requests[0].headers)

    assert (KEY in sent, "of-my-endpoint" in sent) == (False, True)
    assert f"'x-more': '{KEY}'" in unprotected_headers.lower()


async def test_the_key_of_an_own_endpoint_goes_to_no_other_provider(monkeypatch: pytest.MonkeyPatch):
    from pydantic_ai.models.openai import OpenAIChatModel

    monkeypatch.setenv("MY_KEY", "of-my-endpoint")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "of-deepseek")
    own = replace(load(environ={}).model, name="openai-chat:a", api_key_env="MY_KEY")
    clients = ModelClients()
    keys: list[str] = []
    for settings in (own, replace(own, base_url="http://127.0.0.1:9/v1"), replace(own, name="deepseek:y")):
        model = clients.get(make_config(settings, "deepseek:x"))
        assert isinstance(model, OpenAIChatModel)
        keys.append(model.client.api_key)
    await clients.close()

    assert keys == ["of-deepseek", "of-deepseek", "of-my-endpoint"]
