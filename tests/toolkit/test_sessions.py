"""The things a server drives are found, and disposed of exactly once, however the server ends."""

import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.toolkit import SessionManager, ToolError
from tests.toolkit.clients import Client, Http, spawned
from tests.toolkit.http import ROOT, served

NOTES = "tests.toolkit.notes_server"


def manager(disposed: list[str]) -> SessionManager[str]:
    def dispose(thing: str) -> None:
        if thing == "stubborn":
            raise OSError("It does not let go.")
        disposed.append(thing)

    return SessionManager(dispose)


@pytest.mark.promise("KIT-11")
def test_the_one_that_is_meant_is_found():
    driven = manager([])

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
async def test_removal_and_disposal_of_all_are_idempotent_and_attempt_every_one(
    caplog: pytest.LogCaptureFixture,
):
    disposed: list[str] = []
    driven = manager(disposed)
    for number, thing in enumerate(["one", "stubborn", "two", "three"]):
        driven.add(str(number), thing)

    removed = [await driven.remove("0"), await driven.remove("0")]
    await driven.dispose_all()
    await driven.dispose_all()

    assert (removed, disposed, len(driven)) == ([True, False], ["one", "two", "three"], 0)
    assert [record.getMessage() for record in caplog.records] == ["could not dispose of a session"]


@pytest.mark.anyio
@pytest.mark.promise("KIT-11")
async def test_what_hangs_while_it_is_disposed_of_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("holdfast.toolkit.sessions.PATIENCE", 0.05)
    disposed: list[str] = []

    async def dispose(thing: str) -> None:
        if thing == "hangs":
            await asyncio.Event().wait()
        disposed.append(thing)

    driven = SessionManager(dispose)
    for thing in ("hangs", "goes"):
        driven.add(thing, thing)

    await driven.dispose_all()

    assert disposed == ["goes"]


@pytest.mark.promise("KIT-14")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, None], ids=["SIGINT", "SIGTERM", "EOF"])
def test_on_stdio_what_is_driven_is_disposed_of_before_the_server_ends(
    tmp_path: Path, number: signal.Signals | None
):
    mark = tmp_path / "mark"
    with spawned(NOTES) as pipes:
        mine = Client(pipes, "modern")
        for tab in ("1", "2"):
            mine.call("launch", {"session_id": tab, "mark": str(mark)})
        if number is None:
            assert pipes.process.stdin
            pipes.process.stdin.close()
        else:
            pipes.process.send_signal(number)
        assert pipes.process.wait(10) == 0

    assert mark.read_text() == "disposed\n" * 2


@pytest.mark.promise("KIT-14")
def test_a_call_that_hangs_does_not_keep_a_server_from_ending(tmp_path: Path):
    mark = tmp_path / "mark"
    with spawned("tests.toolkit.hanging_server") as pipes:
        mine = Client(pipes, "modern")
        mine.call("launch", {"mark": str(mark)})
        for identity, tool in enumerate(["hang", "hang_in_a_thread"]):
            pipes.tell(
                {
                    "jsonrpc": "2.0",
                    "id": f"hang-{identity}",
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
def test_over_http_what_is_driven_is_disposed_of_before_the_server_ends(
    tmp_path: Path, number: signal.Signals
):
    mark = tmp_path / "mark"
    with served(NOTES, end=number) as url:
        carrier = Http(url)
        Client(carrier, "handshake").call("launch", {"session_id": "1", "mark": str(mark)})
        carrier.close()

    assert mark.read_text() == "disposed\n"


def test_a_failure_to_start_is_a_sentence_and_a_hint():
    import sys

    command = [sys.executable, "-m", NOTES, "--http", "256.0.0.1:1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=20)

    assert done.returncode == 1
    assert done.stderr.startswith("Error: Could not listen on 256.0.0.1:1")


def _modern() -> dict[str, object]:
    from tests.toolkit.clients import MODERN_META

    return MODERN_META
