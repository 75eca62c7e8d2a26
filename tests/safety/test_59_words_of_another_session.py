"""Attack 59: one session's words reach another session's model through the stderr of a server that they share."""

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast.connect import stderr
from holdfast.connect.back_off import BackOff
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.stderr import ServerStderr
from holdfast.model.server import Lifetime, ServerSpec, Source, Stdio
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, counter_entry, folder, make_host
from tests.connect.test_back_off import wait_for_stderr

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio

ANN = "looking up patient Ann"
SHARED = counter_entry("--shared", lifetime="host")
OWN = counter_entry()
CRASH_CODES = ("CONNECTION_CLOSED", "CONNECTION_CLOSED", "RESTART_DELAYED")


@pytest.mark.promise("API-04")
async def test_failure_of_a_shared_server_says_nothing_of_its_stderr(make_host: HostFactory, folder: Path):
    answer = await _mutter_then_time_out(make_host, folder)

    assert answer == (
        "TIMEOUT: c.mutter did not answer within 0.3 s.\n"
        "Its output to stderr is only in the log, because several sessions share the server."
    )


async def test_control_server_that_does_not_count_as_shared_tells_all(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stderr.ServerStderr, "report_since", _tell_everything)

    assert ANN in await _mutter_then_time_out(make_host, folder)


@pytest.mark.promise("API-04")
async def test_crash_that_one_session_causes_tells_the_others_none_of_its_words(
    make_host: HostFactory, folder: Path
):
    told = await _crash_beside(make_host, folder)

    assert [(ANN in text, code in text) for text, code in zip(told, CRASH_CODES, strict=True)] == [
        (False, True)
    ] * 3


async def test_control_crash_of_a_server_that_does_not_count_as_shared_tells_all(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stderr.ServerStderr, "report_since", _tell_everything)

    assert ANN in (await _crash_beside(make_host, folder))[-1]


@pytest.mark.promise("API-04")
async def test_failure_shows_only_the_lines_written_since_its_call_began(
    make_host: HostFactory, folder: Path
):
    async with make_host({"c": OWN}) as host, host.session(cwd=folder) as session:
        await session.call("c.mutter", {"stderr": "an old traceback", "answers": True})
        await session.call("c.mutter", {"stderr": "half a line", "end": "", "answers": True})
        failed = await session.call("c.mutter", {"stderr": "s rest\nfrom this call"}, timeout=0.3)

    assert failed.message == ("c.mutter did not answer within 0.3 s.\nIt wrote to stderr:\n| from this call")


@pytest.mark.promise("API-04")
async def test_failed_start_of_a_shared_server_keeps_its_stderr_in_the_log(
    make_host: HostFactory, folder: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    shared = counter_entry("--shared", "--exits", lifetime="host", env={"LAST_WORDS": ANN})
    own = counter_entry("--exits", env={"LAST_WORDS": "no licence"})
    async with make_host({"shared": shared, "own": own}) as host, host.session(cwd=folder) as session:
        reasons = {refusal.server: refusal.reason for refusal in session.refusals}

    logged = [vars(record).get("stderr") for record in caplog.records]
    assert (ANN in reasons["shared"], "no licence" in reasons["own"], ANN in logged) == (False, True, True)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"x" * 100_000, 0),  # one endless line whose start is gone
        (b"start\n" + b"x" * 15_000, stderr.MAX_SHOWN),
        (b"line\n" * 50_000, stderr.MAX_SHOWN),
        (b"\x1b]0;title\x07\x1b[2J\xc2\x9b31m\xe2\x80\xae\n", 3),
    ],
)
def test_stderr_is_bounded_and_has_no_control_characters(written: bytes, shown: int):
    captured = ServerStderr(_spec(Lifetime.SESSION))
    captured.data_received(written)

    lines = captured.report_since(0).split("\n")[1:]

    assert all(line.isprintable() and line.startswith("| ") for line in lines)
    assert sum(len(line) - 1 for line in lines) <= shown + 4


async def _mutter_then_time_out(make_host: HostFactory, folder: Path) -> str:
    """Ann's call makes the shared server write to stderr. Return what Bob is told when his own call fails."""
    async with (
        make_host({"c": SHARED}) as host,
        host.session(cwd=folder) as ann,
        host.session(cwd=folder) as bob,
    ):
        assert await _pid(ann) == await _pid(bob)
        await ann.call("c.mutter", {"stderr": ANN, "answers": True})
        return (await bob.call("c.mutter", {"stderr": f"beside Bob: {ANN}"}, timeout=0.3)).text


async def _crash_beside(make_host: HostFactory, folder: Path) -> list[str]:
    """What Bob is told: Ann's calls crash the server twice while a call of his runs; then it is not started for a while."""
    options = ConnectOptions(end_seconds=0.5, back_off=BackOff(clock=lambda: 0.0))
    async with (
        make_host({"c": SHARED}, options=options) as host,
        host.session(cwd=folder) as ann,
        host.session(cwd=folder) as bob,
    ):
        told: list[str] = []
        for _ in range(2):
            runs = asyncio.Event()
            call = asyncio.create_task(bob.call("c.linger", {}, on_progress=lambda _, runs=runs: runs.set()))
            await runs.wait()
            await ann.call("c.die", {"stderr": ANN})
            told.append((await call).text)
        await wait_for_stderr(bob)
        return [*told, (await bob.call("c.count")).text]


async def _pid(session: Session) -> int:
    return (await session.call("c.whoami")).data["pid"]


def _tell_everything(self: ServerStderr, position: int) -> str:
    return self._lines_since(0)  # as before: everything that is kept, of all sessions


def _spec(lifetime: Lifetime) -> ServerSpec:
    return ServerSpec(name="c", source=Source.USER, transport=Stdio(command="c"), lifetime=lifetime)
