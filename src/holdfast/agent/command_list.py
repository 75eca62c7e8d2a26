"""The slash commands that every agent of Holdfast understands, and the text of `/help`. `cli/chat/help.py` has those of a chat only."""

from collections.abc import Iterable
from textwrap import wrap

from holdfast.agent.agent import Command

COMMANDS = (
    Command(
        name="tools",
        description="List all tools or those of one server, or describe one tool",
        hint="[server | server.tool]",
    ),
    Command(
        name="call",
        description="Call a tool; the JSON may span several lines, and several calls run at once",
        hint='server.tool {"argument": "value"}',
    ),
    Command(name="servers", description="List the servers, and which were refused"),
    Command(name="why", description="Show why a server was refused, and its warnings", hint="server"),
    Command(
        name="model", description="Show the session's model, or choose another one", hint="[provider:model]"
    ),
    Command(name="usage", description="Show how many tokens the session has used, and their cost"),
    Command(name="resources", description="List resources, or read one", hint="[server [uri]]"),
    Command(
        name="prompts",
        description="List prompts, or show one",
        hint='[server [name {"argument": "value"}]]',
    ),
    Command(name="more", description="Show the next part of a long result"),
    Command(name="logs", description="Show a server's last lines of standard error", hint="server"),
    Command(name="help", description="List the commands"),
)
COMMAND_NAMES = frozenset(f"/{command.name}" for command in COMMANDS)
"""The names with the slash. A prompt of the user that begins with one of them is not sent to a model."""
_LINE_LENGTH = 80
_COLUMN = 35  # where the descriptions begin


def describe_commands(commands: Iterable[Command]) -> str:
    """Return the lines about these commands in a help text."""
    lines: list[str] = []
    for command in commands:
        usage = f"    /{command.name} {command.hint}"
        if len(usage) >= _COLUMN:
            lines.append(usage)
            usage = ""
        for text in wrap(
            f"{command.description[0].lower()}{command.description[1:]}", _LINE_LENGTH - _COLUMN
        ):
            lines.append(f"{usage:<{_COLUMN}}{text}")
            usage = ""
    return "".join(f"{line}\n" for line in lines)


HELP = f"""Only a model answers free text; in a shell, `holdfast model` lists models that
you can use. These commands always work:

{describe_commands(COMMANDS)}"""
