"""Attack 19: a confined server reaches loopback, metadata addresses and DNS, directly or through its proxy."""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import PATH, confined, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

DIRECT = """
import json, socket, sys
found = {}
for name, (kind, host, port) in json.loads(sys.argv[1]).items():
    try:
        with socket.socket(type=kind) as s:
            s.settimeout(5); s.connect((host, port)); s.send(b'x'); found[name] = 'reached'
    except OSError as error: found[name] = type(error).__name__ if isinstance(error, TimeoutError) else 'blocked'
try: socket.getaddrinfo('example.org', 80); found['names'] = 'reached'
except OSError: found['names'] = 'blocked'
print(json.dumps(found))
"""
# The proxy looks names up outside of the sandbox; the result is the status of its answer.
PROXIED = """
import json, socket, sys
found = {}
for target in sys.argv[1:]:
    with socket.create_connection(('127.0.0.1', 3128), timeout=20) as s:
        s.sendall(('CONNECT %s HTTP/1.1\\r\\n\\r\\n' % target).encode())
        found[target] = s.recv(100).split()[1].decode()
print(json.dumps(found))
"""


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.promise("BOX-02")
async def test_confined_server_reaches_no_address(keeper: Keeper, root: Path, port: int) -> None:
    targets = {
        "loopback": (1, "127.0.0.1", port), "any": (1, "0.0.0.0", port), "metadata": (1, "169.254.169.254", 80),
        "datagram": (2, "192.0.2.53", 53), "private": (1, "10.0.0.1", 80),
    }  # fmt: skip
    launch = ProcessSpec(
        argv=(sys.executable, "-I", "-c", DIRECT, json.dumps(targets)), env=PATH, cwd=str(root)
    )

    found = json.loads((await run(keeper, confined(launch, root))).out)

    assert found == dict.fromkeys([*targets, "names"], "blocked")


async def test_control_unconfined_server_reaches_loopback(keeper: Keeper, root: Path, port: int) -> None:
    targets = {"loopback": (1, "127.0.0.1", port)}
    code = DIRECT.replace("example.org", "localhost")  # a control does not leave the machine
    launch = ProcessSpec(
        argv=(sys.executable, "-I", "-c", code, json.dumps(targets)), env=PATH, cwd=str(root)
    )

    assert json.loads((await run(keeper, launch)).out)["loopback"] == "reached"


@pytest.mark.promise("BOX-02", "RES-05")
async def test_proxy_refuses_a_grant_for_a_private_address(keeper: Keeper, root: Path, port: int) -> None:
    targets = (f"127.0.0.1:{port}", f"localhost:{port}", "169.254.169.254:80", f"[::1]:{port}", f"2130706433:{port}", f"0x7f.1:{port}")  # fmt: skip
    launch = ProcessSpec(argv=(sys.executable, "-I", "-c", PROXIED, *targets), env=PATH, cwd=str(root))

    found = json.loads((await run(keeper, confined(launch, root, network=targets))).out)

    assert found == dict.fromkeys(targets, "403")


async def test_proxy_allows_a_private_address_that_the_settings_name(
    keeper: Keeper, root: Path, port: int
) -> None:
    target = f"localhost:{port}"
    launch = ProcessSpec(argv=(sys.executable, "-I", "-c", PROXIED, target), env=PATH, cwd=str(root))

    found = json.loads(
        (
            await run(keeper, confined(launch, root, network=(target,), allowed_private_hosts=("localhost",)))
        ).out
    )

    assert found == {target: "200"}
