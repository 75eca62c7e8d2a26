"""Parsing addresses: the egress check and the connection must see the same host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.connect.http.url import display_url, join_url, parse_url
from holdfast.model.errors import HoldfastError

READ = {
    "http://there": ("http", "there", 80, "/", ""),
    "HTTPS://There.Example.COM/A?b=C#d": ("https", "there.example.com", 443, "/A", "b=C"),
    "http://there:8080/": ("http", "there", 8080, "/", ""),
    "http://there:/": ("http", "there", 80, "/", ""),
    "http://there:65535/": ("http", "there", 65535, "/", ""),
    "http://there.?a": ("http", "there.", 80, "/", "a"),
    "https://[::1]:8443/a": ("https", "::1", 8443, "/a", ""),
    "http://[2001:DB8:0::0001]/": ("http", "2001:db8::1", 80, "/", ""),
    "http://[::ffff:127.0.0.1]/": ("http", "::ffff:7f00:1", 80, "/", ""),
    "http://[fe80::1%eth0]/": ("http", "fe80::1%eth0", 80, "/", ""),
    "http://bücher.example/": ("http", "xn--bcher-kva.example", 80, "/", ""),
    "http://BÜCHER.example/ü?ü": ("http", "xn--bcher-kva.example", 80, "/%C3%BC", "%C3%BC"),
    "http://127。0。0。1/": ("http", "127.0.0.1", 80, "/", ""),
    "http://１２７.0.0.1/": ("http", "127.0.0.1", 80, "/", ""),
    "http://there/a b\\c%2f%zz": ("http", "there", 80, "/a%20b%5Cc%2F%25zz", ""),
    "http://there/\r\nhost: evil": ("http", "there", 80, "/host:%20evil", ""),
    "ht\ttp://th\nere/": ("http", "there", 80, "/", ""),
    "http://there#@evil/": ("http", "there", 80, "/", ""),
    "http://there?@evil/": ("http", "there", 80, "/", "@evil/"),
    "http://there//evil/": ("http", "there", 80, "//evil/", ""),
}


@pytest.mark.parametrize("text", READ, ids=ascii)
def test_address_is_parsed(text: str):
    url = parse_url(text)

    assert (url.scheme, url.raw_host, url.port, url.raw_path, url.raw_query_string) == READ[text]


REFUSED = [
    *(
        "",
        "there",
        "/path",
        "//there/",
        "ftp://there/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http:/x",
    ),
    *("http://", "http:///path", "http://:80/", "http://?a", "http://user@there/", "http://user:word@there/"),
    *("http://@there/", "http://good.example\\@evil.example/", "http://good.example\\evil.example/"),
    "http://good.example\\.evil.example/",
    *("http://the re/", "http://there%2eevil/", "http://there%00/", "http://there\0/", "http://a..b/"),
    *("http://.there/", "http://-there/", "http://there:0/", "http://there:65536/", "http://there:-1/"),
    *("http://there:80a/", "http://there:٨٠/", "http://there:8 0/", "http://[::1/", "http://::1/"),
    *("http://[::1]x/", "http://[::1]x:80/", "http://x[::1]/", "http://[there]/", "http://[v1.x]/"),
    *(
        "http://[127.0.0.1]/",
        "http://[fe80::1%]/",
        "http://[::1]]/",
        "http://there／evil/",
        "http://there＠evil/",
    ),
    *(
        "http://xn--ü/",
        "http://\u202eevil/",
        "http://a\u200bb…/",
        "http://" + "a" * 300,
        "http://there/\ud800",
    ),
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: ascii(text)[:40])
def test_address_that_other_programs_may_parse_differently_is_refused(text: str):
    with pytest.raises(HoldfastError, match="cannot be used as an http or https address"):
        parse_url(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://there/a?key=secret", "https://there/a"),
        ("https://there:443/a?", "https://there/a"),
        ("http://[fe80::1%eth0]:8080/", "http://[fe80::1%eth0]:8080/"),
    ],
)
def test_address_is_shown_without_its_query(text: str, shown: str):
    assert display_url(parse_url(text)) == shown


HERE = parse_url("http://there:8080/a/b?c=d")

JOINED = {
    "": "/a/b?c=d",
    "e": "/a/e",
    "/e?f#g": "/e?f",
    "?f": "/a/b?f",
    "../../../e": "/e",
    "http://there:8080/e": "/e",
    "HTTP://THERE:8080": "/",
    "//there:8080/e": "/e",
    "/\\evil/": "/%5Cevil/",
    "\\\\evil/": "/a/%5C%5Cevil/",
    "https://there:8080/e": None,
    "http://there/e": None,
    "http://there:8081/e": None,
    "//evil:8080/": None,
    "http://there:8080@evil/": None,
    "http://user@there:8080/": None,
    "http://there.:8080/": None,
    "http://[::1": None,
    "javascript:alert(1)": None,
}


@pytest.mark.parametrize("reference", JOINED, ids=ascii)
def test_reference_to_the_same_server_is_resolved(reference: str):
    url = join_url(HERE, reference)

    assert (url and url.raw_path_qs) == JOINED[reference]


def test_link_local_address_keeps_its_zone():
    here = parse_url("http://[fe80::1%eth0]/a")

    assert join_url(here, "/b") == parse_url("http://[fe80::1%eth0]/b")


PARTS = st.sampled_from(
    [
        *"/\\@:.?#[]% \t",
        "//",
        "http:",
        "https://",
        "evil",
        "there",
        "8080",
        "::1",
        "%2f",
        "。",
        "／",
        "\0",
        "\r\n",
    ]
)


@given(st.one_of(st.lists(PARTS, max_size=10).map("".join), st.text(max_size=30)))
def test_resolved_reference_has_the_same_origin_or_is_refused(reference: str):
    url = join_url(HERE, reference)

    assert url is None or url.origin() == HERE.origin()
    assert url is None or (
        url.raw_path_qs.isascii() and url.raw_path_qs.isprintable() and " " not in url.raw_path_qs
    )


@given(st.one_of(st.lists(PARTS, max_size=10).map(lambda parts: "http://" + "".join(parts)), st.text()))
def test_parsed_address_parses_to_itself(text: str):
    try:
        url = parse_url(text)
    except HoldfastError:
        return

    assert parse_url(str(url)) == url
