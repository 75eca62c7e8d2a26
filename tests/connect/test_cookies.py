"""Cookies of one link: what a server set comes back, until it takes it back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.connect.cookies import Cookies

PAST, LATER = "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"


def learned(*lines: str) -> str:
    cookies = Cookies()
    cookies.learn(lines)
    return cookies.header


def test_what_was_set_comes_back_and_the_last_word_counts():
    lines = ("a=1; Path=/; HttpOnly", 'b="x y"', "c=d=e;Secure", "a=2")

    assert learned(*lines) == 'b="x y"; c=d=e; a=2'


@pytest.mark.parametrize(
    ("attributes", "kept"),
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
def test_a_cookie_whose_time_is_up_is_dropped(attributes: str, kept: bool):
    assert learned("a=1", "b=2", f"a=3; {attributes}") == ("b=2; a=3" if kept else "b=2")


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
def test_what_is_no_cookie_is_not_kept(line: str):
    assert learned("good=1", line) == "good=1"


def test_a_long_cookie_does_not_come_back_cut():
    long = "a=" + "x" * 4000

    assert (learned(long), learned(f"{long}; {'y' * 100}")) == (long, "")


def test_a_server_may_set_so_many_and_no_more():
    cookies = Cookies()
    cookies.learn(f"c{number}=1" for number in range(1000))
    cookies.learn(["c0=2"])

    assert cookies.header == "; ".join([*(f"c{number}=1" for number in range(1, 50)), "c0=2"])


@given(st.lists(st.one_of(st.text(), st.text(alphabet="a=;-0123456789 ,:GMTJanxpiresExMgAe"))))
def test_no_line_does_harm(lines: list[str]):
    header = learned(
        *lines, *(f"a=1; Expires={line}" for line in lines), *(f"b=1; Max-Age={line}" for line in lines)
    )

    assert header.isascii()
    assert header.isprintable()
