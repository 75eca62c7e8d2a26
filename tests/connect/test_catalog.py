"""Whose tool a name may be, before the server's tools are known."""

import pytest

from holdfast.connect.catalog import may_be_of

LONG = "s" * 80


@pytest.mark.parametrize(
    ("server", "name", "expected"),
    [
        ("wiki", "wiki.edit", True),
        ("wiki", "wiki__edit", True),
        ("wiki", "wiki", False),
        ("wiki", "wikis.edit", False),
        ("wiki", "nope.wiki.edit", False),
        ("my wiki", "my wiki.edit", True),
        ("my wiki", "my_wiki__edit", True),
        ("a.b", "a.b.c", True),
        ("a", "a.b.c", True),
        (LONG, f"{LONG}.edit", True),
        (LONG, f"{LONG[:55]}_0123abcd", True),  # as models are given it, cut and marked
    ],
)
def test_a_name_may_be_of_a_server_that_it_begins_with(server: str, name: str, expected: bool):
    assert may_be_of(server, name) is expected
