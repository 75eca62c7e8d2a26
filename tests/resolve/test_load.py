import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.resolution import Refusal, Stage
from holdfast.model.server import Source
from holdfast.resolve.entry import Entry, Loaded
from holdfast.resolve.load import CLIENT, Document, load, read_json


def document(content: Any, source: Source = Source.USER, path: str = "/home/me/mcp.json") -> Document:
    return Document(source=source, path=path, text=json.dumps(content).encode())


@pytest.mark.promise("RES-01")
def test_a_server_s_provenance_is_where_it_came_from_whatever_it_says_itself():
    claim: Any = {"command": "x", "source": "builtin", "origin": "the host"}
    loaded = load(
        [
            document({"mcpServers": {"c": claim}}, Source.PROJECT, "/p/.mcp.json"),
            document({"mcpServers": {"a": claim}}, Source.HOST, "/etc/mcp.json"),
            document({"mcpServers": {"b": claim}}),
        ],
        brought=[{"name": "d", **claim}],
    )

    assert [(entry.name, entry.source, entry.origin) for entry in loaded.entries] == [
        ("a", Source.HOST, "/etc/mcp.json"),
        ("b", Source.USER, "/home/me/mcp.json"),
        ("c", Source.PROJECT, "/p/.mcp.json"),
        ("d", Source.CLIENT, CLIENT),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            b"{",
            "It cannot be read as JSON: Input data was truncated. Correct the file; its servers are left out until then.",
        ),
        (
            b'{"mcpServers":{"a":{},"a":{}}}',
            "It cannot be read as JSON: the same key stands twice in one object. Correct the file; its servers are left out until then.",
        ),
        (b"[]", 'It has no object "mcpServers". Write {"mcpServers": {"name": {"command": "…"}}}.'),
        (
            b'{"mcpServers":[]}',
            'It has no object "mcpServers". Write {"mcpServers": {"name": {"command": "…"}}}.',
        ),
    ],
)
@pytest.mark.promise("RES-02")
def test_a_broken_file_is_refused_by_name_and_the_others_still_load(text: bytes, reason: str):
    broken = Document(source=Source.PROJECT, path="/p/.mcp.json", text=text)

    assert load([broken, document({"mcpServers": {"a": {"command": "x"}}})]) == Loaded(
        entries=(Entry(name="a", source=Source.USER, origin="/home/me/mcp.json", value={"command": "x"}),),
        refusals=(Refusal(server="/p/.mcp.json", stage=Stage.LOAD, reason=reason),),
    )


def test_a_file_without_servers_has_none():
    assert load([document({})]) == Loaded()


@pytest.mark.promise("ACP-07")
def test_a_client_s_servers_are_read_one_by_one():
    loaded = load(
        [],
        brought=[
            {"name": "fs", "command": "/bin/fs", "args": [], "env": [{"name": "A", "value": "1"}]},
            {
                "type": "http",
                "name": "web",
                "url": "https://x.org/mcp",
                "headers": [{"name": "X-Key", "value": "k"}],
            },
            "nonsense",
            {"command": "/bin/x"},
        ],
    )

    assert [entry.value for entry in loaded.entries] == [
        {"command": "/bin/fs", "args": [], "env": {"A": "1"}},
        {"type": "http", "url": "https://x.org/mcp", "headers": {"X-Key": "k"}},
    ]
    assert [refusal.server for refusal in loaded.refusals] == ["mcpServers[2]", "mcpServers[3]"]


def test_comments_and_trailing_commas_are_read_as_editors_write_them():
    text = b'\xef\xbb\xbf{ // a comment, "with": quotes\n "url": "http://x//y", /* { */ "a": [1, 2,], "c": ",}",\n}'

    assert read_json(text) == {"url": "http://x//y", "a": [1, 2], "c": ",}"}


@given(st.dictionaries(st.text(), st.text()))
def test_plain_json_is_never_changed_by_reading_it(content: dict[str, str]):
    assert read_json(json.dumps(content).encode()) == content


def test_the_digest_of_an_entry_changes_with_every_word_and_place_but_not_with_the_order_of_keys():
    def digest(value: Any, name: str = "a", origin: str = "/p/.mcp.json") -> str:
        return Entry(name=name, source=Source.PROJECT, origin=origin, value=value).digest

    same = digest({"command": "x", "args": ["y"]})
    assert digest({"args": ["y"], "command": "x"}) == same
    others = [
        digest({"command": "x", "args": ["y", ""]}),
        digest({"command": "x", "args": "y"}),
        digest({"command": "x", "args": ["y"], "env": {}}),
        digest({"command": "x", "args": ["y"]}, name="b"),
        digest({"command": "x", "args": ["y"]}, origin="/q/.mcp.json"),
    ]
    assert len({same, *others}) == 6
