"""Servers that send garbage, flood or never start: only their own calls fail."""

import asyncio
from pathlib import Path

import pytest

from holdfast.connect.connection import ConnectOptions
from holdfast.model.resolution import Stage
from tests.connect.conftest import HostFactory, counter_entry, hostile_entry

pytestmark = pytest.mark.anyio


@pytest.mark.promise("LNK-09")
@pytest.mark.promise("LNK-12")
async def test_server_that_exits_at_once_is_refused_with_its_stderr(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({"c": counter_entry(), "x": hostile_entry("exits")}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        assert [(refusal.stage, refusal.reason) for refusal in session.refusals] == [
            (
                Stage.CONNECT,
                (
                    "Could not start 'x': It exited with status 7 before the MCP negotiation was complete.\n"
                    "It wrote to stderr:\n| no licence found: ask your administrator"
                ),
            )
        ]
        assert (await session.call("c.count")).text == "1"


@pytest.mark.promise("LNK-09")
async def test_server_that_exits_silently_is_refused_with_its_exit_status(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"x": {"command": "false"}}) as host, host.session(cwd=tmp_path) as session:
        (refusal,) = session.refusals

    assert refusal.reason == (
        "Could not start 'x': It exited with status 1 before the MCP negotiation was complete.\n"
        "It wrote nothing to stderr. Run it by hand to see why."
    )


@pytest.mark.promise("LNK-09")
async def test_server_that_sends_garbage_instead_of_a_handshake_is_refused_in_time(
    make_host: HostFactory, tmp_path: Path
):
    options = ConnectOptions(connect_seconds=0.5, end_seconds=0.2)
    async with (
        make_host({"x": hostile_entry("garbage handshake")}, options=options) as host,
        host.session(cwd=tmp_path) as session,
    ):
        (refusal,) = session.refusals

    assert refusal.reason.startswith(
        "Could not start 'x': The server did not complete the MCP negotiation within 0.5 s. It printed "
    )


@pytest.mark.promise("LNK-13")
@pytest.mark.parametrize(
    ("kind", "size", "code", "text"),
    [
        ("garbage", 0, "BAD_ANSWER", "The line is not JSON"),
        ("invalid UTF-8", 0, "BAD_ANSWER", "not UTF-8"),
        ("nesting", 0, "BAD_ANSWER", "nested too deeply"),
        ("a line of 1 GB", 32 * 1024**2, "BAD_ANSWER", "the maximum is 16777216"),
        ("no answer", 0, "TIMEOUT", "did not answer within 0.2 s"),
        ("requests", 20_000, "", ""),
        ("notifications", 20_000, "", ""),
        ("progress", 5_000, "", ""),
        ("changes", 5_000, "", ""),
        ("stderr", 100, "", ""),
        ("some nesting", 0, "", "[[[[[["),
        ("a lone surrogate", 0, "BAD_ANSWER", "The response is malformed"),
        ("huge numbers", 0, "", "1e999"),
        ("invalid content", 0, "", "1\na\nnull\n"),
        ("a pattern", 0, "", ""),
    ],
)
async def test_hostile_answer_fails_only_its_own_call(
    make_host: HostFactory, tmp_path: Path, kind: str, size: int, code: str, text: str
):
    async with (
        make_host({"c": counter_entry(), "x": hostile_entry(kind, size)}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        before = (await session.call("x.pid")).text
        answer = await session.call(
            "x.attack", {"text": "a" * 40}, timeout=0.2 if kind == "no answer" else 20
        )

        assert (answer.code, text in answer.text, answer.ok) == (code, True, not code)
        assert [(await session.call("x.pid")).text, (await session.call("c.count")).text] == [before, "1"]


async def test_hostile_messages_log_no_traceback(
    make_host: HostFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    for kind in ("progress", "changes", "garbage", "requests"):
        async with make_host({"x": hostile_entry(kind, 200)}) as host:
            await host.tools(cwd=tmp_path)
            async with host.session(cwd=tmp_path) as session:
                await session.call("x.attack")

    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.promise("LNK-17")
async def test_server_that_keeps_changing_its_tools_does_not_block_listing(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"x": hostile_entry("changes")}) as host, host.session(cwd=tmp_path) as session:
        attack = asyncio.create_task(session.call("x.attack", timeout=1))
        async with asyncio.timeout(2):
            names = [{tool.name for tool in await session.tools()} for _ in range(3)]
        await attack

    assert [{"x.attack", "x.pid"} <= found for found in names] == [True] * 3
