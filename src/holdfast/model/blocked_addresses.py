"""Which network addresses are blocked for confined servers, for sandboxed sessions and for servers that clients bring.

Only addresses of servers on the internet are allowed. This machine, private networks, cloud metadata and addresses that
embed another address are blocked.
"""

import ipaddress
import json
import re
import socket
from typing import TypeAlias

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK_REASON = "a loopback address"
PRIVATE_REASON = "a private address"
OWN_REASON = "an address of this machine"

# C libraries read all of these as 127.0.0.1: 2130706433, 0x7f.1 and 0177.0.0.1.
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)")
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home", ".corp", ".home.arpa")


def why_host_blocked(host: str) -> str | None:
    """Why a host is blocked; None for a host on the internet.

    A name may still resolve to a blocked address: the caller must check that address when it connects.
    """
    name = host.strip("[]").rstrip(".").lower().partition("%")[0]
    if not name:
        return "no host name"
    address = parse_address(name)
    if address is not None:
        return why_address_blocked(address)
    if name in _LOCAL_NAMES or name.endswith(_LOCAL_SUFFIXES) or "." not in name:
        return "a local name"
    return None


def parse_address(name: str) -> IpAddress | None:
    """Parse a host name that is an IP address, even in a form that only C libraries accept; None for any other name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return _parse_numeric_ipv4(name)


def is_loopback_host(host: str) -> bool:
    """Whether the host is `localhost` or a loopback address. Other names are not looked up."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def why_address_blocked(address: IpAddress) -> str | None:
    """Why an address is blocked; None for an address on the internet."""
    if isinstance(address, ipaddress.IPv6Address):
        why = _why_ipv6_blocked(address)
    else:
        why = next((why for network, why in _SPECIAL_IPV4 if address in network), None)
    return why or (OWN_REASON if is_own_address(address) else None)


def is_own_address(address: IpAddress) -> bool:
    """Whether an interface of this machine has this address now. Through it, programs that listen on all interfaces can be reached.

    A UDP socket is connected to the address, which sends nothing. If the system chooses the same address as the source, it is an
    address of this machine. A public address that a router translates to a private one of this machine is not recognised.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))  # any port
            source = ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0])
    except OSError:  # there is no route to the address
        return False
    return source == address


def embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address to which a tunnel or translator would pass packets for this address; None if there is none."""
    if address.teredo is not None:
        return address.teredo[1]
    if address.sixtofour is not None:
        return address.sixtofour
    # ISATAP: the interface identifier begins with 0000:5efe or 0200:5efe.
    is_isatap = int(address) >> 32 & 0xFDFFFFFF == 0x5EFE
    if is_isatap or any(address in network for network in _IPV4_IN_LAST_BYTES):
        return ipaddress.IPv4Address(address.packed[-4:])
    return None


def _why_ipv6_blocked(address: ipaddress.IPv6Address) -> str | None:
    if address.ipv4_mapped is not None:
        return why_address_blocked(address.ipv4_mapped)  # the system connects to the IPv4 address
    for network, why in _SPECIAL_IPV6:
        if address in network:
            return why
    inner = embedded_ipv4(address)
    if inner is not None:
        return why_address_blocked(inner) or "an address that embeds another one"
    if address not in _GLOBAL_IPV6 or any(address in network for network in _NOT_GLOBAL_IPV6):
        return PRIVATE_REASON
    return None


def _networks(text: str, why: str) -> list[tuple[IpNetwork, str]]:
    """Each of these networks, with the reason."""
    return [(ipaddress.ip_network(network), why) for network in text.split()]


# From the IANA registries of special-purpose addresses. Ranges that IANA lists as reachable from the internet but that
# contain no servers (relays, anycast of protocols) are blocked, too.
_SPECIAL_IPV4 = [
    *_networks("168.63.129.16/32 100.100.100.200/32 192.0.0.192/32", "the cloud's metadata address"),
    *_networks("127.0.0.0/8", LOOPBACK_REASON),
    *_networks("169.254.0.0/16", "a link-local address"),
    *_networks("224.0.0.0/4", "a multicast address"),
    *_networks(
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 "
        "192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 "
        "203.0.113.0/24 240.0.0.0/4",
        PRIVATE_REASON,
    ),
]
_SPECIAL_IPV6 = [
    *_networks("fd00:ec2::254/128 fd20:ce::254/128 fd00:c1::a9fe:a9fe/128", "the cloud's metadata address"),
    *_networks("::1/128", LOOPBACK_REASON),
    *_networks("fe80::/10", "a link-local address"),
    *_networks("ff00::/8", "a multicast address"),
    *_networks("::/128", PRIVATE_REASON),
]
# IANA has allocated no other range to networks on the internet.
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_NOT_GLOBAL_IPV6 = [
    ipaddress.IPv6Network(network)
    for network in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
]
_IPV4_IN_LAST_BYTES = [
    ipaddress.IPv6Network(network)
    for network in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
]


def _parse_numeric_ipv4(name: str) -> ipaddress.IPv4Address | None:
    """Parse an address as C libraries do: one to four numbers, each decimal, octal or hexadecimal."""
    parts = name.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    try:
        numbers = [
            int(part, 16 if part[:2].lower() == "0x" else 8 if part[0] == "0" and len(part) > 1 else 10)
            for part in parts
        ]
        *heads, tail = numbers
        if any(head > 255 for head in heads) or tail >= 256 ** (5 - len(parts)):
            return None
        value = tail + sum(head << (8 * (3 - place)) for place, head in enumerate(heads))
        return ipaddress.IPv4Address(value)
    except ValueError:
        return None


def how_to_allow(host: str) -> str:
    """The sentence that says how the user allows a private host, with the setting and the host."""
    return (
        f"To allow it, add it to this list in the settings, under [servers]: reachable = [{json.dumps(host)}]"
    )
