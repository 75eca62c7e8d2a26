"""Attack 41: small documents that cost much work: results, arguments, prompts, requests and changed files at others' cost."""

import asyncio
import difflib
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.acp import content
from holdfast.acp.updates import Updates
from holdfast.agent import slash_commands
from holdfast.agent.describe_arguments import describe_arguments, example_arguments
from holdfast.agent.parse_commands import MAX_COMMANDS, MAX_LINES, parse_commands
from holdfast.audit.audit import Audit
from holdfast.audit.delete_sessions import delete_session
from holdfast.cli.event_printer import EventPrinter
from holdfast.connect import call
from holdfast.connect.call import ToolResult
from holdfast.connect.connection import ConnectOptions
from holdfast.host.open_options import OpenOptions
from holdfast.masking.mask import Mask, mask_spans
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, Thought, ToolCalled, ToolEnded
from holdfast.model.json import JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, NEGOTIATION_LIMIT, STORED_LIMIT, Limits, SizeLimit
from holdfast.resolve.load import load
from holdfast.resolve.screen_tools import clean_tool
from holdfast.session.subscription import EventFeed
from holdfast.store.open_store import open_store
from holdfast.store.sqlite import read_tx, write_tx
from holdfast.store.store import ReadTx, Store
from holdfast.store.types import Hold
from holdfast.testing.store_contract.factories import hold_session
from holdfast.wire import strict_json
from holdfast.wire.mcp.definition_text import MAX_TEXT_LENGTH
from holdfast.wire.mcp.tools import CallResult, Tool
from holdfast.wire.messages import Raw, parse_line
from holdfast.wire.strict_json import (
    StrictJsonError,
    check_json,
    decode_json,
    exceeds_limit,
    has_more_values,
    strip_strings,
)
from tests.agent.test_slash_commands import FakeTurn, run
from tests.connect.conftest import HostFactory, make_host
from tests.cost import least_cpu_seconds
from tests.session.support import Watcher

__all__ = ["make_host"]

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t-of-the-server"
MANY = DEFAULT_LIMITS.values + 1
ATTEMPTS = 3  # a delay caused by another process is not repeated; one caused by Holdfast is


def slowdowns(work: Callable[[int], object], size: int) -> Iterator[float]:
    """How many times longer the work takes if it is ten times as much. 10 if it is linear, 100 if it is quadratic."""
    for _ in range(ATTEMPTS):
        yield _seconds(work, 10 * size) / _seconds(work, size)


def _seconds(work: Callable[[int], object], size: int) -> float:
    return least_cpu_seconds(lambda: work(size), 1)


# Masking


def test_masking_many_small_texts_takes_linear_time():
    mask = Mask.of([SECRET])

    assert any(
        ratio < 40 for ratio in slowdowns(lambda count: mask.mask_known_in_texts([SECRET] * count), 400)
    )


def test_control_comparing_each_text_with_each_secret_takes_quadratic_time():
    def mask_slowly(count: int) -> list[str]:
        texts, spans = [SECRET + " "] * count, [(21 * index, 21 * index + 20) for index in range(count)]
        return [
            mask_spans(text, [span for span in spans if 21 * at <= span[0] < 21 * (at + 1)])
            for at, text in enumerate(texts)
        ]

    assert any(ratio > 30 for ratio in slowdowns(mask_slowly, 120))


def test_secret_that_continues_in_the_next_texts_is_masked_in_all_of_them():
    mask = Mask.of([SECRET])

    masked = mask.mask_known_in_texts(["a " + SECRET[:5], SECRET[5:9], SECRET[9:] + " b", "c", SECRET])
    assert masked == ["a [masked]", "[masked]", "[masked] b", "c", "[masked]"]


# Counting without decoding


NUMBERS = b"[" + b"0," * MANY + b"0]"
LISTS = b"[" + b"[]," * MANY + b"[]]"
OBJECTS = b"[" + b"{}," * MANY + b"{}]"
NAMES = msgspec.json.encode({f"password{number}": "" for number in range(MANY)})
QUOTES = msgspec.json.encode(["\\", '"', '\\"'] * MANY)


@pytest.mark.parametrize(
    "raw", [NUMBERS, LISTS, OBJECTS, NAMES, QUOTES], ids=["0", "[]", "{}", "names", "quotes"]
)
def test_document_of_many_values_is_recognised(raw: bytes):
    assert has_more_values(raw, DEFAULT_LIMITS.values)


@pytest.mark.parametrize("text", [", [ {", '","', "\\", '\\",[', "ü,"])
def test_punctuation_in_a_text_does_not_count_as_values(text: str):
    assert not exceeds_limit(msgspec.json.encode([text * 50_000]), SizeLimit(bytes=10**7, values=100))


# Through a session


SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "x" * int(sys.argv[1]), "version": "1"}}
        case "tools/list":
            tool = {"inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
            result = {"tools": [{"name": name, **tool} for name in ("values", "blocks", "extra", "small", "pieces")]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "done"}]}
            match message["params"]["name"]:
                case "values":
                    result["structuredContent"] = {"a": [[]] * 120_000}
                case "blocks":
                    result["content"] = [{}] * 120_000
                case "extra":
                    result["content"][0]["extra"] = [0] * 50_000
                case "pieces":
                    result["content"] = [{"type": "text", "text": sys.argv[2]}] * 15_000
        case _:
            if "id" in message:
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.fixture
def entry(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The entry of a server whose results are costly."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)

    def entry(name_length: int = 1) -> dict[str, Any]:
        args = ["-I", "-S", str(script), str(name_length), SECRET]
        return {"command": "python3", "args": args, "env": {"TOKEN": SECRET}}

    return entry


Entry = Callable[..., dict[str, Any]]


async def test_result_of_many_values_is_refused_and_the_server_stays_usable(
    make_host: HostFactory, entry: Entry, tmp_path: Path
):
    async with make_host({"s": entry()}) as host, host.session(cwd=tmp_path) as session:
        for tool in ("values", "blocks"):
            result = await session.call(f"s.{tool}")
            assert (result.code, "more than 100000 values" in result.message) == ("TOO_LARGE", True)
        assert (await session.call("s.small")).text == "done"


async def test_control_with_a_higher_limit_the_result_is_decoded(
    make_host: HostFactory, entry: Entry, tmp_path: Path
):
    options = ConnectOptions(limits=Limits(values=1_000_000))
    async with make_host({"s": entry()}, options=options) as host, host.session(cwd=tmp_path) as session:
        assert len((await session.call("s.values")).data["a"]) == 120_000


async def test_result_over_the_budget_is_returned_whole_but_stored_shortened(
    make_host: HostFactory, entry: Entry, tmp_path: Path
):
    async with (
        make_host({"s": entry()}) as host,
        host.session(cwd=tmp_path) as session,
        Watcher(session.record.events) as watcher,
    ):
        result = await session.call("s.extra")
        pieces = await session.call("s.pieces")
        stored = await watcher.caught_up()

    assert len(str(result.content[0]["extra"])) > 50_000
    assert len(pieces.content) == 15_000
    ends = [event for event in stored if isinstance(event, ToolEnded)]
    assert ends[0].content == ({"type": "text", "text": "done"},)
    assert ends[1].content == ({"type": "text", "text": "[masked]"},) * 100


async def test_call_with_arguments_of_many_values_is_not_made(
    make_host: HostFactory, entry: Entry, tmp_path: Path
):
    costly: list[dict[str, Any]] = [
        {"a": [0] * MANY},
        {"a": [[]] * MANY},
        dict.fromkeys(map(str, range(MANY)), ""),
    ]
    async with make_host({"s": entry()}) as host, host.session(cwd=tmp_path) as session:
        for arguments in costly:
            result = await session.call("s.small", arguments)
            assert result.message == "The arguments have more than 100000 JSON values. Nothing was called."
        assert (await session.call("s.small", {"a": [0] * 100})).ok


async def test_large_arguments_are_sent_whole_but_not_stored(
    make_host: HostFactory, entry: Entry, tmp_path: Path
):
    async with (
        make_host({"s": entry()}) as host,
        host.session(cwd=tmp_path) as session,
        Watcher(session.record.events) as watcher,
    ):
        assert (await session.call("s.small", {"a": "x://" * (STORED_LIMIT.bytes // 4)})).ok
        stored = await watcher.caught_up()

    (called,) = [event for event in stored if isinstance(event, ToolCalled)]
    assert called.arguments == {"too_large": f"{STORED_LIMIT.bytes + 8} bytes"}


async def test_server_with_a_huge_handshake_is_refused(make_host: HostFactory, entry: Entry, tmp_path: Path):
    servers = {"s": entry(NEGOTIATION_LIMIT.bytes), "ok": entry(1000)}
    async with make_host(servers) as host, host.session(cwd=tmp_path) as session:
        (refusal,) = session.refusals
        assert (refusal.server, f"more than {NEGOTIATION_LIMIT.bytes} bytes" in refusal.reason) == ("s", True)
        assert (await session.call("ok.small")).ok


# Results that the agent shows


LONG_TEXT = "x \u00e9" * (STORED_LIMIT.bytes // 8)
RESULTS: dict[str, dict[str, Any]] = {
    "text": {"content": [{"type": "text", "text": LONG_TEXT * 3}]},
    "error": {"content": [{"type": "text", "text": LONG_TEXT * 3}], "isError": True},
    "blocks": {"content": [{"type": "text", "text": "x"}] * 30_000},
    "types": {"content": [{"type": "y" * 100}] * 30_000},
    "structured": {"structuredContent": {"a": ["x" * 40] * 60_000}},
    "envelope": {"structuredContent": {"ok": True, "_meta": {}, "text": LONG_TEXT * 3}},
}


def tool_result(result: dict[str, Any]) -> ToolResult:
    raw = msgspec.json.decode(json.dumps(result), type=CallResult)
    return ToolResult(result=raw, outcome=Outcome.FAILED if raw.is_error else Outcome.COMPLETED)


@pytest.mark.parametrize("kind", RESULTS)
async def test_large_result_is_shown_in_part_and_not_decoded_whole(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    decoded: list[int] = []
    threads: set[str] = set()
    decode = call._decode_or_text  # pyright: ignore[reportPrivateUsage]

    def spy(raw: Raw) -> Any:
        decoded.append(len(raw))
        threads.add(threading.current_thread().name)
        return decode(raw)

    monkeypatch.setattr(call, "_decode_or_text", spy)
    turn = FakeTurn()
    turn.result = tool_result(RESULTS[kind])
    (shown,) = await run("/call wiki.list", turn=turn)

    assert (len(shown) < 5000, f"({turn.result.size} bytes in all)" in shown) == (True, True)
    assert (sum(decoded) < 100_000, threads <= {"holdfast-parse"}) == (True, True)


@pytest.mark.parametrize("text", ['é"\\\n', "\U0001f600", "\x1f", "aé\U0001f600"])
def test_start_of_a_long_text_is_its_start_wherever_it_is_cut(text: str):
    for ascii_only in (True, False):
        for length in range(1, 20):
            block = Raw(json.dumps({"type": "text", "text": text * 100}, ensure_ascii=ascii_only).encode())
            result = ToolResult(result=CallResult(content=[block]), outcome=Outcome.COMPLETED)
            (start,) = result.first_blocks(1, length)

            assert (start.type, start.text) == ("text", (text * 100)[:length])


async def test_control_reading_the_text_decodes_everything(monkeypatch: pytest.MonkeyPatch):
    result = tool_result(RESULTS["text"])

    assert len(result.text) == len(LONG_TEXT) * 3


def test_tool_with_many_arguments_is_described_in_linear_time_and_shortened():
    def describe(count: int) -> str:
        names = [f"a{number}" for number in range(count)]
        schema = {"properties": {name: {"type": "string"} for name in names}, "required": names}
        return describe_arguments(Tool(name="t", input_schema=Raw(json.dumps(schema).encode())))

    assert any(ratio < 40 for ratio in slowdowns(describe, 1000))
    assert describe(1000).endswith("- a199 (string, required)\n- … and 800 more\n")


def test_the_example_of_a_tool_with_deeply_nested_arguments_is_short():
    members: dict[str, Any] = {f"a{number}": {"$ref": "#/$defs/T"} for number in range(100)}
    schema = {"properties": members, "required": [*members]}
    schema |= {"$defs": {"T": {"type": "object", "properties": members, "required": [*members]}}}

    assert len(example_arguments(Tool(name="t", input_schema=Raw(json.dumps(schema).encode())))) < 10_000


# Prompts


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("/call a.b {}\n" * (MAX_COMMANDS + 1), f"more than {MAX_COMMANDS} commands"),
        ("\n" * MAX_LINES, f"more than {MAX_LINES} lines"),
        ("x\n" * 500_000, f"more than {MAX_LINES} lines"),
    ],
)
def test_prompt_of_many_commands_or_lines_is_refused(prompt: str, problem: str):
    with pytest.raises(HoldfastError, match=problem):
        parse_commands([{"type": "text", "text": prompt}])


def test_lines_of_a_call_cost_the_same_after_a_long_first_line():
    def parse(first_line: int) -> None:
        parse_commands([{"type": "text", "text": "/call a.b {" + "x " * first_line + "\n1," * 3000}])

    assert any(ratio < 40 for ratio in slowdowns(parse, 20_000))


def test_control_splitting_the_first_line_for_each_line_costs_its_length_each_time():
    def parse(first_line: int) -> None:
        line = "/call a.b {" + "x " * first_line
        for _ in range(100):
            line.split()

    assert _seconds(parse, 20_000) > 3 * _seconds(lambda size: ("x " * size).split(), 20_000)


# Requests of a client


def client_entry(number: int) -> dict[str, Any]:
    return {"name": f"s{number}", "command": "true", "args": [], "env": []}


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ([client_entry(number) for number in range(101)], "has 101 servers, more than 100"),
        ([client_entry(0) | {"args": ["a"] * 10_001}], "more than 262144 bytes or 10000 values"),
        (
            [client_entry(0) | {"env": [{"name": f"A{n}", "value": ""} for n in range(5001)]}],
            "or 10000 values",
        ),
        ([client_entry(0) | {"command": "x" * 300_000}], "more than 262144 bytes"),
    ],
)
def test_servers_of_a_client_that_are_too_many_or_too_large_are_refused_together(
    servers: list[Any], problem: str
):
    loaded = load([], servers)

    assert (loaded.entries, [refusal.server for refusal in loaded.refusals]) == ((), ["mcpServers"])
    assert problem in loaded.refusals[0].reason


def test_control_a_hundred_servers_of_a_client_are_loaded():
    assert len(load([], [client_entry(number) for number in range(100)]).entries) == 100


async def test_session_of_a_client_with_too_many_servers_opens_without_them(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({}) as host:
        servers = tuple(client_entry(number) for number in range(2000))
        session = await host.open(OpenOptions(cwd=tmp_path, client_servers=servers))
        assert [refusal.server for refusal in session.refusals] == ["mcpServers"]
        await session.close()


# Tool definitions


def test_long_text_of_a_definition_is_cut_before_it_is_cleaned():
    def clean(length: int) -> None:
        clean_tool(Tool(name="t", description="ü\u200b" * length, title="\x1b[" * length))

    assert any(ratio < 5 for ratio in slowdowns(clean, 4 * MAX_TEXT_LENGTH))


# Changed files


def hostile_file(lines: int, *, backwards: bool) -> str:
    """Lines that difflib compares slowly: each one is repeated, but not often enough to be ignored."""
    order = range(104)[::-1] if backwards else range(104)
    return "".join(f"{order[number % 104]}\n" for number in range(lines))


def change(old: str, new: str) -> tuple[ToolCalled, ToolEnded]:
    diff: JsonObject = {"path": "/f", "old_text": old, "new_text": new}
    return (
        ToolCalled(call_id="1", server="files", tool="write", arguments={}, kind="edit"),
        ToolEnded(call_id="1", outcome=Outcome.COMPLETED, structured={"diff": diff}),
    )


def printed(capsys: pytest.CaptureFixture[str], old: str, new: str) -> list[str]:
    printer = EventPrinter()
    for event in change(old, new):
        printer.show(event)
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_files_that_are_slow_to_compare_are_not_compared(capsys: pytest.CaptureFixture[str]):
    old, new = hostile_file(20_000, backwards=False), hostile_file(20_000, backwards=True)

    shown = printed(capsys, old, new)
    assert (shown[-1], shown[-2].startswith("-")) == ("… and 39961 more lines", True)


def test_change_in_the_middle_of_a_large_hostile_file_is_shown(capsys: pytest.CaptureFixture[str]):
    head, tail = hostile_file(10_000, backwards=False), hostile_file(10_000, backwards=True)

    shown = printed(capsys, f"{head}old\n{tail}", f"{head}new\n{tail}")
    assert shown[-5:] == ["@@ -10000,3 +10000,3 @@", "15", "-old", "+new", "103"]


def test_control_difflib_needs_more_than_linear_time():
    def compare(lines: int) -> None:
        old, new = hostile_file(lines, backwards=False), hostile_file(lines, backwards=True)
        list(difflib.unified_diff(old.splitlines(), new.splitlines()))

    assert any(ratio > 15 for ratio in slowdowns(compare, 200))


# Numbers, and calls into C that hold up every thread


MEGABYTES = 4 * 1024 * 1024
LONGEST_CALL = 0.05  # seconds of processor time; each attack took several times as long
HEAD = b'{"jsonrpc":"2.0","method":"x","params":'
LONG_MESSAGES = {
    "white space": HEAD + b"[" + b" " * MEGABYTES + b"]}",
    "long integers": HEAD + b"[" + b",".join([b"9" * 4300] * (MEGABYTES // 4300)) + b"]}",
    "extreme floats": HEAD + b"[" + b",".join([b"1e308"] * 50_000) + b"]}",
    "escapes": HEAD + b'["' + rb"\n" * (MEGABYTES // 2) + b'"]}',
    "a repeated payload": b'{"jsonrpc":"2.0","x":[%b1],"method":"x","params":[%b2]}'
    % ((b"1," * (MEGABYTES // 4),) * 2),
}


def longest_call(work: Callable[[], object]) -> float:
    """The processor time of the longest call into C: between two events of the profiler, no other thread can run."""
    longest, last = 0.0, time.thread_time()

    def measure(*_: object) -> None:
        nonlocal longest, last
        longest = max(longest, time.thread_time() - last)
        last = time.thread_time()

    sys.setprofile(measure)
    try:
        work()
    finally:
        sys.setprofile(None)
    return longest


@pytest.mark.parametrize("kind", LONG_MESSAGES)
def test_no_call_into_c_takes_long_for_a_message(kind: str):
    message = LONG_MESSAGES[kind]

    assert any(
        longest_call(lambda: parse_line(message, DEFAULT_LIMITS)) < LONGEST_CALL for _ in range(ATTEMPTS)
    )


def test_control_msgspec_and_a_pattern_take_long_for_such_messages():
    floats, spaces = b"[" + b"1e308," * 10_000 + b"0]", LONG_MESSAGES["white space"]

    assert longest_call(lambda: msgspec.json.decode(floats)) > LONGEST_CALL
    assert longest_call(lambda: re.search(rb"(?<![0-9])[0-9]{4301}", spaces * 8)) > LONGEST_CALL


def test_numbers_that_take_long_to_read_are_read_quickly_or_not_at_all():
    floats = b"[" + b",".join([b"1e308", b"-5e-324", b"2.2250738585072011e-308", b"0.1"] * 10) + b"]"
    with pytest.raises(msgspec.DecodeError, match="more than 100 digits"):
        decode_json(b"[" + b"9" * 5000 + b"]")
    with pytest.raises(msgspec.DecodeError, match="out of range"):
        decode_json(b"[" + b"1," * 600 + b"1e999]")
    with pytest.raises(StrictJsonError, match="numbers like 1e300"):
        check_json(b"[" + b"1e300," * 1100 + b"1]", DEFAULT_LIMITS)

    assert decode_json(floats) == json.loads(floats)
    assert decode_json(b'["' + b"9" * 5000 + b'"]') == ["9" * 5000]
    check_json(b"[" + b"1.5e-07," * 5000 + b"1]", DEFAULT_LIMITS)


def test_result_with_long_integers_is_shown_as_text():
    result = tool_result({"structuredContent": {"a": [10**4200] * 10}})

    assert isinstance(result.data, str)


@pytest.mark.parametrize("text", [rb'"\"', rb"\\", rb'"', rb'"\\","', rb'{"a":"b\"c"},'])
def test_strings_are_stripped_wherever_a_long_text_is_cut(text: bytes, monkeypatch: pytest.MonkeyPatch):
    document = text * 50
    whole = strip_strings(document)
    for size in range(1, 30):
        monkeypatch.setattr(strict_json, "_SLICE_BYTES", size)
        assert strip_strings(document) == whole


# Results of many values


def old_editor_block(block: JsonObject) -> JsonObject:
    try:
        msgspec.convert(block, content._Text | content._Image | content._Audio)  # pyright: ignore[reportPrivateUsage]
    except msgspec.ValidationError:
        return {"type": "text", "text": "{}"}
    return block


def test_editor_gets_some_blocks_of_a_result_that_has_thousands():
    empty: JsonObject = {}
    ended = ToolEnded(call_id="1", outcome=Outcome.COMPLETED, content=(empty,) * 9900)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        (update,) = Updates().for_event(ended)
    finally:
        sys.setprofile(None)

    assert (len(update["content"]), calls < 5000) == (101, True)
    assert update["content"][-1]["content"] == {"type": "text", "text": "(9800 more blocks are not shown)"}


def test_control_checking_each_block_against_a_union_takes_many_times_as_long():
    blocks: list[JsonObject] = [{}] * 9900

    old = _seconds(lambda _: [old_editor_block(block) for block in blocks], 0)
    assert old > 10 * _seconds(lambda _: content.editor_blocks(blocks), 0)


async def test_small_result_of_many_blocks_is_formatted_in_a_thread(monkeypatch: pytest.MonkeyPatch):
    threads: set[str] = set()
    format_result = slash_commands._format_result  # pyright: ignore[reportPrivateUsage]

    def spy(name: str, result: ToolResult, log_hint: str) -> str:
        threads.add(threading.current_thread().name)
        return format_result(name, result, log_hint)

    monkeypatch.setattr(slash_commands, "_format_result", spy)
    turn = FakeTurn()
    turn.result = tool_result({"content": [{}] * 9900})
    await run("/call wiki.list", turn=turn)

    assert (turn.result.size < 30_000, threads) == (True, {"holdfast-parse"})


# Large sessions


LARGE = 300_000


async def fill(store: Store, count: int) -> Hold:
    hold = await hold_session(store, title="large")
    for number in range(count):
        await store.append(hold, Thought(message_id=str(number), text="x" * LARGE))
    return hold


async def test_events_are_read_in_batches_of_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with open_store(tmp_path / "store.db") as store:
        hold = await fill(store, 6)

        def read(tx: ReadTx) -> int:
            return len(tx.events(hold.session_id, 0, 256))

        assert await store.read(read) == 2
        assert [stored.seq async for stored in store.events(hold.session_id)] == [1, 2, 3, 4, 5, 6]
        feed = EventFeed(hold.session_id, store)
        feed.subscription_count = 1
        feed.publish([stored async for stored in store.events(hold.session_id)], [LARGE] * 6)
        assert [len(feed.recent(after)) for after in (0, 3, 5)] == [2, 2, 1]
        monkeypatch.setattr(read_tx, "MAX_EVENTS_BYTES", 10**9)  # the control: all of them at once
        assert await store.read(read) == 6


async def test_large_session_is_deleted_in_short_transactions(tmp_path: Path):
    async with open_store(tmp_path / "store.db") as store, open_store(tmp_path / "store.db") as other:
        audit, hold = Audit(store), await fill(store, 20)
        await store.release(hold)
        # As if the process had ended after the first part.
        await store.write(lambda tx: tx.delete_part(tx.acquire(hold.session_id)))
        left = await store.session(hold.session_id)
        await store.write(lambda tx: tx.release(Hold(hold.session_id, hold.epoch + 1)))
        assert left is not None
        deleting = asyncio.create_task(delete_session(store, audit, hold.session_id))
        titles: set[str] = set()
        while not deleting.done():  # another process can write between two parts
            await hold_session(other)
            found = await other.session(hold.session_id)
            titles.add("" if found is None else found.title)
        await deleting

        assert (left.last_seq, "(partly deleted)" in titles) == (16, True)
        assert await store.session(hold.session_id) is None


async def test_control_without_a_limit_a_session_is_deleted_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_store(tmp_path / "store.db") as store:
        hold = await fill(store, 6)
        assert await store.write(lambda tx: tx.delete_part(hold))
        monkeypatch.setattr(write_tx, "_DELETED_BYTES", 10**9)

        assert not await store.write(lambda tx: tx.delete_part(hold))
