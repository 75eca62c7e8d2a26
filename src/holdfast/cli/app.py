"""The `holdfast` command: what it can do, and how it fails."""

import os
import sys

import click

from holdfast import __version__
from holdfast.cli.lazy import Lazy, LazyGroup
from holdfast.model.errors import HoldfastError

COMMANDS = {
    "acp": Lazy(
        target="holdfast.cli.acp:acp", help="Serve an editor that speaks ACP, on standard input and output."
    ),
    "audit": Lazy(
        target="holdfast.cli.audit:audit", help="Show, check and export the record of what was done."
    ),
    "builtin": Lazy(
        target="holdfast.cli.builtin:builtin",
        help="Run one of Holdfast's own MCP servers, on standard input and output.",
    ),
    "call": Lazy(
        target="holdfast.cli.call:call", help="Call one tool of one server, in a session of its own."
    ),
    "chat": Lazy(target="holdfast.cli.chat:chat", help="Talk in a session of its own, at this terminal."),
    "doctor": Lazy(
        target="holdfast.cli.doctor:doctor", help="Try to break out of the sandbox, and tell what held."
    ),
    "keys": Lazy(
        target="holdfast.cli.keys:keys", help="Show and change the keys that sign a session's context."
    ),
    "probe": Lazy(target="holdfast.cli.probe:probe", help="Ask an MCP server who it is and what it offers."),
    "servers": Lazy(
        target="holdfast.cli.servers:servers", help="List, explain, approve and import MCP servers."
    ),
    "sessions": Lazy(
        target="holdfast.cli.sessions:sessions", help="List, show, search, move and delete sessions."
    ),
    "settings": Lazy(
        target="holdfast.cli.settings:settings", help="Show the settings and where each comes from."
    ),
    "store": Lazy(
        target="holdfast.cli.store:store", help="Check, copy and shrink the file in which sessions are kept."
    ),
    "tools": Lazy(target="holdfast.cli.tools:tools", help="List the tools that a session here would have."),
    "workspaces": Lazy(
        target="holdfast.cli.workspaces:workspaces",
        help="Register folders, and say what a session in one may use.",
    ),
}

HELP = """Sessions for MCP.

Agents, editors and MCP clients open a session. Holdfast gives that session its own MCP servers,
keeps them alive for the whole run, tells every tool who is calling, confines what is not trusted,
and remembers everything.

\b
Examples:
  holdfast chat                   a session in this folder, at this terminal
  holdfast sessions list          the sessions there are; chat --resume goes on with one
  holdfast acp                    what an editor runs as its agent
  holdfast probe -- COMMAND ...   what an MCP server says of itself, and its tools
  holdfast servers list           which servers a session here gets, and why not the others
  holdfast call SERVER.TOOL JSON  one call of one tool
  holdfast settings show          every setting, its value and where it comes from
  holdfast settings path          the settings file that is read
  holdfast store backup FILE      a copy of all sessions, taken while they run
  holdfast audit verify           whether the record of what was done is whole
  holdfast workspaces add PATH    a folder, and what a session in it may use
  holdfast doctor                 whether the sandbox holds on this machine
  holdfast settings --help        more about one command
"""


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def app() -> None:
    """Run one command."""


def main() -> None:
    """Run the command line; a failure the user can act on is a sentence and a hint, not a traceback."""
    _open_standard_files()
    try:
        app(prog_name="holdfast")
    except HoldfastError as error:
        from holdfast.cli.failure import tell

        tell(error)
        sys.exit(1)
    except OSError as error:
        click.echo(f"Error: {_trouble(error)}", err=True)
        sys.exit(1)


def _trouble(error: OSError) -> str:
    """What the system refused, which file it was about, and what to do."""
    import errno
    import logging

    logging.getLogger("holdfast.cli").debug("the system refused", exc_info=error)
    reason = (error.strerror or type(error).__name__).lower()
    what = f"'{error.filename}': {reason}" if error.filename else f"The system refused something: {reason}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"{what}. Free some space, then try again."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"{what}. Check who may write there; `holdfast settings show` prints where Holdfast keeps its files."
        case _:
            return f"{what}. Check the path; with HOLDFAST_LOG_LEVEL=debug the log says more."


def _open_standard_files() -> None:
    """A process may be started with standard files closed; whatever it opened first would take their place."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this very one
