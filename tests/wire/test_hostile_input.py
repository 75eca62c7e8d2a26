"""Hostile and broken input to a real process over real pipes."""

import json
import threading

import pytest

from tests.wire.process import Process, echo

MB = 1024 * 1024


def response(request_id: int | str) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, "result": {}}


def send_long(process: Process, size: int) -> None:
    """Send one line of this many bytes, in a thread so that the caller can read responses."""
    chunk = b"x" * MB

    def write() -> None:
        process.send(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"')
        for _ in range(size // MB):
            process.send(chunk)
        process.send(b'"}}\n')

    threading.Thread(target=write).start()


@pytest.mark.slow
@pytest.mark.promise("LNK-13")
def test_gigabyte_line_uses_little_memory_and_the_next_request_is_answered():
    with echo() as process:
        before = process.peak_bytes()
        send_long(process, 1024 * MB)
        refusal = process.read()

        assert (refusal["id"], refusal["error"]["code"]) == (1, -32600)
        assert process.ask(2) == response(2)
        assert process.peak_bytes() - before <= 32 * MB


@pytest.mark.promise("LNK-13")
def test_endless_line_uses_little_memory_and_the_process_ends_with_its_input():
    with echo() as process:
        before = process.peak_bytes()
        for _ in range(200):
            process.send(b"[" * MB)

        assert process.peak_bytes() - before <= 32 * MB


@pytest.mark.parametrize(
    "deep",
    [
        b"[" * 200_000,
        b"[" * 200_000 + b"]" * 200_000,
        b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
    ids=["unclosed", "array", "object", "params", "params over our own limit"],
)
def test_deep_nesting_is_refused_and_the_next_request_is_answered(deep: bytes):
    with echo() as process:
        process.send(deep + b"\n")
        refusal = process.read()

        assert refusal["error"]["code"] in (-32700, -32600)
        assert process.ask(2) == response(2)


def test_every_malformed_line_is_answered_and_the_process_survives():
    lines = [
        b"",
        b"\x00",
        b"\xff\xfe",
        b"{",
        b"}",
        b"[]",
        b"[{}]",
        b"1",
        b'"x"',
        b"null",
        b"NaN",
        b"{}",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":{},"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":1}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":1}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + b"9" * 5000 + b"}}",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":2}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m"} trailing',
        b'{"jsonrpc":"2.0","id":1,"method":"m","result":{}}',
    ]
    with echo() as process:
        process.send(b"\r\n".join(lines) + b"\r\n")
        refusals = [process.read() for _ in lines[1:]]  # a blank line is not answered

        assert {refusal["error"]["code"] for refusal in refusals} == {-32700, -32600}
        assert process.ask("after") == response("after")


@pytest.mark.slow
def test_request_after_a_hundred_thousand_notifications_is_answered():
    with echo() as process:
        process.send(b'{"jsonrpc":"2.0","method":"n","params":{"a":1}}\n' * 100_000)

        assert process.ask(1) == response(1)


FLOOD = 40_000


@pytest.mark.slow
def test_process_stops_reading_while_its_output_is_not_read():
    question = json.dumps({"jsonrpc": "2.0", "id": "%d", "method": "m", "params": {"a": "x" * 1000}}) + "\n"
    with echo() as process:
        before = process.peak_bytes()
        wrote = threading.Event()

        def flood() -> None:
            for n in range(FLOOD):
                process.send((question % n).encode())
            wrote.set()

        threading.Thread(target=flood, daemon=True).start()
        # Sending everything takes less than 3 s, so if it is not sent by then, the process has stopped reading.
        stuck = not wrote.wait(3)
        grown = process.peak_bytes() - before
        answers = [process.read()["id"] for _ in range(FLOOD)]

        assert (stuck, grown <= 32 * MB) == (True, True)
        assert sorted(map(int, answers)) == list(range(FLOOD))


def test_print_does_not_reach_standard_output():
    with echo() as process:
        process.send(b'{"jsonrpc":"2.0","id":1,"method":"print"}\n')

        assert process.read() == response(1)
