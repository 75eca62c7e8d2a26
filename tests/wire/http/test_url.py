"""Addresses: who checks one and who connects to it must see the same host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import HoldfastError
from holdfast.wire.http.url import Url, read_url

READ = {
    "http://there": Url("http", "there", 80, "/"),
    "HTTPS://There.Example.COM/A?b=C#d": Url("https", "there.example.com", 443, "/A", "b=C"),
    "http://there:8080/": Url("http", "there", 8080, "/"),
    "http://there:/": Url("http", "there", 80, "/"),
    "http://there:65535/": Url("http", "there", 65535, "/"),
    "http://there.?a": Url("http", "there.", 80, "/", "a"),
    "https://[::1]:8443/a": Url("https", "::1", 8443, "/a"),
    "http://[2001:DB8:0::0001]/": Url("http", "2001:db8::1", 80, "/"),
    "http://[::ffff:127.0.0.1]/": Url("http", "::ffff:7f00:1", 80, "/"),
    "http://[fe80::1%eth0]/": Url("http", "fe80::1%eth0", 80, "/"),
    "http://bücher.example/": Url("http", "xn--bcher-kva.example", 80, "/"),
    "http://BÜCHER.example/ü?ü": Url("http", "xn--bcher-kva.example", 80, "/%C3%BC", "%C3%BC"),
    "http://127。0。0。1/": Url("http", "127.0.0.1", 80, "/"),
    "http://１２７.0.0.1/": Url("http", "127.0.0.1", 80, "/"),
    "http://there/a b\\c%2f%zz": Url("http", "there", 80, "/a%20b%5Cc%2f%zz"),
    "http://there/\r\nhost: evil": Url("http", "there", 80, "/host:%20evil"),
    "ht\ttp://th\nere/": Url("http", "there", 80, "/"),
    "http://there#@evil/": Url("http", "there", 80, "/"),
    "http://there?@evil/": Url("http", "there", 80, "/", "@evil/"),
    "http://there//evil/": Url("http", "there", 80, "//evil/"),
}


@pytest.mark.parametrize("text", READ, ids=ascii)
def test_an_address_is_read_one_way(text: str):
    assert read_url(text) == READ[text]


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
def test_an_address_that_others_might_read_otherwise_is_refused(text: str):
    with pytest.raises(HoldfastError, match="is no http or https address"):
        read_url(text)


def test_an_address_is_said_as_others_expect_it():
    said = [
        (url.origin, url.authority, url.target, url.place)
        for url in (
            Url("https", "there", 443, "/a", "key=secret"),
            Url("http", "fe80::1%eth0", 8080, "/"),
        )
    ]

    assert said == [
        (("https", "there", 443), "there", "/a?key=secret", "https://there/a"),
        (("http", "fe80::1%eth0", 8080), "[fe80::1]:8080", "/", "http://[fe80::1]:8080/"),
    ]


HERE = Url("http", "there", 8080, "/a/b", "c=d")

BESIDE = {
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


@pytest.mark.parametrize("reference", BESIDE, ids=ascii)
def test_another_address_of_the_same_server_can_be_named(reference: str):
    found = HERE.beside(reference)

    assert (found and found.target) == BESIDE[reference]


def test_a_link_local_address_keeps_its_zone():
    here = Url("http", "fe80::1%eth0", 80, "/a")

    assert here.beside("/b") == Url("http", "fe80::1%eth0", 80, "/b")


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
def test_what_a_server_names_is_at_its_own_origin_or_nowhere(reference: str):
    found = HERE.beside(reference)

    assert found is None or found.origin == HERE.origin
    assert found is None or (
        found.target.isascii() and found.target.isprintable() and " " not in found.target
    )


@given(st.one_of(st.lists(PARTS, max_size=10).map(lambda parts: "http://" + "".join(parts)), st.text()))
def test_what_was_read_reads_the_same_again(text: str):
    try:
        url = read_url(text)
    except HoldfastError:
        return

    assert read_url(f"{url.scheme}://{url.authority}{url.target}") == url
