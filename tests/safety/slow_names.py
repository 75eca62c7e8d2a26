"""A host whose name server never answers. A script: `python slow_names.py PROTECTED ATTACKER FOLDER`.

It prints how the other session fared, and ends as a host does: it waits for everything but threads of its own.
"""

import asyncio
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holdfast.connect.http import address_policy, pools
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import name_resolver
from holdfast.model.json import Json
from holdfast.model.process import Confinement
from holdfast.sandbox.bwrap.egress_proxy import EgressProxy
from holdfast.settings import load
from holdfast.store.memory import MemoryStore

NAMES = [f"never{number}.example.com" for number in range(12)]
THREADS = 4  # as many as one owner has


async def old_look_up(self: Any, host: str, *, owner: str) -> list[str]:
    """Look a name up as asyncio does, in the threads that everything shares."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def main(is_protected: bool, attacker: str, folder: Path) -> None:
    if not is_protected:
        name_resolver.NameResolver.look_up = old_look_up  # pyright: ignore[reportAttributeAccessIssue]
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    reached = asyncio.Event()

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    (folder / "config").mkdir()
    (folder / "config" / "none").touch()
    settings = load(
        folder / "config" / "none",
        {
            "HOLDFAST_DATA_DIR": str(folder / "data"),
            "HOLDFAST_SERVERS_REACHABLE": "localhost",
            "HOLDFAST_SERVERS_USER_FILE": str(folder / "config" / "mcp.json"),
            "HOLDFAST_SERVERS_HOST_FILE": str(folder / "config" / "host.json"),
        },
    )
    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    good = _brought("good", f"localhost:{server.sockets[0].getsockname()[1]}")
    async with server, Host(settings=settings, servers={}, store=MemoryStore()) as host:
        attack = asyncio.create_task(_attack(host, attacker, folder))
        await _wait_for_packets()
        opening = asyncio.create_task(_reach(host, OpenOptions(cwd=folder, client_servers=(good,)), reached))
        done, _ = await asyncio.wait([opening], timeout=20 if is_protected else 1)
        print("reached" if done else "not reached", flush=True)
        if not done:
            os._exit(0)
        attack.cancel()


def _brought(name: str, host: str) -> dict[str, Json]:
    return {"type": "http", "name": name, "url": f"http://{host}/mcp", "headers": []}


async def _reach(host: Host, options: OpenOptions, reached: asyncio.Event) -> None:
    await host.open(options)
    await reached.wait()


async def _attack(host: Host, attacker: str, folder: Path) -> None:
    if attacker == "client":
        brought = tuple(_brought(f"s{number}", name) for number, name in enumerate(NAMES))
        await host.open(OpenOptions(cwd=folder, client_servers=brought))
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            proxy = EgressProxy(Confinement(network=tuple(NAMES)))
            await proxy.serve(listener.dup())
            for name in NAMES * 2:
                _, writer = await asyncio.open_connection(*listener.getsockname())
                writer.write(f"CONNECT {name}:443 HTTP/1.1\r\n\r\n".encode())
    await asyncio.Event().wait()


async def _wait_for_packets() -> None:
    """Wait until the name server was asked for so many names that the attacker has no threads left."""
    names: set[bytes] = set()
    async with asyncio.timeout(20):
        while len(names) < THREADS:
            names.add((await asyncio.get_running_loop().sock_recv(NAME_SERVER, 512))[12:20])


if __name__ == "__main__":
    NAME_SERVER = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    NAME_SERVER.bind(("127.0.0.53", 53))
    NAME_SERVER.setblocking(False)
    assert address_policy.look_up is pools.look_up
    asyncio.run(main(sys.argv[1] == "protected", sys.argv[2], Path(sys.argv[3])))
