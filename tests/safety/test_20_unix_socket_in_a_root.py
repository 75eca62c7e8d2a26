"""Attack 20: a root contains the Unix socket of a privileged service, such as Docker's."""

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.process import ProcessSpec
from holdfast.sandbox.container import seccomp
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


PAIRS = """
import errno, socket
for family in range(2, 46):
    try: socket.socketpair(family, socket.SOCK_STREAM); print(family, 'made')
    except OSError as error: print(family, errno.errorcode[error.errno])
"""


@pytest.mark.promise("BOX-02")
async def test_pairs_of_other_families_do_not_reach_the_code_of_the_family(
    keeper: Keeper, root: Path
) -> None:
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", PAIRS), env=PATH, cwd=str(root))
    found = (await run(keeper, confined(spec, root))).out.splitlines()
    control = (await run(keeper, spec)).out.splitlines()

    assert found == [f"{family} EAFNOSUPPORT" for family in range(2, 46)]
    assert "2 ENOTSUP" in control  # what the kernel's code for IPv4 answers


HIGH_BIT = 1 << 32
"""The kernel ignores it: `socket` and `ioctl` use the low half of their first arguments."""
DENIED_CALLS: list[tuple[str, tuple[int, ...]]] = [
    ("socket", (1, 1)),
    ("socket", (1 | HIGH_BIT, 1)),
    ("socket", (40 | HIGH_BIT, 1)),
    ("socket", (16 | HIGH_BIT, 3, 15)),
    ("ioctl", (0, 0x5412 | HIGH_BIT)),
    ("ioctl", (0, 0x50009401)),
    ("fcntl", (0, 1024 | HIGH_BIT)),
]


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize(("call", "arguments"), DENIED_CALLS)
def test_container_denies_a_socket_whichever_bits_the_kernel_ignores(
    call: str, arguments: tuple[int, ...]
) -> None:
    assert is_denied(call, arguments)


def test_control_a_filter_that_compares_all_bits_lets_the_socket_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def equals(index: int, value: int) -> dict[str, int | str]:
        return {"index": index, "op": "SCMP_CMP_EQ", "value": value}

    monkeypatch.setattr(seccomp, "_equals", equals)

    assert [is_denied("socket", (family, 1)) for family in (1, 1 | HIGH_BIT)] == [True, False]


@pytest.mark.parametrize(
    ("call", "arguments"), [("socket", (2, 1)), ("ioctl", (0, 0x5401)), ("fcntl", (0, 1030))]
)
def test_control_container_allows_other_calls(call: str, arguments: tuple[int, ...]) -> None:
    assert not is_denied(call, arguments)


def is_denied(call: str, arguments: tuple[int, ...]) -> bool:
    """Whether a rule of the container's profile denies a call, by the comparisons that libseccomp makes."""
    compare: dict[str, Callable[[int, int, int], bool]] = {
        "SCMP_CMP_EQ": lambda found, value, _: found == value,
        "SCMP_CMP_NE": lambda found, value, _: found != value,
        "SCMP_CMP_GE": lambda found, value, _: found >= value,
        "SCMP_CMP_MASKED_EQ": lambda found, mask, value: found & mask == value,
    }
    rules: list[dict[str, Any]] = seccomp.seccomp_profile()["syscalls"]  # pyright: ignore[reportAssignmentType]

    def applies(rule: dict[str, Any]) -> bool:
        conditions: list[dict[str, Any]] = rule.get("args", [])
        return call in rule["names"] and all(
            compare[one["op"]](arguments[int(one["index"])], one["value"], one.get("valueTwo", 0))
            for one in conditions
        )

    return any(map(applies, rules))
