"""Servers that answer garbage, flood, or never come up: each costs its own call and nothing else."""

import asyncio
from pathlib import Path

import pytest

from holdfast.connect.terms import Terms
from holdfast.model.resolution import Stage
from tests.connect.conftest import HostFactory, counter, hostile

pytestmark = pytest.mark.anyio


@pytest.mark.promise("LNK-09")
@pytest.mark.promise("LNK-12")
async def test_a_server_that_exits_at_once_is_refused_with_what_it_said(
    make_host: HostFactory, tmp_path: Path
):
    async with (
        make_host({"c": counter(), "x": hostile("exits")}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        assert [(refusal.stage, refusal.reason) for refusal in session.refusals] == [
            (
                Stage.CONNECT,
                "Could not start 'x': It ended with status 7 before it had introduced itself.\nno licence found: ask your administrator",
            )
        ]
        assert (await session.call("c.count")).text == "1"


@pytest.mark.promise("LNK-09")
async def test_a_server_that_exits_at_once_without_a_word_is_refused_with_how_it_ended(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"x": {"command": "false"}}) as host, host.session(cwd=tmp_path) as session:
        (refusal,) = session.refusals

    assert refusal.reason == (
        "Could not start 'x': It ended with status 1 before it had introduced itself.\n"
        "It said nothing about it. Run it by hand to see why."
    )


@pytest.mark.promise("LNK-09")
async def test_a_server_that_babbles_is_refused_on_time(make_host: HostFactory, tmp_path: Path):
    terms = Terms(connect_seconds=0.5, end_seconds=0.2)
    async with (
        make_host({"x": hostile("babbles")}, terms=terms) as host,
        host.session(cwd=tmp_path) as session,
    ):
        (refusal,) = session.refusals

    assert refusal.reason == "Could not start 'x': The server did not introduce itself within 0.5 s."


@pytest.mark.promise("LNK-13")
@pytest.mark.parametrize(
    ("kind", "size", "code", "text"),
    [
        ("garbage", 0, "BAD_ANSWER", "The line is not JSON"),
        ("no UTF-8", 0, "BAD_ANSWER", "not UTF-8"),
        ("nesting", 0, "BAD_ANSWER", "nested too deep"),
        ("a line of 1 GB", 32 * 1024**2, "BAD_ANSWER", "16777216 is the most"),
        ("nothing", 0, "TIMEOUT", "did not answer within 0.2 s"),
        ("requests", 20_000, "", ""),
        ("notifications", 20_000, "", ""),
        ("progress", 5_000, "", ""),
        ("changes", 5_000, "", ""),
        ("words", 100, "", ""),
        ("some nesting", 0, "", "[[[[[["),
        ("half a character", 0, "BAD_ANSWER", "cannot be read"),
        ("an endless number", 0, "", "1e999"),
        ("no content", 0, "", "1\na\nnull\n"),
        ("a pattern", 0, "", ""),
    ],
)
async def test_whatever_a_server_answers_there_is_an_answer_and_the_session_goes_on(
    make_host: HostFactory, tmp_path: Path, kind: str, size: int, code: str, text: str
):
    async with (
        make_host({"c": counter(), "x": hostile(kind, size)}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        before = (await session.call("x.pid")).text
        answer = await session.call("x.attack", {"text": "a" * 40}, timeout=0.2 if kind == "nothing" else 20)

        assert (answer.code, text in answer.text, answer.ok) == (code, True, not code)
        assert [(await session.call("x.pid")).text, (await session.call("c.count")).text] == [before, "1"]


async def test_no_traceback_is_logged_for_what_a_server_says(
    make_host: HostFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    for kind in ("progress", "changes", "garbage", "requests"):
        async with make_host({"x": hostile(kind, 200)}) as host:
            await host.tools(cwd=tmp_path)
            async with host.session(cwd=tmp_path) as session:
                await session.call("x.attack")

    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.promise("LNK-17")
async def test_a_server_that_keeps_changing_its_tools_holds_nobody_up(make_host: HostFactory, tmp_path: Path):
    async with make_host({"x": hostile("changes")}) as host, host.session(cwd=tmp_path) as session:
        attack = asyncio.create_task(session.call("x.attack", timeout=1))
        async with asyncio.timeout(2):
            names = [{offer.name for offer in await session.tools()} for _ in range(3)]
        await attack

    assert [{"x.attack", "x.pid"} <= found for found in names] == [True] * 3
