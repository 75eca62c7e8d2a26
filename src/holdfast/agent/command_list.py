"""The slash commands that every agent of Holdfast understands."""

from holdfast.agent.agent import Command

COMMANDS = (
    Command(
        name="tools",
        description="List all tools or those of one server, or describe one tool",
        hint="[server | server.tool]",
    ),
    Command(name="call", description="Call a tool", hint='server.tool {"argument": "value"}'),
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
    Command(name="logs", description="Show what a server wrote to standard error", hint="server"),
    Command(name="help", description="List the commands"),
)
COMMAND_NAMES = frozenset(f"/{command.name}" for command in COMMANDS)
"""The names with the slash. A prompt that begins with one of them is never sent to a model."""
