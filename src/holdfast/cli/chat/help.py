"""What a chat says about commands: at its beginning, and after the answer to `/help`. `agent/command_list.py` makes that answer."""

import os
from collections.abc import Sequence

from holdfast.agent.agent import Command
from holdfast.agent.command_list import describe_commands
from holdfast.agent.model.find_models import find_by_keys
from holdfast.agent.model.model_agent import ModelAgent
from holdfast.cli.event_printer import EventPrinter
from holdfast.session.session import Session

_LEAVE = "Leave; you can resume the session later"
_SESSION_COMMANDS = (
    Command(name="stop", description="Cancel the running turn, even if another terminal started it"),
    Command(name="mode", description="Show the mode, or change it"),
)
CHAT_COMMANDS = (
    Command(name="quit", description=_LEAVE),
    Command(name="exit", description=_LEAVE),
    *_SESSION_COMMANDS,
    Command(name="approve", description="Review the project's servers"),
)
"""The commands that the chat runs itself."""
DEV_COMMANDS = (
    Command(name="quit", description="Leave"),
    Command(name="exit", description="Leave"),
    *_SESSION_COMMANDS,
)
"""The commands that the chat of `holdfast dev` runs itself. The session of such a chat is not stored, and has no servers of the project."""
_COMMANDS_WITHOUT_MODEL = (
    ("/tools", "list the tools"),
    ('/call files.list {"path": "."}', "call a tool"),
    ('/call files.find {"text": "TODO"}', "find lines in files"),
    ("/servers", "show the servers"),
    ("/help", "show all commands"),
    ("/quit", "leave; you can resume the session later"),
)
_COMMANDS_WITH_MODEL = (
    ("/tools", "list the tools"),
    ("/model", "show or change the model"),
    ("/usage", "show how many tokens were used"),
    ("/help", "show all commands"),
    ("/quit", "leave; you can resume the session later"),
)


def print_usage(printer: EventPrinter, session: Session) -> None:
    """Print the most important commands and keys. Without a model, say how to get one."""
    has_model = isinstance(session.agent, ModelAgent) and bool(session.agent.chosen_model)
    if has_model:
        printer.print("Type a prompt, or")
    else:
        printer.print("This session has no model: you call the tools yourself. Type")
    for command, purpose in _COMMANDS_WITH_MODEL if has_model else _COMMANDS_WITHOUT_MODEL:
        printer.print(f"  {command:<36}", "cyan", end="")
        printer.print(purpose, "dim")
    if not has_model:
        found = find_by_keys(os.environ)
        command = f"/model {found[0].name}" if found else "holdfast model"
        printer.print(f"  {command:<36}", "cyan", end="")
        printer.print("let a model answer" if found else "in a shell: find a model that can answer", "dim")
    if printer.is_terminal:
        printer.print("Tab completes, Alt-Enter starts a new line, Ctrl-C cancels, Ctrl-D leaves.", "dim")
    printer.print()


def print_chat_commands(printer: EventPrinter, commands: Sequence[Command]) -> None:
    """Print the commands that the chat runs itself. The session's own list does not contain them."""
    printer.new_line()
    printer.print_lines(describe_commands(commands), end="")
