"""Checks which addresses may be connected to. A connection uses exactly the address that was checked.

Which addresses are not public is decided in `model/blocked_addresses.py`.
"""

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

from holdfast.connect.scope import look_up_quota_owner
from holdfast.model import codes
from holdfast.model.blocked_addresses import how_to_allow, why_address_blocked
from holdfast.model.errors import HoldfastError
from holdfast.model.name_resolver import RESOLVER

LookUp: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host and port, best first."""


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, from the system's resolver."""
    return await RESOLVER.look_up(host, owner=look_up_quota_owner.get())


class AddressPolicy:
    """Which addresses may be connected to: all or, with `public_only`, public ones and those of the hosts in `reachable`."""

    def __init__(self, *, public_only: bool, reachable: Collection[str] = ()) -> None:
        self._public_only = public_only
        self._reachable = frozenset(host.rstrip(".").lower() for host in reachable)

    def allowing(self, host: str, port: int) -> "AddressPolicy":
        """This policy, but it also allows every address for this host and port."""
        quoted = f"[{host}]" if ":" in host else host
        return AddressPolicy(public_only=self._public_only, reachable=(*self._reachable, f"{quoted}:{port}"))

    def allows_any_address(self, host: str, port: int) -> bool:
        """Whether every address is allowed for this host."""
        if not self._public_only:
            return True
        name = host.rstrip(".").lower()
        quoted = f"[{name}]" if ":" in name else name
        return not self._reachable.isdisjoint({name, quoted, f"{quoted}:{port}"})

    def select(self, host: str, port: int, addresses: list[str]) -> list[str]:
        """The addresses of this host that are allowed. Raise if all are blocked."""
        if self.allows_any_address(host, port):
            return addresses
        blocked = {address: _why_blocked(address) for address in addresses}
        allowed = [address for address in addresses if blocked[address] is None]
        if addresses and not allowed:
            raise HoldfastError(
                codes.NOT_REACHABLE,
                f"{host} is at {addresses[0]}, {blocked[addresses[0]]}, which may not be reached from here. "
                f"{how_to_allow(host)}",
            )
        return allowed


class CheckedResolver(AbstractResolver):
    """Resolves host names for aiohttp, which connects to the checked addresses without another look-up."""

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


def is_ip_literal(host: str) -> bool:
    """Whether aiohttp treats this host as an IP address and so does not ask the resolver."""
    return ":" in host or host.replace(".", "").isdigit()


def _why_blocked(address: str) -> str | None:
    try:
        return why_address_blocked(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return "an invalid address"
