"""Attack 29, on the host's side: a tool's schema that stalls the host, ends it, or makes it read files or addresses."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from holdfast.connect.argument_check import ArgumentChecker
from holdfast.connect.catalog import CatalogTool, build_catalog
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.wire.mcp.tools import Tool

pytestmark = [pytest.mark.anyio, pytest.mark.promise("LNK-13")]

MAX_STALL = 0.05
ATTEMPTS = 5
Attack = tuple[Any, Any]
"""A schema, and arguments."""


def alternatives_that_double(levels: int) -> Attack:
    defs: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "string"}}}, {"a": 1}


def members_that_double() -> Attack:
    arguments: Any = {}
    for _ in range(60):
        arguments = {"c": arguments, "v": 1}
    branch = [{"$ref": "#"}, {"$ref": "#"}]
    return {"properties": {"c": {"allOf": branch}}, "required": ["v"]}, arguments


def unevaluated_in_unevaluated() -> Attack:
    schema: Any = {"patternProperties": {"^a": {"type": "integer"}}}
    for _ in range(12):
        schema = {"anyOf": [schema], "unevaluatedProperties": False}
    return schema, {f"a{number}": 1 for number in range(400)}


def chain_of_references(length: int) -> Attack:
    defs: dict[str, Any] = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}]} for number in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {}}}, {}


def with_pattern(pattern: str, text: str) -> Attack:
    return {"properties": {"a": {"type": "string", "pattern": pattern}}}, {"a": text}


RECURSIVE: Any = {"properties": {"x": {"allOf": [{"allOf": [{"$ref": "#"}]}]}}}


def nested(depth: int) -> Any:
    arguments: Any = {}
    for _ in range(depth):
        arguments = {"x": arguments}
    return arguments


def random_text(length: int) -> str:
    return "".join(random.Random(1).choices("ab", k=length))


ATTACKS: dict[str, Callable[[], Attack]] = {
    "exponential pattern": lambda: with_pattern("^(a+)+$", "a" * 50_000 + "!"),
    "pattern with many states": lambda: with_pattern("(?:[ab]{1,900}c?)+!", random_text(20_000)),
    "pattern with many states, short text": lambda: with_pattern("(?:[ab]{1,900}c?)+!", random_text(400)),
    "pattern that is too large": lambda: with_pattern("((((a{100}){100}){100}){100}){100}", "a"),
    "huge alternation": lambda: with_pattern("|".join(f"word{number}" for number in range(5000)), "word"),
    "many patterns": lambda: (
        {"patternProperties": {rf"^\p{{L}}{{{number + 1}}}": True for number in range(32)}},
        {"é" * 100: 1},
    ),
    "alternatives that double": lambda: alternatives_that_double(30),
    "members that double": members_that_double,
    "unevaluated in unevaluated": unevaluated_in_unevaluated,
    "long chain of references": lambda: chain_of_references(1500),
    "reference to itself": lambda: ({"allOf": [{"$ref": "#"}]}, {}),
    "dynamic references": lambda: ({"$dynamicAnchor": "n", "anyOf": [{"$dynamicRef": "#n"}] * 50}, {}),
    "schema of 15 MB": lambda: ({"required": ["x"], "description": "x" * 15_000_000}, {}),
    "deep nesting": lambda: (msgspec.Raw(b'{"not":' * 900 + b"{}" + b"}" * 900), {}),
    "deep arguments": lambda: (RECURSIVE, nested(900)),
    "contradiction": lambda: ({"allOf": [{"type": "string"}, {"minProperties": 1}]}, {}),
    "many unique items": lambda: (
        {"properties": {"a": {"uniqueItems": True}}},
        {"a": [{"n": number} for number in range(49_000)]},
    ),
    "large enumeration": lambda: (
        {"properties": {"a": {"items": {"enum": [f"v{number}" for number in range(4000)]}}}},
        {"a": ["v"] * 50_000},
    ),
    "many errors": lambda: (
        {"properties": {"a": {"items": {"anyOf": [{"type": "string"}, {"const": [1] * 1000}]}}}},
        {"a": [{"x": "y" * 1000}] * 500},
    ),
}


def make_tool(schema: Any) -> CatalogTool:
    spec = ServerSpec(name="s", transport=Stdio(command="x"), source=Source.PROJECT)
    definition = msgspec.json.encode({"name": "t", "inputSchema": schema})
    return build_catalog([(spec, (msgspec.json.decode(definition, type=Tool),))]).tools[0]


async def measure_stall(work: Callable[[], Any]) -> float:
    """How long the event loop was blocked at most while this coroutine function ran."""
    longest, last, over = 0.0, time.perf_counter(), False

    async def watch() -> None:
        nonlocal longest, last
        while not over:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await work()
    await asyncio.sleep(0)
    over = True
    await watching
    return longest


@pytest.mark.parametrize("name", ATTACKS)
async def test_schema_does_not_stall_the_event_loop(name: str):
    schema, arguments = ATTACKS[name]()
    tool, raw = make_tool(schema), json.dumps(arguments).encode()
    stalls: list[float] = []
    while len(stalls) < ATTEMPTS and min(stalls, default=1.0) >= MAX_STALL:
        checks = ArgumentChecker()  # so that the schema is compiled again

        async def check(checks: ArgumentChecker = checks) -> None:
            await checks.find_error(tool, raw, quota_owner="session")

        stalls.append(await measure_stall(check))

    assert min(stalls) < MAX_STALL


async def test_control_schema_stalls_the_event_loop_if_it_is_used_directly():
    schema, arguments = alternatives_that_double(23)
    validator = jsonschema_rs.validator_for(schema)

    async def check() -> None:
        # It holds Python's lock: a thread does not help.
        await asyncio.to_thread(validator.is_valid, arguments)

    assert await measure_stall(check) >= MAX_STALL


async def test_neighbours_check_is_not_delayed_by_a_session_with_costly_checks():
    checks = ArgumentChecker()
    hostile, arguments = ATTACKS["many unique items"]()
    tool, raw = make_tool(hostile), json.dumps(arguments).encode()
    good = make_tool({"properties": {"a": {"type": "integer"}}})

    async def measure_neighbour() -> float:
        began = time.perf_counter()
        await checks.find_error(good, b'{"a": 1}', quota_owner="neighbour")
        return time.perf_counter() - began

    async def measure_delay() -> float:
        """How much longer nine of ten checks of the neighbour take while the hostile session has ten checks."""
        calm = max([await measure_neighbour() for _ in range(20)])
        busy = [asyncio.create_task(checks.find_error(tool, raw, quota_owner="hostile")) for _ in range(10)]
        times: list[float] = []
        while not all(task.done() for task in busy):
            times.append(await measure_neighbour())
            await asyncio.sleep(0.001)
        return sorted(times)[len(times) * 9 // 10] - calm

    await measure_neighbour()  # compiles the schema
    delays = [await measure_delay()]
    while len(delays) < ATTEMPTS and min(delays) >= MAX_STALL:
        delays.append(await measure_delay())

    assert min(delays) < MAX_STALL


CRASH = """
import sys
sys.path[:0] = {path!r}
from tests.safety.test_29_hostile_schemas import RECURSIVE, nested
import jsonschema_rs, threading
sys.setrecursionlimit(20_000)
arguments = nested(5000)
threading.stack_size(512 * 1024)  # as on some systems
thread = threading.Thread(target=jsonschema_rs.is_valid, args=(RECURSIVE, arguments))
thread.start()
thread.join()
print("alive")
"""


def test_control_deep_arguments_end_the_process_if_the_library_is_used_directly():
    code = CRASH.format(path=[str(Path(__file__).parents[2])])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (run.returncode < 0, "alive" in run.stdout) == (True, False), run.stderr


@pytest.mark.parametrize("reference", ["$ref", "$schema", "$dynamicRef"])
async def test_no_address_is_fetched(reference: str):
    requests: list[bytes] = []
    async with await asyncio.start_server(_answer_with_schema(requests), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        schema = {"properties": {"a": {"type": "string"}}, reference: f"http://127.0.0.1:{port}/x.json"}
        await ArgumentChecker().find_error(make_tool(schema), b'{"a": 1}', quota_owner="session")

    assert requests == []


async def test_control_address_is_fetched_if_the_schema_is_used_directly():
    requests: list[bytes] = []
    async with await asyncio.start_server(_answer_with_schema(requests), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        code = (
            f"import jsonschema_rs; jsonschema_rs.validator_for({{'$ref': 'http://127.0.0.1:{port}/x.json'}})"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env={"NO_PROXY": "*"})
        await process.wait()

    assert requests[0].startswith(b"GET /x.json")


async def test_no_file_is_read(tmp_path: Path):
    file = tmp_path / "secret.json"
    file.write_text('{"properties": {"a": {"const": "secret"}}}')
    schema = {"$ref": file.as_uri()}

    error = await ArgumentChecker().find_error(make_tool(schema), b'{"a": 1}', quota_owner="session")

    assert error is None


def test_control_file_is_read_if_the_schema_is_used_directly(tmp_path: Path):
    file = tmp_path / "secret.json"
    file.write_text('{"properties": {"a": {"const": "secret"}}}')

    error = next(jsonschema_rs.iter_errors({"$ref": file.as_uri()}, {"a": 1}))

    assert "secret" in error.message


def _answer_with_schema(requests: list[bytes]) -> Callable[..., Any]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    return answer
