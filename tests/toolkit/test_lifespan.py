"""The lifespan of a server process: it begins before the first call, and ends on every way out."""

import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.toolkit.clients import Client, PlainHttpTransport, spawn_server
from tests.toolkit.server_process import ROOT, run_http_server

pytestmark = pytest.mark.promise("KIT-25")
MODULE = "tests.toolkit.lifespan_server"
WHOLE = ["begin", "open", "call", "close", "end"]


def marks(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def wait_for_mark(path: Path, mark: str) -> None:
    deadline = time.monotonic() + 20
    while mark not in marks(path):
        assert time.monotonic() < deadline, marks(path)
        time.sleep(0.01)


def test_lifespan_ends_when_the_client_disconnects(tmp_path: Path):
    path = tmp_path / "marks"
    with spawn_server(MODULE, environ={"LIFESPAN_MARKS": str(path)}) as pipes:
        wait_for_mark(path, "begin")  # before the first request
        assert Client(pipes, "modern").call("state")["result"] == "the state value"

    assert (pipes.process.returncode, marks(path)) == (0, WHOLE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_lifespan_ends_when_a_signal_stops_the_server_in_a_call(tmp_path: Path, number: signal.Signals):
    path = tmp_path / "marks"
    with spawn_server(MODULE, environ={"LIFESPAN_MARKS": str(path)}) as pipes:
        client = Client(pipes, "handshake")
        assert client.call("leave")["code"] == "INTERNAL_ERROR"
        pipes.notify({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "hang"}})
        wait_for_mark(path, "hanging")
        pipes.process.send_signal(number)
        pipes.process.wait(20)

    assert (pipes.process.returncode, marks(path)) == (
        0,
        ["begin", "open", "hanging", "cancelled", "close", "end"],
    )


def test_lifespan_ends_when_a_signal_stops_a_server_over_http(tmp_path: Path):
    path = tmp_path / "marks"
    with (
        run_http_server(MODULE, environ={"LIFESPAN_MARKS": str(path)}) as url,
        closing(PlainHttpTransport(url)) as transport,
    ):
        assert Client(transport, "modern").call("state")["result"] == "the state value"

    assert marks(path) == WHOLE


def test_server_whose_lifespan_fails_does_not_start_and_says_where(tmp_path: Path):
    path = tmp_path / "marks"
    done = subprocess.run(
        [sys.executable, "-m", MODULE],
        cwd=ROOT,
        env={"LIFESPAN_MARKS": str(path), "LIFESPAN_MODE": "fail"},
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )

    assert (done.returncode, done.stdout, marks(path)) == (1, "", ["begin"])
    for said in (
        "printed at the import",
        "printed at the start",
        "in lifespan",
        "Error: 'lifespan' does not start: its lifespan failed with RuntimeError: the database is down",
    ):
        assert said in done.stderr
    assert "asyncio" not in done.stderr, "the traceback has only the frames of the author"


def test_signal_stops_a_server_whose_lifespan_hangs_at_the_start(tmp_path: Path):
    path = tmp_path / "marks"
    environ = {"LIFESPAN_MARKS": str(path), "LIFESPAN_MODE": "hang at the start"}
    with spawn_server(MODULE, environ=environ) as pipes:
        wait_for_mark(path, "begin")
        pipes.process.send_signal(signal.SIGTERM)

        assert pipes.process.wait(20) == 0
