"""Everything between the official SDK's client and a server passes through, in one era and between the eras."""

import asyncio
from typing import Any

import mcp_types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from holdfast.audit.record import decode_record
from holdfast.gateway.credential import Credential
from holdfast.model.permission import Mode
from holdfast.model.tool_pattern import parse_tool_pattern
from tests.gateway import feature_server
from tests.gateway.conftest import Serve, counter_entry

pytestmark = pytest.mark.anyio
ERAS = {"handshake": "legacy", "modern": "auto"}
# The server's flags, by its era. A server without flags supports both eras, and the gateway uses the client's.
SERVERS = {"handshake": ("--handshake",), "modern": ("--modern",)}


async def answer_elicitation(context: Any, params: Any) -> mcp_types.ElicitResult:
    choices = params.requested_schema["properties"].get("decision", {}).get("enum")
    content: dict[str, Any] = {"decision": choices[0]} if choices else {"number": 7}
    return mcp_types.ElicitResult(action="accept", content=content)


async def answer_sampling(context: Any, params: Any) -> mcp_types.CreateMessageResult:
    text = mcp_types.TextContent(type="text", text="sampled")
    return mcp_types.CreateMessageResult(role="assistant", content=text, model="test")


async def list_roots(context: Any) -> mcp_types.ListRootsResult:
    return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri=FileUrl("file:///srv/project"))])


def connect(url: str, era: str) -> Client:
    return Client(
        url,
        mode=ERAS[era],
        elicitation_callback=answer_elicitation,
        sampling_callback=answer_sampling,
        list_roots_callback=list_roots,
    )


def text_of(result: Any) -> str:
    return result.content[0].text


@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("server", [*SERVERS, "both"])
@pytest.mark.parametrize("client", [*ERAS])
async def test_calls_questions_progress_and_cancellation_pass_between_all_eras(
    client: str, server: str, serve: Serve
):
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with (
        serve({"counter": counter_entry(*SERVERS.get(server, ()))}) as gateway,
        connect(gateway.url, client) as session,
    ):
        upstream = client if server == "both" else server
        who = await session.call_tool("whoami", {})
        await session.call_tool("progress", {}, progress_callback=on_progress)
        if upstream == "handshake":
            asked = text_of(await session.call_tool("elicit", {}))
            sampled = text_of(await session.call_tool("sample", {"messages": [], "maxTokens": 1}))
            rooted = text_of(await session.call_tool("roots", {}))
        else:
            asked = text_of(await session.call_tool("wants", {"method": "elicitation/create"}))
            sampled = text_of(
                await session.call_tool(
                    "wants", {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
                )
            )
            rooted = text_of(await session.call_tool("wants", {"method": "roots/list", "params": {}}))
        begun = asyncio.Event()

        async def on_begin(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        lingering = asyncio.ensure_future(session.call_tool("linger", {}, progress_callback=on_begin))
        await begun.wait()
        lingering.cancel()
        await asyncio.wait([lingering])
        given_up = ""
        async with asyncio.timeout(10):
            while not given_up:  # the client's cancellation is a message of its own
                given_up = text_of(await session.call_tool("cancelled", {}))
        resources = await session.list_resources()

    assert who.structured_content is not None
    assert who.structured_content["era"] == upstream
    assert seen == [0, 1, 2]
    assert '"number":7' in asked.replace(" ", "")
    assert "sampled" in sampled
    assert "file:///srv/project" in rooted
    assert given_up == "linger"
    assert resources.resources == []  # the server declares none


@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("server", [*SERVERS])
async def test_a_modern_client_that_cannot_be_asked_can_cancel_its_call(server: str, serve: Serve):
    async with (
        serve({"counter": counter_entry(*SERVERS[server])}) as gateway,
        Client(gateway.url, mode=ERAS["modern"]) as session,
    ):
        begun = asyncio.Event()

        async def on_begin(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        lingering = asyncio.ensure_future(session.call_tool("linger", {}, progress_callback=on_begin))
        await begun.wait()
        lingering.cancel()
        await asyncio.wait([lingering])
        given_up = ""
        async with asyncio.timeout(10):
            while not given_up:
                given_up = text_of(await session.call_tool("cancelled", {}))

    assert given_up == "linger"


async def test_a_log_level_that_the_server_cannot_be_told_does_not_stop_calls(serve: Serve):
    entry = counter_entry()
    entry["args"] = ["-m", feature_server.__name__, "--handshake"]
    limited = Credential(id="ann", mode=Mode.AUTO, tools=(parse_tool_pattern("news.publish"),))
    async with (
        serve({"news": entry}, credential=limited) as gateway,
        connect(gateway.url, "handshake") as session,
    ):
        await session.session.send_request(
            mcp_types.SetLevelRequest(params=mcp_types.SetLevelRequestParams(level="debug")),
            mcp_types.EmptyResult,
        )
        published = await session.call_tool("publish", {})

    assert published.is_error is False


@pytest.mark.slow
@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("server", [*SERVERS, "both"])
@pytest.mark.parametrize("client", [*ERAS])
async def test_resources_prompts_completion_subscriptions_and_logs_pass_between_all_eras(
    client: str, server: str, serve: Serve
):
    logs: list[tuple[str, str, str]] = []
    updated = asyncio.Event()

    async def on_log(params: Any) -> None:
        logs.append((params.logger.split("/")[0], params.level, params.data))

    async def on_message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            updated.set()

    entry = counter_entry()
    entry["args"] = ["-m", feature_server.__name__, *SERVERS.get(server, ())]
    async with (
        # There are two servers, because each must get the log level.
        serve({"first": entry, "second": entry}) as gateway,
        Client(
            gateway.url,
            mode=ERAS[client],
            logging_callback=on_log,
            log_level="debug" if client == "modern" else None,
            message_handler=on_message,
        ) as session,
    ):
        listed = [str(one.uri) for one in (await session.list_resources()).resources]
        templates = (await session.list_resource_templates()).resource_templates
        read: Any = (await session.read_resource("news://2025")).contents[0]
        prompt: Any = (await session.get_prompt("second__summarize", {"year": "2025"})).messages[0].content
        reference = mcp_types.PromptReference(type="ref/prompt", name="first__summarize")
        completed = (await session.complete(reference, {"name": "year", "value": "20"})).completion.values
        async with asyncio.timeout(20):
            if client == "modern":
                async with session.listen(resource_subscriptions=["news://today"]) as events:
                    await session.call_tool("first__publish", {})
                    async for _ in events:
                        break
            else:
                await session.session.send_request(
                    mcp_types.SetLevelRequest(params=mcp_types.SetLevelRequestParams(level="debug")),
                    mcp_types.EmptyResult,
                )
                await session.session.send_request(
                    mcp_types.SubscribeRequest(params=mcp_types.SubscribeRequestParams(uri="news://today")),
                    mcp_types.EmptyResult,
                )
                await session.call_tool("first__publish", {})
                await updated.wait()
            await session.call_tool("second__publish", {})
            while len(logs) < 4:
                await asyncio.sleep(0.01)

    assert listed == ["news://today"] * len(listed)
    assert {one.uri_template for one in templates} == {"news://{year}"}
    assert (read.text, prompt.text) == ("the news of 2025", "Summarize 2025.")
    assert completed == ["2025", "2026"]
    # The logger of each message begins with the name of its server.
    assert logs == [
        (name, *message)
        for name in ("first", "second")
        for message in (("debug", "publishing"), ("warning", "published"))
    ]


async def test_a_subscription_that_the_server_refuses_is_refused_on_every_stream(serve: Serve):
    entry = counter_entry()
    entry["args"] = ["-m", feature_server.__name__, "--handshake"]

    async def listen(session: Client) -> str:
        try:
            async with asyncio.timeout(20), session.listen(resource_subscriptions=["weather://today"]):
                return "open"
        except MCPError as error:
            return error.error.message

    async with serve({"news": entry}) as gateway, connect(gateway.url, "modern") as session:
        await session.list_resources()
        answers = await asyncio.gather(*(listen(session) for _ in range(4)))

    assert set(answers) == {"There is no resource 'weather://today' here."}


async def test_one_unsubscription_ends_a_subscription_that_was_sent_twice(serve: Serve):
    updated = asyncio.Event()

    async def on_message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            updated.set()

    subscription = mcp_types.SubscribeRequestParams(uri="news://today")
    ended = mcp_types.UnsubscribeRequestParams(uri="news://today")
    entry = counter_entry()
    entry["args"] = ["-m", feature_server.__name__, "--modern"]
    async with (
        serve({"news": entry}) as gateway,
        Client(gateway.url, mode="legacy", message_handler=on_message) as session,
        asyncio.timeout(20),
    ):
        for _ in range(2):
            await session.session.send_request(
                mcp_types.SubscribeRequest(params=subscription), mcp_types.EmptyResult
            )
        await session.call_tool("publish", {})
        await updated.wait()

        await session.session.send_request(mcp_types.UnsubscribeRequest(params=ended), mcp_types.EmptyResult)

        while updated.is_set():  # the server is told a little later
            updated.clear()
            await session.call_tool("publish", {})
            await asyncio.sleep(0.1)


@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("server", [*SERVERS, "both"])
@pytest.mark.parametrize("client", [*ERAS])
async def test_changes_of_prompts_and_resources_pass_between_all_eras(client: str, server: str, serve: Serve):
    heard: set[str] = set()
    all_heard = asyncio.Event()

    def on_change(name: str) -> None:
        heard.add(name)
        if {"prompts", "resources"} <= heard:
            all_heard.set()

    async def on_message(message: Any) -> None:
        if str(method := getattr(message, "method", "")).endswith("list_changed"):
            on_change(str(method).split("/")[1])

    async def listen(session: Client) -> None:
        async with session.listen(prompts_list_changed=True, resources_list_changed=True) as events:
            listening.set()
            async for event in events:
                on_change(
                    {"PromptsListChanged": "prompts", "ResourcesListChanged": "resources"}[
                        type(event).__name__
                    ]
                )

    listening = asyncio.Event()
    entry = counter_entry()
    entry["args"] = ["-m", feature_server.__name__, *SERVERS.get(server, ())]
    async with (
        serve({"news": entry}) as gateway,
        Client(gateway.url, mode=ERAS[client], message_handler=on_message) as session,
        asyncio.timeout(20),
    ):
        await session.list_prompts()
        await session.list_resources()
        streams = [asyncio.create_task(listen(session))] if client == "modern" else []
        if streams:
            await listening.wait()
        await session.call_tool("extend", {})
        await all_heard.wait()
        for stream in streams:
            stream.cancel()
            await asyncio.wait([stream])
        prompts = [one.name for one in (await session.list_prompts()).prompts]
        resources = [str(one.uri) for one in (await session.list_resources()).resources]

    assert heard == {"prompts", "resources"}
    assert sorted(prompts) == ["summarize", "translate"]
    assert sorted(resources) == ["news://today", "news://tomorrow"]


@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("client", [*ERAS])
async def test_a_client_hears_that_a_new_tool_awaits_approval_and_why(client: str, serve: Serve):
    changed = asyncio.Event()

    async def on_message(message: Any) -> None:
        if "list_changed" in str(getattr(message, "method", "")):
            changed.set()

    async with (
        serve({"a": counter_entry(), "b": counter_entry()}) as gateway,
        Client(gateway.url, mode=ERAS[client], message_handler=on_message) as session,
    ):
        before = {tool.name for tool in (await session.list_tools()).tools}
        if client == "modern":
            async with session.listen(tools_list_changed=True) as events:
                await session.call_tool("b__grow", {"name": "fresh"})
                async with asyncio.timeout(10):
                    async for _ in events:
                        break
        else:
            await session.call_tool("b__grow", {"name": "fresh"})
            async with asyncio.timeout(10):
                await changed.wait()
        after = {tool.name for tool in (await session.list_tools()).tools}
        status = text_of(await session.call_tool("holdfast__status", {}))
        with pytest.raises(MCPError) as refused:
            await session.call_tool("b__fresh", {})

    assert {"a__count", "b__count"} <= before
    assert after - before == {"holdfast__status"}
    assert "Tool fresh of b: not offered." in status
    assert "holdfast servers approve b" in status
    assert refused.value.code == -32602


@pytest.mark.promise("GW-09")
@pytest.mark.parametrize("client", [*ERAS])
@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_in_mode_ask_the_client_decides_and_the_audit_knows(client: str, answer: str, serve: Serve):
    questions: list[str] = []

    async def decide(context: Any, params: Any) -> mcp_types.ElicitResult:
        questions.append(params.message)
        if answer == "decline":
            return mcp_types.ElicitResult(action="decline")
        return mcp_types.ElicitResult(action="accept", content={"decision": "allow_once"})

    async with serve({"counter": counter_entry()}, mode=Mode.ASK) as gateway:
        async with Client(gateway.url, mode=ERAS[client], elicitation_callback=decide) as session:
            result = await session.call_tool("count", {})
        rows = await gateway.host.store.read(lambda tx: [*tx.audit_rows()])
        records = [
            (record.kind, record.tool, record.outcome)
            for record in map(decode_record, (row.body for row in rows))
            if record.tool == "count"
        ]

    allowed = answer == "accept"
    assert [question.split("\n")[0] for question in questions] == [
        "Holdfast: allow counter.count (server with your rights, not confined)?"
    ]
    assert (result.is_error, text_of(result).startswith("1" if allowed else "NOT_PERMITTED")) == (
        not allowed,
        True,
    )
    assert records == [
        ("permission", "count", "allow_once" if allowed else "reject"),
        ("call", "count", "completed" if allowed else "refused"),
    ]


@pytest.mark.promise("GW-09")
async def test_a_client_that_cannot_be_asked_is_refused(serve: Serve):
    async with (
        serve({"counter": counter_entry()}, mode=Mode.ASK) as gateway,
        Client(gateway.url, mode="legacy") as session,
    ):
        result = await session.call_tool("count", {})

    assert (result.is_error, text_of(result)[:13]) == (True, "NOT_PERMITTED")
