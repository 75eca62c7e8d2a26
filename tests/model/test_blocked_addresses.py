import pytest

from holdfast.model.blocked_addresses import parse_address, why_host_blocked


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("example.org", None),
        ("8.8.8.8", None),
        ("[2606:4700::1111]", None),
        ("localhost", "a local name"),
        ("LOCALHOST.", "a local name"),
        ("printer.local", "a local name"),
        ("metadata.google.internal", "a local name"),
        ("router", "a local name"),
        ("127.0.0.1", "a loopback address"),
        ("127.1", "a loopback address"),
        ("2130706433", "a loopback address"),
        ("0x7f000001", "a loopback address"),
        ("0177.0.0.1", "a loopback address"),
        ("[::1]", "a loopback address"),
        ("::ffff:127.0.0.1", "a loopback address"),
        ("::ffff:8.8.8.8", None),
        ("64:ff9b::7f00:1", "a loopback address"),
        ("2002:7f00:1::", "a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("fe80::1%eth0", "a link-local address"),
        ("10.0.0.1", "a private address"),
        ("172.16.0.1", "a private address"),
        ("192.168.1.1", "a private address"),
        ("100.64.0.1", "a private address"),
        ("fd00::1", "a private address"),
        ("0.0.0.0", "a private address"),
        ("224.0.0.1", "a multicast address"),
        ("", "no host name"),
    ],
)
@pytest.mark.promise("RES-05")
def test_private_and_local_hosts_are_blocked_in_any_notation(host: str, why: str | None):
    assert why_host_blocked(host) == why


def test_hexadecimal_numbers_in_upper_case_are_an_address():
    assert str(parse_address("0X7F.1")) == "127.0.0.1"
