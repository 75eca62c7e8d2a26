"""Which hosts a confined server may reach, by name and by address."""

import pytest

from holdfast.model.process import Confinement
from holdfast.sandbox.bwrap.egress_policy import EgressPolicy, Endpoint, ProxyRequest, parse_request

POLICY = EgressPolicy(
    Confinement(network=("api.example.org", "db.example.org:5432", "localhost:8080", "10.0.0.5"), allowed_private_hosts=("localhost", "10.0.0.5"))
)  # fmt: skip


@pytest.mark.parametrize(
    ("host", "port", "granted"),
    [
        ("api.example.org", 443, True),
        ("api.example.org", 80, True),
        ("api.example.org", 22, False),
        ("db.example.org", 5432, True),
        ("db.example.org", 443, False),
        ("example.org", 443, False),
        ("evil-api.example.org", 443, False),
        ("api.example.org.evil.net", 443, False),
    ],
)
def test_endpoint_is_granted_by_its_exact_name_and_port(host: str, port: int, granted: bool) -> None:
    assert (POLICY.why_name_refused(Endpoint(host=host, port=port)) is None) == granted


@pytest.mark.parametrize(
    ("host", "address", "allowed"),
    [
        ("api.example.org", "93.184.216.34", True),
        ("api.example.org", "2606:2800:220:1:248:1893:25c8:1946", True),
        ("api.example.org", "127.0.0.1", False),
        ("api.example.org", "10.1.2.3", False),
        ("api.example.org", "169.254.169.254", False),
        ("api.example.org", "100.100.100.200", False),
        ("api.example.org", "168.63.129.16", False),
        ("api.example.org", "::1", False),
        ("api.example.org", "fe80::1%eth0", False),
        ("api.example.org", "::ffff:127.0.0.1", False),
        ("api.example.org", "fd00:ec2::254", False),
        ("api.example.org", "64:ff9b::7f00:1", False),
        ("localhost", "127.0.0.1", True),
        ("10.0.0.5", "10.0.0.5", True),
    ],
)
def test_granted_name_with_a_private_address_needs_the_hosts_permission(
    host: str, address: str, allowed: bool
) -> None:
    assert (POLICY.why_address_refused(Endpoint(host=host, port=443), address) is None) == allowed


def test_connect_and_plain_requests_are_parsed() -> None:
    plain = parse_request(
        b"GET http://API.example.org./a?b=c HTTP/1.1\r\nHost: other\r\nProxy-Authorization: x\r\nConnection: keep-alive\r\nA: b\r\n\r\n"
    )

    assert parse_request(b"CONNECT Api.Example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n") == ProxyRequest(
        endpoint=Endpoint(host="api.example.org", port=443), is_tunnel=True
    )
    assert plain == ProxyRequest(
        endpoint=Endpoint(host="api.example.org", port=80),
        is_tunnel=False,
        head=b"GET /a?b=c HTTP/1.1\r\nHost: API.example.org.\r\nA: b\r\nConnection: close\r\n\r\n",
    )


@pytest.mark.parametrize(
    "head",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://api.example.org/ HTTP/1.1\r\n\r\n",
        b"CONNECT api.example.org HTTP/1.1\r\n\r\n",
        b"CONNECT api.example.org:0 HTTP/1.1\r\n\r\n",
        b"CONNECT api.example.org:99999 HTTP/1.1\r\n\r\n",
        b"CONNECT user@api.example.org:443 HTTP/1.1\r\n\r\n",
        b"GET http://user@api.example.org/ HTTP/1.1\r\n\r\n",
        b"CONNECT \xc3\xa4.example.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a%00b:443 HTTP/1.1\r\n\r\n",
        b"GET http:///x HTTP/1.1\r\n\r\n",
        b"CONNECT api.example.org:443 HTTP/2\r\n\r\n",
    ],
)
def test_malformed_proxy_request_is_refused(head: bytes) -> None:
    assert isinstance(parse_request(head), str)
