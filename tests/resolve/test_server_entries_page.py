"""docs/server-entries.md names every key of an entry, and its examples are valid."""

import json
import re
from pathlib import Path

import pytest

from holdfast.model.server import Source
from holdfast.resolve.load import ConfigFile, load
from holdfast.resolve.server_entry import TRUSTED_SOURCE_KEYS, EntryFields
from holdfast.resolve.validate import validate

PAGE = (Path(__file__).parents[2] / "docs" / "server-entries.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def test_page_names_every_key_in_the_right_table():
    first, second = PAGE.split("## Keys that grant something")
    keys = {"type" if name == "kind" else name for name in EntryFields.__struct_fields__}
    named = [set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) for part in (first, second)]

    assert named[1] == set(TRUSTED_SOURCE_KEYS)
    assert named[0] == keys - set(TRUSTED_SOURCE_KEYS)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_valid(example: str):
    loaded = load([ConfigFile(source=Source.USER, path="mcp.json", content=example.encode())])
    checked = validate(loaded)

    assert (checked.refusals, checked.warnings) == ((), ())
    assert {server.name for server in checked.servers} == set(json.loads(example)["mcpServers"])
