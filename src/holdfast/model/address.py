"""Which network addresses are blocked for sandboxed sessions and for servers that clients bring.

Blocked are this machine, private networks and cloud metadata.
"""

import ipaddress
import re

# C libraries read numbers as IPv4 addresses: 2130706433, 0x7f.1 and 0177.0.0.1 are all 127.0.0.1.
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
    address = _address(name)
    if address is not None:
        return why_address_blocked(address)
    if name in _LOCAL_NAMES or name.endswith(_LOCAL_SUFFIXES) or "." not in name:
        return "a local name"
    return None


def why_address_blocked(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
    """Why an address is blocked; None for an address on the internet."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(address.packed[-4:])
        if inner is not None:
            return why_address_blocked(inner) or (
                "an address that embeds another one" if address.ipv4_mapped is None else None
            )
    if address == _AZURE:
        return "the cloud's metadata address"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or not address.is_global:
        return "a private address"
    return None


_AZURE = ipaddress.IPv4Address("168.63.129.16")  # a public address, but Azure serves machine metadata there
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return _loose_ipv4(name)


def _loose_ipv4(name: str) -> ipaddress.IPv4Address | None:
    parts = name.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    try:
        numbers = [
            int(part, 16 if part[:2] == "0x" else 8 if part[0] == "0" and len(part) > 1 else 10)
            for part in parts
        ]
        *heads, tail = numbers
        if any(head > 255 for head in heads) or tail >= 256 ** (5 - len(parts)):
            return None
        value = tail + sum(head << (8 * (3 - place)) for place, head in enumerate(heads))
        return ipaddress.IPv4Address(value)
    except ValueError:
        return None
