"""The list of slash commands, and the text of `/help`."""

import pytest

from holdfast.agent.command_list import COMMANDS, HELP
from holdfast.agent.parse_commands import is_command


def test_the_help_lists_every_command_within_80_columns():
    assert [command.name for command in COMMANDS if f"/{command.name}" not in HELP] == []
    assert [line for line in HELP.splitlines() if len(line) > 80] == [], "an indented line is not wrapped"
    assert {command.name: command.hint for command in COMMANDS} == {
        "tools": "[server | server.tool]",
        "call": 'server.tool {"argument": "value"}',
        "servers": "",
        "why": "server",
        "model": "[provider:model]",
        "usage": "",
        "resources": "[server [uri]]",
        "prompts": '[server [name {"argument": "value"}]]',
        "more": "",
        "logs": "server",
        "help": "",
    }


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_every_command_is_in_the_help_and_is_never_sent_to_a_model(name: str):
    assert is_command([{"type": "text", "text": f"/{name} x"}])
    assert not is_command([{"type": "text", "text": f"/{name}s-of-mine x"}])
    assert f"\n    /{name} " in HELP
