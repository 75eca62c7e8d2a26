"""Attack 39: a FIFO, device or endless file in place of a program, its interpreter or `pyvenv.cfg`."""

import asyncio
import os
import stat
import threading
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.sandbox import PreparedProcess
from tests.sandbox.support import PATH, TIMEOUT, confined, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]


def _fifo(program: Path) -> None:
    os.mkfifo(program, 0o755)


def _device(program: Path) -> None:
    program.symlink_to("/dev/zero")


def _socket(program: Path) -> None:
    os.mknod(program, stat.S_IFSOCK | 0o755)


def _link_loop(program: Path) -> None:
    for name, target in ((program.name, "a"), ("a", "b"), ("b", "a")):
        (program.parent / name).symlink_to(target)


def _fifo_as_configuration(program: Path) -> None:
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.mkfifo(program.parent.parent / "pyvenv.cfg")


def _endless_line(program: Path) -> None:
    with program.open("wb") as file:
        file.write(b"#!")
        file.truncate(1 << 34)
    program.chmod(0o755)


def _endless_configuration(program: Path) -> None:
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with (program.parent.parent / "pyvenv.cfg").open("wb") as file:
        file.truncate(1 << 34)


@pytest.mark.slow
@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize(
    "attack",
    [
        _fifo,
        _device,
        _socket,
        _link_loop,
        _fifo_as_configuration,
        _endless_line,
        _endless_configuration,
    ],
)
async def test_other_servers_start_while_one_has_no_regular_program(
    keeper: Keeper, root: Path, where: str, attack: object
) -> None:
    program = (root if where == "inside" else root.parent) / "env" / "bin" / "server"
    program.parent.mkdir(parents=True)
    assert callable(attack)
    attack(program)
    evil = confined(ProcessSpec(argv=(str(program),), env=PATH, cwd=str(root)), root)
    good = confined(ProcessSpec(argv=("echo", "ran"), env=PATH, cwd=str(root)), root)

    async with asyncio.timeout(TIMEOUT):
        evil_starts = asyncio.gather(*(run(keeper, evil) for _ in range(4)), return_exceptions=True)
        done = await run(keeper, good)
        await evil_starts

    assert done.out == "ran\n"


@pytest.mark.promise("BOX-06")
async def test_fifo_is_refused_with_the_reason(keeper: Keeper, root: Path) -> None:
    _fifo(root / "server")
    spec = confined(ProcessSpec(argv=("./server",), env=PATH, cwd=str(root)), root)

    with pytest.raises(HoldfastError, match="server' is not a regular file that may be executed"):
        await keeper.spawn(spec)


@pytest.mark.promise("BOX-06")
async def test_session_on_a_file_system_that_does_not_answer_delays_only_itself(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sandbox.start_confined._PREPARE_SECONDS", 0.2)
    answers = threading.Event()

    class SlowSandbox(BwrapSandbox):
        def prepare(self, spec: ProcessSpec) -> PreparedProcess:
            if spec.cwd == str(root):
                answers.wait(TIMEOUT)
            return super().prepare(spec)

    other = root.parent / "other"
    other.mkdir()
    slow, good = (
        confined(ProcessSpec(argv=("echo", "ran"), env=PATH, cwd=""), path) for path in (root, other)
    )
    async with Keeper(SlowSandbox()) as keeper:
        starts = asyncio.gather(*(keeper.spawn(slow) for _ in range(20)), return_exceptions=True)
        done = await run(keeper, good)
        refused = await starts
        answers.set()

    assert done.out == "ran\n"
    assert {str(error).partition(" within")[0] for error in refused} == {
        "Could not start 'echo': its files could not be opened"
    }


def test_control_plain_open_of_a_fifo_waits_for_a_writer(root: Path) -> None:
    _fifo(root / "server")
    thread = threading.Thread(target=(root / "server").read_bytes)
    thread.start()
    thread.join(0.1)
    waits = thread.is_alive()

    (root / "server").write_bytes(b"")
    thread.join(TIMEOUT)

    assert (waits, thread.is_alive()) == (True, False)
