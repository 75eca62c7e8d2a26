"""Cookies of one link: they are sent back until the server deletes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.connect.http.cookies import Cookies

PAST, LATER = "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"


def cookie_header(*lines: str) -> str:
    cookies = Cookies()
    cookies.update(lines)
    return cookies.header


def test_cookies_are_sent_back_and_a_later_one_replaces_an_earlier_one():
    lines = ("a=1; Path=/; HttpOnly", 'b="x y"', "c=d=e;Secure", "a=2")

    assert cookie_header(*lines) == 'b="x y"; c=d=e; a=2'


@pytest.mark.parametrize(
    ("attributes", "is_kept"),
    [
        ("Max-Age=0", False),
        ("max-age = -1", False),
        ("Max-Age=00000000001", True),
        ("Max-Age=99999999999999999999", True),
        ("Max-Age=--5", True),
        ("Max-Age=", True),
        ("Max-Age=²", True),
        (f"Expires={PAST}", False),
        ("Expires=Thu, 01-Jan-1970 00:00:00 GMT", False),
        (f"Expires={LATER}", True),
        (f"Max-Age=60; Expires={PAST}", True),
        (f"Expires={LATER}; Max-Age=0", False),
        ("Expires=yesterday", True),
        ("Expires=", True),
    ],
)
def test_expired_cookie_is_dropped(attributes: str, is_kept: bool):
    assert cookie_header("a=1", "b=2", f"a=3; {attributes}") == ("b=2; a=3" if is_kept else "b=2")


@pytest.mark.parametrize(
    "line",
    [
        "",
        ";",
        "=",
        "=x",
        "a",
        "a; b=c",
        "a=\x00",
        "a=\x1b[0m",
        "a=\r\nb: c",
        "a\tb=c",
        "a=é",
        "a=" + "x" * 5000,
    ],
    ids=lambda line: ascii(line)[:20],
)
def test_invalid_cookie_is_ignored(line: str):
    assert cookie_header("good=1", line) == "good=1"


def test_cookie_that_is_too_long_is_ignored_and_not_cut():
    long = "a=" + "x" * 4000

    assert (cookie_header(long), cookie_header(f"{long}; {'y' * 100}")) == (long, "")


def test_number_of_cookies_is_limited():
    cookies = Cookies()
    cookies.update(f"c{number}=1" for number in range(1000))
    cookies.update(["c0=2"])

    assert cookies.header == "; ".join([*(f"c{number}=1" for number in range(1, 50)), "c0=2"])


@given(st.lists(st.one_of(st.text(), st.text(alphabet="a=;-0123456789 ,:GMTJanxpiresExMgAe"))))
def test_cookie_header_is_printable_whatever_the_server_sends(lines: list[str]):
    header = cookie_header(
        *lines, *(f"a=1; Expires={line}" for line in lines), *(f"b=1; Max-Age={line}" for line in lines)
    )

    assert header.isascii()
    assert header.isprintable()
