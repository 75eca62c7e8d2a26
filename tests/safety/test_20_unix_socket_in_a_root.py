"""Attack 20: a root contains the Unix socket of a privileged service, such as Docker's."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import PATH, confined, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

ATTACK = """
import ctypes, os, socket
def stream():
    with socket.socket(socket.AF_UNIX) as s: s.connect('docker.sock')
def datagram():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', 'log.sock')
def raw():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW); a.sendto(b'x', 'log.sock')
def pair():
    a, b = socket.socketpair(); a.connect('docker.sock')
def inherited():
    with socket.socket(fileno=0) as s: s.connect('docker.sock')
for way in (stream, datagram, raw, pair, inherited):
    try: way(); print(way.__name__, 'reached')
    except OSError: print(way.__name__, 'blocked')
a, b = socket.socketpair(); a.send(b'x'); print('own pair', b.recv(1).decode())
"""


@pytest.fixture
def sockets(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(root)
    with (
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        stream.bind("docker.sock")
        stream.listen(8)
        datagrams.bind("log.sock")
        yield


async def attack(keeper: Keeper, folder: Path, *, confine: bool) -> list[str]:
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", ATTACK), env=PATH, cwd=str(folder))
    return (await run(keeper, confined(spec, folder) if confine else spec)).out.splitlines()


@pytest.mark.promise("BOX-02")
@pytest.mark.usefixtures("sockets")
async def test_confined_server_cannot_reach_the_socket_but_can_use_its_own_pairs(
    keeper: Keeper, root: Path
) -> None:
    assert await attack(keeper, root, confine=True) == [
        *(
            "stream blocked",
            "datagram blocked",
            "raw blocked",
            "pair blocked",
            "inherited blocked",
            "own pair x",
        ),
    ]


@pytest.mark.usefixtures("sockets")
async def test_unconfined_server_reaches_the_socket(keeper: Keeper, root: Path) -> None:
    found = await attack(keeper, root, confine=False)

    assert found[:3] == ["stream reached", "datagram reached", "raw reached"]
