"""Attack 39: FIFOs, devices, huge or endless files wherever Holdfast reads something that others can write."""

import asyncio
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.cli.chat.history import load_history
from holdfast.connect.http.login_store import read_login
from holdfast.host.remote import client
from holdfast.host.remote.client import AttachRequest, attach_to_owner
from holdfast.host.remote.sockets import connect_socket, open_listening_socket
from holdfast.model import codes, file_timeout
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.server import Source
from holdfast.resolve import inputs
from holdfast.resolve.load import LoadedEntries, load_file, read_config_file
from holdfast.store.sqlite.anchor import FileAnchor
from holdfast.token.signer import Signer
from holdfast.token.verifier import Verifier
from holdfast.workspaces.registry import Registry
from holdfast.workspaces.worktree import find_repository
from tests.connect.conftest import HostFactory, make_host
from tests.host.remote.owner_process import open_owner
from tests.host.remote.test_attach import Watcher, attach

__all__ = ["make_host"]

SECONDS = 20  # to notice a hang; nothing here takes a tenth of it


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 * 1024**3)  # sparse: it takes no space


def socket_file(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o755)


def device(path: Path) -> None:
    """A device file of the folder's own, like /dev/zero."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("may not create device files")


def link_loop(path: Path) -> None:
    for name, target in ((path.name, "a"), ("a", "b"), ("b", "a")):
        (path.parent / name).symlink_to(target)


def long_chain_of_links(path: Path) -> None:
    (path.parent / "link 0").write_text("{}")
    for number in range(100):
        (path.parent / f"link {number + 1}").symlink_to(f"link {number}")
    path.symlink_to("link 100")


def environment_of_the_host(path: Path) -> None:
    path.symlink_to("/proc/self/environ")


def folder(path: Path) -> None:
    path.mkdir()


def leased(path: Path) -> None:
    """A file that another process holds a lease on: an ordinary open waits until the lease is broken."""
    path.write_text("{}")
    script = (
        "import fcntl, os, signal, sys\n"
        "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        f"fcntl.fcntl(fd, fcntl.F_SETLEASE, {fcntl.F_WRLCK})\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    process.stdout.readline()
    HOLDERS.append(process)


HOLDERS: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def end_lease_holders() -> Any:
    """End the processes that hold a lease."""
    yield
    while HOLDERS:
        HOLDERS.pop().communicate()


def _settings(path: Path) -> str:
    with pytest.raises(HoldfastError) as caught:
        settings.load(path, {})
    return caught.value.message


def _project(path: Path) -> str:
    file = read_config_file(Source.PROJECT, path)
    assert file is not None
    return file.problem


def _public_keys(path: Path) -> str:
    with pytest.raises(HoldfastError) as caught:
        Verifier(path)
    return caught.value.message


def _workspace(path: Path) -> str:
    path.rename(path.parent / "evil.toml")
    (invalid,) = Registry(path.parent).invalid
    return invalid.message


def _is_nothing(read: Callable[[Path], Any]) -> Callable[[Path], str]:
    return lambda path: "" if read(path) else "nothing was read"


def _worktree(path: Path) -> str:
    path.rename(path.parent / ".git")
    return "nothing was read" if find_repository(path.parent) is None else ""


def _anchor(path: Path) -> str:
    try:
        return "nothing was read" if FileAnchor(path).read() is None else ""
    except HoldfastError as error:
        return error.message


READERS = {
    ".mcp.json": _project,
    "settings": _settings,
    "workspace": _workspace,
    "worktree": _worktree,
    "login": _is_nothing(read_login),
    "public keys": _public_keys,
    "history": _is_nothing(load_history),
    "anchor": _anchor,
}


@pytest.mark.parametrize(
    "make",
    [
        fifo,
        endless,
        huge,
        environment_of_the_host,
        folder,
        leased,
        socket_file,
        device,
        link_loop,
        long_chain_of_links,
    ],
)
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_blocks_or_reads_without_bound(make: Callable[[Path], None], reader: str, tmp_path: Path):
    place = tmp_path.resolve() / "place"
    place.mkdir()
    path = place / "file"
    make(path)

    assert _in_time(lambda: READERS[reader](path))


def test_signing_key_that_is_a_fifo_is_refused(tmp_path: Path):
    Signer(tmp_path / "keys").jwks()
    (key,) = (tmp_path / "keys").glob("context-keys.json")
    key.unlink()
    os.mkfifo(key, 0o600)

    with pytest.raises(HoldfastError, match="regular file"):
        _in_time(Signer(tmp_path / "keys").jwks)


@pytest.mark.promise("RES-15")
@pytest.mark.anyio
async def test_sessions_open_and_the_host_ends_beside_folders_full_of_fifos(
    make_host: HostFactory, tmp_path: Path
):
    async with asyncio.timeout(SECONDS), make_host({}) as host:
        for number in range(8):
            place = tmp_path / f"p{number}"
            place.mkdir()
            os.mkfifo(place / ".mcp.json")
            os.mkfifo(place / ".git")
            async with host.session(cwd=place) as session:
                assert [refusal.reason for refusal in session.refusals] == [
                    "It is not read: not a regular file. It must be a regular file of at most 65536 bytes."
                ]


@pytest.mark.anyio
async def test_file_system_that_does_not_respond_delays_nobody_else(tmp_path: Path):
    release = threading.Event()
    stuck = [
        asyncio.create_task(run_with_file_timeout(release.wait, path=f"/stuck/{number % 3}", seconds=0.2))
        for number in range(30)
    ]
    try:
        other = await asyncio.wait_for(run_with_file_timeout(os.getpid, path="/elsewhere"), SECONDS)
        failed = await asyncio.wait_for(asyncio.gather(*stuck, return_exceptions=True), SECONDS)
    finally:
        release.set()

    assert other == os.getpid()
    assert {str(error) for error in failed if isinstance(error, HoldfastError)} == {
        f"'/stuck/{number}' could not be accessed in 0 seconds." for number in range(3)
    }


@pytest.mark.anyio
async def test_config_file_on_such_a_file_system_is_left_out(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    release = threading.Event()

    def read(source: Source, path: Path) -> LoadedEntries:
        if source is Source.PROJECT:
            release.wait()
        return load_file(source, path)

    monkeypatch.setattr(inputs, "load_file", read)
    monkeypatch.setattr(file_timeout.run_with_file_timeout, "__kwdefaults__", {"seconds": 0.5})
    try:
        async with asyncio.timeout(SECONDS), make_host({}) as host, host.session(cwd=tmp_path) as session:
            assert session.available == ("files",)
            assert [refusal.reason for refusal in session.refusals] == [
                f"'{tmp_path}/.mcp.json' could not be accessed in 0 seconds. Check that its file system responds, then open the session again."
            ]
    finally:
        release.set()


def test_process_ends_although_a_file_system_does_not_respond():
    script = (
        "import asyncio, threading\n"
        "from holdfast.model.file_timeout import run_with_file_timeout\n"
        "async def main():\n"
        "    try:\n"
        "        await run_with_file_timeout(threading.Event().wait, path='/stuck', seconds=0.1)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (0, "HoldfastError\n")


@pytest.mark.parametrize("make", [fifo, leased])
def test_control_an_ordinary_read_blocks(make: Callable[[Path], None], tmp_path: Path):
    path = tmp_path / "file"
    make(path)
    script = "import sys; print(flush=True); open(sys.argv[1]).read()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script, str(path)], stdout=subprocess.PIPE
    ) as reading:
        assert reading.stdout
        reading.stdout.readline()

        with pytest.raises(subprocess.TimeoutExpired):
            reading.wait(0.3)
        reading.kill()


@pytest.mark.parametrize("make", [endless, device, huge])
def test_control_an_ordinary_read_of_an_endless_file_reads_on(make: Callable[[Path], None], tmp_path: Path):
    make(tmp_path / "file")
    with (tmp_path / "file").open("rb") as file:
        assert len(file.read(10 * 1024**2)) == 10 * 1024**2


def _in_time(work: Callable[[], Any]) -> Any:
    """The result of the work, or a failure if it blocks."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert results, "it blocks"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


# The sockets of other hosts


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Path]:
    """The data folder of a host that is stopped (Ctrl-Z): it accepts no connection."""
    with closing(open_listening_socket(tmp_path, "stopped")):
        yield tmp_path


def fill_queue(data: Path) -> None:
    with suppress(BlockingIOError):
        while True:
            connect_socket(data, "stopped").close()


def test_connecting_to_a_stopped_host_never_waits(stopped: Path):
    fill_queue(stopped)

    with pytest.raises(BlockingIOError):
        connect_socket(stopped, "stopped")


def test_control_a_blocking_connection_to_a_stopped_host_waits(stopped: Path):
    fill_queue(stopped)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(0.2)

    with closing(connection), pytest.raises((TimeoutError, BlockingIOError)):
        connection.connect(str(stopped / "sockets" / "stopped"))


def test_hosts_that_start_take_no_place_in_the_queue_of_a_stopped_host(stopped: Path):
    (stopped / "sockets" / "ended").touch()
    with closing(socket.socket(socket.AF_UNIX)) as ended:
        (stopped / "sockets" / "ended").unlink()
        ended.bind(str(stopped / "sockets" / "ended"))
    for number in range(40):
        open_listening_socket(stopped, str(number)).close()

    connect_socket(stopped, "stopped").close()
    assert {path.name for path in (stopped / "sockets").iterdir()} == {"stopped", "39"}


def test_control_probing_with_a_connection_fills_the_queue(stopped: Path):
    for _ in range(40):
        probe = socket.socket(socket.AF_UNIX)
        probe.setblocking(False)
        with closing(probe), suppress(BlockingIOError):
            probe.connect(str(stopped / "sockets" / "stopped"))

    with pytest.raises(BlockingIOError):
        connect_socket(stopped, "stopped")


@pytest.mark.slow
@pytest.mark.anyio
async def test_cancelling_at_a_stopped_owner_ends_the_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with open_owner(tmp_path) as owner:
        door = Watcher()
        async with attach(owner, door) as remote:
            monkeypatch.setattr(client, "CONNECT_SECONDS", 0.1)
            monkeypatch.setattr(client, "_CHANGE_SECONDS", 0.1)
            owner.process.send_signal(signal.SIGSTOP)
            prompt = asyncio.create_task(remote.prompt([{"type": "text", "text": "/tools"}]))
            with pytest.raises(HoldfastError, match="does not answer"):
                await remote.change_mode(Mode.READ_ONLY)
            assert not prompt.done()  # the control: without a cancellation, it waits
            await remote.cancel()
            with pytest.raises(HoldfastError, match="It may be suspended"):
                await prompt
        owner.process.send_signal(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.anyio
async def test_position_that_no_event_has_is_refused_and_idle_connections_are_closed(tmp_path: Path):
    async with open_owner(tmp_path, "--impatient") as owner:
        idle = [connect_socket(owner.data, owner.lease.holder_id) for _ in range(70)]
        loop = asyncio.get_running_loop()
        ends = await asyncio.gather(*(loop.sock_recv(connection, 1) for connection in idle))
        request = AttachRequest(door=DoorKind.CHAT, after=-(2**70))
        with pytest.raises(HoldfastError) as refused:
            async with attach_to_owner(
                owner.data, owner.lease, door=(door := Watcher()), on_events=door.show, request=request
            ):
                pass
        for connection in idle:
            connection.close()
        async with attach(owner, Watcher()) as remote:
            await remote.prompt([{"type": "text", "text": "/tools"}])

    assert (set(ends), refused.value.code) == ({b""}, codes.BAD_ARGUMENT)


@pytest.mark.anyio
async def test_control_idle_connections_leave_no_place(tmp_path: Path):
    async with open_owner(tmp_path) as owner:
        idle = [connect_socket(owner.data, owner.lease.holder_id) for _ in range(64)]
        with pytest.raises(HoldfastError, match="is open in"):
            async with attach(owner, Watcher()):
                pass
        for connection in idle:
            connection.close()
