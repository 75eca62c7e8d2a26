"""The `holdfast` command: its subcommands, and how errors are printed."""

import os
import sys

import click

from holdfast import __version__
from holdfast.cli.click_groups import AppGroup, LazyCommand
from holdfast.model.errors import HoldfastError

COMMANDS = {
    "acp": LazyCommand(
        target="holdfast.cli.acp:acp", help="Serve an editor that speaks ACP, on standard input and output."
    ),
    "agents": LazyCommand(
        target="holdfast.cli.agents:agents",
        help="List and show the definitions of agents; approve them, and revoke approvals.",
    ),
    "audit": LazyCommand(
        target="holdfast.cli.audit:audit", help="List, verify and export the audit records."
    ),
    "builtin": LazyCommand(
        target="holdfast.cli.builtin:builtin",
        help="Run a built-in MCP server, on standard input and output.",
    ),
    "call": LazyCommand(target="holdfast.cli.call:call", help="Call one tool of one server."),
    "chat": LazyCommand(
        target="holdfast.cli.chat.command:chat", help="Chat at this terminal, in a new or an earlier session."
    ),
    "dev": LazyCommand(
        target="holdfast.cli.dev:dev",
        help="Try a server while you write it: call its tools at a prompt; saving a file restarts the server.",
    ),
    "doctor": LazyCommand(
        target="holdfast.cli.doctor:doctor",
        help="Check the installation, and try to break out of the sandbox.",
    ),
    "keys": LazyCommand(
        target="holdfast.cli.keys:keys", help="Show and rotate the keys that sign a session's context."
    ),
    "mcp": LazyCommand(
        target="holdfast.cli.mcp:mcp", help="Serve one MCP client, on standard input and output."
    ),
    "model": LazyCommand(
        target="holdfast.cli.model:model", help="Find, try and set the model that answers prompts."
    ),
    "probe": LazyCommand(
        target="holdfast.cli.probe:probe",
        help="Start an MCP server or connect to one, and show its version and tools.",
    ),
    "servers": LazyCommand(
        target="holdfast.cli.servers:servers",
        help="Manage MCP servers: list, explain, add, remove, edit, logs, approve, approvals, revoke, import, login, logout.",
    ),
    "sessions": LazyCommand(
        target="holdfast.cli.sessions:sessions",
        help="List, show, replay, search, attach to, watch, move, delete, prune, tag and export sessions.",
    ),
    "settings": LazyCommand(
        target="holdfast.cli.settings:settings", help="Show the settings and where each comes from."
    ),
    "store": LazyCommand(
        target="holdfast.cli.store:store",
        help="Check, back up and shrink the file in which sessions are stored.",
    ),
    "tasks": LazyCommand(
        target="holdfast.cli.tasks:tasks",
        help="Add, list, show, change, start and finish tasks of a workspace.",
    ),
    "tokens": LazyCommand(
        target="holdfast.cli.tokens:tokens", help="Create, list and revoke the tokens of MCP clients."
    ),
    "tools": LazyCommand(
        target="holdfast.cli.tools:tools", help="List the tools of a session in this folder."
    ),
    "up": LazyCommand(
        target="holdfast.cli.up.command:up",
        help="Serve MCP clients at one URL; every client session gets its own servers.",
    ),
    "workspaces": LazyCommand(
        target="holdfast.cli.workspaces:workspaces",
        help="Register folders, and set what their sessions may use.",
    ),
}

HELP = """Sessions for MCP.

Agents, editors and MCP clients open a session. Holdfast gives that session its own MCP servers,
keeps them running until it ends, tells every tool who is calling, sandboxes servers that are not
trusted, and stores what happens.

\b
Examples:
  holdfast up                     serve MCP clients at one URL; each session gets its own servers
  holdfast chat                   start a session in this folder, at this terminal
  holdfast model                  find and set the model that answers
  holdfast chat --resume          continue the latest session of this folder
  holdfast sessions list          list the stored sessions
  holdfast acp                    serve an editor (configure this as its agent)
  holdfast dev server.py          try a server while you write it
  holdfast probe -- COMMAND ...   show the version and tools of an MCP server
  holdfast servers list           show which servers a session here gets, and why others are refused
  holdfast call SERVER.TOOL JSON  call one tool
  holdfast settings show          show every setting, its value and where it comes from
  holdfast store backup FILE      back up all sessions, even while they are in use
  holdfast audit verify           check that no audit record was changed
  holdfast workspaces add PATH    register a folder
  holdfast doctor                 check the installation and test the sandbox

Run `holdfast COMMAND --help` to read more about a command.
"""


@click.group(
    cls=AppGroup,
    lazy=COMMANDS,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def app() -> None:
    """Run one command."""


def main() -> None:
    """Run the command line. Expected errors are printed as a message and a hint, without a traceback."""
    _reopen_closed_streams()
    try:
        app(prog_name="holdfast")
    except HoldfastError as error:
        from holdfast.cli.output import print_error

        print_error(error)
        sys.exit(1)
    except OSError as error:
        from holdfast.cli.output import print_line

        print_line(f"Error: {_describe_error(error)}", err=True)
        sys.exit(1)


def _describe_error(error: OSError) -> str:
    """Say which file is affected, what the operating system reported, and what to do."""
    import errno

    _log_details(error)
    reason = (error.strerror or type(error).__name__).lower()
    what = f"'{error.filename}': {reason}" if error.filename else f"The operating system reported: {reason}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            where = " on that disk" if error.filename else ""
            return f"{what}. Free some space{where}, then try again."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"{what}. Check the permissions. `holdfast settings show` prints where Holdfast keeps its files."
        case _:
            return f"{what}. Check the path. Set HOLDFAST_LOG_LEVEL=debug to log more details."


def _log_details(error: OSError) -> None:
    """Log the traceback if the settings ask for it. Some commands have not configured logging."""
    import logging
    from contextlib import suppress

    from holdfast import log_output, settings

    with suppress(HoldfastError, OSError):
        loaded = settings.load()
        log_output.configure(loaded.log.level, loaded.log.format)
    logging.getLogger("holdfast.cli").debug("operating system error", exc_info=error)


def _reopen_closed_streams() -> None:
    """Open /dev/null for each closed standard stream. Otherwise the next opened file would get the stream's descriptor."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is `descriptor`
