"""Which addresses a remote server may lie at: looked at when a connection is made, and connected to as looked at."""

import asyncio
import ipaddress
import socket
from collections.abc import Collection

from holdfast.model import codes
from holdfast.model.address import why_inside
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.client import Find


async def look_up(host: str, port: int) -> list[str]:
    """All addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(address[0]) for *_, address in found)]


def guarded(reachable: Collection[str] = (), *, find: Find = look_up) -> Find:
    """Finds addresses out on the internet only, and inside only those of hosts that the settings name.

    The name is looked up once, and the connection goes to the address that was looked at: a name that resolves
    to another address a moment later gains nothing.
    """
    named = {host.rstrip(".").lower() for host in reachable}

    async def allowed(host: str, port: int) -> list[str]:
        addresses = await find(host, port)
        name = host.rstrip(".").lower()
        quoted = f"[{name}]" if ":" in name else name
        if {name, quoted, f"{quoted}:{port}"} & named:
            return addresses
        why = {address: _why_inside(address) for address in addresses}
        outside = [address for address in addresses if why[address] is None]
        if addresses and not outside:
            raise HoldfastError(
                codes.NOT_REACHABLE,
                f"{host} is at {addresses[0]}, {why[addresses[0]]}, which may not be reached from here. "
                "The host's settings can allow it: servers.reachable.",
            )
        return outside

    return allowed


def _why_inside(address: str) -> str | None:
    return why_inside(ipaddress.ip_address(address.partition("%")[0]))
