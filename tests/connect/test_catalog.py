"""Which server a tool name could belong to, before the server's tools are listed."""

import pytest

from holdfast.connect.catalog import could_belong_to

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
        (LONG, f"{LONG[:55]}_0123abcd", True),  # a model name, cut and with a hash
    ],
)
def test_name_could_belong_to_server_if_it_starts_with_its_prefix(server: str, name: str, expected: bool):
    assert could_belong_to(server, name) is expected
