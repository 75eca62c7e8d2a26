"""Attack 20: a socket of a powerful service (as Docker's) lies inside a root."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.launch import Launch
from holdfast.sandbox.keeper import Keeper
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


async def attack(keeper: Keeper, folder: Path, *, walls: bool) -> list[str]:
    launch = Launch(argv=(sys.executable, "-I", "-c", ATTACK), env=PATH, cwd=str(folder))
    return (await run(keeper, confined(launch, folder) if walls else launch)).out.splitlines()


@pytest.mark.promise("BOX-02")
@pytest.mark.usefixtures("sockets")
async def test_no_way_leads_to_it_and_pairs_of_its_own_still_work(keeper: Keeper, root: Path) -> None:
    assert await attack(keeper, root, walls=True) == [
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
async def test_without_walls_it_is_reached(keeper: Keeper, root: Path) -> None:
    found = await attack(keeper, root, walls=False)

    assert found[:3] == ["stream reached", "datagram reached", "raw reached"]
