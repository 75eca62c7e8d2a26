import asyncio
import logging
import os
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.incoming_requests import ACP_CANCEL, MCP_CANCEL, CancelMethod
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.message_memory import LONG_LINE_BYTES, LONG_LINE_MEMORY_BYTES
from holdfast.wire.messages import Notification, PeerError, Raw, Request
from holdfast.wire.peer import Peer
from tests.wire.recording import RecordingTransport, echo, line, recorded_peer, settle

pytestmark = pytest.mark.anyio


class BlockingHandler:
    """A handler that waits until the test opens it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting: list[Request] = []
        self.cancelled: list[Request] = []
        self.entered = asyncio.Event()

    async def __call__(self, request: Request) -> Any:
        self.waiting.append(request)
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(request)
            raise
        return {}


async def test_both_peers_can_send_requests():
    async def double(request: Request) -> Any:
        return {"got": request.method}

    one, other = Peer(on_request=echo), Peer(on_request=double)
    async with connect_memory(one, other):
        answers = await asyncio.gather(one.request("a", {"x": 1}), other.request("b", {"y": [2]}))

    assert [bytes(answer) for answer in answers] == [b'{"got":"a"}', b'{"y":[2]}']


async def test_responses_may_arrive_in_any_order():
    async with recorded_peer() as (peer, transport):
        first, second = asyncio.create_task(peer.request("a")), asyncio.create_task(peer.request("b"))
        ids = [message["id"] for message in await transport.wait_for(2)]
        peer.data_received(line(id=ids[1], result="second") + line(id=ids[0], result="first"))

        assert [bytes(await first), bytes(await second)] == [b'"first"', b'"second"']


async def test_error_response_is_raised_with_its_code_and_data():
    async with recorded_peer() as (peer, transport):
        pending = asyncio.create_task(peer.request("a"))
        (message,) = await transport.wait_for(1)
        peer.data_received(
            line(id=message["id"], error={"code": -32002, "message": "no such session", "data": {"a": 1}})
        )

        with pytest.raises(PeerError, match="no such session") as raised:
            await pending
        assert (raised.value.rpc_code, bytes(raised.value.data)) == (-32002, b'{"a": 1}')


async def test_handler_can_pass_on_a_peer_error_unchanged():
    async def forward(request: Request) -> Any:
        raise PeerError(-32042, "later", Raw(b'{"x":1}'))

    async with recorded_peer(on_request=forward) as (peer, transport):
        peer.data_received(line(id=1, method="m"))

        assert await transport.wait_for(1) == [
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32042, "message": "later", "data": {"x": 1}}}
        ]


async def test_crash_in_a_handler_is_logged_and_answered_as_internal_error(
    caplog: pytest.LogCaptureFixture,
):
    async def crash(request: Request) -> Any:
        raise RuntimeError("a secret")

    async with recorded_peer(on_request=crash) as (peer, transport):
        peer.data_received(line(id=1, method="m"))

        assert await transport.wait_for(1) == [
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error."}}
        ]
    assert "a secret" in caplog.text


async def test_result_that_cannot_be_encoded_is_an_internal_error():
    async def odd(request: Request) -> Any:
        return {"what": object()}

    async with recorded_peer(on_request=odd) as (peer, transport):
        peer.data_received(line(id=1, method="m"))

        assert (await transport.wait_for(1))[0]["error"]["code"] == -32603


async def test_message_over_the_limit_is_not_sent():
    async def huge(request: Request) -> Any:
        return "x" * 2000

    async with recorded_peer(on_request=huge, limits=Limits(line_bytes=1000)) as (peer, transport):
        peer.data_received(line(id=1, method="m"))

        assert (await transport.wait_for(1))[0]["error"] == {
            "code": -32600,
            "message": "The message has 2037 bytes; the maximum is 1000.",
        }
        with pytest.raises(HoldfastError, match="the maximum is 1000"):
            await peer.request("m", "x" * 2000)


async def test_holdfast_error_is_answered_with_its_code_and_details():
    async def refuse(request: Request) -> Any:
        raise HoldfastError(codes.BAD_ARGUMENT, "cwd must be absolute.", cwd="here")

    async with recorded_peer(on_request=refuse) as (peer, transport):
        peer.data_received(line(id="x", method="m"))

        assert await transport.wait_for(1) == [
            {
                "jsonrpc": "2.0",
                "id": "x",
                "error": {"code": -32602, "message": "cwd must be absolute.", "data": {"cwd": "here"}},
            }
        ]


async def test_unknown_method_is_method_not_found():
    async with recorded_peer() as (peer, transport):
        peer.data_received(line(id=1, method="nope"))

        assert (await transport.wait_for(1))[0]["error"] == {
            "code": -32601,
            "message": "There is no method 'nope'.",
        }


async def test_slow_handler_does_not_block_other_requests():
    handler = BlockingHandler()

    async def on_request(request: Request) -> Any:
        return await handler(request) if request.method == "slow" else request.method

    async with recorded_peer(on_request=on_request) as (peer, transport):
        peer.data_received(line(id=1, method="slow") + line(id=2, method="quick"))
        quick = await transport.wait_for(1)
        handler.open.set()
        both = await transport.wait_for(2)

    assert [message["id"] for message in quick] == [2]
    assert [message["id"] for message in both] == [2, 1]


async def test_notifications_before_a_response_are_handled_first():
    received: list[str] = []

    def receive(notification: Notification) -> None:
        received.append(notification.method)

    async with recorded_peer(on_notification=receive) as (peer, transport):
        pending = asyncio.create_task(peer.request("a"))
        (message,) = await transport.wait_for(1)
        peer.data_received(line(method="n1") + line(method="n2") + line(id=message["id"], result={}))
        await pending

    assert received == ["n1", "n2"]


async def test_notifications_of_a_handler_are_sent_before_its_response():
    async with recorded_peer() as (peer, transport):

        async def notifying(request: Request) -> Any:
            await peer.notify("progress", {"n": 1})
            await peer.notify("progress", {"n": 2})
            return {}

        peer._incoming._handler = notifying  # the handler needs the peer it serves
        peer.data_received(line(id=1, method="m"))

        assert [message.get("params", "answer") for message in await transport.wait_for(3)] == [
            {"n": 1},
            {"n": 2},
            "answer",
        ]


async def test_crash_in_a_notification_handler_is_logged_and_the_next_one_is_handled(
    caplog: pytest.LogCaptureFixture,
):
    received: list[str] = []

    def receive(notification: Notification) -> None:
        if notification.method == "bad":
            raise RuntimeError("oops")
        received.append(notification.method)

    async with recorded_peer(on_notification=receive) as (peer, _):
        peer.data_received(line(method="bad") + line(method="good"))
        await settle(peer)

    assert received == ["good"]
    assert "notification handler crashed" in caplog.text


@pytest.mark.parametrize(
    ("cancel_method", "method"), [(MCP_CANCEL, "notifications/cancelled"), (ACP_CANCEL, "$/cancel_request")]
)
async def test_cancelling_the_caller_cancels_the_request(cancel_method: CancelMethod, method: str):
    async with recorded_peer(cancel_method=cancel_method) as (peer, transport):
        pending = asyncio.create_task(peer.request("a"))
        (request,) = await transport.wait_for(1)
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending

        assert (await transport.wait_for(2))[1] == {
            "jsonrpc": "2.0",
            "method": method,
            "params": {"requestId": request["id"]},
        }


async def test_request_is_cancelled_after_its_timeout_and_a_late_response_is_counted():
    async with recorded_peer() as (peer, transport):
        with pytest.raises(HoldfastError, match=r"a was not answered within 0.01 s") as raised:
            await peer.request("a", timeout=0.01)
        request, cancellation = await transport.wait_for(2)
        peer.data_received(line(id=request["id"], result={}))

        assert (raised.value.code, cancellation["method"], peer.stats.unexpected_responses) == (
            codes.TIMEOUT,
            "notifications/cancelled",
            1,
        )


async def test_cancellation_stops_the_handler_and_mcp_gets_no_response():
    handler = BlockingHandler()
    async with recorded_peer(on_request=handler) as (peer, transport):
        peer.data_received(line(id="r", method="m"))
        await handler.entered.wait()
        peer.data_received(line(method="notifications/cancelled", params={"requestId": "r", "reason": "x"}))
        await asyncio.wait(peer._incoming.other_tasks())

        assert ([request.id for request in handler.cancelled], transport.messages) == (["r"], [])


async def test_cancelled_request_is_answered_as_cancelled_in_acp():
    handler = BlockingHandler()
    async with recorded_peer(on_request=handler, cancel_method=ACP_CANCEL) as (peer, transport):
        peer.data_received(line(id=5, method="m"))
        await handler.entered.wait()
        peer.data_received(line(method="$/cancel_request", params={"requestId": 5}))

        assert await transport.wait_for(1) == [
            {"jsonrpc": "2.0", "id": 5, "error": {"code": -32800, "message": "The request was cancelled."}}
        ]


async def test_cancellation_of_an_unknown_or_missing_id_is_ignored():
    async with recorded_peer(on_request=echo) as (peer, transport):
        peer.data_received(
            line(method="notifications/cancelled", params={"requestId": 99})
            + line(method="notifications/cancelled", params={"requestId": {}})
            + line(method="notifications/cancelled")
            + line(id=1, method="m", params={})
        )

        assert [message["id"] for message in await transport.wait_for(1)] == [1]


async def test_id_in_flight_cannot_be_used_again():
    handler = BlockingHandler()
    async with recorded_peer(on_request=handler) as (peer, transport):
        peer.data_received(line(id=1, method="m") + line(id=1, method="m"))
        (refusal,) = await transport.wait_for(1)
        handler.open.set()
        both = await transport.wait_for(2)

    assert (
        refusal["error"]["message"]
        == "A request with this id is still in flight. Use a new id for each request."
    )
    assert both[1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_requests_over_the_limit_are_refused_and_reading_goes_on():
    handler = BlockingHandler()
    async with recorded_peer(on_request=handler, limits=Limits(in_flight=3)) as (peer, transport):
        peer.data_received(b"".join(line(id=n, method="m") for n in range(10)))
        refused = await transport.wait_for(7)
        await handler.entered.wait()
        running = len(handler.waiting)
        handler.open.set()
        answers = await transport.wait_for(10)

        assert (running, transport.reading, [message["id"] for message in answers]) == (
            3,
            True,
            [*range(3, 10), *range(3)],
        )
        assert {message["error"]["code"] for message in refused} == {codes.BUSY.rpc_code}


async def test_requests_over_the_limit_are_refused_while_a_response_is_pending():
    handler = BlockingHandler()
    async with recorded_peer(on_request=handler, limits=Limits(in_flight=2)) as (peer, transport):
        peer.data_received(b"".join(line(id=n, method="m") for n in range(4)))
        pending = asyncio.create_task(peer.request("q"))
        messages = await transport.wait_for(3)
        question = next(message for message in messages if "method" in message)
        refused = sorted(message["id"] for message in messages if "error" in message)
        peer.data_received(line(id=question["id"], result="at last"))

        assert (bytes(await pending), refused, peer.stats.refused_requests) == (b'"at last"', [2, 3], 2)
        assert (
            next(m for m in messages if "error" in m)["error"]["message"]
            == "2 requests are already in flight. Wait for an answer first."
        )
        handler.open.set()


async def test_own_requests_over_the_limit_wait():
    async with recorded_peer(limits=Limits(in_flight=2)) as (peer, transport):
        pending = [asyncio.create_task(peer.request("q", {"n": n})) for n in range(3)]
        first = await transport.wait_for(2)
        peer.data_received(line(id=first[0]["id"], result={}))
        third = (await transport.wait_for(3))[2]
        peer.data_received(line(id=first[1]["id"], result={}) + line(id=third["id"], result={}))
        await asyncio.gather(*pending)

    assert [message["params"]["n"] for message in transport.messages] == [0, 1, 2]


async def test_senders_wait_while_the_remote_peer_does_not_read():
    async with recorded_peer() as (peer, transport):
        peer.pause_writing()
        sending = asyncio.create_task(peer.notify("n"))
        await asyncio.sleep(0)
        held = transport.messages
        peer.resume_writing()
        await sending

        assert (held, len(transport.messages)) == ([], 1)


async def test_reading_pauses_while_the_remote_peer_does_not_read_its_answers():
    async with recorded_peer(on_request=echo, limits=Limits(in_flight=8)) as (peer, transport):
        peer.pause_writing()
        for number in range(100):
            peer.data_received(line(id=number, method="m"))
            await asyncio.sleep(0)
        await transport.wait_for(8)
        unread = (len(transport.messages), transport.reading)
        peer.resume_writing()
        answers = await transport.wait_for(100)

        assert (unread, sorted(answer["id"] for answer in answers)) == ((8, False), [*range(100)])


async def test_pending_requests_fail_at_the_end_of_input():
    async with recorded_peer() as (peer, transport):
        pending = asyncio.create_task(peer.request("a"))
        await transport.wait_for(1)
        peer.eof_received()

        with pytest.raises(HoldfastError, match="The remote peer closed the connection") as raised:
            await pending
        assert raised.value.code is codes.CONNECTION_CLOSED
        with pytest.raises(HoldfastError, match="The remote peer closed the connection"):
            await peer.request("b")


async def test_request_before_the_end_of_input_is_still_answered():
    async with recorded_peer(on_request=echo) as (peer, transport):
        peer.data_received(line(id=1, method="m")[:-1])
        peer.eof_received()

        assert await transport.wait_for(1) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_requests_and_notifications_fail_after_close_and_closing_again_is_harmless():
    handler = BlockingHandler()
    peer, transport = Peer(on_request=handler), RecordingTransport()
    peer.connection_made(transport)
    pending = asyncio.create_task(peer.request("a"))
    peer.data_received(line(id=1, method="m"))
    await handler.entered.wait()
    await peer.close()
    await peer.close()

    with pytest.raises(HoldfastError, match="The connection was closed"):
        await pending
    with pytest.raises(
        HoldfastError, match=r"The remote peer closed the connection|The connection is closed"
    ):
        await peer.request("b")
    with pytest.raises(HoldfastError, match="The connection is closed"):
        await peer.notify("n")
    peer.data_received(line(id=2, method="m"))
    assert (
        len(handler.cancelled),
        transport.closed,
        [m.get("error", {}).get("code") for m in transport.messages],
    ) == (
        1,
        True,
        [None, -32005],
    )


async def test_handlers_can_finish_within_the_grace_period():
    handler = BlockingHandler()
    peer, transport = Peer(on_request=handler), RecordingTransport()
    peer.connection_made(transport)
    peer.data_received(line(id=1, method="m"))
    await handler.entered.wait()
    closing = asyncio.create_task(peer.close(grace=5))
    handler.open.set()
    await closing

    assert transport.messages == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"garbage\n", -32700),
        (b'"\xff"\n', -32700),
        (b"[]\n", -32600),
        (b"1\n", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}\n', -32600),
        (b'{"jsonrpc":"2.0","params":{}}\n', -32600),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}\n", -32700),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":1,"a":1}}\n', -32600),
    ],
)
@pytest.mark.promise("ACP-11")
async def test_server_answers_an_invalid_line_and_continues(sent: bytes, code: int):
    async with recorded_peer(on_request=echo, answers_malformed=True) as (peer, transport):
        peer.data_received(sent + line(id=1, method="m"))
        refusal, answer = await transport.wait_for(2)

        assert (refusal["id"], refusal["error"]["code"], answer["id"], peer.stats.malformed_lines) == (
            None,
            code,
            1,
            1,
        )


async def test_client_skips_and_counts_invalid_lines(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    async with recorded_peer() as (peer, transport):
        peer.data_received(b"Server listening on port 3000\n" * 100)
        await settle(peer)

        assert (transport.messages, peer.stats.malformed_lines) == ([], 100)
    assert caplog.text.count("malformed line\n") == 5


@pytest.mark.parametrize(
    "broken", [b'{"jsonrpc":"2.0","id":%d}', b'{"jsonrpc":"2.0","id":%d,"result":{"a":"\xff"}}']
)
async def test_malformed_response_fails_its_request_at_once(broken: bytes):
    async with recorded_peer() as (peer, transport):
        pending = asyncio.create_task(peer.request("a"))
        (message,) = await transport.wait_for(1)
        peer.data_received(broken % message["id"] + b"\n")

        with pytest.raises(HoldfastError, match="The response is malformed") as raised:
            await pending
        assert raised.value.code is codes.BAD_ANSWER


async def test_late_malformed_response_is_refused_without_an_id():
    """The id may also be the id of a request of the remote peer."""
    async with recorded_peer(on_request=echo, answers_malformed=True) as (peer, transport):
        peer.data_received(b'{"jsonrpc":"2.0","id":1,"error":"cancelled"}\n' + line(id=1, method="m"))
        refusal, answer = await transport.wait_for(2)

    assert (refusal["id"], refusal["error"]["code"]) == (None, -32600)
    assert (answer["id"], "result" in answer) == (1, True)


@pytest.mark.parametrize("broken", [{"id": 77, "params": {}}, {"id": 77, "Method": "m"}])
async def test_request_without_a_method_is_refused_under_its_id(broken: Any):
    async with recorded_peer(on_request=echo, answers_malformed=True) as (peer, transport):
        peer.data_received(line(**broken))
        (refusal,) = await transport.wait_for(1)

    assert (refusal["id"], refusal["error"]["code"]) == (77, -32600)


async def test_parse_errors_from_the_remote_peer_are_counted_and_only_the_first_are_logged(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING)
    async with recorded_peer() as (peer, _):
        peer.data_received(line(id=None, error={"code": -32700, "message": "What?"}) * 100)
        await settle(peer)

        assert peer.stats.lines_not_understood == 100
    assert caplog.text.count("could not parse one of our lines") == 5


async def test_response_over_the_limit_fails_its_request_at_once():
    async with recorded_peer(limits=Limits(line_bytes=1000)) as (peer, transport):
        pending = asyncio.create_task(peer.request("a"))
        (message,) = await transport.wait_for(1)
        peer.data_received(b'{"jsonrpc":"2.0","id":%d,"result":"' % message["id"] + b"x" * 2000 + b'"}\n')

        with pytest.raises(HoldfastError, match=r"The line has 2\d+ bytes; the maximum is 1000"):
            await pending


async def test_large_message_is_parsed_in_a_thread_and_order_is_kept():
    async with recorded_peer(on_request=echo) as (peer, transport):
        big = "x" * 3_000_000
        peer.data_received(line(id=1, method="m", params={"big": big}) + line(id=2, method="m"))
        small = (await transport.wait_for(2))[1]
        await settle(peer)

        assert (len(transport.messages[0]["result"]["big"]), small["id"], transport.reading) == (
            3_000_000,
            2,
            True,
        )


@pytest.mark.slow
async def test_burst_of_notifications_is_handled_and_other_tasks_run_in_between():
    received = 0

    def receive(notification: Notification) -> None:
        nonlocal received
        received += 1

    async with (
        recorded_peer(on_notification=receive, limits=DEFAULT_LIMITS) as (peer, transport),
        asyncio.timeout(30),
    ):
        peer.data_received(line(method="n", params={"a": 1}) * 20_000)
        turns = 0
        while not transport.reading:
            turns += 1
            await asyncio.sleep(0)

    assert received == 20_000
    assert turns > 20


@pytest.mark.parametrize("is_random", [True, False], ids=["attack", "control"])
async def test_response_to_another_connections_request_answers_nothing(
    is_random: bool, monkeypatch: pytest.MonkeyPatch
):
    if not is_random:
        monkeypatch.setattr(os, "urandom", bytes)  # the same first id in every connection
    async with recorded_peer() as (first, theirs), recorded_peer() as (second, ours):
        tasks = [asyncio.create_task(peer.request("whoami")) for peer in (first, second)]
        (request,), _ = await theirs.wait_for(1), await ours.wait_for(1)
        second.data_received(line(id=request["id"], result="someone else"))
        await settle(second)
        await asyncio.sleep(0)

        assert (tasks[1].done(), second.stats.unexpected_responses) == (
            (False, 1) if is_random else (True, 0)
        )
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_long_line_that_is_parsed_while_its_connection_is_closed_frees_its_memory():
    throttle = LoopThrottle()
    whole = line(method="m", params={"text": "x" * 2 * LONG_LINE_BYTES})

    async with recorded_peer(throttle=throttle) as (peer, _):
        peer.data_received(whole[:LONG_LINE_BYTES])
        peer.data_received(whole[LONG_LINE_BYTES:])
        was_parsing = not peer._receiver.is_idle
        await peer.close()
        async with asyncio.timeout(10):
            while not peer._receiver.is_idle:
                await asyncio.sleep(0)

    assert was_parsing
    assert throttle.long_line_memory.try_grow(0, LONG_LINE_MEMORY_BYTES)
