import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.resolution import Refusal, Stage
from holdfast.model.server import Source
from holdfast.resolve.json_with_comments import decode_json_with_comments
from holdfast.resolve.load import CLIENT_ORIGIN, ConfigFile, LoadedEntries, load, read_config_file
from holdfast.resolve.server_entry import ServerEntry
from holdfast.wire.strict_json import StrictJsonError


def config_file(content: Any, source: Source = Source.USER, path: str = "/home/me/mcp.json") -> ConfigFile:
    return ConfigFile(source=source, path=path, content=json.dumps(content).encode())


@pytest.mark.promise("RES-01")
def test_source_of_an_entry_is_where_it_came_from_not_what_it_claims():
    claim: Any = {"command": "x", "source": "builtin", "origin": "the host"}
    loaded = load(
        [
            config_file({"mcpServers": {"c": claim}}, Source.PROJECT, "/p/.mcp.json"),
            config_file({"mcpServers": {"a": claim}}, Source.OPERATOR, "/etc/mcp.json"),
            config_file({"mcpServers": {"b": claim}}),
        ],
        client_servers=[{"name": "d", **claim}],
    )

    assert [(entry.name, entry.source, entry.origin) for entry in loaded.entries] == [
        ("a", Source.OPERATOR, "/etc/mcp.json"),
        ("b", Source.USER, "/home/me/mcp.json"),
        ("c", Source.PROJECT, "/p/.mcp.json"),
        ("d", Source.CLIENT, CLIENT_ORIGIN),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            b"{",
            "It is not valid JSON: Input data was truncated. Its servers are left out until the file is corrected.",
        ),
        (
            b'{"mcpServers":{"a":{},"a":{}}}',
            "It is not valid JSON: an object has a duplicate key. Its servers are left out until the file is corrected.",
        ),
        (
            b"[]",
            'It must have this form: {"mcpServers": {"name": {"command": "…"}}}.',
        ),
        (
            b'{"mcpServers":[]}',
            'It must have this form: {"mcpServers": {"name": {"command": "…"}}}.',
        ),
    ],
)
@pytest.mark.promise("RES-02")
def test_invalid_file_is_refused_and_the_others_still_load(text: bytes, reason: str):
    broken = ConfigFile(source=Source.PROJECT, path="/p/.mcp.json", content=text)

    assert load([broken, config_file({"mcpServers": {"a": {"command": "x"}}})]) == LoadedEntries(
        entries=(
            ServerEntry(name="a", source=Source.USER, origin="/home/me/mcp.json", value={"command": "x"}),
        ),
        refusals=(Refusal(server="/p/.mcp.json", stage=Stage.LOAD, reason=reason),),
    )


def test_a_file_without_servers_has_none():
    assert load([config_file({})]) == LoadedEntries()


@pytest.mark.promise("ACP-07")
def test_client_servers_are_loaded_one_by_one():
    loaded = load(
        [],
        client_servers=[
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


def test_comments_and_trailing_commas_are_accepted():
    text = b'\xef\xbb\xbf{ // a comment, "with": quotes\n "url": "http://x//y", /* { */ "a": [1, 2,], "c": ",}",\n}'

    assert decode_json_with_comments(text) == {"url": "http://x//y", "a": [1, 2], "c": ",}"}


@pytest.mark.parametrize("text", [b'{"a": 1} /* no end', b'{"a": 1} /*/', b'{"a": "no end', b'{"a": 1,, }'])
def test_unclosed_comments_and_strings_stay_errors(text: bytes):
    with pytest.raises(StrictJsonError):
        decode_json_with_comments(text)


@pytest.mark.promise("RES-02")
def test_project_file_over_a_limit_is_refused_with_the_limit(tmp_path: Path):
    def refusal(content: bytes) -> str:
        (tmp_path / ".mcp.json").write_bytes(content)
        file = read_config_file(Source.PROJECT, tmp_path / ".mcp.json")
        assert file is not None
        return load([file]).refusals[0].reason

    servers = {f"s{number}": {"command": "x"} for number in range(101)}

    assert [
        refusal(b" " * 65537),
        refusal(b'{"a":' * 33 + b"1" + b"}" * 33),
        refusal(json.dumps({"mcpServers": servers}).encode()),
    ] == [
        "It is not read: more than 65536 bytes. It must be a regular file of at most 65536 bytes.",
        "It is not valid JSON: it is nested more than 32 levels deep. Its servers are left out until the file is corrected.",
        "It has 101 servers, more than 100. Remove some of them.",
    ]


@given(st.dictionaries(st.text(), st.text()))
def test_plain_json_is_decoded_unchanged(content: dict[str, str]):
    assert decode_json_with_comments(json.dumps(content).encode()) == content


def test_digest_depends_on_content_name_and_origin_but_not_on_key_order():
    def digest(value: Any, name: str = "a", origin: str = "/p/.mcp.json") -> str:
        return ServerEntry(name=name, source=Source.PROJECT, origin=origin, value=value).digest

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


def test_placeholder_counts_as_a_missing_file(tmp_path: Path):
    (tmp_path / ".mcp.json").mkdir()
    (tmp_path / ".mcp.json").chmod(0o755)
    other_folder = read_config_file(Source.PROJECT, tmp_path / ".mcp.json")
    (tmp_path / ".mcp.json").chmod(0o1755)  # the mode of a placeholder

    assert other_folder is not None
    assert other_folder.problem.startswith("It is not read")
    assert read_config_file(Source.PROJECT, tmp_path / ".mcp.json") is None
