import json

import pytest

from holdfast.model import codes
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.lines import OversizedLine
from holdfast.wire.messages import (
    EMPTY_OBJECT,
    ErrorBody,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Raw,
    Request,
    Response,
    error_line,
    notification_line,
    parse_line,
    request_line,
    result_line,
)

DUPLICATE = "The message has a duplicate key."
TOO_LARGE_TO_CHECK = 'The message has over 65536 bytes besides its "params", "result" or "error".'


def message(line: bytes | str) -> Message | None:
    return parse_line(line.encode() if isinstance(line, str) else line, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"jsonrpc":"2.0","id":1,"method":"m"}', Request(1, "m", EMPTY_OBJECT)),
        ('{"jsonrpc":"2.0","id":-7,"method":"m","params":[1]}', Request(-7, "m", Raw(b"[1]"))),
        (
            '{"jsonrpc": "2.0", "id": "é", "method": "m", "params": {"a": 1}}',
            Request("é", "m", Raw(b'{"a": 1}')),
        ),
        ('{"method":"m","params":{},"id":0,"jsonrpc":"2.0"}', Request(0, "m", EMPTY_OBJECT)),
        ('{"jsonrpc":"2.0","id":1,"method":"m","more":{"a":1}}', Request(1, "m", EMPTY_OBJECT)),
        ('{"jsonrpc":"2.0","id":1,"method":"m"}\r', Request(1, "m", EMPTY_OBJECT)),
        ('{"jsonrpc":"2.0","method":"m","params":{"a":1}}', Notification("m", Raw(b'{"a":1}'))),
        ('{"result":{"a":1,"a":2},"jsonrpc":"2.0","id":3}', Response(3, Raw(b'{"a":1,"a":2}'))),
        ('{"jsonrpc":"2.0","id":3,"result":null}', Response(3, Raw(b"null"))),
        (
            '{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}',
            ErrorResponse(3, ErrorBody(-1, "no")),
        ),
        ('{"jsonrpc":"2.0","id":null,"error":{"code":-1}}', ErrorResponse(None, ErrorBody(-1))),
        ("", None),
        (" \t\r", None),
    ],
)
def test_line_is_parsed(line: str, expected: Message | None):
    assert message(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b"hello",
            Malformed(
                codes.PARSE_ERROR,
                "The line is not JSON: JSON is malformed: invalid character (byte 0).",
                excerpt="hello",
            ),
        ),
        (b'{"id":1', Malformed(codes.PARSE_ERROR, "The line is not JSON: Input data was truncated.")),
        (b"[]", Malformed(codes.INVALID_REQUEST, "Batches are not supported: send one object per line.")),
        (b"1", Malformed(codes.INVALID_REQUEST, "A message must be an object.")),
        (b"null", Malformed(codes.INVALID_REQUEST, "A message must be an object.")),
        (b"{}", Malformed(codes.INVALID_REQUEST, '"jsonrpc" must be "2.0".')),
        (b'{"id":1,"method":"m"}', Malformed(codes.INVALID_REQUEST, '"jsonrpc" must be "2.0".', 1)),
        (
            b'{"jsonrpc":"1.0","id":1,"method":"m"}',
            Malformed(codes.INVALID_REQUEST, '"jsonrpc" must be "2.0".', 1),
        ),
        (
            b'{"jsonrpc":"2.0","id":1,"method":5}',
            Malformed(codes.INVALID_REQUEST, '"method" must be a string.', 1),
        ),
    ],
)
def test_invalid_line_gives_a_reason(line: bytes, expected: Malformed):
    assert message(line) == expected


@pytest.mark.parametrize(
    "request_id", ["null", "1.5", "1e3", "true", "{}", "[]", "99999999999999999999", '"%s"' % ("x" * 600)]
)
def test_id_must_be_a_short_string_or_an_integer(request_id: str):
    assert message('{"jsonrpc":"2.0","id":%s,"method":"m"}' % request_id) == Malformed(
        codes.INVALID_REQUEST, '"id" must be an integer or a string of at most 512 bytes.'
    )


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        ('{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}', 1),
        ('{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', 2),
        ('{"jsonrpc":"2.0","id":1e9,"id":1,"method":"m"}', None),
        ('{"jsonrpc":"2.0","id":1,"method":"a","params":{},"method":"b"}', 1),
        ('{"jsonrpc":"2.0","id":1,"\\u006dethod":"a","method":"b"}', 1),
    ],
)
@pytest.mark.promise("ACP-11")
def test_duplicate_key_makes_the_message_invalid(line: str, request_id: int | None):
    found = message(line)

    assert isinstance(found, Malformed)
    assert (found.code, found.reason) == (codes.INVALID_REQUEST, DUPLICATE)


def test_duplicate_key_beside_a_large_payload_is_found():
    payload = json.dumps([{"a": "x" * 100}] * 1000)
    clean = '{ "jsonrpc": "2.0", "id": 1, "result": %s}' % payload
    twice = '{ "jsonrpc": "2.0", "id": 2, "id": 1, "result": %s}' % payload
    hidden = '{ "jsonrpc": "2.0", "id": 1, "result": %s, "result": {}}' % payload

    assert message(clean) == Response(1, Raw(payload.encode()))
    assert message(twice) == Malformed(codes.INVALID_REQUEST, DUPLICATE, 1, True, True)
    assert message(hidden) == Malformed(codes.INVALID_REQUEST, TOO_LARGE_TO_CHECK, 1, True, True)


@pytest.mark.parametrize("method", ["x", 'quo"ted', "é"])
def test_long_message_is_parsed_without_encoding_it(method: str):
    line = bytearray(request_line(7, method, {"text": "x" * 100_000}))[:-1]

    parsed = parse_line(line, DEFAULT_LIMITS)

    assert isinstance(parsed, Request)
    assert (parsed.id, parsed.method, len(parsed.params)) == (7, method, 100_011)


def test_message_with_a_large_unknown_member_is_refused_as_too_large_to_check():
    line = '{"jsonrpc":"2.0","id":1,"method":"m","more":"%s"}' % ("x" * 64 * 1024)

    assert message(line) == Malformed(codes.INVALID_REQUEST, TOO_LARGE_TO_CHECK, 1)


def test_params_are_checked_strictly_and_results_are_not():
    twice = '{"jsonrpc":"2.0","id":1,"%s":{"a":{"b":1,"b":2}}%s}'

    assert message(twice % ("params", ',"method":"m"')) == Malformed(
        codes.INVALID_REQUEST, "The params are invalid: an object has a duplicate key.", 1
    )
    assert message(twice % ("result", "")) == Response(1, Raw(b'{"a":{"b":1,"b":2}}'))


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"\x00"}}',
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"params":{"a":oops},"method":"m","jsonrpc":"2.0","id":7}',
    ],
)
def test_id_of_a_broken_line_is_found(line: bytes):
    found = message(line)

    assert isinstance(found, Malformed)
    assert (found.code, found.id, found.may_be_response) == (codes.PARSE_ERROR, 7, False)


def test_id_of_an_oversized_line_is_found_at_its_start_or_end():
    limits = Limits(line_bytes=10)
    reason = "The line has 99 bytes; the maximum is 10."
    by_head = OversizedLine(99, b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"xx', b"xxx")
    by_tail = OversizedLine(99, b'{"result":{"a":"xx', b'xx","id":5},"jsonrpc":"2.0","id":7}')
    nested = OversizedLine(99, b'{"result":{"a":"xx', b'x"},{"id":7}]}')

    assert parse_line(by_head, limits) == Malformed(codes.TOO_LARGE, reason, 7)
    assert parse_line(by_tail, limits) == Malformed(
        codes.TOO_LARGE, reason, 7, may_be_response=True, has_result_or_error=True
    )
    assert parse_line(nested, limits) == Malformed(codes.TOO_LARGE, reason)


def test_encoded_messages_can_be_parsed():
    assert [
        message(line)
        for line in (
            request_line("a\n", "m", {"x": [1]}),
            notification_line("n", Raw(b"{}")),
            result_line(2, {"é": None}),
            error_line(None, -5, "no", {"why": 1}),
        )
    ] == [
        Request("a\n", "m", Raw(b'{"x":[1]}')),
        Notification("n", EMPTY_OBJECT),
        Response(2, Raw('{"é":null}'.encode())),
        ErrorResponse(None, ErrorBody(-5, "no", Raw(b'{"why":1}'))),
    ]
