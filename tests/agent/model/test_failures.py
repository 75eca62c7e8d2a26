"""Endpoints that fail: what the user is told, and that the session goes on."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from holdfast.agent.model.find_models import find_by_keys
from holdfast.events import StopReason, TurnEnded
from holdfast.testing.scripted_model import (
    Answer,
    Call,
    Endless,
    Fail,
    Hang,
    LongLine,
    RawAnswer,
    Redirect,
    SlowBytes,
    Text,
    answer,
)
from tests.agent.model.sessions import PREFIXES, conversation

pytestmark = pytest.mark.anyio
BODY = "the-words-of-the-endpoint"


@pytest.mark.slow
@pytest.mark.promise("AGT-06")
@pytest.mark.promise("AGT-08")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_an_error_is_one_sentence_without_the_endpoint_s_words_and_the_session_goes_on(
    tmp_path: Path, prefix: str, caplog: pytest.LogCaptureFixture
):
    statuses = (401, 404, 400, 413)
    script = [*(Fail(status=status, message=BODY) for status in statuses), answer("Hello again.")]
    async with conversation(tmp_path, script, prefix) as talk:
        reasons = [(await talk.session.prompt(f"Hello {number}")).reason for number in range(5)]
        replies, events = await talk.replies(), str(await talk.events())

    assert reasons == [StopReason.END_TURN] * 5
    assert replies == (
        "127.0.0.1 needs a key (HTTP 401). Name the variable that has it, with `holdfast model NAME --base-url URL"
        " --api-key-env VARIABLE`, or choose another model with `model=` in Python, or with the setting model.name."
        f"127.0.0.1 does not know the model {prefix}:gpt-5 (HTTP 404). Correct model.name or model.base_url, or choose"
        " another model with `model=` in Python, or with the setting model.name."
        f"127.0.0.1 rejected the request (HTTP 400). Check that {prefix}:gpt-5 supports tools, or choose another model"
        " with `model=` in Python, or with the setting model.name."
        "The conversation is too large for 127.0.0.1 (HTTP 413). Start a new session."
        "Hello again."
    )
    assert BODY not in events + caplog.text


@pytest.mark.promise("AGT-12")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_failed_turn_counts_its_request_and_does_not_say_that_the_context_is_empty(
    tmp_path: Path, prefix: str
):
    async with conversation(tmp_path, [answer("Hi."), Fail(status=401), answer("Hi.")], prefix) as talk:
        for words in ("One", "Two", "Three"):
            await talk.session.prompt(words)
        usages = [event.usage for event in await talk.events() if isinstance(event, TurnEnded)]

    assert [usage.get("requests") for usage in usages] == [1, 1, 1]
    assert [usage.get("used") for usage in usages] == [120, None, 120]


@pytest.mark.promise("AGT-05")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_429_and_5xx_are_retried_within_bounds(tmp_path: Path, prefix: str):
    busy = (Fail(status=429, retry_after=0), Fail(status=503, retry_after=0), Fail(status=500, retry_after=0))
    script = [
        *busy,
        answer("At last."),
        *busy,
        Fail(status=529, retry_after=0),
        Fail(status=429, retry_after=3600),
    ]
    async with conversation(tmp_path, script, prefix) as talk:
        found = [(await talk.session.prompt(words)).code for words in ("One", "Two", "Three")]
        replies = await talk.replies()

    assert found == ["", "MODEL_UNAVAILABLE", "MODEL_UNAVAILABLE"]
    assert replies == (
        "At last."
        "127.0.0.1 failed (HTTP 529). Try again, or choose another model with `model=` in Python, or with the setting model.name."
        "127.0.0.1 refuses more requests for now (HTTP 429): a rate limit or an exhausted quota. Wait and try again, or"
        " choose another model with `model=` in Python, or with the setting model.name."
    )
    assert len(talk.endpoint.requests) == 9


EVENTS = {"openai-chat": 8, "openai": 13, "anthropic": 10}
"""How many events the answer of the next test has in each format. A connection that ends after the last one is not cut."""


@pytest.mark.promise("AGT-05")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_stream_that_is_cut_at_any_event_is_not_repeated_and_says_so(tmp_path: Path, prefix: str):
    parts = (Text("some words", chunk=5), Call("files__list", {"path": "."}))
    count = EVENTS[prefix] - 1 if os.environ.get("HOLDFAST_EVERY_EVENT") == "1" else 5
    script = [Answer(parts=parts, cut_after=number + 1) for number in range(count)]
    async with conversation(tmp_path, [*script, answer("Whole.")], prefix) as talk:
        for number in range(count + 1):
            await talk.session.prompt(f"Try {number}")
        replies = await talk.replies()

    assert replies.count("ended the connection in the middle of its answer. Prompt again") == count
    assert replies.endswith("Whole.")
    assert len(talk.endpoint.requests) == count + 1


@pytest.mark.slow
@pytest.mark.promise("AGT-07")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_an_answer_without_end_is_ended(tmp_path: Path, prefix: str):
    big = 200_000
    script = [
        Endless(what="text", chunk=big),
        Endless(what="think", chunk=big),
        Endless(what="arguments", chunk=big),
        Endless(what="calls"),
        LongLine(),
        answer("Fine."),
    ]
    async with conversation(tmp_path, script, prefix) as talk:
        reasons = [(await talk.session.prompt(f"Try {number}")).reason for number in range(6)]
        replies = await talk.replies()

    assert reasons == [*[StopReason.MAX_TOKENS] * 5, StopReason.END_TURN]
    for words in (
        "more than 1000000 characters",
        "more than 128 calls",
        "one event has more than 8388608 bytes",
    ):
        assert words in replies
    assert replies.endswith("Fine.")


@pytest.mark.promise("AGT-07")
async def test_an_endpoint_that_says_nothing_is_left_after_the_idle_time(tmp_path: Path):
    steps = [Hang(), Endless(what="comments", pause=0.05), SlowBytes(pause=0.05)]
    replies = ""
    async with conversation(
        tmp_path, lambda _: steps.pop(0) if steps else answer("Fine."), model={"idle_seconds": 1}
    ) as talk:
        while not replies.endswith("Fine."):  # on a busy machine, an answer may take longer
            await talk.session.prompt("Try")
            replies = await talk.replies()

    assert replies.count("The model made no progress for 1 s (model.idle_seconds)") >= 3
    assert replies.endswith("Fine.")


@pytest.mark.promise("AGT-07")
async def test_a_model_that_takes_too_long_in_a_turn_is_ended(tmp_path: Path):
    script = [
        # Both make progress, so that only the time of the turn ends them: in one answer, or over many requests.
        Endless(what="text", chunk=1, pause=0.02),
        *[Answer(parts=(Call("files__list", {"path": "."}),), delay=0.4)] * 5,
        answer("Fine."),
    ]
    async with conversation(tmp_path, script, model={"turn_seconds": 1}) as talk:
        ended = [await talk.session.prompt(f"Try {number}") for number in range(2)]
        replies = await talk.replies()
        requests = len(talk.endpoint.requests)

    assert [(turn.reason, turn.code) for turn in ended] == [(StopReason.END_TURN, "MODEL_LIMIT")] * 2
    assert replies.count("The model took more than 1 s in this turn (model.turn_seconds)") == 2
    assert 2 < requests <= 5, "the second turn ended in the middle of its script"


@pytest.mark.promise("AGT-06")
async def test_garbage_redirects_and_a_missing_endpoint_are_explained(tmp_path: Path):
    script = [
        RawAnswer(body=b"\x00\xff not a stream \n\n"),
        RawAnswer(body=b"data: {broken\n\n"),
        RawAnswer(body=b"", headers={"content-encoding": "gzip"}),
        Redirect(location="http://169.254.169.254/latest/meta-data/"),
    ]
    async with conversation(tmp_path, script) as talk:
        for number in range(4):
            await talk.session.prompt(f"Try {number}")
        replies = await talk.replies()
    async with conversation(tmp_path / "other", [], model={"base_url": "http://127.0.0.1:9/v1"}) as talk:
        await talk.session.prompt("Hello")
        unreachable = await talk.replies()

    assert replies.count("sent an answer that cannot be read") >= 2
    assert "127.0.0.1 redirects to another address, which is not followed." in replies
    assert unreachable == (
        "The model's endpoint at http://127.0.0.1:9 could not be reached: it refused the connection. Check that it is running, check model.base_url, or"
        " choose another model with `model=` in Python, or with the setting model.name."
    )


@pytest.mark.promise("AGT-06")
async def test_a_missing_key_or_an_unknown_name_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for variable in ("ANTHROPIC_API_KEY", "MY_KEY"):
        monkeypatch.delenv(variable, raising=False)
    replies: list[str] = []
    for number, model in enumerate(
        (
            {"name": "anthropic:claude-sonnet-5", "base_url": ""},
            {"name": "nonsense", "base_url": ""},
            {"name": "openai:gpt-5", "api_key_env": "MY_KEY"},
        )
    ):
        async with conversation(tmp_path / str(number), [], model=model) as talk:
            await talk.session.prompt("Hello")
            replies.append(await talk.replies())
            await talk.session.prompt("/servers")
            assert "files" in await talk.replies()

    assert replies[0].startswith(
        "The key of anthropic:claude-sonnet-5 is missing. Set ANTHROPIC_API_KEY before"
    )
    assert replies[1].startswith("The model 'nonsense' is not known. Write provider:model, such as")
    assert replies[2].startswith(
        "The key of openai:gpt-5 is missing: the environment variable MY_KEY is not set."
    )


async def test_a_provider_whose_library_takes_no_client_of_holdfast_is_refused_with_what_to_use_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GROQ_API_KEY", "x")
    async with conversation(
        tmp_path, [], model={"name": "groq:llama-3.3-70b-versatile", "base_url": ""}
    ) as talk:
        await talk.session.prompt("Hello")
        replies = await talk.replies()

    assert replies.startswith(
        "Models of 'groq' are not supported, because Holdfast cannot limit their answers."
    )
    assert "openai-chat:MODEL with model.base_url" in replies
    assert find_by_keys({"GROQ_API_KEY": "x"}) == []


async def test_an_endpoint_of_a_provider_that_cannot_be_reached_is_not_blamed_on_model_base_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:9/v1")
    async with conversation(tmp_path, [], model={"name": "ollama:qwen3", "base_url": ""}) as talk:
        await talk.session.prompt("Hello")
        replies = await talk.replies()

    assert "it refused the connection. Check that Ollama is running, or choose another model" in replies


@pytest.mark.promise("AGT-06")
@pytest.mark.promise("AGT-08")
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("key", "is_sent"), [("sk-7aa1\n", True), (" sk-7aa1", True), ("“sk-7aa1”", False), ("sk-\n7aa1", False)]
)
async def test_a_key_with_spaces_around_it_is_sent_without_them_and_one_that_is_none_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    prefix: str,
    key: str,
    *,
    is_sent: bool,
):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("MY_KEY", key)
    async with conversation(tmp_path, [answer("Hi.")], prefix, model={"api_key_env": "MY_KEY"}) as talk:
        await talk.session.prompt("Hello")
        said = await talk.replies()

    sent = [str(request.headers) for request in talk.endpoint.requests]
    assert (said == "Hi.", len(sent)) == (is_sent, is_sent)
    if is_sent:
        assert "sk-7aa1'" in sent[0]
    else:
        assert "the environment variable MY_KEY has a character in it that no key has" in said
    assert "7aa1" not in said + caplog.text


@pytest.mark.promise("AGT-06")
@pytest.mark.promise("AGT-08")
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://me:pa55@127.0.0.1:9/v1", "has a user name or a password in it, which is not sent"),
        ("http://127.0.0.1:9/v1?key=pa55", "has a query (after ?) or a fragment (after #)"),
        ("127.0.0.1:9/v1", "is not an address that begins with http:// or https://"),
        ("http://127.0.0.1:99999/v1", "is not an address that begins with http:// or https://"),
    ],
)
async def test_an_address_that_cannot_be_used_is_not_repeated(tmp_path: Path, address: str, reason: str):
    async with conversation(tmp_path, [], model={"base_url": address}) as talk:
        await talk.session.prompt("Hello")
        await talk.session.prompt("/model openai-chat:other")
        said, replies = await talk.replies(), str(await talk.events())

    assert said.count(f"model.base_url {reason}.") == 2
    assert "pa55" not in replies


@pytest.mark.promise("AGT-06")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_an_empty_answer_is_called_empty_unless_calls_were_made(tmp_path: Path, prefix: str):
    script = [answer(), answer(Call("files__list", {"path": "."})), answer(), answer("Well.")]
    async with conversation(tmp_path, script, prefix) as talk:
        codes = [(await talk.session.prompt(words)).code for words in ("One", "Two", "Three")]
        said = await talk.replies()

    assert codes == ["MODEL_UNAVAILABLE", "", ""]
    assert said.startswith(f"{prefix}:gpt-5 sent an empty answer. Prompt again, or choose another model")
    assert "empty answer" not in talk.endpoint.requests[-1].raw.decode()


@pytest.mark.promise("AGT-06")
@pytest.mark.parametrize(
    ("name", "missing", "install"),
    [
        ("openai-chat:any", "openai", "pip install 'holdfast[models]'"),
        ("anthropic:any", "anthropic", "pip install 'holdfast[models]'"),
        ("mistral:any", "mistralai", "pip install 'pydantic-ai-slim[mistral]'"),
    ],
)
async def test_a_library_that_is_not_installed_is_named_with_a_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, missing: str, install: str
):
    monkeypatch.setitem(sys.modules, missing, None)
    async with conversation(tmp_path, [], model={"name": name}) as talk:
        await talk.session.prompt("Hello")

        assert (await talk.replies()).strip().endswith(f"Install it: {install}")


@pytest.mark.promise("AGT-06")
async def test_settings_that_changed_after_the_start_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with conversation(tmp_path, [], model={"name": "openai-chat:any", "base_url": ""}) as talk:
        await talk.session.prompt("/model openai-chat:any")
        before = await talk.replies()
        talk.host.settings.file.write_text('[model]\nbase_url = "http://127.0.0.1:8080/v1"\n')
        await talk.session.prompt("/model openai-chat:any")
        await talk.session.prompt("Hello")
        after = (await talk.replies()).removeprefix(before)

    change = f"'{talk.host.settings.file}' has changed since this process started: start it again to use the new settings."
    assert "The key of openai-chat:any is missing." in before
    assert (change in before, after.count(change)) == (False, 2)


@pytest.mark.promise("AGT-06")
async def test_a_dropped_connection_is_not_called_refused(tmp_path: Path):
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.close()

    async with await asyncio.start_server(drop, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with conversation(tmp_path, [], model={"base_url": f"{address}/v1"}) as talk:
            await talk.session.prompt("Hello")
            replies = await talk.replies()

    assert replies.startswith(
        f"The model's endpoint at {address} could not be reached: it ended the connection before it answered."
    )
