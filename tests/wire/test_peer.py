import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT, Limits
from holdfast.wire.frame import Notification, Raw, Request
from holdfast.wire.memory import joined
from holdfast.wire.peer import ACP, MCP, Dialect, Peer, PeerError
from tests.wire.tape import Tape

pytestmark = pytest.mark.anyio


async def echo(request: Request) -> Any:
    return request.params


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


@asynccontextmanager
async def taped(**options: Any) -> AsyncIterator[tuple[Peer, Tape]]:
    """A peer whose other side is the test itself."""
    peer, tape = Peer(**options), Tape()
    peer.connected(tape)
    yield peer, tape
    await peer.close()


class Gate:
    """A handler whose requests wait until they are let through."""

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


async def test_both_sides_ask_and_answer():
    async def double(request: Request) -> Any:
        return {"got": request.method}

    one, other = Peer(handle=echo), Peer(handle=double)
    async with joined(one, other):
        answers = await asyncio.gather(one.request("a", {"x": 1}), other.request("b", {"y": [2]}))

    assert [bytes(answer) for answer in answers] == [b'{"got":"a"}', b'{"y":[2]}']


async def test_answers_may_come_in_any_order():
    async with taped() as (peer, tape):
        first, second = asyncio.create_task(peer.request("a")), asyncio.create_task(peer.request("b"))
        ids = [message["id"] for message in await tape.wait_for(2)]
        peer.received(line(id=ids[1], result="second") + line(id=ids[0], result="first"))

        assert [bytes(await first), bytes(await second)] == [b'"first"', b'"second"']


async def test_an_error_of_the_other_side_is_raised_with_its_number_and_data():
    async with taped() as (peer, tape):
        asking = asyncio.create_task(peer.request("a"))
        (message,) = await tape.wait_for(1)
        peer.received(
            line(id=message["id"], error={"code": -32002, "message": "no such session", "data": {"a": 1}})
        )

        with pytest.raises(PeerError, match="no such session") as raised:
            await asking
        assert (raised.value.rpc, bytes(raised.value.data)) == (-32002, b'{"a": 1}')


async def test_an_error_of_the_other_side_can_be_passed_on_as_it_came():
    async def forward(request: Request) -> Any:
        raise PeerError(-32042, "later", Raw(b'{"x":1}'))

    async with taped(handle=forward) as (peer, tape):
        peer.received(line(id=1, method="m"))

        assert await tape.wait_for(1) == [
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32042, "message": "later", "data": {"x": 1}}}
        ]


async def test_a_handler_that_crashes_answers_blandly_and_tells_only_the_log(
    caplog: pytest.LogCaptureFixture,
):
    async def crash(request: Request) -> Any:
        raise RuntimeError("the secret of the house")

    async with taped(handle=crash) as (peer, tape):
        peer.received(line(id=1, method="m"))

        assert await tape.wait_for(1) == [
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error."}}
        ]
    assert "the secret of the house" in caplog.text


async def test_a_result_that_cannot_be_written_is_an_internal_error():
    async def odd(request: Request) -> Any:
        return {"what": object()}

    async with taped(handle=odd) as (peer, tape):
        peer.received(line(id=1, method="m"))

        assert (await tape.wait_for(1))[0]["error"]["code"] == -32603


async def test_a_result_over_the_limit_is_refused_instead_of_sent():
    async def huge(request: Request) -> Any:
        return "x" * 2000

    async with taped(handle=huge, limits=Limits(line_bytes=1000)) as (peer, tape):
        peer.received(line(id=1, method="m"))

        assert (await tape.wait_for(1))[0]["error"] == {
            "code": -32600,
            "message": "The message has 2037 bytes; 1000 is the most.",
        }
        with pytest.raises(HoldfastError, match="1000 is the most"):
            await peer.request("m", "x" * 2000)


async def test_a_foreseen_failure_keeps_its_code_and_details():
    async def refuse(request: Request) -> Any:
        raise HoldfastError(codes.BAD_ARGUMENT, "cwd must be absolute.", cwd="here")

    async with taped(handle=refuse) as (peer, tape):
        peer.received(line(id="x", method="m"))

        assert await tape.wait_for(1) == [
            {
                "jsonrpc": "2.0",
                "id": "x",
                "error": {"code": -32602, "message": "cwd must be absolute.", "data": {"cwd": "here"}},
            }
        ]


async def test_an_unknown_method_is_method_not_found():
    async with taped() as (peer, tape):
        peer.received(line(id=1, method="nope"))

        assert (await tape.wait_for(1))[0]["error"] == {
            "code": -32601,
            "message": "There is no method 'nope' here.",
        }


async def test_one_slow_handler_blocks_nobody():
    gate = Gate()

    async def handle(request: Request) -> Any:
        return await gate(request) if request.method == "slow" else request.method

    async with taped(handle=handle) as (peer, tape):
        peer.received(line(id=1, method="slow") + line(id=2, method="quick"))
        quick = await tape.wait_for(1)
        gate.open.set()
        both = await tape.wait_for(2)

    assert [message["id"] for message in quick] == [2]
    assert [message["id"] for message in both] == [2, 1]


async def test_notifications_before_an_answer_are_heard_before_it():
    heard: list[str] = []

    def hear(notification: Notification) -> None:
        heard.append(notification.method)

    async with taped(notice=hear) as (peer, tape):
        asking = asyncio.create_task(peer.request("a"))
        (message,) = await tape.wait_for(1)
        peer.received(line(method="n1") + line(method="n2") + line(id=message["id"], result={}))
        await asking

    assert heard == ["n1", "n2"]


async def test_what_a_handler_tells_leaves_before_its_answer():
    async with taped() as (peer, tape):

        async def talkative(request: Request) -> Any:
            await peer.notify("progress", {"n": 1})
            await peer.notify("progress", {"n": 2})
            return {}

        peer._handle = talkative  # the handler needs the peer it serves
        peer.received(line(id=1, method="m"))

        assert [message.get("params", "answer") for message in await tape.wait_for(3)] == [
            {"n": 1},
            {"n": 2},
            "answer",
        ]


async def test_a_notification_handler_that_crashes_is_logged_and_the_next_is_heard(
    caplog: pytest.LogCaptureFixture,
):
    heard: list[str] = []

    def hear(notification: Notification) -> None:
        if notification.method == "bad":
            raise RuntimeError("oops")
        heard.append(notification.method)

    async with taped(notice=hear) as (peer, _):
        peer.received(line(method="bad") + line(method="good"))

    assert heard == ["good"]
    assert "notification handler crashed" in caplog.text


@pytest.mark.parametrize(("dialect", "method"), [(MCP, "notifications/cancelled"), (ACP, "$/cancel_request")])
async def test_a_caller_that_gives_up_takes_its_request_back(dialect: Dialect, method: str):
    async with taped(dialect=dialect) as (peer, tape):
        asking = asyncio.create_task(peer.request("a"))
        (request,) = await tape.wait_for(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

        assert (await tape.wait_for(2))[1] == {
            "jsonrpc": "2.0",
            "method": method,
            "params": {"requestId": request["id"]},
        }


async def test_past_its_deadline_a_request_is_taken_back_and_a_late_answer_is_counted():
    async with taped() as (peer, tape):
        with pytest.raises(HoldfastError, match=r"a was not answered within 0.01 s") as raised:
            await peer.request("a", timeout=0.01)
        request, taken_back = await tape.wait_for(2)
        peer.received(line(id=request["id"], result={}))

        assert (raised.value.code, taken_back["method"], peer.tally.unexpected) == (
            codes.TIMEOUT,
            "notifications/cancelled",
            1,
        )


async def test_a_request_taken_back_stops_its_handler_and_mcp_gets_no_answer():
    gate = Gate()
    async with taped(handle=gate) as (peer, tape):
        peer.received(line(id="r", method="m"))
        await gate.entered.wait()
        peer.received(line(method="notifications/cancelled", params={"requestId": "r", "reason": "x"}))
        await asyncio.wait(list(peer._running.values()))

        assert ([request.id for request in gate.cancelled], tape.messages) == (["r"], [])


async def test_a_request_taken_back_is_answered_as_cancelled_in_acp():
    gate = Gate()
    async with taped(handle=gate, dialect=ACP) as (peer, tape):
        peer.received(line(id=5, method="m"))
        await gate.entered.wait()
        peer.received(line(method="$/cancel_request", params={"requestId": 5}))

        assert await tape.wait_for(1) == [
            {"jsonrpc": "2.0", "id": 5, "error": {"code": -32800, "message": "The request was cancelled."}}
        ]


async def test_cancelling_what_is_not_there_or_nothing_at_all_does_no_harm():
    async with taped(handle=echo) as (peer, tape):
        peer.received(
            line(method="notifications/cancelled", params={"requestId": 99})
            + line(method="notifications/cancelled", params={"requestId": {}})
            + line(method="notifications/cancelled")
            + line(id=1, method="m", params={})
        )

        assert [message["id"] for message in await tape.wait_for(1)] == [1]


async def test_an_id_in_flight_cannot_be_used_again():
    gate = Gate()
    async with taped(handle=gate) as (peer, tape):
        peer.received(line(id=1, method="m") + line(id=1, method="m"))
        (refusal,) = await tape.wait_for(1)
        gate.open.set()
        both = await tape.wait_for(2)

    assert refusal["error"]["message"] == "A request with this id is still in flight."
    assert both[1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_past_the_limit_of_requests_in_flight_reading_stops_until_one_ends():
    gate = Gate()
    async with taped(handle=gate, limits=Limits(in_flight=3)) as (peer, tape):
        peer.received(b"".join(line(id=n, method="m") for n in range(10)))
        await gate.entered.wait()
        held_up = (len(gate.waiting), tape.reading)
        gate.open.set()
        answers = await tape.wait_for(10)

        assert (held_up, tape.reading, sorted(message["id"] for message in answers)) == (
            (3, False),
            True,
            list(range(10)),
        )


async def test_while_we_wait_for_an_answer_surplus_requests_are_refused_so_that_it_can_reach_us():
    gate = Gate()
    async with taped(handle=gate, limits=Limits(in_flight=2)) as (peer, tape):
        peer.received(b"".join(line(id=n, method="m") for n in range(4)))
        asking = asyncio.create_task(peer.request("q"))
        messages = await tape.wait_for(3)
        question = next(message for message in messages if "method" in message)
        refused = sorted(message["id"] for message in messages if "error" in message)
        peer.received(line(id=question["id"], result="at last"))

        assert (bytes(await asking), refused, peer.tally.refused) == (b'"at last"', [2, 3], 2)
        assert (
            next(m for m in messages if "error" in m)["error"]["message"]
            == "2 requests are in flight already."
        )
        gate.open.set()


async def test_past_the_limit_our_own_requests_wait_their_turn():
    async with taped(limits=Limits(in_flight=2)) as (peer, tape):
        asking = [asyncio.create_task(peer.request("q", {"n": n})) for n in range(3)]
        first = await tape.wait_for(2)
        peer.received(line(id=first[0]["id"], result={}))
        third = (await tape.wait_for(3))[2]
        peer.received(line(id=first[1]["id"], result={}) + line(id=third["id"], result={}))
        await asyncio.gather(*asking)

    assert [message["params"]["n"] for message in tape.messages] == [0, 1, 2]


async def test_whoever_writes_waits_while_the_other_side_does_not_read():
    async with taped() as (peer, tape):
        peer.pause_writing()
        telling = asyncio.create_task(peer.notify("n"))
        await asyncio.sleep(0)
        held = tape.messages
        peer.resume_writing()
        await telling

        assert (held, len(tape.messages)) == ([], 1)


async def test_a_reader_that_never_reads_stops_us_from_reading():
    async with taped(handle=echo, limits=Limits(in_flight=8)) as (peer, tape):
        peer.pause_writing()
        peer.received(b"".join(line(id=n, method="m") for n in range(100)))
        answers = await tape.wait_for(8)
        await asyncio.sleep(0)

        assert (len(answers), len(tape.messages), tape.reading) == (8, 8, False)


async def test_at_the_end_of_input_waiting_callers_get_a_clear_error():
    async with taped() as (peer, tape):
        asking = asyncio.create_task(peer.request("a"))
        await tape.wait_for(1)
        peer.input_ended()

        with pytest.raises(HoldfastError, match="The other side closed the connection") as raised:
            await asking
        assert raised.value.code is codes.CONNECTION_CLOSED
        with pytest.raises(HoldfastError, match="The other side closed the connection"):
            await peer.request("b")


async def test_a_request_before_the_end_of_input_is_still_answered():
    async with taped(handle=echo) as (peer, tape):
        peer.received(line(id=1, method="m")[:-1])
        peer.input_ended()

        assert await tape.wait_for(1) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_after_close_everything_fails_cleanly_and_closing_again_is_harmless():
    gate = Gate()
    peer, tape = Peer(handle=gate), Tape()
    peer.connected(tape)
    asking = asyncio.create_task(peer.request("a"))
    peer.received(line(id=1, method="m"))
    await gate.entered.wait()
    await peer.close()
    await peer.close()

    with pytest.raises(HoldfastError, match="The connection was closed"):
        await asking
    with pytest.raises(HoldfastError, match=r"The other side closed the connection|The connection is closed"):
        await peer.request("b")
    with pytest.raises(HoldfastError, match="The connection is closed"):
        await peer.notify("n")
    peer.received(line(id=2, method="m"))
    assert (len(gate.cancelled), tape.closed, [m.get("error", {}).get("code") for m in tape.messages]) == (
        1,
        True,
        [None, -32005],
    )


async def test_closing_with_grace_lets_handlers_finish():
    gate = Gate()
    peer, tape = Peer(handle=gate), Tape()
    peer.connected(tape)
    peer.received(line(id=1, method="m"))
    await gate.entered.wait()
    closing = asyncio.create_task(peer.close(grace=5))
    gate.open.set()
    await closing

    assert tape.messages == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


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
async def test_a_server_answers_a_line_that_is_no_message_and_goes_on(sent: bytes, code: int):
    async with taped(handle=echo, answers_malformed=True) as (peer, tape):
        peer.received(sent + line(id=1, method="m"))
        refusal, answer = await tape.wait_for(2)

        assert (refusal["id"], refusal["error"]["code"], answer["id"], peer.tally.malformed) == (
            None,
            code,
            1,
            1,
        )


async def test_a_client_skips_and_counts_a_line_that_is_no_message(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    async with taped() as (peer, tape):
        peer.received(b"Server listening on port 3000\n" * 100)

        assert (tape.messages, peer.tally.malformed) == ([], 100)
    assert caplog.text.count("malformed line\n") == 5


@pytest.mark.parametrize(
    "broken", [b'{"jsonrpc":"2.0","id":%d}', b'{"jsonrpc":"2.0","id":%d,"result":{"a":"\xff"}}']
)
async def test_an_answer_that_cannot_be_read_fails_its_caller_at_once(broken: bytes):
    async with taped() as (peer, tape):
        asking = asyncio.create_task(peer.request("a"))
        (message,) = await tape.wait_for(1)
        peer.received(broken % message["id"] + b"\n")

        with pytest.raises(HoldfastError, match="The answer cannot be read") as raised:
            await asking
        assert raised.value.code is codes.BAD_ANSWER


async def test_a_late_answer_that_cannot_be_read_is_not_refused_under_a_number_of_the_other_side():
    """Both sides number their requests, and both from one on."""
    async with taped(handle=echo, answers_malformed=True) as (peer, tape):
        peer.received(b'{"jsonrpc":"2.0","id":1,"error":"cancelled"}\n' + line(id=1, method="m"))
        refusal, answer = await tape.wait_for(2)

    assert (refusal["id"], refusal["error"]["code"]) == (None, -32600)
    assert (answer["id"], "result" in answer) == (1, True)


@pytest.mark.parametrize("broken", [{"id": 77, "params": {}}, {"id": 77, "Method": "m"}])
async def test_a_request_without_a_method_is_refused_under_its_number(broken: Any):
    async with taped(handle=echo, answers_malformed=True) as (peer, tape):
        peer.received(line(**broken))
        (refusal,) = await tape.wait_for(1)

    assert (refusal["id"], refusal["error"]["code"]) == (77, -32600)


async def test_refusals_of_lines_that_were_not_read_are_logged_a_few_times_and_counted(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING)
    async with taped() as (peer, _):
        peer.received(line(id=None, error={"code": -32700, "message": "What?"}) * 100)

        assert peer.tally.unread == 100
    assert caplog.text.count("could not read a line") == 5


async def test_an_answer_over_the_limit_fails_its_caller_at_once():
    async with taped(limits=Limits(line_bytes=1000)) as (peer, tape):
        asking = asyncio.create_task(peer.request("a"))
        (message,) = await tape.wait_for(1)
        peer.received(b'{"jsonrpc":"2.0","id":%d,"result":"' % message["id"] + b"x" * 2000 + b'"}\n')

        with pytest.raises(HoldfastError, match=r"The line has 2\d+ bytes; 1000 is the most"):
            await asking


async def test_a_large_message_is_read_off_the_loop_and_order_is_kept():
    async with taped(handle=echo) as (peer, tape):
        big = "x" * 3_000_000
        peer.received(line(id=1, method="m", params={"big": big}) + line(id=2, method="m"))
        small = (await tape.wait_for(2))[1]

        assert (len(tape.messages[0]["result"]["big"]), small["id"], tape.reading) == (3_000_000, 2, True)


async def test_a_hundred_thousand_notifications_in_one_burst_are_all_heard():
    heard = 0

    def hear(notification: Notification) -> None:
        nonlocal heard
        heard += 1

    async with taped(notice=hear, limits=DEFAULT) as (peer, tape), asyncio.timeout(30):
        peer.received(line(method="n", params={"a": 1}) * 100_000)
        turns = 0
        while not tape.reading:
            turns += 1
            await asyncio.sleep(0)

    assert heard == 100_000
    assert turns > 100  # everybody else had a turn meanwhile
