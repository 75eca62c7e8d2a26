"""Attack 71: a descriptor that is closed twice. The second time, it may belong to another session."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from io import FileIO
from pathlib import Path
from typing import IO, Any

import pytest
import uvloop

from holdfast.host.open_options import OpenOptions
from holdfast.model.loop_pipes import connect_read_pipe, connect_write_pipe
from tests.connect.conftest import HostFactory, folder, make_host
from tests.connect.processes import is_alive

__all__ = ["folder", "make_host"]  # fixtures
_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
_Connect = Callable[[FileIO], Awaitable[tuple[Any, Any]]]


def _reading(file: IO[Any]) -> Awaitable[tuple[Any, Any]]:
    return connect_read_pipe(asyncio.Protocol, file)


def _writing(file: IO[Any]) -> Awaitable[tuple[Any, Any]]:
    return connect_write_pipe(asyncio.BaseProtocol, file)


def _reading_unprotected(file: IO[Any]) -> Awaitable[tuple[Any, Any]]:
    return asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, file)


async def _close_both(connect: _Connect, end: int, mode: str) -> None:
    """The transport and its owner both close the pipe, as at the end of a server."""
    file = FileIO(end, mode)
    transport, _ = await connect(file)
    transport.close()
    file.close()


async def _cancel(connect: _Connect, end: int, mode: str) -> None:
    """Connecting is cancelled, and the owner closes the pipe, as when a session ends while its servers start."""
    file = FileIO(end, mode)
    connecting = asyncio.ensure_future(connect(file))
    await asyncio.sleep(0)
    connecting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await connecting
    file.close()


async def _is_another_session_harmed(connect: _Connect, finish: Any) -> bool:
    """Whether a descriptor that is opened next, for another session, is closed by the end of the first one."""
    ends = os.pipe()
    is_write = connect is _writing
    await finish(connect, ends[is_write], "wb" if is_write else "rb")
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    os.close(ends[not is_write])
    harmed = False
    for descriptor in others:
        try:
            os.close(descriptor)
        except OSError:
            harmed = True
    return harmed


@pytest.mark.parametrize("loop", _LOOPS)
@pytest.mark.parametrize("finish", [_close_both, _cancel])
@pytest.mark.parametrize("connect", [_reading, _writing])
def test_ending_a_pipe_closes_no_descriptor_of_another_session(loop: str, finish: Any, connect: _Connect):
    with asyncio.Runner(loop_factory=_LOOPS[loop]) as runner:
        assert not runner.run(_is_another_session_harmed(connect, finish))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            assert not runner.run(_is_another_session_harmed(connect, finish))

        assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.mark.anyio
async def test_ending_a_session_while_its_servers_start_ends_the_servers(
    make_host: HostFactory, folder: Path, caplog: pytest.LogCaptureFixture
):
    entry = {"command": "sh", "args": ["-c", "echo $$ >> pids; exec sleep 1000"]}
    async with make_host({"deaf": {**entry, "cwd": str(folder)}}) as host:

        async def open_and_end(steps: int) -> None:
            session = await host.open(OpenOptions(cwd=str(folder)))
            for _ in range(steps):
                await asyncio.sleep(0)
            await session.close()

        await asyncio.gather(*(open_and_end(steps) for steps in range(40)))
    pids = [int(line) for line in (folder / "pids").read_text().split()]

    assert [pid for pid in pids if is_alive(pid)] == []
    assert "link crashed" not in caplog.text


def test_control_the_file_of_a_pipe_that_uvloop_got_is_closed_too():
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_is_another_session_harmed(_reading_unprotected, _close_both))
