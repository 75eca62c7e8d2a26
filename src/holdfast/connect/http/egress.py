"""Which addresses connections may go to. The address that was checked is the one that is connected to."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

from holdfast.model import codes
from holdfast.model.address import why_address_blocked
from holdfast.model.errors import HoldfastError

LookUp: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Finds the addresses of a host, the best one first."""


async def look_up(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(address[0]) for *_, address in found)]


class AddressPolicy:
    """With `is_guarded`, only public addresses, and any address of the hosts that `reachable` names."""

    def __init__(self, *, is_guarded: bool, reachable: Collection[str] = ()) -> None:
        self._is_guarded = is_guarded
        self._reachable = frozenset(host.rstrip(".").lower() for host in reachable)

    def allows_any_address(self, host: str, port: int) -> bool:
        """Whether this host may be at any address, so that its address need not be known."""
        if not self._is_guarded:
            return True
        name = host.rstrip(".").lower()
        quoted = f"[{name}]" if ":" in name else name
        return not self._reachable.isdisjoint({name, quoted, f"{quoted}:{port}"})

    def select(self, host: str, port: int, addresses: list[str]) -> list[str]:
        """The addresses of this host that may be connected to; raises if there is none."""
        if self.allows_any_address(host, port):
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


class EgressResolver(AbstractResolver):
    """Resolves names for aiohttp. The name is looked up once, so a name that changes afterwards gains nothing."""

    def __init__(self, policy: AddressPolicy, look_up: LookUp = look_up) -> None:
        self._policy = policy
        self._look_up = look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = self._policy.select(host, port, await self._look_up(host, port))
        if not addresses:
            raise OSError("it has no address")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        pass


def is_literal(host: str) -> bool:
    """Whether aiohttp takes this host for an address and does not ask the resolver."""
    return ":" in host or host.replace(".", "").isdigit()


def _why_inside(address: str) -> str | None:
    try:
        return why_address_blocked(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return "which is not a valid address"
