"""Attack 48: an address that leads to this machine, a private network or cloud metadata, but does not look like it."""

import asyncio
import ipaddress
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.url import parse_url
from holdfast.model.blocked_addresses import IpAddress, why_address_blocked, why_host_blocked
from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement
from holdfast.sandbox.bwrap.egress_policy import EgressPolicy, Endpoint
from tests.connect.http.raw import resolve_to

pytestmark = pytest.mark.anyio

FOUND = ["192.0.0.192", "fec0::1", "64:ff9b:1::7f00:1", "::127.0.0.1"]
MORE = [
    "100.100.100.200",  # Alibaba's metadata
    "168.63.129.16",  # Azure's
    "fd00:ec2::254",  # Amazon's
    "fd20:ce::254",  # Google's
    "fd00:c1::a9fe:a9fe",  # Oracle's
    "0.1.2.3",
    "192.0.0.8",
    "192.88.99.1",
    "198.18.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "ff0e::1",
    "100::1",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "4000::1",
    "::10.0.0.1",
    "::ffff:0:10.0.0.1",
    "2002:a00:1::1",
    "2002:808:808::1",
    "2001:0:808:808::f5ff:fffe",
    "2606:4700::5efe:10.0.0.1",
    "2606:4700::200:5efe:169.254.169.254",
]
PUBLIC = [
    "93.184.216.34",
    "1.1.1.1",
    "223.255.255.254",
    "2606:2800:220:1::1",
    "2a00:1450::1",
    "::ffff:8.8.8.8",
]


def old_rule(address: IpAddress) -> bool:
    """Whether a list of bad kinds of addresses lets an address pass."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in ipaddress.IPv6Network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(address.packed[-4:])
        if inner is not None:
            return address.ipv4_mapped is not None and old_rule(inner)
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_private
    )


@pytest.mark.promise("RES-05")
@pytest.mark.parametrize("address", [*FOUND, *MORE])
def test_disguised_address_is_refused_for_links_and_for_confined_servers(address: str):
    endpoint = Endpoint(host="evil.example", port=443)
    policy = EgressPolicy(Confinement(network=("evil.example",)))

    assert policy.why_address_refused(endpoint, address) is not None
    assert why_host_blocked(address) is not None
    with pytest.raises(HoldfastError, match="may not be reached"):
        AddressPolicy(public_only=True).select("evil.example", 443, [address])


@pytest.mark.parametrize("address", PUBLIC)
def test_address_on_the_internet_is_allowed(address: str):
    assert why_address_blocked(ipaddress.ip_address(address)) is None


def test_control_a_list_of_bad_kinds_lets_disguised_addresses_pass():
    passed = [address for address in [*FOUND, *MORE] if old_rule(ipaddress.ip_address(address))]

    assert {"fec0::1", "::127.0.0.1", "2606:4700::5efe:10.0.0.1", "168.63.129.16"} <= {*passed}


EMBEDDINGS: dict[str, Callable[[int], int]] = {
    "mapped": lambda v4: 0xFFFF << 32 | v4,
    "compatible": lambda v4: v4,
    "translated": lambda v4: 0xFFFF << 48 | v4,
    "6to4": lambda v4: 0x2002 << 112 | v4 << 80 | 1,
    "Teredo": lambda v4: 0x20010000 << 96 | 0x08080808 << 64 | (v4 ^ 0xFFFFFFFF),
    "NAT64": lambda v4: 0x64FF9B << 96 | v4,
    "local NAT64": lambda v4: 0x64FF9B0001 << 80 | v4,
    "ISATAP": lambda v4: 0x26064700 << 96 | 0x5EFE << 32 | v4,
}
PRIVATE_V4 = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.168.0.0/16 "
    "198.18.0.0/15 224.0.0.0/4 240.0.0.0/4"
)


@given(st.sampled_from(PRIVATE_V4.split()), st.integers(0, 2**32 - 1), st.sampled_from(sorted(EMBEDDINGS)))
def test_no_embedding_of_a_private_address_is_allowed(block: str, number: int, embedding: str):
    network = ipaddress.IPv4Network(block)
    v4 = int(network.network_address) + number % network.num_addresses

    assert why_address_blocked(ipaddress.IPv4Address(v4)) is not None
    assert why_address_blocked(ipaddress.IPv6Address(EMBEDDINGS[embedding](v4))) is not None


@given(st.integers(0, 2**128 - 1))
def test_only_allocated_unicast_addresses_are_allowed(number: int):
    address = ipaddress.IPv6Address(number)

    if why_address_blocked(address) is None:
        assert address in ipaddress.IPv6Network("2000::/3") or address.ipv4_mapped is not None
        assert address.ipv4_mapped is not None or address.is_global


@asynccontextmanager
async def private_service() -> AsyncIterator[tuple[int, list[bytes]]]:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], asked


@pytest.mark.parametrize("public_only", [True, False])
async def test_service_on_this_machine_is_not_reached_by_a_mapped_address_if_only_public_ones_are_allowed(
    public_only: bool,
):
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    async with private_service() as (port, asked):
        policy = AddressPolicy(public_only=public_only)
        pool = Pool(policy, ssl.create_default_context(), look_up=resolve_to("::ffff:127.0.0.1"))
        try:
            if public_only:
                with pytest.raises(HoldfastError, match="may not be reached"):
                    await pool.request(
                        "GET", parse_url(f"http://evil.example:{port}/"), headers={}, connect_seconds=5
                    )
            else:  # the control
                url = parse_url(f"http://evil.example:{port}/")
                (await pool.request("GET", url, headers={}, connect_seconds=5)).close()
        finally:
            await pool.close()

    assert len(asked) == (0 if public_only else 1)


# Runs in a network of its own, where this machine has a public address.
_WITH_PUBLIC_ADDRESS = """
import fcntl, json, socket, struct
from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.model.blocked_addresses import why_host_blocked
from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement
from holdfast.sandbox.bwrap.egress_policy import EgressPolicy, Endpoint

PUBLIC = "8.8.4.4"
endpoint = Endpoint(host="name.example", port=8000)

def why_not_selected():
    try:
        AddressPolicy(public_only=True).select("name.example", 8000, [PUBLIC])
    except HoldfastError as error:
        return error.message

def ask():
    return {
        "proxy": EgressPolicy(Confinement(network=("name.example:8000",))).why_address_refused(endpoint, PUBLIC),
        "own port": EgressPolicy(
            Confinement(network=("*",), allowed_private_hosts=("*",), denied_ports=(8000,))
        ).why_address_refused(endpoint, PUBLIC),
        "browser": EgressPolicy(Confinement(network=("*",), allowed_private_hosts=("*",))).why_address_refused(endpoint, PUBLIC),
        "remote": why_not_selected(),
        "literal": why_host_blocked(PUBLIC),
        "embedded": why_host_blocked("::ffff:" + PUBLIC),
    }

before = ask()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    address = struct.pack("16sH2s4s8s", b"lo", socket.AF_INET, b"", socket.inet_aton(PUBLIC), b"")
    fcntl.ioctl(control, 0x8916, address)  # SIOCSIFADDR
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14s", b"lo", 1, b""))  # SIOCSIFFLAGS, up
with socket.create_server(("0.0.0.0", 8000)), socket.create_connection((PUBLIC, 8000), timeout=5):
    print(json.dumps([before, ask(), "reached"]))
"""


@pytest.mark.promise("BOX-02")
def test_a_public_address_of_this_machine_is_not_on_the_internet():
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", _WITH_PUBLIC_ADDRESS]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in ran.stderr.partition(":")[0]:
        pytest.skip("this machine allows no network namespaces")

    before, found, control = json.loads(ran.stdout)

    assert before == dict.fromkeys(before), "an address of another machine is not blocked"
    assert control == "reached", "a program on this machine is reached at the address"
    assert found == {
        "proxy": 'name.example:8000 is at 8.8.4.4, an address of this machine. To allow it, add it to this list in the settings, under [servers]: reachable = ["name.example:8000"]',
        "own port": "name.example:8000 is a port of Holdfast itself. No page or server may reach it.",
        "browser": None,
        "remote": "name.example is at 8.8.4.4, an address of this machine, which may not be reached from here. "
        'To allow it, add it to this list in the settings, under [servers]: reachable = ["name.example"]',
        "literal": "an address of this machine",
        "embedded": "an address of this machine",
    }
