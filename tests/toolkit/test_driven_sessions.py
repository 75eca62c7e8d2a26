"""Driven sessions are found by id, and disposed of exactly once when the server ends."""

import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.toolkit import DrivenSessions, SessionManager, ToolError
from tests.toolkit.clients import Client, PlainHttpTransport, spawn_server
from tests.toolkit.server_process import ROOT, run_http_server

NOTES = "tests.toolkit.notes_server"


def make_driven(disposed: list[str]) -> DrivenSessions[str]:
    def dispose(thing: str) -> None:
        if thing == "broken":
            raise OSError("It cannot be closed.")
        disposed.append(thing)

    return DrivenSessions(dispose)


@pytest.mark.promise("KIT-11")
def test_earlier_name_of_the_class_still_works():
    assert SessionManager is DrivenSessions


@pytest.mark.promise("KIT-11")
def test_get_finds_a_driven_session_by_id_or_the_only_one():
    driven = make_driven([])

    with pytest.raises(ToolError) as none:
        driven.get()
    driven.add("a", "browser")
    only, named = driven.get(), driven.get("a")
    driven.add("b", "app")
    with pytest.raises(ToolError) as several:
        driven.get()
    with pytest.raises(ToolError) as unknown:
        driven.get("c")
    with pytest.raises(ToolError) as twice:
        driven.add("a", "other")

    assert [error.value.code for error in (none, several, unknown, twice)] == [
        codes.NOT_RUNNING,
        codes.BAD_ARGUMENT,
        codes.NOT_RUNNING,
        codes.BAD_ARGUMENT,
    ]
    assert (only, named, unknown.value.details, driven.ids()) == (
        "browser",
        "browser",
        {"available": ["a", "b"]},
        ("a", "b"),
    )


@pytest.mark.anyio
@pytest.mark.promise("KIT-11")
async def test_every_driven_session_is_disposed_of_exactly_once_even_if_one_fails(
    caplog: pytest.LogCaptureFixture,
):
    disposed: list[str] = []
    driven = make_driven(disposed)
    for number, thing in enumerate(["one", "broken", "two", "three"]):
        driven.add(str(number), thing)

    removed = [await driven.remove("0"), await driven.remove("0")]
    await driven.dispose_all()
    await driven.dispose_all()

    assert (removed, disposed, len(driven)) == ([True, False], ["one", "two", "three"], 0)
    assert [record.getMessage() for record in caplog.records] == ["could not dispose of a driven session"]


@pytest.mark.anyio
@pytest.mark.promise("KIT-11")
async def test_disposal_that_hangs_does_not_block_the_others(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("holdfast.toolkit.driven_sessions.DISPOSE_SECONDS", 0.05)
    disposed: list[str] = []

    async def dispose(thing: str) -> None:
        if thing == "hangs":
            await asyncio.Event().wait()
        disposed.append(thing)

    driven = DrivenSessions(dispose)
    for thing in ("hangs", "goes"):
        driven.add(thing, thing)

    await driven.dispose_all()

    assert disposed == ["goes"]


@pytest.mark.promise("KIT-14")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, None], ids=["SIGINT", "SIGTERM", "EOF"])
def test_driven_sessions_are_disposed_of_when_a_stdio_server_ends(
    tmp_path: Path, number: signal.Signals | None
):
    mark = tmp_path / "mark"
    with spawn_server(NOTES) as pipes:
        mine = Client(pipes, "modern")
        for tab in ("1", "2"):
            mine.call("launch", {"session_id": tab, "mark": str(mark)})
        if number is None:
            pipes.stdin.close()
        else:
            pipes.process.send_signal(number)
        assert pipes.process.wait(10) == 0

    assert mark.read_text() == "disposed\n" * 2


@pytest.mark.promise("KIT-14")
def test_server_ends_while_calls_hang(tmp_path: Path):
    mark = tmp_path / "mark"
    with spawn_server("tests.toolkit.hanging_server") as pipes:
        mine = Client(pipes, "modern")
        mine.call("launch", {"mark": str(mark)})
        for tool in ("hang", "hang_in_a_thread"):
            pipes.notify(
                {
                    "jsonrpc": "2.0",
                    "id": tool,
                    "method": "tools/call",
                    "params": {"name": tool, "arguments": {}, "_meta": _modern()},
                }
            )
        mine.call("are_hanging")
        pipes.process.terminate()
        assert pipes.process.wait(10) == 0

    assert mark.read_text() == "disposed\n"


@pytest.mark.promise("KIT-14")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_driven_sessions_are_disposed_of_when_an_http_server_ends(tmp_path: Path, number: signal.Signals):
    mark = tmp_path / "mark"
    with run_http_server(NOTES, end=number) as url:
        transport = PlainHttpTransport(url)
        Client(transport, "handshake").call("launch", {"session_id": "1", "mark": str(mark)})
        transport.close()

    assert mark.read_text() == "disposed\n"


def test_failure_to_start_prints_a_message_and_a_hint():
    import sys

    command = [sys.executable, "-m", NOTES, "--http", "256.0.0.1:1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=20)

    assert done.returncode == 1
    message, hint = done.stderr.splitlines()
    assert message.startswith("Error: Could not listen on 256.0.0.1:1")
    assert hint.startswith("Hint: ")


def _modern() -> dict[str, object]:
    from tests.toolkit.clients import MODERN_META

    return MODERN_META
