"""Clients are told when a list or a resource changes, if they want to hear of it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.toolkit import Toolbox, direct_only
from holdfast.toolkit.authentication import AnonymousAuthenticator, MetaAuthenticator
from holdfast.wire.http import HttpApp
from tests.toolkit.contexts import ANN, BOB
from tests.toolkit.http_memory_client import HttpMemoryClient, wait_for
from tests.toolkit.memory_client import MemoryClient, connect
from tests.wire.test_http import RecordedResponse

pytestmark = [pytest.mark.anyio, pytest.mark.promise("KIT-23")]
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


async def text() -> str:
    """A text."""
    return "text"


def make_box(*, dynamic: bool = True) -> Toolbox:
    box = Toolbox("news", dynamic=dynamic)
    box.tool(name="text")(text)
    box.prompt(name="text")(text)
    box.resource("news://today")(text)
    box.resource("news://secret", guards=[direct_only])(text)
    return box


async def told(client: MemoryClient, count: int) -> list[Any]:
    """Wait until the client has this many notifications."""
    async with asyncio.timeout(20):
        while len(client.notifications) < count:
            await asyncio.sleep(0)
    return client.notifications


@asynccontextmanager
async def listening(
    client: MemoryClient, session: Any = None, **notifications: Any
) -> AsyncIterator[asyncio.Future[Any]]:
    """Open a subscription of the modern era, and yield after it was acknowledged."""
    task = asyncio.ensure_future(
        client.request("subscriptions/listen", {"notifications": notifications}, session=session)
    )
    await told(client, 1)
    try:
        yield task
    finally:
        task.cancel()


async def test_handshake_client_is_told_about_the_lists_that_it_asked_for():
    box = make_box()
    async with connect(box, "handshake") as client:
        box.tool(name="before")(text)
        await client.request("tools/list")
        await client.request("resources/list")
        box.tool(name="later")(text)
        box.prompt(name="later")(text)
        box.resource("news://later")(text)
        await told(client, 2)
        box.remove(tool="later")
        await told(client, 3)
        names = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]

    assert client.notifications == [
        ("notifications/tools/list_changed", {}),
        ("notifications/resources/list_changed", {}),
        ("notifications/tools/list_changed", {}),
    ]
    assert names == ["text", "before"]


async def test_handshake_client_is_told_about_the_resources_that_it_subscribed_to():
    box = make_box()
    async with connect(box, "handshake") as client:
        await client.request("resources/subscribe", {"uri": "news://today"})
        unknown = await client.error("resources/subscribe", {"uri": "news://none"})
        denied = await client.error("resources/subscribe", {"uri": "news://secret"}, session=BOB)
        box.resource_updated("news://secret")
        box.resource_updated("news://today")
        await told(client, 1)
        await client.request("resources/unsubscribe", {"uri": "news://today"})
        box.resource_updated("news://today")
        await client.request("ping")

    assert client.notifications == [("notifications/resources/updated", {"uri": "news://today"})]
    assert (unknown[1]["code"], denied[1]["code"]) == ("UNKNOWN_RESOURCE", "DENIED")


async def test_modern_client_hears_what_it_asked_for():
    box = make_box()
    async with connect(box, "modern") as client:
        wanted = {
            "toolsListChanged": True,
            "resourceSubscriptions": ["news://today", "news://secret", "x:none"],
        }
        async with listening(client, BOB, **wanted) as task:
            box.prompt(name="later")(text)
            box.tool(name="later")(text)
            box.resource_updated("news://secret")
            box.resource_updated("news://today")
            # Told once, because the client has not heard of the first yet.
            box.resource_updated("news://today")
            await told(client, 3)
            await client.request("tools/list")
            assert not task.done()

    (_, first), *others = client.notifications
    subscription = first["_meta"]
    assert first["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["news://today"]}
    assert others == [
        ("notifications/tools/list_changed", {"_meta": subscription}),
        ("notifications/resources/updated", {"uri": "news://today", "_meta": subscription}),
    ]


@pytest.mark.parametrize(("dynamic", "announced"), [(True, {"toolsListChanged": True}), (False, {})])
async def test_lists_are_acknowledged_only_if_the_box_announces_their_changes(
    dynamic: bool, announced: dict[str, bool]
):
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["news://today"]}
    async with connect(make_box(dynamic=dynamic), "modern") as client, listening(client, **wanted):
        (_, acknowledged), *_ = client.notifications

    assert acknowledged["notifications"] == {**announced, "resourceSubscriptions": ["news://today"]}


async def test_subscription_ends_with_a_result_when_the_server_ends():
    server = make_box().server(MetaAuthenticator())
    async with connect(server, "modern") as client, listening(client, toolsListChanged=True) as task:
        server.end_streams()
        result = await task
        refused = await client.error("subscriptions/listen", {"notifications": {}})
    await server.close()

    assert result["_meta"][SUBSCRIPTION] == client.notifications[0][1]["_meta"][SUBSCRIPTION]
    assert refused[0] == -32004


async def test_change_for_one_session_is_told_to_no_other():
    box = make_box()
    server = box.server(MetaAuthenticator())
    uris = {"resourceSubscriptions": ["news://today"]}
    async with (
        connect(server, "modern") as ann,
        connect(server, "modern") as bob,
        listening(ann, ANN, **uris),
        listening(bob, BOB, **uris),
    ):
        box.resource_updated("news://today", session_id=ANN.session_id)
        await told(ann, 2)
        await bob.request("tools/list")
    await server.close()

    assert (len(ann.notifications), len(bob.notifications)) == (2, 1)


async def test_thread_can_say_that_a_resource_has_changed():
    box = make_box()
    async with (
        connect(box, "modern") as client,
        listening(client, resourceSubscriptions=["news://today"]),
    ):
        thread = threading.Thread(target=box.resource_updated, args=["news://today"])
        thread.start()
        await told(client, 2)
        thread.join()


async def test_box_that_is_not_dynamic_promises_nothing(caplog: pytest.LogCaptureFixture):
    box = make_box(dynamic=False)
    async with connect(box, "handshake") as client:
        capabilities = (await client.initialize())["capabilities"]
        box.tool(name="earlier")(text)
        before_list = caplog.text
        await client.request("tools/list")
        box.tool(name="later")(text)
        names = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]

    assert (capabilities["tools"], capabilities["prompts"]) == ({}, {})
    assert capabilities["resources"] == {"subscribe": True}
    assert (names, client.notifications) == (["text", "earlier", "later"], [])
    assert ("Toolbox(dynamic=True)" in before_list, "Toolbox(dynamic=True)" in caplog.text) == (False, True)


async def test_client_that_has_left_is_forgotten():
    box = make_box()
    server = box.server(MetaAuthenticator())
    async with connect(server, "handshake") as client:
        await client.request("tools/list")
    box.tool(name="later")(text)
    async with asyncio.timeout(20):
        while len(server._subscriptions):
            await asyncio.sleep(0)
    await server.close()


async def test_number_of_subscriptions_of_a_caller_is_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.toolkit.subscriptions.MAX_STREAMS_PER_CALLER", 1)
    box = make_box()
    async with connect(box, "modern") as client, listening(client, ANN, toolsListChanged=True):
        refused = await client.error("subscriptions/listen", {"notifications": {}}, session=ANN)
        too_long = await client.error(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["news://today"] * 257}}
        )

    assert (refused[0], too_long[0]) == (-32004, -32602)


async def test_handshake_client_over_http_is_told_on_its_get_stream():
    box = make_box()
    app = HttpApp(box.server(AnonymousAuthenticator()))
    client, stream = HttpMemoryClient(app), RecordedResponse()
    session = await client.open_session()
    await client.send(client.message("resources/subscribe", {"uri": "news://today"}), session)
    box.resource_updated("news://today")  # kept until the stream is open
    listen = asyncio.ensure_future(client.listen(session, stream))
    await wait_for(stream, lambda events: len(events) == 1)
    box.resource_updated("news://today")
    events = await wait_for(stream, lambda events: len(events) == 2)
    app.close()
    await listen

    updated = {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "news://today"},
    }
    assert events == [updated, updated]


async def test_modern_client_over_http_is_told_on_the_stream_of_its_subscription():
    box = make_box()
    server = box.server(AnonymousAuthenticator())
    client, stream = HttpMemoryClient(HttpApp(server)), RecordedResponse()
    message = client.message(
        "subscriptions/listen", {"notifications": {"promptsListChanged": True}}, era="modern"
    )
    listen = asyncio.ensure_future(client.start(message, "", stream))
    await wait_for(stream, lambda events: len(events) == 1)
    box.prompt(name="later")(text)
    await wait_for(stream, lambda events: len(events) == 2)
    server.end_streams()
    await listen
    await server.close()

    assert [event.get("method", "result") for event in stream.events] == [
        "notifications/subscriptions/acknowledged",
        "notifications/prompts/list_changed",
        "result",
    ]
