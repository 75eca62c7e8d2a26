"""The `holdfast` command: what it can do, and how it fails."""

import sys

import click

from holdfast import __version__
from holdfast.cli.lazy import Lazy, LazyGroup
from holdfast.model.errors import HoldfastError

COMMANDS = {
    "probe": Lazy(target="holdfast.cli.probe:probe", help="Ask an MCP server who it is and what it offers."),
    "settings": Lazy(
        target="holdfast.cli.settings:settings", help="Show the settings and where each comes from."
    ),
}

HELP = """Sessions for MCP.

Agents, editors and MCP clients open a session. Holdfast gives that session its own MCP servers,
keeps them alive for the whole run, tells every tool who is calling, confines what is not trusted,
and remembers everything.

\b
Examples:
  holdfast probe -- COMMAND ...   what an MCP server says of itself, and its tools
  holdfast settings show          every setting, its value and where it comes from
  holdfast settings path          the settings file that is read
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
    try:
        app(prog_name="holdfast")
    except HoldfastError as error:
        click.echo(f"Error: {error}", err=True)
        click.echo(f"Hint: {error.code.hint}", err=True)
        sys.exit(1)
